"""After the erasure of a person nothing of what they said is stored, and all of what others said.

The texts are looked for in the bytes of SQLite's files, the log among them, while the server runs,
and in a dump of PostgreSQL.
"""

from __future__ import annotations

import hmac
import json
import shutil
import sqlite3
import subprocess
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import pytest

from legation.store.units import Unit
from legation_host.sqlite_connection import connect, run_unit
from legation_testing import Client, crash_everywhere

from ..drivers import PostgresDriver
from ..engines import Cluster
from .erasure_kit import PEOPLE, SECRET, Letters, Planted, deliver, make, plant, user_path
from .hosted import hosted

MARKS: Final = {"4911": "ADA", "4922": "EVE"}
ADA, EVE = PEOPLE.values()


def over_http(base: str) -> Callable[..., tuple[int, Any]]:
    def ask(
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        key: str = "",
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        sent = {"content-type": "application/json", **(headers or {})}
        if key:
            sent["idempotency-key"] = key
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = Request(f"{base}{path}", data, sent, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except HTTPError as error:
            return error.code, error.read().decode()

    return ask


def signed(name: str, body: bytes, now: int) -> dict[str, str]:
    key = b64decode(SECRET.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{name}.{now}.".encode() + body, "sha256")
    return {
        "content-type": "application/json",
        "webhook-id": name,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{b64encode(digest).decode()}",
    }


def plant_all(
    ask: Callable[..., tuple[int, Any]], run: Callable[[Unit[None]], None]
) -> dict[str, Planted]:
    """Plant the data of both people; `run` runs a unit on the database `main`."""

    def hook(name: str, body: bytes) -> int:
        headers = signed(name, body, int(time.time()))
        return ask("POST", "/desk/webhook", raw=body, headers=headers)[0]

    planted: dict[str, Planted] = {}
    for sender, user in PEOPLE.items():
        mark = MARKS[sender]
        texts = plant(ask, user, mark).texts
        deliver(hook, sender, mark)
        letters = Letters(sender, user, mark)
        run(letters)
        for _ in range(200):
            done = ask("GET", "/channels/desk/messages?state=done")[1]["data"]
            if f"m-{sender}" in {one["id"] for one in done}:
                break
            time.sleep(0.05)
        more = (f"{mark}-channel", f"{mark}-channel-said")
        planted[mark] = Planted(user, (*texts, *letters.texts, *more))
    return planted


def check(
    ask: Callable[..., tuple[int, Any]], planted: Mapping[str, Planted], read: Callable[[], bytes]
) -> None:
    """Erase one person, and look for what is left of both."""
    before = read()
    for one in planted.values():
        assert len(one.texts) >= 40
        assert [text for text in one.texts if text.encode() not in before] == []
    path = f"/users/{user_path(ADA)}"
    counted = ask("DELETE", f"{path}?dry_run=true")[1]
    status, receipt = ask("DELETE", path)
    after = read()

    assert status == 200, receipt
    assert receipt["counts"] == counted["counts"]
    assert receipt["user_id"] == ADA
    assert min(receipt["counts"].values()) > 0
    assert min(one["sessions"] for one in receipt["databases"].values()) > 0
    assert [text for text in planted["ADA"].texts if text.encode() in after] == []
    assert b"ADA-" not in after
    assert [text for text in planted["EVE"].texts if text.encode() not in after] == []
    again = ask("DELETE", path)[1]
    assert set(again["counts"].values()) == {0}


def test_nothing_is_left_of_a_person_in_the_files_of_sqlite(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.db" for name in ("main", "other")}
    platform = make({name: f"sqlite:///{file}" for name, file in files.items()})

    def run(unit: Unit[None]) -> None:
        with closing(connect(str(files["main"]))) as connection:
            run_unit(connection, unit)

    def read() -> bytes:
        parts = [*files.values(), *(file.with_name(f"{file.name}-wal") for file in files.values())]
        return b"".join(part.read_bytes() for part in parts if part.exists())

    with hosted(platform) as base:
        ask = over_http(base)
        check(ask, plant_all(ask, run), read)


def test_nothing_is_left_of_a_person_in_a_dump_of_postgresql(postgres_cluster: Cluster) -> None:
    cluster = postgres_cluster
    with ExitStack() as stack:
        urls = {name: stack.enter_context(cluster.new_database()) for name in ("main", "other")}
        platform = make(urls)

        def run(unit: Unit[None]) -> None:
            driver = PostgresDriver(urls["main"])
            driver.run(unit)
            driver.close()

        def read() -> bytes:
            return b"".join(map(dump, urls.values()))

        def dump(url: str) -> bytes:
            tool = cluster.binaries / "pg_dump"
            if tool.exists():
                return subprocess.run(
                    [tool, "--inserts", url], check=True, capture_output=True
                ).stdout
            return b"".join(rows_of(url))

        with hosted(platform) as base:
            ask = over_http(base)
            check(ask, plant_all(ask, run), read)


def rows_of(url: str) -> Iterator[bytes]:
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "select relname from pg_class where relkind = 'r'"
            " and relnamespace = current_schema()::regnamespace"
        ).fetchall()
        for (table,) in tables:
            for row in connection.execute(f'select * from "{table}"'.encode()):
                for value in row:
                    yield value if isinstance(value, bytes) else str(value).encode()


# --- Crashes -----------------------------------------------------------------------------------


def in_process(client: Client) -> Callable[..., tuple[int, Any]]:
    def ask(
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        key: str = "",
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        fields = {**(headers or {}), **({"idempotency-key": key} if key else {})}
        options: dict[str, Any] = {"json": body} if raw is None else {"body": raw}
        answer = client.request(method, path, headers=fields, **options)
        client.advance(0.1)
        return answer.status, json.loads(answer.body or b"null")

    return ask


def urls_in(folder: Path) -> dict[str, str]:
    return {name: f"sqlite:///{folder / name}.db" for name in ("main", "other")}


def client_in(folder: Path) -> Client:
    files = {name: str(folder / f"{name}.db") for name in ("main", "other")}
    return Client(lambda: make(urls_in(folder)), databases=files)


def texts_in(folder: Path) -> str:
    found: list[str] = []
    for name in ("main", "other"):
        with closing(sqlite3.connect(folder / f"{name}.db")) as connection:
            tables = connection.execute("select name from sqlite_master where type = 'table'")
            for (table,) in tables.fetchall():
                for row in connection.execute(f"select * from {table}"):
                    found += (v.decode() if isinstance(v, bytes) else str(v) for v in row)
    return "\n".join(found)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Planted]]:
    """The files of two databases with the data of both people."""
    folder = tmp_path_factory.mktemp("world")
    with client_in(folder) as client:
        ask = in_process(client)

        def run(unit: Unit[None]) -> None:
            with closing(connect(str(folder / "main.db"))) as connection:
                run_unit(connection, unit)

        def ask_at(method: str, path: str, *more: Any, **options: Any) -> tuple[int, Any]:
            if path == "/desk/webhook":
                sent: bytes = options["raw"]
                options["headers"] = signed(f"m-{sender_of(sent)}", sent, now(client))
            return ask(method, path, *more, **options)

        planted = plant_all(ask_at, run)
    return folder, planted


def sender_of(delivery: bytes) -> str:
    return str(json.loads(delivery)["data"]["sender"])


def now(client: Client) -> int:
    return client.clock.now_us // 1_000_000


ERASURE: Final = f"/users/{user_path(ADA)}"
DELETIONS: Final = {
    "a person": (ERASURE, None),
    "a session": ("/sessions/s-ada-crew?db_id=main", "ADA-task"),
    "a session with a kept answer": ("/sessions/s-ada-kept?db_id=main", "ADA-kept"),
    # The name of the session stays, and that is the first message.
    "a run": ("/sessions/s-ada-kept/runs/{run}?db_id=main", "ADA-kept-said"),
    "a session of a channel": ("/sessions/desk:4911?db_id=main", "ADA-channel"),
}


@pytest.mark.enumeration
@pytest.mark.parametrize("what", DELETIONS)
def test_a_deletion_that_crashed_anywhere_is_completed_by_the_next_one(
    what: str,
    world: tuple[Path, dict[str, Planted]],
    tmp_path: Path,
    figures: Callable[[str], None],
) -> None:
    template, planted = world
    path, text = DELETIONS[what]
    with closing(sqlite3.connect(template / "main.db")) as connection:
        chosen = "select run_id from runs where session_id = 's-ada-kept'"
        path = path.replace("{run}", connection.execute(chosen).fetchone()[0])
    numbers = iter(range(10_000))
    folder = tmp_path

    def start() -> Client:
        nonlocal folder
        shutil.rmtree(folder, ignore_errors=True)
        folder = tmp_path / str(next(numbers))
        shutil.copytree(template, folder)
        return client_in(folder)

    def delete(client: Client) -> None:
        assert client.request("DELETE", path).status in (200, 204)

    def check(client: Client) -> None:
        delete(client)
        left = texts_in(folder)
        gone = planted["ADA"].texts if text is None else (text,)
        assert [one for one in gone if one in left] == []
        assert [one for one in planted["EVE"].texts if one not in left] == []

    trials = crash_everywhere(start, delete, check)
    figures(f"erasure: {what}, a crash at {trials.points} effects")
    assert trials.points > 10
