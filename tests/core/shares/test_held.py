"""`Held`: what a request took is given back, once."""

from __future__ import annotations

from legation.shares.held import Held
from legation.shares.slots import Slots


def test_all_is_released_and_nothing_twice() -> None:
    places, others, held = Slots(10), Slots(100), Held()
    places.take("ada")
    places.enter("ada", 10)
    others.enter("eve", 100, 30)
    held.taken += [(places, "ada", 1), (others, "eve", 30)]

    held.release()
    held.release()

    assert (places.held("ada"), places.total) == (1, 1)
    assert (others.held("eve"), others.total) == (0, 0)
