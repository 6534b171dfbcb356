"""Followers that do not ask: whose run this node executes, and whose run is that of another."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from legation import Agent, Model, Platform
from legation.effects import Transact
from legation.runs import run_watch
from legation.runs.run_watch import WatchFollowed
from legation.shares.limits import PlatformLimits
from legation.store.failures import StatementFailed, Unavailable
from legation.store.run_reads import FetchEvents, FindProgress
from legation_testing import Client, Exchange

from ...callers import NOW, Issuer
from ...two_databases import IN_MEMORY

SLOW = "/agents/sloth/runs"
DELAY = 60.0
MANY = 1_000


def platform(delay: float = DELAY) -> Platform:
    slow = Model("slow", "echo", delay_seconds=delay)
    places = ("main", "second")
    agents = [Agent(id=f"sloth-{place}", model="slow", database=place) for place in places]
    sloth = Agent(id="sloth", model="slow", database="main")
    return Platform(
        models=(slow,),
        agents=(sloth, *agents),
        databases=IN_MEMORY,
        limits=PlatformLimits(followers=2 * MANY, streams=2 * MANY, requests_per_second=0),
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


@pytest.fixture
def peer(client: Client) -> Generator[Client]:
    with client.peer() as peer:
        yield peer


def begin(client: Client, session_id: str = "s", agent: str = "sloth") -> str:
    form = {"message": "hi", "session_id": session_id, "background": True}
    run_id: str = client.post(f"/agents/{agent}/runs", form=form).json()["run_id"]
    return run_id


def follow(client: Client, run_id: str, agent: str = "sloth") -> Exchange:
    return client.begin("GET", f"/agents/{agent}/runs/{run_id}/events")


def units(client: Client, since: int, node: Client | None = None) -> list[Any]:
    """The units by which followers ask, of a node, since so many effects."""
    asked = [
        performed.effect
        for performed in client.effects[since:]
        if node is None or performed.node == node.node.name
    ]
    kinds = (FetchEvents, FindProgress)
    return [
        effect.unit
        for effect in asked
        if isinstance(effect, Transact) and isinstance(effect.unit, kinds)
    ]


def asked_within(client: Client, seconds: float) -> list[Any]:
    since = len(client.effects)
    client.advance(seconds)
    return units(client, since)


def last(exchange: Exchange) -> str:
    return exchange.events()[-1].name


# --- How often it is asked -----------------------------------------------------------------------


def test_a_thousand_followers_of_a_run_of_this_node_ask_nothing(client: Client) -> None:
    run_id = begin(client)
    followers = [follow(client, run_id) for _ in range(MANY)]
    client.advance(5)

    assert asked_within(client, 30.0) == []
    assert {exchange.received.count(b"\n:") for exchange in followers} == {2}
    client.advance(DELAY)
    assert {last(exchange) for exchange in followers} == {"RunCompleted"}


def test_a_thousand_followers_of_a_run_of_another_node_ask_once_a_round(
    client: Client, peer: Client
) -> None:
    run_id = begin(client)
    followers = [follow(peer, run_id) for _ in range(MANY)]
    client.advance(5)

    assert asked_within(client, 20.0) == [FindProgress((run_id,))] * 20
    client.advance(DELAY)
    assert {last(exchange) for exchange in followers} == {"RunCompleted"}


def test_a_statement_asks_for_so_many_runs_and_no_more(
    client: Client, peer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watch, "AT_ONCE", 4)
    run_ids = [begin(client, f"s{number}") for number in range(10)]
    followers = [follow(peer, run_id) for run_id in run_ids]
    client.advance(5)

    asked = asked_within(client, 1.0)
    assert [len(unit.runs) for unit in asked] == [4, 4, 2]
    assert [run_id for unit in asked for run_id in unit.runs] == run_ids
    client.advance(DELAY)
    assert {last(exchange) for exchange in followers} == {"RunCompleted"}


def test_a_run_is_asked_for_in_its_own_database(client: Client, peer: Client) -> None:
    here, there = begin(client, "s", "sloth-main"), begin(client, "s", "sloth-second")
    exchange = follow(peer, there, "sloth-second")
    client.advance(5)
    since = len(client.effects)
    client.advance(3)

    asked = {
        (performed.effect.database, performed.effect.unit)
        for performed in client.effects[since:]
        if isinstance(performed.effect, Transact)
        and isinstance(performed.effect.unit, FindProgress)
    }
    assert asked == {("second", FindProgress((there,)))}
    other = follow(peer, here, "sloth-main")
    client.advance(DELAY)
    assert (last(exchange), last(other)) == ("RunCompleted",) * 2


def test_a_host_without_jobs_asks_by_itself(client: Client) -> None:
    frozen = Client(platform, simulation=client.simulation, jobs=False)
    with frozen:
        run_id = begin(client)
        exchange = follow(frozen, run_id)
        client.advance(5)

        asked = asked_within(client, 10.0)
        assert [(type(unit), unit.run_id) for unit in asked] == [(FetchEvents, run_id)] * 10
        client.advance(DELAY)
        assert last(exchange) == "RunCompleted"


# --- What it finds -------------------------------------------------------------------------------


def test_what_another_node_stores_is_seen_within_a_second(client: Client, peer: Client) -> None:
    run_id = begin(client)
    exchange = follow(peer, run_id)
    client.advance(DELAY - 0.1)
    assert not exchange.done

    client.advance(1.2)
    assert last(exchange) == "RunCompleted"


def test_a_run_that_another_node_takes_over_goes_on_for_who_follows_it(
    client: Client, peer: Client
) -> None:
    """At the node that takes it up, and at a third one."""
    with client.peer() as third:
        run_id = begin(client)
        exchanges = [follow(node, run_id) for node in (peer, third)]
        client.advance(3)
        client.crash()
        client.simulation.advance(5)
        for exchange in exchanges:
            assert [event.name for event in exchange.events()][2:] == [
                "RunContinued",
                "ModelRequestStarted",
            ]

        since = len(client.effects)
        client.simulation.advance(10)
        assert units(client, since, peer) == []  # it executes it now
        assert len(units(client, since, third)) == 10
        client.simulation.advance(DELAY)
        assert {last(exchange) for exchange in exchanges} == {"RunCompleted"}


@pytest.mark.parametrize("here", [True, False])
def test_who_follows_a_run_that_is_deleted_is_told(
    client: Client, peer: Client, here: bool
) -> None:
    run_id = begin(client)
    exchange = follow(client if here else peer, run_id)
    client.advance(5)
    client.delete("/sessions/s", query={"db_id": "main"}).expect_success()
    client.advance(1.5)

    assert exchange.done
    assert last(exchange) == "RunCancelled"
    assert "was deleted" in exchange.events()[-1].data


def test_a_run_that_nobody_takes_up_is_given_up(client: Client, peer: Client) -> None:
    run_id = begin(peer)
    assert isinstance(client.platform, Platform)
    client.platform.context.draining = True
    exchange = follow(client, run_id)
    client.advance(3)
    peer.crash()
    client.advance(10)
    assert not exchange.done
    client.advance(10)

    assert exchange.done
    assert [log.event for log in client.logs].count("run_stalled") == 1


def test_an_outage_ends_no_stream_before_it_ends_runs(client: Client, peer: Client) -> None:
    run_id = begin(client)
    exchange = follow(peer, run_id)
    client.advance(5)
    failure = client.fail_at(FindProgress, Unavailable("away"), times=None)
    client.advance(30)
    assert not exchange.done

    failure.disarm()
    client.advance(DELAY)
    assert last(exchange) == "RunCompleted"


def test_an_outage_as_long_as_runs_wait_for_ends_streams(
    client: Client, peer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watch, "OUTAGE_US", 60_000_000)
    run_id = begin(client)
    exchange = follow(peer, run_id)
    client.advance(5)
    client.fail_at(FindProgress, Unavailable("away"), times=None)
    client.advance(55)
    assert not exchange.done
    client.advance(10)

    assert exchange.done
    assert [log.event for log in client.logs].count("run_stalled") == 1
    assert [log.event for log in client.logs].count("watch_round_failed") == 1


def test_who_cannot_be_told_asks_by_itself(client: Client, peer: Client) -> None:
    run_id = begin(client)
    exchange = follow(peer, run_id)
    client.advance(5)
    client.fail_at(FindProgress, StatementFailed("broken"), times=None)
    client.advance(DELAY)

    assert last(exchange) == "RunCompleted"


# --- Tokens --------------------------------------------------------------------------------------

ISSUER = Issuer(kid="k")


def guarded() -> Platform:
    return Platform(
        authorization=True,
        authorization_config=ISSUER.authorization(revocations_file="revoked.json"),
        revocations=b"{}",
        models=(Model("slow", "echo", delay_seconds=DELAY),),
        agents=(Agent(id="sloth", model="slow"),),
    )


def bearer(seconds: float | None, **claims: Any) -> str:
    exp = None if seconds is None else NOW + seconds
    return ISSUER.token("agents:run", "agents:read", "sessions:read", exp=exp, **claims)


@pytest.mark.parametrize("here", [True, False])
def test_a_quiet_stream_ends_with_its_token_wherever_the_run_is(here: bool) -> None:
    with Client(guarded) as bank, bank.peer() as branch:
        form = {"message": "hi", "session_id": "s", "background": True}
        run_id = bank.post(SLOW, form=form, token=bearer(None)).json()["run_id"]
        node = bank if here else branch
        path = f"{SLOW}/{run_id}/events"
        expiring = node.begin("GET", path, token=bearer(20.0))
        revoked = node.begin("GET", path, token=bearer(None, jti="t1"))
        lasting = node.begin("GET", path, token=bearer(None, jti="t2"))
        bank.advance(29.9)
        assert not expiring.done
        bank.advance(0.2)
        assert last(expiring) == "token_expired"

        since = len(bank.effects)
        assert isinstance(node.platform, Platform)
        node.platform.load_revocations(b'{"tokens": ["t1"]}', (NOW + 31) * 1_000_000)
        bank.advance(1.1)
        assert json.loads(revoked.events()[-1].data)["detail"] == "Invalid token"
        assert not lasting.done
        assert not [unit for unit in units(bank, since) if isinstance(unit, FetchEvents)]
        bank.advance(DELAY)
        assert last(lasting) == "RunCompleted"


# --- The job -------------------------------------------------------------------------------------


def test_followers_ask_by_themselves_once_the_watcher_is_gone(client: Client) -> None:
    made = client.platform
    assert isinstance(made, Platform)
    client.settle()
    watch = WatchFollowed(made.context.cluster, "main")
    assert watch.watched.live

    program = watch.program()
    next(program)
    program.close()
    assert not watch.watched.live


# --- What waits for its turn ---------------------------------------------------------------------


@pytest.mark.parametrize("here", [True, False])
def test_who_follows_a_run_that_waits_for_a_place_waits_as_long(here: bool) -> None:
    """Longer than a run that nobody executes is waited for."""

    def narrow() -> Platform:
        limits = PlatformLimits(runs=1)
        slow = Model("slow", "echo", delay_seconds=DELAY)
        sloth = Agent(id="sloth", model="slow", database="main")
        return Platform(models=(slow,), agents=(sloth,), databases=IN_MEMORY, limits=limits)

    with Client(narrow) as client, client.peer() as peer:
        begin(client, "first")
        form = {"message": "hi", "session_id": "second"}
        joined = client.begin("POST", SLOW, form={**form, "stream": False})
        waiting = begin(client, "third")
        exchange = follow(client if here else peer, waiting)
        client.advance(DELAY - 1)
        assert not joined.done, joined.response()
        assert not exchange.done

        client.advance(2 * DELAY + 5)
        assert joined.response().json()["status"] == "COMPLETED"
        assert last(exchange) == "RunCompleted"
        assert [log for log in client.logs if log.event == "run_stalled"] == []
