"""Nodes that run errands and are killed or drained under them, and clients that do not let go.

An errand is a run of five calls of tools.  What was called is counted in a file outside of the
nodes, what was asked for at the model's server, and what is stored is read past the nodes.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import psycopg
from attrs import define, field, frozen

from ..ports import free_port
from ..providers.deliveries import ENVIRON
from ..providers.errand_model import WORDS, ErrandModel
from ..providers.model_server import serving
from ..transcripts import ROOT
from .command_kit import Command, running
from .drain_kit import Outcome, read_events

__all__ = ["Client", "Errands", "Line", "Site", "begin_clients", "rows", "site"]

PATIENCE: Final = 120.0
PAUSE: Final = 0.1
TOOL_SECONDS: Final = 0.2
DRAIN_SECONDS: Final = 0.3
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}
KINDS: Final = ("stream", "background", "stream", "join")


Read: TypeAlias = Callable[[str], list[tuple[Any, ...]]]


@frozen
class Line:
    """A call that was carried out."""

    errand: str
    place: str
    name: str
    key: str


@contextmanager
def reading(url: str) -> Generator[Read]:
    """Read a database past its nodes."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as database:
            yield lambda select: database.execute(select).fetchall()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            yield lambda select: connection.execute(select.encode()).fetchall()


def rows(url: str, select: str) -> list[tuple[Any, ...]]:
    """Return what a database has, past its nodes."""
    with reading(url) as read:
        return read(select)


@define(eq=False)
class Site:
    """The nodes of one machine, each at a port of its own, and the file that they write."""

    url: str
    file: Path
    env: dict[str, str]
    options: tuple[str, ...]
    ports: tuple[int, ...]
    model: ErrandModel
    left: list[Left] = field(factory=list["Left"])
    nodes: list[Command] = field(factory=list[Command])
    ended: list[Command] = field(factory=list[Command])
    stack: ExitStack = field(factory=ExitStack)

    def start(self, number: int) -> Command:
        """Start the node of this number; it serves when this returns."""
        arguments = ("tests.providers.errands:platform", "--port", str(self.ports[number]))
        started = running(*arguments, *self.options, env=self.env, cwd=ROOT)
        node = self.stack.enter_context(started)
        node.until_served()
        return node

    def kill(self, number: int) -> None:
        """Kill all processes of a node, and start another one in its place."""
        self._spare()
        node = self.nodes[number]
        left = self._leave({*node.workers, node.popen.pid})
        for pid in node.workers:
            os.kill(pid, signal.SIGKILL)
        node.popen.kill()
        node.popen.wait()
        self._replace(number)
        left.check_by(time.monotonic())

    def kill_worker(self, number: int) -> None:
        """Kill one of the workers of a node, in whose place the node starts another one."""
        self._spare()
        node, serving = self.nodes[number], len(self.nodes[number].named("worker_serves"))
        left = self._leave({victim := min(node.workers)})
        os.kill(victim, signal.SIGKILL)
        node.until(lambda: len(node.named("worker_serves")) > serving)
        left.check_by(time.monotonic())

    def drain(self, number: int) -> None:
        """End a node in good order, and start another one when it is gone.

        Another node can go on as soon as the time is up in which the runs may end.
        """
        node = self.nodes[number]
        left = self._leave({*node.workers, node.popen.pid})
        node.signal(signal.SIGTERM)
        over = time.monotonic() + DRAIN_SECONDS
        assert node.ended() == 0, "\n".join(node.lines[-20:])
        self._replace(number)
        left.check_by(over if len(self.nodes) > 1 else time.monotonic())

    def _spare(self) -> None:
        """Wait until no run is at its third try of a step: one that fails there is given up."""
        third = "select 1 from runs where status in ('RUNNING', 'PENDING') and tries > 2"
        due = time.monotonic() + PATIENCE
        while rows(self.url, third):
            assert time.monotonic() < due
            time.sleep(0.02)

    def _leave(self, processes: set[int]) -> Left:
        """Watch the runs of the nodes that are these processes."""
        left = Left(self, processes)
        left.begin()
        self.left.append(left)
        return left

    def _replace(self, number: int) -> None:
        self.ended.append(self.nodes[number])
        self.nodes[number] = self.start(number)

    @property
    def lines(self) -> list[Line]:
        """The calls that were carried out by now."""
        if not self.file.exists():
            return []
        return [Line(*line.split()) for line in self.file.read_text().splitlines()]

    @property
    def delays(self) -> list[float]:
        """The seconds until each run that was left went on, since somebody could go on with it."""
        return [delay for left in self.left for delay in left.delays]


