"""Deliveries that other libraries make or sign, each sent twice, and the requests that follow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import define, field, frozen

from legation.effects import Fetch, FetchReply
from legation_testing import Client

from ..providers.deliveries import Delivery, channels, platform
from ..providers.strict import Provider, now_us

__all__ = ["Recorder", "Sent", "deliver_twice"]

TEXTS = (
    "Is there *a* room, and **breakfast**?",
    "# Rooms\n\n* one\n* two, ~~sold~~ with `code` 👩‍👩‍👧\n\n> quoted **bold**\n\n1. first",
    "[a link](https://example.com/?a=1&b=2) <b>no HTML</b> & <@U1> <!channel>",
    "| room | price |\n|---|---|\n| 1 | 80 € |\n\n```python\nprint('a < b')\n```",
    "💃" * 3000 + " **end**",
)
"""What a person writes, and an agent without a model says after them."""


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
        """Return the last segment of the path of each POST, and its JSON."""
        return [
            (fetch.url.rpartition("/")[2], json.loads(fetch.body or b"{}"))
            for fetch in self.fetched
            if fetch.method == "POST"
        ]


@frozen
class Sent:
    """What a webhook said to the first and the second delivery of each, and what people read."""

    first: Sequence[str]
    second: Sequence[str]
    answers: int
    requests: Sequence[tuple[str, Any]]


def deliver_twice(api: Provider, deliveries: Iterable[Delivery]) -> Sent:
    """Deliver everything to a platform, and when all is answered everything again.

    A status other than 200, a request that `api` refuses, and an answer to a second delivery are
    errors.
    """
    network, every = Recorder(api), list(deliveries)
    api.honours_keys = False
    only = [one for one in channels(api.base) if one.kind == api.kind]
    with Client(platform(channels=only), fetch=network, start_us=now_us()) as client:
        first = [post(client, delivery) for delivery in every]
        client.settle()
        answers = len(api.seen)
        second = [post(client, delivery) for delivery in every]
        client.settle()
    assert api.refused == []
    assert len(api.seen) == answers
    assert len({message.key for message in api.seen}) == answers
    assert set(second) <= {"duplicate", "ignored"}
    return Sent(first, second, answers, network.posted())


def post(client: Client, delivery: Delivery) -> str:
    response = client.post(delivery.target, headers=delivery.headers, body=delivery.body)
    assert response.status == 200, (response.text, delivery.body)
    return str(response.json()["status"])
