from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, Database, Platform
from legation.api.handlers.audit import verify_trail
from legation.api.handlers.databases import get_size
from legation.effects import Transact
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.ledger import ReadLedger, ReadServedLedger, add_entry, read_state
from legation.migrations.migrate import Attempt, FindAttempt
from legation.migrations.schema_version import EMPTY, Version
from legation.store.audit import AppendAudit
from legation.store.audit_verify import Intact
from legation.store.failures import Busy, CommitLost, StatementFailed, Unavailable
from legation.store.sizes import DatabaseSize, MeasureDatabase
from legation.store.units import Dialect, Statements, Unit
from legation_testing import Client, ClientResponse, play

from ....callers import Issuer, demo

ISSUER: Final = Issuer()
LATEST: Final = str(CATALOGUE.latest)
EARLIER: Final = str(CATALOGUE.versions[-2])
MOVES: Final = len(CATALOGUE.migrations)


def hosting(*names: str, authorization: bool = False, **options: Any) -> Platform:
    """Return a platform with empty databases of these names."""
    if authorization:
        options |= {"authorization": True, "authorization_config": ISSUER.authorization()}
    return Platform(
        agents=[Agent(id="concierge")],
        databases=[Database(name, "sqlite://", auto_migrate=False) for name in names],
        **options,
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(hosting("main", "second")) as opened:
        yield opened


def state(client: Client, name: str = "main") -> tuple[str | None, str]:
    told = client.get(f"/databases/{name}").json()
    return told["version"], told["state"]


def error(response: ClientResponse) -> tuple[int, str]:
    told = response.json()
    assert isinstance(told["detail"], str)
    return response.status, told["error_code"]


# --- migrating


@pytest.mark.parametrize(
    ("query", "body", "reached"),
    [
        ("", None, LATEST),
        ("", {}, LATEST),
        ("", {"target_version": None}, LATEST),
        ("", {"target_version": "2.5.0"}, "2.5.0"),
        ("target_version=2.3.0", None, "2.3.0"),
        ("target_version=v2.3", None, "2.3.0"),
        ("target_version=2.3.0", {"target_version": "2.5.0"}, "2.3.0"),
        ("target_version=2.3.0&dry_run=false&allow_data_loss=true", None, "2.3.0"),
    ],
)
def test_a_migration_names_the_version_it_reached(
    client: Client, query: str, body: Any, reached: str
) -> None:
    response = client.post(f"/databases/main/migrate?{query}", json=body)

    told = response.json()
    assert response.status == 200
    assert told["message"] == f"Database migrated successfully to version {reached}"
    assert (told["from_version"], told["to_version"]) == ("0.0.0", reached)
    assert [move["direction"] for move in told["moves"]] == ["up"] * len(told["moves"])
    assert told["moves"][-1]["version"] == reached
    assert state(client)[0] == reached
    assert state(client, "second") == ("0.0.0", "empty")


def test_migrating_again_changes_nothing(client: Client) -> None:
    client.post("/databases/main/migrate").expect_success()

    told = client.post("/databases/main/migrate").json()

    assert told["message"] == f"Database migrated successfully to version {LATEST}"
    assert told["moves"] == []
    assert client.get("/databases/main/migrations").json()["meta"]["total_count"] == 1


def test_where_nothing_is_to_do_no_lock_is_taken(client: Client) -> None:
    client.post("/databases/main/migrate").expect_success()
    client.fail_at(Attempt, Busy(), times=None)

    assert client.post("/databases/main/migrate").status == 200
    assert client.post(f"/databases/main/migrate?target_version={LATEST}").status == 200
    assert client.post("/databases/main/migrate?target_version=2.5.0").status == 400
    assert client.post("/databases/second/migrate").status == 500


def test_what_is_served_needs_one_statement_to_say_that_nothing_is_to_do(client: Client) -> None:
    def asked(target: str) -> list[type[Unit[Any]]]:
        before = len(client.effects)
        client.post(f"/databases/main/migrate{target}").expect_success()
        effects = [done.effect for done in client.effects[before:]]
        units = [type(effect.unit) for effect in effects if isinstance(effect, Transact)]
        return [unit for unit in units if unit is not AppendAudit]

    assert asked("?target_version=2.5.0")[:2] == [ReadLedger, Attempt]
    assert asked("")[:2] == [ReadLedger, Attempt]
    assert asked("") == asked(f"?target_version={LATEST}") == [ReadServedLedger]


def test_a_look_that_fails_is_no_reason_not_to_try(client: Client) -> None:
    client.fail_at(ReadLedger, Busy())

    assert client.post("/databases/main/migrate").json()["to_version"] == LATEST


def test_a_dry_run_does_it_and_undoes_it(client: Client) -> None:
    told = client.post("/databases/main/migrate?dry_run=true").json()

    assert told["message"] == f"Migration from 0.0.0 to {LATEST} rehearsed and undone"
    assert told["dry_run"] is True
    assert len(told["moves"]) == MOVES
    assert state(client) == ("0.0.0", "empty")


@pytest.mark.parametrize(
    ("query", "body", "path"),
    [
        ("target_version=abc", None, "query.target_version"),
        ("target_version=", None, "query.target_version"),
        ("target_version=%20", None, "query.target_version"),
        ("target_version=-1", None, "query.target_version"),
        ("target_version=2.3.0&target_version=2.5.0", None, "query.target_version"),
        ("target_version=2.3.0&target_version=2.3.0", None, "query.target_version"),
        ("target=2.3.0", None, "query.target"),
        ("target_version=%FF", None, "query"),
        ("dry_run=perhaps", None, "query.dry_run"),
        ("allow_data_loss=2", None, "query.allow_data_loss"),
        ("", {"target_version": "abc"}, "body.target_version"),
        ("", {"target_version": ""}, "body.target_version"),
        ("", {"target_version": 2.5}, "body.target_version"),
        ("", {"target_version": ["2.5.0"]}, "body.target_version"),
        ("", {"dry_run": True}, "body.dry_run"),
        ("", [], "body"),
    ],
)
def test_what_cannot_be_parsed_is_422_and_says_where(
    client: Client, query: str, body: Any, path: str
) -> None:
    response = client.post(f"/databases/main/migrate?{query}", json=body)

    assert error(response) == (422, "VALIDATION_ERROR")
    assert [fault["path"] for fault in response.json()["errors"]] == [path]
    assert state(client) == ("0.0.0", "empty")


def test_every_fault_is_told_at_once(client: Client) -> None:
    response = client.post("/databases/main/migrate?dry_run=x&target_version=y&z=1")

    assert [fault["path"] for fault in response.json()["errors"]] == [
        "query.target_version",
        "query.dry_run",
        "query.z",
    ]


def test_a_body_that_is_no_json_is_400(client: Client) -> None:
    response = client.post("/databases/main/migrate", body=b"target_version=2.5.0")

    assert error(response) == (400, "BAD_REQUEST")


def test_a_body_beyond_the_limit_is_413(client: Client) -> None:
    response = client.post("/databases/main/migrate", body=b" " * ((10 << 20) + 1))

    assert error(response) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("version", ["9.9.9", "2.4.0", "1.0.0", "2.5.5"])
def test_a_version_that_there_is_not_is_400(client: Client, version: str) -> None:
    response = client.post(f"/databases/main/migrate?target_version={version}")

    assert error(response) == (400, "BAD_REQUEST")
    assert f"no version {version}; known are 0.0.0, 2.0.0" in response.json()["detail"]


def test_discarding_data_has_to_be_asked_for(client: Client) -> None:
    client.post("/databases/main/migrate").expect_success()

    refused = client.post("/databases/main/migrate?target_version=2.5.0")
    assert error(refused) == (400, "BAD_REQUEST")
    assert "allow_data_loss=true accepts that" in refused.json()["detail"]
    assert state(client) == (LATEST, "current")

    told = client.post("/databases/main/migrate?target_version=2.5.0&allow_data_loss=true").json()
    assert told["message"] == "Database migrated successfully to version 2.5.0"
    assert told["moves"][0]["direction"] == "down"
    assert state(client) == ("2.5.0", "behind")


@pytest.mark.parametrize("database", ["nope", "MAIN", "main%20"])
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/migrate"), ("GET", ""), ("GET", "/migrations"), ("GET", "/migrations/plan")],
)
def test_an_unknown_database_is_404(client: Client, database: str, method: str, path: str) -> None:
    response = client.request(method, f"/databases/{database}{path}")

    assert error(response) == (404, "NOT_FOUND")
    assert response.json()["detail"] == "Database not found"


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (Busy(), "The database was busy for 10 s; nothing was changed"),
        (StatementFailed("secret words"), "(StatementFailed): the old version stands"),
        (Unavailable(), "(Unavailable): the old version stands"),
        (CommitLost(), "(CommitLost): the old version stands"),
    ],
)
def test_tried_and_failed_is_500_with_an_incident_and_no_change(
    client: Client, failure: Exception, sentence: str
) -> None:
    client.fail_at(Attempt, failure, times=None)
    response = client.post("/databases/main/migrate")

    detail = response.json()["detail"]
    assert error(response) == (500, "INTERNAL_SERVER_ERROR")
    assert detail.startswith("Failed to migrate database: ")
    assert sentence in detail
    assert "secret" not in detail
    (line,) = [line for line in client.logs if line.event == "migration_failed"]
    assert f"incident {dict(line.fields)['incident']}" in detail
    assert state(client) == ("0.0.0", "empty")


