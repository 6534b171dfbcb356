"""A platform on real databases, asked in this process, and processes that are asked to migrate."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
from attrs import field, frozen

from legation import Agent, Database, Platform
from legation.http.messages import Request, Response
from legation.migrations.catalogue import CATALOGUE, Catalogue
from legation.migrations.migrate import Migrated, migrate
from legation.migrations.schema_version import Version
from legation.store.units import Dialect
from legation_host import Host, open_host

from ..callers import Issuer
from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from ..dumps import dump

__all__ = [
    "LATEST",
    "Asked",
    "Migrators",
    "Reply",
    "Server",
    "asked",
    "driver_of",
    "migrators",
    "move",
    "published",
    "run",
    "serving",
    "shape",
    "with_tables",
]

LATEST: Final = str(CATALOGUE.latest)


def move(driver: Driver, to: Version) -> None:
    """Bring the database of `driver` to a version, up or down."""
    program = migrate("main", CATALOGUE, to, allow_data_loss=True, actor="", request_id="", node="")
    assert isinstance(drive(driver, program), Migrated)


def with_tables(driver: Driver) -> Driver:
    """Return `driver` with the tables of the newest version."""
    drive(driver, migrate("main", CATALOGUE, None, actor="", request_id="", node=""))
    return driver


@frozen
class Reply:
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    json: Any

    @property
    def detail(self) -> str:
        """The sentence of a refusal."""
        detail: str = self.json["detail"]
        return detail


@frozen
class _Content:
    """A body that is here already."""

    content: bytes

    async def read(self, limit: int) -> bytes | None:
        return self.content


@frozen
class Asked:
    """A running platform; `token` is sent with every request that has none of its own."""

    platform: Platform
    host: Host
    token: str | None = None

    async def __call__(
        self, method: str, target: str, *, body: Any = None, token: str | None = None
    ) -> Reply:
        """Send a request with a JSON body, or without one."""
        headers = [(b"host", b"127.0.0.1")]
        if body is not None:
            headers.append((b"content-type", b"application/json"))
        if bearer := token or self.token:
            headers.append((b"authorization", f"Bearer {bearer}".encode()))
        content = _Content(b"" if body is None else json.dumps(body).encode())
        request = Request(method, target, tuple(headers), "127.0.0.1")
        answer = await self.host.run(self.platform.answer(request), body=content)
        assert isinstance(answer, Response)
        fields = {name.decode(): value.decode() for name, value in answer.headers}
        return Reply(answer.status, fields, json.loads(answer.body))

    async def stands(self, name: str = "main") -> tuple[str | None, str]:
        """Return the version and the state of a database."""
        told = (await self("GET", f"/databases/{name}")).json
        return told["version"], told["state"]


@asynccontextmanager
async def asked(
    *urls: str,
    catalogue: Catalogue = CATALOGUE,
    auto_migrate: bool | None = False,
    issuer: Issuer | None = None,
    jobs: bool = False,
    **options: Any,
) -> AsyncGenerator[Asked]:
    """Run a platform on the databases `main`, `second` and so on."""
    if issuer is not None:
        options |= {"authorization": True, "authorization_config": issuer.authorization()}
    names = ("main", "second", "third")
    platform = Platform(
        catalogue=catalogue,
        agents=[Agent(id="concierge")],
        databases=[Database(n, u, auto_migrate) for n, u in zip(names, urls, strict=False)],
        **options,
    )
    async with open_host(platform.databases) as host:
        await host.run(platform.startup())
        for job in platform.jobs() if jobs else ():
            host.spawn(job)
        yield Asked(platform, host)


# --- databases by their URL


def driver_of(url: str) -> Driver:
    """Return a driver for the database at `url`."""
    if url.startswith("sqlite:"):
        return SqliteDriver(Path(urlsplit(url).path[1:]))
    return PostgresDriver(url)


def run(url: str, *statements: str) -> None:
    """Run statements, each by itself, with a plain driver."""
    if url.startswith("sqlite:"):
        with closing(sqlite3.connect(urlsplit(url).path[1:], isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)
    else:
        with psycopg.connect(url, autocommit=True) as other:
            for statement in statements:
                other.execute(statement.encode())


def shape(url: str, *, ledger: bool = False) -> str:
    """Return the schema at `url` as text, the table of the ledger in it if asked for."""
    with closing(driver_of(url)) as driver:
        return dump(driver, ledger=ledger)


def published(url: str, version: str) -> str:
    """Return the schema that a version has on the engine of `url`, ledger and all."""
    engine = (Dialect.SQLITE if url.startswith("sqlite:") else Dialect.POSTGRESQL).value
    folder = Path(__file__).parents[1] / "golden"
    return (folder / f"schema-{engine}-{version}.txt").read_text(encoding="utf-8")


# --- servers


@frozen
class Server:
    """A `legation serve` process on a free port."""

    process: subprocess.Popen[bytes]
    port: int

    def ask(
        self,
        method: str,
        target: str,
        *,
        body: bytes = b"",
        token: str | None = None,
        patience: float = 30.0,
    ) -> Reply:
        """Send a request on a connection of its own; wait for its answer `patience` seconds."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=patience)
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if body:
            headers["content-type"] = "application/json"
        try:
            connection.request(method, target, body or None, headers)
            response = connection.getresponse()
            fields = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, fields, json.loads(response.read()))
        finally:
            connection.close()

    def stands(self, name: str = "main") -> tuple[str | None, str]:
        """Return the version and the state of a database."""
        told = self.ask("GET", f"/databases/{name}").json
        return told["version"], told["state"]


