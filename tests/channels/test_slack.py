"""Slack, as slack_sdk and Bolt know it: signatures and events in, requests of the Web API out."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Sequence
from typing import Any, Final

import pytest
from attrs import define, field

from legation_testing import Client

from ..providers.deliveries import ENVIRON, Delivery, platform
from ..providers.deliveries import slack as message_of
from ..providers.strict import SlackApi, now_us
from .delivering import SLOW, TEXTS, WITH_FILES, deliver_twice, grow

bolt: Any = pytest.importorskip("slack_bolt", reason="nox -s channels installs it")
blocks: Any = pytest.importorskip("slack_sdk.models.blocks")
metadata: Any = pytest.importorskip("slack_sdk.models.metadata")
sdk: Any = pytest.importorskip("slack_sdk")
signature: Any = pytest.importorskip("slack_sdk.signature")

SECRET: Final = ENVIRON["SLACK_SECRET"]
BOT: Final = "U0BOT"
WRITTEN: Final = {"channel": "C1", "channel_type": "channel", "user": "U1", "text": "Hello"}
DIRECT: Final = {**WRITTEN, "channel": "D1", "channel_type": "im"}
ABOUT: Final[dict[str, Any]] = {
    "user": "U1",
    "item": {"channel": "C1"},
    "assistant_thread": {"user_id": "U1", "channel_id": "D1", "thread_ts": "5.1", "context": {}},
}
FILE: Final = {"id": "F1", "name": "a.pdf", "mimetype": "application/pdf", "size": 9}
# By "Message subtypes" and "Events" of docs.slack.dev.
SUBTYPES: Final = """
    assistant_app_thread bot_add bot_message bot_remove channel_archive channel_convert_to_private
    channel_join channel_leave channel_name channel_posting_permissions channel_purpose
    channel_topic channel_unarchive document_mention ekm_access_denied file_share huddle_thread
    me_message message_changed message_deleted message_replied pinned_item reminder_add
    reply_broadcast thread_broadcast tombstone unpinned_item
""".split()
OTHERS: Final = """
    app_home_opened app_uninstalled assistant_thread_context_changed assistant_thread_started
    call_rejected channel_archive channel_created channel_deleted channel_id_changed channel_left
    channel_rename channel_shared channel_unarchive dnd_updated email_domain_changed emoji_changed
    file_change file_created file_deleted file_public file_shared file_unshared function_executed
    invite_requested link_shared member_joined_channel member_left_channel message_metadata_posted
    pin_added pin_removed reaction_added reaction_removed shared_channel_invite_accepted
    star_added subteam_created subteam_updated team_join team_rename tokens_revoked user_change
    user_huddle_changed user_profile_changed user_status_changed workflow_published
