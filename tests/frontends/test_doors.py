"""One posture at every door: the server, an ASGI application, a program that embeds a platform.

Each starts with the same findings, written to its log; each refuses what must not be trusted.
"""

from __future__ import annotations

import ast
import json
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from attrs import asdict, define, field, frozen

from legation import Agent, Database, Platform, Principal
from legation.access import posture as posture_module
from legation.access.posture import Door
from legation_asgi import asgi
from legation_host.hosting import open_platform
from legation_host.loading import from_file

from ..asgi_driver import AsgiDriver
from .command_kit import running
from .test_tls import write_pair

ENVIRON: Final = {"CRM_SECRET": "AAAA" * 10, "VERIFY": "x", "APP": "y", "ACCESS": "EAABsbCS1iHgBA"}
OPEN: Final = """
[databases.main]
url = "sqlite://"

[[agents]]
id = "desk"
"""
CARELESS: Final = """
[platform]
authorization = true
cors_allowed_origins = ["http://app.example"]
allowed_hosts = ["*"]

[authorization_config]
algorithm = "HS256"
verification_keys = ["changemechangemechangemechangeme"]
excluded_routes = ["/health", "/agents"]

[limits]
requests_per_second = 0

[databases.main]
url = "sqlite://"

[models.far]
provider = "openai"
id = "m"
base_url = "http://models.example/v1"

[[agents]]
id = "desk"
model = "far"

[notify]
url = "http://ops.example/in"
secret_env = "CRM_SECRET"

[channels.crm]
kind = "standard"
agent = "desk"
secret_env = "CRM_SECRET"
reply_url = "http://crm.example/in"

[channels.ask]
kind = "whatsapp"
agent = "desk"
phone_number_id = "1"
app_secret_env = "APP"
verify_token_env = "VERIFY"
access_token_env = "ACCESS"
api_base_url = "http://graph.example"
"""
FOUND: Final = {
    "authorization_config.verification_keys[0]": "high",
    "authorization_config.excluded_routes[1]": "high",
    "channels.crm.secret_env": "high",
    "channels.ask.app_secret_env": "high",
    "channels.ask.verify_token_env": "high",
    "notify.secret_env": "high",
    "platform.cors_allowed_origins[0]": "medium",
    "platform.allowed_hosts[0]": "medium",
    "notify.url": "medium",
    "models.far.base_url": "medium",
    "channels.crm.reply_url": "medium",
    "channels.ask.api_base_url": "medium",
    "limits.requests_per_second": "medium",
    "authorization_config.require": "low",
    "authorization_config.verify_audience": "low",
    "audit.keys": "low",
    "platform.cors_default_origin": "low",
}
"""The findings on what a careless operator lets pass, by their paths."""

LAX: Final = """
[platform]
authorization = true
cors_default_origin = false
cors_allowed_origins = ["*", "https://app.example/"]

[authorization_config]
algorithm = "HS256"
verification_keys = ["s9Xw3vQ7kLzB1nH5rT8yC2mF6jD4gP0a"]
verify_audience = true
require = ["exp"]

[limits]
request_burst = 10
runs = 300
model_calls = 300
streams = 5000
followers = 5000
stored_bytes = 1000
state_bytes = 2000

[limits.anonymous]
runs = 301
model_calls = 301
streams = 5001
followers = 5001
waiting = 2000
requests_per_second = 2000
stored_bytes = 1001

[databases.main]
url = "sqlite://"

[[agents]]
id = "desk"
"""
UNLIMITED: Final = dict.fromkeys(
    (
        "platform.cors_allowed_origins[0]",
        "platform.cors_allowed_origins[1]",
        "limits.request_burst",
        "limits.state_bytes",
        *(f"limits.{name}" for name in ("runs", "model_calls", "streams", "followers")),
        *(f"limits.anonymous.{name}" for name in ("runs", "model_calls", "streams", "followers")),
        "limits.anonymous.waiting",
        "limits.anonymous.requests_per_second",
        "limits.anonymous.stored_bytes",
    ),
    "medium",
)
"""The findings on limits that limit nothing, and on origins that are none."""

