"""The past of the demonstration: what its database holds when somebody comes for the first time.

A conversation, bookings that wait for approval, runs of the team, a failed run with its incident,
and two dead letters.  They are made by the platform itself: runs are started, messages delivered
and approvals answered, as in any other process, but with a clock that is hours behind.

The steps have an order, and each looks first whether it was done.  So what a crash left half done,
the next start completes.  The last run is the sign that all of it was made.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias, cast

import anyio

from legation import Platform, Request, Response
from legation.api.openapi.example_ids import (
    AGENT,
    CHANNEL,
    DATABASE,
    FAILED_RUN,
    FAILED_SESSION,
    MESSAGE,
    PAUSED_RUN,
    PAUSED_SESSION,
    RUN,
    SECOND_MESSAGE,
    SECOND_RUN,
    SESSION,
    TEAM,
    TEAM_PAUSED_RUN,
    TEAM_PAUSED_SESSION,
    TEAM_RUN,
    TEAM_SESSION,
    USER,
    WAITING_RUN,
    WAITING_SESSION,
)
from legation.channels.standard import Standard
from legation.effects import Program, Transact
from legation.http.messages import compact_json
from legation.runs.followers import join
from legation.runs.start import NewRun, start
from legation.store.failures import StoreFailure
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation.store.run_states import RunState
from legation.store.session_pages import ListSessions
from legation.store.sessions import SessionRow
from legation.values import frozen
from legation_host import Host, Write
from legation_host.host import system_clock
from legation_host.hosting import open_platform

from .demonstration import demonstration

__all__ = ["make_past"]

Fields: TypeAlias = tuple[tuple[str, str], ...]

_SECOND_US: Final = 1_000_000
_HOUR_US: Final = 3_600 * _SECOND_US
_PATIENCE_US: Final = 2 * _SECOND_US
_LONGEST_SECONDS: Final = 20.0
"""For all of it, also while another process makes it; a server starts without rather than late."""

_DELIVERED_HOURS: Final = 26
"""A reply that could not be sent for a day is a dead letter."""

_JSON: Final[Fields] = (("content-type", "application/json"),)
_SESSIONS: Final = frozenset(
    {
        *(SESSION, PAUSED_SESSION, FAILED_SESSION, WAITING_SESSION),
        *(TEAM_SESSION, TEAM_PAUSED_SESSION),
    }
)
_MESSAGES: Final = {
    MESSAGE: {"sender": "grace", "text": "Which rooms are free?"},
    SECOND_MESSAGE: {"sender": "eve", "text": "What did I book?"},
}


async def make_past(folder: Path, log: Write) -> None:
    """Give the database of the demonstration its past, unless it has one or is in use.

    Args:
        folder: Holds the database; of two processes that start at once, one works there.
        log: Takes a line where it failed.  What fails in the past on purpose is not written.

    Raises:
        HostError: The database cannot be opened.
    """
    platform = demonstration(folder, pause_seconds=0.0)
    try:
        with anyio.fail_after(_LONGEST_SECONDS):
            async with _hold(folder), open_platform(platform, jobs=False) as host:
                if not platform.schema_guard.reasons and await host.run(_is_wanted()):
                    await _Maker(platform, host).make()
    except (OSError, StoreFailure) as error:
        log("warning", "past_failed", {"reason": type(error).__name__})


@asynccontextmanager
async def _hold(folder: Path) -> AsyncGenerator[None]:
    """Hold the lock of `folder`; the system frees it when this process ends, however it does."""
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await anyio.sleep(0.02)
        yield
    finally:
        os.close(opened)


def _find_run(run_id: str) -> Program[RunRow | None]:
    return (yield from Transact(DATABASE, FetchRun(run_id, None, any_owner=True)))


def _is_wanted() -> Program[bool]:
    """Return whether the past is not whole, and nobody else has used the database."""
    last = yield from _find_run(SECOND_RUN)
    if last is not None and last.status == RunState.COMPLETED:
        return False
    for kind in ("agent", "team"):
        listed = ListSessions(None, kind, _is_of_past, any_owner=True)
        page = yield from Transact(DATABASE, listed)
        if page.more or not all(page.items):
            return False
    return True


def _is_of_past(session: SessionRow) -> bool:
    channels = f"~channel:{CHANNEL}:"
    return session.session_id in _SESSIONS or session.owner.startswith(channels)


@frozen
class _Body:
    """The content of a request."""

    content: bytes

    async def read(self, limit: int) -> bytes | None:
        """Return it, unless it is too long."""
        return self.content if len(self.content) <= limit else None


@frozen
class _Maker:
    """The process that makes the past, on a host without jobs whose clock it sets."""

    platform: Platform
    host: Host

    async def make(self) -> None:
        """Do each step; one that was done before changes nothing."""
        await self._answer_messages()
        self._go_back(4)
        await self._run(FAILED_RUN, FAILED_SESSION, "Break something")
        self._go_back(3)
        await self._run(RUN, SESSION, "Which rooms are free tomorrow?")
        self._go_back(1)
        await self._run(PAUSED_RUN, PAUSED_SESSION, "Book a double room for two nights for Ada")
        await self._run(WAITING_RUN, WAITING_SESSION, "Book a double room for two nights for Ada")
        await self._run(TEAM_RUN, TEAM_SESSION, "Plan my evening", "team", TEAM)
        await self._run(
            TEAM_PAUSED_RUN,
            TEAM_PAUSED_SESSION,
            "Book a double room for two nights for Ada",
            "team",
            TEAM,
        )
        self._go_back(0)
        await self._go_rounds()  # by now the replies are too old to be tried again
        self._go_back(2)
        await self._run(SECOND_RUN, SESSION, "Book a single room for Grace")
        await self._approve(SECOND_RUN)

    async def _answer_messages(self) -> None:
        """Deliver and answer the messages, or go on with what a crash interrupted after that.

        What a crash left of a message is done when it was delivered: a reply that is written today
        would be tried for a day.
        """
        if await self.host.run(_find_run(FAILED_RUN)) is None:
            self._go_back(_DELIVERED_HOURS)
            for message_id in _MESSAGES:
                await self._deliver(message_id)
        await self._go_round()

    def _go_back(self, hours: int) -> None:
        """Set the clock of the host so many hours behind."""
        self.host.clock = lambda: system_clock() - hours * _HOUR_US

    async def _go_round(self) -> int | None:
        """Do what is due; return when the next thing is, None where nothing waits."""
        report = await self.host.run(self.platform.round(seconds=_LONGEST_SECONDS))
        return None if report.failed else report.next_us

    async def _go_rounds(self) -> None:
        """Do all that waits.  For what a killed process holds for longer the server waits."""
        due_us = await self._go_round()
        while due_us is not None and (wait_us := due_us - system_clock()) < _PATIENCE_US:
            await anyio.sleep(max(0, wait_us) / _SECOND_US)
            due_us = await self._go_round()

    async def _run(
        self, run_id: str, session_id: str, message: str, kind: str = "agent", hosted: str = AGENT
    ) -> None:
        """Run the desk, or another, under this id, and wait for the end or the pause."""
        component = self.platform.registry.components(kind)[hosted]
        new = NewRun(USER, session_id, run_id, message, pieces=False)
        await self.host.run(start(self.platform.context, component, new))
        await self.host.run(join(DATABASE, USER, run_id))

    async def _deliver(self, message_id: str) -> None:
        """Deliver a message to the channel; one that was delivered before is a duplicate."""
        codec = cast(Standard, self.platform.registry.channels[CHANNEL].codec)
        body = compact_json({"type": "message", "data": _MESSAGES[message_id]}).encode()
        headers = codec.sign(message_id, body, self.host.clock()).headers
        await self._ask("POST", f"/{CHANNEL}/webhook", body, headers)

    async def _approve(self, run_id: str) -> None:
        """Approve what the run waits for, and wait for its end."""
        found = await self._ask("GET", f"/approvals?status=pending&run_id={run_id}")
        for approval in json.loads(found)["data"]:
            body = compact_json({"status": "approved"}).encode()
            await self._ask("POST", f"/approvals/{approval['id']}/resolve", body, _JSON)
        await self.host.run(join(DATABASE, USER, run_id))

    async def _ask(
        self, method: str, target: str, body: bytes = b"", headers: Fields = ()
    ) -> bytes:
        """Return the content of the answer."""
        raw = tuple((name.encode(), value.encode()) for name, value in headers)
        program = self.platform.answer(Request(method, target, raw))
        answer = await self.host.run(program, body=_Body(body))
        return answer.body if isinstance(answer, Response) else b""
