"""Units of work on the dead letters of a channel: many of them at once, or one reply.

Letters are chosen by their ids, or by a filter; the oldest come first, and no more than `limit`
are touched at once, so that nobody waits for long who sends or receives meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..values import frozen
from .channel_states import probe_now
from .inbox import INBOX
from .leased_queue import LeasedQueue
from .leases import fill_clock
from .outbox import OUTBOX
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit, text_array

__all__ = [
    "DISCARDED",
    "ChooseLetters",
    "Chosen",
    "CountChosen",
    "DiscardLetters",
    "FetchReply",
    "ListChosen",
    "RetryLetters",
]

DISCARDED: Final = "discarded"
"""The error of a message that an operator discarded: it is done, and nobody answers it."""

_CHOSEN: Final = """channel = :channel and state = 'dead'
    and {since} >= :since_us and {since} < :until_us
    and (cast(:error as text) is null or instr(coalesce(error, ''), :error) > 0)
    and {among}"""
_AMONG: Final = "(:ids is null or {name} in (select value from json_each(:ids)))"
_AMONG_PG: Final = "(cast(:ids as text[]) is null or {name} = any (cast(:ids as text[])))"


def _write(statement: str, queue: LeasedQueue[Any, Any]) -> Sql:
    """Return `statement` on `queue`, of which `{chosen}` are the letters that are meant."""
    since, name = queue.order[0], queue.name
    texts: list[str] = []
    for among, picked in ((_AMONG, "in ({})"), (_AMONG_PG, "= any (array({}))")):
        chosen = _CHOSEN.format(since=since, among=among.format(name=name))
        # An array is made once.  Without statistics PostgreSQL would look for what is `in` them
        # once for each dead letter that there is.
        rows = f"""
        select {name} from {queue.table} where {chosen}
        order by {", ".join(queue.order)} limit :limit"""
        oldest = f"{name} {picked.format(rows)}"
        told = {"chosen": chosen, "oldest": oldest, "table": queue.table, "name": name}
        told |= {"columns": queue.columns, "order": ", ".join(queue.order)}
        told["behind"] = ", ".join(f":after_{column}" for column in queue.order)
        texts.append(statement.format(**told))
    return fill_clock(*texts)


def _write_both(message: str, reply: str) -> Mapping[str, Sql]:
    return {"inbox": _write(message, INBOX), "outbox": _write(reply, OUTBOX)}


_TOUCHED: Final = "where channel = :channel and state = 'dead' and {oldest} returning {name}"
RETRY: Final = _write_both(
    f"update inbox set state = 'ready', ready_us = $CLOCK, done_us = null {_TOUCHED}",
    f"update outbox set state = 'ready', ready_us = $CLOCK {_TOUCHED}",
)
# A message stays, so that its provider cannot bring it a second time; a reply need not.
DISCARD: Final = _write_both(
    f"update inbox set state = 'done', done_us = $CLOCK, payload = '', error = '{DISCARDED}'"
    f" {_TOUCHED}",
    f"delete from outbox {_TOUCHED}",
)
# An answer whose parts died together is revived whole, and its parts go out in their order.
_PARTS: Final = """update outbox set state = 'ready', ready_us = $CLOCK
    where channel = :channel and state = 'dead' and idempotency_key like 'reply%-%'
    and message_id in (
        select message_id from outbox where channel = :channel and {among})
    returning idempotency_key"""
PARTS: Final = fill_clock(
    *(_PARTS.format(among=among.format(name=OUTBOX.name)) for among in (_AMONG, _AMONG_PG))
)
_LEFT: Final = "select count(*) from {table} where {chosen}"
LEFT: Final = _write_both(_LEFT, _LEFT)
_LISTED: Final = """select {columns} from {table} where {chosen} and ({order}) > ({behind})
    order by {order} limit :limit"""
LISTED: Final = _write_both(_LISTED, _LISTED)


@frozen
class ChooseLetters:
    """The dead letters of a channel that are meant.

    Attributes:
        queue: Messages, or replies.
        limit: So many are touched at most.
        ids: Those of these ids; None for any.
        error: Those whose error has this in it; None for any.
        since_us: Those that were stored at this time or later.
        until_us: Those that were stored before.
    """

    channel: str
    queue: LeasedQueue[Any, Any]
    limit: int
    ids: tuple[str, ...] | None = None
    error: str | None = None
    since_us: int = 0
    until_us: int = 1 << 62


@frozen
class Chosen:
    """The ids of the letters that were touched, and how many more of the same choice there are."""

    ids: tuple[str, ...]
    left: int


@frozen
class CountChosen(ReadUnit[int]):
    """The number of letters that are meant, beyond `limit` as well."""

    chosen: ChooseLetters

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield one count."""
        chosen = self.chosen
        count = LEFT[chosen.queue.table]
        ((found,),) = yield count.of(chosen, ids=text_array(dialect, chosen.ids))
        return int(found)


