"""WhatsApp.  Several names tell what other servers get wrong with the same delivery."""

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
    Skip,
    Undelivered,
    treat,
)
from legation.channels.replies import GiveUp, Outcome, Reply, RetryLater, Sent, Unauthorized
from legation.channels.signatures import SignatureRefused, Verified
from legation.channels.whatsapp import WhatsApp
from legation.effects import FetchReply, Unreachable

CHANNEL = WhatsApp("chat", "app-secret", "verify-me", "access-me", "100200")
ADA = "15551234567"
NOW = 1_700_000_000_000_000


def message(message_id: str = "wamid.1", **more: Any) -> dict[str, Any]:
    content = {"type": "text", "text": {"body": "hello"}}
    return {"from": ADA, "id": message_id, "timestamp": "1600000000", **content, **more}


def value(*messages: Any, **more: Any) -> dict[str, Any]:
    metadata = {"display_phone_number": "+1 (555) 000-1111", "phone_number_id": "100200"}
    return {"metadata": metadata, "messages": list(messages), **more}


def body(*values: Any) -> bytes:
    changes = [{"field": "messages", "value": each} for each in values]
    account = {"object": "whatsapp_business_account"}
    return json.dumps({**account, "entry": [{"id": "1", "changes": changes}]}).encode()


def parse(data: bytes) -> Any:
    return CHANNEL.parse(Verified(data))


def only(**more: Any) -> IncomingMessage:
    delivery = parse(body(value(message(**more))))
    assert isinstance(delivery, Delivery)
    (found,) = delivery.messages
    return found


# --- the handshake -----------------------------------------------------------------------------

SUBSCRIBE = (
    ("hub.mode", "subscribe"),
    ("hub.verify_token", "verify-me"),
    ("hub.challenge", "1158201444"),
)


def test_the_right_token_gets_its_challenge() -> None:
    assert CHANNEL.handshake(SUBSCRIBE) == Challenge("1158201444")
    assert CHANNEL.handshake(SUBSCRIBE[::-1]) == Challenge("1158201444")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("hub.mode", "unsubscribe"),
        ("hub.verify_token", "verify-m"),
        ("hub.verify_token", "VERIFY-ME"),
        ("hub.verify_token", "vérify-me"),
        ("hub.verify_token", "\udc80"),
        ("hub.verify_token", ""),
        ("hub.challenge", "<script>"),
        ("hub.challenge", "a b"),
        ("hub.challenge", "x" * 201),
        ("hub.challenge", ""),
    ],
)
def test_any_other_handshake_is_refused(name: str, given: str) -> None:
    wrong = tuple((key, given if key == name else text) for key, text in SUBSCRIBE)

    assert isinstance(CHANNEL.handshake(wrong), SignatureRefused)


@pytest.mark.parametrize("missing", SUBSCRIBE)
def test_every_parameter_is_needed_once(missing: tuple[str, str]) -> None:
    fewer = tuple(pair for pair in SUBSCRIBE if pair != missing)

    assert isinstance(CHANNEL.handshake(fewer), SignatureRefused)
    assert isinstance(CHANNEL.handshake((*SUBSCRIBE, missing)), SignatureRefused)


# --- the signature -----------------------------------------------------------------------------


def signature(secret: str, data: bytes) -> bytes:
    return b"sha256=" + hmac.new(secret.encode(), data, hashlib.sha256).hexdigest().encode()


def test_both_app_secrets_are_accepted_while_one_replaces_the_other() -> None:
    rotating = evolve(CHANNEL, app_secret="new", previous_app_secret="app-secret")
    for secret in ("new", "app-secret"):
        headers = ((b"x-hub-signature-256", signature(secret, b"{}")),)
        assert rotating.verify(headers, b"{}", NOW) == Verified(b"{}")


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"x-hub-signature-256", b""),),
        ((b"x-hub-signature-256", b"sha256=" + b"0" * 64),),
        ((b"x-hub-signature-256", "sha256=é".encode()),),
        ((b"x-hub-signature-256", b"\xff" * 71),),
        ((b"x-hub-signature", signature("app-secret", b"{}")),),
        ((b"x-hub-signature-256", signature("app-secret", b"{}").upper()),),
        ((b"x-hub-signature-256", signature("app-secret", b"{} ")),),
    ],
)
def test_a_bad_signature_is_refused_and_never_an_error(
    headers: tuple[tuple[bytes, bytes], ...],
) -> None:
    assert isinstance(CHANNEL.verify(headers, b"{}", NOW), SignatureRefused)


