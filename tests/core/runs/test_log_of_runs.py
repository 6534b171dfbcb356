"""The log of a run says all that happened: a reader of the events alone knows what was stored."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pytest
from attrs import define, field

from legation import Agent, Platform, Team, tool
from legation.config import Mode
from legation.models.conversation import ModelProtocol, Prompt, Reply, ToolCall
from legation.runs.team_turn import DELEGATE
from legation_testing import Client, Says, ScriptedModel, call

ENDS: Final = ("RunCompleted", "RunError", "RunCancelled")
SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def book(room: int) -> str:
    """Book a room."""
    return f"room {room} is booked"


@tool(requires_confirmation=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"{path} is gone"


@tool(external_execution=True)
def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError(command)


TOOLS: Final[list[Any]] = [book, delete, shell]


@define
class Reading:
    """What a reader makes of the events of one run, as the reference says it is to be done."""

    texts: dict[str, str] = field(factory=dict[str, str])
    requests: list[str] = field(factory=list[str])
    started: list[Mapping[str, Any]] = field(factory=list[Mapping[str, Any]])
    over: dict[str, Mapping[str, Any]] = field(factory=dict[str, Mapping[str, Any]])
    asked_by: str | None = None
    content: Any = None

    def take(self, name: str, members: Mapping[str, Any]) -> None:
        match name:
            case "RunStarted":
                self.asked_by = members.get("parent_tool_call_id")
            case "ModelRequestStarted":
                self.texts[members["message_id"]] = ""
                if not members.get("again"):
                    self.requests.append(members["message_id"])
            case "RunContent":
                self.texts[self.requests[-1]] += members.get("content", "")
            case "ToolCallStarted":
                self.started.append(members["tool"])
            case "ToolCallCompleted" | "ToolCallError":
                self.over[members["tool"]["tool_call_id"]] = members["tool"]
            case "RunContinued":
                self.over |= {
                    one["tool_call_id"]: one
                    for one in members.get("tools", ())
                    if one["result"] is not None and one.get("member_run_id") in OWN
                }
            case "RunCompleted":
                self.content = members["content"]
            case _:
                pass


OWN: Final = (None,)


def read(events: Iterable[Any]) -> dict[str, Reading]:
    """Return what the events say of each run that is among them."""
    readings: dict[str, Reading] = {}
    for event in events:
        members = json.loads(event.data)
        if event.name.endswith("RunContinued") and "tools" in members:
            members["tools"] = [  # a member's says who its calls are of as well
                {**one, "member_run_id": None}
                if one.get("member_run_id") == members["run_id"]
                else one
                for one in members["tools"]
            ]
        reading = readings.setdefault(members["run_id"], Reading())
        reading.take(event.name.removeprefix("Team"), members)
    return readings


def runs_of(output: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a run and those of its members, also of teams among them."""
    below = [one for member in output.get("member_responses", ()) for one in runs_of(member)]
    return [output, *below]


def check(events: Iterable[Any], output: Mapping[str, Any]) -> None:
    """Check that the events say of each run what is stored of it."""
    readings = read(events)
    runs = runs_of(output)
    assert {run["run_id"] for run in runs} == readings.keys()
    for run in runs:
        reading = readings[run["run_id"]]
        stored = {message["id"]: message for message in run["messages"]}
        said = {name: stored[name]["content"] for name in reading.requests}
        assert {name: reading.texts[name] for name in reading.requests} == said
        made = {m["id"] for m in run["messages"] if m["role"] == "assistant"}
        unasked = made - {*reading.requests}  # by the team that asks all its members
        assert all(stored[name]["tool_calls"][0]["id"] == "call_1" for name in unasked)
        assert len(unasked) <= (reading.asked_by is None)
        begun = Counter(one["tool_call_id"] for one in reading.started)
        assert begun == dict.fromkeys([one["tool_call_id"] for one in run["tools"]], 1)
        results = {one["tool_call_id"]: one["result"] for one in run["tools"]}
        assert {name: one["result"] for name, one in reading.over.items()} == results
        assert reading.content == run["content"]


def answer(client: Client, path: str, run: Mapping[str, Any], **form: Any) -> dict[str, Any]:
    """Answer all that `run` waits for: confirm paths but `/no`, and execute commands."""
    requirements: list[dict[str, Any]] = []
    for one in run["requirements"]:
        arguments = one["tool_execution"]["tool_args"]
        if "command" in arguments:
            requirements.append({**one, "external_execution_result": "a b"})
        else:
            wanted = arguments["path"] != "/no"
            requirements.append({**one, "confirmation": wanted, "confirmation_note": "not that"})
    asked = {"requirements": json.dumps(requirements), "stream": False, **form}
    going = client.post(f"{path}/{run['run_id']}/continue", form=asked)
    gone_on: dict[str, Any] = going.expect_success().json()
    return gone_on


