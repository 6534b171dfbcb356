"""Forks and checkpoints over HTTP; that they end at every place of every kind is the frontends'."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from legation import Agent, Platform, Run, Team
from legation.models.conversation import Prompt
from legation.shares.limits import PlatformLimits
from legation.store.audit import Changed
from legation.store.failures import Busy, CommitLost, Unavailable
from legation.store.forks import CopiedRuns, FindCopied, ForkSession
from legation.store.idempotency import SettleKey
from legation.store.runs import Started, StartRun
from legation.store.steps import FetchSteps, Step, StepKind
from legation.tools import tool
from legation_testing import Client, Says, ScriptedModel, call

from ....callers import Issuer

RUNS: Final = "/agents/clerk/runs"


class Desk:
    """A clerk whose model books two rooms, then pays, and says that it is done."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.asked: list[list[tuple[str, str]]] = []

    def platform(self, **more: Any) -> Platform:
        def book(room: int) -> str:
            """Book a room."""
            self.called.append(f"book {room}")
            return f"booked {room}"

        def write(key: str, value: int, run: Run) -> str:
            """Write to the state."""
            run.state[key] = value
            return "written"

        @tool(requires_confirmation=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.called.append(f"pay {amount}")
            return "paid"

        @tool(external_execution=True)
        def sign() -> str:
            """Sign, which the client does."""
            raise NotImplementedError

        def echo(message: str) -> str:
            return f"echo {message}"

        model = ScriptedModel([self.answer] * 200)
        tools: list[Any] = [book, pay, sign]
        return Platform(
            agents=[
                Agent(id="clerk", model=model, tools=tools, instructions="Be brief."),
                Agent(id="echo", run=echo),
                Agent(id="keeper", model=model, tools=[write]),
            ],
            teams=[
                Team(id="crew", members=("clerk",), model=model, mode="collaborate"),
                Team(id="pair", members=("clerk", "echo"), model=model, mode="collaborate"),
                Team(id="lead", members=("clerk",), model=model, mode="route"),
            ],
            **more,
        )

    def answer(self, prompt: Prompt) -> Any:
        said = [(message.role, message.content) for message in prompt.messages]
        self.asked.append(said)
        asked = max(n for n, (role, _) in enumerate(said) if role == "user")
        message, results = said[asked][1], [text for role, text in said[asked:] if role == "tool"]
        if any(spec.name == "delegate_task_to_member" for spec in prompt.tools):
            members = sum(1 for call in prompt.messages[asked:] if call.calls)
            if members == 0:
                return [call("delegate_task_to_member", member_id="clerk", task="hello")]
            return "the team is done"
        match message, len(results):
            case ("long", 0):
                return Says(("a ",) * 300)
            case ("count", 0):
                return [call("write", key="a", value=1)]
            case ("count", 1):
                return [call("write", key="b", value=2)]
            case ("halfway", 0):
                return [call("book", room=1)]
            case ("halfway", 1):
                return Says("late", after_seconds=50.0)
            case ("slow", 0):
                return Says("late", after_seconds=50.0)
            case ("book", 0):
                return Says(("I ", "book"), calls=[call("book", room=7), call("book", room=8)])
            case ("book", 2) | ("pay", 0):
                return [call("pay", amount=3)]
            case ("sign", 0):
                return [call("sign"), call("pay", amount=3)]
            case ("unknown", 0):
                return [call("nothing"), call("book", room=1)]
            case _:
                return f"done with {message}"


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "main.db")


@pytest.fixture
def client(desk: Desk, file: str) -> Generator[Client]:
    with Client(desk.platform, databases={"main": file}) as client:
        yield client


def finish(client: Client, message: str = "book", **fields: Any) -> Mapping[str, Any]:
    """Return a run that was asked `message`, with all that it wanted confirmed."""
    run: Mapping[str, Any] = client.run("clerk", message, session_id="s", **fields)
    while run["status"] == "PAUSED":
        tools = [one["tool_execution"] for one in run["requirements"]]
        answers = [
            {**one, "result": "signed"}
            if one["external_execution_required"]
            else {**one, "confirmed": message != "sign", "confirmation_note": "no"}
            for one in tools
        ]
        form = {"tools": json.dumps(answers), "stream": False}
        run = client.post(f"{RUNS}/{run['run_id']}/continue", form=form).json()
    return run


