"""The Python client of AgentOS 2.5.6, as it is, against this server.

It runs in an environment of its own, which `nox -s agentos-client` makes: where the client is not
installed there is nothing to test.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from legation.migrations.catalogue import CATALOGUE

pytest.importorskip("agno", reason="the client of AgentOS is installed by nox -s agentos-client")
client_module = pytest.importorskip("agno.client")
db_module = pytest.importorskip("agno.db.base")
media_module = pytest.importorskip("agno.media")

Client = client_module.AgentOSClient
SessionType = db_module.SessionType
Image = media_module.Image

# The client leaves its connections to the collector.
OPTIONS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.filterwarnings(option) for option in OPTIONS]

Call: TypeAlias = Callable[[Callable[[Any], Awaitable[Any]]], Any]

PLATFORM: Final = """
[platform]
id = "demo"
name = "Demo"

[databases.main]
url = "sqlite:///{folder}/main.db"

[databases.second]
url = "sqlite:///{folder}/second.db"

[models.slow]
provider = "echo"
delay_seconds = 60.0

[[agents]]
id = "concierge"
name = "Concierge"
description = "Answers"
instructions = "Be brief."

[[agents]]
id = "sloth"
model = "slow"

[[teams]]
id = "desk"
name = "Desk"
members = ["concierge"]

