"""The membership of a node: its beats, what they show, and the leases that are its own."""

from __future__ import annotations

from typing import Any, Final

import pytest
from attrs import evolve

from legation.effects import HoldName, Log, NameHeld, Now, Nudge, ThisNode, Transact
from legation.runs.membership import (
    RESTORED,
    RETURNED,
    Cluster,
    Membership,
    NodeTerms,
    compare_leases,
    enter,
    leave,
)
from legation.runs.register import InFlight
from legation.runs.topics import cancel_topic
from legation.store.failures import CommitLost, Unavailable
from legation.store.nodes import Beat, Beaten, Bury, OtherNode
from legation.store.run_keeping import ExpireRuns, LeasedRuns
from legation.version import VERSION
from legation_testing import close_at_every_effect, play

BEAT: Final = 5_000_000
LEASE: Final = 6 * BEAT
NOW: Final = 1_767_225_600_000_000
TERMS: Final = NodeTerms(LEASE, ("agent/clerk",), "2.6.0")
OTHER: Final = OtherNode("b", "p", (), NOW, 90, "1", "2.11.0")
FIRST: Final = Beaten(NOW, 100, 10, None, False, (), ())


def beat_at(now_us: int) -> Beat:
    return Beat("a", LEASE, now_us, ("agent/clerk",), "p", True, VERSION, "2.6.0")


def beat(
    member: Membership,
    beaten: Beaten | Exception,
    *logs: Log,
    now_us: int = NOW,
    after_us: int | None = None,
) -> None:
    """Let `member` beat, which shows `beaten` and is written to the log as `logs`."""
    database = member.database
    script: list[tuple[Any, Any]] = [
        (HoldName(database, "a"), NameHeld("p", session=True)),
        (Now(), now_us),
        (Transact(database, beat_at(now_us)), beaten),
    ]
    if isinstance(beaten, Beaten):
        script += [
            (Now(), now_us if after_us is None else after_us),
            *((log, None) for log in logs),
        ]
    play(member.beat("a"), script)


def line(level: str, event: str, *fields: tuple[str, Any], database: str = "main") -> Log:
    return Log(level, event, (("database", database), *fields))


@pytest.fixture
def member() -> Membership:
    """A membership that has beaten once."""
    member = Membership("main", TERMS)
    beat(member, FIRST)
    return member


SECOND: Final = evolve(FIRST, beats=11, up_us=105, last_us=100)


# --- beats


def test_a_beat_keeps_what_it_shows(member: Membership) -> None:
    beat(member, evolve(SECOND, others=(OTHER,)), now_us=NOW + 9)

    assert (member.beaten_us, member.late_us) == (NOW + 9, NOW + 9 + 2 * BEAT)
    assert (member.place, member.others, member.beats, member.up_us) == ("p", (OTHER,), 11, 105)
    assert (member.started_us, member.doubt, member.skew_us) == (NOW, "", 9)


@pytest.mark.parametrize("failure", [Unavailable(), CommitLost()])
def test_a_beat_that_failed_leaves_everything_as_it_was(
    member: Membership, failure: Exception
) -> None:
    with pytest.raises(type(failure)):
        beat(member, failure, now_us=NOW + BEAT)

    assert (member.beaten_us, member.late_us) == (NOW, NOW + 2 * BEAT)
    beat(member, evolve(SECOND, beats=12, last_us=104), now_us=NOW + BEAT + 1)
    assert not member.doubt


def test_a_beat_on_the_way_is_no_matter_of_who_asks_for_it(member: Membership) -> None:
    hold = (HoldName("main", "a"), NameHeld("p", session=True))
    play(
        member.try_to_beat("a"),
        [hold, (Now(), NOW), (Transact("main", beat_at(NOW)), Unavailable())],
    )
    play(
        member.try_to_beat("a"),
        [hold, (Now(), NOW), (Transact("main", beat_at(NOW)), SECOND), (Now(), NOW)],
    )
    assert member.beats == 11


@pytest.mark.parametrize(
    ("passed", "due"),
    [(0, False), (BEAT - 1, False), (BEAT, True), (10 * LEASE, True), (-1, True)],
)
def test_a_beat_is_due_after_its_time_and_where_the_clock_was_set_back(
    member: Membership, passed: int, due: bool
) -> None:
    assert member.is_due(NOW + passed) is due


