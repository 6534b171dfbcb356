"""TLS: what is spoken, what is refused, and that an answer is the same as without it."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Generator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from .command_kit import Command, ask, read_reply, running, write_platform


@frozen
class Pair:
    """A certificate for localhost with its key, as files."""

    certfile: Path
    keyfile: Path
    serial: int


def write_pair(
    folder: Path, *, name: str = "cert", password: bytes | None = None, hours: int = 1
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=hours))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key", certificate.serial_number)
    pair.certfile.write_bytes(certificate.public_bytes(Encoding.PEM))
    pair.keyfile.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return pair


@frozen
class Served:
    command: Command
    pair: Pair
    port: int
    folder: Path

    def connect(
        self,
        context: ssl.SSLContext | None = None,
        *,
        trusted: Path | None = None,
        strict: bool = False,
    ) -> ssl.SSLSocket:
        """Connect; when `strict`, an end that was not announced is an error."""
        if context is None:
            context = ssl.create_default_context(cafile=str(trusted or self.pair.certfile))
            context.set_alpn_protocols(["h2", "http/1.1"])
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        return context.wrap_socket(
            plain, server_hostname="localhost", suppress_ragged_eofs=not strict
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("tls")
    pair = write_pair(folder)
    arguments = (write_platform(folder), "--port", "0", "--limit", "header_seconds=1")
    tls = ("--certfile", pair.certfile, "--keyfile", pair.keyfile)
    with running(*arguments, *tls) as command:
        yield Served(command, pair, command.port(), folder)


def test_the_banner_names_https(served: Served) -> None:
    assert served.command.until_served() == f"https://127.0.0.1:{served.port}"


def test_requests_on_one_connection_are_answered_in_turn(served: Served) -> None:
    with closing(served.connect()) as client:
        assert client.version() == "TLSv1.3"
        assert client.selected_alpn_protocol() == "http/1.1"
        for _ in range(3):
            assert ask(client)[0] == 200
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        data = b""
        while data.count(b"HTTP/1.1 200") < 3:
            data += client.recv(65536)


def test_tls_1_2_is_spoken_and_1_1_is_not(served: Served) -> None:
    context = ssl.create_default_context(cafile=str(served.pair.certfile))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with closing(served.connect(context)) as client:
        assert client.version() == "TLSv1.2"
        assert ask(client)[0] == 200

    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError, match=r"(?i)alert|protocol|reset|EOF"):
        served.connect(old)


def test_a_body_of_many_records_is_read_and_a_long_answer_is_written(served: Served) -> None:
    message = "x" * 300_000
    body = f"message={message}&stream=false".encode()
    head = (
        "POST /agents/concierge/runs HTTP/1.1\r\nHost: a\r\n"
        "content-type: application/x-www-form-urlencoded\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    with closing(served.connect()) as client:
        client.sendall(head + body)
        status, _, answer = read_reply(client)

    assert status == 200, answer
    assert len(answer) > 300_000


def test_the_end_of_the_last_answer_is_announced(served: Served) -> None:
    """Without a close_notify an attacker could cut an answer that has no length."""
    with closing(served.connect(strict=True)) as client:
        client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        data = b""
        while piece := client.recv(65536):
            data += piece

    assert data.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\0" * 100, b""])
def test_what_is_not_tls_is_closed_and_not_answered_in_plain(served: Served, noise: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        data = b""
        try:
            client.sendall(noise)
            client.shutdown(socket.SHUT_WR)
            while piece := client.recv(65536):
                data += piece
        except OSError:
            pass  # closed with bytes unread, so reset

    assert b"HTTP/" not in data
    with closing(served.connect()) as client:
        assert ask(client)[0] == 200


def test_a_client_that_never_shakes_hands_is_dropped(served: Served) -> None:
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
        client.sendall(b"\x16\x03\x01")
        assert client.recv(10) == b""

    assert 0.5 < time.monotonic() - began < 5


def test_a_connection_reset_before_the_handshake_stops_nothing(served: Served) -> None:
    for _ in range(20):
        client = socket.create_connection(("127.0.0.1", served.port), timeout=10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
    with closing(served.connect()) as alive:
        assert ask(alive)[0] == 200


def test_why_a_handshake_failed_is_told_once_a_minute(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    tls = ("--certfile", pair.certfile, "--keyfile", pair.keyfile)
    with running(write_platform(tmp_path), "--port", "0", *tls) as command:
        served = Served(command, pair, command.port(), tmp_path)
        for _ in range(3):
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
                served.connect(ssl.create_default_context())
            with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: secret\r\n\r\n")
                with suppress(OSError):
                    client.recv(1)
            socket.create_connection(("127.0.0.1", served.port), timeout=10).close()
        with closing(served.connect()) as client:
            assert ask(client)[0] == 200
        command.until(lambda: len(command.named("request")) == 1)
        told = {line["reason"]: line["times"] for line in command.named("tls_failed")}

    assert told == {"tlsv1 alert unknown ca": 1, "http request": 1}
    assert len(command.named("tls_failed")) == 2
    assert "secret" not in "".join(command.lines)


def test_nothing_of_this_was_logged_as_a_failure(served: Served) -> None:
    assert not [line for line in served.command.events if line["level"] == "error"]


@pytest.mark.parametrize("count", ["1", "2"], ids=["alone", "two workers"])
def test_a_new_certificate_is_served_after_sighup(tmp_path: Path, count: str) -> None:
    pair = write_pair(tmp_path)
    arguments = (write_platform(tmp_path), "--port", "0", "--workers", count)
    grace = ("--limit", "grace_seconds=2")  # on a busy machine the next request comes late
    tls = ("--certfile", pair.certfile, "--keyfile", pair.keyfile)
    with running(*arguments, *grace, *tls) as command:
        served = Served(command, pair, command.port(), tmp_path)
        old = command.workers
        with closing(served.connect()) as before:
            assert ask(before)[0] == 200
            renewed = write_pair(tmp_path)
            command.signal(signal.SIGHUP)
            command.until(lambda: command.named("certificate_reloaded"))
            if count == "2":
                command.until(lambda: len(command.named("worker_serves")) == 4)
            assert ask(before)[0] == 200  # an old connection goes on
        if count == "2":  # a process alone takes it itself, beside its watcher
            command.until(lambda: old.isdisjoint(command.workers))
        with closing(served.connect(trusted=renewed.certfile)) as after:
            der = after.getpeercert(binary_form=True)
            assert der is not None
            assert x509.load_der_x509_certificate(der).serial_number == renewed.serial


def test_the_end_of_the_certificate_is_measured_and_is_another_after_sighup(
    tmp_path: Path,
) -> None:
    name = b"legation_certificate_expires_timestamp_seconds"
    pair = write_pair(tmp_path)
    tls = ("--certfile", pair.certfile, "--keyfile", pair.keyfile)
    with running(write_platform(tmp_path), "--port", "0", *tls) as command:
        served = Served(command, pair, command.port(), tmp_path)

        def read_end() -> float:
            with closing(served.connect(trusted=pair.certfile)) as client:
                _, body = ask(client, "/metrics/prometheus")
            lines = [line for line in body.splitlines() if line.startswith(name)]
            return float(lines[0].split()[-1]) if lines else 0.0

        command.until(read_end)
        before = read_end()
        write_pair(tmp_path, hours=3)
        command.signal(signal.SIGHUP)
        command.until(lambda: command.named("certificate_reloaded"))
        command.until(lambda: read_end() > before)

        assert 2 * 3600 - 60 < read_end() - before < 2 * 3600 + 600


def test_a_broken_certificate_leaves_the_old_one(tmp_path: Path) -> None:
    pair = write_pair(tmp_path)
    good = pair.certfile.read_bytes()
    tls = ("--certfile", pair.certfile, "--keyfile", pair.keyfile)
    with running(write_platform(tmp_path), "--port", "0", *tls) as command:
        served = Served(command, pair, command.port(), tmp_path)
        pair.certfile.write_text("nothing")
        command.signal(signal.SIGHUP)
        command.until(lambda: command.named("reload_failed"))
        (tmp_path / "good.pem").write_bytes(good)
        with closing(served.connect(trusted=tmp_path / "good.pem")) as client:
            assert ask(client)[0] == 200


def sentence(folder: Path, *tls: str | Path) -> str:
    """Return why the command refuses to serve, having ended with 2."""
    with running(write_platform(folder), "--port", "0", *tls) as command:
        assert command.ended() == 2
    (line,) = command.lines
    return line.replace(str(folder), "").replace("/", "")


def test_what_is_wrong_with_a_certificate_is_one_sentence(tmp_path: Path) -> None:
    pair, other = write_pair(tmp_path), write_pair(tmp_path, name="other")
    locked = write_pair(tmp_path, name="locked", password=b"secret")
    empty = tmp_path / "empty"
    empty.touch()

    def said(*tls: str | Path) -> str:
        return sentence(tmp_path, *tls)

    assert said("--certfile", tmp_path / "none") == "Error: none: No such file or directory"
    assert said("--certfile", pair.certfile, "--keyfile", tmp_path / "none") == (
        "Error: none: No such file or directory"
    )
    assert said("--certfile", pair.certfile, "--keyfile", other.keyfile) == (
        "Error: cert.pem and other.key cannot be used: key values mismatch"
    )
    assert said("--certfile", locked.certfile, "--keyfile", locked.keyfile).startswith(
        "Error: locked.pem and locked.key cannot be used: "
    )
    assert said("--certfile", empty).startswith("Error: empty and empty cannot be used: ")
    assert said("--keyfile", pair.keyfile) == (
        "Error: --keyfile is the key of a certificate: name that with --certfile"
    )
