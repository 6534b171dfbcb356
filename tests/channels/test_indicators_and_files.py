"""Typing indicators and files of answers, as the libraries of the messengers send them."""

from __future__ import annotations

import inspect
import json
from base64 import b64encode
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest

from legation.channels import Codec
from legation.channels.answer_files import AnswerFile
from legation.channels.deliveries import ContentKind, IncomingMessage
from legation.channels.replies import Reply
from legation.effects import Fetch, FetchReply

from ..providers.deliveries import platform
from ..providers.strict import form_of

methods: Any = pytest.importorskip("aiogram.methods", reason="nox -s channels installs it")
httpx: Any = pytest.importorskip("httpx")
pywa: Any = pytest.importorskip("pywa", reason="nox -s channels installs it")
sdk: Any = pytest.importorskip("slack_sdk", reason="nox -s channels installs it")

PNG: Final = b"\x89PNG\r\n\x1a\n\0\xff"
FILE: Final = AnswerFile("room.png", "image/png", b64encode(PNG).decode())


def codec(kind: str) -> Codec:
    return platform().registry.channels[kind].codec


def indicator(kind: str, recipient: str, thread: str = "") -> Any:
    """Return what is sent to show that a run works on a message."""
    made = IncomingMessage(
        "m",
        "7",
        ContentKind.TEXT,
        "Hi",
        conversation=recipient,
        thread=thread,
        provider_id="wamid.1",
    )
    fetch = codec(kind).encode_typing(made)
    assert fetch is not None
    return json.loads(fetch.body)


def upload(kind: str, recipient: str, *answers: bytes, thread: str = "") -> list[Fetch]:
    """Return the requests that send a file, of which all but the last are answered so."""
    reply = Reply("reply-m", recipient, "", thread=thread, quotes="9", file=FILE)
    asked, given = list[Fetch](), tuple(FetchReply(200, {}, body) for body in answers)
    for number in range(len(given)):
        step = codec(kind).prepare(reply, given[:number])
        assert isinstance(step, Fetch)
        asked.append(step)
    prepared = codec(kind).prepare(reply, given)
    assert isinstance(prepared, Reply)
    return [*asked, codec(kind).encode(prepared, 0)]


def headers_of(fetch: Fetch) -> dict[str, str]:
    return dict(fetch.headers)


def test_telegram_is_asked_as_aiogram_has_it() -> None:
    shown = methods.SendChatAction.model_validate(indicator("telegram", "7", "5"), strict=True)
    (sent,) = upload("telegram", "7", thread="5")
    form, files = form_of(headers_of(sent), sent.body)

    assert shown.model_extra in (None, {})
    assert (shown.action, shown.message_thread_id) == ("typing", 5)
    assert sent.url.endswith("/sendPhoto")
    assert {*form, *files} <= set(methods.SendPhoto.model_fields)
    assert files["photo"] == ("room.png", "image/png", PNG)


def test_slack_is_asked_as_slack_sdk_has_it() -> None:
    given = b'{"ok":true,"upload_url":"https://files.slack.com/upload/v1/A","file_id":"F1"}'
    begun, put, done = upload("slack", "C1", given, b"OK - 10", thread="1.5")
    sent = {
        "assistant_threads_setStatus": indicator("slack", "C1", "1.5"),
        "files_getUploadURLExternal": dict(parse_qsl(begun.body.decode())),
        "files_completeUploadExternal": json.loads(done.body),
    }

    for name, arguments in sent.items():
        inspect.signature(getattr(sdk.WebClient, name)).bind(None, **arguments)
    assert (put.url, put.body) == ("https://files.slack.com/upload/v1/A", PNG)


class Kept(httpx.BaseTransport):  # type: ignore[misc]  # the package is in one environment
    """The network of pywa, which keeps what it sends."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def handle_request(self, request: Any) -> Any:
        """Keep a request; the answer has what each of them may want."""
        request.read()
        self.requests.append(request)
        contact = {"input": "4911", "wa_id": "4911"}
        known = {"success": True, "id": "70", "messages": [{"id": "w"}], "contacts": [contact]}
        return httpx.Response(200, json=known)


def test_whatsapp_is_asked_as_pywa_does() -> None:
    wire = Kept()
    app = pywa.WhatsApp("111", "access-token", session=httpx.Client(transport=wire))
    app.indicate_typing("wamid.1")
    app.upload_media(PNG, "image/png", "room.png")
    app.send_image("4911", "70", reply_to_message_id="9", tracker="reply-m")
    put, sent = upload("whatsapp", "4911", b'{"id":"70"}')
    typed, theirs, image = wire.requests

    assert indicator("whatsapp", "4911") == json.loads(typed.content)
    assert form_of(headers_of(put), put.body) == form_of(theirs.headers, theirs.content)
    expected = {"recipient_type": "individual", **json.loads(image.content)}
    assert json.loads(sent.body) == {**expected, "to": "4911"}
