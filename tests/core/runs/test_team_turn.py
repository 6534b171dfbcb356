from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from attrs import define, field

from legation import Agent, Database, Platform, Team, Tool, tool
from legation.config import Mode
from legation.effects import Sleep
from legation.hosted.registry import build
from legation.models.conversation import Document, Image, ModelFailed, Prompt, ToolCall
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.team_turn import DELEGATE, MAX_TASKS, LeaderToolSet, Taking
from legation.runs.tool_calls import Toolbox
from legation.runs.turn_state import CallState
from legation.store.failures import StatementFailed, Unavailable
from legation.store.member_runs import StartMember
from legation.store.run_rows import ClaimedRun
from legation.store.runs import AppendEvents
from legation_testing import (
    Client,
    Says,
    ScriptedModel,
    ServerSentEvent,
    call,
    crash_everywhere,
    play,
)

from ...providers.documents import make_pdf

MODES = ("coordinate", "route", "collaborate")
KEEPS_SECONDS = 32


@define
class Desk:
    """A team `desk` of whoever `members` are, and what their tools did."""

    mode: Mode = "coordinate"
    leader: Sequence[Any] = ()
    members: Mapping[str, Sequence[Any]] = field(factory=lambda: {"ann": ["It rains."]})
    more: Mapping[str, Any] = field(factory=dict[str, Any])
    done: list[str] = field(factory=list[str])

    def book(self, room: int) -> str:
        """Book a room."""
        self.done.append(f"booked {room}")
        return f"room {room} is booked"

    def platform(self) -> Platform:
        tools: list[Tool] = [
            tool(requires_confirmation=True)(self.book),
            tool(external_execution=True)(pay),
        ]
        agents = [
            Agent(id=name, name=name.title(), role="Knows", tools=tools, model=ScriptedModel(says))
            for name, says in self.members.items()
        ]
        team = Team(
            id="desk",
            name="Desk",
            mode=self.mode,
            model=ScriptedModel(self.leader),
            members=[*self.members],
            **self.more,
        )
        return Platform(agents=agents, teams=[team])


def pay(amount: int) -> str:
    """Pay."""
    raise AssertionError(amount)


def ask(member: str = "ann", task: str = "How is the weather?") -> ToolCall:
    return call(DELEGATE, member_id=member, task=task)


def repeat(prompt: Prompt) -> str:
    """Answer with what tools said since the last question."""
    return "Heard: " + " | ".join(m.content for m in prompt.messages if m.role == "tool")


LEADERS: Mapping[str, Sequence[Any]] = {
    "coordinate": [ask(), repeat],
    "route": [ask(), repeat],
    "collaborate": [repeat],
}


def data(event: ServerSentEvent) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(event.data)
    return payload


def start(client: Client, message: str = "Weather?", **form: Any) -> dict[str, Any]:
    form = {"message": message, "stream": False, "session_id": "s", **form}
    run: dict[str, Any] = client.post("/teams/desk/runs", form=form).expect_success().json()
    return run


def stream(client: Client, **form: Any) -> list[ServerSentEvent]:
    form = {"message": "Weather?", "session_id": "s", **form}
    return [*client.post("/teams/desk/runs", form=form).expect_success().events()]


def go_on(client: Client, run: Mapping[str, Any], **answer: Any) -> dict[str, Any]:
    """Answer everything that `run` waits for with `answer`."""
    tools = [{**needed["tool_execution"], **answer} for needed in run["requirements"]]
    form = {"tools": json.dumps(tools), "stream": False}
    path = f"/teams/desk/runs/{run['run_id']}/continue"
    gone_on: dict[str, Any] = client.post(path, form=form).expect_success().json()
    return gone_on


def of_members(client: Client, *names: str) -> list[dict[str, Any]]:
    """Return the runs of the members, each as it is fetched by its id, in the order of the list."""
    query = {"session_id": "s"}
    return [
        client.get(f"/agents/{name}/runs/{row['run_id']}").json()
        for name in names
        for row in client.get(f"/agents/{name}/runs", query=query).json()
    ]


# --- What a member's run comes to ----------------------------------------------------------------


def boom(_: Prompt) -> str:
    raise ValueError("a bug")


BOOK, PAY = call("book", room=7), call("pay", amount=3)
OUTCOMES: Mapping[str, tuple[Sequence[Any], str, str]] = {
    # what the member's model says, how its run ends, and with what
    "answer": (["It rains."], "COMPLETED", "It rains."),
    "no model": ([ModelFailed("refused", "The model refused")], "ERROR", "The model refused"),
    "bug": ([boom], "ERROR", "The run failed; the operator's log has the reason"),
    "limit": ([call("x")] * 10, "ERROR", "The run was ended: after 10 requests to the model"),
}


@pytest.mark.parametrize(("mode", "outcome"), [*product(MODES, OUTCOMES)])
def test_leader_hears_what_became_of_its_member(mode: Mode, outcome: str) -> None:
    says, status, content = OUTCOMES[outcome]
    desk = Desk(mode, LEADERS[mode], {"ann": says})
    with Client(desk.platform(), raise_errors=outcome != "bug") as client:
        run = start(client)
        (member,) = of_members(client, "ann")
        again = start(client, "Again?")

    assert run["status"] == "COMPLETED"
    alone = mode == "route" and status == "COMPLETED"
    assert run["content"].startswith(content if alone else f"Heard: {content}")
    assert (member["status"], member["parent_run_id"]) == (status, run["run_id"])
    assert member["content"].startswith(content)
    assert run["member_responses"] == [member]
    (asked,) = run["tools"]
    assert (asked["tool_name"], asked["child_run_id"]) == (DELEGATE, member["run_id"])
    assert asked["tool_call_error"] is (status == "ERROR")
    assert asked["stop_after_tool_call"] is alone
    assert again["run_id"] != run["run_id"]  # the session goes on


