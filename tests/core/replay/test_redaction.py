from __future__ import annotations

import json

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.replay.recording import Recording, encode_recording, read_recording
from legation.replay.redaction import MAX_PATH, MAX_PATHS, BadPath, check_paths, redact

from .recordings import BOOKING, TEAM

AREAS = ["input", "state", "history", "arguments", "outcome", "output", "document"]


def redacted(*paths: str, recording: Recording = BOOKING) -> Recording:
    result = redact(recording, paths)
    assert isinstance(result, Recording)
    return result


def lines(recording: Recording) -> str:
    return "\n".join(encode_recording(recording))


def test_a_text_is_replaced_wherever_it_occurs() -> None:
    recording = redacted("arguments.mail")
    placeholder = "redacted-1------"  # of 15 characters, in their class of 16

    assert recording.run.redacted
    assert "ann@example.com" not in lines(recording)
    assert recording.steps[1].arguments == {"room": 7, "mail": placeholder}
    assert recording.steps[1].outcome == {"result": f"Booked for {placeholder}"}
    assert recording.history[1]["content"] == f"I am with {placeholder}"
    assert recording.definitions[0].document["instructions"] == f"Book for {placeholder}."
    (call,) = (recording.steps[0].outcome or {})["calls"]
    assert call[:2] == ["c1", "book"]
    assert json.loads(call[2]) == {"room": 7, "mail": placeholder}
    assert call[3] == "due"


def test_a_number_is_replaced_where_it_has_the_same_name() -> None:
    recording = redacted("$.arguments.room")
    outcome = recording.steps[0].outcome or {}

    assert recording.steps[1].arguments == {"room": 1, "mail": "ann@example.com"}
    assert json.loads(outcome["calls"][0][2])["room"] == 1
    assert json.loads(recording.history[0]["calls"][0][2])["room"] == 1
    assert outcome["usage"] == [7, 3, 0, 0, 0]


def test_a_star_stands_for_every_member_and_item() -> None:
    state = {"people": [{"name": "Ann Lee", "age": 41}, {"name": "Bob", "age": 2.5}], "on": True}
    run = evolve(BOOKING.run, state=state)
    recording = redacted("state.people.*.*", recording=evolve(BOOKING, run=run))

    assert recording.run.state == {
        "people": [{"name": "xxxxxxx1", "age": 11}, {"name": "xxx3", "age": 4.5}],
        "on": True,
    }


def test_an_item_has_its_number_and_the_rest_stays() -> None:
    run = evolve(BOOKING.run, state={"list": ["first", "second"], "no": None, "empty": ""})
    whole = evolve(BOOKING, run=run)
    recording = redacted("state.list.1", "state.no", "state.empty", recording=whole)

    assert recording.run.state == {"list": ["first", "xxxxxxx1"], "no": None, "empty": ""}


def test_a_path_goes_into_json_within_a_text() -> None:
    outcome = {"result": '{"iban": "DE12 3456", "sum": 120}'}
    step = evolve(BOOKING.steps[1], outcome=outcome)
    whole = evolve(BOOKING, steps=(BOOKING.steps[0], step))
    recording = redacted("outcome.result.*", recording=whole)

    assert recording.steps[1].outcome == {"result": '{"iban": "redacted-1------", "sum": 101}'}


def test_text_that_only_begins_like_json_is_text() -> None:
    run = evolve(BOOKING.run, input={"message": "[4242-4242"})
    recording = redacted("state.card", "input.message.x", recording=evolve(BOOKING, run=run))

    assert recording.run.input == {"message": f"[{recording.run.state['card']}"}


def test_a_short_text_is_replaced_alone() -> None:
    run = evolve(BOOKING.run, state={"pin": "on"}, input={"message": "on and on", "pin": "on"})
    recording = redacted("state.pin", recording=evolve(BOOKING, run=run))

    assert recording.run.state == {"pin": "x1"}
    assert recording.run.input == {"message": "on and on", "pin": "x1"}


def test_the_definition_of_a_redacted_file_is_read() -> None:
    recording = redacted("document.instructions", "history.*.content", "output.content")

    assert read_recording(lines(recording).encode()) == recording
    assert recording.run.definition == BOOKING.run.definition
    assert recording.output["content"] == recording.steps[2].outcome["content"]  # type: ignore[index]


def test_steps_without_an_outcome_and_starts_stay_as_they_are() -> None:
    recording = redacted("arguments.task", "outcome.kind", recording=TEAM)

    assert read_recording(lines(recording).encode()) == recording
    assert recording.steps[2] == TEAM.steps[2]
    assert recording.steps[4].outcome is None


def test_a_document_without_instructions_stays() -> None:
    (shop,) = BOOKING.definitions
    whole = evolve(BOOKING, definitions=(evolve(shop, document={"name": "Shop"}),))

    assert redacted("input.message", recording=whole).definitions == whole.definitions


@pytest.mark.parametrize("path", ["", "run.input", "place", "a b", "arguments..x"])
def test_a_path_to_nothing_is_refused(path: str) -> None:
    assert isinstance(redact(BOOKING, [path]), BadPath)


@given(st.lists(st.sampled_from([f"{one}{end}" for one in AREAS for end in ("", ".*", ".*.*")])))
def test_what_is_redacted_is_a_recording_again(paths: list[str]) -> None:
    for whole in (BOOKING, TEAM):
        recording = redacted(*paths, recording=whole)

        assert read_recording(lines(recording).encode()) == recording
        assert redacted(*paths, recording=whole) == recording


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=40))
def test_equal_texts_agree_afterwards(text: str) -> None:
    run = evolve(BOOKING.run, state={"a": text, "b": [text]}, input={"message": text})
    recording = redacted("state.a", recording=evolve(BOOKING, run=run))

    assert recording.run.state["a"] == recording.run.state["b"][0] == recording.run.input["message"]
    assert len(recording.run.state["a"]) == 1 << (len(text) - 1).bit_length()