def complete(client: Client, path: str, **form: Any) -> tuple[list[Any], dict[str, Any]]:
    """Begin a run in the background and see it through its pauses; return its log and output."""
    form = {"message": "go", "session_id": "s", "background": True, **form}
    run_id = client.post(path, form=form).expect_success().json()["run_id"]
    client.settle()
    run: dict[str, Any] = client.get(f"{path}/{run_id}").json()
    while run["status"] == "PAUSED":
        run = answer(client, path, run)
    assert run["status"] == "COMPLETED"
    return [*client.get(f"{path}/{run_id}/events").events()], run


DELETE, SHELL = call("delete", path="/x"), call("shell", command="ls")
REJECTED: Final = call("delete", path="/no")
SCRIPTS: Final[Mapping[str, list[Any]]] = {
    "an answer": [Says(("Good ", "morning"))],
    "nothing": [Says(())],
    "text beside calls": [Says("I look.", calls=[call("book", room=1)]), "Done."],
    "calls side by side": [[call("book", room=n) for n in range(9)], "Done."],
    "no such tool": [call("nothing"), call("book", floor=1), "Done."],
    "a pause": [DELETE, "Done."],
    "pauses": [[DELETE, call("book", room=1)], [SHELL, REJECTED, DELETE], "Done."],
    "the same call twice": [[DELETE, DELETE, SHELL], "Done."],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_log_of_an_agent_says_what_is_stored(name: str) -> None:
    model = ScriptedModel([*SCRIPTS[name], *SCRIPTS[name]])
    with Client(Platform(agents=[Agent(id="clerk", model=model, tools=TOOLS)])) as client:
        for _ in range(2):  # the second has a history
            check(*complete(client, "/agents/clerk/runs"))


def test_log_of_an_answer_that_was_corrected_says_what_is_stored() -> None:
    model = ScriptedModel([DELETE, "no number", '{"n": 1}'])
    platform = Platform(agents=[Agent(id="clerk", model=model, tools=TOOLS)])
    with Client(platform) as client:
        form = {"output_schema": json.dumps(SCHEMA)}
        events, run = complete(client, "/agents/clerk/runs", **form)
        check(events, run)

    (reading,) = read(events).values()
    assert [*reading.texts.values()] == ["", "no number", '{"n": 1}']
    assert (reading.requests[0], len(run["messages"])) == (f"{run['run_id']}.2", 6)


def ask(member: str) -> ToolCall:
    return call(DELEGATE, member_id=member, task="go")


def team(mode: Mode, leader: list[Any]) -> Platform:
    """Return a team of `ann`, who waits for a person, and a team of `bob`, who does too."""
    agents = [
        Agent(id="ann", model=ScriptedModel([[DELETE, call("x")], "Ann is done."]), tools=TOOLS),
        Agent(id="bob", model=ScriptedModel([[SHELL, REJECTED], "Bob is done."]), tools=TOOLS),
    ]
    beneath = Team(id="crew", model=ScriptedModel([ask("bob"), "Well."]), members=["bob"])
    top = Team(
        id="desk", mode=mode, model=ScriptedModel(leader), members=["ann", "crew"], tools=TOOLS
    )
    return Platform(agents=agents, teams=[beneath, top])


LEADERS: Final[Mapping[str, list[Any]]] = {
    "coordinate": [[ask("ann"), ask("crew"), ask("nobody"), DELETE], SHELL, "All done."],
    "route": [ask("crew")],
    "collaborate": [REJECTED, "All done."],
}


@pytest.mark.parametrize("mode", LEADERS)
def test_log_of_a_team_says_what_is_stored(mode: Mode) -> None:
    with Client(team(mode, LEADERS[mode])) as client:
        events, run = complete(client, "/teams/desk/runs")
        check(events, run)
        alone = {
            one["run_id"]: [*client.get(f"{path_of(one)}/{one['run_id']}/events").events()]
            for one in runs_of(run)[1:]
        }

    calls = {one["child_run_id"]: one["tool_call_id"] for r in runs_of(run) for one in r["tools"]}
    readings = read(events)
    for run_id, own in alone.items():
        assert readings[run_id].asked_by == calls[run_id]
        assert read(own)[run_id] == readings[run_id]


def path_of(run: Mapping[str, Any]) -> str:
    kind = "team" if "team_id" in run else "agent"
    return f"/{kind}s/{run[f'{kind}_id']}/runs"


def test_what_people_answered_is_in_the_log_with_the_member_that_asked() -> None:
    with Client(team("coordinate", LEADERS["coordinate"])) as client:
        events, run = complete(client, "/teams/desk/runs")

    (first, second) = [json.loads(e.data) for e in events if e.name == "TeamRunContinued"][::2]
    ann, crew = run["member_responses"]
    (bob,) = crew["member_responses"]
    told = [
        (one.get("member_run_id"), one["tool_name"], one["confirmed"], one["confirmation_note"])
        for one in first["tools"]
    ]
    assert told == [
        (ann["run_id"], "delete", True, "not that"),
        (bob["run_id"], "shell", None, None),
        (bob["run_id"], "delete", False, "not that"),
        (None, "delete", True, "not that"),
    ]
    assert [one["result"] for one in first["tools"]] == [
        None,
        "a b",
        "Function call was rejected by the user: not that",
        None,
    ]
    assert [one["tool_name"] for one in second["tools"]] == ["shell"]


def test_call_that_waits_is_announced_before_the_pause_and_timed_when_it_is_made() -> None:
    platform = Platform(
        agents=[Agent(id="clerk", model=ScriptedModel([DELETE, "Done."]), tools=TOOLS)]
    )
    with Client(platform) as client:
        form = {"message": "go", "session_id": "s", "stream": False}
        paused = client.post("/agents/clerk/runs", form=form).json()
        client.advance(100)
        run = answer(client, "/agents/clerk/runs", paused)
        log = [*client.get(f"/agents/clerk/runs/{run['run_id']}/events").events()]

    names = [event.name for event in log]
    assert names.index("ToolCallStarted") < names.index("RunPaused")
    (announced,) = [json.loads(e.data) for e in log if e.name == "ToolCallStarted"]
    (continued,) = [json.loads(e.data) for e in log if e.name == "RunContinued"]
    assert announced["tool"]["requires_confirmation"] is True
    assert announced["tool"]["metrics"] is None
    began = run["tools"][0]["metrics"]["start_time"]
    assert announced["created_at"] + 100 <= continued["created_at"] <= began
    assert "answered" not in json.dumps(run).replace('"answered": null', "")


def test_call_that_cannot_be_made_begins_in_the_log_before_it_fails() -> None:
    model = ScriptedModel([call("nothing"), "Done."])
    with Client(Platform(agents=[Agent(id="clerk", model=model)])) as client:
        events, _ = complete(client, "/agents/clerk/runs")

    started, failed = (json.loads(e.data)["tool"] for e in events if e.name.startswith("ToolCall"))
    assert (started["tool_call_error"], started["result"]) == (None, None)
    assert failed["tool_call_error"] is True
    assert failed["result"] == "There are no tools"


@tool(again="safe")
async def look(number: int) -> str:
    """Look at something, slowly."""
    return f"{number} looked at"


def slow_team() -> Platform:
    """Return a team in which everything takes three seconds."""

    def slow(*steps: Any) -> ScriptedModel:
        def step(prompt: Prompt) -> Says:  # a process that starts knows nothing of the one before
            number = sum(message.role == "assistant" for message in prompt.messages)
            pieces = (f"{number} ", "is", ".")
            return Says(pieces, steps[number], after_seconds=1.0, between_seconds=1.0)

        return ScriptedModel([step] * 9)

    looks = [call("look", number=n) for n in range(2)]
    agents = [Agent(id=name, model=slow(looks, ()), tools=[look]) for name in ("ann", "bob")]
    leader = slow([ask("ann"), ask("bob")], [call("look", number=3)], ())
    top = Team(id="desk", model=leader, members=["ann", "bob"], tools=[look])
    return Platform(agents=agents, teams=[top])


@pytest.mark.parametrize("second", range(0, 20, 2))
def test_log_of_a_run_that_went_on_after_a_crash_says_what_is_stored(second: int) -> None:
    with Client(slow_team) as client:
        form = {"message": "go", "session_id": "s", "background": True}
        run_id = client.post("/teams/desk/runs", form=form).json()["run_id"]
        client.advance(second + 0.5)
        client.crash()
        client.restart()
        client.advance(120)
        run = client.get(f"/teams/desk/runs/{run_id}").json()
        log = [*client.get(f"/teams/desk/runs/{run_id}/events").events()]

    names = [event.name for event in log]
    assert names.count("TeamRunContinued") == (second < 15)
    check(log, run)


# --- Pieces ------------------------------------------------------------------------------------


def pieces(client: Client, path: str, run_id: str) -> list[str]:
    log = client.get(f"{path}/{run_id}/events").events()
    return [json.loads(e.data)["content"] for e in log if e.name.endswith("RunContent")]


@pytest.mark.parametrize(
    ("form", "kept"),
    [
        ({"stream": True}, ["Do", "ne."]),
        ({"stream": False}, []),
        ({"stream": True, "background": True}, ["Do", "ne."]),
        ({"stream": False, "background": True}, ["Do", "ne."]),
    ],
)
def test_pieces_are_kept_of_a_run_that_is_streamed_or_in_the_background(
    form: dict[str, bool], kept: list[str]
) -> None:
    model = ScriptedModel([Says(("Do", "ne."))])
    with Client(Platform(agents=[Agent(id="clerk", model=model)])) as client:
        client.post("/agents/clerk/runs", form={"message": "go", "session_id": "s", **form})
        client.settle()
        (run,) = client.get("/sessions/s/runs").json()

        assert pieces(client, "/agents/clerk/runs", run["run_id"]) == kept


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize("goes_on", [False, True])
def test_run_that_goes_on_keeps_its_pieces_or_begins_to(*, began: bool, goes_on: bool) -> None:
    model = ScriptedModel([Says("I ask.", calls=[DELETE]), Says(("Do", "ne."))])
    with Client(Platform(agents=[Agent(id="clerk", model=model, tools=TOOLS)])) as client:
        form = {"message": "go", "session_id": "s", "stream": began}
        client.post("/agents/clerk/runs", form=form)
        (run,) = client.get("/sessions/s/runs").json()
        path = f"/agents/clerk/runs/{run['run_id']}"
        (waits,) = client.get(path).json()["tools"]
        answered = {"tools": json.dumps([{**waits, "confirmed": True}]), "stream": goes_on}
        client.post(f"{path}/continue", form=answered).expect_success()

        first, rest = ["I ask."] * began, ["Do", "ne."] * (began or goes_on)
        assert pieces(client, "/agents/clerk/runs", run["run_id"]) == [*first, *rest]


def test_run_in_the_background_is_followed_live_and_late_and_on_another_node() -> None:
    model = Says(("a", "b", "c"), between_seconds=10.0)
    with (
        Client(lambda: Platform(agents=[Agent(id="clerk", model=ScriptedModel([model]))])) as here,
        here.peer() as there,
    ):
        form = {"message": "go", "session_id": "s", "background": True}
        run_id = here.post("/agents/clerk/runs", form=form).json()["run_id"]
        target = f"/agents/clerk/runs/{run_id}/events"
        live = there.begin("GET", target)
        here.advance(15)
        halfway = [event.name for event in live.events()]
        late = here.begin("GET", target)
        here.advance(20)
        whole = live.response().events()

        assert halfway.count("RunContent") == 2
        assert whole == late.response().events() == here.get(target).events()
        assert whole[-1].name == "RunCompleted"


class Wavering:
    """A model that begins its answer anew."""

    id = "wavering"
    name = "Wavering"
    provider = "Tests"

    def respond(self, prompt: Prompt, listener: Any) -> Any:
        """Say something, and then something else."""
        listener.hear(f"{len(prompt.messages)} ")
        yield from listener.settle()
        listener.listen()
        listener.hear("Hi")
        return Reply("Hi")


@pytest.mark.parametrize("background", [False, True])
def test_answer_that_begins_anew_says_so_where_its_pieces_are_kept(*, background: bool) -> None:
    wavering: ModelProtocol = Wavering()
    with Client(Platform(agents=[Agent(id="clerk", model=wavering)])) as client:
        form = {"message": "go", "session_id": "s", "background": background, "stream": False}
        client.post("/agents/clerk/runs", form=form)
        client.settle()
        (run,) = client.get("/sessions/s/runs").json()
        output = client.get(f"/agents/clerk/runs/{run['run_id']}").json()
        log = [*client.get(f"/agents/clerk/runs/{run['run_id']}/events").events()]

    asked = [json.loads(e.data) for e in log if e.name == "ModelRequestStarted"]
    assert [one.get("again") for one in asked] == ([None, True] if background else [None])
    assert {one["message_id"] for one in asked} == {f"{run['run_id']}.2"}
    if background:
        check(log, output)
