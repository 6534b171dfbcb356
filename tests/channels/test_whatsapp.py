"""WhatsApp, as pywa knows it: updates that it reads come in, and go out as it would send them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from ..providers.deliveries import Delivery, signed
from ..providers.deliveries import whatsapp as message_of
from ..providers.strict import WhatsAppApi
from .delivering import SLOW, TEXTS, WITH_FILES, deliver_twice

httpx: Any = pytest.importorskip("httpx")
pywa: Any = pytest.importorskip("pywa", reason="nox -s channels installs it")
handlers: Any = pytest.importorskip("pywa.handlers")
types: Any = pytest.importorskip("pywa.types")

ADA: Final = "4915112345"
GROUP: Final = "Y2FwaV9ncm91cDoxNzA1NTU1MDEzOTo"
FILE: Final = {"id": "55", "mime_type": "image/png", "sha256": "0", "caption": "Look"}
PRODUCT: Final = {
    "product_retailer_id": "1", "quantity": 2, "item_price": 5, "currency": "EUR",
}  # fmt: skip
CONTACT: Final = {
    "name": {"formatted_name": "Ben", "first_name": "Ben"},
    "phones": [{"phone": "+49 1", "type": "HOME", "wa_id": "491"}],
}
FLOW: Final = {"name": "flow", "body": "Sent", "response_json": '{"flow_token": "t", "beds": 2}'}
EDITED: Final = {"type": "text", "text": {"body": "Edited"}, "id": "wamid.0"}
NUMBER: Final = {"type": "user_changed_number", "body": "changed", "wa_id": "4916", "customer": ADA}
SEEN_AGAIN: Final = {"type": "customer_identity_changed", "body": "changed", "customer": ADA}
IDENTITY: Final = {"acknowledged": True, "created_timestamp": 1, "hash": "h"}
CALL: Final = {"response": "accept", "expiration_timestamp": 1, "response_source": "user_action"}
BUTTON: Final = {"type": "button_reply", "button_reply": {"id": "1", "title": "Yes"}}
ROW: Final = {"type": "list_reply", "list_reply": {"id": "1", "title": "A row", "description": "d"}}
UNREAD: Final = {"code": 131051, "title": "Unsupported", "message": "Unsupported"}
# The handler of pywa that takes it, and a message of that kind.
MESSAGES: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("Message", {"type": "text", "text": {"body": "Hello"}}),
    ("Message", {"type": "text", "text": {"body": "Again"}, "context": {"id": "wamid.0"}}),
    ("Message", {"type": "text", "text": {"body": "All"}, "group_id": GROUP}),
    ("Message", {"type": "image", "image": FILE}),
    ("Message", {"type": "video", "video": {**FILE, "mime_type": "video/mp4"}}),
    ("Message", {"type": "audio", "audio": {**FILE, "mime_type": "audio/ogg", "voice": True}}),
    ("Message", {"type": "document", "document": {**FILE, "filename": "a.png"}}),
    ("Message", {"type": "sticker", "sticker": {**FILE, "animated": False}}),
    ("Message", {"type": "reaction", "reaction": {"message_id": "wamid.0", "emoji": "👍"}}),
    ("Message", {"type": "reaction", "reaction": {"message_id": "wamid.0"}}),
    ("Message", {"type": "location", "location": {"latitude": 1.5, "longitude": 2.5}}),
    ("Message", {"type": "contacts", "contacts": [CONTACT]}),
    ("Message", {"type": "order", "order": {"catalog_id": "1", "product_items": [PRODUCT]}}),
    ("Message", {"type": "unsupported", "errors": [UNREAD]}),
    ("CallbackButton", {"type": "interactive", "interactive": BUTTON, "context": {"id": "w"}}),
    ("CallbackButton", {"type": "button", "button": {"text": "Yes", "payload": "y"}}),
    ("CallbackSelection", {"type": "interactive", "interactive": ROW, "context": {"id": "w"}}),
    ("FlowCompletion", {"type": "interactive", "context": {"id": "w"},
                        "interactive": {"type": "nfm_reply", "nfm_reply": FLOW}}),
    ("CallPermissionUpdate", {"type": "interactive", "context": {"id": "w"},
                              "interactive": {"type": "call_permission_reply",
                                              "call_permission_reply": CALL}}),
    ("EditedMessage", {"type": "edit", "edit": {"original_message_id": "w", "message": EDITED}}),
    ("DeletedMessage", {"type": "revoke", "revoke": {"original_message_id": "wamid.0"}}),
    ("PhoneNumberChange", {"type": "system", "system": NUMBER}),
    ("IdentityChange", {"type": "system", "system": SEEN_AGAIN, "identity": IDENTITY}),
)  # fmt: skip
STATUSES: Final = ("sent", "delivered", "read", "failed", "played")


def deliver(value: dict[str, Any], field: str = "messages") -> Delivery:
    contact = {"profile": {"name": "Ada"}, "wa_id": ADA, "user_id": "DE.1"}
    metadata = {"display_phone_number": "15550001", "phone_number_id": "111"}
    whole = {
        "messaging_product": "whatsapp", "metadata": metadata, "contacts": [contact], **value,
    }  # fmt: skip
    entry = {"id": "1", "changes": [{"field": field, "value": whole}]}
    body = json.dumps({"object": "whatsapp_business_account", "entry": [entry]})
    return signed("whatsapp", body.encode(), 0)


def deliveries() -> list[tuple[str, Delivery]]:
    """Return updates, each with the handler of pywa that takes it."""
    messages = (
        (name, {"from": ADA, "id": f"wamid.{number}", "timestamp": "1767225600", **message})
        for number, (name, message) in enumerate(MESSAGES, 1)
    )
    failed = {"errors": [{"code": 131047, "title": "Re-engagement", "message": "m"}]}
    statuses = (
        {"id": "wamid.out.1", "status": status, "timestamp": "1767225600", "recipient_id": ADA,
         **(failed if status == "failed" else {})}
        for status in STATUSES
    )  # fmt: skip
    return [
        *((name, deliver({"messages": [message]})) for name, message in messages),
        *(("MessageStatus", deliver({"statuses": [status]})) for status in statuses),
    ]


def heard(every: Sequence[Delivery]) -> list[str]:
    """Hand the deliveries to pywa, and return the kinds of updates that it has read."""
    app = pywa.WhatsApp("111", "access-token", app_secret="app-secret-of-the-tests", server=None,
                        verify_token="verify-token", session=httpx.Client())  # fmt: skip
    found: list[str] = []

    def note(_: Any, update: Any) -> None:
        found.append(type(update).__name__)

    for name in {name for name, _ in deliveries()}:
        handler = getattr(handlers, f"{name}Handler")
        app.add_handlers(handler(note))
    for sent in every:
        assert app.webhook_update_validator(sent.body, dict(sent.headers)[_SIGNATURE]) is None
        assert app.webhook_update_handler(sent.body) == ("ok", 200)
    return found


_SIGNATURE: Final = "x-hub-signature-256"


def provider() -> WhatsAppApi:
    api = WhatsAppApi()
    api.files["55"] = ("image/png", b"a picture")
    return api


def test_every_update_that_pywa_reads_is_answered_once_at_most() -> None:
    every = deliveries()
    sent = deliver_twice(provider(), [delivery for _, delivery in every])

    assert heard([delivery for _, delivery in every]) == [name for name, _ in every]
    assert set(sent.first) == {"processing", "ignored"}
    assert 10 < sent.answers <= sent.first.count("processing")


def test_every_type_of_message_that_pywa_names_is_tried() -> None:
    tried = {message["type"] for _, message in MESSAGES}
    named = {str(member.value) for member in types.MessageType}

    assert named - tried == {"unknown", "request_welcome"}


class Direct(httpx.BaseTransport):  # type: ignore[misc]  # the package is in one environment
    """The network of pywa: our provider, which refuses what Meta does, and keeps what it took."""

    def __init__(self) -> None:
        self.api = WhatsAppApi(honours_keys=False)
        self.bodies: list[Any] = []

    def handle_request(self, request: Any) -> Any:
        """Take a request to the provider."""
        self.bodies.append(json.loads(request.content))
        headers = {**dict(request.headers), "idempotency-key": self.key}
        taken = self.api.take(request.method, request.url.path, headers, request.content)
        return httpx.Response(taken.status, content=taken.body)

    @property
    def key(self) -> str:
        return str(self.bodies[-1].get("biz_opaque_callback_data", ""))


def test_answers_are_the_requests_that_pywa_makes_of_the_same() -> None:
    texts = [message_of((ADA, f"wamid.{number}", text)) for number, text in enumerate(TEXTS)]
    with_files = deliver_twice(WhatsAppApi(), [texts[0]], **WITH_FILES)
    shown = deliver_twice(WhatsAppApi(), [texts[0]], **SLOW)
    every = [*deliver_twice(WhatsAppApi(), texts).requests, *with_files.requests, *shown.requests]
    sent = [body for name, body in every if name == "messages"]
    wire = Direct()
    app = pywa.WhatsApp("111", "access-token", session=httpx.Client(transport=wire))
    wire.api.uploads += [("plan.png", "image/png", b""), ("bill.pdf", "application/pdf", b"")]
    for body in sent:
        repeat(app, body)

    assert wire.api.refused == []
    assert [plain(body) for body in sent] == [plain(body) for body in wire.bodies]
    kinds = {body.get("type") or body["typing_indicator"]["type"] for body in sent}
    assert kinds == {"text", "image", "document"}
    assert any("typing_indicator" in body for body in sent)


def repeat(app: Any, body: dict[str, Any]) -> None:
    """Let pywa send what `body` says."""
    if "typing_indicator" in body:
        app.indicate_typing(body["message_id"])
        return
    content = body[body["type"]]
    about = {
        "reply_to_message_id": body.get("context", {}).get("message_id"),
        "tracker": body["biz_opaque_callback_data"],
    }
    match body["type"]:
        case "text":
            shown = {"text": content["body"], "preview_url": content["preview_url"]}
            app.send_message(body["to"], **shown, **about)
        case "image":
            app.send_image(body["to"], content["id"], **about)
        case _:
            app.send_document(body["to"], content["id"], content["filename"], **about)


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """Return `body` with what Meta takes for granted, and a number as digits."""
    if "to" not in body:
        return body
    return {"recipient_type": "individual", **body, "to": body["to"].removeprefix("+")}
