"""Runs of booking.py that were recorded: after each change of the code they come to the same.

pytest -p legation_testing.pytest_replay --replay recordings --replay-platform booking:platform
does it without a file of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from booking import INSTRUCTIONS, book_room, booked, free_rooms, platform

from legation import Platform, tool
from legation_testing import Recording

FILES = sorted((Path(__file__).parent / "recordings").glob("*.run.jsonl"))


def change(**members: Any) -> Platform:
    """Return the platform as it would be with the agent changed."""
    (desk,) = platform.config.agents
    return Platform(agents=[evolve(desk, **members)])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_recorded_run_comes_to_the_same(path: Path) -> None:
    booked.clear()

    replayed = Recording.read(path).replay(platform)

    assert replayed.same, replayed.first
    assert booked == []  # no tool was called


def test_functions_of_tools_may_be_called() -> None:
    booked.clear()

    replayed = Recording.read(FILES[0]).replay(platform, tools="live")

    assert replayed.same, replayed.first
    assert booked == ["blue for 2"]


def test_other_instructions_are_shown_as_a_diff() -> None:
    changed = change(instructions=INSTRUCTIONS.replace("small", "grand"))

    first = Recording.read(FILES[0]).replay(changed).first

    assert first.startswith("Place 1: The instructions differ\n--- recorded\n+++ now\n")
    assert "+You are at the desk of a grand hotel." in first


def test_approval_that_is_no_longer_asked_for_is_shown() -> None:
    unasked = tool(book_room.function)

    first = Recording.read(FILES[0]).replay(change(tools=[free_rooms, unasked])).first

    sentence = "book_room was to be confirmed by a person, and now is carried out at once"
    assert first == f"Place 1.1: {sentence}"
