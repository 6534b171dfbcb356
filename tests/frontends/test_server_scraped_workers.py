"""One scrape of several workers: real processes, under load, killed, and replaced."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from .command_kit import PATIENCE, Command, read_reply, running

APP: Final = '''
import os
from legation import Agent, CustomRoute, Database, Platform
from legation.access.scopes import Open
from legation.api.call import Call, Process
from legation.api.handlers.metrics import measure
from legation.http.messages import Response, text_response
from legation.observability.prometheus import exposition

def show_own(call: Call) -> Response:
    """Return what this worker alone has measured."""
    process = Process(call.context, call.surface, call.started_us, call.now_us)
    text = f"# worker {os.getpid()}\\n" + exposition(measure(process).families)
    return text_response(200, text, b"text/plain", ())

platform = Platform(
    agents=[Agent(id="concierge")],
    databases=[Database("main", "sqlite:///main.db")],
    routes=[CustomRoute("GET", "/own", Open(), show_own, operation="own", summary="Own")],
)
'''
"""Each worker says what it has measured, without knowing of the others."""

WORKERS: Final = 3
# A client that does not come by for so long, as on a busy machine, is parted with.
LIMITS: Final = ("--limit", "grace_seconds=2", "--limit", "drain_seconds=10")

OF_ALL: Final = re.compile(
    "legation_(build_info|start_time_seconds|nodes$|clock_skew_seconds|unhosted_runs|findings"
    "|disk_size_bytes)"
)
"""Gauges of what workers have in common: the greatest counts."""

ADDED: Final = re.compile(
    "process_|legation_(connections|hub_|share_|http_|audit_waiting|database_(units|connections)_)"
)
"""Gauges of which each worker has its own part."""

ON_THE_MOVE: Final = re.compile(
    "process_|legation_(database_|clock_|hub_runs|http_requests_active)"
)
"""Changes while nobody asks for anything, or by being asked."""

LIST: Final = b"GET /agents HTTP/1.1\r\nHost: a\r\n\r\n"
RUN: Final = (
    b"POST /agents/concierge/runs HTTP/1.1\r\nHost: a\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 23\r\n\r\n"
    b"message=hi&stream=false"
)
OURS: Final = ("/own", "/metrics/prometheus")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="slots are spread on Linux")


def parse(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def gauges(text: str) -> set[str]:
    """Return the names of the gauges."""
    return {
        family.name for family in text_string_to_metric_families(text) if family.type == "gauge"
    }


def value(found: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples of `name` with these labels."""
    wanted = set(labels.items())
    return sum(v for (known, has), v in found.items() if known == name and wanted <= set(has))


def count_agents(found: Samples) -> float:
    return value(found, "legation_http_request_duration_seconds_count", route="/agents")


def counters(found: Samples) -> Samples:
    """Return the counters, and what is counted in histograms."""
    ends = ("_total", "_count", "_sum", "_bucket")
    return {key: number for key, number in found.items() if key[0].endswith(ends)}


def ask(client: socket.socket, target: str) -> str:
    client.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    status, _, body = read_reply(client)
    assert status == 200, body
    return body.decode()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


class Workers:
    """A served application, with a connection to each of its workers."""

    def __init__(self, command: Command, stack: ExitStack) -> None:
        self.command = command
        self.port = command.port()
        self.clients: dict[int, socket.socket] = {}
        self._stack = stack
        self._kept: Counter[int] = Counter()
        command.until(partial(self.serve, WORKERS))

    def serve(self, number: int) -> bool:
        """Tell whether so many have come up so far."""
        return len(self.command.named("worker_serves")) == number

    def until_alone(self) -> None:
        """Wait until there are as many processes as there should be."""
        self.command.until(lambda: len(self.command.workers) == WORKERS)

    def meet(self) -> None:
        """Connect to each worker that is not known yet."""
        for _ in range(500):
            if set(self.clients) >= self.command.workers:
                return
            client = self._stack.enter_context(closing(connect(self.port)))
            pid = int(ask(client, "/own").split("\n")[0].split()[-1])
            self.clients.setdefault(pid, client)
            self._kept[pid] += 1
        pytest.fail("a worker is never reached")

    def until_quiet(self) -> None:
        """Wait until the connections that were closed are not counted any more."""

        def is_quiet() -> bool:
            counted = [value(found, "legation_connections") for found in self.own()]
            return counted == [self._kept[pid] for pid in self.clients]

        self.command.until(is_quiet)

    def own(self) -> list[Samples]:
        """Ask each worker for its own."""
        return [parse(ask(client, "/own")) for client in self.clients.values()]

    def scrape(self) -> Samples:
        """Scrape one of them, whichever it is."""
        with closing(connect(self.port)) as client:
            return parse(ask(client, "/metrics/prometheus"))

    def ask_agents(self, times: int) -> None:
        for _ in range(times):
            with closing(connect(self.port)) as client:
                ask(client, "/agents")


@contextmanager
def serving(folder: Path) -> Generator[Workers]:
    Path(folder, "app.py").write_text(APP)
    arguments = ("app:platform", "--port", "0", "--workers", str(WORKERS), *LIMITS)
    with running(*arguments, cwd=folder) as command, ExitStack() as stack:
        yield Workers(command, stack)


