"""The nodes of a database: who is taken for dead, by whose clock, and who never is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.store.nodes import BEATS, Beat, Beaten, Bury, ClusterClock, advance
from legation.store.units import Dialect

from ...one_database import Database

BEAT = 5_000_000
LEASE = BEATS * BEAT
HOUR = 3_600_000_000
YEAR = 365 * 24 * HOUR
NEW_YEAR = 1_767_225_600_000_000
CLOCK = "cast((julianday('now') - 2440587.5) * 86400000000 as integer)"


class Base:
    """A database whose own clock the test sets."""

    def __init__(self) -> None:
        self.database = Database(rewrite=lambda text: text.replace(CLOCK, "now_us()"))
        self.now_us = NEW_YEAR
        self.database.connection.create_function("now_us", 0, lambda: self.now_us)

    def beat(self, node: str, after_us: int = 0, **changes: Any) -> Beaten:
        """Let `after_us` pass by the database's clock, then let a node beat."""
        self.now_us += after_us
        options: dict[str, Any] = {
            "lease_us": LEASE,
            "now_us": 7,
            "hosts": ("agent/clerk",),
            "place": "",
            "session_lock": False,
            "code_version": "1",
            "schema_version": "2.6.0",
        }
        return self.database.run(Beat(node, **(options | changes)))

    def living(self) -> list[str]:
        rows = self.database.ask("select node_id from nodes order by node_id")
        return [name for (name,) in rows]

    def clock(self) -> ClusterClock:
        ((up_us, seen_us, gap_us),) = self.database.ask(
            "select up_us, seen_us, gap_us from cluster"
        )
        return ClusterClock(up_us, seen_us, gap_us)


@pytest.fixture
def base() -> Base:
    return Base()


def names(beaten: Beaten) -> list[str]:
    return [node.name for node in beaten.others]


# --- the clock


clocks = st.builds(
    ClusterClock,
    up_us=st.integers(0, YEAR),
    seen_us=st.integers(0, 2 * NEW_YEAR),
    gap_us=st.integers(0, YEAR),
)


