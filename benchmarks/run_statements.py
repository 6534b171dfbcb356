"""The statements, bytes and microseconds that a run costs the database, without a server.

    python benchmarks/run_statements.py [TREE ...]

The units of a run of an agent without tools (its start with its entry in the trail, and its end)
are carried out on a SQLite file of their own that holds 2,000 runs already, one run a commit and
eight: statements, bytes written to the log, the pages in it by b-tree, and CPU microseconds per
run.  A TREE is another checkout, whose code is measured in turns with this one's; the answer is the
ratio of the CPU, over pairs.  The aim: 30,000 bytes at eight runs a commit.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
BEFORE: Final = 2_000
OWNERS: Final = 500
RUNS: Final = 400
ROUNDS: Final = 12
GROUPS: Final = (1, 8)
AIM: Final = 30_000  # bytes

NAMES: Final = ("RunStarted", "ModelRequestStarted", "RunContent", "RunCompleted", "RunEnded")
_FRAME: Final = 24
_PAGE: Final = 4_096


class Desk:
    """A database, and the runs that are started and ended there, so many a commit."""

    def __init__(self, path: str) -> None:
        # Of the tree that is measured: another process has another one on its path.
        from legation.migrations.catalogue import CATALOGUE  # noqa: PLC0415
        from legation.migrations.migrate import Attempt  # noqa: PLC0415
        from legation_host.sqlite_connection import connect, run_unit  # noqa: PLC0415

        self.path = path
        self.connection = connect(path)
        run_unit(
            self.connection, Attempt(CATALOGUE, None, False, False, "benchmark", "n", "r", "a", 0)
        )
        self.connection.execute("pragma wal_autocheckpoint = 0")
        self.owners = OWNERS
        self.made = 0
        self.pages: Counter[str] = Counter()
        self.known: list[Any] = []

    def do(self, runs: int, group: int) -> float:
        """Start and end so many runs; return the CPU seconds of it."""
        began = time.process_time()
        for _ in range(0, runs, group):
            numbers = range(self.made, self.made + group)
            self.made += group
            self._commit(self._start(number) for number in numbers)
            self._commit(self._finish(number) for number in numbers)
        return time.process_time() - began

    def count(self, runs: int, group: int) -> tuple[float, float]:
        """Return the statements and the bytes of the log of a run, and count its pages."""
        statements: list[str] = []
        self.empty_log()
        self.connection.set_trace_callback(statements.append)
        self.do(runs, group)
        self.connection.set_trace_callback(None)
        changes = ("begin", "commit", "pragma", "--")
        # What stands in a trigger is traced as the statement that fires it, once more.
        asked = (text for text, _ in groupby(statements))
        made = sum(not text.startswith(changes) for text in asked)
        return made / runs, self.read_log() / runs

    def empty_log(self) -> None:
        """Bring the log home."""
        self.connection.execute("pragma wal_checkpoint(truncate)").fetchall()

    def read_log(self) -> int:
        """Return the length of the log, and count its pages by b-tree."""
        log = Path(f"{self.path}-wal").read_bytes()
        rows = self.connection.execute("select pageno, name, pagetype from dbstat").fetchall()
        trees = {number: f"{name} {kind}" for number, name, kind in rows}
        self.pages.clear()
        for place in range(32, len(log), _FRAME + _PAGE):
            (number,) = struct.unpack_from(">I", log, place)
            self.pages[trees.get(number, "free")] += 1
        return len(log)

    def _commit(self, units: Iterable[Any]) -> None:
        from legation_host.sqlite_connection import in_transaction  # noqa: PLC0415

        self.connection.execute("begin immediate")
        for unit in units:
            _, kept = in_transaction(self.connection, unit)
            assert kept
        self.connection.execute("commit")

    def _start(self, number: int) -> Any:
        from legation.store.audit_entries import AuditEntry  # noqa: PLC0415
        from legation.store.runs import StartRun  # noqa: PLC0415

        at_us, owner = (
            1_790_000_000_000_000 + number * 1_000,
            f"user{number * 7919 % self.owners:04}",
        )
        run, session = f"01a219e6-{number:08x}-7d8a", f"01a219e6-{number:08x}-7f93"
        started = StartRun(
            owner, session, run, "agent", "concierge", '{"message":"hello","stream":false}',
            name="hello", node="node", now_us=at_us, hosted=("agent:concierge",),
        )  # fmt: skip
        entry = AuditEntry(
            at_us, f"{number:032x}", owner, "key", "create_agent_run", f"concierge/{run}",
            "allow", "agents:run", 200, "",
        )  # fmt: skip
        return make_audited(started, entry, self.known)

    def _finish(self, number: int) -> Any:
        from legation.store.run_rows import RunLease, StoredEvent  # noqa: PLC0415
        from legation.store.runs import FinishRun  # noqa: PLC0415

        at_us, owner = (
            1_790_000_000_500_000 + number * 1_000,
            f"user{number * 7919 % self.owners:04}",
        )
        run, session = f"01a219e6-{number:08x}-7d8a", f"01a219e6-{number:08x}-7f93"
        data = json.dumps({"created_at": 1, "run_id": run, "session_id": session, "x": "y" * 130})
        events = tuple(StoredEvent(seq, name, data) for seq, name in enumerate(NAMES, 1))
        return FinishRun(
            owner, session, run, RunLease("node", 1), "node", at_us, "COMPLETED",
            json.dumps({"run_id": run, "content": "hello", "messages": ["z" * 1_200]}), None,
            '{"input_tokens":1,"output_tokens":1,"total_tokens":2}', events, ("agent:concierge",),
            tokens=2, model="echo",
        )  # fmt: skip


def make_audited(unit: Any, entry: Any, known: list[Any]) -> Any:
    """Return `unit` with its entry in the trail, in the shape that the tree has."""
    from legation.store import audit  # noqa: PLC0415

    if hasattr(audit, "ChainEnd") and not known:  # newer than 2.13.0
        known.append(audit.ChainEnd())
    return audit.Audited(unit, "node", entry, None, *known)


def work() -> None:
    """Measure in this process: print the counts, then the CPU of a batch for each line read."""
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(str(Path(folder, "bench.db")))
        desk.do(BEFORE, 8)
        counts: dict[str, Any] = {}
        for group in GROUPS:
            made, size = desk.count(RUNS, group)
            trees = {name: round(n / RUNS, 2) for name, n in desk.pages.most_common()}
            counts[str(group)] = {"statements": made, "bytes": round(size), "trees": trees}
        print(json.dumps(counts), flush=True)
        for line in sys.stdin:
            desk.empty_log()
            print(desk.do(RUNS, int(line)) / RUNS * 1e6, flush=True)
        desk.connection.close()


def start(tree: Path) -> subprocess.Popen[str]:
    """Start a process that measures the code of `tree`."""
    path = os.pathsep.join(str(tree / part) for part in ("core", "frontends"))
    return subprocess.Popen(
        [sys.executable, __file__, "--work"],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str], line: str = "") -> Any:
    """Send a line, and return what is answered."""
    assert process.stdin is not None and process.stdout is not None
    if line:
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
    return json.loads(process.stdout.readline())


def main(trees: list[Path]) -> None:
    """Print the counts of each tree, and the CPU of each, in turns."""
    processes = [start(tree) for tree in trees]
    try:
        for tree, process in zip(trees, processes, strict=True):
            for group, found in ask(process).items():
                print(f"{tree}, {group} a commit: {found['statements']:g} statements, ", end="")
                print(f"{found['bytes']:,} bytes a run (aim at 8: {AIM:,})")
                print("   ", ", ".join(f"{name} {n:g}" for name, n in found["trees"].items()))
        for group in GROUPS:
            taken: list[list[float]] = [[] for _ in trees]
            for _ in range(ROUNDS):
                for process, times in zip(processes, taken, strict=True):
                    times.append(ask(process, str(group)))
            for tree, times in zip(trees, taken, strict=True):
                pairs = [one / first for one, first in zip(times, taken[0], strict=True)]
                print(
                    f"{group} a commit, {tree}: {statistics.median(times):.0f} us of CPU,"
                    f" {min(times):.0f} at the least, x {statistics.median(pairs):.2f}"
                )
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["--work"]:
        work()
    else:
        main([*(Path(name).resolve() for name in sys.argv[1:]), ROOT])
