"""Starting a run: stored first, then executed here, or by whoever ends the session's active one."""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from ..effects import Now, Program, RandomBytes, Spawn, ThisNode, Transact
from ..messages import compact_json
from ..registry import Component
from ..store.runs import Started, StartRun
from .execute import ExecuteRun, Workshop
from .journal import LEASE_US

__all__ = ["NewRun", "new_id", "start"]

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NAME_LENGTH: Final = 500


@frozen
class NewRun:
    """A run that is asked for: whose, in which session, with which message."""

    owner: str
    session_id: str
    run_id: str
    message: str
    stream: bool


def new_id() -> Program[str]:
    """Return a random UUID (RFC 9562 section 5.4), as text."""
    raw = bytearray((yield from RandomBytes(16)))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    digits = raw.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def start(workshop: Workshop, component: Component, new: NewRun) -> Program[Started]:
    """Store a run and see that it is executed; it goes on whatever becomes of this program.

    The first message names the session; control characters have no place in a name.
    """
    node = yield from ThisNode()
    now_us = yield from Now()
    started = yield from Transact(
        component.database,
        StartRun(
            owner=new.owner,
            session_id=new.session_id,
            run_id=new.run_id,
            kind=component.kind,
            component_id=component.id,
            input=compact_json({"message": new.message, "stream": new.stream}),
            name=_CONTROL.sub(" ", new.message)[:_NAME_LENGTH],
            node=node,
            now_us=now_us,
            until_us=now_us + LEASE_US,
        ),
    )
    if started.claim is not None:
        yield from Spawn(ExecuteRun(workshop, component.database, started.claim))
    return started
