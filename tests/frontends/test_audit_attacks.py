"""Attacks on the audit trail of whoever can write to the database, on both engines.

The trail is signed, and the attacker does not have the key.  The tests of the verifier in the core
have the same, and more, on pages in memory.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from legation.api.handlers.audit import verify_trail
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.migrate import Migrated, migrate
from legation.migrations.schema_version import Version
from legation.store.audit import AppendAudit, ReadPages
from legation.store.audit_entries import PRUNED, AuditEntry
from legation.store.audit_moving import MoveOldRows
from legation.store.audit_pages import Head, KeyRing, Page, SigningKey, hash_page, seal_page
from legation.store.audit_verify import Broken, Doubt, Intact, Verdict

from ..drivers import Driver, PostgresDriver, SqliteDriver, drive
from ..old_audit import put_old_rows

ENTRY: Final = AuditEntry(1, "r", "eve", None, "op", "a/1", "deny", "s", 403, "c")
KEY: Final = SigningKey("2026", bytes(range(32)))
RING: Final = KeyRing((KEY,))
BY_LAST: Final = "where writer like '%%/one%%' and last = {}"


class Trail:
    """A signed trail of two nodes, three pages each, with its heads as they were exported."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.move(None)
        for number in range(3):
            for node in ("one", "two"):
                entries = tuple(evolve(ENTRY, at_us=number, request_id=f"r{n}") for n in range(2))
                driver.run(AppendAudit(node, entries, KEY))
        self.heads = self.intact(self.verify()).heads

    def move(self, target: Version | None) -> None:
        program = migrate(
            *("main", CATALOGUE, target),
            actor="eve",
            request_id="r",
            node="n",
            allow_data_loss=True,
        )
        assert isinstance(drive(self.driver, program), Migrated)

    def verify(self, *heads: Head) -> Verdict:
        verdict: Verdict = drive(self.driver, verify_trail("main", heads, RING))
        return verdict

    def intact(self, verdict: Verdict) -> Intact:
        assert isinstance(verdict, Intact), verdict
        assert verdict.proven, verdict.findings
        return verdict

    def doubts(self, *heads: Head) -> set[Doubt]:
        verdict = self.verify(*heads)
        assert isinstance(verdict, Intact), verdict
        return {finding.doubt for finding in verdict.findings}

    def pages(self, node: str) -> list[Page]:
        pages = self.driver.run(ReadPages("", 0, 1_000))
        return [page for page in pages if page.writer.split("/")[1] == node]

    def put(self, page: Page) -> None:
        """Write `page` where one of its place is, or where none is."""
        self.driver.ask(f"delete from trail where writer = '{page.writer}' and last = {page.last}")
        values = ", ".join(
            str(value) if isinstance(value, int) else f"'{value}'"
            for value in (
                *(page.writer, page.last, page.count, page.from_us, page.to_us, page.key_id),
                *(page.root, page.previous, page.hash, page.data),
            )
        )
        self.driver.ask(
            "insert into trail (writer, last, count, from_us, to_us, key_id, root, previous, hash,"
            f" data) values ({values})"
        )

    def forge_prune(self, resource: str) -> None:
        entry = evolve(ENTRY, operation=PRUNED, resource=resource, subject="local:root")
        self.driver.run(AppendAudit("forger", (entry,), None))


@pytest.fixture(params=["sqlite", "postgresql"])
def trail(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Trail]:
    driver: Driver = (
        SqliteDriver(tmp_path / "t.db")
        if request.param == "sqlite"
        else PostgresDriver(request.getfixturevalue("postgres"))
    )
    with closing(driver):
        yield Trail(driver)


def test_attack_5a_migrated_down_with_data_loss_and_up_again(trail: Trail) -> None:
    with_rows = getattr(trail.driver, "connection", None)
    mark = "?" if isinstance(trail.driver, SqliteDriver) else "%s"
    rows = put_old_rows(with_rows, "old", [ENTRY] * 5, mark=mark)
    old_head = Head("old", 5, rows[-1].hash)
    trail.move(Version(2, 0, 0))
    trail.move(None)

    verdict = trail.intact(trail.verify(*trail.heads, old_head))
    assert (verdict.entries, verdict.old_rows) == (17, 5)
    trail.move(Version(0, 0, 0))
    trail.move(None)
    assert trail.intact(trail.verify(*trail.heads, old_head)).entries == 17


