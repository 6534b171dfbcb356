"""Pruning the trail: what is left is proven, at each moment; what was not pruned shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, cast

import pytest
from attrs import evolve

from legation.api.handlers.audit import prune_trail, verify_trail
from legation.effects import Now, ThisNode, Transact
from legation.store.audit import AppendAudit
from legation.store.audit_entries import PRUNED, Anchor, AuditEntry
from legation.store.audit_pages import NO_KEYS, Head, KeyRing, SigningKey
from legation.store.audit_pruning import STUB_KEPT_US, DropStubs, OldChains, PruneChain
from legation.store.audit_verify import Broken, Doubt, Intact, Verdict
from legation.store.units import Unit

from ...old_audit import put_old_rows
from ...one_database import Database

ENTRY: Final = AuditEntry(0, "r", "ada", None, "op", "x", "allow", "s", 200, "")
SECOND: Final = 1_000_000
LATER: Final = 1_000 * SECOND
RING: Final = KeyRing((SigningKey("2026", bytes(range(32))),))
SIGNED: Final = [pytest.param(RING, id="signed"), pytest.param(NO_KEYS, id="chained")]


class Trail:
    """A trail, and a clock that goes on by itself."""

    def __init__(self, keys: KeyRing = RING) -> None:
        self.database = Database(only="audit")
        self.keys = keys
        self.now_us = LATER
        self.left: int | None = None

    def append(self, writer: str, *seconds: float) -> None:
        """Append an entry for each time, and each in a page of its own."""
        for at in seconds:
            entry = evolve(ENTRY, at_us=round(at * SECOND))
            self.database.run(AppendAudit(writer, (entry,), self.keys.signing))

    def prune(self, before: float, node: str = "pruner") -> int | None:
        program = prune_trail("main", round(before * SECOND), "local:ada", self.keys)
        pruned: int | None = self._driven(program, node)
        return pruned

    def verify(self, *heads: Head, acknowledged: Iterable[Head] = ()) -> Verdict:
        program = verify_trail("main", heads, self.keys, acknowledged)
        verdict: Verdict = self._driven(program, "reader")
        return verdict

    def prove(self, *heads: Head) -> Intact:
        """Return the verdict; where no key signs, prunes are acknowledged."""
        verdict = self.verify(*heads)
        assert isinstance(verdict, Intact), verdict
        if not self.keys.keys:
            assert {one.doubt for one in verdict.findings} <= {Doubt.UNSIGNED_PRUNE}
            verdict = self.verify(*heads, acknowledged=[one.head for one in verdict.findings])
            assert isinstance(verdict, Intact)
        assert verdict.proven, verdict.findings
        return verdict

    def _driven(self, program: Any, node: str) -> Any:
        answer: Any = None
        while True:
            try:
                effect = program.send(answer)
            except StopIteration as done:
                return done.value
            if isinstance(effect, Transact):
                unit: Unit[Any] = cast("Any", effect).unit
                if self.left is not None and unit.writes:
                    self.left -= 1
                    if self.left < 0:
                        program.close()
                        return None
                answer = self.database.run(unit)
            else:
                answer = node if isinstance(effect, ThisNode) else self._now(effect)

    def _now(self, effect: Any) -> int:
        assert effect == Now()
        self.now_us += 1
        return self.now_us

    def ask(self, text: str) -> list[Any]:
        return self.database.ask(text)

    def name(self, writer: str) -> str:
        return f"{'signed' if self.keys.keys else 'chained'}/{writer}"

    @property
    def pages(self) -> list[tuple[str, int, bool]]:
        """Writer and number of each page without prunes; whether it is a stub."""
        return [
            (writer.split("/", 1)[1], last, data == "")
            for writer, last, data in self.ask(
                "select * from (select writer, last, data from trail)"
            )
            if PRUNED not in data
        ]

    @property
    def anchors(self) -> list[Anchor]:
        found = self.ask(f"""select data from trail where data like '%"{PRUNED}"%'""")
        program = (line.split(",") for (data,) in found for line in data.split("\n"))
        return [
            anchor
            for line in program
            if (anchor := Anchor.of(evolve(ENTRY, operation=PRUNED, resource=line[5].strip('"'))))
        ]


@pytest.fixture(params=SIGNED)
def trail(request: pytest.FixtureRequest) -> Trail:
    made = Trail(request.param)
    made.append("a", 10, 20, 30, 40)
    made.append("b/7", 5, 6)
    made.append("c", 90)
    return made


# --- what goes, and what is proven ---------------------------------------------------------------


def test_old_pages_go_and_the_rest_is_proven(trail: Trail) -> None:
    assert trail.prune(30) == 4

    assert trail.pages == [("a", 3, False), ("a", 4, False), ("b/7", 2, True), ("c", 1, False)]
    verdict = trail.prove()
    assert (verdict.entries, verdict.pruned) == (5, 4)


def test_a_pruning_is_in_the_trail_with_who_and_when(trail: Trail) -> None:
    trail.prune(30)

    prunes = trail.prove().prunes
    assert [(one.by, one.anchor.writer, one.anchor.count) for one in prunes] == [
        ("local:ada", trail.name("a"), 2),
        ("local:ada", trail.name("b/7"), 2),
    ]
    assert all(one.at_us > LATER and one.head.writer == trail.name("pruner") for one in prunes)
    assert [one.signed for one in prunes] == [bool(trail.keys.keys)] * 2


def test_nothing_is_old_and_nothing_happens(trail: Trail) -> None:
    assert trail.prune(1) == 0
    assert trail.anchors == []


def test_a_page_behind_a_younger_one_stays_until_that_one_is_old(trail: Trail) -> None:
    trail.append("d", 10, 99, 11)

    assert trail.prune(50) == 7
    assert [page for page in trail.pages if page[0] == "d"] == [("d", 2, False), ("d", 3, False)]
    trail.prove()


def test_a_page_goes_when_its_last_entry_is_old() -> None:
    trail = Trail()
    entries = tuple(evolve(ENTRY, at_us=at) for at in (1, SECOND))
    trail.database.run(AppendAudit("a", entries, trail.keys.signing))

    assert trail.prune(1) == 0
    assert trail.prune(1.000001) == 2


def test_pruned_again_and_again_the_trail_stays_proven(trail: Trail) -> None:
    """The anchors grow old as well, and those of chains that live on are written anew."""
    heads = trail.prove().heads
    for round_ in range(1, 6):
        trail.append("a", 1_000 * round_ + 5)
        trail.now_us = (1_000 * round_ + 10) * SECOND
        trail.prune(1_000 * round_, f"pruner-{round_}")
        trail.prove(*heads)

    full = {writer for writer, _, stub in trail.pages if not stub}
    assert full == {"a"}
    cuts = {anchor.writer for anchor in trail.anchors}
    assert cuts >= {trail.name(writer) for writer in ("a", "b/7", "c", "pruner-4")}


def test_a_chain_of_which_all_went_goes_on_with_its_numbers(trail: Trail) -> None:
    heads = trail.prove().heads
    trail.prune(LATER / SECOND)
    trail.append("a", *range(2_000, 2_009))

    assert [number for writer, number, _ in trail.pages if writer == "a"] == [*range(4, 14)]
    trail.prove(*heads)


def test_a_stub_holds_no_name_and_goes_after_a_year(trail: Trail) -> None:
    trail.prune(LATER / SECOND)
    stubs = trail.ask("select data, subject from trail where data = ''")
    assert stubs == [("", None)] * 3

    assert trail.database.run(DropStubs(90 * SECOND + STUB_KEPT_US)) == 2
    assert trail.database.run(DropStubs(90 * SECOND + STUB_KEPT_US + 1)) == 1
    trail.prove()


def test_what_several_subjects_filed_goes_with_their_page(trail: Trail) -> None:
    def append(at_us: int) -> None:
        entries = tuple(evolve(ENTRY, at_us=at_us, subject=one) for one in ("ada", "bob", None))
        trail.database.run(AppendAudit("d", entries, trail.keys.signing))

    append(1)
    append(LATER)
    trail.prune(500)
    assert trail.ask("select subject, from_us, last from trail_subjects") == [
        ("ada", LATER, 6),
        ("bob", LATER, 6),
    ]


def test_a_chain_goes_in_small_parts_and_each_is_anchored() -> None:
    trail = Trail()
    trail.append("a", *range(150))

    assert trail.prune(140) == 140
    assert [anchor.seq for anchor in trail.anchors] == [64, 128, 140]
    verdict = trail.prove()
    assert (verdict.entries, verdict.pruned) == (13, 140)


@pytest.mark.parametrize("keys", SIGNED)
def test_it_is_proven_wherever_a_pruning_breaks_off(
    keys: KeyRing, figures: Callable[[str], None]
) -> None:
    def make() -> Trail:
        trail = Trail(keys)
        put_old_rows(trail.database.connection, "w", [ENTRY] * 3)
        for writer in "abc":
            trail.append(writer, 10, 20, 30, 40)
        trail.prune(21, "first")
        trail.now_us = 2 * LATER
        return trail

    steps = 0
    while True:
        trail = make()
        heads = trail.prove().heads
        trail.left = steps
        ended = trail.prune(2_000, "second")
        trail.left = None
        trail.prove(*heads)
        assert trail.prune(2_000, "third") is not None
        trail.prove(*heads)
        if ended is not None:
            break
        steps += 1
    figures(f"audit: a pruning broken off at {steps} steps, the trail proven at each")
    assert steps > 6


def test_what_a_pruning_writes_is_not_pruned_by_it(trail: Trail) -> None:
    assert trail.prune(10 * LATER) == 7
    trail.prove()


def test_more_chains_than_are_read_at_once_are_all_pruned() -> None:
    trail = Trail()
    for number in range(1_005):
        trail.append(f"w{number:04}", 1, 50)

    assert trail.prune(10) == 1_005
    trail.prove()


# --- old rows ------------------------------------------------------------------------------------


def test_old_rows_are_moved_and_pruned(trail: Trail) -> None:
    entries = [evolve(ENTRY, at_us=at * SECOND) for at in range(9)]
    rows = put_old_rows(trail.database.connection, "w", entries)
    heads = [Head(row.writer, row.seq, row.hash) for row in rows]
    trail.now_us = 1_000_000 * SECOND

    assert trail.prune(5) == 4
    verdict = trail.prove(*heads)
    assert verdict.old_rows == 5
    assert trail.prune(LATER) is not None
    trail.prove(*heads)


def test_an_anchor_of_old_rows_is_written_again_as_unsigned_as_it_was() -> None:
    trail = Trail()
    trail.now_us = 1_000_000 * SECOND
    cut = Anchor("w", 2, "00" * 32, 2)
    old = evolve(ENTRY, operation=PRUNED, resource=cut.resource)
    put_old_rows(trail.database.connection, "v", [old])
    first = put_old_rows(trail.database.connection, "w", [ENTRY] * 2)
    hashed = first[1].hash
    trail.ask("delete from audit")
    old = evolve(old, resource=evolve(cut, hash=hashed).resource)
    put_old_rows(trail.database.connection, "v", [old])
    late = evolve(ENTRY, at_us=900 * SECOND)
    put_old_rows(trail.database.connection, "w", [late], first[1])
    before = trail.verify()
    assert isinstance(before, Intact)
    assert [one.doubt for one in before.findings] == [Doubt.UNSIGNED_PRUNE]

    assert trail.prune(500) == 1
    verdict = trail.verify()
    assert isinstance(verdict, Intact)
    assert {one.doubt for one in verdict.findings} == {Doubt.UNSIGNED_PRUNE, Doubt.NO_KEY}
    assert {one.head.writer for one in verdict.findings} == {"chained/pruner"}


def test_an_anchor_of_old_rows_that_were_not_moved_is_written_again() -> None:
    trail = Trail(NO_KEYS)
    rows = put_old_rows(trail.database.connection, "w", [evolve(ENTRY, at_us=LATER)] * 2)
    trail.ask("delete from audit where seq = 1")
    cut = Anchor("w", 1, rows[0].hash, 1)
    entry = evolve(ENTRY, operation=PRUNED, resource=cut.resource)
    trail.database.run(AppendAudit("n", (entry,), None))

    assert trail.prune(500) == 1
    assert evolve(cut, count=0) in trail.anchors


@pytest.mark.parametrize("moved", [True, False])
def test_an_anchor_of_old_rows_that_are_gone_is_not_written_again(moved: bool) -> None:
    trail = Trail(NO_KEYS)
    if moved:  # a chain of this name, and what is in it is no old row
        trail.append("moved/w", 900)
    entry = evolve(ENTRY, operation=PRUNED, resource=Anchor("w", 1, "00" * 32, 1).resource)
    trail.database.run(AppendAudit("n", (entry,), None))

    assert trail.prune(500) == 1
    assert [anchor.writer for anchor in trail.anchors] == ["chained/n"]


# --- what shows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        "delete from trail where writer like '%/a' and last = 3",
        "delete from trail where writer like '%/pruner'",
        "update trail set previous = '' where writer like '%/a' and last = 3",
        "update trail set data = replace(data, 'ada', 'eve')",
        "update trail set data = '' where writer like '%/a' and last = 3",
        "update trail set last = 1 where data = ''",
    ],
)
def test_what_was_done_to_a_pruned_trail_shows(trail: Trail, edit: str) -> None:
    trail.prune(30)
    trail.ask(edit)

    assert isinstance(trail.verify(), Broken)


def test_attack_an_anchor_that_was_forged_is_not_signed_by_a_pruning() -> None:
    trail = Trail()
    trail.append("a", 1, 2_000)
    ((first, hashed),) = trail.ask("select last, hash from trail where last = 1")
    trail.ask("delete from trail where last = 1")
    forged = Anchor("signed/a", first, hashed, 1).resource
    entry = evolve(ENTRY, operation=PRUNED, resource=forged)
    trail.database.run(AppendAudit("x", (entry,), None))
    trail.database.run(AppendAudit("y", (entry,), SigningKey("2026", b"x" * 32)))
    assert isinstance(trail.verify(), Broken)
    trail.prune(1_000)

    trail.ask("delete from trail where writer = 'signed/y'")
    verdict = trail.verify()
    assert isinstance(verdict, Intact)
    assert {one.doubt for one in verdict.findings} == {Doubt.NO_KEY, Doubt.UNSIGNED_PRUNE}


def test_attack_pages_deleted_before_a_pruning_are_not_excused_by_it() -> None:
    trail = Trail()
    trail.append("a", 1, 2, 2_000, 3_000)
    trail.append("b", 1)
    trail.ask("delete from trail where writer = 'signed/a' and last <= 3")
    trail.prune(1_000)

    assert trail.verify() == Broken("signed/a", 4, "entries are missing: it follows number 0")


def test_a_head_of_what_was_pruned_is_accepted_and_a_forged_one_at_the_cut_is_not(
    trail: Trail,
) -> None:
    name = trail.name("a")
    ((hashed,),) = trail.ask("select hash from trail where writer like '%/a' and last = 2")
    trail.prune(30)

    trail.prove(Head(name, 2, hashed))
    trail.prove(Head(name, 1, "0" * 64))
    missing = "what an exported head names is missing"
    assert trail.verify(Head(name, 9, hashed)) == Broken(name, 9, missing)
    other = "it is another one than when the head was exported"
    assert trail.verify(Head(name, 2, "f" * 64)) == Broken(name, 2, other)


def test_heads_exported_before_still_prove_what_is_left(trail: Trail) -> None:
    heads = trail.prove().heads
    trail.prune(30)

    trail.prove(*heads)
    trail.ask("delete from trail where writer like '%/a' and last = 4")
    assert isinstance(trail.verify(*heads), Broken)


# --- the parts -----------------------------------------------------------------------------------


def test_old_chains_are_those_that_begin_with_an_old_page(trail: Trail) -> None:
    def old(before: float, after: str = "", size: int = 10) -> list[str]:
        found = trail.database.run(OldChains(round(before * SECOND), after, size))
        return [writer.split("/", 1)[1] for writer in found]

    assert old(11) == ["a", "b/7"]
    assert old(11, size=1) == ["a"]
    assert old(11, trail.name("a")) == ["b/7"]
    assert old(100) == ["a", "b/7", "c"]
    trail.prune(11)
    assert old(11) == []


def test_who_comes_second_prunes_nothing(trail: Trail) -> None:
    unit = PruneChain("p", trail.name("a"), 21 * SECOND, ENTRY, trail.keys)

    assert [trail.database.run(unit) for _ in range(2)] == [2, 0]
    whole = PruneChain("p", trail.name("b/7"), 21 * SECOND, ENTRY, trail.keys)
    assert [trail.database.run(whole) for _ in range(2)] == [2, 0]
    assert trail.database.run(PruneChain("p", "nobody", 21, ENTRY, trail.keys)) == 0


@pytest.mark.parametrize("lost", ["delete from trail", "update trail set data"])
def test_what_somebody_else_prunes_at_the_same_time_is_left_to_them(lost: str) -> None:
    """On PostgreSQL both may have read the pages before one of them deletes them."""
    database = Database(
        only="audit",
        rewrite=lambda text: text.replace(" where", " where 0 and") if lost in text else text,
    )
    for _ in range(2):
        database.run(AppendAudit("a", (ENTRY,), None))

    assert database.run(PruneChain("p", "chained/a", 1, ENTRY, NO_KEYS)) == 0
    assert database.ask("select writer, data <> '' from trail") == [("chained/a", 1)] * 2


def test_a_random_history_of_appending_and_pruning_is_always_proven() -> None:
    random = Random(11)
    for turns in range(30):
        trail = Trail(RING if turns % 2 else NO_KEYS)
        heads: tuple[Head, ...] = ()
        for turn in range(12):
            trail.now_us = (turn + 1) * LATER
            for writer in random.sample("abcd", 2):
                times = sorted(random.uniform(turn * 1_000, turn * 1_000 + 999) for _ in range(3))
                trail.append(writer, *times)
            if random.random() < 0.4:
                trail.prune(random.uniform(0, trail.now_us / SECOND), f"p{turn}")
            heads = trail.prove(*heads).heads
