"""Counts of requests that were refused and nobody is known for: by minute, client, route, status.

They are no part of the audit trail: whoever asks without a token may do so as often as the network
takes, from as many addresses as it likes.  So the table is bounded whatever comes in, for all
processes of a database together, and is the fuller the less often that happens:

* a minute gets 50 rows, and a third of what is left of 3,000 more for an hour; at most 1,000;
* beyond, the clients refused most often have a row, and all others share one;
* rows of more than 30 days go, or as many as the configuration says, and the oldest where there
  are more than 100,000.

A minute is that since the epoch, UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from ..values import frozen
from .units import Dialect, ReadUnit, Sql, Statements, Unit

__all__ = [
    "NOWHERE",
    "OTHERS",
    "REFUSAL_DAYS",
    "AddRefusals",
    "ListRefusals",
    "RefusalCount",
    "RefusalPlace",
    "choose_rows",
    "shorten",
]

OTHERS: Final = "others"
"""The client of the row that stands for all that have none; its status is 0."""

NOWHERE: Final = "*"
"""The route of a request that leads nowhere, or to no method: no text of a caller is a route."""

MINUTE_ROWS: Final = 1_000
HOUR_ROWS: Final = 6_000
_EVER: Final = 50
_MORE: Final = HOUR_ROWS - 60 * _EVER
_SHARE: Final = 3
_HOUR: Final = 60
REFUSAL_DAYS: Final = 30
MOST_ROWS: Final = 100_000


@frozen
class RefusalCount:
    """The refusals of one minute, client, route and status."""

    minute: int
    client: str
    route: str
    status: int
    count: int


_Kind: TypeAlias = tuple[str, str, int]


def choose_rows(
    counted: Iterable[RefusalCount], rows: Mapping[int, int], known: frozenset[tuple[int, _Kind]]
) -> tuple[RefusalCount, ...]:
    """Return the rows to add, sorted by their key; what has no room is in the row of the others.

    Args:
        counted: What was counted.
        rows: How many there are by minute, from an hour before the first of `counted`.
        known: Those of `counted` that have a row.
    """
    found = dict(rows)
    minutes: dict[int, list[RefusalCount]] = {}
    for one in counted:
        minutes.setdefault(one.minute, []).append(one)
    chosen: list[RefusalCount] = []
    for minute in sorted(minutes):
        more = sum(max(found.get(minute - past, 0) - _EVER, 0) for past in range(1, _HOUR))
        most = min(_EVER + max(_MORE - more, 0) // _SHARE, MINUTE_ROWS)
        room = max(most - found.get(minute, 0), 0)
        others = 0
        fresh: list[RefusalCount] = []
        for one in minutes[minute]:
            if not one.status:
                others += one.count
            elif (minute, _kind(one)) in known:
                chosen.append(one)
            else:
                fresh.append(one)
        fresh.sort(key=_rank)
        chosen += fresh[:room]
        found[minute] = found.get(minute, 0) + len(fresh[:room])
        others += sum(one.count for one in fresh[room:])
        if others:
            chosen.append(RefusalCount(minute, OTHERS, NOWHERE, 0, others))
    return tuple(sorted(chosen, key=_key))


def shorten(counted: Iterable[RefusalCount], most: int) -> tuple[RefusalCount, ...]:
    """Return the greatest of `counted`, and what all others are together; `most` in all."""
    ranked = sorted(counted, key=_rank)
    first, rest = ranked[: most - 1], ranked[most - 1 :]
    if len(rest) > 1:
        others = sum(one.count for one in rest)
        rest = [RefusalCount(max(one.minute for one in rest), OTHERS, NOWHERE, 0, others)]
    return (*first, *rest)


def _kind(one: RefusalCount) -> _Kind:
    return one.client, one.route, one.status


def _rank(one: RefusalCount) -> tuple[Any, ...]:
    return -one.count, _kind(one)


def _key(one: RefusalCount) -> tuple[Any, ...]:
    return one.minute, _kind(one)


# The room for rows is counted before they are added: on PostgreSQL by one after the other.  Who
# reads does not wait.
LOCK: Final = Sql("", "lock table refusals in share row exclusive mode", registered=False)
COUNT: Final = Sql(
    """select minute, count(*) from refusals
    where minute > :since and minute <= :last and status <> 0 group by minute"""
)
KNOWN: Final = Sql(
    """select minute, client, route, status from refusals
    where minute >= :first and minute <= :last and status <> 0"""
)
_ON_CONFLICT: Final = """on conflict (minute, client, route, status)
    do update set count = refusals.count + excluded.count"""
ADD: Final = Sql(
    f"""insert into refusals (minute, client, route, status, count)
    select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
        json_extract(value, '$[3]'), json_extract(value, '$[4]')
    from json_each(:rows) where true {_ON_CONFLICT}""",
    f"""insert into refusals (minute, client, route, status, count)
    select cast(value ->> 0 as bigint), value ->> 1, value ->> 2,
        cast(value ->> 3 as bigint), cast(value ->> 4 as bigint)
    from json_array_elements(cast(:rows as json)) as rows (value) {_ON_CONFLICT}""",
)
FORGET_OLD: Final = Sql("delete from refusals where minute < :oldest")
FORGET_MANY: Final = Sql(
    """delete from refusals where minute <= (
        select minute from refusals order by minute desc limit 1 offset :most)"""
)


@frozen
class AddRefusals(Unit[None]):
    """Add what was counted to the rows there are; with `forgets`, delete what is too old or much.

    `counted` is not empty, and has one entry for each minute, client, route and status.
    """

    counted: tuple[RefusalCount, ...]
    forgets: bool = False
    days: int = REFUSAL_DAYS

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield the looks at what there is, and the rows."""
        first, last = (find(one.minute for one in self.counted) for find in (min, max))
        if dialect is Dialect.POSTGRESQL:
            yield LOCK()
        rows: dict[int, int] = dict((yield COUNT(since=first - _HOUR, last=last)))
        known: frozenset[tuple[int, _Kind]] = frozenset()
        if any(one.minute in rows for one in self.counted):
            stored = yield KNOWN(first=first, last=last)
            known = frozenset((row[0], (row[1], row[2], row[3])) for row in stored)
        chosen = choose_rows(self.counted, rows, known)
        values = [(one.minute, one.client, one.route, one.status, one.count) for one in chosen]
        yield ADD(rows=json.dumps(values))
        if self.forgets:
            yield FORGET_OLD(oldest=last - self.days * 24 * _HOUR)
            yield FORGET_MANY(most=MOST_ROWS)