@define(eq=False)
class Left:
    """The runs that a node leaves, watched until each is taken up by another, or over."""

    site: Site
    processes: set[int]
    taken: dict[str, float] = field(factory=dict[str, float])
    over: float = 0.0
    _thread: threading.Thread = field(init=False)

    def begin(self) -> None:
        """Note the runs that the node executes, and watch them on a thread."""
        select = "select run_id, attempt, lease_by from runs where status = 'RUNNING'"
        mine = {
            run_id: attempt
            for run_id, attempt, lease_by in rows(self.site.url, select)
            if int(lease_by.split("-")[-2]) in self.processes
        }
        self._thread = threading.Thread(target=self._watch, args=(mine,), daemon=True)
        self._thread.start()

    def _watch(self, mine: dict[str, int]) -> None:
        select = "select run_id, attempt from runs where status in ('RUNNING', 'PENDING')"
        due = time.monotonic() + PATIENCE
        with reading(self.site.url) as read:
            while mine and time.monotonic() < due:
                time.sleep(0.02)
                now: dict[str, int] = dict(read(select))
                for run_id in [each for each, number in mine.items() if now.get(each) != number]:
                    del mine[run_id]
                    if run_id in now:
                        self.taken[run_id] = time.monotonic()

    def check_by(self, ready: float) -> None:
        """Wait until all were taken up, which somebody could do from the moment `ready` on."""
        self.over = ready
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    @property
    def delays(self) -> list[float]:
        """The seconds until each run went on, 0 where that was before the moment."""
        return [max(0.0, taken - self.over) for taken in self.taken.values()]