ANSWERS: Mapping[str, tuple[ToolCall, dict[str, Any], str, list[str]]] = {
    "confirmed": (BOOK, {"confirmed": True}, "room 7 is booked", ["booked 7"]),
    "rejected": (
        BOOK,
        {"confirmed": False, "confirmation_note": "too dear"},
        "Function call was rejected by the user: too dear",
        [],
    ),
    "executed": (PAY, {"result": "paid"}, "paid", []),
}


@pytest.mark.parametrize(("mode", "answer"), [*product(MODES, ANSWERS)])
def test_member_that_waits_for_a_person_pauses_the_team(mode: Mode, answer: str) -> None:
    wanted, given, result, done = ANSWERS[answer]
    desk = Desk(mode, LEADERS[mode], {"ann": [wanted, repeat]})
    with Client(desk.platform()) as client:
        paused = start(client)
        (member,) = of_members(client, "ann")
        run = go_on(client, paused, **given)
        (after,) = of_members(client, "ann")

    assert (paused["status"], member["status"]) == ("PAUSED", "PAUSED")
    (needed,) = paused["requirements"]
    assert needed["member_agent_id"] == "ann"
    assert needed["member_agent_name"] == "Ann"
    assert needed["member_run_id"] == member["run_id"] == after["run_id"]
    assert needed["tool_execution"]["tool_name"] == wanted.name
    assert member["requirements"][0]["tool_execution"] == needed["tool_execution"]
    assert (run["status"], after["status"]) == ("COMPLETED", "COMPLETED")
    assert after["content"] == f"Heard: {result}"
    assert run["content"] == after["content"] if mode == "route" else f"Heard: Heard: {result}"
    assert desk.done == done
    assert run["member_responses"] == [after]


@pytest.mark.parametrize("mode", MODES)
def test_cancelling_a_paused_team_ends_its_members(mode: Mode) -> None:
    desk = Desk(mode, LEADERS[mode], {"ann": [BOOK, repeat]})
    with Client(desk.platform()) as client:
        run = start(client)
        client.post(f"/teams/desk/runs/{run['run_id']}/cancel").expect_success()
        (member,) = of_members(client, "ann")
        team = client.get(f"/teams/desk/runs/{run['run_id']}").json()

    assert (team["status"], member["status"]) == ("CANCELLED", "CANCELLED")
    assert "requirements" not in member
    assert member["content"] == "The run that this one is part of was cancelled"


@pytest.mark.parametrize(("mode", "again"), [*product(MODES, [False, True])])
def test_cancelling_a_team_at_work_ends_its_members(mode: Mode, *, again: bool) -> None:
    slow = Says("late", after_seconds=60.0)
    says = [BOOK, slow] if again else [slow]
    desk = Desk(mode, LEADERS[mode], {"ann": says})
    with Client(desk.platform()) as client:
        if again:
            run = start(client)
            tools = [
                {**needed["tool_execution"], "confirmed": True} for needed in run["requirements"]
            ]
            form = {"tools": json.dumps(tools)}
            going = client.begin("POST", f"/teams/desk/runs/{run['run_id']}/continue", form=form)
        else:
            form = {"message": "Weather?", "session_id": "s"}
            going = client.begin("POST", "/teams/desk/runs", form=form)
        client.advance(1)
        (member,) = of_members(client, "ann")
        team = member["parent_run_id"]
        client.post(f"/teams/desk/runs/{team}/cancel").expect_success()
        (after,) = of_members(client, "ann")
        events = going.response().events()

    assert (member["status"], after["status"]) == ("RUNNING", "CANCELLED")
    assert events[-1].name == "TeamRunCancelled"
    assert desk.done == (["booked 7"] if again else [])


def test_team_that_takes_too_long_ends_its_members() -> None:
    desk = Desk("coordinate", [ask()], {"ann": [Says("late", after_seconds=60.0)]})
    platform = desk.platform()
    timed = Platform(
        agents=platform.config.agents, teams=platform.config.teams, run_timeout_seconds=5.0
    )
    with Client(timed) as client:
        run = start(client)
        (member,) = of_members(client, "ann")

    assert (run["status"], member["status"]) == ("ERROR", "ERROR")
    assert member["content"] == "The run that this one is part of ended in an error"
    assert (member["error_type"], member["incident"]) == ("timeout", run["incident"])


def test_a_member_at_work_when_its_node_crashed_goes_on_with_the_team() -> None:
    def lead(prompt: Prompt) -> Any:
        return repeat(prompt) if prompt.messages[-1].role == "tool" else ask()

    late = [Says("late", after_seconds=60.0)] * 2
    desk = Desk("coordinate", [lead] * 3, {"ann": late})
    with Client(desk.platform) as client:
        client.begin("POST", "/teams/desk/runs", form={"message": "Weather?", "session_id": "s"})
        client.advance(1)
        client.crash()
        client.restart()
        client.advance(1)
        (run,) = of_members(client, "ann")
        assert run["status"] == "RUNNING"
        client.advance(70)
        (run,) = of_members(client, "ann")
        team = client.get(f"/teams/desk/runs/{run['parent_run_id']}").json()

    assert (run["status"], team["status"]) == ("COMPLETED", "COMPLETED")
    assert [one["run_id"] for one in team["member_responses"]] == [run["run_id"]]


# --- What is shown -------------------------------------------------------------------------------

