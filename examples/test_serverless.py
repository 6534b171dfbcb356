"""The serverless function under test, event by event; between two of them nothing runs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from base64 import b64decode, b64encode
from collections.abc import Generator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import serverless
from test_whatsapp import SECRETS

from legation import Agent, Channel, Database, Platform
from legation_host.hosting import open_platform

HOST: Final = "x.execute-api.eu-central-1.amazonaws.com"
SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event"}


class Meta:
    """A stand-in for Meta's API on a socket: it counts what it takes, and refuses the rest."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        taken = self.texts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                known = self.headers["authorization"] == "Bearer EAAG-token"
                if not known or not self.path.endswith("/messages"):
                    self.send_error(400)
                    return
                taken.append((message["to"], message["text"]["body"]))
                self.send_response(200)
                body = b'{"messages":[{"id":"wamid.out"}]}'
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (named there)
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v22.0"


@pytest.fixture
def meta() -> Generator[Meta]:
    meta = Meta()
    threading.Thread(target=meta.server.serve_forever, daemon=True).start()
    yield meta
    meta.server.shutdown()
    meta.server.server_close()


@pytest.fixture
def platform(meta: Meta, tmp_path: Path) -> Platform:
    """The function's platform, with two channels in two databases."""
    channels = [
        Channel(
            id=name,
            kind="whatsapp",
            agent=agent,
            app_secret_env="WHATSAPP_APP_SECRET",
            verify_token_env="WHATSAPP_VERIFY_TOKEN",
            access_token_env="WHATSAPP_ACCESS_TOKEN",
            phone_number_id=number,
            api_base_url=meta.url,
        )
        for name, agent, number in (("chat", "concierge", "1"), ("desk", "clerk", "2"))
    ]
    return Platform(
        agents=[Agent(id="concierge"), Agent(id="clerk", database="second")],
        channels=channels,
        databases=[
            Database(name, f"sqlite:///{tmp_path}/{name}.db") for name in ("main", "second")
        ],
        environ=SECRETS,
        allowed_hosts=[HOST],
    )


def event(method: str, path: str, form: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Return an event of an HTTP API, payload format 2.0."""
    headers = {"host": HOST, "x-forwarded-proto": "https"}
    if form is not None:
        headers["content-type"] = "application/x-www-form-urlencoded"
    body = urlencode(form or {}).encode()
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers,
        "requestContext": {"http": {"method": method, "path": path, "sourceIp": "203.0.113.7"}},
        "body": b64encode(body).decode(),
        "isBase64Encoded": True,
        **more,
    }


def webhook(channel: str, sender: str, text: str) -> Any:
    """Return the event of a delivery, signed as Meta signs it."""
    message = {
        "from": sender,
        "id": f"wamid.{text.encode().hex()}",
        "type": "text",
        "text": {"body": text},
    }
    change = {"field": "messages", "value": {"messages": [message]}}
    body = json.dumps({"object": "whatsapp_business_account", "entry": [{"changes": [change]}]})
    secret = SECRETS["WHATSAPP_APP_SECRET"].encode()
    signature = "sha256=" + hmac.new(secret, body.encode(), hashlib.sha256).hexdigest()
    made = event("POST", f"/{channel}/webhook", body=body, isBase64Encoded=False)
    made["headers"] |= {"content-type": "application/json", "x-hub-signature-256": signature}
    return made


def call(platform: Platform, event: Any) -> Any:
    """Call the function; the process is frozen when it returns."""
    return asyncio.run(serverless.handle(platform, event))


def ask(platform: Platform, *args: Any, **more: Any) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    answer = call(platform, event(*args, **more))
    return answer["statusCode"], b64decode(answer["body"]).decode()


def freeze_behind_answer(platform: Platform, event: Any) -> Any:
    """Answer a request and stop at once, as where the time of the function was over."""

    async def answer_only() -> Any:
        async with open_platform(platform, jobs=False) as host:
            return await serverless.respond(platform, host, event)

    return asyncio.run(answer_only())


def test_message_that_was_acknowledged_is_answered_once_by_the_next_event(
    platform: Platform, meta: Meta
) -> None:
    for sent in (webhook("chat", "4911", "Hello"), webhook("desk", "4922", "Anybody here?")):
        assert freeze_behind_answer(platform, sent)["statusCode"] == 200
    assert meta.texts == []

    report = call(platform, SCHEDULE)

    assert (report["messages"], report["replies"], report["next_us"]) == (2, 2, None)
    assert sorted(meta.texts) == [("4911", "Hello"), ("4922", "Anybody here?")]
    assert call(platform, SCHEDULE)["messages"] == 0
    assert len(meta.texts) == 2


def test_webhook_is_answered_within_its_own_event(platform: Platform, meta: Meta) -> None:
    for _ in range(2):
        assert call(platform, webhook("chat", "4911", "Hello"))["statusCode"] == 200

    assert meta.texts == [("4911", "Hello")]


def test_run_is_answered_and_a_stream_comes_as_a_whole(platform: Platform) -> None:
    runs = "/agents/concierge/runs"
    status, joined = ask(platform, "POST", runs, {"message": "hi", "stream": "false"})
    assert (status, json.loads(joined)["content"]) == (200, "hi")

    status, stream = ask(platform, "POST", runs, {"message": "hi", "stream": "true"})
    assert status == 200
    assert stream.startswith("id: ")
    assert "event: RunCompleted" in stream


def test_background_run_is_over_when_the_process_is_frozen(platform: Platform) -> None:
    form = {"message": "hi", "background": "true", "stream": "false", "session_id": "s"}
    status, accepted = ask(platform, "POST", "/agents/concierge/runs", form)
    path = f"/agents/concierge/runs/{json.loads(accepted)['run_id']}"

    _, run = ask(platform, "GET", path, rawQueryString="session_id=s")
    assert (status, json.loads(run)["status"]) == (202, "COMPLETED")


def test_path_that_the_gateway_decoded_is_quoted_again(platform: Platform) -> None:
    assert ask(platform, "GET", "/agents/caf\u00e9 au lait")[0] == 404
    assert ask(platform, "GET", "/agents/concierge")[0] == 200


def test_handler_serves_the_platform_of_the_module() -> None:
    assert serverless.platform.config.agents[0].id == "concierge"
