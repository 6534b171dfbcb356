"""Pruning the trail: what is left is proven, at each moment; what was not pruned shows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest
from attrs import evolve

from legation.api.handlers.audit import prune_trail, verify_trail
from legation.effects import Now, ThisNode, Transact
from legation.migrations.catalogue import CATALOGUE
from legation.store.audit import (
    PRUNED,
    Anchor,
    AppendAudit,
    AuditEntry,
    Broken,
    Head,
    Intact,
)
from legation.store.audit_pruning import AnchorChain, ChainSpan, ChainSpans, PruneChain
from legation.store.units import Unit

from ...audit_chain import verify_chain
from ...one_database import Database

ENTRY = AuditEntry(0, "r", "ada", None, "op", "x", "allow", "s", 200, "")
LATER = 1_000_000


class Trail:
    """A trail, and a clock that goes on by itself."""

    def __init__(self) -> None:
        self.database = Database(CATALOGUE)
        self.now_us = LATER
        self.left: int | None = None

    def append(self, writer: str, *times: int) -> None:
        entries = tuple(evolve(ENTRY, at_us=at_us) for at_us in times)
        self.database.run(AppendAudit(writer, entries))

    def prune(self, before_us: int, node: str = "pruner") -> int | None:
        pruned: int | None = self._driven(prune_trail("main", before_us, "local:ada"), node)
        return pruned

    def verify(self, *heads: Head) -> Intact | Broken:
        verdict: Intact | Broken = self._driven(verify_trail("main", heads), "reader")
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

    @property
    def rows(self) -> list[tuple[str, int]]:
        return self.ask(
            f"select writer, seq from audit where operation <> '{PRUNED}' order by writer, seq"
        )

    def heads(self) -> tuple[Head, ...]:
        verdict = self.verify()
        assert isinstance(verdict, Intact)
        return verdict.heads


@pytest.fixture
def trail() -> Trail:
    made = Trail()
    made.append("a", 10, 20, 30, 40)
    made.append("b/7", 5, 6)
    made.append("c", 90)
    return made


# --- what goes, and what is proven ---------------------------------------------------------------


def test_old_rows_go_and_the_rest_is_proven(trail: Trail) -> None:
    assert trail.prune(30) == 4

    assert trail.rows == [("a", 3), ("a", 4), ("c", 1)]
    verdict = trail.verify()
    assert isinstance(verdict, Intact)
    assert (verdict.count, verdict.pruned) == (5, 4)


def test_a_pruning_is_in_the_trail_with_who_and_when(trail: Trail) -> None:
    trail.prune(30)

    found = trail.ask(
        "select writer, subject, operation, resource, at_us, client from audit"
        f" where operation = '{PRUNED}'"
    )
    assert [(row[0], row[1], row[5]) for row in found] == [("pruner", "local:ada", "local")] * 2
    assert [row[3].split("/")[0] for row in found] == ["a", "b%2F7"]
    assert all(row[4] > LATER for row in found)


def test_nothing_is_old_and_nothing_happens(trail: Trail) -> None:
    assert trail.prune(1) == 0
    assert trail.ask(f"select count(*) from audit where operation = '{PRUNED}'") == [(0,)]


def test_a_row_behind_a_younger_one_stays_until_that_one_is_old(trail: Trail) -> None:
    trail.append("d", 10, 99, 11)

    assert trail.prune(50) == 7
    assert [row for row in trail.rows if row[0] == "d"] == [("d", 2), ("d", 3)]
    assert isinstance(trail.verify(), Intact)


def test_pruned_again_and_again_the_trail_stays_proven(trail: Trail) -> None:
    """The anchors grow old as well, and those of chains that live on are written anew."""
    for round_ in range(1, 6):
        trail.append("a", LATER * round_ + 5)
        trail.now_us = LATER * round_ + 10
        trail.prune(LATER * round_, f"pruner-{round_}")
        assert isinstance(trail.verify(), Intact), round_

    writers = {writer for (writer,) in trail.ask("select distinct writer from audit")}
    assert writers == {"a", "pruner-5"}


def test_a_chain_that_went_whole_may_begin_again(trail: Trail) -> None:
    heads = trail.heads()
    trail.prune(LATER)
    trail.append("a", *range(LATER, LATER + 9))

    assert isinstance(trail.verify(*heads), Intact)


def test_a_chain_goes_in_small_parts_and_each_is_anchored() -> None:
    trail = Trail()
    for first in range(0, 2500, 500):
        trail.append("a", *range(first, first + 500))

    assert trail.prune(2400) == 2400
    anchors = trail.ask(f"select resource from audit where operation = '{PRUNED}'")
    assert [resource.split("/")[1] for (resource,) in anchors] == ["1000", "2000", "2400"]
    verdict = trail.verify()
    assert isinstance(verdict, Intact)
    assert (verdict.count, verdict.pruned) == (103, 2400)


def test_it_is_proven_wherever_a_pruning_breaks_off(figures: Callable[[str], None]) -> None:
    def made() -> Trail:
        trail = Trail()
        for writer in "abc":
            trail.append(writer, 10, 20, 30, 40)
        trail.prune(20, "first")
        trail.now_us = 2 * LATER
        return trail

    steps = 0
    while True:
        trail = made()
        trail.left = steps
        ended = trail.prune(LATER * 2, "second")
        trail.left = None
        assert isinstance(trail.verify(), Intact), steps
        assert trail.prune(LATER * 2, "third") is not None
        assert isinstance(trail.verify(), Intact), steps
        if ended is not None:
            break
        steps += 1
    figures(f"audit: a pruning broken off at {steps} steps, the trail proven at each")
    assert steps > 6


def test_more_chains_than_are_read_at_once_are_all_pruned() -> None:
    trail = Trail()
    for number in range(1005):
        trail.append(f"w{number:04}", 1, 50)

    assert trail.prune(10) == 1005
    assert isinstance(trail.verify(), Intact)


# --- what shows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        "delete from audit where writer = 'a' and seq = 3",
        "delete from audit where writer = 'a' and seq <= 3",
        f"delete from audit where operation = '{PRUNED}' and resource like 'a/%'",
        f"update audit set resource = 'a/3/' || substr(resource, 5) where operation = '{PRUNED}'",
        "update audit set subject = 'eve' where writer = 'a' and seq = 3",
        "update audit set previous = '' where writer = 'a' and seq = 3",
    ],
)
def test_what_was_done_to_a_pruned_trail_shows(trail: Trail, edit: str) -> None:
    trail.prune(30)
    trail.ask(edit)

    assert isinstance(trail.verify(), Broken)


def test_rows_that_are_missing_without_an_anchor_are_a_broken_trail(trail: Trail) -> None:
    trail.ask("delete from audit where writer = 'a' and seq <= 2")

    assert trail.verify() == Broken("a", 3, "rows are missing: it follows number 0")


def test_a_head_of_what_was_pruned_is_accepted_and_a_forged_one_at_the_cut_is_not(
    trail: Trail,
) -> None:
    ((hashed,),) = trail.ask("select hash from audit where writer = 'a' and seq = 2")
    trail.prune(30)

    assert isinstance(trail.verify(Head("a", 2, hashed)), Intact)
    assert isinstance(trail.verify(Head("a", 1, "anything")), Intact)
    missing = "the row of an exported head is missing"
    assert trail.verify(Head("a", 9, hashed)) == Broken("a", 9, missing)
    other = "it is another one than when the head was exported"
    assert trail.verify(Head("a", 2, "f" * 64)) == Broken("a", 2, other)


def test_heads_exported_before_still_prove_what_is_left(trail: Trail) -> None:
    heads = trail.heads()
    trail.prune(30)

    assert isinstance(trail.verify(*heads), Intact)
    trail.ask("delete from audit where writer = 'a' and seq = 4")
    assert isinstance(trail.verify(*heads), Broken)


# --- the parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", ["n", "n/42", "100%", "%2F", "a%25/b"])
def test_an_anchor_is_read_as_it_was_written(writer: str) -> None:
    anchor = Anchor(writer, 7, "ab" * 32, 3)

    assert Anchor.of(evolve(ENTRY, operation=PRUNED, resource=anchor.resource)) == anchor
    assert anchor.resource.count("/") == 3


@pytest.mark.parametrize(
    "resource", ["", "a", "a/1/h", "a/x/h/1", "a/1/h/-1", "a/1/h/1/2", "a/²/h/1"]
)
def test_another_text_is_no_anchor(resource: str) -> None:
    assert Anchor.of(evolve(ENTRY, operation=PRUNED, resource=resource)) is None
    assert Anchor.of(evolve(ENTRY, resource="a/1/h/1")) is None


def test_spans_say_what_is_old(trail: Trail) -> None:
    spans = trail.database.run(ChainSpans(25, "", 10))

    assert spans == (ChainSpan("a", 1, 2), ChainSpan("b/7", 1, 2), ChainSpan("c", 1, 0))
    assert trail.database.run(ChainSpans(25, "a", 1)) == (ChainSpan("b/7", 1, 2),)


def test_who_comes_second_prunes_nothing(trail: Trail) -> None:
    for expected in (2, 0):
        assert trail.database.run(PruneChain("p", "a", 2, ENTRY)) == expected
    assert trail.ask("select count(*) from audit where writer = 'p'") == [(1,)]


def test_a_chain_that_is_whole_or_gone_needs_no_anchor(trail: Trail) -> None:
    for writer in ("a", "nobody"):
        trail.database.run(AnchorChain("p", writer, ENTRY))
    assert trail.ask("select count(*) from audit where writer = 'p'") == [(0,)]


def test_a_random_history_of_appending_and_pruning_is_always_proven() -> None:
    random = Random(11)
    for _ in range(40):
        trail = Trail()
        heads: tuple[Head, ...] = ()
        for turn in range(12):
            trail.now_us = (turn + 1) * 1000
            for writer in random.sample("abcd", 2):
                times = sorted(random.randrange(turn * 1000, turn * 1000 + 999) for _ in range(3))
                trail.append(writer, *times)
            if random.random() < 0.4:
                trail.prune(random.randrange(trail.now_us), f"p{turn}")
            verdict = trail.verify(*heads)
            assert isinstance(verdict, Intact)
            heads = verdict.heads


def test_a_single_chain_is_verified_alone() -> None:
    assert verify_chain(()) == Intact(0, ())
