"""`legation serve` as a process of its own, with its log read while it runs."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["PATIENCE", "PLATFORM", "Command", "ask", "read_reply", "running", "write_platform"]

PATIENCE: Final = 60.0  # of a machine that has other things to do
"""Seconds after which a test that waits is a failed one."""

PLATFORM: Final = """
[databases.main]
url = "{url}"

[[agents]]
id = "concierge"
"""


def write_platform(folder: Path, url: str | None = None) -> Path:
    """Write a platform with one agent; return the path of its file."""
    path = folder / "platform.toml"
    path.write_text(PLATFORM.format(url=url or f"sqlite:///{folder / 'legation.db'}"))
    return path


class Command:
    """A running command; what it writes to standard error is kept."""

    def __init__(
        self, arguments: Sequence[str], *, prefix: Sequence[str] = (), **options: Any
    ) -> None:
        self.popen = subprocess.Popen(
            [*prefix, sys.executable, "-m", "legation_cli", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.lines: list[str] = []
        self._new: queue.Queue[None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.lines.append(line.rstrip("\n"))
            self._new.put(None)
        self._new.put(None)

    @property
    def events(self) -> list[Mapping[str, Any]]:
        """The lines of the log so far."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def named(self, event: str) -> list[Mapping[str, Any]]:
        """The lines of the log that tell of `event`."""
        return [line for line in self.events if line["event"] == event]

    @property
    def workers(self) -> set[int]:
        """The processes that it has started and not yet waited for."""
        pid = self.popen.pid
        return {
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        }

    def until(self, told: Callable[[], Any]) -> None:
        """Wait until something is true of what was written."""
        due = time.monotonic() + PATIENCE
        while not told():
            left = due - time.monotonic()
            assert left > 0, "\n".join(self.lines)
            assert self.popen.poll() is None or self._reader.is_alive(), "\n".join(self.lines)
            try:
                self._new.get(timeout=min(left, 0.1))
            except queue.Empty:
                continue

    def until_served(self) -> str:
        """Wait for the banner; return the address in it."""
        found: list[str] = []

        def served() -> bool:
            found.extend(m[1] for line in self.lines if (m := re.search(r" served at (\S+)", line)))
            return bool(found)

        self.until(served)
        return found[0]

    def port(self) -> int:
        """Wait for the banner; return the port in it."""
        return int(self.until_served().rpartition(":")[2])

    def signal(self, number: int) -> None:
        """Send a signal to the process that was started."""
        self.popen.send_signal(number)

    def ended(self) -> int:
        """Wait for the end; return the exit code."""
        code = self.popen.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.popen.poll() is None:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGTERM)
        try:
            self.popen.wait(5)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self._reader.join(PATIENCE)
        assert self.popen.stderr is not None
        assert not self._reader.is_alive(), "a process outlives the server"  # to close would wait
        self.popen.stderr.close()


@contextmanager
def running(*arguments: str | Path, **options: Any) -> Generator[Command]:
    """Run `legation serve` with `arguments` until the block ends."""
    env = {**os.environ, **options.pop("env", {})}
    told = ["serve", *map(str, arguments), "--log-format", "json"]
    command = Command(told, env=env, **options)
    try:
        yield command
    finally:
        command.stop()


def read_reply(client: socket.socket) -> tuple[int, bytes, bytes]:
    """Return status, head and body of one response with a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            raise ConnectionError("the connection ended")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    assert found is not None
    while len(body) < int(found[1]):
        piece = client.recv(65536)
        if not piece:
            raise ConnectionError("the body ended")
        body += piece
    return int(head.split(b" ")[1]), head, body


def ask(client: socket.socket, target: str = "/health", fields: str = "") -> tuple[int, bytes]:
    """Send a request on an open connection; return status and body."""
    client.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode())
    status, _, body = read_reply(client)
    return status, body
