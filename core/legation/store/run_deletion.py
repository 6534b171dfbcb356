"""The deletion of what belongs to one run, and of what is counted for its session.

These are parts of units that prune.  The locks are taken in one order: the sessions, what is in
them, and last the counts of subjects.  What is counted for a session is given back with what is
deleted of it, as far as it was counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias
from urllib.parse import unquote

from ..values import frozen
from .sessions import find_keeper
from .units import Sql, Statements
from .usage import add_usage

__all__ = [
    "Gone",
    "Locked",
    "SessionKey",
    "Waiting",
    "delete_events",
    "delete_run",
    "delete_steps",
    "delete_summaries",
    "find_waiting",
    "give_back",
    "lock_sessions",
    "with_sizes",
]

SessionKey: TypeAlias = tuple[str, str]
"""The owner and the id of a session."""


def with_sizes(text: str, *columns: str) -> Sql:
    """Return a statement that has the bytes of the texts in `columns` in its places."""
    sqlite = (f"length(cast({column} as blob))" for column in columns)
    return Sql(text.format(*sqlite), text.format(*(f"octet_length({c})" for c in columns)))


# --- One run ------------------------------------------------------------------------------------

_OF_RUN: Final = "run_id in ( select run_id from runs where owner = :owner and run_id = :run_id)"
SOME_EVENTS: Final = with_sizes(
    f"select seq, {{}} from events where {_OF_RUN} order by seq limit :most", "data"
)
DELETE_SOME_EVENTS: Final = Sql(f"delete from events where {_OF_RUN} and seq <= :seq")
STEPS_OF: Final = with_sizes(
    f"select count(*), coalesce(sum({{}}), 0) from steps where {_OF_RUN}", "outcome"
)
DELETE_EVENTS: Final = Sql(f"delete from events where {_OF_RUN}")
DELETE_STEPS: Final = Sql(f"delete from steps where {_OF_RUN}")
DELETE_RUN: Final = Sql("delete from runs where owner = :owner and run_id = :run_id")
_OF_SUMMARY: Final = "s.owner = runs.owner and s.session_id = runs.session_id"
ROW_OF: Final = with_sizes(
    f"""select {{}} + coalesce({{}}, 0), state, session_id, run_no, exists (
        select 1 from session_summaries s where {_OF_SUMMARY} and s.run_no >= runs.run_no)
    from runs where owner = :owner and run_id = :run_id""",
    "input",
    "output",
)
DELETE_SUMMARIES: Final = with_sizes(
    """delete from session_summaries where owner = :owner and session_id = :session_id
    and run_no >= :run_no returning {}""",
    "summary",
)


def delete_events(owner: str, run_id: str, most: int) -> Statements[tuple[int, int]]:
    """Delete the first events of a run, `most` of them; return how many, and their bytes."""
    rows = yield SOME_EVENTS(owner=owner, run_id=run_id, most=most)
    if rows:
        yield DELETE_SOME_EVENTS(owner=owner, run_id=run_id, seq=rows[-1][0])
    return len(rows), sum(size for _, size in rows)


def delete_steps(owner: str, run_id: str) -> Statements[tuple[int, int]]:
    """Delete the steps of a run; return how many, and their bytes."""
    ((count, size),) = yield STEPS_OF(owner=owner, run_id=run_id)
    if count:
        yield DELETE_STEPS(owner=owner, run_id=run_id)
    return count, int(size)


@frozen
class Gone:
    """A run that was deleted: its bytes, and the digest of the state that it left."""

    bytes: int
    state: str | None


def delete_run(owner: str, run_id: str) -> Statements[Gone]:
    """Delete a run whose events are gone, with what else is its own, and what summarizes it."""
    rows = yield ROW_OF(owner=owner, run_id=run_id)
    _, freed = yield from delete_steps(owner, run_id)
    yield DELETE_EVENTS(owner=owner, run_id=run_id)
    yield DELETE_RUN(owner=owner, run_id=run_id)
    left = None
    for size, state, session_id, number, summarized in rows:  # none where somebody was quicker
        freed, left = freed + size, state
        if summarized:
            freed += yield from delete_summaries(owner, session_id, number)
    return Gone(freed, left)


def delete_summaries(owner: str, session_id: str, number: int) -> Statements[int]:
    """Delete the summaries that cover the run of this number; return how many bytes they have.

    Those cover it whose last run is that one, or a later one.
    """
    rows = yield DELETE_SUMMARIES(owner=owner, session_id=session_id, run_no=number)
    return sum(size for (size,) in rows)


# --- Giving back --------------------------------------------------------------------------------

LOCK: Final = Sql(
    """update sessions set version = version + 1
    where owner = :owner and session_id = :session_id returning bytes"""
)
TAKE_BYTES: Final = Sql(
    """update sessions set bytes = bytes - :bytes
    where owner = :owner and session_id = :session_id"""
)


@frozen
class Locked:
    """A session under its lock: the bytes that are counted for it, and for whom."""

    bytes: int
    keeper: str


def lock_sessions(sessions: Iterable[SessionKey]) -> Statements[dict[SessionKey, Locked]]:
    """Lock `sessions`, in the order of all who delete; those that are gone are left out."""
    locked: dict[SessionKey, Locked] = {}
    for owner, session_id in sorted(sessions, key=lambda one: str((*one, None))):
        for (size,) in (yield LOCK(owner=owner, session_id=session_id)):
            keeper = yield from find_keeper(owner, session_id)
            locked[owner, session_id] = Locked(size, keeper)
    return locked


def give_back(
    freed: Mapping[SessionKey, int], locked: Mapping[SessionKey, Locked], now_us: int
) -> Statements[None]:
    """Take what was deleted of sessions off their counts, and off those of who keeps them."""
    back: dict[str, int] = {}
    for key, size in sorted(freed.items()):
        before = locked.get(key)
        if before is not None and (taken := max(0, min(size, before.bytes))):
            yield TAKE_BYTES(owner=key[0], session_id=key[1], bytes=taken)
            back[before.keeper] = back.get(before.keeper, 0) + taken
    for keeper, size in sorted(back.items()):
        yield from add_usage(keeper, -size, keeper, 0, now_us)


# --- What waits ---------------------------------------------------------------------------------

ANY_HELD: Final = Sql(
    """select r.run_id, r.owner, r.session_id
    from inbox i join runs r on r.run_id = i.run_id where i.state = 'ready'
    union
    select r.run_id, r.owner, r.session_id from outbox o
    join inbox i on i.channel = o.channel and i.message_id = o.message_id
    join runs r on r.run_id = i.run_id where o.state = 'ready'"""
)
WAITING_CHANNELS: Final = Sql("select distinct channel from inbox where state = 'ready'")
WAITS: Final = Sql(
    """select 1 from inbox where state = 'ready' and channel = :channel
    and (sender = :conversation or instr(payload, :named) > 0) limit 1"""
)
_ENDS: Final = re.compile("[:#!]")


@frozen
class Waiting:
    """The runs and sessions of messages and replies that wait, and the channels of the messages."""

    runs: frozenset[str]
    sessions: frozenset[SessionKey]
    channels: frozenset[str]

    def holds(self, owner: str, session_id: str) -> Statements[bool]:
        """Return whether a message or a reply waits in the session, or may belong into it."""
        if (owner, session_id) in self.sessions:
            return True
        channel, _, rest = session_id.partition(":")
        if channel not in self.channels:
            return False
        if rest.startswith("="):  # a digest: it may be of any conversation
            return True
        conversation = unquote(_ENDS.split(rest, maxsplit=1)[0])
        named = json.dumps(conversation, ensure_ascii=False)
        return bool((yield WAITS(channel=channel, conversation=conversation, named=named)))


def find_waiting() -> Statements[Waiting]:
    """Return what waits in channels, which is little unless something is wrong with them."""
    held = yield ANY_HELD()
    channels = yield WAITING_CHANNELS()
    return Waiting(
        frozenset(run_id for run_id, _, _ in held),
        frozenset((owner, session_id) for _, owner, session_id in held),
        frozenset(channel for (channel,) in channels),
    )
