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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a server that is running."""
    folder = tmp_path_factory.mktemp("platform")
    (folder / "platform.toml").write_text(PLATFORM.format(folder=folder))
    command = [sys.executable, "-m", "legation_cli", "serve", str(folder / "platform.toml")]
    said = folder / "said"
    with (
        said.open("w") as out,
        subprocess.Popen([*command, "--port", "0"], stdout=out, stderr=out) as server,
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
    assert config.databases == ["main"]


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


def test_cancelling_an_unknown_run_is_an_error(call: Call) -> None:
    with pytest.raises(Exception, match="404"):
        call(lambda client: client.cancel_agent_run("sloth", "nope"))


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
            session_type=SessionType.AGENT, component_id="concierge", session_name="my s"
        )
        assert [row.session_id for row in listed.data] == ["s1"]
        assert (listed.meta.page, listed.meta.total_count) == (1, 1)
        found = await client.get_session("s1")
        assert [message["role"] for message in found.chat_history] == ["user", "assistant"]
        assert found.agent_data["model"] == {"name": "Echo", "provider": "Legation", "id": "echo"}
        rows = await client.get_session_runs("s1")
        assert [(row.run_id, row.run_input) for row in rows] == [(run.run_id, "hello")]
        row = await client.get_session_run("s1", run.run_id)
        assert (row.content, row.status) == ("hello", "COMPLETED")
        assert (await client.rename_session("s1", "Other")).session_name == "Other"
        changed = await client.update_session("s1", session_state={"b": 2}, metadata={"n": 2})
        assert (changed.session_state, changed.metadata) == ({"b": 2}, {"n": 2})
        assert changed.session_name == "Other"
        await client.delete_session("s1")
        with pytest.raises(Exception, match="404"):
            await client.get_session("s1")

    call(act)


def test_sessions_of_teams_and_many_at_once(call: Call) -> None:
    async def act(client: Any) -> None:
        await client.run_team("desk", "hello", session_id="t1")
        found = await client.get_session("t1", session_type=SessionType.TEAM)
        assert (found.team_id, found.team_data["name"]) == ("desk", "Desk")
        rows = await client.get_session_runs("t1", session_type=SessionType.TEAM)
        assert [row.team_id for row in rows] == ["desk"]
        await client.create_session(session_id="t2")
        await client.delete_sessions(["t1", "t2"], [SessionType.TEAM, SessionType.AGENT])
        listed = await client.get_sessions(session_type=SessionType.TEAM, session_name="hello")
        assert "t1" not in [row.session_id for row in listed.data]

    call(act)


def test_migrate(call: Call) -> None:
    assert "2.5.6" in str(call(lambda client: client.migrate_database("main", "2.5.6")))
    with pytest.raises(Exception, match="422"):
        call(lambda client: client.migrate_database("main", "garbage"))
