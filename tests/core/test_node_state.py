from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.node_state import (
    CHARACTERS,
    ENDED_RUNS,
    EVENTS_OF_A_RUN,
    REMEMBERED_SECONDS,
    RUNS,
    TOPICS,
    NodeState,
    digest,
)
from legation.store.run_rows import StoredEvent


def events(*seqs: int, data: str = "{}") -> tuple[StoredEvent, ...]:
    return tuple(StoredEvent(seq, "event", data) for seq in seqs)


def fresh(events_of_a_run: int = EVENTS_OF_A_RUN) -> NodeState[str]:
    return NodeState(events_of_a_run)


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
        ([(5, 6)], 0, ()),
        ([(1, 2), (3,)], 0, (1, 2, 3)),
        ([(1, 2), (2, 3)], 0, (1, 2, 3)),  # told twice
        ([(1, 2), (4,)], 3, (4,)),  # a gap: what was before it is forgotten
        ([(1, 2), (4,)], 1, ()),
        ([(3,), (2,)], 2, (3,)),  # told late
        ([(3,), (2,)], 1, ()),
        ([(1, 2, 3, 4, 5)], 0, ()),  # one more than are kept
        ([(1, 2, 3, 4, 5)], 1, (2, 3, 4, 5)),
    ],
)
def test_what_is_held_is_without_gap(
    published: list[tuple[int, ...]], after: int, held: tuple[int, ...] | None
) -> None:
    state = fresh(4)
    for seqs in published:
        state.publish("r", events(*seqs), 0.0)

    found = None if held is None else events(*held)
    assert state.held_events("r", after) == found
    assert state.next_events("r", after, "me") == found


def test_gap_is_told_once() -> None:
    """Else who follows a run whose events began anew would ask for ever, without a pause."""
    state = fresh(4)
    state.publish("r", events(3, 4), 0.0)

    assert state.next_events("r", 0, "me") == ()
    assert state.next_events("r", 0, "me") is None
    state.leave("me")
    state.publish("r", events(5), 0.0)
    assert state.next_events("r", 4, "me") == events(5)


@given(st.lists(st.lists(st.integers(1, 30), max_size=5), max_size=20), st.integers(0, 30))
def test_whatever_is_published_what_is_held_follows_what_was_seen(
    published: list[list[int]], after: int
) -> None:
    state = fresh()
    for seqs in published:
        state.publish("r", events(*seqs), 0.0)

    held = state.held_events("r", after) or ()
    assert [event.seq for event in held] == list(range(after + 1, after + 1 + len(held)))


def test_publishing_nothing_keeps_nothing_and_wakes_who_follows() -> None:
    """A run that is released has nothing to show, and whoever follows it has to look."""
    state = fresh()
    state.next_events("r", 0, "me")
    state.next_events("other", 0, "you")

    assert state.publish("r", (), 0.0) == ("me",)
    assert state.publish("r", (), 0.0) == ()
    assert (state.runs_held, state.followers) == (0, 1)


def test_events_of_another_run_are_not_told() -> None:
    state = fresh()
    state.publish("other", events(1), 0.0)

    assert state.next_events("r", 0, "me") is None


def test_a_run_keeps_its_last_events() -> None:
    state = fresh()
    state.publish("r", events(*range(1, EVENTS_OF_A_RUN + 11)), 0.0)

    assert state.held_events("r", 9) == ()
    assert len(state.held_events("r", 10) or ()) == EVENTS_OF_A_RUN


def test_runs_not_heard_of_for_long_are_forgotten() -> None:
    state = fresh()
    state.publish("old", events(1), 0.0)
    state.publish("newer", events(1), REMEMBERED_SECONDS / 2)
    state.publish("new", events(1), REMEMBERED_SECONDS * 1.1)

    assert list(state._feeds) == ["newer", "new"]


def ended(seq: int) -> tuple[StoredEvent, ...]:
    return (StoredEvent(seq, "event", "{}", final=True),)


def test_few_runs_that_have_ended_are_held() -> None:
    state = fresh()
    state.publish("r", events(1), 0.0)
    for number in range(ENDED_RUNS + 5):
        state.publish(f"run {number}", ended(1), 0.0)

    assert [*state._feeds] == ["r", *(f"run {number}" for number in range(5, ENDED_RUNS + 5))]
    assert state._characters == sum(feed.characters for feed in state._feeds.values())
    assert len(state._ended) == ENDED_RUNS


