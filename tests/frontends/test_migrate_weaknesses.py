"""What a well-known implementation of this interface gets wrong, asked of this one.

Each row is a request that AgentOS 2.5.6 was seen to answer wrongly, with the state it was asked in
and what has to come of it.  Every row runs on both engines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import evolve, frozen
from cryptography.hazmat.primitives.asymmetric import ed25519

from legation import ConfigurationError, Database, Platform
from legation.migrations.catalogue import CATALOGUE, Migration, Step
from legation.migrations.schema_version import Version

from ..callers import Issuer
from .migrating import LATEST, Asked, Reply, asked, published, run, shape

ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate())
NEVER: Final = 4_000_000_000  # when a token expires: the clock of these nodes is the real one


@frozen
class Row:
    """One request: `at` is where the database stands, `then` where it has to stand after it."""

    name: str
    at: str
    query: str
    status: int
    then: str
    says: str = ""


MIGRATED: Final = "Database migrated successfully to version "

ROWS: Final = (
    Row("no target, from the oldest", "2.0.0", "", 200, LATEST, MIGRATED + LATEST),
    Row("no target, from nothing", "0.0.0", "", 200, LATEST, MIGRATED + LATEST),
    Row("no target, at the newest", LATEST, "", 200, LATEST, MIGRATED + LATEST),
    Row("equal", "2.5.0", "2.5.0", 200, "2.5.0", MIGRATED + "2.5.0"),
    Row("greater than the newest", "2.5.0", "9.9.9", 400, "2.5.0", "There is no version 9.9.9"),
    Row("unknown, between, upwards", "2.3.0", "2.4.0", 400, "2.3.0", "There is no version 2.4.0"),
    Row("unknown, between, downwards", LATEST, "2.4.0", 400, LATEST, "There is no version 2.4.0"),
    Row("letters", "2.5.0", "abc", 422, "2.5.0", "is not a version"),
    Row("a space", "2.5.0", "%20", 422, "2.5.0", "is not a version"),
    Row("null as text", "2.5.0", "null", 422, "2.5.0", "is not a version"),
    Row("negative", "2.5.0", "-1", 422, "2.5.0", "is not a version"),
    Row("empty is not the newest", "2.5.0", "&", 422, "2.5.0", "is not a version"),
    Row("sent twice", "2.3.0", "2.5.0&target_version=2.5.6", 422, "2.3.0", "sent once"),
    Row("with a v", "2.0.0", "v2.3.0", 200, "2.3.0", MIGRATED + "2.3.0"),
    Row("with a local part", "2.0.0", "2.5.0%2Blocal", 422, "2.0.0", "is not a version"),
    Row("with an epoch", "2.0.0", "1!0.1", 422, "2.0.0", "is not a version"),
    Row("a pre-release is never success", "2.0.0", "2.3.0rc1", 422, "2.0.0", "is not a version"),
    Row("lower discards data", "2.5.0", "2.3.0", 400, "2.5.0", "allow_data_loss=true"),
    Row("lowest discards data", LATEST, "2.0.0", 400, LATEST, "allow_data_loss=true"),
    Row("nothing at all discards data", LATEST, "0", 400, LATEST, "every session"),
    Row("lower than the lowest", LATEST, "1.0.0", 400, LATEST, "There is no version 1.0.0"),
    Row(
        *("lower, accepted, is done", LATEST, "2.3.0&allow_data_loss=true"),
        *(200, "2.3.0", MIGRATED + "2.3.0"),
    ),
    Row(
        *("lower than the lowest, accepted", LATEST, "1.0.0&allow_data_loss=true"),
        *(400, LATEST, "There is no version 1.0.0"),
    ),
)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'main.db'}"
    made: str = request.getfixturevalue("postgres")
    return made


async def migrate(ask: Asked, target: str = "", **options: Any) -> Reply:
    query = f"?target_version={target}" if target else ""
    return await ask("POST", f"/databases/main/migrate{query}", **options)


async def bring(ask: Asked, version: str) -> None:
    if version != "0.0.0":
        assert (await migrate(ask, version)).status == 200


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_the_answer_is_true_and_the_schema_is_what_it_says(url: str, row: Row) -> None:
    async with asked(url) as ask:
        await bring(ask, row.at)
        reply = await migrate(ask, row.query)

        assert reply.status == row.status
        assert row.says in reply.json["message" if row.status == 200 else "detail"]
        assert (await ask.stands())[0] == row.then
        if row.then != "0.0.0":
            assert shape(url, ledger=True) == published(url, row.then)
        assert (await migrate(ask)).json["to_version"] == LATEST  # and no row is a dead end


async def test_a_body_counts_where_the_query_has_no_target(url: str) -> None:
    """The published Python client sends the target there; it was ignored."""
    async with asked(url) as ask:
        first = await migrate(ask, body={"target_version": "2.3.0"})
        second = await migrate(ask, "2.5.0", body={"target_version": "2.0.0"})

        assert (first.json["to_version"], second.json["to_version"]) == ("2.3.0", "2.5.0")


@pytest.mark.parametrize("target", ["", "2.5.0&allow_data_loss=true", "0&allow_data_loss=true"])
async def test_a_token_without_a_scope_brings_nothing_up_and_nothing_down(
    url: str, target: str
) -> None:
    """A database was ruined by one request with `scopes: []`."""
    async with asked(url) as ask:
        await bring(ask, LATEST)
    async with asked(url, issuer=ISSUER) as ask:
        refused = await migrate(ask, target, token=ISSUER.token(iat=None, exp=NEVER))
        nobody = await migrate(ask, target)
        reader = evolve(ask, token=ISSUER.token("databases:read", iat=None, exp=NEVER))

        assert (refused.status, refused.json["error_code"]) == (403, "FORBIDDEN")
        assert (nobody.status, nobody.json["error_code"]) == (401, "UNAUTHENTICATED")
        assert await reader.stands() == (LATEST, "current")


async def test_going_down_to_nothing_and_up_again_leaves_a_database_that_works(url: str) -> None:
    """`target_version=0` left columns gone and a ledger that said they were there, for ever."""
    async with asked(url) as ask:
        await bring(ask, LATEST)
        down = await migrate(ask, "0&allow_data_loss=true")
        empty = shape(url)
        up = await migrate(ask)

        assert (down.status, up.status) == (200, 200)
        assert empty == ""
        assert (await ask("GET", "/sessions?type=agent")).status == 200
        assert shape(url, ledger=True) == published(url, LATEST)


async def test_a_step_that_fails_half_way_leaves_nothing_and_the_retry_does_all(url: str) -> None:
    """A retry took the half for the whole, and answered 200."""
    async with asked(url) as ask:
        await bring(ask, "2.5.0")
        before = shape(url)
        run(url, "create table background (in_the_way text)")  # the third step makes one

        failed = await migrate(ask)
        run(url, "drop table background")
        after = shape(url)
        retried = await migrate(ask)

        assert (failed.status, failed.json["error_code"]) == (500, "INTERNAL_SERVER_ERROR")
        assert "background" not in failed.detail  # neither SQL nor the words of the driver
        assert after == before
        assert retried.status == 200
        assert shape(url, ledger=True) == published(url, LATEST)


async def test_a_view_in_the_way_fails_all_of_it(postgres: str) -> None:
    """One table was stamped, the next failed, the rest was not tried, and the SQL was shown."""
    async with asked(postgres) as ask:
        await bring(ask, LATEST)
        run(postgres, "create view consumption as select usage from runs")
        before = shape(postgres)

        failed = await migrate(ask, "2.3.0&allow_data_loss=true")

        assert failed.status == 500
        assert "view" not in failed.detail
        assert "drop" not in failed.detail
        assert await ask.stands() == (LATEST, "current")
        assert shape(postgres) == before


NEXT: Final = Version(2, 15)
UNIQUE: Final = Migration(
    NEXT,
    "an id for each session",
    up=(
        Step(
            "select session_id from sessions group by session_id having count(*) > 1",
            refuse_if="two sessions have the same id",
        ),
        Step("create unique index sessions_id_unique on sessions (session_id)"),
    ),
    down=(Step("drop index sessions_id_unique"),),
)
UNCHECKED: Final = evolve(UNIQUE, up=UNIQUE.up[1:])
TWINS: Final = """
    insert into sessions (owner, session_id, kind, component_id, created_us, updated_us)
    values ('{owner}', 's', 'agent', 'concierge', 1, 1)
