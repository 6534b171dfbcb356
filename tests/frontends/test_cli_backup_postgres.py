"""`legation backup` and `legation restore` on PostgreSQL, by its own programs."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from legation.lifecycle.backup_manifest import Manifest, read_manifest, write_manifest
from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation_cli import main
from legation_host.databases import open_writer

from ..engines import PASSWORD_GROUP, Cluster
from ..pooler import NoPooler, pooled, through
from ..transcripts import ROOT
from .cluster_kit import await_true

pytestmark = pytest.mark.newest

PLATFORM: Final = """
[platform]
id = "front-office"

[databases.main]
url = "{url}"

[[agents]]
id = "desk"
"""
ENTRY: Final = AuditEntry(0, "r", "ada", None, "op", "a/b", "allow", "s", 200, "")


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, postgres_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    add_to_path(monkeypatch, postgres_cluster.binaries)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path


def add_to_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def refused(*words: str) -> str:
    result = typed(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr.removeprefix("Error: ").strip()


def configure(url: str, name: str = "platform.toml") -> str:
    Path(name).write_text(PLATFORM.format(url=url))
    return name


def fill(url: str, *writers: str) -> None:
    """Migrate the database at `url`, and add a row to the trail for each of `writers`."""
    configure(url)
    assert typed("migrate", "main").exit_code == 0
    append(url, *writers)


def append(url: str, *writers: str) -> None:
    with open_writer("main", url) as run:
        for writer in writers:
            run(AppendAudit(writer, (ENTRY,), None))


def back_up() -> Path:
    result = typed("backup", "--json")
    assert result.exit_code == 0, result.output
    return Path(json.loads(result.stdout)["folder"])


def rows(url: str, schema: str | None = None) -> int:
    table = "trail" if schema is None else f'"{schema}".trail'
    with psycopg.connect(url) as live:
        ((found,),) = live.execute(f"select count(*) from {table}".encode()).fetchall()
    return int(found)


def read(folder: Path) -> Manifest:
    manifest = read_manifest((folder / "manifest.json").read_bytes())
    assert isinstance(manifest, Manifest)
    return manifest


def script(folder: Path, name: str, text: str) -> Path:
    """Write a program of the shell."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return folder


def test_a_dump_is_restored_into_an_empty_database(
    postgres_database: str, postgres_cluster: Cluster
) -> None:
    fill(postgres_database, "one", "two")
    made = back_up()
    (saved,) = read(made).databases
    assert (saved.namespace, saved.intact, saved.rows) == ("public", True, 2)
    assert saved.server.startswith("PostgreSQL ")
    assert stat.S_IMODE((made / "main.dump").stat().st_mode) == 0o600
    append(postgres_database, "since")

    with postgres_cluster.new_database() as empty:
        configure(empty, "drill.toml")
        result = typed("restore", str(made), "drill.toml")
        assert result.exit_code == 0, result.output
        assert "what was there before" not in result.stdout
        assert rows(empty) == 2
        heads = ("--heads", str(made / "heads.json"))
        assert typed("audit", "verify", "drill.toml", *heads).exit_code == 0
    assert rows(postgres_database) == 3


def test_a_schema_of_its_own_is_all_that_is_dumped_and_restored(
    postgres: str, postgres_cluster: Cluster
) -> None:
    fill(postgres, "one")
    made = back_up()
    namespace = read(made).databases[0].namespace
    assert namespace.startswith("s_")

    with postgres_cluster.new_database() as empty:
        configure(empty, "other.toml")
        assert refused("restore", str(made), "other.toml") == (
            f"databases.main.url: the backup is of the schema {namespace!r}, and this leads to"
            " 'public'"
        )
        own = f"{empty}?options=-csearch_path%3D{namespace}"
        configure(own, "own.toml")
        assert typed("restore", str(made), "own.toml").exit_code == 0
        assert rows(own) == 1


