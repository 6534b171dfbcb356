"""The shares of a caller, as `GET /me` shows them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from legation import LimitOverrides, NodeLimits, Platform, PlatformLimits
from legation_testing import Client

from ....callers import Issuer, demo

ISSUER: Final = Issuer()
LIMITS: Final = PlatformLimits(
    requests_per_second=10,
    request_burst=40,
    streams=8,
    followers=6,
    node=NodeLimits(streams=100, followers=100),
    anonymous=LimitOverrides(streams=1),
    scopes={"agents:read": LimitOverrides(followers=2)},
    subjects={"eve": LimitOverrides(requests_per_second=0)},
)


def shares_of(client: Client, token: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the shares of the bearer of `token`, by name."""
    response = client.get("/me", token=token)
    assert response.status == 200
    return {level["share"]: level for level in response.json()["limits"]}


@pytest.fixture
def platform() -> Platform:
    """A platform whose limits differ for some."""
    return demo(ISSUER, limits=LIMITS)


def test_a_caller_reads_how_much_it_has_used_and_what_is_left(platform: Platform) -> None:
    with Client(platform) as client:
        for _ in range(9):
            client.get("/agents", token=ISSUER.token("agents:read", sub="bob"))
        platform.context.shares.streams.take("bob", 3)
        platform.context.shares.streams.take("ada", 2)
        found = shares_of(client, ISSUER.token(sub="bob"))

    assert found["streams"] == {
        "share": "streams",
        "limit": 8,
        "used": 3,
        "remaining": 5,
        "unit": "concurrent-requests",
    }
    requests = found["requests"]
    assert (requests["limit"], requests["unit"]) == (40, "requests")
    assert requests["used"] == 10
    assert requests["remaining"] == 30
    assert requests["reset_seconds"] == 1


def test_the_limits_are_those_of_the_token(platform: Platform) -> None:
    with Client(platform) as client:
        plain = shares_of(client, ISSUER.token(sub="bob"))
        scoped = shares_of(client, ISSUER.token("agents:read", sub="bob"))
        nobody = shares_of(client, ISSUER.token(sub=None))
        eve = shares_of(client, ISSUER.token(sub="eve"))

    assert (plain["followers"]["limit"], scoped["followers"]["limit"]) == (6, 2)
    assert (plain["streams"]["limit"], nobody["streams"]["limit"]) == (8, 1)
    assert "requests" not in eve


def test_what_is_left_agrees_with_the_refusal() -> None:
    limits = PlatformLimits(requests_per_second=0.001, request_burst=3)
    with Client(demo(None, limits=limits)) as client:
        left = [shares_of(client)["requests"]["remaining"] for _ in range(3)]
        refused = client.get("/me")

    assert left == [2, 1, 0]
    assert refused.status == 429
    assert refused.header("ratelimit") == '"requests";r=0;t=1000'
    assert refused.header("ratelimit-policy") == '"requests";q=3;w=3000'
    assert refused.header("retry-after") == "1000"


def test_each_node_tells_its_part(platform: Platform) -> None:
    with Client(platform) as client:
        platform.context.shares.note_others("main", 3)
        found = shares_of(client, ISSUER.token(sub="bob"))

    assert (found["requests"]["limit"], found["streams"]["limit"]) == (10, 2)
