"""Migrations on real engines: whatever happens, a database is at one version or at another.

Each case is one thing gone wrong at one point of one move between two versions.  What is compared
is the whole schema as text, and the whole ledger.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from itertools import count, permutations, product
from pathlib import Path
from typing import Any, ClassVar, Final

import psycopg
import pytest
import trio
from attrs import define, evolve, field
from hypothesis import given, settings
from hypothesis import strategies as st

from legation.effects import Program
from legation.migrations.catalogue import CATALOGUE, Catalogue, Migration, Step
from legation.migrations.ledger import Entry, LedgerReading, ReadLedger, State
from legation.migrations.migrate import (
    CheckRefused,
    Migrated,
    MigrationBusy,
    MigrationFailed,
    MigrationOutcome,
    migrate,
)
from legation.migrations.plan import Ahead, Drift, LosesData, UnknownVersion
from legation.migrations.schema_version import EMPTY, Version
from legation_host import Host, open_host

from ..drivers import LOCK_TIMEOUT_MS, Cut, Driver, PostgresDriver, SqliteDriver, drive, leave_alone
from ..dumps import dump
from ..engines import Cluster
from .cluster_kit import NIGHTLY

VERSIONS: Final = CATALOGUE.versions
LATEST: Final = CATALOGUE.latest
PAIRS: Final = list(product(VERSIONS, repeat=2))
MOVING: Final = list(permutations(VERSIONS, 2))
INTERRUPTED: Final = [
    (from_, to)
    for from_, to in MOVING
    if NIGHTLY
    or {from_, to} == {VERSIONS[0], LATEST}
    or abs(VERSIONS.index(from_) - VERSIONS.index(to)) == 1
]
"""The moves that are interrupted: all of them at night, else each step and all steps at once."""

ENGINES: Final = ["sqlite", "postgresql"]

Figures = Callable[[str], None]
Opener = Callable[[], Driver]
Interfere = Callable[[str | None], str | None]
Standing = tuple[Version, tuple[Entry, ...], str]  # the version, the ledger and the schema


# --- databases to break


@define
class Engine(ABC):
    """Makes databases that stand at any version, and knows what each version looks like."""

    name: ClassVar[str]

    shapes: dict[Version, str] = field(factory=dict[Version, str])

    @abstractmethod
    def empty(self) -> AbstractContextManager[Opener]:
        """Yield what opens a new database with nothing in it."""

    @contextmanager
    def at(self, version: Version) -> Generator[Opener]:
        """Yield what opens a new database at `version`."""
        with self.empty() as opener:
            assert isinstance(go(opener, version), Migrated)
            yield opener

    def shape(self, version: Version) -> str:
        """Return the schema of `version`, reached from nothing in one request."""
        if version not in self.shapes:
            with self.at(version) as opener, closing(opener()) as driver:
                self.shapes[version] = dump(driver)
        return self.shapes[version]


@define
class Sqlite(Engine):
    name: ClassVar[str] = "sqlite"

    folder: Path = field(kw_only=True)
    numbers: Iterator[int] = field(factory=count, init=False)

    @contextmanager
    def empty(self) -> Generator[Opener]:
        folder = self.folder / str(next(self.numbers))
        folder.mkdir()
        yield lambda: SqliteDriver(folder / "test.db")
        shutil.rmtree(folder)


@define
class Postgres(Engine):
    name: ClassVar[str] = "postgresql"

    cluster: Cluster = field(kw_only=True)

    @contextmanager
    def empty(self) -> Generator[Opener]:
        with self.cluster.new_schema() as url:
            yield lambda: PostgresDriver(url)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    if request.param == "sqlite":
        return Sqlite(folder=tmp_path_factory.mktemp("sqlite"))
    return Postgres(cluster=request.getfixturevalue("postgres_cluster"))


@pytest.fixture
def postgres_engine(postgres_cluster: Cluster) -> Postgres:
    return Postgres(cluster=postgres_cluster)


def asked(
    target: Version | None, catalogue: Catalogue = CATALOGUE, **options: Any
) -> Program[MigrationOutcome]:
    """Return the program that migrates to `target`."""
    return migrate("main", catalogue, target, actor="test", request_id="r", node="n", **options)


def go(opener: Opener, target: Version | None, **options: Any) -> MigrationOutcome:
    """Migrate on a connection of its own, and accept what that loses."""
    with closing(opener()) as driver:
        return drive(driver, asked(target, allow_data_loss=True, **options))


def reading(driver: Driver) -> LedgerReading:
    return driver.run(ReadLedger())


def stands(driver: Driver) -> Standing:
    """Return all there is to compare."""
    ledger = reading(driver)
    assert isinstance(ledger.state, State)
    return ledger.state.version, ledger.entries, dump(driver)


# --- the schema itself


@pytest.mark.parametrize("version", VERSIONS[1:], ids=str)
def test_the_schema_of_a_version_is_the_published_one(
    engine: Engine, version: Version, golden: Callable[[str, str], None]
) -> None:
    with engine.at(version) as opener, closing(opener()) as driver:
        golden(f"schema-{engine.name}-{version}.txt", dump(driver, ledger=True))


def test_reading_makes_nothing(engine: Engine) -> None:
    with engine.empty() as opener, closing(opener()) as driver:
        assert reading(driver).state == State()
        assert dump(driver, ledger=True) == ""


def test_the_history_of_another_schema_on_the_search_path_is_not_ours(
    postgres_cluster: Cluster,
) -> None:
    with postgres_cluster.new_schema() as theirs, postgres_cluster.new_schema() as ours:
        assert isinstance(go(lambda: PostgresDriver(theirs), LATEST), Migrated)
        both = f"{ours},{theirs.rpartition('%3D')[2]}"
        with closing(PostgresDriver(both)) as driver:
            assert reading(driver).state == State()
            arrive(Postgres(cluster=postgres_cluster), driver, VERSIONS[1])


# --- crashes and failures


def cut_at(point: int) -> Interfere:
    """Return what ends the process when the thing number `point` is about to be done."""
    points = count()

    def interfere(text: str | None) -> str | None:
        if next(points) == point:
            raise Cut
        return text

    return interfere


@pytest.mark.enumeration
def test_a_crash_at_any_point_leaves_one_version_or_the_other(
    engine: Engine, figures: Figures
) -> None:
    cases = kept = 0
    for from_, to in INTERRUPTED:
        with engine.at(from_) as opener, closing(opener()) as look:
            for point in count():
                before = stands(look)
                if not crashes(opener, to, point):
                    break  # there is no such point: everything was done
                cases += 1
                kept += assert_whole(engine, look, before, to)
                for target in (to, from_):  # a second try gets there, and there is a way back
                    arrive(engine, look, target)
    figures(
        f"migrations, {engine.name}: {cases} crashes between {len(INTERRUPTED)} pairs of versions"
    )
    assert kept == len(INTERRUPTED)  # those between COMMIT and its answer
    assert cases > 250


def crashes(opener: Opener, to: Version, point: int) -> bool:
    """Migrate, and crash at `point`; return whether the point was reached."""
    with closing(opener()) as driver:
        driver.interfere = cut_at(point)
        try:
            drive(driver, asked(to, allow_data_loss=True))
        except Cut:
            return True
        return False


def assert_whole(engine: Engine, look: Driver, before: Standing, to: Version) -> bool:
    """Check that all of the move to `to` is there, or nothing of it; return which."""
    from_, entries, schema = before
    version, entries_now, schema_now = stands(look)
    if entries_now == entries:
        assert (version, schema_now) == (from_, schema)
        return False
    assert entries_now[:-1] == entries
    assert (entries_now[-1].from_version, version) == (from_, to)
    assert schema_now == engine.shape(to)
    return True


def arrive(engine: Engine, driver: Driver, target: Version) -> None:
    """Migrate to `target` and check that the database is there."""
    outcome = drive(driver, asked(target, allow_data_loss=True))
    version, _, schema = stands(driver)

    assert isinstance(outcome, Migrated)
    assert (outcome.to_version, version) == (target, target)
    assert schema == engine.shape(target)


def test_the_files_that_a_killed_process_leaves_hold_one_version_or_the_other(
    tmp_path: Path, figures: Figures
) -> None:
    engine = Sqlite(folder=tmp_path)
    images = 0
    for from_, to in INTERRUPTED:
        with engine.at(from_) as opener, closing(opener()) as look:
            before = stands(look)
            with closing(opener()) as driver:
                assert isinstance(driver, SqliteDriver)
                driver.interfere, copies = copied(driver.path, tmp_path / "images")
                drive(driver, asked(to, allow_data_loss=True))
        for copy in copies:
            with closing(SqliteDriver(copy / "test.db")) as left:
                assert_whole(engine, left, before, to)
                arrive(engine, left, to)
        images += len(copies)
        shutil.rmtree(tmp_path / "images")
    figures(f"migrations, sqlite: {images} images of the files taken during moves, each whole")
    assert images > 250


def copied(database: Path, folder: Path) -> tuple[Interfere, list[Path]]:
    """Return what copies the database and its log at every point, and the list of the copies."""
    copies: list[Path] = []

    def interfere(text: str | None) -> str | None:
        copy = folder / str(len(copies))
        copy.mkdir(parents=True)
        for path in (database, database.with_name(f"{database.name}-wal")):
            if path.exists():
                shutil.copy(path, copy)
        copies.append(copy)
        return text

    return interfere, copies


def refused_at(point: int) -> tuple[Interfere, list[str]]:
    """Return what breaks the statement number `point`, and the list of those it has broken."""
    broken: list[str] = []
    points = count()

    def interfere(text: str | None) -> str | None:
        if text is not None and next(points) == point:
            broken.append(text)
            return "select no_such_thing"
        return text

    return interfere, broken


def test_a_statement_that_the_engine_refuses_leaves_the_old_version(
    engine: Engine, figures: Figures
) -> None:
    cases = 0
    for from_, to in INTERRUPTED:
        with engine.at(from_) as opener, closing(opener()) as driver:
            before = stands(driver)
            for point in count():
                driver.interfere, broken = refused_at(point)
                outcome = drive(driver, asked(to, allow_data_loss=True))
                driver.interfere = leave_alone
                if not broken:
                    break
                cases += 1
                assert isinstance(outcome, MigrationFailed)
                assert outcome.reason == "StatementFailed"
                assert stands(driver) == before
            assert stands(driver)[::2] == (to, engine.shape(to))
    figures(f"migrations, {engine.name}: {cases} statements refused, the old version stands")
    assert cases > 200


def test_a_rehearsal_takes_every_step_and_leaves_nothing(engine: Engine) -> None:
    for from_, to in PAIRS:
        with engine.at(from_) as opener, closing(opener()) as driver:
            before = stands(driver), dump(driver, ledger=True)
            driver.interfere, statements = recorded()
            outcome = drive(driver, asked(to, allow_data_loss=True, rehearse=True))
            driver.interfere = leave_alone

            assert isinstance(outcome, Migrated)
            assert outcome.rehearsed
            # The ledger with the trail's tables and indexes, and the row that is taken back.
            assert len(statements) == 7 + steps(outcome, driver)
            assert (stands(driver), dump(driver, ledger=True)) == before


def recorded() -> tuple[Interfere, list[str]]:
    """Return what records each statement, and the list of them."""
    statements: list[str] = []

    def interfere(text: str | None) -> str | None:
        if text is not None:
            statements.append(text)
        return text

    return interfere, statements


def steps(outcome: Migrated, driver: Driver) -> int:
    """Return how many statements the moves of `outcome` are on this engine."""
    return sum(
        step.statement(driver.dialect) is not None for move in outcome.moves for step in move.steps
    )


def test_a_request_that_is_refused_leaves_nothing(engine: Engine) -> None:
    with engine.empty() as opener, closing(opener()) as driver:
        assert isinstance(drive(driver, asked(Version(9, 9, 9))), UnknownVersion)
        assert dump(driver, ledger=True) == ""

        go(opener, None)
        before = stands(driver)
        assert isinstance(drive(driver, asked(EMPTY)), LosesData)
        assert isinstance(drive(driver, asked(VERSIONS[2])), LosesData)
        assert isinstance(drive(driver, asked(Version(1, 0, 0))), UnknownVersion)
        assert stands(driver) == before


def test_rows_that_a_move_does_not_concern_stay(engine: Engine) -> None:
    columns = "owner, session_id, run_no, run_id, kind, component_id, status, input, created_us"
    with engine.at(VERSIONS[1]) as opener, closing(opener()) as driver:
        driver.ask(
            f"insert into runs ({columns})"
            " values ('o', 's', 1, 'r1', 'agent', 'a', 'PENDING', 'hello', 1)"
        )
        for target in (LATEST, VERSIONS[1], LATEST):
            go(opener, target)

        assert driver.ask("select run_id, input, usage from runs") == [("r1", "hello", None)]


CHECKED: Final = Migration(
    Version(2, 15),
    "checked",
    up=(
        Step("create table extra (x bigint)"),
        Step("select name from background where state <> 'done'", refuse_if="work is left"),
    ),
    down=(Step("drop table extra"),),
)


def test_a_check_that_finds_rows_undoes_the_steps_before_it(engine: Engine) -> None:
    catalogue = Catalogue((*CATALOGUE.migrations, CHECKED))
    with engine.at(LATEST) as opener, closing(opener()) as driver:
        before = stands(driver)
        driver.ask("insert into background (name) values ('fill')")

        refused = drive(driver, asked(None, catalogue))
        assert refused == CheckRefused(CHECKED.version, "checked", 2, "work is left")
        assert stands(driver) == before

        driver.ask("update background set state = 'done'")
        assert isinstance(drive(driver, asked(None, catalogue)), Migrated)


# --- other histories

FIRST, SECOND, *REST = CATALOGUE.migrations
LATE: Final = Migration(Version(2, 1, 0), "merged late", up=(Step("create table late (x text)"),))


def with_other_line_ends(migration: Migration) -> Migration:
    """Return the same migration as another checkout or a formatter has it."""
    up = tuple(
        Step(
            step.text.replace("\n", "\r\n\t"),
            None if step.postgresql is None else step.postgresql.replace(" ", "\n  "),
        )
        for step in migration.up
    )
    return evolve(migration, up=up)


@pytest.mark.parametrize(
    ("migrations", "expected"),
    [
        ((FIRST, SECOND), Ahead),
        ((evolve(FIRST, up=FIRST.up[:1]), SECOND, *REST), Drift),
        ((FIRST, LATE, SECOND, *REST), Drift),
        ((FIRST, *REST), Drift),
        (tuple(map(with_other_line_ends, CATALOGUE.migrations)), Migrated),
    ],
    ids=["newer code was here", "edited", "inserted below", "removed", "other line ends"],
)
def test_another_history_is_never_built_upon(
    engine: Engine, migrations: tuple[Migration, ...], expected: type
) -> None:
    with engine.at(LATEST) as opener, closing(opener()) as driver:
        before = stands(driver)

        assert isinstance(drive(driver, asked(None, Catalogue(migrations))), expected)
        assert stands(driver) == before


# --- many at once


@pytest.mark.parametrize(
    "path",
    [(), (VERSIONS[1],), (LATEST, EMPTY)],
    ids=["on nothing", "on an old version", "on an emptied database"],
)
def test_of_eight_at_once_one_moves_and_all_succeed(
    engine: Engine, path: tuple[Version, ...], figures: Figures
) -> None:
    outcomes: list[MigrationOutcome] = []
    barrier = threading.Barrier(8)
    start = path[-1] if path else EMPTY
    with engine.empty() as opener, closing(opener()) as look:
        reading(look)  # a new file becomes a WAL: who came meanwhile would be busy at once
        for target in path:
            go(opener, target)

        def node() -> None:
            with closing(opener()) as driver:
                reading(driver)  # so that each is connected
                barrier.wait(30)
                outcomes.append(drive(driver, asked(None)))

        started = time.monotonic()
        in_threads(node, 8)
        took_ms = (time.monotonic() - started) * 1e3

        made = sorted(len(outcome.moves) for outcome in outcomes if isinstance(outcome, Migrated))
        assert made == [*[0] * 7, len(VERSIONS) - 1 - VERSIONS.index(start)]
        with closing(opener()) as driver:
            version, entries, schema = stands(driver)
            assert (version, schema) == (LATEST, engine.shape(LATEST))
            assert len(entries) == len(path) + 1
    figures(f"migrations, {engine.name}: 8 at once from {start}, all answered in {took_ms:.0f} ms")


def in_threads(work: Callable[[], None], number: int) -> None:
    """Run `work` in so many threads at once; wait for all of them."""
    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def url_of(driver: Driver) -> str:
    """Return the URL under which a host opens the database of `driver`."""
    if isinstance(driver, SqliteDriver):
        return f"sqlite:///{driver.path}"
    assert isinstance(driver, PostgresDriver)
    return driver.url


async def test_hosts_at_once_keep_the_same_promise(engine: Engine) -> None:
    outcomes: list[MigrationOutcome] = []
    with engine.empty() as opener, closing(opener()) as look:
        databases = {"main": url_of(look)}

        async def node(host: Host) -> None:
            outcomes.append(await host.run(asked(None)))

        async with open_host(databases) as one, open_host(databases) as other:
            async with trio.open_nursery() as nursery:
                for host in (one, other) * 4:
                    nursery.start_soon(node, host)
            rehearsed = await one.run(asked(EMPTY, allow_data_loss=True, rehearse=True))

        made = sorted(len(outcome.moves) for outcome in outcomes if isinstance(outcome, Migrated))
        assert made == [*[0] * 7, len(CATALOGUE.migrations)]
        assert isinstance(rehearsed, Migrated)
        assert stands(look)[::2] == (LATEST, engine.shape(LATEST))


PROCESS: Final = """
import sys
from pathlib import Path
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import migrate
from tests.drivers import SqliteDriver, drive
driver = SqliteDriver(Path(sys.argv[1]))
program = migrate("main", CATALOGUE, None, actor="test", request_id="r", node=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
print(len(drive(driver, program).moves), flush=True)
"""


def test_of_four_processes_at_once_one_moves_and_all_succeed(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, tmp_path / "test.db", str(number)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    with ExitStack() as stack:
        for process in processes:
            stack.enter_context(process)
            stack.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        answers = [process.communicate("go\n", timeout=30)[0] for process in processes]

    assert sorted(answers) == ["0\n", "0\n", "0\n", f"{len(CATALOGUE.migrations)}\n"]


def test_a_lock_that_is_never_free_ends_the_patience(engine: Engine) -> None:
    with engine.empty() as opener, closing(opener()) as holder, closing(opener()) as driver:
        holder.begin(exclusive=True)
        started = time.monotonic()

        assert drive(driver, asked(None, patience_us=200_000)) == MigrationBusy(200_000)
        assert time.monotonic() - started > 0.2
        holder.rollback()
        assert isinstance(drive(driver, asked(None)), Migrated)


# --- any walk

UNKNOWN: Final = Version(7, 7, 7)
REQUESTS: Final = st.tuples(
    st.sampled_from([*VERSIONS, None, UNKNOWN]),
    st.booleans(),  # whether a loss is accepted
    st.sampled_from([False, False, True]),  # whether it is a rehearsal
    st.none() | st.integers(0, 32),  # where it crashes
)


def predicted(model: Version, target: Version | None, *, allow: bool, rehearse: bool) -> Version:
    """Return where a request leads that nothing interferes with."""
    to = LATEST if target is None else target
    refused = to == UNKNOWN or (to < model and not allow)
    return model if refused or rehearse else to


def test_any_walk_with_crashes_is_a_walk_between_versions(engine: Engine) -> None:
    """The model of a database is one variable: its version."""

    @settings(max_examples=40 if engine.name == "sqlite" else 10)
    @given(st.lists(REQUESTS, max_size=10))
    def walk(requests: list[tuple[Version | None, bool, bool, int | None]]) -> None:
        model = EMPTY
        with engine.empty() as opener, closing(opener()) as look:
            for target, allow, rehearse, point in requests:
                expected = {predicted(model, target, allow=allow, rehearse=rehearse)}
                with closing(opener()) as driver:
                    if point is not None:
                        driver.interfere = cut_at(point)
                    try:
                        drive(driver, asked(target, allow_data_loss=allow, rehearse=rehearse))
                    except Cut:
                        expected.add(model)
                model, _, schema = stands(look)
                assert model in expected
                assert schema == engine.shape(model)

    walk()


# --- the answer to COMMIT gets lost


@define
class LosingDriver(PostgresDriver):
    """Loses its connection around its first COMMIT."""

    cluster: Cluster = field(kw_only=True)
    when: str = field(kw_only=True)
    lost: bool = field(default=False, init=False)

    def commit(self) -> None:
        if self.lost:
            super().commit()
            return
        self.lost = self._committing = True
        connection = self.connection
        match self.when:
            case "before":
                pid = connection.info.backend_pid
                self.cluster.run(f"select pg_terminate_backend({pid}, 5000)")
                connection.execute("commit")  # raises
            case "while":
                connection.pgconn.send_query(b"commit")
            case _:
                connection.execute("commit")
        connection.pgconn.finish()
        raise psycopg.OperationalError("the connection is gone")


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("before", [MigrationFailed]),
        ("while", [Migrated, MigrationFailed]),
        ("after", [Migrated]),
    ],
)
@pytest.mark.parametrize("from_", [EMPTY, VERSIONS[2]], ids=str)
def test_a_commit_without_an_answer_is_looked_up(
    postgres_cluster: Cluster, from_: Version, when: str, expected: list[type]
) -> None:
    engine = Postgres(cluster=postgres_cluster)
    with engine.empty() as opener, closing(opener()) as look:
        if from_ != EMPTY:
            go(opener, from_)
        plain = opener()
        assert isinstance(plain, PostgresDriver)
        with closing(LosingDriver(plain.url, cluster=postgres_cluster, when=when)) as driver:
            outcome = drive(driver, asked(None))

        assert driver.lost
        assert type(outcome) in expected
        reached = LATEST if isinstance(outcome, Migrated) else from_
        assert stands(look)[::2] == (reached, engine.shape(reached))
        arrive(engine, look, LATEST)


# --- those who read meanwhile


def test_a_long_reader_delays_the_migration_and_the_migration_delays_nobody(
    postgres_cluster: Cluster, figures: Figures
) -> None:
    engine = Postgres(cluster=postgres_cluster)
    waits: list[float] = []
    outcomes: list[MigrationOutcome] = []
    done = threading.Event()

    with engine.at(VERSIONS[3]) as opener, closing(opener()) as reader:
        reader.begin(writes=False)
        reader.ask("select count(*) from runs")  # holds the table until the transaction ends

        def others() -> None:
            with closing(opener()) as driver:
                while not done.is_set():
                    asked_at = time.monotonic()
                    driver.ask("select count(*) from runs")
                    waits.append(time.monotonic() - asked_at)
                    time.sleep(0.005)

        def migration() -> None:
            outcomes.append(go(opener, LATEST))

        def ending() -> None:
            time.sleep(2)
            assert not outcomes
            reader.rollback()

        other = threading.Thread(target=others)
        other.start()
        started = time.monotonic()
        ender = threading.Thread(target=ending)
        ender.start()
        in_threads(migration, 1)
        took = time.monotonic() - started
        done.set()
        other.join(10)
        ender.join(10)

        assert isinstance(outcomes[0], Migrated)
        with closing(opener()) as driver:
            assert stands(driver)[::2] == (LATEST, engine.shape(LATEST))
    worst_ms = max(waits) * 1e3
    figures(
        f"migrations, postgresql: a table held for 2 s delayed the move {took:.1f} s"
        f" and other readers at most {worst_ms:.0f} ms (lock_timeout {LOCK_TIMEOUT_MS} ms)"
    )
    assert worst_ms < 1_000  # those behind a waiting ALTER TABLE would wait for all of the 2 s


def test_on_sqlite_a_reader_keeps_its_snapshot_and_nobody_waits(tmp_path: Path) -> None:
    engine = Sqlite(folder=tmp_path)
    with engine.at(VERSIONS[3]) as opener, closing(opener()) as reader:
        reader.begin(writes=False)
        before = dump(reader, ledger=True)

        assert isinstance(go(opener, LATEST), Migrated)
        assert dump(reader, ledger=True) == before
        reader.rollback()
        assert stands(reader)[::2] == (LATEST, engine.shape(LATEST))
