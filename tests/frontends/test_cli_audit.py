"""`legation audit verify`: what was done to the table, told to a person and to a script."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from legation.effects import Program, Transact
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Migrated, migrate
from legation.store.audit import AppendAudit, ReadPages
from legation.store.audit_entries import PRUNED, AuditEntry
from legation.store.audit_pages import Page
from legation.store.refusals import OTHERS, AddRefusals, RefusalCount

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from ..old_audit import put_old_rows
from ..trail_pages import ALL_DATA, entries_in, entries_of_data
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
        for number in range(count):
            driver.run(AppendAudit(writer, (make_entry(number),), None))


def make_entry(at_us: int) -> AuditEntry:
    return AuditEntry(at_us, "r", "ada", None, "op", "", "deny", "s", 403, "")


def pages() -> tuple[Page, ...]:
    with closing(SqliteDriver(Path("front-office.db"))) as driver:
        return driver.run(ReadPages("", 0, 1_000))


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
    assert first == "main: intact, 5 rows in 2 chains (2 not signed, only chained)"
    assert [head.strip().rsplit(":", 2)[:2] for head in heads] == [
        ["chained/one", "3"],
        ["chained/two:x", "2"],
    ]


@pytest.mark.parametrize(
    "arguments", [(), ("main",), ("platform.toml",), ("platform.toml", "main")], ids=str
)
def test_file_and_database_may_be_left_out(operator: Operator, arguments: tuple[str, ...]) -> None:
    code, ((told),) = verified(operator, *arguments)

    assert (code, told["database"], told["intact"], told["rows"]) == (0, "main", True, 5)


INSERT: Final = """insert into trail
    select writer, 4, count, from_us, to_us, subject, key_id, root, hash, hash, data
    from trail where writer = 'chained/one' and last = 3"""
EDIT: Final = "update trail set data = replace(data, '{}', '{}') where writer = '{}' and last = {}"


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        (EDIT.format("403", "200", "chained/one", 2), ("chained/one", 2)),
        (EDIT.format("ada", "eve", "chained/two:x", 1), ("chained/two:x", 1)),
        ("delete from trail where writer = 'chained/one' and last = 1", ("chained/one", 2)),
        (INSERT, ("chained/one", 4)),
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
    edit("delete from trail where writer = 'chained/one' and last = 3")

    assert verified(operator)[0] == 0
    code, ((told),) = verified(operator, "--head", head)
    assert (code, told["broken"]["writer"], told["broken"]["seq"]) == (1, "chained/one", 3)


def test_what_was_printed_for_a_script_is_read_again(operator: Operator) -> None:
    exported = operator.run("audit", "verify", "--json").stdout
    Path("heads.json").write_text(exported)
    assert verified(operator, "--heads", "heads.json")[0] == 0
    edit("delete from trail where writer = 'chained/two:x'")

    assert verified(operator)[0] == 0
    code, ((told),) = verified(operator, "--heads", "-", stdin=exported)
    assert (code, told["broken"]["writer"]) == (1, "chained/two:x")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nothing.toml",), "nothing.toml: No such file"),
        (("nobody",), "there is no database 'nobody'; there are: main"),
        (("main", "main"), "name one database at most"),
        (("--head", "one:3"), "'one:3' is no head"),
        (("--head", f"one:x:{'0' * 64}"), "is no head"),
        (("--acknowledge", "one:3"), "'one:3' is no head"),
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
    edit("drop table trail")
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
    edit("delete from trail where writer = 'chained/one' and last = 1")

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
    heads = operator.run("audit", "verify", "--json").stdout
    done = operator.run("audit", "prune", "--before", "1970-01-02")
    assert (done.exit_code, done.output) == (0, "main: 5 rows pruned\n")

    code, ((told),) = verified(operator, "--heads", "-", stdin=heads)
    assert (code, told["intact"], told["proven"]) == (1, True, False)
    assert (told["rows"], told["pruned"]) == (2, 5)
    assert [prune["signed"] for prune in told["prunes"]] == [False, False]
    assert {finding["doubt"] for finding in told["findings"]} == {"unsigned_prune"}
    person = operator.run("audit", "verify")
    assert person.exit_code == 1
    assert person.output.startswith("main: not proven, 2 rows in 3 chains")
    lines = [line.strip() for line in person.output.splitlines()]
    options = [word for line in lines if line.startswith("--acknowledge") for word in line.split()]
    assert len(options) == 4
    accepted = operator.run("audit", "verify", *options)
    assert accepted.exit_code == 0
    assert accepted.output.startswith("main: intact, 2 rows in 3 chains")
    assert "pruned by local:" in accepted.output


def test_attack_5b_everything_deleted_and_one_prune_forged(operator: Operator) -> None:
    heads = operator.run("audit", "verify", "--json").stdout
    edit("delete from trail")
    forged = f"chained%2Fone/1000000000/{'0' * 64}/0"
    entry = AuditEntry(1, "", "local:root", None, PRUNED, forged, "allow", "", 200, "local")
    with closing(SqliteDriver(Path("front-office.db"))) as driver:
        driver.run(AppendAudit("x", (entry,), None))

    code, ((told),) = verified(operator, "--heads", "-", stdin=heads)
    assert code == 1
    assert not told["proven"]


def test_rows_from_before_are_counted_and_verified(operator: Operator) -> None:
    with closing(SqliteDriver(Path("front-office.db"))) as driver:
        put_old_rows(driver.connection, "n", [make_entry(1)] * 2)

    told = operator.run("audit", "verify").output.splitlines()
    assert told[0] == (
        "main: intact, 7 rows (2 from before 2.12.0) in 3 chains (3 not signed, only chained)"
    )
    edit("update audit set status = 200")
    code, ((broken),) = verified(operator)
    assert (code, broken["broken"]["writer"]) == (1, "n")


def test_a_pruning_is_in_the_trail_under_who_typed_it(operator: Operator) -> None:
    done = operator.run("audit", "prune", "main", "--before", "1970-01-01T00:00:01Z", "--json")
    assert json.loads(done.stdout) == [{"database": "main", "pruned": 5}]

    entries = entries_in(pages())
    assert {entry.operation for entry in entries} == {PRUNED}
    assert all((entry.subject or "").startswith("local:") for entry in entries)


def test_a_pruning_is_under_the_name_of_the_system_whatever_the_environment_says(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "mallory")
    operator.run("audit", "prune", "main", "--before", "1970-01-01T00:00:01Z")

    with closing(sqlite3.connect("front-office.db")) as connection:
        (subject,) = {entry.subject for entry in entries_of_data(connection.execute(ALL_DATA))}
    assert subject == f"local:{pwd.getpwuid(os.getuid()).pw_name}"


def test_a_single_row_is_told_as_one(operator: Operator) -> None:
    edit("update trail set from_us = 9000000, to_us = 9000000 where last > 1")

    told = operator.run("audit", "prune", "--before", "1970-01-01T00:00:01Z").output
    assert told == "main: 2 rows pruned\n"
    edit("delete from trail where writer = 'chained/two:x'")
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
    edit("drop table trail")

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
