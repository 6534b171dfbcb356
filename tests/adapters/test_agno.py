"""Agents and teams of agno, hosted as they are: agno runs them, against a model on loopback."""

from __future__ import annotations

import gc
import json
import warnings
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from legation import Agent, Platform
from legation_testing import Client, crash_everywhere

from ..frontends.cluster_kit import NIGHTLY
from ..frontends.hosted import hosted
from ..providers.model_server import KEY, Cut, Hangs, Item, Refusal, Said, serving
from ..two_databases import IN_MEMORY, in_folder
from .agno_model import AgnoModel, Messages, call

agno: Any = pytest.importorskip("agno.agent", reason="nox -s adapters installs it")
sessions: Any = pytest.importorskip("agno.db.base")
databases: Any = pytest.importorskip("agno.db.in_memory")
openai: Any = pytest.importorskip("agno.models.openai")
teams: Any = pytest.importorskip("agno.team")
tools: Any = pytest.importorskip("agno.tools")
exceptions: Any = pytest.importorskip("agno.exceptions")
adapter: Any = pytest.importorskip("legation_adapters.agno")

# agno leaves its connections to the collector.
OPTIONS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.filterwarnings(option) for option in OPTIONS]

PICTURE: Final = b"\x89PNG\r\n\x1a\n" + bytes(20)

made: Counter[str] = Counter()
"""The calls of tools, by name."""


@pytest.fixture(autouse=True)
def nothing_is_made() -> None:
    made.clear()


