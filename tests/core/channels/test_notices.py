"""Notices: signed as Standard Webhooks 1.0 asks, and nothing comes in."""

from __future__ import annotations

import base64

from legation.channels.notices import Notices
from legation.channels.replies import GiveUp, Reply, RetryLater, Sent
from legation.channels.signatures import SignatureRefused, Verified, standard_v1
from legation.effects import FetchReply, Unreachable

SECRETS = [base64.b64encode(letter * 32).decode() for letter in (b"a", b"b")]
NOTICES = Notices("notify", SECRETS[0], "https://h.test/in", SECRETS[1])
REPLY = Reply("key", "run", '{"type":"run.failed"}', created_us=5)
NOW_US = 1_767_225_600_000_000


def test_the_text_is_the_body_under_a_signature_by_each_secret() -> None:
    fetch = NOTICES.encode(REPLY, NOW_US)
    headers = tuple((name.encode(), value.encode()) for name, value in fetch.headers)

    assert (fetch.method, fetch.url, fetch.body) == (
        "POST",
        "https://h.test/in",
        b'{"type":"run.failed"}',
    )
    assert dict(fetch.headers)["webhook-signature"].count("v1,") == 2
    assert isinstance(standard_v1(headers, fetch.body, NOTICES.secrets, NOW_US), Verified)


def test_nothing_comes_in() -> None:
    fetch = NOTICES.encode(REPLY, NOW_US)
    headers = tuple((name.encode(), value.encode()) for name, value in fetch.headers)

    assert isinstance(NOTICES.verify(headers, fetch.body, NOW_US), SignatureRefused)
    assert isinstance(NOTICES.handshake(()), SignatureRefused)
    assert not NOTICES.receives


def test_what_came_of_it_is_judged_as_of_a_standard_reply() -> None:
    assert NOTICES.read_reply(FetchReply(204, {}, b""), NOW_US) == Sent("")
    assert isinstance(NOTICES.read_reply(FetchReply(410, {}, b""), NOW_US), GiveUp)
    assert isinstance(NOTICES.read_reply(FetchReply(302, {}, b""), NOW_US), RetryLater)
    assert isinstance(NOTICES.read_reply(Unreachable("tls"), NOW_US), RetryLater)
