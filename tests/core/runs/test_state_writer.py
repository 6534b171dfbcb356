"""What calls of a run write to the state: which of two rivals wins, and what is too much."""

from __future__ import annotations

import json
from itertools import permutations, product
from typing import Any, Final

import pytest

from legation.effects import Log, Now, Publish, Transact
from legation.runs.endings import End, store_end
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin, RunError
from legation.runs.state_writer import StateRead, StateTooLarge, StateWriter
from legation.runs.step_outcomes import StepTooLarge
from legation.store.run_rows import ClaimedRun
from legation.store.run_states import RunState
from legation.store.runs import AppendEvents, Ended, FinishRun
from legation.store.session_state import (
    MAX_STATE,
    NO_CHANGE,
    FetchState,
    StateChange,
    StateChanges,
    apply,
    change_to,
)
from legation.store.steps import NO_RECORDS, StepKind
from legation_testing import play

RUN: Final = ClaimedRun("ada", "s", "r", "agent", "a", "{}", 0, 1)
UNSEEN: Final = StateRead("{}")


def setting(**values: Any) -> StateChange:
    return change_to(values, ())


def note(state: StateWriter, place: str, read: StateRead, change: StateChange) -> StateChange:
    state.ask(place, read, change)
    return state.note(place, place)


def store(state: StateWriter, document: str = "{}") -> str:
    """Return `document` as it is after what is pending is stored."""
    changes = state.changes("ada", "s").changes
    for place, _ in changes:
        state.forget(place)
    return apply(document, *(change for _, change in changes))


def journal(**options: Any) -> Journal:
    return Journal("main", RUN, "n", 0, **options)


def writer(prefix: str = "", of: Journal | None = None) -> EventWriter:
    return EventWriter(of or journal(), EventOrigin(RUN, "A"), streamed=False, prefix=prefix)


# --- Rivals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", tuple(permutations(("1.2", "1.10", "1.9/3.1"))))
def test_of_calls_side_by_side_the_latest_place_wins_in_whichever_order_they_end(
    order: tuple[str, ...],
) -> None:
    state = StateWriter()
    for place in order:
        state.ask(place, UNSEEN, change_to({"key": place, place: 1}, ()))
    document = "{}"
    for place in order:
        state.note(place, place)
        document = store(state, document)

    assert json.loads(document) == {"key": "1.10", "1.2": 1, "1.9/3.1": 1, "1.10": 1}
    assert {key for key, _, _ in state.overwritten} == {"key"}
    assert state.overwritten[-1][2] == "1.10"


@pytest.mark.parametrize("wins", ["sets", "deletes"])
def test_a_key_is_deleted_as_it_is_set(wins: str) -> None:
    state, both = StateWriter(), (setting(key=1), StateChange(deleted=("key",)))
    first, last = both if wins == "deletes" else both[::-1]

    note(state, "1.2", StateRead('{"key":0}'), last)
    note(state, "1.1", StateRead('{"key":0}'), first)

    expected = {} if wins == "deletes" else {"key": 1}
    assert json.loads(store(state, '{"key":0}')) == expected
    assert state.overwritten == [("key", "1.1", "1.2")]


def test_who_has_seen_a_write_is_no_rival_of_it() -> None:
    """1.2 is stored, whether 1.1 knows it or reads it by chance: 1.1 counts on."""
    for seen in (0, 1):
        state = StateWriter()
        note(state, "1.2", UNSEEN, setting(count=1))
        document = store(state)

        note(state, "1.1", StateRead(document, seen), setting(count=2))

        assert json.loads(store(state, document)) == {"count": 2}
        assert state.overwritten == []


def test_who_has_seen_an_older_write_alone_is_a_rival_of_the_newer() -> None:
    state = StateWriter()
    note(state, "1.2", UNSEEN, setting(count=1))
    read = StateRead(store(state), state.seen)
    note(state, "1.3", StateRead(read.text, state.seen), setting(count=2))

    note(state, "1.1", read, setting(count=10, own=1))

    assert json.loads(store(state)) == {"count": 2, "own": 1}
    assert state.overwritten == [("count", "1.1", "1.3")]


