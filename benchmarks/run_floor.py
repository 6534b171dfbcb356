"""The CPU time of a joined run, against its bare SQL statements and the canned loop.

    python benchmarks/run_floor.py [--rounds 5] [--seconds 2] [--json FILE]

Needs `wrk`.  A run over HTTP that is stored has a floor: SQLite has to carry out its statements,
and a server has to read a request and to send an answer.  The answer is how many times that floor a
joined run costs, at 16 connections.  The floor is the sum of two:

* The statements of runs that a platform of the same configuration answered in this process, as its
  writer executed them, with their parameters.  Plain `sqlite3` executes them again on one thread, 8
  runs a commit, on a copy of the file as it was before them: same schema, pragmas, rows and bytes.
  A first time tells that both files have the same rows in the end.
* The canned loop: the same front with an answer that is ready, as long as that of a joined run, to
  the same requests.

All three are measured in turn within each round.  CPU time is that of user and system; medians over
the rounds with their spread, the ratio over those of the rounds.  Aim: at most 3 times.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, cast

import trio
from attrs import evolve, field, frozen
from http_load import (
    CANNED_SERVER,
    CASES,
    Server,
    Setting,
    free_port,
    load,
    make_setting,
    ours_command,
    run_server,
)

from legation import Platform, Request
from legation.http.messages import Response
from legation_host import Host
from legation_host.hosting import open_platform
from legation_host.loading import from_file
from legation_host.sqlite import SqliteDatabase
from legation_host.sqlite_connection import connect

CONNECTIONS: Final = 16
CASE: Final = evolve(next(case for case in CASES if case.name == "POST run"), times=1)
GROUP: Final = 8
"""Runs in a commit."""

BEFORE: Final = 2_000
"""Runs that the file has before those whose statements are recorded."""

WARM_UP: Final = 5 * GROUP
RECORDED: Final = WARM_UP + 50 * GROUP
REPLAYS: Final = 5
"""Replays in a round; the median of them counts."""

HEARTBEAT: Final = ("cluster", "nodes")
"""The tables that a node writes to while it has no run."""

AIM: Final = 3.0  # times

RUN: Final = "joined run"
STATEMENTS: Final = "its statements"
CANNED: Final = "canned loop"
RATIO: Final = "ratio"

Execution: TypeAlias = tuple[str, Any]
"""A statement as SQLite gets it: its text and its parameters."""

Transaction: TypeAlias = tuple[Execution, ...]


class Body:
    """A body that is there."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    async def read(self, limit: int) -> bytes:
        """Return what is left of it."""
        content, self.content = self.content, b""
        return content


class Recorder:
    """A connection of SQLite that keeps the statements of each transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.transactions: list[Transaction] = []
        self.open: list[Execution] = []

    def execute(self, text: str, parameters: Any = ()) -> sqlite3.Cursor:
        """Execute a statement, and keep it."""
        if text == "commit":
            self.transactions.append(tuple(self.open))
        elif text.startswith("begin"):
            self.open.clear()
        else:
            self.open.append((text, parameters))
        return self.connection.execute(text, parameters)

    def cursor(self) -> Self:
        """Return what executes as a cursor does."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the connection."""
        return getattr(self.connection, name)


@frozen
class Recording:
    """The statements of joined runs, and the file before and after them.

    Attributes:
        starts: The transaction that starts each run.
        ends: The transaction that ends each run.
        body: The answer to one of them.
    """

    before: Path
    after: Path
    starts: Sequence[Transaction] = field(repr=False)
    ends: Sequence[Transaction] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def statements(self) -> int:
        """The statements of one run."""
        return len(self.starts[0]) + len(self.ends[0])

    def commits(self) -> Iterator[Transaction]:
        """Yield the statements of each commit: the starts of some runs, and then their ends."""
        for first in range(0, RECORDED, GROUP):
            for runs in (self.starts, self.ends):
                yield tuple(chain.from_iterable(runs[first : first + GROUP]))


async def answer_run(host: Host, platform: Platform, token: str) -> Response:
    """Return the answer to one joined run."""
    form = CASE.form.encode()
    fields = (
        (b"host", b"localhost"),
        (b"authorization", b"Bearer " + token.encode()),
        (b"content-type", b"application/x-www-form-urlencoded"),
        (b"content-length", b"%d" % len(form)),
    )
    program = platform.answer(Request(CASE.method, CASE.path, fields))
    answer = await host.run(program, body=Body(form))
    assert isinstance(answer, Response) and answer.status == 200, answer
    return answer


