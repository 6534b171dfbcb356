"""The hints a node holds in memory."""

from __future__ import annotations

import pytest

from legation.effects import NextEvents, Publish
from legation.store.run_rows import StoredEvent
from legation_testing import Node


def events(*seqs: int) -> tuple[StoredEvent, ...]:
    """Return events with these numbers."""
    return tuple(StoredEvent(seq, "X", "{}") for seq in seqs)


def ask(after: int) -> NextEvents:
    """Ask for what is behind `after`."""
    return NextEvents("r", after, 1.0)


@pytest.mark.parametrize(
    ("published", "after", "answer"),
    [
        ([], 0, None),
        ([(1, 2)], 0, (1, 2)),
        ([(1, 2)], 1, (2,)),
        ([(1, 2)], 2, None),
        ([(3, 4)], 0, ()),
        ([(3, 4)], 1, ()),
        ([(3, 4)], 2, (3, 4)),
        ([(1, 2), (2, 3)], 0, (1, 2, 3)),
        ([(1, 2), (5, 6)], 0, ()),
        ([(1, 2), (5, 6)], 4, (5, 6)),
        ([(1, 2, 3, 4, 5)], 0, ()),
        ([(1, 2, 3, 4, 5)], 1, (2, 3, 4, 5)),
    ],
)
def test_events_are_told_without_gap_or_not_at_all(
    published: list[tuple[int, ...]], after: int, answer: tuple[int, ...] | None
) -> None:
    node = Node("n", events_held=4)
    for seqs in published:
        node.publish(Publish("r", events(*seqs)))

    assert node.next_events(ask(after)) == (None if answer is None else events(*answer))


def test_events_of_another_run_are_not_told() -> None:
    node = Node("n")
    node.publish(Publish("other", events(1)))

    assert node.next_events(ask(0)) is None


def test_a_nudge_is_remembered_under_its_topic() -> None:
    node = Node("n")
    node.nudge("a")

    assert node.nudged_since("a", 0)
    assert not node.nudged_since("a", 1)
    assert not node.nudged_since("b", 0)
