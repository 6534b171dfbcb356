"""Clients under whose load a backup is made, and databases that are lost and looked into."""

from __future__ import annotations

import http.client
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
from attrs import define, field, frozen

from ..providers.deliveries import whatsapp
from ..transcripts import ROOT
from .cluster_kit import ask_json, await_true, send
from .drain_kit import RUNS, Outcome, ask_run

__all__ = ["Acknowledged", "Load", "Rows", "legation", "read_rows", "under_load"]

_PAUSE: Final = 0.02


@frozen
class Acknowledged:
    """What clients had heard at one moment.

    Attributes:
        ended: Runs whose output was answered.
        begun: Runs that were accepted, or of which an event was heard.
        messages: Messages of a channel whose delivery was answered 200.
    """

    ended: frozenset[str]
    begun: frozenset[str]
    messages: frozenset[str]

    @property
    def count(self) -> int:
        """How much that is."""
        return len(self.ended) + len(self.begun) + len(self.messages)


@frozen
class Rows:
    """The ids that are stored."""

    ended: frozenset[str]
    begun: frozenset[str]
    messages: frozenset[str]

    def lacks(self, told: Acknowledged) -> dict[str, frozenset[str]]:
        """Return what was acknowledged and is not here."""
        missing = {
            "ended": told.ended - self.ended,
            "begun": told.begun - self.begun,
            "messages": told.messages - self.messages,
        }
        return {name: ids for name, ids in missing.items() if ids}


@define(eq=False)
class Load:
    """Clients of each kind, which go on until the server is gone."""

    port: int
    ended: set[str] = field(factory=set[str])
    begun: set[str] = field(factory=set[str])
    messages: set[str] = field(factory=set[str])
    streams: list[Outcome] = field(factory=list[Outcome])
    _threads: list[threading.Thread] = field(factory=list[threading.Thread])
    _over: threading.Event = field(factory=threading.Event)
    _guard: threading.Lock = field(factory=threading.Lock)

    def begin(self) -> None:
        """Start: two who wait for answers, one who does not, a stream, and a channel."""
        for number, work in enumerate(
            (self._wait, self._wait, self._leave, self._listen, self._deliver)
        ):
            thread = threading.Thread(target=self._repeat, args=(work, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Wait until all have noticed that the server is gone."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def now(self) -> Acknowledged:
        """Return what was acknowledged until now."""
        with self._guard:
            heard = {one.run_id for one in self.streams if one.names}
            return Acknowledged(
                frozenset(self.ended), frozenset(self.begun | heard), frozenset(self.messages)
            )

    def more(self, count: int) -> Acknowledged:
        """Wait until so much more is acknowledged, and return it all."""
        before = self.now().count
        await_true(lambda: self.now().count >= before + count)
        return self.now()

    def _repeat(self, work: Callable[[str], None], number: int) -> None:
        turn = 0
        with suppress(OSError, http.client.HTTPException, ValueError, KeyError):
            while not self._over.is_set():
                work(f"{number}-{turn}")
                turn += 1
                time.sleep(_PAUSE)

    def _add(self, ids: set[str], one: str) -> None:
        with self._guard:
            ids.add(one)

    def _wait(self, name: str) -> None:
        form = {"message": "hello", "session_id": f"wait{name}", "stream": "false"}
        status, run = ask_json(self.port, "POST", RUNS, **form)
        assert (status, run["status"]) == (200, "COMPLETED")
        self._add(self.ended, run["run_id"])

    def _leave(self, name: str) -> None:
        form = {"message": "9 words in 3.0 s", "session_id": f"leave{name}", "background": "true"}
        status, run = ask_json(self.port, "POST", RUNS, **form)
        assert status == 202
        self._add(self.begun, run["run_id"])
        time.sleep(0.3)

    def _listen(self, name: str) -> None:
        outcome = Outcome()
        with self._guard:
            self.streams.append(outcome)
        ask_run(self.port, outcome, message="20 words in 1.0 s", session_id=f"listen{name}")

    def _deliver(self, name: str) -> None:
        message = f"wamid.{name}"
        assert send(self.port, whatsapp(("15551234", message, "hello"))) == 200
        self._add(self.messages, message)


@contextmanager
def under_load(port: int) -> Generator[Load]:
    load = Load(port)
    load.begin()
    try:
        yield load
    finally:
        load.end()


_RUNS: Final = "select run_id, status from runs"
_MESSAGES: Final = "select message_id from inbox"


def read_rows(url: str) -> Rows:
    """Return the ids in the database at `url`, which nobody serves."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            return _read(lambda text: connection.execute(text).fetchall())
    with psycopg.connect(url) as live:
        return _read(lambda text: live.execute(text.encode()).fetchall())


def _read(query: Callable[[str], list[tuple[Any, ...]]]) -> Rows:
    runs = query(_RUNS)
    return Rows(
        frozenset(name for name, status in runs if status == "COMPLETED"),
        frozenset(name for name, _ in runs),
        frozenset(name for (name,) in query(_MESSAGES)),
    )


def legation(
    *words: str,
    cwd: Path,
    binaries: Path | None = None,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with the programs of PostgreSQL in `binaries`."""
    path = os.environ["PATH"] if binaries is None else f"{binaries}{os.pathsep}{os.environ['PATH']}"
    paths = (str(ROOT / "core"), str(ROOT / "frontends"), os.environ.get("PYTHONPATH", ""))
    return subprocess.run(
        [sys.executable, "-m", "legation_cli", *words],
        cwd=cwd,
        env={**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(paths), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        **options,
    )
