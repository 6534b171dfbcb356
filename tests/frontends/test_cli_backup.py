"""`legation backup` and `legation restore` on SQLite: whole or not there, whatever happens."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from legation.lifecycle.backup_manifest import (
    Manifest,
    SavedFile,
    read_manifest,
    write_manifest,
)
from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation_cli import main
from legation_cli.backup_folder import check_files, check_room, describe_size, new_folder
from legation_cli.failing import CannotGoOn
from legation_host.databases import open_writer
from legation_host.file_locks import FileLock
from legation_host.sqlite_backup import FileInUse, put_in_place

from .backup_kit import legation
from .cluster_kit import NIGHTLY

PLATFORM: Final = """
[platform]
id = "front-office"

[databases.main]
url = "sqlite:///main.db"

[databases.other]
url = "sqlite:///other.db"

[[agents]]
id = "desk"
"""
BACKUP: Final = Path("backups/front-office-20250101T000000Z")
"""The backup that there is in the folder of each test."""

FOLDER: Final = str(BACKUP)
ENTRY: Final = AuditEntry(0, "r", "ada", None, "op", "a/b", "allow", "s", 200, "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A platform with two databases, each with a row of the trail, and a backup of them."""
    folder = tmp_path_factory.mktemp("made")
    before = Path.cwd()
    os.chdir(folder)
    try:
        Path("platform.toml").write_text(PLATFORM)
        for name in ("main", "other"):
            assert CliRunner().invoke(main, ["migrate", name]).exit_code == 0
            append(name)
        assert typed("backup").exit_code == 0
        next(Path("backups").glob("front-office-*")).rename(BACKUP)
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(autouse=True)
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    here = tmp_path / "here"
    shutil.copytree(made, here)
    monkeypatch.chdir(here)
    path = list(sys.path)
    yield here
    sys.path[:] = path


def append(name: str, writer: str = "n") -> None:
    """Add a row to the audit trail of a database."""
    with open_writer(name, f"sqlite:///{name}.db") as run:
        run(AppendAudit(writer, (ENTRY,), None))


