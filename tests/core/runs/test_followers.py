"""Streams of runs while their process ends: which come to their end here, and which are cut."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from legation import Platform
from legation.access.decide import Principal
from legation.config import Agent, Model, Team
from legation.store.run_reads import EventsPage, FetchEvents
from legation_testing import BadResponse, Client, ClientResponse, Exchange

from ...callers import NOW, Issuer

SLOW = "/agents/sloth/runs"
PATIENCE = 20.0
GRACE = 5.0


def platform() -> Platform:
    return Platform(
        models=(Model("slow", "echo", delay_seconds=10.0),),
        agents=(Agent(id="sloth", model="slow"), Agent(id="quick")),
        teams=(Team(id="crew", members=("sloth",), mode="collaborate", model="echo"),),
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


@pytest.fixture
def peer(client: Client) -> Generator[Client]:
    with client.peer() as peer:
        yield peer


def streamed(client: Client, session_id: str = "s", path: str = SLOW) -> tuple[Exchange, str]:
    """Begin a run whose events are streamed; return the exchange and the run's id."""
    exchange = client.begin("POST", path, form={"message": "hi", "session_id": session_id})
    client.settle()
    runs = client.get(f"/sessions/{session_id}/runs").json()
    return exchange, runs[-1]["run_id"]


def drain(client: Client, patience_seconds: float = PATIENCE, grace_seconds: float = GRACE) -> Any:
    """Begin the end of the process; return the task of it."""
    made = client.platform
    assert isinstance(made, Platform)
    program = made.shutdown(patience_seconds, grace_seconds)
    return client.simulation.start(program, "closing", node=client.node)


def names(exchange: Exchange | ClientResponse) -> list[str]:
    return [event.name for event in exchange.events()]


def departure(path: str, run_id: str, seq: int) -> bytes:
    where = f"{path}/{run_id}/events and Last-Event-ID {run_id}:{seq}"
    return f": this server ends; go on with GET {where}\n\n".encode()


def test_a_stream_of_a_run_that_is_executed_here_has_the_whole_drain(client: Client) -> None:
    exchange, _ = streamed(client)
    closing = drain(client)
    client.advance(GRACE + 1)

    assert not exchange.done
    assert exchange.response().events()[-1].name == "RunCompleted"
    client.advance(1)
    assert closing.done


def test_a_stream_whose_run_is_broken_off_is_cut_and_the_run_goes_on_elsewhere(
    client: Client, peer: Client
) -> None:
    exchange, run_id = streamed(client)
    drain(client, 2.0)
    client.advance(4)

    assert names(exchange)[:2] == ["RunStarted", "ModelRequestStarted"]
    assert exchange.received.endswith(departure(SLOW, run_id, len(names(exchange))))
    events = peer.get(f"{SLOW}/{run_id}/events").events()
    assert [event.name for event in events[1:5]] == [
        "ModelRequestStarted",
        "RunContinued",
        "ModelRequestStarted",
        "RunContent",
    ]
    assert [json.loads(event.data).get("again") for event in events[1:4]] == [None, None, True]
    assert json.loads(events[2].data)["resumed"] is True
    assert events[-1].name == "RunCompleted"


def test_a_stream_of_a_run_that_another_executes_is_cut_after_the_grace(
    client: Client, peer: Client
) -> None:
    _, run_id = streamed(client)
    exchange = peer.begin("GET", f"{SLOW}/{run_id}/events")
    peer.settle()
    closing = drain(peer)
    peer.advance(GRACE - 1)

    assert not exchange.done
    peer.advance(3)
    assert exchange.received.endswith(departure(SLOW, run_id, 2))
    assert names(exchange) == ["RunStarted", "ModelRequestStarted"]
    with pytest.raises(BadResponse, match="not whole"):
        exchange.response()
    assert closing.done


def test_whoever_is_sent_elsewhere_goes_on_behind_the_last_event(
    client: Client, peer: Client
) -> None:
    _, run_id = streamed(client)
    exchange = peer.begin("GET", f"{SLOW}/{run_id}/events")
    peer.settle()
    drain(peer)
    peer.advance(GRACE + 2)
    last = exchange.events()[-1].id
    assert last is not None

    headers = {"last-event-id": last}
    rest = client.get(f"{SLOW}/{run_id}/events", headers=headers).events()
    assert rest[-1].name == "RunCompleted"
    assert not {event.id for event in rest} & {event.id for event in exchange.events()}


def test_a_stream_of_a_run_that_waits_is_cut_and_the_run_goes_on_elsewhere(
    client: Client, peer: Client
) -> None:
    first, _ = streamed(client)
    second, run_id = streamed(client)
    drain(client)
    client.advance(12)

    assert names(first)[-1] == "RunCompleted"
    assert second.received.endswith(departure(SLOW, run_id, 0))
    events = peer.get(f"{SLOW}/{run_id}/events").events()
    assert events[-1].name == "RunCompleted"