def test_who_is_taken_for_dead_is_written_down_and_counted(member: Membership) -> None:
    beat(
        member,
        evolve(SECOND, others=(OTHER,), buried=("c", "d")),
        line("warning", "node_lost", ("node", "c")),
        line("warning", "node_lost", ("node", "d")),
    )

    assert (member.buried, member.others) == (2, (OTHER,))


def test_a_gap_is_written_down_and_nothing_is_in_doubt(member: Membership) -> None:
    beat(member, evolve(SECOND, gap=True), line("info", "cluster_paused"))

    assert not member.doubt


def test_the_first_beat_of_a_process_says_nothing_of_the_past() -> None:
    member = Membership("main", TERMS)

    beat(member, evolve(FIRST, gap=True))

    assert not member.doubt


# --- a database that went back, and a node that was away


@pytest.mark.parametrize(
    "change",
    [
        {"beats": 10},
        {"beats": 1, "up_us": 5, "last_us": None},
        {"up_us": 99, "last_us": 98},
        {"last_us": 99},
        {"up_us": 99, "last_us": None},
    ],
    ids=["count", "other database", "up-time", "own row", "up-time without its row"],
)
def test_a_database_that_went_back_was_restored(member: Membership, change: Any) -> None:
    restored = evolve(SECOND, **change)

    beat(member, restored, line("error", "database_restored"), now_us=NOW + BEAT)

    assert member.doubt == RESTORED
    beat(member, evolve(restored, beats=99, up_us=999, last_us=restored.up_us), now_us=NOW + BEAT)
    assert member.doubt == RESTORED


def test_a_node_whose_row_is_gone_was_taken_for_dead(member: Membership) -> None:
    beat(member, evolve(SECOND, last_us=None), line("warning", "node_returned"))

    assert member.doubt == RETURNED


def test_beats_side_by_side_whose_answers_overtake_each_other_are_no_restoring(
    member: Membership,
) -> None:
    slow = member.beat("a")
    next(slow)
    slow.send(NameHeld("p", session=True))
    slow.send(NOW)
    beat(member, evolve(SECOND, beats=12, up_us=107, last_us=105))
    slow.send(SECOND)
    with pytest.raises(StopIteration):
        slow.send(NOW)

    assert not member.doubt


def test_one_database_in_doubt_is_no_other(member: Membership) -> None:
    second = Membership("second", TERMS)
    beat(second, FIRST)
    beat(second, FIRST, line("error", "database_restored", database="second"))

    assert (member.doubt, second.doubt) == ("", RESTORED)


# --- the clock


@pytest.mark.parametrize(
    ("database_us", "after_us", "skew_us"),
    [
        (NOW, NOW, 0),
        (NOW + 5, NOW + 9, 0),
        (NOW - 7, NOW + 9, 7),
        (NOW + 20, NOW + 9, -11),
    ],
)
def test_clocks_differ_by_what_the_way_of_the_answer_does_not_explain(
    member: Membership, database_us: int, after_us: int, skew_us: int
) -> None:
    beat(member, evolve(SECOND, database_us=database_us), after_us=after_us)

    assert (member.skew_us, member.skewed) == (skew_us, False)


@pytest.mark.parametrize("seconds", [90.0, -90.0, 10.000001])
def test_a_clock_that_is_wrong_is_written_down_once_and_when_it_is_right_again(
    member: Membership, seconds: float
) -> None:
    wrong = evolve(SECOND, database_us=NOW - round(seconds * 1_000_000))

    beat(member, wrong, line("warning", "clock_differs", ("seconds", seconds)))
    beat(member, evolve(wrong, beats=12, last_us=105))
    assert member.skewed
    beat(
        member,
        evolve(SECOND, beats=13, last_us=105),
        line("info", "clock_agrees", ("seconds", 0.0)),
    )
    assert not member.skewed


# --- parts of what nodes share


def test_a_beat_shows_how_many_nodes_share_a_limit() -> None:
    cluster = Cluster(TERMS)
    main, spare = cluster.member("main"), cluster.member("spare")
    third = evolve(OTHER, name="c")

    beat(main, evolve(FIRST, others=(OTHER, third)))
    beat(spare, evolve(FIRST, others=(OTHER,)))
    assert cluster.shares.nodes == 3

    beat(
        main,
        evolve(SECOND, others=(OTHER, third), buried=("b", "c")),
        line("warning", "node_lost", ("node", "b")),
        line("warning", "node_lost", ("node", "c")),
    )
    assert cluster.shares.nodes == 2


