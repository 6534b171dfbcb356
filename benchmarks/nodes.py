"""The cost of nodes beside each other: 1, 4, 8 and 16 processes on one PostgreSQL.

    python benchmarks/nodes.py [--nodes 1 4 8 16] [--rounds 3] [--runs 200] [--seconds 5]

Needs the test dependencies, for the cluster of the tests; about 60 MiB for each node.  Each round
starts the nodes anew, on an empty database, and does three things with them:

* idle: nothing, for some seconds
* runs: joined runs, over 16 connections that are spread over the nodes
* streams: eight runs of a second in the background of each node, first with nobody who follows
  them, then each followed at the next node

Aims: a node at rest costs as many transactions a second however many there are; a run costs nodes
and PostgreSQL together, beyond what they use at rest, no more than 1.1 times what it costs with one
node; what is heard of a run that is followed does not grow, and there are no NOTIFYs where nobody
follows.  Of the rounds it prints medians.  Runs per second say what this machine can do, and no
more; leave it cores enough for the nodes, or their figures are those of a queue.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import jwt
import psycopg
from attrs import define, field, frozen
from http_load import (
    Server,
    Setting,
    cpu_seconds,
    fetch,
    free_port,
    make_setting,
    ours_command,
    run_server,
)

ROOT: Final = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from tests.engines import Cluster, cluster  # noqa: E402 (the root is no package)

CONNECTIONS: Final = 16
STREAMS: Final = 8
WORDS: Final = 20
WAIT_SECONDS: Final = 7.0
"""Until each node has beaten twice, and knows of all others; and until it shows its hints anew."""

SLOW: Final = """
[models.slow]
provider = "echo"
delay_seconds = 1.0