def test_a_run_that_was_continued_behind_its_end_is_held() -> None:
    state = fresh()
    state.publish("paused", ended(1), 0.0)
    state.publish("paused", events(2), 0.0)
    for number in range(ENDED_RUNS):
        state.publish(f"run {number}", ended(1), 0.0)

    assert state.held_events("paused", 1) == events(2)


def test_a_run_that_is_forgotten_before_those_that_ended_is_no_loss() -> None:
    state = fresh()
    state.publish("r", ended(1), 0.0)
    for number in range(ENDED_RUNS + 1):
        state.publish(f"run {number}", ended(1), REMEMBERED_SECONDS + 1)

    assert state.held_events("r", 0) is None
    assert state.runs_held == ENDED_RUNS


def test_who_waits_for_the_end_of_a_run_takes_it() -> None:
    state = fresh()
    for number in range(ENDED_RUNS):
        state.publish(f"run {number}", ended(1), 0.0)
    state.next_events("r", 0, "me")

    assert state.publish("r", ended(1), 0.0) == ("me",)
    assert state.held_events("r", 0) == ended(1)


def test_memory_is_bounded_in_runs_characters_and_topics() -> None:
    state = fresh()
    for number in range(RUNS + 5):
        state.publish(f"run {number}", events(1), 0.0)
    for number in range(TOPICS + 5):
        state.nudge(f"topic {number}")
        state.hear_nudge(f"digest {number}")
        state.hear_event(f"digest {number}", 1)
    assert state.runs_held == RUNS
    assert len(state._nudged) == len(state._nudged_elsewhere) == len(state._ahead) == TOPICS

    big = "x" * (CHARACTERS // 4)
    for number in range(9):
        state.publish(f"big {number}", events(1, data=big), 0.0)
    assert state._characters <= CHARACTERS
    assert state._characters == sum(feed.characters for feed in state._feeds.values())


def test_who_follows_a_run_is_woken_once_and_all_of_them_in_order() -> None:
    state = fresh()
    for name in ("a", "b", "c"):
        state.next_events("r", 0, name)

    assert state.followers == 3
    assert state.publish("other", events(1), 0.0) == ()
    assert state.publish("r", events(1), 0.0) == ("a", "b", "c")
    assert state.publish("r", events(2), 0.0) == ()
    assert state.followers == 0


def test_what_another_node_told_ends_one_wait() -> None:
    state = fresh()
    state.next_events("r", 0, "me")

    assert state.hear_event(digest("r"), 3) == ("me",)
    assert state.next_events("r", 2, "me") == ()
    assert state.next_events("r", 2, "me") is None  # it need not have been so
    state.hear_event(digest("r"), 3)
    assert state.next_events("r", 3, "me") is None


def test_a_nudge_is_remembered_under_its_topic() -> None:
    state = fresh()
    state.nudge("a")

    assert state.await_nudge("a", 0, "me")
    assert state.await_interruption("a", 0, "me")
    assert not state.await_nudge("a", state.sequence, "one")
    assert not state.await_interruption("a", state.sequence, "two")
    assert not state.await_nudge("b", 0, "three")
    assert not state.await_interruption("b", 0, "four")
    assert sorted(state._places) == ["four", "one", "three", "two"]


def test_a_nudge_wakes_who_waits_and_interrupts_who_works() -> None:
    state = fresh()
    state.await_nudge("t", 0, "worker")
    state.await_interruption("t", 0, "run")

    assert state.nudge("other") == ()
    assert state.nudge("t") == ("worker", "run")
    assert state.nudge("t") == ()


def test_a_nudge_from_elsewhere_wakes_and_interrupts_nothing() -> None:
    state = fresh()
    state.await_nudge("t", 0, "worker")

    assert state.hear_nudge(digest("t")) == ("worker",)
    assert state.await_nudge("t", 0, "worker")
    assert not state.await_interruption("t", 0, "run")
    assert state.hear_nudge(digest("t")) == ()


def test_who_stops_waiting_leaves_nothing_behind() -> None:
    state = fresh()
    state.next_events("r", 0, "a")
    state.next_events("r", 0, "b")
    state.await_nudge("t", 0, "c")
    state.await_interruption("t", 0, "d")
    for name in ("a", "c", "d", "d", "unknown"):
        state.leave(name)

    assert state.nudge("t") == ()
    assert state.publish("r", events(1), 0.0) == ("b",)
    assert not state._waiting
    assert not state._places
