from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from legation import Agent, Database, Platform, Team
from legation.api.handlers.collections import COLLECTIONS, Collection
from legation_testing import Client

from ....callers import Issuer, demo

PAGES = [c for c in COLLECTIONS if c.body is None]


def platform(**more: Any) -> Platform:
    return Platform(
        agents=(Agent(id="quick", database="second"),),
        teams=(Team(id="desk", members=("quick",)),),
        databases=(Database("main", "sqlite://"), Database("second", "sqlite://")),
        **more,
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/workflows", []),
        ("/memory_topics", []),
        ("/metrics", {"metrics": [], "updated_at": None}),
        (
            "/knowledge/config",
            {
                "readers": {},
                "readersForType": {},
                "chunkers": {},
                "filters": [],
                "vector_dbs": [],
                "remote_content_sources": [],
            },
        ),
    ],
)
def test_what_is_not_kept_here_answers_that_there_is_nothing(
    client: Client, path: str, body: Any
) -> None:
    answer = client.get(path)

    assert (answer.status, answer.json()) == (200, body)


@pytest.mark.parametrize("collection", PAGES, ids=lambda c: c.operation)
def test_a_page_of_nothing_says_which_page_it_is(client: Client, collection: Collection) -> None:
    first = client.get(collection.path).json()
    third = client.get(collection.path, query={"page": 3, "limit": 7}).json()

    nothing = {"total_pages": 0, "total_count": 0, "search_time_ms": 0.0}
    assert first == {"data": [], "meta": {"page": 1, "limit": collection.page_size, **nothing}}
    assert third == {"data": [], "meta": {"page": 3, "limit": 7, **nothing}}


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda c: c.operation)
def test_what_agentos_filters_by_passes_and_anything_else_does_not(
    client: Client, collection: Collection
) -> None:
    filters = dict.fromkeys(collection.filters, "x")

    assert client.get(collection.path, query=filters).status == 200
    assert client.get(collection.path, query={"nonsense": "x"}).status == 422
    assert client.get(f"{collection.path}?%zz").status == 422


@pytest.mark.parametrize("query", [{"page": 0}, {"limit": 0}, {"limit": 1001}, {"page": "x"}])
def test_pages_are_within_bounds(client: Client, query: dict[str, Any]) -> None:
    assert client.get("/memories", query=query).status == 422


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda c: c.operation)
def test_each_is_under_the_scope_that_agentos_asks_for(collection: Collection) -> None:
    issuer = Issuer()
    with Client(demo(issuer)) as client:
        allowed = client.get(
            collection.path, token=issuer.token(f"{collection.resource}:read", sub="ada")
        )
        others = issuer.token(f"{collection.resource}:write", "agents:read", sub="ada")
        refused = client.get(collection.path, token=others)
        unknown = client.get(collection.path)

    assert (allowed.status, refused.status, unknown.status) == (200, 403, 401)


def test_the_configuration_has_every_section_that_a_gateway_looks_up(client: Client) -> None:
    config = client.get("/config").json()

    for section, tables in (
        ("session", ["sessions"]),
        ("metrics", ["metrics"]),
        ("memory", ["memories"]),
        ("evals", ["eval_runs"]),
        ("traces", None),
    ):
        named = [(entry["db_id"], entry.get("tables")) for entry in config[section]["dbs"]]
        assert named == [("main", tables), ("second", tables)]
    assert config["knowledge"] == {"dbs": [], "knowledge_instances": []}
    assert config["workflows"] == []