def test_without_a_secret_there_is_no_channel() -> None:
    """AgentOS accepts anything while an environment variable is unset."""
    with pytest.raises(ValueError, match="secret"):
        evolve(CHANNEL, app_secret="")


@pytest.mark.parametrize(
    "wrong",
    [
        {"verify_token": ""},
        {"access_token": "a\r\nx: y"},
        {"phone_number_id": "../me"},
        {"api_base_url": "ftp://x"},
    ],
)
def test_settings_are_checked_at_the_start(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        evolve(CHANNEL, **wrong)


def test_no_secret_shows() -> None:
    shown = repr(CHANNEL)

    assert not [secret for secret in ("app-secret", "verify-me", "access-me") if secret in shown]


# --- what came ---------------------------------------------------------------------------------


def test_a_text_is_a_message() -> None:
    assert only() == IncomingMessage(
        "wamid.1",
        ADA,
        ContentKind.TEXT,
        "hello",
        conversation=ADA,
        provider_id="wamid.1",
        sent_us=1_600_000_000_000_000,
    )


def test_every_message_of_every_change_of_every_entry_is_taken() -> None:
    """AgentOS answers only the first message of each change."""
    root = json.loads(body(value(message("a"), message("b")), value(message("c"))))
    root["entry"] += json.loads(body(value(message("d"))))["entry"]

    delivery = parse(json.dumps(root).encode())

    assert [m.message_id for m in delivery.messages] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ({"type": "button", "button": {"text": "Yes", "payload": "y"}}, ContentKind.BUTTON, "Yes"),
        (
            {
                "type": "interactive",
                "interactive": {"type": "button_reply", "button_reply": {"title": "No"}},
            },
            ContentKind.BUTTON,
            "No",
        ),
        (
            {
                "type": "interactive",
                "interactive": {"type": "list_reply", "list_reply": {"title": "Two"}},
            },
            ContentKind.LIST,
            "Two",
        ),
        (
            {
                "type": "interactive",
                "interactive": {"type": "nfm_reply", "nfm_reply": {"response_json": "{}"}},
            },
            ContentKind.BUTTON,
            "{}",
        ),
        (
            {"type": "interactive", "interactive": {"type": "nfm_reply"}},
            ContentKind.UNSUPPORTED,
            None,
        ),
        ({"type": "interactive"}, ContentKind.UNSUPPORTED, None),
        ({"type": "image", "image": {"id": "1", "caption": "look"}}, ContentKind.IMAGE, "look"),
        ({"type": "image", "image": {"id": "1"}}, ContentKind.IMAGE, None),
        ({"type": "document", "document": {"caption": "read"}}, ContentKind.DOCUMENT, "read"),
        ({"type": "audio", "audio": {"id": "1"}}, ContentKind.AUDIO, None),
        ({"type": "sticker", "sticker": {"id": "1"}}, ContentKind.STICKER, None),
        ({"type": "location", "location": {"latitude": 1}}, ContentKind.LOCATION, None),
        ({"type": "contacts", "contacts": []}, ContentKind.CONTACTS, None),
        ({"type": "order", "order": {"text": "two, please"}}, ContentKind.ORDER, "two, please"),
        ({"type": "system", "system": {"body": "changed"}}, ContentKind.SYSTEM, "changed"),
        ({"type": "edit", "edit": {"message": {"type": "text"}}}, ContentKind.SYSTEM, None),
        ({"type": "revoke", "revoke": {"original_message_id": "x"}}, ContentKind.SYSTEM, None),
        ({"type": "request_welcome"}, ContentKind.SYSTEM, None),
        ({"type": "unsupported", "unsupported": {"type": "poll_update"}}, ContentKind.SYSTEM, None),
        ({"type": "unsupported", "unsupported": {"type": "gif"}}, ContentKind.UNSUPPORTED, None),
        ({"type": "unsupported"}, ContentKind.UNSUPPORTED, None),
        ({"type": "unknown"}, ContentKind.UNSUPPORTED, None),
        ({"type": ["text"]}, ContentKind.UNSUPPORTED, None),
        ({"type": "text", "text": {}}, ContentKind.UNSUPPORTED, None),
        ({"type": "text", "text": {"body": 7}}, ContentKind.UNSUPPORTED, None),
    ],
)
def test_every_type_is_told_apart(
    content: dict[str, Any], kind: ContentKind, text: str | None
) -> None:
    found = only(**content)

    assert (found.kind, found.text) == (kind, text)


