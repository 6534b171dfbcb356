"""Places and trails; that forks end at every place is `tests/frontends/test_forks_everywhere`."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.runs.forking import (
    BEGINNING,
    Place,
    Trail,
    WrongPlace,
    describe_origin,
    is_at_rest,
    parse_place,
    read_trail,
)
from legation.runs.step_outcomes import UnknownOutcome
from legation.store.run_rows import RunRow
from legation.store.run_states import RunState
from legation.store.steps import Step, StepKind

USAGE: Final = [1, 1, 0, 0, 0]


def row(status: str = "COMPLETED", output: Any = None, **asked: Any) -> RunRow:
    shown = None if output is None else json.dumps(output)
    given = json.dumps({"message": "go", **asked})
    columns = ("ada", "s", 1, "r", None, "agent", "a", status, given, shown, None, 1, 1, 2, 3)
    return RunRow(*columns, lease_by=None, lease_us=None, attempt=1)


def model(place: str, *calls: list[str], **more: Any) -> Step:
    outcome = {"f": 1, "content": "", "calls": list(calls), "usage": USAGE, **more}
    return Step(place, StepKind.MODEL, "m", int(place), int(place) + 1, json.dumps(outcome))


def ended(place: str, result: str = "done", kind: str = StepKind.CALL, **more: Any) -> Step:
    outcome = json.dumps({"f": 1, "result": result, **more})
    return Step(place, kind, "tool", 10, 11, outcome)


def due(call_id: str, name: str = "tool") -> list[str]:
    return [call_id, name, "{}", "due"]


START: Final = Step("0", StepKind.START, "a", 1, 1, '{"f":1,"definition":"d","history":[1]}')
STEPS: Final = (
    START,
    model("1", due("a"), due("b")),
    ended("1.1"),
    ended("1.2"),
    model("2", due("c"), ["d", "gone", "{}", "done", "there is no such tool"]),
    ended("2.1"),
)


@pytest.fixture
def trail() -> Trail:
    return read_trail(row(), STEPS)


@given(st.integers(1, 10**9 - 1), st.integers(0, 10**9 - 1))
def test_a_place_is_read_as_it_is_written(number: int, call: int) -> None:
    assert parse_place(str(Place(number, call))) == Place(number, call)


@given(st.text("0123456789./-x: ", max_size=12))
def test_a_place_is_one_or_a_sentence_says_that_it_is_none(text: str) -> None:
    place = parse_place(text)

    assert isinstance(place, WrongPlace) or str(place) == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2.1/1", "fork at 2.1"),
        ("0", "must be a place"),
        ("01", "must be a place"),
        ("", "must be"),
    ],
)
def test_what_is_no_place_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    wrong = parse_place(text)

    assert isinstance(wrong, WrongPlace)
    assert sentence in wrong.sentence


def test_each_place_is_known_and_no_other(trail: Trail) -> None:
    places = [Place(number, call) for number in range(6) for call in range(4)]
    known = [str(place) for place in places[1:] if trail.check(place) is None]

    assert known == ["1", "1.1", "1.2", "2", "2.1", "3"]
    assert trail.last == Place(3)
    wrong = trail.check(Place(2, 2))
    assert wrong is not None
    assert wrong.sentence.startswith("the call at 2.2 was never made: fork at 2")


def test_a_fork_at_an_answer_has_what_is_before_and_at_a_call_what_is_beside(trail: Trail) -> None:
    kept = {
        at: [place for place in trail.steps if trail.keeps(place, Place(*at))]
        for at in ((1,), (2,), (1, 1), (2, 1))
    }

    assert kept == {
        (1,): ["0"],
        (2,): ["0", "1", "1.1", "1.2"],
        (1, 1): ["0", "1", "1.2"],
        (2, 1): ["0", "1", "1.1", "1.2", "2"],
    }
    assert not trail.keeps("2.1/3.1", Place(2, 1))
    assert trail.keeps("1.1/3.1", Place(2, 1))


def test_a_fork_copies_rounds_and_adds_the_outcome(trail: Trail) -> None:
    plain = trail.fork(Place(2), None, told_history=True)
    told = trail.fork(Place(2), None, told_history=False)
    made = trail.fork(Place(1, 2), [1], told_history=True)
    large = trail.fork(Place(1, 2), "x" * 70_000, told_history=True)

    assert not isinstance(plain, WrongPlace)
    assert not isinstance(told, WrongPlace)
    assert (plain.last, plain.call, plain.start, plain.added) == (1, "", True, ())
    assert plain.bytes - told.bytes == len(START.outcome or "")
    assert not isinstance(made, WrongPlace)
    assert (made.last, made.call) == (1, "1.2")
    assert [json.loads(step.outcome or "")["result"] for step in made.added] == ["[1]"]
    assert isinstance(large, WrongPlace)
    assert large.field == "outcome"


def test_a_call_that_a_person_settled_is_told_by_the_output() -> None:
    calls = [[*due("a")[:3], "external"], [*due("b")[:3], "confirm"], due("c")]
    shown = [
        {"tool_call_id": "a", "tool_call_error": False, "result": "signed"},
        {"tool_call_id": "b", "tool_call_error": None, "result": None},
        {"tool_call_id": "c", "tool_call_error": False, "result": "x", "member_run_id": "m"},
    ]
    trail = read_trail(row("PAUSED", {"tools": shown}), [START, model("1", *calls)])

    assert [(step.place, step.asked) for step in trail.told] == [("1.1", "tool")]
    assert trail.last == Place(1, 3)
    made = trail.fork(Place(1, 2), "yes", told_history=True)
    assert not isinstance(made, WrongPlace)
    assert [step.place for step in made.added] == ["1.1", "1.2"]


def test_the_task_of_a_member_that_left_no_step_is_a_place() -> None:
    task = ["a", "delegate_task_to_member", '{"member_id":"desk","task":"t"}', "due"]
    trail = read_trail(row(output={"tools": []}), [START, model("1", task)])
    made = trail.fork(Place(1, 1), "mine", told_history=True)

    assert not isinstance(made, WrongPlace)
    assert [(step.kind, step.asked) for step in made.added] == [(StepKind.MEMBER, "desk")]


def test_a_call_beside_one_without_an_outcome_is_no_place() -> None:
    begun = Step("1.2", StepKind.CALL, "tool", 10)
    trail = read_trail(row("ERROR", {}), [START, model("1", due("a"), due("b")), begun])
    wrong = trail.check(Place(1, 1))

    assert wrong is not None
    assert wrong.sentence == "the call at 1.2, beside it, did not come to its end: fork at 1"
    assert trail.check(Place(1, 2)) is None


def test_the_answer_of_a_call_is_the_last_place() -> None:
    trail = read_trail(row(), [START, model("1", due("a")), ended("1.1", last=True)])
    made = trail.fork(Place(1, 1), "mine", told_history=True)

    assert trail.last == Place(1, 1)
    assert not isinstance(made, WrongPlace)
    assert json.loads(made.added[0].outcome or "")["last"] is True


def test_an_event_leads_to_a_place_or_to_the_event_before(trail: Trail) -> None:
    def find(name: str, **fields: Any) -> Any:
        return trail.find_place(name, json.dumps({"run_id": "r", **fields}))

    assert find("RunStarted") == BEGINNING
    assert [find("ModelRequestStarted", message_id=f"r.{n}") for n in (2, 5, 8)] == [
        Place(1),
        Place(2),
        Place(3),
    ]
    assert find("ToolCallStarted", tool={"tool_call_id": "b"}) == Place(1, 2)
    assert find("ToolCallStarted", tool={"tool_call_id": "of a function"}) is None
    assert find("RunContent") is None
    assert isinstance(find("RunStarted", run_id="m"), WrongPlace)


def test_the_state_is_as_far_as_it_is_known() -> None:
    steps = [
        START,
        model("1", due("a"), due("b")),
        ended("1.1", state={"set": {"a": 1, "b": 1}}),
        model("2", due("c")),
        ended("2.1", state={"set": {"b": 2}, "deleted": ["old"]}),
    ]
    left = {"session_state": {"a": 1, "b": 2, "sent": 3, "claim": 4}}
    trail = read_trail(row(output=left, state_claims={"names": ["claim"], "said": {}}), steps)
    before = '{"old":5,"b":0}'

    def find(at: Place, before: str | None = before, *, whole: bool = True) -> Any:
        return json.loads(trail.find_state(at, before, whole=whole))

    assert find(Place(3)) == {"a": 1, "b": 2, "sent": 3}
    assert find(Place(2)) == {"a": 1, "b": 1, "sent": 3, "old": 5}
    assert find(BEGINNING) == {"sent": 3, "b": 0, "old": 5}
    assert find(BEGINNING, None) == {"sent": 3}
    assert find(BEGINNING, whole=False) == {"b": 0, "old": 5}
    assert json.loads(read_trail(row(), steps).find_state(Place(3), None, whole=True)) == {
        "a": 1,
        "b": 2,
    }


def test_what_a_fork_says_of_its_origin() -> None:
    assert describe_origin("r", Place(2, 1)) == {"run_id": "r", "at": "2.1"}
    assert describe_origin("r", BEGINNING) == {"run_id": "r", "at": None}


def test_a_start_is_handed_on_without_its_history(trail: Trail) -> None:
    assert trail.start() == {"definition": "d"}
    assert read_trail(row(), ()).start() is None


def test_steps_of_a_later_version_are_not_guessed() -> None:
    with pytest.raises(UnknownOutcome):
        read_trail(row(), [Step("1", StepKind.MODEL, "m", 1, 2, '{"f":9}')])


def test_what_is_at_rest() -> None:
    rest = {state.value for state in RunState if is_at_rest(row(state.value))}

    assert rest == {"COMPLETED", "ERROR", "CANCELLED", "PAUSED"}