MEMBER = [
    "RunStarted",
    "ModelRequestStarted",
    "RunContent",
    "ModelRequestCompleted",
    "RunContentCompleted",
    "RunCompleted",
]
BEFORE = [
    "TeamRunStarted",
    "TeamModelRequestStarted",
    "TeamModelRequestCompleted",
    "TeamToolCallStarted",
]
AFTER = [
    "TeamToolCallCompleted",
    "TeamModelRequestStarted",
    "TeamRunContent",
    "TeamModelRequestCompleted",
    "TeamRunContentCompleted",
    "TeamRunCompleted",
]
EVENTS = {
    "coordinate": [*BEFORE, *MEMBER, *AFTER],
    "route": [*BEFORE, *MEMBER, AFTER[0], *AFTER[-2:]],
    "collaborate": [BEFORE[0], BEFORE[-1], *MEMBER, *AFTER],
}


@pytest.mark.parametrize("mode", MODES)
def test_events_of_a_member_stand_within_the_call_that_asked_for_it(mode: Mode) -> None:
    with Client(Desk(mode, LEADERS[mode]).platform()) as client:
        events = stream(client)

    assert [event.name for event in events] == EVENTS[mode]
    top = data(events[0])["run_id"]
    payloads = [data(event) for event in events if event.name in MEMBER]
    assert {event["parent_run_id"] for event in payloads} == {top}
    assert {event["agent_id"] for event in payloads} == {"ann"}
    (child,) = {event["run_id"] for event in payloads}
    (completed,) = [data(e) for e in events if e.name == "TeamToolCallCompleted"]
    assert completed["tool"]["child_run_id"] == child
    over = data(events[-1])
    assert [response["run_id"] for response in over["member_responses"]] == [child]
    assert all("parent_run_id" not in data(e) for e in events if e.name.startswith("Team"))


def test_events_of_a_member_that_paused_go_on_under_its_run() -> None:
    desk = Desk("coordinate", LEADERS["coordinate"], {"ann": [BOOK, "Done."]})
    with Client(desk.platform()) as client:
        before = stream(client)
        paused = data(before[-1])
        tools = [{**paused["requirements"][0]["tool_execution"], "confirmed": True}]
        path = f"/teams/desk/runs/{paused['run_id']}/continue"
        after = client.post(path, form={"tools": json.dumps(tools)}).events()

    assert [event.name for event in before[-4:]] == [
        "RunContentCompleted",
        "RunPaused",
        "TeamRunContentCompleted",
        "TeamRunPaused",
    ]
    assert [event.name for event in after] == [
        "TeamRunContinued",
        "RunContinued",
        "ToolCallCompleted",
        *MEMBER[1:],
        *AFTER,
    ]
    assert data(after[1])["run_id"] == paused["requirements"][0]["member_run_id"]


def test_pieces_are_told_only_where_somebody_follows_them() -> None:
    with Client(Desk("coordinate", LEADERS["coordinate"]).platform()) as client:
        run = start(client)
        events = client.get(f"/teams/desk/runs/{run['run_id']}/events").events()

    assert not {"RunContent", "TeamRunContent"} & {event.name for event in events}


def test_member_runs_are_no_runs_of_the_session() -> None:
    desk = Desk(leader=[ask(), "done", ask("ann", "again"), "done"], members={"ann": ["1", "2"]})
    with Client(desk.platform()) as client:
        run = start(client)
        start(client, "Again?")
        rows = client.get("/sessions/s/runs", query={"type": "team"}).json()
        chat = client.get("/sessions/s", query={"type": "team"}).json()["chat_history"]
        members = of_members(client, "ann")
        one = client.get(f"/agents/ann/runs/{members[0]['run_id']}").json()

    assert [row["run_input"] for row in rows] == ["Weather?", "Again?"]
    assert [m["role"] for m in chat] == ["user", "assistant", "assistant"] * 2
    assert one == members[0] == run["member_responses"][0]


def test_member_is_told_its_task_alone() -> None:
    model = ScriptedModel(["one", "two"])
    leader = ScriptedModel([ask(), "done", ask("ann", "And tomorrow?"), "done"])
    platform = Platform(
        agents=[Agent(id="ann", instructions="Be brief.", model=model)],
        teams=[Team(id="desk", members=["ann"], model=leader)],
    )
    with Client(platform) as client:
        start(client)
        start(client, "Again?")

    prompts = [[(m.role, m.content) for m in prompt.messages] for prompt in model.prompts]
    assert prompts == [
        [("system", "Be brief."), ("user", "How is the weather?")],
        [("system", "Be brief."), ("user", "And tomorrow?")],
    ]
    history = [m.content for m in leader.prompts[2].messages if m.role == "user"]
    assert history == ["Weather?", "Again?"]


def test_members_see_the_pictures_and_the_documents_that_their_models_take() -> None:
    model, reader = ScriptedModel(["A cat."]), ScriptedModel(["42 EUR"], accepts=())
    platform = Platform(
        agents=[Agent(id="ann", model=model), Agent(id="bob", model=reader)],
        teams=[
            Team(
                id="desk",
                members=["ann", "bob"],
                model=ScriptedModel([[ask(), ask("bob")], "A cat."]),
            )
        ],
    )
    invoice = b64encode(make_pdf()).decode()
    with Client(platform) as client:
        start(
            client,
            images=json.dumps([{"url": "https://example.org/cat.png"}]),
            files=json.dumps([{"name": "invoice.pdf", "content": invoice}]),
        )

    seen, read = (one.prompts[0].messages[-1] for one in (model, reader))
    assert seen.images == (Image(url="https://example.org/cat.png"),)
    assert seen.documents == (Document("invoice.pdf", "application/pdf", invoice),)
    assert (read.images, read.documents) == ((), ())
    assert '<file name="invoice.pdf" type="application/pdf">(Its content' in read.content