def test_a_stream_of_a_run_that_is_given_back_is_cut(client: Client, peer: Client) -> None:
    """Whoever comes next executes it, and no end is stored."""
    first, _ = streamed(client)
    second, run_id = streamed(client)
    drain(client, 1.0, 0.5)
    client.advance(4)

    assert names(first)[-1] == "ModelRequestStarted"
    assert second.received.endswith(departure(SLOW, run_id, 0))
    assert peer.get(f"{SLOW}/{run_id}/events").events()[-1].name == "RunCompleted"


def test_a_stream_that_is_resumed_is_cut_as_any_other(client: Client, peer: Client) -> None:
    _, run_id = streamed(client)
    exchange = peer.begin("POST", f"{SLOW}/{run_id}/resume")
    peer.settle()
    drain(peer)
    peer.advance(GRACE + 2)

    assert names(exchange) == ["catch_up", "RunStarted", "ModelRequestStarted", "subscribed"]
    assert exchange.received.endswith(departure(SLOW, run_id, 2))


def test_a_stream_that_is_resumed_as_its_run_is_deleted_says_so(client: Client) -> None:
    _, run_id = streamed(client)
    client.fail_at(FetchEvents, EventsPage((), None, 0))

    assert names(client.post(f"{SLOW}/{run_id}/resume")) == ["RunCancelled"]


def test_a_stream_of_a_member_stays_where_the_team_is_executed(
    client: Client, peer: Client
) -> None:
    _, team_id = streamed(client, path="/teams/crew/runs")
    client.advance(1)
    listed = client.get(SLOW, query={"session_id": "s"}).json()
    (run_id,) = [run["run_id"] for run in listed]
    assert run_id != team_id
    here = client.begin("GET", f"{SLOW}/{run_id}/events")
    there = peer.begin("GET", f"{SLOW}/{run_id}/events")
    client.settle()
    drain(client)
    drain(peer)
    client.advance(GRACE + 2)

    assert not here.done
    seq = (there.events()[-1].id or "").rpartition(":")[2]
    assert there.received.endswith(departure(SLOW, run_id, int(seq)))
    assert here.response().events()[-1].name == "RunCompleted"


def test_what_a_request_asks_for_that_still_comes_is_executed(client: Client) -> None:
    made = client.platform
    assert isinstance(made, Platform)
    is_open = True
    program = made.shutdown(PATIENCE, GRACE, lambda: is_open)
    closing = client.simulation.start(program, "closing", node=client.node)
    client.advance(GRACE + 1)
    assert not closing.done

    assert client.run("quick", "hi")["status"] == "COMPLETED"
    is_open = False
    client.advance(0.1)
    assert closing.done


def test_a_cut_stream_is_counted_as_cut(client: Client, peer: Client) -> None:
    _, run_id = streamed(client)
    made = peer.platform
    assert isinstance(made, Platform)
    peer.begin("GET", f"{SLOW}/{run_id}/events")
    peer.settle()
    assert made.telemetry.streams == 1
    drain(peer, 1.0, 0.0)
    peer.advance(2)

    assert made.telemetry.streams == 0
    assert made.context.followers == 0


def test_a_stream_that_does_not_end_is_no_work_at_hand(client: Client) -> None:
    """Its client may be slow to read; the connection is cut by whoever holds it."""
    made = client.platform
    assert isinstance(made, Platform)
    made.context.followers = 1
    closing = drain(client, 0.0)
    client.advance(3)

    assert closing.done
    assert "shutdown_incomplete" not in [log.event for log in client.logs]


def test_who_waits_for_a_run_that_is_broken_off_is_told_where_it_goes_on(
    client: Client, peer: Client
) -> None:
    """The same request under the same key finds the run, on whatever node."""
    form = {"message": "hi", "session_id": "s", "stream": False}
    headers = {"idempotency-key": "k"}
    waiting = client.begin("POST", SLOW, form=form, headers=headers)
    client.settle()
    drain(client, 2.0)
    client.advance(2.1)

    response = waiting.response()
    assert (response.status, response.header("retry-after")) == (503, "1")
    assert "goes on elsewhere" in response.json()["detail"]
    (run,) = client.get("/sessions/s/runs").json()
    assert run["run_id"] in response.json()["detail"]
    peer.advance(15)
    again = peer.post(SLOW, form=form, headers=headers).json()
    assert (again["run_id"], again["status"]) == (run["run_id"], "COMPLETED")


