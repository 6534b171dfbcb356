"""What holds for every leased queue; how each behaves is in `test_inbox` and `test_outbox`."""

from __future__ import annotations

from typing import Any

import pytest

from legation.store.inbox import INBOX
from legation.store.leased_queue import ItemKey, Lease, LeasedQueue
from legation.store.outbox import OUTBOX


@pytest.mark.parametrize("queue", [INBOX, OUTBOX], ids=repr)
def test_leases_on_items_of_one_name_differ_by_their_queue(queue: LeasedQueue[Any, Any]) -> None:
    here = Lease(queue, ItemKey("c", "a"), "n", 1)

    assert here == Lease(queue, ItemKey("c", "a"), "n", 1)
    assert [here == Lease(other, ItemKey("c", "a"), "n", 1) for other in (INBOX, OUTBOX)] == [
        queue is INBOX,
        queue is OUTBOX,
    ]


def test_a_queue_shows_as_its_name() -> None:
    assert repr(Lease(INBOX, ItemKey("c", "a"), "n", 1)) == (
        "Lease(queue=INBOX, key=ItemKey(channel='c', item_id='a'), node='n', attempts=1)"
    )