def test_a_commit_that_was_kept_although_its_answer_was_lost_is_200(client: Client) -> None:
    client.fail_at(Attempt, CommitLost(), after=True)

    told = client.post("/databases/main/migrate").expect_success().json()

    assert told["to_version"] == LATEST
    assert len(told["moves"]) == MOVES


def test_a_database_that_never_says_what_it_kept_is_500(client: Client) -> None:
    client.fail_at(Attempt, CommitLost(), after=True)
    client.fail_at(FindAttempt, Unavailable(), times=None)

    response = client.post("/databases/main/migrate")

    assert error(response) == (500, "INTERNAL_SERVER_ERROR")
    assert "its list of migrations will show it" in response.json()["detail"]


@pytest.mark.parametrize("changes", ["seal", "version", "seq"])
def test_a_history_that_is_not_ours_is_400(client: Client, changes: str) -> None:
    tampered(client, changes)

    response = client.post("/databases/main/migrate")

    assert error(response) == (400, "BAD_REQUEST")
    assert state(client)[1] == ("ahead" if changes == "version" else "drifted")


def tampered(client: Client, changes: str) -> None:
    """Leave the ledger of `main` as newer code or other hands would."""
    client.post("/databases/main/migrate").expect_success()
    client.simulation.run(Transact("main", Tamper(changes)).__iter__())


