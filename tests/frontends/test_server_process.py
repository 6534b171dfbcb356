"""The server as a process, and on a Unix socket."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys
from contextlib import asynccontextmanager
from legation.effects import Sleep
from legation.http.messages import json_response
from legation_host import open_host
from legation_server import Life, Settings, address_of, open_listeners, open_unix_listener, run

class Platform:
    def answer(self, request):
        if request.target == "/wait":
            yield from Sleep(0.5)
        if request.target == "/forever":
            yield from Sleep(60.0)
        return json_response(200, request.client)

@asynccontextmanager
async def host(platform):
    async with open_host() as opened:
        yield opened
    print("host closed", flush=True)

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
listeners = open_listeners("127.0.0.1", 0) + (open_unix_listener(sys.argv[1]),)
run(Platform, host, listeners, Settings(grace_seconds=0.1),
    life=Life(started=lambda server: print(server.listeners[0].getsockname()[1], flush=True)))
print("returned", flush=True)
"""

ASK = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


class Process:
    """A server in a process of its own."""

    def __init__(self, unix: Path) -> None:
        self.unix = unix
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(unix)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        if not line:
            pytest.fail(self.popen.communicate()[1])
        self.port = int(line)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=5)

    def ended(self) -> tuple[int, str, str]:
        """Return exit code, output and errors."""
        output, errors = self.popen.communicate(timeout=10)
        return self.popen.returncode, output, errors


@pytest.fixture
def process(tmp_path: Path) -> Generator[Process]:
    running = Process(tmp_path / "s")
    yield running
    running.popen.kill()
    running.popen.communicate()


def read_to_end(client: socket.socket) -> bytes:
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_the_process_ends_well(process: Process, number: int) -> None:
    with closing(process.connect()) as client:
        client.sendall(ASK % b"/wait")
        time.sleep(0.15)
        process.popen.send_signal(number)
        answer = read_to_end(client)

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in answer
    assert process.ended() == (0, "host closed\nreturned\n", "")
    assert not process.unix.exists()


def test_a_second_signal_ends_the_process_at_once(process: Process) -> None:
    with closing(process.connect()) as client:
        client.sendall(ASK % b"/forever")
        time.sleep(0.15)
        began = time.monotonic()
        process.popen.send_signal(signal.SIGTERM)
        time.sleep(0.15)
        process.popen.send_signal(signal.SIGTERM)

        assert process.ended() == (0, "host closed\nreturned\n", "")
        assert time.monotonic() - began < 3.0


def test_a_client_of_the_unix_socket_is_served_and_has_no_address(process: Process) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        client.connect(str(process.unix))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")

        assert read_to_end(client).endswith(b'\r\n\r\n""')


def test_a_process_without_free_descriptors_serves_again_when_it_has_some(
    process: Process,
) -> None:
    crowd = [process.connect() for _ in range(100)]
    time.sleep(0.3)
    for client in crowd:
        client.close()
    with closing(process.connect()) as client:
        client.settimeout(5)
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")

        assert read_to_end(client).endswith(b'\r\n\r\n"127.0.0.1"')