[[agents]]
id = "slow"
model = "slow"
"""
HINTS: Final = re.compile(rb"^legation_hints_(sent|heard)_total\{[^}]*\} (\S+)$", re.MULTILINE)


@frozen
class Spent:
    """The use of seconds of CPU, hints, and transactions."""

    nodes: float
    postgres: float
    sent: float
    heard: float
    transactions: float


@define
class Fleet:
    """Some nodes on one database, and the figures that they gave."""

    engine: Cluster
    url: str
    setting: Setting
    servers: list[Server]
    figures: dict[str, float] = field(factory=dict[str, float], init=False)
    tokens: list[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.tokens = [self._make_token(f"user {number}") for number in range(CONNECTIONS)]

    def _make_token(self, user: str) -> str:
        """Return a token of a user of its own: what one user starts is counted by one row."""
        claims = {"sub": user, "aud": "bench", "exp": int(time.time()) + 36_000}
        scopes = ["agents:run", "agents:read", "metrics:read"]
        return jwt.encode({**claims, "scopes": scopes}, self.setting.private, "RS256")

    def measure(self, work: Callable[[], object]) -> Spent:
        """Return what `work` uses."""
        hints, transactions = self._count_hints(), self._count_transactions()
        nodes, postgres = self._count_seconds()
        work()
        nodes_after, postgres_after = self._count_seconds()
        transactions = self._count_transactions() - transactions
        time.sleep(WAIT_SECONDS)
        sent, heard = (
            after - before for after, before in zip(self._count_hints(), hints, strict=True)
        )
        return Spent(nodes_after - nodes, postgres_after - postgres, sent, heard, transactions)

    def _count_hints(self) -> tuple[float, float]:
        hints: dict[bytes, float] = defaultdict(float)
        for server in self.servers:
            for kind, number in HINTS.findall(
                fetch(server.port, "/metrics/prometheus", self.tokens[0])
            ):
                hints[kind] += float(number)
        return hints[b"sent"], hints[b"heard"]

    def _count_transactions(self) -> float:
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(
                "select xact_commit + xact_rollback from pg_stat_database"
                " where datname = current_database()"
            ).fetchone()
        return float(row[0] if row else 0)

    def _count_seconds(self) -> tuple[float, float]:
        nodes = sum(cpu_seconds(pid) for server in self.servers for pid in server.pids)
        while True:
            with suppress(FileNotFoundError):  # a session that ended meanwhile
                return nodes, cpu_seconds(self.engine.pid)

    def ask(self, user: int, server: Server, method: str, path: str, **form: str) -> bytes:
        """Return the body of an answer to one of the users."""
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        body = urlencode(form) if form else None
        headers = {
            "authorization": f"Bearer {self.tokens[user % CONNECTIONS]}",
            "content-type": "application/x-www-form-urlencoded",
        }
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {data!r}")
        return data

    def rest(self, seconds: float) -> None:
        """Measure nodes that do nothing."""
        spent, count = self.measure(lambda: time.sleep(seconds)), len(self.servers)
        self.figures["idle: transactions per node and second"] = (
            spent.transactions / count / seconds
        )
        self.figures["idle: ms of PostgreSQL per node and second"] = (
            spent.postgres * 1e3 / count / seconds
        )
        self.figures["idle: ms of a node per second"] = spent.nodes * 1e3 / count / seconds
        self.figures["idle: NOTIFYs sent per node and second"] = spent.sent / count / seconds

    def execute(self, runs: int) -> None:
        """Measure joined runs."""

        def execute(number: int) -> None:
            server = self.servers[number % len(self.servers)]
            for _ in range(runs // CONNECTIONS):
                form = {"message": "hello", "stream": "false"}
                self.ask(number, server, "POST", "/agents/agent-0/runs", **form)

        with ThreadPoolExecutor(CONNECTIONS) as clients:
            list(clients.map(execute, range(CONNECTIONS)))  # whatever is made at the first time
            seconds = 0.0

            def work() -> None:
                nonlocal seconds
                began = time.monotonic()
                list(clients.map(execute, range(CONNECTIONS)))
                seconds = time.monotonic() - began

            spent = self.measure(work)
        done = runs // CONNECTIONS * CONNECTIONS
        self.figures["runs: per second"] = done / seconds
        # A machine that is short of CPU takes longer, and nodes at rest cost something meanwhile.
        idle = seconds * len(self.servers) / done
        nodes = spent.nodes * 1e3 / done - idle * self.figures["idle: ms of a node per second"]
        postgres = spent.postgres * 1e3 / done
        postgres -= idle * self.figures["idle: ms of PostgreSQL per node and second"]
        self.figures["runs: ms of nodes per run"] = nodes
        self.figures["runs: ms of PostgreSQL per run"] = postgres
        self.figures["runs: ms of both per run"] = nodes + postgres
        self.figures["runs: NOTIFYs sent per 100 runs"] = spent.sent * 100 / done

    def stream(self, name: str, *, followed: bool) -> None:
        """Measure runs in the background, and those who follow them at the next node."""
        count = len(self.servers)
        form = {"message": "word " * WORDS, "background": "true"}

        def stream(number: int) -> None:
            here, there = (self.servers[(number + one) % count] for one in (0, 1))
            data = self.ask(number, here, "POST", "/agents/slow/runs", **form)
            found = re.search(rb'"run_id":"([^"]+)"', data)
            assert found is not None
            path = f"/agents/slow/runs/{found[1].decode()}"
            if followed:
                assert b"RunCompleted" in self.ask(number, there, "GET", f"{path}/events")
            while b'"COMPLETED"' not in self.ask(number, here, "GET", path):
                time.sleep(0.3)

        runs = STREAMS * count
        with ThreadPoolExecutor(runs) as clients:
            spent = self.measure(lambda: list(clients.map(stream, range(runs))))
        self.figures[f"{name}: NOTIFYs sent per run"] = spent.sent / runs
        self.figures[f"{name}: words heard per run"] = spent.heard / runs
        self.figures[f"{name}: ms of PostgreSQL per run"] = spent.postgres * 1e3 / runs


def measure(count: int, runs: int, seconds: float) -> Mapping[str, float]:
    """Return the figures of so many nodes."""
    with cluster() as engine, ExitStack() as stack:
        engine.run("alter system set fsync = on")
        engine.run("alter system set full_page_writes = on")
        engine.run("select pg_reload_conf()")
        setting = make_setting(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        url = stack.enter_context(engine.new_database())
        servers: list[Server] = []
        for _ in range(count):
            port = free_port()
            # Of 100 connections each node may have so many, and one for hints.
            command = ours_command(
                setting, port, database=f"{url}?max_connections={80 // count}", more=SLOW
            )
            env = {**os.environ, **setting.env}
            servers.append(stack.enter_context(run_server("node", command, env, port)))
        fleet = Fleet(engine, url, setting, servers)
        time.sleep(WAIT_SECONDS)
        fleet.rest(seconds)
        fleet.execute(runs)
        fleet.stream("streams that nobody follows", followed=False)
        fleet.stream("streams followed elsewhere", followed=True)
        return fleet.figures


def show(found: Mapping[int, list[Mapping[str, float]]]) -> None:
    """Print the medians, a line for each figure and a column for each number of nodes."""
    width = max(len(name) for name in next(iter(found.values()))[0])
    print(f"{'':{width}}", *(f"{count:>8}" for count in found))
    middle: Callable[[int, str], float] = lambda count, name: statistics.median(  # noqa: E731
        one[name] for one in found[count]
    )
    for name in next(iter(found.values()))[0]:
        print(f"{name:{width}}", *(f"{middle(count, name):8.2f}" for count in found))
    first = min(found)
    name = "runs: ms of both per run"
    ratios = (
        statistics.median(
            many[name] / one[name] for many, one in zip(found[count], found[first], strict=True)
        )
        for count in found
    )
    print(f"{'runs: both, against ' + str(first):{width}}", *(f"{ratio:8.2f}" for ratio in ratios))


def main() -> None:
    """Measure each number of nodes, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=320)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    found: dict[int, list[Mapping[str, float]]] = {count: [] for count in given.nodes}
    for _ in range(given.rounds):
        for count in given.nodes:
            found[count].append(measure(count, given.runs, given.seconds))
            print(count, dict(found[count][-1]), file=sys.stderr)
    show(found)


if __name__ == "__main__":
    main()
