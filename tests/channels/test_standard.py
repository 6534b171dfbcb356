"""Standard Webhooks, as standardwebhooks and svix sign and verify it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import standardwebhooks
from attrs import define

from legation.effects import Fetch
from legation_testing import Client

from ..providers.deliveries import ENVIRON, Delivery, platform
from ..providers.strict import Seen, StandardReceiver, now_us
from .delivering import TEXTS, deliver_twice

svix: Any = pytest.importorskip("svix.webhooks", reason="nox -s channels installs it")

SECRET: Final = ENVIRON["STANDARD"]
LIBRARIES: Final[dict[str, tuple[Callable[[str], Any], str]]] = {
    "standardwebhooks": (standardwebhooks.Webhook, "webhook"),
    "svix": (svix.Webhook, "svix"),
}
BY_LIBRARY: Final = pytest.mark.parametrize("library", LIBRARIES)


def sign(
    library: str, name: str, words: str = "", age_seconds: int = 0, **decision: Any
) -> Delivery:
    """Return a message, or a decision, as its sender signs it, under the headers of `library`."""
    make, prefix = LIBRARIES[library]
    kind, said = ("decision", decision) if decision else ("message", {"text": words})
    body = json.dumps({"type": kind, "data": {"sender": "ada", **said}})
    at = datetime.fromtimestamp(now_us() // 1_000_000 - age_seconds, UTC)
    headers = (
        ("content-type", "application/json"),
        (f"{prefix}-id", name),
        (f"{prefix}-timestamp", str(int(at.timestamp()))),
        (f"{prefix}-signature", make(SECRET).sign(name, at, body)),
    )
    return Delivery("/standard/webhook", headers, body.encode())


@define(eq=False)
class Judges(StandardReceiver):
    """A receiver that believes what both libraries verify."""

    def judge(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Seen:
        for make, _ in LIBRARIES.values():
            make(self.secret).verify(body, dict(headers))
        return super().judge(method, target, headers, body)


@BY_LIBRARY
def test_messages_that_a_library_signs_are_answered_once_and_both_verify_the_answers(
    library: str,
) -> None:
    every = [sign(library, f"msg_{number}", text) for number, text in enumerate(TEXTS)]
    sent = deliver_twice(Judges(), every)

    assert sent.first == ["processing"] * len(TEXTS)
    assert sent.second == ["duplicate"] * len(TEXTS)
    assert sent.answers == len(TEXTS)


@BY_LIBRARY
@pytest.mark.parametrize("age", [0, 295, 305, -295, -305])
def test_the_age_of_a_message_is_judged_as_the_libraries_judge_it(library: str, age: int) -> None:
    sent = sign(library, "msg_1", "Hello", age)
    try:
        LIBRARIES[library][0](SECRET).verify(sent.body, dict(sent.headers))
    except standardwebhooks.WebhookVerificationError:
        expected = 403
    else:
        expected = 200

    with Client(platform(), fetch=StandardReceiver(), start_us=now_us()) as client:
        assert client.post(sent.target, headers=sent.headers, body=sent.body).status == expected


def test_a_forged_answer_is_refused_by_both_libraries() -> None:
    kept: list[Fetch] = []
    receiver = StandardReceiver()
    sent = sign("svix", "msg_1", "Hello")

    def keep(fetch: Fetch) -> Any:
        kept.append(fetch)
        return receiver(fetch)

    with Client(platform(), fetch=keep, start_us=now_us()) as client:
        client.post(sent.target, headers=sent.headers, body=sent.body)
        client.settle()

    answer = kept[-1]
    for make, _ in LIBRARIES.values():
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            make(SECRET).verify(answer.body + b" ", dict(answer.headers))