# --- entering and leaving


def test_who_has_beaten_lately_enters_without_a_question(member: Membership) -> None:
    cluster = Cluster(TERMS)
    assert cluster.member("main") is cluster.member("main") is cluster.members["main"]
    late = cluster.member("main")
    late.beaten_us, late.late_us = NOW, NOW + 2 * BEAT

    now_us = NOW + 2 * BEAT - 1
    assert play(enter(cluster, "main"), [(ThisNode(), "a"), (Now(), now_us)]) == ("a", now_us)


@pytest.mark.parametrize("now_us", [NOW + 2 * BEAT, NOW - 1])
def test_who_has_not_beats_first(now_us: int) -> None:
    cluster = Cluster(TERMS)
    member = cluster.member("main")
    member.beaten_us, member.late_us = NOW, NOW + 2 * BEAT
    script: list[tuple[Any, Any]] = [
        (ThisNode(), "a"),
        (Now(), now_us),
        (HoldName("main", "a"), NameHeld("p", session=True)),
        (Now(), now_us),
        (Transact("main", beat_at(now_us)), evolve(SECOND, database_us=now_us)),
        (Now(), now_us),
    ]

    assert play(enter(cluster, "main"), script) == ("a", now_us)
    assert "second" not in cluster.members


def test_who_is_in_doubt_compares_its_leases_where_no_job_does() -> None:
    cluster = Cluster(TERMS)
    member = cluster.member("main")
    member.beaten_us, member.late_us, member.doubt = NOW, NOW + 2 * BEAT, RESTORED
    leased = (Transact("main", LeasedRuns("a")), ())

    play(enter(cluster, "main"), [(ThisNode(), "a"), (Now(), NOW), leased])

    assert not member.doubt


def test_who_leaves_is_buried_where_it_had_entered_and_nowhere_twice() -> None:
    cluster = Cluster(TERMS)
    for database in ("main", "second", "third"):
        cluster.member(database).late_us = NOW
    cluster.member("never entered")
    buried = [(Transact("second", Bury(("a",))), ("a",)), (Transact("third", Bury(("a",))), ())]

    play(
        leave(cluster),
        [(ThisNode(), "a"), (Transact("main", Bury(("a",))), Unavailable()), *buried],
    )

    assert cluster.left
    play(leave(cluster), [(ThisNode(), "a")])


# --- leases and programs


class Executing:
    """A node that executes runs."""

    def __init__(self, *runs: tuple[str, str, int]) -> None:
        self.cluster = Cluster(TERMS)
        self.registers = [InFlight[int](), InFlight[int]()]
        for number, (database, run_id, attempt) in enumerate(runs):
            self.registers[number % 2].enter((database, run_id), attempt)
        for register in self.registers:
            self.cluster.executing.add(register)
        self.member = self.cluster.member("main")

    def compare(
        self, leased: Any, *more: tuple[Any, Any], after_us: int = 0, at_us: int = NOW
    ) -> None:
        script = [(Transact("main", LeasedRuns("a")), leased), *more]
        play(compare_leases(self.cluster, self.member, "a", at_us + after_us), script)


def expired(*runs: tuple[str, int]) -> tuple[tuple[Any, Any], ...]:
    return (
        (Transact("main", ExpireRuns("a", runs)), None),
        (line("warning", "runs_orphaned", ("runs", len(runs))), None),
    )


