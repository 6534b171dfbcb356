"""PgBouncer in front of the tests' PostgreSQL, in transaction mode unless told otherwise.

Its binary comes from the system: `nox -s tests` installs Debian's package where it may.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from .engines import Cluster
from .ports import free_port

__all__ = ["SERVER_CONNECTIONS", "NoPooler", "pooled", "through"]

SERVER_CONNECTIONS: Final = 2
"""Behind the pooler, however many clients there are in front of it."""

_USER: Final = "nobody" if os.geteuid() == 0 else None
_PATIENCE: Final = 20.0
_CONFIGURATION: Final = """
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = {size}
max_client_conn = 200
"""


class NoPooler(Exception):
    """There is no PgBouncer on this machine; the tests that need it are skipped."""


@contextmanager
def pooled(
    cluster: Cluster, size: int = SERVER_CONNECTIONS, mode: str = "transaction"
) -> Generator[int]:
    """Run PgBouncer before `cluster`; yield its port."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
    binary = shutil.which("pgbouncer", path=path)
    if binary is None:
        raise NoPooler("no pgbouncer here: apt-get install pgbouncer, or put it on PATH")
    folder = Path(tempfile.mkdtemp(prefix="legation-pool-"))
    try:
        port = free_port()
        (folder / "users").write_text('"postgres" ""\n')
        text = _CONFIGURATION.format(
            server=cluster.port, port=port, folder=folder, size=size, mode=mode
        )
        (folder / "pooler.ini").write_text(text)
        if _USER is not None:
            shutil.chown(folder, _USER)
        process = subprocess.Popen(
            [binary, "-q", folder / "pooler.ini"],
            user=_USER,
            cwd=folder,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            _until_ready(process, port)
            yield port
        finally:
            process.kill()
            process.wait()
    finally:
        shutil.rmtree(folder)


def _until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    due = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < due:
        try:
            psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres").close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise NoPooler("pgbouncer did not start")


def through(url: str, port: int, query: str = "?pgbouncer=true") -> str:
    """Return the URL of the same database by way of the pooler."""
    parts = urlsplit(url)
    return f"postgresql://postgres@127.0.0.1:{port}{parts.path}{query}"