class Tamper(Unit[None]):
    """Append a row that does not come of this catalogue."""

    def __init__(self, changes: str) -> None:
        self.changes = changes

    def statements(self, dialect: Dialect) -> Statements[None]:
        entries = yield from ReadLedger().statements(dialect)
        last = entries.entries[-1]
        entry = evolve(last, seq=last.seq + 1, from_version=last.to_version, attempt="x")
        if self.changes == "seal":
            entry = evolve(entry, seal="0" * 64)
        elif self.changes == "version":
            entry = evolve(entry, to_version=Version(9), serves=Version(9))
        else:
            entry = evolve(entry, seq=9)
        yield from add_entry(entry)
        yield from read_state()


# --- all of them


def test_all_databases_are_migrated(client: Client) -> None:
    client.post("/databases/main/migrate?target_version=2.3.0").expect_success()

    response = client.post("/databases/all/migrate")

    told = response.json()
    assert response.status == 200
    assert told["message"] == f"All databases migrated successfully to version {LATEST}"
    assert {name: one["from_version"] for name, one in told["databases"].items()} == {
        "main": "2.3.0",
        "second": "0.0.0",
    }
    assert "failed" not in told
    assert state(client) == state(client, "second") == (LATEST, "current")


def test_one_that_fails_does_not_keep_the_others_back(client: Client) -> None:
    client.fail_at(Attempt, StatementFailed())  # `main` is the first
    response = client.post("/databases/all/migrate?target_version=2.5.0")

    told = response.json()
    assert response.status == 207
    assert told["message"] == "Migrated 1/2 databases to version 2.5.0"
    assert list(told["databases"]) == ["second"]
    assert list(told["failed"]) == ["main"]
    assert "the old version stands (incident " in told["failed"]["main"]
    assert "error_code" not in told
    assert state(client)[0] == "0.0.0"
    assert state(client, "second")[0] == "2.5.0"