def rows(path: str | Path) -> int:
    """Return how many pages the trail in a file has."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        (found,) = connection.execute("select count(*) from trail").fetchone()
    return int(found)


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def read(folder: Path) -> Manifest:
    manifest = read_manifest((folder / "manifest.json").read_bytes())
    assert isinstance(manifest, Manifest)
    return manifest


def refused(*words: str) -> str:
    """Return the sentence of a command that changes nothing."""
    before = {path: path.read_bytes() for path in Path().glob("*.db*") if path.is_file()}
    result = typed(*words)
    after = {path: path.read_bytes() for path in Path().glob("*.db*") if path.is_file()}
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert after == before
    return result.stderr.removeprefix("Error: ").strip()


# --- A backup ------------------------------------------------------------------------------------


def test_a_backup_is_private_and_its_manifest_is_true() -> None:
    manifest = read(BACKUP)
    check_files(BACKUP, manifest.files, lambda: None)
    files = sorted(path.name for path in BACKUP.iterdir())

    assert files == ["heads.json", "main.sqlite", "manifest.json", "other.sqlite"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in BACKUP.iterdir()} == {0o600}
    assert stat.S_IMODE(BACKUP.stat().st_mode) == 0o700
    assert [(one.database, one.intact, one.rows) for one in manifest.databases] == [
        ("main", True, 1),
        ("other", True, 1),
    ]
    with (BACKUP / "main.sqlite").open("rb") as file:
        assert file.read(20)[18:] == b"\x01\x01"  # no WAL: it is one file


def test_heads_are_for_audit_verify() -> None:
    heads = ("--heads", str(BACKUP / "heads.json"))
    assert typed("audit", "verify", *heads).exit_code == 0
    append("main")
    assert typed("audit", "verify", *heads).exit_code == 0


def test_newer_heads_lead_nowhere_after_a_restore() -> None:
    append("main", "since")
    Path("newer.json").write_text(typed("audit", "verify", "--json").stdout)
    assert typed("restore", FOLDER).exit_code == 0
    result = typed("audit", "verify", "--heads", "newer.json")

    assert result.exit_code == 1
    assert "of chained/since: what an exported head names is missing" in result.stdout


def test_what_is_open_elsewhere_is_copied_with_its_wal() -> None:
    with open_writer("main", "sqlite:///main.db") as run:
        run(AppendAudit("late", (ENTRY,), None))
        assert Path("main.db-wal").stat().st_size
        assert typed("backup", "platform.toml", "main", "--output", "b").exit_code == 0
    (made,) = Path("b").glob("front-office-*")
    assert rows(made / "main.sqlite") == 2


def test_old_backups_are_removed_and_nothing_else() -> None:
    (Path("backups") / "front-office-notes").mkdir()
    for day in ("20200101", "20200102", "20200103"):
        shutil.copytree(BACKUP, f"backups/front-office-{day}T000000Z")
    found = json.loads(typed("backup", "--keep", "3", "--json").stdout)

    assert found["removed"] == ["front-office-20200101T000000Z", "front-office-20200102T000000Z"]
    assert {path.name for path in Path("backups").iterdir()} == {
        ".legation-backup.lock",
        "front-office-20200103T000000Z",
        BACKUP.name,
        "front-office-notes",
        Path(found["folder"]).name,
    }


def test_a_broken_trail_is_backed_up_and_told(folder: Path) -> None:
    with closing(sqlite3.connect("main.db", isolation_level=None)) as connection:
        connection.execute("update trail set data = replace(data, 'allow', 'deny')")
    result = typed("backup", "platform.toml", "main", "--output", "broken")

    assert result.exit_code == 1
    assert "the audit trail: broken at number 1 of chained/n: it is not as it was" in result.stdout
    (made,) = (folder / "broken").glob("front-office-*")
    assert read(made).databases[0].intact is False
    restored = typed("restore", str(made), "platform.toml", "main")
    assert restored.exit_code == 0
    assert "broken at number 1" in restored.stdout


def test_an_older_schema_is_backed_up_before_it_is_migrated(folder: Path) -> None:
    words = ("--to", "2.9.0", "--allow-data-loss")
    assert typed("migrate", "main", *words).exit_code == 0
    assert typed("backup", "platform.toml", "main", "--output", "old").exit_code == 0
    (made,) = (folder / "old").glob("front-office-*")
    result = typed("restore", str(made), "platform.toml", "main")

    assert result.exit_code == 0
    assert "The schema is at 2.9.0; migrate it to 2.14.0" in result.stdout


def test_a_newer_schema_is_refused_by_the_sentence_of_the_server(folder: Path) -> None:
    with closing(sqlite3.connect("main.db", isolation_level=None)) as connection:
        connection.execute("update schema_ledger set to_version = '9.0.0', serves = '8.0.0'")
    assert typed("backup", "platform.toml", "main", "--output", "new").exit_code == 0
    (made,) = (folder / "new").glob("front-office-*")
    result = typed("restore", str(made), "platform.toml", "main")

    assert result.exit_code == 0
    assert "The schema is at 9.0.0, which needs code for 8.0.0 or later" in result.stdout


def test_there_is_no_backup_of_what_is_not_there() -> None:
    Path("other.db").unlink()
    assert (
        refused("backup", "--output", "b") == "databases.other.url: there is no file other.db yet"
    )
    Path("other.db").touch()
    assert refused("backup", "--output", "b") == (
        "databases.other: it has no schema yet, and nothing is stored in it"
    )
    Path("memory.toml").write_text('[databases.main]\nurl = "sqlite://"\n[[agents]]\nid = "a"\n')
    assert refused("backup", "memory.toml") == (
        "databases.main.url: it is in memory, and gone with its server"
    )
    assert [path.name for path in Path("b").iterdir()] == [".legation-backup.lock"]


def test_a_folder_is_never_overwritten(folder: Path) -> None:
    for make in (Path.mkdir, Path.touch):
        make(folder / "front-office-20260101T120000Z")
        with (
            pytest.raises(CannotGoOn, match="a backup overwrites nothing"),
            new_folder(folder, "front-office", 1_767_268_800_000_000),
        ):
            pass
        shutil.rmtree(folder / "front-office-20260101T120000Z", ignore_errors=True)


def test_one_backup_at_a_time_goes_to_a_folder(folder: Path) -> None:
    lock = FileLock.open(str(folder / "backups" / ".legation-backup.lock"))
    assert lock.try_hold()
    assert refused("backup") == "backups: another backup is under way there"
    lock.close()
    assert typed("backup", "--output", "b").exit_code == 0


def test_an_interrupt_leaves_nothing(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_folder(folder / "b", "p", 0) as (partial, _):
        (partial / "main.sqlite").touch()
        raise KeyboardInterrupt
    assert [path.name for path in (folder / "b").iterdir()] == [".legation-backup.lock"]


def test_too_little_space_is_said_before(folder: Path) -> None:
    with pytest.raises(CannotGoOn, match=r"not enough space: 16\.1 MiB needed, 16\.0 MiB free"):
        check_room(folder, 16 << 20, 100_000)
    check_room(folder, 16 << 20, 0)
    assert describe_size(1023) == "1023 bytes"
    assert describe_size(5 << 40) == "5.0 TiB"


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    words = ("backup", "--output", "full")
    done = legation(*words, cwd=folder, preexec_fn=_small_files)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: main.db: cannot be copied: ")
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in (folder / "full").iterdir()] == [".legation-backup.lock"]

    before = Path("main.db").read_bytes()
    done = legation("restore", FOLDER, cwd=folder, preexec_fn=_small_files)
    assert (done.returncode, done.stdout) == (2, "")
    assert "File too large" in done.stderr
    assert Path("main.db").read_bytes() == before
    assert not Path("main.db.restoring").exists()


# --- A restore -----------------------------------------------------------------------------------


def test_a_restore_keeps_what_was_there() -> None:
    append("main")
    result = typed("restore", FOLDER, "platform.toml", "main", "--json")

    (one,) = json.loads(result.stdout)["databases"]
    assert (one["database"], one["schema"], one["detail"]) == ("main", "2.14.0", "")
    assert (rows("main.db"), rows(one["aside"])) == (1, 2)
    assert one["trail"]["intact"]
    assert stat.S_IMODE(Path("main.db").stat().st_mode) == 0o600


def test_a_restore_has_no_confirmation_of_what_it_replaced_with_discard() -> None:
    Path("main.db").chmod(0o640)
    assert typed("restore", FOLDER, "--discard").exit_code == 0
    assert not list(Path().glob("*.before-*"))
    assert stat.S_IMODE(Path("main.db").stat().st_mode) == 0o640


def test_a_restore_says_what_an_operator_must_know() -> None:
    output = typed("restore", FOLDER).stdout
    for words in ("not of the same one", "messages again", "idempotency keys", "revocations_file"):
        assert words in output


def test_a_database_that_is_gone_is_restored_through_a_link(folder: Path) -> None:
    (folder / "disk").mkdir()
    Path("main.db").rename(folder / "disk" / "real.db")
    Path("main.db").symlink_to(folder / "disk" / "real.db")
    assert typed("restore", FOLDER, "platform.toml", "main").exit_code == 0
    assert Path("main.db").is_symlink()
    assert len(list((folder / "disk").glob("real.db.before-*"))) == 1

    (folder / "disk" / "real.db").unlink()
    output = typed("restore", FOLDER, "platform.toml", "main").stdout
    assert "what was there before" not in output
    assert rows("main.db") == 1


def test_a_wal_that_was_left_stays_with_its_file() -> None:
    with open_writer("main", "sqlite:///main.db") as run:
        run(AppendAudit("late", (ENTRY,), None))
        for suffix in ("", "-wal"):
            shutil.copy(f"main.db{suffix}", f"killed.db{suffix}")
    for suffix in ("", "-wal"):
        Path(f"killed.db{suffix}").replace(f"main.db{suffix}")
    result = typed("restore", FOLDER, "platform.toml", "main", "--json")

    (one,) = json.loads(result.stdout)["databases"]
    assert (rows("main.db"), rows(one["aside"])) == (1, 2)


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000])
def test_a_damaged_file_is_kept_as_it_is(content: bytes) -> None:
    Path("main.db").write_bytes(content)
    Path("main.db-wal").write_bytes(b"what is left")
    Path("main.db-shm").write_bytes(b"an index")
    result = typed("restore", FOLDER, "platform.toml", "main", "--json")

    (one,) = json.loads(result.stdout)["databases"]
    assert Path(one["aside"]).read_bytes() == content
    assert Path(f"{one['aside']}-wal").read_bytes() == b"what is left"
    assert sorted(path.name for path in Path().glob("main.db-[ws]*")) == []
    assert rows("main.db") == 1


HOLDS: Final = {
    "sound": """import sqlite3
