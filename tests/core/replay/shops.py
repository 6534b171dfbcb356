"""Platforms whose runs are recorded, and the changes that are made to them afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from attrs import evolve

from legation import Agent, Platform, Run, Team, ToolError, tool
from legation.config import Mode
from legation.models.conversation import ModelFailed, Usage
from legation.replay.recording import Recording
from legation.tools.accepted import is_array
from legation_testing import Client, Says, ScriptedModel, call

from ...recordings import record

__all__ = [
    "INSTRUCTIONS",
    "NAMES",
    "SHAPE",
    "ask",
    "called",
    "change",
    "desk",
    "list_tools",
    "look",
    "model",
    "print_ticket",
    "record_run",
    "refund",
]

DELEGATE: Final = "delegate_task_to_member"
INSTRUCTIONS: Final = "You book rooms.\nBe brief.\nAsk before you pay back."
SHAPE: Final = {
    "type": "object",
    "properties": {"room": {"type": "integer"}},
    "required": ["room"],
    "additionalProperties": False,
}

PICTURE: Final = {"url": "https://example.com/room.png"}

called: Final = list[str]()
"""The functions that were called, in order."""


def look(room: int) -> str:
    """Look at a room."""
    called.append("look")
    return f"Room {room} is free."


def book(room: int, guest: str = "ann") -> dict[str, Any]:
    """Book a room."""
    called.append("book")
    return {"room": room, "guest": guest}


def fail(room: int) -> str:
    """Fail."""
    called.append("fail")
    raise ToolError(f"There is no room {room}")


def spare() -> str:
    """Do nothing."""
    raise NotImplementedError


@tool(requires_confirmation=True)
def refund(amount: int, run: Run) -> str:
    """Pay money back."""
    called.append("refund")
    run.state["paid"] = amount
    return f"Paid {amount} back."


@tool(external_execution=True)
def print_ticket(room: int) -> str:
    """Print a ticket."""
    raise NotImplementedError


def instruct(run: Run) -> str:
    """Return the instructions."""
    called.append("instruct")
    return f"You book rooms in the {run.state.get('house', 'inn')}."


def echo(message: str) -> str:
    """Answer without a model."""
    called.append("echo")
    return f"You said {message}."


_TOOLS: Final = {
    "look": look,
    "book": book,
    "fail": fail,
    "spare": spare,
    "refund": refund,
    "print_ticket": print_ticket,
}


def list_tools(**changed: Any) -> list[Any]:
    """Return the tools of every agent, with others in the place of some; None is no tool."""
    return [one for one in {**_TOOLS, **changed}.values() if one is not None]


def ask(member: str, task: str = "Look") -> Any:
    """Return the call that gives a member a task."""
    return call(DELEGATE, member_id=member, task=task)


def model(*steps: Any, name: str = "gpt") -> ScriptedModel:
    """Return a model that costs the same each time."""
    return ScriptedModel([_cost(step) for step in steps], id=name)


def _cost(step: Any) -> Any:
    if isinstance(step, str):
        return Says(step, usage=Usage(20, 5))
    if isinstance(step, ModelFailed | Says):
        return step
    calls = step if is_array(step) else [step]
    return Says(calls=calls, usage=Usage(20, 5))


SIDE: Final = [call("look", room=7), call("book", room=7), call("look", room=8)]
SCRIPTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "plain": ("Hello.",),
    "clerk": (SIDE, call("fail", room=9), "Booked."),
    "careful": ([call("refund", amount=3), call("print_ticket", room=7)], "Paid."),
    "strict": (call("refund", amount=3), "I did not pay."),
    "wrong": ([call("look", room="seven"), call("sell")], "I cannot."),
    "shaped": (call("look", room=7), "seven", '{"room": 7}'),
    "stuck": (call("look", room=7), ModelFailed("rate_limited", "The model is busy")),
    "deep": (call("look", room=7), call("look", room=8)),
    "invalid": (call("look", room=7), "seven", "eight"),
    "late": (Says("Hel", after_seconds=60.0),),
}
"""What the models of agents say."""

_SHAPED: Final = ("shaped", "invalid")
_LIMITS: Final[Mapping[str, dict[str, Any]]] = {"deep": {"max_rounds": 2}}


def _agent(name: str) -> Agent:
    return Agent(
        id=name,
        name=name.title(),
        instructions=INSTRUCTIONS,
        model=model(*SCRIPTS[name]),
        tools=list_tools(),
        output_schema=SHAPE if name in _SHAPED else None,
        **_LIMITS.get(name, {}),
    )


TEAMS: Final[Mapping[str, tuple[Mode, tuple[Any, ...]]]] = {
    "coordinate": ("coordinate", ([ask("clerk"), ask("plain")], "The team is done.")),
    "route": ("route", (ask("clerk"),)),
    "collaborate": ("collaborate", ("All of us are done.",)),
    "outer": ("coordinate", (ask("coordinate"), "The outer one is done.")),
    "asking": ("coordinate", ([ask("careful"), ask("plain")], "Those who ask are done.")),
    "broken": ("coordinate", ([ask("stuck"), ask("late")], "Nobody could.")),
}
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "outer": ("coordinate",),
    "asking": ("careful", "plain"),
    "broken": ("stuck",),
}


def _team(name: str) -> Team:
    mode, script = TEAMS[name]
    members = _MEMBERS.get(name, ("clerk", "plain"))
    return Team(id=name, mode=mode, members=members, model=model(*script), instructions="Lead.")


def desk(choose: Callable[[Any], Any] = lambda one: one) -> Platform:
    """Return the platform with what `choose` makes of each agent and team; None is none."""
    agents = [
        *map(_agent, SCRIPTS),
        Agent(id="told", instructions=instruct, model=model(SIDE, "Booked."), tools=[look, book]),
        Agent(id="echo", run=echo),
    ]
    kept = [choose(one) for one in (*agents, *map(_team, TEAMS))]
    return Platform(
        run_timeout_seconds=30.0,
        agents=[one for one in kept if isinstance(one, Agent)],
        teams=[one for one in kept if isinstance(one, Team)],
    )


def change(name: str, **members: Any) -> Platform:
    """Return the platform with members of one agent or team changed."""
    return desk(lambda one: evolve(one, **members) if one.id == name else one)


@cache
def record_run(name: str) -> Recording:
    """Return the recording of a run: of the name of its agent or team, or of a way to end it."""
    component, _, way = name.partition(", ")
    with Client(desk, raise_errors=False) as client:
        kind = "teams" if component in TEAMS else "agents"
        if way == "second":
            client.run(component, "Hello", session_id="s")
            client.platform = desk()
            run: Any = client.run(component, "A room", session_id="s")
        elif way == "cancelled":
            run = _cancel(client, component)
        else:
            files = {"images": json.dumps([PICTURE])} if way == "picture" else {}
            form = {"message": "A room", "session_id": "s", "stream": "false", **files}
            run = client.post(f"/{kind}/{component}/runs", form=form).json()
        if run["status"] == "PAUSED" and way != "waits":
            run = _continue(client, kind, run, confirmed=way != "rejected")
        return record(client, run)


def _cancel(client: Client, name: str) -> Any:
    form = {"message": "A room", "background": "true", "stream": "false", "session_id": "s"}
    run = client.post(f"/agents/{name}/runs", form=form).json()
    client.advance(1)
    client.post(f"/agents/{name}/runs/{run['run_id']}/cancel")
    client.advance(1)
    return run


def _continue(client: Client, kind: str, run: Any, *, confirmed: bool) -> Any:
    tools = [_answer(one["tool_execution"], confirmed) for one in run["requirements"]]
    name = run.get("agent_id") or run["team_id"]
    form = {"tools": json.dumps(tools), "stream": "false"}
    return client.post(f"/{kind}/{name}/runs/{run['run_id']}/continue", form=form).json()


def _answer(execution: dict[str, Any], confirmed: bool) -> dict[str, Any]:
    if execution["external_execution_required"]:
        return {**execution, "result": "printed"}
    note = {} if confirmed else {"confirmation_note": "Too much"}
    return {**execution, "confirmed": confirmed, **note}


NAMES: Final = (
    *SCRIPTS,
    *TEAMS,
    "told",
    "echo",
    "clerk, second",
    "careful, waits",
    "strict, rejected",
    "late, cancelled",
    "plain, picture",
)
"""The names of all recordings."""
