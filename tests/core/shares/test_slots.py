"""Slots: no subject holds more places than it leaves to the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.shares.slots import Slots


def fill(slots: Slots, subject: str, most: int = 1_000) -> int:
    while slots.has_room(subject, most):
        slots.take(subject)
    return slots.count_held(subject)


@pytest.mark.parametrize(("capacity", "held"), [(1, 1), (2, 1), (3, 2), (256, 128)])
def test_one_subject_alone_takes_half(capacity: int, held: int) -> None:
    slots = Slots(capacity)

    assert fill(slots, "ada") == held


def test_there_is_room_for_who_comes_new() -> None:
    slots = Slots(256)
    held = [fill(slots, f"subject {number}") for number in range(6)]

    assert slots.has_room("eve", 1)
    assert held == sorted(held, reverse=True)


def test_a_limit_holds_where_there_is_room() -> None:
    assert fill(Slots(256), "ada", 3) == 3


def test_twice_the_weight_is_twice_what_is_free() -> None:
    slots = Slots(300)
    while slots.has_room("ada", 300, weight=2.0):
        slots.take("ada")

    assert slots.count_held("ada") == 200


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 40), st.booleans())))
def test_what_is_held_is_what_was_taken(moves: list[tuple[str, int, bool]]) -> None:
    slots = Slots(100)
    taken: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    for subject, amount, back in moves:
        if back and taken[subject]:
            slots.release(subject, taken[subject].pop())
        elif slots.has_room(subject, 60, amount):
            slots.take(subject, amount)
            taken[subject].append(amount)

        assert slots.total == sum(map(sum, taken.values())) <= slots.capacity
        assert all(slots.count_held(one) == sum(held) <= 60 for one, held in taken.items())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5), st.sampled_from([0.5, 1, 2]))))
def test_who_enters_takes_what_there_is_room_for(steps: list[tuple[str, int, float]]) -> None:
    slots, model = Slots(20), Slots(20)
    for subject, amount, weight in steps:
        room = model.has_room(subject, 8, amount, weight)
        assert slots.enter(subject, 8, amount, weight) is room
        if room:
            model.take(subject, amount)

    assert (slots.total, [slots.count_held(one) for one in "abc"]) == (
        model.total,
        [model.count_held(one) for one in "abc"],
    )
