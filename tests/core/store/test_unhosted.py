from __future__ import annotations

from legation.store.runs import StartRun
from legation.store.unhosted import FindUnhosted, Unhosted

from ...one_database import Database


def start(database: Database, run_id: str, session_id: str, of: str, version: str | None) -> None:
    now_us = len(database.ask("select 1 from runs"))
    database.run(
        StartRun("o", session_id, run_id, "agent", of, "{}", "", "n", now_us, version=version)
    )


def test_what_nobody_hosts_is_found_by_what_it_was_asked_of() -> None:
    database = Database()
    for number, (of, version) in enumerate(
        [("desk", "1"), ("desk", "2"), ("gone", None), ("desk", "2"), ("desk", None)]
    ):
        start(database, f"r{number}", f"s{number}", of, version)
    start(database, "behind", "s0", "gone", None)
    database.connection.execute("update runs set status = 'PENDING', lease_by = null")

    def find(*hosted: str, before_us: int = 99, size: int = 20) -> tuple[Unhosted, ...]:
        return database.run(FindUnhosted(hosted, before_us, size))

    both = Unhosted("agent:desk@2", 2, 1, "r1"), Unhosted("agent:gone", 1, 2, "r2")
    assert find("agent:desk", "agent:desk@1") == both
    assert find("agent:desk", "agent:desk@1", before_us=3) == (evolved(both[0]), both[1])
    assert find("agent:desk", "agent:desk@1", size=1) == both[:1]
    assert find("agent:desk", "agent:desk@1", before_us=1) == ()
    assert find("agent:desk", "agent:desk@1", "agent:desk@2", "agent:gone") == ()


def evolved(found: Unhosted) -> Unhosted:
    return Unhosted(found.component, 1, found.oldest_us, found.run_id)


def test_what_is_executed_is_not_waited_for() -> None:
    database = Database()
    start(database, "a", "s", "gone", None)
    start(database, "b", "s", "gone", None)

    assert database.run(FindUnhosted((), 99)) == ()
