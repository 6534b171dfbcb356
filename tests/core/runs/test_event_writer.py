from __future__ import annotations

import json
from typing import Any

import pytest

from legation.effects import AwaitNudge, Now, Nudge, Publish, RandomBytes, Sleep, Transact
from legation.runs.event_writer import CancelAsked, EventWriter, Journal, LeaseLost
from legation.runs.events import EventOrigin, RunContinued, RunStarted, ToolCallStarted
from legation.runs.membership import Membership, NodeTerms
from legation.store.failures import CommitLost, StatementFailed
from legation.store.member_runs import CheckLease
from legation.store.run_rows import ClaimedRun
from legation.store.runs import AppendEvents
from legation.store.steps import StepKind
from legation_testing import play

RUN = ClaimedRun("o", "s", "r", "agent", "a", "{}", 0, 1)


def writer(*, streamed: bool = True) -> EventWriter:
    return EventWriter(Journal("main", RUN, "n", 0), EventOrigin(RUN, "A"), streamed)


def names(journal: Journal) -> list[str]:
    return [event.name for event in journal.pending]


def test_nothing_is_stored_where_nothing_was_noted() -> None:
    play(writer().settle(), [(Now(), 5)])


def test_events_are_stored_before_they_are_shown_and_again_after_a_lost_commit() -> None:
    kept = writer()
    kept.hear("x")

    play(
        kept.settle(),
        [
            (Now(), 5),
            (AppendEvents, CommitLost("no answer")),
            (Now(), 6),
            (RandomBytes(2), b"\xff\xff"),
            (Sleep(0.05), None),
            (AppendEvents, False),
            (Publish, None),
        ],
    )
    assert (kept.journal.pending, kept.heard) == ([], ["x"])


def test_what_was_interrupted_while_it_was_stored_is_still_pending() -> None:
    kept = writer()
    kept.note(RunStarted())
    settling = kept.settle()
    settling.send(None)
    assert isinstance(settling.send(5), Transact)
    settling.close()

    assert names(kept.journal) == ["RunStarted"]


def test_what_cannot_be_stored_is_still_pending() -> None:
    kept = writer()
    kept.note(RunStarted())
    with pytest.raises(StatementFailed):
        play(kept.settle(), [(Now(), 5), (AppendEvents, StatementFailed("no"))])

    assert names(kept.journal) == ["RunStarted"]


@pytest.mark.parametrize(
    ("answer", "error", "left"), [(None, LeaseLost, ["RunStarted"]), (True, CancelAsked, [])]
)
def test_a_lost_lease_and_a_wish_to_cancel_end_the_turn(
    answer: Any, error: type[Exception], left: list[str]
) -> None:
    kept = writer()
    kept.note(RunStarted())
    script: list[Any] = [(Now(), 5), (AppendEvents, answer)]
    with pytest.raises(error):
        play(kept.settle(), script if answer is None else [*script, (Publish, None)])

    assert names(kept.journal) == left


def test_who_settles_while_another_stores_waits_and_is_stored_next() -> None:
    """No event is in the database before one that has a lower number."""
    first = writer()
    second = EventWriter(first.journal, EventOrigin(RUN, "B"), streamed=False)
    first.note(RunStarted())
    storing = first.settle()
    storing.send(None)
    batch = storing.send(5)
    assert isinstance(batch, Transact)

    second.note(ToolCallStarted({}))
    waiting = second.settle()
    waiting.send(None)
    assert waiting.send(6) == AwaitNudge("settled:r", 1.0)
    assert [event.seq for event in batch.unit.events] == [1]  # type: ignore[attr-defined]

    assert isinstance(storing.send(False), Publish)
    assert storing.send(None) == Nudge("settled:r")
    with pytest.raises(StopIteration):
        storing.send(None)

    following = waiting.send(None)
    assert isinstance(following, Transact)
    assert [event.seq for event in following.unit.events] == [2]  # type: ignore[attr-defined]
    assert isinstance(waiting.send(False), Publish)
    with pytest.raises(StopIteration):
        waiting.send(None)


