"""Every operation of the demonstration, with the examples of its document and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, cast

import pytest

from legation import Platform
from legation.api.openapi import example_ids as ids
from legation.channels.standard import Standard
from legation.effects import Fetch, FetchReply
from legation.runs.followers import join
from legation.runs.start import NewRun, start
from legation_cli.hotel import make_hotel
from legation_console import read_console
from legation_testing import Client

from ..swagger_requests import SwaggerRequest, list_requests

BOOK: Final = "Book a double room for two nights for Ada"
WEBHOOKS: Final = {"verify_webhook_help", "receive_webhook_help"}


def refuse(_: Fetch) -> FetchReply:
    """Refuse every reply for good."""
    return FetchReply(410, {}, b"")


def open_hotel() -> Client:
    platform = make_hotel("sqlite://")
    platform.load_console(read_console())
    return Client(platform, fetch=refuse)


def read_requests() -> list[SwaggerRequest]:
    document: dict[str, Any] = json.loads(
        bytes(make_hotel("sqlite://").documentation.document.body)
    )
    return list(list_requests(document))


def begin(client: Client, kind: str, component: str, run_id: str, session: str, words: str) -> None:
    """Run an agent or a team under this id, as far as it goes."""
    platform = client.platform
    assert isinstance(platform, Platform)
    hosted = platform.registry.components(kind)[component]
    new = NewRun(ids.USER, session, run_id, words, pieces=False)
    client.simulation.run(start(platform.context, hosted, new))
    client.simulation.run(join(ids.DATABASE, ids.USER, run_id))


def deliver(client: Client, message_id: str) -> None:
    """Deliver a message to the channel; nobody takes the reply."""
    platform = client.platform
    assert isinstance(platform, Platform)
    codec = cast("Standard", platform.registry.channels[ids.CHANNEL].codec)
    body = b'{"type":"message","data":{"sender":"%s","text":"hi"}}' % message_id.encode()
    headers = codec.sign(message_id, body, client.clock.now_us).headers
    client.post(f"/{ids.CHANNEL}/webhook", body=body, headers=headers).expect_success()


def make_past(client: Client) -> None:
    """Make what the examples name."""
    deliver(client, ids.MESSAGE)
    deliver(client, ids.SECOND_MESSAGE)
    client.advance(1)
    begin(client, "agent", ids.AGENT, ids.RUN, ids.SESSION, "Which rooms are free tomorrow?")
    begin(client, "agent", ids.AGENT, ids.SECOND_RUN, ids.SESSION, BOOK)
    path = f"/approvals/{ids.RESOLVED_APPROVAL}/resolve"
    client.post(path, json={"status": "approved"}).expect_success()
    begin(client, "agent", ids.AGENT, ids.PAUSED_RUN, ids.PAUSED_SESSION, BOOK)
    begin(client, "agent", ids.AGENT, ids.WAITING_RUN, ids.WAITING_SESSION, BOOK)
    begin(client, "team", ids.TEAM, ids.TEAM_RUN, ids.TEAM_SESSION, "Plan my evening")
    begin(client, "team", ids.TEAM, ids.TEAM_PAUSED_RUN, ids.TEAM_PAUSED_SESSION, BOOK)


def send(client: Client, requests: Sequence[SwaggerRequest]) -> dict[str, int]:
    """Return the statuses by operation, those alone that are not as they should be."""
    wrong: dict[str, Any] = {}
    for one in requests:
        answer = client.request(one.method, one.target, headers=one.headers, body=one.body or b"")
        right = answer.status == 403 if one.operation in WEBHOOKS else answer.status < 400
        if not right:
            wrong[one.operation] = (answer.status, answer.body[:300])
    return wrong


@pytest.mark.parametrize("backwards", [False, True], ids=["in order", "backwards"])
def test_every_operation_succeeds_as_its_page_opens(backwards: bool) -> None:
    requests = read_requests()
    with open_hotel() as client:
        make_past(client)
        assert send(client, requests[::-1] if backwards else requests) == {}
