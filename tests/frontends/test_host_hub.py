from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.store.run_rows import StoredEvent
from legation_host.hub import CHARACTERS, EVENTS_OF_A_RUN, REMEMBERED_SECONDS, RUNS, TOPICS, Hub

from .host_units import BACKENDS, run


def events(*seqs: int, data: str = "{}") -> tuple[StoredEvent, ...]:
    return tuple(StoredEvent(seq, "event", data) for seq in seqs)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("published", "after", "held"),
    [
        ([], 0, None),
        ([(1, 2, 3)], 0, (1, 2, 3)),
        ([(1, 2, 3)], 2, (3,)),
        ([(1, 2, 3)], 3, None),
        ([(1, 2, 3)], 9, None),
        ([(5, 6)], 4, (5, 6)),
        ([(5, 6)], 3, ()),  # the next one is not here: ask the database
        ([(1, 2), (3,)], 0, (1, 2, 3)),
        ([(1, 2), (2, 3)], 0, (1, 2, 3)),  # told twice
        ([(1, 2), (4,)], 3, (4,)),  # a gap: what was before it is forgotten
        ([(1, 2), (4,)], 1, ()),
        ([(3,), (2,)], 2, (3,)),  # told late
        ([(3,), (2,)], 1, ()),
    ],
)
def test_what_is_held_is_without_gap(
    published: list[tuple[int, ...]], after: int, held: tuple[int, ...] | None
) -> None:
    hub = Hub()
    for seqs in published:
        hub.publish("r", events(*seqs))

    assert hub.held("r", after) == (None if held is None else events(*held))


@given(st.lists(st.lists(st.integers(1, 30), max_size=5), max_size=20), st.integers(0, 30))
def test_whatever_is_published_what_is_held_follows_what_was_seen(
    published: list[list[int]], after: int
) -> None:
    hub = Hub()
    for seqs in published:
        hub.publish("r", events(*seqs))

    held = hub.held("r", after) or ()
    assert [event.seq for event in held] == list(range(after + 1, after + 1 + len(held)))


def test_publishing_nothing_is_nothing() -> None:
    hub = Hub()
    hub.publish("r", ())

    assert not hub._feeds


def test_a_run_keeps_its_last_events() -> None:
    hub = Hub()
    hub.publish("r", events(*range(1, EVENTS_OF_A_RUN + 11)))

    assert hub.held("r", 9) == ()
    assert len(hub.held("r", 10) or ()) == EVENTS_OF_A_RUN


def test_runs_not_heard_of_for_long_are_forgotten() -> None:
    clock = Clock()
    hub = Hub(clock)
    hub.publish("old", events(1))
    clock.now = REMEMBERED_SECONDS / 2
    hub.publish("newer", events(1))
    clock.now = REMEMBERED_SECONDS * 1.1
    hub.publish("new", events(1))

    assert list(hub._feeds) == ["newer", "new"]


def test_memory_is_bounded_in_runs_characters_and_topics() -> None:
    hub = Hub()
    for number in range(RUNS + 5):
        hub.publish(f"run {number}", events(1))
    for number in range(TOPICS + 5):
        hub.nudge(f"topic {number}")
    assert len(hub._feeds) == RUNS
    assert len(hub._nudged) == TOPICS

    big = "x" * (CHARACTERS // 4)
    for number in range(9):
        hub.publish(f"big {number}", events(1, data=big))
    assert hub._characters <= CHARACTERS
    assert hub._characters == sum(feed.characters for feed in hub._feeds.values())


@BACKENDS
def test_who_waits_is_told_at_once_and_all_of_them(backend: str) -> None:
    hub = Hub()
    heard: list[tuple[StoredEvent, ...]] = []

    async def main() -> None:
        async def follow() -> None:
            heard.append(await hub.next_events("r", 0, 20.0))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            hub.publish("other", events(1))
            await anyio.wait_all_tasks_blocked()
            assert not heard
            hub.publish("r", events(1, 2))

    run(backend, main)

    assert heard == [events(1, 2)] * 3
    assert not hub._events.waiting


@BACKENDS
def test_time_and_gaps_answer_with_nothing(backend: str) -> None:
    hub = Hub()

    async def main() -> None:
        assert await hub.next_events("r", 0, 0.01) == ()
        hub.publish("r", events(7))
        assert await hub.next_events("r", 0, 60.0) == ()

    run(backend, main)


@BACKENDS
def test_who_stops_waiting_leaves_nothing_behind(backend: str) -> None:
    hub = Hub()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.next_events, "r", 0, 60.0)
            tasks.start_soon(hub.next_events, "r", 0, 60.0)
            tasks.start_soon(hub.await_nudge, "t", 0, 60.0)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert not hub._events.waiting
        assert not hub._nudges.waiting

    run(backend, main)


@BACKENDS
def test_a_nudge_is_seen_by_who_was_away_and_by_who_waits(backend: str) -> None:
    hub = Hub()

    async def main() -> None:
        before = hub.sequence
        hub.nudge("t")
        with anyio.fail_after(1):
            await hub.await_nudge("t", before, 60.0)
        after = hub.sequence
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.await_nudge, "t", after, 60.0)
            await anyio.wait_all_tasks_blocked()
            hub.nudge("other")
            hub.nudge("t")
        await hub.await_nudge("t", hub.sequence, 0.01)

    run(backend, main)
