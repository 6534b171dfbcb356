"""The memory of a process at rest, an idle connection, an open stream and one more worker.

    python benchmarks/memory.py [--json FILE]

Bytes of the process tree, shared pages in proportion (PSS).  Connections and streams are counted in
the second of two waves: the first fills the pools of the allocator.  A stream is a run that waits
for its model, its pools included; what is left when streams have ended is what each of further
waves adds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from http_load import OURS, Server, Setting, free_port, make_setting, ours_command, run_server

CONNECTIONS: Final = 2_000
STREAMS: Final = 1_000
WAVES: Final = 9
SETTLED: Final = 5
WAIT_SECONDS: Final = 3.0
SLOW: Final = f"""
[limits.node]
runs = {2 * STREAMS}
model_calls = {2 * STREAMS}
streams = {2 * STREAMS}
followers = {2 * STREAMS}

[limits.subjects.ada]
runs = {2 * STREAMS}
model_calls = {2 * STREAMS}
streams = {2 * STREAMS}
followers = {2 * STREAMS}

[models.slow]
provider = "echo"
delay_seconds = {WAIT_SECONDS}

[[agents]]
id = "slow"
model = "slow"
"""
AIMS: Final = {
    "an idle connection": 6 << 10,
    "an extra worker": 6 << 20,
}


def memory(pid: int) -> int:
    """Return the bytes that a process tree has for itself, shared pages in proportion."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[1]) * 1024 + sum(memory(int(child)) for child in children)


@contextmanager
def ours(setting: Setting, *options: str, more: str = "") -> Generator[Server]:
    """Run Legation until the block ends."""
    port = free_port()
    command = ours_command(setting, port, *options, more=more)
    with run_server(OURS, command, {**os.environ, **setting.env}, port) as server:
        yield server


def at_rest(setting: Setting) -> int:
    """Return the bytes of a process that has begun, and does nothing."""
    with ours(setting) as server:
        time.sleep(3)
        return memory(server.pids[0])


def idle_connection(setting: Setting) -> float:
    """Return the bytes that an idle connection costs."""
    cost = 0.0
    crowd: list[socket.socket] = []
    with ours(setting, "--limit", "connections=10000") as server:
        for _ in range(2):
            before = memory(server.pids[0])
            for _ in range(CONNECTIONS):
                client = socket.create_connection(("127.0.0.1", server.port))
                crowd.append(client)
                client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
                client.recv(4096)
            cost = (memory(server.pids[0]) - before) / CONNECTIONS
        for client in crowd:
            client.close()
    return cost


def streams(setting: Setting) -> tuple[float, float]:
    """Return the bytes that a stream costs, and those that it leaves behind."""
    form = b"message=hello&stream=true"
    head = (
        "POST /agents/slow/runs HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        f"Authorization: Bearer {setting.token(['agents:run'])}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n\r\n"
    )
    after: list[int] = []
    costs: list[float] = []
    limits = ("--limit", "connections=10000", "--limit", "requests_in_flight=2000")
    with ours(setting, *limits, more=SLOW) as server:
        for _ in range(WAVES):
            before = memory(server.pids[0])
            crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(STREAMS)]
            for client in crowd:
                client.sendall(head.encode() + form)
            for client in crowd:
                answer = client.recv(4096)
                assert answer.startswith(b"HTTP/1.1 200"), answer
            costs.append((memory(server.pids[0]) - before) / STREAMS)
            for client in crowd:
                drain(client)
            time.sleep(3)
            after.append(memory(server.pids[0]))
    return costs[0], (after[-1] - after[SETTLED]) / STREAMS / (WAVES - 1 - SETTLED)


def drain(client: socket.socket) -> None:
    """Read a stream to its end, which has to be that of a completed run."""
    client.settimeout(60)
    body = b""
    while data := client.recv(65536):
        body = body[-1024:] + data
    client.close()
    assert b"RunCompleted" in body, body


def extra_worker(setting: Setting) -> float:
    """Return the bytes that one more worker costs, the process that watches it included."""
    totals: list[int] = []
    for workers in (2, 6):
        with ours(setting, "--workers", str(workers)) as server:
            wait_for(server.pids[0], workers)
            totals.append(memory(server.pids[0]))
    return (totals[1] - totals[0]) / 4


def wait_for(pid: int, workers: int) -> None:
    """Wait until all `workers` of the process `pid` are there, and at rest."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    while len(children.read_text().split()) < workers:
        time.sleep(0.2)
    time.sleep(6)


def main() -> None:
    """Weigh each, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        setting = make_setting(Path(folder))
        found: dict[str, float] = {
            "at rest": at_rest(setting),
            "an idle connection": idle_connection(setting),
            "an extra worker": extra_worker(setting),
        }
        stream, left = streams(setting)
    found |= {f"a stream, of {STREAMS}": stream, "left of a stream that has ended": left}
    for name, size in found.items():
        aim = f", aim {AIMS[name] / 1024:.0f}" if name in AIMS else ""
        print(f"{name}: {size / 1024:.1f} KiB{aim}")
    if options.json is not None:
        options.json.write_text(
            json.dumps({f"{name}, bytes": size for name, size in found.items()})
        )


if __name__ == "__main__":
    main()