def test_attack_5b_everything_deleted_and_one_prune_forged(trail: Trail) -> None:
    trail.driver.ask("delete from trail")
    for head in trail.heads:
        writer = head.writer.replace("/", "%2F")
        trail.forge_prune(f"{writer}/1000000000/{'0' * 64}/0")

    assert trail.doubts(*trail.heads) == {Doubt.NO_KEY, Doubt.UNSIGNED_PRUNE}
    assert trail.doubts() == {Doubt.NO_KEY}


def test_attack_rows_removed_and_the_chain_recomputed_with_the_key_unknown(trail: Trail) -> None:
    first, _, third = trail.pages("one")
    trail.driver.ask(f"delete from trail {BY_LAST.format(4)}")
    forged = evolve(third, last=4, previous=first.hash)
    for key in (None, SigningKey(KEY.id, b"x" * 32)):
        trail.driver.ask(f"delete from trail {BY_LAST.format(6)}")
        trail.put(evolve(forged, hash=hash_page(forged, key)))
        assert trail.verify() == Broken(first.writer, 4, "it is not as it was written")


def test_attack_heads_replayed_for_an_older_trail(trail: Trail) -> None:
    older = [page.head for page in (trail.pages("one")[1], trail.pages("two")[2])]
    trail.driver.ask(f"delete from trail {BY_LAST.format(6)}")

    trail.intact(trail.verify(*older))
    assert isinstance(trail.verify(*trail.heads), Broken)


def test_attack_two_writers_swapped(trail: Trail) -> None:
    one, two = trail.pages("one"), trail.pages("two")
    for first, second in zip(one, two, strict=True):
        trail.put(evolve(first, writer=second.writer))
        trail.put(evolve(second, writer=first.writer))

    assert isinstance(trail.verify(), Broken)


def test_attack_a_prune_forged_for_a_beginning(trail: Trail) -> None:
    first = trail.pages("one")[0]
    trail.driver.ask(f"delete from trail {BY_LAST.format(2)}")
    trail.forge_prune(f"{first.writer.replace('/', '%2F')}/2/{first.hash}/2")

    assert trail.doubts(*trail.heads) == {Doubt.NO_KEY, Doubt.UNSIGNED_PRUNE}


def test_attack_a_batch_shortened(trail: Trail) -> None:
    page = trail.pages("one")[2]
    short = page.data.split("\n")[0]
    trail.put(evolve(page, data=short))
    assert isinstance(trail.verify(), Broken)
    trail.driver.ask(f"delete from trail {BY_LAST.format(6)}")
    trail.put(evolve(page, data=short, last=5, count=1))
    assert isinstance(trail.verify(), Broken)


def test_attack_a_page_without_a_key_behind_signed_ones(trail: Trail) -> None:
    end = trail.pages("one")[2].head
    trail.put(seal_page(end, (ENTRY,), None))

    assert trail.verify() == Broken(end.writer, 7, "it is not signed")


def test_attack_a_page_moved_to_another_place(trail: Trail) -> None:
    first, second, third = trail.pages("one")
    trail.put(evolve(first, last=4, previous=first.hash))
    trail.put(evolve(second, last=2, previous=""))

    assert isinstance(trail.verify(), Broken)
    assert third.previous == second.hash


def test_attack_an_entry_turned_into_a_permission(trail: Trail) -> None:
    trail.driver.ask("update trail set data = replace(data, 'deny', 'allow')")

    assert isinstance(trail.verify(), Broken)


def test_attack_rows_laundered_by_the_mover_prove_no_prune(trail: Trail) -> None:
    """A forged prune among rows of before is moved and signed, and is still not signed."""
    head: Any = trail.heads[0]
    writer = head.writer.replace("/", "%2F")
    forged = evolve(ENTRY, operation=PRUNED, resource=f"{writer}/1000000000/{'0' * 64}/0")
    mark = "?" if isinstance(trail.driver, SqliteDriver) else "%s"
    put_old_rows(getattr(trail.driver, "connection", None), "old", [forged, ENTRY], mark=mark)
    trail.driver.ask(f"delete from trail where writer = '{head.writer}'")
    from_before = trail.doubts(*trail.heads)
    while trail.driver.run(MoveOldRows(1 << 50, KEY)):
        pass

    assert from_before == trail.doubts(*trail.heads) == {Doubt.UNSIGNED_PRUNE}
