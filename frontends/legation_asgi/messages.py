"""Between ASGI's dictionaries and the values of the core.

What an HTTP server has accepted is looked at again: servers differ in what they let pass, and the
core trusts a `Request`.  The sources are the ASGI HTTP specification 2.5 and RFC 9112.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from attrs import define

from legation.http.authority import origin_form, well_formed_host
from legation.http.messages import Headers, Request
from legation.http.refusals import BadRequest
from legation.http.trust_guard import is_loopback

__all__ = [
    "ClientGone",
    "Message",
    "Receive",
    "ReceivedBody",
    "Scope",
    "Send",
    "SentResponse",
    "below_mount",
    "find_hsts",
    "request_of",
]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

# Two of one of these, and two readers would see two different requests.
_SINGLETONS: Final = (b"host", b"content-length", b"content-type")
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_PORT: Final = re.compile(r":[0-9]{0,5}\Z")
_HSTS: Final[Headers] = ((b"strict-transport-security", b"max-age=31536000"),)
_TWO_READINGS: Final = (
    "The path has two readings: the server passes no raw_path on, and a % or a broken character is"
    " in path"
)


def request_of(scope: Scope, mount: str = "") -> Request | BadRequest:
    """Return the request that `scope` describes, or what is wrong with its head.

    The header list is copied: a server may put trailers into it while the body arrives.  `mount` is
    taken off the path as is `root_path`, unless that ends with it.
    """
    headers: Headers = tuple(
        (bytes(name).lower(), bytes(value)) for name, value in scope["headers"]
    )
    if fault := _head_fault(headers, scope["http_version"]):
        return BadRequest(fault)
    raw_path = _raw_path(scope)
    if raw_path is None:
        return BadRequest(_TWO_READINGS)
    query: bytes = scope.get("query_string", b"")
    target = origin_form(raw_path + b"?" + query if query else raw_path)
    if target is None:
        return BadRequest("The target of the request is malformed")
    path = _below_mounts(target, scope.get("root_path", ""), mount)
    client = scope.get("client")
    peer = (client and client[0]) or ""
    folder = _find_folder(target) if path[:1] == b"/" and path[1:2] in (b"", b"?") else ""
    return Request(scope["method"], path.decode("ascii"), headers, peer, folder)


def _find_folder(target: bytes) -> str:
    """Return where links of the root lead from `target`, which has no slash at its end."""
    name = target.partition(b"?")[0].rpartition(b"/")[2]
    return f"./{name.decode('ascii')}/" if name else ""


def _raw_path(scope: Scope) -> bytes | None:
    """Return the path as it was sent, or None where that cannot be known.

    A server that passes no `raw_path` has decoded it already.  A `%` in `path` may be one, or an
    escape that was not decoded; U+FFFD stands for any broken text.  A slash separates, as it does
    for everything that has routed by `path` before.
    """
    raw_path: bytes | None = scope.get("raw_path")
    if raw_path is not None:
        return raw_path
    path: str = scope["path"]
    if "%" in path or "\ufffd" in path:
        return None
    try:
        return quote(path).encode("ascii")
    except UnicodeEncodeError:
        return None


def _head_fault(headers: Headers, version: str) -> str | None:
    for singleton in _SINGLETONS:
        if len(_values(headers, singleton)) > 1:
            return f"The request has more than one {singleton.decode().title()}"
    hosts = _values(headers, b"host")
    if not hosts and version != "1.0":
        return "The request has no Host"
    if hosts and not well_formed_host(hosts[0]):
        return "The Host of the request is malformed"
    lengths = _values(headers, b"content-length")
    if lengths and not _DIGITS.fullmatch(lengths[0]):
        return "The Content-Length of the request is malformed"
    if lengths and _values(headers, b"transfer-encoding"):
        return "The request has Content-Length and Transfer-Encoding"
    return None


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def below_mount(target: bytes, root_path: str) -> bytes:
    """Return `target` without the prefix under which the application is mounted.

    Servers and frameworks disagree whether the path includes `root_path`: it is taken off where
    the first segments, each decoded, are those of `root_path`, and otherwise was off already.
    """
    mount = root_path.strip("/").encode()
    if not mount:
        return target
    path, mark, query = target.partition(b"?")
    prefix = mount.split(b"/")
    segments = path[1:].split(b"/")
    if [unquote_to_bytes(segment) for segment in segments[: len(prefix)]] != prefix:
        return target
    return b"/" + b"/".join(segments[len(prefix) :]) + mark + query


def _below_mounts(target: bytes, root_path: str, mount: str) -> bytes:
    """Return `target` without `root_path`, and without `mount` where that is not its end."""
    below = below_mount(target, root_path)
    said = f"/{root_path.strip('/')}".endswith(f"/{mount.strip('/')}")
    return below if said and below is not target else below_mount(below, mount)


def find_hsts(scope: Scope, mount: str = "") -> Headers:
    """Return the header by which a browser comes by TLS alone from now on (RFC 6797).

    There is none over plain HTTP (section 7.2); none for this machine, where it would bind whatever
    else is developed at its ports; and none below another application, whose the host is.
    """
    if scope.get("scheme") != "https" or mount or scope.get("root_path"):
        return ()
    host = next((value for name, value in scope["headers"] if name.lower() == b"host"), b"")
    name = _PORT.sub("", bytes(host).decode("latin-1")).strip("[]").lower()
    return () if is_loopback(name) or name.endswith(".localhost") else _HSTS


class ClientGone(Exception):
    """The client left before its request, or the answer to it, was whole."""


@define(eq=False)
class ReceivedBody:
    """The body of one request, as `receive` brings it."""

    receive: Receive
    declared: bytes | None
    """The value of Content-Length, digits."""

    async def read(self, limit: int) -> bytes | None:
        """Return the body, whole; None, and not read on, when it is longer than `limit` bytes.

        Raises:
            ClientGone: It will never be whole.
        """
        if self.declared is not None and int(self.declared) > limit:
            return None
        chunks: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                return None
            more = message.get("more_body", False)
        return b"".join(chunks)


@define(eq=False)
class SentResponse:
    """One response, as `send` takes it.  Each part raises `ClientGone` when nobody takes it.

    Attributes:
        send_message: Takes each part.
        more: The headers of the door, behind those of the answer.
    """

    send_message: Send
    more: Headers = ()

    async def start(self, status: int, headers: Headers) -> None:
        """Send the head."""
        sent = [*headers, *self.more]
        start = {"type": "http.response.start", "status": status, "headers": sent}
        await self._tell(start)

    async def send(self, data: bytes) -> None:
        """Send a part of the body, and that there is more; the host's sink."""
        await self._tell({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last part of the body."""
        await self._tell({"type": "http.response.body", "body": data, "more_body": False})

    async def _tell(self, message: Message) -> None:
        try:
            await self.send_message(message)
        except OSError:  # since ASGI HTTP 2.4
            raise ClientGone from None
