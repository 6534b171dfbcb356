"""`Call`: the shares that a request takes before it reads a body or waits for a run."""

from __future__ import annotations

from typing import Any, Final

import pytest

from legation import Agent, CustomRoute, Database, Model, Platform, Request, Streamed
from legation.access.scopes import AnyToken
from legation.api.call import Call
from legation.effects import Emit, Program, Sleep
from legation.shares.limits import LimitOverrides, NodeLimits, PlatformLimits
from legation_testing import Client
from legation_testing.exchange import Exchange

from ...callers import Issuer, demo

ISSUER = Issuer()
ADA, EVE = (ISSUER.token("agents:run", "sessions:read", sub=name) for name in ("ada", "eve"))
RUNS = "/agents/sloth/runs"
HOOK = "/chat/webhook"


def make(**limits: Any) -> Platform:
    return demo(
        ISSUER,
        models=[Model("slow", "echo", delay_seconds=30.0)],
        agents=[
            Agent("sloth", model="slow"),
            Agent("snail", model="slow", database="second", limits=LimitOverrides(streams=1)),
            Agent("alpha"),
            Agent("beta"),
        ],
        databases=[Database("main", "sqlite://"), Database("second", "sqlite://")],
        limits=PlatformLimits(**limits),
    )


def begin(client: Client, token: str, path: str = RUNS, **fields: Any) -> Exchange:
    """Begin a run and let it go as far as it can."""
    exchange = client.begin("POST", path, form={"message": "hi", **fields}, token=token)
    client.settle()
    return exchange


def taken(platform: Platform) -> list[int]:
    """Return how many streams, followers and bytes of bodies are held."""
    shares = platform.context.shares
    return [one.total for one in (shares.streams, shares.followers, shares.bodies)]


def refusal(exchange: Exchange) -> tuple[int, str, str | None]:
    answer = exchange.response()
    return answer.status, answer.json()["error_code"], answer.header("ratelimit-policy")


TOO_MANY = (429, "TOO_MANY_REQUESTS")


def test_streams_beyond_the_share_are_refused_and_nothing_is_stored() -> None:
    platform = make(streams=2)
    with Client(platform) as client:
        streams = [begin(client, ADA) for _ in range(3)]

        assert [one.done for one in streams] == [False, False, True]
        assert refusal(streams[2]) == (*TOO_MANY, '"streams";q=2;qu="concurrent-requests"')
        assert len(client.get("/sessions?db_id=main", token=ADA).json()["data"]) == 2
        assert not begin(client, EVE).done
        assert not begin(client, ADA, stream=False).done
        assert begin(client, ADA, background=True).response().status == 202
        assert platform.context.shares.refused == {"streams": 1}

        streams[0].disconnect()
        client.settle()
        assert not begin(client, ADA).done
        assert taken(platform)[0] == 3


def test_joined_runs_and_streams_share_the_places_of_who_waits() -> None:
    platform = make(followers=2)
    with Client(platform) as client:
        begun = [begin(client, ADA, stream=stream) for stream in (True, False, True, False)]

        assert [one.done for one in begun] == [False, False, True, True]
        assert {refusal(one) for one in begun[2:]} == {
            (*TOO_MANY, '"followers";q=2;qu="concurrent-requests"')
        }
        [run, *_] = client.get("/sessions?db_id=main", token=ADA).json()["data"]
        run_id = client.get(f"/sessions/{run['session_id']}/runs?db_id=main", token=ADA).json()[0][
            "run_id"
        ]
        events = client.begin("GET", f"{RUNS}/{run_id}/events", token=ADA)
        resumed = client.begin("POST", f"{RUNS}/{run_id}/resume", form={}, token=ADA)
        assert [refusal(one)[:2] for one in (events, resumed)] == [TOO_MANY] * 2

        client.advance(60.0)
        assert [one.done for one in begun[:2]] == [True, True]
        assert taken(platform) == [0, 0, 0]


def test_an_agent_with_limits_has_an_account_of_its_own() -> None:
    platform = make()
    with Client(platform) as client:
        streams = [begin(client, ADA, "/agents/snail/runs") for _ in range(2)]

        assert [one.done for one in streams] == [False, True]
        assert not begin(client, EVE, "/agents/snail/runs").done
        assert not begin(client, ADA).done


def count_up(_: Call) -> Streamed:
    """Answer with numbers, one an hour."""
    return Streamed(200, ((b"content-type", b"text/plain"),), _emit_numbers())


def _emit_numbers() -> Program[None]:
    for number in range(24):
        yield from Emit(b"%d" % number)
        yield from Sleep(3600.0)


