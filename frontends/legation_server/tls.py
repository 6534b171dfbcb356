"""TLS on a connection: the same wire, with OpenSSL between it and the socket.

Nothing of this is imported where no certificate is named, and a plain connection pays nothing.
"""

from __future__ import annotations

import math
import socket
import ssl
from contextlib import suppress
from importlib import import_module
from typing import Final

import trio
from attrs import field
from trio.lowlevel import wait_readable, wait_writable

from legation.observability.request_log import Gauge, Gauges
from legation.values import define

from .context import ServerContext
from .wire import RECEIVE, ClientGone, Phase, Wire

__all__ = ["Certificate", "CertificateError", "TlsWire"]

RECORD: Final = 16 << 10
"""Bytes encrypted at once: one record, so that progress shows in the time for writing."""

QUIET_SECONDS: Final = 60.0
"""Between two lines about the same trouble with handshakes: strangers make them all day."""

EXPIRES: Final = "legation_certificate_expires_timestamp_seconds"
_EXPIRES_HELP: Final = (
    "When the certificate that is served expires, or the first of its chain, since the epoch."
)

_WAITS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class CertificateError(Exception):
    """The certificate or its key cannot be used; the message is one sentence for the operator."""


@define(eq=False)
class Certificate:
    """The certificate chain of the server with its key, read from files, and again on demand.

    With `hsts`, every answer tells browsers to come by TLS alone (RFC 6797).

    Attributes:
        expires: When the first of the chain does, in seconds since the epoch; None where the file
            has no dates that can be read.
    """

    certfile: str
    keyfile: str
    context: ssl.SSLContext
    hsts: bool = False
    expires: float | None = field(init=False)
    _failures: dict[str, _Failures] = field(factory=dict[str, "_Failures"], init=False)

    def __attrs_post_init__(self) -> None:
        self.expires = _find_expiry(self.certfile)

    @classmethod
    def load(cls, certfile: str, keyfile: str) -> Certificate:
        """Read both files.

        Raises:
            CertificateError: A file is missing or is not what it should be.
        """
        return cls(certfile, keyfile, _context(certfile, keyfile))

    def reload(self) -> None:
        """Read both files again, for connections from now on; on failure nothing changes.

        Raises:
            CertificateError: As `load`.
        """
        self.context = _context(self.certfile, self.keyfile)
        self.expires = _find_expiry(self.certfile)

    def gauges(self) -> Gauges:
        """Return when it expires."""
        if self.expires is None:
            return {}
        return {EXPIRES: Gauge("gauge", _EXPIRES_HELP, {(): self.expires}, "min")}

    def wire(self, sock: socket.socket, context: ServerContext) -> TlsWire:
        """Return the wire of a connection that was accepted."""
        return TlsWire(self, sock, context)

    def log_failure(self, error: ssl.SSLError, context: ServerContext) -> None:
        """Log the reason of a failed handshake, unless the same one was logged shortly before.

        The reason is one of OpenSSL's own phrases: it holds nothing that the client sent.
        """
        reason = _words(error, "unknown")
        failures = self._failures.setdefault(reason, _Failures())
        failures.times += 1
        if failures.due <= trio.current_time():
            context.log("info", "tls_failed", {"reason": reason, "times": failures.times})
            self._failures[reason] = _Failures(trio.current_time() + QUIET_SECONDS)


@define
class _Failures:
    """The failures of one kind since the last log line, and the time of the next line."""

    due: float = -math.inf
    times: int = 0


def _words(error: ssl.SSLError, otherwise: str) -> str:
    return (error.reason or otherwise).lower().replace("_", " ")


def _context(certfile: str, keyfile: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # RFC 8996
    # Without renegotiation, reading never has to wait for room to write, nor writing for bytes.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certfile, keyfile, password=_no_password)
    except ssl.SSLError as error:
        reason = _words(error, "they cannot be read")
        raise CertificateError(f"{certfile} and {keyfile} cannot be used: {reason}") from None
    except OSError as error:
        raise CertificateError(f"{_find_unreadable(certfile, keyfile)}: {error.strerror}") from None
    return context


def _find_expiry(certfile: str) -> float | None:
    # It loads what reads certificates: a fifth of the memory of a server that serves no TLS.
    certificates = import_module(".certificates", __package__)
    ends: float | None = certificates.find_expiry(certfile)
    return ends


def _no_password() -> bytes:
    """Answer for the terminal, where nobody may be: a server starts without being asked."""
    return b""


def _find_unreadable(*paths: str) -> str:
    """Return the first path that cannot be opened; OpenSSL does not say which one it was."""
    for path in paths:
        try:
            with open(path, "rb"):  # noqa: PTH123 (a look, before a sentence is written)
                continue
        except OSError:
            return path
    return paths[0]


class TlsWire(Wire):
    """A wire whose bytes are encrypted."""

    __slots__ = ("_certificate", "_tls")

    def __init__(
        self, certificate: Certificate, sock: socket.socket, context: ServerContext
    ) -> None:
        self._certificate = certificate
        self._tls = certificate.context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
        )
        super().__init__(self._tls, context)
        self._put = self._put_record

    async def open(self) -> None:
        """Shake hands, within the time for a head; the head has its own time after that."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await wait_readable(self.fd)
            except ssl.SSLWantWriteError:
                await wait_writable(self.fd)
            except OSError as error:
                # Who just leaves has no trouble, as a balancer that looks whether somebody listens.
                if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
                    self._certificate.log_failure(error, self.context)
                raise ClientGone from error
        self.enter(Phase.HEAD, self.context.settings.header_seconds)

    def take(self) -> bytes | None:
        """Return what is there to be read, or None when it was a false alarm."""
        pieces: list[bytes] = []
        try:
            pieces.append(self._tls.recv(RECEIVE))
            # What OpenSSL holds already does not make the socket readable.
            while self._tls.pending():
                pieces.append(self._tls.recv(RECEIVE))
        except _WAITS:
            return b"".join(pieces) or None
        except OSError as error:
            raise ClientGone from error
        return b"".join(pieces)

    def _put_record(self, data: bytes | memoryview) -> int:
        try:
            return self._tls.send(data[:RECORD])
        except _WAITS:
            raise BlockingIOError from None

    def part(self) -> None:
        """Send the farewell that tells the end of what was said from a cut (RFC 8446 6.1)."""
        with suppress(OSError, ValueError):
            self._tls.unwrap()

    def shut(self, how: int) -> None:
        """Close one side; the sending side with a farewell."""
        if how == socket.SHUT_WR:
            self.part()
        with suppress(OSError):
            # Not `SSLSocket.shutdown`, which would make the rest plain.
            socket.socket.shutdown(self._tls, how)