@frozen
class ListChosen(ReadUnit[tuple[Any, ...]]):
    """The letters that are meant, as rows of their queue: the oldest `limit` behind `after`.

    Attributes:
        after: The place of a row, as `LeasedQueue.place` gives it; None for the beginning.
    """

    chosen: ChooseLetters
    after: Sequence[int | str] | None = None

    def statements(self, dialect: Dialect) -> Statements[tuple[Any, ...]]:
        """Yield one read."""
        chosen, queue = self.chosen, self.chosen.queue
        beginning = (*(-1 for _ in queue.order[1:]), "")
        columns = (f"after_{column}" for column in queue.order)
        place = dict(zip(columns, self.after or beginning, strict=True))
        ids = text_array(dialect, chosen.ids)
        rows = yield LISTED[queue.table].of(chosen, ids=ids, **place)
        return tuple(queue.row(*row) for row in rows)


@frozen
class RetryLetters(Unit[Chosen]):
    """Take letters out of the dead ones for one attempt more.

    With a part of an answer come the others that are dead.  Where the channel is held, it is tried
    again at once.
    """

    chosen: ChooseLetters

    def statements(self, dialect: Dialect) -> Statements[Chosen | Undo[Chosen]]:
        """Look after a channel that is held; then yield updates, and one count."""
        probed = yield from probe_now(self.chosen.channel)
        done = yield from _touch(RETRY, self.chosen, dialect)
        return done.result if probed and isinstance(done, Undo) else done


@frozen
class DiscardLetters(Unit[Chosen]):
    """Give letters up: a message is done without an answer, a reply is deleted."""

    chosen: ChooseLetters

    def statements(self, dialect: Dialect) -> Statements[Chosen | Undo[Chosen]]:
        """Yield one change and one count."""
        return (yield from _touch(DISCARD, self.chosen, dialect))


def _touch(
    by_table: Mapping[str, Sql], chosen: ChooseLetters, dialect: Dialect
) -> Statements[Chosen | Undo[Chosen]]:
    ids = text_array(dialect, chosen.ids)
    rows = yield by_table[chosen.queue.table].of(chosen, ids=ids)
    if not rows:
        return Undo(Chosen((), 0))
    touched = {name for (name,) in rows}
    if by_table is RETRY and chosen.queue is OUTBOX:
        parts = text_array(dialect, sorted(touched))
        touched.update(name for (name,) in (yield PARTS(channel=chosen.channel, ids=parts)))
    ((left,),) = yield LEFT[chosen.queue.table].of(chosen, ids=ids)
    return Chosen(tuple(sorted(touched)), left)


FETCH: Final = Sql("select state from outbox where channel = :channel and idempotency_key = :key")


@frozen
class FetchReply(ReadUnit[str | None]):
    """The state of a reply, None where there is no such."""

    channel: str
    key: str

    def statements(self, dialect: Dialect) -> Statements[str | None]:
        """Yield one read."""
        rows = yield FETCH.of(self)
        return rows[0][0] if rows else None