NUMBERS: Final = CustomRoute(
    "GET", "/numbers", AnyToken(), count_up, operation="count_up", summary="Count up"
)


def test_whatever_is_streamed_takes_a_place_of_a_stream() -> None:
    platform = demo(ISSUER, routes=[NUMBERS], limits=PlatformLimits(streams=1))
    with Client(platform) as client:
        stream = client.begin("GET", "/numbers", token=ADA)
        client.settle()

        assert taken(platform) == [1, 0, 0]
        assert client.get("/numbers", token=ADA).status == 429
        stream.disconnect()
        client.settle()
        assert client.request("HEAD", "/numbers", token=ADA).status == 200
        assert taken(platform) == [0, 0, 0]


def test_a_stream_that_nobody_begins_to_read_gives_its_place_back() -> None:
    platform = make()
    with Client(platform) as client:
        headers = ((b"authorization", b"Bearer " + ADA.encode()), (b"content-length", b"10"))
        form = ((b"content-type", b"application/x-www-form-urlencoded"),)
        request = Request("POST", RUNS, (*headers, *form))
        answer: Any = client.simulation.run(platform.answer(request), body=b"message=hi")
        assert taken(platform) == [1, 1, 0]
        answer.body.close()

        assert taken(platform) == [0, 0, 0]


# --- bodies -------------------------------------------------------------------------------------


def post(client: Client, size: int, token: str = ADA, **more: Any) -> Exchange:
    """Send a run with a body of so many bytes and more, and let it go as far as it can."""
    body = b'{"message":"hi","stream":false,"metadata":{"a":"' + b"x" * size + b'"}}'
    headers = {"content-type": "application/json", **more}
    exchange = client.begin("POST", RUNS, body=body, headers=headers, token=token)
    client.settle()
    return exchange


def test_all_bodies_share_one_budget_of_bytes_and_nobody_takes_all_of_it() -> None:
    platform = make(node=NodeLimits(body_bytes=16 << 20))
    with Client(platform) as client:
        begun = [post(client, 3_000_000) for _ in range(4)]

        assert [one.done for one in begun] == [False, False, False, True]
        assert refusal(begun[3]) == (*TOO_MANY, '"bodies";q=16777216;qu="content-bytes"')
        assert taken(platform)[2] > 9_000_000
        assert not post(client, 3_000_000, EVE).done
        assert not begin(client, ADA, stream=False).done

        client.advance(600.0)
        assert taken(platform) == [0, 0, 0]


def test_a_body_under_a_key_is_held_once_until_its_answer() -> None:
    platform = make()
    with Client(platform) as client:
        exchange = post(client, 900_000, **{"idempotency-key": "k"})
        held = taken(platform)[2]

        assert not exchange.done
        assert 900_000 <= held <= 900_100
        exchange.disconnect()
        client.settle()
        assert taken(platform)[2] == 0


@pytest.mark.parametrize("declared", ["9", "99999999"], ids=["small", "beyond its limit"])
def test_a_body_that_is_small_or_not_read_takes_nothing(declared: str) -> None:
    platform = make(node=NodeLimits(body_bytes=16 << 20))
    platform.context.shares.bodies.take("eve", 16 << 20)
    with Client(platform) as client:
        answer = client.post(
            RUNS, body=b"message=h", headers={"content-length": declared}, token=ADA
        )

        assert answer.status in (413, 415)


def test_webhooks_are_read_within_the_bytes_of_their_address() -> None:
    platform = make(node=NodeLimits(body_bytes=16 << 20))
    platform.context.shares.bodies.take("eve", 15 << 20)
    with Client(platform) as client:
        answers = [client.post(HOOK, body=b"x" * size).status for size in (9_999, 2 << 20)]

    assert answers == [403, 429]


def test_no_operation_reads_a_body_where_there_is_no_room_for_it() -> None:
    platform = make(node=NodeLimits(body_bytes=16 << 20))
    platform.context.shares.bodies.take("eve", 16 << 20)
    writer = ISSUER.token("sessions:write")
    with Client(platform) as client:
        state = {"session_state": {"a": "x" * 20_000}}
        made = client.post("/sessions?db_id=main", json=state, token=writer)
        keyed = post(client, 20_000, **{"idempotency-key": "k"})

        assert [made.status, keyed.response().status] == [429, 429]


def test_the_json_of_a_form_is_measured_before_it_is_parsed() -> None:
    with Client(make()) as client:
        body = b'{"message":[' + b"1," * 60_000 + b"1]}"
        headers = {"content-type": "application/json"}

        assert client.post(RUNS, body=body, headers=headers, token=ADA).status == 413
