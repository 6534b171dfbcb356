"""Leased queues: tables of items that wait until a node has done with them.

The protocol.  An item is `ready` until it has come to its end or is `dead`.  No state is called
leased: leased means that there is a `lease_us` and the node that `lease_by` names lives (`leases`).

* *Claim is rescue.*  One statement takes what is ready and what a dead node left behind alike.
  A node that does not stand among the others claims nothing: its lease would have lapsed at once.
* *Fencing.*  Every claim counts `attempts` up, and every later statement asks for the same node
  and the same number.  Whoever lost the lease changes nothing and learns it from the result.
* *Lanes.*  Only the oldest ready item of a lane may be claimed, and none while another one of that
  lane is leased; so an item that waits for its next attempt holds up the later ones of its lane,
  and no others.

On PostgreSQL claims take turns (a transaction-scoped advisory lock): otherwise two statements
that began at once, one of which cannot see an item stored in between, could lease two items of
one lane.  Whoever finds nothing to claim does not take that lock: nodes look every second, and most
of the time in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from attrs import AttrsInstance, fields

from ..values import frozen
from .leases import FOREVER, fill_clock, has_lapsed, is_due, is_held
from .units import Dialect, ReadUnit, Sql, Statement, Statements, Unit, text_array

__all__ = [
    "STANDS",
    "ClaimItems",
    "ClaimedItem",
    "ClaimedItems",
    "CompleteItem",
    "CountItems",
    "FailItem",
    "ForgetItems",
    "ItemKey",
    "Lease",
    "LeasedQueue",
    "ListItems",
    "ListLeases",
    "NextDue",
    "QueueDepth",
    "ReleaseLeases",
]

C = TypeVar("C", bound="ClaimedItem")
R = TypeVar("R", bound=AttrsInstance)

STANDS: Final = "exists (select 1 from nodes where nodes.node_id = :node)"
"""The condition of a claim that its node is there."""

_FREE: Final = "lease_by = null, lease_us = null"


class LeasedQueue(Generic[C, R]):
    """A table of items under leases, and the statements on it.

    Attributes:
        held: The condition under which an item is changed: that the lease is not lost.
        order: The columns from the oldest item to the youngest, the one that names it last.
        columns: Those of a row as an operator sees it.
        place: Returns where such a row stands in the order.
    """

    def __init__(  # noqa: PLR0913  every one but the table is named at the call
        self,
        table: str,
        *,
        order: tuple[str, ...],
        end: str,
        claim: Sql,
        due: Sql,
        claimed: Callable[..., C],
        row: type[R],
        lock: int,
        buried: str = "",
        ended: str = "",
        counted: str = "attempts",
        follow: Callable[[str, str], Statement] | None = None,
    ) -> None:
        """Write the statements.

        Args:
            end: The state of what is done with; the column `<end>_us` says since when.
            claim: Returns the values of a `Lease`, then those of `claimed`.
            due: Returns when the next item may be claimed: the oldest of a lane, when it is ready
                and the latest lease of its lane is over.
            claimed: Makes an item to work on, of its lease and those values.
            lock: The number of the advisory lock under which claims take turns.
            buried: What else is set where an item is given up.
            ended: What else is set where it is done with.
            counted: How many of the attempts count.
            follow: Buries what is given up with an item, of which it takes channel and name.
        """
        name, since = order[-1], order[0]
        self.table, self.order, self.name = table, order, name
        self.claim, self.due, self.claimed, self.row = claim, due, claimed, row
        self.place = attrgetter(*order)
        self.age = attrgetter(*order[:-1], "lease.key.item_id")
        self.follow = follow
        self.columns = ", ".join(field.name for field in fields(row))
        self.held = f"""where channel = :channel and {name} = :{name}
    and state = 'ready' and lease_by = :node and attempts = :attempts"""
        self.lock = Sql("select 1", f"select pg_advisory_xact_lock({lock})")
        done = f"state = '{end}', {end}_us = $CLOCK, {ended}error = null, {_FREE}"
        self._write_moves(done, f"state = 'dead', {buried}{_FREE}", counted)
        self._write_reads(since, ", ".join(order))
        self.any_idle = fill_clock(
            f"""select 1 from {table} where state = 'ready'
    and ((lease_us is null and {is_due(table)}) or {has_lapsed(table)}) limit 1"""
        )
        self.forget = fill_clock(
            f"""delete from {table} where (channel, {name}) in (
        select channel, {name} from {table}
        where state = '{end}' and {end}_us < $CLOCK - :kept_us limit :limit
    ) returning {name}"""
        )

    def _write_moves(self, done: str, dead: str, counted: str) -> None:
        change, returning = f"update {self.table} set", f"{self.held}\n    returning {self.name}"
        self.bury = fill_clock(
            f"""{change} {dead}, error = 'every attempt ended without an answer'
    where state = 'ready' and {has_lapsed(self.table)} and {counted} >= :max_attempts
    returning channel, {self.name}"""
        )
        self.release = Sql(f"{change} {_FREE} {returning}")
        self.complete = fill_clock(f"{change} {done} {returning}")
        self.fail = fill_clock(
            f"""{change} state = 'ready', ready_us = $CLOCK + :wait_us, error = :error, {_FREE}
    {returning}"""
        )
        self.give_up = fill_clock(f"{change} {dead}, error = :error {returning}")

    def _write_reads(self, since: str, by_order: str) -> None:
        rows = f"select {self.columns} from {self.table}"
        page = f"""{rows} where channel = :channel and state = :state
    {{after}} order by {" desc, ".join(self.order)} desc limit :limit"""
        after = f"and ({by_order}) < ({', '.join(f':{column}' for column in self.order)})"
        self.page, self.page_after = Sql(page.format(after="")), Sql(page.format(after=after))
        self.leased = Sql(
            f"""select channel, {self.name}, attempts from {self.table}
    where state = 'ready' and lease_us = {FOREVER} and lease_by = :node"""
        )
        self.count = fill_clock(
            f"""select channel, count(*) filter (where state = 'ready'),
    count(*) filter (where state = 'ready' and {is_held(self.table)}),
    count(*) filter (where state = 'dead'), min({since}) filter (where state = 'ready')
    from {self.table} where state in ('ready', 'dead') group by channel order by channel"""
        )

    def __repr__(self) -> str:
        return self.table.upper()


@frozen
class ItemKey:
    """The primary key of an item: the id of a message, or the idempotency key of a reply."""

    channel: str
    item_id: str


@frozen
class Lease:
    """The right to work on one item of `queue`: `attempts` is the fencing token."""

    queue: LeasedQueue[Any, Any]
    key: ItemKey
    node: str
    attempts: int

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `held`."""
        return {
            "channel": self.key.channel,
            self.queue.name: self.key.item_id,
            "node": self.node,
            "attempts": self.attempts,
        }