def fork(client: Client, run: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a fork of a run, as the answer to who joins it."""
    answer = client.post(f"{RUNS}/{run['run_id']}/fork", json={"stream": False, **fields})
    assert answer.status == 200, answer.json()
    made: dict[str, Any] = answer.json()
    return made


def dump(file: str) -> list[Any]:
    """Return all runs, sessions, steps and events that are stored."""
    tables = ("sessions", "runs", "steps", "events", "session_states", "usage")
    with closing(sqlite3.connect(file)) as database:
        return [
            database.execute(f"select * from {table} order by 1, 2, 3").fetchall()
            for table in tables
        ]


Refuse: TypeAlias = Callable[..., str]


@pytest.fixture
def refuse(client: Client, file: str) -> Refuse:
    """Return what returns the sentence of a refused fork, for which nothing is stored."""

    def try_to_fork(run_id: str, status: int, **fields: Any) -> str:
        before = dump(file)
        answer = client.post(f"{RUNS}/{run_id}/fork", json={"stream": False, **fields})
        assert answer.status == status, answer.json()
        assert dump(file) == before
        body = answer.json()
        faults = [f"{fault['path']} {fault['message']}" for fault in body.get("errors") or ()]
        return "; ".join(faults) or str(body["detail"])

    return try_to_fork


# --- Forks of runs -----------------------------------------------------------------------------


def test_a_fork_has_what_was_done_before_its_place_and_does_the_rest(
    client: Client, desk: Desk, file: str
) -> None:
    client.run("clerk", "hello", session_id="s")
    run = finish(client)
    asked = [list(one) for one in desk.asked]
    stored = dump(file)
    desk.called.clear()
    made = fork(client, run, at="2")

    assert desk.called == []
    assert made["status"] == "PAUSED"
    assert made["forked_from"] == {"run_id": run["run_id"], "at": "2"}
    assert desk.asked[-1] == asked[2]
    assert [one["result"] for one in made["tools"]] == ["booked 7", "booked 8", None]
    kept = {json.dumps(row) for table in stored[1:4] for row in table}
    assert kept <= {json.dumps(row) for table in dump(file)[1:4] for row in table}


def test_a_fork_at_a_call_makes_that_call_alone_anew(client: Client, desk: Desk) -> None:
    run = finish(client)
    desk.called.clear()
    fork(client, run, at="1.2")

    assert desk.called == ["book 8"]


def test_an_outcome_stands_in_the_place_of_a_call(client: Client, desk: Desk) -> None:
    run = finish(client)
    desk.called.clear()
    made = fork(client, run, at="1.1", outcome={"room": 9})
    text = fork(client, run, at="2.1", outcome="paid by card")

    assert desk.called == []
    assert made["tools"][0]["result"] == '{"room":9}'
    assert (text["status"], text["tools"][2]["result"]) == ("COMPLETED", "paid by card")


def test_a_fork_from_the_beginning_takes_another_message(client: Client, desk: Desk) -> None:
    client.run("clerk", "hello", session_id="s")
    run = client.run("clerk", "how?", session_id="s", metadata={"a": 1}, dependencies={"b": 2})
    made = fork(client, run, message="why?")
    again = fork(client, run)

    assert made["content"] == "done with why?"
    assert made["metadata"] == {"a": 1}
    assert again["content"] == run["content"]
    assert desk.asked[-1] == desk.asked[1]
    assert made["forked_from"] == {"run_id": run["run_id"], "at": None}


def test_a_fork_has_a_session_with_copies_of_the_runs_before(client: Client) -> None:
    first = client.run("clerk", "hello", session_id="s")
    run = finish(client)
    made = fork(client, run, at="3")
    runs = client.get(f"/sessions/{made['session_id']}/runs").json()
    session = client.get(f"/sessions/{made['session_id']}").json()

    assert [one["content"] for one in runs] == ["done with hello", "done with book"]
    assert runs[0]["run_id"] not in (first["run_id"], run["run_id"])
    assert runs[1]["forked_from"]["at"] == "3"
    copy = client.get(f"{RUNS}/{runs[0]['run_id']}").json()
    assert (copy["run_id"], copy["session_id"]) == (runs[0]["run_id"], made["session_id"])
    assert session["session_name"] == "hello (fork)"
    assert session["total_tokens"] == made["metrics"]["total_tokens"]


def test_a_fork_in_a_session_is_told_the_history_of_that(client: Client, desk: Desk) -> None:
    client.run("clerk", "hello", session_id="s")
    client.run("clerk", "elsewhere", session_id="t")
    run = finish(client)
    old = fork(client, run, at="3", session_id="t")
    new = fork(client, run, at="3", session_id="new")

    assert [text for role, text in desk.asked[-2] if role == "user"] == ["elsewhere", "book"]
    assert [text for role, text in desk.asked[-1] if role == "user"] == ["book"]
    assert (old["session_id"], new["session_id"]) == ("t", "new")
    assert desk.asked[-1][0] == ("system", "Be brief.")


def test_a_run_without_steps_is_forked_at_its_answer(client: Client, desk: Desk) -> None:
    run = client.run("clerk", "hello", session_id="s")
    made = [fork(client, run, at="1"), fork(client, run, at="1", session_id="t")]

    assert [one["content"] for one in made] == ["done with hello"] * 2
    assert desk.asked[0] == desk.asked[1] == desk.asked[2]


def test_a_run_that_broke_off_is_forked_where_it_stood(client: Client, desk: Desk) -> None:
    form = {"message": "halfway", "session_id": "s", "background": True}
    run = client.post(RUNS, form=form).json()
    waits = client.post(RUNS, form={**form, "message": "hello"}).json()
    client.settle()
    target = f"{RUNS}/{run['run_id']}/checkpoints"
    assert len(client.get(f"{target}/0").json()["snapshot"]["messages"]) == 0
    for one in (waits, run):
        client.post(f"{RUNS}/{one['run_id']}/cancel")
        client.settle()
    desk.called.clear()
    entries = client.get(target).json()["checkpoints"]
    accepted = client.post(f"{RUNS}/{run['run_id']}/fork", json={"at": "2", "background": True})
    client.settle()
    client.advance(60.0)
    made = client.get(f"{RUNS}/{accepted.json()['run_id']}").json()
    never = fork(client, waits, at=f"{waits['run_id']}:1")

    assert [(one["message_index"], one["place"]) for one in entries] == [(1, "1"), (3, "2")]
    assert (made["content"], desk.called) == ("late", [])
    assert (never["content"], never["forked_from"]["at"]) == ("done with hello", None)


def test_a_fork_goes_on_after_a_pause_and_can_be_forked(client: Client, desk: Desk) -> None:
    run = finish(client)
    made = fork(client, run, at="2", session_id="f")
    tools = [{**one["tool_execution"], "confirmed": True} for one in made["requirements"]]
    form = {"tools": json.dumps(tools), "stream": False}
    done = client.post(f"{RUNS}/{made['run_id']}/continue", form=form).json()
    desk.called.clear()
    again = fork(client, done, at="3")

    assert done["status"] == again["status"] == "COMPLETED"
    assert desk.called == []
    assert again["forked_from"]["run_id"] == made["run_id"]


def test_calls_that_people_settled_are_part_of_a_fork(client: Client, desk: Desk) -> None:
    run = finish(client, "sign")
    asked = desk.asked[-1]
    made = fork(client, run, at="2")
    other = fork(client, run, at="1.2")

    assert desk.asked[-1] == asked
    assert made["status"] == "COMPLETED"
    assert [one["result"] for one in made["tools"]] == [one["result"] for one in run["tools"]]
    assert (other["status"], other["tools"][0]["result"]) == ("PAUSED", "signed")


def test_a_paused_run_is_forked_as_far_as_it_has_come(
    client: Client, desk: Desk, refuse: Refuse
) -> None:
    run = client.run("clerk", "book", session_id="s")
    desk.called.clear()
    made = fork(client, run, at="2.1", outcome="paid by card")
    again = fork(client, run, at="2")

    assert (made["status"], again["status"]) == ("COMPLETED", "PAUSED")
    assert desk.called == []
    assert refuse(run["run_id"], 422, at="3") == "body.at the run has no place 3; its last is 2.1"


def test_tasks_of_members_are_places_too(client: Client, desk: Desk) -> None:
    run = client.post("/teams/crew/runs", form={"message": "hello", "stream": False}).json()
    path = f"/teams/crew/runs/{run['run_id']}/fork"
    before = len(desk.asked)
    leader = client.post(path, json={"stream": False, "at": "1"}).json()
    own = client.post(path, json={"stream": False, "at": "1", "session_id": "t"}).json()
    member = client.post(path, json={"stream": False, "at": "0.1"}).json()
    given = client.post(path, json={"stream": False, "at": "0.1", "outcome": "me"}).json()
    paths = client.get(f"/teams/crew/runs/{run['run_id']}/checkpoints").json()["checkpoints"]

    assert [len(one["member_responses"]) for one in (leader, own, member, given)] == [1, 1, 1, 0]
    assert len(desk.asked) - before == 1 + 1 + 2 + 1
    assert leader["member_responses"] == run["member_responses"]
    assert member["member_responses"][0]["run_id"] != run["member_responses"][0]["run_id"]
    assert [(one["place"], [c["place"] for c in one["calls"]]) for one in paths] == [
        ("1", ["0.1"]),
        (None, []),
    ]


def test_a_team_that_routes_ends_with_the_answer_of_its_member(client: Client, desk: Desk) -> None:
    run = client.post("/teams/lead/runs", form={"message": "hello", "stream": False}).json()
    path = f"/teams/lead/runs/{run['run_id']}/fork"
    given = client.post(path, json={"stream": False, "at": "1.1", "outcome": "mine"}).json()
    beyond = client.post(path, json={"stream": False, "at": "2"}).json()

    assert (given["status"], given["content"]) == ("COMPLETED", "mine")
    assert beyond["errors"][0]["message"] == "the run has no place 2; its last is 1.1"


def test_an_event_says_the_place(client: Client, desk: Desk) -> None:
    run = finish(client)
    events = client.get(f"{RUNS}/{run['run_id']}/events").events()
    found = [
        (event.name, fork(client, run, at=event.id, session_id="f")["forked_from"]["at"])
        for event in events
    ]

    assert found[0] == ("RunStarted", None)
    assert [at for name, at in found if name == "ModelRequestStarted"] == ["1", "2", "3"]
    assert [at for name, at in found if name == "ToolCallStarted"] == ["1.1", "1.2", "2.1"]
    assert found[-1] == ("RunCompleted", "3")


def test_an_event_far_behind_its_request_says_the_place_too(client: Client) -> None:
    form = {"message": "long", "session_id": "s", "stream": True}
    events = client.post(RUNS, form=form).events()
    run = client.get(RUNS, query={"session_id": "s"}).json()[0]

    assert len(events) > 256
    assert fork(client, run, at=events[-1].id)["forked_from"]["at"] == "1"


def test_an_event_of_a_member_is_no_place(client: Client) -> None:
    run = client.post("/teams/crew/runs", form={"message": "hello", "stream": False}).json()
    events = client.get(f"/teams/crew/runs/{run['run_id']}/events").events()
    member = next(event for event in events if event.name == "RunStarted")
    refused = client.post(f"/teams/crew/runs/{run['run_id']}/fork", json={"at": member.id})

    assert refused.json()["errors"][0]["message"].startswith("is an event of a member's run")


REFUSED: Final = (
    ({"at": "9"}, "body.at the run has no place 9; its last is 3"),
    ({"at": "1.3"}, "body.at the run has no place 1.3; its last is 3"),
    ({"at": "4.1"}, "body.at the run has no place 4.1; its last is 3"),
    ({"at": "0"}, "body.at must be a place, such as 2"),
    ({"at": "two"}, "body.at must be a place, such as 2"),
    ({"at": "1.1/2"}, "body.at is a place of a member: fork at 1.1"),
    ({"at": "other:1"}, "body.at is an event of another run"),
    ({"at": "{run}:999"}, "body.at the run has no event 999"),
    ({"at": "{run}:0"}, "body.at the run has no event 0"),
    ({"at": "2", "message": "x"}, "body.message is not allowed together with `at`"),
    ({"outcome": "x"}, "body.outcome is allowed with the place of a call"),
    ({"at": "2", "outcome": "x"}, "body.outcome is allowed with the place of a call"),
    ({"at": "9", "outcome": "x"}, "body.at the run has no place 9; its last is 3; body.outcome"),
    ({"at": "2.1", "outcome": "x" * 65_537}, "body.outcome has more than 65536 characters"),
    ({"at": "x" * 600}, "body.at must have at most 512 characters"),
    ({"nonsense": 1}, "body.nonsense unknown field"),
)


@pytest.mark.parametrize(("fields", "sentence"), REFUSED)
def test_a_fork_that_cannot_be_is_refused_and_nothing_is_stored_or_called(
    client: Client, desk: Desk, fields: dict[str, Any], sentence: str, refuse: Refuse
) -> None:
    run = finish(client)
    called, asked = list(desk.called), len(desk.asked)
    sent = {k: v.replace("{run}", run["run_id"]) if k == "at" else v for k, v in fields.items()}

    assert refuse(run["run_id"], 422, **sent).startswith(sentence)
    assert (desk.called, len(desk.asked)) == (called, asked)


def test_a_call_that_was_never_made_is_no_place(client: Client, refuse: Refuse) -> None:
    run = client.run("clerk", "unknown", session_id="s")
    sentence = refuse(run["run_id"], 422, at="1.1")

    assert sentence == "body.at the call at 1.1 was never made: fork at 1, to ask the model again"
    assert fork(client, run, at="1.2")["status"] == "COMPLETED"


def test_a_function_begins_anew_alone(client: Client) -> None:
    run = client.run("echo", "hi", session_id="s", session_state={"a": 1})
    path = f"/agents/echo/runs/{run['run_id']}/fork"
    made = client.post(path, json={"stream": False, "message": "ho"}).json()
    refused = client.post(path, json={"at": "1"}).json()

    assert made["content"] == "echo ho"
    assert refused["errors"][0]["message"].startswith("is not allowed: the agent is a function")


def test_a_run_under_way_is_not_forked_and_one_of_a_member_neither(
    client: Client, refuse: Refuse
) -> None:
    accepted = client.post(RUNS, form={"message": "slow", "session_id": "s", "background": True})
    client.settle()
    team = client.post("/teams/crew/runs", form={"message": "hello", "stream": False}).json()
    member = team["member_responses"][0]["run_id"]

    assert refuse(accepted.json()["run_id"], 409).startswith("The run is under way")
    assert refuse(member, 409).startswith("The run is that of a member")


def halt(client: Client) -> tuple[str, list[dict[str, Any]]]:
    """Return the path of a run that was cancelled with a member at work, and how it was before."""
    form = {"message": "slow", "session_id": "h", "background": True}
    accepted = client.post("/teams/pair/runs", form=form)
    client.settle()
    path = f"/teams/pair/runs/{accepted.json()['run_id']}"
    running: list[dict[str, Any]] = client.get(f"{path}/checkpoints").json()["checkpoints"]
    client.post(f"{path}/cancel")
    client.settle()
    return path, running


def test_a_call_beside_one_that_has_not_ended_is_no_place(client: Client) -> None:
    path, _ = halt(client)
    refused = [client.post(f"{path}/fork", json={"at": at}).json() for at in ("0.2", "1")]

    assert [one["errors"][0]["message"] for one in refused] == [
        "the call at 0.1, beside it, did not come to its end: fork from the beginning",
        "the run has no place 1; its last is 0.2",
    ]


def test_a_run_that_goes_on_meanwhile_is_not_forked(client: Client, refuse: Refuse) -> None:
    run = finish(client)
    client.fail_at(StartRun, Changed(Started(0, None, changed=True), kept=False))

    assert refuse(run["run_id"], 409).startswith("The run is gone, or goes on meanwhile")


def test_steps_of_a_later_version_are_not_read(client: Client, refuse: Refuse) -> None:
    run = finish(client)
    later = (Step("1", StepKind.MODEL, "m", 1, 2, '{"f":3}'),)
    client.fail_at(FetchSteps, later, times=3)
    target = f"{RUNS}/{run['run_id']}/checkpoints"

    assert refuse(run["run_id"], 503).startswith("A later version")
    assert client.get(target).status == client.get(f"{target}/1").status == 503


def test_too_many_runs_are_not_copied(client: Client, refuse: Refuse) -> None:
    client.run("clerk", "hello", session_id="s")
    run = client.run("clerk", "hello", session_id="s")
    many = CopiedRuns(tuple(map(str, range(1_001))), 1, 1, None)
    client.fail_at(FindCopied, many)
    sentence = refuse(run["run_id"], 409)
    client.fail_at(FindCopied, CopiedRuns(("r",), 65 << 20, 1, None))

    assert sentence.startswith("The session has more than 1,000 runs to be copied")
    assert refuse(run["run_id"], 409) == sentence
    client.fail_at(FindCopied, many)
    assert client.post("/sessions/s/fork", json={}).status == 409


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("failure", [Busy, CommitLost])
def test_a_database_that_fails_for_a_moment_makes_one_fork(
    client: Client, after: bool, failure: type[Exception]
) -> None:
    if after and failure is Busy:
        return
    run = finish(client)
    client.fail_at(StartRun, failure("for a moment"), after=after)
    made = fork(client, run, at="3")

    assert made["status"] == "COMPLETED"
    assert len(client.get("/sessions").json()["data"]) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_fork_that_is_sent_again_under_its_key_is_made_once(client: Client, stream: bool) -> None:
    run = finish(client)
    target, key = f"{RUNS}/{run['run_id']}/fork", [("idempotency-key", "k")]
    body = {"at": "3", "stream": stream}
    first = client.post(target, json=body, headers=key)
    client.settle()
    again = client.post(target, json=body, headers=key)

    assert first.status == again.status == 200
    assert first.body == again.body
    assert len(client.get("/sessions").json()["data"]) == 2


def test_a_fork_can_be_followed_or_left(client: Client) -> None:
    run = finish(client)
    target = f"{RUNS}/{run['run_id']}/fork"
    streamed = client.post(target, form={"at": "3"}).events()
    accepted = client.post(target, form={"at": "3", "background": True})
    client.settle()

    assert [event.name for event in streamed][:: len(streamed) - 1] == [
        "RunStarted",
        "RunCompleted",
    ]
    assert accepted.status == 202
    assert client.get(f"{RUNS}/{accepted.json()['run_id']}").json()["status"] == "COMPLETED"


def test_a_fork_counts_and_has_its_limits(desk: Desk) -> None:
    with Client(lambda: desk.platform(limits=PlatformLimits(stored_bytes=20_000))) as client:
        run = finish(client)
        answers = [
            client.post(f"{RUNS}/{run['run_id']}/fork", json={"stream": False, "at": "3"})
            for _ in range(20)
        ]
        session = client.post("/sessions/s/fork", json={})

    statuses = [answer.status for answer in answers]
    assert set(statuses) == {200, 413}
    assert statuses == sorted(statuses)
    assert session.status == 413


def test_the_state_is_that_at_the_place(client: Client) -> None:
    run = client.run("keeper", "count", session_id="s", session_state={"given": 1})
    target = f"/agents/keeper/runs/{run['run_id']}/fork"
    states = {
        at: client.post(target, json={"stream": False, "at": at, "outcome": "x"}).json()
        for at in ("1.1", "2.1")
    }

    assert run["session_state"] == {"given": 1, "a": 1, "b": 2}
    assert states["1.1"]["session_state"] == {"given": 1, "b": 2}
    assert states["2.1"]["session_state"] == {"given": 1, "a": 1}


def test_the_state_from_the_beginning_is_what_the_run_before_left(client: Client) -> None:
    client.run("keeper", "count", session_id="s", session_state={"given": 1})
    second = client.run("keeper", "count", session_id="s", session_state={"given": 2})
    target = f"/agents/keeper/runs/{second['run_id']}/fork"
    made = client.post(target, json={"stream": False, "message": "hello"}).json()
    copy = client.post("/sessions/s/fork", json={"before": second["run_id"]}).json()

    assert made["session_state"] == {"given": 2, "a": 1, "b": 2}
    assert copy["session_state"] == {"given": 1, "a": 1, "b": 2}


def test_a_fork_has_a_place_among_the_streams_of_its_caller(desk: Desk) -> None:
    with Client(lambda: desk.platform(limits=PlatformLimits(streams=1))) as client:
        run = client.run("clerk", "hello", session_id="s")
        target = f"{RUNS}/{run['run_id']}/fork"
        first = client.begin("POST", target, json={"message": "slow"})
        client.settle()
        second = client.post(target, json={})
        third = client.post(target, json={"background": True})
        first.disconnect()

    assert (second.status, third.status) == (429, 202)


# --- Callers -----------------------------------------------------------------------------------


def test_a_run_of_another_is_not_there(desk: Desk) -> None:
    issuer = Issuer()
    config = issuer.authorization()
    with Client(lambda: desk.platform(authorization=True, authorization_config=config)) as client:
        scopes = ("agents:run", "agents:read", "sessions:write", "sessions:read")
        ada, bob = (issuer.token(*scopes, sub=name) for name in ("ada", "bob"))
        root = issuer.token("platform:admin", sub="root")
        form = {"message": "hello", "session_id": "s", "stream": False}
        run = client.post(RUNS, form=form, token=ada).json()
        one = f"{RUNS}/{run['run_id']}"
        asked = [
            ("POST", f"{one}/fork"),
            ("GET", f"{one}/checkpoints"),
            ("GET", f"{one}/checkpoints/1"),
        ]
        theirs = [
            client.request(*what, json={} if what[0] == "POST" else None, token=bob)
            for what in asked
        ]
        session = client.post("/sessions/s/fork", json={}, token=bob)
        reader = client.post(f"{one}/fork", json={}, token=issuer.token("agents:read", sub="ada"))
        made = client.post(f"{one}/fork", json={"stream": False}, token=root).json()
        pinned = issuer.token(*scopes, sub="ada", session_id="s")
        own = client.post(f"{one}/fork", json={"stream": False}, token=pinned).json()
        refused = client.post("/sessions/s/fork", json={}, token=pinned)

    assert [answer.status for answer in theirs] == [404, 404, 404]
    assert (session.status, reader.status) == (404, 403)
    assert made["user_id"] == "ada"
    assert own["session_id"] == "s"
    assert refused.status == 409


# --- Forks of sessions -------------------------------------------------------------------------


def test_a_session_is_forked_up_to_a_run(client: Client) -> None:
    runs = [client.run("clerk", text, session_id="s") for text in ("one", "two", "three")]
    ids = [run["run_id"] for run in runs]
    client.patch("/sessions/s", json={"metadata": {"m": 1}, "session_state": {"later": 1}})

    def make(**body: Any) -> tuple[list[str], dict[str, Any], list[dict[str, Any]]]:
        made = client.post("/sessions/s/fork", json=body)
        assert made.status == 201
        session: dict[str, Any] = made.json()
        listed = client.get(f"/sessions/{session['session_id']}/runs").json()
        return [run["run_input"] for run in listed], session, listed

    whole, session, listed = make()
    assert whole == ["one", "two", "three"]
    assert session["forked_from_session_id"] == "s"
    assert (session["metadata"], session["session_state"]) == ({"m": 1}, {"later": 1})
    assert session["total_tokens"] == 0
    assert not {run["run_id"] for run in listed} & set(ids)
    assert make(run_id=ids[1])[0] == ["one", "two"]
    assert make(before=ids[1])[0] == ["one"]
    assert make(before=ids[0])[0] == []
    assert make(run_id=ids[1])[1]["session_state"] == {}


def test_a_fork_of_a_session_goes_on_by_itself(client: Client, desk: Desk) -> None:
    run = finish(client)
    copy = client.post("/sessions/s/fork", json={}).json()["session_id"]
    client.run("clerk", "next", session_id=copy)
    (copied,) = client.get(f"/sessions/{copy}/runs").json()[:1]
    desk.called.clear()
    made = fork(client, copied, at="3")
    client.delete("/sessions/s")

    assert [text for role, text in desk.asked[-2] if role == "user"] == ["book", "next"]
    assert (made["status"], desk.called) == ("COMPLETED", [])
    assert client.get(f"{RUNS}/{copied['run_id']}").json()["content"] == run["content"]
    assert client.get(f"{RUNS}/{copied['run_id']}/events").events() == ()


def test_runs_that_are_not_over_are_left_out(client: Client) -> None:
    client.run("clerk", "one", session_id="s")
    paused = client.run("clerk", "pay", session_id="s")
    copy = client.post("/sessions/s/fork", json={}).json()["session_id"]
    named = client.post("/sessions/s/fork", json={"run_id": paused["run_id"]})
    before = client.post("/sessions/s/fork", json={"before": paused["run_id"]})

    assert [run["run_input"] for run in client.get(f"/sessions/{copy}/runs").json()] == ["one"]
    assert (named.status, before.status) == (409, 201)


def test_a_fork_of_a_session_that_cannot_be_is_refused(client: Client, file: str) -> None:
    run = client.run("clerk", "one", session_id="s")
    other = client.run("clerk", "two", session_id="t")
    before = dump(file)
    both = client.post("/sessions/s/fork", json={"run_id": run["run_id"], "before": run["run_id"]})
    foreign = client.post("/sessions/s/fork", json={"run_id": other["run_id"]})
    absent = client.post("/sessions/s/fork", json={"before": "none"})
    nowhere = client.post("/sessions/none/fork", json={})

    assert both.json()["errors"][0]["path"] == "body.before"
    assert foreign.json()["errors"][0]["message"] == "is no run of the session"
    assert absent.json()["errors"][0]["path"] == "body.before"
    assert nowhere.status == 404
    assert dump(file) == before


def test_a_session_that_is_gone_is_not_forked_and_one_under_a_key_once(client: Client) -> None:
    client.run("clerk", "one", session_id="s")
    client.fail_at(ForkSession, Changed(None, kept=False))
    gone = client.post("/sessions/s/fork", json={})
    fault = client.fail_at(SettleKey, Unavailable(), times=None)
    key = [("idempotency-key", "k")]
    first = client.post("/sessions/s/fork", json={}, headers=key)
    fault.disarm()
    client.advance(20)
    again = client.post("/sessions/s/fork", json={}, headers=key)

    assert gone.status == 404
    assert (first.status, again.status) == (201, 201)
    assert first.json()["session_id"] == again.json()["session_id"]


# --- Looking back ------------------------------------------------------------------------------


def test_checkpoints_stand_before_each_answer_and_at_the_end(client: Client) -> None:
    run = finish(client)
    listed = client.get(f"{RUNS}/{run['run_id']}/checkpoints").json()

    shown = [
        (one["checkpoint_id"], one["message_index"], one["place"], one["reason"], one["status"])
        for one in listed["checkpoints"]
    ]
    assert shown == [
        ("1", 1, "1", "checkpoint", "RUNNING"),
        ("2", 4, "2", "checkpoint", "RUNNING"),
        ("3", 6, "3", "checkpoint", "RUNNING"),
        ("4", 7, None, "end", "COMPLETED"),
    ]
    assert [call["place"] for call in listed["checkpoints"][1]["calls"]] == ["1.1", "1.2"]
    assert listed["checkpoints"][-1]["message_preview"] == run["content"]


def test_a_snapshot_has_the_first_messages_of_a_run(client: Client) -> None:
    run = finish(client)
    target = f"{RUNS}/{run['run_id']}/checkpoints"
    looks = {n: client.get(f"{target}/{n}").json() for n in range(8)}

    assert [len(looks[n]["snapshot"]["messages"]) for n in range(8)] == [0, 1, 1, 1, 4, 4, 6, 7]
    assert [len(looks[n]["snapshot"]["tools"]) for n in range(8)] == [0, 0, 0, 0, 2, 2, 3, 3]
    assert looks[4]["snapshot"]["content"] == "I book"
    assert looks[4]["checkpoint"]["place"] == "2"
    assert looks[7]["snapshot"]["content"] == run["content"]
    assert client.get(f"{target}/8").json()["detail"] == "message_index must be between 0 and 7"
    assert client.get(f"{target}/x").json()["detail"] == "message_index must be a number"


def test_runs_that_did_not_come_to_an_answer_have_checkpoints_too(client: Client) -> None:
    paused = client.run("clerk", "book", session_id="s")
    path, running = halt(client)
    cancelled = client.get(f"{path}/checkpoints").json()["checkpoints"]
    waiting = client.get(f"{RUNS}/{paused['run_id']}/checkpoints").json()["checkpoints"]
    last = client.get(f"{RUNS}/{paused['run_id']}/checkpoints/5").json()["snapshot"]
    first = client.get(f"{RUNS}/{paused['run_id']}/checkpoints/4").json()["snapshot"]

    assert [(one["place"], one["status"]) for one in waiting] == [
        ("1", "RUNNING"),
        ("2", "RUNNING"),
        (None, "PAUSED"),
    ]
    assert [(one["place"], len(one["calls"])) for one in running] == [(None, 2)]
    assert cancelled[-1]["status"] == "CANCELLED"
    assert (last["requirements"], first["requirements"]) == ([], [])


def test_members_and_functions_have_checkpoints_without_places(client: Client) -> None:
    team = client.post("/teams/crew/runs", form={"message": "hello", "stream": False}).json()
    member = team["member_responses"][0]["run_id"]
    echo = client.run("echo", "hi", session_id="e")
    targets = (f"{RUNS}/{member}", f"/agents/echo/runs/{echo['run_id']}")
    found = [client.get(f"{target}/checkpoints").json()["checkpoints"] for target in targets]

    assert [[one["place"] for one in each] for each in found] == [[None, None], [None, None]]