def test_usage_of_a_session_counts_leader_and_members() -> None:
    with Client(Desk("coordinate", LEADERS["coordinate"]).platform()) as client:
        run = start(client)
        session = client.get("/sessions/s", query={"type": "team"}).json()

    member = run["member_responses"][0]["metrics"]["total_tokens"]
    assert session["total_tokens"] == run["metrics"]["total_tokens"] + member
    assert member > 0


# --- What a leader may ask for -------------------------------------------------------------------

NAMED = "The arguments must be member_id and task, two texts that are not empty"
VAIN: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "nobody": ({"member_id": "bob", "task": "x"}, "There is no member 'bob'. There are: ann"),
    "no task": ({"member_id": "ann"}, NAMED),
    "empty": ({"member_id": "ann", "task": " "}, NAMED),
    "a number": ({"member_id": "ann", "task": 3}, NAMED),
    "too much": ({"member_id": "ann", "task": "x", "y": "z"}, NAMED),
}


@pytest.mark.parametrize("what", VAIN)
def test_task_that_cannot_be_given_is_told_to_the_leader(what: str) -> None:
    arguments, sentence = VAIN[what]
    desk = Desk(leader=[call(DELEGATE, **arguments), repeat])
    with Client(desk.platform()) as client:
        run = start(client)
        assert of_members(client, "ann") == []

    assert run["content"] == f"Heard: {sentence}"
    assert run["tools"][0]["tool_call_error"] is True


def test_arguments_that_are_no_json_are_told_to_the_leader() -> None:
    desk = Desk(leader=[ToolCall("", DELEGATE, "{"), repeat])
    with Client(desk.platform()) as client:
        assert start(client)["content"].startswith("Heard: The arguments must be a JSON object")


def test_leader_hears_of_its_members_where_it_asks_for_a_tool_that_is_not_there() -> None:
    desk = Desk(leader=[call("dance"), repeat])
    with Client(desk.platform()) as client:
        content = start(client)["content"]

    assert content == f"Heard: There is no tool of the name 'dance'. There are: {DELEGATE}"


def test_leader_has_tools_of_its_own() -> None:
    def clock() -> str:
        return "noon"

    desk = Desk(leader=[[call("clock"), ask()], repeat], more={"tools": [clock]})
    with Client(desk.platform()) as client:
        assert start(client)["content"] == "Heard: noon | It rains."


def test_one_member_answers_where_the_leader_routes() -> None:
    members = {"ann": ["I am Ann."], "bob": ["I am Bob."]}
    desk = Desk("route", [[ask("bob"), ask("ann")]], members)
    with Client(desk.platform()) as client:
        run = start(client)
        (asked,) = of_members(client, "ann", "bob")

    assert (run["content"], asked["agent_id"]) == ("I am Bob.", "bob")
    assert run["tools"][1]["result"] == "One member is to answer, and another was chosen already"


def test_leader_that_routes_chooses_another_where_one_failed() -> None:
    members: dict[str, list[Any]] = {
        "ann": [ModelFailed("refused", "No")],
        "bob": ["I am Bob."],
    }
    desk = Desk("route", [ask("ann"), ask("bob")], members)
    with Client(desk.platform()) as client:
        assert start(client)["content"] == "I am Bob."


@pytest.mark.parametrize(
    ("mode", "members", "tools", "choice"),
    [
        ("coordinate", True, False, None),
        ("collaborate", True, False, None),
        ("route", False, False, None),
        ("route", True, False, DELEGATE),
        ("route", True, True, "*"),
    ],
)
def test_leader_must_choose_only_where_it_routes(
    mode: Mode, *, members: bool, tools: bool, choice: str | None
) -> None:
    def clock() -> str:
        return "noon"

    model = ScriptedModel(["I know.", "I know."])
    agent = Agent(id="ann", model=ScriptedModel(["It rains."]))
    team = Team(
        id="desk",
        mode=mode,
        model=model,
        members=["ann"] if members else [],
        tools=[clock] if tools else [],
    )
    with Client(Platform(agents=[agent], teams=[team])) as client:
        assert start(client)["content"] == "I know."

    asked = model.prompts[0]
    assert asked.tool_choice == choice
    assert (DELEGATE in [spec.name for spec in asked.tools]) is members


def test_leader_is_told_who_its_members_are() -> None:
    model = ScriptedModel(["I know."])
    agents = [
        Agent(id="ann", name="Ann", role="Knows the weather", description="Has a barometer"),
        Agent(id="bob"),
    ]
    team = Team(id="desk", model=model, members=["ann", "bob"])
    with Client(Platform(agents=agents, teams=[team])) as client:
        start(client)

    (spec,) = model.prompts[0].tools
    assert spec.description.endswith("\n- ann: Ann. Knows the weather. Has a barometer\n- bob: bob")
    assert spec.parameters["properties"]["member_id"]["enum"] == ["ann", "bob"]


def test_everybody_is_asked_side_by_side_where_a_team_collaborates() -> None:
    slow = [Says("done", after_seconds=60.0)]
    names = [f"m{number}" for number in range(12)]
    model = ScriptedModel([repeat])
    platform = Platform(
        agents=[Agent(id=name, model=ScriptedModel(slow)) for name in names],
        teams=[Team(id="desk", mode="collaborate", model=model, members=names)],
    )
    with Client(platform) as client:
        run = start(client)
        elapsed = client.clock.elapsed

    assert run["content"] == "Heard: " + " | ".join(["done"] * 12)
    assert elapsed == 120.0  # no more than eight at one time
    assert [m["role"] for m in run["messages"]] == [
        "user",
        "assistant",
        *["tool"] * 12,
        "assistant",
    ]
    assert {m.content for p in model.prompts for m in p.messages if m.role == "user"} == {
        "Weather?"
    }


