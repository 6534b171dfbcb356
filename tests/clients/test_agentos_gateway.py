"""An AgentOS 2.5.6 that is a gateway to this server, and its own client in front of it.

The gateway is a process with agents and teams of `RemoteAgent` and `RemoteTeam` alone.  It writes
down what it asks this server and what it is answered; the last test holds all of that against the
OpenAPI document and the table of arguments.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl
from urllib.request import urlopen

import pytest

from legation.api.handlers.run_arguments import Action, Treatment, arguments_of
from legation.http.messages import Request
from legation_testing import ClientResponse

from ..contract import Contract
from ..ports import free_port
from .processes import started, until, until_alive

pytest.importorskip("agno", reason="the client of AgentOS is installed by nox -s agentos-client")
client_module = pytest.importorskip("agno.client")
agent_module = pytest.importorskip("agno.agent")
team_module = pytest.importorskip("agno.team")
db_module = pytest.importorskip("agno.db.base")
http_module = pytest.importorskip("agno.utils.http")
httpx = pytest.importorskip("httpx")

Client = client_module.AgentOSClient
SessionType = db_module.SessionType
Run: TypeAlias = Callable[[Callable[[], Awaitable[Any]]], Any]

OPTIONS: Final = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
pytestmark = [pytest.mark.filterwarnings(option) for option in OPTIONS]

# The model server wants both tools called, then answers word by word; asked anything but "Go", it
# stays a minute before each word.
PLATFORM: Final = '''
from legation import Agent, Database, Model, Platform, Team, tool

@tool
def on_the_loop() -> str:
    """Do it on the loop."""
    return "done"

@tool(requires_confirmation=True)
def in_a_thread() -> str:
    """Do it in a thread."""
    return "confirmed and done"

@tool(name="in_a_thread")
def freely() -> str:
    """Do it in a thread."""
    return "done"

platform = Platform(
    id="remote",
    environ={{"KEY": "key"}},
    databases=[
        Database("main", "sqlite:///{folder}/main.db"),
        Database("second", "{second}", auto_migrate=True),
    ],
    models=[
        Model("slow", "openai", id="slow", base_url="{model}/v1", api_key_env="KEY"),
    ],
    agents=[
        Agent(id="parrot", name="Parrot", description="Repeats"),
        Agent(id="free", model="slow", tools=[on_the_loop, freely], database="second"),
        Agent(id="asks", model="slow", tools=[on_the_loop, in_a_thread], database="second"),
    ],
    teams=[
        Team(id="flock", name="Flock", members=["parrot"]),
        Team(id="crew", model="slow", tools=[on_the_loop, freely], members=["free"],
             database="second"),
    ],
)
'''

GATEWAY: Final = """
import base64, json, sys
import httpx, uvicorn
from agno.agent import RemoteAgent
from agno.os import AgentOS
from agno.team import RemoteTeam
from agno.utils.http import set_default_async_client

remote, port, record = sys.argv[1], int(sys.argv[2]), open(sys.argv[3], "a", buffering=1)

class Noting(httpx.AsyncByteStream):
    def __init__(self, stream, told):
        self.stream, self.told, self.parts = stream, told, []

    async def __aiter__(self):
        async for part in self.stream:
            self.parts.append(part)
            yield part

    async def aclose(self):
        await self.stream.aclose()
        body = base64.b64encode(b"".join(self.parts)).decode()
        record.write(json.dumps({{**self.told, "body": body}}) + "\\n")

class Transport(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request):
        response = await super().handle_async_request(request)
        told = {{
            "method": request.method,
            "target": request.url.raw_path.decode(),
            "sent": (await request.aread()).decode(),
            "type": request.headers.get("content-type", ""),
            "status": response.status_code,
            "headers": list(response.headers.items()),
        }}
        response.stream = Noting(response.stream, told)
        return response

