"""Units of work: what one transaction does, as a frozen value.

The statements of a unit come from a pure generator: it yields a `Statement`, is sent the rows,
and returns the unit's result.  The host runs all of it in one transaction and one thread hop; if
the generator returns `Undo(result)`, or raises, the transaction is rolled back.  The host may run
a unit again after a serialization failure, so `statements` starts anew at every call.

Contract with a host (`legation_host` holds the other half):

* a unit with `writes = True` runs in a transaction that may write, serialized as the engine does;
* a unit with `writes = False` sees one consistent snapshot and writes nothing;
* `exclusive = True` holds the database's migration lock for the length of the transaction, or
  fails with `failures.Busy` without waiting;
* the parameters of a statement are names, or on SQLite numbers (`Numbered`);
* a unit may yield several statements as a tuple, of which none needs the rows of another: they are
  carried out in their order, and the generator is sent the rows of each;
* a host far from its engine may carry out a statement that is `silent` along with the next one, and
  the end of the transaction along with one that is `closing`;
* `long = True` is for a read whose time grows with what is stored, or whose rows are large: a host
  that reads on the thread of its event loop performs it elsewhere, and few of them at once;
* `erases = True` is the end of an erasure: behind its commit the log of the engine is emptied,
  where that is a file of the host;
* `needs_schema = False` is for the units of migrations, which run on whatever schema there is;
* an error of the engine ends the unit: it is not thrown into the generator;
* an `Exception` that the generator raises rolls back, and is thrown as it is into the program that
  asked, as a `StoreFailure` is: a unit that fails, alone or in a group, fails for its caller alone.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from attrs import field

from ..values import define, frozen

__all__ = [
    "NO_ROWS",
    "Dialect",
    "Numbered",
    "ReadUnit",
    "Rows",
    "Sql",
    "Statement",
    "Statements",
    "Undo",
    "Unit",
    "Work",
    "all_sql",
    "along",
    "text_array",
]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Dialect(Enum):
    """The engines the core speaks to."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


Rows: TypeAlias = Sequence[tuple[Any, ...]]
"""The rows of one statement, empty when it returns none.

Both engines answer alike: integers, text, bytes and None; JSON columns arrive as text.
"""

NO_ROWS: Final[Rows] = ()

_NAMED: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b")
_CHANGES: Final = ("insert ", "update ", "delete ")
_REGISTERED: Final[list[Sql]] = []


def _psycopg_text(text: str) -> str:
    """Turn `:name` into the `%(name)s` of psycopg and double what it would read as its own."""
    return _NAMED.sub(r"%(\1)s", text.replace("%", "%%").replace("instr(", "strpos("))


def _number(text: str, names: tuple[str, ...]) -> str:
    """Turn each `:name` into its number among `names`."""
    numbers = {name: f"?{number}" for number, name in enumerate(names, 1)}
    return _NAMED.sub(lambda found: numbers[found[1]], text)


