from __future__ import annotations

from functools import reduce
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from legation import Agent, Database, NodeLimits, Platform, PlatformLimits
from legation.config import Model
from legation.effects import Unreachable
from legation.migrations.catalogue import CATALOGUE
from legation.observability.merging import Snapshot, choose_newest, merge
from legation.observability.prometheus import Family, Sample
from legation.store.counts import CountRuns
from legation.store.failures import Unavailable
from legation_testing import Client, ClientResponse

from ....callers import Issuer, demo
from ....providers.deliveries import platform as correspondent
from ....providers.deliveries import whatsapp

PATH: Final = "/metrics/prometheus"
LATEST: Final = str(CATALOGUE.latest)


def slow() -> Platform:
    """Return a platform whose agent takes a minute to answer."""
    models = [Model(name="slow", provider="echo", delay_seconds=60)]
    return demo(None, agents=[Agent(id="alpha", model="slow"), Agent(id="beta")], models=models)


def counts(effect: object) -> bool:
    return isinstance(getattr(effect, "unit", None), CountRuns)


def read(response: ClientResponse) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the value of each sample, by its name and the values of its labels."""
    assert response.status == 200
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_requests_are_told_by_route_and_never_by_path() -> None:
    with Client(demo(None)) as client:
        for path in ("/agents/alpha", "/agents/secret", "/agents/alpha", "/secret"):
            client.get(path)
        response = client.get(PATH)
        found = read(response)
    count = "legation_http_request_duration_seconds_count"

    assert found[count, ("/agents/{agent_id}", "GET", "2xx")] == 2
    assert found[count, ("/agents/{agent_id}", "GET", "4xx")] == 1
    assert found[count, ("*", "GET", "4xx")] == 1
    assert found["legation_http_requests_active", ()] == 1
    assert "secret" not in response.text
    assert response.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"


def test_a_stream_is_active_until_its_end_and_so_is_its_run() -> None:
    with Client(slow()) as client:
        exchange = client.begin("POST", "/agents/alpha/runs", form={"message": "hi"})
        client.settle()
        found = read(client.get(PATH))
        assert found["legation_http_streams_active", ()] == 1
        assert found["legation_http_requests_active", ()] == 2
        assert found["legation_runs", ("main", "RUNNING")] == 1
        assert exchange.response().status == 200
        assert read(client.get(PATH))["legation_http_streams_active", ()] == 0


def test_a_stream_whose_client_leaves_is_cut() -> None:
    with Client(slow()) as client:
        exchange = client.begin("POST", "/agents/alpha/runs", form={"message": "hi"})
        client.settle()
        exchange.disconnect()
        client.settle()
        found = read(client.get(PATH))

    assert found["legation_http_requests_cut_total", ("/agents/{agent_id}/runs", "POST")] == 1
    assert found["legation_http_streams_active", ()] == 0
    assert found["legation_http_requests_active", ()] == 1


def test_it_says_what_is_running() -> None:
    with Client(demo(None), start_us=1_767_225_600_500_000) as client:
        found = read(client.get(PATH))

    assert found["legation_build_info", ("0.1.0", "2.5.6")] == 1
    assert found["legation_start_time_seconds", ()] == 1_767_225_600.5


def test_the_databases_say_what_is_to_do() -> None:
    with Client(demo(None)) as client:
        client.run("alpha", "hi")
        found = read(client.get(PATH))

    assert found["legation_database_serving", ("main",)] == 1
    assert found["legation_schema_info", ("main", "sqlite", LATEST, LATEST, "current")] == 1
    assert found["legation_runs", ("main", "PENDING")] == 0
    assert found["legation_runs", ("main", "RUNNING")] == 0
    assert found["legation_runs_ended_total", ("agent", "alpha", "COMPLETED")] == 1


def test_messages_and_replies_that_wait_are_counted_by_channel() -> None:
    sent = whatsapp(("4911", "a", "hi"))
    with Client(correspondent, fetch=lambda _: Unreachable("connect")) as client:
        client.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        client.advance(10)
        found = read(client.get(PATH))

    assert found["legation_outbox_replies", ("main", "whatsapp", "ready")] == 1
    assert found["legation_outbox_replies", ("main", "whatsapp", "dead")] == 0


def test_what_the_databases_said_is_good_for_five_seconds() -> None:
    def asked(client: Client) -> int:
        read(client.get(PATH))
        return sum(counts(performed.effect) for performed in client.effects)

    with Client(demo(None)) as client:
        assert [asked(client), asked(client)] == [1, 1]
        client.advance(4.9)
        assert asked(client) == 1
        client.advance(0.2)
        assert asked(client) == 2


def test_a_database_that_does_not_answer_is_told_and_nothing_is_counted() -> None:
    with Client(demo(None)) as client:
        client.fail_at(counts, Unavailable())
        found = read(client.get(PATH))
        assert not [key for key in found if key[0] == "legation_runs"]


def test_a_database_that_is_behind_is_not_asked() -> None:
    databases = [Database("main", "sqlite://"), Database("old", "sqlite://", auto_migrate=False)]
    with Client(Platform(agents=[Agent(id="a")], databases=databases)) as client:
        found = read(client.get(PATH))

    assert found["legation_database_serving", ("old",)] == 0
    assert ("legation_runs", ("old", "PENDING")) not in found
    assert ("legation_runs", ("main", "PENDING")) in found


@pytest.mark.parametrize("scope", ["metrics:read", "system:read", "config:read", "platform:admin"])
def test_it_takes_a_scope(scope: str) -> None:
    issuer = Issuer()
    with Client(demo(issuer)) as client:
        assert client.get(PATH).status == 401
        assert client.get(PATH, token=issuer.token("agents:read")).status == 403
        assert client.get(PATH, token=issuer.token(scope)).status == 200


def test_an_operator_may_open_it_to_scrapers() -> None:
    with Client(demo(Issuer(), options={"excluded_routes": [PATH]})) as client:
        assert client.get(PATH).status == 200


def test_it_says_how_much_of_what_callers_share_is_used() -> None:
    platform = demo(None, limits=PlatformLimits(node=NodeLimits(streams=9)))
    platform.context.shares.streams.take("ada", 3)
    with Client(platform) as client:
        found = read(client.get(PATH))

    assert found["legation_share_used", ("streams",)] == 3
    assert found["legation_share_capacity", ("streams",)] == 9
    assert found["legation_share_used", ("bodies",)] == 0


# --- Where several processes serve --------------------------------------------------------------

SUM_OF_DATABASES: Final = frozenset(
    """legation_database_commits_total legation_database_connections_limit
    legation_database_connections_used legation_database_connections_waiting
    legation_database_units_total legation_database_units_waiting
    legation_hints_heard_total legation_hints_sent_total legation_nodes_lost_total""".split()
)
"""What each process has of its own, or has counted, for each database."""


def hosted(client: Client) -> Platform:
    """Return the platform of `client`."""
    assert isinstance(client.platform, Platform)
    return client.platform


def gathering(client: Client, *others: Snapshot) -> None:
    """Let what `others` measured be gathered with what the platform of `client` has."""
    platform = hosted(client)

    async def gather() -> Snapshot:
        parts = (platform.measure(client.clock.now_us), *others)
        newest = reduce(choose_newest, (part.surveyed for part in parts))
        return Snapshot(merge(part.families for part in parts), newest)

    platform.telemetry.gather = gather


def test_a_scrape_is_the_sum_of_all_processes() -> None:
    with Client(demo(None)) as other, Client(demo(None)) as client:
        for _ in range(3):
            other.get("/agents")
        other.run("alpha", "hi")
        client.get("/agents")
        client.run("alpha", "hi")
        gathering(client, hosted(other).measure(client.clock.now_us))
        found = read(client.get(PATH))
    count = "legation_http_request_duration_seconds_count"

    assert found[count, ("/agents", "GET", "2xx")] == 4
    assert found["legation_runs_ended_total", ("agent", "alpha", "COMPLETED")] == 2
    assert found["legation_build_info", ("0.1.0", "2.5.6")] == 1
    assert found["legation_nodes", ("main",)] == 1
    assert found["legation_http_requests_active", ()] == 1
    assert found["legation_database_serving", ("main",)] == 1


def test_the_databases_are_asked_once_by_all_processes() -> None:
    def asked(client: Client) -> int:
        read(client.get(PATH))
        return sum(counts(performed.effect) for performed in client.effects)

    with Client(demo(None)) as client:
        told = Family("legation_runs", "gauge", "", (Sample(7),))
        gathering(client, Snapshot((), (client.clock.now_us, (told,))))
        found = read(client.get(PATH))
        assert found["legation_runs", ()] == 7
        assert asked(client) == 0
        client.advance(5)
        assert [asked(client), asked(client)] == [1, 1]


def test_there_is_no_answer_where_the_other_processes_have_none() -> None:
    async def fails() -> Snapshot:
        raise ConnectionError

    with Client(demo(None)) as client:
        hosted(client).telemetry.gather = fails
        response = client.get(PATH)

    assert response.status == 503
    assert response.json()["detail"] == "The other processes of this server do not answer"


def test_what_all_say_of_one_database_is_not_added() -> None:
    with Client(demo(Issuer())) as client:
        families = hosted(client).measure(client.clock.now_us).families
    of_databases = {
        family.name
        for family in families
        if family.merge == "sum"
        for sample in family.samples
        if "database" in dict(sample.labels)
    }

    assert of_databases <= SUM_OF_DATABASES
    assert {family.name for family in families if family.merge == "max"} >= {
        "legation_build_info",
        "legation_clock_skew_seconds",
        "legation_nodes",
        "legation_start_time_seconds",
    }
