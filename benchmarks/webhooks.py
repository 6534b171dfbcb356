"""The rate of acknowledged deliveries, signed, at 16 connections.

    python benchmarks/webhooks.py FOLDER [ROUNDS]     FOLDER keeps the environment of AgentOS 2.5.6

Legation has stored a message in a SQLite file, synced, before it acknowledges it, and answers what
it took meanwhile: an agent on a model that answers at once, replies to a server on loopback.
AgentOS stores nothing before it acknowledges.  It is measured twice: with the same messages, where
it runs the agent afterwards and its sends cost nothing (its address of Meta is fixed, and out of
reach); and with statuses, for which it has nothing to do but acknowledge.  Each is served by one
process, in turns.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, Final

import trio
from peer import peer_command

DELIVERIES: Final = 2_000
FEW: Final = 600  # messages to AgentOS: more would take minutes
CONNECTIONS: Final = 16
SENDERS: Final = 200
AIM: Final = 8.0  # times
SECRET: Final = "app-secret-of-the-benchmark"
ENVIRON: Final = {
    "WHATSAPP_APP_SECRET": SECRET,
    "WHATSAPP_VERIFY_TOKEN": "verify",
    "WHATSAPP_ACCESS_TOKEN": "access",
    "WHATSAPP_PHONE_NUMBER_ID": "111",
    "APP_ENV": "production",  # AgentOS checks no signature without it
    "PEER_WHATSAPP": "1",
}
PLATFORM: Final = """
[limits]
requests_per_second = 0
[databases.main]
url = "sqlite:///{folder}/ours.db"
[[agents]]
id = "agent-0"
[channels.whatsapp]
kind = "whatsapp"
agent = "agent-0"
app_secret_env = "WHATSAPP_APP_SECRET"
verify_token_env = "WHATSAPP_VERIFY_TOKEN"
access_token_env = "WHATSAPP_ACCESS_TOKEN"
phone_number_id = "111"
api_base_url = "{provider}/v22.0"
"""
_NUMBERS: Final = count()


def deliveries(size: int, what: str) -> list[bytes]:
    """Return signed requests, no two alike."""
    return [request_of(next(_NUMBERS), what) for _ in range(size)]


def request_of(number: int, what: str) -> bytes:
    """Return one delivery as it stands on the wire."""
    message = {
        "from": f"4915{number % SENDERS:07}",
        "id": f"wamid.{number:030}",
        "timestamp": "1767225600",
        "type": "text",
        "text": {"body": f"Hello, what is the weather like in Vienna today? ({number})"},
    }
    metadata = {"display_phone_number": "15550001", "phone_number_id": "111"}
    value = {"messaging_product": "whatsapp", "metadata": metadata, what: [message]}
    entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
    root = {"object": "whatsapp_business_account", "entry": [entry]}
    body = json.dumps(root).encode()
    digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        "POST /whatsapp/webhook HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        f"x-hub-signature-256: sha256={digest}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def deliver(port: int, requests: list[bytes]) -> list[float]:
    """Deliver all on 16 connections; return how long each took, in seconds."""
    took: list[float] = []
    waiting = iter(requests)

    async def line() -> None:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            for request in waiting:
                began = time.perf_counter()
                await stream.send_all(request)
                answer = await stream.receive_some(65536)
                while not answer.endswith(b"}"):
                    answer += await stream.receive_some(65536)
                took.append(time.perf_counter() - began)
                if not answer.startswith(b"HTTP/1.1 200") or b"processing" not in answer:
                    raise SystemExit(f"not acknowledged: {answer!r}")

    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS):
            nursery.start_soon(line)
    return took


class _Provider(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Take a reply."""
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"messages":[{"id":"wamid.out"}]}'
        self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (named there)
        """Say nothing."""


@contextmanager
def provider() -> Generator[str]:
    """Serve what takes the replies, in a process of its own: it must not slow the load."""
    ready = "import sys; sys.path.insert(0, sys.argv[1]); import webhooks; webhooks.provide()"
    process = subprocess.Popen(
        [sys.executable, "-c", ready, str(Path(__file__).parent)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def provide() -> None:
    """Serve for ever; print the port."""
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (who was killed is no news)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


@contextmanager
def run_server(command: list[str], env: dict[str, str], port: int) -> Generator[None]:
    """Run a server until the block ends."""
    process = subprocess.Popen(
        command, env={**env, **ENVIRON}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"ended before it answered: {command}") from None
                time.sleep(0.05)
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def ours(folder: Path) -> Generator[int]:
    """Serve Legation on a fresh file; yield the port."""
    port = free_port()
    with provider() as address:
        file = folder / "platform.toml"
        file.write_text(PLATFORM.format(folder=folder, provider=address))
        command = [sys.executable, "-m", "legation_cli", "serve", str(file), "--port", str(port)]
        with run_server(command, dict(os.environ), port):
            yield port


@contextmanager
def theirs(folder: Path, peer: Path) -> Generator[int]:
    """Serve AgentOS on a fresh file; yield the port."""
    port = free_port()
    command, env = peer_command(peer, port, folder / "theirs.db")
    with run_server(command, env, port):
        yield port


def rates(port: int, what: str, size: int) -> Iterator[float]:
    """Warm up; then yield the rate and the 99th percentile in milliseconds."""
    trio.run(deliver, port, deliveries(20, what))
    requests = deliveries(size, what)
    began = time.perf_counter()
    took = trio.run(deliver, port, requests)
    yield len(took) / (time.perf_counter() - began)
    yield statistics.quantiles(took, n=100)[98] * 1e3


def measure_deliveries(serving: Any, what: str, size: int = DELIVERIES) -> tuple[float, float]:
    """Return the rate, and the 99th percentile in milliseconds."""
    with serving as port:
        rate, late = rates(port, what, size)
        return rate, late


def main() -> None:
    """Measure in turns, and print the medians."""
    peer, rounds = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    turns: list[tuple[tuple[float, float], ...]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            mine = measure_deliveries(ours(folder), "messages")
            idle = measure_deliveries(theirs(folder, peer), "statuses")
            turns.append((mine, idle, measure_deliveries(theirs(folder, peer), "messages", FEW)))
    names = ("Legation, messages", "AgentOS 2.5.6, statuses", "AgentOS 2.5.6, messages")
    for side, what in enumerate(names):
        rate, late = (statistics.median(turn[side][index] for turn in turns) for index in (0, 1))
        ratio = statistics.median(turn[0][0] / turn[side][0] for turn in turns)
        print(f"{what}: {rate:.0f} deliveries/s, 99th percentile {late:.0f} ms, ratio {ratio:.1f}")
    print(f"{CONNECTIONS} connections; aim of the ratio {AIM:.0f}")


if __name__ == "__main__":
    main()