@contextmanager
def site(
    url: str, folder: Path, *options: str, nodes: int = 1, provider: str = "http://127.0.0.1:9"
) -> Generator[Site]:
    """Serve errands by so many nodes until the block ends."""
    model = ErrandModel()
    with serving(model) as address, ExitStack() as stack:
        env = {
            **ENVIRON,
            "ERRANDS_URL": url,
            "ERRANDS_FILE": str(folder / "carried-out"),
            "ERRANDS_MODEL": address,
            "ERRANDS_PROVIDER": provider,
            "ERRANDS_SECONDS": str(TOOL_SECONDS),
            "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        }
        ports = tuple(free_port() for _ in range(nodes))
        made = Site(url, folder / "carried-out", env, options, ports, model, stack=stack)
        made.nodes += [made.start(number) for number in range(nodes)]
        yield made
        assert model.broken == []


@define(eq=False)
class Client:
    """A client that has one errand run, and asks until it knows the end."""

    site: Site
    errand: str
    port: int
    kind: str
    agent: str = "teller"
    outcome: Outcome = field(factory=Outcome)
    cuts: int = 0
    answers: int = 0

    @property
    def runs(self) -> str:
        """The path of the agent's runs."""
        return f"/agents/{self.agent}/runs"

    def run(self) -> None:
        """Have the errand run, whatever becomes of the node."""
        due = time.monotonic() + PATIENCE
        while not self.outcome.ended:
            assert time.monotonic() < due, (self.errand, self.outcome.run_id, self.outcome.names)
            try:
                self._act()
            except (OSError, http.client.HTTPException):
                self.cuts += 1
                time.sleep(PAUSE)

    def _act(self) -> None:
        if not self.outcome.run_id:
            self._find()
        if not self.outcome.run_id:
            self._begin()
        elif self.outcome.names[-1:] == ["RunPaused"]:
            self._answer()
        else:
            self._follow()

    def _find(self) -> None:
        """Look whether the run of a request that was cut has begun."""
        found = self._ask("GET", f"{self.runs}?session_id={self.errand}")
        if found:
            self.outcome.run_id = found[0]["run_id"]

    def _begin(self) -> None:
        form = {"message": self.errand, "session_id": self.errand}
        form["background" if self.kind == "background" else "stream"] = str(
            self.kind != "join"
        ).lower()
        answer = self._ask("POST", self.runs, form, {"idempotency-key": self.errand})
        if answer is not None:
            self.outcome.run_id = answer["run_id"]

    def _follow(self) -> None:
        headers = {"last-event-id": self.outcome.last_id} if self.outcome.last_id else {}
        self._ask("GET", f"{self.runs}/{self.outcome.run_id}/events", headers=headers)

    def _answer(self) -> None:
        """Look for what was carried out, and say so; what was not is to be called again."""
        run = self._ask("GET", f"{self.runs}/{self.outcome.run_id}")
        if run is None or run["status"] != "PAUSED":
            self._follow()
            return
        waiting = [requirement["tool_execution"] for requirement in run["requirements"]]
        carried_out = {(line.errand, line.place) for line in self.site.lines}
        answers: list[dict[str, Any]] = []
        for tool in waiting:
            known = (self.errand, tool["tool_args"]["place"]) in carried_out
            said = {"result": "It was carried out."} if known else {"confirmed": True}
            answers.append({**tool, **said})
        self.answers += len(answers)
        form = {"tools": json.dumps(answers), "session_id": self.errand}
        form["stream"] = str(self.kind == "stream").lower()
        answered = self._ask("POST", f"{self.runs}/{self.outcome.run_id}/continue", form)
        if answered is not None or self.outcome.names[-1] == "RunPaused":
            self._follow()

    def _ask(
        self,
        method: str,
        target: str,
        form: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """Return the JSON of a success; a stream is read, and anything else waits for a moment."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with closing(connection):
            fields = {**(headers or {}), **(FORM if form else {})}
            connection.request(method, target, urlencode(form) if form else None, fields)
            response = connection.getresponse()
            if response.getheader("content-type", "").startswith("text/event-stream"):
                read_events(response, self.outcome)
                self.cuts += not self.outcome.whole
                return None
            body = response.read()
            if response.status >= 300:
                time.sleep(PAUSE)
                return None
            return json.loads(body)

    def faults(self) -> Generator[str]:
        """Yield what is wrong with the run, and with what its client heard of it."""
        again = Client(self.site, self.errand, self.port, self.kind, self.agent)
        again.outcome.run_id = self.outcome.run_id
        again._follow()
        names, mine = again.outcome.names, self.outcome
        run: dict[str, Any] = self._ask("GET", f"{self.runs}/{mine.run_id}") or {}
        if (run.get("status"), run.get("content")) != ("COMPLETED", "".join(WORDS)):
            yield f"{self.errand}: {run.get('status')}: {run.get('content')}"
        if again.ids != [f"{mine.run_id}:{n}" for n in range(1, len(names) + 1)]:
            yield f"{self.errand}: events {again.ids}"
        if (self.ids, mine.names) != (again.ids, names):
            yield f"{self.errand}: heard {mine.names} of {names}"
        if names.count("RunStarted") != 1 or names[-1:] != ["RunCompleted"]:
            yield f"{self.errand}: {names}"

    @property
    def ids(self) -> list[str]:
        """The ids of the events, as they were heard."""
        lines = self.outcome.text.splitlines()
        return [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]


@define(eq=False)
class Errands:
    """Clients at work, so many at once, each with one errand after the other."""

    clients: Sequence[Client]
    threads: list[threading.Thread] = field(factory=list[threading.Thread])
    failures: list[BaseException] = field(factory=list[BaseException])

    def _work(self, waiting: Generator[Client], lock: threading.Lock) -> None:
        while True:
            with lock:
                client = next(waiting, None)
            if client is None:
                return
            try:
                client.run()
            except BaseException as failure:  # noqa: BLE001 (it is raised by `finish`)
                self.failures.append(failure)

    def begin(self, at_once: int) -> None:
        """Begin, so many at once."""
        waiting, lock = (client for client in self.clients), threading.Lock()
        for _ in range(at_once):
            thread = threading.Thread(target=self._work, args=(waiting, lock), daemon=True)
            thread.start()
            self.threads.append(thread)

    @property
    def done(self) -> int:
        """How many have come to their end."""
        return sum(client.outcome.ended for client in self.clients)

    def until(self, done: int) -> None:
        """Wait until so many have come to their end."""
        due = time.monotonic() + PATIENCE
        while self.done < done and any(thread.is_alive() for thread in self.threads):
            assert time.monotonic() < due, f"{self.done} of {len(self.clients)}"
            time.sleep(0.01)

    def join(self) -> None:
        """Wait for the ends of all."""
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert not self.failures, self.failures

    def check(self) -> None:
        """Check that each run is as it was to be, and its client has heard all of it."""
        faults = [fault for client in self.clients for fault in client.faults()]
        assert not faults, "\n".join(faults)

    @property
    def answers(self) -> int:
        """How often a client said what became of a call."""
        return sum(client.answers for client in self.clients)


def begin_clients(place: Site, count: int, at_once: int) -> Errands:
    """Have so many errands run, half of them streamed, on one node after the other.

    One of three asks its client about what is in doubt, the others tell the model.
    """
    ports = place.ports
    clients = [
        Client(
            place,
            f"errand{n}",
            ports[n // 4 % len(ports)],
            KINDS[n % 4],
            "asker" if n % 3 == 0 else "teller",
        )
        for n in range(count)
    ]
    errands = Errands(clients)
    errands.begin(at_once)
    return errands