def test_calls_of_a_team_that_collaborates_are_unlike_those_it_remembers() -> None:
    model = ScriptedModel([repeat] * 3)
    platform = Platform(
        agents=[Agent(id=name, model=ScriptedModel(["done"] * 3)) for name in ("ann", "bob")],
        teams=[Team(id="desk", mode="collaborate", model=model, members=["ann", "bob"])],
    )
    with Client(platform) as client:
        for _ in range(3):
            start(client)

    ids = [call.id for message in model.prompts[-1].messages for call in message.calls]
    assert len(set(ids)) == len(ids) == 6


def test_number_of_tasks_is_bounded() -> None:
    desk = Desk(leader=[[ask()] * (MAX_TASKS + 1), "done"], members={"ann": ["x"] * MAX_TASKS})
    with Client(desk.platform()) as client:
        run = start(client)
        assert len(of_members(client, "ann")) == MAX_TASKS

    assert run["tools"][-1]["result"] == f"No more than {MAX_TASKS} tasks can be given in one run"


def test_answer_of_a_member_must_have_the_shape_asked_of_the_team() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    more = {"output_schema": schema}
    members = {"ann": ['{"n": 1}', "one"]}
    desk = Desk("route", [ask(), ask()], members, more)
    with Client(desk.platform()) as client:
        right, wrong = start(client), start(client)

    assert right["content"] == {"n": 1}
    assert wrong["status"] == "ERROR"
    assert "shape" in wrong["content"]


# --- Teams of teams, and functions ---------------------------------------------------------------


def hold(room: int) -> str:
    """Hold a room."""
    return f"room {room} is held"


ASKING = tool(requires_confirmation=True)(hold)


def nested(inner: Mode, says: Sequence[Any], does: Tool = ASKING) -> Platform:
    return Platform(
        agents=[
            Agent(
                id="ann",
                name="Ann",
                model=ScriptedModel(says),
                tools=[does],
            )
        ],
        teams=[
            Team(
                id="back",
                name="Back",
                mode=inner,
                members=["ann"],
                model=ScriptedModel(LEADERS[inner]),
            ),
            Team(id="desk", members=["back"], model=ScriptedModel([ask("back"), repeat])),
        ],
    )


@pytest.mark.parametrize("inner", MODES)
def test_member_may_be_a_team(inner: Mode) -> None:
    with Client(nested(inner, ["It rains."])) as client:
        events = stream(client)
        run = client.get(f"/teams/desk/runs/{data(events[0])['run_id']}").json()
        (back,) = client.get("/teams/back/runs", query={"session_id": "s"}).json()
        (ann,) = of_members(client, "ann")

    assert run["content"].endswith("It rains.")
    assert (back["parent_run_id"], ann["parent_run_id"]) == (run["run_id"], back["run_id"])
    assert run["member_responses"][0]["member_responses"][0]["run_id"] == ann["run_id"]
    started = [data(e) for e in events if e.name.endswith("RunStarted")]
    assert [e["run_id"] for e in started] == [run["run_id"], back["run_id"], ann["run_id"]]
    assert [e.get("parent_run_id") for e in started] == [None, run["run_id"], back["run_id"]]


@pytest.mark.parametrize("inner", MODES)
def test_pause_deep_in_a_team_is_answered_at_the_top(inner: Mode) -> None:
    with Client(nested(inner, [call("hold", room=7), repeat])) as client:
        paused = start(client)
        run = go_on(client, paused, confirmed=True)

    assert [needed["member_agent_id"] for needed in paused["requirements"]] == ["ann"]
    assert run["status"] == "COMPLETED"
    assert run["content"].endswith("room 7 is held")


def test_cancelling_at_the_top_reaches_the_depth() -> None:
    with Client(nested("coordinate", [call("hold", room=7)])) as client:
        paused = start(client)
        client.post(f"/teams/desk/runs/{paused['run_id']}/cancel").expect_success()
        (back,) = client.get("/teams/back/runs", query={"session_id": "s"}).json()
        (ann,) = of_members(client, "ann")

    assert (back["status"], ann["status"]) == ("CANCELLED", "CANCELLED")


def test_member_may_be_a_function() -> None:
    def weather(message: str, run_id: str, history: list[Any]) -> str:
        assert history == []
        return f"{message} It rains."

    platform = Platform(
        agents=[Agent(id="ann", run=weather)],
        teams=[Team(id="desk", members=["ann"], model=ScriptedModel([ask(), repeat]))],
    )
    with Client(platform) as client:
        events = stream(client)

    assert data(events[-1])["content"] == "Heard: How is the weather? It rains."
    started = next(data(e) for e in events if e.name == "RunStarted")
    assert "model" not in started


# --- What a member's run is not ------------------------------------------------------------------


def test_member_run_is_neither_cancelled_nor_continued_by_itself() -> None:
    desk = Desk(leader=[ask(), repeat], members={"ann": [BOOK, repeat]})
    with Client(desk.platform()) as client:
        run = start(client)
        member = run["requirements"][0]["member_run_id"]
        cancelled = client.post(f"/agents/ann/runs/{member}/cancel")
        tools = json.dumps([{**run["requirements"][0]["tool_execution"], "confirmed": True}])
        continued = client.post(f"/agents/ann/runs/{member}/continue", form={"tools": tools})
        assert (cancelled.status, continued.status) == (409, 409)
        go_on(client, run, confirmed=True)
        assert client.post(f"/agents/ann/runs/{member}/cancel").status == 200

    assert desk.done == ["booked 7"]


OF_ANN = (
    *("RunStarted", "ModelRequestStarted", "RunContent", "ModelRequestCompleted"),
    *("RunContentCompleted", "RunCompleted"),
)


