"""Changes of the states of runs as a stream: who hears of which, and what is asked for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from legation.effects import Transact
from legation.shares.limits import PlatformLimits
from legation.store.failures import Unavailable
from legation.store.listed_runs import CountListed, ListRuns
from legation_testing import BadResponse, Client

from ....callers import NOW
from ....paused_runs import ISSUER, Office, begin, token

EVERY = token("operator", "runs:read")


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(Office().platform) as client:
        yield client


def watch(client: Client, who: str = EVERY, query: str = "") -> Any:
    stream = client.begin("GET", f"/runs/events{query}", token=who)
    client.settle()
    return stream


def heard(stream: Any) -> list[tuple[str, Any]]:
    """Return the events so far; of a run its user, what it is of and its state."""
    found: list[tuple[str, Any]] = []
    for event in stream.events():
        told = event.json()
        if event.name == "snapshot":
            counts = {state: count for state, count in told["counts"].items() if count}
            found.append((event.name, counts))
        else:
            assert event.name == "run"
            assert "requirements" not in told
            found.append((told["user_id"], (told["component"]["id"], told["status"])))
    return found


def test_a_stream_begins_with_how_many_there_are(client: Client) -> None:
    begin(client, "ada", "agents/echo")
    begin(client, "ada")
    begin(client, "bob", "agents/keeper")

    assert heard(watch(client)) == [("snapshot", {"COMPLETED": 1, "PAUSED": 2})]
    assert heard(watch(client, token("bob"))) == [("snapshot", {"PAUSED": 1})]
    assert heard(watch(client, query="?db_id=second")) == [("snapshot", {"PAUSED": 1})]
    assert heard(watch(client, token("carol", "sessions:read"))) == [("snapshot", {})]


def test_each_change_is_heard_of_by_who_may_see_it(client: Client) -> None:
    streams = [watch(client, who) for who in (EVERY, token("ada"), token("bob"))]

    begin(client, "ada", "agents/echo")
    run = begin(client, "bob", "agents/keeper")
    client.advance(2)
    path = f"/agents/keeper/runs/{run['run_id']}/cancel"
    client.post(path, form={}, token=token("bob")).expect_success()
    client.advance(2)

    every, ada, bob = (heard(stream)[1:] for stream in streams)
    assert ada == [("ada", ("echo", "COMPLETED"))]
    assert bob == [("bob", ("keeper", "PAUSED")), ("bob", ("keeper", "CANCELLED"))]
    assert sorted(every) == sorted([*ada, *bob])


def test_a_run_under_way_is_heard_of_until_it_ends(client: Client) -> None:
    stream = watch(client)
    going = client.begin(
        "POST",
        "/agents/slow/runs",
        form={"message": "hi", "stream": False},
        token=token("ada"),
    )
    client.advance(2)
    begun = heard(stream)[1:]
    client.advance(10)

    assert going.response().status == 200
    assert begun == [("ada", ("slow", "RUNNING"))]
    assert heard(stream)[1:] == [*begun, ("ada", ("slow", "COMPLETED"))]


def test_an_old_run_that_goes_on_is_heard_of_and_one_that_is_deleted_is_not(
    client: Client,
) -> None:
    run = begin(client, "ada", session_id="s")
    begin(client, "bob", "agents/keeper", session_id="t")
    client.advance(3_600)
    begin(client, "ada", "agents/echo")
    stream = watch(client)
    path = f"/agents/clerk/runs/{run['run_id']}/cancel"
    client.post(path, form={}, token=token("ada")).expect_success()
    client.advance(2)
    root = token("root", "platform:admin")
    client.request("DELETE", "/sessions/t?db_id=second", token=root).expect_success()
    client.advance(2)

    assert heard(stream)[1:] == [("ada", ("clerk", "CANCELLED"))]


def test_a_quiet_stream_has_a_comment_now_and_then_and_asks_once_a_second(
    client: Client,
) -> None:
    stream = watch(client, query="?db_id=main")
    before = len(client.effects)
    client.advance(31)

    asked = [
        one.effect
        for one in client.effects[before:]
        if isinstance(one.effect, Transact) and isinstance(one.effect.unit, ListRuns)
    ]
    assert len(asked) <= 2 * 31
    assert stream.received.count(b": heartbeat") == 2


def test_the_end_of_the_process_ends_the_stream(client: Client) -> None:
    stream = watch(client)
    platform: Any = client.platform
    platform.context.leaving = True
    client.advance(2)

    assert stream.done
    assert platform.context.followers == 0


def test_the_end_of_the_token_ends_the_stream(client: Client) -> None:
    stream = watch(client, ISSUER.token("runs:read", sub="operator", exp=NOW + 2))
    client.advance(11.99)
    assert not stream.done
    client.advance(0.02)

    assert stream.done
    assert stream.events()[-1].json() == {
        "event": "token_expired",
        "detail": "Token has expired",
        "error_code": "UNAUTHENTICATED",
        "path": "/runs/events",
    }
    with pytest.raises(BadResponse, match="not whole"):
        stream.response()


def test_nothing_is_asked_while_nobody_listens(client: Client) -> None:
    stream = watch(client)
    client.advance(1)
    stream.disconnect()
    client.advance(3)
    before = len(client.effects)
    client.advance(30)

    units = [one.effect.unit for one in client.effects[before:] if isinstance(one.effect, Transact)]
    assert not [unit for unit in units if isinstance(unit, ListRuns | CountListed)]


def test_a_database_that_is_away_is_looked_at_again(client: Client) -> None:
    stream = watch(client)
    client.fail_at(ListRuns, Unavailable("away"), times=4)
    begin(client, "ada", "agents/echo")
    client.advance(2)
    begin(client, "ada", "agents/keeper")
    client.advance(10)

    assert sorted(heard(stream)[1:]) == [
        ("ada", ("echo", "COMPLETED")),
        ("ada", ("keeper", "PAUSED")),
    ]


def test_a_stream_of_some_seconds_ends_after_them(client: Client) -> None:
    stream = watch(client, query="?seconds=3")
    client.advance(1)
    begin(client, "ada", "agents/echo")
    client.advance(1)
    assert not stream.done
    client.advance(1)

    assert stream.done
    assert heard(stream) == [("snapshot", {}), ("ada", ("echo", "COMPLETED"))]


def test_where_the_first_look_fails_the_stream_is_not_whole(client: Client) -> None:
    client.fail_at(CountListed, Unavailable("away"))
    stream = watch(client)
    client.advance(1)

    assert b"snapshot" not in stream.received


def test_a_stream_has_a_place_of_its_caller() -> None:
    with Client(lambda: Office().platform(limits=PlatformLimits(streams=1))) as client:
        watch(client)
        assert client.get("/runs/events", token=EVERY).status == 429


@pytest.mark.parametrize("query", ["db_id=none", "user_id=x", "seconds=0"])
def test_a_query_that_cannot_be_read_is_422(client: Client, query: str) -> None:
    assert client.get(f"/runs/events?{query}", token=EVERY).status == 422