def test_what_is_seen_for_certain_lies_before_all_that_is_pending() -> None:
    state = StateWriter()
    seen = [state.seen]
    for place in ("1.1", "1.2"):
        note(state, place, UNSEEN, setting(**{place: 1}))
        seen.append(state.seen)
    state.forget("1.1")
    seen.append(state.seen)
    state.forget("1.2")

    assert [*seen, state.seen] == [0, 0, 0, 1, 2]


def test_every_order_of_two_counters_is_one_after_the_other_or_named() -> None:
    """All orders of: read, read, end and store of one, end and store of the other."""
    moves = ("read a", "read b", "end a", "end b")
    orders = [
        order
        for order in permutations(moves)
        if all(order.index(f"read {who}") < order.index(f"end {who}") for who in "ab")
    ]
    for order, places in product(orders, (("1.1", "1.2"), ("1.2", "1.1"))):
        place = dict(zip("ab", places, strict=True))
        state, document, reads = StateWriter(), '{"n":0}', dict[str, StateRead]()
        for move, who in (step.split() for step in order):
            if move == "read":
                reads[who] = state.read(document, state.seen)
                continue
            count = reads[who].document["n"] + 1
            note(state, place[who], reads[who], setting(n=count, **{who: count}))
            document = store(state, document)
        found = json.loads(document)
        assert found["n"] == (2 if not state.overwritten else 1)
        assert {"a", "b"} <= found.keys()
        assert len(state.overwritten) == int(found["a"] == found["b"])


# --- What is read, and how much may be written -------------------------------------------------


def test_what_the_token_says_is_laid_over_what_is_read() -> None:
    view = change_to({"plan": "large"}, ("plan", "tenant"))

    stored = '{"plan":"small","tenant":"t","n":1}'
    read = play(journal(state=StateWriter(view)).read_state(), [(FetchState("ada", "s"), stored)])

    assert read == StateRead('{"plan":"large","n":1}')
    assert StateRead('{"n":[1]}').document == {"n": [1]}


