"""`JsonMeter`: as many values as a text can have, and as deep, however it is cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.effects import Sleep
from legation.http.bodies.json_meter import MAX_VALUES, SLICE, JsonMeter, measure_json
from legation.http.bodies.json_text import MAX_DEPTH, JsonValue
from legation.http.refusals import BadRequest, TooLarge

texts = st.text('[]{},"\\n: aé', max_size=12)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
)


def measured(*slices: bytes) -> JsonMeter:
    meter = JsonMeter()
    for data in slices:
        meter.feed(data)
    return meter


def size(value: JsonValue) -> int:
    """Return the number of values, those within it and itself."""
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + sum(map(size, value)) if isinstance(value, list) else 1


def height(value: JsonValue) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(height, value), default=0) if isinstance(value, list) else 0


@given(values, st.booleans())
def test_there_are_never_more_values_than_it_counts(value: JsonValue, ascii_only: bool) -> None:
    meter = measured(json.dumps(value, ensure_ascii=ascii_only).encode())

    assert size(value) - 1 <= meter.values <= 2 * size(value)
    assert meter.depth == height(value)


@given(st.binary() | st.text('[]{},"\\ x').map(str.encode), st.data())
def test_it_counts_the_same_however_a_text_is_cut(text: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    slices = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    whole, cut = measured(text), measured(*slices)
    assert (cut.values, cut.depth, cut.reason) == (whole.values, whole.depth, whole.reason)


def run(body: bytes) -> tuple[object, int]:
    """Return what is answered, and after how many pauses."""
    program = measure_json(body)
    pauses = 0
    try:
        while True:
            assert next(program) == Sleep(0.0)
            pauses += 1
    except StopIteration as done:
        return done.value, pauses


TOO_MANY = TooLarge(MAX_VALUES, detail="The body has more than 50000 JSON values")
TOO_DEEP = BadRequest("The body has to be JSON; it is nested deeper than 64 levels")


@pytest.mark.parametrize(
    ("body", "refusal", "most_pauses"),
    [
        (b'"' + b"[,{" * 1_000_000 + b'"', None, 46),
        (b'{"a":"' + b'\\"[,' * 1_000_000 + b'"}', None, 62),
        (b"[" + b"1," * 49_998 + b"1]", None, 2),
        (b"[" + b"1," * 50_001, TOO_MANY, 1),
        (b"[" + b"{}," * 700_000 + b"{}]", TOO_MANY, 1),
        (b"{" + b'"a":1,' * 1_400_000 + b"}", TOO_MANY, 4),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b" " * SLICE, None, 2),
        (b"[" * (MAX_DEPTH + 1) + b" " * SLICE, TOO_DEEP, 0),
        (b'{"a":' * 1_000_000, TOO_DEEP, 0),
        (b"]" * 1_000_000, None, 16),
        (b'""' * 1_000_000, None, 31),
        (b"\\" * 1_000_001, None, 16),
    ],
    ids=lambda value: None if not isinstance(value, bytes) else repr(value[:12]),
)
def test_a_hostile_text_is_measured_slice_by_slice_and_no_further_than_it_counts(
    body: bytes, refusal: object, most_pauses: int
) -> None:
    answer, pauses = run(body)

    assert answer == refusal
    assert pauses <= most_pauses
    assert refusal is not None or pauses == -(-len(body) // SLICE)
