"""Deliveries that other libraries make or sign, each sent twice, and the requests that follow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl

from attrs import define, evolve, field, frozen

from legation import Agent, EchoModel, RunFile
from legation.effects import Fetch, FetchReply
from legation_testing import Client, Says, ScriptedModel

from ..providers.deliveries import Delivery, channels, platform
from ..providers.strict import Provider, form_of, now_us

__all__ = ["SLOW", "TEXTS", "WITH_FILES", "Recorder", "Sent", "deliver_twice", "grow"]

TEXTS: Final = (
    "Is there *a* room, and **breakfast**?",
    "# Rooms\n\n* one\n* two, ~~sold~~ with `code` 👩‍👩‍👧\n\n> quoted **bold**\n\n1. first",
    "[a link](https://example.com/?a=1&b=2) <b>no HTML</b> & <@U1> <!channel>",
    "| room | price |\n|---|---|\n| 1 | 80 € |\n\n```python\nprint('a < b')\n```",
    "💃" * 3000 + " **end**",
)
"""What a person writes, and an agent without a model says after them."""


def answer_with_files(message: str) -> list[str | RunFile]:
    """Return a text, a picture and a document."""
    return [
        message,
        RunFile("plan.png", "image/png", b"a picture"),
        RunFile("bill.pdf", "application/pdf", b"%PDF-"),
    ]


WITH_FILES: Final[Mapping[str, Any]] = {
    "agents": [Agent(id="concierge", run=answer_with_files)],
}
"""The configuration of an agent whose answers have files."""

SLOW: Final[Mapping[str, Any]] = {
    "agents": [Agent(id="concierge", model="slow")],
    "models": [EchoModel("slow", delay_seconds=5.0)],
    "options": {"show_typing": True},
}
"""That of one that shows for five seconds that it works."""


@define(eq=False)
class Recorder:
    """The network of a `Client`: one provider, and every request that it got with its answer.

    Attributes:
        api: The provider, which refuses what its documentation does.
        fetched: The requests, in order.
    """

    api: Provider
    fetched: list[Fetch] = field(factory=list[Fetch], init=False)

    def __call__(self, fetch: Fetch) -> FetchReply:
        """Take a request to the provider."""
        self.fetched.append(fetch)
        return self.api(fetch)

    def posted(self) -> list[tuple[str, Any]]:
        """Return the last segment of the path of each POST, and its JSON or the fields of it."""
        return [
            (fetch.url.rpartition("/")[2], read(fetch))
            for fetch in self.fetched
            if fetch.method == "POST"
        ]


def read(fetch: Fetch) -> Any:
    """Return the members of a request; a file stands under its name, and numbers are read."""
    headers = {name.lower(): value for name, value in fetch.headers}
    match headers.get("content-type", "").partition(";")[0]:
        case "multipart/form-data":
            fields, files = form_of(headers, fetch.body)
            return {**numbers(fields), **{name: file[0] for name, file in files.items()}}
        case "application/x-www-form-urlencoded":
            return numbers(dict(parse_qsl(fetch.body.decode())))
        case "application/octet-stream":
            return {}
        case _:
            return json.loads(fetch.body or b"{}")


def numbers(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a form; what is a number or an object as JSON is one."""
    return {
        name: json.loads(value) if value[0] in "{0123456789" else value
        for name, value in fields.items()
    }


def grow() -> dict[str, Any]:
    """Return the configuration of an agent whose answer, with markup, grows for eight seconds."""
    words = ["Room ", "**seven", " is** ", "free", ":\n\n```", "\n90 < 100", "\n```\n", "Yes?"]
    model = ScriptedModel([Says(words, between_seconds=1.0)])
    agents = [Agent(id="concierge", model=model)]
    return {"agents": agents, "options": {"stream_answers": True}}


@frozen
class Sent:
    """What a webhook said to the first and the second delivery of each, and what people read."""

    first: Sequence[str]
    second: Sequence[str]
    answers: int
    requests: Sequence[tuple[str, Any]]


def deliver_twice(
    api: Provider,
    deliveries: Iterable[Delivery],
    *,
    options: Mapping[str, Any] = MappingProxyType({}),
    **configuration: Any,
) -> Sent:
    """Deliver everything to a platform, and when all is answered everything again.

    A status other than 200, a request that `api` refuses, and an answer to a second delivery are
    errors.
    """
    network, every = Recorder(api), list(deliveries)
    api.honours_keys = False
    only = [evolve(one, **options) for one in channels(api.base) if one.kind == api.kind]
    with Client(
        platform(channels=only, **configuration), fetch=network, start_us=now_us()
    ) as client:
        first = [post(client, delivery) for delivery in every]
        client.advance(10)
        answers = len(api.seen)
        second = [post(client, delivery) for delivery in every]
        client.advance(10)
    assert api.refused == []
    assert len(api.seen) == answers
    assert len({message.key for message in api.seen}) == answers
    assert set(second) <= {"duplicate", "ignored"}
    return Sent(first, second, answers, network.posted())


def post(client: Client, delivery: Delivery) -> str:
    response = client.post(delivery.target, headers=delivery.headers, body=delivery.body)
    assert response.status == 200, (response.text, delivery.body)
    return str(response.json()["status"]) if response.text else ""  # Slack would show a body
