"""Platforms mounted in frameworks, as the documentation shows: each with the users of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sqlite3
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import httpx2
import pytest
from attrs import frozen

from legation.store.audit import PAGE_COLUMNS
from legation.store.audit_pages import Page

from ..trail_pages import entries_in
from ..transcripts import DOCS, blocks

PAGE: Final = {b.caption: b.text for b in blocks(DOCS / "howto/embedding.md") if b.caption}
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}
SCOPES: Final = "agents:read agents:*:run sessions:read"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Callable[[str], Any]]:
    """Load what the page shows under a name, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    loaded: list[str] = []

    def load(framework: str) -> Any:
        path = tmp_path / f"with_{framework}.py"
        text = PAGE[path.name].replace("sqlite:////tmp/mission.db", "sqlite:///mission.db")
        path.write_text(text, "utf-8")
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[path.stem] = module
        loaded.append(path.stem)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in loaded:
        del sys.modules[name]


@frozen
class Reply:
    """What came back."""

    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Ask = Callable[..., Awaitable[Reply]]


@asynccontextmanager
async def alive(app: Any) -> AsyncGenerator[None]:
    """Hold `app` between its start-up and its shut-down, as a server does."""
    heard: asyncio.Queue[Any] = asyncio.Queue()
    told: asyncio.Queue[Any] = asyncio.Queue()
    serving = asyncio.create_task(
        app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, heard.get, told.put)
    )
    for phase in ("startup", "shutdown"):
        await heard.put({"type": f"lifespan.{phase}"})
        assert (await told.get())["type"] == f"lifespan.{phase}.complete"
        if phase == "startup":
            yield
    await serving


def keyed(user: str | None) -> dict[str, str]:
    return {} if user is None else {"x-api-key": f"key of {user}"}


def django_session(user: str | None) -> dict[str, str]:
    from django.contrib.sessions.backends.signed_cookies import (  # type: ignore[import-untyped]
        SessionStore,
    )

    if user is None:
        return {}
    session = SessionStore()
    session["name"] = user
    session.save()
    return {"cookie": f"sessionid={session.session_key}"}


async def exercise(ask: Ask, base: str) -> None:
    """Ask for a list, a run, a stream, a run in the background, and what is another's."""
    runs = f"{base}/agents/concierge/runs"

    listed = await ask("GET", f"{base}/agents", "ann")
    assert (listed.status, [agent["id"] for agent in listed.json()]) == (200, ["concierge"])
    assert (await ask("GET", f"{base}/agents", None)).status == 401
    assert (await ask("GET", f"{base}/health", None)).status == 200
    assert (await ask("GET", f"{base}/audit", "ann")).status == 403

    form = {"message": "hi", "session_id": "hers"}
    whole = await ask("POST", runs, "ann", {**form, "stream": "false"})
    assert (whole.status, whole.json()["content"]) == (200, "hi")

    streamed = await ask("POST", runs, "ann", {**form, "stream": "true"})
    assert streamed.status == 200
    names = [line for line in streamed.body.decode().splitlines() if line.startswith("event: ")]
    assert (names[0], names[-1]) == ("event: RunStarted", "event: RunCompleted")

    begun = await ask("POST", runs, "ann", {**form, "background": "true", "stream": "false"})
    assert begun.status == 202
    path = f"{runs}/{begun.json()['run_id']}"
    tries = 0
    while (await ask("GET", path, "ann")).json()["status"] != "COMPLETED":
        tries += 1
        assert tries < 500
        await asyncio.sleep(0.02)
    assert (await ask("GET", f"{path}/events", "ann")).body.count(b"event: RunCompleted") == 1
    assert (await ask("GET", f"{path}/events", "bob")).status == 404

    assert (await ask("GET", f"{base}/sessions/hers", "ann")).status == 200
    assert (await ask("GET", f"{base}/sessions/hers", "bob")).status == 404
    assert (await ask("GET", f"{base}/sessions/hers", None)).status == 401


BROWSER: Final = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def open_console(client: httpx2.AsyncClient) -> None:
    """A browser is led to the console below the mount, with and without a slash at its end."""
    for start in ("/mission", "/mission/"):
        shown = await client.get(start, headers=BROWSER, follow_redirects=True)
        assert (shown.status_code, shown.url.path) == (200, "/mission/console")
        links = re.findall(r'(?:src|href)="([^"]*assets[^"]*)"', shown.text)
        assert len(links) > 20
        for link in links:
            found = await client.get(str(shown.url.join(link)))
            assert found.status_code == 200
            assert "immutable" in found.headers["cache-control"]