def test_who_waits_goes_on_when_the_other_has_stored_its_events_too() -> None:
    first = writer()
    first.note(RunStarted())
    waiting = first.settle()
    first.journal._storing = True  # as while another stores
    waiting.send(None)
    assert waiting.send(6) == AwaitNudge("settled:r", 1.0)
    first.journal.pending.clear()

    with pytest.raises(StopIteration):
        waiting.send(None)


def test_a_member_speaks_in_the_journal_of_its_team() -> None:
    team = writer()
    member = ClaimedRun("o", "s", "m", "agent", "b", "{}", 0, 1)
    beside = EventWriter(team.journal, EventOrigin(member, "B", "r"), streamed=False)
    team.note(ToolCallStarted({}))
    beside.note(RunStarted())
    beside.hear("not streamed")

    assert [event.seq for event in team.journal.pending] == [1, 2]
    payload = json.loads(team.journal.pending[1].data)
    assert (payload["run_id"], payload["parent_run_id"], payload["agent_name"]) == ("m", "r", "B")


def test_the_time_of_the_first_piece_of_an_answer_is_that_of_what_follows_it() -> None:
    kept = writer(streamed=False)
    play(kept.settle(), [(Now(), 5)])
    assert kept.first_us is None
    kept.hear("x")
    play(kept.settle(), [(Now(), 7)])
    play(kept.settle(), [(Now(), 9)])
    assert kept.first_us == 7

    kept.listen()
    assert (kept.first_us, kept.heard) == (None, [])


def test_thoughts_are_told_to_those_who_follow_and_are_no_part_of_the_answer() -> None:
    kept, quiet = writer(), writer(streamed=False)
    for one in (kept, quiet):
        one.think("")
        one.think("Hm\0")

    (event,) = kept.journal.pending
    payload = json.loads(event.data)
    assert (event.name, payload["reasoning_content"]) == ("RunContent", "Hm\ufffd")
    assert "content" not in payload
    assert (kept.heard, quiet.journal.pending) == ([], [])


def test_a_run_that_goes_on_counts_its_events_on() -> None:
    run = ClaimedRun("o", "s", "r", "agent", "a", "{}", 0, 2, 1, 7)
    journal = Journal("main", run, "n", 0)
    kept = EventWriter(journal, EventOrigin(run, "A"), streamed=False)
    kept.note(RunContinued())
    kept.note(RunStarted())

    assert [event.seq for event in journal.pending] == [8, 9]
    journal.forget(8)
    assert (names(journal), journal.seq) == (["RunContinued"], 8)


# --- steps ---------------------------------------------------------------------------------------


def test_steps_without_events_are_stored_and_nothing_is_shown() -> None:
    kept = writer()
    kept.note_step("1.1", StepKind.CALL, "book", 3)
    settling = kept.settle()
    settling.send(None)
    asked: Any = settling.send(5)

    assert (asked.unit.events, asked.unit.last) == ((), 0)
    assert [step.place for step in asked.unit.records.steps] == ["1.1"]
    with pytest.raises(StopIteration):
        settling.send(False)
    assert kept.journal.steps == {}


def test_a_step_that_ends_while_its_beginning_is_stored_is_stored_again() -> None:
    kept = writer()
    kept.note_step("1.1", StepKind.CALL, "book", 3)
    settling = kept.settle()
    settling.send(None)
    settling.send(5)
    kept.note_step("1.1", StepKind.CALL, "book", 3, {"result": "booked"})
    with pytest.raises(StopIteration):
        settling.send(False)

    assert kept.journal.steps["1.1"].outcome == '{"f":1,"result":"booked"}'


@pytest.mark.parametrize(("answer", "error"), [(None, LeaseLost), (True, CancelAsked)])
def test_a_node_that_was_silent_for_a_lease_looks_whether_the_run_is_still_its_own(
    answer: bool | None, error: type[Exception]
) -> None:
    journal = writer().journal
    play(journal.check_lease(10**9), [])  # it is in no cluster
    journal.member = Membership("main", NodeTerms(60, (), "2.7.0"))
    play(journal.check_lease(59), [])
    play(journal.check_lease(60), [(CheckLease, False)])
    play(journal.check_lease(119), [])
    with pytest.raises(error):
        play(journal.check_lease(120), [(CheckLease, answer)])
