"""A platform as a WSGI application, on the synchronous host of `threads`.

    python wsgi.py

WSGI has no end for a body that is not whole, and joins the headers of one name; `wsgiref` reads no
body in chunks.  A server has to pass on the target as it came: as `RAW_URI`, or as `REQUEST_URI`.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from threads import Host

from legation import Agent, Database, Platform, Request, Response, Streamed
from legation.http.authority import origin_form
from legation.http.cors import respond_instead
from legation.http.refusals import BadRequest, internal_error
from legation.incidents import where
from legation.observability.request_log import read_request_id
from legation.platform import Responder
from legation_host import read_assets

__all__ = ["Application", "open_application", "open_server"]


class Incomplete(Exception):
    """The end of a body that is not whole: its server is to break the connection off."""


class Application:
    """`platform` as a WSGI application (PEP 3333)."""

    def __init__(self, platform: Responder, host: Host) -> None:
        self.platform, self.host = platform, host

    def __call__(self, environ: Mapping[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request."""
        request = read_request(environ)
        if request is None:
            bad = respond_instead(BadRequest("The target of the request is malformed"), new_id())
            return [send(bad, start_response)]
        try:
            body = partial(read_body, environ)
            answer = self.host.run(self.platform.answer(request), body=body)
        except Exception as error:  # noqa: BLE001 (the boundary of the request)
            incident = self.log(request, error)
            request_id = read_request_id(request) or incident
            answer = respond_instead(internal_error(incident), request_id)
        if not isinstance(answer, Streamed):
            return [send(answer, start_response)]
        if request.method == "HEAD":
            answer.body.close()
            return [send(Response(answer.status, answer.headers), start_response)]
        if self.host.run(answer.body, emit=start(answer, start_response)) is not None:
            raise Incomplete
        return []

    def log(self, request: Request, error: Exception) -> str:
        """Write `error` to the log; return the incident that it stands under."""
        path, incident = request.target.partition("?")[0], new_id()
        fields = {"incident": incident, "method": request.method, "path": path}
        self.host.log("error", "request_failed", {**fields, "error": where(error)})
        return incident


def new_id() -> str:
    """Return an id that nobody else has."""
    return secrets.token_hex(8)


def read_request(environ: Mapping[str, Any]) -> Request | None:
    """Return the request; None where its target is malformed, or is not passed on as it came."""
    target = origin_form(environ.get("RAW_URI", environ.get("REQUEST_URI", "")).encode("latin-1"))
    if target is None:
        return None
    named = {
        f"HTTP_{name}": environ[name]
        for name in ("CONTENT_TYPE", "CONTENT_LENGTH")
        if environ.get(name)
    }
    headers = tuple(
        (name[5:].replace("_", "-").lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in {**environ, **named}.items()
        if name.startswith("HTTP_")
    )
    client = environ.get("REMOTE_ADDR", "")
    return Request(environ["REQUEST_METHOD"], target.decode("ascii"), headers, client)


def read_body(environ: Mapping[str, Any], limit: int) -> bytes | None:
    """Return the body, None when it is longer than `limit` bytes."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > limit:
        return None
    data: bytes = environ["wsgi.input"].read(length)
    if len(data) < length:
        raise ConnectionError("the client left before its request was whole")
    return data


def start(answer: Response | Streamed, start_response: Any) -> Callable[[bytes], object]:
    """Send the head; return what sends a part of the body."""
    status = f"{answer.status} {HTTPStatus(answer.status).phrase}"
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in answer.headers]
    write: Callable[[bytes], object] = start_response(status, headers)
    return write


def send(answer: Response, start_response: Any) -> bytes:
    """Send the head; return the body."""
    start(answer, start_response)
    return answer.body


def log_line(level: str, event: str, fields: Mapping[str, Any]) -> None:
    """Write one line of the log to standard error."""
    print(level, event, json.dumps(fields), file=sys.stderr)


@contextmanager
def open_application(platform: Platform) -> Generator[Application]:
    """Open a host for `platform`, with its jobs; in the end, give back what is under work."""
    platform.load_assets(read_assets())
    host = Host(platform.databases, log=log_line, write_audit=platform.write_audit)
    try:
        host.run(platform.startup())
        for job in platform.jobs():
            host.spawn(job)
        try:
            yield Application(platform, host)
        finally:
            host.run(platform.shutdown(5.0))
    finally:
        host.close()


class Server(ThreadingMixIn, WSGIServer):
    """The server of the standard library, with a thread for each connection."""

    daemon_threads = True


class Handler(WSGIRequestHandler):
    """Passes the target on as it came, and no type of a body that the client has not named."""

    def get_environ(self) -> Any:
        """Return the environment of a request."""
        kind = self.headers.get("content-type", "")
        return {**super().get_environ(), "RAW_URI": self.path, "CONTENT_TYPE": kind}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the base)
        """Write nothing: the platform has its own log."""


def open_server(application: Application, port: int) -> WSGIServer:
    """Return a server that listens on this machine."""
    return make_server("127.0.0.1", port, application, Server, Handler)


if __name__ == "__main__":
    databases = [Database("main", "sqlite:///legation.db")]
    with open_application(Platform(agents=[Agent(id="concierge")], databases=databases)) as served:
        open_server(served, 8000).serve_forever()
