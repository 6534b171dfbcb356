"""Servers that Prometheus scrapes, what they are asked, and how their surroundings misbehave."""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlencode

from attrs import define, field, frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from ..callers import Issuer
from ..http_threads import Quiet, ThreadedServer, serve
from ..prometheus import Target
from ..providers.chat_completions import ChatCompletionsServer
from ..providers.deliveries import Delivery, standard, whatsapp
from ..providers.model_server import Item, Refusal, Said
from ..transcripts import ROOT
from .command_kit import Command, running

__all__ = ["FRIEND", "Caller", "Node", "Talker", "messengers", "node", "token"]

_ISSUER: Final = Issuer(ed25519.Ed25519PrivateKey.generate(), kid="one")
FRIEND: Final = "4915100001"
"""The one person whom WhatsApp answers."""

_GREEDY: Final = "greedy"
_PATIENCE: Final = 60.0
_DAY: Final = 86_400


def token(*scopes: str, sub: str = "ada") -> str:
    """Return a token that is valid on every clock of these tests."""
    now = int(time.time())
    return _ISSUER.token(*scopes, sub=sub, iat=now - 100 * _DAY, exp=now + 100 * _DAY)


# --- providers -----------------------------------------------------------------------------------


class Talker(ChatCompletionsServer):
    """A model that does what the last message asks for; or one that is down."""

    down = False

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Item:
        """Return what to answer."""
        item = super().take(path, headers, body)
        if self.down:
            return Refusal(500)
        return item if isinstance(item, Refusal) else _answer(json.loads(body)["messages"])


def _answer(messages: list[Any]) -> Said:
    last = messages[-1]
    if last["role"] == "tool":
        return Said(("It is done.",), tokens=(90, 12))
    match str(last["content"]).split():
        case ["look", *names]:
            return _call("look_up", name=" ".join(names))
        case ["stumble"]:
            return _call("stumble")
        case ["pay", name]:
            return _call("pay", to=name)
        case ["ask", *task]:
            return _call("delegate_task_to_member", member_id="concierge", task=" ".join(task))
        case ["slowly"]:
            return Said(("a ", "b ", "c "), tokens=(10, 3), pause_seconds=0.3)
        case ["dawdle"]:
            return Said(("a ", "b ", "c "), tokens=(10, 3), pause_seconds=3.0)
        case _:
            return Said(("Good ", "morning."), tokens=(30, 4), apart=(0, 10, 0))


def _call(name: str, /, **arguments: str) -> Said:
    return Said(calls=(("call_1", name, json.dumps(arguments)),), tokens=(60, 9))


