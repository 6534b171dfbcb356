"""Signed deliveries over real sockets, on the trio server and as an ASGI application."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import frozen

from legation import Agent, Platform
from legation_asgi import asgi
from legation_host.hosting import open_platform
from legation_server import open_listeners, serve
from legation_testing import ScriptedModel

from ..core.api.handlers.test_webhooks import ENTRIES, LIMIT, NONSENSE
from ..providers.deliveries import (
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
from ..providers.loopback import LoopbackApi
from ..providers.server import listening
from ..providers.strict import (
    Provider,
    Seen,
    SlackApi,
    StandardReceiver,
    TelegramApi,
    WhatsAppApi,
    now_us,
)
from ..two_databases import in_folder
from .conformance import Reply, Wire
from .served import hypercorn_trio, uvicorn_asyncio

_APIS: Final[dict[str, type[Provider]]] = {
    api.kind: api for api in (WhatsAppApi, TelegramApi, SlackApi, StandardReceiver, LoopbackApi)
}
_ACCOUNT: Final = '{"object": "whatsapp_business_account", "entry": %s}'


@contextmanager
def trio_server(made: Platform) -> Generator[Wire]:
    listeners = open_listeners("127.0.0.1", 0)
    address = listeners[0].getsockname()
    stopped = threading.Event()

    async def serving() -> None:
        async with open_platform(made) as host, trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, made, host, listeners))
            while not stopped.is_set():
                await trio.sleep(0.02)
            server.drain()

    thread = threading.Thread(target=trio.run, args=(serving,), daemon=True)
    thread.start()
    try:
        yield Wire(address)
    finally:
        stopped.set()
        thread.join(10)


SERVERS: Final[dict[str, Callable[[Platform], AbstractContextManager[Wire]]]] = {
    "trio server": trio_server,
    "asgi under uvicorn": lambda made: uvicorn_asyncio(asgi(made)),
    "asgi under hypercorn on trio": lambda made: hypercorn_trio(asgi(made)),
}


@frozen
class Running:
    wire: Wire
    providers: dict[str, Provider]

    def post(self, sent: Delivery) -> Reply:
        headers = tuple((name.encode(), value.encode()) for name, value in sent.headers)
        return self.wire.send("POST", sent.target, headers, sent.body)

    def get(self, target: str) -> Any:
        return self.wire.send("GET", target).json()

    def at_rest(self) -> list[dict[str, Any]]:
        """Return the channels as soon as nothing waits in them."""
        for _ in range(200):
            told: list[dict[str, Any]] = self.get("/channels")
            if not any(c[what]["ready"] for c in told for what in ("messages", "replies")):
                return told
            time.sleep(0.05)
        raise AssertionError("the channels do not come to rest")

    def stored(self) -> int:
        return sum(
            len(self.get(f"/channels/{kind}/messages?state={state}&limit=200")["data"])
            for kind in KINDS
            for state in ("done", "dead")
        )


class Every(WhatsAppApi):
    """All providers behind one address, told apart by the path."""

    def __init__(self, providers: dict[str, Provider]) -> None:
        super().__init__()
        self.providers = providers

    def take(self, method: str, target: str, headers: Any, body: bytes) -> Any:
        kind = next(
            kind
            for mark, kind in (
                ("/v22.0/", "whatsapp"),
                ("/bot", "telegram"),
                ("/api/", "slack"),
                ("/loop/", "loopback"),
                ("/", "standard"),
            )
            if target.startswith(mark)
        )
        return self.providers[kind].take(method, target, headers, body)


@pytest.fixture(scope="module", params=SERVERS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("channels")
    providers = {kind: api() for kind, api in _APIS.items()}
    with listening(Every(providers)) as address:
        made = platform(address, databases=in_folder(folder))
        with SERVERS[request.param](made) as wire:
            yield Running(wire, providers)


def deliveries(kind: str, texts: Iterable[str]) -> list[Delivery]:
    at = now_us()
    made: list[Delivery] = []
    for number, words in enumerate(texts):
        match kind:
            case "whatsapp":
                made.append(whatsapp(("4911", f"conformance.{number}", words)))
            case "telegram":
                made.append(telegram(7, 100 + number, words))
            case "loopback":
                made.append(loopback(("ann", f"conformance-{number}", words)))
            case "slack":
                made.append(slack("U1", f"{5 + number}.1", words, at))
            case _:
                made.append(standard("ada", f"conformance-{number}", words, at))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_deliveries_are_answered_in_their_order_and_duplicates_are_not(
    running: Running, kind: str
) -> None:
    said = ["Grüße 👋", "<b>two</b> & *three*", "x" * 9000]
    sent = deliveries(kind, said)
    before = len(running.providers[kind].seen)
    for delivery in sent:
        assert running.post(delivery).json() == {"status": "processing"}
    for delivery in sent:
        assert running.post(delivery).json() == {"status": "duplicate"}
    running.at_rest()

    provider = running.providers[kind]
    assert provider.refused == []
    seen: list[Seen] = provider.seen[before:]
    whole = "".join(message.text for message in seen)
    if kind == "slack":
        whole = whole.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    marks = {"telegram": "three", "slack": "_three_", "whatsapp": "_three_"}
    assert whole == "".join(said).replace("*three*", marks.get(kind, "*three*"))
    assert len({message.key for message in seen}) == len(seen)


@pytest.mark.parametrize("kind", KINDS)
def test_signed_nonsense_has_its_status_and_stores_nothing(running: Running, kind: str) -> None:
    running.at_rest()
    before = running.stored()
    for name, (body, status) in NONSENSE.items():
        assert running.post(signed(kind, body, now_us())).status == status, name
    if kind == "whatsapp":
        for entry in ENTRIES:
            sent = signed(kind, (_ACCOUNT % entry).encode(), now_us())
            assert running.post(sent).json() == {"status": "ignored"}, entry
    running.at_rest()

    assert running.stored() == before


def test_a_signature_that_is_not_text_is_403(running: Running) -> None:
    for signature in (b"", b"sha256=" + b"\xe9" * 64, b"\xff", b"sha256=" + b"0" * 64):
        headers = ((b"x-hub-signature-256", signature),)
        reply = running.wire.send("POST", "/whatsapp/webhook", headers, b"{}")
        assert (reply.status, reply.json()["detail"]) == (403, "Invalid signature")


def test_two_signatures_are_403(running: Running) -> None:
    sent = whatsapp(("4911", "twice", "hi"))
    (name, value), *_ = sent.headers
    headers = ((name.encode(), value.encode()), (name.encode(), value.encode()))

    assert running.wire.send("POST", sent.target, headers, sent.body).status == 403


def test_a_body_that_is_too_long_is_413_before_any_of_it_is_sent(running: Running) -> None:
    head = f"POST /whatsapp/webhook HTTP/1.1\r\nhost: a\r\ncontent-length: {LIMIT + 1}\r\n\r\n"
    with socket.create_connection(running.wire.address, timeout=5) as connection:
        connection.sendall(head.encode())

        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_the_verification_of_meta_is_answered(running: Running) -> None:
    asked = "hub.mode=subscribe&hub.verify_token=verify-token&hub.challenge=1158201444"
    reply = running.wire.send("GET", f"/whatsapp/webhook?{asked}")

    assert (reply.status, reply.body) == (200, b"1158201444")
    assert reply.values(b"content-type") == [b"text/plain; charset=utf-8"]


@pytest.mark.parametrize("server", SERVERS)
def test_a_picture_is_fetched_from_the_provider_and_handed_to_the_agent(
    server: str, tmp_path: Path
) -> None:
    model = ScriptedModel(["A cat."])
    api = WhatsAppApi()
    api.files["55"] = ("image/png", b"a picture")
    message = {
        "from": "4911",
        "id": "a",
        "type": "image",
        "image": {"id": "55", "mime_type": "image/png", "caption": "What is this?"},
    }
    value = {"metadata": {"phone_number_id": "111"}, "messages": [message]}
    entries = json.dumps([{"changes": [{"field": "messages", "value": value}]}])
    with listening(api) as api.base:
        made = platform(
            api.base,
            databases=in_folder(tmp_path),
            agents=[Agent(id="concierge", model=model)],
        )
        with SERVERS[server](made) as wire:
            running = Running(wire, {"whatsapp": api})
            sent = signed("whatsapp", (_ACCOUNT % entries).encode(), now_us())
            assert running.post(sent).status == 200
            running.at_rest()

    assert (api.refused, api.fetched) == ([], ["55"])
    assert [seen.text for seen in api.seen] == ["A cat."]
    (image,) = model.prompts[0].messages[-1].images
    assert image.media_type == "image/png"
