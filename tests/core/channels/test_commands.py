"""Commands: which messages are one, and the text that says which there are."""

from __future__ import annotations

import pytest

from legation.channels.commands import Command, help_text, read_command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/help", Command.HELP),
        (" /HELP\n", Command.HELP),
        ("/help@my_bot", Command.HELP),
        ("/stop", Command.STOP),
        ("/start", Command.START),
        ("/start campaign_7", Command.START),
        ("/stop the engine", None),
        ("/help me", None),
        ("/help!", None),
        ("/start a\nb", None),
        ("please /stop", None),
        ("/new", None),
        ("/stop@" + "x" * 100_000 + "!", None),
        ("", None),
    ],
)
def test_a_command_stands_alone(text: str, command: Command | None) -> None:
    assert read_command(text) == command


def test_the_help_says_who_answers_and_names_every_command() -> None:
    text = help_text("Concierge", "answers guests.", (("/legal", "asks Lawyer"),))

    assert text.splitlines() == [
        "This is Concierge: answers guests.",
        "",
        "/legal asks Lawyer",
        "/new begins a new conversation",
        "/help shows this text",
        "/stop ends all messages from here",
        "/start begins them again",
    ]
    assert help_text("Concierge", None).startswith("This is Concierge.\n")