def test_stickers_places_and_texts_without_a_body_are_answered_in_words() -> None:
    """AgentOS shows that it is typing, and then nothing."""
    silent: tuple[dict[str, Any], ...] = (
        {"type": "sticker"},
        {"type": "location"},
        {"type": "text", "text": {}},
    )
    for content in silent:
        assert not isinstance(treat(only(**content)), Skip)


def test_a_reaction_knows_what_it_is_about() -> None:
    found = only(type="reaction", reaction={"message_id": "wamid.0", "emoji": "👍"})

    assert (found.kind, found.text, found.reply_to) == (ContentKind.REACTION, "👍", "wamid.0")


def test_the_message_answered_to_is_known() -> None:
    assert only(context={"id": "wamid.0", "from": "1"}).reply_to == "wamid.0"


@pytest.mark.parametrize("own", ["15550001111", "+15550001111", "100200"])
def test_our_own_number_is_flagged(own: str) -> None:
    """AgentOS answers itself."""
    assert only(**{"from": own}).from_self


def test_without_our_number_a_sender_without_digits_is_somebody_else() -> None:
    delivery = parse(body(value(message(**{"from": "ada"}), metadata={})))

    assert not delivery.messages[0].from_self


USER = "US.13491208655302741918"
GROUP = "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOTox"


def test_who_hides_the_phone_number_is_known_by_another_id() -> None:
    hidden = {name: given for name, given in message().items() if name != "from"}
    delivery = parse(body(value({**hidden, "from_user_id": USER})))

    (found,) = delivery.messages
    assert (found.sender, found.conversation, found.from_self) == (USER, USER, False)


def test_who_shows_the_phone_number_is_known_by_it() -> None:
    assert only(from_user_id=USER) == only()


def test_a_message_in_a_group_is_answered_there() -> None:
    found = only(group_id=GROUP)

    assert (found.sender, found.conversation, found.in_group) == (ADA, GROUP, True)


def test_a_reply_that_was_not_delivered_is_told_with_the_codes_of_meta() -> None:
    codes: list[Any] = [[{"code": 131047}, {"code": 131026}], None, [{"code": "<b>"}]]
    keys = ("reply-wamid.1", "reply.2-wamid.1", "apology-wamid.1")
    failed = [
        {"status": "failed", "id": f"of-{key}", "biz_opaque_callback_data": key, "errors": errors}
        for key, errors in zip(keys, codes, strict=True)
    ]
    others: list[dict[str, Any]] = [
        {"status": "failed", "errors": [{"code": 1}]},
        *({"status": "failed", "biz_opaque_callback_data": key} for key in ("ä", "k" * 513, 7)),
        {"status": "read", "biz_opaque_callback_data": "reply-wamid.1"},
    ]

    assert parse(body(value(statuses=[*others, *failed]))).undelivered == (
        Undelivered("code 131047, code 131026", keys[0], f"of-{keys[0]}"),
        Undelivered("no code", keys[1], f"of-{keys[1]}"),
        Undelivered("no code", keys[2], f"of-{keys[2]}"),
    )


