"""A whole platform as an ASGI application: under granian, and in a FastAPI application."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from legation import Agent, Database, Platform
from legation_asgi import Application, asgi

from ..ports import free_port

SECONDS = 60

MODULE = """
from legation import Agent, Database, Platform
from legation_asgi import asgi

app = asgi(
    Platform(
        id="demo",
        databases=[Database("main", "sqlite:///{folder}/legation.db")],
        agents=[Agent(id="concierge")],
    )
)
"""


def request(
    port: int, method: str, target: str, form: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    headers = {} if form is None else {"content-type": "application/x-www-form-urlencoded"}
    try:
        connection.request(method, target, form, headers)
        response = connection.getresponse()
        fields = {name.lower(): value for name, value in response.getheaders()}
        return response.status, fields, response.read()
    finally:
        connection.close()


def check_platform(port: int, root: str = "") -> None:
    """Check what every server has to pass on: heads, bodies, refusals and streams."""
    assert request(port, "GET", f"{root}/health")[0] == 200
    status, headers, body = request(port, "GET", f"{root}/agents")
    assert (status, b'"concierge"' in body) == (200, True)
    assert "x-request-id" in headers
    assert request(port, "GET", f"{root}/sessions/a%2Fb")[0] == 404
    assert request(port, "GET", f"{root}/nowhere")[0] == 404

    runs = f"{root}/agents/concierge/runs"
    status, _, body = request(port, "POST", runs, "message=hello&stream=false&session_id=s")
    assert (status, b"hello" in body) == (200, True)
    status, headers, body = request(port, "POST", runs, "message=hello&session_id=s")
    assert headers["content-type"].startswith("text/event-stream")
    assert b"event: RunStarted" in body
    assert b"event: RunCompleted" in body
    assert request(port, "GET", f"{root}/sessions/s")[0] == 200


@contextmanager
def granian(folder: Path) -> Generator[int]:
    """Run granian in a process of its own; return its port."""
    (folder / "granian_app.py").write_text(MODULE.format(folder=folder))
    port = free_port()
    options = ("--interface", "asgi", "--no-ws", "--no-log", "--port", str(port))
    process = subprocess.Popen(
        [sys.executable, "-m", "granian", *options, "granian_app:app"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        due = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "granian has ended"
                assert time.monotonic() < due, "granian does not listen"
                time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_granian_serves_a_platform(tmp_path: Path) -> None:
    with granian(tmp_path) as port:
        check_platform(port)


@contextmanager
def uvicorn_in_a_thread(app: Any) -> Generator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(
            uvicorn.Config(app, ws="none", lifespan="on", log_config=None, loop="uvloop")
        )
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(SECONDS)
            assert not thread.is_alive()


def platform(folder: Path) -> Platform:
    return Platform(
        id="demo",
        databases=[Database("main", f"sqlite:///{folder / 'legation.db'}")],
        agents=[Agent(id="concierge")],
    )


def quiet(_: str, __: str, ___: Any) -> None:
    pass


def outer_application(inner: Application, mount: str) -> FastAPI:
    """Return a FastAPI application with a route of its own, and `inner` at `mount`.

    A mounted application gets no lifespan of its own: the outer one holds the host open.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        async with inner.open():
            yield

    async def own() -> dict[str, str]:
        return {"from": "fastapi"}

    outer = FastAPI(lifespan=lifespan, docs_url=None, openapi_url=None)
    outer.add_api_route("/own", own)
    outer.mount(mount, inner)
    return outer


def test_a_platform_stands_in_a_fastapi_application_beside_its_routes(tmp_path: Path) -> None:
    outer = outer_application(asgi(platform(tmp_path), log=quiet), "/legation")

    with uvicorn_in_a_thread(outer) as port:
        check_platform(port, "/legation")
        assert request(port, "GET", "/own")[2] == b'{"from":"fastapi"}'
        assert request(port, "GET", "/agents")[2] == b'{"detail":"Not Found"}'
        status, _, body = request(port, "GET", "/legation/own")
        assert (status, b"error_code" in body) == (404, True)


def test_a_platform_at_the_root_leaves_the_routes_before_it(tmp_path: Path) -> None:
    outer = outer_application(asgi(platform(tmp_path), log=quiet), "")

    with uvicorn_in_a_thread(outer) as port:
        assert request(port, "GET", "/own")[2] == b'{"from":"fastapi"}'
        check_platform(port)
