"""Statements that are sent to PostgreSQL together: what is kept, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, ClassVar, Final

import psycopg
import pytest
from attrs import frozen

from legation.store.failures import Conflict, StatementFailed, StoreFailure
from legation.store.units import Dialect, ReadUnit, Sql, Statements, Undo, Unit, Work
from legation_host import postgres as postgres_module
from legation_host.postgres import PostgresDatabase

from ..postgres_messages import MessageRelay, message_relay
from .host_units import ADD, PUT, All, Count, Create, Get, Put

SLEEP: Final = Sql("select pg_sleep(0)", registered=False, unread=True)
CLOSE: Final = Sql(
    "update accounts set amount = amount + :amount where name = :name returning amount",
    registered=False,
)


@frozen
class Enter(Unit[tuple[int, int]]):
    """Counts on two accounts and makes a third: rows, silent ones, two at once, and the last."""

    closing: ClassVar[frozenset[Sql]] = frozenset((CLOSE,))

    name: str

    def statements(self, dialect: Dialect) -> Work[tuple[int, int]]:
        yield SLEEP()
        ((before,),) = yield ADD(name="ada", amount=1)
        yield PUT(name=self.name, amount=before)
        ((seen,),), _ = yield ADD(name="ada", amount=0), SLEEP()
        ((after,),) = yield CLOSE(name="bob", amount=1)
        return seen, after


@frozen
class EnterOpenly(Enter):
    """The same, which does not say which statement is its last."""

    closing: ClassVar[frozenset[Sql]] = frozenset()


ACCOUNTS: Final = (Create(), Put("ada", 0), Put("bob", 0))


@contextmanager
def opened(url: str, *units: Unit[Any]) -> Generator[PostgresDatabase]:
    database = PostgresDatabase("main", url)
    try:
        for unit in units:
            database.run_unit(unit)
        yield database
    finally:
        database._closed = True
        database._discard_idle()


@pytest.fixture(params=["", "&pgbouncer=true"], ids=["direct", "through a pooler"])
def url(request: pytest.FixtureRequest, postgres: str) -> str:
    return f"{postgres}{request.param}"


@pytest.fixture(params=[True, False], ids=["pipelines", "no pipelines"])
def pipelines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if not request.param:
        monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)
    return bool(request.param)


# --- How many


def trips(relay: MessageRelay, work: Callable[[], object]) -> tuple[int, int]:
    """Return the round trips and the statements of `work`."""
    before = relay.counts.copy()
    work()
    made = relay.counts - before
    return made["trips"], made["statements"]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (Enter, (3, 6)),
        (EnterOpenly, (4, 6)),
        (Put, (2, 1)),
        (Get, (1, 1)),
    ],
)
def test_a_unit_takes_few_round_trips(
    postgres: str, unit: Callable[[str], Unit[Any]], expected: tuple[int, int]
) -> None:
    with message_relay(postgres) as relay, opened(relay.url, *ACCOUNTS) as database:
        for number in range(12):  # often enough to be prepared
            made = trips(relay, partial(database.run_unit, unit(f"n{number}")))
            assert made == expected, number


def test_settings_take_no_round_trip_of_their_own(postgres: str) -> None:
    with (
        message_relay(f"{postgres}&pgbouncer=true") as relay,
        opened(relay.url, *ACCOUNTS) as database,
    ):
        assert trips(relay, lambda: database.run_unit(Enter("n"))) == (3, 7)


def test_units_answer_as_they_do_one_by_one(url: str, pipelines: bool) -> None:
    with opened(url, *ACCOUNTS) as database:
        for number in range(8):
            assert database.run_unit(Enter(f"n{number}")) == (number + 1, number + 1)
        assert database.run_unit(Count()) == 10
        assert len(database._idle) == 1


def test_many_silent_statements_are_not_all_held(postgres: str) -> None:
    @frozen
    class Many(Unit[None]):
        def statements(self, dialect: Dialect) -> Statements[None]:
            for number in range(100):
                yield PUT(name=f"n{number}", amount=number)

    with message_relay(postgres) as relay, opened(relay.url, *ACCOUNTS) as database:
        assert trips(relay, lambda: database.run_unit(Many())) == (4, 100)
        assert database.run_unit(Count()) == 102


def test_the_one_that_was_not_used_for_longest_is_prepared_no_more(postgres: str) -> None:
    from legation_host.postgres_exchange import PREPARED

    texts = [Sql(f"select {n} + :a", registered=False) for n in range(PREPARED + 20)]

    @frozen
    class Ask(ReadUnit[int]):
        number: int

        def statements(self, dialect: Dialect) -> Statements[int]:
            ((found,),) = yield texts[self.number](a=1)
            return int(found)

    @frozen
    class Prepared(ReadUnit[int]):
        def statements(self, dialect: Dialect) -> Statements[int]:
            ((found,),) = yield Sql("select count(*) from pg_prepared_statements")()
            return int(found)

    with opened(postgres) as database:
        for number in range(len(texts)):
            for _ in range(7):
                assert database.run_unit(Ask(number)) == number + 1
        assert database.run_unit(Prepared()) == PREPARED
        assert database.run_unit(Ask(0)) == 1


def test_each_of_those_sent_together_has_the_time_of_a_statement(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or many short ones would count as one that takes too long."""
    monkeypatch.setattr(
        postgres_module, "SETTINGS", {**postgres_module.SETTINGS, "statement_timeout": "2s"}
    )
    nap = Sql("select cast(pg_sleep(0.8) as text)", registered=False)

    @frozen
    class Doze(Unit[int]):
        def statements(self, dialect: Dialect) -> Work[int]:
            return len((yield nap(), nap(), nap()))

    with opened(postgres) as database:
        assert database.run_unit(Doze()) == 3