def test_statuses_and_errors_are_no_messages() -> None:
    delivery = parse(body(value(statuses=[{"id": "wamid.1"}], errors=[{"code": 1}])))

    assert delivery == Delivery((), ("statuses", "errors"))


def test_another_field_or_another_number_is_not_for_us() -> None:
    other = json.loads(body(value(message())))
    other["entry"][0]["changes"][0]["field"] = "account_update"
    number = value(message(), metadata={"phone_number_id": "999"})

    assert parse(json.dumps(other).encode()) == Delivery((), ("another field",))
    assert parse(body(number)) == Delivery((), ("another number",))
    assert parse(body({**number, "messages": []})) == Delivery((), ("statuses",))


def test_another_object_is_ignored() -> None:
    assert parse(b'{"object": "page", "entry": []}') == Ignored("another object")
    assert parse(b"{}") == Ignored("another object")


@pytest.mark.parametrize("data", [b"", b"hello", b"{", b"\xff\xfe", b"NaN", b"[" * 99999])
def test_what_is_not_json_is_told_apart(data: bytes) -> None:
    assert isinstance(parse(data), NotUnderstood)


@pytest.mark.parametrize("data", [b"[]", b"null", b"1", b'"x"'])
def test_json_that_is_no_object_is_ignored(data: bytes) -> None:
    """AgentOS answers 500 with the text of an AttributeError, so Meta sends it for days."""
    assert parse(data) == Ignored("not an object")


@pytest.mark.parametrize("junk", [None, 1, "x", [], {}, [None], [1], ["x"], [[]], {"a": []}])
@pytest.mark.parametrize("place", ["entry", "changes", "value", "messages", "metadata", "field"])
def test_junk_in_any_place_is_skipped(place: str, junk: Any) -> None:
    root = json.loads(body(value(message())))
    holder: Any = root
    if place != "entry":
        holder = root["entry"][0]
    if place in {"value", "field"}:
        holder = holder["changes"][0]
    if place in {"messages", "metadata"}:
        holder = holder["changes"][0]["value"]
    holder[place] = junk

    assert isinstance(parse(json.dumps(root).encode()), Delivery)


def test_the_good_is_kept_beside_the_malformed() -> None:
    bad = [None, 7, {}, {"id": "x"}, {"from": ADA}, message(""), message("a b"), message("é")]

    delivery = parse(body(value(*bad, message("good"), *bad)))

    assert [m.message_id for m in delivery.messages] == ["good"]
    assert delivery.ignored == ("malformed",)


LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=4)
NAMES = st.sampled_from(
    "object entry changes value field messages metadata id from type text body context".split()
) | st.text(max_size=2)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(TREES)
def test_any_well_signed_json_gives_a_value(tree: Any) -> None:
    data = json.dumps({"object": "whatsapp_business_account", "entry": tree}).encode()

    assert isinstance(parse(data), Delivery | NotUnderstood)


@given(st.binary())
def test_any_well_signed_bytes_give_a_value(data: bytes) -> None:
    assert isinstance(parse(data), Delivery | Ignored | NotUnderstood)


# --- what goes out -----------------------------------------------------------------------------

REPLY = Reply("reply-wamid.1", ADA, "Hi ✓", quotes="wamid.1")


def test_a_reply_is_one_request_with_its_key_in_both_places() -> None:
    fetch = CHANNEL.encode(REPLY, NOW)

    assert (fetch.method, fetch.url) == (
        "POST",
        "https://graph.facebook.com/v22.0/100200/messages",
    )
    assert dict(fetch.headers) == {
        "authorization": "Bearer access-me",
        "content-type": "application/json",
        "idempotency-key": "reply-wamid.1",
    }
    assert json.loads(fetch.body) == {
        "messaging_product": "whatsapp",
        "recipient_type": "individual",
        "to": ADA,
        "type": "text",
        "text": {"body": "Hi ✓", "preview_url": False},
        "context": {"message_id": "wamid.1"},
        "biz_opaque_callback_data": "reply-wamid.1",
    }
    assert "access-me" not in repr(fetch)
    assert CHANNEL.encode(REPLY, NOW + 10**9) == fetch


