"""Options of channels: taken as they are meant, or refused with their path and a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from legation import Channel, ConfigurationError

from ...providers.deliveries import channels, platform


def options(**given: Any) -> Any:
    """Return the options of a channel that was given these."""
    return platform(channels=[_channel(**given)]).registry.channels["standard"].options


def _channel(**given: Any) -> Channel:
    (standard,) = (one for one in channels("http://127.0.0.1:9") if one.kind == "standard")
    return evolve(standard, **given)


def faults(**given: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigurationError) as caught:
        options(**given)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def test_sessions_are_of_threads_and_people_unless_a_channel_says_otherwise() -> None:
    assert options().session == "thread and person"
    assert [options(session=name).session for name in ("thread", "person")] == ["thread", "person"]
    assert faults(session="group") == [
        (
            "channels.standard.session",
            "'group' is none of: thread and person, thread, person",
        )
    ]


def test_nobody_approves_unless_a_channel_says_who() -> None:
    assert options().approve == frozenset()
    assert options(approve=("sender", "U1")).approve == {"sender", "U1"}
    assert options(approve="sender").approve == {"sender"}


@pytest.mark.parametrize(
    ("approve", "why"),
    [
        (("nobody", "U1"), '"nobody" stands alone, or not at all'),
        (("U1", " "), "an id has 1 to 256 visible characters"),
        (("a\nb", ""), "an id has 1 to 256 visible characters"),
        (("x" * 257,), "an id has 1 to 256 visible characters"),
    ],
)
def test_who_approves_is_named_by_ids_or_refused(approve: tuple[str, ...], why: str) -> None:
    assert faults(approve=approve) == [("channels.standard.approve", why)]
