"""The operator's log: one line per event, as JSON or for the eye, with structlog."""

from __future__ import annotations

import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

from attrs import define, field

from .units import Write

__all__ = ["FORMATS", "LEVELS", "open_log"]

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
    target = sys.stderr if stream is None else stream
    text = form == "text" or (form == "auto" and target.isatty())
    return _Log(target, text, LEVELS.index(level)).write


@define(eq=False)
class _Log:
    stream: TextIO
    text: bool
    lowest: int
    _logger: Any = field(default=None, init=False)

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        """Write one line."""
        rank = LEVELS.index(level) if level in LEVELS else LEVELS.index("error")
        if rank < self.lowest:
            return
        if self._logger is None:
            self._logger = self._build()
        self._logger.log(
            (rank + 1) * 10, event, **{_free(key): value for key, value in fields.items()}
        )

    def _build(self) -> Any:
        import structlog  # noqa: PLC0415 (70 ms that a process need not spend before it listens)

        last: list[Any] = [structlog.processors.JSONRenderer(ensure_ascii=False)]
        if self.text:
            dev = structlog.dev
            last = [
                dev.ConsoleRenderer(
                    colors=self.stream.isatty(), exception_formatter=dev.plain_traceback
                )
            ]
        else:
            last.insert(0, structlog.processors.format_exc_info)
        return structlog.wrap_logger(
            structlog.WriteLogger(self.stream),
            processors=[
                _redact,
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
                *last,
            ],
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )


def _free(key: str) -> str:
    """Return `key`, renamed where structlog means something else by it."""
    return f"{key}_" if key in ("event", "level", "time", "timestamp") else key


def _redact(_: object, __: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in fields:
        if any(word in key.lower() for word in _SECRET):
            fields[key] = "[redacted]"
    return fields
