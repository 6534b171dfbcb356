"""What waits is claimed by who hosts it, in the order of its session, however much waits."""

from __future__ import annotations

from typing import Final

import pytest

from legation.store.run_keeping import ClaimWaiting, FindNeglected, NextNeglected
from legation.store.run_rows import ClaimedRun, RunLease, StoredEvent
from legation.store.run_steering import Continued, ContinueRun
from legation.store.runs import Ended, FinishRun, StartRun
from legation.store.turns import search_waiting
from legation.store.units import Dialect

from ...one_database import Database

OLD: Final = ("agent:desk", "agent:desk@1")
NEW: Final = ("agent:crew", "agent:desk", "agent:desk@2", "team:crew")


def start(
    database: Database,
    run_id: str,
    session_id: str = "s",
    *,
    of: str = "desk",
    version: str | None = None,
    node: str = "n",
    kind: str = "agent",
) -> bool:
    """Start a run; return whether it was claimed at once."""
    count = len(database.ask("select 1 from runs"))
    unit = StartRun(
        owner="o",
        session_id=session_id,
        run_id=run_id,
        kind=kind,
        component_id=of,
        version=version,
        input="{}",
        name="",
        node=node,
        now_us=count,
    )
    return database.run(unit).claim is not None


def finish(
    database: Database, run_id: str, hosted: tuple[str, ...], status: str = "COMPLETED"
) -> Ended:
    """End a run at its first attempt, on a node with `hosted`."""
    return database.run(
        FinishRun(
            owner="o",
            session_id="s",
            run_id=run_id,
            lease=RunLease("n", 1),
            node="n",
            now_us=50,
            status=status,
            output="{}",
            reason=None,
            usage=None,
            events=(StoredEvent(1, "e", "{}"),),
            hosted=hosted,
        )
    )


def claim(database: Database, hosted: tuple[str, ...]) -> str | None:
    """Claim what waits; return the id of the run."""
    claimed = database.run(ClaimWaiting("n", 99, hosted))
    return claimed.run_id if isinstance(claimed, ClaimedRun) else None


def let_wait(database: Database) -> None:
    """Let everything wait, as after the crash of its node."""
    database.connection.execute(
        "update runs set status = 'PENDING', lease_by = null, lease_us = null"
    )


@pytest.mark.parametrize(
    ("kind", "of", "version", "by_old", "by_new"),
    [
        ("agent", "desk", None, True, True),
        ("agent", "desk", "1", True, False),
        ("agent", "desk", "2", False, True),
        ("agent", "desk", "3", False, False),
        ("agent", "crew", None, False, True),
        ("team", "crew", None, False, True),
        ("team", "desk", None, False, False),
        ("agent", "desk:", None, False, False),
        ("agent", "gone", None, False, False),
    ],
)
def test_what_waits_is_claimed_by_who_hosts_it(
    kind: str, of: str, version: str | None, by_old: bool, by_new: bool
) -> None:
    for hosted, taken in ((OLD, by_old), (NEW, by_new), ((), False)):
        database = Database()
        start(database, "a", kind=kind, of=of, version=version)
        let_wait(database)

        assert database.run(FindNeglected(hosted)).waiting is taken
        assert database.run(NextNeglected(hosted)) == (0 if taken else None)
        assert claim(database, hosted) == ("a" if taken else None)


def test_oldest_is_claimed_first_of_whatever_it_was_asked() -> None:
    database = Database()
    for number, (of, version) in enumerate(
        [("gone", None), ("desk", "2"), ("crew", None), ("desk", None), ("desk", "1")]
    ):
        start(database, f"r{number}", f"s{number}", of=of, version=version)
    let_wait(database)

    assert [claim(database, NEW) for _ in range(4)] == ["r1", "r2", "r3", None]
    assert [claim(database, OLD) for _ in range(2)] == ["r4", None]


