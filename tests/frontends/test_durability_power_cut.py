# ruff: noqa: N802 (the names of a file system layer are SQLite's)
"""What was acknowledged is on the disk: every state that a power cut may leave is tried.

SQLite runs on a file system layer that writes down what it is asked for.  A disk that loses power
holds what was synced; of what was written after that any part, in any order, the last sectors of a
write perhaps not.  For each moment of the record such disks are made up and opened by the SQLite
that the product runs on: the file has to be sound, each unit of work whole, each acknowledged one
there.  The entries of a folder are taken as kept, and the index of the WAL, which lives in shared
memory, is not written (`locking_mode=EXCLUSIVE`).
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import apsw
from attrs import define, field, frozen

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Attempt
from legation.store.units import Dialect, Sql, Statements, Unit
from legation_host.sqlite_connection import BUSY_MS, _configure, in_transaction, run_unit

SECTOR: Final = 512
RUNS: Final = 4
COMMITS: Final = 40
PICKS: Final = 2  # random subsets of what was not synced, at each moment, beside none and all

# --- what is written down


@frozen
class Write:
    """`data` was written at `offset`; cut short is how a sector may not have made it."""

    file: str
    offset: int
    data: bytes


@frozen
class Truncate:
    file: str
    size: int


@frozen
class Sync:
    file: str


@frozen
class Delete:
    file: str


@frozen
class Acknowledge:
    """The caller was told that `units` are kept: the name of a run and the number of its event."""

    units: frozenset[tuple[str, int]]


Event: TypeAlias = Write | Truncate | Sync | Delete | Acknowledge
Image: TypeAlias = dict[str, bytearray]


class RecordingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], record: list[Event]) -> None:
        self.name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name
        self.record = record
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        self.record.append(Write(self.name, offset, bytes(data)))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

    def xTruncate(self, newsize: int) -> None:
        self.record.append(Truncate(self.name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.record.append(Sync(self.name))


class RecordingVfs(apsw.VFS):
    names = count()

    def __init__(self, record: list[Event]) -> None:
        self.vfs_name = f"recording {next(self.names)}"
        self.record = record
        super().__init__(self.vfs_name, "")

    def xOpen(self, name: Any, flags: list[int]) -> RecordingFile:
        return RecordingFile(name, flags, self.record)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.record.append(Delete(Path(filename).name))


# --- what is done

BEGIN: Final = Sql(
    """insert into runs (owner, session_id, run_no, run_id, kind, component_id, status, input,
    created_us) values ('ada', 's', :number, :run_id, 'agent', 'a', 'RUNNING', '', 0)""",
    registered=False,
)
COUNT: Final = Sql(
    "update runs set events = events + 1 where run_id = :run_id returning events", registered=False
)
APPEND: Final = Sql(
    "insert into events (run_id, seq, at_us, name, data) values (:run_id, :seq, 0, 'x', :data)",
    registered=False,
)


@frozen
class Begin(Unit[None]):
    number: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield BEGIN(number=self.number, run_id=f"run {self.number}")


@frozen
class Append(Unit[int]):
    """An event and its number, which the run counts: both are there, or neither."""

    run_id: str
    size: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        ((seq,),) = yield COUNT(run_id=self.run_id)
        yield APPEND(run_id=self.run_id, seq=seq, data="x" * self.size)
        return int(seq)


def opened(path: Path, vfs: RecordingVfs, synchronous: str | None) -> sqlite3.Connection:
    """Open as the host does, on the recording layer; `synchronous` weakens that afterwards."""
    # Of what the host calls on a connection of `sqlite3`, this one has all.
    opened = apsw.Connection(str(path), vfs=vfs.vfs_name)
    connection = cast("sqlite3.Connection", opened)
    connection.execute("pragma locking_mode = exclusive").fetchall()
    _configure(connection, str(path), read_only=False, busy_ms=BUSY_MS)
    if synchronous is not None:
        connection.execute(f"pragma synchronous = {synchronous}").fetchall()
    return connection


def workload(synchronous: str | None, commits: int) -> list[Event]:
    """Migrate, then append events in groups, with checkpoints; return all that was written."""
    chance = random.Random(0)
    record: list[Event] = []
    vfs = RecordingVfs(record)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(opened(Path(folder, "main.db"), vfs, synchronous)) as connection,
    ):
        run_unit(connection, MIGRATE)
        for number in range(RUNS):
            run_unit(connection, Begin(number))
        record.append(Acknowledge(frozenset()))
        for _ in range(commits):
            record.append(Acknowledge(frozenset(group(connection, chance))))
            if chance.random() < 0.15:
                mode = chance.choice(("passive", "truncate"))
                connection.execute(f"pragma wal_checkpoint({mode})").fetchall()
        return list(record)  # closing the connection is not part of it


MIGRATE: Final = Attempt(CATALOGUE, None, False, False, "test", "n", "r", "a", 0)


def group(connection: sqlite3.Connection, chance: random.Random) -> Iterator[tuple[str, int]]:
    """Commit a few units together, as the writer of the host does; yield what may be told."""
    done: list[tuple[str, int]] = []
    connection.execute("begin immediate")
    for _ in range(chance.choice((1, 1, 3, 8))):
        unit = Append(f"run {chance.randrange(RUNS)}", chance.choice((10, 900, 6_000)))
        connection.execute("savepoint unit")
        seq, _ = in_transaction(connection, unit)
        connection.execute("release unit")
        done.append((unit.run_id, seq))
    connection.execute("commit")
    yield from done


# --- what is left


@define
class Disk:
    """What is on it for sure, and what was asked for since the last sync of its file."""

    sure: Image = field(factory=dict[str, bytearray])
    loose: list[Write | Truncate] = field(factory=list["Write | Truncate"])

    def take(self, event: Event) -> None:
        """Go on to the moment after `event`."""
        match event:
            case Write() | Truncate():
                self.loose.append(event)
            case Sync(file):
                for one in self.loose:
                    if one.file == file:
                        apply(self.sure, one)
                self.loose = [one for one in self.loose if one.file != file]
            case Delete(file):
                self.sure.pop(file, None)
                self.loose = [one for one in self.loose if one.file != file]
            case Acknowledge():
                pass

    def images(self, chance: random.Random) -> Iterator[Image]:
        """Yield disks as they may be found after a power cut now."""
        yield self._image(lambda: False, chance)
        if self.loose:
            yield self._image(lambda: True, chance)
            for _ in range(PICKS):
                yield self._image(lambda: chance.random() < 0.5, chance)

    def _image(self, kept: Callable[[], bool], chance: random.Random) -> Image:
        image = {name: bytearray(data) for name, data in self.sure.items()}
        for one in self.loose:
            if kept():
                apply(image, torn(one, chance))
        return image


def apply(image: Image, change: Write | Truncate) -> None:
    data = image.setdefault(change.file, bytearray())
    if isinstance(change, Truncate):
        del data[change.size :]
        return
    if len(data) < change.offset:
        data.extend(bytes(change.offset - len(data)))
    data[change.offset : change.offset + len(change.data)] = change.data


def torn(change: Write | Truncate, chance: random.Random) -> Write | Truncate:
    """Return `change`, now and then without its last sectors."""
    if isinstance(change, Truncate) or chance.random() > 0.15:
        return change
    sectors = chance.randrange(len(change.data) // SECTOR + 1)
    return Write(change.file, change.offset, change.data[: sectors * SECTOR])


def verdict(folder: Path, image: Image, told: frozenset[tuple[str, int]] | None) -> str:
    """Open `image` and say what is wrong with it; `told` is None before the schema was."""
    for old in folder.iterdir():
        old.unlink()
    for name, data in image.items():
        (folder / name).write_bytes(data)
    try:
        with closing(sqlite3.connect(folder / "main.db")) as connection:
            return _judged(connection, told)
    except sqlite3.DatabaseError:
        return "corrupt"


def _judged(connection: sqlite3.Connection, told: frozenset[tuple[str, int]] | None) -> str:
    if connection.execute("pragma integrity_check").fetchall() != [("ok",)]:
        return "corrupt"
    tables = {name for (name,) in connection.execute("select name from sqlite_master")}
    if "runs" not in tables:
        if tables:
            return "half a migration"
        return "whole" if told is None else "lost"
    versions = connection.execute("select to_version from schema_ledger").fetchall()
    if versions != [(str(CATALOGUE.latest),)] or "background" not in tables:
        return "half a migration"
    events = set(connection.execute("select run_id, seq from events").fetchall())
    counts = connection.execute("select run_id, events from runs").fetchall()
    if events != {(run_id, seq) for run_id, last in counts for seq in range(1, last + 1)}:
        return "half a unit"
    return "whole" if told is None or told <= events else "lost"


def verdicts(synchronous: str | None, commits: int = COMMITS) -> Counter[str]:
    """Count what is found on the disks of every moment."""
    found: Counter[str] = Counter()
    chance, disk = random.Random(0), Disk()
    told: frozenset[tuple[str, int]] | None = None
    # In memory where there is such a place: these files are opened once.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        for event in workload(synchronous, commits):
            disk.take(event)
            if isinstance(event, Acknowledge):
                told = event.units if told is None else told | event.units
            for image in disk.images(chance):
                found[verdict(Path(name), image, told)] += 1
    return found


def test_a_power_cut_loses_nothing_that_was_acknowledged(figures: Callable[[str], None]) -> None:
    found = verdicts(None)

    figures(
        f"power cut, sqlite: {found.total()} disks, {found.total() - found['whole']} violations"
    )
    assert set(found) == {"whole"}
    assert found.total() > 2_500


def test_the_simulator_sees_what_a_weaker_setting_loses(figures: Callable[[str], None]) -> None:
    """Without a sync at each commit the file stays sound, and lacks what was acknowledged."""
    found = verdicts("normal")

    figures(
        f"power cut, sqlite, synchronous=NORMAL: {found.total()} disks,"
        f" {found['lost']} without what was acknowledged"
    )
    assert set(found) == {"whole", "lost"}
    assert found["lost"] > found.total() / 4


def test_the_simulator_sees_a_file_that_is_not_sound() -> None:
    assert verdicts("off", commits=10)["corrupt"] > 0