def own(client: Client, run: Mapping[str, Any], kind: str = "agents", **options: Any) -> Any:
    """Return the events of a member's run, by that run."""
    return client.get(f"/{kind}/{run[f'{kind[:-1]}_id']}/runs/{run['run_id']}/events", **options)


def test_stream_of_a_member_run_ends_with_it_and_not_with_the_team() -> None:
    slow = [Says("late", after_seconds=5.0)]
    leader = [ask(), Says("Rain.", after_seconds=60.0)]
    with Client(Desk(leader=leader, members={"ann": slow}).platform()) as client:
        client.begin("POST", "/teams/desk/runs", form={"message": "x", "session_id": "s"})
        client.advance(1)
        (member,) = of_members(client, "ann")
        live = own(client, member).events()
        (over,) = of_members(client, "ann")
        (team,) = client.get("/teams/desk/runs", query={"session_id": "s"}).json()[:1]
        again = own(client, member).events()
        missed = own(client, member, headers={"last-event-id": live[2].id}).events()
        behind = own(client, member, headers={"last-event-id": live[-1].id}).events()

    assert (member["status"], over["status"], team["status"]) == (
        *("RUNNING", "COMPLETED", "RUNNING"),
    )
    assert [event.name for event in live] == [*OF_ANN]
    assert {(data(e)["run_id"], e.id.rpartition(":")[0]) for e in live if e.id} == {
        (member["run_id"], member["run_id"])
    }
    assert [*again] == [*live]
    assert [*missed] == [*live[3:]]
    assert [*behind] == []


def test_stream_of_a_member_run_ends_where_the_team_is_cancelled() -> None:
    slow = [Says("late", after_seconds=50.0)]
    with Client(Desk(leader=[ask(), repeat], members={"ann": slow}).platform()) as client:
        client.begin("POST", "/teams/desk/runs", form={"message": "x", "session_id": "s"})
        client.advance(1)
        (member,) = of_members(client, "ann")
        going = client.begin("GET", f"/agents/ann/runs/{member['run_id']}/events")
        client.advance(40)
        (team,) = client.get("/teams/desk/runs", query={"session_id": "s"}).json()[:1]
        client.post(f"/teams/desk/runs/{team['run_id']}/cancel")
        client.settle()
        events = going.response().events()

    assert [event.name for event in events] == ["RunStarted", "ModelRequestStarted"]


def test_stream_of_a_member_run_has_its_comments_while_others_speak() -> None:
    """A proxy that sees nothing for a minute closes a stream."""
    chatty = [Says(["word "] * 120, between_seconds=0.5)]
    slow = [Says("late", after_seconds=58.0)]
    leader = [[ask("ann"), ask("bob")], repeat]
    with Client(Desk(leader=leader, members={"ann": slow, "bob": chatty}).platform()) as client:
        client.begin("POST", "/teams/desk/runs", form={"message": "x", "session_id": "s"})
        client.advance(1)
        (member,) = of_members(client, "ann")
        answer = own(client, member)

    assert answer.body.count(b": heartbeat\n\n") == 3
    assert [event.name for event in answer.events()] == [*OF_ANN]


def test_stream_of_a_member_run_goes_on_behind_the_pause_of_the_team() -> None:
    desk = Desk(leader=[ask(), repeat], members={"ann": [BOOK, "Done."]})
    with Client(desk.platform()) as client:
        paused = start(client)
        (member,) = of_members(client, "ann")
        before = own(client, member).events()
        go_on(client, paused, confirmed=True)
        rest = own(client, member, headers={"last-event-id": before[-1].id}).events()

    assert [event.name for event in before][-1] == "RunPaused"
    assert [event.name for event in rest][:2] == ["RunContinued", "ToolCallCompleted"]
    assert rest[-1].name == "RunCompleted"


def test_stream_of_a_member_deep_in_a_team_has_its_events_alone() -> None:
    with Client(nested("coordinate", ["It rains."])) as client:
        journal = stream(client)
        (back,) = client.get("/teams/back/runs", query={"session_id": "s"}).json()
        (ann,) = of_members(client, "ann")
        events = {
            run["run_id"]: own(client, run, kind).events()
            for run, kind in (
                (back, "teams"),
                (ann, "agents"),
            )
        }

    for run_id, own_events in events.items():
        assert [e.data for e in own_events] == [
            e.data for e in journal if data(e)["run_id"] == run_id
        ]


def test_session_is_not_busy_with_a_paused_team_or_its_members() -> None:
    desk = Desk(leader=[ask(), "Other.", repeat], members={"ann": [BOOK, "Done."]})
    with Client(desk.platform()) as client:
        paused = start(client)
        other = start(client, "Something else")
        run = go_on(client, paused, confirmed=True)

    assert (other["content"], run["content"]) == ("Other.", "Heard: Done.")


def test_two_members_may_wait_at_once() -> None:
    members = {"ann": [BOOK, "Ann did."], "bob": [PAY, "Bob did."]}
    desk = Desk("collaborate", [repeat], members)
    with Client(desk.platform()) as client:
        paused = start(client)
        first, second = (needed["tool_execution"] for needed in paused["requirements"])
        tools = json.dumps([{**second, "result": "paid"}, {**first, "confirmed": True}])
        path = f"/teams/desk/runs/{paused['run_id']}/continue"
        run = client.post(path, form={"tools": tools, "stream": False}).json()

    assert run["content"] == "Heard: Ann did. | Bob did."
    assert desk.done == ["booked 7"]


def alike() -> Desk:
    """Return a team whose members ask for the same call under the same id."""
    return Desk(
        "collaborate",
        [repeat],
        {n: [ToolCall("x", "pay", '{"amount":1}'), repeat] for n in ("ann", "bob")},
    )


