"""The shares of a caller, as `GET /me` shows them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from legation import (
    Agent,
    Database,
    LimitOverrides,
    Model,
    NodeLimits,
    Platform,
    PlatformLimits,
)
from legation.effects import Asks, Transact
from legation.store.failures import Unavailable
from legation.store.usage import FetchUsage
from legation_testing import Client, ScriptedModel

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

STORED: Final = PlatformLimits(
    runs=5, waiting=7, stored_bytes=100_000, tokens_per_day=50, anonymous=LimitOverrides(runs=1)
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


def test_who_follows_as_many_streams_as_there_may_be_is_refused_the_next() -> None:
    ada, bob = ISSUER.token("agents:run"), ISSUER.token("agents:run", sub="bob")
    with Client(two_databases(PlatformLimits()), token=ada) as client:
        form = {"message": "x", "background": True}
        begun = client.post("/agents/sloth/runs", form=form).json()
        path = f"/agents/sloth/runs/{begun['run_id']}/events"
        followed = [client.begin("GET", path) for _ in range(256)]
        client.settle()
        full = shares_of(client, ada)
        refused = client.get(path)
        form = {"message": "x", "stream": False, "session_id": "another"}
        joined = client.post("/agents/alpha/runs", form=form)
        other = client.post("/agents/alpha/runs", form=form, token=bob)
        assert client.get("/agents/alpha/runs?session_id=another").json() == []
        client.advance(1)
        assert {exchange.response().status for exchange in followed} == {200}
        again, freed = client.get(path), shares_of(client, ada)

    for share in ("streams", "followers"):
        assert (full[share]["used"], full[share]["remaining"]) == (256, 0)
        assert (freed[share]["used"], freed[share]["remaining"]) == (0, 256)
    assert (refused.status, refused.json()["error_code"]) == (429, "TOO_MANY_REQUESTS")
    assert refused.header("retry-after") == "1"
    assert refused.header("ratelimit") == '"streams";r=0;t=1'
    assert refused.header("ratelimit-policy") == '"streams";q=256;qu="concurrent-requests"'
    assert (joined.status, joined.header("ratelimit")) == (429, '"followers";r=0;t=1')
    assert (other.status, again.status) == (200, 200)


# --- What is stored ------------------------------------------------------------------------------


def stored_of(client: Client, **options: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the stored shares of a caller, by database and name."""
    levels = client.get("/me", **options).json()["limits"]
    return {(each["database"], each["share"]): each for each in levels if "database" in each}


def two_databases(limits: PlatformLimits = STORED) -> Platform:
    """Return an agent in each of two databases, and one whose runs take a second."""
    return demo(
        ISSUER,
        agents=(
            Agent(id="alpha", model=ScriptedModel(["one two three"] * 9)),
            Agent(id="beta", model=ScriptedModel(["one two three"] * 9), database="second"),
            Agent(id="sloth", model="slow"),
        ),
        models=(Model("slow", "echo", delay_seconds=1.0),),
        databases=(Database("main", "sqlite://"), Database("second", "sqlite://")),
        limits=limits,
    )


def test_a_caller_reads_what_is_stored_of_it_in_each_database() -> None:
    ada, bob = ISSUER.token("agents:run"), ISSUER.token("agents:run", sub="bob")
    with Client(two_databases()) as client:
        form = {"message": "x", "stream": False}
        assert client.post("/agents/alpha/runs", form=form, token=ada).status == 200
        for _ in range(2):
            form = {"message": "x", "background": True, "session_id": "s"}
            assert client.post("/agents/sloth/runs", form=form, token=ada).status == 202
        found, other = stored_of(client, token=ada), stored_of(client, token=bob)

    assert found.keys() == other.keys() == {
        (database, share)
        for database in ("main", "second")
        for share in ("runs", "waiting", "stored_bytes", "tokens")
    }  # fmt: skip
    used = {key: each["used"] for key, each in found.items()}
    assert (used["main", "runs"], used["main", "waiting"], used["main", "tokens"]) == (1, 1, 4)
    assert 0 < used["main", "stored_bytes"] < 100_000
    assert {each["used"] for key, each in found.items() if key[0] == "second"} == {0}
    assert {each["used"] for each in other.values()} == {0}
    tokens = found["main", "tokens"]
    assert tokens == {
        "share": "tokens", "limit": 50, "used": 4, "remaining": 46, "unit": "tokens",
        "reset_seconds": 86_400, "database": "main",
    }  # fmt: skip
    assert found["main", "runs"]["remaining"] == 4


def test_without_a_limit_nothing_is_said_of_what_is_left() -> None:
    with Client(demo(ISSUER, limits=PlatformLimits())) as client:
        found = stored_of(client, token=ISSUER.token())

    for share in ("stored_bytes", "tokens"):
        assert (found["main", share]["limit"], found["main", share]["remaining"]) == (None, None)


def _of_second(effect: Asks[Any]) -> bool:
    if not isinstance(effect, Transact) or effect.database != "second":
        return False
    unit: object = effect.unit
    return isinstance(unit, FetchUsage)


def test_of_a_database_that_does_not_answer_nothing_is_told() -> None:
    with Client(two_databases()) as client:
        client.fail_at(_of_second, Unavailable("away"))
        found = stored_of(client, token=ISSUER.token())

    assert {database for database, _ in found} == {"main"}