set_default_async_client(httpx.AsyncClient(transport=Transport(), follow_redirects=True))
gateway = AgentOS(
    id="gateway",
    agents=[RemoteAgent(base_url=remote, agent_id=name) for name in {agents}],
    teams=[RemoteTeam(base_url=remote, team_id=name) for name in {teams}],
    telemetry=False,
)
uvicorn.run(gateway.get_app(), host="127.0.0.1", port=port, log_level="warning")
"""
AGENTS: Final = ("parrot", "free", "asks")
TEAMS: Final = ("flock", "crew")
GO: Final = "Go"
WORDS: Final = "It took its time."


# --- four processes -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The URL of a server of models."""
    folder = tmp_path_factory.mktemp("model")
    with started(folder, "model", "-m", "tests.providers.slow_model") as said:
        port = until(lambda: re.match(r"\d+\n", said.read_text()), said)[0].strip()
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def remote(
    tmp_path_factory: pytest.TempPathFactory,
    model: str,
    new_second_database: Callable[[], AbstractContextManager[str]],
) -> Generator[str]:
    """The URL of a platform of two databases."""
    folder = tmp_path_factory.mktemp("remote")
    command = ("-m", "legation_cli", "serve", "remote:platform", "--port", "0")
    with new_second_database() as second:
        text = PLATFORM.format(folder=folder, second=second, model=model)
        (folder / "remote.py").write_text(text)
        with started(folder, "remote", *command) as said:
            yield until(lambda: re.search(r"http://\S+", said.read_text()), said)[0]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of what the gateway asked, and was answered."""
    return tmp_path_factory.mktemp("record") / "exchanges.jsonl"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, remote: str, record: Path) -> Generator[str]:
    """The URL of the gateway."""
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "gateway.py").write_text(GATEWAY.format(agents=AGENTS, teams=TEAMS))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with started(folder, "gateway", "gateway.py", remote, port, record) as said:
        until_alive(url, said)
        yield url


@pytest.fixture(scope="module")
def run() -> Generator[Run]:
    """Runs a coroutine function; all in one loop, for the client keeps connections."""
    http_module.set_default_async_client(httpx.AsyncClient())  # that of other modules has its loop
    with asyncio.Runner() as runner:

        def in_the_loop(act: Callable[[], Awaitable[Any]]) -> Any:
            async def main() -> Any:
                return await act()

            return runner.run(main())

        yield in_the_loop


async def every(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


def status(run: Any) -> str:
    return str(getattr(run.status, "value", run.status))


# --- RemoteAgent and RemoteTeam -----------------------------------------------------------------

EVERYTHING: Final[dict[str, Any]] = {
    "user_id": "u1",
    "session_state": {"a": 1},
    "dependencies": {"b": 2},
    "metadata": {"c": 3},
    "retries": 2,
    "add_history_to_context": True,
    "add_dependencies_to_context": True,
    "add_session_state_to_context": False,
}
REMOTES: Final = pytest.mark.parametrize(
    ("kind", "name"), [("agent", "parrot"), ("agent", "free"), ("team", "flock"), ("team", "crew")]
)


def of(kind: str, remote: str, name: str) -> Any:
    if kind == "agent":
        return agent_module.RemoteAgent(base_url=remote, agent_id=name)
    return team_module.RemoteTeam(base_url=remote, team_id=name)


def answer_of(name: str) -> str:
    return GO if name in ("parrot", "flock") else WORDS


@REMOTES
def test_remote_runs_with_every_argument_that_it_has(
    run: Run, remote: str, kind: str, name: str
) -> None:
    one = of(kind, remote, name)
    options = {**EVERYTHING, "session_id": f"direct-{name}"}

    done = run(lambda: one.arun(GO, **options))
    events = run(lambda: every(one.arun(GO, stream=True, stream_events=True, **options)))

    assert (status(done), done.content, done.user_id) == ("COMPLETED", answer_of(name), "u1")
    assert done.session_state == {"a": 1}
    assert events[-1].event == ("RunCompleted" if kind == "agent" else "TeamRunCompleted")
    assert events[-1].content == answer_of(name)


def test_remote_says_why_there_is_no_knowledge_to_be_filtered(run: Run, remote: str) -> None:
    one = of("agent", remote, "parrot")

    with pytest.raises(Exception, match="422"):
        run(lambda: one.arun(GO, knowledge_filters={"a": 1}))


def test_remote_knows_its_agent_and_where_its_sessions_are(run: Run, remote: str) -> None:
    one = of("agent", remote, "free")

    assert (one.name, one.db.id, one.db.session_table_name) == ("free", "second", "sessions")
    assert one.knowledge is None


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_remote_goes_on_with_a_run_that_asked(run: Run, remote: str, *, stream: bool) -> None:
    one = of("agent", remote, "asks")
    paused = run(lambda: one.arun(GO, user_id="u1", session_id=f"asked-{stream}"))
    for needed in paused.requirements:
        needed.confirm()
    tools = [needed.tool_execution for needed in paused.requirements]
    more = {"session_id": paused.session_id, "stream_events": True}

    def go_on() -> Any:
        going = one.acontinue_run(paused.run_id, tools, stream=stream, **more)
        return every(going) if stream else going

    done = run(go_on)
    last = done[-1] if stream else done

    assert status(paused) == "PAUSED"
    assert last.content == WORDS


def test_remote_cancels(run: Run, remote: str) -> None:
    one = of("agent", remote, "free")

    async def act() -> tuple[bool, bool, list[str]]:
        seen: list[str] = []
        asked = False
        async for event in one.arun("Stay", stream=True):
            seen.append(event.event)
            if event.event == "ToolCallCompleted" and not asked:
                asked = await one.acancel_run(event.run_id)
        return asked, await one.acancel_run("no-such-run"), seen

    cancelled, unknown, seen = run(act)

    assert (cancelled, unknown, seen[-1]) == (True, False, "RunCancelled")


# --- through the gateway ------------------------------------------------------------------------


def test_gateway_shows_what_is_behind_it(run: Run, gateway: str) -> None:
    client = Client(gateway, timeout=30)

    config = run(client.aget_config)
    agents, teams = run(client.list_agents), run(client.list_teams)

    assert sorted(config.databases) == ["main", "second"]
    assert [(agent.id, agent.db_id) for agent in config.agents] == [
        ("parrot", "main"),
        ("free", "second"),
        ("asks", "second"),
    ]
    assert [agent.id for agent in agents] == list(AGENTS)
    assert [team.id for team in teams] == list(TEAMS)
    assert run(lambda: client.aget_agent("parrot")).description == "Repeats"
    assert run(lambda: client.aget_team("flock")).name == "Flock"


@REMOTES
def test_gateway_runs(run: Run, gateway: str, kind: str, name: str) -> None:
    client = Client(gateway, timeout=30)
    options = {"session_id": f"through-{name}", "user_id": "u1", "metadata": {"c": 3}}

    done = run(lambda: getattr(client, f"run_{kind}")(name, GO, **options))
    events = run(lambda: every(getattr(client, f"run_{kind}_stream")(name, GO, **options)))

    assert (status(done), done.content) == ("COMPLETED", answer_of(name))
    assert events[0].event.endswith("RunStarted")
    assert events[-1].event.endswith("RunCompleted")
    assert "".join(e.content for e in events if e.event.endswith("RunContent") and e.content)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("agreed", [False, True], ids=["rejected", "confirmed"])
def test_gateway_goes_on_with_a_run_that_asked(
    run: Run, gateway: str, *, stream: bool, agreed: bool
) -> None:
    client = Client(gateway, timeout=30)
    session = {"session_id": f"gateway-{stream}-{agreed}"}
    paused = run(lambda: client.run_agent("asks", GO, **session))
    for needed in paused.requirements:
        _ = needed.confirm() if agreed else needed.reject("no")
    tools = [needed.tool_execution for needed in paused.requirements]

    if stream:
        going = client.continue_agent_run_stream("asks", paused.run_id, tools, **session)
        last = run(lambda: every(going))[-1]
    else:
        last = run(lambda: client.continue_agent_run("asks", paused.run_id, tools, **session))

    assert status(paused) == "PAUSED"
    assert last.content == WORDS


@pytest.mark.parametrize(("kind", "name"), [("agent", "free"), ("team", "crew")])
def test_gateway_cancels(run: Run, gateway: str, kind: str, name: str) -> None:
    client = Client(gateway, timeout=30)

    async def act() -> list[str]:
        seen: list[str] = []
        async for event in getattr(client, f"run_{kind}_stream")(name, "Stay"):
            seen.append(event.event)
            if event.event.endswith("ToolCallCompleted") and len(seen) < 9:
                await getattr(client, f"cancel_{kind}_run")(name, event.run_id)
        return seen

    assert run(act)[-1].endswith("RunCancelled")


def test_gateway_reaches_the_sessions_of_both_databases(run: Run, gateway: str) -> None:
    client = Client(gateway, timeout=30)

    async def act(database: str, name: str) -> None:
        where = {"db_id": database}
        session = f"kept-{name}"
        await client.run_agent(name, GO, session_id=session, user_id="u1")
        listed = await client.get_sessions(user_id="u1", component_id=name, limit=100, **where)
        assert session in [row.session_id for row in listed.data]
        assert (await client.get_session(session, user_id="u1", **where)).agent_id == name
        rows = await client.get_session_runs(session, user_id="u1", **where)
        assert [row.run_input for row in rows] == [GO]
        renamed = await client.rename_session(session, "Other", **where)
        assert renamed.session_name == "Other"
        await client.delete_session(session, **where)
        await client.delete_session(session, **where)  # is gone, which is what was asked for

    run(lambda: act("main", "parrot"))
    run(lambda: act("second", "free"))


def test_gateway_finds_nothing_where_nothing_is_kept(run: Run, gateway: str) -> None:
    client = Client(gateway, timeout=30)

    async def act() -> list[Any]:
        where = {"db_id": "second"}
        return [
            (await client.list_memories(user_id="u1", **where)).data,
            (await client.get_user_memory_stats(**where)).data,
            await client.get_memory_topics(**where),
            (await client.list_eval_runs(**where)).data,
            (await client.get_traces(**where)).data,
            (await client.get_trace_session_stats(**where)).data,
            (await client.get_metrics(**where)).metrics,
            await client.list_workflows(),
        ]

    assert run(act) == [[]] * 8


# --- what was asked and answered ----------------------------------------------------------------


def test_every_exchange_of_the_gateway_is_as_the_document_says(
    gateway: str, remote: str, record: Path, figures: Callable[[str], None]
) -> None:
    with urlopen(f"{remote}/openapi.json") as answer:
        contract = Contract(json.loads(answer.read()))
    exchanges = [json.loads(line) for line in record.read_text().splitlines()]
    runs = [one for one in exchanges if "/runs" in path_of(one)]
    for one in exchanges:
        headers = tuple((k.encode(), v.encode()) for k, v in one["headers"])
        response = ClientResponse(one["status"], headers, base64.b64decode(one["body"]))
        contract.check(Request(one["method"], one["target"]), response)
    for one in runs:
        assert one["status"] == 200, one
        assert_taken(one)

    assert gateway
    assert len(runs) > 20
    figures(
        f"a gateway of AgentOS 2.5.6 made {len(exchanges)} requests, {len(runs)} about runs:"
        " each is taken, and each answer as the OpenAPI document says"
    )


def path_of(one: dict[str, Any]) -> str:
    return str(one["target"]).partition("?")[0]


def assert_taken(one: dict[str, Any]) -> None:
    """Every argument of a run that the gateway sent is one of the table, and not refused there.

    Gateways of later versions send some that are, with values that ask for nothing.
    """
    last = path_of(one).rpartition("/")[2]
    action = Action.START if last == "runs" else Action(last)
    known = {argument.name: argument for argument in arguments_of(action)}
    for name, value in parse_qsl(one["sent"]) if one["method"] == "POST" else ():
        argument = known[name]
        assert argument.treatment is not Treatment.REFUSED or value.lower() in argument.harmless