@pytest.mark.parametrize("order", [1, -1])
def test_calls_of_two_members_that_look_alike_get_their_own_answers(
    order: int,
) -> None:
    with Client(alike().platform()) as client:
        run = start(client)
        names = {
            needed["member_run_id"]: needed["member_agent_id"] for needed in run["requirements"]
        }
        shown = [entry for entry in run["tools"] if "member_run_id" in entry]
        assert [entry["member_run_id"] for entry in shown] == list(names)
        answers = [{**entry, "result": f"for {names[entry['member_run_id']]}"} for entry in shown]
        form = {"tools": json.dumps(answers[::order]), "stream": False}
        client.post(f"/teams/desk/runs/{run['run_id']}/continue", form=form).expect_success()

        contents = {row["agent_id"]: row["content"] for row in of_members(client, "ann", "bob")}
        assert contents == {"ann": "Heard: for ann", "bob": "Heard: for bob"}


def test_unnamed_answers_that_differ_to_calls_that_look_alike_are_refused() -> None:
    with Client(alike().platform()) as client:
        run = start(client)
        answers = [{"tool_call_id": "x", "result": name} for name in ("a", "b")]
        form = {"tools": json.dumps(answers), "stream": False}
        refused = client.post(f"/teams/desk/runs/{run['run_id']}/continue", form=form)

        assert refused.status == 422
        assert "name its member_run_id" in refused.json()["errors"][0]["message"]


def test_member_that_left_the_team_while_it_waited_is_told_to_the_leader() -> None:
    desk = Desk(leader=[ask(), repeat], members={"ann": [BOOK, repeat]})
    platforms = [desk.platform()]
    agents = platforms[0].config.agents
    leader = ScriptedModel([repeat])
    platforms.append(Platform(agents=agents, teams=[Team(id="desk", model=leader)]))
    with Client(lambda: platforms.pop(0)) as client:
        paused = start(client)
        client.restart()
        run = go_on(client, paused, confirmed=True)
        (member,) = of_members(client, "ann")

    assert run["content"] == "Heard: The run failed: the team no longer has this member"
    assert (member["status"], desk.done) == ("ERROR", [])


def test_task_for_a_member_that_left_the_team_before_it_began_is_told_to_the_leader() -> None:
    desk = Desk()
    team = build(desk.platform().config, {}).teams["desk"]
    arguments = {"member_id": "bob", "task": "x"}
    due = CallState(call=call(DELEGATE, **arguments), created_us=0, arguments=arguments)
    run = ClaimedRun("ada", "s", "r", "team", "desk", "{}", 0, 1)
    writer = EventWriter(Journal("main", run, "n", 0), EventOrigin(run, "Desk"), streamed=False)

    done = play(LeaderToolSet(team, Toolbox(), nobody).carry_out(due, writer, "1.1"), [])

    assert (done.result, done.failed) == (
        "The run failed: the team no longer has this member",
        True,
    )


def nobody(*_: Any) -> Taking:
    raise AssertionError


# --- A second time -------------------------------------------------------------------------------


def test_leader_asks_a_member_again_and_its_tools_as_they_say() -> None:
    team = build(Desk().platform().config, {}).teams["desk"]
    hands = LeaderToolSet(team, Toolbox((tool(pay), tool(again="safe")(hold))), nobody)
    named = {name: CallState(call=call(name), created_us=0) for name in (DELEGATE, "pay", "hold")}

    assert {name: hands.again(one) for name, one in named.items()} == {
        DELEGATE: "safe",
        "pay": "never",
        "hold": "safe",
    }


def test_keys_of_members_differ_and_outlast_a_pause_on_two_databases() -> None:
    keys: list[str] = []

    def charge(cents: int, idempotency_key: str) -> str:
        """Take money."""
        keys.append(idempotency_key)
        return f"{cents} paid"

    def one_team(database: str) -> tuple[list[Agent], Team]:
        tools: list[Tool] = [tool(again="key")(charge), tool(requires_confirmation=True)(hold)]
        first = [call("charge", cents=1), call("hold", room=7)]
        says: list[Any] = [first, call("charge", cents=2), "paid"]
        agents = [
            Agent(id=f"{name}-{database}", tools=tools, model=ScriptedModel(says))
            for name in ("ann", "bob")
        ]
        asked = [ask(agent.id) for agent in agents]
        leader = ScriptedModel([call("charge", cents=3), asked, repeat])
        members = [agent.id for agent in agents]
        more: dict[str, Any] = {"model": leader, "tools": tools, "database": database}
        return agents, Team(id=f"desk-{database}", members=members, **more)

    names = ("one", "two")
    made = [one_team(name) for name in names]
    databases = [Database(id=name, url=f"sqlite:///{name}.db") for name in names]
    agents = [agent for of_team, _ in made for agent in of_team]
    platform = Platform(databases=databases, agents=agents, teams=[team for _, team in made])
    with Client(platform) as client:
        for name in names:
            keys.clear()
            path = f"/teams/desk-{name}/runs"
            paused = client.post(path, form={"message": "x", "stream": False}).json()
            tools = [
                {**one["tool_execution"], "confirmed": False, "member_run_id": one["member_run_id"]}
                for one in paused["requirements"]
            ]
            form = {"tools": json.dumps(tools), "stream": False}
            run = client.post(f"{path}/{paused['run_id']}/continue", form=form).json()

            assert run["status"] == "COMPLETED"
            places = ["1.1", "2.1/1.1", "2.2/1.1", "2.1/2.1", "2.2/2.1"]
            assert sorted(keys) == sorted(f"{run['run_id']}:{place}" for place in places)