def test_all_of_them_may_be_refused(client: Client) -> None:
    response = client.post("/databases/all/migrate?target_version=9")

    told = response.json()
    assert response.status == 207
    assert told["message"] == "Migrated 0/2 databases to version 9.0.0"
    assert sorted(told["failed"]) == ["main", "second"]


def test_all_of_them_may_be_rehearsed(client: Client) -> None:
    told = client.post("/databases/all/migrate?dry_run=1").json()

    assert told["message"] == f"All databases rehearsed successfully to version {LATEST}"
    assert state(client) == ("0.0.0", "empty")


def test_a_malformed_target_for_all_is_422(client: Client) -> None:
    assert error(client.post("/databases/all/migrate?target_version=x"))[0] == 422


# --- looking


def test_the_list_tells_where_each_database_stands(client: Client) -> None:
    client.post("/databases/second/migrate").expect_success()

    first, second = client.get("/databases").json()

    assert first == {
        "id": "main",
        "engine": "sqlite",
        "version": "0.0.0",
        "latest": LATEST,
        "state": "empty",
        "serving": False,
        "detail": f"The database is empty; migrate it to {LATEST}",
    }
    assert (second["id"], second["state"], second["serving"]) == ("second", "current", True)


def test_a_database_that_does_not_answer_is_told_as_unreachable(client: Client) -> None:
    client.fail_at(ReadLedger, Unavailable(), times=None)

    assert client.get("/databases/main").json() == {
        "id": "main",
        "state": "unreachable",
        "serving": False,
    }
    assert error(client.get("/databases/main/migrations")) == (503, "SERVICE_UNAVAILABLE")
    assert error(client.get("/databases/main/migrations/plan")) == (503, "SERVICE_UNAVAILABLE")


def test_a_corrupt_ledger_has_no_version(client: Client) -> None:
    tampered(client, "seq")

    assert state(client) == (None, "drifted")
    plan = client.get("/databases/main/migrations/plan").json()
    assert plan["from_version"] is None
    assert "contradicts itself" in plan["refused_by"]
    shown = client.get("/databases/main/migrations").json()
    assert [entry["seq"] for entry in shown["data"]] == [9, 1]


def test_the_history_is_told_newest_first_and_in_pages(client: Client) -> None:
    for version in ("2.0.0", "2.3.0", "2.5.0"):
        headers = [("x-request-id", f"to-{version}")]
        target = f"/databases/main/migrate?target_version={version}"
        client.post(target, headers=headers).expect_success()

    first = client.get("/databases/main/migrations?limit=2").json()
    second = client.get("/databases/main/migrations?limit=2&page=2").json()

    assert [e["to_version"] for e in first["data"] + second["data"]] == ["2.5.0", "2.3.0", "2.0.0"]
    assert first["meta"] == {"page": 1, "limit": 2, "total_count": 3, "total_pages": 2}
    assert first["state"] == "behind"
    entry = first["data"][0]
    assert (entry["seq"], entry["from_version"], entry["request_id"]) == (3, "2.3.0", "to-2.5.0")
    assert (entry["actor"], entry["node"]) == ("", client.node.name)
    assert entry["at_us"] == client.clock.now_us


@pytest.mark.parametrize(
    "query", ["page=0", "limit=0", "limit=101", "page=x", "colour=red", "page=%FF"]
)
def test_a_page_that_cannot_be_is_422(client: Client, query: str) -> None:
    assert error(client.get(f"/databases/main/migrations?{query}"))[0] == 422


