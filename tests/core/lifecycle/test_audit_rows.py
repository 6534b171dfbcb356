"""Old rows of the audit trail on their way into pages, by a job and by rounds."""

from __future__ import annotations

from typing import Any, Final

import pytest

from legation import Database
from legation.effects import Log, Now, Program, Sleep, Transact
from legation.lifecycle.audit_rows import MoveAuditRows
from legation.runs.membership import Cluster, NodeTerms
from legation.store.audit_entries import AuditEntry
from legation.store.audit_moving import MoveOldRows
from legation.store.audit_pages import KeyRing, SigningKey
from legation.store.units import Dialect, Sql, Statements, Unit
from legation.values import frozen
from legation_testing import Client, play

from ...callers import demo
from ...old_audit import chain_rows

ENTRY: Final = AuditEntry(1, "r", "ada", None, "op", "", "allow", "s", 200, "")
KEY: Final = SigningKey("2026", bytes(range(32)))
DATABASES: Final = (Database("main", "sqlite://"), Database("second", "sqlite://"))
PUT: Final = Sql(
    """insert into audit (writer, seq, previous, hash, at_us, request_id, subject, operation,
        resource, decision, scope, status, client)
    values (:writer, :seq, :previous, :hash, 1, 'r', 'ada', 'op', '', 'allow', 's', 200, '')""",
    registered=False,
)
LEFT: Final = Sql("select count(*) from audit", registered=False)


@frozen
class PutOldRows(Unit[None]):
    """Rows as a node of the release before writes them."""

    writer: str
    count: int

    def statements(self, dialect: Dialect) -> Statements[None]:
        for row in chain_rows(self.writer, [ENTRY] * self.count):
            yield PUT.of(row)


@frozen
class CountOldRows(Unit[int]):
    """How many of them were not moved yet."""

    def statements(self, dialect: Dialect) -> Statements[int]:
        ((count,),) = yield LEFT()
        return int(count)


def cluster() -> Cluster:
    made = Cluster(NodeTerms(60, (), "2.12.0"))
    made.trail_keys = KeyRing((KEY,))
    return made


def test_a_round_moves_some_and_says_whether_there_may_be_more() -> None:
    job = MoveAuditRows(cluster(), "main")

    for moved, more in ((7, True), (0, False)):
        script: list[Any] = [(Now(), 5), (Transact("main", MoveOldRows(5, KEY)), moved)]
        assert play(job.round(), script) is more
    assert job.pause == job.after_trouble == Sleep(600.0)
    assert job.log_trouble("warning", ()) == Log("warning", "audit_rows_failed", ())


def ask(effect: Transact[Any]) -> Program[Any]:
    return (yield from effect)


@pytest.mark.parametrize("by", ["jobs", "round"])
def test_old_rows_of_each_database_are_moved(by: str) -> None:
    def run(client: Client, unit: Unit[Any], name: str) -> Any:
        return client.simulation.run(ask(Transact(name, unit)))

    with Client(demo(None, databases=DATABASES)) as client:
        for name in ("main", "second"):
            for writer in ("v", "w"):
                run(client, PutOldRows(writer, 3), name)
        if by == "round":
            platform: Any = client.platform
            client.simulation.run(platform.round())
        else:
            client.advance(601)
        left = [run(client, CountOldRows(), name) for name in ("main", "second")]

    assert left == [0, 0]
