from __future__ import annotations

import json
from itertools import permutations, product
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.http.refusals import Fault
from legation.models.conversation import ToolCall
from legation.runs.approvals import Reply, apply_replies, read_replies
from legation.runs.payloads import tool_execution
from legation.runs.turn_state import CallState, MemberState, Standing, TurnState
from legation.tools import MAX_RESULT

ARGUMENTS: dict[str, Any] = {"path": "/x", "depth": 1, "deep": {"list": [1, True, None]}}


def waits(what: Standing, call_id: str = "1", **arguments: Any) -> CallState:
    shown = arguments or ARGUMENTS
    call = ToolCall(call_id, "delete", json.dumps(shown))
    return CallState(call=call, created_us=0, arguments=shown, standing=what, needs=what)


CONFIRM, EXTERNAL = waits(Standing.CONFIRM), waits(Standing.EXTERNAL, "2")
DONE = evolve(waits(Standing.DUE, "0"), needs=None).with_result("ok")
PAUSED = TurnState(calls=(DONE, CONFIRM, EXTERNAL))


def replies(*items: Any) -> tuple[Reply, ...]:
    read = read_replies(list(items))
    assert not isinstance(read, str), read
    return read


def shown(call: CallState, **answer: Any) -> dict[str, Any]:
    return {**tool_execution(call), **answer}


def faults(state: TurnState, *items: Any) -> list[str]:
    found = apply_replies(state, replies(*items))
    assert isinstance(found, tuple)
    return [fault.path for fault in found]


def settled(state: TurnState, *items: Any) -> TurnState:
    found = apply_replies(state, replies(*items))
    assert isinstance(found, TurnState), found
    return found


def test_what_is_confirmed_is_due_and_what_was_done_outside_is_done() -> None:
    state = settled(
        PAUSED,
        shown(DONE),
        shown(CONFIRM, confirmed=True, confirmation_note="go"),
        shown(EXTERNAL, result="out"),
    )

    assert state.calls[0] == DONE
    assert (state.calls[1].standing, state.calls[1].confirmed) == (Standing.DUE, True)
    assert state.calls[1].arguments == ARGUMENTS
    assert (state.calls[2].standing, state.calls[2].result) == (Standing.DONE, "out")
    calls = [tool_execution(call) for call in state.calls]
    assert calls[1]["requires_confirmation"] is False
    assert calls[2]["external_execution_required"] is False


@pytest.mark.parametrize(
    ("note", "result"),
    [
        (None, "Function call was rejected by the user"),
        ("not that one", "Function call was rejected by the user: not that one"),
    ],
)
def test_what_is_rejected_is_told_to_the_model(note: str | None, result: str) -> None:
    state = settled(
        TurnState(calls=(CONFIRM,)), shown(CONFIRM, confirmed=False, confirmation_note=note)
    )

    call = state.calls[0]
    assert (call.standing, call.result, call.failed) == (Standing.DONE, result, True)
    assert (call.confirmed, call.note) == (False, note)


def test_no_answer_at_all_rejects_what_was_to_be_confirmed() -> None:
    state = settled(TurnState(calls=(CONFIRM,)))

    assert state.calls[0].confirmed is False
    assert faults(PAUSED) == ["body.tools"]


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (shown(CONFIRM), "confirmed"),
        (shown(CONFIRM, confirmed=True, tool_name="other"), "tool_name"),
        (shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "path": "/"}), "tool_args"),
        (shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "depth": True}), "tool_args"),
        (shown(CONFIRM, confirmed=True, tool_args={}), "tool_args"),
        (
            shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "deep": {"list": [1]}}),
            "tool_args",
        ),
        (shown(CONFIRM, confirmed=True, result="forged"), "result"),
        (shown(CONFIRM, confirmed=True, tool_call_id="9"), "tool_call_id"),
    ],
)
def test_an_answer_that_is_not_to_what_was_shown_is_refused(item: Any, path: str) -> None:
    assert f"body.tools[0].{path}" in faults(TurnState(calls=(CONFIRM,)), item)


