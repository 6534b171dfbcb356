from __future__ import annotations

from typing import Any

import pytest

from legation.guards import (
    GUARDS,
    Guard,
    Guarded,
    GuardLike,
    Judge,
    Length,
    MatchesSchema,
    Redact,
    Refuse,
    ToolAccess,
)

SCHEMA = {"type": "object", "required": ["a"]}


def check(guarded: Guarded) -> None: ...


ALL_OF = "input, prompt, output, arguments, result"
MOMENTS_OF = "before_run, before_model, after_model, before_tool, after_tool"
WORDS = "must be at most 100 texts of 1 to 200 characters"
ONE = "name either a model or an agent that judges"
HOSTILE = "(a+)+$"


@pytest.mark.parametrize(
    ("guard", "faults"),
    [
        (Guard(), [("", f"has no function: give one for {MOMENTS_OF}")]),
        (Guard(before_run=check), []),
        (Length(0), [("most", "must be an integer of at least 1")]),
        (Length(2, least=3), [("least", "must be an integer from 0 to that of `most`")]),
        (Length(2, of=()), [("of", f"names nothing; give one or more of: {ALL_OF}")]),
        (Length(2, of="all"), [("of", f"'all' is none of: {ALL_OF}")]),
        (MatchesSchema(SCHEMA), []),
        (MatchesSchema(5), [("schema", "must be a JSON schema, as a mapping")]),  # type: ignore[arg-type]
        (ToolAccess(), [("", "lists nothing: give allow, deny, or both")]),
        (ToolAccess(deny={"*": ["a"]}), []),
        (
            ToolAccess(allow={"*": [str(n) for n in range(1001)]}),
            [("allow", "has more than 1000 scopes, or names of tools beside one")],
        ),
        (Redact(), [("", "redacts nothing: give patterns, words, or both")]),
        (
            Redact(patterns=HOSTILE),
            [("patterns", f"'{HOSTILE}' is none of: key, email, iban, card, phone")],
        ),
        (Redact(words=HOSTILE), []),
        (Redact(words=[""]), [("words", WORDS)]),
        (Redact(words=["x"] * 101), [("words", WORDS)]),
        (Judge(model="m", instructions="x"), []),
        (Judge(model="m", agent="a", instructions="x"), [("", ONE)]),
        (Judge(model="m"), [("instructions", "missing: the rules by which the model judges")]),
        (Judge(agent="a", of="result"), [("of", "'result' is none of: input, output")]),
    ],
)
def test_faults_of_settings(guard: GuardLike, faults: list[tuple[str, str]]) -> None:
    assert list(guard.faults()) == faults


def test_a_schema_that_is_none_is_a_fault() -> None:
    ((key, sentence),) = MatchesSchema({"type": "nothing"}).faults()

    assert key == "schema"
    assert sentence


@pytest.mark.parametrize(
    ("guard", "guarded", "verdict"),
    [
        (Length(3), Guarded("before_run", "abc"), None),
        (
            Length(3, least=2),
            Guarded("after_model", "a"),
            Refuse("The answer is too short: it has 1 characters, and at least 2 are wanted"),
        ),
        (
            Length(3),
            Guarded("before_tool", arguments={"a": 1}),
            Refuse(
                "The text of arguments is too long: it has 7 characters,"
                " and no more than 3 are allowed"
            ),
        ),
        (MatchesSchema(SCHEMA), Guarded("after_model", '{"a":1}'), None),
        (MatchesSchema(SCHEMA), Guarded("before_tool", arguments={"a": 1}), None),
        (
            MatchesSchema(SCHEMA),
            Guarded("after_tool", "{}"),
            Refuse("The result does not fit the schema: a is missing"),
        ),
        (Redact(words="x"), Guarded("before_tool", arguments={"a": "b"}), None),
        (Redact(words="x"), Guarded("before_tool", arguments={"a": "x"}), {"a": "[redacted]"}),
        (Redact(words="x"), Guarded("after_model", "y" * (1 << 20)), None),
        (
            Redact(words="x"),
            Guarded("after_model", "y" * ((1 << 20) + 1)),
            Refuse(
                "The answer cannot be checked: it has 1048577 characters, and 1048576 are looked at"
            ),
        ),
    ],
)
def test_verdicts_of_shipped_guards(guard: Any, guarded: Guarded, verdict: Any) -> None:
    assert guard.judge(guarded) == verdict


def ask(tool: str, *scopes: str) -> Guarded:
    return Guarded("before_tool", tool=tool, scopes=scopes)


@pytest.mark.parametrize(
    ("tool", "scopes", "allowed"),
    [
        ("find_room", (), True),
        ("refund", (), False),
        ("refund", ("staff",), True),
        ("refund", ("staff", "trainee"), False),
        ("refund_all", ("staff",), False),
    ],
)
def test_access_to_tools_goes_by_scopes(tool: str, scopes: tuple[str, ...], allowed: bool) -> None:
    guard = ToolAccess(allow={"*": "find_*", "staff": ["refund"]}, deny={"trainee": ["ref*"]})

    assert (guard.judge(ask(tool, *scopes)) is None) is allowed


def test_without_a_list_of_what_is_allowed_the_rest_is() -> None:
    guard = ToolAccess(deny={"*": ["erase"]})

    assert guard.judge(ask("look")) is None
    assert guard.judge(ask("erase")) is not None


def test_moments_of_the_shipped_guards() -> None:
    assert Length(1, of=("output", "input", "output")).moments == ("after_model", "before_run")
    assert ToolAccess().moments == ("before_tool",)
    assert Judge(agent="a", of=("input",)).moments == ("before_run",)
    assert set(GUARDS) == {"function", "length", "schema", "tool_access", "redact", "judge"}
