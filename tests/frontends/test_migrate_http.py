"""Migrations over real HTTP: `legation serve`, real tokens, real engines, real locks."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import psycopg
import pytest
from attrs import define, field

from ..callers import Issuer
from ..engines import Cluster
from .migrating import LATEST, Reply, Server, asked, run, serving
from .test_host_postgres import Wire

ISSUER: Final = Issuer()
NEVER: Final = 4_000_000_000
LOCK_TIMEOUT: Final = 0.2  # seconds a migration waits in the queue of a table, and others behind it
HELD: Final = 2.0  # seconds


def issued(*scopes: str, exp: int = NEVER) -> str:
    """Return a token for a server on the real clock."""
    return ISSUER.token(*scopes, iat=None, exp=exp)


CONFIGURATION: Final = """
[platform]
id = "demo"
authorization = {authorization}

[authorization_config]
verification_keys = ['''{key}''']

[databases.main]
url = "{main}"
auto_migrate = false

[databases.second]
url = "sqlite:///{folder}/second.db"
auto_migrate = false

[[agents]]
id = "concierge"
"""


@contextmanager
def served(folder: Path, main: str, *, authorization: bool = False) -> Generator[Server]:
    """Serve `main` and a SQLite database beside it."""
    text = CONFIGURATION.format(
        authorization=str(authorization).lower(), key=ISSUER.pem, main=main, folder=folder
    )
    with serving(folder, text) as server:
        yield server


# --- every status


@pytest.fixture(scope="module")
def secured(
    postgres_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Server]:
    """A server that asks for tokens; `main` is PostgreSQL at 2.5.0, where nothing goes further."""
    with postgres_cluster.new_schema() as url:
        folder = tmp_path_factory.mktemp("secured")
        with served(folder, url, authorization=True) as server:
            token = issued("databases:migrate")
            target = "/databases/main/migrate?target_version=2.5.0"
            assert server.ask("POST", target, token=token).status == 200
            run(url, "create table background (in_the_way text)")
            yield server


MAIN: Final = "/databases/main/migrate"
SECOND: Final = "/databases/second/migrate"
MIGRATE: Final = issued("databases:migrate")

STATUSES: Final = (
    ("no token", MAIN, None, b"", 401, "UNAUTHENTICATED"),
    ("no token, no database", "/databases/nope/migrate", None, b"", 401, "UNAUTHENTICATED"),
    ("garbage", MAIN, "x.y.z", b"", 401, "UNAUTHENTICATED"),
    ("expired", MAIN, issued("databases:migrate", exp=1), b"", 401, "UNAUTHENTICATED"),
    (
        *("of another issuer", MAIN, Issuer().token("databases:migrate", iat=None, exp=NEVER)),
        *(b"", 401, "UNAUTHENTICATED"),
    ),
    ("no scope", MAIN, issued(), b"", 403, "FORBIDDEN"),
    ("another scope", MAIN, issued("databases:read"), b"", 403, "FORBIDDEN"),
    ("another database", MAIN, issued("databases:second:migrate"), b"", 403, "FORBIDDEN"),
    (
        "all for one",
        "/databases/all/migrate",
        issued("databases:main:migrate"),
        b"",
        403,
        "FORBIDDEN",
    ),
    ("unknown database", "/databases/nope/migrate", MIGRATE, b"", 404, "NOT_FOUND"),
    ("malformed", f"{MAIN}?target_version=abc", MIGRATE, b"", 422, "VALIDATION_ERROR"),
    ("empty", f"{MAIN}?target_version=", MIGRATE, b"", 422, "VALIDATION_ERROR"),
    (
        *("repeated", f"{MAIN}?target_version=2.5.0&target_version=2.5.0", MIGRATE),
        *(b"", 422, "VALIDATION_ERROR"),
    ),
    ("malformed in the body", MAIN, MIGRATE, b'{"target_version": 2}', 422, "VALIDATION_ERROR"),
    ("no JSON", MAIN, MIGRATE, b"{", 400, "BAD_REQUEST"),
    ("unknown version", f"{MAIN}?target_version=9.9.9", MIGRATE, b"", 400, "BAD_REQUEST"),
    ("losing data", f"{MAIN}?target_version=2.0.0", MIGRATE, b"", 400, "BAD_REQUEST"),
    ("tried and failed", MAIN, MIGRATE, b"", 500, "INTERNAL_SERVER_ERROR"),
    ("rehearsed and failed", f"{MAIN}?dry_run=true", MIGRATE, b"", 500, "INTERNAL_SERVER_ERROR"),
)


@pytest.mark.parametrize(
    ("target", "token", "body", "status", "code"),
    [row[1:] for row in STATUSES],
    ids=[row[0] for row in STATUSES],
)
def test_every_refusal_has_its_status_and_changes_nothing(
    secured: Server, target: str, token: str | None, body: bytes, status: int, code: str
) -> None:
    reply = secured.ask("POST", target, token=token, body=body)

    assert (reply.status, reply.json["error_code"]) == (status, code)
    assert isinstance(reply.detail, str)
    assert set(reply.json) <= {"detail", "error_code", "errors"}
    assert ("www-authenticate" in reply.headers) == (status in (401, 403))
    assert ("(incident " in reply.detail) == (status == 500)
    assert "background" not in reply.detail
    told = secured.ask("GET", "/databases/main", token=issued("databases:read")).json
    assert told["version"] == "2.5.0"


@pytest.mark.parametrize("scope", ["databases:second:migrate", "config:write", "platform:admin"])
def test_success_is_200_and_names_the_version(secured: Server, scope: str) -> None:
    reply = secured.ask("POST", SECOND, token=issued(scope), body=b'{"target_version": "2.3"}')

    assert reply.status == 200
    assert reply.json["message"] == "Database migrated successfully to version 2.3.0"


def test_partly_is_207_and_says_what_failed(secured: Server) -> None:
    target = f"/databases/all/migrate?target_version={LATEST}"
    reply = secured.ask("POST", target, token=issued("databases:migrate"))

    assert reply.status == 207
    assert reply.json["message"] == f"Migrated 1/2 databases to version {LATEST}"
    assert list(reply.json["databases"]) == ["second"]
    assert list(reply.json["failed"]) == ["main"]
    assert "the old version stands" in reply.json["failed"]["main"]


# --- nobody is blocked


@define
class Prober:
    """Asks the same thing again and again on the side, and remembers how long each answer took."""

    ask: Callable[[], object]
    waits: list[float] = field(factory=list[float])
    _done: threading.Event = field(factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._probe)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _probe(self) -> None:
        while not self._done.is_set():
            started = time.monotonic()
            self.ask()
            self.waits.append(time.monotonic() - started)
            time.sleep(0.01)

    @property
    def worst_ms(self) -> float:
        """The longest wait."""
        return max(self.waits) * 1e3


def healthy(server: Server) -> Callable[[], None]:
    def ask() -> None:
        assert server.ask("GET", "/health").status == 200

    return ask


def migrate_while_held(server: Server, release: Callable[[], None]) -> tuple[Reply, Reply, float]:
    """Migrate both databases while `main` is held; return both answers and how long `main` took."""
    timer = threading.Timer(HELD, release)
    replies: list[Reply] = []
    started = time.monotonic()

    def beside() -> None:
        replies.append(server.ask("POST", SECOND))
        assert time.monotonic() - started < HELD, "the other database waited, too"

    other = threading.Thread(target=beside)
    timer.start()
    other.start()
    main = server.ask("POST", MAIN)
    took = time.monotonic() - started
    other.join()
    timer.join()
    return main, replies[0], took


def test_a_postgresql_table_that_is_held_blocks_nobody_else(
    postgres: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    with served(tmp_path, postgres) as server, psycopg.connect(postgres) as holder:
        server.ask("POST", f"{MAIN}?target_version=2.5.0")
        holder.execute("select count(*) from runs")  # holds the table until the transaction ends
        reader = psycopg.connect(postgres, autocommit=True)

        def read() -> None:
            reader.execute("select count(*) from runs")

        with reader, Prober(healthy(server)) as health, Prober(read) as readers:
            main, second, took = migrate_while_held(server, holder.rollback)

        assert (main.status, second.status) == (200, 200)
        assert main.json["to_version"] == second.json["to_version"] == LATEST
        assert HELD <= took < 10
    figures(
        f"migrate, postgresql: a table held for {HELD:.0f} s: /health at most"
        f" {health.worst_ms:.0f} ms ({len(health.waits)} asked), other readers at most"
        f" {readers.worst_ms:.0f} ms, the migration done after {took:.1f} s"
    )
    assert health.worst_ms < 1_000
    assert readers.worst_ms < (LOCK_TIMEOUT + 0.8) * 1e3


LOCKER: Final = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
connection.execute("rollback")
"""