@frozen
class ClaimedItem:
    """Base of an item to work on: the lease under which to."""

    lease: Lease


@frozen
class ClaimedItems(Generic[C]):
    """The result of a claim: items to work on, and those that were given up."""

    items: tuple[C, ...] = ()
    buried: tuple[ItemKey, ...] = ()


@frozen
class QueueDepth:
    """The numbers of items of one channel, and when the oldest that waits was stored."""

    channel: str
    ready: int
    leased: int
    dead: int
    oldest_us: int | None


# --- to work -----------------------------------------------------------------------------------


@frozen
class ClaimItems(Unit[ClaimedItems[C]]):
    """Lease up to `limit` items for `node`: the oldest of each lane.

    An item whose `max_attempts` leases all lapsed kills whoever touches it: it is buried.
    With `channels`, those of others are left alone: another node knows them.  A node that is not
    there, or was taken for dead, gets nothing.
    """

    queue: LeasedQueue[C, Any]
    node: str
    limit: int
    max_attempts: int
    channels: tuple[str, ...] | None = None

    def statements(self, dialect: Dialect) -> Statements[ClaimedItems[C]]:
        """Bury what was tried too often without an end, then claim."""
        queue = self.queue
        if dialect is Dialect.POSTGRESQL:
            if not (yield queue.any_idle()):
                return ClaimedItems()
            yield queue.lock()
        dead = yield queue.bury.of(self)
        if queue.follow is not None:
            for key in dead:
                yield queue.follow(*key)
        rows = yield queue.claim.of(self, channels=text_array(dialect, self.channels))
        claimed = [
            queue.claimed(Lease(queue, ItemKey(channel, item_id), self.node, attempts), *rest)
            for channel, item_id, attempts, *rest in rows
        ]
        claimed.sort(key=queue.age)
        return ClaimedItems(tuple(claimed), tuple(ItemKey(*row) for row in dead))


