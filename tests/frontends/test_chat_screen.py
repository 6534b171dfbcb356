"""The screen of `legation chat`: what each event of a run puts on it."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation_cli.chat_actions import Event, Say, Tell
from legation_cli.chat_json import as_object, as_objects, as_text
from legation_cli.chat_questions import read_decision
from legation_cli.chat_screen import Screen, describe_call, make_harmless

TOOL: Final = {"tool_name": "book", "tool_args": {"room": "blue", "nights": 2}}


def shown(*events: tuple[str, dict[str, Any]]) -> list[str]:
    screen = Screen()
    actions = [
        action
        for name, data in events
        for action in screen.show(Event(name, {"run_id": "r", **data}))
    ]
    return [one.text if isinstance(one, Say) else f"! {one.text}" for one in actions]


def content(text: object) -> tuple[str, dict[str, Any]]:
    return ("RunContent", {"content": text})


DONE: Final[tuple[str, dict[str, Any]]] = ("RunCompleted", {"content": "hello"})
MODEL: Final[tuple[str, dict[str, Any]]] = ("ModelRequestStarted", {})
AGAIN: Final[tuple[str, dict[str, Any]]] = ("ModelRequestStarted", {"again": True})


SHOWN: Final[list[tuple[list[tuple[str, dict[str, Any]]], list[str]]]] = [
    ([MODEL, content("hel"), content("lo"), DONE], ["hel", "lo", "\n"]),
    ([content("hello\n"), ("RunCompleted", {"content": "hello\n"})], ["hello\n"]),
    ([DONE], ["hello", "\n"]),
    ([content("bye"), DONE], ["bye", "\n", "hello", "\n"]),
    ([content("hm"), MODEL, content("hello"), DONE], ["hm", "\n", "hello", "\n"]),
    (
        [content("he"), AGAIN, content("hello"), DONE],
        ["he", "\n", "! (the answer broke off and begins again)", "hello", "\n"],
    ),
    ([AGAIN, DONE], ["hello", "\n"]),
    ([("RunCompleted", {"content": {"a": "ü"}})], ['{"a": "ü"}', "\n"]),
    ([("RunCompleted", {"content": None})], []),
    ([("RunCompleted", {})], []),
    ([content(None), content(""), content(3), ("RunContent", {})], []),
    (
        [("TeamRunContent", {"content": "x"}), ("TeamRunCompleted", {"content": "x"})],
        ["x", "\n"],
    ),
    ([content("x"), ("RunPaused", {})], ["x", "\n"]),
    ([("RunContinued", {"resumed": True})], ["! (the server has resumed the run)"]),
    ([("RunContinued", {})], []),
    ([("RunError", {"content": "No"})], ["! Error: No"]),
    (
        [
            content("x"),
            ("RunError", {"content": "No: i7", "error_type": "t", "incident": "i7"}),
        ],
        ["x", "\n", "! Error: No: i7 (t)"],
    ),
    ([("RunCancelled", {"reason": "by you"})], ["! Cancelled: by you"]),
    ([("Unheard", {"content": "x"}), ("", {})], []),
]


@pytest.mark.parametrize(("events", "screen"), SHOWN)
def test_events_of_the_run(events: list[tuple[str, dict[str, Any]]], screen: list[str]) -> None:
    assert shown(*events) == screen


@pytest.mark.parametrize(
    ("name", "data", "screen"),
    [
        ("ToolCallStarted", {"tool": TOOL}, ['!   -> book(room="blue", nights=2)']),
        ("ToolCallStarted", {"tool": None}, ["!   -> None()"]),
        ("ToolCallStarted", {}, ["!   -> None()"]),
        ("ToolCallCompleted", {"tool": {**TOOL, "result": "a\n b"}}, ["!   <- book: a b"]),
        ("ToolCallCompleted", {"tool": {**TOOL, "result": {"a": 1}}}, ['!   <- book: {"a": 1}']),
        ("ToolCallCompleted", {"tool": {**TOOL, "tool_call_error": True}}, []),
        ("ToolCallError", {"tool": TOOL, "error": "no room"}, ["!   <- book failed: no room"]),
        ("TeamToolCallStarted", {"tool": TOOL}, ['!   -> book(room="blue", nights=2)']),
    ],
)
def test_tools_have_a_line_for_the_call_and_one_for_its_outcome(
    name: str, data: dict[str, Any], screen: list[str]
) -> None:
    assert shown((name, data)) == screen


def test_members_of_a_team_have_a_line_each_and_their_tools() -> None:
    member = {"run_id": "m", "parent_run_id": "r", "agent_id": "ann"}
    events: list[tuple[str, dict[str, Any]]] = [
        ("TeamRunStarted", {}),
        ("RunContent", {**member, "content": "It"}),
        ("ToolCallStarted", {**member, "tool": TOOL}),
        ("RunCompleted", {**member, "content": "It rains.\nA lot."}),
        ("TeamRunError", {**member, "agent_id": None, "team_id": "t", "content": "No"}),
    ]

    assert shown(*events) == [
        '!   [ann] -> book(room="blue", nights=2)',
        "!   [ann] It rains. A lot.",
        "!   [t] Error: No",
    ]


def test_long_outcome_is_one_bounded_line_and_says_its_length() -> None:
    (line,) = shown(("ToolCallCompleted", {"tool": {"tool_name": "t", "result": "ab " * 500_000}}))

    assert len(line) < 300
    assert line.endswith("… (1500000 characters)")


def test_arguments_are_whole_where_a_person_agrees_to_them() -> None:
    tool = {"tool_name": "pay", "tool_args": {"note": "x" * 5000}}

    assert "x" * 5000 in describe_call(tool, whole=True)
    assert len(describe_call(tool)) < 300


def test_answer_of_a_million_characters_is_shown_once() -> None:
    pieces = [content("x" * 10)] * 100_000
    lines = shown(*pieces, ("RunCompleted", {"content": "x" * 1_000_000}))

    assert "".join(lines) == "x" * 1_000_000 + "\n"


# --- what a terminal could obey -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        (
            "plain, ünïcode, 漢字, 👩‍🔬, 1\u202f000\xa0€",
            "plain, ünïcode, 漢字, 👩‍🔬, 1\u202f000\xa0€",
        ),
        ("lines\r\nand\ttabs\n", "lines\nand\ttabs\n"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("over\rwritten\b", r"over\rwritten\x08"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u2028\u2029\x85\x0b\x0c\x1c", r"\u2028\u2029\x85\x0b\x0c\x1c"),
        ("\ud800", r"\ud800"),
        ("\ufeff\U000e0041", r"\ufeff\U000e0041"),
    ],
)
def test_nothing_is_left_that_a_terminal_obeys(text: str, harmless: str) -> None:
    assert make_harmless(text) == harmless


@given(st.text())
def test_what_is_harmless_stays_so(text: str) -> None:
    harmless = make_harmless(text)

    assert make_harmless(harmless) == harmless
    for character in harmless:
        category = unicodedata.category(character)
        obeyed = category[0] == "C" or category in ("Zl", "Zp")
        assert character in "\n\t\u200c\u200d" or not obeyed


@given(
    st.sampled_from(
        "RunContent RunCompleted RunError RunPaused ToolCallStarted ToolCallError x".split()
    ),
    st.dictionaries(
        st.sampled_from("run_id parent_run_id content tool error reason agent_id".split()),
        st.recursive(
            st.none() | st.integers() | st.text() | st.booleans(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=4,
        ),
    ),
)
def test_any_event_is_shown_or_not(name: str, data: dict[str, Any]) -> None:
    screen = Screen()

    assert all(isinstance(one, (Say, Tell)) for one in screen.show(Event(name, data)))


# --- small readers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (" Yes ", {"confirmed": True}),
        ("y go on", {"confirmed": True, "confirmation_note": "go on"}),
        ("n", {"confirmed": False}),
        ("NO  dear", {"confirmed": False, "confirmation_note": "dear"}),
        ("", None),
        ("yesterday", None),
        ("never", None),
    ],
)
def test_decisions(typed: str, answer: object) -> None:
    assert read_decision(typed) == answer


def test_json_of_another_type_counts_as_empty() -> None:
    assert (as_object([1]), as_object({"a": 1})) == ({}, {"a": 1})
    assert (as_objects({"a": 1}), as_objects([{}, 1, {"a": 1}])) == ([], [{}, {"a": 1}])
    assert (as_text(1), as_text("a")) == ("", "a")
