"""What others do to a run that somebody waits for: delete its session, cancel it, continue it.

Each of them with each way to ask for a run, on a platform of two databases.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest
from attrs import define, field

from legation import Agent, Platform, Team
from legation.effects import Asks, Transact
from legation.store.failures import DatabaseFull
from legation.store.runs import FinishRun
from legation_testing import BadResponse, Client, Says, ScriptedModel, call

from ...providers.deliveries import platform, whatsapp
from ...providers.strict import WhatsAppApi
from ...two_databases import IN_MEMORY

WAYS: Final = ("waited for", "streamed", "in the background", "queued", "from a channel")
RUNS: Final = "/agents/concierge/runs"
APOLOGY: Final = "Sorry, something went wrong here and I could not answer. Please try again later."


@define
class Scene:
    """A run that has called its tool and waits for its model, and whoever asked for it."""

    client: Client
    way: str
    provider: WhatsAppApi
    paid: list[str]
    exchange: Any = None
    run_id: str = field(default="", init=False)

    @property
    def session(self) -> str:
        return "whatsapp:4911" if self.way == "from a channel" else "s"

    @property
    def target(self) -> str:
        return f"/sessions/{self.session}?type=agent&db_id=main"

    def begin(self) -> None:
        """Ask for the run, in its way, and let it come as far as its model."""
        form = {"message": "pay", "session_id": "s"}
        match self.way:
            case "from a channel":
                sent = whatsapp(("4911", "m", "pay"))
                self.client.post(sent.target, headers=sent.headers, body=sent.body)
            case "in the background":
                self.client.post(RUNS, form={**form, "background": True})
            case "queued":
                self.client.post(RUNS, form={**form, "background": True})
                self.exchange = self.client.begin("POST", RUNS, form={**form, "stream": False})
            case _:
                streamed = self.way == "streamed"
                self.exchange = self.client.begin("POST", RUNS, form={**form, "stream": streamed})
        self.client.advance(2)
        self.run_id = self.runs()[-1]["run_id"]

    def runs(self) -> list[dict[str, Any]]:
        target = f"/sessions/{self.session}/runs?type=agent&db_id=main"
        runs: list[dict[str, Any]] = self.client.get(target).json()
        return runs

    def get(self) -> Any:
        return self.client.get(f"{RUNS}/{self.run_id}")

    def said(self) -> list[str]:
        return [message.text for message in self.provider.seen]


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Generator[Scene]:
    provider, paid = WhatsAppApi(), list[str]()

    def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    steps: list[Any] = [call("pay"), Says("Done.", after_seconds=5.0)] * 4
    agents = [Agent(id="concierge", model=ScriptedModel(steps), tools=[pay])]
    with Client(platform(agents=agents), fetch=provider) as client:
        scene = Scene(client, request.param, provider, paid)
        scene.begin()
        yield scene


@pytest.mark.parametrize("scene", WAYS, indirect=True)
def test_a_run_whose_session_is_deleted_is_over_for_everybody(scene: Scene) -> None:
    scene.client.delete(scene.target).expect_success()
    scene.client.advance(60)

    assert (scene.get().status, scene.client.get(scene.target).status) == (404, 404)
    assert scene.paid == ["paid"]
    if scene.way in ("waited for", "queued"):
        answer = scene.exchange.response()
        sentence = "The run was deleted with its session before it was over"
        assert (answer.status, answer.json()["detail"]) == (409, sentence)
    if scene.way == "streamed":
        last = scene.exchange.response().events()[-1]
        assert (last.name, json.loads(last.data)["run_id"]) == ("RunCancelled", scene.run_id)
        assert json.loads(last.data)["reason"] == f"Run {scene.run_id} was deleted with its session"
    assert scene.said() == ([APOLOGY] if scene.way == "from a channel" else [])
    assert not [log for log in scene.client.logs if log.level == "error"]


@pytest.mark.parametrize("scene", WAYS, indirect=True)
def test_a_run_that_is_cancelled_is_over_for_everybody(scene: Scene) -> None:
    scene.client.post(f"{RUNS}/{scene.run_id}/cancel").expect_success()
    scene.client.advance(60)

    assert scene.get().json()["status"] == "CANCELLED"
    assert scene.paid == ["paid"]
    if scene.way in ("waited for", "queued"):
        assert scene.exchange.response().json()["status"] == "CANCELLED"
    if scene.way == "streamed":
        assert scene.exchange.response().events()[-1].name == "RunCancelled"
    told = ["The request was cancelled."] if scene.way == "from a channel" else []
    assert scene.said() == told


@pytest.mark.parametrize("scene", WAYS, indirect=True)
def test_a_run_that_waits_for_nobody_cannot_be_continued_and_goes_on(scene: Scene) -> None:
    form = {"tools": "[]", "stream": False}
    assert scene.client.post(f"{RUNS}/{scene.run_id}/continue", form=form).status == 409
    scene.client.advance(60)

    assert scene.get().json()["status"] == "COMPLETED"
    assert len(scene.paid) == (2 if scene.way == "queued" else 1)
    assert scene.said() == (["Done."] if scene.way == "from a channel" else [])


@pytest.mark.parametrize("scene", WAYS, indirect=True)
def test_a_run_that_is_deleted_cannot_be_continued(scene: Scene) -> None:
    scene.client.delete(scene.target).expect_success()
    form = {"tools": "[]", "stream": False}

    assert scene.client.post(f"{RUNS}/{scene.run_id}/continue", form=form).status == 404


# --- who follows ---------------------------------------------------------------------------------


def slow_team() -> Platform:
    member = ScriptedModel([Says(["It ", "rains."], after_seconds=1.0, between_seconds=60.0)])
    leader = ScriptedModel([call("delegate_task_to_member", member_id="ann", task="x"), "Done."])
    return Platform(
        databases=IN_MEMORY,
        agents=[Agent(id="ann", model=member)],
        teams=[Team(id="desk", model=leader, members=["ann"])],
    )


@pytest.mark.parametrize("where", ["on its node", "on another node"])
def test_who_follows_a_run_that_is_deleted_reads_that_it_was(where: str) -> None:
    with Client(slow_team) as client, client.peer() as peer:
        form = {"message": "x", "session_id": "s", "stream": True}
        client.begin("POST", "/teams/desk/runs", form=form)
        client.advance(3)
        rows = client.get("/sessions/s/runs?type=team&db_id=main").json()
        listed = client.get("/teams/desk/runs?session_id=s").json()
        team = listed[-1]["run_id"] if listed else rows[-1]["run_id"]
        (member,) = client.get("/agents/ann/runs?session_id=s").json()
        asked = client if where == "on its node" else peer
        follow = [
            asked.begin("GET", f"/teams/desk/runs/{team}/events"),
            asked.begin("GET", f"/agents/ann/runs/{member['run_id']}/events"),
            asked.begin("POST", f"/teams/desk/runs/{team}/resume", form={}),
        ]
        client.advance(1)
        client.delete("/sessions/s?type=team&db_id=main").expect_success()
        client.advance(5)
        ends = [exchange.response().events()[-1] for exchange in follow]

    names = [end.name for end in ends]
    assert names == ["TeamRunCancelled", "RunCancelled", "TeamRunCancelled"]
    payloads = [json.loads(end.data) for end in ends]
    assert [data["run_id"] for data in payloads] == [team, member["run_id"], team]
    assert payloads[1]["parent_run_id"] == team
    assert all("was deleted with its session" in data["reason"] for data in payloads)


# --- an end that cannot be stored ----------------------------------------------------------------


def final(effect: Asks[Any]) -> bool:
    return isinstance(effect, Transact) and isinstance(effect.unit, FinishRun)


IN_TIME = 160.0
"""Three executors try to store the end, for 20 s each, and each has lost the run before."""


def begin(client: Client, **form: Any) -> Any:
    fields = {"message": "x", "session_id": "s", **form}
    return client.begin("POST", "/agents/clerk/runs", form=fields)


def clerk() -> Platform:
    model = ScriptedModel([call("look"), *["Hello."] * 20])

    def look() -> str:
        """Look."""
        return "seen"

    return Platform(
        databases=IN_MEMORY,
        agents=[Agent(id="clerk", model=model, tools=[look])],
    )


def test_who_waits_for_a_run_whose_end_cannot_be_stored_is_told_so_in_time() -> None:
    with Client(clerk) as client:
        client.fail_at(final, DatabaseFull("no space"), times=None)
        waiting, queued = begin(client, stream=False), begin(client, stream=False)
        answers = [waiting.response(), queued.response()]
        assert client.clock.elapsed < IN_TIME
        for answer in answers:
            assert answer.status == 503
            assert "the database stores nothing of it at present" in answer.json()["detail"]
            assert answer.header("retry-after") == "30"
        runs = client.get("/agents/clerk/runs?session_id=s").json()

        assert [run["status"] for run in runs] == ["RUNNING", "PENDING"]


def test_a_stream_of_a_run_whose_end_cannot_be_stored_is_not_whole() -> None:
    with Client(clerk) as client:
        client.fail_at(final, DatabaseFull("no space"), times=None)
        stream = begin(client, stream=True)
        with pytest.raises(BadResponse):
            stream.response()
        assert client.clock.elapsed < IN_TIME


def test_a_run_whose_end_could_not_be_stored_ends_when_it_can_be() -> None:
    with Client(clerk) as client:
        fault = client.fail_at(final, DatabaseFull("no space"), times=None)
        assert begin(client, stream=False).response().status == 503
        fault.disarm()
        client.advance(60)
        (run,) = client.get("/agents/clerk/runs?session_id=s").json()

        assert run["status"] == "ERROR"
