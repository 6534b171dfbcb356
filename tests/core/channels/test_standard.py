"""Signed webhooks both ways."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.channels import CHANNEL_KINDS
from legation.channels.deliveries import (
    ContentKind,
    Delivery,
    Ignored,
    IncomingMessage,
    NotUnderstood,
)
from legation.channels.replies import GiveUp, Reply, RetryLater, Sent
from legation.channels.signatures import SignatureRefused, Verified
from legation.channels.standard import Standard
from legation.effects import FetchReply, Unreachable

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLDER: Final = "whsec_bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5u"
CHANNEL: Final = Standard("desk", SECRET, "https://example.org/replies")
NOW: Final = 1_700_000_000_000_000
REPLY: Final = Reply("reply-msg_1", "ada", "Hi", "t", "msg_1", NOW - 1)


def parse(root: Any) -> Any:
    return CHANNEL.parse(Verified(json.dumps(root).encode(), "msg_1"))


def test_a_message_is_known_by_the_id_of_its_delivery() -> None:
    data = {
        "sender": "ada@example.org",
        "text": "hello",
        "conversation": "room",
        "thread": 7,
        "in_reply_to": "m0",
        "sent": 5,
    }

    assert parse({"type": "message.received", "data": data}) == Delivery(
        (
            IncomingMessage(
                "msg_1",
                "ada@example.org",
                ContentKind.TEXT,
                "hello",
                "room",
                "7",
                "msg_1",
                "m0",
                sent_us=5_000_000,
            ),
        )
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"sender": "ada"}, ContentKind.UNSUPPORTED),
        ({"sender": "ada", "kind": "image"}, ContentKind.IMAGE),
        ({"sender": "ada", "kind": "smell", "text": "x"}, ContentKind.UNSUPPORTED),
    ],
)
def test_the_kind_is_told_or_is_text(data: dict[str, Any], kind: ContentKind) -> None:
    (found,) = parse({"type": "message", "data": data}).messages

    assert found.kind is kind
    assert found.conversation == "ada"


@pytest.mark.parametrize("data", [None, [], 1, {}, {"sender": ""}, {"sender": ["x"]}])
def test_a_message_of_nobody_is_malformed_and_says_so(data: Any) -> None:
    reason = "data.sender is missing, or is no text of 1 to 256 visible characters and no integer"

    assert parse({"type": "message", "data": data}) == Ignored(reason, malformed=True)


def test_anything_else_is_ignored_or_not_understood() -> None:
    reason = 'The type is neither "message" nor "decision", nor begins with "message."'

    assert parse({"type": "messages"}) == parse({}) == Ignored(reason)
    assert parse([]) == Ignored("not an object")
    assert isinstance(CHANNEL.parse(Verified(b"{")), NotUnderstood)
    assert CHANNEL.handshake(()) == SignatureRefused("no handshake")


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["sender", "text", "kind", "thread", "sent"]), inner)
    ),
    max_leaves=10,
)


@given(TREES)
def test_any_data_gives_a_value(tree: Any) -> None:
    assert isinstance(parse({"type": "message", "data": tree}), Delivery | Ignored)


def test_a_reply_verifies_with_either_secret_while_one_replaces_the_other() -> None:
    fetch = evolve(CHANNEL, previous_secret=OLDER).encode(REPLY, NOW)
    headers = tuple((name.encode(), text.encode()) for name, text in fetch.headers)

    for secret in (SECRET, OLDER):
        receiver = evolve(CHANNEL, secret=secret)
        assert receiver.verify(headers, fetch.body, NOW) == Verified(fetch.body, REPLY.key)
    assert json.loads(fetch.body)["data"] == {
        "recipient": "ada",
        "thread": "t",
        "in_reply_to": "msg_1",
        "text": "Hi",
        "written_us": NOW - 1,
    }


def test_the_next_attempt_has_the_same_id_and_body_and_its_own_time() -> None:
    first, later = CHANNEL.encode(REPLY, NOW), CHANNEL.encode(REPLY, NOW + 60_000_000)

    assert first.body == later.body
    assert dict(first.headers)["webhook-id"] == dict(later.headers)["webhook-id"] == "reply-msg_1"
    assert dict(later.headers)["webhook-timestamp"] == "1700000060"
    assert first != later


def test_what_is_signed_is_read_in_one_way_though_an_id_may_have_dots() -> None:
    """The same signed bytes, with another border between id, time and body, are no message."""
    name, seconds = "evt.1700000000", "1700000000"
    body = b'{"type": "message", "data": {"sender": "ada", "text": "1.2"}}'
    fetch = CHANNEL.sign(name, body, NOW)
    signature = dict(fetch.headers)["webhook-signature"].encode()

    def read(name: bytes, seconds: bytes, body: bytes) -> object:
        headers = (
            (b"webhook-id", name),
            (b"webhook-timestamp", seconds),
            (b"webhook-signature", signature),
        )
        verified = CHANNEL.verify(headers, body, NOW)
        return CHANNEL.parse(verified) if isinstance(verified, Verified) else verified

    assert isinstance(read(name.encode(), seconds.encode(), body), Delivery)
    signed = f"{name}.{seconds}.".encode() + body
    dots = [place for place, byte in enumerate(signed) if byte == ord(".")]
    others = [
        read(signed[:first], signed[first + 1 : second], signed[second + 1 :])
        for first in dots
        for second in dots
        if first < second and (first, second) != (dots[1], dots[2])
    ]
    assert len(others) == 5
    assert not any(isinstance(other, Delivery) for other in others)


def test_our_own_reply_sent_back_to_us_is_no_message() -> None:
    fetch = CHANNEL.encode(REPLY, NOW)
    headers = tuple((name.encode(), text.encode()) for name, text in fetch.headers)

    verified = CHANNEL.verify(headers, fetch.body, NOW)

    assert isinstance(verified, Verified)
    assert isinstance(CHANNEL.parse(verified), Ignored)


def test_no_secret_shows_and_none_means_no_start() -> None:
    assert SECRET[6:] not in repr(CHANNEL) + repr(CHANNEL.encode(REPLY, NOW))
    for wrong in ({"secret": ""}, {"secret": "whsec_AAAA"}, {"reply_url": "example.org"}):
        with pytest.raises(ValueError, match=r"secret|reply_url"):
            evolve(CHANNEL, **wrong)


def test_the_answer_is_judged_by_its_status() -> None:
    assert CHANNEL.read_reply(FetchReply(204, {}, b""), NOW) == Sent("")
    assert CHANNEL.read_reply(FetchReply(410, {}, b""), NOW) == GiveUp("HTTP 410")
    for status in (301, 400, 401, 404, 503):
        again = CHANNEL.read_reply(FetchReply(status, {"retry-after": "9"}, b""), NOW)
        assert again == RetryLater(9, f"HTTP {status}")
    assert CHANNEL.read_reply(Unreachable("tls"), NOW) == RetryLater(None, "tls")


def test_the_kinds_are_named() -> None:
    assert sorted(CHANNEL_KINDS) == ["slack", "standard", "telegram", "whatsapp"]
    assert CHANNEL_KINDS["standard"] is Standard
