"""The cost of one caller's streams, connections and bodies for all others.

    python benchmarks/fair_shares/intake.py

A server with its defaults is asked over loopback: for 1,100 streams of one caller, directly and
behind nginx (where that is installed), while another caller asks; by a new client beside 1,000
connections that say nothing; and for every operation that takes a body, with 8 MB of JSON of
several shapes by four clients at once, while `/health` is asked.
"""

from __future__ import annotations

import http.client
import multiprocessing
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Final

import jwt

STREAMS: Final = 1_100
IDLE: Final = 1_000
OTHERS: Final = 50
BYTES: Final = 8_000_000
CLIENTS: Final = 4
SECRET: Final = "a secret of this benchmark alone, of more than 32 bytes"
PLATFORM: Final = """
[platform]
authorization = true
[authorization_config]
algorithm = "HS256"
verification_keys = ["{secret}"]
verify_audience = false
[databases.main]
url = "sqlite:///{folder}/main.db"
[models.slow]
provider = "echo"
delay_seconds = 300.0
[[agents]]
id = "sloth"
model = "slow"
[[agents]]
id = "quick"
"""
NGINX: Final = """
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{behind};
      proxy_http_version 1.1;
      proxy_set_header Host localhost;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_buffering off;
    }}
  }}
}}
"""
SHAPES: Final = {
    "unknown members": b"{" + b",".join(b'"m%d":1' % n for n in range(700_000)) + b"}",
    "small objects": b'{"message":[' + b'{"a":1},' * 1_000_000 + b"0]}",
    "depth": b'{"message":' * (BYTES // 11),
    "a string": b'{"message":"' + b"x" * BYTES + b'"}',
    "escapes": b'{"message":"' + b"\\n" * (BYTES // 2) + b'"}',
}
OPERATIONS: Final = (
    ("POST", "/agents/quick/runs"),
    ("POST", "/agents/quick/runs/r/continue"),
    ("POST", "/agents/quick/runs/r/cancel"),
    ("POST", "/agents/quick/runs/r/resume"),
    ("POST", "/sessions"),
    ("PATCH", "/sessions/s"),
    ("DELETE", "/sessions"),
    ("POST", "/sessions/s/rename"),
    ("POST", "/me/explain"),
)


def token_of(name: str) -> str:
    """Return a token of a caller who may do everything with its own rows."""
    scopes = ["agents:read", "agents:run", "sessions:read", "sessions:write", "sessions:delete"]
    claims = {"sub": name, "scopes": scopes, "exp": int(time.time()) + 3_600}
    return jwt.encode(claims, SECRET, "HS256")


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], port: int, log: Path) -> Generator[int]:
    """Run a server until the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stderr=out, stdout=out)
    try:
        for _ in range(300):
            with suppress(OSError):
                if ask(port, "/health")[0] == 200:
                    break
            time.sleep(0.1)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


@contextmanager
def serving(folder: Path) -> Generator[int]:
    """Serve the platform in a process of its own, which trusts a proxy on this machine."""
    folder.mkdir()
    file = folder / "platform.toml"
    file.write_text(PLATFORM.format(folder=folder, secret=SECRET))
    port = free_port()
    command = [sys.executable, "-m", "legation_cli", "serve", str(file), "--port", str(port)]
    with running([*command, "--trusted-proxy", "127.0.0.1"], port, folder / "log"):
        yield port


@contextmanager
def behind_nginx(folder: Path, behind: int, nginx: str) -> Generator[int]:
    """Run nginx in front of the server."""
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, port=port, behind=behind))
    command = [nginx, "-c", str(file), "-g", "daemon off;"]
    with running(command, port, folder / "nginx.out"):
        yield port


def ask(port: int, path: str, token: str = "") -> tuple[int, float]:
    """Return the status of a GET on a connection of its own, and the ms that it took."""
    began = time.perf_counter()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        answer = client.getresponse()
        answer.read()
        return answer.status, (time.perf_counter() - began) * 1_000


def begin_stream(port: int, token: str, stack: ExitStack) -> socket.socket:
    """Ask for a stream of a run that lasts, and do not wait for the answer."""
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
    connection.settimeout(60)
    body = b"message=hi&stream=true"
    head = (
        f"POST /agents/sloth/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
        f"content-type: application/x-www-form-urlencoded\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def status_of(connection: socket.socket) -> str:
    """Return the status that is answered, or that the connection was closed."""
    with suppress(OSError):
        return connection.recv(12)[9:].decode() or "closed"
    return "closed"


def stream(port: int, name: str) -> None:
    """Open the streams of one caller; print what another one notices."""
    with ExitStack() as stack:
        ada, eve = token_of("ada"), token_of("eve")
        opened = [begin_stream(port, ada, stack) for _ in range(STREAMS)]
        statuses = Counter(map(status_of, opened))
        answers = [ask(port, "/agents", eve) for _ in range(OTHERS)]
        others = Counter(status_of(begin_stream(port, eve, stack)) for _ in range(OTHERS))
    refused = OTHERS - [status for status, _ in answers].count(200)
    refused += OTHERS - others["200"]
    slowest = max(took for _, took in answers)
    print(f"{STREAMS:,} streams of one caller, {name}: {dict(statuses)}")
    print(f"  another caller: {refused} of {2 * OTHERS} refused, slowest read {slowest:.0f} ms")


def idle(port: int) -> None:
    """Open connections that say nothing; print how soon a new client is served."""
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        answers = [ask(port, "/health") for _ in range(OTHERS)]
    served = [took for status, took in answers if status == 200]
    print(f"{IDLE:,} idle connections: {len(served)} of {OTHERS} new clients are served")
    print(f"  slowest {max(served):.1f} ms")


def send(port: int, method: str, path: str, body: bytes, found: Counter[int]) -> None:
    """Send a body; a server that refuses it by its length may not read it."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as client:
        headers = {
            "authorization": f"Bearer {token_of('ada')}",
            "content-type": "application/json",
        }
        with suppress(OSError):
            client.request(method, path, body, headers)
        with suppress(OSError, http.client.HTTPException):
            found[client.getresponse().status] += 1