@frozen
class CompleteItem(Unit[bool]):
    """The item is done with; False when the lease was lost."""

    lease: Lease

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        rows = yield self.lease.queue.complete.of(self, **self.lease.parameters())
        return bool(rows)


@frozen
class FailItem(Unit[bool]):
    """Try again after `wait_us`, or never when None; False when the lease was lost."""

    lease: Lease
    error: str
    wait_us: int | None

    def statements(self, dialect: Dialect) -> Statements[bool]:
        """Update under the lease."""
        queue = self.lease.queue
        statement = queue.give_up if self.wait_us is None else queue.fail
        rows = yield statement.of(self, **self.lease.parameters())
        return bool(rows)


@frozen
class ListLeases(ReadUnit[tuple[Lease, ...]]):
    """The leases of `node` on items of `queues`, whether or not a program works on them."""

    queues: tuple[LeasedQueue[Any, Any], ...]
    node: str

    def statements(self, dialect: Dialect) -> Statements[tuple[Lease, ...]]:
        """Read one queue after the other."""
        leases: list[Lease] = []
        for queue in self.queues:
            leases += [
                Lease(queue, ItemKey(channel, item_id), self.node, attempts)
                for channel, item_id, attempts in (yield queue.leased.of(self))
            ]
        return tuple(leases)


@frozen
class ReleaseLeases(Unit[int]):
    """Give `leases` back before their time, so that another node claims at once; how many."""

    leases: tuple[Lease, ...]

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Update one by one; `attempts` stays, for a fencing token never goes back."""
        released = 0
        for lease in self.leases:
            released += len((yield lease.queue.release(**lease.parameters())))
        return released


# --- to look after -----------------------------------------------------------------------------


@frozen
class ListItems(ReadUnit[tuple[R, ...]]):
    """The items of `channel` in `state`, newest first, behind `after`: the place of another."""

    queue: LeasedQueue[Any, R]
    channel: str
    state: str
    limit: int
    after: Sequence[int | str] | None = None

    def statements(self, dialect: Dialect) -> Statements[tuple[R, ...]]:
        """Read one page."""
        queue = self.queue
        if self.after is None:
            rows = yield queue.page.of(self)
        else:
            place = dict(zip(queue.order, self.after, strict=True))
            rows = yield queue.page_after.of(self, **place)
        return tuple(queue.row(*row) for row in rows)


@frozen
class CountItems(ReadUnit[tuple[QueueDepth, ...]]):
    """The depth of the queue in each channel that has an item waiting or dead."""

    queue: LeasedQueue[Any, Any]

    def statements(self, dialect: Dialect) -> Statements[tuple[QueueDepth, ...]]:
        """Count what is not done with."""
        rows = yield self.queue.count()
        return tuple(QueueDepth(*row) for row in rows)


@frozen
class NextDue(ReadUnit[int | None]):
    """The time at which the next item may be claimed, past or to come; None when none waits.

    With `channels`, those of others do not count.
    """

    queue: LeasedQueue[Any, Any]
    channels: tuple[str, ...] | None = None

    def statements(self, dialect: Dialect) -> Statements[int | None]:
        """Yield one read."""
        rows = yield self.queue.due.of(self, channels=text_array(dialect, self.channels))
        due_us: int | None = rows[0][0]
        return due_us


@frozen
class ForgetItems(Unit[int]):
    """Delete up to `limit` items that came to their end more than `kept_us` ago; how many."""

    queue: LeasedQueue[Any, Any]
    kept_us: int
    limit: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Delete one batch."""
        rows = yield self.queue.forget.of(self)
        return len(rows)
