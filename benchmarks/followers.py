"""The cost of those who wait: idle followers of runs, and slow runs that are streamed.

    python benchmarks/followers.py [--followers 10000] [--streams 2000] [--seconds 20] [--rounds 1]
                                   [--against FOLDER] [--json FILE]

One worker, one SQLite file, a model that does not answer for an hour.  Measured in turns:

* followers: clients that follow runs of this worker by `GET …/events`, all of one run, and then
  ten of each run
* streams: runs that are streamed to who asked for them

Each is left alone until all stand still.  Then, for `--seconds`: the CPU time of the server, in
percent of a core, and the latency of a `GET /health` that is sent every 50 ms on a connection of
its own.  With `--against` the same is asked of another tree of the project, in turns, and the ratio
is printed: CPU time counts where the machine is shared, and latencies only where it is not.

Aims: 10,000 idle followers take 10 % of a core, and leave `/health` a p99 of 25 ms; so do 2,000
streamed runs.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import asdict, frozen
from http_load import (
    Server,
    Setting,
    cpu_seconds,
    free_port,
    make_setting,
    ours_command,
    run_server,
)

EACH: Final = 10
"""Followers of one run, where there are several runs."""

AT_ONCE: Final = 100
"""Requests that are sent before the first of them has to be answered."""

PAUSE_SECONDS: Final = 0.05
SETTLED_SECONDS: Final = 18.0
"""Longer than a heartbeat: what each does once is over."""

CONFIGURED: Final = """
[limits.node]
runs = 20000
model_calls = 20000
streams = 20000
followers = 20000

[limits.subjects.ada]
runs = 20000
model_calls = 20000
streams = 20000
followers = 20000

[models.silent]
provider = "echo"
delay_seconds = 3600.0

[[agents]]
id = "silent"
model = "silent"
"""


@frozen
class Measure:
    """One round: percent of a core, milliseconds of `/health`, and seconds until all were there."""

    cpu: float
    p99: float
    worst: float
    opened: float


@contextmanager
def serving(setting: Setting, tree: Path | None) -> Generator[Server]:
    """Run a server of `tree`, or of this project, until the block ends."""
    port = free_port()
    limits = (
        *("--limit", "connections=20000"),
        *("--limit", "requests_in_flight=20000"),
    )
    database = f"sqlite:///{setting.folder}/followers-{port}.db"
    command = ours_command(setting, port, *limits, database=database, more=CONFIGURED)
    env = {**os.environ, **setting.env}
    if tree is not None:
        env["PYTHONPATH"] = os.pathsep.join(str(tree / name) for name in ("core", "frontends"))
    with run_server("Legation", command, env, port) as server:
        yield server


class Crowd:
    """Clients whose streams are open, and are read as long as somebody waits."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._clients = selectors.DefaultSelector()

    def __len__(self) -> int:
        return len(self._clients.get_map())

    def open(self, requests: Sequence[bytes]) -> None:
        """Send each of `requests`, and wait until each has an answer."""
        for first in range(0, len(requests), AT_ONCE):
            fresh: list[socket.socket] = []
            for request in requests[first : first + AT_ONCE]:
                client = socket.create_connection(("127.0.0.1", self.port), timeout=120)
                client.sendall(request)
                fresh.append(client)
            for client in fresh:
                answer = client.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200"), answer
                self._clients.register(client, selectors.EVENT_READ)

    def read(self, seconds: float) -> None:
        """Take what comes for so long."""
        due = time.monotonic() + seconds
        while (left := due - time.monotonic()) > 0:
            for key, _ in self._clients.select(left):
                client = key.fileobj
                assert isinstance(client, socket.socket)
                assert client.recv(65536), "a stream ended"

    def close(self) -> None:
        """Leave."""
        for key in [*self._clients.get_map().values()]:
            client = key.fileobj
            assert isinstance(client, socket.socket)
            self._clients.unregister(client)
            client.close()


def head(setting: Setting, method: str, path: str, form: bytes = b"") -> bytes:
    """Return a request as it is sent."""
    token = setting.token(["agents:run", "agents:read"])
    return (
        f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n\r\n"
    ).encode() + form


