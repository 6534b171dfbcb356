"""What `legation serve --dev` shows: what helps the author, no secret, within a bound."""

from __future__ import annotations

import io
from typing import Any

import pytest

from legation import Agent, Platform, Team
from legation.models.conversation import Message, Prompt, Reply, ToolCall
from legation_cli.dev_output import DevOutput, find_secrets
from legation_testing import Client, ScriptedModel, call

KEY = "k-1234567890abcdef"


def shown(error: BaseException, *secrets: str) -> str:
    stream = io.StringIO()
    DevOutput(stream, secrets).show_error("tool_failed", error)
    return stream.getvalue()


def raised(error: Exception) -> Exception:
    try:
        raise error  # noqa: TRY301
    except Exception as caught:  # noqa: BLE001  it has a traceback now
        return caught


def test_traceback_has_text_and_causes() -> None:
    error = raised(ValueError("customer 17"))
    error.__cause__ = raised(KeyError("cache"))
    text = shown(error)

    assert text.startswith("--- tool_failed\n  | Traceback (most recent call last):\n")
    assert "direct cause" in text
    assert "KeyError: 'cache'" in text
    assert text.endswith("  | ValueError: customer 17\n")


class Broken(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class Hostile(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise ZeroDivisionError


def circle() -> Exception:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    return first


def long_chain() -> Exception:
    last: Exception = raised(ValueError("first"))
    for number in range(1_000):
        error = raised(ValueError(str(number)))
        error.__cause__, last = last, error
    return last


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (Broken(), "Broken"),
        (Hostile("x"), "Hostile"),
        (circle(), "ValueError: b"),
        (long_chain(), "lines left out"),
        (ValueError("x" * 10_000_000), "…"),
        (ValueError("x\n" * 1_000_000), "lines left out"),
        (ExceptionGroup("g", [Broken(), ValueError("inner")]), "inner"),
    ],
    ids=["no text", "notes", "circle", "chain", "long line", "many lines", "group"],
)
def test_whatever_was_raised_is_shown_within_a_bound(error: Exception, word: str) -> None:
    text = shown(raised(error))

    assert word in text
    assert len(text) < 200_000
    assert text.count("\n") <= 162


def test_nothing_moves_the_cursor_or_begins_a_line() -> None:
    text = shown(ValueError("\x1b[2J\x07 \u202e reversed\r--- forged\n--- forged"))

    assert "\\x1b[2J\\x07 \\u202e reversed" in text
    assert text.count("\n--- ") == 0
    assert all(line.isprintable() for line in text.splitlines())


def test_secrets_are_not_shown() -> None:
    environ = {
        "OPENAI_API_KEY": KEY,
        "DB_PASSWORD": "correct horse",
        "JWT_KEY_FILE": "/run/secrets/key.pem",
        "HELP_SECRET": "-----BEGIN PRIVATE KEY-----\nMIIBVAIBADANBgkqhkiG9w0BAQEF\n-----END",
        "LANG": "en_US.UTF-8",
    }
    secrets = find_secrets(environ, ["postgresql://u:pass%20word@h/d", "sqlite:///x.db"])
    said = [KEY, KEY[3:12], "correct horse", "pass word", "pass%20word", "sk-abcdefghijkl"]
    others = ["en_US.UTF-8", "PRIVATE", "/run/secrets/key.pem"]
    text = shown(ValueError("; ".join((*said, *others))), *secrets)

    assert text.splitlines()[-1] == f"  | ValueError: {'; '.join(['[redacted]'] * 6 + others)}"


def test_terminal_that_is_gone_changes_nothing() -> None:
    stream = io.StringIO()
    output = DevOutput(stream)
    stream.close()

    output.show_error("tool_failed", ValueError())


# --- What models are sent ------------------------------------------------------------------------


def burst(item: str) -> str:
    """Look an item up."""
    raise KeyError(item)


def test_models_of_a_platform_are_watched_and_named_as_before() -> None:
    model = ScriptedModel([call("burst", item="x"), "Sorry."])
    clerk = Agent(id="clerk", model=model, tools=[burst], instructions="Be brief.")
    platform = Platform(agents=[clerk], teams=[Team(id="desk", model=model, members=["clerk"])])
    stream = io.StringIO()
    DevOutput(stream).watch_models(platform)
    with Client(platform, raise_errors=False) as client:
        before = client.get("/agents").json()
        assert client.run("clerk", "hi", session_id="s")["content"] == "Sorry."

    assert before[0]["model"] == {"name": "Scripted", "model": "scripted", "provider": "Legation"}
    assert (
        stream.getvalue()
        == """\
--- clerk asks scripted
  | system: Be brief.
  | user: hi
  | tools: burst
--- scripted answers clerk
  | calls burst {"item":"x"}
--- clerk asks scripted
  | system: Be brief.
  | user: hi
  | assistant:
  |            calls burst {"item":"x"}
  | tool: The tool failed (KeyError)
  | tools: burst
--- scripted answers clerk
  | Sorry.
"""
    )


def test_long_conversations_and_messages_are_shortened() -> None:
    stream = io.StringIO()
    messages = tuple(Message("user", f"{n}\n" * 100) for n in range(50))
    DevOutput(stream).show_prompt("a", "m", Prompt(messages, output_schema={"title": "Order"}))
    text = stream.getvalue()

    assert "(38 messages before)" in text
    assert "(79 lines left out)" in text
    assert text.endswith("  | output_schema: Order\n")
    assert text.count("\n") < 300


def test_answer_with_calls_and_text() -> None:
    stream = io.StringIO()
    calls = (ToolCall("1", "pay", "{}"), ToolCall("2", "look", "{}"))
    DevOutput(stream).show_reply("a", "m", Reply("One\nmoment", calls=calls))

    assert stream.getvalue().splitlines()[1:] == [
        "  | One",
        "  | moment",
        "  | calls pay {}",
        "  | calls look {}",
    ]


def test_model_that_is_watched_is_the_same_in_all_else() -> None:
    model: Any = ScriptedModel(["x"])
    platform = Platform(agents=[Agent(id="a", model=model)])
    DevOutput(io.StringIO()).watch_models(platform)

    assert platform.context.registry.agents["a"].model.steps_left == 1  # type: ignore[attr-defined]
