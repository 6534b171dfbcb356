"""The time of `/health` in ms while an agent gets a message of a million characters.

    python benchmarks/health_under_long_message.py [ROUNDS]

Two messages in turns, of spaces and of short words, each to an agent that echoes it, stored in a
SQLite file.  `/health` is asked all the while on a connection of its own, and waits for whatever
else the event loop does.  The longest step is of a run of the same message in this process: CPU
between two effects.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import trio
from attrs import define, field

from legation import Platform
from legation.config import Agent, Database
from legation.http.messages import Request
from legation_host.hosting import open_platform

MESSAGES: Final = {"1,000,000 spaces": " " * 1_000_000, "500,000 words": "a " * 500_000}
RUNS: Final = "/agents/echo/runs"
PAUSE: Final = 0.002
AIM: Final = 50.0  # ms, at the 99th percentile on an idle machine
PLATFORM: Final = """
[limits]
requests_per_second = 0
[databases.main]
url = "sqlite:///{folder}/main.db"
[[agents]]
id = "echo"
"""


@contextmanager
def run_server(folder: Path) -> Generator[int]:
    """Serve the platform in a process of its own; yield the port."""
    file = folder / "platform.toml"
    file.write_text(PLATFORM.format(folder=folder))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "legation_cli", "serve", str(file), "--port", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=dict(os.environ), stdout=quiet, stderr=quiet)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("the server ended before it answered") from None
                time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def send(port: int, message: str, rounds: int) -> None:
    """Have the agent answer a message, so many times."""
    body = json.dumps({"message": message, "stream": False}).encode()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        for _ in range(rounds):
            connection.request("POST", RUNS, body, {"content-type": "application/json"})
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200 or b"COMPLETED" not in answer:
                raise SystemExit(f"not answered: {response.status} {answer[:200]!r}")


def latencies(port: int, message: str, rounds: int) -> list[float]:
    """Return what each `/health` took in milliseconds, as long as the messages are answered."""
    sender = threading.Thread(target=lambda: send(port, message, rounds))
    took: list[float] = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", "/health")
        connection.getresponse().read()
        sender.start()
        while sender.is_alive():
            begun = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            took.append((time.perf_counter() - begun) * 1e3)
            time.sleep(PAUSE)
    return took


@define(eq=False)
class Meter:
    """Measures the steps of runs in this process."""

    longest: float = 0.0
    _begun: float = field(default=0.0, init=False)

    def begin(self, label: bytes) -> None:
        """Begin a step."""
        self._begun = time.thread_time()

    def end(self) -> None:
        """End it."""
        self.longest = max(self.longest, time.thread_time() - self._begun)


class Body:
    """The body of a request that is here."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self, limit: int) -> bytes | None:
        """Return it."""
        return self._data


def longest_step(folder: Path, message: str) -> float:
    """Return the milliseconds of CPU that the longest step of a run takes."""
    meter = Meter()
    body = Body(json.dumps({"message": message, "stream": False}).encode())
    headers = ((b"host", b"a"), (b"content-type", b"application/json"))
    url = f"sqlite:///{folder}/steps.db"
    platform = Platform(databases=[Database("main", url)], agents=[Agent(id="echo")])

    async def main() -> None:
        async with open_platform(platform, noted=meter) as host:
            await host.run(platform.answer(Request("POST", RUNS, headers)), body=body)

    trio.run(main)
    return meter.longest * 1e3


def main() -> None:
    """Measure both messages, and print a line for each."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for name, message in MESSAGES.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with run_server(folder) as port:
                took = latencies(port, message, rounds)
            late = statistics.quantiles(took, n=100)[98]
            step = statistics.median(longest_step(folder, message) for _ in range(3))
        print(
            f"{name}: /health takes {statistics.median(took):.1f} ms (median), {late:.1f} (99 %),"
            f" {max(took):.1f} (longest) of {len(took)}; longest step {step:.1f} ms of CPU"
        )
    print(f"aim: {AIM:.0f} ms at 99 %")


if __name__ == "__main__":
    main()
