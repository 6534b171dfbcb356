"""The webhooks, through the platform's door: what is stored, what is said, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from legation import Agent
from legation.config import AuthorizationConfig
from legation.effects import ReadBody, Transact
from legation.http.bodies.json_text import parse_json
from legation.store.failures import Busy, CommitLost, NotServed, Unavailable
from legation.store.inbox import PutMessages
from legation_testing import Client

from ....providers.deliveries import (
    KINDS,
    Delivery,
    loopback,
    platform,
    signed,
    slack,
    standard,
    telegram,
    whatsapp,
)
from ....providers.strict import WhatsAppApi

NOW = 1_767_225_600_000_000
LIMIT = 4 << 20


def one(kind: str, now_us: int = NOW) -> Delivery:
    """Return a delivery of one message."""
    match kind:
        case "whatsapp":
            return whatsapp(("4911", "a", "hi"))
        case "telegram":
            return telegram(7, 1, "hi")
        case "loopback":
            return loopback(("ann", "a", "hi"))
        case "slack":
            return slack("U1", "5.1", "hi", now_us)
        case _:
            return standard("ada", "a", "hi", now_us)


def post(c: Client, sent: Delivery, **more: Any) -> Any:
    return c.post(sent.target, headers=sent.headers, body=sent.body, **more)


def stored(c: Client) -> int:
    """Return how many messages are stored."""
    c.settle()
    found = [
        c.get(f"/channels/{told['id']}/messages?state={state}").json()["data"]
        for told in c.get("/channels").json()
        for state in ("ready", "done", "dead")
    ]
    return sum(map(len, found))


@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_is_stored_and_its_repetition_is_a_duplicate(kind: str) -> None:
    with Client(platform) as c:
        first, second = (post(c, one(kind)) for _ in range(2))

        assert (first.status, first.json()) == (200, {"status": "processing"})
        assert (second.status, second.json()) == (200, {"status": "duplicate"})
        assert stored(c) == 1


def test_deliveries_of_one_message_at_once_store_it_once() -> None:
    with Client(platform, order=3) as c:
        sent = one("whatsapp")
        begun = [
            c.begin("POST", sent.target, headers=sent.headers, body=sent.body) for _ in range(10)
        ]
        said = sorted(exchange.response().json()["status"] for exchange in begun)

    assert said == ["duplicate"] * 9 + ["processing"]


def test_a_batch_with_a_duplicate_stores_the_rest() -> None:
    with Client(platform) as c:
        post(c, one("whatsapp"))
        answer = post(c, whatsapp(("4911", "a", "hi"), ("4911", "b", "you"), ("4911", "b", "you")))

        assert answer.json() == {"status": "processing"}
        assert stored(c) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_delivery_that_is_not_signed_is_refused_before_anything_is_stored(kind: str) -> None:
    with Client(platform) as c:
        sent = one(kind)
        refused = c.post(sent.target, body=sent.body)
        changed = c.post(sent.target, headers=sent.headers, body=sent.body + b" ")

        assert refused.status == 403
        assert refused.json() == {"detail": "Invalid signature", "error_code": "FORBIDDEN"}
        assert (changed.status == 403) is (kind != "telegram")  # whose token signs nothing
        assert stored(c) == (kind == "telegram")
        (log, *_) = [log for log in c.logs if log.event == "delivery_refused"]
        assert dict(log.fields)["channel"] == kind


def test_of_a_flood_of_forged_deliveries_the_log_has_a_hundred_lines() -> None:
    with Client(platform) as c:
        statuses = {c.post("/whatsapp/webhook", body=b"{}").status for _ in range(150)}

        assert statuses == {403}
        assert len([log for log in c.logs if log.event == "delivery_refused"]) == 100


def test_no_database_is_asked_before_the_signature_is_checked() -> None:
    with Client(platform) as c:
        c.post("/whatsapp/webhook", body=b"{}")
        mine = [p.effect for p in c.effects if p.program == "POST /whatsapp/webhook"]

    assert mine != []
    assert not [effect for effect in mine if isinstance(effect, Transact)]


@pytest.mark.parametrize("kind", ["slack", "standard"])
@pytest.mark.parametrize("seconds", [-301, 301])
def test_a_delivery_out_of_its_window_is_refused(kind: str, seconds: int) -> None:
    with Client(platform) as c:
        assert post(c, one(kind, NOW + seconds * 1_000_000)).status == 403
        assert stored(c) == 0


def test_a_body_that_is_too_long_is_refused_before_its_signature() -> None:
    with Client(platform) as c:
        exactly = signed("whatsapp", b"{" + b" " * (LIMIT - 2) + b"}", NOW)
        longer = signed("whatsapp", b"{" + b" " * (LIMIT - 1) + b"}", NOW)

        assert [post(c, exactly).status, post(c, longer).status] == [200, 413]
        assert [p.effect.limit for p in c.effects if isinstance(p.effect, ReadBody)] == [LIMIT] * 2


def test_a_channel_that_is_not_there_is_not_found() -> None:
    with Client(platform) as c:
        assert c.post("/nobody/webhook", body=b"{}").status == 404
        assert c.get("/nobody/webhook").status == 404
        assert c.get("/nobody/status").status == 404


def test_a_platform_that_asks_for_tokens_asks_none_of_a_webhook() -> None:
    secret = "s" * 32
    configuration = AuthorizationConfig(verification_keys=(secret,), algorithm="HS256")

    def guarded() -> Any:
        return platform(authorization=True, authorization_config=configuration)

    with Client(guarded) as c:
        assert post(c, one("whatsapp")).status == 200
        assert c.post("/whatsapp/webhook", body=b"{}", token="x.y.z").status == 403
        assert c.get("/whatsapp/webhook").status == 403
        assert c.get("/whatsapp/status").status == 401
        assert c.get("/channels").status == 401


# --- the handshakes ----------------------------------------------------------------------------

ASKED = {"hub.mode": "subscribe", "hub.verify_token": "verify-token", "hub.challenge": "42"}


def test_the_verification_of_meta_is_answered_as_plain_text() -> None:
    with Client(platform) as c:
        answer = c.get("/whatsapp/webhook", query=ASKED)

        assert (answer.status, answer.text) == (200, "42")
        assert answer.header("content-type") == "text/plain; charset=utf-8"
        assert answer.header("x-content-type-options") == "nosniff"


@pytest.mark.parametrize(
    "changed",
    [
        {"hub.mode": "unsubscribe"},
        {"hub.verify_token": "another"},
        {"hub.verify_token": ""},
        {"hub.challenge": ""},
        {"hub.challenge": "<script>"},
        {"hub.challenge": "x" * 201},
        {"hub.challenge": ["1", "2"]},
    ],
)
def test_another_verification_is_refused(changed: dict[str, Any]) -> None:
    with Client(platform) as c:
        answer = c.get("/whatsapp/webhook", query={**ASKED, **changed})

        assert answer.status == 403
        assert answer.json()["detail"] == "Invalid verify token or mode"


def test_a_query_that_cannot_be_read_is_invalid() -> None:
    with Client(platform) as c:
        assert c.get("/whatsapp/webhook?hub.mode=%ff").status == 422


def test_kinds_without_a_verification_refuse_it() -> None:
    with Client(platform) as c:
        assert {c.get(f"/{kind}/webhook", query=ASKED).status for kind in KINDS[1:]} == {403}


def test_slack_is_told_its_challenge() -> None:
    body = json.dumps({"type": "url_verification", "challenge": "abc"}).encode()
    with Client(platform) as c:
        answer = post(c, signed("slack", body, NOW))

        assert (answer.status, answer.text) == (200, "abc")


def test_a_channel_says_that_it_is_there() -> None:
    with Client(platform) as c:
        assert c.get("/whatsapp/status").json() == {"status": "available"}


# --- signed nonsense (W30 to W43) --------------------------------------------------------------

BAD = 400
IGNORED = 200
NONSENSE = {
    "empty": (b"", BAD),
    "no JSON": (b"hello", BAD),
    "cut": (b'{"object": "whats', BAD),
    "invalid UTF-8": (b'{"object": "\xff"}', BAD),
    "UTF-16": ('{"object": "whatsapp_business_account"}'.encode("utf-16"), BAD),
    "NaN": (b'{"object": NaN}', BAD),
    "deep": (b"[" * 100_000 + b"]" * 100_000, BAD),
    "deep object": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, BAD),
    "huge number": (b'{"object": ' + b"9" * 50_000 + b"}", BAD),
    "array": (b"[]", IGNORED),
    "null": (b"null", IGNORED),
    "number": (b"1", IGNORED),
    "string": (b'"x"', IGNORED),
    "empty object": (b"{}", IGNORED),
    "other object": (b'{"object": "page", "entry": []}', IGNORED),
    "object null": (b'{"object": null, "entry": null}', IGNORED),
    "form": (b"object=whatsapp_business_account", BAD),
}
_ACCOUNT = '{"object": "whatsapp_business_account", "entry": %s}'
ENTRIES = [
    "null",
    "1",
    '"x"',
    "{}",
    "[]",
    "[null]",
    "[1]",
    "[[]]",
    "[{}]",
    '[{"changes": null}]',
    '[{"changes": {}}]',
    '[{"changes": [null]}]',
    '[{"changes": [{"value": null}]}]',
    '[{"changes": [{"value": []}]}]',
    '[{"changes": [{"value": {"messages": null}}]}]',
    '[{"changes": [{"value": {"messages": {}}}]}]',
    '[{"changes": [{"value": {"messages": [null, 1, "x", [], {}]}}]}]',
    '[{"changes": [{"value": {"messages": [{"id": 1, "from": "4911"}]}}]}]'.replace("1,", "null,"),
    '[{"changes": [{"value": {"messages": [{"id": "a"}]}}]}]',
    '[{"changes": [{"value": {"messages": [{"id": "a", "from": null}]}}]}]',
    '[{"changes": [{"value": {"messages": [{"id": "a", "from": {"x": 1}}]}}]}]',
    '[{"changes": [{"value": {"messages": [{"id": "", "from": "4911"}]}}]}]',
    '[{"changes": [{"value": {"messages": [{"id": "a b", "from": "4911"}]}}]}]',
    '[{"changes": [{"value": {"statuses": [{"id": "a", "status": "read"}]}}]}]',
    '[{"changes": [{"value": {"errors": [{"code": 1}]}}]}]',
]


@pytest.mark.parametrize("name", NONSENSE)
@pytest.mark.parametrize("kind", KINDS)
def test_signed_nonsense_has_its_status_and_stores_nothing(kind: str, name: str) -> None:
    body, status = NONSENSE[name]
    with Client(platform) as c:
        answer = post(c, signed(kind, body, NOW))

        assert answer.status == status, answer.text
        if status == IGNORED:
            assert answer.json()["status"] == "ignored"
            assert answer.json().keys() <= {"status", "reason"}
        else:
            assert answer.json()["detail"].startswith("The body has to be JSON")
        assert stored(c) == 0


def test_entries_of_every_wrong_shape_are_acknowledged_and_store_nothing() -> None:
    with Client(platform) as c:
        for entry in ENTRIES:
            body = (_ACCOUNT % entry).encode()
            assert isinstance(parse_json(body), dict)
            answer = post(c, signed("whatsapp", body, NOW))
            assert (answer.status, answer.json()) == (200, {"status": "ignored"}), entry
        assert stored(c) == 0


def test_of_a_delivery_what_is_well_formed_is_stored() -> None:
    good = '{"id": "good", "from": "4911", "type": "text", "text": {"body": "hi"}}'
    many = f'null, {{"id": 5}}, {good}, {{"id": "b", "from": []}}, []'
    body = (_ACCOUNT % f'[{{"changes": [{{"value": {{"messages": [{many}]}}}}]}}, 7]').encode()
    provider = WhatsAppApi()
    with Client(platform, fetch=provider) as c:
        answer = post(c, signed("whatsapp", body, NOW))
        c.settle()

        assert answer.json() == {"status": "processing"}
        assert stored(c) == 1
    assert [message.text for message in provider.seen] == ["hi"]


def test_ten_megabytes_are_refused() -> None:
    with Client(platform) as c:
        body = (_ACCOUNT % ("[" + '"' + "x" * (10 << 20) + '"' + "]")).encode()

        assert post(c, signed("whatsapp", body, NOW)).status == 413


# --- the database ------------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [Busy("x"), Unavailable("x"), CommitLost("x"), NotServed("x")])
def test_what_is_not_stored_is_not_acknowledged(failure: Exception) -> None:
    with Client(platform) as c:
        c.fail_at(
            lambda effect: isinstance(getattr(effect, "unit", None), PutMessages),
            failure,
        )
        refused = post(c, one("whatsapp"))
        again = post(c, one("whatsapp"))

        assert refused.status == 503
        assert refused.json()["error_code"] == "SERVICE_UNAVAILABLE"
        assert again.json() == {"status": "processing"}


def test_a_message_with_a_lost_commit_is_a_duplicate_when_it_comes_again() -> None:
    provider = WhatsAppApi()
    with Client(platform, fetch=provider) as c:
        c.fail_at(
            lambda effect: isinstance(getattr(effect, "unit", None), PutMessages),
            CommitLost("x"),
            after=True,
        )
        assert post(c, one("whatsapp")).status == 503
        assert post(c, one("whatsapp")).json() == {"status": "duplicate"}
        c.advance(2)

    assert [message.text for message in provider.seen] == ["hi"]


def test_a_report_about_a_reply_that_is_none_of_ours_is_not_in_the_log() -> None:
    status = {
        "status": "failed",
        "biz_opaque_callback_data": "reply-wamid.1",
        "errors": [{"code": 131047}],
    }
    value = {"metadata": {"phone_number_id": "111"}, "statuses": [status]}
    root = {"object": "whatsapp_business_account"}
    entry = [{"changes": [{"field": "messages", "value": value}]}]
    with Client(platform) as c:
        sent = signed("whatsapp", json.dumps({**root, "entry": entry}).encode(), NOW)
        assert post(c, sent).json() == {"status": "ignored"}

        assert [log for log in c.logs if log.event == "reply_undelivered"] == []


@pytest.mark.parametrize(
    ("value", "reasons"),
    [
        ({"metadata": {"phone_number_id": "222"}, "messages": ["x"]}, ["another number"]),
        ({"metadata": {"phone_number_id": "222"}, "statuses": ["x"]}, list[str]()),
        ({"messages": [{"id": "a"}]}, ["malformed"]),
        ({"statuses": [{"status": "read"}]}, list[str]()),
    ],
)
def test_a_message_that_is_passed_over_is_in_the_log(
    value: dict[str, Any], reasons: list[str]
) -> None:
    entry = [{"changes": [{"field": "messages", "value": value}]}]
    root = {"object": "whatsapp_business_account", "entry": entry}
    with Client(platform) as c:
        assert post(c, signed("whatsapp", json.dumps(root).encode(), NOW)).status == 200

        told = [dict(log.fields)["reason"] for log in c.logs if log.event == "delivery_ignored"]
        assert told == reasons


@pytest.mark.parametrize(
    ("root", "reason", "logged"),
    [
        ({"type": "message", "data": {"text": "hi"}}, "data.sender is missing", ["malformed"]),
        ({"type": "message", "data": {"sender": True}}, "data.sender is missing", ["malformed"]),
        ({"type": "order.paid"}, "The type is neither", list[str]()),
    ],
    ids=["no sender", "sender of a wrong type", "another type"],
)
def test_sender_of_signed_webhooks_is_told_why_nothing_is_done(
    root: dict[str, Any], reason: str, logged: list[str]
) -> None:
    with Client(platform) as c:
        answer = post(c, signed("standard", json.dumps(root).encode(), NOW))

        assert answer.status == 200
        assert answer.json()["status"] == "ignored"
        assert answer.json()["reason"].startswith(reason)
        told = [dict(log.fields)["reason"] for log in c.logs if log.event == "delivery_ignored"]
        assert told == logged


def test_our_own_messages_are_ignored() -> None:
    with Client(lambda: platform(agents=[Agent(id="concierge")])) as c:
        own = post(c, whatsapp(("15550001", "a", "hi"), ("111", "b", "hi")))

        assert own.json() == {"status": "ignored"}
        assert stored(c) == 0