# --- planning


def test_a_plan_tells_every_statement_of_every_move(client: Client) -> None:
    client.post("/databases/main/migrate?target_version=2.5.0").expect_success()

    told = client.get("/databases/main/migrations/plan").json()

    assert (told["from_version"], told["to_version"]) == ("2.5.0", LATEST)
    first, *_, last = told["moves"]
    assert {move["direction"] for move in told["moves"]} == {"up"}
    assert (first["version"], last["version"]) == ("2.5.6", LATEST)
    assert first["statements"][0] == "alter table runs add column usage text"
    assert len(first["statements"]) == 3
    assert (told["loses"], told["refused_by"]) == ([], None)


def test_a_plan_down_tells_what_it_would_discard(client: Client) -> None:
    client.post("/databases/main/migrate").expect_success()
    down = "/databases/main/migrations/plan?target_version=2.5.0"

    told = client.get(down).json()
    allowed = client.get(f"{down}&allow_data_loss=true").json()

    assert told["loses"][0] == "the saving of an index for each session"
    assert "which version of its agent a run waits for (runs.version)" in told["loses"]
    assert "what each run consumed (runs.usage)" in told["loses"]
    assert "allow_data_loss=true" in told["refused_by"]
    assert allowed == {**told, "refused_by": None}
    assert [move["direction"] for move in told["moves"]] == ["down"] * 10


def test_a_plan_that_there_is_not_tells_why(client: Client) -> None:
    told = client.get("/databases/main/migrations/plan?target_version=9").json()

    assert (told["moves"], told["loses"], told["to_version"]) == ([], [], "9.0.0")
    assert "There is no version 9.0.0" in told["refused_by"]


@pytest.mark.parametrize(
    "query",
    ["target_version=x", "target_version=", "to=2", "allow_data_loss=?", "target_version=%FF"],
)
def test_a_plan_for_what_cannot_be_parsed_is_422(client: Client, query: str) -> None:
    assert error(client.get(f"/databases/main/migrations/plan?{query}"))[0] == 422


def test_looking_changes_nothing(client: Client) -> None:
    for path in ("", "/main", "/main/migrations", "/main/migrations/plan"):
        assert client.get(f"/databases{path}").status == 200

    assert client.simulation.run(Transact("main", ReadLedger()).__iter__()).entries == ()
    assert state(client) == ("0.0.0", "empty")


# --- who may


@pytest.mark.parametrize(
    ("scopes", "status"),
    [
        (None, 401),
        ((), 403),
        (("databases:read",), 403),
        (("databases:second:migrate",), 403),
        (("databases:main:migrate",), 200),
        (("databases:migrate",), 200),
        (("config:write",), 200),
        (("platform:admin",), 200),
    ],
    ids=str,
)
def test_only_who_may_migrate_does(scopes: tuple[str, ...] | None, status: int) -> None:
    with Client(hosting("main", "second", authorization=True)) as client:
        token = None if scopes is None else ISSUER.token(*scopes)
        response = client.post("/databases/main/migrate", token=token)
        shown = client.get("/databases/main", token=ISSUER.token("databases:read")).json()

        assert response.status == status
        assert shown["version"] == (LATEST if status == 200 else str(EMPTY))
        if status == 200:
            admin = ISSUER.token("platform:admin", sub="root")
            history = client.get("/databases/main/migrations", token=admin).json()["data"]
            assert [entry["actor"] for entry in history] == ["ada"]


@pytest.mark.parametrize(
    ("scopes", "status"),
    [(("databases:main:migrate",), 403), (("databases:migrate",), 200), (("config:write",), 200)],
    ids=str,
)
def test_only_who_may_migrate_all_does(scopes: tuple[str, ...], status: int) -> None:
    with Client(hosting("main", "second", authorization=True)) as client:
        response = client.post("/databases/all/migrate", token=ISSUER.token(*scopes))

        assert response.status == status


LOSING: Final = "?allow_data_loss=true"
LOSS: Final = f"target_version={EARLIER}&allow_data_loss=true"


