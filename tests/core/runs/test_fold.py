"""The fold of steps: a turn, cut at any batch, is as far as it was, and comes to the same end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.config import Mode
from legation.models.conversation import Message, ToolCall, Usage
from legation.runs.fold import RunRecord, find_last, fold
from legation.runs.ids import member_run_id
from legation.runs.step_outcomes import encode_answer, encode_outcome, encode_own
from legation.runs.turn_state import (
    CallState,
    MemberState,
    ModelTurn,
    Standing,
    TurnState,
    dump,
    load,
)
from legation.store.steps import Step, StepKind

from .turn_kit import Batch, Script, World, host, last_words, play_out

WORDS = st.sampled_from(["x", "Zürich", "€ 5", '"'])
OWN = st.sampled_from(["look", "pay", "book", "ask", "shell", "no-such-tool"])
DELEGATED = st.sampled_from([">a", ">f", ">inner", ">nobody"])


def scripts(names: st.SearchStrategy[str], most: int = 3) -> st.SearchStrategy[Script]:
    calls = st.lists(st.tuples(names, WORDS), min_size=1, max_size=most).map(tuple)
    return st.lists(calls, max_size=most).map(tuple)


def forwards(number: int) -> Sequence[int]:
    return range(number)


def backwards(number: int) -> Sequence[int]:
    return range(number)[::-1]


ORDERS = st.sampled_from([forwards, backwards])


def of_batch(batch: Batch) -> TurnState:
    """Return what the fold makes of all that was stored by then."""
    base = TurnState(
        before=(Message("system", "Be brief."),), said=(ModelTurn(Message("user", "go"), 0),)
    )
    if "turn" in batch.asked:
        base = load(batch.asked["turn"])
    record = RunRecord("r", 0, batch.steps, batch.members, batch.definitions, batch.paused_at)
    return fold(record, "", base)


def words_and_times(state: TurnState) -> Any:
    """Return all that both have to agree on; whether the model has read a result makes none."""
    if not (state.due or state.waits):
        state = state.with_results(0)
    times = [(call.started_us, call.ended_us) for call in state.calls]
    return last_words(state), times, state.first_seconds


@given(scripts(OWN), ORDERS)
@settings(max_examples=40)
def test_a_turn_cut_at_any_batch_is_the_turn_as_it_was_then(script: Script, order: Any) -> None:
    world = World(order)
    play_out(host({"a": script}), "agent", "a", world)

    for batch in world.batches:
        assert words_and_times(of_batch(batch)) == words_and_times(batch.state)


@given(scripts(OWN), ORDERS, st.integers(0, 99))
@settings(max_examples=40)
def test_an_agent_that_goes_on_from_any_batch_comes_to_the_same_end(
    script: Script, order: Any, cut: int
) -> None:
    platform, world = host({"a": script}), World(order)
    end = play_out(platform, "agent", "a", world)
    if world.batches:
        batch = world.batches[cut % len(world.batches)]
        after = world.after(batch)

        assert last_words(play_out(platform, "agent", "a", after)) == last_words(end)
        done = [step.asked for step in batch.steps.values() if step.outcome is not None]
        called = sum(done.count(name) for name in ("look", "pay", "book", "ask"))
        assert called + len(after.executed) == len(world.executed), "what is done is not done again"


@given(
    st.sampled_from(["coordinate", "route", "collaborate"]),
    scripts(OWN, 2),
    scripts(DELEGATED | st.just("look"), 2),
    scripts(DELEGATED | OWN, 2),
    ORDERS,
    st.lists(st.integers(0, 999), min_size=2, max_size=2),
)
@settings(max_examples=40)
def test_a_team_of_teams_that_goes_on_from_any_batches_comes_to_the_same_end(
    mode: Mode, member: Script, inner: Script, leader: Script, order: Any, cuts: list[int]
) -> None:
    names = {"a": member, "b": member[::-1], "inner": inner, "team": leader}
    platform, world = host(names, mode), World(order)
    end = play_out(platform, "team", "team", world)
    for cut in cuts:  # it crashes a second time
        if not world.batches:
            return
        world = world.after(world.batches[cut % len(world.batches)])
        assert last_words(play_out(platform, "team", "team", world)) == last_words(end)


# --- members -------------------------------------------------------------------------------------

DELEGATION = CallState(
    call=ToolCall("c", "delegate_task_to_member", '{"member_id":"a","task":"t"}'),
    created_us=5,
    arguments={"member_id": "a", "task": "t"},
)
BASE = TurnState(said=(ModelTurn(Message("user", "go"), 0),), calls=(DELEGATION,), rounds=1)
ASKED = Step("1.1", StepKind.MEMBER, "a", 7)
START = Step(
    "1.1/0", StepKind.START, "a", 8, 8, '{"f":1,"definition":"d","kind":"agent","name":"A"}'
)
OUTPUT = {"status": "COMPLETED", "content": "done"}


def folded(*steps: Step, base: TurnState = BASE, **more: Any) -> CallState:
    record = RunRecord("r", 0, {step.place: step for step in steps}, **more)
    return fold(record, "", base).calls[0]


def test_a_member_of_which_no_start_is_stored_begins_again() -> None:
    call = folded(ASKED)

    assert call == evolve(DELEGATION, started_us=7, announced=True)


def test_a_member_begins_with_the_instructions_that_it_had() -> None:
    document = json.dumps({"instructions": "Be kind."})
    call = folded(ASKED, START, definitions={"d": document})

    assert call.member == MemberState(
        run_id=member_run_id("r", "1.1", 0),
        kind="agent",
        component_id="a",
        name="A",
        created_us=8,
        state=TurnState(
            before=(Message("system", "Be kind."),), said=(ModelTurn(Message("user", "t"), 8),)
        ),
    )


def test_a_member_whose_definition_is_not_there_goes_on_without_instructions() -> None:
    call = folded(ASKED, START)

    assert call.member is not None
    assert call.member.state.before == ()


@pytest.mark.parametrize("status", ["COMPLETED", "ERROR", "CANCELLED"])
def test_a_member_whose_row_is_over_is_done_without_an_outcome(status: str) -> None:
    run_id, output = member_run_id("r", "1.1", 0), {**OUTPUT, "status": status}
    call = folded(ASKED, START, members={run_id: (status, json.dumps(output))})

    assert (call.member, call.child_run_id, call.response) == (None, run_id, output)


def test_a_member_that_waits_is_not_over() -> None:
    run_id = member_run_id("r", "1.1", 0)
    call = folded(ASKED, START, members={run_id: ("PAUSED", json.dumps(OUTPUT))})

    assert call.response is None
    assert call.member is not None


def test_what_a_member_that_is_done_answered_is_shown_again() -> None:
    run_id = member_run_id("r", "1.1", 0)
    outcome = json.dumps({"f": 1, "result": "done", "run": run_id})
    done = evolve(ASKED, ended_us=9, outcome=outcome)
    call = folded(done, members={run_id: ("COMPLETED", json.dumps(OUTPUT))})

    assert (call.result, call.child_run_id, call.response) == ("done", run_id, OUTPUT)
    assert folded(done).response is None, "its row was deleted"


def test_a_member_that_paused_at_a_release_without_steps_goes_on_from_its_own() -> None:
    inner = CallState(call=ToolCall("i", "book", "{}"), created_us=3)
    state = TurnState(said=(ModelTurn(Message("user", "t"), 2),), calls=(inner,), rounds=1)
    member = MemberState(
        run_id="old", kind="agent", component_id="a", name="A", created_us=2, state=state
    )
    base = BASE.with_call(0, evolve(DELEGATION, started_us=1, member=member))
    booked = Step("1.1/1.1", StepKind.CALL, "book", 4, 6, '{"f":1,"result":"booked"}')
    call = folded(booked, base=base)

    assert call.member is not None
    assert call.member.run_id == "old"
    assert call.member.state.calls[0].result == "booked"
    over = folded(base=base, members={"old": ("COMPLETED", json.dumps(OUTPUT))})
    assert (over.member, over.response) == (None, OUTPUT)


def test_a_member_that_had_asked_all_of_its_own_goes_on_with_those() -> None:
    asked = ["call_1", "delegate_task_to_member", '{"member_id":"b","task":"u"}', "due"]
    start = {"f": 1, "definition": "d", "kind": "team", "name": "T", "calls": [asked]}
    call = folded(ASKED, evolve(START, outcome=json.dumps(start)))

    assert call.member is not None
    assert [one.call.id for one in call.member.state.calls] == ["call_1"]
    assert [one.message.role for one in call.member.state.said] == ["user", "assistant"]


def test_an_answer_of_the_wrong_shape_is_followed_by_what_asked_for_another() -> None:
    outcome = {"f": 1, "content": "{}", "correction": "Again.", "usage": [1, 2, 0, 0, 0]}
    answered = Step("1", StepKind.MODEL, "m", 3, 4, json.dumps(outcome))
    state = fold(RunRecord("r", 0, {"1": answered}), "", TurnState())

    assert [one.message.content for one in state.said] == ["{}", "Again."]
    assert (state.corrected, state.rounds, state.usage.total_tokens) == (True, 1, 3)


def test_the_time_of_an_outcome_that_a_person_told_is_kept() -> None:
    told = BASE.with_call(0, DELEGATION.with_result("told"))
    ended = evolve(ASKED, ended_us=9, outcome='{"f":1,"result":"told"}')

    assert folded(ended, base=told).ended_us == 9
    assert folded(ASKED, base=told).ended_us is None
    assert folded(base=told) == told.calls[0]


# --- the work of attempts ------------------------------------------------------------------------


def step(place: str, kind: StepKind, begun_us: int, ended_us: int | None, attempt: int) -> Step:
    outcome = None if ended_us is None else '{"f":1}'
    return Step(place, kind, "x", begun_us, ended_us, outcome, attempt)


def worked(*steps: Step, attempt: int = 0, prefix: str = "") -> int:
    return RunRecord("r", 0, {one.place: one for one in steps}, attempt=attempt).sum_work_us(prefix)


def test_the_time_between_two_attempts_is_no_work() -> None:
    first = [step("1", StepKind.MODEL, 100, 200, 1), step("1.1", StepKind.CALL, 210, 250, 1)]
    second = [
        step("2", StepKind.MODEL, 9_000, 9_100, 2),
        step("2.1", StepKind.CALL, 9_150, None, 2),
    ]

    assert worked(*first) == 150
    assert worked(*second) == 150
    assert worked(*first, *second) == 300
    assert worked(*first, *second, attempt=1) == 150, "the first ended in a pause"
    assert worked(*first, *second, attempt=2) == 0


def test_a_run_that_had_to_wait_for_its_turn_has_not_worked_meanwhile() -> None:
    start = step("0", StepKind.START, 1, 5_000, 1)

    assert worked(start) == 0
    assert worked(start, step("1", StepKind.MODEL, 5_000, 5_070, 1)) == 70


def test_a_member_that_went_on_after_a_crash_has_not_worked_in_between() -> None:
    started = step("1.1/0", StepKind.START, 100, 100, 1)
    inner = step("1.1/1", StepKind.MODEL, 9_000, 9_040, 2)
    member = step("1.1", StepKind.MEMBER, 90, 9_050, 2)

    assert worked(started, inner, member) == 50
    assert worked(started, inner, member, prefix="1.1/") == 40


# --- where a run stands --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ((), ("1", "the model")),
        ((step("0", StepKind.START, 1, 1, 1),), ("1", "the model")),
        ((step("9", StepKind.MODEL, 5, 6, 1),), ("10", "x")),
        ((step("2.1/0.9", StepKind.MODEL, 5, 6, 1),), ("2.1/0.10", "x")),
        ((step("9", StepKind.MODEL, 5, 6, 1), step("9.1", StepKind.CALL, 7, 8, 1)), ("10", "x")),
        (
            (step("2", StepKind.MODEL, 5, 6, 1), step("2.1", StepKind.CALL, 7, None, 1)),
            ("2.1", "x"),
        ),
        (
            (step("2.1", StepKind.MEMBER, 7, None, 1), step("2.1/3.1/9", StepKind.MODEL, 8, 9, 1)),
            ("2.1", "x"),
        ),
        (
            (step("1", StepKind.MODEL, 1, 2, 1), step("1.1/9", StepKind.MODEL, 8, 9, 1)),
            ("1.1/10", "x"),
        ),
    ],
)
def test_where_a_run_stands_is_the_step_that_began_last_or_the_next_answer(
    steps: tuple[Step, ...], last: tuple[str, str]
) -> None:
    assert find_last(steps) == last
    assert find_last(steps[::-1]) == last


# --- functions ----------------------------------------------------------------------------------

SAID = (ModelTurn(Message("user", "go"), 0),)


def answer_step(number: int, key: str = "", seconds: float | None = None) -> Step:
    place, cost = f"0.{number}", Usage(1, 2)
    outcome = encode_outcome(place, "m", encode_answer(key, {"n": number}, cost, seconds))
    return Step(place, StepKind.MODEL, "m", number, number + 1, outcome)


def own_call(number: int, **more: Any) -> CallState:
    made = ToolCall(f"c{number}", "pay", '{"n":1}')
    started: dict[str, Any] = {
        "created_us": number,
        "started_us": number,
        "announced": True,
        **more,
    }
    return CallState(call=made, arguments={"n": 1}, place=f"0.{number}", **started)


def call_step(number: int, done: CallState | None = None) -> Step:
    place, outcome = f"0.{number}", None
    if done is not None:
        outcome = encode_outcome(place, "pay", encode_own(done))
    ended_us = None if done is None else number + 1
    return Step(place, StepKind.CALL, f"pay #c{number}", number, ended_us, outcome)


def fold_steps(base: TurnState, *steps: Step) -> TurnState:
    return fold(RunRecord("r", 0, {step.place: step for step in steps}), "", base)


def test_steps_of_a_function_are_answers_and_calls() -> None:
    done = evolve(own_call(2), ended_us=3).with_result('{"a":1}')
    done = evolve(done, structured=True)
    steps = (answer_step(1), call_step(2, done), answer_step(3, "b", 1.5), call_step(4))
    state = fold_steps(TurnState(said=SAID), *steps)

    assert [(one.place, one.key, one.answer) for one in state.recorded] == [
        ("0.1", "", {"n": 1}),
        ("0.3", "b", {"n": 3}),
    ]
    assert (state.rounds, state.usage, state.first_seconds) == (2, Usage(2, 4), 1.5)
    begun = own_call(4, in_doubt=True)
    assert state.calls == (done, evolve(begun, call=ToolCall("c4", "pay", "{}"), arguments={}))
    assert state.of_function
    assert load(json.loads(json.dumps(dump(state)))) == state
    assert fold_steps(state, *steps) == state


def test_what_a_function_waited_for_is_known_beside_its_steps() -> None:
    asked = {"needs": Standing.CONFIRM, "confirmed": True, "note": "so", "started_us": None}
    told = evolve(own_call(3).with_result("no", failed=True), confirmed=False)
    base = TurnState(said=SAID, calls=(own_call(1, **asked), own_call(2, **asked), told))
    done = evolve(own_call(2), ended_us=3).with_result("ok")
    state = fold_steps(base, call_step(1), call_step(2, done), call_step(3, told))

    first, second, third = state.calls
    assert first == own_call(1, **{**asked, "started_us": 1}, in_doubt=True)
    assert second == evolve(done, needs=Standing.CONFIRM, confirmed=True, note="so")
    assert third == evolve(told, ended_us=4)


def test_call_of_the_name_of_its_id_and_arguments_that_nobody_can_read() -> None:
    outcome = encode_outcome("0.1", "pay", {"result": "x", "arguments": "[1]"})
    (call,) = fold_steps(
        TurnState(said=SAID), Step("0.1", StepKind.CALL, "pay", 1, 2, outcome)
    ).calls

    assert (call.call, call.arguments) == (ToolCall("pay", "pay", "[1]"), {})


@pytest.mark.parametrize(("attempt", "tokens"), [(0, 9), (1, 0)])
def test_the_tokens_of_a_summary_are_those_since_the_last_pause(attempt: int, tokens: int) -> None:
    outcome = encode_outcome("0", "a", {"definition": "d", "summary_usage": [7, 2, 0, 0, 0]})
    step = Step("0", StepKind.START, "a", 1, 1, outcome, 1)
    record = RunRecord("r", 1, {"0": step}, attempt=attempt)

    assert record.sum_usage().total_tokens == tokens
