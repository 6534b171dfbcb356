"""Memory and `/health` while a long history is read, by one caller in several clients.

    python benchmarks/fair_shares/answers.py

A session has 60 runs of 1 MiB, in a SQLite file.  Four clients read all of them at once, each as
fast as it can, while `/health` is asked on a connection of its own, as it is before for three
seconds: what that takes is the machine's.  Then a session of 100 such
runs is read under a memory limit of 512 MiB, page by page from link to link, and whole.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
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

MESSAGE: Final = 1 << 20
READERS: Final = 4
PAUSE: Final = 0.005
REST_SECONDS: Final = 3.0
LIMIT: Final = 512 << 20
RSS_AIM: Final = 64.0  # MiB
HEALTH_AIM: Final = 50.0  # ms at the 99th percentile, on an idle machine
PLATFORM: Final = """
[databases.main]
url = "sqlite:///{folder}/main.db"
[[agents]]
id = "echo"
history_runs = 0
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def run_server(folder: Path, limit: int | None = None) -> Generator[tuple[int, int]]:
    """Serve the platform in a process of its own; yield its port and its process id."""
    file, port = folder / "platform.toml", _free_port()
    file.write_text(PLATFORM.format(folder=folder))
    command = [sys.executable, "-m", "legation_cli", "serve", str(file), "--port", str(port)]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=dict(os.environ), stdout=quiet, stderr=quiet)
    if limit is not None:
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (limit, limit))
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit("the server ended before it answered") from None
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def fill(port: int, runs: int) -> None:
    """Have the agent answer so many messages of 1 MiB in the session `s`."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        for number in range(runs):
            message = f"{number} ".ljust(MESSAGE, "m")
            body = json.dumps({"message": message, "session_id": "s", "stream": False}).encode()
            headers = {"content-type": "application/json"}
            connection.request("POST", "/agents/echo/runs", body, headers)
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200 or b"COMPLETED" not in answer:
                raise SystemExit(f"not answered: {response.status} {answer[:200]!r}")


def read(port: int, path: str) -> tuple[int, str | None]:
    """Read the answer at `path` and drop it; return its bytes, and where the list goes on."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        size = 0
        while part := response.read(1 << 16):
            size += len(part)
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status}")
        found = re.fullmatch(r"<(\?.*)>; rel=\"next\"", response.getheader("link") or "")
        return size, None if found is None else found[1]


def memory_of(pid: int, field: str) -> float:
    """Return `field` of the status of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def latencies(port: int, readers: list[threading.Thread]) -> list[float]:
    """Return what each `/health` took in milliseconds, as long as the readers read."""
    took: list[float] = []
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("GET", "/health")
        connection.getresponse().read()
        for reader in readers:
            reader.start()
        while any(reader.is_alive() for reader in readers):
            begun = time.perf_counter()
            connection.request("GET", "/health")
            connection.getresponse().read()
            took.append((time.perf_counter() - begun) * 1e3)
            time.sleep(PAUSE)
    return took


def read_by_four(folder: Path) -> None:
    """Measure 60 runs of 1 MiB that four clients read at once."""
    with run_server(folder) as (port, _):
        fill(port, 60)
    with run_server(folder) as (port, pid):
        read(port, "/sessions/s/runs?limit=1")
        before = memory_of(pid, "VmRSS")
        sizes: list[int] = []
        readers = [
            threading.Thread(target=lambda: sizes.append(read(port, "/sessions/s/runs")[0]))
            for _ in range(READERS)
        ]
        rest = latencies(port, [threading.Thread(target=time.sleep, args=(REST_SECONDS,))])
        begun = time.perf_counter()
        took = latencies(port, readers)
        seconds = time.perf_counter() - begun
        grown = memory_of(pid, "VmHWM") - before
    late, at_rest = (statistics.quantiles(one, n=100)[98] for one in (took, rest))
    print(
        f"60 runs of 1 MiB, {READERS} clients: {sum(sizes) / (1 << 20):.0f} MiB in {seconds:.1f} s;"
        f" memory grows by {grown:.0f} MiB (aim: {RSS_AIM:.0f}); /health takes"
        f" {statistics.median(took):.1f} ms (median), {late:.1f} (99 %), {max(took):.1f} (longest)"
        f" of {len(took)} (aim: {HEALTH_AIM:.0f} at 99 %; while nobody reads: {at_rest:.1f})"
    )


def read_under_a_limit(folder: Path) -> None:
    """Measure 100 runs of 1 MiB that are read page by page where memory is short."""
    with run_server(folder) as (port, _):
        fill(port, 100)
    with run_server(folder, LIMIT) as (port, pid):
        pages, size, query = 0, 0, "?limit=10"
        following: str | None = query
        while following is not None:
            more, following = read(port, f"/sessions/s/runs{following}")
            pages, size = pages + 1, size + more
        whole, _ = read(port, "/sessions/s/runs")
        most = memory_of(pid, "VmHWM")
    print(
        f"100 runs of 1 MiB under {LIMIT >> 20} MiB: {pages} pages of {size / (1 << 20):.0f} MiB"
        f" in all, whole {whole / (1 << 20):.0f} MiB; memory is at most {most:.0f} MiB"
    )


def main() -> None:
    """Measure both."""
    for measure in (read_by_four, read_under_a_limit):
        with tempfile.TemporaryDirectory() as temporary:
            measure(Path(temporary))


if __name__ == "__main__":
    main()
