"""Pages of sessions, bounded in rows and in bytes, and rendered where they are read.

As with runs (`run_pages`): the keys of a list are found first, then how long each session is, and
then they are read, as many at a time as are short enough together; at least one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Generic, TypeAlias, TypeVar

from attrs import evolve, field

from ..values import frozen
from .run_pages import count_fitting
from .session_counts import KeepSessionCount, count_sessions
from .sessions import SESSION_COLUMNS, SessionRow, to_session
from .units import Dialect, ReadUnit, Sql, Statement, Statements

__all__ = ["ANY_COUNT", "ListSessions", "SessionPlace", "SessionsPage"]

R = TypeVar("R")

_SIZED: Final = 32
"""How many sessions are measured at once: SQLite has to read them for that."""

SessionPlace: TypeAlias = tuple[int, str, str]
"""The place of a session in a list: the time that orders it, its id, its owner."""

# What a page may be narrowed by.  A condition stands in the text only where it is asked for, so
# that an index serves the rest: `count` reads nothing else, and the keys of a page far back are
# found before its rows are read.
_KIND: Final = "kind = :kind"
_OWNED: Final = f"owner = :owner and {_KIND}"
_COMPONENT: Final = " and component_id = :component"
_NAMED: Final = " and lower(name) like :name escape '\\'"
_ONLY: Final = " and session_id = :only"
_NARROWED: Final = {
    (component, named, only): _COMPONENT * component + _NAMED * named + _ONLY * only
    for component in (False, True)
    for named in (False, True)
    for only in (False, True)
}
_ORDERS: Final = tuple(
    (column, order) for column in ("created_us", "updated_us") for order in ("asc", "desc")
)
_BEGINNINGS: Final[Mapping[str, SessionPlace]] = {
    "asc": (-1, "", ""),
    "desc": ((1 << 63) - 1, "", ""),
}


def _page(where: str, column: str, order: str) -> Sql:
    behind = ">" if order == "asc" else "<"
    return Sql(
        f"""select {column}, session_id, owner from sessions where {where}
        and ({column}, session_id, owner) {behind} (:at, :session_id, :behind_owner)
        order by {column} {order}, session_id {order}, owner {order} limit :most offset :start"""
    )


def _pages(where: str) -> Mapping[tuple[object, ...], Sql]:
    return {
        (*narrowed, *by): _page(where + more, *by)
        for narrowed, more in _NARROWED.items()
        for by in _ORDERS
    }


def _counts(where: str) -> Mapping[tuple[object, ...], Sql]:
    return {
        narrowed: Sql(f"select count(*) from sessions where {where}{more}")
        for narrowed, more in _NARROWED.items()
    }


LIST: Final = _pages(_OWNED)
COUNT: Final = _counts(_OWNED)
ANY_LIST: Final = _pages(_KIND)
ANY_COUNT: Final = _counts(_KIND)


_SQLITE_KEYS: Final = """(owner, session_id) in (
    select json_extract(value, '$[2]'), json_extract(value, '$[1]') from json_each(:keys))"""
_POSTGRESQL_KEYS: Final = """(owner, session_id) in (
    select k.owner, k.session_id
    from unnest(cast(:owners as text[]), cast(:ids as text[])) as k (owner, session_id))"""


def _measure(length: str) -> str:
    """Return the bytes of the documents of a session."""
    documents = (length.format(name) for name in ("state", "metadata", "summary"))
    return " + ".join(f"coalesce({one}, 0)" for one in documents)


_MEASURED: Final = "select owner, session_id, {} from sessions where {}"
# Of keys that the same list has found before, for its owner.
ANY_MEASURE: Final = Sql(
    _MEASURED.format(_measure("length(cast({} as blob))"), _SQLITE_KEYS),
    _MEASURED.format(_measure("octet_length({})"), _POSTGRESQL_KEYS),
)
_LAST_STATUS: Final = """(
    select status from runs where runs.owner = sessions.owner
    and runs.session_id = sessions.session_id and runs.parent_run_id is null
    order by runs.run_no desc limit 1)"""
_READ: Final = f"select {SESSION_COLUMNS}, {_LAST_STATUS} from sessions where"
ANY_READ: Final = Sql(f"{_READ} {_SQLITE_KEYS}", f"{_READ} {_POSTGRESQL_KEYS}")


@frozen
class SessionsPage(Generic[R]):
    """A page of sessions as they were rendered.

    Attributes:
        items: In the order that was asked for.
        following: Reads what is left of the list; None at its end.
        total: How many sessions there are in all; of the first page alone.
        last: The place of the last session of the list; None where it is empty.
        more: Whether there are sessions behind the list, which is as long as was asked for.
        keep: Makes the next count of these sessions quick; None where this one was.
    """

    items: tuple[R, ...]
    following: ListSessions[R] | None
    total: int = 0
    last: SessionPlace | None = None
    more: bool = False
    keep: KeepSessionCount | None = None


@frozen
class ListSessions(ReadUnit[SessionsPage[R]], Generic[R]):
    """Sessions of `owner`, newest first or as asked, each as `render` gives it.

    `name` matches a part of the name, in any case of ASCII letters.  `any_owner` is for callers
    who see all owners; then `owner` None means all.

    Attributes:
        size: How many sessions the list has at most.
        start: How many are passed over before.
        behind: The place behind which the list begins.
        only: The id of the one session that the caller may see.
        keys: The places of those that are left to be read, once that is known.
        sizes: Of the first of these, in bytes.
    """

    long: ClassVar[bool] = True

    owner: str | None
    kind: str
    render: Callable[[SessionRow], R] = field(repr=False)
    component_id: str | None = None
    name: str | None = None
    size: int = 20
    start: int = 0
    behind: SessionPlace | None = None
    sort_by: str = "created_us"
    order: str = "desc"
    any_owner: bool = False
    only: str | None = None
    keys: tuple[SessionPlace, ...] | None = None
    sizes: tuple[int, ...] = ()

    def statements(self, dialect: Dialect) -> Statements[SessionsPage[R]]:
        """Yield the count and what finds the keys, at first; then what measures and reads rows."""
        keys, total, more, keep = self.keys, 0, False, None
        if keys is None:
            total, keep = yield from self._count()
            found = yield from self._find()
            keys, more = found[: self.size], len(found) > self.size
        if not keys:
            return SessionsPage((), None, total, keep=keep)
        last, sizes = keys[-1], self.sizes
        if not sizes:
            measured = yield _ask(ANY_MEASURE, dialect, keys[:_SIZED])
            lengths = {tuple(key): size for *key, size in measured}
            sizes = tuple(lengths.get((owner, name), 0) for _, name, owner in keys[:_SIZED])
        count = count_fitting(sizes)
        rows = yield _ask(ANY_READ, dialect, keys[:count])
        there = {(row.owner, row.session_id): row for row in map(to_session, rows)}
        wanted = [there.get((owner, name)) for _, name, owner in keys[:count]]
        left = keys[count:]
        following = evolve(self, keys=left, sizes=sizes[count:]) if left else None
        items = tuple(self.render(row) for row in wanted if row is not None)
        return SessionsPage(items, following, total, last, more, keep)

    def _count(self) -> Statements[tuple[int, KeepSessionCount | None]]:
        """Return how many there are in all, and what keeps that for the next list."""
        keep = None
        if self.owner is not None and not any(self._narrowed):
            total = yield from count_sessions(self.owner, self.kind)
            if total is not None:
                return total, None
            keep = KeepSessionCount(self.owner, self.kind)
        ((total,),) = yield (ANY_COUNT if self._everybody else COUNT)[self._narrowed](
            **self._matching
        )
        return total, keep

    def _find(self) -> Statements[tuple[SessionPlace, ...]]:
        """Return the places of one more than the list has."""
        at, session_id, owner = self.behind or _BEGINNINGS[self.order]
        place = {"at": at, "session_id": session_id, "behind_owner": owner}
        lists = ANY_LIST if self._everybody else LIST
        rows = yield lists[(*self._narrowed, self.sort_by, self.order)](
            **self._matching, **place, most=self.size + 1, start=self.start
        )
        return tuple((at, session_id, owner) for at, session_id, owner in rows)

    @property
    def _everybody(self) -> bool:
        return self.any_owner and self.owner is None

    @property
    def _narrowed(self) -> tuple[bool, bool, bool]:
        return self.component_id is not None, self.name is not None, self.only is not None

    @property
    def _matching(self) -> Mapping[str, str | None]:
        return {
            "owner": self.owner,
            "kind": self.kind,
            "component": self.component_id,
            "name": None if self.name is None else _pattern(self.name),
            "only": self.only,
        }


def _ask(sql: Sql, dialect: Dialect, keys: tuple[SessionPlace, ...]) -> Statement:
    """Return the statement `sql` for the sessions of `keys`."""
    if dialect is Dialect.SQLITE:
        return sql(keys=json.dumps(keys))
    return sql(owners=[owner for _, _, owner in keys], ids=[one for _, one, _ in keys])


def _pattern(part: str) -> str:
    """Return the LIKE pattern for `part`, its own wildcards escaped."""
    escaped = part.lower()
    for special in ("\\", "%", "_"):
        escaped = escaped.replace(special, "\\" + special)
    return f"%{escaped}%"