class Load:
    """Clients that ask for agents and begin runs, on connections that they keep for a while."""

    def __init__(self, port: int, clients: int = 6) -> None:
        self.port = port
        self.answered: Counter[str] = Counter()
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                self._converse()
            except OSError as error:
                self.failures.append(repr(error))

    def _converse(self) -> None:
        with closing(connect(self.port)) as client:
            for number in range(8):
                run = number % 4 == 0
                client.sendall(RUN if run else LIST)
                status, head, _ = read_reply(client)
                with self._lock:
                    self.answered["run" if run else "agents"] += 1
                if status != 200:
                    self.failures.append(f"status {status}")
                if self._stop.wait(0.01) or b"connection: close" in head:
                    return

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)


def expected(own: list[Samples]) -> Samples:
    """Return the sum of what workers say of themselves."""
    numbers: defaultdict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = defaultdict(list)
    for found in own:
        for key, number in found.items():
            numbers[key].append(number)
    return {key: max(each) if OF_ALL.match(key[0]) else sum(each) for key, each in numbers.items()}


def settled(found: Samples) -> dict[str, float]:
    """Return what nothing changes but requests that are not of this test, in words."""
    return {
        f"{name} {labels}": round(number, 9)
        for (name, labels), number in found.items()
        if not ON_THE_MOVE.match(name) and dict(labels).get("route") not in OURS
    }


def test_one_scrape_of_three_workers_is_the_sum_of_the_three(tmp_path: Path) -> None:
    with serving(tmp_path) as workers:
        workers.meet()
        for times, client in enumerate(workers.clients.values(), start=1):
            for _ in range(times):
                ask(client, "/agents")
        load = Load(workers.port)
        shown = [workers.scrape() for _ in range(5)]
        load.end()
        workers.until_quiet()
        known = set[str]().union(*(gauges(ask(one, "/own")) for one in workers.clients.values()))
        own = workers.own()
        wholes = [parse(ask(each, "/metrics/prometheus")) for each in workers.clients.values()]

    assert load.failures == []
    agents = [count_agents(each) for each in own]
    assert all(count >= times for times, count in enumerate(agents, start=1))
    assert sum(agents) == 1 + 2 + 3 + load.answered["agents"]
    for whole in wholes:
        assert_sum(own, whole)
        assert count_agents(whole) == sum(agents)
        assert value(whole, "legation_runs_ended_total") == load.answered["run"]
    assert_growing([*shown, *wholes])
    # A gauge says how it is merged (`merge` of its family): a new one takes its place here.
    assert {name for name in known if bool(ADDED.match(name)) == bool(OF_ALL.match(name))} == set()


def assert_sum(own: list[Samples], whole: Samples) -> None:
    """Check that `whole` is what all workers say of themselves, and what is of no one of them."""
    told, wanted = settled(whole), settled(expected(own))
    assert {name: told.get(name) for name in wanted} == wanted
    assert value(whole, "legation_workers") == value(whole, "legation_workers_scraped") == WORKERS
    assert value(whole, "legation_database_serving", database="main") == 1
    memory = [value(each, "process_resident_memory_bytes") for each in own]
    assert value(whole, "process_resident_memory_bytes") > max(memory)
    assert not any("worker" in dict(labels) for _, labels in whole)


def assert_growing(shown: list[Samples]) -> None:
    """Check that no counter goes back from one scrape to the next."""
    for earlier, later in pairwise(shown):
        assert all(later[key] >= number for key, number in counters(earlier).items())


def test_a_worker_that_hangs_or_is_killed_takes_no_count_along(tmp_path: Path) -> None:
    with serving(tmp_path) as workers:
        workers.ask_agents(30)
        workers.meet()
        before = workers.scrape()
        (hung, _), (_, other), _ = workers.clients.items()
        os.kill(hung, signal.SIGSTOP)
        hanging = parse(ask(other, "/metrics/prometheus"))
        other.sendall(b"GET /metrics/prometheus HTTP/1.1\r\nHost: a\r\n\r\n")
        os.kill(hung, signal.SIGKILL)
        dying = parse(read_reply(other)[2].decode())
        workers.command.until(partial(workers.serve, WORKERS + 1))
        workers.until_alone()
        workers.ask_agents(12)
        after = workers.scrape()

    assert [count_agents(each) for each in (before, hanging, dying, after)] == [30, 30, 30, 42]
    for found, scraped in ((before, 3), (hanging, 2), (dying, 2), (after, 3)):
        assert value(found, "legation_workers_scraped") == scraped
    assert value(hanging, "legation_workers") == value(after, "legation_workers") == WORKERS
    assert_growing([before, hanging, dying, after])


def test_what_workers_counted_stays_when_they_are_replaced_under_load(tmp_path: Path) -> None:
    with serving(tmp_path) as workers:
        load = Load(workers.port)
        shown = [workers.scrape()]
        workers.command.signal(signal.SIGHUP)
        while not workers.serve(2 * WORKERS):
            shown.append(workers.scrape())
        load.end()
        workers.until_alone()
        whole = workers.scrape()

    assert load.failures == []
    assert count_agents(whole) == load.answered["agents"]
    assert value(whole, "legation_runs_ended_total") == load.answered["run"]
    assert value(whole, "legation_workers") == value(whole, "legation_workers_scraped") == WORKERS
    assert_growing([*shown, whole])
