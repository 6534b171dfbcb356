"""nginx and Caddy in front of a real server, with the files of deploy/."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from attrs import frozen

from ..frontends.command_kit import PATIENCE, running
from ..frontends.test_tls import Pair, write_pair
from ..ports import free_port
from .programs import DEPLOY, find_program

MODULE: Final = """
from pathlib import Path
import anyio
from legation import Agent, CustomModel, Database, Platform

async def answer(prompt):
    yield "first "
    while not Path("{folder}/go").exists():
        await anyio.sleep(0.02)
    yield "second"

platform = Platform(
    agents=[Agent(id="a", model=CustomModel("slow", answer))],
    databases=[Database("main", "sqlite:///{folder}/main.db")],
)
"""

NGINX: Final = """
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/legation.conf;
}}
"""

CADDY: Final = """
{{
	admin off
	http_port {plain}
	https_port {port}
	storage file_system {folder}/caddy
	skip_install_trust
}}
"""


@frozen
class Front:
    """A proxy that runs, with the server behind it.

    Attributes:
        port: For TLS.
        plain: For HTTP, which leads to TLS.
    """

    folder: Path
    port: int
    plain: int
    pair: Pair

    def connect(self) -> HTTPSConnection:
        """Return a connection over TLS, from another address than the proxy's."""
        context = ssl.create_default_context(cafile=str(self.pair.certfile))
        return HTTPSConnection(
            "localhost",
            self.port,
            timeout=PATIENCE,
            context=context,
            source_address=("127.0.0.2", 0),
        )

    @contextmanager
    def request(
        self, method: str, target: str, body: str | None = None, **headers: str
    ) -> Generator[HTTPResponse]:
        """Send a request on a connection of its own."""
        with closing(self.connect()) as connection:
            connection.request(method, target, body, headers)
            yield connection.getresponse()


def instead(text: str, **words: str) -> str:
    """Replace each word of `text`, which has it, by another."""
    for word, other in words.items():
        assert word in text
        text = text.replace(word, other)
    return text


def write_nginx(front: Front, server: int) -> list[str]:
    nginx = find_program("nginx", "nginx")
    words = {
        "10.0.0.11:7777": f"127.0.0.1:{server}",
        "10.0.0.12:7777": f"127.0.0.1:{server}",
        "listen 80;": f"listen 127.0.0.1:{front.plain};",
        "listen 443 ": f"listen 127.0.0.1:{front.port} ",
        "agents.example.com": "localhost",
        "/etc/ssl/agents.pem": str(front.pair.certfile),
        "/etc/ssl/agents.key": str(front.pair.keyfile),
    }
    text = (DEPLOY / "nginx/legation.conf").read_text("utf-8")
    (front.folder / "legation.conf").write_text(instead(text, **words))
    user = "" if os.geteuid() else "user root;"
    main = front.folder / "nginx.conf"
    main.write_text(NGINX.format(user=user, folder=front.folder))
    command = [nginx, "-c", str(main), "-p", str(front.folder), "-e", str(front.folder / "error")]
    subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=PATIENCE)
    return command


def write_caddy(front: Front, server: int) -> list[str]:
    caddy = find_program("caddy", "caddy")
    path = DEPLOY / "caddy/Caddyfile"
    subprocess.run([caddy, "validate", "--adapter", "caddyfile", "--config", str(path)],
                   check=True, capture_output=True, timeout=PATIENCE)  # fmt: skip
    words = {
        "agents.example.com {": f"localhost {{\n\ttls {front.pair.certfile} {front.pair.keyfile}",
        "10.0.0.11:7777 10.0.0.12:7777": f"127.0.0.1:{server}",
    }
    text = instead(path.read_text("utf-8"), **words)
    head = CADDY.format(plain=front.plain, port=front.port, folder=front.folder)
    (front.folder / "Caddyfile").write_text(head + text)
    return [caddy, "run", "--adapter", "caddyfile", "--config", str(front.folder / "Caddyfile")]


WRITE: Final = {"nginx": write_nginx, "caddy": write_caddy}


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "slow.py").write_text(MODULE.replace("{folder}", str(folder)))
    made = Front(folder, free_port(), free_port(), write_pair(folder))
    options = ("--port", "0", "--trusted-proxy", "127.0.0.1/32")
    with running("slow:platform", *options, cwd=folder) as server:
        command = WRITE[request.param](made, server.port())
        log = folder / "proxy.log"
        env = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        with log.open("wb") as output:
            proxy = subprocess.Popen(command, stdout=output, stderr=output, env=env, cwd=folder)
        try:
            wait_until_served(made, proxy, log)
            yield made
        finally:
            proxy.terminate()
            proxy.wait(PATIENCE)


def wait_until_served(front: Front, proxy: subprocess.Popen[bytes], log: Path) -> None:
    due = time.monotonic() + PATIENCE
    while True:
        assert proxy.poll() is None, log.read_text()
        try:
            with front.request("GET", "/health") as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        assert time.monotonic() < due, log.read_text()
        time.sleep(0.05)


def test_streamed_run_arrives_piece_by_piece(front: Front) -> None:
    form = urlencode({"message": "hello", "stream": "true"})
    kind = {"content-type": "application/x-www-form-urlencoded"}
    with front.request("POST", "/agents/a/runs", form, **kind) as answer:
        assert answer.status == 200
        begun = read_until(answer, b"first")
        assert b"second" not in begun
        (front.folder / "go").touch()
        assert b"second" in read_until(answer, b"RunCompleted")


def read_until(answer: HTTPResponse, word: bytes) -> bytes:
    """Return what comes up to and with `word`; a buffer in between would never let it through."""
    data = b""
    while word not in data:
        piece = answer.read1(65536)
        assert piece, data
        data += piece
    return data


def test_server_sees_the_address_of_the_client_and_none_that_it_claims(front: Front) -> None:
    with front.request("GET", "/agents", **{"x-forwarded-for": "6.6.6.6"}) as answer:
        assert answer.status == 200
    with front.request("GET", "/audit?limit=50") as answer:
        rows = json.loads(answer.read())["data"]

    assert {row["client"] for row in rows} == {"127.0.0.2"}


def test_body_that_is_too_large_is_refused(front: Front) -> None:
    size = 10 * 1024 * 1024 + 1
    with closing(front.connect()) as connection:
        connection.putrequest("POST", "/agents/a/runs")
        connection.putheader("content-type", "application/x-www-form-urlencoded")
        connection.putheader("content-length", str(size))
        connection.endheaders()
        with suppress(OSError):  # it may have answered already
            connection.send(b"message=" + b"a" * (size - 8))
        assert connection.getresponse().status == 413


def test_browsers_are_told_to_come_by_tls(front: Front) -> None:
    with front.request("GET", "/health") as answer:
        assert answer.headers["strict-transport-security"] == "max-age=31536000"
    plain = HTTPConnection("127.0.0.1", front.plain, timeout=PATIENCE)
    with closing(plain):
        plain.request("GET", "/agents?x=1", headers={"host": "localhost"})
        answer = plain.getresponse()

    assert answer.status in (301, 308)
    assert answer.headers["location"] == "https://localhost/agents?x=1"
