"""The pruning of tables that belong to no session: each is read along its primary key.

No index says what is old in them, and none is kept for it.  A bite looks at so many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ..values import frozen
from .periods import Kind
from .run_rows import DAY_US
from .units import Dialect, Sql, Statements

__all__ = [
    "ANY_SCANNED",
    "BITE_ROWS",
    "START",
    "TABLE_BITERS",
    "Bite",
    "Biter",
    "Old",
    "Place",
]

Place: TypeAlias = tuple[str | int, ...]
"""A place in a table: the columns of an index or of the key, of the row that was looked at last."""

START: Final[Place] = ()

BITE_ROWS: Final = 1_000
"""How many rows a bite looks at."""


@frozen
class Old:
    """Data from before `before_us` is old; it is `now_us`."""

    before_us: int
    now_us: int


@frozen
class Bite:
    """The outcome of a bite: how many went, and where to go on; None where all was looked at."""

    pruned: int
    place: Place | None


Biter: TypeAlias = Callable[[Dialect, Old, Place], Statements[Bite]]


@frozen
class _Table:
    """A table that is read along its key.

    Attributes:
        key: The columns of its primary key, each with what comes before all of its values.
        old: The condition under which a row goes.
    """

    name: str
    key: Mapping[str, str | int]
    old: str

    def write(self) -> dict[str, Sql]:
        """Return the statements: the end of a bite, the deletion up to it and of all the rest."""
        names = ", ".join(self.key)
        behind = f"({names}) > ({', '.join(f':{name}' for name in self.key)})"
        upto = f"({names}) <= ({', '.join(f':last_{name}' for name in self.key)})"
        first = next(iter(self.key))
        deletion = f"delete from {self.name} where {behind} and {self.old}"
        return {
            "end": Sql(
                f"""select {names} from {self.name} where {behind}
                order by {names} limit 1 offset :size"""
            ),
            "upto": Sql(f"{deletion} and {upto} returning {first}"),
            "rest": Sql(f"{deletion} returning {first}"),
            "count": Sql(f"select count(*) from {self.name} where {self.old}"),
        }


_BEFORE: Final = "cast(:before_us as bigint)"
_INBOX: Final = {"channel": "", "message_id": ""}
_OUTBOX: Final = {"channel": "", "idempotency_key": ""}
# A message stays as long as a reply to it waits, whose session is found by it.
_ANSWERED: Final = """state = 'done' and done_us < :before_us and not exists (
    select 1 from outbox o where o.channel = inbox.channel and o.message_id = inbox.message_id
    and o.state = 'ready')"""
_SCANNED: Final[Mapping[Kind, tuple[_Table, ...]]] = {
    Kind.MESSAGES: (
        _Table("inbox", _INBOX, _ANSWERED),
        _Table("outbox", _OUTBOX, "state = 'sent' and sent_us < :before_us"),
    ),
    Kind.DEAD_LETTERS: (
        _Table("inbox", _INBOX, "state = 'dead' and received_us < :before_us"),
        _Table("outbox", _OUTBOX, "state = 'dead' and created_us < :before_us"),
    ),
    Kind.ANSWERS: (
        _Table("idempotency", {"owner": "", "route": "", "key": ""}, "expires_us < :now_us"),
    ),
    Kind.INCIDENTS: (_Table("incidents", {"incident_id": ""}, "at_us < :before_us"),),
    Kind.COUNTERS: (
        _Table(
            "refusals",
            {"minute": -1, "client": "", "route": "", "status": -1},
            f"minute < {_BEFORE} / 60000000",
        ),
        _Table("usage", {"subject": ""}, f"bytes = 0 and day < {_BEFORE} / {DAY_US}"),
    ),
}
ANY_SCANNED: Final = {
    kind: {number: table.write() for number, table in enumerate(tables)}
    for kind, tables in _SCANNED.items()
}


def _bite_tables(kind: Kind) -> Biter:
    """Return what deletes old rows of the tables of `kind`.

    A place is the number of the table, and a key in it.
    """
    tables, statements = _SCANNED[kind], ANY_SCANNED[kind]

    def bite(dialect: Dialect, old: Old, place: Place) -> Statements[Bite]:
        number = int(place[0]) if place else 0
        table, sql = tables[number], statements[number]
        behind = dict(zip(table.key, place[1:], strict=True)) if place else table.key
        ends = yield sql["end"](**behind, size=BITE_ROWS - 1)
        if ends:
            last = {f"last_{name}": value for name, value in zip(table.key, ends[0], strict=True)}
            rows = yield sql["upto"].of(old, **behind, **last)
            return Bite(len(rows), (number, *ends[0]))
        rows = yield sql["rest"].of(old, **behind)
        further = number + 1
        more = (further, *tables[further].key.values()) if further < len(tables) else None
        return Bite(len(rows), more)

    return bite


TABLE_BITERS: Final[Mapping[Kind, Biter]] = {kind: _bite_tables(kind) for kind in _SCANNED}
"""By kind: what prunes a bite of its tables."""
