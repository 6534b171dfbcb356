"""A meter for JSON texts from strangers: how many values, and how deep, before any of it is parsed.

A text of 8 MB may be one string, or a million objects that take seconds and hundreds of megabytes
to make.  The meter tells them apart by counting, a slice at a time, in passes that run in C: what
stands within strings is cut away, and of the rest commas and brackets count.  It does not say that
a text is JSON; of one that is, there are never more values than it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from attrs import field

from ...effects import Program, Sleep
from ...values import define
from ..refusals import BadRequest, TooLarge
from .json_text import MAX_DEPTH

__all__ = ["LARGE", "MAX_VALUES", "NOT_JSON", "JsonMeter", "measure_json"]

MAX_VALUES: Final = 50_000
"""The most values in one request; each comma and each opening bracket counts as one."""

SLICE: Final = 64 << 10
"""Bytes that are measured without a pause."""

LARGE: Final = 2 * MAX_VALUES
"""Bytes from which a text may have more values: each has a character and a comma."""

NOT_JSON: Final = "The body has to be JSON; it is "
TOO_MANY_VALUES: Final = f"The body has more than {MAX_VALUES} JSON values"

_STEPS: Final = tuple({"[": 1, "{": 1, "]": -1, "}": -1}.get(chr(byte), 0) for byte in range(256))
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if not _STEPS[byte])


@define
class JsonMeter:
    """The count of a JSON text that comes slice by slice.

    Attributes:
        most: The most values that are accepted.
        values: Counted by now.
        depth: The greatest by now.
    """

    most: int = MAX_VALUES
    values: int = field(default=0, init=False)
    depth: int = field(default=0, init=False)
    _level: int = field(default=0, init=False)
    _within: int = field(default=0, init=False)  # 1 within a string
    _rest: bytes = field(default=b"", init=False)  # a backslash, whose character is still to come

    def feed(self, data: bytes) -> None:
        """Count what is in `data`, the next bytes of the text."""
        data = self._rest + data
        self._rest = b"\\" * ((len(data) - len(data.rstrip(b"\\"))) % 2)
        data = data[: len(data) - len(self._rest)]
        if b"\\" in data:  # now no quotation mark is left but those around strings
            data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = data.split(b'"')
        outside = b"".join(parts[self._within :: 2])
        self._within ^= (len(parts) - 1) & 1
        shape = outside.translate(None, _NO_BRACKETS)
        self.values += outside.count(b",") + shape.count(b"[") + shape.count(b"{")
        if shape:
            self._climb(shape)

    def _climb(self, shape: bytes) -> None:
        """Follow the brackets of a slice up and down."""
        *_, self._level = heights = [
            *accumulate(map(_STEPS.__getitem__, shape), initial=self._level)
        ]
        self.depth = max(self.depth, *heights)

    @property
    def reason(self) -> str | None:
        """The limit that the text exceeds; None while it is within the limits."""
        if self.depth > MAX_DEPTH:
            return f"nested deeper than {MAX_DEPTH} levels"
        return f"of more than {self.most} values" if self.values > self.most else None

    def feed_whole(self, text: bytes) -> Iterator[None]:
        """Feed `text`, as long as it is within the limits, and pause after each slice."""
        for start in range(0, len(text), SLICE):
            self.feed(text[start : start + SLICE])
            if self.reason is not None:
                return
            yield


def measure_json(body: bytes) -> Program[TooLarge | BadRequest | None]:
    """Return why `body` is not to be parsed; others have their turns while it is measured."""
    meter = JsonMeter()
    for _ in meter.feed_whole(body):
        yield from Sleep(0.0)
    if meter.depth > MAX_DEPTH:
        return BadRequest(f"{NOT_JSON}{meter.reason}")
    return None if meter.reason is None else TooLarge(MAX_VALUES, detail=TOO_MANY_VALUES)
