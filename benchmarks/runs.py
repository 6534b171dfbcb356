"""The time of a run whose model answers at once, in a new session and in one that grows.

    python benchmarks/runs.py FOLDER [RUNS]     FOLDER keeps the environment of AgentOS 2.5.6

Both systems are served by one process each on this machine, with a SQLite file, and asked one
request after the other over one kept connection: joined and streamed runs, each in a new session;
then RUNS (300) in one session.  Times are medians, of the client, in milliseconds.
"""

from __future__ import annotations

import http.client
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from peer import peer_command

WARM_UP: Final = 20
EACH: Final = 100
WINDOW: Final = 20  # runs at each end of the long session
AIM_TIMES: Final = 30.0
AIM_GROWTH: Final = 1.2
PLATFORM: Final = """
[limits]
requests_per_second = 0
[databases.main]
url = "sqlite:///{folder}/ours.db"
[[agents]]
id = "agent-0"
"""
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def run_server(command: list[str], environ: dict[str, str], port: int) -> Generator[int]:
    """Run a server until the block ends; it listens when the block begins."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environ, stdout=quiet, stderr=quiet) as process:
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield port
        finally:
            process.terminate()


class Caller:
    """One connection to one server."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def run(self, *, stream: bool, session_id: str = "") -> tuple[float, float]:
        """Return the milliseconds until the first part of the body, and until its end."""
        form = {"message": "hello", "stream": str(stream).lower(), "session_id": session_id}
        began = time.perf_counter()
        self.connection.request("POST", "/agents/agent-0/runs", urlencode(form), FORM)
        answer = self.connection.getresponse()
        body = answer.read1(65536)
        first = time.perf_counter()
        body += answer.read()
        ended = time.perf_counter()
        if answer.status != 200 or (b"COMPLETED" not in body and b"RunCompleted" not in body):
            raise SystemExit(f"no run: {answer.status} {body[:200]!r}")
        return (first - began) * 1e3, (ended - began) * 1e3


def measure(port: int, runs: int) -> dict[str, float]:
    """Return the medians of one system."""
    caller = Caller(port)
    for _ in range(WARM_UP):
        caller.run(stream=False)
        caller.run(stream=True)
    joined = [caller.run(stream=False)[1] for _ in range(EACH)]
    streamed = [caller.run(stream=True) for _ in range(EACH)]
    long = [caller.run(stream=False, session_id="long")[1] for _ in range(runs)]
    begin, end = statistics.median(long[:WINDOW]), statistics.median(long[-WINDOW:])
    return {
        "joined": statistics.median(joined),
        "streamed": statistics.median(end for _, end in streamed),
        "first event": statistics.median(first for first, _ in streamed),
        "begin of a session": begin,
        "end of a session": end,
        "growth": end / begin,
    }


def main() -> None:
    """Measure both, and print the ratios."""
    folder, runs = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 300
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (data / "platform.toml").write_text(PLATFORM.format(folder=data))
        our_port, peer_port = free_port(), free_port()
        ours = [sys.executable, "-m", "legation_cli", "serve", str(data / "platform.toml")]
        theirs, environ = peer_command(folder, peer_port, data / "theirs.db")
        command = [*ours, "--port", str(our_port)]
        stack.enter_context(run_server(command, dict(os.environ), our_port))
        stack.enter_context(run_server(theirs, environ, peer_port))
        legation, agentos = measure(our_port, runs), measure(peer_port, runs)
    for name, value in legation.items():
        unit = "times" if name == "growth" else "ms"
        ratio = agentos[name] / value
        print(f"{name:20} {value:8.2f} {unit}  AgentOS {agentos[name]:8.2f} {unit}  {ratio:6.1f}x")
    print(f"aims: joined and streamed {AIM_TIMES:.0f}x, growth at most {AIM_GROWTH}")


if __name__ == "__main__":
    main()
