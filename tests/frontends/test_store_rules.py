"""Rules that every statement of the core keeps, read from its text.

That each one prepares on both engines, and that none asks for every column, is `test_schema`'s.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import migrate
from legation.store.sessions import DELETE, DeleteSessions
from legation.store.units import Dialect, Rows, Sql
from legation.store.usage import ADD

from ..drivers import SqliteDriver, drive

OF_USERS: Final = frozenset(
    {"sessions", "session_summaries", "runs", "events", "steps", "idempotency"}
)
"""The tables that hold what belongs to somebody; the inbox and the outbox belong to a channel."""

# Statements that touch those tables without naming one owner, and why they may.
FOR_ALL_OWNERS: Final = {
    "ANY_FETCH": "an administrator sees everybody's; refused to others before it is chosen",
    "ANY_LIST": "as ANY_FETCH",
    "ANY_COUNT": "as ANY_FETCH",
    "ANY_MEASURE": "rows that the list of the same caller has found before, by owner and id",
    "ANY_READ": "as ANY_MEASURE",
    "ANY_LISTED": "as ANY_FETCH: for who may read the runs of all",
    "ANY_COUNT_LISTED": "as ANY_LISTED",
    "ANY_END_OF_WINDOW": "a place alone, which a list goes on behind",
    "ANY_FOUND": "runs that a list of the same caller has shown before, by id",
    "ANY_PAUSE": "as ANY_FOUND",
    "ANY_KNOWN": "who imports looks which of the runs that it has are there, by their ids",
    "ANY_PAUSES": "as ANY_FOUND: the caller has to be allowed to see or to answer them",
    "ANY_OWNERS": "as ANY_FETCH",
    "EXPIRE": "a node lets go of leases of its own, which it names; nobody asks for it",
    "LEASED_RUNS": "as EXPIRE: a node compares its leases with what it executes",
    "ANY_EXPIRED": "a node looks for runs whose node has died, whoever's they are",
    "ANY_ORPHANS": "who has the database counts runs whose node has died, by `legation doctor`",
    "ANY_EXPIRY": "as ANY_EXPIRED: the time alone at which the next lease is over",
    "ANY_UNHOSTED": "as ANY_WAITING: numbers of what nobody hosts",
    "ANY_WAITING": "a node looks for runs that nobody executes, whoever's they are",
    "LOOK_BEHIND": "whether a run of the same share waits, in whatever session",
    "NEXT_WAITING": "as ANY_WAITING",
    "LOCK_FREE": "one of the sessions that NEXT_WAITING has found",
    "ANY_ACTIVE": "who has the database looks at all runs that are not over, by `check --runs`",
    "ANY_PAUSED": "as ANY_ACTIVE",
    "ANY_OPEN": "runs that ANY_ACTIVE or ANY_PAUSED has found before, by id",
    "ANY_STEPS": "as ANY_OPEN",
    "ANY_COUNT_RUNS": "numbers alone, for who may read measurements",
    "ANY_COUNT_PAUSED": "as ANY_COUNT_RUNS",
    "ANY_OLDEST_PAUSED": "as ANY_COUNT_RUNS: a time alone",
    "CANCELS": "a node asks which of the runs it executes, which it names, are to be cancelled",
    "PROGRESS_OF_RUNS": "a node asks for runs that are followed there: their followers were let in",
    "FEW_EVENTS": "an event has no owner but its run, which the same unit has claimed before",
    "MANY_EVENTS": "as FEW_EVENTS",
    "FEW_STEPS": "as FEW_EVENTS",
    "MANY_STEPS": "as FEW_EVENTS",
    "STORED_STEPS": "as FEW_EVENTS",
    "FORGET_ANSWERS": "copies of what is being deleted, whoever asked for it and whoever deletes",
    "FORGET_GIVEN_ANSWERS": "as FORGET_ANSWERS, of those that name the owner as their user",
    "COUNT_ANSWERS": "a number alone, of what FORGET_ANSWERS would delete",
    "FORGET": "what has expired goes, whoever's it was",
    "ANY_SESSIONS": "a sweep looks for old sessions, whoever's they are",
    "ANY_FURTHER_SESSIONS": "as ANY_SESSIONS",
    "ANY_OLD_RUNS": "as ANY_SESSIONS: for runs that ended long ago",
    "ANY_WITH_EVENTS": "as ANY_OLD_RUNS",
    "ANY_WITH_STEPS": "as ANY_OLD_RUNS",
    "ANY_HELD": "a sweep leaves the runs and sessions alone that messages wait for",
    "ANY_SCANNED": "what has expired goes, as by FORGET; and its number",
    "ANY_COUNTS": "numbers alone: how much a sweep would delete",
    "USED": "numbers alone, of one subject, whose runs may have several owners",
}

# In a process of its own: in this one other tests have written statements, too.
LISTING: Final = """
import importlib, json, pkgutil
import legation
from legation.store.leased_queue import LeasedQueue
from legation.store.units import Sql, all_sql