def test_without_paths_a_recording_stays_as_it_is() -> None:
    assert redact(BOOKING, ()) is BOOKING


def test_the_user_and_the_session_give_way_to_placeholders() -> None:
    run = evolve(BOOKING.run, user="ann@example.com", session_id="+4791234567")
    recording = redacted("user", "session_id", recording=evolve(BOOKING, run=run))

    assert (recording.run.user, recording.run.session_id) == (
        "redacted-1------",
        "redacted-2------",
    )
    assert recording.steps[1].outcome == {"result": "Booked for redacted-1------"}


def test_the_words_of_a_person_and_of_a_failure_are_redacted() -> None:
    note = {"confirmed": False, "note": "Not for ann@example.com"}
    error = {"type": "model_overloaded", "sentence": "No room for ann@example.com"}
    first, second, third = BOOKING.steps
    steps = (first, evolve(second, decision=note), evolve(third, outcome=None, error=error))
    recording = redacted("arguments.mail", recording=evolve(BOOKING, steps=steps))

    assert recording.steps[1].decision == {"confirmed": False, "note": "Not for redacted-1------"}
    assert recording.steps[2].error == {
        "type": "model_overloaded",
        "sentence": "No room for redacted-1------",
    }
    assert read_recording(lines(recording).encode()) == recording
    noted = redacted("decision.note", "error", recording=evolve(BOOKING, steps=steps))
    assert noted.steps[1].decision == {
        "confirmed": False,
        "note": "redacted-1----------------------",
    }


def test_names_of_parameters_and_members_are_no_values() -> None:
    state = {"set": {"mail": "set"}, "deleted": ["mail", "arguments"]}
    outcome = {"result": "mail", "state": state}
    step = evolve(BOOKING.steps[1], arguments={"room": 7, "mail": "mail"}, outcome=outcome)
    calls = [
        ["c1", "book", '{"mail":"mail","room":7}', "done", "no mail"],
        ["c2", "x", "mail", "due"],
    ]
    first = evolve(BOOKING.steps[0], outcome={"calls": calls, "usage": [0] * 5})
    recording = redacted("arguments.mail", recording=evolve(BOOKING, steps=(first, step)))

    assert recording.steps[1].arguments == {"room": 7, "mail": "xxx1"}
    assert (recording.steps[1].outcome or {})["state"]["deleted"] == ["xxx1", "arguments"]
    assert (recording.steps[1].outcome or {})["state"].keys() == {"set", "deleted"}
    first_call, second_call = (recording.steps[0].outcome or {})["calls"]
    assert json.loads(first_call[2]) == {"mail": "xxx1", "room": 7}
    assert (first_call[4], second_call[2]) == ("no xxx1", "xxx1")


def test_the_longest_text_counts_at_each_place() -> None:
    state = {"a": "abcd", "b": "abcdef", "c": "abcdefgh", "d": "xy", "e": "abcdxxxx"}
    message = "abcdefgh abcdefg abcd abc abcxy"
    run = evolve(BOOKING.run, state=state, input={"message": message})
    recording = redacted("state.*", recording=evolve(BOOKING, run=run))
    one, two, three = (recording.run.state[name] for name in "abc")

    assert recording.run.input["message"] == f"{three} {two}g {one} abc abcxy"


def test_json_is_looked_into_twice() -> None:
    inner = json.dumps({"card": "4242-4242", "n": 12})
    outer = json.dumps({"inner": inner, "deep": json.dumps({"inner": inner})})
    run = evolve(BOOKING.run, input={"message": outer, "n": 12})
    recording = redacted("state.card", "input.n", recording=evolve(BOOKING, run=run))
    card = recording.run.state["card"]
    message = json.loads(recording.run.input["message"])

    assert json.loads(message["inner"]) == {"card": card, "n": recording.run.input["n"]}
    deep = json.loads(json.loads(message["deep"])["inner"])
    assert deep == {"card": card, "n": 12}


def test_work_has_a_limit_where_a_server_does_it() -> None:
    bad = redact(BOOKING, ["arguments.mail"], 10)

    assert isinstance(bad, BadPath)
    assert "name fewer, or redact with the command" in bad.detail


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["input"] * (MAX_PATHS + 1), "No more than 64 paths are taken"),
        (["input." + "x" * MAX_PATH], "is longer than 200 characters"),
        (["output", "card"], "The path 'card' begins with none of: user, session_id, input"),
    ],
)
def test_paths_are_checked_without_a_recording(paths: list[str], said: str) -> None:
    bad = check_paths(paths)

    assert isinstance(bad, BadPath)
    assert said in bad.detail
    assert redact(BOOKING, paths) == bad
    assert check_paths(["input", "$.outcome.result.*"]) is None


DEEP = "[" * 40 + "]" * 40


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just(DEEP),
        lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=9), below),
    ),
    st.lists(st.sampled_from([*AREAS, "$", "*", "input.*", "a..b", "input." + "*." * 60 + "*"])),
)
def test_any_value_and_any_path_give_a_value(value: object, paths: list[str]) -> None:
    run = evolve(BOOKING.run, state={"a": value}, input={"message": json.dumps(value)})

    assert isinstance(redact(evolve(BOOKING, run=run), paths), Recording | BadPath)