def judge_trail(*, unreadable: int) -> None:
    """The trail names who asked, and that the outer application said so.

    The requests of who has no name are counted, with `unreadable` ones that led nowhere.
    """
    with closing(sqlite3.connect("mission.db")) as database:
        pages = [Page(*row) for row in database.execute(f"select {PAGE_COLUMNS} from trail")]
        refused = dict(database.execute("select route, sum(count) from refusals group by route"))

    rows = {(one.subject, one.key_id, one.operation, one.status) for one in entries_in(pages)}
    assert ("ann", "outer application", "create_agent_run", 200) in rows
    assert ("ann", "outer application", "get_session_by_id", 200) in rows
    assert ("bob", "outer application", "get_session_by_id", 404) in rows
    assert {subject for subject, *_ in rows} == {"ann", "bob"}
    counted = {"/agents": 1, "/sessions/{session_id}": 1, "*": unreadable}
    assert refused == {route: count for route, count in counted.items() if count}


@pytest.mark.parametrize(
    ("framework", "sign_in"),
    [
        ("starlette", keyed),
        ("fastapi", keyed),
        ("litestar", keyed),
        ("django", django_session),
    ],
)
def test_a_platform_is_mounted_and_knows_the_users_of_the_outer_application(
    framework: str, sign_in: Callable[[str | None], dict[str, str]], page: Callable[[str], Any]
) -> None:
    module = page(framework)

    async def main() -> None:
        transport = httpx2.ASGITransport(app=module.app)
        async with (
            alive(module.app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):

            async def ask(
                method: str, path: str, user: str | None, form: dict[str, str] | None = None
            ) -> Reply:
                answer = await client.request(method, path, headers=sign_in(user), data=form)
                return Reply(answer.status_code, answer.content)

            home = await ask("GET", "/", None)
            assert home == Reply(200, b"The agents are below /mission.")
            await exercise(ask, "/mission")
            await open_console(client)

    asyncio.run(main())
    judge_trail(unreadable=0)


# --- Lambda ------------------------------------------------------------------------------------


def rest_event(method: str, path: str, claims: dict[str, str] | None, body: str) -> dict[str, Any]:
    """Return an event of a REST API (version 1.0)."""
    headers = {"Host": "localhost", **(FORM if body else {})}
    authorizer = {"authorizer": {"jwt": {"claims": claims}}} if claims else {}
    return {
        "resource": "/{proxy+}",
        "version": "1.0",
        "httpMethod": method,
        "path": path,
        "headers": headers,
        "multiValueHeaders": {name: [value] for name, value in headers.items()},
        "multiValueQueryStringParameters": None,
        "requestContext": {"identity": {"sourceIp": "192.0.2.1"}, **authorizer},
        "body": body,
        "isBase64Encoded": False,
    }


def http_event(method: str, path: str, claims: dict[str, str] | None, body: str) -> dict[str, Any]:
    """Return an event of an HTTP API (version 2.0)."""
    authorizer = {"authorizer": {"jwt": {"claims": claims}}} if claims else {}
    request = {"method": method, "path": path, "sourceIp": "192.0.2.1"}
    return {
        "version": "2.0",
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": "localhost", **(FORM if body else {})},
        "requestContext": {"http": request, **authorizer},
        "body": body,
        "isBase64Encoded": False,
    }


@pytest.mark.parametrize("event_of", [rest_event, http_event])
def test_a_platform_answers_events_of_a_gateway(
    event_of: Callable[..., dict[str, Any]],
    page: Callable[[str], Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)  # or Mangum makes one, and leaves it open
    module = page("mangum")
    caplog.set_level(logging.WARNING)

    def invoke(
        method: str, path: str, user: str | None, form: dict[str, str] | None = None
    ) -> Reply:
        claims = None if user is None else {"sub": user, "scope": SCOPES}
        answer = module.handler(event_of(method, path, claims, urlencode(form or {})), None)
        assert answer["isBase64Encoded"] is False
        return Reply(answer["statusCode"], answer["body"].encode())

    async def ask(*args: Any) -> Reply:
        return invoke(*args)

    try:
        coroutine = exercise(ask, "")
        with pytest.raises(StopIteration):  # it waits for nothing: each invocation ends its run
            coroutine.send(None)
        assert invoke("GET", "/agents/100%", "ann").status == 400
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    judge_trail(unreadable=1)
    assert not caplog.records