def watch(port: int, done: Event, found: Queue[list[float]]) -> None:
    """Ask for `/health` until it is done, from a process that does nothing else."""
    waits: list[float] = []
    while not done.is_set():
        waits.append(ask(port, "/health")[1])
        time.sleep(0.005)
    found.put(waits)


def bodies(port: int) -> None:
    """Send every shape to every operation; print how long others wait meanwhile."""
    for shape, body in SHAPES.items():
        found: Counter[int] = Counter()
        done = multiprocessing.Event()
        queue: Queue[list[float]] = multiprocessing.Queue()
        watcher = multiprocessing.Process(target=watch, args=(port, done, queue))
        watcher.start()
        for method, path in OPERATIONS:
            arguments = (port, method, path, body, found)
            senders = [threading.Thread(target=send, args=arguments) for _ in range(CLIENTS)]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
        done.set()
        waits = queue.get()
        watcher.join()
        p99 = quantiles(waits, n=100)[-1]
        print(f"{len(body) / 1e6:.0f} MB of JSON, {shape}: {dict(found)}")
        print(f"  /health p99 {p99:.0f} ms of {len(waits)}")


def main() -> None:
    """Take each measurement on a server of its own."""
    nginx = shutil.which("nginx")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(folder / "direct") as port:
            stream(port, "directly")
        if nginx is None:
            print("no nginx: streams behind a proxy were not measured")
        else:
            with (
                serving(folder / "behind") as behind,
                behind_nginx(folder / "behind", behind, nginx) as port,
            ):
                stream(port, "behind nginx")
        with serving(folder / "idle") as port:
            idle(port)
        with serving(folder / "bodies") as port:
            bodies(port)


if __name__ == "__main__":
    main()
