"""The growth of a database by requests without a token, from 100,000 IPv6 networks.

    python benchmarks/fair_shares/refusals.py

First a server is asked 300,000 times, as 60 s of 5,000 a second are, as fast as two connections of
a proxy can: the proxy names the clients.  Then two hours pass in this process, on a clock that is
set forward: one with 5,000 a second in its first minute, and one with 50 a second.  The size is
that of the SQLite database, with what only its write-ahead log has.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import BinaryIO, Final

import anyio

from legation import Platform, Request
from legation.config import Agent, AuthorizationConfig, Database
from legation_host.host import open_host

NETWORKS: Final = 100_000
FLOOD: Final = 300_000
HOURS: Final = ((60, 5_000), (3_600, 50))
"""Seconds of a flood at the beginning of an hour, and how many requests there are in each."""
MINUTES: Final = 60
BATCH: Final = 50  # requests that a connection sends before it reads their answers
CONNECTIONS: Final = 2
AIM: Final = 1.0  # MB in an hour
KEY: Final = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
-----END PUBLIC KEY-----"""
TARGETS: Final = ("/agents", "/sessions", "/agents/" + "x" * 2_000, "/nowhere")
PLATFORM: Final = """
[platform]
authorization = true
[authorization_config]
algorithm = "EdDSA"
verification_keys = ['''{key}''']
[databases.main]
url = "sqlite:///{folder}/main.db"
[[agents]]
id = "echo"
"""


def draw_client(draw: random.Random) -> str:
    """Return an address of one of the networks."""
    network = draw.randrange(NETWORKS)
    return f"2001:db8:{network >> 16:x}:{network & 0xFFFF:x}::{draw.randrange(1, 1 << 16):x}"


def size_of(folder: Path) -> tuple[float, float]:
    """Return the MB of the database, with what only its log has as yet, and those of the log."""
    file, log = folder / "main.db", folder / "main.db-wal"
    with closing(sqlite3.connect(file)) as connection:
        (pages,) = connection.execute("pragma page_count").fetchone()
        (size,) = connection.execute("pragma page_size").fetchone()
    return pages * size / 1e6, log.stat().st_size / 1e6 if log.exists() else 0.0


def growth(folder: Path, before: tuple[float, float]) -> tuple[float, float]:
    """Return by how many MB the database and its log have grown."""
    after = size_of(folder)
    return after[0] - before[0], after[1] - before[1]


@contextmanager
def run_server(folder: Path) -> Generator[int]:
    """Serve the platform in a process of its own, behind a proxy on this machine."""
    file = folder / "platform.toml"
    file.write_text(PLATFORM.format(folder=folder, key=KEY))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "legation_cli", "serve", str(file), "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--trusted-proxy", "127.0.0.1"], stderr=log, stdout=log
        )
    try:
        wait_for(port)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_for(port: int) -> None:
    """Wait until the server answers."""
    for _ in range(600):
        with suppress(OSError), closing(http.client.HTTPConnection("127.0.0.1", port)) as server:
            server.request("GET", "/health")
            if server.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise TimeoutError("the server does not answer")


def ask(port: int, number: int, count: int) -> None:
    """Ask so often on one connection, in batches."""
    draw = random.Random(number)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        answers = connection.makefile("rb")
        for _ in range(count // BATCH):
            requests = (
                f"GET {draw.choice(TARGETS)} HTTP/1.1\r\nhost: localhost\r\n"
                f"x-forwarded-for: {draw_client(draw)}\r\n\r\n"
                for _ in range(BATCH)
            )
            connection.sendall("".join(requests).encode())
            for _ in range(BATCH):
                skip_answer(answers)


def skip_answer(answers: BinaryIO) -> None:
    """Read one answer; anything but 401 is an error."""
    status = answers.readline()
    if b" 401 " not in status:
        raise AssertionError(status)
    length = 0
    for line in answers:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        if line == b"\r\n":
            break
    answers.read(length)


def watch_health(port: int, waits: list[float], done: threading.Event) -> None:
    """Ask for `/health` over and over, on a connection of its own."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as server:
        while not done.is_set():
            began = time.perf_counter()
            server.request("GET", "/health")
            server.getresponse().read()
            waits.append((time.perf_counter() - began) * 1_000)
            time.sleep(0.02)


def flood(folder: Path) -> None:
    """Ask a server, and print what is left of it when the server has ended."""
    waits: list[float] = []
    done = threading.Event()
    with run_server(folder) as port:
        before, logged = size_of(folder), (folder / "log").stat().st_size
        count = FLOOD // CONNECTIONS
        askers = [threading.Thread(target=ask, args=(port, n, count)) for n in range(CONNECTIONS)]
        watcher = threading.Thread(target=watch_health, args=(port, waits, done))
        began = time.perf_counter()
        for thread in (watcher, *askers):
            thread.start()
        for thread in askers:
            thread.join()
        took = time.perf_counter() - began
        done.set()
        watcher.join()
    grown, _ = growth(folder, before)
    lines = ((folder / "log").stat().st_size - logged) / 1e6
    p99 = quantiles(waits, n=100)[-1]
    print(f"{FLOOD:,} refusals in {took:.0f} s, {FLOOD / took:,.0f} a second")
    print(f"  database +{grown:.2f} MB, log +{lines:.2f} MB, /health p99 {p99:.0f} ms")
    report(folder)


def report(folder: Path) -> None:
    """Print what the tables have."""
    with closing(sqlite3.connect(folder / "main.db")) as connection:
        rows, total = connection.execute("select count(*), sum(count) from refusals").fetchone()
        others = connection.execute("select sum(count) from refusals where status = 0").fetchone()
        (trail,) = connection.execute("select coalesce(sum(count), 0) from trail").fetchone()
    print(f"  {rows:,} rows count {total:,}, {others[0] or 0:,} of them as others; trail: {trail}")


async def pass_an_hour(folder: Path, seconds: int, rate: int) -> None:
    """Answer an hour's requests on a clock that is set forward; write once a minute."""
    platform = Platform(
        authorization=True,
        authorization_config=AuthorizationConfig(algorithm="EdDSA", verification_keys=(KEY,)),
        databases=[Database("main", f"sqlite:///{folder}/main.db")],
        agents=[Agent(id="echo")],
    )
    start_us = 1_767_225_600_000_000
    now_us, draw = [start_us], random.Random(0)
    opened = open_host(
        platform.databases, clock=lambda: now_us[0], write_audit=platform.write_audit
    )
    async with opened as host:
        await host.run(platform.startup())
        await host.run(platform.round())
        before = size_of(folder)
        for minute in range(MINUTES):
            for _ in range(min(max(seconds - 60 * minute, 0), 60)):
                for _ in range(rate):
                    request = Request("GET", draw.choice(TARGETS), (), draw_client(draw))
                    await host.run(platform.answer(request))
                now_us[0] += 1_000_000
            now_us[0] = start_us + (minute + 1) * 60_000_000
            await host.run(platform.round())
        grown, log = growth(folder, before)
    verdict = "within" if grown <= AIM else "over"
    print(f"An hour, {rate:,} a second for {seconds:,} s: +{grown:.2f} MB, {verdict} {AIM:.0f}")
    print(f"  its log +{log:.2f} MB, which is written over and over")
    report(folder)


if __name__ == "__main__":
    print(f"on {os.cpu_count()} processors, {NETWORKS:,} networks")
    with tempfile.TemporaryDirectory() as name:
        flood(Path(name))
    for hour in HOURS:
        with tempfile.TemporaryDirectory() as name:
            anyio.run(pass_an_hour, Path(name), *hour, backend="trio")