""".split()


def events() -> list[dict[str, Any]]:
    """Return an event of each kind, those that are answered among them in several forms."""
    mention = {**WRITTEN, "text": f"<@{BOT}> Hello"}
    return [
        {"type": "app_mention", **mention},
        {"type": "app_mention", **mention, "thread_ts": "5.000100"},
        {"type": "app_mention", **mention, "files": [FILE]},
        {"type": "message", **WRITTEN},
        {"type": "message", **DIRECT},
        {"type": "message", **DIRECT, "thread_ts": "5.000100"},
        {"type": "message", **DIRECT, "bot_id": "B1"},
        {"type": "message", **DIRECT, "files": [FILE], "subtype": "file_share"},
        *({"type": "message", **WRITTEN, "subtype": subtype} for subtype in SUBTYPES),
        *({"type": "message", **DIRECT, "subtype": subtype} for subtype in SUBTYPES),
        *({"type": name, **ABOUT} for name in OTHERS),
    ]


def callbacks() -> list[str]:
    """Return the events as Slack posts them, each under its own id and `ts`."""
    stamps = [f"1767225600.{number:06}" for number in range(1000)]
    outer = {"token": "t", "team_id": "T1", "api_app_id": "A1", "type": "event_callback",
             "authorizations": [{"team_id": "T1", "user_id": BOT, "is_bot": True}]}  # fmt: skip
    return [
        json.dumps({**outer, "event_id": f"Ev{stamp}", "event": {"ts": stamp, **event}})
        for event, stamp in zip(events(), stamps, strict=False)
    ]


def sign(body: str, *more: tuple[str, str], age_seconds: int = 0) -> Delivery:
    """Return `body` as slack_sdk signs it."""
    stamp = str(now_us() // 1_000_000 - age_seconds)
    signed = signature.SignatureVerifier(SECRET).generate_signature(timestamp=stamp, body=body)
    headers = (
        ("content-type", "application/json"),
        ("x-slack-request-timestamp", stamp),
        ("x-slack-signature", signed),
        *more,
    )
    return Delivery("/slack/webhook", headers, body.encode())


@define(eq=False)
class Bolt:
    """An app of Bolt that listens to every event."""

    heard: list[str] = field(factory=list[str], init=False)

    def _note(self, event: dict[str, Any]) -> None:
        self.heard.append(event["type"])

    def hear(self, deliveries: Sequence[Delivery]) -> None:
        """Hand the deliveries to the app, which checks their signatures, too."""
        who = bolt.authorization.AuthorizeResult(
            enterprise_id=None, team_id="T1", bot_user_id=BOT, bot_id="B0", bot_token="xoxb-token"
        )
        app = bolt.App(
            signing_secret=SECRET,
            authorize=lambda: who,
            process_before_response=True,
            ignoring_self_events_enabled=False,
            url_verification_enabled=False,
        )
        app.event(re.compile(".+"))(self._note)
        for sent in deliveries:
            headers = {name: [value] for name, value in sent.headers}
            request = bolt.BoltRequest(body=sent.body.decode(), headers=headers)
            response = app.dispatch(request)
            assert response.status == 200, sent.body


def test_every_event_that_bolt_hears_is_answered_once_at_most() -> None:
    retry = (("x-slack-retry-num", "1"), ("x-slack-retry-reason", "http_timeout"))
    every = [sign(body) for body in callbacks()]
    app = Bolt()
    app.hear(every)
    again = [sign(body, *retry) for body in callbacks()]
    sent = deliver_twice(SlackApi(), [*every, *again])

    assert app.heard == [event["type"] for event in events()]
    assert set(sent.first[: len(every)]) == {"processing", "ignored"}
    assert set(sent.first[len(every) :]) == {"duplicate", "ignored"}
    assert sent.answers == sent.first.count("processing") > 6
    check_requests(sent.requests)


@pytest.mark.parametrize("age", [0, 295, 305, -295, -305])
@pytest.mark.parametrize("forged", [False, True], ids=["signed", "forged"])
def test_a_signature_is_judged_as_slack_sdk_judges_it(age: int, *, forged: bool) -> None:
    sent = sign(callbacks()[0], age_seconds=age)
    body = sent.body + b" " * forged
    verifier = signature.SignatureVerifier(SECRET)
    expected = 200 if verifier.is_valid_request(body, dict(sent.headers)) else 403

    with Client(platform(), fetch=SlackApi(), start_us=now_us()) as client:
        assert client.post(sent.target, headers=sent.headers, body=body).status == expected


def test_answers_are_requests_as_slack_sdk_has_them() -> None:
    at = now_us()
    every = [message_of("U1", f"{9 + number}.1", text, at) for number, text in enumerate(TEXTS)]
    sent = deliver_twice(SlackApi(), every)

    assert sent.first == ["processing"] * len(TEXTS)
    assert check_requests(sent.requests)["chat.postMessage"] == sent.answers > len(TEXTS)


def test_files_and_the_status_are_requests_as_slack_sdk_has_them() -> None:
    asked = [sign(callbacks()[0])]
    files = check_requests(deliver_twice(SlackApi(), asked, **WITH_FILES).requests)
    shown = check_requests(deliver_twice(SlackApi(), asked, **SLOW).requests)

    assert files["files.getUploadURLExternal"] == files["files.completeUploadExternal"] == 2
    assert shown["chat.postMessage"] == 1 <= shown["assistant.threads.setStatus"]


def test_an_answer_that_grows_is_requests_as_slack_sdk_has_them() -> None:
    api = SlackApi()
    sent = deliver_twice(api, [sign(callbacks()[0])], **grow())
    found = check_requests(sent.requests)

    assert found["chat.postMessage"] == 1 < found["chat.update"]
    assert [*api.shown.values()] == ["Room *seven is* free:\n\n```\n90 &lt; 100\n```\nYes?"]


def check_requests(requests: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """Check that slack_sdk has each method, its arguments, and the same blocks and metadata."""
    found: dict[str, int] = {}
    for name, body in requests:
        if "." not in name:  # the content of a file, which goes to an address that Slack gave
            continue
        method = getattr(sdk.WebClient, name.replace(".", "_"))
        assert body.keys() <= inspect.signature(method).parameters.keys()
        if "metadata" in body:
            assert metadata.Metadata(**body["metadata"]).to_dict() == body["metadata"]
        for block in body.get("blocks", ()):
            assert blocks.Block.parse(block).to_dict() == block
        found[name] = found.get(name, 0) + 1
    return found