class _Receiver(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status = cast("_Receivers", self.server).statuses.get(self.path, 200)
        sent = {"messages": [{"id": f"wamid.{time.monotonic_ns()}"}]} if status == 200 else {}
        body = json.dumps(sent).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Receivers(ThreadedServer):
    def __init__(self, statuses: Mapping[str, int]) -> None:
        super().__init__(_Receiver)
        self.statuses = statuses


@contextmanager
def messengers(*, refuse: bool = False) -> Generator[str]:
    """Serve the providers of both channels; yield their address.

    To `refuse` is what Meta does with a token that was revoked, and a receiver that has left.
    """
    statuses = {"/v22.0/111/messages": 401, "/replies": 410} if refuse else {}
    with serve(_Receivers(statuses)) as address:
        yield address


# --- servers -------------------------------------------------------------------------------------


def _write_certificate(folder: Path, days: float) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 that is valid for so many days, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "cert.key"
    paths[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    paths[1].write_bytes(encoded)
    return paths


@define(eq=False)
class Node:
    """A server; its files are in `folder`, its keys in `jwks.json`."""

    command: Command
    target: Target
    folder: Path


@contextmanager
def node(
    folder: Path,
    target: Target,
    *options: str,
    main: str,
    second: str,
    models: str,
    channels: str,
    model: str = "gpt-5-mini",
    clock: float = 0.0,
    certificate_days: float = 90.0,
    prefix: tuple[str, ...] = (),
    **environ: str,
) -> Generator[Node]:
    """Serve `tests.providers.watched` for Prometheus, its files in `folder`.

    Args:
        folder: Is made.
        target: Says which port.
        options: Of `legation serve`.
        main: The URL of one database, `second` that of the other.
        models: The address of the provider of the model with the id `model`.
        channels: The address of the providers of the channels.
        clock: How many seconds its clock is ahead.
        certificate_days: For how long its certificate is valid.
        prefix: A command that starts the server.
        environ: More variables.
    """
    folder.mkdir()
    (folder / "jwks.json").write_text(json.dumps({"keys": [_ISSUER.jwk]}))
    (folder / "revoked.json").write_text("{}")
    env = {
        "WATCHED_MAIN": main,
        "WATCHED_SECOND": second,
        "WATCHED_MODELS": models,
        "WATCHED_MODEL": model,
        "WATCHED_CHANNELS": channels,
        "WATCHED_CLOCK": str(clock),
        "WATCHED_TRUST": str(folder),
        "WATCHED_FRIEND": FRIEND,
        "WATCHED_GREEDY": _GREEDY,
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
        **environ,
    }
    certificate, key = _write_certificate(folder, certificate_days)
    tls = ("--certfile", certificate, "--keyfile", key)
    module = "tests.providers.watched:platform"
    with running(
        module, "--port", str(target.port), *tls, *options, env=env, cwd=ROOT, prefix=prefix
    ) as command:
        command.until_served()
        yield Node(command, target, folder)


# --- callers -------------------------------------------------------------------------------------


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_TRUSTING: Final = _trusting()


@frozen
class Caller:
    """Asks one server, as somebody who may do everything; each round is in other sessions."""

    node: Node
    token: str = field(factory=lambda: token("platform:admin"), repr=False)

    def ask(
        self, method: str, target: str, *, token: str | None = None, **form: str
    ) -> tuple[int, Any]:
        """Send a form; return the status, and the JSON of the answer."""
        headers = {"authorization": f"Bearer {self.token if token is None else token}"}
        if token == "":
            headers = {}
        if form:
            headers["content-type"] = "application/x-www-form-urlencoded"
        with closing(self._connect()) as connection:
            connection.request(method, target, urlencode(form) or None, headers)
            answer = connection.getresponse()
            body = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(body) if is_json else body

    def run(self, message: str, component: str = "agents/concierge", **form: str) -> Any:
        """Run a component in a session of its own; return the run."""
        asked = {"message": message, "stream": "false", **form}
        return self.ask("POST", f"/{component}/runs", **asked)[1]

    def read_metrics(self) -> str:
        """Return the measurements of the server, as Prometheus reads them."""
        found: bytes = self.ask("GET", "/metrics/prometheus")[1]
        return found.decode()

    def ask_often(self, target: str, times: int) -> set[int]:
        """Ask so many times, on one connection; return the statuses of the answers."""
        statuses: set[int] = set()
        headers = {"authorization": f"Bearer {self.token}"}
        with closing(self._connect()) as connection:
            for _ in range(times):
                connection.request("GET", target, headers=headers)
                answer = connection.getresponse()
                answer.read()
                statuses.add(answer.status)
        return statuses

    def deliver(self, delivery: Delivery) -> int:
        """Deliver messages as their provider does; return the status of the answer."""
        with closing(self._connect()) as connection:
            connection.request("POST", delivery.target, delivery.body, dict(delivery.headers))
            return connection.getresponse().status

    def leave(self) -> None:
        """Ask for a stream, and leave when it has begun."""
        headers = {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/x-www-form-urlencoded",
        }
        body = urlencode({"message": "slowly", "stream": "true"})
        with closing(self._connect()) as connection:
            connection.request("POST", "/agents/concierge/runs", body, headers)
            connection.getresponse().read1(10)

    def make_load(self, number: int) -> None:
        """Do everything once that the dashboard shows."""
        self.ask("GET", "/agents")
        self.ask("GET", "/agents", token="")
        for _ in range(3):
            self.ask("GET", "/me", token=token(sub=_GREEDY))
        for message in ("hello", "look Ada up", "stumble", "pay Ada"):
            self.run(message, user_id="ada")
        self.run("ask look Ada up", "teams/desk", user_id="ada")
        self.run("hello", "agents/guestbook", user_id="ada")
        now_us = time.time_ns() // 1000
        self.deliver(whatsapp((FRIEND, f"w{number}", "hello"), now_us=now_us))
        self.deliver(whatsapp(("4915100009", f"s{number}", "hello"), now_us=now_us))
        self.deliver(standard("Ada", f"m{number}", "hello", now_us))
        self.deliver(standard("Bob", f"b{number}", "dawdle", now_us))  # waits for the one before
        with suppress(OSError):
            self.leave()

    def _connect(self) -> HTTPSConnection:
        port = self.node.target.port
        return HTTPSConnection("127.0.0.1", port, timeout=_PATIENCE, context=_TRUSTING)
