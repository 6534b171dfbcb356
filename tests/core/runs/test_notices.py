"""The notice of a run that has paused or failed: in its transaction, once, without its words."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from legation import Agent, Database, Notify, Platform, StandardChannel, tool
from legation.effects import Fetch, FetchReply
from legation.hosted.notify import NotifyRule
from legation.models.conversation import ModelFailed
from legation.runs.notices import write_notice
from legation.store.failures import CommitLost, Unavailable
from legation.store.run_rows import ClaimedRun
from legation.store.run_states import RunState
from legation.store.runs import FinishRun
from legation_testing import Client, Says, ScriptedModel, call

from ...callers import Issuer, demo

KEY: Final = b"k" * 32
ENVIRON: Final = {"HOOK": f"whsec_{base64.b64encode(KEY).decode()}"}
NOTIFY: Final = Notify(url="https://hooks.test/in", secret_env="HOOK")
CANARY: Final = "canary-55aa"
DATABASES: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))


@tool(requires_confirmation=True)
def pay(amount: str) -> str:
    """Pay."""
    return amount


class Receiver:
    """Takes notices, or refuses them with `status`."""

    def __init__(self) -> None:
        self.status, self.seen = 200, list[Fetch]()

    def __call__(self, fetch: Fetch) -> FetchReply:
        self.seen.append(fetch)
        return FetchReply(self.status, {}, b"")

    @property
    def told(self) -> list[dict[str, Any]]:
        return [json.loads(fetch.body) for fetch in self.seen]


def platform(notify: Notify | None = NOTIFY, **options: Any) -> Platform:
    asks = ScriptedModel([call("pay", amount=CANARY), CANARY] * 9)
    fails = ScriptedModel([Says(CANARY, fails=ModelFailed("overloaded", CANARY))] * 99)
    made: dict[str, Any] = {
        "agents": (
            Agent("clerk", model=asks, tools=[pay]),
            Agent("broken", model=fails, database="second"),
            Agent("fine", model=ScriptedModel([CANARY] * 9)),
        ),
        "databases": DATABASES,
        "environ": ENVIRON,
        "notify": notify,
    }
    return Platform(**{**made, **options})


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def client(receiver: Receiver) -> Iterator[Client]:
    with Client(platform, fetch=receiver) as client:
        yield client


def test_a_run_that_waits_is_told_of_with_the_names_of_its_tools(
    client: Client, receiver: Receiver
) -> None:
    run = client.run("clerk", CANARY, session_id="s1")
    client.settle()

    (fetch,) = receiver.seen
    (told,) = receiver.told
    events = client.get(f"/agents/clerk/runs/{run['run_id']}/events")
    last = max(int(line.rpartition(":")[2]) for line in _ids(events.text))
    assert told == {
        "type": "run.paused",
        "timestamp": "2026-01-01T00:00:00Z",
        "data": {
            "run_id": run["run_id"],
            "session_id": "s1",
            "db_id": "main",
            "agent_id": "clerk",
            "user_id": "",
            "status": "PAUSED",
            "approval_id": f"{run['run_id']}.{last}",
            "tools": ["pay"],
        },
    }
    assert fetch.url == "https://hooks.test/in"
    headers = dict(fetch.headers)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + fetch.body
    digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"


def _ids(events: str) -> list[str]:
    return [line for line in events.splitlines() if line.startswith("id:")]


def test_each_pause_of_a_run_is_another_notice() -> None:
    model = ScriptedModel([call("pay", amount="1"), call("pay", amount="2"), "done"])
    receiver = Receiver()
    agents = (Agent("clerk", model=model, tools=[pay]),)
    with Client(lambda: platform(agents=agents), fetch=receiver) as client:
        run = client.run("clerk", "hi")
        again = client.go_on(run, confirmed=True)
        client.go_on(again, confirmed=True)
        client.settle()

    approvals = [one["data"]["approval_id"] for one in receiver.told]
    assert len(set(approvals)) == 2
    assert {one.rpartition(".")[0] for one in approvals} == {run["run_id"]}


def test_a_run_that_fails_is_told_of_with_its_type_and_its_incident(
    client: Client, receiver: Receiver
) -> None:
    run = client.run("broken", CANARY)
    client.settle()

    (told,) = receiver.told
    assert told["type"] == "run.failed"
    assert told["data"]["db_id"] == "second"
    assert told["data"]["incident"] == run["incident"]
    assert told["data"]["error_type"] == run["error_type"]


def test_nothing_that_was_said_is_in_a_notice(client: Client, receiver: Receiver) -> None:
    for name in ("clerk", "broken", "fine"):
        client.run(name, CANARY)
    client.settle()

    assert len(receiver.seen) == 2
    assert CANARY not in str(receiver.seen)


@pytest.mark.parametrize(
    ("options", "types"),
    [
        ({"on": ["paused"]}, ["run.paused"]),
        ({"on": ["failed"]}, ["run.failed"]),
        ({"components": ["agent:broken"]}, ["run.failed"]),
        ({"components": ["agent:clerk", "agent:fine"]}, ["run.paused"]),
        ({"components": ["agent:fine"]}, []),
    ],
    ids=str,
)
def test_only_what_was_asked_for_is_told(options: dict[str, Any], types: list[str]) -> None:
    receiver = Receiver()
    notify = Notify(url="https://hooks.test/in", secret_env="HOOK", **options)
    with Client(lambda: platform(notify), fetch=receiver) as client:
        for name in ("clerk", "broken", "fine"):
            client.run(name, "hi")
        client.settle()

    assert sorted(one["type"] for one in receiver.told) == sorted(types)


def test_what_nobody_is_to_hear_of_costs_no_statement() -> None:
    run = ClaimedRun("o", "s", "r", "agent", "clerk", "{}", 0, 1)
    rule = NotifyRule("notify", frozenset({"paused"}), frozenset())
    ends = (RunState.ERROR, RunState.COMPLETED, RunState.CANCELLED)

    for state in ends:
        told = write_notice(rule, run, database="main", state=state, output={}, seq=3, now_us=0)
        assert told is None
    with Client(lambda: platform(None), fetch=Receiver()) as client:
        client.run("clerk", "hi")
        units = [getattr(one.effect, "unit", None) for one in client.effects]
    finished = [unit for unit in units if isinstance(unit, FinishRun)]
    assert [unit.letters for unit in finished] == [()]


@pytest.mark.parametrize("failure", [Unavailable(), CommitLost("lost")], ids=str)
def test_a_notice_is_stored_with_the_pause_or_not_at_all(
    client: Client, receiver: Receiver, failure: Exception
) -> None:
    client.fail_at(FinishRun, failure)
    client.run("clerk", "hi")
    client.settle()

    assert len({dict(one.headers)["webhook-id"] for one in receiver.seen}) == 1
    assert len(receiver.seen) == 1


def test_a_crash_behind_the_pause_loses_no_notice(client: Client, receiver: Receiver) -> None:
    receiver.status = 503
    client.run("clerk", "hi")
    client.crash()
    receiver.status = 200
    client.restart()
    client.advance(120)

    assert {one["type"] for one in receiver.told} == {"run.paused"}
    assert len({dict(one.headers)["webhook-id"] for one in receiver.seen}) == 1


def test_a_notice_that_is_refused_for_good_is_a_dead_letter_of_a_channel(
    client: Client, receiver: Receiver
) -> None:
    receiver.status = 410
    client.run("clerk", "hi")
    client.run("broken", "hi")
    client.settle()

    channels = {one["id"]: one for one in client.get("/channels").json()}
    assert channels.keys() == {"notify", "notify.second"}
    assert {one["kind"] for one in channels.values()} == {"notify"}
    assert [one["replies"]["dead"] for one in channels.values()] == [1, 1]
    assert "agent_id" not in channels["notify"]
    receiver.status = 200
    told = client.post("/channels/notify.second/retry", json={"what": "replies"}).json()
    assert told["retried"] == 1
    client.settle()
    assert receiver.told[-1]["type"] == "run.failed"


def test_nothing_comes_in_by_the_channel_of_notices(client: Client) -> None:
    for path in ("/notify/webhook", "/notify.second/webhook"):
        assert client.post(path, body=b"{}").status == 404
        assert client.get(path).status == 404
    document = client.get("/openapi.json").json()
    assert not any("notify" in path for path in document["paths"])
    assert client.get("/config").json()["interfaces"] == []


def test_two_callers_hear_of_their_runs_by_their_names() -> None:
    issuer, receiver = Issuer(), Receiver()
    agents = (Agent("alpha", model=ScriptedModel([call("pay", amount="1")] * 2), tools=[pay]),)
    made: dict[str, Any] = {"agents": (*agents, Agent("beta")), "channels": (), "notify": NOTIFY}
    with Client(demo(issuer, **made, environ=ENVIRON), fetch=receiver) as client:
        for name in ("ann", "bob"):
            client.token = issuer.token("agents:run", sub=name)
            client.run("alpha", "hi")
        client.settle()

    assert sorted(one["data"]["user_id"] for one in receiver.told) == ["ann", "bob"]


def test_the_settings_show_where_and_no_secret(client: Client) -> None:
    shown = {one["path"]: one["value"] for one in client.get("/config/effective").json()["data"]}

    assert shown["notify.url"] == "https://hooks.test/[redacted]"
    assert shown["notify.secret_env"] == "HOOK"
    assert ENVIRON["HOOK"] not in str(shown)


def test_another_channel_is_left_alone(receiver: Receiver) -> None:
    crm = StandardChannel(
        id="crm", agent="fine", secret_env="HOOK", reply_url="https://crm.test/in"
    )
    with Client(lambda: platform(channels=[crm]), fetch=receiver) as client:
        client.run("clerk", "hi")
        client.settle()
        ids = [one["id"] for one in client.get("/channels").json()]

    assert ids == ["crm", "notify", "notify.second"]
    assert [one.url for one in receiver.seen] == ["https://hooks.test/in"]
