"""The verifier of the audit trail: proves that pages, and rows of before, are as they were written.

Edits, and pages removed or put in, are found by the hashes.  Without a signing key whoever writes
a chain anew from some page on is found by a head alone; with one, he cannot.  The end of a chain
cut off, and a chain that is wholly gone, show against heads.

A beginning may be missing where an entry of the trail says that it was pruned, and names exactly
the cut.  Such an entry proves something where it is signed.  Whatever only a person can judge is a
*finding*, and the verdict is not good before each of them has been acknowledged by the head that
it names: a prune that is not signed, a chain without a key, a key that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, TypeAlias

from attrs import evolve, field

from ..values import define, frozen
from .audit_entries import Anchor, AuditEntry, Line, OldRow, decode_lines, hash_row
from .audit_pages import (
    MAX_ENTRIES,
    NO_KEYS,
    SIGNED,
    SPAN_US,
    Head,
    KeyRing,
    Page,
    compute_root,
    hash_page,
)

__all__ = ["Broken", "Doubt", "Finding", "Intact", "Prune", "Verdict", "Verifier"]


class Doubt(Enum):
    """The reason why a person has to judge."""

    NO_KEY = "chained without a key"
    UNKNOWN_KEY = "signed with a key that was not given"
    UNSIGNED_PRUNE = "a prune that is not signed"


@frozen
class Finding:
    """A part of the trail that is not proven; it counts once its head is acknowledged.

    Attributes:
        head: The last page of the chain, or the page with the entry that says what was pruned.
        detail: The id of the key, or the resource of the entry; empty for a chain without a key.
    """

    doubt: Doubt
    head: Head
    detail: str = ""


@frozen
class Prune:
    """An entry of the trail that says what was pruned.

    Attributes:
        by: Who pruned.
        head: The page that holds the entry.
        signed: Whether this page is signed with a known key.
        excuses: What is missing and excused by it: the cut of a chain that is there, and heads.
    """

    anchor: Anchor
    at_us: int
    by: str | None
    head: Head
    signed: bool
    excuses: tuple[Head, ...] = ()


@frozen
class Intact:
    """Nothing contradicts the trail.  `proven` says whether that is all there is to say.

    Attributes:
        entries: How many there are, those of `old_rows` among them.
        old_rows: How many entries were stored by code for versions up to 2.11.0, which has no keys:
            a signature over them says that they are as they were when they were moved.
        pages: How many pages.
        signed: How many chains are signed, each page with a known key.
        chained: How many chains are not, those of old rows that were not moved among them.
        pruned: How many entries are known to have been pruned.
        prunes: What says so.
        heads: One for each chain; they prove later what was there.
        findings: What has to be acknowledged, and was not.
    """

    entries: int
    old_rows: int
    pages: int
    signed: int
    chained: int
    pruned: int
    prunes: tuple[Prune, ...]
    heads: tuple[Head, ...]
    findings: tuple[Finding, ...]

    @property
    def proven(self) -> bool:
        """Whether nothing is left to acknowledge."""
        return not self.findings


@frozen
class Broken:
    """The first place where the trail is not as it was written."""

    writer: str
    seq: int
    reason: str


Verdict: TypeAlias = Intact | Broken

_EDITED: Final = "it is not as it was written"
_OTHER: Final = "what is before it is another than when it was written"
_MISSING: Final = "entries are missing: it follows number {}"
_GONE: Final = "what an exported head names is missing"
_CHANGED: Final = "it is another one than when the head was exported"


@define
class _Wanted:
    """The heads that the trail has to lead through, and has not yet, by their places."""

    heads: dict[tuple[str, int], set[str]] = field(factory=dict[tuple[str, int], set[str]])

    def add(self, head: Head) -> None:
        """Want `head`."""
        self.heads.setdefault((head.writer, head.seq), set()).add(head.hash)

    def pass_by(self, head: Head) -> None:
        """Take note that the trail leads through `head`."""
        place = head.writer, head.seq
        if (hashes := self.heads.get(place)) is not None:
            hashes.discard(head.hash)
            if not hashes:
                del self.heads[place]

    def list(self) -> list[Head]:
        """Return what is still wanted, in the order of places."""
        places = sorted(self.heads.items())
        return [Head(*place, hashed) for place, hashes in places for hashed in sorted(hashes)]


@define
class Verifier:
    """Takes a trail, a few rows and pages at a time.

    First come the rows that were not moved into pages, if there are any, then the pages: those of a
    writer in the order of their numbers.  Rows that are moved in between are seen twice, which is
    no harm.

    Attributes:
        heads: Exported before: the trail has to lead through each of them, but for those that were
            pruned since.
        keys: Those that signed.
        acknowledged: The heads of findings that a person has judged.
        partial: Whether it is a part of a trail: then every beginning may be missing.
    """

    heads: Iterable[Head] = ()
    keys: KeyRing = NO_KEYS
    acknowledged: Iterable[Head] = ()
    partial: bool = False
    _entries: int = field(default=0, init=False)
    _old_rows: int = field(default=0, init=False)
    _pages: int = field(default=0, init=False)
    _ends: dict[str, Head] = field(factory=dict[str, Head], init=False)
    _wanted: _Wanted = field(factory=_Wanted, init=False)
    # Beginnings that are missing: the head before the first page, or old row, that there is.
    _cuts: dict[Head, None] = field(factory=dict[Head, None], init=False)
    _prunes: dict[Prune, list[Head]] = field(factory=dict[Prune, list[Head]], init=False)
    _by_writer: dict[str, list[Prune]] = field(factory=dict[str, list[Prune]], init=False)
    _unknown: dict[tuple[str, str], Head] = field(factory=dict[tuple[str, str], Head], init=False)
    # Of old rows: the one before, the ends of their chains, and beginnings to be passed by later.
    _old: Head | None = field(default=None, init=False)
    _old_ends: set[Head] = field(factory=set[Head], init=False)
    _old_writers: set[str] = field(factory=set[str], init=False)
    _links: _Wanted = field(factory=_Wanted, init=False)
    _loose: dict[str, Head] = field(factory=dict[str, Head], init=False)

    def __attrs_post_init__(self) -> None:
        for head in self.heads:
            self._wanted.add(head)

    # --- Taking ---------------------------------------------------------------------------------

    def take_rows(self, rows: Iterable[OldRow]) -> Broken | None:
        """Check rows that were not moved, those of a writer in the order of `seq`.

        Returns:
            The first one that is wrong.  Whether a beginning was pruned is known at the end.
        """
        for row in rows:
            if broken := self._take_old(row):
                return broken
            head = Head(row.writer, row.seq, row.hash)
            self._note(row.entry, head, signed=False)
            self._loose[row.writer] = head
        return None

    def take(self, pages: Iterable[Page]) -> Broken | None:
        """Check `pages`; return the first that is wrong.

        Whether a chain that does not begin with number 1 was pruned is known at the end.
        """
        for page in pages:
            before = self._ends.get(page.writer)
            if reason := self._fault(page, before):
                return Broken(page.writer, page.last, reason)
            if before is None:
                self._end_old()
                if page.is_stub:
                    self._cuts[page.head] = None
                elif page.first > 1:
                    self._cuts[Head(page.writer, page.first - 1, page.previous)] = None
            if broken := self._take_lines(page, stub=page.is_stub and before is None):
                return broken
            self._ends[page.writer] = page.head
            self._wanted.pass_by(page.head)
        return None

    def _fault(self, page: Page, before: Head | None) -> str | None:
        """Return what is wrong with the place and the signature of `page`."""
        if page.first < 1:
            return _EDITED
        if before is not None or page.first == 1:
            before = before or Head(page.writer, 0, "")
            if page.first != before.seq + 1:
                return _MISSING.format(before.seq)
            if page.previous != before.hash:
                return _OTHER
        if page.writer.startswith(SIGNED) != bool(page.key_id):
            return "it is not signed" if not page.key_id else "it is signed in an unsigned chain"
        key = self.keys.find(page.key_id) if page.key_id else None
        if page.key_id and key is None:
            self._unknown[page.writer, page.key_id] = page.head
            return None
        return None if hash_page(page, key) == page.hash else _EDITED

    def _take_lines(self, page: Page, *, stub: bool) -> Broken | None:
        if stub:
            return None
        lines = decode_lines(page.data)
        reason = _find_fault(page, lines)
        if reason is not None or lines is None:
            return Broken(page.writer, page.last, reason or _EDITED)
        self._pages += 1
        signed = bool(page.key_id) and self.keys.find(page.key_id) is not None
        for line in lines:
            if not isinstance(line, OldRow):
                self._note(line, page.head, signed=signed)
                continue
            if broken := self._take_old(line):
                return broken
            # Nobody had a key when it was written, whatever the page says that it was moved into.
            self._note(line.entry, Head(line.writer, line.seq, line.hash), signed=False)
        return None

    def _take_old(self, row: OldRow) -> Broken | None:
        """Check a row of versions up to 2.11.0, wherever it is stored."""
        head, before = Head(row.writer, row.seq, row.hash), self._old
        begin = Head(row.writer, row.seq - 1, row.previous)
        if before is not None and (before.writer, before.seq) == (begin.writer, begin.seq):
            if before != begin:
                return Broken(row.writer, row.seq, _OTHER)
        else:
            self._end_old()
            if begin.seq == 0 and begin.hash:
                return Broken(row.writer, row.seq, _OTHER)
            if begin.seq and begin not in self._old_ends:
                self._links.add(begin)
        if row.hash != hash_row(row.previous, row.writer, row.seq, row.entry):
            return Broken(row.writer, row.seq, _EDITED)
        self._old = head
        self._old_writers.add(row.writer)
        self._links.pass_by(head)
        self._wanted.pass_by(head)
        self._old_rows += 1
        return None

    def _end_old(self) -> None:
        """Take note that the chain of old rows that was looked at has come to its end."""
        if self._old is not None:
            self._old_ends.add(self._old)
            self._old = None

    def _note(self, entry: AuditEntry, head: Head, *, signed: bool) -> None:
        self._entries += 1
        if (anchor := Anchor.of(entry)) is None:
            return
        prune = Prune(anchor, entry.at_us, entry.subject, head, signed)
        if prune not in self._prunes:  # a row that is moved meanwhile is seen twice
            self._prunes[prune] = []
            self._by_writer.setdefault(anchor.writer, []).append(prune)

    # --- The verdict ----------------------------------------------------------------------------

    def end(self) -> Verdict:
        """Return the verdict, after the last page."""
        for cut in self._links.list():
            self._cuts[cut] = None
        for cut in () if self.partial else self._cuts:
            prune = self._find_prune(cut)
            if prune is None:
                return Broken(cut.writer, cut.seq + 1, _MISSING.format(0))
            self._prunes[prune].append(cut)
        for head in self._wanted.list():
            prune = self._find_excuse(head)
            if prune is None:
                return Broken(head.writer, head.seq, self._explain_missing(head))
            self._prunes[prune].append(head)
        return self._judge(
            tuple(evolve(prune, excuses=tuple(excuses)) for prune, excuses in self._prunes.items())
        )

    def _judge(self, prunes: tuple[Prune, ...]) -> Intact:
        unsigned = [head for head in self._ends.values() if not head.writer.startswith(SIGNED)]
        unknown = {writer for writer, _ in self._unknown}
        found = [
            *(Finding(Doubt.NO_KEY, head) for head in unsigned if self.keys.keys),
            *(
                Finding(Doubt.UNKNOWN_KEY, head, key_id)
                for (_, key_id), head in self._unknown.items()
            ),
            *(
                Finding(Doubt.UNSIGNED_PRUNE, one.head, one.anchor.resource)
                for one in prunes
                if one.excuses and not one.signed
            ),
        ]
        acknowledged = frozenset(self.acknowledged)
        return Intact(
            entries=self._entries,
            old_rows=self._old_rows,
            pages=self._pages,
            signed=len(self._ends) - len(unsigned) - len(unknown),
            chained=len(unsigned) + len(self._loose),
            pruned=sum(one.anchor.count for one in prunes),
            prunes=prunes,
            heads=(*self._ends.values(), *self._loose.values()),
            findings=tuple(one for one in found if one.head not in acknowledged),
        )

    def _find_prune(self, cut: Head) -> Prune | None:
        """Return the prune that names exactly `cut`, a signed one if there is."""
        return self._choose(cut.writer, lambda anchor: _cut_of(anchor) == cut)

    def _find_excuse(self, head: Head) -> Prune | None:
        """Return the prune by which what `head` names went, or None.

        Where its chain is there, it is the one that excuses the beginning; what went with it is
        known for its last page alone.
        """
        there = head.writer in self._ends or head.writer in self._old_writers
        return self._choose(
            head.writer,
            lambda anchor: (
                (not there or _cut_of(anchor) in self._cuts)
                and (anchor.seq > head.seq or _cut_of(anchor) == head)
            ),
        )

    def _choose(self, writer: str, fits: Callable[[Anchor], bool]) -> Prune | None:
        found = [one for one in self._by_writer.get(writer, ()) if fits(one.anchor)]
        return next((one for one in found if one.signed), found[0] if found else None)

    def _explain_missing(self, head: Head) -> str:
        last = self._ends.get(head.writer) or self._loose.get(head.writer)
        return _CHANGED if last is not None and last.seq >= head.seq else _GONE


def _cut_of(anchor: Anchor) -> Head:
    return Head(anchor.writer, anchor.seq, anchor.hash)


def _find_fault(page: Page, lines: tuple[Line, ...] | None) -> str | None:
    """Return what is wrong with the lines of `page`, or with what it says of them."""
    if lines is None or len(lines) != page.count or page.count > MAX_ENTRIES:
        return _EDITED
    times = [line.at_us for line in lines]
    if (min(times), max(times)) != (page.from_us, page.to_us):
        return _EDITED
    if page.to_us - page.from_us > SPAN_US:
        return "it covers more time than a page does"
    return None if compute_root(page.data.split("\n")) == page.root else _EDITED