def test_an_answer_may_leave_out_what_it_cannot_change_and_write_numbers_its_own_way() -> None:
    bare = {"tool_call_id": "1", "confirmed": True}
    other = shown(CONFIRM, confirmed=True, tool_args={**ARGUMENTS, "depth": 1.0})

    for item in (bare, other):
        assert settled(TurnState(calls=(CONFIRM,)), item).calls[0].arguments == ARGUMENTS


def test_a_part_of_the_answers_is_none() -> None:
    assert faults(PAUSED, shown(CONFIRM, confirmed=True)) == ["body.tools"]
    assert faults(PAUSED, shown(CONFIRM, confirmed=True), shown(EXTERNAL)) == [
        "body.tools[1].result"
    ]


def test_an_answer_given_twice_is_refused() -> None:
    both = shown(CONFIRM, confirmed=True)

    assert faults(TurnState(calls=(CONFIRM,)), both, both) == ["body.tools[1].tool_call_id"]


def test_a_result_from_outside_may_be_any_json() -> None:
    state = settled(TurnState(calls=(EXTERNAL,)), shown(EXTERNAL, result={"n": [1]}))

    assert state.calls[0].result == '{"n":[1]}'


def member(call: CallState, run_id: str) -> CallState:
    state = MemberState(
        run_id=run_id,
        kind="agent",
        component_id="m",
        name="M",
        created_us=0,
        state=TurnState(calls=(call,)),
    )
    outer = ToolCall(run_id, "delegate_task_to_member", "{}")
    return CallState(call=outer, created_us=0, standing=Standing.MEMBER, member=state)


def test_members_of_a_team_may_ask_under_the_same_id() -> None:
    one, other = waits(Standing.CONFIRM, "1", path="/a"), waits(Standing.CONFIRM, "1", path="/b")
    team = TurnState(calls=(DONE, member(one, "m1"), member(other, "m2")))
    state = settled(team, shown(other, confirmed=True), shown(one, confirmed=False))

    found = [call.member.state.calls[0] for call in state.calls if call.member is not None]
    assert [call.confirmed for call in found] == [False, True]
    assert [call.standing for call in state.calls[1:]] == [Standing.DUE, Standing.DUE]


# --- calls of members that look alike -----------------------------------------------------------

ALIKE = {run: member(waits(Standing.CONFIRM, "x"), run) for run in ("m1", "m2", "m3")}


def decided(state: TurnState) -> dict[str, bool | None]:
    """Return what was decided of each call, by the run it is of."""
    found = {
        call.member.run_id: call.member.state.calls[0].confirmed
        for call in state.calls
        if call.member is not None
    }
    (own,) = [call.confirmed for call in state.calls if call.member is None] or [None]
    return found if own is None else {**found, "top": own}


def bare(confirmed: bool, **named: str) -> dict[str, Any]:
    return {"tool_call_id": "x", "confirmed": confirmed, **named}


