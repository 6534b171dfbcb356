"""Outcomes of steps as they are stored: what is read is what was written, for ever."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.models.conversation import Message, Thought, ToolCall, Usage
from legation.runs.step_outcomes import (
    MAX_OUTCOME,
    ModelOutcome,
    StepTooLarge,
    UnknownOutcome,
    decode_call,
    decode_calls,
    decode_model,
    decode_outcome,
    encode_call,
    encode_calls,
    encode_model,
    encode_outcome,
)
from legation.runs.turn_state import CallState, Standing
from legation.store.steps import Step, StepKind
from legation.tools.accepted import is_object

SAMPLES = Path(__file__).parent / "samples"
PLAIN = 1 << 16
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
COUNTS = st.integers(0, 1 << 40)
WAITING = (Standing.CONFIRM, Standing.EXTERNAL)
STEP = Step("1.1", StepKind.CALL, "book", 5, 9)


def admit(call_id: str, name: str, arguments: Any, standing: Standing, result: str) -> CallState:
    """Return a call as a tool set admits it at 7."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    shown: Mapping[str, Any] = arguments if is_object(arguments) else {}
    call = CallState(call=ToolCall(call_id, name, text), created_us=7, arguments=shown)
    if standing is Standing.DONE:
        return evolve(call.with_result(result, failed=True), announced=True)
    if standing in WAITING:
        return evolve(call, standing=standing, needs=standing, announced=True)
    return call


ARGUMENTS = st.dictionaries(TEXT, st.none() | st.booleans() | st.integers() | TEXT, max_size=3)
ADMITTED = st.builds(
    admit,
    TEXT,
    TEXT,
    ARGUMENTS | st.sampled_from(["", "[1]", "{", "null", "é{"]),
    st.sampled_from([Standing.DUE, *WAITING, Standing.DONE]),
    TEXT,
)
THOUGHTS = st.builds(Thought, TEXT, TEXT, COUNTS, COUNTS)


@given(
    content=TEXT,
    calls=st.lists(ADMITTED, max_size=3),
    thoughts=st.lists(THOUGHTS, max_size=2),
    reasoning=TEXT,
    usage=st.builds(Usage, *[COUNTS] * 5),
    seconds=st.none() | st.just(0.0) | st.floats(0, 1e9),
    correction=TEXT,
)
def test_an_answer_of_a_model_is_read_as_it_was(
    content: str,
    calls: list[CallState],
    thoughts: list[Thought],
    reasoning: str,
    usage: Usage,
    seconds: float | None,
    correction: str,
) -> None:
    message = Message(
        "assistant",
        content,
        calls=tuple(call.call for call in calls),
        thoughts=tuple(thoughts),
        reasoning=reasoning,
    )
    stored = encode_outcome("3", "m", encode_model(message, usage, seconds, calls, correction))
    outcome = decode_model(decode_outcome(stored), 7)

    assert outcome == ModelOutcome(message, usage, seconds, tuple(calls), correction)


@given(
    ADMITTED,
    TEXT,
    st.booleans(),
    st.booleans(),
    st.none() | TEXT.filter(bool),
)
def test_a_call_is_done_as_it_was(
    call: CallState, result: str, failed: bool, last: bool, run: str | None
) -> None:
    done = call.with_result(result, failed=failed, last=last)
    done = evolve(done, started_us=5, ended_us=9, child_run_id=run)
    stored = encode_outcome("1.1", "book", encode_call(done))
    begun = evolve(call, in_doubt=True)

    assert decode_call(begun, decode_outcome(stored), STEP) == done


@given(st.lists(ADMITTED, max_size=4))
def test_calls_that_no_model_asked_for_are_read_as_they_were(calls: list[CallState]) -> None:
    stored = encode_outcome("0", "t", {"calls": encode_calls(calls)})

    assert decode_calls(decode_outcome(stored)["calls"], 7) == tuple(calls)


# --- sizes ---------------------------------------------------------------------------------------


