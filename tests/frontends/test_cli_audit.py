"""`legation audit verify`: what was done to the table, told to a person and to a script."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from legation.effects import Program, Transact
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Migrated, migrate
from legation.store.audit import AppendAudit, AuditEntry
from legation.store.refusals import OTHERS, AddRefusals, RefusalCount

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from .operators import Operator


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator whose database has a trail of 5 rows, in 2 chains."""
    monkeypatch.chdir(tmp_path)
    operator = Operator(tmp_path, {})
    operator.keys()
    with closing(SqliteDriver(tmp_path / "front-office.db")) as driver:
        filled(driver)
    return operator


def filled(driver: Driver) -> None:
    program = migrate("main", CATALOGUE, None, actor="test", request_id="r", node="n")
    assert isinstance(drive(driver, program), Migrated)
    for writer, count in (("one", 3), ("two:x", 2)):
        entries = tuple(
            AuditEntry(number, "r", "ada", None, "op", "", "deny", "s", 403, "")
            for number in range(count)
        )
        drive(driver, appended(AppendAudit(writer, entries)))


def appended(unit: AppendAudit) -> Program[None]:
    yield from Transact("main", unit)


def edit(statement: str) -> None:
    with closing(sqlite3.connect("front-office.db", isolation_level=None)) as connection:
        connection.execute(statement)


def verified(operator: Operator, *arguments: str, stdin: str | None = None) -> tuple[int, Any]:
    done = operator.run("audit", "verify", "--json", *arguments, stdin=stdin)
    return done.exit_code, json.loads(done.stdout)


def test_an_intact_trail_is_told_with_its_heads(operator: Operator) -> None:
    told = operator.run("audit", "verify")

    assert told.exit_code == 0
    first, *heads = told.output.splitlines()
    assert first == "main: intact, 5 rows in 2 chains"
    assert [head.strip().rsplit(":", 2)[:2] for head in heads] == [["one", "3"], ["two:x", "2"]]


@pytest.mark.parametrize(
    "arguments", [(), ("main",), ("platform.toml",), ("platform.toml", "main")], ids=str
)
def test_file_and_database_may_be_left_out(operator: Operator, arguments: tuple[str, ...]) -> None:
    code, ((told),) = verified(operator, *arguments)

    assert (code, told["database"], told["intact"], told["rows"]) == (0, "main", True, 5)


INSERT: Final = """insert into audit
    select writer, 4, at_us, request_id, subject, key_id, operation, resource, decision, scope,
        status, client, hash, hash
    from audit where writer = 'one' and seq = 3"""


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("update audit set status = 200 where writer = 'one' and seq = 2", ("one", 2)),
        ("update audit set subject = 'eve' where writer = 'two:x' and seq = 1", ("two:x", 1)),
        ("delete from audit where writer = 'one' and seq = 1", ("one", 2)),
        (INSERT, ("one", 4)),
    ],
    ids=["edited", "edited in another chain", "removed", "put in"],
)
def test_a_broken_trail_is_told_with_its_place(
    operator: Operator, statement: str, broken: tuple[str, int]
) -> None:
    edit(statement)

    code, ((told),) = verified(operator)
    assert (code, told["intact"]) == (1, False)
    assert (told["broken"]["writer"], told["broken"]["seq"]) == broken
    person = operator.run("audit", "verify")
    assert person.exit_code == 1
    assert f"main: broken at number {broken[1]} of {broken[0]}: " in person.output


def test_rows_cut_off_the_end_show_against_a_head(operator: Operator) -> None:
    head = operator.run("audit", "verify").output.splitlines()[1].strip()
    assert verified(operator, "--head", head)[0] == 0
    edit("delete from audit where writer = 'one' and seq = 3")

    assert verified(operator)[0] == 0
    code, ((told),) = verified(operator, "--head", head)
    assert (code, told["broken"]["writer"], told["broken"]["seq"]) == (1, "one", 3)


