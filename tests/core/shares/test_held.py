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

    assert (places.count_held("ada"), places.total) == (1, 1)
    assert (others.count_held("eve"), others.total) == (0, 0)


def test_what_is_not_needed_is_given_back_before() -> None:
    bodies, held = Slots(100), Held()
    bodies.enter("ada", 100, 40)
    held.taken.append((bodies, "ada", 40))

    held.keep(50)
    assert bodies.count_held("ada") == 40
    held.keep(3)
    assert (bodies.count_held("ada"), bodies.total) == (3, 3)
    held.keep(0)
    held.keep(0)
    held.release()

    assert (bodies.count_held("ada"), bodies.total) == (0, 0)
