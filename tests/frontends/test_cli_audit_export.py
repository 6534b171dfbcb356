"""`legation audit export`, and `verify --export` where there is nothing but file and key."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from legation.effects import Program, Transact
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import migrate
from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation.store.audit_pages import SigningKey

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from .operators import Operator

SECRET: Final = "s9Xw3vQ7kLzB1nH5rT8yC2mF6jD4gP0a"
KEY: Final = SigningKey("2026", SECRET.encode())
ENTRY: Final = AuditEntry(0, "r", "ada", None, "op", "a/b", "allow", "s", 200, "")
KEYS: Final = '\n[[audit.keys]]\nid = "2026"\nsecret_file = "audit.key"\n'
TWO: Final = '\n[databases.second]\nurl = "sqlite:///second.db"\n'


def appended(unit: AppendAudit) -> Program[None]:
    yield from Transact("main", unit)


def fill(driver: Driver, key: SigningKey | None = KEY) -> None:
    drive(driver, migrate("main", CATALOGUE, None, actor="test", request_id="r", node="n"))
    for writer, count in (("one", 3), ("two/x", 2)):
        for number in range(count):
            entry = evolve(ENTRY, at_us=number * 86_400_000_000)
            drive(driver, appended(AppendAudit(writer, (entry,), key)))


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator whose database has a signed trail of 5 rows, in 2 chains."""
    monkeypatch.chdir(tmp_path)
    operator = Operator(tmp_path, {})
    operator.keys()
    with open("platform.toml", "a") as file:  # noqa: PTH123 (it is appended to)
        file.write(KEYS)
    Path("audit.key").write_text(f"{SECRET}\n")
    with closing(SqliteDriver(tmp_path / "front-office.db")) as driver:
        fill(driver)
    return operator


