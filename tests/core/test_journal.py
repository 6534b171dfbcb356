from __future__ import annotations

from legation.effects import Now, Publish, Sleep, Transact
from legation.runs.journal import Journal, Speaker
from legation.store.failures import CommitLost
from legation.store.runs import AppendEvents, ClaimedRun
from legation_testing import play

RUN = ClaimedRun("o", "s", "r", "agent", "a", "{}", 0, 1)


def journal() -> Journal:
    return Journal("main", Speaker(RUN, "A"), "n", True, 0)


def test_nothing_is_stored_where_nothing_was_noted() -> None:
    play(journal().settle(), [(Now(), 5)])


def test_events_are_stored_before_they_are_shown_and_again_after_a_lost_commit() -> None:
    kept = journal()
    kept.hear("x")

    play(
        kept.settle(),
        [
            (Now(), 5),
            (AppendEvents, CommitLost("no answer")),
            (Sleep(0.05), None),
            (AppendEvents, False),
            (Publish, None),
        ],
    )
    assert (kept.pending, kept.heard) == ([], ["x"])


def test_what_was_interrupted_while_it_was_stored_is_still_pending() -> None:
    kept = journal()
    kept.note("RunStarted")
    settling = kept.settle()
    settling.send(None)
    assert isinstance(settling.send(5), Transact)
    settling.close()

    assert [event.name for event in kept.pending] == ["RunStarted"]
