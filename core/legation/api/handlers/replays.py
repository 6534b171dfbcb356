"""The recording of a run, as a file."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from ...effects import Emit, Program
from ...hosted.registry import Component
from ...http.messages import Headers, Streamed
from ...http.refusals import Conflict, Fault, Invalid, Refusal
from ...replay.building import UNDER_WAY, NotRecordable, encode_lines, fetch_recording
from ...replay.redaction import (
    MAX_PATH,
    MAX_PATHS,
    MAX_WORK,
    NO_AREA,
    BadPath,
    check_paths,
    redact,
)
from ...values import frozen
from ..call import Call
from ..fields import no_op, several_texts, text
from .runs import NoRun, find_own_run

__all__ = ["ReplayQuery", "replay_run"]

_REPLAY_HEADERS: Final[Headers] = (
    (b"content-type", b"application/x-ndjson"),
    (b"content-disposition", b'attachment; filename="replay.run.jsonl"'),
)
_PIECE: Final = 64 << 10
NoRecording: TypeAlias = Annotated[Conflict, UNDER_WAY]


@frozen
class ReplayQuery:
    """The parts of a recording that are not to be in it."""

    redact: tuple[str, ...] = several_texts(
        "Path of values that give way to placeholders, as `arguments.card` or `input.message`;"
        " repeat it for several",
        most=MAX_PATHS,
        max_length=MAX_PATH,
        fault=f"The path 'latest' {NO_AREA}",
    )
    session_id: str | None = text("Session ID for the run")
    user_id: None = no_op()


def replay_run(call: Call, query: ReplayQuery) -> Program[Streamed | Invalid | NoRun | NoRecording]:
    """Return the recording of one of the caller's runs, line by line.

    It holds all that its tools were given and returned, so that a scope which opens the runs of
    others for reading does not open it.
    """
    if (bad := check_paths(query.redact)) is not None:
        return Invalid((Fault("query.redact", bad.detail),))
    own = yield from find_own_run(call, query.session_id, removed=True)
    if isinstance(own, Refusal):
        return own
    history_runs = own.hosted.history_runs if isinstance(own.hosted, Component) else 0
    recording = yield from fetch_recording(own.hosted.database, own.row, history_runs)
    if isinstance(recording, NotRecordable):
        return Conflict(recording.detail)
    redacted = redact(recording, query.redact, MAX_WORK)
    if isinstance(redacted, BadPath):
        return Conflict(redacted.detail)
    lines = encode_lines(redacted)
    if isinstance(lines, NotRecordable):
        return Conflict(lines.detail)
    return Streamed(200, _REPLAY_HEADERS, _emit_lines(lines))


def _emit_lines(lines: tuple[bytes, ...]) -> Program[None]:
    """Emit lines in pieces of one size."""
    waiting = bytearray()
    for line in lines:
        waiting += line
        while len(waiting) > _PIECE:
            yield Emit(bytes(waiting[:_PIECE]))
            del waiting[:_PIECE]
    yield Emit(bytes(waiting))