"""


@pytest.mark.parametrize(
    ("migration", "status"), [(UNIQUE, 400), (UNCHECKED, 500)], ids=["checked", "unchecked"]
)
async def test_rows_in_the_way_are_an_error_until_they_are_gone(
    url: str, migration: Migration, status: int
) -> None:
    """The key was not added, the version was recorded, and no retry ever added it."""
    newer = evolve(CATALOGUE, migrations=(*CATALOGUE.migrations, migration))
    async with asked(url, catalogue=newer) as ask:
        await bring(ask, LATEST)
        run(url, *(TWINS.format(owner=owner) for owner in ("ada", "eve")))

        refused = await migrate(ask)
        assert (refused.status, (await ask.stands())[0]) == (status, LATEST)
        run(url, "delete from sessions where owner = 'eve'")
        retried = await migrate(ask)

        assert retried.json["to_version"] == str(NEXT)
        assert "sessions_id_unique" in shape(url)


@pytest.mark.parametrize(
    ("change", "state", "status"),
    [
        ("to_version = '9.0.0', serves = '9.0.0'", "ahead", 400),
        ("to_version = 'garbage'", "drifted", 400),
        ("seal = 'another'", "drifted", 400),
    ],
    ids=["newer than the code", "unparsable", "of another history"],
)
async def test_a_ledger_of_other_hands_is_neither_served_nor_built_upon(
    url: str, change: str, state: str, status: int
) -> None:
    """A newer one was served and called the latest; an unparsable one was a 500."""
    async with asked(url) as ask:
        await bring(ask, LATEST)
    run(url, f"update schema_ledger set {change}")
    async with asked(url) as ask:
        before = shape(url)
        reply = await migrate(ask)

        assert reply.status == status
        assert (await ask.stands())[1] == state
        assert (await ask("GET", "/sessions?type=agent")).status == 503
        assert shape(url) == before


async def test_an_unknown_database_is_404_and_all_is_not_a_database(url: str) -> None:
    async with asked(url) as ask:
        unknown = await ask("POST", "/databases/nope/migrate")
        nameless = await ask("POST", "/databases//migrate")

        assert (unknown.status, unknown.detail) == (404, "Database not found")
        assert nameless.status == 404
    with pytest.raises(ConfigurationError, match="'all' has another meaning"):
        Platform(databases=[Database("all", url)])


async def test_reading_there_is_405_and_names_what_is_allowed(url: str) -> None:
    async with asked(url) as ask:
        reply = await ask("GET", "/databases/main/migrate")

        assert (reply.status, reply.headers["allow"]) == (405, "OPTIONS, POST")


async def test_two_callers_at_once_both_succeed(url: str) -> None:
    """Of two nodes one failed in most trials, on a column or a table that was there already."""
    async with asked(url) as one, asked(url) as other:
        replies: list[Reply] = []

        async def call(ask: Asked) -> None:
            replies.append(await migrate(ask))

        async with trio.open_nursery() as nursery:
            for ask in (one, other, one, other):
                nursery.start_soon(call, ask)

        assert [reply.status for reply in replies] == [200] * 4
        assert sum(bool(reply.json["moves"]) for reply in replies) == 1
        history = (await one("GET", "/databases/main/migrations")).json
        assert history["meta"]["total_count"] == 1


async def test_an_old_schema_at_the_start_is_told_and_never_served_as_empty(url: str) -> None:
    """Some routes answered 500, and others 200 with no data."""
    async with asked(url) as ask:
        await bring(ask, "2.0.0")
    async with asked(url) as ask:
        for target in (
            "/sessions?type=agent",
            "/sessions/s",
            "/agents/concierge/runs?session_id=s",
        ):
            reply = await ask("GET", target)
            assert (reply.status, reply.json["error_code"]) == (503, "SERVICE_UNAVAILABLE")
            assert "POST /databases/main/migrate" in reply.detail
            assert reply.headers["retry-after"] == "5"
        ready = await ask("GET", "/ready")
        assert (ready.status, ready.json["databases"]["main"]["state"]) == (503, "behind")

        assert (await migrate(ask)).status == 200
        assert (await ask("GET", "/sessions?type=agent")).status == 200
        assert (await ask("GET", "/ready")).status == 200


@pytest.mark.parametrize("version", ["2.0.0", "2.3.0", "2.5.0"])
async def test_whatever_it_started_from_a_database_that_was_migrated_works(
    url: str, version: str
) -> None:
    """Tables differed in their versions, and a release lacked the migration that it needed."""
    async with asked(url) as ask:
        await bring(ask, version)
        assert (await migrate(ask)).status == 200

        form = {"message": "hello", "stream": False, "session_id": "s"}
        ran = await ask("POST", "/agents/concierge/runs", body=form)
        assert (ran.status, ran.json["content"]) == (200, "hello")
        assert (await ask("GET", "/sessions/s")).status == 200
        assert shape(url, ledger=True) == published(url, LATEST)


async def test_two_runs_at_once_in_a_session_are_both_kept(url: str) -> None:
    """Each rewrote the list of all, and one was lost."""
    async with asked(url, jobs=True) as ask:
        await bring(ask, LATEST)
        statuses: list[int] = []

        async def say(message: str) -> None:
            form = {"message": message, "stream": False, "session_id": "s"}
            statuses.append((await ask("POST", "/agents/concierge/runs", body=form)).status)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for message in ("one", "two", "three"):
                    nursery.start_soon(say, message)
        runs = (await ask("GET", "/sessions/s/runs?type=agent")).json

        assert statuses == [200] * 3
        assert sorted(one["content"] for one in runs) == ["one", "three", "two"]


async def test_the_same_session_id_of_somebody_else_is_another_session(url: str) -> None:
    """The other's was silently not written."""
    async with asked(url) as ask:
        await bring(ask, LATEST)
    async with asked(url, issuer=ISSUER) as ask:
        contents: list[str] = []
        for sub in ("ada", "eve"):
            token = ISSUER.token(
                "agents:concierge:run", "sessions:read", sub=sub, iat=None, exp=NEVER
            )
            call: Callable[..., Any] = partial(ask, token=token)
            form = {"message": f"from {sub}", "stream": False, "session_id": "s"}
            assert (await call("POST", "/agents/concierge/runs", body=form)).status == 200
            runs = (await call("GET", "/sessions/s/runs?type=agent")).json
            contents += [one["content"] for one in runs]

        assert contents == ["from ada", "from eve"]
