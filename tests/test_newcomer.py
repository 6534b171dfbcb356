"""The newcomer's path without the install: its first command, and its steps in the console."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .browser import NoBrowser
from .frontends.command_kit import running
from .frontends.console_kit import console
from .newcomer import LIMIT, Laps, book, first_command
from .transcripts import ROOT


def test_first_command_of_the_readme_installs_and_then_serves() -> None:
    command = first_command(ROOT / "README.md")

    made, installed, served = command.split(" && ")
    assert made == "python3 -m venv .venv"
    assert re.fullmatch(r"\.venv/bin/pip install (--quiet )?\.", installed)
    assert served == ".venv/bin/legation serve"


def test_somebody_new_books_a_room_in_the_console_and_approves_it(tmp_path: Path) -> None:
    laps = Laps()
    try:
        with (
            running("--port", "0", env={"LEGATION_DATA": str(tmp_path)}, cwd=tmp_path) as server,
            console() as shown,
        ):
            origin = server.until_served()

            booked = book(shown, origin, laps)

            shown.assert_clean()
    except NoBrowser as reason:
        pytest.skip(str(reason))
    assert re.fullmatch(r"Booked: a double room for Ada, .* The number is H-\d+", booked)
    assert [step for step, _ in laps.steps] == [
        "open the console",
        "ask for free rooms",
        "ask for a room",
        "find it under approvals",
        "approve it",
        "read the number of the booking",
    ]


def test_table_has_each_step_and_their_sum() -> None:
    laps = Laps([("clone", 1.25), ("install", 8.5)])

    assert laps.total == 9.75
    assert laps.table().splitlines() == [
        "   1.2 s  clone",
        "   8.5 s  install",
        f"   9.8 s  in all, of {LIMIT:.0f} s",
    ]
