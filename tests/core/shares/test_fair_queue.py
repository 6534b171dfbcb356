"""A fair queue: no subject waits behind the queue of another, and no place is lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from legation.shares.fair_queue import FairQueue, Ticket


def ask(queue: FairQueue, subject: str, *, most: int = 100, weight: float = 1.0) -> Ticket:
    """Ask for a place; a ticket that is admitted stands for one."""
    ticket = queue.ask(subject, most, weight)
    return ticket or Ticket(subject, most, weight, 0.0, "", admitted=True)


def test_who_comes_new_has_its_turn_before_the_queue_of_another() -> None:
    queue = FairQueue(4)
    hog = [ask(queue, "hog") for _ in range(50)]
    assert [ticket.admitted for ticket in hog[:4]] == [True, True, False, False]

    ann, bob, eve = (ask(queue, name) for name in ("ann", "bob", "eve"))
    assert (ann.admitted, bob.admitted, eve.admitted) == (True, True, False)
    assert queue.leave("hog") == (eve,)


def test_a_subject_has_at_most_its_limit_and_its_tickets_keep_their_order() -> None:
    queue = FairQueue(100)
    first, second, third, fourth = (ask(queue, "ada", most=2) for _ in range(4))
    assert [first.admitted, second.admitted, third.admitted] == [True, True, False]

    assert queue.leave("ada") == (third,)
    assert queue.leave("ada") == (fourth,)


def test_weights_are_shares_of_the_places_that_become_free() -> None:
    queue = FairQueue(3)
    for name in ("x", "y", "z"):
        assert ask(queue, name).admitted
    for _ in range(60):
        ask(queue, "heavy", weight=2.0)
        ask(queue, "light", weight=1.0)

    served = Counter[str]()
    (ticket,) = queue.leave("x")
    for _ in range(60):
        served[ticket.subject] += 1
        (ticket,) = queue.leave(ticket.subject)
    assert 38 <= served["heavy"] <= 42


def test_a_small_weight_still_has_a_place() -> None:
    queue = FairQueue(8)

    assert ask(queue, "ada").admitted
    assert ask(queue, "slow", weight=0.001).admitted
    assert not ask(queue, "slow", weight=0.001).admitted


def test_whoever_gives_up_leaves_nothing_behind() -> None:
    queue = FairQueue(1)
    assert ask(queue, "ada").admitted
    bob, eve = ask(queue, "bob"), ask(queue, "eve")
    again = ask(queue, "bob")

    queue.give_up(again)
    queue.give_up(bob)
    assert queue.leave("ada") == (eve,)
    queue.give_up(eve)  # its place was given to it, and it had not seen it yet
    assert queue.total == 0
    assert ask(queue, "ada").admitted


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["enter", "leave", "give up"]))),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_no_place_is_lost_and_nobody_waits_who_might_have_one(
    steps: list[tuple[str, str]], capacity: int, most: int
) -> None:
    queue = FairQueue(capacity)
    tickets: dict[str, list[Ticket]] = {name: [] for name in "abc"}
    for name, move in steps:
        mine = tickets[name]
        inside = [ticket for ticket in mine if ticket.admitted]
        waiting = [ticket for ticket in mine if not ticket.admitted]
        if move == "enter":
            mine.append(ask(queue, name, most=most))
        elif move == "leave" and inside:
            mine.remove(inside[0])
            queue.leave(name)
        elif move == "give up" and waiting:
            mine.remove(waiting[-1])
            queue.give_up(waiting[-1])
        for subject, held in tickets.items():
            count = sum(ticket.admitted for ticket in held)
            assert queue.count_held(subject) == count <= most
            assert count == len(held) or not queue.has_room(subject, most)
            assert [t.admitted for t in held] == sorted((t.admitted for t in held), reverse=True)
        assert queue.total <= capacity

    for held in tickets.values():
        for ticket in reversed(held):
            queue.give_up(ticket)
    assert queue.total == 0
