"""Long messages through the whole platform: stored once, and read as ever by everybody."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import define, field

from legation import Agent, Platform, Team
from legation.http.messages import compact_json
from legation.models.conversation import ModelFailed, Prompt
from legation.tools import tool
from legation_testing import Client, ClientResponse, Says, ScriptedModel, call

from ...two_databases import IN_MEMORY

BEAT: Final = 5.0
LONG: Final = 'Where is the "north" star?\n' * 100
ANSWER: Final = "It is\tbehind the clouds. \U0001f600 " * 100


@tool(requires_confirmation=True)
def look(where: str) -> str:
    """Look somewhere."""
    return f"{where}: {ANSWER}"


@define
class World:
    """A node with two databases in files; beside it, maybe, one that knows no marks.

    Attributes:
        prompts: What the models were given.
        bodies: What clients were answered.
    """

    folder: Path
    old: bool
    prompts: list[Prompt] = field(factory=list[Prompt], init=False)
    bodies: list[bytes] = field(factory=list[bytes], init=False)
    client: Client = field(init=False)

    def open(self, stack: ExitStack) -> None:
        self.folder.mkdir()
        self.client = stack.enter_context(
            Client(self._platform(), folder=self.folder, raise_errors=False)
        )
        if self.old:
            self.enter("2.8.0")

    def enter(self, schema_version: str) -> None:
        """Have a node for `schema_version` live beside this one for ever."""
        for name in ("main", "second"):
            with closing(sqlite3.connect(self.folder / f"{name}.db")) as database, database:
                database.execute(
                    "insert into nodes (node_id, started_us, beat_us, until_us, code_version,"
                    " schema_version) values ('beside', 1, 1, ?, '0', ?)",
                    (1 << 60, schema_version),
                )
        self.client.advance(BEAT + 1)

    def _platform(self) -> Platform:
        def say(prompt: Prompt) -> Says:
            self.prompts.append(prompt)
            return Says(ANSWER)

        clerk = Agent(id="clerk", model=ScriptedModel([say] * 50), history_runs=3)
        looking = ScriptedModel([call("look", where="up"), ANSWER] * 9)
        agents = (
            clerk,
            Agent(id="second", model=ScriptedModel([say] * 50), database="second"),
            Agent(id="looker", model=looking, tools=[look]),
            Agent(id="broken", model=ScriptedModel([ModelFailed("down", "It is broken.")] * 9)),
        )
        desk = Team(
            id="desk",
            mode="collaborate",
            model=ScriptedModel([ANSWER] * 9),
            members=("clerk", "broken"),
        )
        return Platform(agents=agents, teams=(desk,), databases=IN_MEMORY)

    def keep(self, response: ClientResponse) -> ClientResponse:
        assert response.status == 200, response.body
        self.bodies.append(response.body)
        return response

    def ask(self, path: str, session_id: str, message: str = LONG, **form: Any) -> Any:
        """Ask for a run; return it as it is shown."""
        headers = form.pop("headers", ())
        asked = {"message": message, "session_id": session_id, "stream": False, **form}
        response = self.keep(self.client.post(f"/{path}/runs", form=asked, headers=headers))
        return None if asked["stream"] else response.json()

    def look(self, path: str, run: Any) -> None:
        """Read a run and its events."""
        place = f"/{path}/runs/{run['run_id']}"
        self.keep(self.client.get(place, query={"session_id": run["session_id"]}))
        self.keep(self.client.get(f"{place}/events"))

    def list(self, session_id: str, **query: Any) -> None:
        """Read a session and its runs."""
        for path in (f"/sessions/{session_id}/runs", f"/sessions/{session_id}"):
            self.keep(self.client.get(path, query={"db_id": "main", **query}))

    def count(self, text: str, name: str = "main") -> int:
        """Count how often `text` stands in runs and events."""
        tables = "select input || coalesce(output, '') from runs union all select data from events"
        with closing(sqlite3.connect(self.folder / f"{name}.db")) as database:
            return sum(
                whole.count(compact_json(text)[1:-1]) for (whole,) in database.execute(tables)
            )


@pytest.fixture
def worlds(tmp_path: Path) -> Generator[tuple[World, World]]:
    """A world where everything is stored once, and one where an old node lives."""
    new, old = World(tmp_path / "new", old=False), World(tmp_path / "old", old=True)
    with ExitStack() as stack:
        for world in (new, old):
            world.open(stack)
            if not world.old:
                world.enter("2.9.0")
        yield new, old


def in_turn(world: World) -> None:
    """Ask for runs in a session, so that each has those before in its history."""
    for stream in (False, True, False):
        world.ask("agents/clerk", "s", stream=stream)
    key = [("idempotency-key", "one")]
    first = world.ask("agents/clerk", "keyed", headers=key)
    assert world.ask("agents/clerk", "keyed", headers=key) == first
    world.look("agents/clerk", first)
    world.list("s")


def of_two_callers(world: World) -> None:
    """Ask for runs in sessions of two users that have one name, and of two databases."""
    for user in ("ada", "eve"):
        world.ask("agents/clerk", "s", f"{user}: {LONG}", user_id=user)
        world.ask("agents/second", "other", f"{user} {LONG}", user_id=user)
    for user in ("ada", "eve"):
        world.list("s", user_id=user)
        world.list("other", user_id=user, db_id="second")


def with_pauses(world: World) -> None:
    """Let a run pause and go on, and cancel one that waits."""
    run = world.ask("agents/looker", "p")
    assert run["status"] == "PAUSED"
    world.look("agents/looker", run)
    (asked,) = run["tools"]
    path = f"/agents/looker/runs/{run['run_id']}/continue"
    tools = compact_json([{**asked, "confirmed": True}])
    form = {"tools": tools, "session_id": "p", "stream": False}
    assert world.keep(world.client.post(path, form=form)).json()["status"] == "COMPLETED"
    world.look("agents/looker", run)
    run = world.ask("agents/looker", "q")
    world.keep(world.client.post(f"/agents/looker/runs/{run['run_id']}/cancel"))
    world.look("agents/looker", run)
    world.list("p")
    world.list("q")


def broken(world: World) -> None:
    """Let a run fail."""
    run = world.ask("agents/broken", "b")
    assert run["status"] == "ERROR"
    world.look("agents/broken", run)
    world.list("b")


def of_a_team(world: World) -> None:
    """Ask a team whose members are all given the message."""
    run = world.ask("teams/desk", "t")
    world.look("teams/desk", run)
    for member in run["member_responses"]:
        world.look(f"agents/{member['agent_id']}", member)
    world.list("t")


@pytest.mark.parametrize(
    ("scenario", "stored"),
    [
        (in_turn, 4),
        (of_two_callers, 2),
        (with_pauses, 1 + 2),  # one that was cancelled where it waited has its turn
        (broken, 1),
        (of_a_team, 1 + 2),  # each member has its task
    ],
)
def test_what_is_read_is_the_same_whether_all_is_stored_once_or_not(
    worlds: tuple[World, World], scenario: Any, stored: int
) -> None:
    new, old = worlds
    for world in worlds:
        scenario(world)

    assert new.bodies == old.bodies
    assert new.prompts == old.prompts
    assert new.count(LONG) == stored
    assert old.count(LONG) > stored


def test_what_was_stored_while_an_old_node_lived_is_read_beside_what_is_stored_once(
    worlds: tuple[World, World],
) -> None:
    _, world = worlds
    before = world.ask("agents/clerk", "s")
    with closing(sqlite3.connect(world.folder / "main.db")) as database, database:
        database.execute("delete from nodes where node_id = 'beside'")
    world.client.advance(BEAT + 1)
    whole = world.count(LONG)
    world.ask("agents/clerk", "s")

    assert world.count(LONG) == whole + 1
    runs = world.client.get("/sessions/s/runs", query={"db_id": "main"})
    first, second = runs.json()
    assert first["messages"] == before["messages"]
    assert (first["content"], first["run_input"]) == (second["content"], second["run_input"])


def test_a_node_goes_on_with_a_long_message_where_another_died(tmp_path: Path) -> None:
    asked: list[str] = []

    def say(prompt: Prompt) -> Says:
        asked.append(prompt.messages[-1].content)
        return Says(ANSWER, after_seconds=60.0)

    def make() -> Platform:
        return Platform(
            agents=(Agent(id="clerk", model=ScriptedModel([say] * 9)),), databases=IN_MEMORY
        )

    with Client(make, folder=tmp_path) as first, first.peer(make) as second:
        form = {"message": LONG, "session_id": "s", "background": True}
        run = first.post("/agents/clerk/runs", form=form).json()
        first.advance(BEAT)
        first.crash()
        second.advance(200)
        shown = second.get(f"/agents/clerk/runs/{run['run_id']}").json()
        events = second.get(f"/agents/clerk/runs/{run['run_id']}/events").events()

    assert asked == [LONG, LONG]
    assert (shown["status"], shown["content"]) == ("COMPLETED", ANSWER)
    assert shown["input"]["input_content"] == shown["messages"][0]["content"] == LONG
    assert events[-1].json()["content"] == ANSWER
    with closing(sqlite3.connect(tmp_path / "main.db")) as database:
        ((stored,),) = database.execute("select output from runs")
    assert compact_json(LONG)[1:-1] not in stored
    assert stored.count(compact_json(ANSWER)[1:-1]) == 1
