"""The rate of requests to migrate a database that is at the newest version already.

    python benchmarks/migrate.py FOLDER [ROUNDS]     FOLDER keeps the environment of AgentOS 2.5.6

`POST /databases/main/migrate` at 16 connections, on a SQLite file, each server one process, its
logs off (of AgentOS also the lines that each request writes to the terminal), in turns.  Both
look up where the database stands, under whatever lock they take, and find nothing to do.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from peer import peer_command

CONNECTIONS: Final = 16
OURS: Final = 2_000  # requests in a round
THEIRS: Final = 200
AIM: Final = 30.0  # times

REQUEST: Final = b"POST /databases/main/migrate HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
PLATFORM: Final = """
[databases.main]
url = "sqlite:///{folder}/ours.db"
[[agents]]
id = "agent-0"
"""
QUIET: Final = """
import logging
from agno.utils.log import set_log_level_to_error
from peer_app import app
set_log_level_to_error()
logging.disable(logging.ERROR)
"""


def ask(port: int, requests: int) -> float:
    """Send so many requests on 16 connections; return how many were answered in a second.

    One loop over sockets: what asks must not be what is measured.
    """
    begun = ended = 0
    with selectors.DefaultSelector() as selector, ExitStack() as stack:
        for _ in range(CONNECTIONS):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(line, selectors.EVENT_READ, line)
        began = time.perf_counter()
        for key in selector.get_map().values():
            key.data.sendall(REQUEST)
            begun += 1
        while ended < requests:
            for key, _ in selector.select():
                answer = key.data.recv(65536)
                if answer.endswith(b"}"):  # the last piece; head and body may come by themselves
                    ended += 1
                    if begun < requests:
                        key.data.sendall(REQUEST)
                        begun += 1
                elif not answer.startswith(b"HTTP/1.1 200"):
                    raise SystemExit(f"not migrated: {answer!r}")
        return requests / (time.perf_counter() - began)


def check(port: int) -> None:
    """Migrate once, and see that it says so."""
    request = Request(f"http://127.0.0.1:{port}/databases/main/migrate", method="POST")
    with urlopen(request, timeout=60) as response:
        body = response.read()
    if b"migrated successfully" not in body:
        raise SystemExit(f"not migrated: {body!r}")


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def run_server(command: list[str], env: dict[str, str], port: int) -> Generator[int]:
    """Run a server until the block ends; yield its port when it answers."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet)
    try:
        while process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextmanager
def ours(folder: Path) -> Generator[int]:
    """Serve Legation with its tables."""
    port = free_port()
    (folder / "platform.toml").write_text(PLATFORM.format(folder=folder))
    command = [sys.executable, "-m", "legation_cli", "serve", str(folder / "platform.toml")]
    with run_server([*command, "--port", str(port)], dict(os.environ), port) as served:
        yield served


@contextmanager
def theirs(folder: Path, peer: Path) -> Generator[int]:
    """Serve AgentOS with its tables, and without a line of log."""
    port = free_port()
    command, env = peer_command(peer, port, folder / "theirs.db")
    (folder / "quiet_app.py").write_text(QUIET)
    command[command.index("peer_app:app")] = "quiet_app:app"
    command[command.index("--app-dir") + 1] = str(folder)
    with run_server(command, {**env, "PYTHONPATH": str(peer)}, port) as served:
        yield served


def main() -> None:
    """Print the rates and their ratio."""
    peer, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    rates: dict[str, list[float]] = {"Legation": [], "AgentOS 2.5.6": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ours(folder) as mine, theirs(folder, peer) as other:
            for port in (mine, other):
                check(port)
                ask(port, THEIRS)
            for _ in range(rounds):
                rates["Legation"].append(ask(mine, OURS))
                rates["AgentOS 2.5.6"].append(ask(other, THEIRS))
    for name, taken in rates.items():
        print(f"{name}: {statistics.median(taken):,.0f} requests/s")
    ratios = sorted(a / b for a, b in zip(*rates.values(), strict=True))
    middle = statistics.median(ratios)
    print(f"ratio of pairs: median {middle:.1f}, {ratios[0]:.1f} to {ratios[-1]:.1f}")
    print(f"    aim: {AIM:.0f} times: {'reached' if middle >= AIM else 'MISSED'}")


if __name__ == "__main__":
    main()
