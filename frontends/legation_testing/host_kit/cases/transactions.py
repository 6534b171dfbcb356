"""The rules of `Transact` and `Inspect`: units of work, on each of the two databases."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Generator
from typing import Any, Final, TypeAlias

from legation.effects import Concurrently, Inspect, Now, Program, Transact
from legation.store.failures import Busy, Conflict, StatementFailed, StoreFailure, WrongSchema
from legation.store.health import Inspection
from legation.store.units import (
    Dialect,
    Numbered,
    Statement,
    Statements,
    Undo,
    Unit,
    Work,
    text_array,
)

from ..bench import FIRST, PROMPT, SECOND, Bench, Broken, Case, ask, expect, require
from ..tables import (
    ADD,
    ALL,
    COUNT,
    GET,
    KEEP,
    KEPT,
    LIKE,
    MISSING,
    NAMED,
    NUMBERED,
    OWE,
    PUT,
    Add,
    Count,
    Get,
    Put,
    Scripted,
    ScriptedExclusive,
    ScriptedRead,
)

__all__ = ["CASES"]

_TEXTS: Final = ("", " ", "é\u0301 \U0001f600", "' \" \\ %s %(x)s :name ?1 ?", "a\nb\tc", "null")
_LONG_TEXT: Final = "ä" * 1_000_000

OnDatabase: TypeAlias = Callable[[Bench, str], Program[None]]


def _on_each(check: OnDatabase, dialect: Dialect | None = None) -> Callable[[Bench], None]:
    """Return a check of both databases, or of those that speak `dialect`."""

    def act(bench: Bench) -> None:
        for database in (FIRST, SECOND):
            if dialect in (None, bench.dialect(database)):
                try:
                    bench.run(check(bench, database))
                except Broken as broken:
                    engine = bench.dialect(database).value
                    raise Broken(f"{broken} (database {database}, {engine})") from broken

    return act


def _failure_of(database: str, unit: Unit[Any]) -> Program[Exception | None]:
    """Return what was thrown in at the transaction of `unit`, None if nothing was."""
    try:
        yield from Transact(database, unit)
    except Exception as error:  # noqa: BLE001  looked at by who asked
        return error
    return None


def _fails(what: str, database: str, unit: Unit[Any], kind: type[Exception]) -> Program[None]:
    """Hold `unit` to failing in this way, and the program to going on after it."""
    failure = yield from _failure_of(database, unit)
    expect(f"{what}: thrown in was", type(failure).__name__, kind.__name__)
    require((yield from Now()) > 0, f"{what}: the program could not go on")


def _holds(what: str, database: str, name: str, amount: int | None) -> Program[None]:
    """Hold the account to what is to be in it."""
    expect(what, (yield from Transact(database, Get(name))), amount)


# Results and parameters


def _stores(bench: Bench, database: str) -> Program[None]:
    name = bench.name("stored")
    expect("a unit returned", (yield from ask(Transact(database, Put(name, 7)))), None)
    expect("a unit returned", (yield from Transact(database, Add(name, 5))), 12)
    yield from _holds("what is stored", database, name, 12)
    expect("another process reads", bench.outside[database].run(Get(name)), 12)
    expect("a unit returned", (yield from Transact(database, Add(bench.name("none"), 1))), None)


def _reads_what_others_store(bench: Bench, database: str) -> Program[None]:
    for number in range(5):
        name = bench.name("theirs")
        yield from _holds("before it is stored", database, name, None)
        bench.outside[database].run(Put(name, number))
        yield from _holds("what another process has stored", database, name, number)


def _values(bench: Bench, database: str) -> Program[None]:
    data = bytes(range(256))
    amounts = (0, 2**31, 2**62)
    for text in _TEXTS:
        for amount in amounts:
            name = bench.name(text)
            row = (name, amount, '{"a": [1, null, "\u00e9"]}', data)

            def keep(_: Dialect, row: tuple[Any, ...] = row) -> Statements[list[Any]]:
                fields = dict(zip(("name", "amount", "note", "data"), row, strict=True))
                done = yield KEEP(**fields)
                kept = yield KEPT(name=row[0])
                none = yield KEPT(name=f"{row[0]} and none")
                return [len(done), *map(tuple, kept), len(none)]

            expect("rows", (yield from Transact(database, Scripted(keep))), [0, row, 0])


def _nulls(bench: Bench, database: str) -> Program[None]:
    name = bench.name("null")

    def keep(_: Dialect) -> Statements[Any]:
        yield KEEP(name=name, amount=1, note=None, data=None)
        return (yield KEPT(name=name))[0]

    expect("a row", tuple((yield from Transact(database, Scripted(keep)))), (name, 1, None, None))


def _literals(bench: Bench, database: str) -> Program[None]:
    name = bench.name("100 %")
    yield from Transact(database, Put(name, 3))

    def read(_: Dialect) -> Statements[Any]:
        return (yield LIKE(name=name))[0]

    row = yield from Transact(database, ScriptedRead(read))
    expect("a row of a text with % and : in it", tuple(row), ("100 %", "12:30", 3))


def _lists(bench: Bench, database: str) -> Program[None]:
    names = [bench.name("listed") for _ in range(50)]

    def put_and_read(dialect: Dialect) -> Statements[int]:
        for name in names:
            yield PUT(name=name, amount=1)
        return len((yield NAMED(names=text_array(dialect, names[10:]))))

    expect("rows for a list", (yield from Transact(database, Scripted(put_and_read))), 40)


def _together(bench: Bench, database: str) -> Program[None]:
    name = bench.name("together")

    def put_and_read(_: Dialect) -> Work[tuple[int, int]]:
        yield PUT(name=name, amount=1), ADD(name=name, amount=1)
        ((read,),), ((added,),) = yield GET(name=name), ADD(name=name, amount=2)
        return read, added

    found = yield from Transact(database, Scripted(put_and_read))
    expect("the rows of statements that were yielded at once", found, (2, 4))
    unit = ScriptedRead(lambda _: _read_twice(name))
    found = yield from Transact(database, unit)
    expect("the rows of reads that were yielded at once", found, (4, 0))


def _read_twice(name: str) -> Work[tuple[int, int]]:
    (row,), none = yield GET(name=name), GET(name=f"no {name}")
    return row[0], len(none)


def _number_parameters(bench: Bench, database: str) -> Program[None]:
    def read(_: Dialect) -> Statements[Any]:
        return (yield Statement(NUMBERED, Numbered((1, "two", None))))[0]

    row = yield from Transact(database, ScriptedRead(read))
    expect("a row of numbered parameters", tuple(row), ("two", 1, None))


def _dialect(bench: Bench, database: str) -> Program[None]:
    def tell(dialect: Dialect) -> Statements[Dialect]:
        yield COUNT(pattern="")
        return dialect

    for unit in (Scripted(tell), ScriptedRead(tell), ScriptedExclusive(tell)):
        found = yield from Transact(database, unit)
        expect("the dialect that a unit is given", found, bench.dialect(database))


def _no_statements(bench: Bench, database: str) -> Program[None]:
    def state_nothing(_: Dialect) -> Statements[str]:
        yield from ()
        return "nothing"

    for unit in (Scripted(state_nothing), ScriptedRead(state_nothing)):
        expect("a unit returned", (yield from Transact(database, unit)), "nothing")


def _many_statements(bench: Bench, database: str) -> Program[None]:
    prefix = bench.name("many")

    def put_all(_: Dialect) -> Statements[int]:
        for number in range(1_000):
            yield PUT(name=f"{prefix}/{number:04}", amount=number)
        rows = yield ALL(pattern=f"{prefix}/%")
        return sum(amount for _, amount in rows)

    expect("a unit returned", (yield from Transact(database, Scripted(put_all))), 499_500)
    expect("rows", (yield from Transact(database, Count(f"{prefix}/"))), 1_000)


def _long_values(bench: Bench, database: str) -> Program[None]:
    name = bench.name("long")

    def keep(_: Dialect) -> Statements[bool]:
        note, data = f'"{_LONG_TEXT}"', _LONG_TEXT.encode()
        yield KEEP(name=name, amount=1, note=note, data=data)
        rows = yield KEPT(name=name)
        return tuple(rows[0]) == (name, 1, note, data)

    expect("2 MB came back whole", (yield from Transact(database, Scripted(keep))), True)


# What stays and what does not


def _undo(bench: Bench, database: str) -> Program[None]:
    old, new = bench.name("old"), bench.name("new")
    yield from Transact(database, Put(old, 5))

    def change_and_undo(_: Dialect) -> Statements[str | Undo[str]]:
        yield PUT(name=new, amount=1)
        rows = yield ADD(name=old, amount=3)
        return Undo(f"undone at {rows[0][0]}")

    result = yield from Transact(database, Scripted(change_and_undo))
    expect("the result of a unit that is undone", result, "undone at 8")
    yield from _holds("after `Undo`, what it had added", database, new, None)
    yield from _holds("after `Undo`, what it had changed", database, old, 5)
    expect("another process reads", bench.outside[database].run(Get(new)), None)


def _undo_of_others(bench: Bench, database: str) -> Program[None]:
    prefix = bench.name("beside")

    def put(name: str, *, undone: bool) -> Program[Any]:
        def script(_: Dialect) -> Statements[str | Undo[str]]:
            yield PUT(name=name, amount=1)
            return Undo(name) if undone else name

        return ask(Transact(database, Scripted(script)))

    names = [f"{prefix}/{number:03}" for number in range(60)]
    programs = tuple(put(name, undone=n % 3 == 0) for n, name in enumerate(names))
    expect("results", (yield from Concurrently(programs)), tuple(names))
    expect("what stays", (yield from Transact(database, Count(f"{prefix}/"))), 40)


class _UnitFault(Exception):
    """An error that a unit of a case raises."""


def _unit_error(bench: Bench, database: str) -> Program[None]:
    names = [bench.name("fault") for _ in range(3)]

    def put_and_fail(_: Dialect) -> Statements[None]:
        yield PUT(name=names[0], amount=1)
        yield PUT(name=names[1], amount=1)
        raise _UnitFault("the reason")

    def fail_at_once(_: Dialect) -> Statements[None]:
        yield from ()
        raise _UnitFault("the reason")

    units = (Scripted(put_and_fail), Scripted(fail_at_once), ScriptedRead(fail_at_once))
    for unit in (*units, ScriptedExclusive(put_and_fail)):
        failure = yield from _failure_of(database, unit)
        require(
            isinstance(failure, _UnitFault) and str(failure) == "the reason",
            f"a unit raised _UnitFault('the reason'); thrown in was {failure!r}",
        )
    for name in names[:2]:
        yield from _holds("what a unit did before it raised", database, name, None)
    yield from Transact(database, Put(names[2], 1))
    yield from _holds("what the next unit stored", database, names[2], 1)


def _unit_error_of_others(bench: Bench, database: str) -> Program[None]:
    prefix = bench.name("beside")

    def put(number: int) -> Program[str]:
        def script(_: Dialect) -> Statements[None]:
            yield PUT(name=f"{prefix}/{number}", amount=1)
            if number % 4 == 0:
                raise _UnitFault

        failure = yield from _failure_of(database, Scripted(script))
        return type(failure).__name__

    found = yield from Concurrently(tuple(put(number) for number in range(40)))
    expect("thrown in, among 40 units", found, ("_UnitFault", *["NoneType"] * 3) * 10)
    expect("what stays", (yield from Transact(database, Count(f"{prefix}/"))), 30)


def _all_or_nothing(bench: Bench, database: str) -> Program[None]:
    taken, fresh = bench.name("taken"), bench.name("fresh")
    yield from Transact(database, Put(taken, 1))

    def put_both(_: Dialect) -> Statements[None]:
        yield PUT(name=fresh, amount=1)
        yield PUT(name=taken, amount=1)

    yield from _fails("a key twice", database, Scripted(put_both), Conflict)
    yield from _holds("what the unit did before that", database, fresh, None)


# Failures


def _failures(bench: Bench, database: str) -> Program[None]:
    name = bench.name("failing")
    yield from Transact(database, Put(name, 1))

    def read_missing(_: Dialect) -> Statements[None]:
        yield MISSING()

    yield from _fails("a key twice", database, Put(name), Conflict)
    yield from _fails("no such table", database, Scripted(read_missing), WrongSchema)
    yield from _fails("no such table, to read", database, ScriptedRead(read_missing), WrongSchema)
    yield from _fails("less than nothing", database, Add(name, -2), StatementFailed)
    yield from _fails("U+0000 in a text", database, Put("a\0b"), StatementFailed)
    yield from _holds("after all these failures", database, name, 1)


def _not_caught(bench: Bench) -> None:
    for database in (FIRST, SECOND):
        name = bench.name("twice")
        bench.run(ask(Transact(database, Put(name))))
        try:
            bench.run(ask(Transact(database, Put(name))))
        except Conflict:
            pass
        else:
            raise Broken("`run` returned although its program did not catch a failure")


def _ends_the_unit(bench: Bench, database: str) -> Program[None]:
    seen: list[BaseException] = []
    made: list[Generator[Any, Any, Any]] = []

    def catch(_: Dialect) -> Statements[str]:
        try:
            yield MISSING()
        except BaseException as error:
            seen.append(error)
            raise
        return "went on"

    def script(dialect: Dialect) -> Statements[str]:
        made.append(catch(dialect))
        return made[-1]

    for unit in (Scripted(script), ScriptedRead(script)):
        yield from _fails("no such table", database, unit, WrongSchema)
    thrown = [error for error in seen if not isinstance(error, GeneratorExit)]
    expect("thrown into the statements of a unit", thrown, [])
    states = {inspect.getgeneratorstate(statements) for statements in made}
    expect("the state of the statements after it", states, {inspect.GEN_CLOSED})


def _deferred_constraint(bench: Bench, database: str) -> Program[None]:
    name, debtor = bench.name("before"), bench.name("nobody")

    def owe(_: Dialect) -> Statements[str]:
        yield PUT(name=name, amount=1)
        yield OWE(name=debtor)
        return "committed"

    yield from _fails("a debt of nobody, at the commit", database, Scripted(owe), StatementFailed)
    yield from _holds("what the unit did", database, name, None)
    yield from Transact(database, Put(name, 2))
    yield from _holds("what the next unit did", database, name, 2)


def _unknown_database(bench: Bench) -> None:
    caught: list[BaseException] = []

    def ask_elsewhere() -> Program[None]:
        try:
            yield from Transact("nowhere", Count(""))
        except Exception as error:  # noqa: BLE001  it is the rule that none comes
            caught.append(error)

    try:
        bench.run(ask_elsewhere())
    except Broken:
        raise
    except Exception as error:  # noqa: BLE001  any will do that is no failure of a database
        require(not isinstance(error, StoreFailure), f"`run` raised {error!r}")
    else:
        raise Broken(f"`run` returned; thrown into the program was {caught}")


# One beside another


def _apart(bench: Bench) -> Program[None]:
    name = bench.name("same")
    yield from Transact(FIRST, Put(name, 1))
    yield from _holds("in the other database", SECOND, name, None)
    yield from Transact(SECOND, Put(name, 2))
    yield from Transact(SECOND, Add(name, 20))
    yield from _holds("in the first", FIRST, name, 1)
    yield from _holds("in the second", SECOND, name, 22)
    both = ask(Transact(FIRST, Add(name, 100))), ask(Transact(SECOND, Add(name, 100)))
    expect("results of both", (yield from Concurrently(both)), (101, 122))
    for database, amount in ((FIRST, 101), (SECOND, 122)):
        expect("another process reads", bench.outside[database].run(Get(name)), amount)


def _one_by_one(bench: Bench, database: str) -> Program[None]:
    name = bench.name("shared")
    yield from Transact(database, Put(name, 0))
    adding = tuple(ask(Transact(database, Add(name, 1))) for _ in range(100))
    results: tuple[int, ...] = yield from Concurrently(adding)
    expect("what 100 units saw that add 1 each", sorted(results), list(range(1, 101)))
    yield from _holds("after them", database, name, 100)


def _snapshot(bench: Bench, database: str) -> Program[None]:
    name = bench.name("moving")
    yield from Transact(database, Put(name, 0))

    def read_twice(_: Dialect) -> Statements[tuple[int, int]]:
        before = yield GET(name=name)
        bench.outside[database].run(Add(name, 1))
        after = yield GET(name=name)
        return before[0][0], after[0][0]

    for _ in range(2):
        before, after = yield from Transact(database, ScriptedRead(read_twice))
        expect("read again in one unit, when another process had added 1", after, before)


def _read_only(bench: Bench, database: str) -> Program[None]:
    names = [bench.name("smuggled") for _ in range(2)]

    def read_and_write(_: Dialect) -> Statements[None]:
        yield COUNT(pattern="")
        yield PUT(name=names[0], amount=1)

    def write(_: Dialect) -> Statements[None]:
        yield PUT(name=names[1], amount=1)

    for script in (read_and_write, write):
        yield from _fails("a write", database, ScriptedRead(script), StatementFailed)
    for name in names:
        yield from _holds("what a unit wrote that only reads", database, name, None)
    yield from Transact(database, Put(names[0], 1))
    yield from _holds("what the next unit wrote", database, names[0], 1)


def _exclusive(bench: Bench, database: str) -> Program[None]:
    name = bench.name("exclusive")
    outside: list[Exception | None] = []

    def try_outside() -> None:
        try:
            bench.outside[database].run(ScriptedExclusive(_look))
        except StoreFailure as failure:
            outside.append(failure)
        else:
            outside.append(None)

    def put(_: Dialect) -> Statements[str]:
        yield PUT(name=name, amount=1)
        try_outside()
        return "alone"

    expect("an exclusive unit returned", (yield from ask(_exclusively(database, put))), "alone")
    yield from _holds("what it stored", database, name, 1)
    require(
        isinstance(outside[-1], Busy),
        "while an exclusive unit ran, another process had the lock as well",
    )
    try_outside()
    require(outside[-1] is None, f"after it another process did not get the lock: {outside[-1]!r}")


def _exclusively(database: str, script: Callable[[Dialect], Statements[Any]]) -> Transact[Any]:
    return Transact(database, ScriptedExclusive(script))


def _look(_: Dialect) -> Statements[str]:
    yield COUNT(pattern="")
    return "looked"


def _busy(bench: Bench) -> None:
    for database in (FIRST, SECOND):
        with bench.outside[database].hold():
            before = time.monotonic()
            failing = _fails("the lock is held", database, ScriptedExclusive(_look), Busy)
            bench.run(failing)
            took = time.monotonic() - before
            require(took < PROMPT, f"an exclusive unit waited {took:.1f} s for the lock")
        after = bench.run(ask(_exclusively(database, _look)))
        expect("after that an exclusive unit returned", after, "looked")


def _inspects(bench: Bench) -> Program[None]:
    for database in (FIRST, SECOND):
        found = yield from Inspect(database)
        expect("the type of an inspection", type(found), Inspection)
        require(not found.replaced, f"the file of {database} is said to be replaced")
        require(found.waiting_seconds < PROMPT, f"{database} is said not to answer")


def _case(name: str, rule: str, check: OnDatabase, dialect: Dialect | None = None) -> Case:
    return Case(f"Transact.{name}", Transact, rule, _on_each(check, dialect), dialect)


CASES: Final = (
    _case("stores", "What a unit did is stored when the program hears its result", _stores),
    _case(
        "reads_what_others_store",
        "A unit reads what another process had stored before it began",
        _reads_what_others_store,
    ),
    _case("values", "Integers, texts, JSON and bytes come back as they were given", _values),
    _case("nulls", "Null comes back as None", _nulls),
    _case("literals", "A text reaches the engine as its dialect writes it", _literals),
    _case("together", "A unit may yield several statements at once", _together),
    _case("lists", "A list is a parameter as `text_array` makes it", _lists),
    _case(
        "numbered",
        "The parameters of a statement may be `Numbered`",
        _number_parameters,
        Dialect.SQLITE,
    ),
    _case("dialect", "A unit is given the dialect of its database", _dialect),
    _case("nothing_stated", "A unit may state nothing at all", _no_statements),
    _case("many_statements", "A unit may have any number of statements", _many_statements),
    _case("long_values", "Long texts and bytes come back whole", _long_values),
    _case("undo", "`Undo` rolls back all that the unit did, and hands over its result", _undo),
    _case("undo_of_others", "`Undo` rolls back what its own unit did alone", _undo_of_others),
    _case(
        "unit_error",
        "What a unit raises rolls it back, and is thrown into the program",
        _unit_error,
    ),
    _case(
        "unit_error_of_others",
        "What a unit raises rolls back nothing of another unit",
        _unit_error_of_others,
    ),
    _case("all_or_nothing", "A unit that fails leaves nothing behind", _all_or_nothing),
    _case(
        "failures",
        "A failure of the database is thrown into the program, by its kind",
        _failures,
    ),
    Case(
        "Transact.not_caught",
        Transact,
        "A failure that the program does not catch comes out of `run`",
        _not_caught,
    ),
    _case(
        "failure_ends_the_unit",
        "An error of the engine closes the statements of the unit; it is not thrown into them",
        _ends_the_unit,
    ),
    _case(
        "refused_commit",
        "A commit that the engine refuses is a failure as any other, and leaves nothing behind",
        _deferred_constraint,
    ),
    Case(
        "Transact.unknown_database",
        Transact,
        "A database that the host has not is a fault: `run` raises it, and the program ends",
        _unknown_database,
    ),
    Case("Transact.apart", Transact, "Two databases have nothing in common", _apart),
    _case("one_by_one", "Units that write do so one after another", _one_by_one),
    _case("snapshot", "A unit that only reads sees one snapshot", _snapshot),
    _case("read_only", "A unit that only reads cannot write", _read_only),
    _case("exclusive", "An exclusive unit has the migration lock until its end", _exclusive),
    Case(
        "Transact.busy",
        Transact,
        "An exclusive unit fails with `Busy`, without waiting, while another process has the lock",
        _busy,
    ),
    Case("Inspect.works", Inspect, "`Inspect` finds nothing wrong with what works", _inspects),
)