@pytest.mark.parametrize("name", ["member_run_id", "requirement_id"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_an_answer_goes_to_the_member_that_it_names_in_whatever_order_it_comes(
    name: str, size: int
) -> None:
    runs = list(ALIKE)[:size]
    team = TurnState(calls=tuple(ALIKE[run] for run in runs))
    for decisions in product((True, False), repeat=size):
        items = [
            bare(decision, **{name: run if name == "member_run_id" else f"{run}.x"})
            for run, decision in zip(runs, decisions, strict=True)
        ]
        for order in permutations(items):
            assert decided(settled(team, *order)) == dict(zip(runs, decisions, strict=True))


def test_unnamed_answers_to_calls_that_look_alike_count_where_all_say_the_same() -> None:
    runs = list(ALIKE)
    team = TurnState(calls=tuple(ALIKE.values()))
    for decisions in product((True, False), repeat=3):
        for named in product((True, False), repeat=3):
            items = [
                bare(decision, **({"member_run_id": run} if says else {}))
                for run, decision, says in zip(runs, decisions, named, strict=True)
            ]
            unnamed = {d for d, says in zip(decisions, named, strict=True) if not says}
            for order in permutations(items):
                found = apply_replies(team, replies(*order))
                if len(unnamed) <= 1:
                    assert isinstance(found, TurnState)
                    assert decided(found) == dict(zip(runs, decisions, strict=True))
                else:
                    assert isinstance(found, tuple)
                    assert {fault.message.partition(":")[0] for fault in found} <= {
                        "answers one of several calls that look alike",
                        "must answer the call x of delete",
                    }


def test_an_answer_that_leaves_out_the_arguments_is_for_the_call_that_is_left() -> None:
    one, other = waits(Standing.CONFIRM, "x", path="/a"), waits(Standing.CONFIRM, "x", path="/b")
    team = TurnState(calls=(member(one, "m1"), member(other, "m2")))
    items = (bare(True), {**bare(False), "tool_args": {"path": "/a"}})

    for order in permutations(items):
        assert decided(settled(team, *order)) == {"m1": False, "m2": True}


def test_of_calls_of_which_two_look_alike_none_is_guessed() -> None:
    one, other = waits(Standing.CONFIRM, "x", path="/a"), waits(Standing.CONFIRM, "x", path="/b")
    team = TurnState(calls=(member(one, "m1"), member(one, "m2"), member(other, "m3")))
    items = (bare(True), bare(True), {**bare(False), "tool_args": {"path": "/a"}})

    for order in permutations(items):
        assert isinstance(apply_replies(team, replies(*order)), tuple)


def test_the_call_of_a_leader_is_not_taken_for_that_of_its_member() -> None:
    own = waits(Standing.CONFIRM, "x")
    team = TurnState(calls=(own, ALIKE["m1"]))
    for top in (bare(True), bare(True, member_run_id="top"), bare(True, requirement_id="top.x")):
        for order in permutations((top, bare(False, member_run_id="m1"))):
            found = apply_replies(team, replies(*order), "top")
            assert isinstance(found, TurnState)
            assert decided(found) == {"top": True, "m1": False}


@pytest.mark.parametrize(
    "named",
    [
        {"member_run_id": "m2"},
        {"member_run_id": "m2", "requirement_id": "m1.x"},
        {"member_run_id": "", "requirement_id": "m1.y"},
    ],
)
def test_an_answer_that_names_a_run_without_this_call_is_refused(named: dict[str, str]) -> None:
    team = TurnState(calls=(ALIKE["m1"],))

    assert "body.tools[0].tool_call_id" in faults(team, bare(True, **named))


def test_a_requirement_of_another_name_identifies_nothing() -> None:
    team = TurnState(calls=(ALIKE["m1"],))

    assert decided(settled(team, bare(True, requirement_id="7f3c"))) == {"m1": True}


def test_two_answers_to_a_named_call_are_refused() -> None:
    team = TurnState(calls=(ALIKE["m1"], ALIKE["m2"]))
    twice = bare(True, member_run_id="m1")

    assert "body.tools[1].tool_call_id" in faults(team, twice, twice)


def test_of_very_many_calls_that_look_alike_each_has_to_be_named() -> None:
    many = [member(waits(Standing.CONFIRM, "x"), f"m{number}") for number in range(65)]
    team = TurnState(calls=tuple(many))

    assert len(faults(team, *[bare(True)] * 65)) > 60
    named = [bare(True, member_run_id=f"m{number}") for number in range(65)]
    assert set(decided(settled(team, *named)).values()) == {True}


def test_a_call_of_one_member_that_is_over_is_not_that_of_another_that_waits() -> None:
    over = member(waits(Standing.CONFIRM, "y"), "m1")
    assert over.member is not None
    done = evolve(waits(Standing.DUE, "x"), needs=None).with_result("ok")
    inner = evolve(over.member, state=TurnState(calls=(done, *over.member.state.calls)))
    team = TurnState(calls=(evolve(over, member=inner), ALIKE["m2"]))
    items = (
        shown(done, member_run_id="m1"),
        {"tool_call_id": "y", "confirmed": True},
        bare(False),
    )

    for order in permutations(items):
        found = settled(team, *order)
        (_, second) = found.calls
        assert second.member is not None
        assert second.member.state.calls[0].confirmed is False


def test_a_call_of_a_member_that_is_over_may_be_shown_again() -> None:
    asking = member(CONFIRM, "m1")
    assert asking.member is not None
    inner = evolve(asking.member, state=TurnState(calls=(DONE, CONFIRM)))
    team = TurnState(calls=(evolve(asking, member=inner),))

    state = settled(team, shown(DONE), shown(CONFIRM, confirmed=True))
    assert state.calls[0].standing is Standing.DUE


# --- Calls in doubt ------------------------------------------------------------------------------

DOUBTFUL = evolve(CONFIRM, in_doubt=True, started_us=3)
CONFIRMED_BEFORE = evolve(DOUBTFUL, confirmed=True, note="go")
NOT_KNOWN = "The call was interrupted, and whether it was carried out is not known"


def doubt(call: CallState = DOUBTFUL, **answer: Any) -> CallState:
    return settled(TurnState(calls=(call,)), shown(call, **answer)).calls[0]


@pytest.mark.parametrize("call", [DOUBTFUL, evolve(DOUBTFUL, needs=None), CONFIRMED_BEFORE])
def test_call_in_doubt_that_is_confirmed_is_called_again(call: CallState) -> None:
    again = doubt(call, confirmed=True, confirmation_note="not in the list of bookings")

    assert (again.standing, again.confirmed, again.in_doubt) == (Standing.DUE, True, False)
    assert (again.started_us, again.result) == (3, None)
    assert again.note == "not in the list of bookings"
    assert "in_doubt" not in tool_execution(again)


@pytest.mark.parametrize("call", [DOUBTFUL, CONFIRMED_BEFORE])
@pytest.mark.parametrize(
    ("note", "result"),
    [(None, NOT_KNOWN), ("", NOT_KNOWN), ("it was booked", f"{NOT_KNOWN}: it was booked")],
)
def test_model_reads_of_a_call_in_doubt_that_is_rejected(
    call: CallState, note: str | None, result: str
) -> None:
    left = doubt(call, confirmed=False, confirmation_note=note)

    assert (left.standing, left.failed, left.in_doubt) == (Standing.DONE, True, False)
    assert (left.result, left.confirmed, left.note) == (result, False, note)


def test_no_answer_at_all_leaves_a_call_in_doubt() -> None:
    left = settled(TurnState(calls=(CONFIRMED_BEFORE, CONFIRM))).calls

    assert [call.result for call in left] == [NOT_KNOWN, "Function call was rejected by the user"]
    assert not any(call.in_doubt or call.confirmed for call in left)


@pytest.mark.parametrize("confirmed", [None, True, False])
@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("room 7", "room 7"),
        ("", ""),
        ({"room": 7}, '{"room":7}'),
        (0, "0"),
        ("x" * (1 << 20), None),
    ],
)
def test_result_of_a_call_in_doubt_is_what_came_of_it(
    confirmed: bool | None, result: Any, text: str | None
) -> None:
    for call in (DOUBTFUL, CONFIRMED_BEFORE):
        over = doubt(call, confirmed=confirmed, result=result)

        assert (over.standing, over.failed, over.in_doubt) == (Standing.DONE, False, False)
        assert over.confirmed is confirmed
        assert over.result == text or text is None
        assert len(over.result or "") <= MAX_RESULT + 100


