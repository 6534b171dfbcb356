"""Calls of models have places, and no subject has all of them."""

from __future__ import annotations

from typing import Final

import pytest
from attrs import evolve

from legation.effects import AwaitNudge, Now, Nudge, Program
from legation.runs.event_writer import Journal
from legation.runs.membership import Membership, NodeTerms
from legation.runs.model_places import call_in_turn
from legation.shares.limits import LimitOverrides, NodeLimits, PlatformLimits
from legation.shares.shares import Shares
from legation.shares.table import make_table
from legation_testing import close_at_every_effect, play

from .test_event_writer import RUN

LIMITS: Final = PlatformLimits(model_calls=2, node=NodeLimits(model_calls=100))


def make_shares() -> Shares:
    owners = {"batch": LimitOverrides(model_calls=1)}
    own = {("agent", "a"): LimitOverrides(model_calls=3)}
    return Shares(make_table(LIMITS, owners, own))


def journal_of(shares: Shares, subject: str) -> Journal:
    journal = Journal("main", evolve(RUN, subject=subject), "n", 0)
    journal.member = Membership("main", NodeTerms(60, (), "2.11.0"), shares=shares)
    return journal


def call(answer: int | Exception = 7) -> Program[int]:
    """Ask for the time, and answer or fail."""
    yield from Now()
    if isinstance(answer, Exception):
        raise answer
    return answer


def test_a_call_has_a_place_as_long_as_it_takes() -> None:
    shares = make_shares()
    program = call_in_turn(journal_of(shares, "ada"), call())
    next(program)
    assert shares.calls.count_held("ada") == 1

    with pytest.raises(StopIteration) as ended:
        program.send(0)
    assert ended.value.value == 7
    assert shares.calls.total == 0


@pytest.mark.parametrize(
    ("subject", "most"), [("ada", 2), ("batch", 1), ("~agent:a:batch", 3), ("~address:::1", 2)]
)
def test_a_subject_has_as_many_places_as_its_limit_says(subject: str, most: int) -> None:
    shares = make_shares()
    journal = journal_of(shares, subject)
    calls = [call_in_turn(journal, call()) for _ in range(most + 1)]
    asked = [next(one) for one in calls]

    assert asked[:most] == [Now()] * most
    assert isinstance(asked[most], AwaitNudge)


@pytest.mark.parametrize(("subject", "most"), [("ada", 1), ("ada", 3), ("batch", 2)])
def test_what_a_run_was_asked_for_with_counts_before(subject: str, most: int) -> None:
    shares = make_shares()
    journal = journal_of(shares, subject)
    journal.model_calls = most
    calls = [call_in_turn(journal, call()) for _ in range(most + 1)]
    asked = [next(one) for one in calls]

    assert asked[:most] == [Now()] * most
    assert isinstance(asked[most], AwaitNudge)


def test_each_node_has_its_part() -> None:
    shares = make_shares()
    shares.note_others("main", 1)
    journal = journal_of(shares, "ada")

    first, second = (call_in_turn(journal, call()) for _ in range(2))
    assert next(first) == Now()
    assert isinstance(next(second), AwaitNudge)


def test_who_waits_is_woken_when_a_place_is_given_to_it() -> None:
    shares = make_shares()
    journal = journal_of(shares, "batch")
    first, second = (call_in_turn(journal, call()) for _ in range(2))
    next(first)
    waits = next(second)
    assert isinstance(waits, AwaitNudge)

    assert first.send(0) == Nudge(waits.topic)
    assert second.send(None) == Now()
    assert shares.calls.count_held("batch") == 1


@pytest.mark.parametrize("error", [ValueError("no answer"), GeneratorExit()], ids=repr)
def test_a_call_that_fails_or_is_broken_off_gives_its_place_back(error: BaseException) -> None:
    shares = make_shares()
    journal = journal_of(shares, "batch")
    first, second = (call_in_turn(journal, call()) for _ in range(2))
    next(first)
    assert isinstance(next(second), AwaitNudge)

    with pytest.raises(type(error)):
        first.throw(error)
    assert second.send(None) == Now()  # it looks by itself


def test_who_waits_and_is_broken_off_leaves_nothing_behind() -> None:
    shares = make_shares()
    journal = journal_of(shares, "batch")
    first, second, third = (call_in_turn(journal, call()) for _ in range(3))
    next(first)
    topic = next(second)
    next(third)
    assert isinstance(topic, AwaitNudge)
    assert second.send(None) == topic  # a second went by
    second.close()

    first.close()
    assert third.send(None) == Now()
    third.close()
    assert shares.calls.total == 0


def test_no_place_is_lost_wherever_a_program_is_closed() -> None:
    shares = make_shares()
    journal = journal_of(shares, "ada")

    assert close_at_every_effect(lambda: call_in_turn(journal, call()), [(Now(), 0)]) == 1
    assert shares.calls.total == 0


def test_without_a_node_there_are_no_places() -> None:
    journal = Journal("main", RUN, "n", 0)

    assert play(call_in_turn(journal, call()), [(Now(), 0)]) == 7