def test_a_lease_that_no_program_stands_for_at_two_looks_lapses() -> None:
    node = Executing(("main", "r", 1), ("main", "s", 1), ("second", "orphan", 1))
    leased = (("r", 1), ("s", 1), ("orphan", 1), ("s", 2))

    node.compare(leased)
    node.compare(leased, *expired(("orphan", 1), ("s", 2)), after_us=LEASE // 2)
    node.compare(leased, after_us=LEASE)


def test_a_lease_whose_program_has_begun_at_the_second_look_stays() -> None:
    node = Executing()
    node.compare((("r", 1), ("other", 1)))
    node.registers[0].enter(("main", "r"), 1)

    node.compare((("r", 1),), after_us=LEASE // 2)

    assert node.member.orphans == frozenset()


def test_between_two_looks_lies_half_a_lease_and_in_doubt_a_beat() -> None:
    node = Executing()
    node.compare(())
    play(compare_leases(node.cluster, node.member, "a", NOW + LEASE // 2 - 1), [])
    node.member.doubt = RETURNED
    play(compare_leases(node.cluster, node.member, "a", NOW + BEAT - 1), [])
    node.compare((), after_us=BEAT)
    assert not node.member.doubt


def test_a_program_without_a_lease_is_interrupted_but_not_one_that_claimed_anew() -> None:
    node = Executing(("main", "lost", 1), ("main", "again", 1), ("main", "again", 2))
    node.registers[1].enter(("second", "elsewhere"), 1)

    node.compare((("again", 2),), (Nudge(cancel_topic("main", "lost")), None))


def test_doubt_ends_when_every_lease_from_before_has_a_program_or_has_lapsed() -> None:
    node = Executing(("main", "r", 1))
    node.member.doubt = RESTORED
    node.compare((("r", 1), ("orphan", 1)))
    assert node.member.doubt == RESTORED

    node.compare(
        (("orphan", 1), ("new", 1)),
        (Nudge(cancel_topic("main", "r")), None),
        *expired(("orphan", 1)),
        after_us=BEAT,
    )

    assert (node.member.doubt, node.member.orphans) == ("", frozenset({("new", 1)}))


def test_doubt_stays_while_the_database_does_not_answer() -> None:
    node = Executing()
    node.member.doubt = RESTORED
    node.compare((("orphan", 1),))
    (expire, _), _ = expired(("orphan", 1))
    for beats in (1, 2):
        with pytest.raises(Unavailable):
            node.compare((("orphan", 1),), (expire, Unavailable()), after_us=beats * BEAT)
    assert node.member.doubt == RESTORED

    node.compare((("orphan", 1),), *expired(("orphan", 1)), after_us=3 * BEAT)
    assert not node.member.doubt


def test_a_doubt_that_comes_up_during_a_look_is_not_ended_by_it() -> None:
    node = Executing()
    node.member.doubt, node.member.late_us, node.member.beats = RETURNED, NOW, 10
    look = compare_leases(node.cluster, node.member, "a", NOW)
    next(look)
    beat(node.member, FIRST, line("error", "database_restored"))
    with pytest.raises(StopIteration):
        look.send(())

    assert (node.member.doubt, node.member.orphans) == (RESTORED, None)


def test_a_process_knows_all_its_work() -> None:
    node = Executing(("main", "r", 1), ("main", "s", 2), ("second", "r", 3))
    working = InFlight[object]()
    working.enter(("inbox", "chat", "m"), "lease")
    node.cluster.member("main").letters.registers.add(working)

    assert node.cluster.attempts_in("main") == {("r", 1), ("s", 2)}
    assert node.cluster.executes("second", "r", 3)
    assert not node.cluster.executes("second", "r", 1)
    assert node.cluster.member("main").letters.holds(("inbox", "chat", "m"), "lease")
    assert not node.cluster.member("second").letters.holds(("inbox", "chat", "m"), "lease")


def test_nothing_is_asked_of_the_world_while_unwinding() -> None:
    hold = (HoldName("main", "a"), NameHeld("p", session=True))
    script = [hold, (Now(), NOW), (Transact("main", beat_at(NOW)), FIRST), (Now(), NOW)]

    assert close_at_every_effect(lambda: Membership("main", TERMS).beat("a"), script) == 4


# --- Whom to tell of work ----------------------------------------------------------------------


def test_other_nodes_are_told_of_work_each_in_its_turn() -> None:
    others = tuple(evolve(OTHER, name=name) for name in "bcd")
    members = [Membership("main", TERMS, others=others, started_us=one) for one in (NOW, NOW + 1)]

    told = [[member.next_other() for _ in range(6)] for member in members]

    assert [sorted(map(str, names)) for names in told] == [[*"bbccdd"]] * 2
    assert told[0][0] != told[1][0]


def test_who_knows_of_no_other_node_names_none() -> None:
    assert Membership("main", TERMS).next_other(()) is None


def test_what_is_not_hosted_here_is_told_to_a_node_that_hosts_more() -> None:
    hosts = {"b": ("agent/clerk",), "c": ("agent/clerk", "agent/cook"), "d": ()}
    others = tuple(evolve(OTHER, name=name, hosts=what) for name, what in hosts.items())
    member = Membership("main", TERMS, others=others)

    assert {member.next_other(("agent/clerk",)) for _ in range(6)} == {"c"}
    assert {member.next_other(("agent/clerk", "agent/cook")) for _ in range(6)} == {"b", "c", "d"}