def test_a_state_that_would_be_too_long_is_refused_and_nothing_is_kept() -> None:
    state, half = StateWriter(), "\N{SNOWMAN}" * (MAX_STATE // 6)
    state.ask("1.1", UNSEEN, setting(a=half))
    note(state, "1.2", UNSEEN, StateChange(deleted=("gone",)))

    with pytest.raises(StateTooLarge, match="bytes of JSON, and no more than 1048576 "):
        state.ask("1.3", UNSEEN, setting(b=half))

    note(state, "1.1", *state.asked["1.1"])
    with pytest.raises(StateTooLarge):
        state.ask("1.3", UNSEEN, setting(b=half))
    assert not state.asked


def test_a_state_has_the_limit_of_the_run_and_one_that_is_longer_may_shrink() -> None:
    state, long = StateWriter(most=10), StateRead('{"a":"123456","b":"123456"}')
    state.ask("1.1", UNSEEN, setting(n=1))
    with pytest.raises(StateTooLarge, match="no more than 10 are stored"):
        state.ask("1.2", UNSEEN, setting(text="long"))
    with pytest.raises(StateTooLarge):
        StateWriter(most=10).ask("1.1", long, setting(a="654321"))

    shrinking = StateWriter(most=10)
    shrinking.ask("1.1", long, StateChange(deleted=("b",)))
    assert shrinking.asked


def test_a_call_that_writes_nothing_is_not_kept() -> None:
    state = StateWriter()
    state.ask("1.1", UNSEEN, NO_CHANGE)

    assert not state.asked


# --- In the journal ----------------------------------------------------------------------------


def test_a_change_is_stored_in_the_batch_that_has_the_outcome_of_its_call() -> None:
    own = writer("3.2/")
    own.note_step("1.1", StepKind.CALL, "add", 5)
    own.journal.change_state("3.2/1.1", UNSEEN, setting(cart=["x"]))
    assert own.journal.records().state is None

    own.note_step("1.1", StepKind.CALL, "add", 5, {"result": "done"})

    records = own.journal.records()
    assert records.state == StateChanges("ada", "s", (("3.2/1.1", setting(cart=["x"])),))
    outcome = json.loads(records.steps[0].outcome or "")
    assert outcome == {"f": 1, "result": "done", "state": {"set": {"cart": ["x"]}}}
    play(own.settle(), [(Now(), 6), (AppendEvents, False)])
    assert own.journal.records() is NO_RECORDS


def test_a_change_that_gave_way_is_in_no_outcome_and_in_the_log() -> None:
    own, key = writer(), "k" * 200
    for place in ("1.2", "1.1"):
        own.journal.change_state(place, UNSEEN, setting(**{key: place}))
    for place in ("1.2", "1.1"):
        own.note_step(place, StepKind.CALL, "add", 5, {"result": "done"})

    outcomes = {step.place: step.outcome or "" for step in own.journal.steps.values()}
    assert ("state" in outcomes["1.2"], "state" in outcomes["1.1"]) == (True, False)
    fields = (("run_id", "r"), ("key", "k" * 100), ("place", "1.1"), ("by", "1.2"))
    play(
        own.settle(),
        [(Now(), 6), (Log("warning", "state_overwritten", fields), None), (AppendEvents, False)],
    )


def test_what_a_function_writes_goes_with_the_end_of_its_run_and_is_taken_back_with_it() -> None:
    own = writer()
    own.change_state(UNSEEN, setting(n=1))
    own.note_end()
    assert own.journal.records().state == StateChanges("ada", "s", (("r", setting(n=1)),))

    own.journal.forget(0)

    assert own.journal.records() is NO_RECORDS
    own.note_end()
    assert own.journal.records() is NO_RECORDS


def test_what_a_member_that_is_a_function_writes_has_the_place_of_its_call() -> None:
    of = journal()
    leader, member = writer(of=of), writer("1.1/", of)
    of.change_state("1.2", UNSEEN, setting(key="tool"))
    leader.note_step("1.2", StepKind.CALL, "add", 5, {"result": "done"})

    member.change_state(UNSEEN, setting(key="member"))
    member.note_end()

    assert of.state.overwritten == [("key", "1.1", "1.2")]


def test_a_state_counts_for_itself_not_for_the_outcome_of_its_call() -> None:
    own, large = writer(), "x" * (MAX_STATE - 100)
    own.journal.change_state("1.1", UNSEEN, setting(key=large))

    own.note_step("1.1", StepKind.CALL, "add", 5, {"result": "y" * 1000})

    assert own.journal.steps["1.1"].outcome
    own.journal.change_state("1.2", UNSEEN, setting(key="x"))
    with pytest.raises(StepTooLarge):
        own.note_step("1.2", StepKind.CALL, "add", 5, {"result": "y" * (MAX_STATE + 1)})


def test_what_is_stored_again_after_a_lost_commit_is_the_same() -> None:
    """The batch is the same value, so the database can tell that it has it."""
    own = writer()
    own.journal.change_state("1.1", UNSEEN, setting(n=1))
    own.note_step("1.1", StepKind.CALL, "add", 5, {"result": "done"})
    units = list[Any]()
    for _ in range(2):
        settling = own.settle()
        assert settling.send(None) == Now()
        effect = settling.send(6)
        assert isinstance(effect, Transact)
        units.append(effect.unit)
        settling.close()

    assert units[0] == units[1]


def test_what_gave_way_at_the_very_end_of_a_run_is_in_the_log_too() -> None:
    own = writer()
    for place in ("1.1", "1.2"):
        own.journal.change_state(place, UNSEEN, setting(key=place))
        own.note_step(place, StepKind.CALL, "add", 5, {"result": "done"})
    own.note(RunError("no", "timeout"))
    left = Ended(kept=True, state='{"key":"1.2"}')

    fields = (("run_id", "r"), ("key", "key"), ("place", "1.1"), ("by", "1.2"))
    ended, output = play(
        store_end(own.journal, End(RunState.ERROR, {"created_at": 1, "session_state": {}})),
        [
            (Log("warning", "state_overwritten", fields), None),
            (FinishRun, left),
            (Publish, None),
        ],
    )

    assert ended == left
    assert output == '{"created_at":1,"session_state":{"key":"1.2"}}'