@pytest.mark.parametrize(
    ("scopes", "one", "all_"),
    [
        (("databases:migrate",), 403, 403),
        (("config:write",), 403, 403),
        (("databases:destroy",), 403, 403),
        (("databases:migrate", "databases:second:destroy"), 403, 403),
        (("databases:migrate", "databases:main:destroy"), 200, 403),
        (("databases:migrate", "databases:*:destroy"), 200, 200),
        (("databases:main:migrate", "databases:main:destroy"), 200, 403),
        (("config:write", "databases:destroy"), 200, 200),
        (("platform:admin",), 200, 200),
    ],
    ids=str,
)
def test_a_migration_that_may_lose_data_needs_a_scope_of_its_own(
    scopes: tuple[str, ...], one: int, all_: int
) -> None:
    with Client(hosting("main", "second", authorization=True)) as client:
        admin = ISSUER.token("platform:admin", sub="root")
        client.post("/databases/all/migrate", token=admin).expect_success()
        token = ISSUER.token(*scopes)
        first = client.post(f"/databases/main/migrate?{LOSS}", token=token)
        every = client.post(f"/databases/all/migrate?{LOSS}&dry_run=true", token=token)

        assert (first.status, every.status) == (one, all_)
        if one == 403 and "databases:destroy" not in scopes:
            assert first.json() == {
                "detail": "Insufficient permissions",
                "error_code": "FORBIDDEN",
            }
            challenge = dict(first.headers)[b"www-authenticate"]
            assert b'scope="databases:main:destroy"' in challenge


@pytest.mark.parametrize(
    ("scopes", "query", "expected"),
    [
        (("databases:migrate",), "", {"allowed": True, "by": "databases:migrate"}),
        (("databases:migrate",), "?allow_data_loss=false", {"allowed": True}),
        (("databases:migrate",), LOSING, {"allowed": False, "missing": "databases:main:destroy"}),
        (("databases:main:migrate", "databases:main:destroy"), LOSING, {"allowed": True}),
        (("databases:destroy",), LOSING, {"allowed": False, "missing": "databases:main:migrate"}),
        (("platform:admin",), LOSING, {"allowed": True, "by": "platform:admin"}),
    ],
    ids=str,
)
def test_the_explanation_of_a_migration_looks_at_its_flag(
    scopes: tuple[str, ...], query: str, expected: dict[str, Any]
) -> None:
    with Client(hosting("main", "second", authorization=True)) as client:
        body = {"method": "POST", "path": f"/databases/main/migrate{query}"}
        told = client.post("/me/explain", json=body, token=ISSUER.token(*scopes))

    explained = told.expect_success().json()
    assert {name: explained[name] for name in expected} == expected
    assert explained["needs"].endswith(
        "; with allow_data_loss also databases:destroy or databases:<id>:destroy or platform:admin"
    )


def test_the_trail_names_target_and_flags_of_a_migration() -> None:
    with Client(hosting("main", "second", authorization=True)) as client:
        admin = ISSUER.token("platform:admin", sub="root")
        client.post("/databases/all/migrate", token=admin).expect_success()
        client.post(f"/databases/main/migrate?{LOSS}", token=ISSUER.token("config:write"))
        client.post(f"/databases/main/migrate?{LOSS}&dry_run=true", token=admin).expect_success()
        client.settle()
        client.post(f"/databases/main/migrate?{LOSS}", token=admin).expect_success()
        client.settle()

        client.post("/databases/main/migrate", token=admin).expect_success()
        rows = client.get("/audit?order=asc", token=admin).expect_success().json()["data"]

    (refused,) = [row for row in rows if row["status"] == 403]
    assert (refused["decision"], refused["scope"]) == ("deny", "databases:main:destroy")
    assert [(row["db_id"], row["resource"], row["status"]) for row in rows] == [
        ("main", f"main/{LATEST}", 200),
        ("main", f"all/{LATEST}", 200),
        ("main", f"main/{EARLIER}/allow_data_loss", 403),
        ("main", f"main/{EARLIER}/allow_data_loss/dry_run", 200),
        ("main", f"main/{EARLIER}/allow_data_loss", 200),
        ("main", f"main/{LATEST}", 200),
        ("second", f"second/{LATEST}", 200),
    ]