def test_what_was_printed_for_a_script_is_read_again(operator: Operator) -> None:
    exported = operator.run("audit", "verify", "--json").stdout
    Path("heads.json").write_text(exported)
    assert verified(operator, "--heads", "heads.json")[0] == 0
    edit("delete from audit where writer = 'two:x'")

    assert verified(operator)[0] == 0
    code, ((told),) = verified(operator, "--heads", "-", stdin=exported)
    assert (code, told["broken"]["writer"]) == (1, "two:x")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nothing.toml",), "nothing.toml: No such file"),
        (("nobody",), "there is no database 'nobody'; there are: main"),
        (("main", "main"), "name one database at most"),
        (("--head", "one:3"), "'one:3' is no head"),
        (("--head", f"one:x:{'0' * 64}"), "is no head"),
        (("--heads", "platform.toml"), "--heads: not what"),
        (("--heads", "nothing"), "No such file"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_said_with_exit_code_2(
    operator: Operator, arguments: tuple[str, ...], sentence: str
) -> None:
    told = operator.run("audit", "verify", *arguments)

    assert told.exit_code == 2
    assert told.stdout == ""
    assert sentence in told.stderr


def test_a_database_that_is_not_there_is_not_made(operator: Operator) -> None:
    Path("front-office.db").unlink()
    told = operator.run("audit", "verify")

    assert told.exit_code == 2
    assert "there is no file" in told.stderr
    assert not Path("front-office.db").exists()


def test_a_database_without_a_trail_is_a_sentence(operator: Operator) -> None:
    edit("drop table audit")
    told = operator.run("audit", "verify")

    assert told.exit_code == 2
    assert told.stderr == (
        "Error: the audit trail of 'main' cannot be read:"
        " its schema is not that of this release; see `legation migrate --plan`\n"
    )


def test_of_several_databases_each_is_told(operator: Operator) -> None:
    with closing(SqliteDriver(operator.folder / "second.db")) as driver:
        filled(driver)
    with Path("platform.toml").open("a") as file:
        file.write(f'[databases.second]\nurl = "sqlite:///{operator.folder}/second.db"\n')
    edit("delete from audit where writer = 'one' and seq = 1")

    code, told = verified(operator)
    assert code == 1
    assert [(one["database"], one["intact"]) for one in told] == [
        ("main", False),
        ("second", True),
    ]
    ambiguous = operator.run("audit", "verify", "--head", f"one:1:{'0' * 64}")
    assert ambiguous.exit_code == 2
    assert "name the database" in ambiguous.stderr


def test_the_demonstration_is_meant_where_there_is_no_file(operator: Operator) -> None:
    Path("platform.toml").unlink()
    operator.environ = {"LEGATION_DATA": str(operator.folder / "data")}
    told = operator.run("audit", "verify")

    assert told.exit_code == 2
    assert "hotel.db" in told.stderr


def test_a_trail_in_postgresql_is_verified_too(operator: Operator, postgres: str) -> None:
    with closing(PostgresDriver(postgres)) as driver:
        filled(driver)
    text = Path("platform.toml").read_text()
    file = f"sqlite:///{operator.folder}/front-office.db"
    Path("platform.toml").write_text(text.replace(file, postgres))

    code, ((told),) = verified(operator)
    assert (code, told["intact"], told["rows"]) == (0, True, 5)
    assert all("/" in head for head in told["heads"])


# --- Pruning -------------------------------------------------------------------------------------


def test_old_rows_are_pruned_and_the_rest_is_proven(operator: Operator) -> None:
    done = operator.run("audit", "prune", "--before", "1970-01-02")
    assert (done.exit_code, done.output) == (0, "main: 5 rows pruned\n")

    told = operator.run("audit", "verify").output.splitlines()
    assert told[0] == "main: intact, 2 rows in 1 chain, and 5 pruned"


def test_a_pruning_is_in_the_trail_under_who_typed_it(operator: Operator) -> None:
    done = operator.run("audit", "prune", "main", "--before", "1970-01-01T00:00:01Z", "--json")
    assert json.loads(done.stdout) == [{"database": "main", "pruned": 5}]

    with closing(sqlite3.connect("front-office.db")) as connection:
        rows = connection.execute("select operation, subject from audit").fetchall()
    assert {operation for operation, _ in rows} == {"audit.prune"}
    assert all(subject.startswith("local:") for _, subject in rows)


def test_a_single_row_is_told_as_one(operator: Operator) -> None:
    edit("update audit set at_us = at_us + 9000000 where seq > 1")

    told = operator.run("audit", "prune", "--before", "1970-01-01T00:00:01Z").output
    assert told == "main: 2 rows pruned\n"
    edit("delete from audit where writer = 'two:x'")
    assert operator.run("audit", "prune", "--before", "1970-01-01T00:00:01Z").output == (
        "main: 0 rows pruned\n"
    )


def test_nothing_is_as_old_as_the_future(operator: Operator) -> None:
    done = operator.run("audit", "prune", "--before", "2999-01-01")

    assert done.exit_code == 2
    assert "--before lies in the future: nothing is that old" in done.output


@pytest.mark.parametrize("arguments", [(), ("--before", "yesterday"), ("--before", "1")])
def test_a_moment_has_to_be_named(operator: Operator, arguments: tuple[str, ...]) -> None:
    assert operator.run("audit", "prune", *arguments).exit_code == 2


def test_a_trail_that_cannot_be_written_is_told_in_one_sentence(operator: Operator) -> None:
    edit("drop table audit")

    done = operator.run("audit", "prune", "--before", "1970-01-02")
    assert done.exit_code == 2
    assert "the audit trail of 'main' cannot be pruned: its schema is not that of" in done.output


# --- Refusals -----------------------------------------------------------------------------------


def refused(*counted: RefusalCount) -> None:
    def add() -> Program[None]:
        yield from Transact("main", AddRefusals(counted))

    with closing(SqliteDriver(Path("front-office.db"))) as driver:
        drive(driver, add())


def test_refusals_are_shown_the_greatest_first(operator: Operator) -> None:
    minute = int(time.time()) // 60
    kinds = ((minute, 3), (minute - 1, 4), (minute - 60 * 25, 90))
    refused(*(RefusalCount(at, "192.0.2.1", "/me", 401, count) for at, count in kinds))
    refused(RefusalCount(minute, OTHERS, "*", 0, 5), RefusalCount(minute, "::/64", "*", 401, 9))

    assert operator.run("audit", "refusals").output == (
        "         9  401  ::/64  *\n         7  401  192.0.2.1  /me\n         5       others  *\n"
    )
    one = operator.run("audit", "refusals", "platform.toml", "main", "--client", "::1", "--json")
    assert json.loads(one.stdout) == [{"client": "::/64", "route": "*", "status": 401, "count": 9}]
    first = operator.run("audit", "refusals", "--since", "2020-01-01", "--limit", "1")
    assert first.output == "        97  401  192.0.2.1  /me\n"


def test_where_nothing_was_refused_a_sentence_says_so(operator: Operator) -> None:
    assert operator.run("audit", "refusals").output == "main: nothing was refused\n"


def test_counts_that_cannot_be_read_are_a_sentence(operator: Operator) -> None:
    edit("drop table refusals")
    done = operator.run("audit", "refusals")

    assert done.exit_code == 2
    assert "the counts of refusals in 'main' cannot be read" in done.stderr