def export(operator: Operator, *arguments: str) -> list[str]:
    done = operator.run("audit", "export", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


@pytest.fixture
def elsewhere(operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    """Another machine: a folder with the export and the key, and nothing else."""
    other = tmp_path / "elsewhere"
    other.mkdir()
    export(operator, "--output", str(other / "trail.ndjson"))
    (other / "audit.key").write_text(SECRET)
    monkeypatch.chdir(other)
    return Operator(other, {})


def verify(operator: Operator, *arguments: str, stdin: str | None = None) -> Any:
    return operator.run("audit", "verify", "--export", *arguments, stdin=stdin)


# --- Exporting -----------------------------------------------------------------------------------


def test_an_export_goes_to_standard_output(operator: Operator) -> None:
    lines = [json.loads(line) for line in export(operator)]

    assert [line["kind"] for line in lines] == ["trail", *["page"] * 5, "heads"]
    assert (lines[0]["platform"], lines[0]["database"]) == ("front-office", "main")
    assert lines[-1]["key"] == "2026"
    said = operator.run("audit", "export").stderr
    assert said == "main: 5 rows in 2 chains exported\n"


def test_a_file_is_private_and_whole(operator: Operator) -> None:
    before = os.umask(0)
    try:
        said = export(operator, "platform.toml", "main", "--output", "trail.ndjson")
    finally:
        os.umask(before)
    path = Path("trail.ndjson")

    assert said == ["main: 5 rows in 2 chains exported"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_text().splitlines()) == 7
    assert not Path("trail.ndjson.part").exists()


def test_a_part_has_whole_pages_of_its_time(operator: Operator) -> None:
    lines = [
        json.loads(line) for line in export(operator, "--since", "86400", "--until", "1970-01-03")
    ]

    assert [line.get("last") for line in lines] == [None, 2, 2, None]
    wrong = operator.run("audit", "export", "--since", "yesterday")
    assert wrong.exit_code == 2
    assert "must be seconds since the epoch, or a time" in wrong.stderr


def test_an_output_that_cannot_be_written_is_said(operator: Operator) -> None:
    done = operator.run("audit", "export", "--output", "no/trail.ndjson")

    assert done.exit_code == 2
    assert "no/trail.ndjson: No such file" in done.stderr


def test_a_database_that_fails_leaves_no_file(operator: Operator) -> None:
    Path("front-office.db").write_bytes(b"no database" * 100)
    done = operator.run("audit", "export", "--output", "trail.ndjson")

    assert done.exit_code == 2
    assert "Error: " in done.stderr
    assert not Path("trail.ndjson").exists()
    assert not Path("trail.ndjson.part").exists()


def test_the_database_is_named_where_there_are_several(operator: Operator) -> None:
    path = Path("platform.toml")
    path.write_text(path.read_text() + TWO)
    done = operator.run("audit", "export")
    assert done.exit_code == 2
    assert "name the database; there are: main, second" in done.stderr
    assert len(export(operator, "main")) == 7
    assert operator.run("audit", "export", "second").exit_code == 2  # it is not there yet
    assert operator.run("audit", "export", "main", "second").exit_code == 2
    assert operator.run("audit", "export", "third").exit_code == 2


def test_the_key_is_needed_where_one_is_configured(operator: Operator) -> None:
    Path("audit.key").unlink()
    done = operator.run("audit", "export")

    assert done.exit_code == 2
    assert "audit.keys[0].secret_file: the file cannot be read" in done.stderr


# --- Verifying on another machine ----------------------------------------------------------------


def test_the_file_and_the_key_are_enough(elsewhere: Operator) -> None:
    done = verify(elsewhere, "trail.ndjson", "--key", "2026=audit.key")

    assert done.exit_code == 0, done.output
    first, *heads = done.output.splitlines()
    assert first.startswith("trail.ndjson: intact")
    assert "5 rows" in first or "5 entries" in first
    assert sorted(line.strip().rpartition(":")[0] for line in heads if "signed/" in line) == [
        "signed/one:3",
        "signed/two/x:2",
    ]


def test_an_export_comes_by_a_pipe_too(elsewhere: Operator) -> None:
    content = Path("trail.ndjson").read_text()
    done = verify(elsewhere, "-", "--key", "2026=audit.key", "--json", stdin=content)

    (found,) = json.loads(done.stdout)
    assert (done.exit_code, found["intact"], found["rows"]) == (0, True, 5)


def test_without_the_key_it_is_not_proven(elsewhere: Operator) -> None:
    done = verify(elsewhere, "trail.ndjson", "--json")
    (found,) = json.loads(done.stdout)
    assert (done.exit_code, found["intact"]) == (1, True)

    heads = [one["head"] for one in found["findings"]]
    arguments = [word for head in heads for word in ("--acknowledge", head)]
    assert verify(elsewhere, "trail.ndjson", *arguments).exit_code == 0


def without(number: int) -> Callable[[list[str]], list[str]]:
    return lambda lines: [*lines[:number], *lines[number + 1 :]]


EDITS: Final[dict[str, Callable[[list[str]], list[str]]]] = {
    "a line removed": without(2),
    "a chain removed": lambda lines: [lines[0], *lines[4:]],
    "an end removed": without(3),
    "the heads removed": lambda lines: lines[:-1],
    "a row edited": lambda lines: [line.replace('"ada"', '"eve"') for line in lines],
    "a page moved": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "a line added": lambda lines: [*lines[:2], *lines[1:]],
    "a line cut": lambda lines: [*lines[:2], lines[2][:-10], *lines[3:]],
    "nothing": lambda lines: [],
    "a line as long as memory": lambda lines: [lines[0], "[" * (17 << 20), *lines[1:]],
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_an_export_is_found(elsewhere: Operator, name: str) -> None:
    path = Path("trail.ndjson")
    lines = EDITS[name](path.read_text().splitlines())
    path.write_text("".join(f"{line}\n" for line in lines))
    done = verify(elsewhere, "trail.ndjson", "--key", "2026=audit.key")
    told = verify(elsewhere, "trail.ndjson", "--key", "2026=audit.key", "--json")

    assert done.exit_code == 1
    assert "trail.ndjson: broken at " in done.output
    assert json.loads(told.stdout)[0]["intact"] is False


def test_an_export_that_was_signed_by_another_key_is_found(elsewhere: Operator) -> None:
    Path("audit.key").write_text("K" * 32)
    done = verify(elsewhere, "trail.ndjson", "--key", "2026=audit.key")

    assert done.exit_code == 1
    assert "it is not as it was written" in done.output


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("2026", "write it as ID=FILE"),
        ("=audit.key", "write it as ID=FILE"),
        ("2026=none", "none: the file cannot be read: No such file or directory"),
        ("2026=short", "short: has less than 32 bytes"),
        ("2026=empty", "empty: the file is empty"),
    ],
)
def test_a_key_that_is_none_is_said_without_a_part_of_it(
    elsewhere: Operator, value: str, said: str
) -> None:
    Path("short").write_text(SECRET[:31])
    Path("empty").write_text("\n")
    done = verify(elsewhere, "trail.ndjson", "--key", value)

    assert done.exit_code == 2
    assert said in done.stderr
    assert SECRET[:31] not in done.output


def test_options_of_the_two_ways_do_not_mix(elsewhere: Operator) -> None:
    done = verify(elsewhere, "trail.ndjson", "main")
    assert done.exit_code == 2
    assert "--export" in done.stderr
    keyed = elsewhere.run("audit", "verify", "--key", "2026=audit.key")
    assert keyed.exit_code == 2
    assert "--export" in keyed.stderr
    assert verify(elsewhere, "none.ndjson").exit_code == 2


def test_the_heads_that_a_process_has_sent_are_heads_to_look_for(operator: Operator) -> None:
    found = json.loads(operator.run("audit", "verify", "--json").stdout)
    line = {"platform": "front-office", "database": "main", "at": "", "heads": found[0]["heads"]}
    old = Path("heads.ndjson")
    old.write_text(f'{{"platform":"fro\n{json.dumps(line)}\n{json.dumps({**line, "heads": []})}\n')
    assert operator.run("audit", "verify", "--heads", "heads.ndjson").exit_code == 0

    old.write_text(json.dumps({**line, "heads": [f"signed/one:3:{'f' * 64}"]}))
    broken = operator.run("audit", "verify", "--heads", "heads.ndjson")
    assert broken.exit_code == 1
    assert "when the head was exported" in broken.output
    for text in ("", "heads\n", "[1]", "7", '{"heads":[]}'):
        old.write_text(text)
        assert operator.run("audit", "verify", "--heads", "heads.ndjson").exit_code == 2


def test_a_postgresql_trail_is_exported_as_well(
    operator: Operator, postgres: str, tmp_path: Path
) -> None:
    with closing(PostgresDriver(postgres)) as driver:
        fill(driver)
    path = Path("platform.toml")
    sqlite = f"sqlite:///{tmp_path}/front-office.db"
    path.write_text(path.read_text().replace(sqlite, postgres))

    export(operator, "--output", "pg.ndjson")
    done = verify(operator, "pg.ndjson", "--key", "2026=audit.key")
    assert done.exit_code == 0, done.output
    assert "main" in Path("pg.ndjson").read_text().splitlines()[0]