def test_call_in_doubt_needs_an_answer() -> None:
    state = TurnState(calls=(DOUBTFUL,))
    found = apply_replies(state, replies(shown(DOUBTFUL)))

    assert found == (
        Fault("body.tools[0].confirmed", "must be true or false, or `result` say what came of it"),
    )
    assert faults(state, shown(DOUBTFUL, confirmed=True, tool_args={})) == [
        "body.tools[0].tool_args"
    ]
    assert faults(state, {"tool_call_id": "9", "result": "x"}) == [
        "body.tools[0].tool_call_id",
        "body.tools",
    ]


def test_confirmation_that_is_sent_once_more_is_not_about_the_doubt() -> None:
    """A client whose node went away sends again what it sent before: nothing is called twice."""
    state = TurnState(calls=(CONFIRMED_BEFORE,))
    stale = shown(CONFIRM, confirmed=True)
    for item in (stale, {"tool_call_id": "1", "confirmed": True}, {**stale, "in_doubt": False}):
        assert apply_replies(state, replies(item)) == (
            Fault(
                "body.tools[0].in_doubt",
                "must be true: the call was confirmed before, and may have been carried out",
            ),
        )
    bare = {"tool_call_id": "1", "confirmed": True, "in_doubt": True}

    assert settled(state, bare).calls[0].standing is Standing.DUE
    assert settled(state, shown(CONFIRM, confirmed=False)).calls[0].result == NOT_KNOWN
    assert settled(state, shown(CONFIRM, result="done")).calls[0].result == "done"
    first = settled(TurnState(calls=(DOUBTFUL,)), {"tool_call_id": "1", "confirmed": True})
    assert first.calls[0].standing is Standing.DUE