def test_what_is_there_is_replaced_when_that_is_asked_for_and_kept(postgres_database: str) -> None:
    fill(postgres_database, "one")
    made = back_up()
    append(postgres_database, "since")
    said = refused("restore", str(made))
    assert "tables, views and sequences in the schema 'public'" in said
    assert "--replace" in said
    assert rows(postgres_database) == 2

    result = typed("restore", str(made), "--replace", "--json")
    (one,) = json.loads(result.stdout)["databases"]
    assert one["aside"].startswith("schema public_before_")
    assert rows(postgres_database) == 1
    assert rows(postgres_database, one["aside"].removeprefix("schema ")) == 2

    time.sleep(1.1)  # the name of what is kept has the second
    assert typed("restore", str(made), "--replace", "--discard").exit_code == 0
    with psycopg.connect(postgres_database) as live:
        kept = live.execute("select 1 from pg_namespace where nspname like 'public_before%'")
        assert len(kept.fetchall()) == 1


def test_nothing_is_replaced_under_a_node(postgres_database: str) -> None:
    fill(postgres_database, "one")
    made = back_up()
    with psycopg.connect(postgres_database, application_name="legation"):
        assert "1 connection of a node is open: stop the nodes first" in refused(
            "restore", str(made), "--replace"
        )


def schemas(url: str) -> list[str]:
    with psycopg.connect(url) as live:
        found = live.execute("select nspname from pg_namespace where nspname like 'public%'")
        return [name for (name,) in found.fetchall()]


def test_a_restore_that_fails_leaves_what_was_there(
    postgres_database: str, postgres_cluster: Cluster
) -> None:
    """The table of contents is at the beginning of a dump, and the data behind it."""
    fill(postgres_database, *(f"n{number}" for number in range(300)))
    made = back_up()
    append(postgres_database, "since")
    manifest = read(made)
    (one,) = manifest.databases

    def seal(**changed: Any) -> None:
        changed_manifest = evolve(manifest, databases=(evolve(one, **changed),))
        (made / "manifest.json").write_text(json.dumps(write_manifest(changed_manifest)))

    seal(version="2.13.0")
    assert "its schema is 2.14.0, and the manifest says 2.13.0" in refused(
        "restore", str(made), "--replace"
    )
    assert (rows(postgres_database), schemas(postgres_database)) == (301, ["public"])

    content = (made / "main.dump").read_bytes()[:-2000]
    (made / "main.dump").write_bytes(content)
    seal(file=evolve(one.file, size=len(content), sha256=sha256(content).hexdigest()))
    assert "pg_restore failed" in refused("restore", str(made), "--replace")
    assert (rows(postgres_database), schemas(postgres_database)) == (301, ["public"])

    with postgres_cluster.new_database() as empty:
        configure(empty, "empty.toml")
        assert "pg_restore failed" in refused("restore", str(made), "empty.toml")
        assert schemas(empty) == ["public"]
        assert typed("migrate", "empty.toml", "main").exit_code == 0


