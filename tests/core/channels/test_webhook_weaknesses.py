"""What a WhatsApp webhook of AgentOS 2.5.6 does wrong, and what ours does: a test for each.

Every one goes through the platform's door, with signed deliveries and a strict provider.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from legation import Agent, ConfigurationError, Model
from legation.access.scopes import Signed
from legation.api.routes import ROUTES
from legation.config import AuthorizationConfig
from legation.effects import Fetch, FetchReply, Sleep, Unreachable
from legation_testing import Client

from ...providers.deliveries import ENVIRON, MAIN, Delivery, platform, signed, whatsapp
from ...providers.strict import WhatsAppApi

APOLOGY = "Sorry, something went wrong here and I could not answer. Please try again later."
ASKED = {"hub.mode": "subscribe", "hub.verify_token": "verify-token", "hub.challenge": "42"}
SECRET = "s" * 32


@pytest.fixture
def provider() -> WhatsAppApi:
    return WhatsAppApi()


def opened(provider: Callable[[Fetch], FetchReply | Unreachable], **configuration: Any) -> Client:
    return Client(lambda: platform(**configuration), fetch=provider)


def post(c: Client, sent: Delivery, **more: Any) -> Any:
    return c.post(sent.target, headers=sent.headers, body=sent.body, **more)


def texts(provider: WhatsAppApi) -> list[str]:
    assert provider.refused == []
    return [message.text for message in provider.seen]


def message(**content: Any) -> Delivery:
    """Return a signed delivery of one message with this content."""
    one = {"from": "4911", "id": "a", "timestamp": "1", **content}
    value = {"metadata": {"phone_number_id": "111"}, "messages": [one]}
    return account([{"id": "1", "changes": [{"field": "messages", "value": value}]}])


def account(entry: Any) -> Delivery:
    root = {"object": "whatsapp_business_account", "entry": entry}
    return signed("whatsapp", json.dumps(root).encode(), 0)


def answers_to(provider: WhatsAppApi, *deliveries: Delivery) -> list[str]:
    """Return what a person reads after `deliveries`, each of which is acknowledged."""
    with opened(provider) as c:
        for sent in deliveries:
            assert post(c, sent).status == 200
        c.advance(2)
    return texts(provider)


# --- the verification --------------------------------------------------------------------------


def test_only_a_challenge_that_no_browser_takes_for_markup_is_repeated(
    provider: WhatsAppApi,
) -> None:
    with opened(provider) as c:
        assert c.get("/whatsapp/webhook", query=ASKED).text == "42"
        markup = {**ASKED, "hub.challenge": "<script>alert(1)</script>"}
        assert c.get("/whatsapp/webhook", query=markup).status == 403


def test_another_token_or_mode_and_no_challenge_are_forbidden(provider: WhatsAppApi) -> None:
    with opened(provider) as c:
        for name in ASKED:
            assert c.get("/whatsapp/webhook", query={**ASKED, name: "no, never"}).status == 403
            less = {key: value for key, value in ASKED.items() if key != name}
            assert c.get("/whatsapp/webhook", query=less).status == 403
        assert c.get("/whatsapp/webhook").status == 403


@pytest.mark.parametrize("name", ["VERIFY", "APP_SECRET", "ACCESS"])
@pytest.mark.parametrize("value", [None, ""])
def test_a_secret_that_is_missing_stops_the_start_and_not_a_delivery(
    name: str, value: str | None
) -> None:
    environ = {key: given for key, given in ENVIRON.items() if key != name}
    if value is not None:
        environ[name] = value
    with pytest.raises(ConfigurationError, match=name):
        platform(environ=environ)


# --- signatures --------------------------------------------------------------------------------

FORGED: Mapping[str, str | None] = {
    "missing": None,
    "empty": "",
    "malformed": "sha256",
    "another algorithm": "sha1=" + "0" * 40,
    "wrong": "sha256=" + "0" * 64,
    "not ASCII": "sha256=" + "é" * 64,
    "control": "sha256=\x01",
    "very long": "sha256=" + "0" * 8000,
}


@pytest.mark.parametrize("name", FORGED)
def test_a_signature_that_does_not_hold_is_403_and_never_500(
    provider: WhatsAppApi, name: str
) -> None:
    sent, signature = message(type="text", text={"body": "hi"}), FORGED[name]
    headers = () if signature is None else (("x-hub-signature-256", signature),)
    with opened(provider) as c:
        answer = c.post(sent.target, headers=headers, body=sent.body)
        c.advance(2)

    assert (answer.status, answer.json()["detail"]) == (403, "Invalid signature")
    assert texts(provider) == []


@pytest.mark.parametrize("environment", [None, "development", "test", "production"])
def test_no_environment_switches_the_signature_off(
    provider: WhatsAppApi, environment: str | None
) -> None:
    environ = {**ENVIRON, **({} if environment is None else {"APP_ENV": environment})}
    with opened(provider, environ={**environ, "WHATSAPP_SKIP_SIGNATURE_VALIDATION": "true"}) as c:
        sent = message(type="text", text={"body": "hi"})
        assert c.post(sent.target, body=sent.body).status == 403
        c.advance(2)

    assert texts(provider) == []


def test_the_signature_is_over_the_bytes_as_they_came(provider: WhatsAppApi) -> None:
    with opened(provider) as c:
        sent = message(type="text", text={"body": "hi"})
        same = json.dumps(json.loads(sent.body), indent=1).encode()
        assert c.post(sent.target, headers=sent.headers, body=same).status == 403


def test_both_secrets_are_accepted_while_one_replaces_the_other(provider: WhatsAppApi) -> None:
    from attrs import evolve

    from ...providers.deliveries import channels

    (channel, *_) = channels("http://127.0.0.1:9")
    rotating = evolve(channel, previous_app_secret_env="OLD")
    environ = {**ENVIRON, "APP_SECRET": "the-new-secret", "OLD": ENVIRON["APP_SECRET"]}
    with opened(provider, channels=[rotating], environ=environ) as c:
        assert post(c, message(type="text", text={"body": "hi"})).status == 200


# --- signed nonsense ---------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"hello", b"{", b"\xff"])
def test_a_signed_body_that_is_no_json_is_400(provider: WhatsAppApi, body: bytes) -> None:
    with opened(provider) as c:
        assert post(c, signed("whatsapp", body, 0)).status == 400


@pytest.mark.parametrize("body", [b"[]", b"null", b'{"object": "page"}', b"{}"])
def test_signed_json_that_is_not_for_us_is_acknowledged(provider: WhatsAppApi, body: bytes) -> None:
    with opened(provider) as c:
        assert post(c, signed("whatsapp", body, 0)).json()["status"] == "ignored"


@pytest.mark.parametrize("entry", [None, [None], [{"changes": [{"value": None}]}], [], 5])
def test_an_entry_of_another_shape_is_acknowledged(provider: WhatsAppApi, entry: Any) -> None:
    with opened(provider) as c:
        assert post(c, account(entry)).json() == {"status": "ignored"}


def test_a_delivery_of_statuses_alone_says_that_nothing_is_done(provider: WhatsAppApi) -> None:
    value = {"statuses": [{"id": "wamid.1", "status": "read"}]}
    with opened(provider) as c:
        answer = post(c, account([{"changes": [{"field": "messages", "value": value}]}]))

    assert answer.json() == {"status": "ignored"}
    assert texts(provider) == []


# --- messages ----------------------------------------------------------------------------------


def test_every_message_of_every_entry_and_change_is_answered(provider: WhatsAppApi) -> None:
    def change(*names: str) -> dict[str, Any]:
        many = [
            {"from": "4911", "id": name, "type": "text", "text": {"body": name}} for name in names
        ]
        return {"field": "messages", "value": {"messages": many}}

    sent = account([{"changes": [change("a", "b"), change("c")]}, {"changes": [change("d")]}])

    assert answers_to(provider, sent) == ["a", "b", "c", "d"]


def test_a_delivery_that_comes_again_is_answered_once(provider: WhatsAppApi) -> None:
    sent = message(type="text", text={"body": "hi"})

    assert answers_to(provider, sent, sent, sent) == ["hi"]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "sticker", "sticker": {}},
        {"type": "location", "location": {}},
        {"type": "contacts", "contacts": []},
        {"type": "order", "order": {}},
        {"type": "image", "image": {"id": "1"}},
        {"type": "audio", "audio": {"id": "1"}},
        {"type": "hologram"},
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "text", "text": {"body": ""}},
        {"type": "text", "text": {"body": 5}},
    ],
)
def test_what_has_no_words_gets_a_polite_sentence_and_not_silence(
    provider: WhatsAppApi, content: dict[str, Any]
) -> None:
    (said,) = answers_to(provider, message(**content))

    assert said.startswith("I can only read text, not ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"type": "button", "button": {"text": "Yes"}}, "Yes"),
        (
            {
                "type": "interactive",
                "interactive": {"type": "button_reply", "button_reply": {"title": "Yes"}},
            },
            "Yes",
        ),
        (
            {
                "type": "interactive",
                "interactive": {"type": "list_reply", "list_reply": {"title": "Tea"}},
            },
            "Tea",
        ),
        ({"type": "image", "image": {"caption": "What is it?"}}, "What is it?"),
        ({"type": "video", "video": {"caption": "And this?"}}, "And this?"),
        ({"type": "document", "document": {"caption": "Sum it up"}}, "Sum it up"),
    ],
)
def test_words_are_answered_wherever_they_stand(
    provider: WhatsAppApi, content: dict[str, Any], words: str
) -> None:
    assert answers_to(provider, message(**content)) == [words]


def test_a_reaction_wants_no_answer(provider: WhatsAppApi) -> None:
    assert answers_to(provider, message(type="reaction", reaction={"emoji": "+"})) == []


@pytest.mark.parametrize(
    ("who", "recipient"),
    [
        ({"from": None, "from_user_id": "US.13491208655302741918"}, "US.13491208655302741918"),
        ({"from_user_id": "US.13491208655302741918"}, "4911"),
        ({"group_id": "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOTox"}, "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOTox"),
    ],
    ids=["hides the number", "shows it", "in a group"],
)
def test_whoever_writes_is_answered_where_they_wrote(
    provider: WhatsAppApi, who: dict[str, Any], recipient: str
) -> None:
    assert answers_to(provider, message(type="text", text={"body": "hi"}, **who)) == ["hi"]
    assert [seen.recipient for seen in provider.seen] == [recipient]


@pytest.mark.parametrize(
    "content",
    [
        {"type": "revoke", "revoke": {"original_message_id": "b"}},
        {"type": "edit", "edit": {"original_message_id": "b"}},
        {"type": "unsupported", "unsupported": {"type": "pin"}},
    ],
)
def test_what_a_person_does_to_an_earlier_message_wants_no_answer(
    provider: WhatsAppApi, content: dict[str, Any]
) -> None:
    assert answers_to(provider, message(**content)) == []


def test_our_own_number_is_not_answered(provider: WhatsAppApi) -> None:
    assert answers_to(provider, whatsapp(("15550001", "a", "hi"))) == []


def test_an_agent_that_fails_apologizes(provider: WhatsAppApi) -> None:
    slow = {"models": [Model("slow", "echo", delay_seconds=0.1)]}
    with opened(provider, agents=[Agent(id="concierge", model="slow")], **slow) as c:
        c.fail_at(Sleep(0.1), RuntimeError("boom"))
        post(c, message(type="text", text={"body": "hi"}))
        c.advance(5)

    assert texts(provider) == [APOLOGY]


def test_a_long_answer_is_sent_in_parts_and_nothing_of_it_is_lost(provider: WhatsAppApi) -> None:
    words = " ".join(f"word{number}" for number in range(2000))
    parts = answers_to(provider, message(type="text", text={"body": words}))

    assert len(parts) == 5
    assert max(map(len, parts)) <= 4096
    assert " ".join(parts) == words


# --- beside authorization ----------------------------------------------------------------------


def guarded(provider: WhatsAppApi) -> Client:
    configuration = AuthorizationConfig(verification_keys=(SECRET,), algorithm="HS256")
    return opened(provider, authorization=True, authorization_config=configuration)


def test_a_platform_with_authorization_takes_deliveries_without_a_token(
    provider: WhatsAppApi,
) -> None:
    with guarded(provider) as c:
        assert post(c, message(type="text", text={"body": "hi"})).status == 200
        assert c.get("/whatsapp/webhook", query=ASKED).text == "42"
        c.advance(2)

    assert texts(provider) == ["hi"]


def test_no_token_opens_a_webhook(provider: WhatsAppApi) -> None:
    import jwt

    claims = {"sub": "ada", "scopes": ["platform:admin"], "exp": 1_767_225_600 + 3600}
    token = jwt.encode(claims, SECRET, "HS256")
    sent = message(type="text", text={"body": "hi"})
    with guarded(provider) as c:
        assert c.post(sent.target, body=sent.body, token=token).status == 403


def test_what_needs_no_token_is_the_webhook_and_nothing_below_or_beside_it() -> None:
    assert [
        (route.method, route.template) for route in ROUTES if isinstance(route.need, Signed)
    ] == [
        ("GET", "/{channel}/webhook"),
        ("POST", "/{channel}/webhook"),
        ("POST", "/{channel}/interactions"),
    ]


def test_a_sender_is_never_the_user_of_a_token(provider: WhatsAppApi) -> None:
    import jwt

    claims = {"scopes": ["sessions:read"], "exp": 1_767_225_600 + 3600}
    with guarded(provider) as c:
        post(c, message(type="text", text={"body": "hi"}))
        c.advance(2)
        for subject in ("4911", "~channel:whatsapp:4911", "whatsapp:4911"):
            token = jwt.encode({**claims, "sub": subject}, SECRET, "HS256")
            assert c.get("/sessions", query=MAIN, token=token).json()["data"] == []
            assert c.get("/sessions/whatsapp:4911", query=MAIN, token=token).status == 404


def test_other_methods_are_refused_with_those_that_there_are(provider: WhatsAppApi) -> None:
    with opened(provider) as c:
        answer = c.request("PUT", "/whatsapp/webhook")

    assert (answer.status, answer.header("allow")) == (405, "GET, HEAD, OPTIONS, POST")


def test_the_status_is_available(provider: WhatsAppApi) -> None:
    with opened(provider) as c:
        assert c.get("/whatsapp/status").json() == {"status": "available"}


# --- after the 200 -----------------------------------------------------------------------------


def test_a_process_killed_after_its_200_loses_nothing(provider: WhatsAppApi) -> None:
    with opened(provider) as c:
        post(c, message(type="text", text={"body": "hi"}))
        c.crash()
        c.restart()
        c.advance(2)

    assert texts(provider) == ["hi"]


def test_messages_of_one_sender_are_answered_in_their_order_whatever_each_takes(
    provider: WhatsAppApi,
) -> None:
    slow = {"models": [Model("slow", "echo", delay_seconds=1.0)]}
    with opened(provider, agents=[Agent(id="concierge", model="slow")], **slow) as c:
        post(c, whatsapp(*(("4911", f"a{n}", f"{n}") for n in range(5))))
        post(c, whatsapp(*(("4922", f"b{n}", f"{n}") for n in range(5))))
        c.advance(2.5)
        assert len(provider.seen) == 4  # two senders, side by side
        c.advance(10)

    for sender in ("4911", "4922"):
        mine = [seen.text for seen in provider.seen if seen.recipient == sender]
        assert mine == ["0", "1", "2", "3", "4"]


def test_one_session_does_not_grow_for_ever(provider: WhatsAppApi) -> None:
    with opened(provider) as c:
        for name, words in (("a", "one"), ("b", "/new"), ("c", "two")):
            post(c, whatsapp(("4911", name, words)))
            c.advance(1)
        sessions = c.get("/sessions", query=MAIN).json()["data"]

    assert {row["session_id"] for row in sessions} == {"whatsapp:4911", "whatsapp:4911#b"}


def test_two_channels_do_not_share_a_sender(provider: WhatsAppApi) -> None:
    from attrs import evolve

    from ...providers.deliveries import channels

    (first, *_) = channels("http://127.0.0.1:9")
    old = first.app_secret_env
    # Alike, but for the secret that tells their deliveries apart.
    other = evolve(first, id="other", app_secret_env="OTHER", previous_app_secret_env=old)
    environ = {**ENVIRON, "OTHER": "another-app-secret-of-the-tests"}
    with opened(provider, channels=[first, other], environ=environ) as c:
        sent = whatsapp(("4911", "a", "hi"))
        for target in ("/whatsapp/webhook", "/other/webhook"):
            assert c.post(target, headers=sent.headers, body=sent.body).json() == {
                "status": "processing"
            }
        c.advance(2)
        sessions = c.get("/sessions", query=MAIN).json()["data"]

    assert {row["session_id"] for row in sessions} == {"whatsapp:4911", "other:4911"}


@pytest.mark.parametrize("answer", [Unreachable("connect"), FetchReply(500, {}, b"")])
def test_a_send_that_fails_is_tried_again(
    provider: WhatsAppApi, answer: FetchReply | Unreachable
) -> None:
    failures = [answer] * 3

    def network(fetch: Fetch) -> FetchReply | Unreachable:
        return failures.pop() if failures else provider(fetch)

    with opened(network) as c:
        post(c, message(type="text", text={"body": "hi"}))
        c.advance(10)

    assert texts(provider) == ["hi"]


def test_a_body_is_not_read_beyond_its_limit_and_three_megabytes_stop_nobody(
    provider: WhatsAppApi,
) -> None:
    with opened(provider) as c:
        post(c, message(type="text", text={"body": "x" * (3 << 20)}))
        post(c, whatsapp(("4922", "b", "hi")))
        c.settle()

        assert post(c, message(type="text", text={"body": "x" * (5 << 20)})).status == 413
    assert [seen.text for seen in provider.seen if seen.recipient == "4922"] == ["hi"]
