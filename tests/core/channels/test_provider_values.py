"""What is read of a provider's JSON, whatever it holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.channels.provider_values import at, identifier, moment_us, objects, text_at
from legation.http.bodies.json_text import JsonValue

JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(JSON, st.lists(st.text(max_size=3), max_size=3))
def test_any_path_through_any_value_leads_somewhere_or_to_nothing(
    value: JsonValue, path: list[str]
) -> None:
    found = at(value, *path)

    assert text_at(value, *path) == (found if isinstance(found, str) else "")
    assert all(isinstance(member, dict) for member in objects(value))


@given(JSON)
def test_an_identifier_is_short_visible_text(value: JsonValue) -> None:
    found = identifier(value)

    assert found == "" or (found.isprintable() and len(found) <= 256 and not found.isspace())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (7, "7"),
        (-100, "-100"),
        (True, ""),
        (1.5, ""),
        ("", ""),
        (" ", ""),
        ("a\nb", ""),
        ("x" * 257, ""),
        (10**300, ""),
        (["x"], ""),
    ],
)
def test_identifiers_are_strings_or_integers(value: JsonValue, text: str) -> None:
    assert identifier(value) == text


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("1600000000", 1_600_000_000_000_000),
        (1600000001, 1_600_000_001_000_000),
        ("1515449522.000016", 1_515_449_522_000_016),
        (1.5, 1_500_000),
        (-1, None),
        (10**300, None),
        ("tomorrow", None),
        ("١٥", None),
        (True, None),
        (None, None),
    ],
)
def test_a_moment_is_read_or_unknown(value: JsonValue, moment: int | None) -> None:
    assert moment_us(value) == moment
