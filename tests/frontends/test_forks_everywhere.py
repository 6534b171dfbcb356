"""Forks at each place of runs of every kind, with a crash at every effect, and many at once.

A fork has exactly what came before its place, does nothing of it again, and ends as the run that it
is a fork of, which stays as it is to the byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import trio
from attrs import define, field

from legation import Agent, Database, Platform
from legation.models.conversation import Prompt
from legation.tools.accepted import is_array, is_object
from legation_host.hosting import open_platform
from legation_testing import Client, ScriptedModel, call, crash_everywhere

from .cluster_kit import NIGHTLY
from .go_on_kit import CASES, FINAL, Case, Ground, World, case, find_difference, simplify
from .test_runs_nodes import Node

pytestmark = pytest.mark.enumeration

STYLES: Final = ("joined", "streamed", "in the background", "in a session", "with an outcome")
_NEVER: Final = ("book", "permit")


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.close()


@define(eq=False)
class Forks:
    """Runs of one case, and forks of them, in one world."""

    case: Case
    ground: Ground
    world: World = field(init=False)
    client: Client = field(init=False)

    def open(self) -> Client:
        """Return a client of a fresh process."""
        self.world = World(self.case, self.ground)
        self.client = self.ground.client(self.world.platform)
        return self.client

    def run(self, session_id: str) -> str:
        """Have a run taken to its end; return its id."""
        form = {"message": "go", "session_id": session_id, "background": True}
        answer = self.client.post(self.case.path, form=form)
        run_id: str = answer.json()["run_id"]
        self.finish(run_id)
        return run_id

    def finish(self, run_id: str) -> str:
        """Wait for the end of a run, and answer for people; return how it ended."""
        status = ""
        for _ in range(200):
            ((status,),) = self.ground.select("select status from runs where run_id = ?", run_id)
            if status in FINAL:
                return str(status)
            if status == "PAUSED":
                run = self.client.get(f"{self.case.path}/{run_id}").json()
                tools = [self.world.reply(one["tool_execution"]) for one in run["requirements"]]
                form = {"tools": json.dumps(tools), "stream": False}
                self.client.begin("POST", f"{self.case.path}/{run_id}/continue", form=form)
            self.client.advance(1.0)
        raise AssertionError(f"no end in sight: {run_id} is {status}")

    def fork(self, run_id: str, at: str | None, style: str) -> str:
        """Fork a run and have the fork taken to its end; return its id."""
        fields: dict[str, Any] = {} if at is None else {"at": at}
        fields |= {"stream": style == "streamed", "background": style == "in the background"}
        if style == "in a session":
            fields["session_id"] = f"fork of {run_id} at {at}"
        if style == "with an outcome" and at is not None and "." in at:
            fields["outcome"] = "given"
        known = self.ids()
        exchange = self.client.begin("POST", f"{self.case.path}/{run_id}/fork", json=fields)
        self.client.settle()
        self.client.advance(1.0)
        (made,) = self.ids() - known
        self.finish(made)
        assert exchange.response().status in (200, 202)
        return made

    def ids(self) -> set[str]:
        """Return the ids of all runs that were asked for, copies left out."""
        rows = self.ground.select(
            "select run_id from runs where parent_run_id is null and attempt > 0"
        )
        return {run_id for (run_id,) in rows}

    def places(self, run_id: str) -> list[str | None]:
        """Return every place that the checkpoints of a run name; None is the beginning."""
        target = f"{self.case.path}/{run_id}/checkpoints"
        entries = self.client.get(target).json()["checkpoints"]
        named = [one["place"] for one in entries]
        named += [made["place"] for one in entries for made in one["calls"]]
        return [None, *sorted({place for place in named if place is not None})]

    def dump(self, run_id: str) -> list[Any]:
        """Return all that is stored of a run and of its members."""
        (session,) = self.ground.select("select session_id from runs where run_id = ?", run_id)
        runs = "select * from runs where session_id = ? order by run_no"
        of_runs = "where run_id in (select run_id from runs where session_id = ?)"
        return [
            self.ground.select(runs, *session),
            self.ground.select(f"select * from steps {of_runs} order by 1, 2", *session),
            self.ground.select(f"select * from events {of_runs} order by 1, 2", *session),
        ]

    def steps(self, run_id: str, where: str = "1 = 1") -> dict[str, tuple[Any, ...]]:
        """Return the steps of a run, by their places."""
        columns = "place, kind, asked, begun_us, ended_us, outcome"
        rows = self.ground.select(
            f"select {columns} from steps where run_id = ? and {where}", run_id
        )
        return {row[0]: row for row in rows}

    def read(self, run_id: str) -> dict[str, Any]:
        """Return a run as clients read it."""
        run: dict[str, Any] = self.client.get(f"{self.case.path}/{run_id}").json()
        return run


def is_before(place: str, at: str | None) -> bool:
    """Return whether a step is before `at`, or beside it: what a fork there has."""
    if at is None:
        return False
    number, mine = int(place.partition(".")[0]), int(at.partition(".")[0])
    if "." not in at:
        return number < mine
    return number <= mine and place != at and not place.startswith(f"{at}/")


def check_prefix(forks: Forks, run_id: str, made: str, at: str | None, style: str) -> None:
    """Find that a fork has the steps before its place, and no others of the run."""
    expected = {p: step for p, step in forks.steps(run_id).items() if is_before(p, at)}
    copied = forks.steps(made, "attempt = -1")
    beside = {place: step for place, step in copied.items() if place not in expected}
    if style == "in a session":
        expected.pop("0", None)
        assert at is None or not forks.steps(run_id) or "0" in forks.steps(made)
    assert {place: copied[place] for place in expected} == expected
    for place, (_, _, asked, *_, outcome) in beside.items():
        given = place == at and style == "with an outcome"
        assert given or asked in ("permit", "outside"), (place, outcome)


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_fork_at_each_place_of_each_kind_of_run(
    one: Case, ground: Ground, figures: Callable[[str], None]
) -> None:
    forks, made_of_all = Forks(one, ground), 0
    with forks.open():
        for number, style in enumerate(STYLES):
            run_id = forks.run(f"s{number}")
            places = forks.places(run_id)
            stored, whole = forks.dump(run_id), forks.read(run_id)
            for at in places:
                forks.world.called.clear()
                made = forks.fork(run_id, at, style)
                made_of_all += 1
                assert forks.dump(run_id) == stored
                check_prefix(forks, run_id, made, at, style)
                done = [
                    json.loads(step[5]).get("result")
                    for step in forks.steps(made, "attempt = -1").values()
                ]
                for (name, what), times in forks.world.called.items():
                    assert times == 1 or name not in _NEVER
                    assert f"{name} {what}" not in done
                fork = forks.read(made)
                assert fork["status"] == "COMPLETED"
                assert fork.pop("forked_from") == {"run_id": run_id, "at": at}
                if style != "with an outcome":
                    difference = find_difference(shape(fork), shape(whole))
                    assert not difference, (at, difference)

    figures(f"forks: {one.name}, {len(STYLES)} runs, a fork at each of their places: {made_of_all}")


def shape(run: dict[str, Any]) -> Any:
    """Return a run without what a fork has of its own: ids, times, tokens, and who confirmed."""
    return _strip(simplify(run, frozenset()))


_OWN: Final = ("run_id", "session_id", "id", "tokens", "confirmed", "child_run_id", "parent_run_id")


def _strip(value: Any) -> Any:
    if is_array(value):
        return [_strip(one) for one in value]
    if not is_object(value):
        return value
    return {name: _strip(one) for name, one in value.items() if name not in _OWN}


# --- Crashes -----------------------------------------------------------------------------------


@define(eq=False)
class Crash:
    """A fork at a place, again and again, each time killed at another effect."""

    forks: Forks
    at: str | None
    run_id: str = ""

    def make(self) -> Client:
        client = self.forks.open()
        self.run_id = self.forks.run("s")
        self.forks.world.called.clear()
        return client

    def act(self, client: Client) -> None:
        fields: dict[str, Any] = {} if self.at is None else {"at": self.at}
        target = f"{self.forks.case.path}/{self.run_id}/fork"
        client.begin("POST", target, json={**fields, "background": True})
        client.advance(5.0)

    def check(self, client: Client) -> None:
        client.settle()
        made = self.forks.ids() - {self.run_id}
        assert len(made) <= 1
        for run_id in made:
            assert self.forks.finish(run_id) == "COMPLETED"
            check_prefix(self.forks, self.run_id, run_id, self.at, "joined")
        for (name, what), times in self.forks.world.called.items():
            assert times == 1 or name not in _NEVER, (name, what, times)


CRASHES: Final = (
    ("side by side", "1.1"),
    ("side by side", "2"),
    ("in the background", "2.2"),
    ("structured output", "3"),
    ("a team that coordinates", "1.2"),
    ("a team that collaborates", "0.1"),
    ("a team that collaborates", "1"),
    ("a team of teams", "2"),
    ("a function that may be called again", None),
)


@pytest.mark.parametrize(("name", "at"), CRASHES)
def test_fork_goes_on_after_a_crash_anywhere(
    name: str, at: str | None, ground: Ground, figures: Callable[[str], None]
) -> None:
    crash = Crash(Forks(case(name), ground), at)
    every = 1 if NIGHTLY or (name, at) in CRASHES[:2] else 4
    tried = crash_everywhere(crash.make, crash.act, crash.check, every=every)

    figures(f"forks: {name}, at {at}, crashed at {tried.points} effects, each {every}th")
    assert tried.points > 40 // every


def test_fork_goes_on_in_another_node(ground: Ground) -> None:
    forks = Forks(case("joined"), ground)
    with forks.open() as client, client.peer() as peer:
        run_id = forks.run("s")
        forks.world.called.clear()
        target = f"{forks.case.path}/{run_id}/fork"
        client.post(target, json={"at": "2.1", "background": True, "stream": False})
        client.advance(0.01)
        client.crash()
        (made,) = forks.ids() - {run_id}
        peer.advance(60.0)
        ((status,),) = ground.select("select status from runs where run_id = ?", made)

    assert status == "COMPLETED"
    assert forks.world.called == Counter({("look", "s2"): 1})


# --- Many at once, on both engines -------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/main.db"
    found: str = request.getfixturevalue("postgres")
    return found


def test_twenty_forks_of_one_run_at_once_on_two_nodes(url: str) -> None:
    called: Counter[str] = Counter()

    def book(room: int) -> str:
        """Book a room."""
        called[f"book {room}"] += 1
        return f"booked {room}"

    def answer(prompt: Prompt) -> Any:
        results = sum(message.role == "tool" for message in prompt.messages)
        return call("book", room=results) if results < 2 else "done"

    def node() -> Platform:
        model = ScriptedModel([answer] * 200)
        agent = Agent(id="clerk", model=model, tools=[book])
        return Platform(databases=[Database("main", url, auto_migrate=True)], agents=[agent])

    async def main() -> None:
        async with open_platform(first := node()) as one, open_platform(second := node()) as two:
            nodes = (Node(first, one), Node(second, two))
            path = "/agents/clerk/runs"
            run = await nodes[0].ask("POST", path, message="go", session_id="s", stream="no")
            before = await nodes[0].ask("GET", f"{path}/{run['run_id']}")
            called.clear()
            made: list[dict[str, Any]] = []

            async def fork(number: int) -> None:
                more = {"session_id": "t"} if number % 4 == 3 else {}
                target = f"{path}/{run['run_id']}/fork"
                made.append(
                    await nodes[number % 2].ask("POST", target, at="2.1", stream="no", **more)
                )

            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(fork, number)
            assert [one["status"] for one in made] == ["COMPLETED"] * 20
            assert len({one["run_id"] for one in made}) == 20
            assert len({one["session_id"] for one in made}) == 16
            assert called == Counter({"book 1": 20})
            assert await nodes[1].ask("GET", f"{path}/{run['run_id']}") == before

    trio.run(main)
