"""The operator's log: one line per event, as JSON or for the eye, with structlog.

A field may hold what a caller sent: it never makes a second line, and never moves the cursor of a
terminal.  Of an exception the log has the kind and the place, never the text or the stack, which
may quote what a user sent or what a database holds.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TextIO, TypeAlias, cast

from attrs import field

from legation.incidents import where
from legation.observability.request_log import RequestLine
from legation.values import define

__all__ = [
    "FORMATS",
    "LEVELS",
    "ShowError",
    "Write",
    "WriteLines",
    "hide_error",
    "is_for_eyes",
    "make_visible",
    "open_log",
    "open_request_log",
    "quiet",
]

Write: TypeAlias = Callable[[str, str, Mapping[str, Any]], None]
"""Takes a level, an event and its fields to the log; callable from every thread."""


ShowError: TypeAlias = Callable[[str, BaseException], None]
"""Takes what was raised, with the event that the log has for it; for whoever wrote the code."""


WriteLines: TypeAlias = Callable[[Sequence[RequestLine]], None]
"""Writes lines of the request log; called from a thread."""


def hide_error(event: str, error: BaseException) -> None:
    """Show nothing: what was raised may hold what users sent."""


def quiet(level: str, event: str, fields: Mapping[str, Any]) -> None:
    """Write nothing: the log where none was given."""


FORMATS: Final = ("auto", "json", "text")
LEVELS: Final = ("debug", "info", "warning", "error", "critical")

# What is logged holds no secret; this is for the day when somebody is careless.
_SECRET: Final = ("authorization", "password", "secret", "token", "api_key", "cookie", "private")


def open_log(form: str = "auto", *, level: str = "info", stream: TextIO | None = None) -> Write:
    """Return what writes a line: a level, an event and its fields; from any thread.

    Args:
        form: `json`, `text`, or `auto`: text where `stream` is a terminal.
        level: Lines below are dropped.
        stream: Standard error unless given.
    """
    if form not in FORMATS or level not in LEVELS:
        raise ValueError(f"a log is one of {FORMATS}, from one of {LEVELS}: {form}, {level}")
    target = _standard_error() if stream is None else stream
    return _LogWriter(_WholeLines(target), is_for_eyes(form, target), LEVELS.index(level)).write


def open_request_log(write: Write, form: str = "auto", stream: TextIO | None = None) -> WriteLines:
    """Return what writes lines of the request log, each batch at once.

    Args:
        write: The log, for lines that are for the eye.
        form: As of `open_log`.
        stream: Standard error unless given.
    """
    target = _standard_error() if stream is None else stream
    if is_for_eyes(form, target):

        def show(lines: Sequence[RequestLine]) -> None:
            for line in lines:
                write(_level(line), "request", _fields(line))

        return show

    output = _WholeLines(target, _LONG_PATIENCE_MS)

    def note(lines: Sequence[RequestLine]) -> None:
        output.write(*map(_request_line, lines))

    return note


def _standard_error() -> TextIO:
    """Return standard error; where it was closed, what takes its lines and keeps none."""
    stream: TextIO | None = sys.stderr
    return open(os.devnull, "w") if stream is None else stream  # noqa: PTH123  no file


def is_for_eyes(form: str, stream: TextIO | None = None) -> bool:
    """Tell whether a log of this form is text; `stream` is standard error unless given."""
    target = _standard_error() if stream is None else stream
    return form == "text" or (form == "auto" and target.isatty())


_AT_ONCE: Final[int] = getattr(select, "PIPE_BUF", 512)  # bytes; POSIX promises 512

_PATIENCE_MS: Final = 1_000
"""How long a reader of the log may be behind before lines are lost: requests may wait for one."""

_LONG_PATIENCE_MS: Final = 5_000
"""The same for lines of the request log, for which nobody waits."""


@define(eq=False)
class _WholeLines:
    """A stream that workers share, in which no line of one ends up within a line of another.

    What is written to a pipe at once is kept together as long as it fits in `PIPE_BUF` (POSIX,
    write(2)): lines are written in portions that do.  Only a line that is longer may be torn.

    Where nothing can be written, as on a full disk or to a reader that is gone or has stopped
    reading, lines are lost and everything else goes on; a line says how many, as soon as it can.
    Nothing is left in a buffer, which would be written later, in the middle of something else.
    """

    stream: TextIO
    _patience_ms: int = _PATIENCE_MS
    _turn: threading.Lock = field(factory=threading.Lock, init=False)
    _lost: int = field(default=0, init=False)
    _torn: bool = field(default=False, init=False)
    """Whether what was written last is the beginning of a line."""

    def write(self, *lines: str) -> None:
        """Write lines, each with its end; from any thread."""
        portion: list[str] = []
        size = 0
        for line in lines:
            bound = len(line) if line.isascii() else len(line.encode(errors="replace"))
            if portion and size + bound > _AT_ONCE:
                self._at_once(portion)
                portion, size = [], 0
            portion.append(line)
            size += bound
        self._at_once(portion)

    def flush(self) -> None:
        """Do nothing: all that was written has left the process."""

    def _at_once(self, lines: Sequence[str]) -> None:
        with self._turn:
            if self._lost and self._put(self._loss()):
                self._lost = 0
            if self._lost or not self._put("".join(lines)):
                self._lost += len(lines)

    def _loss(self) -> str:
        fields = {"lines": self._lost, "event": "log_lines_lost", "level": "warning"}
        return "\n" * self._torn + _as_json({**fields, "time": _now()}) + "\n"

    def _put(self, text: str) -> bool:
        """Tell whether `text` could be written."""
        try:
            descriptor = self.stream.fileno()
        except (OSError, ValueError):  # it is in memory, or closed
            return self._put_in_memory(text)
        data = text.encode(self.stream.encoding or "utf-8", "backslashreplace")
        try:
            if not _has_room(descriptor, 0 if self._lost else self._patience_ms):
                return False
            written = os.write(descriptor, data)
        except OSError:
            return False
        self._torn = written < len(data)
        return not self._torn

    def _put_in_memory(self, text: str) -> bool:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            return False
        return True


def _has_room(descriptor: int, patience_ms: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(patience_ms))


def _level(line: RequestLine) -> str:
    return "warning" if line.status is not None and line.status >= 500 else "info"


def _fields(line: RequestLine) -> dict[str, Any]:
    """Return the fields of a request's line; those that do not apply are left out."""
    end_us = line.at_us if line.end_us is None else line.end_us
    fields: dict[str, Any] = {
        "request_id": line.request_id,
        "method": line.method,
        "route": line.template,
        "operation": line.operation or None,
        "status": line.status,
        "duration_ms": (end_us - line.at_us) / 1000,
        "cut": line.cut or None,
        "trace_id": line.trace_id or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _request_line(line: RequestLine) -> str:
    """Return a line of JSON: five times as quick as one whose fields may be anything.

    Every text in it is a word of ours, or was checked to be of letters and digits.
    """
    end_us = line.at_us if line.end_us is None else line.end_us
    second, micros = divmod(end_us, 1_000_000)
    stamp = f"{_second(second)}.{micros:06}"
    operation = f'"operation": "{line.operation}", ' if line.operation else ""
    status = "" if line.status is None else f'"status": {line.status}, '
    cut = '"cut": true, ' if line.cut else ""
    trace = f'"trace_id": "{line.trace_id}", ' if line.trace_id else ""
    return (
        f'{{"request_id": "{line.request_id}", "method": "{line.method}", '
        f'"route": "{line.template}", {operation}{status}'
        f'"duration_ms": {(end_us - line.at_us) / 1000}, {cut}{trace}'
        f'"event": "request", "level": "{_level(line)}", "time": "{stamp}Z"}}\n'
    )


@lru_cache(maxsize=16)
def _second(since_epoch: int) -> str:
    """Return a second as ISO 8601 writes it; that of most lines is that of the line before."""
    return (_EPOCH + timedelta(seconds=since_epoch)).isoformat()


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  UTC; an aware one says +00:00


@define(eq=False)
class _LogWriter:
    output: _WholeLines
    text: bool
    lowest: int
    _console: Any = field(default=None, init=False)

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """Write one line."""
        rank = LEVELS.index(level) if level in LEVELS else LEVELS.index("error")
        if rank < self.lowest:
            return
        clean = _redact(_locate_errors({_free(key): value for key, value in fields.items()}))
        if self.text:
            if self._console is None:
                self._console = self._open_console()
            self._console.log((rank + 1) * 10, event, **clean)
            return
        line = _as_json({**clean, "event": event, "level": LEVELS[rank], "time": _now()})
        self.output.write(line + "\n")

    def _open_console(self) -> Any:
        # 70 ms and 6 MiB, which a process need not spend whose lines nobody looks at.
        import structlog  # noqa: PLC0415

        return structlog.wrap_logger(
            structlog.WriteLogger(cast("TextIO", self.output)),  # it writes and flushes
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
                _escape,
                structlog.dev.ConsoleRenderer(colors=_wants_colour(self.output.stream)),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _wants_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR")  # no-color.org


def _free(key: str) -> str:
    """Return `key`, renamed where structlog means something else by it."""
    return f"{key}_" if key in ("event", "level", "time", "timestamp") else key


Fields: TypeAlias = MutableMapping[str, Any]


def _locate_errors(fields: Fields) -> Fields:
    """Put the kind and the place of an exception where the exception is."""
    if "exc_info" in fields:
        fields["error"] = fields.pop("exc_info")
    for key, value in fields.items():
        if isinstance(value, BaseException):
            fields[key] = where(value)
    return fields


def _redact(fields: Fields) -> Fields:
    for key in fields:
        if any(word in key.lower() for word in _SECRET):
            fields[key] = "[redacted]"
    return fields


# Beyond the controls of ASCII there are more that end a line (U+0085, U+2028), and some that turn
# the direction of a text around.
_UNUSUAL: Final = re.compile(r"[^\x20-\x7e]")


def _as_json(fields: Fields) -> str:
    """Return one line of JSON, in which all that cannot be seen is escaped."""
    line = json.dumps(fields, ensure_ascii=False, default=repr)
    return _UNUSUAL.sub(_json_escape, line)


def _json_escape(matched: re.Match[str]) -> str:
    character = matched[0]
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _escape(_: object, __: str, fields: Fields) -> Fields:
    """Escape the invisible characters of every text; values of other types stay as they are."""
    for key, value in fields.items():
        if isinstance(value, str):
            fields[key] = make_visible(value)
    return fields


def make_visible(text: str) -> str:
    """Return `text` with each character escaped that cannot be seen; it is one line."""
    return _UNUSUAL.sub(_python_escape, text)


def _python_escape(matched: re.Match[str]) -> str:
    character = matched[0]
    return character if character.isprintable() else character.encode("unicode_escape").decode()
