"""A crash at every effect of a run, and two: it goes on, and comes to the end that it has without.

Of every kind of run there is: joined, streamed and in the background, with calls side by side, of
teams and of teams of teams, continued by people, through a channel, with a shaped output, and of a
function.  Nothing that must not be done twice is, and the log has everything once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import pytest
from attrs import define, evolve, field

from legation_testing import Client, Crashed, crash_everywhere

from .cluster_kit import NIGHTLY
from .go_on_kit import CASES, Case, Ground, Outcome, World, finish, judge

pytestmark = pytest.mark.enumeration

PAIRS: Final = 1_000 if NIGHTLY else 30
DOUBTS: Final = (("ask", "confirm"), ("ask", "reject"), ("ask", "result"), ("end", "confirm"))
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
