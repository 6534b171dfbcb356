"""Nodes of two releases on one database: each serves what it may, and says why where it may not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest
import trio
from attrs import evolve

from legation import Agent, Database, Platform
from legation.effects import Transact
from legation.migrations.catalogue import CATALOGUE, Catalogue, Migration, Step
from legation.migrations.schema_guard import LOOK_SECONDS
from legation.migrations.schema_version import Version
from legation_testing import Client, ClientResponse

from ..callers import Issuer
from .migrating import LATEST, asked, run

OLDER: Final = Catalogue(CATALOGUE.migrations[:-1])
NEXT: Final = Version(2, 15)
COLOUR: Final = Migration(
    NEXT,
    "a colour for each session",
    up=(Step("alter table sessions add column colour text"),),
    down=(Step("alter table sessions drop column colour"),),
    serves=CATALOGUE.latest,
)
KIND: Final = evolve(
    COLOUR,
    title="kinds that are called otherwise",
    up=(Step("alter table sessions rename column kind to class"),),
    down=(Step("alter table sessions rename column class to kind"),),
    serves=NEXT,
)


def release(*more: Migration) -> Catalogue:
    """Return the catalogue of a later release."""
    return Catalogue((*CATALOGUE.migrations, *more))


def node(catalogue: Catalogue = CATALOGUE, auto_migrate: bool | None = None) -> Platform:
    return Platform(
        catalogue=catalogue,
        agents=[Agent(id="concierge")],
        databases=[Database("main", "sqlite://", auto_migrate)],
    )


def sessions(client: Client) -> ClientResponse:
    return client.get("/sessions?type=agent&db_id=main")


def ready(client: Client) -> tuple[int, str, bool]:
    response = client.get("/ready")
    told = response.json()["databases"]["main"]
    return response.status, told["state"], told["serving"]


# --- a rolling upgrade


def test_an_old_node_goes_on_serving_what_the_new_one_says_it_may() -> None:
    with Client(node) as old:
        new = old.peer(lambda: node(release(COLOUR)))
        new.open()

        assert new.get("/databases/main").json()["version"] == str(NEXT)
        for _ in range(3):
            assert old.run("concierge", "hi", session_id="s")["content"] == "hi"
            old.advance(LOOK_SECONDS + 1)
            assert ready(old) == (200, "ahead", True)
        assert new.run("concierge", "ho", session_id="s")["content"] == "ho"


def test_this_release_serves_on_with_every_node_of_the_one_before() -> None:
    """2.14.0 says that nodes from 2.13.0 on may serve it, and here is one."""
    with Client(lambda: node(OLDER)) as old:
        assert old.get("/databases/main").json()["version"] == "2.13.0"
        old.peer(node).open()

        assert old.get("/databases/main").json()["version"] == LATEST
        assert old.run("concierge", "hi")["content"] == "hi"
        old.advance(LOOK_SECONDS + 1)
        assert ready(old) == (200, "ahead", True)


def test_a_node_of_a_release_before_that_stops() -> None:
    with Client(lambda: node(Catalogue(CATALOGUE.migrations[:-2]))) as old:
        assert old.get("/databases/main").json()["version"] == "2.12.0"
        new = old.peer(node)
        new.open()
        old.advance(LOOK_SECONDS + 1)

        refused = sessions(old)
        assert refused.status == 503
        assert f"{LATEST}, which needs code for 2.13.0 or later" in refused.json()["detail"]
        assert ready(old) == (503, "ahead", False)
        assert sessions(new).status == 200


def test_an_old_node_stops_where_the_new_one_says_it_may_not() -> None:
    with Client(node) as old:
        assert sessions(old).status == 200
        new = old.peer(lambda: node(release(evolve(COLOUR, serves=NEXT))))
        new.open()
        old.advance(LOOK_SECONDS + 1)

        refused = sessions(old)
        assert refused.status == 503
        assert f"{NEXT}, which needs code for {NEXT} or later" in refused.json()["detail"]
        assert ready(old) == (503, "ahead", False)
        assert old.get("/health").status == 200
        assert old.post("/databases/main/migrate").status == 400
        assert sessions(new).status == 200


def test_a_column_that_is_gone_is_noticed_at_once() -> None:
    """Not after the next look: the statement itself says that the schema is another one."""
    with Client(node) as old:
        old.peer(lambda: node(release(KIND))).open()

        assert sessions(old).status == 503
        assert f"needs code for {NEXT}" in sessions(old).json()["detail"]


def test_a_way_back_puts_the_old_node_back_to_work() -> None:
    with Client(node) as old:
        new = old.peer(lambda: node(release(KIND)))
        new.open()
        assert sessions(old).status == 503

        new.post(f"/databases/main/migrate?target_version={LATEST}").expect_success()
        old.advance(LOOK_SECONDS + 1)

        assert sessions(old).status == 200
        assert sessions(new).status == 503  # it is behind now, and does not migrate again
        assert ready(new) == (503, "behind", False)


# --- a node before its schema


def test_a_node_behind_refuses_data_and_says_what_to_do() -> None:
    with Client(node(auto_migrate=False)) as client:
        for method, target in (
            ("GET", "/sessions?type=agent&db_id=main"),
            ("GET", "/sessions/s"),
            ("POST", "/agents/concierge/runs"),
        ):
            form = {"message": "hi", "stream": "false"} if method == "POST" else None
            refused = client.request(method, target, form=form)
            told = refused.json()
            assert (refused.status, told["error_code"]) == (503, "SERVICE_UNAVAILABLE")
            assert "`legation migrate main` or POST /databases/main/migrate" in told["detail"]
            assert refused.header("retry-after") == "5"
        for target in ("/health", "/info", "/agents", "/databases", "/databases/main/migrations"):
            assert client.get(target).status == 200
        assert ready(client) == (503, "empty", False)

        client.post("/databases/main/migrate").expect_success()

        assert sessions(client).status == 200
        assert ready(client) == (200, "current", True)


def test_no_statement_meets_a_schema_that_it_was_not_written_for() -> None:
    """Not of a request, nor of a job, nor of the audit trail, for as long as that lasts."""
    issuer = Issuer()
    platform = Platform(
        authorization=True,
        authorization_config=issuer.authorization(),
        databases=[Database("main", "sqlite://", auto_migrate=False)],
        agents=[Agent(id="concierge")],
    )
    token = issuer.token("platform:admin", exp=4_000_000_000)
    with Client(platform, token=token) as client:
        for _ in range(12):
            assert sessions(client).status == 503
            client.advance(5)
        units = [
            performed.effect.unit
            for performed in client.effects
            if isinstance(performed.effect, Transact)
        ]

    assert len(units) > 12  # it looks at the ledger
    assert not [unit for unit in units if unit.needs_schema]


def test_another_database_is_served_meanwhile() -> None:
    platform = Platform(
        databases=[Database("main", "sqlite://", auto_migrate=False), Database("b", "sqlite://")]
    )
    with Client(platform) as client:
        assert sessions(client).status == 503
        assert client.get("/sessions?type=agent&db_id=b").status == 200


# --- real nodes


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'main.db'}"
    made: str = request.getfixturevalue("postgres")
    return made


async def test_sqlite_is_migrated_at_the_start_and_postgresql_when_asked(url: str) -> None:
    itself = url.startswith("sqlite:")
    async with asked(url, auto_migrate=None) as ask:
        assert await ask.stands() == ((LATEST, "current") if itself else ("0.0.0", "empty"))
        assert (await ask("GET", "/sessions?type=agent&db_id=main")).status == (
            200 if itself else 503
        )
    async with asked(url, auto_migrate=True) as ask:
        assert (await ask("GET", "/sessions?type=agent&db_id=main")).status == 200


async def test_a_node_notices_within_seconds_what_another_has_done(url: str) -> None:
    async with asked(url, jobs=True) as first, asked(url) as second:
        assert (await first("GET", "/sessions?type=agent&db_id=main")).status == 503
        assert (await second("POST", "/databases/main/migrate")).status == 200

        with trio.fail_after(LOOK_SECONDS + 4):
            while (await first("GET", "/sessions?type=agent&db_id=main")).status != 200:
                await trio.sleep(0.2)


async def test_a_history_of_other_hands_is_noticed_and_never_served(url: str) -> None:
    async with asked(url) as ask:
        await ask("POST", "/databases/main/migrate")
        assert (await ask("GET", "/sessions?type=agent&db_id=main")).status == 200
        run(url, "update schema_ledger set seal = 'another'")
        await ask.host.run(ask.platform.schema_guard.look("main"))

        refused = await ask("GET", "/sessions?type=agent&db_id=main")
        assert (refused.status, refused.json["error_code"]) == (503, "SERVICE_UNAVAILABLE")
        assert "is not the one this server knows" in refused.detail


async def test_nodes_of_two_releases_on_real_engines(url: str) -> None:
    new_release = release(evolve(COLOUR, serves=NEXT))
    async with asked(url) as old, asked(url, catalogue=new_release) as new:
        assert (await old("POST", "/databases/main/migrate")).json["to_version"] == LATEST
        await new.host.run(new.platform.schema_guard.look("main"))
        assert (await new("GET", "/ready")).json["databases"]["main"]["state"] == "behind"
        assert (await new("POST", "/databases/main/migrate")).json["to_version"] == str(NEXT)
        await old.host.run(old.platform.schema_guard.look("main"))

        statuses = [
            (await ask("GET", "/sessions?type=agent&db_id=main")).status for ask in (old, new)
        ]
        assert statuses == [503, 200]


async def test_a_database_that_does_not_answer_at_the_start_is_served_when_it_does(
    tmp_path: Any, postgres: str
) -> None:
    gone = "postgresql://nobody@127.0.0.1:1/none"
    async with asked(gone, postgres, auto_migrate=True) as ask:
        refused = await ask("GET", "/sessions?type=agent&db_id=main")
        assert (refused.status, (await ask("GET", "/health")).status) == (503, 200)
        assert "has not answered yet" in refused.detail
        assert (await ask("GET", "/sessions?type=agent&db_id=second")).status == 200
        assert states((await ask("GET", "/databases")).json) == ["unreachable", "current"]
        told = (await ask("GET", "/databases/main/migrations")).json
        assert told["error_code"] == "SERVICE_UNAVAILABLE"
        partly = await ask("POST", "/databases/all/migrate")
        assert (partly.status, list(partly.json["failed"])) == (207, ["main"])
        assert (await ask("POST", "/databases/main/migrate")).status == 500


def states(told: Iterable[dict[str, Any]]) -> list[str]:
    return [one["state"] for one in told]