def named(value, name):
    if isinstance(value, Sql):
        yield value, name
    elif isinstance(value, dict):
        for one in value.values():
            yield from named(one, name)
    elif isinstance(value, LeasedQueue):
        for key, one in vars(value).items():
            yield from named(one, f"{name}.{key}")

names = {}
for module in pkgutil.walk_packages(legation.__path__, "legation."):
    loaded = importlib.import_module(module.name)
    for name, value in vars(loaded).items():
        for sql, found in named(value, name):
            names.setdefault(sql, found)
print(json.dumps([(names.get(sql, ""), sql.sqlite_text, sql.psycopg_text) for sql in all_sql()]))
"""


@frozen
class Text:
    """One statement: the name it is under in its module, and its text on one engine."""

    name: str
    sql: str

    @property
    def tables(self) -> set[str]:
        """The tables of users that it touches."""
        return {
            table
            for table in re.findall(r"\b(?:from|join|into|update)\s+([a-z_]+)", self.sql)
            if table in OF_USERS
        }

    @property
    def names_one_owner(self) -> bool:
        """Whether it is bound to one owner: by a condition, by what it inserts, or by its parent.

        A condition that a null parameter switches off binds nothing.  One that is an expression, by
        which PostgreSQL takes no index of owners, binds as another does.
        """
        bound = re.search(
            r"(?<!is null or )\bowner (\|\| '' )?(= |in \()(:owner|%\(owner\)s)", self.sql
        )
        inserted = re.search(r"into \w+ \(owner\b.*(:owner|%\(owner\)s)", self.sql)
        return bool(bound or inserted)


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    """Every statement of the core, on both engines."""
    listing = subprocess.run(
        [sys.executable, "-c", LISTING], check=True, capture_output=True, text=True
    )
    return [
        Text(name, " ".join(sql.split()))
        for name, *both in json.loads(listing.stdout)
        for sql in both
    ]


def test_every_statement_has_a_name(texts: list[Text]) -> None:
    assert not [text.sql for text in texts if not text.name]


def test_a_statement_on_data_of_users_names_its_owner(
    texts: list[Text], figures: Callable[[str], None]
) -> None:
    theirs = [text for text in texts if text.tables]
    loose = [text for text in theirs if not text.names_one_owner]

    assert {text.name for text in loose} - set(FOR_ALL_OWNERS) == set()
    assert set(FOR_ALL_OWNERS) - {text.name for text in loose} == set()
    figures(
        f"store: {len(theirs) // 2} statements on data of users, {len(set(loose)) // 2} of them for"
        f" all owners, by {len(FOR_ALL_OWNERS)} reasons"
    )
    assert len(theirs) > 60


def test_no_statement_takes_a_null_for_every_owner(texts: list[Text]) -> None:
    """One for all owners has a name of its own: so that nobody reaches for it by mistake."""
    assert not {text.name for text in texts if "is null or owner =" in text.sql}


@pytest.mark.parametrize(
    ("sql", "one"),
    [
        ("select a from runs where owner = :owner and b = 1", True),
        ("update runs set a = 1 where run_id = :run_id and owner || '' = :owner", True),
        ("insert into runs (owner, a) values (:owner, 1)", True),
        ("update runs set a = 1 where run_id = :run_id", False),
        ("select a from runs where (cast(:owner as text) is null or owner = :owner)", False),
        ("delete from runs where owner = 'ada'", False),
    ],
)
def test_the_rule_tells_them_apart(sql: str, one: bool) -> None:
    text = Text("X", sql)

    assert text.tables == {"runs"}
    assert text.names_one_owner is one


# --- what belongs to a run goes with it

OF_RUNS: Final = ("events", "steps")
SOURCES: Final = Path(__file__).parents[2]


def left_behind(texts: Iterable[Text]) -> set[tuple[str, str]]:
    """Return each statement that deletes runs, with a table from which nothing deletes theirs."""
    deletions = [text.sql for text in texts if text.sql.startswith("delete from")]
    return {
        (sql, table)
        for sql in deletions
        if sql.startswith("delete from runs")
        for table in OF_RUNS
        if _of_them(sql, table) not in deletions
    }


def _of_them(sql: str, table: str) -> str:
    """Return the statement that deletes from `table` what belongs to the runs of `sql`."""
    among = sql.replace("delete from runs", "select run_id from runs")
    return f"delete from {table} where run_id in ( {among})"


def test_whatever_deletes_runs_deletes_their_events_and_steps(texts: list[Text]) -> None:
    assert any(text.sql.startswith("delete from runs") for text in texts)
    assert left_behind(texts) == set()


def test_a_deletion_of_runs_alone_is_found(texts: list[Text]) -> None:
    alone = "delete from runs where owner = :owner"
    found = left_behind([*texts, Text("X", alone)])
    without = [text for text in texts if not text.sql.startswith("delete from steps")]

    assert found == {(alone, table) for table in OF_RUNS}
    assert {table for _, table in left_behind(without)} == {"steps"}


def test_runs_are_deleted_behind_what_belongs_to_them() -> None:
    """By the time they are gone nobody could say what was theirs, or give their bytes back."""
    unit = DeleteSessions((("ada", "s", None),), None, 1)
    rows: dict[Sql, Rows] = {DELETE: [(7,)], ADD: [("ada", 0, 0, 0)]}
    for dialect in Dialect:
        work = unit.statements(dialect)
        made = [next(work)]
        with suppress(StopIteration):
            while True:
                made.append(work.send(rows.get(made[-1].sql, [("s",)])))
        texts = [statement.text(dialect) for statement in made]
        tables = [text.split()[2] for text in texts if text.startswith("delete")]
        assert tables == [
            *OF_RUNS,
            *("session_states", "session_summaries", "runs", "sessions"),
            *("idempotency", "idempotency"),  # with and without a space behind the colon
        ]
        assert (made[-1].sql, made[-1].parameters["bytes"]) == (ADD, -7)
        assert made[-1].parameters["subject"] == "ada"


def test_runs_are_deleted_by_statements_of_the_store_alone() -> None:
    folders = ("core", "frontends", "examples")
    found = {
        path.relative_to(SOURCES).as_posix()
        for folder in folders
        for path in (SOURCES / folder).rglob("*.py")
        if re.search(r"delete\s+from\s+runs\b", path.read_text("utf-8"), re.IGNORECASE)
    }
    store = "core/legation/store"
    names = ("sessions", "run_deletion", "erasure")
    assert found == {f"{store}/{name}.py" for name in names}


# --- no request walks through everybody's rows

WHOLE: Final = re.compile(r"SCAN (sessions|runs|events|steps|idempotency)\b(?!.*USING)")


def plans(texts: list[Text], path: Path) -> Iterator[tuple[Text, str]]:
    """Yield each statement with how SQLite would go about it."""
    with closing(SqliteDriver(path)) as driver:
        drive(driver, migrate("main", CATALOGUE, None, actor="", request_id="", node=""))
        for text in texts:
            of_postgresql = any(mark in text.sql for mark in ("%(", "::", "clock_timestamp"))
            if of_postgresql or not text.tables:
                continue
            names = re.findall(r"(?<![:\w]):([a-z_]+)\b", text.sql)
            numbers = [int(number) for number in re.findall(r"\?([0-9]+)", text.sql)]
            given = [None] * max(numbers) if numbers else dict.fromkeys(names)
            rows = driver.connection.execute(f"explain query plan {text.sql}", given).fetchall()
            yield text, "; ".join(detail for *_, detail in rows)


def test_no_statement_of_one_owner_walks_through_a_whole_table(
    texts: list[Text], tmp_path: Path
) -> None:
    found = list(plans(texts, tmp_path / "main.db"))

    assert len(found) > 30
    assert not [
        (text.name, plan)
        for text, plan in found
        if WHOLE.search(plan) and text.name not in FOR_ALL_OWNERS
    ]


ACTIVE: Final = re.compile(r"SCAN \w+ USING (COVERING )?INDEX runs_(active|leased)\b")


def test_no_request_walks_through_all_runs_that_are_not_over(
    texts: list[Text], tmp_path: Path
) -> None:
    found = plans(texts, tmp_path / "main.db")

    assert {text.name for text, plan in found if ACTIVE.search(plan)} == {
        "ANY_COUNT_RUNS",
        "ANY_UNHOSTED",
        # Beside the event loop: what is active has no order by time, and is sorted for each page.
        "ANY_COUNT_LISTED",
        "ANY_END_OF_WINDOW",
        "ANY_LISTED",
        "LISTED",
    }