@pytest.mark.parametrize(
    ("recipient", "addressed"),
    [
        ("+4911", {"recipient_type": "individual", "to": "+4911"}),
        (USER, {"recipient_type": "individual", "recipient": USER}),
        ("US.ENT.118157", {"recipient_type": "individual", "recipient": "US.ENT.118157"}),
        (GROUP, {"recipient_type": "group", "to": GROUP}),
    ],
)
def test_a_number_a_user_and_a_group_are_addressed_each_in_its_way(
    recipient: str, addressed: dict[str, str]
) -> None:
    sent = json.loads(CHANNEL.encode(evolve(REPLY, recipient=recipient), NOW).body)
    names = ("recipient_type", "to", "recipient")

    assert {name: sent[name] for name in names if name in sent} == addressed


def test_markdown_is_written_as_whatsapp_writes_it() -> None:
    fetch = CHANNEL.encode(evolve(REPLY, text="# Hi\n**you**"), NOW)

    assert json.loads(fetch.body)["text"]["body"] == "*Hi*\n*you*"


def test_a_later_part_quotes_nothing() -> None:
    fetch = CHANNEL.encode(evolve(REPLY, quotes=""), NOW)

    assert "context" not in json.loads(fetch.body)


def test_the_address_of_the_api_can_be_another() -> None:
    local = evolve(CHANNEL, api_base_url="http://127.0.0.1:9/v1/")

    assert local.encode(REPLY, NOW).url == "http://127.0.0.1:9/v1/100200/messages"


def answer(status: int, content: Any, **headers: str) -> FetchReply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return FetchReply(status, named, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (answer(200, {"messages": [{"id": "wamid.9"}]}), Sent("wamid.9")),
        (answer(200, {}), Sent("")),
        (answer(200, []), Sent("")),
        (FetchReply(200, {}, b"<html>"), Sent("")),
        (answer(200, {"error": {"code": 100}}), GiveUp("HTTP 200: code 100")),
        (answer(400, {"error": {"code": 131047}}), GiveUp("HTTP 400: code 131047")),
        (answer(400, {"error": {"code": [1]}}), GiveUp("HTTP 400")),
        (answer(401, {"error": {"code": 190}}), Unauthorized("HTTP 401: code 190")),
        (answer(400, {"error": {"code": 190}}), Unauthorized("HTTP 400: code 190")),
        (answer(401, {"error": {"code": 0}}), Unauthorized("HTTP 401: code 0")),
        (answer(403, {"error": {"code": 10}}), Unauthorized("HTTP 403: code 10")),
        (answer(403, {"error": {"code": 200}}), Unauthorized("HTTP 403: code 200")),
        (FetchReply(401, {}, b""), Unauthorized("HTTP 401: code 0")),
        (answer(400, {"error": {"code": 131026}}), GiveUp("HTTP 400: code 131026")),
        (answer(400, {"error": {"code": 130429}}), RetryLater(None, "HTTP 400: code 130429")),
        (
            answer(400, {"error": {"code": 131056}}, retry_after="6"),
            RetryLater(6, "HTTP 400: code 131056"),
        ),
        (
            answer(400, {"error": {"code": 5, "is_transient": True}}),
            RetryLater(None, "HTTP 400: code 5"),
        ),
        (answer(429, {}, retry_after="3"), RetryLater(3, "HTTP 429")),
        (FetchReply(502, {}, b"Bad Gateway"), RetryLater(None, "HTTP 502")),
        (Unreachable("connect"), RetryLater(None, "connect")),
    ],
)
def test_metas_answer_is_judged(reply: FetchReply | Unreachable, outcome: Outcome) -> None:
    assert CHANNEL.read_reply(reply, NOW) == outcome


@given(st.integers(100, 599), TREES | st.fixed_dictionaries({"error": TREES}))
def test_any_answer_is_judged(status: int, tree: Any) -> None:
    outcome = CHANNEL.read_reply(answer(status, tree), NOW)

    assert isinstance(outcome, Sent | RetryLater | GiveUp | Unauthorized)
