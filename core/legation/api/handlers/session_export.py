"""The export of a session: all that is stored of it, streamed, with every event of every run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import field

from ...effects import Emit, Program, Transact
from ...http.messages import Streamed, Unfinished, compact_json
from ...http.refusals import Refusal
from ...models.conversation import Usage
from ...runs.output import run_json
from ...runs.retry import FEW, with_retry
from ...store.failures import StoreFailure
from ...store.run_pages import ReadRuns
from ...store.run_reads import FetchEvents, SumUsage
from ...store.run_rows import RunRow, StoredEvent
from ...store.sessions import SessionRow
from ...values import define, frozen
from ..call import Call
from ..fields import choice
from .owners import SeveralUsers
from .sessions import NoSession, SessionQuery, describe_session, find_visible_session

__all__ = ["ExportQuery", "export_session"]

_PIECE: Final = 64 << 10
_TYPES: Final = {"json": b"application/json", "ndjson": b"application/x-ndjson"}


@frozen
class ExportQuery(SessionQuery):
    """A session, and how it is written."""

    format: str = choice(
        tuple(_TYPES), "One JSON object, or one object on each line (NDJSON)", default="json"
    )


def export_session(
    call: Call, database: str, query: ExportQuery
) -> Program[Streamed | NoSession | SeveralUsers]:
    """Return a session with its runs, those of members too, and the events of each.

    As NDJSON, a line has one of `session`, `run`, `event` and `end`: what lacks the last is not
    whole.
    """
    row = yield from find_visible_session(call, database, query)
    if isinstance(row, Refusal):
        return row
    usage = yield from Transact(database, SumUsage(row.owner, row.session_id))
    head = compact_json(describe_session(call, row, Usage(**usage)))
    name = f'attachment; filename="session.{query.format}"'.encode()
    headers = ((b"content-type", _TYPES[query.format]), (b"content-disposition", name))
    writer = _LineWriter() if query.format == "ndjson" else _ObjectWriter()
    return Streamed(200, headers, _Export(database, row, writer).program(head.encode()))


@define
class _LineWriter:
    """The form of an export as NDJSON.  Each method returns what is sent next."""

    runs: int = field(default=0, init=False)
    events: int = field(default=0, init=False)

    def begin(self, session: bytes) -> bytes:
        return b'{"session":' + session + b"}\n"

    def write_run(self, run: bytes) -> bytes:
        self.runs += 1
        return b'{"run":' + run + b"}\n"

    def write_event(self, run_id: str, event: StoredEvent) -> bytes:
        self.events += 1
        place = compact_json({"run_id": run_id, "seq": event.seq})
        return f'{place[:-1]},"event":{event.data}}}\n'.encode()

    def end_run(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return f'{{"end":{{"runs":{self.runs},"events":{self.events}}}}}\n'.encode()


@define
class _ObjectWriter(_LineWriter):
    """The form of an export as one object of JSON."""

    _first: bool = field(default=True, init=False)

    def begin(self, session: bytes) -> bytes:
        return b'{"session":' + session + b',"runs":['

    def write_run(self, run: bytes) -> bytes:
        comma = b"," if self.runs else b""
        self.runs += 1
        self._first = True
        return comma + b'{"run":' + run + b',"events":['

    def write_event(self, run_id: str, event: StoredEvent) -> bytes:
        comma, self._first = "" if self._first else ",", False
        return f'{comma}{{"seq":{event.seq},"event":{event.data}}}'.encode()

    def end_run(self) -> bytes:
        return b"]}"

    def end(self) -> bytes:
        return b"]}"


@frozen(eq=False)
class _Export:
    """One export: a page of runs, and of events, is in memory at a time."""

    database: str
    session: SessionRow
    writer: _LineWriter

    def program(self, head: bytes) -> Program[Unfinished | None]:
        """Emit all of it; where the database fails, the client sees that it is not whole."""
        writer = self.writer
        yield from _emit((writer.begin(head),))
        try:
            after, more = 0, True
            while more:
                after, more = yield from self._write_runs(after)
        except StoreFailure:
            return Unfinished()
        yield from _emit((writer.end(),))
        return None

    def _write_runs(self, after: int) -> Program[tuple[int, bool]]:
        """Emit the runs behind the number `after`; return where to go on, if there are more."""
        session = self.session
        listed = ReadRuns(session.owner, session.session_id, _pick, after=after, members=True)
        page = first = yield from with_retry(self.database, listed, FEW)
        while True:
            for run_id, run in page.items:
                yield from _emit((self.writer.write_run(run),))
                yield from self._write_events(run_id)
                yield from _emit((self.writer.end_run(),))
            if page.following is None:
                return first.last, first.more
            page = yield from with_retry(self.database, page.following, FEW)

    def _write_events(self, run_id: str) -> Program[None]:
        last = 0
        while True:
            asked = FetchEvents(self.session.owner, run_id, last)
            page = yield from with_retry(self.database, asked, FEW)
            if not page.events:
                return
            yield from _emit(self.writer.write_event(run_id, event) for event in page.events)
            last = page.events[-1].seq


def _pick(row: RunRow) -> tuple[str, bytes]:
    return row.run_id, run_json(row)


def _emit(parts: Iterable[bytes]) -> Program[None]:
    text = b"".join(parts)
    for start in range(0, len(text), _PIECE):
        yield Emit(text[start : start + _PIECE])