def test_who_follows_a_run_that_is_released_is_told_at_once(client: Client) -> None:
    exchange, run_id = streamed(client)
    client.advance(5)
    drain(client, 2.0)
    client.advance(2.2)

    assert exchange.received.endswith(departure(SLOW, run_id, 2))


# --- Tokens --------------------------------------------------------------------------------------

ISSUER = Issuer(kid="k")
EVENTS = "/agents/sloth/runs/{}/events"


def guarded() -> Platform:
    return Platform(
        authorization=True,
        authorization_config=ISSUER.authorization(revocations_file="revoked.json"),
        revocations=b"{}",
        models=(Model("slow", "echo", delay_seconds=60.0),),
        agents=(Agent(id="sloth", model="slow"),),
        teams=(Team(id="crew", members=("sloth",), mode="collaborate", model="echo"),),
    )


@pytest.fixture
def bank() -> Generator[Client]:
    with Client(guarded) as client:
        yield client


def bearer(seconds: float | None, **claims: Any) -> str:
    exp = None if seconds is None else NOW + seconds
    return ISSUER.token("agents:run", "agents:read", "teams:run", exp=exp, **claims)


def token_end(detail: str, path: str, run_id: str, seq: int) -> dict[str, Any]:
    return {
        "event": "token_expired",
        "detail": detail,
        "error_code": "UNAUTHENTICATED",
        "path": f"{path}/{run_id}/events",
        "last_event_id": f"{run_id}:{seq}",
    }


def begin(client: Client, token: str, path: str = SLOW) -> tuple[Exchange, str]:
    form = {"message": "hi", "session_id": "s"}
    exchange = client.begin("POST", path, form=form, token=token)
    client.settle()
    return exchange, json.loads(exchange.events()[0].data)["run_id"]


@pytest.mark.parametrize("seconds", [3.0, 3.25, 2.999])
def test_a_stream_ends_with_its_token_and_the_run_goes_on(bank: Client, seconds: float) -> None:
    exchange, run_id = begin(bank, bearer(seconds))
    bank.advance(seconds + 10 - 0.01)
    assert not exchange.done

    bank.advance(0.02)
    assert exchange.done
    last = exchange.events()[-1]
    assert (last.name, json.loads(last.data)) == (
        "token_expired",
        token_end("Token has expired", SLOW, run_id, len(names(exchange)) - 1),
    )
    with pytest.raises(BadResponse, match="not whole"):
        exchange.response()
    said = json.loads(last.data)
    headers = {"last-event-id": said["last_event_id"]}
    rest = bank.get(said["path"], headers=headers, token=bearer(999))
    assert [event.name for event in rest.events()][-1] == "RunCompleted"
    assert len(names(exchange)) - 1 + len(rest.events()) == json.loads(
        str(rest.events()[-1].id).rpartition(":")[2]
    )


def test_a_stream_ends_when_its_token_is_revoked(bank: Client) -> None:
    exchange, run_id = begin(bank, bearer(None, jti="t1"))
    other, _ = begin_events(bank, run_id, bearer(None, jti="t2"))
    assert isinstance(bank.platform, Platform)
    bank.platform.load_revocations(b'{"tokens": ["t1"]}', (NOW + 1) * 1_000_000)
    bank.advance(1.1)

    assert json.loads(exchange.events()[-1].data)["detail"] == "Invalid token"
    assert not other.done
    bank.advance(60)
    assert names(other)[-1] == "RunCompleted"


def begin_events(client: Client, run_id: str, token: str) -> tuple[Exchange, str]:
    exchange = client.begin("GET", EVENTS.format(run_id), token=token)
    client.settle()
    return exchange, run_id


def test_the_stream_of_a_member_ends_with_its_token(bank: Client) -> None:
    whole, _ = begin(bank, bearer(None), "/teams/crew/runs")
    member = next(
        said["run_id"]
        for said in (json.loads(event.data) for event in whole.events())
        if said.get("agent_id") == "sloth"
    )
    exchange, _ = begin_events(bank, member, bearer(3))
    bank.advance(13.01)

    assert json.loads(exchange.events()[-1].data) == token_end(
        "Token has expired", SLOW, member, len(names(exchange)) - 1
    ) | {"last_event_id": json.loads(exchange.events()[-1].data)["last_event_id"]}
    assert not whole.done
    lasting, _ = begin_events(bank, member, bearer(None))
    bank.advance(90)
    assert names(lasting)[-1] == "RunCompleted"


def test_a_stream_for_which_an_outer_application_vouches_has_no_token(bank: Client) -> None:
    bank.caller = Principal("ann", ["agents:run"])
    exchange, _ = begin(bank, bearer(1))
    bank.advance(30)

    assert not exchange.done
