"""What deliveries mean, whoever sent them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.channels.deliveries import (
    Ask,
    Challenge,
    ContentKind,
    Delivery,
    Ignored,
    IncomingMessage,
    NotUnderstood,
    Say,
    Skip,
    challenge_of,
    channel_session_id,
    decode_message,
    encode_message,
    gather,
    inbox_rows,
    read_object,
    rest_of_new,
    treat,
)
from legation.http.bodies.json_text import JsonValue

WORDED = [kind for kind in ContentKind if kind not in {ContentKind.REACTION, ContentKind.SYSTEM}]
MESSAGES = st.builds(
    IncomingMessage,
    message_id=st.text(),
    sender=st.text(),
    kind=st.sampled_from(ContentKind),
    text=st.none() | st.text(),
    sent_us=st.none() | st.integers(),
    from_self=st.booleans(),
)


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("42", True),
        ("a-Z_9" * 40, True),
        ("a" * 201, False),
        ("", False),
        ("<b>", False),
        ("a\n", False),
        ("é", False),
        (42, False),
        (None, False),
    ],
)
def test_only_a_plain_challenge_is_repeated(text: JsonValue, safe: bool) -> None:
    assert challenge_of(text) == (Challenge(str(text)) if safe else None)


def test_a_body_is_an_object_or_is_told_why_not() -> None:
    assert read_object(b'{"a": 1}') == {"a": 1}
    assert read_object(b"[]") == read_object(b"null") == Ignored("not an object")
    assert isinstance(read_object(b"hello"), NotUnderstood)
    assert isinstance(read_object(b"\xff"), NotUnderstood)
    assert isinstance(read_object(b"[" * 100_000), NotUnderstood)


def test_half_an_emoji_costs_nothing_but_itself() -> None:
    body = rb'{"a": "x\u0000\ud83d\ude00 \ud83d.\uDE00 \\u0000 \\\ud800", "b": "good"}'

    assert read_object(body) == {
        "a": "x\ufffd\U0001f600 \ufffd.\ufffd \\u0000 \\\ufffd",
        "b": "good",
    }


def test_a_message_without_a_usable_id_is_counted_and_the_others_are_kept() -> None:
    good = IncomingMessage("m1", "ada")
    bad = [IncomingMessage("", "ada"), IncomingMessage("m é", "ada"), IncomingMessage("m2", "")]

    delivery = gather([*bad, "statuses", good, "statuses"])

    assert delivery == Delivery((good,), ("malformed", "statuses"))


# --- treatment ---------------------------------------------------------------------------------


@given(MESSAGES)
def test_every_message_is_asked_answered_or_skipped(message: IncomingMessage) -> None:
    assert isinstance(treat(message), Ask | Say | Skip)


@pytest.mark.parametrize("kind", WORDED)
def test_what_has_words_is_asked(kind: ContentKind) -> None:
    assert treat(IncomingMessage("m", "s", kind, "what is it?")) == Ask("what is it?")


@pytest.mark.parametrize("kind", WORDED)
@pytest.mark.parametrize("text", [None, "", " \n"])
def test_what_has_none_gets_a_sentence_instead_of_silence(
    kind: ContentKind, text: str | None
) -> None:
    treatment = treat(IncomingMessage("m", "s", kind, text))

    assert isinstance(treatment, Say)
    assert treatment.text.startswith("I can only read text, not ")


def test_among_others_only_words_are_answered() -> None:
    assert treat(IncomingMessage("m", "s", text="x", in_group=True)) == Ask("x")
    silent = treat(IncomingMessage("m", "s", ContentKind.STICKER, in_group=True))
    assert silent == Skip("no words in a group")


@pytest.mark.parametrize("kind", [ContentKind.REACTION, ContentKind.SYSTEM])
def test_a_reaction_wants_no_answer(kind: ContentKind) -> None:
    assert treat(IncomingMessage("m", "s", kind, "👍")) == Skip(kind.value)


def test_our_own_messages_are_skipped() -> None:
    assert treat(IncomingMessage("m", "s", text="x", from_self=True)) == Skip("from ourselves")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("/new", ""),
        (" /NEW\n", ""),
        ("/new hello there ", "hello there"),
        ("/new@my_bot hello\nyou", "hello\nyou"),
        ("/newer", None),
        ("a /new", None),
        ("/new!", None),
        ("", None),
    ],
)
def test_new_begins_a_conversation(text: str, rest: str | None) -> None:
    assert rest_of_new(text) == rest


# --- sessions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("chat", "+15551234", ""), "chat:+15551234"),
        (("chat", "u1", "C02", "171.2"), "chat:C02:171.2"),
        (("chat", "u1", "a:b"), "chat:a%3Ab"),
        (("chat", "u1", "a/b é"), "chat:a%2Fb%20%C3%A9"),
    ],
)
def test_a_session_is_named_after_its_conversation(parts: tuple[str, ...], name: str) -> None:
    assert channel_session_id(*parts) == name


def test_a_long_name_becomes_a_digest() -> None:
    name = channel_session_id("chat", "x" * 300, "")

    assert len(name) == len("chat:=") + 64
    assert name != channel_session_id("chat", "x" * 299 + "y", "")


PART = st.text(alphabet="ab:=%é", min_size=1, max_size=4)


@given(st.tuples(PART, PART | st.just("")), st.tuples(PART, PART | st.just("")))
def test_two_conversations_never_share_a_session(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    names = [channel_session_id("chat", "s", *parts) for parts in (one, other)]

    assert (names[0] == names[1]) == (one == other)


# --- in the inbox ------------------------------------------------------------------------------


@given(MESSAGES)
def test_a_stored_message_is_read_back(message: IncomingMessage) -> None:
    assert decode_message(encode_message(message)) == message


def test_what_a_later_version_stored_is_read_as_far_as_known() -> None:
    stored = '{"message_id":"m","sender":"s","kind":"image","mood":"good"}'

    assert decode_message(stored) == IncomingMessage("m", "s", ContentKind.IMAGE)


def test_only_the_messages_of_others_are_stored() -> None:
    mine = IncomingMessage("m1", "us", text="x", from_self=True)
    other = IncomingMessage("m2", "ada", text="y")

    (row,) = inbox_rows(Delivery((mine, other)))

    assert (row.message_id, row.sender) == ("m2", "ada")
    assert decode_message(row.payload) == other


def test_neither_text_nor_sender_shows_in_a_log() -> None:
    message = IncomingMessage("m", "+1555", text="hush", conversation="+1555")

    assert "hush" not in repr(message)
    assert "555" not in repr(message)
    (row,) = inbox_rows(Delivery((message,)))
    assert "hush" not in repr(row)
    assert "555" not in repr(row)
