"""Slack: events in, messages out."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.channels.deliveries import (
    Challenge,
    ContentKind,
    Delivery,
    Ignored,
    IncomingMessage,
    NotUnderstood,
)
from legation.channels.identity import Identity
from legation.channels.replies import GiveUp, Outcome, Reply, RetryLater, Sent, Unauthorized
from legation.channels.signatures import SignatureRefused, Verified
from legation.channels.slack import Slack
from legation.effects import FetchReply, Unreachable

CHANNEL = Slack("slack", "signing", "xoxb-bot", previous_signing_secret="older")
NOW = 1_700_000_000_000_000


def parse(root: Any, channel: Slack = CHANNEL) -> Any:
    return channel.parse(Verified(json.dumps(root).encode()))


def event(**content: Any) -> dict[str, Any]:
    base = {
        "type": "message",
        "channel_type": "im",
        "channel": "D1",
        "user": "U1",
        "ts": "5.000001",
    }
    return {
        "type": "event_callback",
        "team_id": "T1",
        "event_id": "Ev1",
        "authorizations": [{"user_id": "UBOT", "is_bot": True}, {"user_id": "U1", "is_bot": False}],
        "event": {**base, **content},
    }


def only(**content: Any) -> IncomingMessage:
    delivery = parse(event(**content))
    assert isinstance(delivery, Delivery)
    (found,) = delivery.messages
    return found


def test_a_direct_message_is_a_message() -> None:
    assert only(text="a &lt;b&gt; &amp;amp;") == IncomingMessage(
        "T1.D1.5.000001",
        "U1",
        ContentKind.TEXT,
        "a <b> &amp;",
        conversation="D1",
        provider_id="5.000001",
        sent_us=5_000_001,
    )


def test_a_mention_in_a_channel_opens_a_thread() -> None:
    found = only(type="app_mention", channel_type="channel", channel="C1", text="<@UBOT> hello")

    assert (found.text, found.thread, found.reply_to) == ("hello", "5.000001", "")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<@UBOT>  hello", "hello"),
        ("<@UBOT|legation> /new", "/new"),
        ("Hey <@UBOT> what is up", "Hey what is up"),
        ("ask <@U2> and <@U3|ada>, <@UBOT>", "ask @U2 and @ada,"),
        ("in <#C1|general> or <#C2>", "in #general or #C2"),
        ("<!here> <!subteam^S1|@team> <!date^1^{date}|Monday>", "@here @team Monday"),
        ("<https://a.example/?a=1&amp;b=2>", "https://a.example/?a=1&b=2"),
        ("<https://a.example|a.example> <mailto:a@b.c|a@b.c>", "https://a.example a@b.c"),
        ("see <https://a.example|the page>.", "see the page (https://a.example)."),
        ("<https://a.example/b|b>", "b (https://a.example/b)"),
        ("&lt;@UBOT&gt; 1 &lt; 2", "<@UBOT> 1 < 2"),
        ("<<<|", "<<<|"),
    ],
)
def test_the_markup_of_slack_is_read_as_its_writer_saw_it(text: str, plain: str) -> None:
    assert only(text=text).text == plain


DESK = Identity("UDESK", "desk", workspace="T1")


def read(root: dict[str, Any], identity: Identity | None) -> Any:
    return CHANNEL.parse(Verified(json.dumps(root).encode()), identity)


def test_our_own_mention_is_taken_out_also_without_authorizations() -> None:
    root = event(type="app_mention", channel="C1", text="<@UDESK> hello <@U2>")
    del root["authorizations"]

    assert read(root, DESK).messages[0].text == "hello @U2"
    assert read(root, None).messages[0].text == "@UDESK hello @U2"


def test_what_we_write_ourselves_is_from_us_also_without_authorizations() -> None:
    root = event(user="UDESK", text="x")
    del root["authorizations"]

    assert read(root, DESK).messages[0].from_self


@pytest.mark.parametrize(
    ("team", "authorized", "identity", "answered"),
    [
        ("T1", None, DESK, True),
        ("T2", None, DESK, False),
        ("T2", None, None, True),
        ("T2", None, evolve(DESK, workspace=""), True),
        (None, None, DESK, True),
        ("T2", "T1", DESK, True),
        ("T1", "T2", DESK, False),
        (7, None, DESK, False),
    ],
    ids=[
        "ours",
        "another",
        "ours is not known",
        "a whole organization",
        "none is named",
        "a channel that two share",
        "for the installation of another",
        "nonsense",
    ],
)
def test_an_event_of_another_workspace_is_ignored_with_a_reason(
    team: Any, authorized: str | None, identity: Identity | None, *, answered: bool
) -> None:
    authorizations = [{"team_id": authorized, "user_id": "UDESK", "is_bot": True}]
    given = authorizations if authorized else []
    found = read({**event(text="x"), "team_id": team, "authorizations": given}, identity)

    assert (found == Ignored("another workspace")) is not answered


def test_a_question_in_a_thread_stays_there() -> None:
    found = only(type="app_mention", channel="C1", text="more", thread_ts="4.000001")

    assert (found.thread, found.reply_to) == ("4.000001", "4.000001")


def test_one_message_that_comes_as_two_events_has_one_id() -> None:
    mention = parse(event(type="app_mention", channel_type="channel", channel="C1", text="x"))
    same = parse(
        event(channel_type="channel", channel="C1", text="x"), evolve(CHANNEL, mentions_only=False)
    )

    assert mention.messages[0].message_id == same.messages[0].message_id


def test_a_retry_is_taken_like_a_first_delivery() -> None:
    """AgentOS drops every retry, also of what it lost."""
    stamp = str(NOW // 1_000_000).encode()
    body = json.dumps(event(text="x")).encode()
    signed = hmac.new(b"signing", b"v0:" + stamp + b":" + body, hashlib.sha256).hexdigest()
    headers = (
        (b"x-slack-request-timestamp", stamp),
        (b"x-slack-signature", b"v0=" + signed.encode()),
        (b"x-slack-retry-num", b"1"),
    )

    verified = CHANNEL.verify(headers, body, NOW)

    assert isinstance(verified, Verified)
    delivery = CHANNEL.parse(verified)
    assert isinstance(delivery, Delivery)
    assert len(delivery.messages) == 1


def test_an_unsigned_event_is_refused() -> None:
    assert isinstance(CHANNEL.verify((), b"{}", NOW), SignatureRefused)


def test_what_nobody_asked_us_is_left_alone() -> None:
    assert parse(event(channel_type="channel", text="x")) == Delivery((), ("not mentioned",))


@pytest.mark.parametrize("content", [{"bot_id": "B1"}, {"user": "UBOT"}])
def test_bots_are_flagged(content: dict[str, Any]) -> None:
    assert only(text="x", **content).from_self


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"text": ""}, ContentKind.UNSUPPORTED),
        ({"text": None}, ContentKind.UNSUPPORTED),
        ({"text": "<@UBOT>"}, ContentKind.UNSUPPORTED),
        (
            {"subtype": "file_share", "files": [dict[str, str]()], "text": "see"},
            ContentKind.DOCUMENT,
        ),
    ],
)
def test_every_type_is_told_apart(content: dict[str, Any], kind: ContentKind) -> None:
    assert only(**content).kind is kind


@pytest.mark.parametrize(
    ("content", "ignored"),
    [
        ({"subtype": "message_changed"}, "message_changed"),
        ({"subtype": "bot_message"}, "bot_message"),
        ({"subtype": "channel_join"}, "channel_join"),
        ({"type": "reaction_added"}, "reaction_added"),
        ({"type": "a b"}, "malformed"),
        ({"type": None}, "malformed"),
        ({"ts": "now"}, "malformed"),
        ({"channel": None}, "malformed"),
        ({"user": None}, "malformed"),
    ],
)
def test_other_events_are_no_messages(content: dict[str, Any], ignored: str) -> None:
    assert parse(event(**{"text": "x", **content})) == Delivery((), (ignored,))


def test_the_url_is_verified_by_a_signed_challenge() -> None:
    assert parse({"type": "url_verification", "challenge": "3eZb"}) == Challenge("3eZb")
    assert parse({"type": "url_verification", "challenge": "<b>"}) == Ignored("malformed challenge")
    assert CHANNEL.handshake(()) == SignatureRefused("no handshake")


def test_anything_else_is_ignored_or_not_understood() -> None:
    assert parse({"type": "app_rate_limited"}) == Ignored("another type")
    assert parse([]) == Ignored("not an object")
    assert isinstance(CHANNEL.parse(Verified(b"token=x&command=%2Fweather")), NotUnderstood)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
NAMES = st.sampled_from("type channel channel_type user ts text thread_ts files bot_id".split())
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, TREES), TREES, st.sampled_from(["message", "app_mention", "x"]))
def test_any_event_gives_a_value(content: dict[str, Any], tree: Any, name: str) -> None:
    root = {"type": "event_callback", "team_id": tree, "authorizations": tree}

    assert isinstance(parse({**root, "event": tree}), Delivery)
    assert isinstance(parse({**root, "event": {**content, "type": name}}), Delivery)


# --- what goes out -----------------------------------------------------------------------------

REPLY = Reply("reply-T1.C1.5.1", "C1", "a < b & <!channel>", thread="5.1", quotes="5.1")


def test_a_reply_is_one_request_that_pings_nobody() -> None:
    fetch = CHANNEL.encode(REPLY, NOW)

    assert fetch.url == "https://slack.com/api/chat.postMessage"
    assert dict(fetch.headers)["authorization"] == "Bearer xoxb-bot"
    assert json.loads(fetch.body) == {
        "channel": "C1",
        "text": "a &lt; b &amp; &lt;!channel&gt;",
        "unfurl_links": False,
        "unfurl_media": False,
        "thread_ts": "5.1",
        "metadata": {
            "event_type": "legation_reply",
            "event_payload": {"idempotency_key": "reply-T1.C1.5.1"},
        },
    }


def test_markdown_is_written_as_slack_writes_it() -> None:
    fetch = CHANNEL.encode(Reply("k", "D1", "**a < b** [x](https://y.example/?a=1&b=2)"), NOW)

    assert json.loads(fetch.body)["text"] == "*a &lt; b* x (https://y.example/?a=1&amp;b=2)"


def test_a_direct_reply_opens_no_thread() -> None:
    assert "thread_ts" not in json.loads(CHANNEL.encode(Reply("k", "D1", "x"), NOW).body)


def test_no_secret_shows_and_none_means_no_start() -> None:
    shown = repr(CHANNEL) + repr(CHANNEL.encode(REPLY, NOW))

    assert not [secret for secret in ("signing'", "xoxb-bot", "older") if secret in shown]
    with pytest.raises(ValueError, match="secret"):
        evolve(CHANNEL, signing_secret="")


def answer(status: int, content: Any) -> FetchReply:
    return FetchReply(status, {"retry-after": "2"}, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (answer(200, {"ok": True, "ts": "6.1"}), Sent("6.1")),
        (answer(200, {}), Sent("")),
        (answer(200, []), Sent("")),
        (FetchReply(200, {}, b"ok"), Sent("")),
        (answer(200, {"ok": False, "error": "channel_not_found"}), GiveUp("channel_not_found")),
        (answer(200, {"ok": False, "error": "<b>"}), GiveUp("unknown error")),
        (answer(200, {"ok": False, "error": "ratelimited"}), RetryLater(2, "ratelimited")),
        (answer(429, {"ok": False, "error": "ratelimited"}), RetryLater(2, "HTTP 429")),
        (answer(404, {}), GiveUp("HTTP 404")),
        *(
            (answer(200, {"ok": False, "error": error}), Unauthorized(error))
            for error in ("invalid_auth", "not_authed", "token_revoked", "account_inactive")
        ),
        (Unreachable("timeout"), RetryLater(None, "timeout")),
    ],
)
def test_the_answer_is_judged(reply: FetchReply | Unreachable, outcome: Outcome) -> None:
    assert CHANNEL.read_reply(reply, NOW) == outcome


def test_an_app_that_does_not_know_its_workspace_reads_every_event() -> None:
    root = event(type="message", channel_type="im", channel="D1", user="U1", text="hi", ts="1.1")

    assert CHANNEL.read_delivery(root, "d") == CHANNEL.read_addressed(root, "d", None)
