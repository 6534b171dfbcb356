"""The number of an owner's sessions is right on both engines, whatever others change meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Final

import pytest
from hypothesis import Phase, given, settings

from legation.migrations.catalogue import CATALOGUE
from legation.store.session_counts import KEEP, LOCK, MOST_COUNTED, KeepSessionCount
from legation.store.sessions import CreateSession, DeleteSessions

from ..drivers import Driver, PostgresDriver
from ..session_moves import BEGINNING, KEPT, KINDS, MOVES, OWN, OWNERS, SessionMove, list_kind
from .migrating import driver_of, move

BEFORE: Final = CATALOGUE.versions[-2]
ROUNDS: Final = 60
FILL: Final = """
    insert into sessions (owner, session_id, kind, component_id, created_us, updated_us)
    with recursive n (i) as (select 1 union all select i + 1 from n where i < {})
    select 'ada', 's' || i, 'agent', 'c', i, i from n"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/main.db"
    found: str = request.getfixturevalue("postgres")
    return found


@pytest.fixture
def driver(url: str) -> Generator[Driver]:
    with closing(driver_of(url)) as found:
        move(found, CATALOGUE.latest)
        yield found


def is_right(driver: Driver) -> None:
    """Compare what a list says, and each row, with what is there."""
    for owner in OWNERS:
        for kind in KINDS:
            ((count,),) = driver.ask(OWN.format(owner, kind))
            assert driver.run(list_kind(owner, kind)).total == count
    assert [kept for kept, _ in driver.ask(KEPT)] == [count for _, count in driver.ask(KEPT)]


def test_the_number_is_right_after_every_move(driver: Driver) -> None:
    @settings(max_examples=40, phases=(Phase.explicit, Phase.generate))
    @given(MOVES)
    def check(moves: list[SessionMove]) -> None:
        for table in ("session_counts", "runs", "sessions", "usage", "background"):
            driver.ask(f"delete from {table}")
        for one in (*BEGINNING, *moves):
            driver.ask(one.text) if one.text else driver.run(one.unit)
            is_right(driver)

    check()


def test_a_way_down_and_up_forgets_what_was_kept(driver: Driver) -> None:
    driver.ask(FILL.format(MOST_COUNTED + 2))
    driver.run(KeepSessionCount("ada", "agent"))
    move(driver, BEFORE)
    driver.ask("delete from sessions where session_id = 's1'")
    move(driver, CATALOGUE.latest)

    assert driver.ask("select count(*) from session_counts") == [(0,)]
    page = driver.run(list_kind("ada", "agent"))
    assert (page.total, page.keep) == (MOST_COUNTED + 1, KeepSessionCount("ada", "agent"))


# --- PostgreSQL, on which several write at once

CHANGES: Final = {
    "insert": "insert into sessions (owner, session_id, kind, component_id, created_us, updated_us)"
    " values ('ada', 'old', 'agent', 'c', 1, 1)",
    "delete": "delete from sessions where session_id = 's1'",
    "update": "update sessions set kind = 'team' where session_id = 's1'",
}


@pytest.fixture
def filled(postgres: str) -> Generator[PostgresDriver]:
    with closing(PostgresDriver(postgres)) as driver:
        move(driver, CATALOGUE.latest)
        driver.ask(FILL.format(9))
        yield driver


@pytest.mark.parametrize("kept_before", [True, False], ids=["kept before", "not kept before"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_not_committed_when_the_number_is_kept_changes_it_later(
    filled: PostgresDriver, postgres: str, change: str, kept_before: bool
) -> None:
    if kept_before:
        filled.run(KeepSessionCount("ada", "agent"))
        filled.ask(CHANGES["insert"].replace("'old', 'agent', 'c', 1", "'new', 'agent', 'c', 99"))
    with closing(PostgresDriver(postgres)) as other:
        other.ask("begin")
        other.ask(change)
        filled.run(KeepSessionCount("ada", "agent"))
        other.ask("commit")

    is_right(filled)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_who_keeps_the_number_waits_for_those_who_looked_for_it(
    filled: PostgresDriver, postgres: str, change: str
) -> None:
    with closing(PostgresDriver(postgres)) as other, closing(PostgresDriver(postgres)) as keeper:
        other.ask("begin")
        other.ask(change)
        other.ask("set constraints all immediate")
        thread = Thread(target=keeper.run, args=(KeepSessionCount("ada", "agent"),))
        thread.start()
        while thread.is_alive() and not filled.ask("select 1 from pg_locks where not granted"):
            pass
        other.ask("commit")
        thread.join()

    assert len(filled.ask("select 1 from session_counts")) == 1
    is_right(filled)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_who_changes_a_session_waits_for_the_one_who_keeps_the_number(
    filled: PostgresDriver, postgres: str, change: str
) -> None:
    filled.run(KeepSessionCount("ada", "agent"))
    filled.ask(CHANGES["insert"].replace("'old', 'agent', 'c', 1", "'new', 'agent', 'c', 99"))
    with closing(PostgresDriver(postgres)) as other, closing(PostgresDriver(postgres)) as keeper:
        keeper.ask("begin")
        keeper.ask(LOCK.text)
        thread = Thread(target=other.ask, args=(change,))
        thread.start()
        while thread.is_alive() and not filled.ask("select 1 from pg_locks where not granted"):
            pass
        keeper.execute(KEEP.psycopg_text, KEEP(owner="ada", kind="agent", until_us=9))
        keeper.ask("commit")
        thread.join()

    is_right(filled)


def test_those_who_change_sessions_at_once_neither_lose_one_nor_stop_each_other(
    filled: PostgresDriver, postgres: str
) -> None:
    failed: list[Exception] = []

    def change(name: str, seed: int) -> Callable[[], None]:
        def work() -> None:
            drawn = random.Random(seed)
            try:
                with closing(PostgresDriver(postgres)) as driver:
                    for number in range(ROUNDS):
                        ids = [f"{name}{number}{kind}" for kind in drawn.sample(KINDS, 2)]
                        for one in ids:
                            kind = one.removeprefix(f"{name}{number}")
                            driver.run(CreateSession("ada", one, kind, "c", drawn.randrange(1000)))
                        driver.run(KeepSessionCount("ada", drawn.choice(KINDS)))
                        if number % 3:
                            named = tuple(("ada", one, None) for one in ids)
                            driver.run(DeleteSessions(named, None, 9))
            except Exception as error:  # noqa: BLE001 (a deadlock, which is `Busy`, or worse)
                failed.append(error)

        return work

    threads = [Thread(target=change(name, seed)) for seed, name in enumerate("abcd")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    ((left,),) = filled.ask("select count(*) from sessions")
    assert left == 9 + 4 * 2 * ROUNDS // 3
    is_right(filled)
