"""Heads leave a process by themselves: into a file, the log and a webhook, on both engines."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import evolve

from legation import Agent, Audit, AuditKey, Platform
from legation.channels.signatures import Verified, standard_v1
from legation.effects import Program, Transact
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import migrate
from legation.store.audit import AppendAudit, ReadPages
from legation.store.audit_entries import AuditEntry
from legation.store.audit_heads import ChainHead, ReadHeads
from legation.store.audit_pages import Head, SigningKey, parse_head
from legation.store.audit_parts import ReadParts
from legation_host.hosting import open_platform

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from ..http_threads import Quiet, ThreadedServer, serve
from ..two_databases import in_folder

SECRET: Final = "s9Xw3vQ7kLzB1nH5rT8yC2mF6jD4gP0a"
HOOK: Final = base64.b64encode(bytes(range(32))).decode()
ENVIRON: Final = {"AUDIT_KEY": SECRET, "HOOK": HOOK}
KEY: Final = SigningKey("2026", SECRET.encode())
ENTRY: Final = AuditEntry(0, "r", "ada", None, "op", "a/b", "allow", "s", 200, "")


# --- Both engines --------------------------------------------------------------------------------


def asked(unit: Any) -> Program[Any]:
    return (yield from Transact("main", unit))


@pytest.fixture(params=["sqlite", "postgresql"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    made: Driver = (
        SqliteDriver(tmp_path / "t.db")
        if request.param == "sqlite"
        else PostgresDriver(request.getfixturevalue("postgres"))
    )
    with closing(made) as driver:
        drive(driver, migrate("main", CATALOGUE, None, actor="test", request_id="r", node="n"))
        yield driver


def test_heads_of_thousands_of_chains_are_read_along_the_key(driver: Driver) -> None:
    for number in range(150):
        for page in range(1 + number % 3):
            entry = evolve(ENTRY, at_us=page * 10_000_000)
            drive(
                driver, asked(AppendAudit(f"n{number:04}", (entry,), KEY if number % 2 else None))
            )
    found: list[ChainHead] = []
    after = ""
    while some := drive(driver, asked(ReadHeads(after, 40))):
        assert len(some) <= 40
        found += some
        after = some[-1].head.writer

    pages = drive(driver, asked(ReadPages("", 0, 1000)))
    last = {page.writer: (page.head, page.to_us) for page in pages}
    assert {one.head.writer: (one.head, one.at_us) for one in found} == last
    assert len(found) == 150
    within = drive(driver, asked(ReadParts(1, 15_000_000, "", 1000)))
    assert {(one.writer, one.first, one.last) for one in within} == {
        (page.writer, page.last, page.last) for page in pages if page.from_us == 10_000_000
    }


# --- A process -----------------------------------------------------------------------------------


class Log:
    """Takes the lines of a host."""

    def __init__(self) -> None:
        self.lines = list[tuple[str, str, dict[str, Any]]]()

    def __call__(self, level: str, event: str, fields: Any) -> None:
        self.lines.append((level, event, dict(fields)))

    def heads(self, database: str) -> list[Head]:
        said = [
            one["heads"]
            for _, event, one in self.lines
            if event == "audit_heads" and one["database"] == database
        ]
        return parsed(head for line in said for head in line.split(" "))

    def failures(self) -> list[tuple[str, str]]:
        return [
            (one["target"], one["reason"])
            for _, event, one in self.lines
            if event == "audit_heads_failed"
        ]


def parsed(texts: Any) -> list[Head]:
    heads = [parse_head(text) for text in texts]
    return [head for head in heads if head is not None]


class Receiver(Quiet, BaseHTTPRequestHandler):
    """A receiver of webhooks, which refuses as often as it is told."""

    taken: list[tuple[tuple[tuple[bytes, bytes], ...], bytes]]
    refuses: list[int]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        status = self.refuses.pop() if self.refuses else 204
        if status == 204:
            headers = tuple((k.lower().encode(), v.encode()) for k, v in self.headers.items())
            self.taken.append((headers, body))
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


@pytest.fixture
def receiver() -> Iterator[tuple[str, type[Receiver]]]:
    class Own(Receiver):
        taken, refuses = [], []

    with serve(ThreadedServer(Own)) as address:
        yield address, Own


def platform(folder: Path, second: str | None = None, **audit: Any) -> Platform:
    return Platform(
        id="front",
        agents=[Agent("a"), Agent("b", database="second")],
        databases=in_folder(folder, second),
        audit=Audit(keys=[AuditKey("2026", secret_env="AUDIT_KEY")], heads_seconds=1, **audit),
        environ=ENVIRON,
    )


async def keep(host: Any, database: str, writer: str = "w") -> Head:
    """Append an entry to a chain; return its head."""
    entry = evolve(ENTRY, at_us=time.time_ns() // 1000)
    await host.run(kept_in(database, AppendAudit(writer, (entry,), KEY)))
    found = await host.run(kept_in(database, ReadHeads("", 1000)))
    heads: list[Head] = [one.head for one in found if f"signed/{writer}" in one.head.writer]
    (head,) = heads
    return head


def kept_in(database: str, unit: Any) -> Program[Any]:
    return (yield from Transact(database, unit))


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.sleep(0.02)


def file_heads(path: Path, database: str) -> list[Head]:
    """Return the heads of a database in the file; what is broken off is passed over."""
    found: list[Head] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            read = json.loads(line)
        except ValueError:
            continue
        if read["database"] == database:
            assert (read["platform"], set(read)) == (
                "front",
                {"platform", "database", "at", "heads"},
            )
            found += parsed(read["heads"])
    return found


@pytest.fixture(params=[None, "postgres"], ids=["two files", "PostgreSQL beside a file"])
def second(request: pytest.FixtureRequest) -> str | None:
    return None if request.param is None else request.getfixturevalue(request.param)


async def test_heads_of_two_databases_leave_by_log_and_file_until_the_end(
    tmp_path: Path, second: str | None
) -> None:
    path, log = tmp_path / "heads.ndjson", Log()
    made = platform(tmp_path, second, heads_log=True, heads_file=str(path))
    async with open_platform(made, log=log) as host:
        wanted = {name: await keep(host, name) for name in ("main", "second")}
        for name, head in wanted.items():
            await until(lambda: head in log.heads(name) and head in file_heads(path, name))  # noqa: B023
        count = len(path.read_text().splitlines())
        again = await keep(host, "main")
        await until(lambda: again in file_heads(path, "main"))
        assert len(path.read_text().splitlines()) == count + 1  # the other one did not move
        last = await keep(host, "second", "x")

    assert last in file_heads(path, "second")  # as the process ended
    assert log.failures() == []


async def test_a_webhook_that_fails_gets_them_later_and_the_file_goes_on(
    tmp_path: Path, receiver: tuple[str, type[Receiver]]
) -> None:
    address, own = receiver
    own.refuses += [500] * 2
    path, log = tmp_path / "heads.ndjson", Log()
    made = platform(
        tmp_path,
        heads_file=str(path),
        heads_url=f"{address}/in",
        heads_secret_env="HOOK",
    )
    async with open_platform(made, log=log) as host:
        head = await keep(host, "main")
        await until(lambda: head in file_heads(path, "main"))
        await until(lambda: any(str(head).encode() in body for _, body in own.taken))

    assert ("heads_url", "answered 500") in log.failures()
    for headers, body in own.taken:
        now_us = time.time_ns() // 1000
        assert isinstance(standard_v1(headers, body, (bytes(range(32)),), now_us), Verified)
        assert json.loads(body)["type"] == "audit.heads"


async def test_a_file_that_cannot_be_written_is_said_and_written_later(tmp_path: Path) -> None:
    folder, log = tmp_path / "late", Log()
    made = platform(tmp_path, heads_log=True, heads_file=str(folder / "heads"))
    async with open_platform(made, log=log) as host:
        head = await keep(host, "main")
        await until(lambda: ("heads_file", "No such file or directory") in log.failures())
        await until(lambda: head in log.heads("main"))
        folder.mkdir()
        await until(lambda: head in file_heads(folder / "heads", "main"))
    assert log.failures().count(("heads_file", "No such file or directory")) <= 2  # a database each


async def test_a_key_that_changes_signs_from_then_on(tmp_path: Path) -> None:
    made = platform(tmp_path, heads_log=True)
    async with open_platform(made, log=Log()) as host:
        assert made.context.cluster.trail_keys.signing == KEY
        await host.run(made.write_audit((ENTRY,)))
        (page,) = await host.run(kept_in("main", ReadPages("signed/", 0, 10)))

    assert page.key_id == "2026"


KILLED: Final = """
import os, sys, time, trio
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from legation.effects import Transact
from legation_host.hosting import open_platform
from tests.frontends.test_audit_heads import keep, platform

async def main():
    async with open_platform(platform(Path(sys.argv[1]))) as host:
        print(await keep(host, "main", "killed"), flush=True)
        os.kill(os.getpid(), 9)

trio.run(main)
"""


async def test_heads_of_a_process_that_was_killed_are_sent_by_the_next_one(tmp_path: Path) -> None:
    done = subprocess.run(  # noqa: ASYNC221 (nothing else is to be done meanwhile)
        [sys.executable, "-c", KILLED, str(tmp_path), *sys.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    head = parse_head(done.stdout.strip())
    path = tmp_path / "heads.ndjson"
    async with open_platform(platform(tmp_path, heads_file=str(path))):
        await until(lambda: head in file_heads(path, "main"))


async def test_a_round_of_a_process_without_jobs_sends_them(tmp_path: Path) -> None:
    log = Log()
    made = platform(tmp_path, heads_log=True)
    async with open_platform(made, log=log, jobs=False) as host:
        head = await keep(host, "second")
        await host.run(made.round())
        assert head in log.heads("second")
        count = len(log.heads("second"))
        await host.run(made.round())
        assert len(log.heads("second")) == count