@contextmanager
def serving(folder: Path, configuration: str) -> Generator[Server]:
    """Serve `configuration`, the text of a platform.toml, and stop at the end."""
    file, said = folder / "platform.toml", folder / "serve.log"
    file.write_text(configuration)
    command = [sys.executable, "-m", "legation_cli", "serve", str(file), "--port", "0"]
    with said.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield Server(process, _port(process, said))
    finally:
        process.terminate()
        try:
            process.wait(15)
        finally:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], said: Path) -> int:
    """Return the port that the banner names."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:([0-9]+)", said.read_text())
        if found is not None:
            return int(found[1])
        time.sleep(0.02)
    raise AssertionError(said.read_text())


# --- processes

_MIGRATOR: Final = """
import json, sys
import anyio
from legation import Database, Platform
from legation.http.messages import Request
from legation_host import open_host

async def migrate(url):
    platform = Platform(databases=[Database("main", url, auto_migrate=False)])
    async with open_host(platform.databases) as host:
        await host.run(platform.startup())
        print("ready", flush=True)
        sys.stdin.readline()
        request = Request("POST", "/databases/main/migrate", ((b"host", b"a"),), "127.0.0.1")
        answer = await host.run(platform.answer(request))
        print(json.dumps([answer.status, json.loads(answer.body)]), flush=True)

while url := sys.stdin.readline().strip():
    anyio.run(migrate, url, backend="trio")
"""


@frozen
class Migrators:
    """Processes that each host a platform, and migrate when they are told, all at once."""

    processes: list[subprocess.Popen[str]] = field(factory=list["subprocess.Popen[str]"])

    def migrate(self, url: str) -> list[tuple[int, Any]]:
        """Return what each of them answered to `POST /databases/main/migrate`."""
        self._tell(url)
        assert self._heard() == ["ready\n"] * len(self.processes)
        self._tell("go")
        return [tuple(json.loads(line)) for line in self._heard()]

    def _tell(self, line: str) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()

    def _heard(self) -> list[str]:
        lines: list[str] = []
        for process in self.processes:
            assert process.stdout is not None
            lines.append(process.stdout.readline())
        return lines


@contextmanager
def migrators(count: int) -> Generator[Migrators]:
    """Start `count` processes, and stop them."""
    command = [sys.executable, "-c", _MIGRATOR]
    made = Migrators()
    try:
        for _ in range(count):
            pipe = subprocess.PIPE
            made.processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.communicate()
