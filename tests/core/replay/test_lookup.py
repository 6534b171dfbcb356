from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from legation.replay.lookup import Lookup, find_fault, show_history, split_place
from legation.replay.recording import RecordedStep, Recording

from .shops import NAMES, record_run


def change_input(**members: Any) -> Recording:
    """Return a recording whose input has other members."""
    recording = record_run("plain")
    return evolve(recording, run=evolve(recording.run, input={**recording.run.input, **members}))


@pytest.mark.parametrize("name", NAMES)
def test_recording_of_a_run_has_no_fault(name: str) -> None:
    assert find_fault(record_run(name)) is None


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"message": None}, "run.input.message is no text"),
        ({"message": ["x"]}, "run.input.message is no text"),
        ({"files": {}}, "run.input.files is no list of files"),
        ({"images": ["x"]}, "run.input.images is no list of files"),
        ({"audio": [{"mime_type": 7}]}, "run.input.audio is no list of files"),
        ({"output_schema": []}, "run.input.output_schema is no object"),
        ({"dependencies": "x"}, "run.input.dependencies is no object"),
    ],
)
def test_input_that_none_can_have_asked_with_is_a_fault(
    members: dict[str, Any], sentence: str
) -> None:
    assert find_fault(change_input(**members)) == sentence


def test_input_may_have_files() -> None:
    file = {"filename": "a.pdf", "mime_type": "application/pdf", "content": "YQ==", "size": 1}

    assert find_fault(change_input(files=[file], metadata={"a": 1})) is None


def test_place_that_no_turn_comes_to_is_a_fault() -> None:
    recording = record_run("plain")
    (first,) = recording.steps
    more = (first, evolve(first, place="2"))

    sentence = "No turn comes to place 2: the answer before it is the last"
    assert find_fault(evolve(recording, steps=more)) == sentence


def test_function_is_called_once() -> None:
    recording = record_run("echo")
    (first,) = recording.steps

    assert find_fault(evolve(recording, steps=(first, evolve(first, place="2")))) is not None


def test_call_without_an_outcome_is_a_fault_where_the_run_went_on() -> None:
    recording = record_run("clerk")
    steps = tuple(step for step in recording.steps if step.place != "1.2")

    sentence = "Place 1.2 has no outcome, and the run went on behind it"
    assert find_fault(evolve(recording, steps=steps)) == sentence


def test_agent_has_no_members() -> None:
    recording = record_run("route")
    run = evolve(recording.run, kind="agent")

    sentence = "Place 1.1 is that of a member, and the run is not that of a team"
    assert find_fault(evolve(recording, run=run)) == sentence


def test_history_is_told_as_one_run() -> None:
    recording = record_run("clerk, second")
    told = show_history(recording)

    assert told is not None
    assert "Booked." in told[0][1]
    assert show_history(record_run("clerk")) is None


def test_place_has_a_prefix_where_it_is_that_of_a_member() -> None:
    assert split_place("3.2/1.1") == ("3.2/", "1.1")
    assert split_place("1") == ("", "1")


def test_nothing_is_known_of_a_place_that_the_file_has_not() -> None:
    lookup = Lookup(record_run("clerk"))

    assert lookup.answer("", 0) is None
    assert lookup.answer("", 9) is None
    assert lookup.calls("", 9) == ()
    assert lookup.result("9.1") is None
    assert lookup.decision("9.1") is None
    assert lookup.failure("9") is None
    assert lookup.describe_asked("9.1", "book") == "book"


def test_call_that_was_not_asked_about_counts_as_confirmed() -> None:
    recording = record_run("clerk")
    begun = tuple(evolve(s, outcome=None) if s.place == "1.1" else s for s in recording.steps)

    assert Lookup(recording).decision("1.1") == (True, None)
    assert Lookup(evolve(recording, steps=begun)).decision("1.1") is None


def test_failure_of_a_member_is_its_result_whatever_it_was() -> None:
    error = {"type": "run_failed", "sentence": "It broke"}
    steps = [RecordedStep(place, "model", "gpt", None, error=error) for place in ("1", "1.1/1")]
    lookup = Lookup(evolve(record_run("clerk"), steps=tuple(steps)))

    failure = lookup.failure("1.1/1")
    assert failure is not None
    assert failure.sentence == "It broke"
    assert lookup.failure("1") is None