def begin(setting: Setting, port: int, count: int) -> list[str]:
    """Begin runs, each in a session of its own; return their ids."""
    found: list[str] = []
    with socket.create_connection(("127.0.0.1", port), timeout=120) as client:
        for _ in range(count):
            client.sendall(
                head(setting, "POST", "/agents/silent/runs", b"message=hi&background=true")
            )
            found.append(json.loads(client.recv(65536).partition(b"\r\n\r\n")[2])["run_id"])
    return found


def follow(setting: Setting, port: int, followers: int, runs: int) -> list[bytes]:
    """Return the requests of so many followers of so many runs."""
    asked = [
        head(setting, "GET", f"/agents/silent/runs/{run_id}/events")
        for run_id in begin(setting, port, runs)
    ]
    return [asked[number % runs] for number in range(followers)]


def measure(
    setting: Setting, tree: Path | None, requests: Callable[[int], list[bytes]], seconds: float
) -> Measure:
    """Open streams, leave them alone, and measure."""
    with serving(setting, tree) as server:
        wanted, crowd = requests(server.port), Crowd(server.port)
        before = time.monotonic()
        crowd.open(wanted)
        opened = time.monotonic() - before
        crowd.read(SETTLED_SECONDS)
        try:
            spent, took = watch(server, crowd, seconds)
        finally:
            crowd.close()
    took.sort()
    p99 = took[min(len(took) - 1, round(len(took) * 0.99))]
    return Measure(100 * spent, 1e3 * p99, 1e3 * took[-1], opened)


def watch(server: Server, crowd: Crowd, seconds: float) -> tuple[float, list[float]]:
    """Return the part of a core that the server took, and what each `/health` took."""
    took: list[float] = []
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
        began, before = time.monotonic(), cpu_seconds(server.pids[0])
        while (since := time.monotonic()) - began < seconds:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
            took.append(time.monotonic() - since)
            crowd.read(PAUSE_SECONDS)
        spent = (cpu_seconds(server.pids[0]) - before) / (time.monotonic() - began)
    return spent, took


def main() -> None:
    """Measure each, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--followers", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    many, streams = options.followers, options.streams
    found: dict[str, list[Measure]] = {}
    trees: Mapping[str, Path | None] = {"": None}
    if options.against is not None:
        trees = {**trees, ", against": options.against.resolve()}
    with tempfile.TemporaryDirectory() as folder:
        setting = make_setting(Path(folder))
        form = b"message=hi&stream=true"
        streamed = [head(setting, "POST", "/agents/silent/runs", form)] * streams
        cases: dict[str, Callable[[int], list[bytes]]] = {
            f"{many:,} followers of one run": lambda port: follow(setting, port, many, 1),
            f"{many:,} followers, {EACH} of a run": lambda port: follow(
                setting, port, many, max(1, many // EACH)
            ),
            f"{streams:,} streamed runs": lambda _: streamed,
        }
        for _ in range(options.rounds):
            for case, requests in cases.items():
                for suffix, tree in trees.items():
                    one = measure(setting, tree, requests, options.seconds)
                    found.setdefault(case + suffix, []).append(one)
                    show(case + suffix, found[case + suffix])
    for case in cases if options.against is not None else ():
        ours, theirs = found[case], found[f"{case}, against"]
        pairs = (one.cpu / other.cpu for one, other in zip(ours, theirs, strict=True))
        print(f"{case}: CPU x {statistics.median(pairs):.2f} of {options.against}")
    if options.json:
        rows = {case: [asdict(one) for one in each] for case, each in found.items()}
        options.json.write_text(json.dumps(rows))


def show(case: str, rounds: Sequence[Measure]) -> None:
    """Print the medians of the rounds."""
    cpu, p99, worst, opened = (
        statistics.median(getattr(one, name) for one in rounds)
        for name in ("cpu", "p99", "worst", "opened")
    )
    print(
        f"{case}: {cpu:.1f} % of a core; /health p99 {p99:.1f} ms, worst {worst:.0f};"
        f" open after {opened:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
