"""The platform of whatsapp.toml under test; nothing leaves the process."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from attrs import define, field

from legation.effects import Fetch, FetchReply, Unreachable
from legation_host.loading import from_file
from legation_testing import Client, ClientResponse

SECRETS = {
    "WHATSAPP_APP_SECRET": "the app's secret",
    "WHATSAPP_VERIFY_TOKEN": "the-word-we-agreed-on",
    "WHATSAPP_ACCESS_TOKEN": "EAAG-token",
}

GUEST = "4915112345"


@define
class Meta:
    """A stand-in for Meta's API.  It takes what the real one takes, and refuses the rest."""

    sent: list[dict[str, Any]] = field(factory=list[dict[str, Any]])
    down: bool = False

    def answer(self, request: Fetch) -> FetchReply | Unreachable:
        """Answer one request of the platform."""
        if self.down:
            return Unreachable("connect")
        headers, message = dict(request.headers), json.loads(request.body)
        assert request.url == "https://graph.facebook.com/v22.0/106540352242922/messages"
        assert headers["authorization"] == "Bearer EAAG-token"
        assert message["messaging_product"] == "whatsapp"
        assert 0 < len(message["text"]["body"]) <= 4096
        self.sent.append(message)
        return FetchReply(200, {}, b'{"messages":[{"id":"wamid.out"}]}')

    @property
    def texts(self) -> list[str]:
        """What people have read, in order."""
        return [message["text"]["body"] for message in self.sent]


def guesthouse(meta: Meta) -> Client:
    """Return the platform of the file, with `meta` at the other end."""
    path = Path(__file__).with_name("whatsapp.toml")
    return Client(lambda: from_file(path, SECRETS), fetch=meta.answer)


def message_id(text: str) -> str:
    """Return an id that the same message has at each delivery."""
    return f"wamid.{text.encode().hex()}"


def deliver(client: Client, *texts: str, secret: str = "the app's secret") -> ClientResponse:
    """Deliver messages from one guest as Meta does: one body, signed as a whole."""
    messages = [
        {
            "from": GUEST,
            "id": f"wamid.{text.encode().hex()}",
            "type": "text",
            "text": {"body": text},
        }
        for text in texts
    ]
    change = {"field": "messages", "value": {"messages": messages}}
    delivery = {"object": "whatsapp_business_account", "entry": [{"changes": [change]}]}
    body = json.dumps(delivery).encode()
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"content-type": "application/json", "x-hub-signature-256": signature}
    return client.post("/chat/webhook", headers=headers, body=body)


def test_every_message_of_a_delivery_is_answered_in_its_order() -> None:
    meta = Meta()
    with guesthouse(meta) as client:
        assert deliver(client, "Hello", "Is there a room?").json() == {"status": "processing"}

        client.settle()

        assert meta.texts == ["Hello", "Is there a room?"]


def test_second_delivery_of_a_message_is_not_answered_again() -> None:
    meta = Meta()
    with guesthouse(meta) as client:
        deliver(client, "Hello")
        assert deliver(client, "Hello").json() == {"status": "duplicate"}

        client.advance(60)

        assert meta.texts == ["Hello"]


def test_forged_delivery_is_refused() -> None:
    with guesthouse(Meta()) as client:
        assert deliver(client, "Hello", secret="a guess").status == 403


def test_reply_waits_until_meta_is_back() -> None:
    meta = Meta(down=True)
    with guesthouse(meta) as client:
        deliver(client, "Hello")
        client.advance(10)
        assert meta.texts == []

        meta.down = False
        client.advance(60)

        assert meta.texts == ["Hello"]


def test_acknowledged_message_is_answered_after_a_crash() -> None:
    meta = Meta()
    with guesthouse(meta) as client:
        deliver(client, "Hello")

        client.crash()
        client.restart()
        client.advance(60)

        assert meta.texts == ["Hello"]


def test_meta_may_verify_the_address() -> None:
    query = {
        "hub.mode": "subscribe",
        "hub.verify_token": "the-word-we-agreed-on",
        "hub.challenge": "1158201444",
    }
    with guesthouse(Meta()) as client:
        assert client.get("/chat/webhook", query=query).text == "1158201444"
