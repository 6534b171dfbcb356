from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.api.fields import fields_of, read_query
from legation.api.moments import LAST_US, MOMENT_FAULT, moment, read_moment
from legation.values import frozen

DAY = 1_767_225_600  # 2026-01-01


@frozen
class Query:
    since: int | None = moment("Not before")


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("0", 0),
        (str(DAY), DAY * 1_000_000),
        (str(1 << 40), LAST_US),
        ("2026-01-01", DAY * 1_000_000),
        ("2026-01-01T00:00:00Z", DAY * 1_000_000),
        ("2026-01-01T00:00:00.5Z", DAY * 1_000_000 + 500_000),
        ("2026-01-01T00:00:00.000001Z", DAY * 1_000_000 + 1),
        ("2026-01-01T02:00:00+02:00", DAY * 1_000_000),
        ("2025-12-31T19:00:00-05:00", DAY * 1_000_000),
        ("1970-01-01", 0),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000_000),
    ],
    ids=str,
)
def test_seconds_and_times_are_moments(text: str, us: int) -> None:
    assert read_moment(text) == us


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "1.5",
        "1e9",
        "٣",
        str((1 << 40) + 1),
        "9" * 10_000,
        "yesterday",
        "20260101T000000Z",
        "2026-W01-1",
        "2026-02-30",
        "2026-13-01",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00Z",
        "2026-01-01 00:00:00Z",
        "2026-01-01T00:00:00 02:00",
        "2026-01-01T00:00:00.0000001Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01Z",
        "1969-12-31",
        "0001-01-01T00:00:00+23:59",
        "0000-01-01",
        "2026-01-01\n",
    ],
    ids=lambda text: text[:30] or "empty",
)
def test_everything_else_is_refused_with_a_sentence(text: str) -> None:
    assert read_moment(text) is None


def test_a_query_names_the_field() -> None:
    assert read_query(Query, "since=2026-01-01") == (Query(DAY * 1_000_000), ())
    assert read_query(Query, "") == (Query(None), ())
    _, (fault,) = read_query(Query, "since=2026-01-01T00:00:00+02:00")  # the + is a space
    assert (fault.path, fault.message) == ("query.since", MOMENT_FAULT)
    _, (fault,) = read_query(Query, "since=1&since=2")
    assert fault.path == "query.since"


@given(st.one_of(st.text(), st.datetimes(timezones=st.timezones()).map(lambda at: at.isoformat())))
def test_any_text_is_a_moment_or_none(text: str) -> None:
    found = read_moment(text)

    assert found is None or 0 <= found <= LAST_US
    if found is not None:
        assert any(fits(text, one) for one in fields_of(Query)[0].schema["anyOf"])


def fits(text: str, schema: dict[str, Any]) -> bool:
    if schema["type"] == "string":
        return re.search(schema["pattern"], text) is not None and len(text) <= schema["maxLength"]
    return text.isdigit()