@given(clocks, st.integers(-(2**62), 2**62), st.integers(BEATS, HOUR))
def test_the_up_time_never_goes_back_and_advances_by_two_beats_at_most(
    clock: ClusterClock, database_us: int, lease_us: int
) -> None:
    after = advance(clock, database_us, lease_us)

    assert 0 <= after.up_us - clock.up_us <= 2 * (lease_us // BEATS)
    assert after.seen_us == database_us
    assert after.gap_us == (clock.gap_us if after.gap_us == clock.gap_us else after.up_us)


@pytest.mark.parametrize(
    ("passed", "advanced", "gap"),
    [
        (-YEAR, BEAT, True),
        (-BEAT - 1, BEAT, True),
        (-BEAT, 0, False),
        (0, 0, False),
        (2 * BEAT, 2 * BEAT, False),
        (2 * BEAT + 1, BEAT, True),
        (YEAR, BEAT, True),
    ],
)
def test_what_cannot_lie_between_two_beats_is_a_gap(passed: int, advanced: int, gap: bool) -> None:
    before = ClusterClock(up_us=100, seen_us=NEW_YEAR, gap_us=50)

    after = advance(before, NEW_YEAR + passed, LEASE)

    assert after.up_us == 100 + advanced
    assert after.gap_us == (after.up_us if gap else 50)


# --- living and dying


def test_a_node_enters_is_seen_and_beats_on(base: Base) -> None:
    first = base.beat("a", place="p", now_us=3)
    second = base.beat("b", hosts=("team/desk",))
    third = base.beat("a", BEAT)

    assert (first.last_us, first.others, first.buried, first.gap) == (None, (), (), True)
    assert (second.last_us, second.gap, names(second)) == (None, False, ["a"])
    (a,) = second.others
    assert (a.place, a.hosts, a.started_us, a.code_version) == ("p", ("agent/clerk",), 3, "1")
    assert (third.last_us, third.up_us) == (first.up_us, first.up_us + BEAT)
    assert [third.others[0].hosts, first.beats, third.beats] == [("team/desk",), 1, 3]
    assert third.database_us == base.now_us


def test_two_databases_know_nothing_of_each_other(base: Base) -> None:
    other = Base()
    base.beat("a")
    other.beat("b")

    assert (base.living(), other.living()) == (["a"], ["b"])
    assert base.database.run(Bury(("b",))) == ()


def test_who_is_silent_for_a_lease_is_taken_for_dead_by_the_next_beat(base: Base) -> None:
    base.beat("dead")
    for _ in range(BEATS):
        assert base.beat("a", BEAT).buried == ()
    assert base.beat("a", 1_000).buried == ("dead",)
    assert base.living() == ["a"]


def test_who_was_taken_for_dead_enters_again_under_its_name(base: Base) -> None:
    base.beat("a")
    for _ in range(BEATS + 1):
        base.beat("b", BEAT)
    again = base.beat("a")

    assert (again.last_us, names(again)) == (None, ["b"])
    assert base.living() == ["a", "b"]


def test_a_node_that_is_alone_never_takes_itself_for_dead(base: Base) -> None:
    base.beat("a")
    assert base.beat("a", YEAR).buried == ()
    base.database.connection.execute("update nodes set until_us = 0")
    assert base.beat("a", BEAT).buried == ()


def test_a_node_that_ends_buries_itself_and_nobody_twice(base: Base) -> None:
    base.beat("a")
    base.beat("b")

    assert base.database.run(Bury(("a", "no such'; --", "a"))) == ("a",)
    assert base.database.run(Bury(("a",))) == ()
    assert base.living() == ["b"]


@pytest.mark.parametrize("away", [LEASE // 3 + 1, LEASE, 10 * LEASE, YEAR, -YEAR, -LEASE])
def test_an_outage_of_any_length_and_a_clock_that_is_set_end_nobody(base: Base, away: int) -> None:
    for name in "abc":
        base.beat(name)
    base.beat("a", 2 * BEAT)

    back = base.beat("a", away)
    late = [base.beat(name, BEAT) for name in "abc"]

    assert back.gap
    assert [back.buried, *(beaten.buried for beaten in late)] == [()] * 4


def test_a_clock_set_a_year_ahead_and_back_delays_the_dead_alone(base: Base) -> None:
    base.beat("dead")
    base.beat("a")
    base.beat("a", YEAR)
    base.beat("a", BEAT)
    base.beat("a", -YEAR)
    up_us = [base.beat("a", BEAT).up_us for _ in range(2 * BEATS)]

    assert base.living() == ["a"]
    assert up_us == sorted(up_us)


def test_where_every_beat_is_a_gap_the_dead_are_still_buried(base: Base) -> None:
    base.beat("dead")
    beats = 0
    while "dead" in base.living():
        assert base.beat("a", 3 * BEAT).gap
        beats += 1
        assert beats <= 2 * BEATS + 1
    assert base.beat("a", 3 * BEAT).buried == ()


def test_a_gap_shortens_no_lease_of_a_node_with_a_longer_one(base: Base) -> None:
    base.beat("long", lease_us=10 * LEASE)
    ((before,),) = base.database.ask("select until_us from nodes")

    assert base.beat("short", HOUR).gap

    assert base.database.ask("select until_us from nodes where node_id = 'long'") == [(before,)]


def test_a_cluster_without_its_row_begins_anew(base: Base) -> None:
    base.beat("a")
    base.beat("a", BEAT)
    base.database.connection.execute("delete from cluster")

    again = base.beat("a", BEAT)

    assert (again.beats, again.gap, base.living()) == (1, True, ["a"])


def test_on_postgresql_a_node_whose_session_ended_is_suspected_after_two_beats() -> None:
    beat = Beat("a", LEASE, 7, (), "", True, "1", "2.6.0")
    work = beat.statements(Dialect.POSTGRESQL)
    next(work)
    work.send([(100 * BEAT, NEW_YEAR, BEAT, 9, NEW_YEAR + BEAT)])
    deletion = work.send([])

    assert "pg_locks" in deletion.text(Dialect.POSTGRESQL)
    assert deletion.parameters["suspect_us"] == 99 * BEAT
    assert deletion.parameters["gap_us"] == BEAT
    assert "pg_locks" not in deletion.text(Dialect.SQLITE)


# --- any order of beats and outages


class Crowd:
    """Nodes that keep the rule: each that lives beats within a third of a lease of up-time.

    Time before the first gap since its last beat does not count: then the database was away.
    """

    def __init__(self, living: int, dead: int) -> None:
        self.base = Base()
        self.living = [f"node-{number}" for number in range(living)]
        self.dead = [f"dead-{number}" for number in range(dead)]
        self.beaten: dict[str, int] = {}
        self.since: dict[str, int] = {}
        self.died_us = 0
        for name in (*self.dead, *self.living):
            self.died_us = self.beat(name)

    def beat(self, name: str) -> int:
        before = self.base.clock()
        beaten = self.base.beat(name)
        assert not {*beaten.buried} & {*self.living}
        assert {*names(beaten)} >= {*self.living} & self.since.keys() - {name}
        for other, beaten_us in self.beaten.items():
            if beaten.gap and beaten_us >= before.gap_us:
                self.since[other] = beaten.up_us
        self.beaten[name] = self.since[name] = beaten.up_us
        return beaten.up_us

    def pass_time(self, passed_us: int, name: str) -> None:
        """Let time pass and `name` beat, behind those that must not wait for it."""
        self.base.now_us += passed_us
        while late := self._find_late():
            self.beat(late[0])
        self.beat(name)

    def _find_late(self) -> Sequence[str]:
        before = self.base.clock()
        after = advance(before, self.base.now_us, LEASE)
        gap = after.gap_us != before.gap_us
        return [
            name
            for name in self.living
            if not (gap and self.beaten[name] >= before.gap_us)
            and after.up_us - self.since[name] > LEASE // 3
        ]


times = st.one_of(
    st.integers(0, 2 * BEAT),
    st.integers(2 * BEAT + 1, 2 * LEASE),
    st.sampled_from([YEAR, -YEAR, -BEAT, -BEAT - 1, LEASE, 2 * BEAT]),
)


@given(
    st.integers(1, 4),
    st.integers(0, 2),
    st.lists(st.tuples(times, st.integers(0, 3)), max_size=60),
)
def test_nobody_who_lives_is_buried_and_nobody_who_is_dead_stays(
    living: int, dead: int, beats: list[tuple[int, int]]
) -> None:
    crowd = Crowd(living, dead)
    for passed_us, index in beats:
        crowd.pass_time(passed_us, crowd.living[index % living])
        up_us = crowd.base.clock().up_us
        if up_us > crowd.died_us + 2 * LEASE + BEAT:
            assert crowd.base.living() == sorted(crowd.living)
    assert {*crowd.base.living()} >= {*crowd.living}


@given(st.lists(times, min_size=3 * BEATS, max_size=40), st.integers(1, 3))
def test_the_dead_are_buried_whatever_the_clock_does(passed: list[int], dead: int) -> None:
    crowd = Crowd(1, dead)
    while crowd.base.clock().up_us <= crowd.died_us + 2 * LEASE + BEAT:
        for passed_us in (*passed, BEAT):
            crowd.pass_time(passed_us, "node-0")

    assert crowd.base.living() == ["node-0"]