live = sqlite3.connect("main.db")
live.execute("pragma journal_mode = wal")
live.execute("select * from sqlite_master").fetchall()""",
    "damaged": """import fcntl
live = open("main.db", "r+b")
live.write(b"garbage")
live.flush()
fcntl.lockf(live, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0x40000002)""",
}
"""Programs that have the file open as SQLite has it."""


@pytest.mark.parametrize("hold", HOLDS)
def test_nothing_is_restored_under_a_server(hold: str, folder: Path) -> None:
    said = "main.db: another process has the file open: stop the server first"
    stop = start(HOLDS[hold])
    try:
        assert refused("restore", FOLDER).endswith(said)
        with pytest.raises(FileInUse):
            put_in_place(folder / "new.db", folder / "main.db", folder / "aside.db")
    finally:
        stop()
    assert not Path("aside.db").exists()


def start(program: str) -> Callable[[], object]:
    """Run a program until it has done its work; return what ends it."""
    waits = f"{program}\nimport sys\nprint(flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process.communicate


def test_one_restore_at_a_time() -> None:
    lock = FileLock.open("main.db.restoring", make_mode=0o600)
    assert lock.try_hold()
    assert refused("restore", FOLDER).endswith("another restore is under way")
    lock.close()
    Path("main.db.restoring").write_bytes(b"what a crash has left of it")
    assert typed("restore", FOLDER).exit_code == 0
    assert rows("main.db") == 1


def test_a_file_that_was_changed_is_not_restored() -> None:
    copy = BACKUP / "main.sqlite"
    whole = copy.read_bytes()
    copy.write_bytes(whole[:-1])
    assert "it has not the" in refused("restore", FOLDER)
    copy.write_bytes(whole[:-1] + b"?")
    assert refused("restore", FOLDER, "--check").endswith("its SHA-256 differs")
    copy.unlink()
    assert "it is missing" in refused("restore", FOLDER)
    Path("elsewhere").write_bytes(whole)
    copy.symlink_to(Path("elsewhere").absolute())
    assert "it is missing" in refused("restore", FOLDER)
    copy.unlink()
    copy.write_bytes(whole)
    assert typed("restore", FOLDER, "--check").exit_code == 0


def seal(manifest: Manifest) -> None:
    (BACKUP / "manifest.json").write_text(json.dumps(write_manifest(manifest)))


def forge(change: Callable[[sqlite3.Connection], object]) -> None:
    """Change the copy, and the manifest with it, as whoever may write there can."""
    path = BACKUP / "main.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        change(connection)
    data = path.read_bytes()
    manifest = read(BACKUP)
    main_, other = manifest.databases
    file = SavedFile("main.sqlite", len(data), sha256(data).hexdigest())
    seal(evolve(manifest, databases=(evolve(main_, file=file), other)))


def test_a_manifest_that_was_changed_is_not_believed() -> None:
    path = BACKUP / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace("2.14.0", "2.13.0"))
    assert refused("restore", FOLDER).endswith("it is not as it was written")
    path.write_text(" " * ((1 << 20) + 1))
    assert refused("restore", FOLDER).endswith("it is too long")
    path.unlink()
    assert refused("restore", FOLDER).endswith("is no backup: it has no manifest.json")
    assert refused("restore", str(Path())) == ".: is no backup: it has no manifest.json"


def test_a_manifest_leads_out_of_no_folder() -> None:
    manifest = read(BACKUP)
    one, two = manifest.databases
    for name in ("../../main.db", str(Path("main.db").absolute()), ""):
        file = evolve(one.file, name=name)
        seal(evolve(manifest, databases=(evolve(one, file=file), two)))
        assert refused("restore", FOLDER).endswith("a member of it is missing or wrong")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("update schema_ledger set to_version = '2.13.0' where to_version = '2.14.0'", "schema"),
        ("update trail set data = replace(data, 'allow', 'deny')", "audit trail is broken"),
        ("delete from trail", "audit trail is broken"),
    ],
)
def test_a_copy_that_was_forged_with_its_manifest_is_found(change: str, said: str) -> None:
    forge(lambda connection: connection.execute(change))
    assert said in refused("restore", FOLDER, "platform.toml", "main")


def test_a_copy_that_is_damaged_is_found() -> None:
    def damage(connection: sqlite3.Connection) -> None:
        connection.execute("pragma writable_schema = 1")
        connection.execute("delete from sqlite_master where name = 'sessions'")

    forge(damage)
    assert "damaged" in refused("restore", FOLDER, "platform.toml", "main")


def test_a_backup_is_for_its_platform_its_databases_and_its_engine() -> None:
    Path("shop.toml").write_text(PLATFORM.replace("front-office", "shop"))
    assert "not of 'shop'" in refused("restore", FOLDER, "shop.toml")
    more = PLATFORM.replace("databases.other", "databases.third")
    Path("more.toml").write_text(more)
    assert "no database 'third' in it" in refused("restore", FOLDER, "more.toml")
    moved = PLATFORM.replace("sqlite:///main.db", "postgresql://db.invalid/main")
    Path("moved.toml").write_text(moved)
    assert "a backup stays on its engine" in refused("restore", FOLDER, "moved.toml", "main")
    away = PLATFORM.replace("main.db", "away/main.db")
    Path("away.toml").write_text(away)
    assert "there is no folder" in refused("restore", FOLDER, "away.toml")


def test_the_first_stays_restored_where_the_second_fails() -> None:
    append("main")
    manifest = read(BACKUP)
    one, two = manifest.databases
    seal(evolve(manifest, databases=(one, evolve(two, version="2.13.0"))))
    result = typed("restore", FOLDER)

    assert result.exit_code == 2
    assert "restored before this: main" in result.stderr
    assert rows("main.db") == 1


# --- A crash at each step ------------------------------------------------------------------------

EVERY: Final = 1 if NIGHTLY else 3
"""Of so many steps one is the last, in one try after the other."""

_STEPS: Final = frozenset(
    "open os.chmod os.link os.mkdir os.remove os.rename os.rmdir sqlite3.connect".split()
)


def crash_at(folder: Path, number: int, words: tuple[str, ...]) -> bool:
    """Run a command in a child that ends at the step of this number; tell whether it came to it."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 9), code
        return code == 9
    left = number

    def hear(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event in _STEPS and str(args[0]).startswith((str(folder), "backups", "main", "other")):
            left -= 1
            if left == 0:
                os._exit(9)

    try:
        sys.addaudithook(hear)
        main.main([*words], standalone_mode=False)
    except BaseException:  # noqa: BLE001 (the child ends here, whatever it is)
        os._exit(1)
    os._exit(0)


def test_a_backup_that_crashes_anywhere_does_not_look_whole(
    folder: Path, figures: Callable[[str], None]
) -> None:
    shutil.rmtree("backups")
    number = 1
    while crash_at(folder, number, ("backup", "--json")):
        for found in Path("backups").glob("front-office-*"):
            check_files(found, read(found).files, lambda: None)
            shutil.rmtree(found)
        number += EVERY
    assert not list(Path("backups").glob(".partial-*"))
    assert len(list(Path("backups").glob("front-office-*"))) == 1
    figures(f"a backup ended at each of {number // EVERY} steps: none looks whole and is not")
    assert number > 15


def test_a_restore_that_crashes_anywhere_leaves_the_old_or_the_new(
    folder: Path, figures: Callable[[str], None]
) -> None:
    words = ("restore", FOLDER, "platform.toml", "main")
    with open_writer("main", "sqlite:///main.db") as run:
        run(AppendAudit("late", (ENTRY,), None))
        for suffix in ("", "-wal"):
            shutil.copy(f"main.db{suffix}", folder / f"killed{suffix}")
    number, seen = 1, list[int]()
    while True:
        for left in Path().glob("main.db*"):
            if left.is_file():
                left.unlink()
        for suffix in ("", "-wal"):
            shutil.copy(f"killed{suffix}", f"main.db{suffix}")
        crashed = crash_at(folder, number, words)
        seen.append(rows("main.db"))
        for kept in Path().glob("main.db.before-*Z"):
            assert rows(kept) == 2
        if not crashed:
            break
        number += EVERY
    assert seen == sorted(seen, reverse=True)
    assert {*seen} == {1, 2}
    figures(f"a restore ended at each of {number // EVERY} steps: the old file or the new one")
    assert number > 10