[[teams]]
id = "slow-desk"
model = "slow"
members = ["concierge"]
"""


WORKING: Final = '''
import json

from legation import Agent, Database, Platform, Team, tool
from legation.models.conversation import Reply, ToolCall

class Obedient:
    """Calls the tool that is named first, with the rest; and tells what came of it."""

    id, name, provider = "obedient", "Obedient", "Test"

    def respond(self, prompt, listener):
        told = prompt.messages[-1]
        named, _, rest = told.content.partition(" ")
        if told.role == "user" and named in [spec.name for spec in prompt.tools]:
            return Reply("", calls=(ToolCall(named, named, rest),))
        listener.hear(told.content)
        yield from listener.settle()
        return Reply(told.content)

done = []

@tool(requires_confirmation=True)
def book(room: int) -> str:
    """Book a room."""
    done.append(room)
    return f"room {{room}} is booked, {{len(done)}} in all"

@tool(external_execution=True)
def pay(amount: int) -> str:
    """Pay."""

platform = Platform(
    databases=[
        Database("main", "sqlite:///{folder}/main.db"),
        Database("second", "sqlite:///{folder}/second.db"),
    ],
    agents=[
        Agent(id="clerk", name="Clerk", model=Obedient(), tools=[book, pay]),
        Agent(id="parrot", name="Parrot"),
    ],
    teams=[Team(id="desk", name="Desk", model=Obedient(), members=["clerk", "parrot"])],
)
'''


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a server that is running."""
    folder = tmp_path_factory.mktemp("platform")
    (folder / "platform.toml").write_text(PLATFORM.format(folder=folder))
    yield from served(folder, "platform.toml")


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a server whose agents have tools, and whose team delegates."""
    folder = tmp_path_factory.mktemp("working")
    (folder / "working.py").write_text(WORKING.format(folder=folder))
    yield from served(folder, "working:platform")


def served(folder: Path, what: str) -> Generator[str]:
    command = [sys.executable, "-m", "legation_cli", "serve", what, "--port", "0"]
    said = folder / "said"
    with (
        said.open("w") as out,
        subprocess.Popen(command, stdout=out, stderr=out, cwd=folder) as server,
    ):
        try:
            yield _address(said)
        finally:
            server.terminate()


def _address(said: Path) -> str:
    """Return the URL that a server tells when it listens."""
    for _ in range(200):
        if told := re.search(r"http://\S+", said.read_text()):
            return told[0]
        time.sleep(0.1)
    raise AssertionError(said.read_text())


@pytest.fixture(scope="module")
def call(address: str) -> Generator[Call]:
    """Runs a coroutine function on a client; all in one loop, for the client keeps connections."""
    yield from calling(address)


@pytest.fixture(scope="module")
def work(working: str) -> Generator[Call]:
    """The same, where agents have tools."""
    yield from calling(working)


def calling(address: str) -> Generator[Call]:
    with asyncio.Runner() as runner:

        def run(act: Callable[[Any], Awaitable[Any]]) -> Any:
            async def main() -> Any:
                return await act(Client(address, timeout=20))

            return runner.run(main())

        yield run


def test_config(call: Call) -> None:
    config = call(lambda client: client.aget_config())

    assert config.os_id == "demo"
    assert [agent.id for agent in config.agents] == ["concierge", "sloth"]
    assert [(team.id, team.mode) for team in config.teams] == [
        ("desk", "coordinate"),
        ("slow-desk", "coordinate"),
    ]
    assert config.databases == ["main", "second"]


def test_models(call: Call) -> None:
    models = call(lambda client: client.get_models())

    assert {(model.id, model.provider) for model in models} == {
        ("echo", "Legation"),
        ("slow", "Legation"),
    }


def test_agents_and_teams(call: Call) -> None:
    async def act(client: Any) -> Any:
        return (
            await client.list_agents(),
            await client.aget_agent("concierge"),
            await client.list_teams(),
            await client.aget_team("desk"),
        )

    agents, agent, teams, team = call(act)

    assert [item.id for item in agents] == ["concierge", "sloth"]
    assert (agent.name, agent.model.provider, agent.db_id) == ("Concierge", "Legation", "main")
    assert [item.id for item in teams] == ["desk", "slow-desk"]
    assert [member.id for member in team.members] == ["concierge"]


def test_run_of_an_agent(call: Call) -> None:
    async def act(client: Any) -> Any:
        return await client.run_agent(
            "concierge",
            "hello there",
            session_id="run",
            session_state={"a": 1},
            dependencies={"b": 2},
            metadata={"c": 3},
            images=[Image(url="https://example.org/cat.png")],
        )

    run = call(act)

    assert run.content == "hello there"
    assert run.session_id == "run"
    assert run.status in ("COMPLETED", run.status.__class__("COMPLETED"))
    assert run.metrics.total_tokens == 6
    assert run.session_state == {"a": 1}
    assert [message.role for message in run.messages] == ["user", "assistant"]


def test_media_by_their_urls_reach_agents(call: Call) -> None:
    async def act(client: Any) -> Any:
        return await client.run_agent(
            "concierge",
            "hello",
            audio=[media_module.Audio(url="https://example.org/a.wav")],
            videos=[media_module.Video(url="https://example.org/a.mp4")],
            files=[media_module.File(url="https://example.org/a.pdf")],
        )

    run = call(act)

    assert status(run) == "COMPLETED"
    assert [file.url for file in run.input.files] == ["https://example.org/a.pdf"]


@pytest.mark.parametrize(("kind", "hosted"), [("agent", "concierge"), ("team", "desk")])
def test_run_with_everything_that_the_client_passes_on(call: Call, kind: str, hosted: str) -> None:
    async def act(client: Any) -> Any:
        run = await getattr(client, f"run_{kind}")(
            hosted,
            "hello",
            session_id=f"whole-{kind}",
            user_id="u1",
            session_state={"a": 1},
            dependencies={"b": 2},
            metadata={"c": 3},
        )
        kept = await client.get_session(
            f"whole-{kind}", session_type=SessionType(kind), user_id="u1", db_id="main"
        )
        return run, kept

    run, kept = call(act)

    assert (run.user_id, run.session_state, run.metadata) == ("u1", {"a": 1}, {"c": 3})
    assert (kept.user_id, kept.session_state) == ("u1", {"a": 1})


def test_stream_of_an_agent(call: Call) -> None:
    async def act(client: Any) -> Any:
        return [event async for event in client.run_agent_stream("concierge", "hello there")]

    events = call(act)

    assert [event.event for event in events] == [
        "RunStarted",
        "ModelRequestStarted",
        "RunContent",
        "RunContent",
        "ModelRequestCompleted",
        "RunContentCompleted",
        "RunCompleted",
    ]
    assert events[-1].content == "hello there"


def test_run_and_stream_of_a_team(call: Call) -> None:
    async def act(client: Any) -> Any:
        run = await client.run_team("desk", "hello", session_id="team")
        return run, [event async for event in client.run_team_stream("desk", "hello")]

    run, events = call(act)

    assert (run.content, run.team_id) == ("hello", "desk")
    assert [event.event for event in events] == [
        "TeamRunStarted",
        "TeamModelRequestStarted",
        "TeamRunContent",
        "TeamModelRequestCompleted",
        "TeamRunContentCompleted",
        "TeamRunCompleted",
    ]


@pytest.mark.parametrize(("kind", "hosted"), [("agent", "sloth"), ("team", "slow-desk")])
def test_cancelling_breaks_off_a_call_of_a_model(call: Call, kind: str, hosted: str) -> None:
    async def act(client: Any) -> Any:
        events: list[Any] = []
        async for event in getattr(client, f"run_{kind}_stream")(hosted, "hello"):
            if not events:
                await getattr(client, f"cancel_{kind}_run")(hosted, event.run_id)
            events.append(event)
        return events

    begun = datetime.now(UTC)
    events = call(act)

    assert events[-1].event == ("RunCancelled" if kind == "agent" else "TeamRunCancelled")
    assert events[-1].reason == f"Run {events[0].run_id} was cancelled"
    assert (datetime.now(UTC) - begun).total_seconds() < 20


# --- tools, people and teams ---------------------------------------------------------------------

BOOK: Final = 'book {"room": 7}'
PAY: Final = 'pay {"amount": 3}'


def status(run: Any) -> str:
    return str(getattr(run.status, "value", run.status))


def test_confirmation_is_given_and_the_run_goes_on(work: Call) -> None:
    async def act(client: Any) -> Any:
        paused = await client.run_agent("clerk", BOOK, session_id="confirm")
        (needed,) = paused.requirements
        needed.confirm()
        return paused, await client.continue_agent_run(
            "clerk", paused.run_id, [needed.tool_execution], session_id="confirm"
        )

    paused, run = work(act)

    assert status(paused) == "PAUSED"
    assert paused.content == "I have tools to execute, but I need confirmation."
    assert paused.requirements[0].tool_execution.tool_args == {"room": 7}
    assert (status(run), run.run_id) == ("COMPLETED", paused.run_id)
    assert run.content.startswith("room 7 is booked")
    assert run.tools[0].confirmed is True


def test_confirmation_is_refused_with_a_note(work: Call) -> None:
    async def act(client: Any) -> Any:
        paused = await client.run_agent("clerk", BOOK, session_id="refuse")
        (needed,) = paused.requirements
        needed.reject("too dear")
        return await client.continue_agent_run("clerk", paused.run_id, [needed.tool_execution])

    run = work(act)

    assert status(run) == "COMPLETED"
    assert run.content.startswith("Function call was rejected by the user")


def test_confirmation_in_streams(work: Call) -> None:
    async def act(client: Any) -> Any:
        before = [event async for event in client.run_agent_stream("clerk", BOOK)]
        paused = before[-1]
        (tool,) = paused.tools
        tool.confirmed = True
        going = client.continue_agent_run_stream("clerk", paused.run_id, [tool])
        return before, [event async for event in going]

    before, after = work(act)

    assert [event.event for event in before] == [
        "RunStarted",
        "ModelRequestStarted",
        "ModelRequestCompleted",
        "ToolCallStarted",
        "RunContentCompleted",
        "RunPaused",
    ]
    assert [event.event for event in after] == [
        "RunContinued",
        "ToolCallCompleted",
        "ModelRequestStarted",
        "RunContent",
        "ModelRequestCompleted",
        "RunContentCompleted",
        "RunCompleted",
    ]
    assert after[-1].content.startswith("room 7 is booked")


@pytest.mark.parametrize("stream", [False, True])
def test_client_executes_and_brings_the_result(work: Call, *, stream: bool) -> None:
    async def act(client: Any) -> Any:
        paused = await client.run_agent("clerk", PAY)
        assert paused.content == "I have tools to execute, but it needs external execution."
        (needed,) = paused.requirements
        needed.set_external_execution_result("paid in cash")
        tools = [needed.tool_execution]
        if not stream:
            return await client.continue_agent_run("clerk", paused.run_id, tools)
        going = client.continue_agent_run_stream("clerk", paused.run_id, tools)
        return [event async for event in going][-1]

    assert work(act).content == "paid in cash"


def test_run_that_does_not_wait_is_not_continued(work: Call) -> None:
    async def act(client: Any) -> None:
        run = await client.run_agent("parrot", "hello")
        await client.continue_agent_run("parrot", run.run_id, [])

    with pytest.raises(Exception, match="409"):
        work(act)


DELEGATED: Final = 'delegate_task_to_member {"member_id": "parrot", "task": "say hello"}'


def test_team_delegates(work: Call) -> None:
    run = work(lambda client: client.run_team("desk", DELEGATED, session_id="team"))

    assert (run.content, status(run)) == ("say hello", "COMPLETED")
    (member,) = run.member_responses
    assert (member.agent_id, member.content) == ("parrot", "say hello")
    assert member.parent_run_id == run.run_id
    assert run.tools[0].child_run_id == member.run_id


def test_stream_of_a_team_has_the_events_of_its_members(work: Call) -> None:
    async def act(client: Any) -> Any:
        return [event async for event in client.run_team_stream("desk", DELEGATED)]

    events = work(act)

    assert [event.event for event in events] == [
        "TeamRunStarted",
        "TeamModelRequestStarted",
        "TeamModelRequestCompleted",
        "TeamToolCallStarted",
        "RunStarted",
        "ModelRequestStarted",
        "RunContent",
        "RunContent",
        "ModelRequestCompleted",
        "RunContentCompleted",
        "RunCompleted",
        "TeamToolCallCompleted",
        "TeamModelRequestStarted",
        "TeamRunContent",
        "TeamModelRequestCompleted",
        "TeamRunContentCompleted",
        "TeamRunCompleted",
    ]
    started = events[4]
    assert (started.agent_id, started.parent_run_id) == ("parrot", events[0].run_id)
    assert [response.content for response in events[-1].member_responses] == ["say hello"]


def test_cancelling_an_unknown_run_is_an_error(call: Call) -> None:
    with pytest.raises(Exception, match="404"):
        call(lambda client: client.cancel_agent_run("sloth", "nope"))


MAIN: Final = {"db_id": "main"}


def test_sessions_from_creation_to_deletion(call: Call) -> None:
    async def act(client: Any) -> None:
        made = await client.create_session(
            session_id="s1",
            session_name="My S",
            session_state={"a": 1},
            metadata={"m": 1},
            agent_id="concierge",
        )
        assert (made.agent_session_id, made.session_name, made.agent_id) == (
            "s1",
            "My S",
            "concierge",
        )
        run = await client.run_agent("concierge", "hello", session_id="s1")
        listed = await client.get_sessions(
            session_type=SessionType.AGENT, component_id="concierge", session_name="my s", **MAIN
        )
        assert [row.session_id for row in listed.data] == ["s1"]
        assert (listed.meta.page, listed.meta.total_count) == (1, 1)
        found = await client.get_session("s1", **MAIN)
        assert [message["role"] for message in found.chat_history] == ["user", "assistant"]
        assert found.agent_data["model"] == {"name": "Echo", "provider": "Legation", "id": "echo"}
        rows = await client.get_session_runs("s1", **MAIN)
        assert [(row.run_id, row.run_input) for row in rows] == [(run.run_id, "hello")]
        row = await client.get_session_run("s1", run.run_id, **MAIN)
        assert (row.content, row.status) == ("hello", "COMPLETED")
        assert (await client.rename_session("s1", "Other", **MAIN)).session_name == "Other"
        changed = await client.update_session(
            "s1", session_state={"b": 2}, metadata={"n": 2}, **MAIN
        )
        assert (changed.session_state, changed.metadata) == ({"b": 2}, {"n": 2})
        assert changed.session_name == "Other"
        await client.delete_session("s1", **MAIN)
        with pytest.raises(Exception, match="404"):
            await client.get_session("s1", **MAIN)

    call(act)


def test_sessions_of_teams_and_many_at_once(call: Call) -> None:
    async def act(client: Any) -> None:
        await client.run_team("desk", "hello", session_id="t1")
        found = await client.get_session("t1", session_type=SessionType.TEAM, **MAIN)
        assert (found.team_id, found.team_data["name"]) == ("desk", "Desk")
        rows = await client.get_session_runs("t1", session_type=SessionType.TEAM, **MAIN)
        assert [row.team_id for row in rows] == ["desk"]
        await client.create_session(session_id="t2", **MAIN)
        await client.delete_sessions(["t1", "t2"], [SessionType.TEAM, SessionType.AGENT], **MAIN)
        listed = await client.get_sessions(
            session_type=SessionType.TEAM, session_name="hello", **MAIN
        )
        assert "t1" not in [row.session_id for row in listed.data]

    call(act)


def test_migrate(call: Call) -> None:
    newest = str(CATALOGUE.latest)
    assert newest in str(call(lambda client: client.migrate_database("main", newest)))
    assert newest in str(call(lambda client: client.migrate_database("main")))
    with pytest.raises(Exception, match="400"):  # a schema before that of this release
        call(lambda client: client.migrate_database("main", "2.5.6"))
    with pytest.raises(Exception, match="422"):
        call(lambda client: client.migrate_database("main", "garbage"))