def test_a_program_that_is_missing_is_explained_with_its_command(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    fill(postgres_database, "one")
    made = back_up()
    monkeypatch.setenv("PATH", str(folder / "nothing"))
    said = refused("backup", "--output", "more")
    assert said.startswith("databases.main.url: pg_dump is not in PATH.  Install the client")
    (command,) = [line for line in said.splitlines() if line.startswith("  pg_dump ")]
    assert "--format=custom" in command
    assert "--snapshot" not in command
    assert "dbname=d_" in command
    assert "pg_restore is not in PATH" in refused("restore", str(made))
    assert [path.name for path in Path("more").iterdir()] == [".legation-backup.lock"]


def test_a_program_older_than_the_server_is_explained(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    fill(postgres_database, "one")
    old = script(folder / "old", "pg_dump", "echo 'pg_dump (PostgreSQL) 9.6.24'")
    add_to_path(monkeypatch, old)
    assert "pg_dump 9.6.24 is older than the server" in refused("backup")


def test_a_program_that_fails_is_quoted_and_nothing_is_left(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    fill(postgres_database, "one")
    text = "test $# = 1 && echo 'pg_dump (PostgreSQL) 99.1' && exit; echo 'no space' >&2; exit 1"
    add_to_path(monkeypatch, script(folder / "failing", "pg_dump", text))
    assert refused("backup") == "databases.main.url: pg_dump failed: no space"
    text = "test $# = 1 && echo 'pg_dump (PostgreSQL) 99.1' && exit; kill -XFSZ $$"
    add_to_path(monkeypatch, script(folder / "killed", "pg_dump", text))
    assert refused("backup") == "databases.main.url: pg_dump failed: ended with -25"
    assert [path.name for path in Path("backups").iterdir()] == [".legation-backup.lock"]


def test_a_password_is_no_argument(
    postgres_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    role, password = "keeper", "s3cret-of-keeper"
    with suppress(psycopg.errors.DuplicateObject):
        postgres_cluster.run(f"create role {PASSWORD_GROUP} nologin")
    postgres_cluster.run(f"create role {role} login password '{password}' in role {PASSWORD_GROUP}")
    postgres_cluster.run(f"create database kept owner {role} template template0")
    try:
        place = f"127.0.0.1:{postgres_cluster.port}/kept"
        url = f"postgresql://{role}:{password}@{place}?max_connections=4"
        fill(url, "one")
        real = postgres_cluster.binaries
        seen = folder / "seen"
        for name in ("pg_dump", "pg_restore"):
            text = f'echo "{name} $@" >> {seen}; exec {real}/{name} "$@"'
            script(folder / "spies", name, text)
        add_to_path(monkeypatch, folder / "spies")
        made = back_up()
        assert typed("restore", str(made), "--replace").exit_code == 0
        assert rows(url.partition("?")[0]) == 1
        assert password not in seen.read_text()
        assert seen.read_text().count("--dbname=") == 2
        assert password not in "".join(path.read_text(errors="replace") for path in made.iterdir())
        unsent = f"postgresql://{role}@{place}?sslpassword=x"
        configure(unsent, "unsent.toml")
        assert "sslpassword cannot be handed" in refused("backup", "unsent.toml", "--output", "b")
        configure(f"postgresql://{role}:wrong@{place}", "wrong.toml")
        said = refused("backup", "wrong.toml", "--output", "b")
        assert "password authentication failed" in said
        assert "wrong@" not in said
    finally:
        postgres_cluster.run("drop database kept with (force)")
        postgres_cluster.run(f"drop role {role}")


def test_a_pooler_is_refused(postgres_database: str, postgres_cluster: Cluster) -> None:
    """`pg_dump` sets an empty search path, which the next client of the connection would have."""
    fill(postgres_database, "one")
    try:
        with pooled(postgres_cluster) as port:
            configure(through(postgres_database, port), "pooled.toml")
            assert "there is a pooler in between" in refused("backup", "pooled.toml")
    except NoPooler as reason:
        pytest.skip(str(reason))


def test_an_empty_database_is_no_backup(postgres_database: str) -> None:
    configure(postgres_database)
    assert refused("backup") == "databases.main: it has no schema yet, and nothing is stored in it"
    configure("postgresql://postgres@127.0.0.1:9/none")
    assert refused("backup").startswith("databases.main.url: ")


def test_an_interrupt_ends_the_program_and_leaves_nothing(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    fill(postgres_database, "one")
    note = folder / "begun"
    text = (
        "test $# = 1 && echo 'pg_dump (PostgreSQL) 99.1' && exit;"
        f"trap '' INT; echo $$ > {note}.part; mv {note}.part {note}; exec sleep 600"
    )
    add_to_path(monkeypatch, script(folder / "slow", "pg_dump", text))
    paths = (str(ROOT / "core"), str(ROOT / "frontends"))
    command = subprocess.Popen(
        [sys.executable, "-m", "legation_cli", "backup"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    await_true(lambda: note.exists() or command.poll() is not None)
    program = int(note.read_text())
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=60)

    assert "Traceback" not in said
    assert command.returncode == 1
    await_true(lambda: not is_alive(program))
    assert [path.name for path in Path("backups").iterdir()] == [".legation-backup.lock"]


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