@pytest.fixture(autouse=True, scope="module")
def collected() -> Generator[None]:
    """Collect what agno left open, before the end of the session does."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def model() -> Generator[AgnoModel]:
    """The provider, which has to be asked as the API allows."""
    server = AgnoModel()
    with serving(server):
        yield server
    assert server.broken == []


def look(city: str) -> str:
    """Look at the weather."""
    made["look"] += 1
    return f"sunny in {city}"


def take_room(room: int) -> str:
    """Book a room."""
    made["book"] += 1
    return f"room {room} is booked"


book: Final[Any] = tools.tool(name="book", requires_confirmation=True)(take_room)


def remember(run_context: Any, name: str) -> str:
    """Remember a name."""
    run_context.session_state["name"] = name
    return "noted"


def fail(reason: str) -> str:
    """Fail."""
    made["fail"] += 1
    raise ValueError(reason)


def stop(reason: str) -> str:
    """Stop the agent."""
    raise exceptions.StopAgentRun(reason, agent_message="I stop here")


async def count_up(to: int) -> Any:
    """Count."""
    for number in range(to):
        yield f"{number} "


TOOLS: Final = [look, book, remember, fail, stop, count_up]


def asks(server: AgnoModel) -> Any:
    """Return a model of agno that asks `server`."""
    return openai.OpenAIChat(id="gpt-5-mini", base_url=f"{server.address}/v1", api_key=KEY)


def clerk(server: AgnoModel, **settings: Any) -> Any:
    settings = {"name": "Clerk", "tools": TOOLS, "add_history_to_context": True, **settings}
    return agno.Agent(model=asks(server), **settings)


def client(*agents: Any, **settings: Any) -> Client:
    """Return a client of a platform that hosts `agents`; it is made anew after a crash."""

    def make() -> Platform:
        return Platform(
            agents=[one if isinstance(one, Agent) else adapter.hosted(one) for one in agents],
            databases=IN_MEMORY,
        )

    return Client(make, **settings)


def calls(*wanted: tuple[str, str, str]) -> Callable[[Messages], Item]:
    """Return what calls `wanted` first, and then says what came of the last."""

    def answer(messages: Messages) -> Item:
        last = messages[-1]
        if last["role"] == "user":
            return Said(("One ", "moment. "), wanted)
        return Said(("It is: ", str(last["content"])))

    return answer


def test_run_calls_a_tool_and_has_its_usage(model: AgnoModel) -> None:
    model.answer = calls(call("c1", "look", city="Oslo"))

    with client(clerk(model)) as asked:
        run = asked.run("clerk", "How is the weather?")

    assert (run.status, run.content) == ("COMPLETED", "One moment. It is: sunny in Oslo")
    assert [(one["tool_name"], one["result"]) for one in run["tools"]] == [
        ("look", "sunny in Oslo")
    ]
    assert run["metrics"]["input_tokens"] == 14
    assert run["metrics"]["output_tokens"] == 6


def test_stream_has_the_events_of_its_steps(model: AgnoModel) -> None:
    model.answer = calls(call("c1", "look", city="Oslo"))

    with client(clerk(model)) as asked:
        events = [event.json() for event in asked.stream("clerk", "How is the weather?")]

    text = "".join(event["content"] for event in events if event["event"] == "RunContent")
    assert text == "One moment. It is: sunny in Oslo"
    assert [event["event"] for event in events if event["event"] != "RunContent"] == [
        "RunStarted",
        "ModelRequestStarted",
        "ModelRequestCompleted",
        "ToolCallStarted",
        "ToolCallCompleted",
        "ModelRequestStarted",
        "ModelRequestCompleted",
        "RunContentCompleted",
        "RunCompleted",
    ]


@pytest.mark.parametrize(
    ("confirmed", "ends"), [(True, "room 3 is booked"), (False, "we are closed")]
)
def test_run_pauses_for_a_person_and_goes_on(
    model: AgnoModel, ends: str, *, confirmed: bool
) -> None:
    model.answer = calls(call("c1", "look", city="Oslo"), call("c2", "book", room=3))
    asked_before = len(model.seen)

    with client(clerk(model)) as asked:
        paused = asked.run("clerk", "A room in Oslo")
        assert (paused.status, made) == ("PAUSED", {"look": 1})
        run = asked.go_on(paused, confirmed=confirmed, confirmation_note="we are closed")

    assert (run.status, run.content) == ("COMPLETED", f"One moment. It is: {ends}")
    assert made == ({"look": 1, "book": 1} if confirmed else {"look": 1})
    assert len(model.seen) - asked_before == 2


def test_client_executes_a_tool_and_brings_its_result(model: AgnoModel) -> None:
    def pay(amount: int) -> str:
        """Pay."""
        made["pay"] += 1
        return ""

    model.answer = calls(call("c1", "look", city="Oslo"), call("c2", "pay", amount=3))

    with client(clerk(model, tools=[look, tools.tool(external_execution=True)(pay)])) as asked:
        paused = asked.run("clerk", "Pay")
        (needed,) = paused["requirements"]
        assert needed["tool_execution"]["external_execution_required"] is True
        run = asked.go_on(paused, result="paid in cash")

    assert (run.status, run.content) == ("COMPLETED", "One moment. It is: paid in cash")
    assert made == {"look": 1}


def test_history_of_the_session_is_told_as_far_as_the_agent_wants_it(model: AgnoModel) -> None:
    model.answer = lambda _: Said(("Yes",))

    with client(clerk(model, num_history_runs=2), clerk(model, id="new", name="New")) as asked:
        for number in range(4):
            asked.run("clerk", f"message {number}", session_id="s1")
        last = model.seen[-1].body["messages"]
        asked.run("clerk", "another", session_id="s2")

    assert [one["content"] for one in last] == [
        *("message 1", "Yes", "message 2", "Yes"),
        "message 3",
    ]
    assert [one["content"] for one in model.seen[-1].body["messages"]] == ["another"]


def test_agent_without_history_has_none(model: AgnoModel) -> None:
    model.answer = lambda _: Said(("Yes",))

    with client(clerk(model, add_history_to_context=False)) as asked:
        asked.run("clerk", "one", session_id="s1")
        asked.run("clerk", "two", session_id="s1")

    assert [one["content"] for one in model.seen[-1].body["messages"]] == ["two"]


def test_callers_and_databases_share_nothing(model: AgnoModel) -> None:
    model.answer = calls(call("c1", "remember", name="Ann"))
    second = adapter.hosted(clerk(model), id="second", database="second")

    with client(clerk(model), second) as asked:
        first = asked.run("clerk", "I am Ann", session_id="s1", user_id="ann")
        model.answer = lambda messages: Said((f"{len(messages)} messages",))
        other = asked.run("clerk", "Who am I?", session_id="s2", user_id="bob")
        again = asked.run("clerk", "Who am I?", session_id="s1", user_id="ann")
        there = asked.run("second", "Who am I?", session_id="s1", user_id="ann")

    assert first["session_state"] == again["session_state"] == {"name": "Ann"}
    assert other["session_state"] == there["session_state"] == {}
    assert [run.content for run in (other, again, there)] == [
        "1 messages",
        "3 messages",
        "1 messages",
    ]


def test_state_that_a_tool_changed_outlives_a_pause(model: AgnoModel) -> None:
    model.answer = calls(call("c1", "remember", name="Ann"), call("c2", "book", room=3))

    with client(clerk(model, session_state={"visits": 1})) as asked:
        run = asked.go_on(asked.run("clerk", "I am Ann, a room"), confirmed=True)

    assert run["session_state"] == {"visits": 1, "name": "Ann"}


def test_memories_are_in_the_database_of_the_agent(model: AgnoModel) -> None:
    def answer(messages: Messages) -> Item:
        if "Memory Manager" not in str(messages[0]["content"]):
            return Said(("known" if "It is Ann" in str(messages[0]["content"]) else "new",))
        if messages[-1]["role"] == "user" and "I am" in str(messages[-1]["content"]):
            return Said((), (call("m1", "add_memory", memory="It is Ann"),))
        return Said(("stored",))

    model.answer = answer
    kept = databases.InMemoryDb()

    with client(clerk(model, db=kept, update_memory_on_run=True)) as asked:
        first = asked.run("clerk", "I am Ann", session_id="s1", user_id="ann")
        later = asked.run("clerk", "Who am I?", session_id="s2", user_id="ann")
        other = asked.run("clerk", "Who am I?", session_id="s3", user_id="bob")

    assert [run.content for run in (first, later, other)] == ["new", "known", "new"]
    assert [one["tool_name"] for one in first["tools"]] == ["add_memory"]
    assert len(kept.get_user_memories(user_id="ann")) == 1
    assert kept.get_sessions(session_type=sessions.SessionType.AGENT) == []


def test_tool_that_fails_is_an_error_for_the_model(model: AgnoModel) -> None:
    model.answer = calls(call("c1", "fail", reason="no such room"))

    with client(clerk(model)) as asked:
        run = asked.run("clerk", "Fail")

    assert (run.status, run.content) == ("COMPLETED", "One moment. It is: no such room")
    assert [one["tool_call_error"] for one in run["tools"]] == [True]


def test_tool_that_stops_the_agent_stops_it(model: AgnoModel) -> None:
    model.answer = calls(call("c1", "stop", reason="enough"))
    asked_before = len(model.seen)

    with client(clerk(model)) as asked:
        run = asked.run("clerk", "Stop")

    assert run.status == "COMPLETED"
    assert len(model.seen) - asked_before == 1


def test_generator_is_a_tool(model: AgnoModel) -> None:
    model.answer = calls(call("c1", "count_up", to=3))

    with client(clerk(model)) as asked:
        run = asked.run("clerk", "Count")

    assert run.content == "One moment. It is: 0 1 2 "


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (Refusal(401), "The model's provider rejected the request"),
        (Refusal(429), "The model's provider has had too many requests; try again later"),
        (Cut(), "The model cannot be reached at the moment"),
    ],
    ids=["key", "limit", "cut"],
)
def test_model_that_fails_ends_the_run_with_a_sentence(
    model: AgnoModel, item: Item, sentence: str
) -> None:
    model.answer = lambda _: item
    asking = asks(model)
    asking.max_retries = 0
    agent = agno.Agent(name="Clerk", model=asking)

    with client(agent) as asked:
        run = asked.run("clerk", "Hello")

    assert (run.status, run.content) == ("ERROR", sentence)
    assert KEY not in str(dict(run))


def test_answer_of_a_schema_is_a_value(model: AgnoModel) -> None:
    base: Any = pytest.importorskip("pydantic")
    weather = base.create_model("Weather", city=(str, ...), degrees=(int, ...))
    model.answer = lambda _: Said(('{"city": "Oslo", "degrees": 3}',))

    with client(clerk(model, output_schema=weather, tools=[])) as asked:
        run = asked.run("clerk", "Weather?")

    assert run.content == {"city": "Oslo", "degrees": 3}


@pytest.mark.parametrize("text", ["x" * 500_000, "\x00\ud800\u202e{}[]", "{session_state}"])
def test_huge_and_hostile_messages_come_through(model: AgnoModel, text: str) -> None:
    model.answer = lambda messages: Said((str(len(messages[-1]["content"])),))
    text = text.encode("utf-8", "replace").decode().replace("\x00", "")

    with client(clerk(model)) as asked:
        run = asked.run("clerk", text)

    assert (run.status, run.content) == ("COMPLETED", str(len(text)))


def test_pictures_reach_the_model(model: AgnoModel) -> None:
    model.answer = lambda messages: Said((messages[-1]["content"][1]["type"],))

    with client(clerk(model)) as asked:
        picture = {"content": b64encode(PICTURE).decode(), "mime_type": "image/png"}
        run = asked.run("clerk", "What is this?", images=[picture])

    assert (run.status, run.content) == ("COMPLETED", "image_url")


def test_cancelled_run_breaks_its_model_off(model: AgnoModel, tmp_path: Path) -> None:
    model.answer = calls(call("c1", "look", city="Oslo"))
    answer = model.answer
    model.answer = lambda messages: Hangs() if messages[-1]["role"] == "tool" else answer(messages)
    platform = Platform(agents=[adapter.hosted(clerk(model))], databases=in_folder(tmp_path))

    with hosted(platform) as address:
        runs = f"{address}/agents/clerk/runs"
        lines = urlopen(runs, urlencode({"message": "Weather?"}).encode(), timeout=20)
        events = (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))
        seen = [next(events)]
        while seen[-1]["event"] != "ToolCallCompleted":
            seen.append(next(events))
        urlopen(f"{runs}/{seen[0]['run_id']}/cancel", b"", timeout=20).close()
        seen += events
        model.answer = lambda _: Said(("Here",))
        again = urlopen(runs, urlencode({"message": "?", "stream": "false"}).encode(), timeout=20)
        content = json.load(again)["content"]

    assert seen[-1]["event"] == "RunCancelled"
    assert (content, made) == ("Here", {"look": 1})


# Teams


def desk(server: AgnoModel, **settings: Any) -> Any:
    members = [
        agno.Agent(name="Ann", tools=[look, book], role="Ann"),
        agno.Agent(name="Bob", tools=[look], role="Bob", model=asks(server)),
    ]
    return teams.Team(name="Desk", model=asks(server), members=members, **settings)


def of_team(*delegated: tuple[str, str, str], tool: tuple[str, str, str]) -> Any:
    """Return the answers of a leader who delegates, and of members who call `tool`."""

    def answer(messages: Messages) -> Item:
        leads = "<your_role>" not in str(messages[0]["content"])
        last = messages[-1]
        if last["role"] == "user":
            return Said((), delegated if leads else (tool,))
        return Said((("Team: " if leads else "Member: "), str(last["content"])))

    return answer


DELEGATED: Final = call("d1", "delegate_task_to_member", member_id="ann", task="look")


def test_team_delegates_and_its_members_call_tools(model: AgnoModel) -> None:
    model.answer = of_team(DELEGATED, tool=call("c1", "look", city="Oslo"))

    with client(desk(model)) as asked:
        run = asked.run("desk", "Weather?")

    assert (run.status, run.content) == ("COMPLETED", "Team: Member: sunny in Oslo")
    assert {one["tool_call_id"]: one["tool_name"] for one in run["tools"]} == {
        "d1": "delegate_task_to_member",
        "d1.ann.c1": "look",
    }
    assert run["metrics"]["input_tokens"] == 28


def test_team_that_routes_streams_its_member(model: AgnoModel) -> None:
    model.answer = of_team(DELEGATED, tool=call("c1", "look", city="Oslo"))

    with client(desk(model, mode="route")) as asked:
        events = [event.json() for event in asked.stream("desk", "Weather?")]

    text = "".join(event["content"] for event in events if event["event"] == "RunContent")
    assert text == "Member: sunny in Oslo"


def test_members_work_side_by_side(model: AgnoModel) -> None:
    everybody = call("d1", "delegate_task_to_members", task="look")
    model.answer = of_team(everybody, tool=call("c1", "look", city="Oslo"))

    with client(desk(model, mode="broadcast")) as asked:
        run = asked.run("desk", "Weather?")

    assert run.status == "COMPLETED"
    assert sorted(one["tool_call_id"] for one in run["tools"]) == [
        "d1",
        "d1.ann.c1",
        "d1.bob.c1",
    ]
    assert made == {"look": 2}


def test_tool_of_a_member_waits_for_a_person(model: AgnoModel) -> None:
    model.answer = of_team(DELEGATED, tool=call("c1", "book", room=3))

    with client(desk(model)) as asked:
        paused = asked.run("desk", "A room")
        assert (paused.status, made) == ("PAUSED", {})
        (needed,) = paused["requirements"]
        assert needed["tool_execution"]["tool_call_id"] == "d1.ann.c1"
        run = asked.go_on(paused, confirmed=True)

    assert (run.status, run.content) == ("COMPLETED", "Team: Member: room 3 is booked")
    assert made == {"book": 1}


# Crashes

BY_HAND: Final = "done by hand"
EVERY: Final = 29
FINAL: Final = ("COMPLETED", "ERROR", "CANCELLED")


def finish(asked: Client, agent_id: str) -> Mapping[str, Any]:
    """Take the run of the session `s` to its end; people agree, and know what is in doubt."""
    path = f"/agents/{agent_id}/runs"
    for _ in range(300):
        found = asked.get(f"{path}?session_id=s")
        runs: list[Any] = found.json() if found.status == 200 else []
        if not runs:
            asked.run(agent_id, "go", session_id="s")
        elif runs[0]["status"] == "PAUSED":
            run = asked.get(f"{path}/{runs[0]['run_id']}?session_id=s").json()
            waits = [needed["tool_execution"] for needed in run["requirements"]]
            told = [
                {**one, "result": BY_HAND} if one.get("in_doubt") else {**one, "confirmed": True}
                for one in waits
            ]
            form = {"tools": told, "stream": False}
            asked.post(f"{path}/{run['run_id']}/continue", form=form)
        elif runs[0]["status"] in FINAL:
            return dict(asked.get(f"{path}/{runs[0]['run_id']}?session_id=s").json())
        else:
            asked.advance(1)
    raise AssertionError("the run has no end")


@pytest.mark.parametrize("kind", ["agent", "route", "coordinate", "broadcast"])
def test_no_tool_is_called_twice_wherever_it_crashes(
    model: AgnoModel, kind: str, figures: Callable[[str], None]
) -> None:
    if kind == "agent":
        hosts = clerk(model)
        model.answer = calls(call("c1", "look", city="Oslo"), call("c2", "book", room=3))
        most = {"look": 1, "book": 1}
    elif kind == "broadcast":
        hosts = desk(model, mode=kind)
        everybody = call("d1", "delegate_task_to_members", task="look")
        model.answer = of_team(everybody, tool=call("c1", "look", city="Oslo"))
        most = {"look": 2}
    else:
        hosts = desk(model, mode=kind)
        model.answer = of_team(DELEGATED, tool=call("c1", "book", room=3))
        most = {"book": 1}
    agent_id = hosts.name.lower()

    def make() -> Client:
        made.clear()
        return client(hosts)

    def act(asked: Client) -> None:
        finish(asked, agent_id)

    def check(asked: Client) -> None:
        run = finish(asked, agent_id)
        assert run["status"] == "COMPLETED", run
        assert all(made[name] <= times for name, times in most.items()), made
        lost = sum(one["result"] == BY_HAND for one in run["tools"])
        assert made.total() + lost >= sum(most.values())

    tried = crash_everywhere(make, act, check, every=1 if NIGHTLY else EVERY)

    figures(f"agno, {kind}: killed at {tried.points} effects, no tool called twice")


# Faults


def test_what_cannot_be_hosted_is_refused(model: AgnoModel) -> None:
    def pay(amount: int) -> str:
        """Pay."""
        return ""

    remote: Any = pytest.importorskip("agno.agent.remote").RemoteAgent
    away = remote(base_url="http://127.0.0.1:1", agent_id="away")
    refused: list[tuple[Any, str]] = [
        (agno.Agent(model=asks(model)), "agent: needs an id or a name"),
        (away, "agent: must be an Agent or a Team of agno, not RemoteAgent"),
        (
            clerk(model, tools=[tools.tool(requires_user_input=True)(pay)]),
            "agent.tools: pay waits for input of the user",
        ),
        (desk(model, mode="tasks"), "agent.mode: a team in the mode `tasks` cannot be hosted"),
        (
            teams.Team(name="T", members=list, model=asks(model)),
            "agent.members: must be a list",
        ),
        (
            teams.Team(name="T", members=[away], model=asks(model)),
            "agent.members[0]: must be an Agent or a Team of agno, not RemoteAgent",
        ),
    ]

    for hosts, sentence in refused:
        with pytest.raises((TypeError, ValueError)) as error:
            adapter.hosted(hosts)
        assert str(error.value).startswith(sentence)


def test_hosting_leaves_the_agent_as_it_is(model: AgnoModel) -> None:
    agent = clerk(model)
    before: dict[str, Any] = {**agent.__dict__}
    kind: Any = agent.model.__class__

    made_of_it = adapter.hosted(agent, id="other", description="Books")

    assert (made_of_it.id, made_of_it.name) == ("other", "Clerk")
    assert made_of_it.description == "Books"
    assert agent.__dict__ == before
    assert isinstance(agent.model, kind)
