from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.replay.recording import (
    MAX_FILE,
    MAX_LINE,
    MAX_STEPS,
    BadRecording,
    RecordedStep,
    Recording,
    decode_recording,
    encode_recording,
    order_of,
    read_recording,
)
from legation.tools.accepted import is_array, is_object

from .recordings import BOOKING, TEAM

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=4), below),
    max_leaves=8,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
ANSWERS = st.lists(
    st.tuples(TEXT, st.lists(TEXT, max_size=3), st.booleans()), min_size=1, max_size=4
)


def encode(recording: Recording) -> bytes:
    return "".join(f"{line}\n" for line in encode_recording(recording)).encode()


def edit(number: int, change: dict[str, Any], recording: Recording = BOOKING) -> list[str]:
    """Return the lines with members of one changed; those that are `...` are left out."""
    lines = list(encode_recording(recording))
    whole = {**json.loads(lines[number - 1]), **change}
    lines[number - 1] = json.dumps({n: v for n, v in whole.items() if v is not ...})
    return lines


def detail(lines: list[str]) -> str:
    bad = decode_recording(lines)
    assert isinstance(bad, BadRecording)
    return bad.detail


@pytest.mark.parametrize("recording", [BOOKING, TEAM], ids=["agent", "team"])
def test_what_was_written_is_read_again(recording: Recording) -> None:
    assert read_recording(encode(recording)) == recording
    assert decode_recording(f"{line}\n" for line in encode_recording(recording)) == recording


def test_the_members_of_each_line_have_one_order() -> None:
    first, defined, history, step, call, last, end = encode_recording(BOOKING)

    assert first.startswith('{"format":1,"run":{"kind":"agent","component":"shop","run_id":"r1"')
    assert list(json.loads(defined)) == ["definition", "kind", "component", "document"]
    assert list(json.loads(history)) == ["history"]
    assert list(json.loads(step)) == ["place", "kind", "asked", "outcome", "seconds"]
    assert list(json.loads(call)) == ["place", "kind", "name", "arguments", "outcome"]
    assert list(json.loads(last)) == ["place", "kind", "asked", "outcome"]
    assert end == '{"end":"COMPLETED","output":{"content":"Done"}}'


def test_places_are_sorted_by_their_numbers() -> None:
    shuffled = ["10", "3.10", "3.2/1.1", "1", "4", "3.2/1", "3", "2", "3.2/0", "3.2"]
    places = ["1", "2", "3", "3.2", "3.2/0", "3.2/1", "3.2/1.1", "3.10", "4", "10"]

    assert sorted(shuffled, key=order_of) == places


@given(ANSWERS)
def test_every_recording_makes_the_round_trip(answers: list[tuple[str, list[str], bool]]) -> None:
    steps: list[RecordedStep] = []
    for number, (content, results, known) in enumerate(answers, 1):
        calls = [[f"c{n}", "book", "{}", "due"] for n, _ in enumerate(results)]
        outcome = {"content": content, "calls": calls, "usage": [1, 2, 3, 4, 5]}
        steps.append(RecordedStep(str(number), "model", "gpt", outcome))
        for n, result in enumerate(results, 1):
            done = {"result": result} if known else None
            steps.append(RecordedStep(f"{number}.{n}", "call", "book", done, {"a": result}, 0.5))
    recording = evolve(BOOKING, steps=tuple(steps))

    assert read_recording(encode(recording)) == recording


@given(st.binary(max_size=200))
def test_any_bytes_give_a_value(data: bytes) -> None:
    assert isinstance(read_recording(data), BadRecording)


@given(st.data())
def test_an_edited_file_gives_a_value(data: st.DataObject) -> None:
    recording = data.draw(st.sampled_from([BOOKING, TEAM]))
    lines = list(encode_recording(recording))
    number = data.draw(st.integers(0, len(lines) - 1))
    whole = json.loads(lines[number])
    node: Any = whole
    for _ in range(data.draw(st.integers(0, 4))):
        below: list[Any] = list(node.values()) if is_object(node) else node
        deeper = [one for one in below if (is_object(one) or is_array(one)) and one]
        node = data.draw(st.sampled_from(deeper)) if deeper else node
    keys: list[Any] = sorted(node) if is_object(node) else list(range(len(node)))
    edited: Any = node
    edited[data.draw(st.sampled_from(keys))] = data.draw(JSON)
    lines[number] = json.dumps(whole)

    assert isinstance(decode_recording(lines), Recording | BadRecording)


@given(st.integers(0, 2000))
def test_a_cut_file_is_no_recording(size: int) -> None:
    whole = encode(BOOKING)
    cut = read_recording(whole[: min(size, len(whole) - 2)])

    assert isinstance(cut, BadRecording)
    assert "cut" in cut.detail or "missing" in cut.detail


MODEL = {"content": "Done", "usage": [1, 1, 0, 0, 0]}
CALL = ["c1", "book", "{}", "due"]