@frozen(eq=False)
class Sql:
    """One statement of the core, in the text of each engine.

    Parameters are written `:name`; `names` has them in the order of the text.  `postgresql` is
    given where the dialects differ in more than `instr`, which is `strpos` there.  Every instance
    registers itself, so that a test can prepare all of them against the real schema; what changes
    the schema cannot be prepared against it, and says `registered=False`.

    `unread` says of a statement with rows that no unit looks at them.  `numbered` is the text for
    SQLite in which each name is its number in `names`: SQLite looks for a name among all of them,
    so that many cost their square, and `sqlite3` gives up the GIL for each (`bind_parameters`).

    The text for an engine is made when it is asked for first: a process carries out few of all
    statements, and on one engine.
    """

    text: str
    postgresql: str | None = None
    registered: bool = field(default=True, kw_only=True, repr=False)
    unread: bool = field(default=False, kw_only=True, repr=False)
    numbered: str = field(init=False, repr=False)
    psycopg_text: str = field(init=False, repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)
    _getters: dict[tuple[str, ...], _Getter] = field(
        factory=dict[tuple[str, ...], "_Getter"], init=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        if self.registered:
            _REGISTERED.append(self)

    if TYPE_CHECKING:
        pass  # a checker knows the fields
    else:

        def __getattr__(self, name: str) -> Any:
            """Return the field `name`, which is made now.

            Raises:
                AttributeError: There is none of that name.
            """
            if name not in _MADE_LATE:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            value = _MADE_LATE[name](self)
            object.__setattr__(self, name, value)
            return value

    @property
    def sqlite_text(self) -> str:
        """The text for SQLite."""
        return self.text

    @property
    def silent(self) -> bool:
        """Whether it answers with no rows on PostgreSQL, or with none that anybody looks at."""
        text = (self.postgresql or self.text).lower()
        return self.unread or (text.startswith(_CHANGES) and "returning" not in text)

    def __call__(self, **parameters: Any) -> Statement:
        """Return the statement with these parameters."""
        return Statement(self, parameters)

    def of(self, value: object, **others: Any) -> Statement:
        """Return the statement with the fields of `value` as parameters, but for `others`."""
        given = tuple(others)
        getter = self._getters.get(given)
        if getter is None:
            getter = self._getters[given] = _make_getter(self.names, given)
        if getter.spare:
            others = {name: others[name] for name in given if name not in getter.spare}
        found = zip(getter.names, getter.read(value), strict=False)
        return Statement(self, dict(found) | others)


@frozen
class _Getter:
    """Reads the parameters of a statement that are fields of a value, beside those that are given.

    Attributes:
        names: Those of the fields, and `read` gets their values in this order, and of a few more.
        spare: What is given and no parameter.
    """

    names: tuple[str, ...]
    read: Callable[[object], tuple[Any, ...]]
    spare: frozenset[str]


def _make_getter(names: tuple[str, ...], given: tuple[str, ...]) -> _Getter:
    own = tuple(name for name in names if name not in given)
    return _Getter(own, attrgetter(*own, *_UNREAD[len(own) :]), frozenset(given) - {*names})


_UNREAD: Final = ("__class__", "__class__")
"""Names that anything has: `attrgetter` returns a tuple of two or more."""


_MADE_LATE: Final[Mapping[str, Callable[[Sql], Any]]] = {
    "names": lambda sql: tuple(dict.fromkeys(_NAMED.findall(sql.text))),
    "numbered": lambda sql: _number(sql.text, sql.names),
    "psycopg_text": lambda sql: _psycopg_text(sql.postgresql or sql.text),
}


# Made for every statement, and never changed: `frozen` would make it in twice the time.
@define
class Statement:
    """A text and its parameters, by name."""

    sql: Sql
    parameters: Mapping[str, Any] = field(factory=dict[str, Any])

    def text(self, dialect: Dialect) -> str:
        """Return the text that the driver of `dialect` takes."""
        return self.sql.sqlite_text if dialect is Dialect.SQLITE else self.sql.psycopg_text


@define(eq=False)  # as every mapping: by what it maps
class Numbered(Mapping[str, Any]):
    """The parameters of a text for SQLite that numbers them: `?1` and up, without a gap.

    `row` can be given to it as it is.
    """

    row: tuple[Any, ...]

    def __getitem__(self, name: str) -> Any:
        """Return the parameter whose number is `name`."""
        return dict(zip(self, self.row, strict=True))[name]

    def __iter__(self) -> Iterator[str]:
        """Yield the numbers."""
        return map(str, range(1, len(self.row) + 1))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.row)


Statements: TypeAlias = Generator[Statement, Rows, R]
"""What yields one statement after the other, and is sent the rows of each."""

Work: TypeAlias = Generator[Statement | tuple[Statement, ...], Rows, R]
"""What yields several statements at once as well: it is sent a sequence with the rows of each."""


@frozen
class Undo(Generic[R_co]):
    """Returned by a unit's generator: roll back, and hand `result` to the program."""

    result: R_co


class Unit(ABC, Generic[R]):
    """Base of the units of work.  Subclasses are frozen attrs classes: equal by value."""

    __slots__ = ()

    writes: ClassVar[bool] = True
    exclusive: ClassVar[bool] = False
    long: ClassVar[bool] = False
    erases: ClassVar[bool] = False
    needs_schema: ClassVar[bool] = True
    closing: ClassVar[frozenset[Sql]] = frozenset()
    """Behind one of these the unit yields no other, raises nothing, and keeps what was done."""

    @abstractmethod
    def statements(self, dialect: Dialect) -> Work[R | Undo[R]]:
        """Yield the statements of one transaction; return its result."""


class ReadUnit(Unit[R]):
    """Base of the units that read one snapshot and write nothing."""

    __slots__ = ()

    writes: ClassVar[bool] = False


def along(work: Work[R], statement: Statement) -> Work[tuple[R, Rows]]:
    """Yield what `work` yields, and `statement` together with the first of it.

    Return the result of `work`, and the rows of `statement`.
    """
    try:
        try:
            first = next(work)
        except StopIteration as stop:
            return stop.value, (yield statement)
        batch = first if isinstance(first, tuple) else (first,)
        *found, rows = yield (*batch, statement)
        answer: Any = found if batch is first else found[0]
        while True:
            try:
                asked = work.send(answer)
            except StopIteration as stop:
                return stop.value, rows
            answer = yield asked
    finally:
        work.close()


def all_sql() -> Iterable[Sql]:
    """Return every statement the imported modules of the core have written."""
    return tuple(_REGISTERED)


def text_array(dialect: Dialect, texts: Sequence[str] | None) -> str | list[str] | None:
    """Return `texts` as the parameter that stands for a list: JSON on SQLite."""
    if texts is None:
        return None
    return json.dumps(texts) if dialect is Dialect.SQLITE else list(texts)
