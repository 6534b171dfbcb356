"""Keys change under load: nobody is refused who should pass, nobody passes who should not.

A real server on a socket, a real file of keys, and clients that ask all the time with tokens of
an old and of a new key.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx2
import trio
from attrs import define, field, frozen

from legation import Agent, AuthorizationConfig, Database, Platform
from legation_host.hosting import open_platform
from legation_server import open_listeners, serve

from ..callers import Issuer

CLIENTS: Final = 3  # of each key
SECONDS: Final = 60.0  # the file is looked at every second


@frozen
class Tried:
    """One request: when it was sent, when it was answered, and how."""

    sent: float
    answered: float
    status: int


@define(eq=False)
class Running:
    """A server, its file of keys, what it logged, and what its clients saw."""

    path: Path
    url: str
    logged: list[tuple[float, str, Mapping[str, Any]]] = field(
        factory=list[tuple[float, str, Mapping[str, Any]]]
    )
    seen: dict[str, list[Tried]] = field(factory=dict[str, list[Tried]])

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """Take a line of the log."""
        self.logged.append((trio.current_time(), event, fields))

    async def ask(self, name: str, token: str) -> None:
        """Ask without end."""
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers) as client:
            while True:
                sent = trio.current_time()
                answer = await client.get("/agents")
                tried = Tried(sent, trio.current_time(), answer.status_code)
                self.seen.setdefault(name, []).append(tried)
                await trio.sleep(0.005)

    async def change(self, document: bytes, event: str) -> float:
        """Replace the file; return when the server said `event` about it.

        The load has gone on behind that for long enough to tell how it is answered.
        """
        known = len(self.logged)
        replace(self.path, document)
        at = await self.heard(event, known)
        with trio.fail_after(SECONDS):
            while any(self._after(at, name) <= CLIENTS for name in self.seen):
                await trio.sleep(0.01)
        return at

    def _after(self, moment: float, name: str) -> int:
        return sum(tried.sent >= moment for tried in self.seen[name])

    async def heard(self, event: str, known: int) -> float:
        """Wait until the log says `event` behind its first `known` lines; return when it did."""
        with trio.fail_after(SECONDS):
            while True:
                for at, told, _ in self.logged[known:]:
                    if told == event:
                        return at
                await trio.sleep(0.01)

    def statuses(self, name: str, since: float, until: float) -> set[int]:
        """Return how requests were answered that lay wholly between two moments."""
        lay = [t for t in self.seen[name] if since <= t.sent and t.answered <= until]
        assert len(lay) > CLIENTS, f"hardly a request of {name} in {until - since} s"
        return {tried.status for tried in lay}


def replace(path: Path, document: bytes) -> None:
    """Replace a file as a whole: whoever reads it never finds a part of one."""
    beside = path.with_suffix(".new")
    beside.write_bytes(document)
    beside.replace(path)


def jwks(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [issuer.jwk for issuer in issuers]}).encode()


@asynccontextmanager
async def running(
    path: Path,
    first: bytes,
    *,
    on_disk: bytes | None = None,
    revocations: bytes | None = None,
    **options: Any,
) -> AsyncGenerator[Running]:
    """Serve a platform that was made with the keys `first`, from the file at `path`."""
    path.write_bytes(on_disk or first)
    platform = Platform(
        authorization=True,
        authorization_config=AuthorizationConfig(jwks_file=str(path), **options),
        jwks=first,
        revocations=revocations,
        databases=(Database("main", "sqlite://"),),
        agents=(Agent(id="alpha"),),
    )
    listeners = open_listeners("127.0.0.1", 0)
    address = listeners[0].getsockname()
    made = Running(path, f"http://127.0.0.1:{address[1]}")
    async with open_platform(platform, log=made.write) as host, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, platform, host, listeners))
        yield made
        nursery.cancel_scope.cancel()


async def test_keys_change_under_load(tmp_path: Path, figures: Callable[[str], None]) -> None:
    old, new = Issuer(kid="old"), Issuer(kid="new")
    async with (
        running(tmp_path / "keys.json", jwks(old)) as server,
        trio.open_nursery() as clients,
    ):
        begun = trio.current_time()
        for name, issuer in (("old", old), ("new", new)):
            for _ in range(CLIENTS):
                clients.start_soon(server.ask, name, issuer.token("agents:read", exp=None))
        with trio.fail_after(SECONDS):
            while len(server.seen) < 2 or min(map(len, server.seen.values())) <= CLIENTS:
                await trio.sleep(0.01)
        both = await server.change(jwks(old, new), "keys_reloaded")
        broken = await server.change(b'{"keys": [', "keys_reload_failed")
        empty = await server.change(b'{"keys": []}', "keys_reloaded")
        last = await server.change(jwks(new), "keys_reloaded")
        ended = trio.current_time()
        clients.cancel_scope.cancel()

        assert server.statuses("old", begun, both) == {200}
        assert server.statuses("new", begun, both) == {401}
        for since, until in ((both, broken), (broken, empty)):
            assert server.statuses("old", since, until) == {200}
            assert server.statuses("new", since, until) == {200}
        assert server.statuses("old", empty, last) == server.statuses("new", empty, last) == {401}
        assert server.statuses("old", last, ended) == {401}
        assert server.statuses("new", last, ended) == {200}
        changes = [
            sum(a.status != b.status for a, b in pairwise(tried)) for tried in server.seen.values()
        ]
        assert max(changes) <= 4 * CLIENTS  # in flight at the change, never back and forth
        reasons = [str(f["reason"]) for _, e, f in server.logged if e == "keys_reload_failed"]
        assert len(reasons) == 1
        assert all(reason.startswith("authorization_config.") for reason in reasons)
        total = sum(len(tried) for tried in server.seen.values())
    figures(
        f"key rotation: {total:,} requests through 4 changes of the file, none answered wrongly"
    )


async def test_a_file_that_is_gone_keeps_the_keys_and_is_told(tmp_path: Path) -> None:
    old, new = Issuer(kid="old"), Issuer(kid="new")
    async with running(tmp_path / "keys.json", jwks(old)) as server:
        server.path.unlink()
        await server.heard("keys_reload_failed", 0)
        async with httpx2.AsyncClient(base_url=server.url) as client:

            async def status(issuer: Issuer) -> int:
                token = issuer.token("agents:read", exp=None)
                headers = {"authorization": f"Bearer {token}"}
                return (await client.get("/agents", headers=headers)).status_code

            assert (await status(old), await status(new)) == (200, 401)
            await server.change(jwks(new), "keys_reloaded")
            assert (await status(old), await status(new)) == (401, 200)
    events = [event for _, event, _ in server.logged if event.startswith("keys_")]
    assert events == ["keys_reload_failed", "keys_recovered", "keys_reloaded"]


async def test_a_file_that_comes_back_as_it_was_is_current_again(tmp_path: Path) -> None:
    issuer = Issuer(kid="old")
    async with running(tmp_path / "keys.json", jwks(issuer)) as server:
        away = tmp_path / "away.json"
        server.path.rename(away)
        await server.heard("keys_reload_failed", 0)
        away.rename(server.path)
        await server.heard("keys_recovered", 0)


async def test_revocations_are_read_again_as_keys_are(tmp_path: Path) -> None:
    issuer, path = Issuer(kid="old"), tmp_path / "revoked.json"
    path.write_text("{}")
    token = issuer.token("agents:read", exp=None, jti="t1")
    options: dict[str, Any] = {"revocations_file": str(path), "keys_stale_seconds": 0.0}
    async with (
        running(tmp_path / "keys.json", jwks(issuer), revocations=b"{}", **options) as server,
        httpx2.AsyncClient(base_url=server.url) as client,
    ):

        async def answer(path: str = "/agents", **headers: str) -> int:
            return (await client.get(path, headers=headers)).status_code

        bearer = {"authorization": f"Bearer {token}"}
        assert await answer(**bearer) == 200
        replace(path, b'{"tokens": ["t1"]}')
        await server.heard("revocations_reloaded", 0)
        assert await answer(**bearer) == 401
        replace(path, b'{"token": []}')
        await server.heard("revocations_void", 0)
        assert (await answer("/ready"), await answer(**bearer)) == (503, 401)
        replace(path, b"{}")
        await server.heard("revocations_recovered", 0)
        assert (await answer("/ready"), await answer(**bearer)) == (200, 200)


async def test_keys_that_changed_while_the_server_started_are_not_missed(tmp_path: Path) -> None:
    old, new = Issuer(kid="old"), Issuer(kid="new")
    path = tmp_path / "keys.json"
    async with running(path, jwks(old), on_disk=jwks(new)) as server:
        headers = {"authorization": f"Bearer {new.token('agents:read', exp=None)}"}
        async with httpx2.AsyncClient(base_url=server.url, headers=headers) as client:
            with trio.fail_after(SECONDS):
                while (await client.get("/agents")).status_code != 200:
                    await trio.sleep(0.01)
