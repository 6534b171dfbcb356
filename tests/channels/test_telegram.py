"""Telegram, as python-telegram-bot and aiogram know it: updates in, methods out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ..providers.deliveries import signed
from ..providers.deliveries import telegram as message_of
from ..providers.strict import TelegramApi
from .delivering import SLOW, TEXTS, WITH_FILES, deliver_twice, grow
from .telegram_updates import build_updates

methods: Any = pytest.importorskip("aiogram.methods", reason="nox -s channels installs it")
telegram: Any = pytest.importorskip("telegram", reason="nox -s channels installs it")
types: Any = pytest.importorskip("aiogram.types")

# It warns of members whose type is to change.
pytestmark = pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")


def provider() -> TelegramApi:
    api = TelegramApi()
    api.files["text"] = ("image/jpeg", b"a picture")
    return api


def test_every_update_of_aiogram_is_answered_once_at_most() -> None:
    bodies = [
        types.Update.model_validate(update).model_dump_json(exclude_unset=True, by_alias=True)
        for _, update in build_updates()
    ]
    sent = deliver_twice(provider(), [signed("telegram", body.encode(), 0) for body in bodies])

    assert len(bodies) > 140
    assert set(sent.first) == {"processing", "ignored"}
    assert 10 < sent.answers <= sent.first.count("processing")
    check_methods(sent.requests)


def test_every_update_of_python_telegram_bot_is_answered_once_at_most() -> None:
    bodies: list[str] = []
    for name, update in build_updates():
        body = telegram.Update.de_json(update, None).to_json()
        top, _, member = name.partition(".")
        found = json.loads(body)[top]
        assert not member or member in found, name
        bodies.append(body)
    sent = deliver_twice(provider(), [signed("telegram", body.encode(), 0) for body in bodies])

    assert set(sent.first) == {"processing", "ignored"}
    assert 10 < sent.answers <= sent.first.count("processing")
    check_methods(sent.requests)


def test_answers_are_methods_as_aiogram_has_them() -> None:
    texts = [message_of(7, 10 + number, text) for number, text in enumerate(TEXTS)]
    sent = deliver_twice(provider(), texts)

    assert sent.first == ["processing"] * len(TEXTS)
    assert sent.answers > len(TEXTS)
    assert check_methods(sent.requests)["sendMessage"] == sent.answers


def test_files_and_the_typing_indicator_are_methods_as_aiogram_has_them() -> None:
    hello = message_of(7, 10, "Hello")
    files = check_methods(deliver_twice(provider(), [hello], **WITH_FILES).requests)
    shown = check_methods(deliver_twice(provider(), [hello], **SLOW).requests)

    assert files.items() >= {"sendMessage": 1, "sendPhoto": 1, "sendDocument": 1}.items()
    assert shown["sendMessage"] == 1 <= shown["sendChatAction"]


def test_an_answer_that_grows_is_methods_as_aiogram_has_them() -> None:
    api = provider()
    sent = deliver_twice(api, [message_of(7, 10, "Hello")], **grow())
    found = check_methods(sent.requests)

    assert found["sendMessage"] == 1 < found["editMessageText"]
    assert [*api.shown.values()] == ["Room seven is free:\n\n90 < 100\nYes?"]


def check_methods(requests: Any) -> dict[str, int]:
    """Check that each request is a method with members that aiogram knows, of their very types."""
    found: dict[str, int] = {}
    for name, body in requests:
        method = getattr(methods, name[0].upper() + name[1:])
        made = method.model_validate(body, strict=True)
        assert unknown(made) == []
        for entity in getattr(made, "entities", None) or ():
            assert entity.extract_from(made.text).strip()
        found[name] = found.get(name, 0) + 1
    return found


def unknown(value: Any) -> list[str]:
    """Return the members of `value`, and of all that is in it, that aiogram does not know."""
    extra: dict[str, Any] = getattr(value, "model_extra", None) or {}
    named: set[str] = getattr(value, "model_fields_set", set[str]())
    inner: list[Any] = [getattr(value, name) for name in sorted(named)]
    items: list[Any] = [*value] if isinstance(value, list) else inner
    return [*extra, *(name for each in items for name in unknown(each))]