def test_call_that_is_in_no_doubt_still_takes_no_result() -> None:
    state = TurnState(calls=(CONFIRM, evolve(DOUBTFUL, call=evolve(DOUBTFUL.call, id="7"))))
    items = [shown(call, confirmed=True, result="forged") for call in state.calls]

    assert faults(state, *items) == ["body.tools[0].result"]


def test_answer_about_a_doubt_goes_to_the_member_whose_call_is_in_doubt() -> None:
    members = [
        MemberState(
            run_id=f"m{number}",
            kind="agent",
            component_id="a",
            name="A",
            created_us=0,
            state=TurnState(calls=(one,)),
        )
        for number, one in enumerate([CONFIRM, DOUBTFUL])
    ]
    tasks = [
        evolve(waits(Standing.MEMBER, str(number)), needs=None, member=member)
        for number, member in enumerate(members)
    ]
    state = TurnState(calls=tuple(tasks))
    items = [shown(DOUBTFUL, result="booked"), {"tool_call_id": "1", "confirmed": False}]
    for order in permutations(items):
        calls = [task.member.state.calls[0] for task in settled(state, *order).calls if task.member]

        assert [(call.result, call.failed) for call in calls] == [
            ("Function call was rejected by the user", True),
            ("booked", False),
        ]


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([1], "item 0 is no object"),
        ([dict[str, Any]()], "item 0 has no tool_call_id"),
        ([{"tool_call_id": 1}], "tool_call_id of item 0 is not a string"),
        ([{"tool_call_id": "1", "tool_args": list[Any]()}], "tool_args of item 0 is not an object"),
        ([{"tool_call_id": "1", "confirmed": "yes"}], "confirmed of item 0 is not true or false"),
        ([{"tool_call_id": "1", "in_doubt": "yes"}], "in_doubt of item 0 is not true or false"),
    ],
)
def test_what_has_no_structure_is_told_so(items: list[Any], what: str) -> None:
    assert read_replies(items) == what


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=10,
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "tool_call_id": st.sampled_from(["0", "1", "2", "3", ""]) | JSON,
        "tool_name": st.just("delete") | JSON,
        "tool_args": st.just(ARGUMENTS) | JSON,
        "confirmed": st.booleans() | JSON,
        "confirmation_note": JSON,
        "result": JSON,
        "in_doubt": st.booleans() | JSON,
    },
)
IN_DOUBT = evolve(CONFIRMED_BEFORE, call=evolve(CONFIRM.call, id="3"))


@given(st.lists(ITEM | JSON, max_size=4), st.booleans())
def test_whatever_is_sent_a_call_is_executed_as_it_was_shown_or_not_at_all(
    items: list[Any], doubtful: bool
) -> None:
    read = read_replies(items)
    if isinstance(read, str):
        return
    paused = evolve(PAUSED, calls=(*PAUSED.calls, IN_DOUBT)) if doubtful else PAUSED
    state = apply_replies(paused, read)
    if isinstance(state, tuple):
        assert all(isinstance(fault, Fault) for fault in state)
        return
    assert not state.waits
    for before, after in zip(paused.calls, state.calls, strict=True):
        assert not after.in_doubt
        assert (after.call, after.arguments) == (before.call, before.arguments)
