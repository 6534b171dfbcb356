"""A crash at every effect of a run, and two: it goes on, and comes to the end that it has without.

Of every kind of run there is: joined, streamed and in the background, with calls side by side, of
teams and of teams of teams, continued by people, through a channel, with a shaped output, and of a
function.  Nothing that must not be done twice is, and the log has everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import pytest
from attrs import define, evolve, field

from legation import Agent, Platform
from legation.config import InDoubt
from legation.models.conversation import Prompt
from legation.tools import tool
from legation_testing import Client, Crashed, Says, ScriptedModel, call, crash_everywhere

from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY
from .go_on_kit import CASES, Case, Ground, Outcome, World, finish, judge

pytestmark = pytest.mark.enumeration

PAIRS: Final = 1_000 if NIGHTLY else 30
DOUBTS: Final[tuple[tuple[InDoubt, str], ...]] = (
    ("ask", "confirm"),
    ("ask", "reject"),
    ("ask", "result"),
    ("end", "confirm"),
)
FEW: Final = ("side by side", "a function")


def _doubtful() -> Iterator[Case]:
    """Yield the cases with other ways to resolve a doubt, named after them."""
    for one in CASES:
        if one.component != "again" and (NIGHTLY or one.name in FEW):
            for in_doubt, answer in DOUBTS:
                name = f"{one.name}, {in_doubt} {answer}"
                yield evolve(one, name=name, in_doubt=in_doubt, answer=answer)


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.close()


@define(eq=False)
class Scene:
    """A case on its ground, again and again."""

    case: Case
    ground: Ground
    whole: Outcome = field(init=False)
    world: World = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.whole = finish(self.case, self.ground)

    def make(self) -> Client:
        self.world = World(self.case, self.ground)
        return self.ground.client(self.world.platform)

    def act(self, client: Client) -> None:
        try:
            self.world.ask(client)
        except Crashed:
            self.world.note_crash()
            raise

    def check(self, client: Client, crashes: int = 1) -> None:
        self.world.live(client)
        judge(self.world, client, self.whole, crashes)

    def crash_twice(self, first: int, second: int) -> bool:
        """Kill a node at an effect, and its successor; return whether there was a second crash."""
        client = self.make()
        crashes = [first, second]
        try:
            client.crash_at(first)
            going = self.act
            while crashes:
                try:
                    going(client)
                    client.forget_crash()
                    break
                except Crashed:
                    crashes.pop(0)
                    client.restart()
                    going = self.live
                    if crashes:
                        client.crash_at(crashes[0])
            self.check(client, 2 - len(crashes))
            client.check()
        except BaseException as error:
            error.add_note(f"killed at {first}, and its successor at {second}")
            raise
        finally:
            client.close()
        return not crashes

    def live(self, client: Client) -> None:
        try:
            self.world.live(client)
        except Crashed:
            self.world.note_crash()
            raise


@pytest.mark.parametrize("one", [*CASES, *_doubtful()], ids=lambda one: one.name)
def test_run_goes_on_after_a_crash_anywhere(
    one: Case, ground: Ground, figures: Callable[[str], None]
) -> None:
    scene = Scene(one, ground)
    tried = crash_everywhere(scene.make, scene.act, scene.check)

    figures(f"going on: {one.name}, crashed at each of {tried.points} effects")
    assert tried.points > 20


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
def test_run_goes_on_after_two_crashes(
    one: Case, ground: Ground, figures: Callable[[str], None]
) -> None:
    scene = Scene(one, ground)
    chance = Random(one.name)
    client = scene.make()
    begun = len(client.effects)
    scene.act(client)
    points = len(client.effects) - begun
    client.close()
    pairs = tried = 0
    while pairs < PAIRS:
        pairs += scene.crash_twice(chance.randint(1, points), chance.randint(1, points))
        tried += 1
        assert tried < 10 * PAIRS

    figures(f"going on: {one.name}, {pairs} pairs of crashes drawn")


def _count_going_on(ground: Ground, steps: int) -> int:
    """Return how many effects a node asks for in the second in which it takes up a run."""

    @tool(again="safe")
    def look(number: int) -> str:
        """Look."""
        return f"seen {number}"

    def answer(prompt: Prompt) -> Any:
        number = sum(message.role == "tool" for message in prompt.messages)
        if number < steps // 2:
            return call("look", number=number)
        return Says("It was seen.", after_seconds=50.0)

    def platform() -> Platform:
        model = ScriptedModel([answer] * 1_000)
        agent = Agent(id="looker", model=model, tools=[look], max_rounds=1_000)
        return Platform(databases=IN_MEMORY, agents=[agent])

    client = ground.client(platform)
    try:
        form = {"message": "go", "session_id": "s", "background": True}
        client.post("/agents/looker/runs", form=form)
        client.advance(1.0)
        client.crash()
        client.restart()
        begun = len(client.effects)
        client.advance(1.0)
        effects = len(client.effects) - begun
        client.advance(60.0)
        ended = ground.select("select r.status, count(*) from runs r join steps s using (run_id)")
        assert ended == [("COMPLETED", steps + 1)]
    finally:
        client.close()
    return effects


def test_going_on_asks_for_no_more_effects_where_there_are_a_thousand_steps(
    ground: Ground, figures: Callable[[str], None]
) -> None:
    few, many = _count_going_on(ground, 10), _count_going_on(ground, 1_000)

    figures(f"going on: {many} effects in the second in which a run of 1,000 steps is taken up")
    assert many == few
