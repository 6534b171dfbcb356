from __future__ import annotations

from legation import Platform
from legation.http.messages import Request
from legation_testing import Client, ClientResponse, watch_responses


def test_who_watches_sees_every_response_while_it_does() -> None:
    seen: list[tuple[object, str, int]] = []

    def watch(answering: object, request: Request, response: ClientResponse) -> None:
        seen.append((answering, request.target, response.status))

    platform = Platform()
    with Client(platform) as client:
        with watch_responses(watch):
            client.get("/health")
            client.get("/nowhere")
        client.get("/info")

    assert seen == [(platform, "/health", 200), (platform, "/nowhere", 404)]