# --- What fails


@frozen
class Failing(Unit[Any]):
    """Enters `name`, and does `fault` behind it."""

    closing: ClassVar[frozenset[Sql]] = frozenset((CLOSE,))

    name: str
    fault: Callable[[], Work[Any]]

    def statements(self, dialect: Dialect) -> Work[Any]:
        yield ADD(name="ada", amount=1)
        yield PUT(name=self.name, amount=1)
        return (yield from self.fault())


def silent() -> Work[Any]:
    yield PUT(name="ada", amount=1)


def closing() -> Work[Any]:
    return (yield CLOSE(name="ada", amount=-99))


def silent_before_closing() -> Work[Any]:
    yield PUT(name="ada", amount=1)
    return (yield CLOSE(name="ada", amount=1))


def unencodable() -> Work[Any]:
    yield PUT(name="surrogate \udc80", amount=1)


def at_once() -> Work[Any]:
    yield ADD(name="ada", amount=1), PUT(name="ada", amount=1), ADD(name="ada", amount=1)


def own() -> Work[Any]:
    yield PUT(name="eve", amount=1)
    raise ZeroDivisionError


def own_behind_a_conflict() -> Work[Any]:
    yield PUT(name="ada", amount=1)
    raise ZeroDivisionError


def undone() -> Work[Any]:
    yield PUT(name="eve", amount=1)
    return Undo("undone")


def undone_behind_a_conflict() -> Work[Any]:
    yield PUT(name="ada", amount=1)
    return Undo("undone")


def deferred() -> Work[Any]:
    yield PUT(name="deferred", amount=1)
    return (yield CLOSE(name="ada", amount=1))


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (silent, Conflict),
        (closing, StatementFailed),
        (silent_before_closing, Conflict),
        (unencodable, StatementFailed),
        (at_once, Conflict),
        (own, ZeroDivisionError),
        (own_behind_a_conflict, Conflict),
        (undone, "undone"),
        (undone_behind_a_conflict, Conflict),
        (deferred, StatementFailed),
    ],
)
def test_of_a_unit_that_fails_nothing_is_kept(
    url: str, pipelines: bool, fault: Callable[[], Work[Any]], expected: Any
) -> None:
    with opened(url, *ACCOUNTS) as database:
        with psycopg.connect(url.partition("&pgb")[0]) as admin:  # checked when it is committed
            admin.execute("create table deferred (name text primary key)")
            admin.execute(
                "create function allow() returns trigger language plpgsql as $$ begin"
                " if new.name = 'deferred' then raise 'not that one'; end if; return new; end $$"
            )
            admin.execute(
                "create constraint trigger late after insert on accounts"
                " deferrable initially deferred for each row execute function allow()"
            )
        for number in range(7):  # also when all is prepared
            try:
                found: Any = database.run_unit(Failing(f"n{number}", fault))
            except Exception as error:  # noqa: BLE001 (compared)
                found = type(error)
            assert found == expected
        assert database.run_unit(All()) == (("ada", 0), ("bob", 0))
        assert len(database._idle) == 1


# --- What is cut


def enter_and_cut(
    relay: MessageRelay, database: PostgresDatabase, unit: Unit[Any], cut: tuple[bool, int, float]
) -> str:
    """Run `unit` on a connection that is cut at a message; return what came of it."""
    database.run_unit(Get("ada"))  # makes the connection
    relay.cut_at(*cut)
    try:
        database.run_unit(unit)
    except StoreFailure as failure:
        outcome = type(failure).__name__
    else:
        outcome = "told"
    return "not reached" if relay.let_pass() else outcome


@pytest.mark.parametrize("unit", [Enter, EnterOpenly])
def test_a_cut_at_any_message_leaves_all_or_nothing_and_is_told(
    url: str, unit: type[Enter], figures: Callable[[str], None]
) -> None:
    outcomes: dict[str, str] = {}
    with message_relay(url) as relay, opened(relay.url, *ACCOUNTS) as database:
        for client in (True, False):
            # Messages, cut before them or in their midst.
            for half in count(0, 1 if unit is Enter else 2):
                name, cut = f"{client} {half}", (client, half // 2, half % 2 / 2)
                outcomes[name] = enter_and_cut(relay, database, unit(name), cut)
                if outcomes[name] == "not reached":
                    break
        found: tuple[tuple[str, int], ...] = database.run_unit(All())

    of = {kind: {n for n, o in outcomes.items() if o == kind} for kind in set(outcomes.values())}
    assert set(of) == {"told", "not reached", "Unavailable", "CommitLost"}
    rows = dict(found)
    told, entered = of["told"] | of["not reached"], set(rows) - {"ada", "bob"}
    assert told <= entered <= told | of["CommitLost"]
    assert rows["ada"] == rows["bob"] == len(entered)
    kept = len(of["CommitLost"] & entered)
    assert 0 < kept < len(of["CommitLost"])
    figures(
        f"PostgreSQL: cut at {len(outcomes) - 2} places of a unit:"
        f" {len(of['told'])} done again, {len(of['Unavailable'])} not stored,"
        f" {len(of['CommitLost'])} of an unknown end, of which {kept} are stored, none in part"
    )
