# ruff: noqa: N802 (the names of a file system layer are SQLite's)
"""What was acknowledged is on the disk: every state that a power cut may leave is tried.

The writer of the host runs, on its thread and in its groups, on a SQLite whose file system layer
writes down what it is asked for.  A disk that loses power
holds what was synced; of what was written after that any part, in any order, the last sectors of a
write perhaps not.  For each moment of the record such disks are made up and opened by the SQLite
that the product runs on: the file has to be sound, each unit of work whole, each acknowledged one
there.  The entries of a folder are taken as kept, and the index of the WAL, which lives in shared
memory, is not written (`locking_mode=EXCLUSIVE`).

It is SQLite that syncs, so this is run on the newest Python alone.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias, cast

import apsw
import pytest
import trio
from attrs import define, field, frozen

from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Attempt
from legation.store.inbox import NewMessage, PutMessages
from legation.store.sessions import CreateSession
from legation.store.units import Dialect, Sql, Statements, Undo, Unit
from legation_host.sqlite import IDLE_SECONDS, SqliteDatabase
from legation_host.sqlite_connection import BUSY_MS, _configure

pytestmark = pytest.mark.newest

SECTOR: Final = 512
RUNS: Final = 4
ROUNDS: Final = 10  # of each task that writes
PAGES: Final = 40  # in the WAL, when the commit that finds them brings them home
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
    """A caller heard that its unit is kept; each thing in it has the name of its kind and a number.

    The first is the schema and the runs.
    """

    units: frozenset[tuple[str, int]]


Event: TypeAlias = Write | Truncate | Sync | Delete | Acknowledge
Image: TypeAlias = dict[str, bytearray]


@define
class Recorder:
    """The record, in which everybody has heard what was said before the next thing is written.

    The writer does not wait for those it tells.  Here it does, wherever it writes: an answer that
    comes too early is always found, not by luck.
    """

    events: list[Event] = field(factory=list["Event"])
    _loop: trio.lowlevel.TrioToken = field(factory=trio.lowlevel.current_trio_token, init=False)
    _thread: int = field(factory=threading.get_ident, init=False)

    def add(self, event: Event) -> None:
        """Note `event`, after what was heard until now."""
        if threading.get_ident() != self._thread:
            for _ in range(3):  # the message, who waited for it, and what that one does then
                trio.from_thread.run_sync(_turn, trio_token=self._loop)
        self.events.append(event)

    def acknowledge(self, *units: tuple[str, int]) -> None:
        """Note that a caller heard of `units`."""
        self.events.append(Acknowledge(frozenset(units)))


def _turn() -> None:
    """Let the event loop go round."""


class RecordingFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], record: Recorder) -> None:
        self.name = Path(name.filename() if isinstance(name, apsw.URIFilename) else name).name
        self.record = record
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        self.record.add(Write(self.name, offset, bytes(data)))
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]

    def xTruncate(self, newsize: int) -> None:
        self.record.add(Truncate(self.name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self.record.add(Sync(self.name))


class RecordingVfs(apsw.VFS):
    names = count()

    def __init__(self, record: Recorder) -> None:
        self.vfs_name = f"recording {next(self.names)}"
        self.record = record
        super().__init__(self.vfs_name, "")

    def xOpen(self, name: Any, flags: list[int]) -> RecordingFile:
        return RecordingFile(name, flags, self.record)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.record.add(Delete(Path(filename).name))


@frozen
class Layer:
    """Opens connections as the host does, on the recording layer; `synchronous` weakens that."""

    vfs: RecordingVfs
    synchronous: str | None = None

    def __call__(self, path: str, *, read_only: bool = False) -> sqlite3.Connection:
        if read_only:
            return sqlite3.connect(":memory:")  # nobody reads here
        # Of what the host calls on a connection of `sqlite3`, this one has all.
        opened = apsw.Connection(path, vfs=self.vfs.vfs_name)
        connection = cast("sqlite3.Connection", opened)
        connection.execute("pragma locking_mode = exclusive").fetchall()
        _configure(connection, path, read_only=False, busy_ms=BUSY_MS)
        connection.execute(f"pragma wal_autocheckpoint = {PAGES}").fetchall()
        if self.synchronous is not None:
            connection.execute(f"pragma synchronous = {self.synchronous}").fetchall()
        return connection


# --- what is done

MIGRATE: Final = Attempt(CATALOGUE, None, False, False, "test", "n", "r", "a", 0)
BEGIN: Final = Sql(
    """insert into runs (owner, session_id, run_no, run_id, kind, component_id, status, input,
    created_us) values ('ada', 's', :number, :run_id, 'agent', 'a', 'RUNNING', '', 0)""",
    registered=False,
)
COUNT: Final = Sql(
    "update runs set events = events + 1 where run_id = :run_id returning events", registered=False
)
APPEND: Final = Sql(
    "insert into events (run_id, seq, at_us, name, data) values (:run_id, :seq, 0, :end, :data)",
    registered=False,
)
KEPT, UNDONE, BROKEN = "kept", "undone", "broken"


@frozen
class Begin(Unit[None]):
    number: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield BEGIN(number=self.number, run_id=f"run {self.number}")


class Broken(Exception):
    """The unit does not go on."""


@frozen
class Append(Unit[int]):
    """An event and its number, which the run counts: both are there, or neither.

    A unit that is undone or breaks takes what others of its group did to the savepoints.
    """

    writes: ClassVar[bool] = True

    run_id: str
    size: int
    end: str = KEPT

    def statements(self, dialect: Dialect) -> Statements[int | Undo[int]]:
        ((seq,),) = yield COUNT(run_id=self.run_id)
        yield APPEND(run_id=self.run_id, seq=seq, data="x" * self.size, end=self.end)
        if self.end == BROKEN:
            raise Broken
        return Undo(0) if self.end == UNDONE else int(seq)


async def append(database: SqliteDatabase, record: Recorder, run_id: str, rounds: range) -> None:
    chance = random.Random(f"{run_id} {rounds}")
    for number in rounds:
        size = chance.choice((10, 900, 6_000))
        if chance.random() < 0.1:
            await database.run(Append(run_id, size, UNDONE))
        if chance.random() < 0.1:
            with suppress(Broken):
                await database.run(Append(run_id, size, BROKEN))
        await database.run(Append(run_id, size))
        record.acknowledge((run_id, number))


async def receive(database: SqliteDatabase, record: Recorder, rounds: range) -> None:
    """Store messages, one to three of a delivery, as a webhook does."""
    for number in rounds:
        size = 1 + number % 3
        names = [f"{number} {place} {size}" for place in range(size)]
        messages = tuple(NewMessage(name, "4911", "{}") for name in names)
        await database.run(PutMessages("chat", messages, 0))
        record.acknowledge(*((name, 0) for name in names))


async def create(database: SqliteDatabase, record: Recorder, rounds: range) -> None:
    """Create sessions, each twice; the second time nothing is to stay."""
    for number in rounds:
        made = CreateSession("ada", f"session {number}", "agent", "concierge", 0)
        await database.run(made)
        record.acknowledge((made.session_id, 0))
        await database.run(made)


async def work(database: SqliteDatabase, record: Recorder, rounds: int) -> list[Event]:
    """Migrate, then write from several tasks; return all that was written until then."""
    await database.run(MIGRATE)
    for number in range(RUNS):
        await database.run(Begin(number))
    record.acknowledge()
    for part in (range(1, 3), range(3, rounds + 1)):
        async with trio.open_nursery() as nursery:
            for number in range(RUNS):
                nursery.start_soon(append, database, record, f"run {number}", part)
            nursery.start_soon(receive, database, record, part)
            nursery.start_soon(create, database, record, part)
        if part.stop <= rounds:
            await trio.sleep(IDLE_SECONDS + 0.1)  # the writer brings the WAL home
    used, sharing = database.usage(), 2 if rounds == ROUNDS else 1  # in few rounds few writes meet
    assert used["commits_total"] < used["units_total"] / sharing
    return list(record.events)  # closing the connection is not part of it


def record_work(kind: type[SqliteDatabase], synchronous: str | None, rounds: int) -> list[Event]:
    async def main() -> list[Event]:
        record = Recorder()
        layer = Layer(RecordingVfs(record), synchronous)
        with tempfile.TemporaryDirectory() as folder:
            database = kind("main", str(Path(folder, "main.db")), connect=layer)
            async with aclosing(database):
                return await work(database, record, rounds)

    return trio.run(main)


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
    kept = _find_kept(connection)
    if kept is None:
        return "half a unit"
    return "whole" if told is None or told <= kept else "lost"


def _find_kept(connection: sqlite3.Connection) -> set[tuple[str, int]] | None:
    """Return what is there by its names; None where there is half of something."""
    rows = connection.execute("select run_id, seq, name from events").fetchall()
    events = {(run_id, seq) for run_id, seq, end in rows if end == KEPT}
    counts = connection.execute("select run_id, events from runs").fetchall()
    if len(events) < len(rows) or events != {
        (run_id, seq) for run_id, last in counts for seq in range(1, last + 1)
    }:
        return None
    names = {name for (name,) in connection.execute("select message_id from inbox")}
    for name in names:
        delivery, _, size = name.split()
        if not names.issuperset(f"{delivery} {place} {size}" for place in range(int(size))):
            return None
    sessions = {name for (name,) in connection.execute("select session_id from sessions")}
    return events | {(name, 0) for name in names | sessions}


def verdicts(
    synchronous: str | None,
    rounds: int = ROUNDS,
    kind: type[SqliteDatabase] = SqliteDatabase,
    *,
    acknowledged: bool = False,
) -> Counter[str]:
    """Count what is found on the disks of every moment.

    `acknowledged`: of those since the first answer, as before it there is nothing to lose.
    """
    found: Counter[str] = Counter()
    chance, disk = random.Random(0), Disk()
    told: frozenset[tuple[str, int]] | None = None
    # In memory where there is such a place: these files are opened once.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        for event in record_work(kind, synchronous, rounds):
            disk.take(event)
            if isinstance(event, Acknowledge):
                told = event.units if told is None else told | event.units
            for image in disk.images(chance):
                if told is not None or not acknowledged:
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
    found = verdicts("normal", acknowledged=True)

    figures(
        f"power cut, sqlite, synchronous=NORMAL: {found.total()} disks,"
        f" {found['lost']} without what was acknowledged"
    )
    assert set(found) == {"whole", "lost"}
    assert found["lost"] > found.total() / 4


def test_the_simulator_sees_a_file_that_is_not_sound() -> None:
    assert verdicts("off", rounds=2)["corrupt"] > 0


class Hasty(SqliteDatabase):
    """Tells everybody, then does it: the planted fault."""

    def _perform(self, batch: list[Any]) -> None:
        self._tell(batch)
        super()._perform(batch)


def test_an_answer_before_the_commit_is_found() -> None:
    found = verdicts(None, rounds=2, kind=Hasty, acknowledged=True)

    assert set(found) == {"whole", "lost"}
    assert found["lost"] > found.total() / 4