def test_attack_5a_a_scope_on_the_configuration_erases_the_trail() -> None:
    """Down to where there was no trail, and up again: refused, and without effect where not."""
    target = "/databases/main/migrate"
    down = f"{target}?target_version=2.0.0&allow_data_loss=true"
    with Client(hosting("main", authorization=True)) as client:
        admin = ISSUER.token("platform:admin", sub="root")
        client.post(target, token=admin).expect_success()
        client.get("/sessions?db_id=main", token=ISSUER.token("sessions:read", sub="eve"))
        client.settle()

        assert client.post(down, token=ISSUER.token("config:write", sub="eve")).status == 403
        client.post(down, token=admin).expect_success()
        client.post(target, token=admin).expect_success()
        client.settle()
        rows = client.get("/audit?order=asc", token=admin).expect_success().json()["data"]
        verdict = client.simulation.run(verify_trail("main"))

    listed = [(row["subject"], row["operation"], row["resource"]) for row in rows]
    assert ("eve", "get_sessions", "") in listed
    assert ("eve", "migrate_database", "main/2.0.0/allow_data_loss") in listed
    assert ("root", "migrate_database", "main/2.0.0/allow_data_loss") in listed
    assert isinstance(verdict, Intact)


def test_the_list_is_of_what_the_caller_may_read() -> None:
    with Client(hosting("main", "second", authorization=True)) as client:
        one = client.get("/databases", token=ISSUER.token("databases:second:read"))
        every = client.get("/databases", token=ISSUER.token("databases:read"))
        none = client.get("/databases", token=ISSUER.token("agents:read"))

        assert [told["id"] for told in one.json()] == ["second"]
        assert [told["id"] for told in every.json()] == ["main", "second"]
        assert none.status == 403


def test_an_older_node_speaks_for_its_own_catalogue() -> None:
    older = evolve(CATALOGUE, migrations=CATALOGUE.migrations[:2])
    with Client(hosting("main", catalogue=older)) as client:
        told = client.post("/databases/main/migrate").json()

        assert told["message"] == "Database migrated successfully to version 2.3.0"
        assert client.post(f"/databases/main/migrate?target_version={LATEST}").status == 400
        assert json.loads(client.get("/databases").body)[0]["latest"] == "2.3.0"


# --- its size ------------------------------------------------------------------------------------


def test_a_database_says_how_large_it_is_table_by_table() -> None:
    databases = (Database("main", "sqlite://"), Database("second", "sqlite://"))
    with Client(demo(None, databases=databases)) as client:
        for number in range(20):
            client.run("alpha", "hi " * 500, session_id=f"s{number}")
        first, second = (
            client.get(f"/databases/{name}/size").expect_success().json()
            for name in ("main", "second")
        )

    tables = [{one["name"]: one for one in each["tables"]} for each in (first, second)]
    assert [each["id"] for each in (first, second)] == ["main", "second"]
    assert [each["runs"]["rows"] for each in tables] == [20, 0]
    assert tables[0]["runs"]["bytes"] > tables[1]["runs"]["bytes"] > 0
    assert first["bytes"] > second["bytes"]


def test_the_size_of_a_large_file_is_that_of_the_whole() -> None:
    nobody: Any = None
    script = [(Transact("main", MeasureDatabase()), DatabaseSize(1 << 40, None))]
    answer = play(get_size(nobody, "main"), script)

    assert json.loads(answer.body) == {"id": "main", "bytes": 1 << 40, "tables": None}


def test_the_size_is_for_those_who_may_read_the_database() -> None:
    issuer = Issuer()
    with Client(demo(issuer)) as client:

        def status(scope: str, name: str = "main") -> int:
            return client.get(f"/databases/{name}/size", token=issuer.token(scope)).status

        assert status("databases:read") == status("databases:main:read") == 200
        assert status("databases:second:read") == status("sessions:read") == 403
        assert status("databases:read", "no-such") == 404
