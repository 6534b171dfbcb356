"""Runs that go on elsewhere: after a drain, beside a node that stalls, and with lost commits.

A drain, and a stall beyond the lease, begin at every effect of a run; every commit is lost once.
Runs of one id in two databases, of two callers, go on without each other; a channel's message is
answered once, and nothing is booked twice for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from attrs import define

from legation import Agent, Platform, Principal
from legation.effects import CallFunction, Nudge, RandomBytes, Transact
from legation.models.conversation import Prompt
from legation.store.failures import CommitLost
from legation_testing import (
    Client,
    ScriptedModel,
    call,
    crash_everywhere,
    fail_everywhere,
)
from legation_testing.faults import Performed

from ..providers.deliveries import platform, whatsapp
from ..providers.strict import WhatsAppApi
from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY
from .go_on_kit import Case, Ground, World, case, finish, judge

pytestmark = pytest.mark.enumeration

CHOSEN: Final = (
    case("streamed"),
    case("side by side", in_doubt="ask"),
    case("a team that coordinates"),
    case("a member paused and continued"),
)
LEASE_SECONDS: Final = 30.0
STEP: Final = 1 if NIGHTLY else 3
"""In CI every third effect."""


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.close()


@define(eq=False)
class Moment:
    """Does something when the number of effects of a node is there; a fault that never strikes."""

    client: Client
    number: int
    happen: Callable[[], object]
    seen: int = 0

    def __attrs_post_init__(self) -> None:
        self.client.fail_at(self.look, None)

    def look(self, _: Any) -> bool:
        if self.client.simulation.effects[-1].node == self.client.node.name:
            self.seen += 1
            if self.seen == self.number:
                self.happen()
        return False


def _is_nudge(performed: Performed, program: str) -> bool:
    return performed.program == program and isinstance(performed.effect, Nudge)


@define(eq=False)
class Pair:
    """Two nodes: one that is asked for a run, and another beside it."""

    world: World
    one: Client
    other: Client
    drained: bool = False

    @classmethod
    def begin(cls, case: Case, ground: Ground) -> Pair:
        world = World(case, ground)
        one = ground.client(world.platform)
        other = one.peer()
        other.open()
        other.settle()
        return cls(world, one, other)

    def ask(self) -> None:
        """Ask for the run, at the one node, and wait for nothing."""
        form = {"message": "go", "session_id": "s", "stream": self.world.case.stream}
        self.one.begin("POST", self.world.case.path, form=form)

    def reach(self, number: int, happen: Callable[[], object]) -> bool:
        """Ask, and have something happen at an effect; return whether the run came so far."""
        moment = Moment(self.one, number, happen)
        self.ask()
        while moment.seen < number:
            if (self.world.find() or ("", ""))[1] in ("PAUSED", "COMPLETED"):
                return False
            self.one.advance(0.05)
        return True

    def is_known(self) -> bool:
        """Return whether no call was out when the drain broke the run off."""
        effects = [one for one in self.one.simulation.effects if one.node == self.one.node.name]
        calls = [one for one in effects if isinstance(one.effect, CallFunction)]
        nudges = (n for n, one in enumerate(effects) if _is_nudge(one, "shutdown"))
        broken = next(nudges, len(effects))
        workers = {one.program for one in calls}
        before = {one.program: one.effect for one in effects[:broken] if one.program in workers}
        return not any(isinstance(effect, CallFunction) for effect in before.values())

    def stall(self) -> None:
        """Let the one node stand still."""
        self.one.simulation.stall(self.one.node)

    def drain(self) -> None:
        """Begin the end of the one node."""
        self.one.simulation.start(self._leave(), "shutdown", node=self.one.node, body=None)

    def _leave(self) -> Any:
        assert isinstance(self.one.platform, Platform)
        yield from self.one.platform.shutdown(0.0)
        self.drained = True

    def close(self) -> None:
        self.other.close()
        self.one.close()


@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: one.name)
def test_run_that_is_drained_goes_on_elsewhere_within_a_second(
    one: Case, ground: Ground, figures: Callable[[str], None]
) -> None:
    whole, number, drained = finish(one, ground), 1, 0
    while True:
        pair = Pair.begin(one, ground)
        if not pair.reach(number, pair.drain):
            pair.close()
            break
        drained += _check_drained(pair)
        judge(pair.world, pair.other, whole, 1)
        pair.close()
        number += STEP

    figures(f"going on: {one.name}, drained at {drained} effects, gone on within a second")
    assert drained > 10


def _check_drained(pair: Pair) -> bool:
    """Find that the run goes on at the other node; return whether there was one."""
    world, begun_us = pair.world, pair.one.clock.elapsed_us
    while not pair.drained:
        pair.one.advance(0.05)
        assert pair.one.clock.elapsed_us - begun_us < 2_000_000
    world.note_crash()
    if pair.is_known():
        known = "select place from steps where asked in ('book', 'permit') and outcome is not null"
        made = [what for name, what in world.called if name in ("book", "permit")]
        assert len(world.ground.select(known)) == len(made), "an outcome was known"
    pair.one.crash()
    pair.other.advance(1.0)
    standing = world.find()
    if standing is not None and standing[1] == "RUNNING":
        leased = world.ground.select("select lease_by from runs where run_id = ?", standing[0])
        assert leased == [(pair.other.node.name,)]
    else:
        assert standing is None or standing[1] in ("PAUSED", "COMPLETED"), standing
    world.live(pair.other)
    return standing is not None


@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: one.name)
def test_node_that_stalls_beyond_its_lease_does_nothing_twice(
    one: Case, ground: Ground, figures: Callable[[str], None]
) -> None:
    whole, number, met = finish(one, ground), 1, 0
    while True:
        pair = Pair.begin(one, ground)
        if not pair.reach(number, pair.stall):
            pair.close()
            break
        world = pair.world
        world.note_crash()
        pair.other.advance(2 * LEASE_SECONDS + 3.0 + 0.3 * (number % 5))
        ((taken,),) = ground.select("select coalesce(max(attempt), 0) > 1 from runs")
        met += taken
        pair.one.simulation.go_on(pair.one.node)
        pair.other.advance(2.0)
        world.live(pair.other)
        judge(world, pair.other, whole, 1, exact=False)
        pair.close()
        number += STEP

    figures(f"going on: {one.name}, {met} stalls beyond the lease, and back beside a successor")
    assert met > 10


@pytest.mark.parametrize("one", CHOSEN, ids=lambda one: one.name)
def test_commit_that_is_lost_makes_no_difference(
    one: Case, ground: Ground, figures: Callable[[str], None]
) -> None:
    whole = finish(one, ground)
    worlds: list[World] = []

    def make() -> Client:
        worlds.append(World(one, ground))
        return ground.client(worlds[-1].platform)

    def check(client: Client) -> None:
        worlds[-1].live(client)
        judge(worlds[-1], client, whole, 0)

    tried = fail_everywhere(
        make,
        lambda client: worlds[-1].ask(client),  # noqa: PLW0108  it is another one each time
        check,
        which=_is_of_runs,
        outcome=CommitLost("x"),
        after=True,
    )
    figures(f"going on: {one.name}, each of {tried.points} commits of it lost")
    assert tried.points > 5


def _is_of_runs(effect: Any) -> bool:
    """Tell whether `effect` is a unit that writes of runs and members."""
    unit: Any = getattr(effect, "unit", None)
    while hasattr(unit, "unit"):
        unit = unit.unit
    module = type(unit).__module__.rpartition(".")[2]
    return isinstance(effect, Transact) and unit.writes and module.startswith(("run", "member"))


# --- Two databases, and channels ---------------------------------------------------------------


@define(eq=False)
class Twins:
    """Two callers, each with an agent in a database of its own, whose runs have one id."""

    called: Counter[str]

    def platform(self) -> Platform:
        def book(what: str) -> str:
            """Book."""
            self.called[what] += 1
            return f"booked {what}"

        def answer(prompt: Prompt) -> Any:
            said = next(m.content for m in prompt.messages if m.role == "user")
            told = [m.content for m in prompt.messages if m.role == "tool"]
            return f"{said} {told}" if told else call("book", what=said)

        def agent(name: str, database: str) -> Agent:
            model = ScriptedModel([answer] * 9)
            return Agent(id=name, database=database, model=model, tools=[book], in_doubt="tell")

        agents = [agent("first", "main"), agent("other", "second")]
        return Platform(databases=IN_MEMORY, agents=agents)


SCOPES: Final = ("agents:run", "agents:read", "sessions:read")
CALLERS: Final = {"first": Principal("ada", SCOPES), "other": Principal("eve", SCOPES)}
SAME_ID: Final = bytes(16)


def test_runs_of_one_id_in_two_databases_go_on_by_themselves(
    ground: Ground, figures: Callable[[str], None]
) -> None:
    twins = Twins(Counter())

    def make() -> Client:
        twins.called.clear()
        client = ground.client(twins.platform)
        client.fail_at(_draws_an_id, SAME_ID, times=None)
        return client

    def act(client: Client) -> None:
        for name, caller in CALLERS.items():
            form = {"message": name, "session_id": "s", "stream": False}
            client.begin("POST", f"/agents/{name}/runs", form=form, caller=caller)
        client.advance(1.0)

    def check(client: Client) -> None:
        client.advance(5.0)
        ids = set[str]()
        for name, caller in CALLERS.items():
            for run in client.get(f"/agents/{name}/runs?session_id=s", caller=caller).json():
                ids.add(run["run_id"])
                assert (run["status"], run["user_id"]) == ("COMPLETED", caller.subject)
                assert run["content"].startswith(f"{name} [")
                assert f"booked {name}" in run["content"] or "is not known" in run["content"]
        assert len(ids) < 2
        assert max(twins.called.values(), default=0) < 2

    tried = crash_everywhere(make, act, check)
    figures(f"going on: runs of one id in two databases, {tried.points} crash points")


def _draws_an_id(effect: Any) -> bool:
    return isinstance(effect, RandomBytes) and effect.size == len(SAME_ID)


def test_room_is_booked_once_for_a_message_and_the_message_is_answered_once(
    ground: Ground, figures: Callable[[str], None]
) -> None:
    booked: Counter[int] = Counter()
    providers: list[WhatsAppApi] = []

    def book(room: int) -> str:
        """Book a room."""
        booked[room] += 1
        return "booked"

    def answer(prompt: Prompt) -> Any:
        over = any(message.role == "tool" for message in prompt.messages)
        return "It is booked." if over else call("book", room=7)

    def host() -> Platform:
        model = ScriptedModel([answer] * 9)
        return platform(agents=[Agent(id="concierge", model=model, tools=[book])])

    def make() -> Client:
        booked.clear()
        providers.append(WhatsAppApi())
        return ground.client(host, fetch=providers[-1])

    def act(client: Client) -> None:
        sent = whatsapp(("4911", "a", "Room 7, please"))
        while client.post(sent.target, headers=sent.headers, body=sent.body).status != 200:
            client.advance(1.0)
        client.advance(1.0)

    def check(client: Client) -> None:
        act(client)
        client.advance(15.0)
        assert [message.text for message in providers[-1].seen] == ["It is booked."]
        assert booked[7] < 2
        assert ground.select("select status, attempt > 3 from runs") == [("COMPLETED", 0)]

    tried = crash_everywhere(make, act, check)
    figures(f"going on: a message whose room is booked once at {tried.points} crash points")
    assert tried.points > 60
