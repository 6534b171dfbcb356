"""Parts of an answer, their keys, and what came of sending them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from unicodedata import category

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from legation.channels.answer_files import AnswerFile
from legation.channels.deliveries import IncomingMessage
from legation.channels.replies import (
    GiveUp,
    Moved,
    Outcome,
    Part,
    Reply,
    RetryLater,
    TextSpan,
    decode_reply,
    encode_reply,
    file_replies,
    general_outcome,
    outbox_rows,
    replace_draft,
    replies_to,
    reply_key,
    retry_after,
    split_text,
    stream_key,
    utf16_length,
)
from legation.effects import FetchReply, Unreachable

NOW = 1_700_000_000_000_000  # 2023-11-14 22:13:20


# --- parts -------------------------------------------------------------------------------------


@given(st.text(), st.integers(2, 40))
@example("👩‍👩‍👧" * 20, 16)
@example("é" * 50, 7)
@example("👍" * 9, 3)
def test_no_part_is_empty_or_too_long_and_no_word_is_lost(text: str, limit: int) -> None:
    parts = list(split_text(text, limit))

    assert all(0 < utf16_length(part) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        (" \n ", []),
        ("short", ["short"]),
        ("one two three\n\nfour five six", ["one two three", "four five six"]),
        ("one two three\nfour five", ["one two three", "four five"]),
        ("This is it. And more text", ["This is it.", "And more text"]),
        (
            "これはそれだとおもうだろう。これもまたそれである",
            ["これはそれだとおもうだろう。", "これもまたそれである"],
        ),
        ("one two three four five", ["one two three four", "five"]),
        ("x" * 25, ["x" * 20, "x" * 5]),
    ],
)
def test_texts_are_parted_where_a_reader_would(text: str, parts: list[str]) -> None:
    assert list(split_text(text, 20)) == parts


@pytest.mark.parametrize(
    "cluster",
    ["e\u0301", "👩\u200d👧", "👍🏽", "🇩🇪", "☺\ufe0f"],
    ids=["accent", "family", "colour", "flag", "variation"],
)
def test_what_looks_like_one_character_stays_whole(cluster: str) -> None:
    parts = list(split_text("ab" * 4 + cluster + "cd" * 8, 9 + len(cluster) - 1))

    assert "".join(parts) == "ab" * 4 + cluster + "cd" * 8
    assert any(cluster in part for part in parts)


def test_a_part_begins_with_the_indentation_of_its_line() -> None:
    lines = [f"    value_{number} = {number}" for number in range(20)]
    parts = list(split_text("\n".join(lines), 100))

    assert "\n".join(parts) == "\n".join(lines)
    assert len(parts) > 2
    assert list(split_text("one\n" + " " * 30 + "two", 20)) == ["one", "two"]


LINES = st.lists(
    st.sampled_from(["```", "```python", " ``` ", "x = ```1```", "", "    y = 1", "word " * 12])
    | st.text(max_size=40)
    | st.just("```" + "long" * 9),
    max_size=60,
)


def blocks(part: str) -> list[str]:
    """Return the lines of `part` that begin or end a block of code."""
    lines = (line.strip() for line in part.split("\n"))
    return [line for line in lines if line.startswith("```") and "`" not in line[3:]]


@given(LINES, st.integers(128, 300))
def test_a_block_of_code_ends_in_the_part_in_which_it_begins(lines: list[str], limit: int) -> None:
    text = "\n".join(lines)
    *others, last = list(split_text(text, limit)) or [""]

    assert all(0 < utf16_length(part) <= limit for part in others)
    assert utf16_length(last) <= limit
    for part in others:
        opened = False
        for line in blocks(part):
            opened = not opened if not opened or line == "```" else opened
        assert not opened
    unfenced = [re.sub(r"```\S*", "", text_) for text_ in (text, "\n".join([*others, last]))]
    assert "".join(unfenced[0].split()) == "".join(unfenced[1].split())


def test_a_block_of_code_begins_again_where_it_was_parted() -> None:
    lines = [f"    value_{number} = {number}" for number in range(20)]
    text = "\n".join(["So:", "```python", *lines, "```", "That is it."])
    parts = list(split_text(text, 200))

    assert parts[0].startswith("So:\n```python\n    value_0 = 0\n")
    assert parts[1].startswith("```python\n    value_")
    assert [part.endswith("\n```") for part in parts] == [*[True] * (len(parts) - 1), False]
    assert parts[-1].endswith("\n```\nThat is it.")


def test_a_block_of_code_that_fits_is_not_parted() -> None:
    block = "```\n" + "\n".join(["x = 1"] * 20) + "\n```"
    parts = list(split_text("word " * 30 + "\n" + block, 200))

    assert parts == [("word " * 30).strip(), block]


def test_no_part_is_an_empty_block_of_code() -> None:
    code = "\n".join(["x = 1"] * 32)
    parts = list(split_text(f"```\n{code}\n      ```\nEnd", 200))

    assert parts == [f"```\n{code}\n```", "End"]


def test_a_pile_of_accents_is_cut_all_the_same() -> None:
    parts = list(split_text("a" + "\u0301" * 500, 100))

    assert [len(part) for part in parts] == [100, 100, 100, 100, 100, 1]
    assert category("\u0301") == "Mn"


def test_a_long_text_is_parted_in_linear_time() -> None:
    assert len(list(split_text("word " * 400_000, 4096))) == 489


# --- replies -----------------------------------------------------------------------------------

MESSAGE = IncomingMessage(
    "wamid.1", "ada", text="?", conversation="room", thread="t", provider_id="p1"
)


def words(limit: int) -> Callable[[str], Iterator[Part]]:
    return lambda text: map(Part, split_text(text, limit))


def test_each_part_has_its_own_key_and_the_first_quotes() -> None:
    replies = replies_to(MESSAGE, "one two three", words(5), NOW)

    assert [reply.text for reply in replies] == ["one", "two", "three"]
    assert [reply.key for reply in replies] == [
        "reply-wamid.1",
        "reply.2-wamid.1",
        "reply.3-wamid.1",
    ]
    assert [reply.quotes for reply in replies] == ["p1", "", ""]
    assert {(reply.recipient, reply.thread) for reply in replies} == {("room", "t")}


def test_without_a_conversation_the_sender_is_answered() -> None:
    (reply,) = replies_to(IncomingMessage("m", "ada"), "hello", words(10), NOW)

    assert reply.recipient == "ada"


def test_a_key_stays_below_what_meta_allows() -> None:
    assert len(reply_key("m" * 255, 999)) <= 512


SPANS = st.none() | st.just(()) | st.just((TextSpan("bold", 0, 2), TextSpan("pre", 3, 1, "py")))


@given(st.text(alphabet=st.characters(), max_size=30), st.integers(0, NOW), SPANS)
def test_a_stored_reply_is_read_back(
    text: str, now: int, spans: tuple[TextSpan, ...] | None
) -> None:
    reply = Reply("k", "ada", text, created_us=now, spans=spans)

    assert decode_reply(encode_reply(reply)) == reply


def test_what_has_no_utf8_is_replaced() -> None:
    (reply,) = replies_to(MESSAGE, "a\ud800b\0c", words(10), NOW)

    assert reply.text == "a\ufffdb\ufffdc"
    assert decode_reply(encode_reply(reply)) == reply


def test_a_row_holds_the_reply_and_shows_nothing() -> None:
    (reply,) = replies_to(MESSAGE, "hush", words(10), NOW)
    (row,) = outbox_rows((reply,))

    assert (row.idempotency_key, row.recipient) == ("reply-wamid.1", "room")
    assert decode_reply(row.payload) == reply
    assert "hush" not in repr(row) + repr(reply)
    assert "room" not in repr(row) + repr(reply)


# --- outcomes ----------------------------------------------------------------------------------


def _reply(status: int, **headers: str) -> FetchReply:
    return FetchReply(status, {name.replace("_", "-"): v for name, v in headers.items()}, b"")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 7 ", 7),
        ("999999999", 86400),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0),
        ("Tue, 14 Nov 2033 22:13:00 GMT", 86400),
        ("Tue, 31 Feb 2023 22:13:00 GMT", None),
        ("Tue, 14 Nix 2023 22:13:00 GMT", None),
        ("Tue, 14 Nov 0000 22:13:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, seconds: int | None) -> None:
    assert retry_after(_reply(429, retry_after=value), NOW) == seconds


def test_a_date_is_rounded_up() -> None:
    reply = _reply(429, retry_after="Tue, 14 Nov 2023 22:13:21 GMT")

    assert retry_after(reply, NOW + 1) == 1


@given(st.text(max_size=40))
def test_any_retry_after_is_read_or_ignored(value: str) -> None:
    seconds = retry_after(_reply(429, retry_after=value), NOW)

    assert seconds is None or 0 <= seconds <= 86400


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (_reply(200), None),
        (_reply(204), None),
        (_reply(301), GiveUp("HTTP 301")),
        (_reply(400), GiveUp("HTTP 400")),
        (_reply(401), GiveUp("HTTP 401")),
        (_reply(404), GiveUp("HTTP 404")),
        (_reply(410), GiveUp("HTTP 410")),
        (_reply(408), RetryLater(None, "HTTP 408")),
        (_reply(429, retry_after="9"), RetryLater(9, "HTTP 429")),
        (_reply(500), RetryLater(None, "HTTP 500")),
        (_reply(503, retry_after="1"), RetryLater(1, "HTTP 503")),
        (Unreachable("timeout"), RetryLater(None, "timeout")),
    ],
)
def test_a_status_is_success_for_later_or_final(
    reply: FetchReply | Unreachable, outcome: Outcome | None
) -> None:
    assert general_outcome(reply, NOW) == outcome


def test_what_the_provider_said_is_kept_for_the_operator() -> None:
    assert general_outcome(_reply(400), NOW, "code 7") == GiveUp("HTTP 400: code 7")


def test_a_chat_that_moved_is_a_reason_that_a_person_reads() -> None:
    assert Moved("-1007").reason == "the chat has moved"


def test_the_first_part_of_an_answer_takes_the_place_of_the_draft_but_no_file_does() -> None:
    message = IncomingMessage("m", "4911")
    parts = replies_to(message, "one two", lambda text: map(Part, text.split()), 5)
    file = AnswerFile("a.png", "image/png", "")
    files = file_replies(message, [file], 1, 5)

    assert [part.edits for part in replace_draft(parts, "9")] == ["9", ""]
    assert replace_draft(parts, "") == parts
    assert replace_draft((), "9") == ()
    assert replace_draft(files, "9") == files
    assert stream_key("m") == "stream-m"
