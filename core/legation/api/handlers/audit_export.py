"""The audit trail as a stream of lines: its export, and its verification with the progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from attrs import field

from ...access.token_watch import TokenWatch
from ...effects import Emit, Now, Program, Sleep, Transact
from ...http.bodies.reader import Reader
from ...http.messages import Streamed, Unfinished, compact_json
from ...http.refusals import Fault, TooManyRequests
from ...runs.output import iso_time
from ...store.audit import OldPlace, ReadOldRows, ReadPages
from ...store.audit_entries import OldRow
from ...store.audit_export import Exported, ExportWriter
from ...store.audit_heads import ReadHeads
from ...store.audit_pages import Head, Page, SigningKey, parse_head
from ...store.audit_parts import ChainPart, ReadParts
from ...store.audit_verify import Broken, Prune, Verdict, Verifier
from ...store.failures import StoreFailure
from ...values import define, frozen
from ..call import Call
from ..fields import declare, text
from ..moments import LAST_US, moment

__all__ = [
    "Check",
    "ExportAuditQuery",
    "VerifyAuditQuery",
    "export_audit",
    "export_trail",
    "find_trail",
    "find_trails",
    "verdict_json",
    "verify_audit",
    "verify_trails",
]

_ROWS: Final = 1000
_PAGES: Final = 64
_CHAINS: Final = 1000
_SLICE: Final = 512
"""The entries that are written, or checked, before others have their turn: some milliseconds."""
_PIECE: Final = 64 << 10
_PROGRESS_US: Final = 500_000
_MOST_HEADS: Final = 100
_LONGEST_HEAD: Final = 1024
_NO_HEAD: Final = "must be a head, as it was printed: writer, number and hash, between colons"
_NO_DATABASE: Final = "names no database"
_HEADS: Final = {
    "type": "array",
    "items": {"type": "string", "maxLength": _LONGEST_HEAD, "pattern": "^.+:[0-9]{1,19}:.{64}$"},
    "maxItems": _MOST_HEADS,
}
_NDJSON: Final = (b"content-type", b"application/x-ndjson")

Stored: TypeAlias = OldRow | Page
Taker: TypeAlias = Callable[[Sequence[Stored]], Program[bool]]
"""Takes some of the trail; returns whether it wants more."""


# --- Reading it whole, or a part -----------------------------------------------------------------


@frozen
class _Time:
    """The time of a part of the trail, in microseconds since the epoch; None is without end."""

    since_us: int | None = None
    until_us: int | None = None

    @property
    def is_whole(self) -> bool:
        return self.since_us is None and self.until_us is None

    @property
    def bounds(self) -> tuple[int, int]:
        return self.since_us or 0, LAST_US if self.until_us is None else self.until_us


def _read_trail(database: str, time: _Time, take: Taker) -> Program[bool]:
    """Hand the trail to `take`, rows that were not moved first; return whether that was all."""
    since_us, until_us = time.bounds
    place: OldPlace | None = OldPlace()
    while place is not None:
        old = yield from Transact(database, ReadOldRows(place, _ROWS))
        rows = [row for row in old.rows if since_us <= row.entry.at_us < until_us]
        if not (yield from take(rows)):
            return False
        place = old.following
    if time.is_whole:
        return (yield from _read_pages(database, Head("", 0, ""), None, take))
    after = ""
    while True:
        parts = yield from Transact(database, ReadParts(since_us, until_us, after, _CHAINS))
        for part in parts:
            if not (yield from _read_pages(database, part.start, part, take)):
                return False
        if len(parts) < _CHAINS:
            return True
        after = parts[-1].writer


def _read_pages(database: str, head: Head, part: ChainPart | None, take: Taker) -> Program[bool]:
    while True:
        pages = yield from Transact(database, ReadPages(head.writer, head.seq, _PAGES))
        wanted = [page for page in pages if part is None or part.holds(page.head)]
        for some in _slices(wanted):
            if not (yield from take(some)):
                return False
        if len(wanted) < _PAGES:
            return True
        head = pages[-1].head


def _slices(pages: Iterable[Page]) -> Iterator[list[Page]]:
    """Yield `pages` a few at a time, by the entries that they have."""
    some: list[Page] = []
    count = 0
    for page in pages:
        some.append(page)
        count += page.count
        if count >= _SLICE:
            yield some
            some, count = [], 0
    if some:
        yield some


# --- The export ----------------------------------------------------------------------------------


def export_trail(
    platform: str,
    database: str,
    key: SigningKey | None,
    since_us: int | None = None,
    until_us: int | None = None,
    watch: TokenWatch | None = None,
) -> Program[Exported | None]:
    """Emit the lines of an export, and return how much that was.

    Args:
        platform: Its id.
        database: That of the trail.
        key: Signs the last line.
        since_us: With `until_us`, the time of the part that is exported: whole pages.
        until_us: See `since_us`.
        watch: The token of who asked; where it is not accepted any more, its line is the last
            one, and None is returned.

    Raises:
        StoreFailure: The database failed; the export has no last line.
    """
    yield from Transact(database, ReadHeads("", 1))  # nothing is emitted where it does not answer
    export = _Export(ExportWriter(key), watch)
    now_us = yield from Now()
    first = export.writer.begin(platform, database, now_us, since_us, until_us)
    yield from _emit((first,))
    if not (yield from _read_trail(database, _Time(since_us, until_us), export.take)):
        return None
    yield from _emit((export.writer.end(),))
    return export.writer.exported


@frozen(eq=False)
class _Export:
    """The writer of an export, and the token that it lasts for."""

    writer: ExportWriter
    watch: TokenWatch | None

    def take(self, some: Sequence[Stored]) -> Program[bool]:
        """Emit the lines of some of the trail."""
        if not (yield from _is_accepted(self.watch)):
            return False
        write = self.writer
        yield from _emit(
            write.write_page(one) if isinstance(one, Page) else write.write_row(one) for one in some
        )
        yield from Sleep(0.0)  # others have their turn
        return True


def _is_accepted(watch: TokenWatch | None) -> Program[bool]:
    """Return whether the token is still accepted; say so in the stream where it is not."""
    if watch is None:
        return True
    refused = watch.find_refusal((yield from Now()))
    if refused is None:
        return True
    said = {"detail": refused.refusal.detail, "error_code": refused.refusal.error_code}
    yield from _emit((_line("token_expired", said),))
    return False


def _line(kind: str, said: dict[str, Any]) -> bytes:
    return compact_json({"kind": kind, **said}).encode() + b"\n"


def _emit(parts: Iterable[bytes]) -> Program[None]:
    text = b"".join(parts)
    for start in range(0, len(text), _PIECE):
        yield Emit(text[start : start + _PIECE])


@frozen
class ExportAuditQuery:
    """A trail, or the part of it of a time."""

    db_id: str | None = text("The database; needed where there are several")
    since: int | None = moment("Not before")
    until: int | None = moment("Before")


def find_trail(call: Call, query: ExportAuditQuery) -> str | Fault:
    """Return the database whose trail is exported."""
    names = tuple(call.registry.databases)
    if query.db_id is None:
        several = Fault("query.db_id", f"is needed; there are: {', '.join(names)}")
        return names[0] if len(names) == 1 else several
    return query.db_id if query.db_id in names else Fault("query.db_id", _NO_DATABASE)


def export_audit(
    call: Call, database: str, query: ExportAuditQuery
) -> Program[Streamed | TooManyRequests]:
    """Return the trail of a database as lines of JSON, which are verified without it.

    `legation audit verify --export` does that, on another machine and with the key.  The last line
    has the kind `heads`; an export without it is not whole.
    """
    if refusal := call.hold_place(stream=True, follows=False):
        return refusal
    yield from Transact(database, ReadHeads("", 1))  # a failure is answered by its status
    name = f'attachment; filename="audit-{database}.ndjson"'.encode()
    headers = (_NDJSON, (b"content-disposition", name))
    key, platform = call.registry.audit.keys.signing, call.registry.config.id
    lines = export_trail(platform, database, key, query.since, query.until, call.watch_token())
    return Streamed(200, headers, _finish(lines))


def _finish(lines: Program[object]) -> Program[Unfinished | None]:
    """Run `lines`; a stream that lacks its last line is cut."""
    try:
        done = yield from lines
    except StoreFailure:
        return Unfinished()
    return Unfinished() if done is None else None


# --- The verification ----------------------------------------------------------------------------


def _read_heads(read: Reader, name: str) -> tuple[Head, ...]:
    texts = read.several_texts(name, most=_MOST_HEADS, max_length=_LONGEST_HEAD)
    heads = [head for head in map(parse_head, texts) if head is not None]
    if len(heads) < len(texts):
        read.fault(name, _NO_HEAD)
    return tuple(heads)


def _heads(about: str) -> Any:
    return declare(_HEADS, _read_heads, f"{about}: writer:number:hash", default=(), fault=_NO_HEAD)


@frozen
class VerifyAuditQuery:
    """The trails that are verified."""

    db_id: str | None = text("The database; all of them unless given")
    head: tuple[Head, ...] = _heads("A head of before, through which the trail has to lead")
    acknowledge: tuple[Head, ...] = _heads("The head of a finding that a person has judged")


def find_trails(call: Call, query: VerifyAuditQuery) -> tuple[str, ...] | Fault:
    """Return the databases whose trails are verified."""
    names = tuple(call.registry.databases)
    if query.db_id is not None:
        return (query.db_id,) if query.db_id in names else Fault("query.db_id", _NO_DATABASE)
    if query.head and len(names) > 1:
        return Fault("query.db_id", "is needed together with head")
    return names


def verify_audit(
    call: Call, databases: tuple[str, ...], query: VerifyAuditQuery
) -> Program[Streamed | TooManyRequests]:
    """Return whether trails are as they were written, as lines of JSON.

    A line of the kind `progress` comes twice a second, with the counts so far; for each database
    there is one of the kind `verdict`.
    """
    if refusal := call.hold_place(stream=True, follows=False):
        return refusal
    for database in databases:
        yield from Transact(database, ReadHeads("", 1))  # as above
    keys, watch = call.registry.audit.keys, call.watch_token()
    checks = [
        Check(name, Verifier(query.head, keys, query.acknowledge), watch) for name in databases
    ]
    return Streamed(200, (_NDJSON, (b"cache-control", b"no-store")), _finish(verify_trails(checks)))


def verify_trails(checks: Iterable[Check]) -> Program[bool | None]:
    """Emit a verdict for each database; return None where the token has come to its end."""
    for check in checks:
        database = check.database
        whole = yield from _read_trail(database, _Time(), check.take)
        if not whole and check.broken is None:
            return None
        verdict = check.broken or check.verifier.end()
        yield from _emit((_line("verdict", verdict_json(database, verdict)),))
    return True


@define(eq=False)
class Check:
    """The verifier of a trail, and how far it is."""

    database: str
    verifier: Verifier
    watch: TokenWatch | None
    broken: Broken | None = field(default=None, init=False)
    _entries: int = field(default=0, init=False)
    _said_us: int = field(default=0, init=False)

    def take(self, some: Sequence[Stored]) -> Program[bool]:
        """Check some of the trail."""
        if not (yield from _is_accepted(self.watch)):
            return False
        rows = [one for one in some if isinstance(one, OldRow)]
        pages = [one for one in some if isinstance(one, Page)]
        self.broken = self.verifier.take_rows(rows) or self.verifier.take(pages)
        self._entries += len(rows) + sum(page.count for page in pages)
        now_us = yield from Now()
        if not 0 <= now_us - self._said_us < _PROGRESS_US:
            self._said_us = now_us
            said = {"database": self.database, "rows": self._entries}
            yield from _emit((_line("progress", said),))
        yield from Sleep(0.0)  # others have their turn
        return self.broken is None


def verdict_json(database: str, verdict: Verdict) -> dict[str, Any]:
    """Return the verdict on the trail of `database` as JSON."""
    if isinstance(verdict, Broken):
        at = {"writer": verdict.writer, "seq": verdict.seq, "reason": verdict.reason}
        return {"database": database, "intact": False, "proven": False, "broken": at}
    return {
        "database": database,
        "intact": True,
        "proven": verdict.proven,
        "rows": verdict.entries,
        "old_rows": verdict.old_rows,
        "pages": verdict.pages,
        "signed": verdict.signed,
        "chained": verdict.chained,
        "pruned": verdict.pruned,
        "heads": [str(head) for head in verdict.heads],
        "prunes": [_prune_json(prune) for prune in verdict.prunes],
        "findings": [
            {"doubt": one.doubt.name.lower(), "head": str(one.head), "detail": one.detail}
            for one in verdict.findings
        ],
    }


def _prune_json(prune: Prune) -> dict[str, Any]:
    anchor = prune.anchor
    return {
        "at": iso_time(prune.at_us),
        "by": prune.by,
        "cut": str(Head(anchor.writer, anchor.seq, anchor.hash)),
        "rows": anchor.count,
        "signed": prune.signed,
        "head": str(prune.head),
        "excuses": [str(head) for head in prune.excuses],
    }