@frozen
class RefusalPlace:
    """A place in the order of minute, client, route and status."""

    minute: int
    client: str = ""
    route: str = ""
    status: int = 0


def _list_statement(collate: str) -> str:
    """Return the statement of one page: by bytes on both engines."""
    client, route = f"client{collate}", f"route{collate}"
    return f"""select minute, client, route, status, count from refusals
        where minute >= :since and minute <= :minute
        and (minute, {client}, {route}, status) < (:minute, :client, :route, :status)
        and (cast(:only as text) is null or client = :only)
        order by minute desc, {client} desc, {route} desc, status desc limit :size"""


LIST: Final = Sql(_list_statement(""), _list_statement(' collate "C"'))


@frozen
class ListRefusals(ReadUnit[tuple[RefusalCount, ...]]):
    """At most `size` rows before `place` and not before the minute `since`, the newest first.

    `only` names a client; None is every one.
    """

    place: RefusalPlace
    since: int
    size: int
    only: str | None = None

    def statements(self, dialect: Dialect) -> Statements[tuple[RefusalCount, ...]]:
        """Yield one read."""
        place = self.place
        rows = yield LIST.of(
            self,
            minute=place.minute,
            client=place.client,
            route=place.route,
            status=place.status,
        )
        return tuple(RefusalCount(*row) for row in rows)