# --- The store -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [StartMember, AppendEvents])
def test_unit_that_is_run_a_second_time_changes_nothing(unit: type[Any]) -> None:
    with Client(Desk("coordinate", LEADERS["coordinate"]).platform()) as client:
        client.fail_at(unit, Unavailable("lost"), after=True)
        run = start(client)
        (member,) = of_members(client, "ann")

    assert (run["status"], member["status"]) == ("COMPLETED", "COMPLETED")


@pytest.mark.parametrize(("unit", "outcome"), [*product([StartMember, AppendEvents], [None, True])])
def test_a_team_goes_on_after_a_lease_that_is_lost_and_fails_at_a_wish_that_nobody_stored(
    unit: type[Any], outcome: Any
) -> None:
    with Client(Desk("coordinate", LEADERS["coordinate"]).platform) as client:
        client.fail_at(unit, outcome)
        client.post(
            "/teams/desk/runs", form={"message": "x", "session_id": "s", "background": True}
        )
        client.advance(3 * KEEPS_SECONDS)
        (run,) = client.get("/teams/desk/runs", query={"session_id": "s"}).json()
        members = of_members(client, "ann")

    unasked = unit is StartMember and outcome
    assert run["status"] == ("ERROR" if unasked else "COMPLETED")
    assert all(member["status"] in ("CANCELLED", "ERROR", "COMPLETED") for member in members)
    assert Sleep in {type(performed.effect) for performed in client.effects}


def test_database_that_fails_while_a_member_is_at_work_ends_the_team() -> None:
    with Client(Desk("coordinate", [ask(), repeat], {"ann": [BOOK, repeat]}).platform) as client:
        run = start(client)
        client.fail_at(AppendEvents, StatementFailed("no"), skip=2)
        over = go_on(client, run, confirmed=True)
        (member,) = of_members(client, "ann")

    assert (over["status"], member["status"]) == ("ERROR", "ERROR")


# --- Crashes and interleavings -------------------------------------------------------------------


def consistent(client: Client, *names: str) -> None:
    """A run of a member stands no further from its end than that of its team."""
    for run in client.get("/teams/desk/runs", query={"session_id": "s"}).json():
        assert run["status"] in ("PAUSED", "COMPLETED", "CANCELLED", "ERROR")
        family = {run["run_id"]}
        rows = client.get("/teams/back/runs", query={"session_id": "s"})
        teams: list[dict[str, Any]] = rows.json() if rows.status == 200 else []
        below = [*teams, *of_members(client, *names)]
        for member in below:
            if member["parent_run_id"] in family:
                family.add(member["run_id"])
                over = ("COMPLETED", "ERROR", "CANCELLED")
                assert member["status"] in (
                    ("PAUSED", *over) if run["status"] == "PAUSED" else over
                )


@pytest.mark.enumeration
@pytest.mark.parametrize("mode", MODES)
def test_crash_anywhere_leaves_no_member_behind_and_does_nothing_twice(
    mode: Mode, figures: Callable[[str], None]
) -> None:
    desk = Desk(mode, LEADERS[mode], {"ann": [BOOK, repeat], "bob": ["I am Bob."]})

    def make() -> Client:
        desk.done.clear()
        return Client(desk.platform)

    def act(client: Client) -> None:
        go_on(client, start(client), confirmed=True)

    def check(client: Client) -> None:
        client.advance(2 * KEEPS_SECONDS)
        consistent(client, "ann", "bob")
        assert len(desk.done) <= 1

    tried = crash_everywhere(make, act, check)
    figures(f"teams: {mode}, paused and continued: a crash at each of {tried.points} effects")


@pytest.mark.enumeration
def test_crash_anywhere_in_a_team_of_teams_leaves_nothing_behind() -> None:
    held: list[int] = []

    @tool(requires_confirmation=True)
    def reserve(room: int) -> str:
        held.append(room)
        return "held"

    def make() -> Client:
        held.clear()
        return Client(lambda: nested("coordinate", [call("reserve", room=7), repeat], reserve))

    def check(client: Client) -> None:
        client.advance(2 * KEEPS_SECONDS)
        consistent(client, "ann")
        assert len(held) <= 1

    crash_everywhere(make, lambda client: go_on(client, start(client), confirmed=True), check)


@pytest.mark.parametrize(("mode", "order"), [*product(MODES, range(6))])
def test_cancelling_at_any_time_and_in_any_order_ends_everybody(mode: Mode, order: int) -> None:
    says: dict[str, list[Any]] = {
        "ann": [Says("one", after_seconds=0.2)],
        "bob": [call("x"), Says("two", after_seconds=0.3)],
        "eve": [Says("three", after_seconds=0.1)],
    }
    leaders = {**LEADERS, "coordinate": [[ask("ann"), ask("bob"), ask("eve")], repeat]}
    for tenths in range(6):
        with Client(Desk(mode, leaders[mode], says).platform(), order=order) as client:
            form = {"message": "x", "session_id": "s"}
            going = client.begin("POST", "/teams/desk/runs", form=form)
            client.advance(tenths / 10)
            (run,) = client.get("/teams/desk/runs", query={"session_id": "s"}).json()
            client.post(f"/teams/desk/runs/{run['run_id']}/cancel").expect_success()
            events = going.response().events()
            (over,) = client.get("/teams/desk/runs", query={"session_id": "s"}).json()
            consistent(client, *says)

        ends = {"COMPLETED": "TeamRunCompleted", "CANCELLED": "TeamRunCancelled"}
        assert events[-1].name == ends[over["status"]]
        assert [int(e.id.rpartition(":")[2]) for e in events if e.id] == [
            *range(1, len(events) + 1)
        ]
