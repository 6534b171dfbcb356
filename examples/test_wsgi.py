"""The WSGI example under test: an application is a function, and needs no server."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import wsgi

from legation import Agent, Database, Platform


def ask(application: wsgi.Application, method: str, target: str, form: bytes = b"") -> Any:
    """Return the status and the body of one answer."""
    sent: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]]) -> Any:
        sent.append(status)
        return sent.append

    environ = {
        "REQUEST_METHOD": method,
        "RAW_URI": target,
        "HTTP_HOST": "localhost",
        "CONTENT_TYPE": "application/x-www-form-urlencoded",
        "CONTENT_LENGTH": str(len(form)),
        "wsgi.input": BytesIO(form),
    }
    parts = application(environ, start_response)
    return sent[0], b"".join([*sent[1:], *parts])


def test_a_run_is_answered_and_another_is_streamed(tmp_path: Path) -> None:
    databases = [Database("main", f"sqlite:///{tmp_path}/a.db")]
    with wsgi.open_application(Platform(agents=[Agent(id="a")], databases=databases)) as served:
        status, body = ask(served, "POST", "/agents/a/runs", b"message=hi&stream=false")
        assert (status, json.loads(body)["content"]) == ("200 OK", "hi")

        status, body = ask(served, "POST", "/agents/a/runs", b"message=hi&stream=true")
        assert status == "200 OK"
        assert body.count(b"event: RunCompleted") == 1

        status, body = ask(served, "GET", "/sessions")
        assert (status, len(json.loads(body)["data"])) == ("200 OK", 2)
        assert ask(served, "GET", "not a target")[0] == "400 Bad Request"
