"""Functions of channels: what they take, and what is refused before a message comes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, ConfigurationError
from legation.hosted.sender_functions import SenderFunction, host_sender_function

from ...providers.deliveries import channels, platform

OFFERED = ("sender", "text", "agent")


def positional(sender: object, /) -> None:
    """Take the sender by its place alone."""


def unknown(sender: object, mood: str) -> None:
    """Take what nobody offers."""


def pieces(sender: object) -> Iterator[str]:
    """Yield, and return nothing."""
    yield ""


async def parts(sender: object) -> AsyncIterator[str]:
    """Yield, and return nothing."""
    yield ""


def test_a_function_is_given_the_arguments_that_it_names() -> None:
    def choose(text: str, *rest: str, sender: object, limit: int = 3, **more: str) -> None:
        """Take two of three."""

    hosted = host_sender_function("router", choose, OFFERED)

    assert hosted == SenderFunction("router", choose, ("text", "sender"))
    assert host_sender_function("router", 3, OFFERED) == "expected a function, not int"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("m:f", "'m:f' is imported from a configuration file alone; give the function itself"),
        (pieces, "is a generator; expected a function that returns one text, or None"),
        (parts, "is a generator; expected a function that returns one text, or None"),
        (dict, "expected a function whose parameters are known"),
        (unknown, "parameter 'mood' is none of: sender, text, agent"),
        (positional, "parameter 'sender' is none of: sender, text, agent"),
    ],
    ids=["name", "generator", "async generator", "class", "unknown", "positional"],
)
def test_what_cannot_be_called_so_is_refused_with_its_path(given: Any, why: str) -> None:
    assert host_sender_function("router", given, OFFERED) == why
    (one,) = (made for made in channels("http://127.0.0.1:9") if made.kind == "telegram")
    agents = [Agent(id="concierge"), Agent(id="lawyer")]
    with pytest.raises(ConfigurationError) as caught:
        routed = evolve(one, router=given, agents={"/legal": "lawyer"})
        platform(agents=agents, channels=[routed])

    assert [(f.path, f.message) for f in caught.value.faults] == [("channels.telegram.router", why)]


def test_a_router_without_others_has_nobody_to_choose() -> None:
    (one,) = (made for made in channels("http://127.0.0.1:9") if made.kind == "telegram")
    with pytest.raises(ConfigurationError) as caught:
        platform(channels=[evolve(one, router=lambda text: None)])

    why = "has nobody to choose: name others in `agents`"
    assert [(f.path, f.message) for f in caught.value.faults] == [("channels.telegram.router", why)]