EDITS: list[tuple[int, dict[str, Any], str]] = [
    (1, {"format": 2}, "Line 1 cannot be read: its format is 2, and this release reads"),
    (1, {"format": ...}, "Line 1 cannot be read: format is missing"),
    (1, {"run": 3}, "run is not an object"),
    (1, {"run": {}}, "run.kind is missing"),
    (1, {"host": "h"}, "'host' is an unknown member"),
    (2, {"component": "other"}, "the definition is not that of its digest"),
    (2, {"history": []}, "'history' is an unknown member"),
    (3, {"history": [1]}, "a message of the history is no object"),
    (3, {"history": [{"role": "user"}]}, "history: content is missing"),
    (3, {"history": [{"role": "user", "content": "", "calls": [3]}]}, "calls has one that"),
    (4, {"kind": "wait"}, "Line 4 cannot be read: kind is none of"),
    (4, {"kind": 3}, "kind is none of"),
    (4, {"place": "1.x"}, "'1.x' is no place"),
    (4, {"place": "0"}, "place 0 is none of a model"),
    (4, {"place": "1.1"}, "place 1.1 is none of a model"),
    (4, {"place": "1.1/1"}, "place 1.1/1 is below no member"),
    (4, {"seconds": "1"}, "seconds is not a number"),
    (4, {"outcome": {}}, "outcome.usage is missing"),
    (4, {"outcome": {**MODEL, "usage": [1]}}, "outcome.usage is not five numbers"),
    (4, {"outcome": {**MODEL, "model": ["m"]}}, "outcome.model is not an id and a provider"),
    (4, {"outcome": {**MODEL, "model": ["m", 3]}}, "outcome.model is not an id and a provider"),
    (4, {"outcome": {**MODEL, "thoughts": [[]]}}, "outcome.thoughts is not"),
    (4, {"outcome": {**MODEL, "calls": [["c1"]]}}, "calls has one that is no call"),
    (4, {"outcome": {**MODEL, "calls": [[*CALL[:3], 3]]}}, "calls has one that is no call"),
    (4, {"outcome": {**MODEL, "calls": [[*CALL[:3], "sits"]]}}, "stands as none can"),
    (4, {"outcome": {**MODEL, "calls": [[*CALL[:3], "done"]]}}, "stands as none can"),
    (5, {"place": "1"}, "Line 5 cannot be read: place 1 stands in the file twice"),
    (5, {"place": "0.1"}, "place 0.1 is out of order"),
    (5, {"place": "1.2"}, "place 1 has no call 2"),
    (5, {"name": "sell"}, "the call at place 1.1 is not of the tool that place 1 says"),
    (5, {"outcome": {"result": 3}}, "outcome.result is not text"),
    (6, {"place": "3"}, "place 2 is missing"),
    (7, {"end": "ASLEEP"}, "end is no state of a run"),
]


@pytest.mark.parametrize(("number", "change", "said"), EDITS)
def test_an_edited_line_is_named(number: int, change: dict[str, Any], said: str) -> None:
    bad = detail(edit(number, change))

    assert bad.startswith(f"Line {number} cannot be read: ")
    assert said in bad


def test_the_kind_of_a_run_is_one_of_two() -> None:
    run = {**json.loads(next(encode_recording(BOOKING)))["run"], "kind": "flow"}

    assert "run.kind is neither" in detail(edit(1, {"run": run}))


def test_lines_that_are_missing_or_too_many_are_named() -> None:
    lines = list(encode_recording(BOOKING))

    assert detail([]) == "Line 1 cannot be read: the line with the end is missing; the file was cut"
    assert "Line 7 cannot be read: the line with the end is missing" in detail(lines[:6])
    assert "it names a definition that no line" in detail([lines[0], *lines[2:]])
    assert "a step stands before the history" in detail([*lines[:2], *lines[3:]])
    assert "the end stands before the history" in detail([*lines[:2], lines[-1]])
    assert "it is the second line with a history" in detail([*lines[:3], *lines[2:]])
    assert "it defines once more" in detail([*lines[:2], *lines[1:]])
    assert "a definition stands behind" in detail([*lines[:3], lines[1], *lines[3:]])
    assert "something stands behind the end" in detail([*lines, lines[0]])
    assert "it is no line of a recording" in detail([*lines[:3], '{"x":1}'])
    assert "it is no JSON object" in detail(["3"])
    assert "the file may have been cut" in detail([lines[0][:-5]])
    assert isinstance(decode_recording([*lines, "", ""]), Recording)


def test_a_redacted_file_has_definitions_of_other_digests() -> None:
    run = evolve(BOOKING.run, redacted=True)
    (shop,) = BOOKING.definitions
    recording = evolve(BOOKING, run=run, definitions=(evolve(shop, document={}),))

    assert read_recording(encode(recording)) == recording


def test_a_file_and_a_line_have_a_limit() -> None:
    first = next(encode_recording(BOOKING))
    whole = read_recording(b"x" * (MAX_FILE + 1))

    assert "no more than 16777216 are read of one" in detail([first, "x" * (MAX_LINE + 1)])
    assert isinstance(whole, BadRecording)
    assert "no more than 67108864 are read" in whole.detail


def test_many_lines_are_no_longer_than_a_file() -> None:
    head, content = list(encode_recording(BOOKING))[:3], "x" * (MAX_LINE - 200)
    step = '{{"place":"{}","kind":"model","asked":"gpt","outcome":{}}}'
    outcome = json.dumps({"content": content, "usage": [0] * 5})
    steps = [step.format(number, outcome) for number in range(1, 34)]

    assert "more than 67108864 bytes are not read" in detail([*head, *steps])


def test_steps_have_a_limit() -> None:
    head = list(encode_recording(BOOKING))[:3]
    step = '{{"place":"{}","kind":"model","asked":"gpt","outcome":null}}'
    steps = [step.format(number) for number in range(1, MAX_STEPS + 2)]

    assert "no more than 100000 steps are read" in detail([*head, *steps])
