"""The job that keeps a node alive: when it beats, whom it buries, and what it lets go."""

from __future__ import annotations

from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, Platform
from legation.effects import (
    FindDead,
    HoldName,
    Job,
    Log,
    NameHeld,
    Now,
    Nudge,
    Program,
    Sleep,
    ThisNode,
    Transact,
)
from legation.runs.executor import ExecutorContext
from legation.runs.keep_alive import KeepAlive
from legation.runs.membership import Membership
from legation.runs.rounds import attempt
from legation.runs.topics import runs_topic
from legation.store.failures import Unavailable
from legation.store.nodes import Beat, Beaten, Bury, OtherNode
from legation.store.run_keeping import ExpireRuns, LeasedRuns
from legation_testing import close_at_every_effect, play

NOW: Final = 1_767_225_600_000_000
BEAT: Final = 5_000_000
FIRST: Final = Beaten(NOW, 100, 10, None, False, (), ())
BESIDE: Final = OtherNode("beside", "here", (), NOW, 90, "1", "2.11.0")
ELSEWHERE: Final = OtherNode("elsewhere", "there", (), NOW, 90, "1", "2.11.0")


def beats(effect: object) -> bool:
    return isinstance(getattr(effect, "unit", None), Beat)


def says_so(effect: object) -> bool:
    return isinstance(effect, Log) and effect.event == "beat_failed"


class Node:
    """A node with its job for one database."""

    def __init__(self, database: str = "main", place: str = "here") -> None:
        platform = Platform(agents=[Agent(id="clerk")])
        self.context: ExecutorContext = platform.context
        self.job = KeepAlive(self.context, database)
        self.place = place

    @property
    def member(self) -> Membership:
        return self.context.cluster.member(self.job.database)

    def beat(self, beaten: Any, at_us: int = NOW) -> list[tuple[Any, Any]]:
        """Return the script of a beat."""
        database = self.job.database
        script: list[tuple[Any, Any]] = [
            (HoldName(database, "a"), NameHeld(self.place)),
            (Now(), at_us),
            (beats, beaten),
        ]
        return [*script, (Now(), at_us)] if isinstance(beaten, Beaten) else script

    def round(self, *script: tuple[Any, Any], at_us: int = NOW) -> None:
        more = play(self.job.round(), [(ThisNode(), "a"), (Now(), at_us), *script])
        assert more is False

    def compare(self, *leased: tuple[str, int]) -> tuple[Any, Any]:
        return (Transact(self.job.database, LeasedRuns("a")), leased)


@pytest.fixture
def node() -> Node:
    """A node that has just beaten, and compared its leases."""
    node = Node()
    node.round(*node.beat(FIRST), node.compare())
    return node


def test_the_first_round_beats_and_compares(node: Node) -> None:
    assert (node.member.beaten_us, node.member.compared_us) == (NOW, NOW)


def test_nothing_is_due_until_a_beat_is(node: Node) -> None:
    node.round(at_us=NOW + BEAT - 1)
    later = evolve(FIRST, beats=11, up_us=105, last_us=100, database_us=NOW + BEAT)
    node.round(*node.beat(later, NOW + BEAT), at_us=NOW + BEAT)


def test_it_goes_round_every_second_also_after_trouble(node: Node) -> None:
    assert isinstance(node.job, Job)
    assert node.job.pause == node.job.after_trouble == Sleep(1.0)
    program = node.job.program()
    assert next(program) == ThisNode()
    program.send("a")
    assert program.send(NOW) == Sleep(1.0)


def test_a_beat_that_fails_is_due_again_and_is_written_down(node: Node) -> None:
    late = NOW + BEAT
    for _ in range(2):
        with pytest.raises(Unavailable):
            node.round(*node.beat(Unavailable(), late), at_us=late)

    script = [(ThisNode(), "a"), (Now(), late), *node.beat(Unavailable(), late)]
    assert play(attempt(node.job), [*script, (says_so, None)]).trouble


def test_a_node_that_has_left_beats_no_more(node: Node) -> None:
    node.context.cluster.left = True

    node.round(node.compare(), at_us=NOW + 100 * BEAT)


def test_who_was_silent_is_taken_up_at_once() -> None:
    node = Node()
    buried = evolve(FIRST, buried=("dead",))
    line = Log("warning", "node_lost", (("database", "main"), ("node", "dead")))

    nudge = (Nudge(runs_topic("main")), None)
    node.round(*node.beat(buried), (line, None), nudge, node.compare())


def test_who_was_killed_beside_it_is_buried_and_nobody_elsewhere() -> None:
    node = Node()
    found = evolve(FIRST, others=(BESIDE, ELSEWHERE))
    line = Log("warning", "node_lost", (("database", "main"), ("node", "beside")))
    node.round(
        *node.beat(found),
        (FindDead("main", ("beside",)), ("beside",)),
        (Transact("main", Bury(("beside",))), ("beside",)),
        (line, None),
        (Nudge(runs_topic("main")), None),
        node.compare(),
    )

    assert (node.member.others, node.member.buried) == ((ELSEWHERE,), 1)
    node.round(at_us=NOW + 1)


def test_who_is_buried_by_another_is_not_counted_twice() -> None:
    node = Node()
    node.round(
        *node.beat(evolve(FIRST, others=(BESIDE,))),
        (FindDead("main", ("beside",)), ("beside",)),
        (Transact("main", Bury(("beside",))), ()),
        (Nudge(runs_topic("main")), None),
        node.compare(),
    )

    assert (node.member.others, node.member.buried) == ((), 0)


def test_who_lives_beside_it_is_asked_for_every_round() -> None:
    node = Node()
    alive = (FindDead("main", ("beside",)), ())
    node.round(*node.beat(evolve(FIRST, others=(BESIDE,))), alive, node.compare())
    node.round(alive, at_us=NOW + 1)


def test_where_nobody_can_tell_nobody_is_asked_for() -> None:
    node = Node(place="")
    others = (evolve(BESIDE, place=""), ELSEWHERE)

    node.round(*node.beat(evolve(FIRST, others=others)), node.compare())


def test_leases_without_a_program_lapse_in_their_database_alone() -> None:
    node = Node("second")
    node.round(*node.beat(FIRST), node.compare(("r", 1)))
    half, beaten = NOW + 3 * BEAT, evolve(FIRST, beats=11, up_us=105, last_us=100)
    line = Log("warning", "runs_orphaned", (("database", "second"), ("runs", 1)))
    node.round(
        *node.beat(evolve(beaten, database_us=half), half),
        node.compare(("r", 1)),
        (Transact("second", ExpireRuns("a", (("r", 1),))), None),
        (line, None),
        at_us=half,
    )


def test_it_is_silent_while_unwinding() -> None:
    script = [(ThisNode(), "a"), (Now(), NOW), *Node().beat(FIRST), Node().compare()]

    def make_round() -> Program[bool]:
        return Node().job.round()

    assert close_at_every_effect(make_round, script) == len(script)
