"""A hundred runs at once, with slow models and slow tools: what they take, and what they leave."""

from __future__ import annotations

import gc
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import trio
from attrs import define, field

from legation import Agent, Model, Platform, PlatformLimits
from legation_host.fetch import CONNECTIONS
from legation_host.functions import FUNCTION_THREADS
from legation_host.hosting import open_platform
from legation_server import open_listeners, serve

from ..transcripts import ROOT
from ..two_databases import in_folder

RUNS: Final = 100
TOOL_SECONDS: Final = 0.2
PATIENCE_SECONDS: Final = 60.0
FDS: Final = Path("/proc/self/fd")

pytestmark = pytest.mark.skipif(not FDS.exists(), reason="open files are counted in /proc")


@define
class Count:
    """How many, now and at most."""

    now: int = 0
    most: int = 0
    all: int = 0
    lock: threading.Lock = field(factory=threading.Lock)

    @contextmanager
    def one(self) -> Generator[None]:
        with self.lock:
            self.now += 1
            self.all += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self.lock:
                self.now -= 1


@define
class Busy:
    """A platform whose agent is slow in every respect."""

    model_port: int
    database: Path
    threads: Count = field(factory=Count)
    tasks: Count = field(factory=Count)

    def in_a_thread(self) -> str:
        """Wait in a thread."""
        with self.threads.one():
            time.sleep(TOOL_SECONDS)
            return "done"

    async def on_the_loop(self) -> str:
        """Wait on the event loop."""
        with self.tasks.one():
            await trio.sleep(TOOL_SECONDS)
            return "done"

    def platform(self) -> Platform:
        url = f"http://127.0.0.1:{self.model_port}/v1"
        return Platform(
            models=[Model("slow", "openai", id="slow", base_url=url)],
            databases=in_folder(self.database.parent),
            limits=PlatformLimits(runs=RUNS, model_calls=RUNS),
            agents=[
                Agent(id="busy", model="slow", tools=[self.in_a_thread, self.on_the_loop]),
            ],
        )

    def connections(self) -> int:
        """Return how many connections to the model are open."""
        wanted = f":{self.model_port:04X} 01"  # established
        lines = Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
        return sum(" ".join(line.split()[2:4]).endswith(wanted) for line in lines)


@pytest.fixture
def busy(tmp_path: Path) -> Generator[Busy]:
    script = ROOT / "tests" / "providers" / "slow_model.py"
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as model:
        assert model.stdout is not None
        try:
            yield Busy(int(model.stdout.readline()), tmp_path / "main.db")
        finally:
            model.terminate()


@asynccontextmanager
async def served(platform: Platform) -> AsyncGenerator[int]:
    listeners = open_listeners("127.0.0.1", 0)
    port: int = listeners[0].getsockname()[1]
    async with open_platform(platform) as host, trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, platform, host, listeners))
        yield port
        server.drain()


@define
class Caller:
    """A client in a thread of its own, on one connection."""

    connection: http.client.HTTPConnection

    def ask(self, method: str, path: str, form: Mapping[str, str] | None = None) -> Any:
        body = None if form is None else urlencode(form)
        headers = {"content-type": "application/x-www-form-urlencoded"} if form else {}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        told = response.read()
        assert response.status < 300, told
        return json.loads(told)

    def start_all(self, message: str) -> list[str]:
        """Start the runs, each in a session of its own, and return their paths."""
        paths: list[str] = []
        for _ in range(RUNS):
            form = {"message": message, "background": "true"}
            run = self.ask("POST", "/agents/busy/runs", form)
            paths.append(f"/agents/busy/runs/{run['run_id']}")
        return paths

    def statuses(self, paths: list[str]) -> set[str]:
        return {self.ask("GET", path)["status"] for path in paths}

    def until(self, paths: list[str], status: str) -> None:
        """Wait until every run stands so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.statuses(paths)) != {status}:
            assert time.monotonic() < deadline, found
            time.sleep(0.1)


def complete_all(caller: Caller) -> None:
    """Start the runs, and wait for their ends."""
    caller.until(caller.start_all("Go"), "COMPLETED")


def cancel_all(caller: Caller) -> None:
    """Start the runs, and cancel them wherever they are."""
    paths = caller.start_all("Stay")
    assert caller.statuses(paths) == {"RUNNING"}
    for path in paths:
        caller.ask("POST", f"{path}/cancel", {})
    caller.until(paths, "CANCELLED")


def calling(port: int, act: Callable[[Caller], Any]) -> Any:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        return act(Caller(connection))


def watch_health(stop: threading.Event, caller: Caller) -> list[float]:
    """Return how long each look at /health took, in seconds."""
    took: list[float] = []
    while not stop.wait(0.005):
        started = time.perf_counter()
        assert caller.ask("GET", "/health")["status"] == "ok"
        took.append(time.perf_counter() - started)
    return sorted(took)


async def until_few(count: Callable[[], int], most: int) -> None:
    """Wait until there are no more than `most`."""
    with trio.move_on_after(10):
        while count() > most:
            await trio.sleep(0.02)
    assert count() <= most


def tasks_living() -> int:
    return trio.lowlevel.current_statistics().tasks_living


def function_threads() -> int:
    return sum(thread.name == "legation function" for thread in threading.enumerate())


def open_files() -> int:
    gc.collect()  # the pages of a platform are mapped files, which go with it
    return sum(1 for _ in FDS.iterdir())


async def test_a_hundred_slow_runs_stay_within_limits_and_leave_nothing(
    busy: Busy, figures: Callable[[str], None]
) -> None:
    files = open_files()
    open_connections = Count()

    async def sample() -> None:
        while True:
            open_connections.most = max(open_connections.most, busy.connections())
            await trio.sleep(0.02)

    async with served(busy.platform()) as port:

        async def do(act: Callable[[Caller], Any]) -> Any:
            return await trio.to_thread.run_sync(calling, port, act)

        await do(complete_all)  # everything is warm
        at_rest = tasks_living()
        busy.threads, busy.tasks = Count(), Count()

        stop, took = threading.Event(), list[float]()
        async with trio.open_nursery() as nursery:

            async def probe() -> None:
                took.extend(await do(partial(watch_health, stop)))

            nursery.start_soon(sample)
            nursery.start_soon(probe)
            try:
                began = time.perf_counter()
                await do(complete_all)
                seconds = time.perf_counter() - began
                await do(cancel_all)
            finally:
                stop.set()
            nursery.cancel_scope.cancel()

        await until_few(tasks_living, at_rest)
        await until_few(function_threads, 0)
        await until_few(busy.connections, 0)
        assert busy.threads.most <= FUNCTION_THREADS
        assert open_connections.most <= CONNECTIONS
        assert (busy.threads.now, busy.tasks.now) == (0, 0)
        assert busy.tasks.all >= RUNS
    await until_few(open_files, files)

    p99 = took[int(len(took) * 0.99)]
    assert p99 < 1.0
    figures(
        f"runs: {RUNS} at once with slow models and tools in {seconds:.1f} s, "
        f"at most {busy.threads.most} of {FUNCTION_THREADS} threads and "
        f"{open_connections.most} of {CONNECTIONS} connections; /health meanwhile "
        f"{took[len(took) // 2] * 1000:.1f} ms, p99 {p99 * 1000:.0f} ms; {RUNS} cancelled: "
        "no task, thread, connection or file is left"
    )
