"""Counts of refusals as an operator reads them: page by page, of one client or of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from legation import Database
from legation.api.handlers.refusals import RefusalSum, add_up_refusals
from legation.effects import Program, Transact
from legation.store.refusals import OTHERS, AddRefusals, RefusalCount
from legation_testing import Client

from ....callers import Issuer, demo

ISSUER: Final = Issuer()
DATABASES: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))
READER: Final = ISSUER.token("audit:read", sub="auditor")
MINUTE: Final = 29_454_000  # 2026-01-01T04:00Z
COUNTS: Final = tuple(
    RefusalCount(MINUTE + number // 6, client, route, 401, number + 1)
    for number, (client, route) in enumerate(
        (client, route)
        for _ in range(4)
        for client in ("192.0.2.1", "192.0.2.2", "2001:db8::/64")
        for route in ("*", "/me")
    )
)


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(demo(ISSUER, databases=DATABASES), token=READER) as client:
        add(client, *COUNTS)
        yield client


def add(client: Client, *counted: RefusalCount, database: str = "main") -> None:
    def program() -> Program[None]:
        yield from Transact(database, AddRefusals(counted))

    client.simulation.run(program())


def page(c: Client, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = c.get("/audit/refusals", query=query).json()["data"]
    return found


@pytest.mark.parametrize(
    ("scopes", "status"),
    [(("audit:read",), 200), (("platform:admin",), 200), (("metrics:read",), 403), ((), 403)],
    ids=str,
)
def test_the_scope_is_that_of_the_trail(
    client: Client, scopes: tuple[str, ...], status: int
) -> None:
    assert client.get("/audit/refusals", token=ISSUER.token(*scopes)).status == status


def test_a_row_says_when_to_whom_where_and_how_often(client: Client) -> None:
    first, *_, last = page(client)

    assert first == {
        "at": "2026-01-01T04:03:00Z",
        "client": "2001:db8::/64",
        "route": "/me",
        "status": 401,
        "count": 24,
    }
    assert (last["at"], last["client"], last["count"]) == ("2026-01-01T04:00:00Z", "192.0.2.1", 1)


def test_what_had_no_row_of_its_own_has_no_status(client: Client) -> None:
    add(client, RefusalCount(MINUTE + 9, OTHERS, "*", 0, 7))

    assert page(client, limit=1) == [
        {
            "at": "2026-01-01T04:09:00Z",
            "client": "others",
            "route": "*",
            "status": None,
            "count": 7,
        }
    ]


@pytest.mark.parametrize("limit", [1, 5, 23, 24, 25])
def test_pages_are_disjoint_and_complete_by_cursor_and_by_link(client: Client, limit: int) -> None:
    found: list[int] = []
    target = f"/audit/refusals?limit={limit}"
    while target:
        answer = client.get(target)
        found += [row["count"] for row in answer.json()["data"]]
        following = answer.json()["meta"]["next_cursor"]
        link = answer.header("link")
        assert (link is None) == (following is None)
        target = ""
        if link is not None:
            assert following in link
            target = f"/audit/refusals{link.partition('<')[2].partition('>')[0]}"

    assert found == list(range(24, 0, -1))


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"client": "192.0.2.1"}, 8),
        ({"client": "2001:db8::1"}, 8),
        ({"client": "2001:db8::/64"}, 8),
        ({"client": "192.0.2.9"}, 0),
        ({"since": MINUTE * 60 + 61}, 18),
        ({"until": MINUTE * 60 + 60}, 6),
        ({"until": MINUTE * 60 + 61}, 12),
        ({"until": MINUTE * 60}, 0),
        ({"since": MINUTE * 60 + 60, "until": MINUTE * 60 + 120}, 6),
        ({"db_id": "main"}, 24),
        ({"db_id": "second"}, 0),
    ],
    ids=str,
)
def test_filters_narrow_the_page(client: Client, query: dict[str, Any], count: int) -> None:
    assert len(page(client, **query)) == count


@pytest.mark.parametrize(
    "query",
    ["db_id=third", "limit=0", "since=-1", "cursor=A", "cursor=bnVsbA", "unknown=1"],
)
def test_a_bad_query_is_refused(client: Client, query: str) -> None:
    response = client.get(f"/audit/refusals?{query}")

    assert response.status == 422
    assert response.json()["errors"][0]["path"].startswith(f"query.{query.partition('=')[0]}")


@pytest.mark.parametrize("batches", [0, 2])
def test_the_counts_of_many_minutes_add_up_the_greatest_first(client: Client, batches: int) -> None:
    for minute in range(batches):
        flood = (RefusalCount(MINUTE + 60 * minute, f"{n:04}", "/me", 401, 1) for n in range(800))
        add(client, *flood)
    summed = client.simulation.run(add_up_refusals("main", MINUTE))
    later = client.simulation.run(add_up_refusals("main", MINUTE + 3, "2001:db8::/64"))

    assert sum(one.count for one in summed) == 300 + 800 * batches
    assert len(summed) == 6 + 800 * bool(batches)
    assert summed[0] == RefusalSum("2001:db8::/64", "/me", 401, 6 + 12 + 18 + 24)
    assert later == (
        RefusalSum("2001:db8::/64", "/me", 401, 24),
        RefusalSum("2001:db8::/64", "*", 401, 23),
    )


def test_what_is_refused_is_there_when_its_minute_is_over(client: Client) -> None:
    client.get("/agents/alpha", token="")
    assert page(client, since=1) == page(client)
    client.advance(75.0)

    (row,) = [row for row in page(client) if row["client"] == "127.0.0.1"]
    assert (row["route"], row["status"], row["count"]) == ("/agents/{agent_id}", 401, 1)


def test_the_counts_are_among_the_measurements(client: Client) -> None:
    for _ in range(3):
        client.get("/agents", token="")
    text = client.get("/metrics/prometheus", token=ISSUER.token("metrics:read")).text

    assert 'legation_anonymous_refusals_total{status="401"} 3\n' in text
    assert "unlogged" not in text
