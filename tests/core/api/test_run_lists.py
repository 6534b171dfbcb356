"""Lists of runs through their routes: whole, in order, and from link to link."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, Final

import pytest

from legation import Platform
from legation.api.listing import encode_cursor
from legation.config import Agent, Database
from legation.effects import Effect, Transact
from legation.http.messages import compact_json
from legation.store.failures import StatementFailed
from legation.store.run_pages import ReadRuns
from legation_testing import Client
from legation_testing.exchange import BadResponse

from ...callers import Issuer, demo

ISSUER: Final = Issuer()
LONG: Final = "m" * 200_000
LISTS: Final = ("/sessions/s/runs?db_id=main&", "/agents/concierge/runs?session_id=s&")


@pytest.fixture(scope="module", params=[("main",), ("away", "main")], ids=["one", "two databases"])
def client(request: pytest.FixtureRequest) -> Generator[Client]:
    """A session of eight runs in the last of the databases; four of them are long."""
    *others, last = request.param
    databases = tuple(Database(id=name, url=f"sqlite:///{name}.db") for name in (*others, last))
    platform = Platform(databases=databases, agents=(Agent(id="concierge", database=last),))
    with Client(platform) as client:
        for number in range(8):
            client.run("concierge", LONG if number % 2 else f"run {number}", session_id="s")
        yield client


def follow(client: Client, path: str) -> list[list[Any]]:
    """Return the pages of the list at `path`, from link to link."""
    pages: list[list[Any]] = []
    query: str | None = path.partition("?")[2]
    while query is not None:
        response = client.get(f"{path.partition('?')[0]}?{query}").expect_success()
        pages.append(response.json())
        link = response.header("link")
        found = re.fullmatch(r'<\?(.*)>; rel="next"', link) if link else None
        assert (link is None) == (found is None)
        query = None if found is None else found[1]
    return pages


@pytest.mark.parametrize("path", LISTS)
def test_a_list_longer_than_a_page_of_the_database_comes_whole(client: Client, path: str) -> None:
    response = client.get(path[:-1])

    assert [run["run_input"] for run in response.json()] == [
        LONG if number % 2 else f"run {number}" for number in range(8)
    ]
    assert response.body == compact_json(response.json()).encode()
    assert response.header("content-type") == "application/json"
    assert response.header("content-length") is None
    assert response.header("link") is None


@pytest.mark.parametrize("path", LISTS)
def test_links_lead_through_the_whole_list(client: Client, path: str) -> None:
    (whole,) = follow(client, path[:-1])

    for limit in (1, 3, 7, 8):
        pages = follow(client, f"{path}limit={limit}")
        assert [run for page in pages for run in page] == whole
        assert all(len(page) == limit for page in pages[:-1])
    by_number = [client.get(f"{path}limit=3&page={page}").json() for page in (1, 2, 3, 4)]
    assert [run for page in by_number for run in page] == whole


def test_a_page_and_a_cursor_do_not_add_up(client: Client) -> None:
    path = LISTS[0]
    cursor = encode_cursor((2,))

    assert client.get(f"{path}cursor={cursor}&page=5&limit=2").json() == (
        client.get(f"{path}limit=2&page=2").json()
    )
    assert client.get(f"{path}cursor=x").status == 422


@pytest.mark.parametrize("path", LISTS)
def test_head_has_the_headers_of_a_streamed_list(client: Client, path: str) -> None:
    head, get = (client.request(method, f"{path}limit=7") for method in ("HEAD", "GET"))

    assert (head.status, head.body) == (200, b"")
    assert [h for h in head.headers if h[0] != b"x-request-id"] == [
        h for h in get.headers if h[0] != b"x-request-id"
    ]


def test_a_session_has_what_was_said_in_long_runs(client: Client) -> None:
    path = "/sessions/s?db_id=main&"
    response = client.get(path[:-1])
    chat = response.json()["chat_history"]

    assert response.header("content-length") is None
    assert [message["role"] for message in chat] == ["user", "assistant"] * 8
    assert {message["content"] for message in chat if len(message["content"]) > 10} == {LONG}


def later_page(effect: Effect) -> bool:
    """Tell whether `effect` reads a page of runs that is not the first."""
    asked = effect.unit if isinstance(effect, Transact) else None
    return isinstance(asked, ReadRuns) and asked.numbers is not None


def test_a_list_whose_database_fails_midway_is_cut(client: Client) -> None:
    client.fail_at(later_page, StatementFailed("no"))

    with pytest.raises(BadResponse, match="cut"):
        client.get(LISTS[0][:-1])


def test_a_client_that_goes_ends_the_reading(client: Client) -> None:
    jobs = client.simulation.find_running()
    exchange = client.begin("GET", LISTS[0][:-1])
    exchange.disconnect()

    assert exchange.done
    assert client.simulation.find_running() == jobs


def test_a_cursor_opens_nothing() -> None:
    scopes = ("agents:alpha:run", "sessions:read")
    tokens = {sub: ISSUER.token(*scopes, sub=sub) for sub in ("ada", "eve")}
    with Client(lambda: demo(ISSUER), token=tokens["ada"]) as client:
        for number in range(3):
            client.run("alpha", f"mine {number}", session_id="s")
        link = client.get("/sessions/s/runs?limit=1").header("link")
        assert link is not None
        target = f"/sessions/s/runs{link[1 : link.index('>')]}"

        def runs(sub: str) -> Any:
            headers = {"authorization": f"Bearer {tokens[sub]}"}
            return client.get(target, headers=headers).json()

        assert [run["run_input"] for run in runs("ada")] == ["mine 1"]
        assert runs("eve")["error_code"] == "NOT_FOUND"
        form = {"message": "hers", "session_id": "s", "stream": False}
        headers = {"authorization": f"Bearer {tokens['eve']}"}
        for _ in range(2):
            client.post("/agents/alpha/runs", form=form, headers=headers).expect_success()
        assert [run["run_input"] for run in runs("eve")] == ["hers"]