def test_no_run_overtakes_one_of_its_session_that_nobody_here_hosts() -> None:
    database = Database()
    start(database, "first", version="1")
    assert not start(database, "second", version="2")
    assert not start(database, "third", version="1")
    let_wait(database)
    assert claim(database, NEW) is None
    assert claim(database, OLD) == "first"

    assert claim(database, NEW) is None  # the session is busy
    ended = database.run(
        FinishRun(
            owner="o",
            session_id="s",
            run_id="first",
            lease=RunLease("n", 2),
            node="n",
            now_us=50,
            status="COMPLETED",
            output="{}",
            reason=None,
            usage=None,
            events=(StoredEvent(1, "e", "{}"),),
            hosted=OLD,
        )
    )
    assert ended == Ended(kept=True, elsewhere=True)
    assert claim(database, OLD) is None
    assert claim(database, NEW) == "second"


@pytest.mark.parametrize(
    ("hosted", "following", "elsewhere"),
    [(OLD, None, True), (NEW, "next", False), ((), None, True)],
)
def test_who_ends_a_run_claims_the_next_if_it_hosts_that(
    hosted: tuple[str, ...], following: str | None, elsewhere: bool
) -> None:
    database = Database()
    assert start(database, "a", version="1")
    start(database, "next", version="2")
    start(database, "last", version="1")

    ended = finish(database, "a", hosted)
    found = None if ended.following is None else ended.following.run_id
    assert (ended.kept, found, ended.elsewhere) == (True, following, elsewhere)
    assert finish(database, "a", hosted).following == ended.following


def test_nobody_is_told_of_others_where_nothing_waits() -> None:
    database = Database()
    start(database, "a")

    assert finish(database, "a", ()) == Ended(kept=True)


def test_run_of_another_version_goes_on_elsewhere() -> None:
    database = Database()
    start(database, "a", version="1")
    finish(database, "a", OLD, "PAUSED")
    unit = ContinueRun("o", "s", "a", 1, "answered", "t", "n", 60, NEW, waits=False)
    continued = Continued("PAUSED", kept=True, elsewhere=True)

    assert database.run(unit) == continued
    assert database.run(unit) == Continued("PAUSED", kept=True)
    assert not start(database, "later", version="2")
    assert claim(database, NEW) is None
    assert claim(database, OLD) == "a"
    assert database.ask("select input, attempt, reason from runs where run_id = 'a'") == [
        ("answered", 2, "waiting")
    ]


def test_a_run_keeps_the_version_it_was_asked_of() -> None:
    database = Database()
    start(database, "a", version="1")
    start(database, "b", "t")

    assert database.ask("select run_id, version from runs") == [("a", "1"), ("b", None)]


# --- However much waits


def steps(database: Database, hosted: tuple[str, ...]) -> int:
    """Return how many thousands of steps the engine takes to look for what waits."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    statement = search_waiting(Dialect.SQLITE, hosted)
    database.connection.set_progress_handler(count, 1_000)
    database.connection.execute(
        statement.text(Dialect.SQLITE), dict(statement.parameters)
    ).fetchall()
    database.connection.set_progress_handler(None, 0)
    return taken


def fill(size: int, sessions: int) -> Database:
    """Return a database in which `size` runs of an agent wait in so many sessions."""
    database = Database()
    database.connection.executemany(
        """insert into runs (owner, session_id, run_no, run_id, kind, component_id, status, input,
            created_us) values ('o', ?, ?, ?, 'agent', 'desk', 'PENDING', '{}', ?)""",
        ((f"s{n % sessions}", n // sessions + 1, f"r{n}", n) for n in range(size)),
    )
    return database


@pytest.mark.parametrize("hosted", [NEW, ("agent:other",)], ids=["hosted", "not"])
@pytest.mark.parametrize("sessions", [100, 20_000])
def test_a_look_costs_as_much_for_each_run_that_waits_however_many_there_are(
    sessions: int, hosted: tuple[str, ...]
) -> None:
    few, many = (fill(size, min(sessions, size)) for size in (2_000, 20_000))

    assert steps(many, hosted) < 12 * steps(few, hosted)
