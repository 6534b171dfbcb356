"""The limits as an operator changes them."""

from __future__ import annotations

import pytest
from attrs import asdict

from legation_server import DEFAULT, BadLimit, Settings, parse_limits


def test_what_is_not_named_keeps_its_default() -> None:
    assert parse_limits([]) == DEFAULT
    assert parse_limits(["connections=5000", "header_seconds=2.5"]) == Settings(
        connections=5000, header_seconds=2.5
    )


def test_a_limit_that_is_off_can_be_switched_on() -> None:
    assert parse_limits(["request_seconds=30"]).request_seconds == 30.0


@pytest.mark.parametrize("name", asdict(DEFAULT))
def test_every_limit_can_be_changed(name: str) -> None:
    assert asdict(parse_limits([f"{name}=7"]))[name] == 7


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("speed=9", "there is no limit 'speed': write one of header_seconds, body_seconds"),
        ("connections", "the limit 'connections' takes a whole number, not ''"),
        ("connections=many", "takes a whole number, not 'many'"),
        ("connections=1.5", "takes a whole number, not '1.5'"),
        ("body_seconds=soon", "the limit 'body_seconds' takes a number, not 'soon'"),
        ("connections=0", "a limit is out of range: 'connections' must be > 0: 0"),
        ("drain_seconds=-1", "a limit is out of range: 'drain_seconds' must be >= 0: -1.0"),
        ("drain_seconds=inf", "a limit is out of range: 'drain_seconds' must be <= 86400: inf"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(BadLimit) as refused:
        parse_limits([text])

    assert told in str(refused.value)


def test_a_time_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(BadLimit):
        parse_limits(["header_seconds=nan"])