def sized(size: int, filler: str = "x") -> dict[str, Any]:
    """Return an outcome whose JSON has this many bytes."""
    bare = len(encode_outcome("1", "a", {"result": ""}))
    return {"result": filler * ((size - bare) // len(filler.encode()))}


def test_an_outcome_is_deflated_from_one_byte_over_64_kib() -> None:
    plain = encode_outcome("1", "a", sized(PLAIN))
    deflated = encode_outcome("1", "a", sized(PLAIN + 1))

    assert len(plain) == PLAIN
    assert json.loads(plain)["f"] == 1
    assert deflated.startswith("z:")
    assert len(deflated) < PLAIN
    assert decode_outcome(deflated)["result"] == sized(PLAIN + 1)["result"]


@pytest.mark.parametrize("filler", ["x", "\u20ac", "\U0001f600"], ids=["ascii", "euro", "emoji"])
def test_the_largest_outcome_is_stored_and_counted_in_bytes(filler: str) -> None:
    members = sized(MAX_OUTCOME, filler)

    assert decode_outcome(encode_outcome("1", "a", members))["result"] == members["result"]
    with pytest.raises(StepTooLarge):
        encode_outcome("1", "a", {"result": members["result"] + filler})


def test_one_byte_more_is_refused_with_a_sentence_that_names_the_step_and_the_limit() -> None:
    assert encode_outcome("3.2", "report", sized(MAX_OUTCOME))
    with pytest.raises(StepTooLarge) as refused:
        encode_outcome("3.2", "report", sized(MAX_OUTCOME + 1))

    assert str(refused.value) == (
        "The run was ended: step 3.2 (report) has 1048577 bytes, and no more than 1048576 are"
        " stored of one"
    )


# --- stored samples ------------------------------------------------------------------------------

# What is in `samples` was stored once, and is never written again.
USAGE = Usage(11, 5, 3, 2, 1)


def sample(name: str) -> dict[str, Any]:
    return dict(decode_outcome((SAMPLES / f"{name}.txt").read_text().strip()))


def test_a_stored_answer_loads() -> None:
    outcome = decode_model(sample("model"), 7)

    assert outcome.message == Message(
        "assistant",
        "Ich prüfe 1 €.",
        calls=tuple(call.call for call in outcome.calls),
        thoughts=(Thought("claude", "b64==", 12, 2),),
        reasoning="Hm.",
    )
    assert (outcome.usage, outcome.seconds, outcome.correction) == (USAGE, 0.0, "")
    assert outcome.calls == (
        admit("c1", "look", {"what": "Zürich"}, Standing.DUE, ""),
        admit("c2", "book", {"room": 7}, Standing.CONFIRM, ""),
        admit("c3", "shell", {}, Standing.EXTERNAL, ""),
        admit("c4", "fly", "{", Standing.DONE, "There is no tool of the name 'fly'"),
    )


def test_a_stored_answer_of_the_wrong_shape_loads() -> None:
    outcome = decode_model(sample("corrected"), 7)

    assert outcome.message == Message("assistant", "{}")
    assert (outcome.seconds, outcome.calls) == (None, ())
    assert outcome.correction == "n is missing. Answer again, with the JSON alone."


def test_a_stored_call_loads() -> None:
    call = decode_call(admit("c", "look", {}, Standing.DUE, ""), sample("call"), STEP)

    assert (call.result, call.failed, call.last) == ("Zürich: 3 °C", False, False)
    assert (call.started_us, call.ended_us, call.child_run_id) == (5, 9, None)


def test_a_stored_call_that_failed_loads() -> None:
    call = decode_call(admit("c", "look", {}, Standing.DUE, ""), sample("failed"), STEP)

    assert (call.standing, call.result, call.failed) == (Standing.DONE, "", True)


def test_a_stored_call_of_a_member_loads() -> None:
    call = decode_call(admit("c", "d", {}, Standing.DUE, ""), sample("member"), STEP)

    assert (call.result, call.last) == ("All done.", True)
    assert call.child_run_id == "019ab2f1-0000-7c7b-9d31-0b4a1c8c2f11"


def test_stored_starts_load() -> None:
    start = sample("start")

    assert (start["definition"], start["history"]) == ("ab" * 32, [3, 4])
    assert decode_calls(start["calls"], 7) == (
        admit("call_1", "delegate_task_to_member", {"member_id": "a"}, Standing.DUE, ""),
    )
    assert {name: sample("member_start")[name] for name in ("kind", "name")} == {
        "kind": "agent",
        "name": "Anna",
    }


def test_a_stored_deflated_outcome_loads() -> None:
    assert sample("deflated")["result"] == "0123456789é" * 7_000


def test_every_sample_is_read_here() -> None:
    names = {path.stem for path in SAMPLES.iterdir()}

    assert names == {
        "call",
        "corrected",
        "deflated",
        "failed",
        "member",
        "member_start",
        "model",
        "start",
    }


@pytest.mark.parametrize("text", ['{"f":3,"result":"a"}', '{"result":"a"}', '{"f":"1"}', "{}"])
def test_an_outcome_of_another_format_is_not_guessed_at(text: str) -> None:
    with pytest.raises(UnknownOutcome, match="format"):
        decode_outcome(text)
