"""The cluster of a database as operators see it: nodes, clocks, and who is told of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from legation import Database
from legation.version import VERSION
from legation_testing import Client

from ....callers import Issuer, demo
from ....two_databases import IN_MEMORY

BEAT = 6


@pytest.fixture
def client() -> Generator[Client]:
    with Client(demo(None, databases=IN_MEMORY)) as client:
        yield client


def cluster(client: Client, name: str = "main") -> Any:
    return client.get("/ready").expect_success().json()["databases"][name]["cluster"]


def gauges(client: Client, name: str) -> dict[str, float]:
    """Return the samples of a measurement, by database."""
    text = client.get("/metrics/prometheus").text
    return {
        sample.labels["database"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_every_node_is_counted_in_each_database(client: Client) -> None:
    assert cluster(client) == {"nodes": 1, "clock_skew_seconds": 0.0}
    with client.peer(demo(None, databases=IN_MEMORY[:1])) as peer:
        client.advance(BEAT)

        assert [cluster(client)["nodes"], cluster(peer)["nodes"]] == [2, 2]
        assert gauges(client, "legation_nodes") == {"main": 2, "second": 1}
        assert gauges(client, "legation_nodes_lost_total") == {"main": 0, "second": 0}
    client.advance(BEAT)
    assert gauges(client, "legation_nodes") == {"main": 1, "second": 1}
    assert gauges(client, "legation_nodes_lost_total") == {"main": 1, "second": 0}


@pytest.mark.parametrize(
    ("seconds", "words"), [(90, "90.0 seconds ahead"), (-90, "90.0 seconds behind")]
)
def test_a_wrong_clock_is_measured_and_named_and_the_node_stays_ready(
    client: Client, seconds: int, words: str
) -> None:
    client.node.skew_us = seconds * 1_000_000
    client.advance(BEAT)
    told = cluster(client)

    assert told["clock_skew_seconds"] == seconds
    assert words in told["warning"]
    assert gauges(client, "legation_clock_skew_seconds") == {"main": seconds, "second": seconds}
    client.node.skew_us = 0
    client.advance(BEAT)
    assert cluster(client) == {"nodes": 1, "clock_skew_seconds": 0.0}


def test_a_difference_below_a_third_of_a_lease_is_measured_and_no_warning(client: Client) -> None:
    client.node.skew_us = 9_000_000
    client.advance(BEAT)

    assert cluster(client) == {"nodes": 1, "clock_skew_seconds": 9.0}


def test_before_the_first_beat_nothing_is_said() -> None:
    empty = Database("main", "sqlite://", auto_migrate=False)
    with Client(demo(None, databases=[empty])) as client:
        told = client.get("/databases/main").json()
        assert "cluster" not in told
        assert gauges(client, "legation_nodes") == {}


def test_administrators_read_the_names_of_nodes_and_nobody_else_does() -> None:
    issuer = Issuer()
    with Client(demo(issuer)) as client, client.peer(demo(issuer)) as peer:
        client.advance(BEAT)

        def told(*scopes: str) -> Any:
            token = issuer.token(*scopes)
            one = client.get("/databases/main", token=token).expect_success().json()["cluster"]
            (listed,) = client.get("/databases", token=token).expect_success().json()
            assert listed["cluster"] == one
            return one

        assert told("databases:read") == {"nodes": 2, "clock_skew_seconds": 0.0}
        members = told("platform:admin")["members"]
        assert [each["node"] for each in members] == [client.node.name, peer.node.name]
        assert {each["release"] for each in members} == {VERSION}
        assert members[0]["since"] == "2026-01-01T00:00:00Z"
        bare = client.get("/ready", token=issuer.token()).json()["databases"]["main"]
        assert "cluster" not in bare
        ready = client.get("/ready", token=issuer.token("platform:admin")).json()
        assert "members" not in ready["databases"]["main"]["cluster"]


def test_where_authorization_is_off_everybody_is_an_administrator(client: Client) -> None:
    told = client.get("/databases/second").json()["cluster"]

    assert [each["node"] for each in told["members"]] == [client.node.name]