async def record(setting: Setting, configured: Path) -> Recording:
    """Have runs, and record the statements of the last of them."""
    platform = from_file(configured, {**os.environ, **setting.env})
    token = setting.token(CASE.scopes)
    before, after = setting.folder / "before.db", setting.folder / "after.db"
    async with open_platform(platform, jobs=False) as host:

        async def have_runs(number: int) -> None:
            for _ in range(number):
                await answer_run(host, platform, token)

        async with trio.open_nursery() as clients:
            for _ in range(CONNECTIONS):
                clients.start_soon(have_runs, BEFORE // CONNECTIONS)
        database = host.databases["main"]
        assert isinstance(database, SqliteDatabase)
        copy(database.path, before)
        recorder = Recorder(database._writer)  # pyright: ignore[reportPrivateUsage]
        database._writer = cast(sqlite3.Connection, recorder)  # pyright: ignore[reportPrivateUsage]
        answers = [await answer_run(host, platform, token) for _ in range(RECORDED)]
        starts, ends = split(tuple(recorder.transactions))
        copy(database.path, after)
    return Recording(before, after, starts, ends, answers[-1].body)


def split(made: Iterable[Transaction]) -> tuple[Sequence[Transaction], Sequence[Transaction]]:
    """Return the starts of the runs and their ends, without a heartbeat between them."""
    kinds: dict[tuple[str, ...], list[Transaction]] = {}
    for transaction in made:
        kinds.setdefault(tuple(text for text, _ in transaction), []).append(transaction)
    of_runs = [same for same in kinds.values() if len(same) == RECORDED]
    if len(of_runs) != 2:
        raise SystemExit("a run is no longer a transaction for its start, and one for its end")
    starts, ends = of_runs
    return starts, ends


def copy(source: str, target: Path) -> None:
    """Copy a database page by page, as it is after its last commit."""
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def execute(connection: sqlite3.Connection, commits: Iterable[Transaction]) -> None:
    """Execute the statements of each commit."""
    run = connection.execute
    for statements in commits:
        run("begin immediate")
        for text, parameters in statements:
            run(text, parameters).fetchall()
        run("commit")


def replay(recording: Recording, path: Path) -> float:
    """Execute what was recorded on a copy of the file at `path`; return the µs of CPU per run."""
    path.write_bytes(recording.before.read_bytes())
    commits = tuple(recording.commits())
    warm_up = 2 * WARM_UP // GROUP
    with closing(connect(str(path))) as connection:
        execute(connection, commits[:warm_up])
        begun = time.thread_time()
        execute(connection, commits[warm_up:])
        return (time.thread_time() - begun) * 1e6 / (RECORDED - WARM_UP)


def read_rows(path: Path) -> dict[str, list[Any]]:
    """Return the rows of each table that runs may write to."""
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("select name from sqlite_master where type = 'table'")
        return {
            name: sorted(connection.execute(f'select * from "{name}"').fetchall(), key=repr)
            for (name,) in tables.fetchall()
            if name not in HEARTBEAT
        }


def check_replay(recording: Recording, path: Path) -> None:
    """End the benchmark where the statements do not have the effect that they had."""
    replay(recording, path)
    again, recorded = read_rows(path), read_rows(recording.after)
    if differing := [name for name, rows in recorded.items() if again.get(name) != rows]:
        raise SystemExit(f"the statements had another effect on {', '.join(differing)}")


def measure_round(
    setting: Setting, recording: Recording, servers: dict[str, Server], seconds: int
) -> dict[str, float]:
    """Return the µs of CPU of each, and the ratio."""
    found: dict[str, float] = {}
    for name, server in servers.items():
        measure = load(setting, CASE, server, CONNECTIONS, seconds, 0)
        if measure.failed or not measure.requests:
            raise SystemExit(f"{name}: {measure.failed} of {measure.requests} requests failed")
        found[name] = measure.cpu
    path = setting.folder / "replay.db"
    found[STATEMENTS] = statistics.median(replay(recording, path) for _ in range(REPLAYS))
    found[RATIO] = found[RUN] / (found[STATEMENTS] + found[CANNED])
    return found


def show(recording: Recording, rounds: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Print the medians with their spread; return them."""
    report: dict[str, Any] = {}
    for name in (RUN, STATEMENTS, CANNED, RATIO):
        values = [found[name] for found in rounds]
        middle, low, high = statistics.median(values), min(values), max(values)
        if name == RATIO:
            print(f"{name:16} {middle:8.2f} times ({low:.2f} to {high:.2f}); aim: at most {AIM:g}")
        else:
            print(f"{name:16} {middle:8.1f} µs CPU ({low:.1f} to {high:.1f})")
        report[name] = {"median": middle, "rounds": values}
    print(f"{recording.statements} statements, {GROUP} runs a commit, {CONNECTIONS} connections")
    report["statements"] = recording.statements
    return report


def main() -> None:
    """Record, measure in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        setting = make_setting(folder)
        env = {**os.environ, **setting.env}
        port = free_port()
        recorded = f"sqlite:///{folder}/recorded.db"
        ours_command(setting, port, database=recorded)
        recording = trio.run(record, setting, folder / f"platform-{port}.toml")
        check_replay(recording, folder / "replay.db")
        gc.freeze()  # what was recorded is not looked at again and again

        def serve(name: str, command: Sequence[str], port: int) -> Server:
            return stack.enter_context(run_server(name, command, env, port))

        port, canned_port = free_port(), free_port()
        body = folder / "answer.json"
        body.write_bytes(recording.body)
        canned = [sys.executable, "-c", CANNED_SERVER, str(canned_port), str(body)]
        servers = {
            RUN: serve(RUN, ours_command(setting, port), port),
            CANNED: serve(CANNED, canned, canned_port),
        }
        measure_round(setting, recording, servers, 1)
        rounds = [
            measure_round(setting, recording, servers, options.seconds)
            for _ in range(options.rounds)
        ]
    report = show(recording, rounds)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
