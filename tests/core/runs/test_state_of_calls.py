"""What the functions of an author write to the state of a session, as they and clients see it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pydantic
import pytest
from attrs import define, field

from legation import Agent, Platform, Run, Team, ToolError, tool
from legation.effects import CallFunction, TimedOut
from legation.store.session_state import MAX_STATE
from legation_testing import Client, ScriptedModel, call


@define
class Cart:
    """The cart of a session."""

    items: list[str] = field(factory=list[str])


def add(run: Run[None, Cart], item: str) -> int:
    """Put something into the cart."""
    run.state.items.append(item)
    return len(run.state.items)


def set_key(run: Run, key: str, value: int) -> str:
    """Set a key."""
    run.state[key] = value
    return json.dumps(run.state, sort_keys=True)


def drop(run: Run, key: str) -> None:
    """Drop a key."""
    del run.state[key]


def refuse(run: Run) -> None:
    """Write, and say no."""
    run.state["lost"] = True
    raise ToolError("no")


def break_down(run: Run) -> None:
    """Write, and fail."""
    run.state["lost"] = True
    raise KeyError("lost")


async def stream(run: Run) -> Any:
    """Write, and give what is no result."""

    async def pieces() -> Any:
        yield 1

    run.state["lost"] = True
    return pieces()


def no_json(run: Run) -> Any:
    """Write, and give what JSON does not have."""
    run.state["lost"] = True
    return object()


def store_no_json(run: Run) -> str:
    """Write what JSON does not have, beside what it has."""
    run.state.update(lost=True, bad=object())
    return "done"


def grow(run: Run) -> str:
    """Write too much."""
    run.state["lost"] = "x" * (MAX_STATE + 1)
    return "done"


@tool(requires_confirmation=True)
def sign(run: Run) -> str:
    """Sign."""
    run.state["signed"] = run.state["paper"]
    return "signed"


def count(run: Run, session_state: dict[str, Any]) -> str:
    """Count both ways."""
    session_state["turns"] = session_state.get("turns", 0) + 1
    run.state["seen"] = run.state.get("seen", 0) + 10
    return f"turn {session_state['turns']}"


TOOLS: list[Any] = [
    add, set_key, drop, refuse, break_down, stream, no_json, store_no_json, grow, sign
]  # fmt: skip


def platform(*script: Any, leads: Any = ()) -> Platform:
    return Platform(
        agents=[
            Agent(id="clerk", model=ScriptedModel(script), tools=TOOLS),
            Agent(id="count", run=count),
        ],
        teams=[
            Team(id="desk", model=ScriptedModel(leads), members=["clerk", "count"], tools=TOOLS)
        ],
    )


def stored(client: Client) -> Any:
    return client.get("/sessions/s").json()["session_state"]


def results(run: Any) -> list[Any]:
    return [one["result"] for one in run["tools"]]


def test_the_next_call_the_next_run_and_the_client_see_what_was_written() -> None:
    script = [
        call("add", item="tea"),
        call("add", item="milk"),
        "ok",
        call("add", item="jam"),
        "ok",
    ]
    with Client(platform(*script)) as client:
        first = client.run("clerk", "m", session_id="s", session_state={"other": 1})
        assert results(first) == ["1", "2"]
        assert first["session_state"] == stored(client) == {"other": 1, "items": ["tea", "milk"]}
        second = client.run("clerk", "m", session_id="s")

        assert results(second) == ["3"]
        assert stored(client) == {"other": 1, "items": ["tea", "milk", "jam"]}


def test_calls_side_by_side_keep_each_others_keys() -> None:
    calls = [call("set_key", key="a", value=1), call("set_key", key="b", value=2)]
    calls.append(call("drop", key="old"))
    with Client(platform(calls, "ok")) as client:
        run = client.run("clerk", "m", session_id="s", session_state={"old": 1, "other": 1})

        assert run["session_state"] == stored(client) == {"other": 1, "a": 1, "b": 2}
        assert [r.event for r in client.logs if r.event == "state_overwritten"] == []


def test_later_place_wins_and_the_log_names_the_key() -> None:
    calls = [call("set_key", key="k", value=n) for n in (1, 2, 3)]
    with Client(platform(calls, "ok")) as client:
        client.run("clerk", "m", session_id="s")
        lines = [dict(r.fields) for r in client.logs if r.event == "state_overwritten"]

        assert stored(client) == {"k": 3}
        assert {line["key"] for line in lines} == {"k"}


FAILS = {
    "refuse": "no",
    "break_down": "The tool failed (KeyError)",
    "stream": "The tool failed (it gave a stream of results)",
    "no_json": "The tool failed (its result has no JSON)",
    "store_no_json": "The tool failed (what it wrote to the state of the session cannot be stored)",
    "grow": "The tool failed (the state of the session would be too large)",
}


@pytest.mark.parametrize("name", FAILS)
def test_tool_that_fails_writes_nothing(name: str) -> None:
    made = platform([call(name), call("set_key", key="k", value=1)], "ok")
    with Client(made, raise_errors=False) as client:
        run = client.run("clerk", "m", session_id="s")
        refused = [dict(r.fields) for r in client.logs if r.event == "state_refused"]

        assert stored(client) == {"k": 1}
    assert results(run)[0] == FAILS[name]
    assert run["tools"][0]["tool_call_error"]
    assert len(refused) == (name in ("store_no_json", "grow"))
    assert all(line["run_id"] == run["run_id"] for line in refused)
    assert "lost" not in str([r.fields for r in client.logs if r.event != "state_refused"])


def test_tool_that_is_late_writes_nothing() -> None:
    with Client(platform(call("set_key", key="k", value=1), "ok")) as client:
        client.fail_at(CallFunction, TimedOut(), after=True)
        run = client.run("clerk", "m", session_id="s")

        assert run["tools"][0]["tool_call_error"]
        assert stored(client) == {}


def test_tool_that_a_person_confirms_reads_the_state_as_it_is_then() -> None:
    with Client(platform(call("sign"), "ok")) as client:
        paused = client.run("clerk", "m", session_id="s", session_state={"paper": "old"})
        client.patch("/sessions/s", json={"session_state": {"paper": "new", "note": 1}}).json()
        run = client.go_on(paused, confirmed=True)

        assert results(run) == ["signed"]
        assert stored(client) == {"paper": "new", "note": 1, "signed": "new"}


def test_function_that_is_an_agent_writes_with_its_end() -> None:
    with Client(platform()) as client:
        first = client.run("count", "m", session_id="s", session_state={"x": 1})
        assert first["content"] == "turn 1"
        second = client.run("count", "m", session_id="s")

        assert second["content"] == "turn 2"
        assert second["session_state"] == stored(client) == {"x": 1, "turns": 2, "seen": 20}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (object(), "The agent failed: what it wrote to the state of the session cannot be stored"),
        ("x" * MAX_STATE, "The agent failed: the state of the session would be too large"),
    ],
    ids=["no JSON", "too large"],
)
def test_function_whose_state_cannot_be_stored_ends_the_run(value: Any, sentence: str) -> None:
    def answer(session_state: dict[str, Any]) -> str:
        session_state["bad"] = value
        return "done"

    made = Platform(agents=[Agent(id="a", run=answer)])
    with Client(made, raise_errors=False) as client:
        run = client.run("a", "m", session_id="s")

        assert (run["status"], run["content"]) == ("ERROR", sentence)
        assert stored(client) == {}
        assert [r.event for r in client.logs if r.level == "error"] == ["state_refused"]


def test_members_of_a_team_write_to_the_one_state() -> None:
    clerk = [call("add", item="tea"), "ok", call("add", item="milk"), "ok"]
    delegate = "delegate_task_to_member"
    leads = [
        [call(delegate, member_id="clerk", task="t"), call(delegate, member_id="count", task="t")],
        call("set_key", key="k", value=1),
        call(delegate, member_id="clerk", task="t"),
        "done",
    ]
    with Client(platform(*clerk, leads=leads)) as client:
        run = client.run_team("desk", "m", session_id="s", session_state={"x": 1})

        whole = {"x": 1, "items": ["tea", "milk"], "turns": 1, "seen": 10, "k": 1}
        assert run["session_state"] == stored(client) == whole
        seen = json.loads(run["tools"][2]["result"])
        assert seen == {"x": 1, "items": ["tea"], "turns": 1, "seen": 10, "k": 1}


def test_instructions_write_nothing() -> None:
    def brief(run: Run) -> str:
        run.state["lost"] = object() if run.state.get("bad") else 1
        return "Be brief."

    agent = Agent(id="a", model=ScriptedModel(["done"]), instructions=brief)
    with Client(Platform(agents=[agent]), raise_errors=False) as client:
        for state in ({}, {"bad": 1}):
            run = client.run("a", "m", session_id="s", session_state=state)
            assert run["status"] == "ERROR"
        lines = [dict(r.fields)["error"] for r in client.logs if r.event == "instructions_failed"]

        assert lines == ["it wrote to the state of the session, which is for tools"] * 2
        assert stored(client) == {"bad": 1}


class Basket(pydantic.BaseModel):
    """A cart, as a model of pydantic."""

    items: list[str] = []


class Pair(NamedTuple):
    """A state that is no object of JSON."""

    items: int = 0


def test_state_may_be_a_model_of_pydantic() -> None:
    def put(run: Run[None, Basket], item: str) -> str:
        run.state.items.append(item)
        return "done"

    model = ScriptedModel([call("put", item="tea"), call("put", item="milk"), "ok"])
    with Client(Platform(agents=[Agent(id="a", model=model, tools=[put])])) as client:
        client.run("a", "m", session_id="s", session_state={"other": 1})

        assert stored(client) == {"other": 1, "items": ["tea", "milk"]}


def test_state_that_could_not_be_written_is_not_given() -> None:
    def look(run: Run[None, Pair]) -> str:
        raise AssertionError(run)

    model = ScriptedModel([call("look"), "ok"])
    made = Platform(agents=[Agent(id="a", model=model, tools=[look])])
    with Client(made, raise_errors=False) as client:
        run = client.run("a", "m", session_id="s")

        assert results(run) == ["The tool failed (what it is given with the run does not fit)"]
        assert [r.event for r in client.logs if r.level == "error"] == ["context_refused"]


def test_each_user_has_a_state_of_their_own() -> None:
    script = [call("add", item="tea"), "ok"] * 2
    with Client(platform(*script)) as client:
        for user in ("ada", "eve"):
            run = client.run("clerk", "m", session_id=user, user_id=user)
            assert results(run) == ["1"]