def test_a_sqlite_file_that_is_locked_blocks_nobody_else(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    file = tmp_path / "main.db"
    with served(tmp_path, f"sqlite:///{file}") as server:
        server.ask("POST", f"{MAIN}?target_version=2.5.0")
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", LOCKER, str(file)]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as locker:
            assert locker.stdin is not None
            assert locker.stdout is not None
            assert locker.stdout.readline() == b"held\n"

            def release() -> None:
                locker.communicate(b"\n", timeout=10)

            with Prober(healthy(server)) as health:
                main, second, took = migrate_while_held(server, release)

        assert (main.status, second.status) == (200, 200)
        assert main.json["to_version"] == LATEST
        assert HELD <= took < 10
    figures(
        f"migrate, sqlite: a file locked for {HELD:.0f} s: /health at most"
        f" {health.worst_ms:.0f} ms ({len(health.waits)} asked), the migration done after"
        f" {took:.1f} s"
    )
    assert health.worst_ms < 1_000


# --- the answer to COMMIT is lost


@pytest.mark.parametrize("after", [False, True], ids=["before it arrived", "after it arrived"])
async def test_a_migration_whose_commit_got_no_answer_is_looked_up(
    postgres: str, after: bool
) -> None:
    wire = Wire(postgres, after)
    try:
        async with asked(wire.url) as ask:
            await ask("POST", f"{MAIN}?target_version=2.5.0")
            wire.mark = b"insert into schema_ledger"
            reply = await ask("POST", MAIN)

            assert wire.mark is None
            assert reply.status == (200 if after else 500)
            assert (await ask.stands())[0] == (LATEST if after else "2.5.0")
            assert (await ask("POST", MAIN)).json["to_version"] == LATEST
            history = (await ask("GET", "/databases/main/migrations")).json["data"]
            assert [entry["to_version"] for entry in history] == [LATEST, "2.5.0"]
    finally:
        wire.close()


def test_the_log_has_the_reason_under_the_incident(postgres: str, tmp_path: Path) -> None:
    with served(tmp_path, postgres) as server:
        run(postgres, "create table sessions (in_the_way text)")
        reply = server.ask("POST", MAIN)
        incident = reply.detail.rpartition("(incident ")[2].rstrip(")")
        lines = [json.loads(line) for line in logged(tmp_path)]

    (line,) = [line for line in lines if line.get("incident") == incident]
    assert line["outcome"] == "MigrationFailed"
    assert any("already exists" in str(line.get("error")) for line in lines)


def logged(folder: Path) -> list[str]:
    """Return the lines of the log, which is JSON beside the banner."""
    return [one for one in (folder / "serve.log").read_text().splitlines() if one.startswith("{")]