Findings = dict[str, str]


@define(eq=False)
class Log:
    """Takes the lines of a host, and finds those about settings."""

    lines: list[tuple[str, Mapping[str, Any]]] = field(factory=list[tuple[str, Mapping[str, Any]]])

    def __call__(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        if event == "setting_unsafe":
            self.lines.append((level, fields))

    @property
    def findings(self) -> Findings:
        for level, one in self.lines:
            assert level == ("info" if one["severity"] == "low" else "warning")
        return {one["path"]: one["severity"] for _, one in self.lines}


async def enter_asgi(platform: Platform, **options: Any) -> Findings:
    log = Log()
    async with AsgiDriver(asgi(platform, log=log, **options)).alive():
        return log.findings


async def enter_embedding(platform: Platform) -> Findings:
    log = Log()
    async with open_platform(platform, log=log):
        return log.findings


def enter_server(path: Path, *options: str, **environ: str) -> Findings:
    with running(path, "--port", "0", *options, env=environ) as command:
        command.until_served()
        command.until(lambda: command.named("server_started"))
        lines = command.named("setting_unsafe")
    return {line["path"]: line["severity"] for line in lines}


def write(folder: Path, text: str) -> Path:
    path = folder / "platform.toml"
    path.write_text(text)
    return path


def enter_by_asgi(path: Path, environ: Mapping[str, str]) -> Findings:
    async def enter() -> Findings:
        return await enter_asgi(from_file(path, environ), insecure=True)

    return trio.run(enter)


def enter_by_embedding(path: Path, environ: Mapping[str, str]) -> Findings:
    return trio.run(enter_embedding, from_file(path, environ))


def enter_by_server(path: Path, environ: Mapping[str, str]) -> Findings:
    return enter_server(path, "--host", "0.0.0.0", "--insecure", **environ)


@frozen
class Case:
    """A configuration with its environment, and the findings at every door."""

    text: str
    environ: Mapping[str, str]
    findings: Findings


CASES: Final = {
    "careless": Case(CARELESS, ENVIRON, FOUND),
    "lax": Case(LAX, {}, {**UNLIMITED, "audit.keys": "low"}),
    "open": Case(OPEN, {}, {"platform.authorization": "high"}),
}
DOORS: Final = {
    "server": enter_by_server,
    "asgi": enter_by_asgi,
    "embedding": enter_by_embedding,
}
OF_SERVER: Final = {"server.tls", "server.hsts"}
"""The findings that only a door with an address can have."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("door", DOORS)
def test_every_door_tells_every_finding(tmp_path: Path, door: str, case: str) -> None:
    wanted = CASES[case]
    own = {"server.tls": "medium"} if door == "server" else {}

    found = DOORS[door](write(tmp_path, wanted.text), wanted.environ)

    assert found == {**wanted.findings, **own}


def test_the_cases_have_every_finding_that_there_is() -> None:
    patterns = find_patterns(Path(posture_module.__file__))
    paths = {*FOUND, *UNLIMITED, "platform.authorization", *OF_SERVER}

    assert len(patterns) >= 16
    for pattern in patterns:
        assert any(re.fullmatch(pattern, path) for path in paths), pattern


def find_patterns(source: Path) -> set[str]:
    """Return a pattern for the path of each `find(…)` in `source`, made or named just before."""
    found: set[str] = set()
    for function in ast.walk(ast.parse(source.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = {
            target.id: node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "find":
                path = call.args[1]
                path = names[path.id] if isinstance(path, ast.Name) else path
                if not isinstance(path, ast.Attribute):  # `weak.path`: of a secret
                    found.add(_pattern(path))
    return found


def _pattern(path: ast.expr) -> str:
    if isinstance(path, ast.JoinedStr):
        return "".join(map(_pattern, path.values))
    return re.escape(str(path.value)) if isinstance(path, ast.Constant) else ".+"


def test_authorization_that_is_off_is_fine_on_this_machine_alone(tmp_path: Path) -> None:
    path = write(tmp_path, OPEN)

    assert trio.run(enter_asgi, from_file(path, {})) == {}
    assert enter_server(path) == {}


def test_a_server_with_tls_or_a_proxy_is_not_told_of_plain_http(tmp_path: Path) -> None:
    path, pair = write(tmp_path, OPEN), write_pair(tmp_path)
    beyond = ("--host", "0.0.0.0", "--insecure")
    tls = ("--certfile", str(pair.certfile), "--keyfile", str(pair.keyfile))

    assert "server.tls" not in enter_server(path, *beyond, *tls)
    assert "server.tls" not in enter_server(path, *beyond, "--trusted-proxy", "10.0.0.1/32")
    assert enter_server(path, *beyond, *tls, "--no-hsts")["server.hsts"] == "low"


def test_the_posture_over_http_is_that_of_the_door() -> None:
    platform = careful()
    platform.door = Door("network")
    paths = [found.path for found in platform.find_unsafe()]

    assert paths == ["platform.authorization", "server.tls"]


# --- what is refused -----------------------------------------------------------------------------


def careful() -> Platform:
    return Platform(agents=[Agent("desk")], databases=[Database("main", "sqlite://")])


@define(eq=False)
class Sender:
    """Sends requests to an application, from anywhere and by any name."""

    app: Any

    async def get(self, client: Any, host: str = "localhost", path: str = "/sessions") -> int:
        """Return the status of the answer to a GET."""
        status: int = (await self._ask(path, host.encode(), client=client))["status"]
        return status

    async def get_headers(self, host: bytes, path: str, **scope: Any) -> list[tuple[bytes, bytes]]:
        """Return the headers of the answer to a GET."""
        headers: list[tuple[bytes, bytes]] = (await self._ask(path, host, **scope))["headers"]
        return headers

    async def _ask(self, path: str, host: bytes, **more: Any) -> Mapping[str, Any]:
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", host)],
            **more,
        }
        sent: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        return sent[0]


NEAR: Final = [None, ("127.0.0.1", 1), ("::1", 1), ["127.0.0.1", 1], ("testclient", 50000)]
FAR: Final = [("192.0.2.1", 1), ("::ffff:192.0.2.1", 1), ("2001:db8::1", 1), ("unknown", 1)]


async def test_asgi_refuses_other_machines_where_authorization_is_off() -> None:
    app = asgi(careful(), log=Log())
    sender = Sender(app)
    async with app.open():
        near = [await sender.get(client) for client in NEAR]
        far = [await sender.get(client) for client in FAR]
        probes = [await sender.get(FAR[0], path=path) for path in ("/health", "/ready", "/info")]

    assert (set(near), set(far), set(probes)) == ({200}, {403}, {200})


async def test_asgi_answers_everybody_where_that_was_said() -> None:
    app = asgi(careful(), log=Log(), insecure=True)
    async with app.open():
        statuses = [await Sender(app).get(client) for client in (*NEAR, *FAR)]

    assert {*statuses} == {200}


async def test_asgi_answers_everybody_whom_the_outer_application_names() -> None:
    app = asgi(careful(), log=Log(), caller=lambda _: Principal("ann", ["sessions:read"]))
    async with app.open():
        statuses = [await Sender(app).get(client, "evil.example") for client in FAR]

    assert {*statuses} == {200}


async def test_asgi_leaves_senders_to_the_token_where_authorization_is_on(tmp_path: Path) -> None:
    config = CARELESS.replace('allowed_hosts = ["*"]', "")
    app = asgi(from_file(write(tmp_path, config), ENVIRON), log=Log())
    async with app.open():
        statuses = [await Sender(app).get(client, "app.example") for client in FAR]

    assert {*statuses} == {401}


@pytest.mark.parametrize("path", ["/sessions", "/agents", "/config"])
async def test_a_name_that_leads_here_by_dns_rebinding_is_refused(path: str) -> None:
    app = asgi(careful(), log=Log())
    async with app.open():
        evil = await Sender(app).get(NEAR[1], "evil.example:8000", path)
        ours = await Sender(app).get(NEAR[1], "127.0.0.1:8000", path)

    assert (evil, ours) == (403, 200)


def test_a_name_that_leads_to_the_server_by_dns_rebinding_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, OPEN)
    with (
        running(path, "--port", "0") as command,
        closing(socket.create_connection(("127.0.0.1", command.port()), 10)) as client,
    ):
        evil = ask(client, "evil.example")
        ours = ask(client, "localhost:1")

    assert evil[0].startswith("HTTP/1.1 403 ")
    assert json.loads(evil[-1])["detail"] == "This host is not among allowed_hosts"
    assert ours[0].startswith("HTTP/1.1 200 ")


def test_a_server_with_tls_beyond_this_machine_is_asked_by_tls_alone(tmp_path: Path) -> None:
    path, pair = write(tmp_path, OPEN), write_pair(tmp_path)
    tls = ("--certfile", str(pair.certfile), "--keyfile", str(pair.keyfile), "--insecure")
    header = "strict-transport-security: max-age=31536000"
    for options, told in (
        (("--host", "0.0.0.0"), True),
        (("--host", "0.0.0.0", "--no-hsts"), False),
        ((), False),
    ):
        with running(path, "--port", "0", *tls, *options) as command:
            trusted = ssl.create_default_context(cafile=str(pair.certfile))
            plain = socket.create_connection(("127.0.0.1", command.port()), 10)
            with closing(trusted.wrap_socket(plain, server_hostname="localhost")) as client:
                assert (header in ask(client, "localhost")) is told
                assert (header in ask(client, "evil.example")) is told


@pytest.mark.parametrize(
    ("scope", "has_header"),
    [
        ({"scheme": "https"}, True),
        ({"scheme": "https", "host": b"app.example:8443"}, True),
        ({"scheme": "https", "host": b"localhost.example"}, True),
        ({"scheme": "http"}, False),
        ({}, False),
        ({"scheme": "https", "host": b"localhost:8443"}, False),
        ({"scheme": "https", "host": b"app.localhost"}, False),
        ({"scheme": "https", "host": b"127.0.0.1:8443"}, False),
        ({"scheme": "https", "host": b"[::1]:8443"}, False),
        ({"scheme": "https", "root_path": "/agents"}, False),
    ],
    ids=str,
)
async def test_an_asgi_application_that_is_reached_by_tls_is_asked_by_tls_alone(
    scope: dict[str, Any], *, has_header: bool
) -> None:
    host = scope.pop("host", b"app.example")
    header = (b"strict-transport-security", b"max-age=31536000")
    for path, hsts in (("/health", True), ("/nowhere", True), ("/health", False)):
        app = asgi(careful(), log=Log(), hsts=hsts)
        async with app.open():
            headers = await Sender(app).get_headers(host, path, **scope)
        assert (header in headers) is (has_header and hsts)


async def test_a_mounted_application_leaves_hsts_to_the_outer_one() -> None:
    app = asgi(careful(), log=Log(), mount="/agents")
    async with app.open():
        headers = await Sender(app).get_headers(b"app.example", "/agents/health", scheme="https")

    assert b"strict-transport-security" not in dict(headers)


def ask(client: socket.socket, host: str) -> list[str]:
    """Return the lines of the answer to a GET by a name; the last is the body."""
    client.sendall(f"GET /sessions HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    length = next(int(line[16:]) for line in lines if line.startswith("content-length: "))
    while len(body) < length:
        body += client.recv(65536)
    return [*lines, body.decode()]


def test_a_finding_has_the_members_of_its_line() -> None:
    assert {*asdict(careful().find_unsafe()[0])} == {"path", "message", "severity", "code"}
