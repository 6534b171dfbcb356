"""Distributed traces: W3C Trace Context in, and out again with what a program sends.

https://www.w3.org/TR/trace-context-1/ says how `traceparent` and `tracestate` are read.  What does
not follow it is as if absent: a header of somebody else's must not fail a request.

What is stored for later, a run or a message, has the trace noted on its JSON: whoever comes to it,
perhaps another process, goes on in the same trace.  Who knows nothing of the note reads over it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from ..values import frozen

__all__ = ["Trace", "read_note", "read_trace", "with_note"]

# Section 3.2: lower case alone.  Version 00 has four fields; a later one may have more behind them.
_PARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_SAMPLED: Final = 1

# Section 3.3.1: a key of one or two parts, and printable values.
_MEMBER: Final = re.compile(
    rb"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    rb"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MEMBERS: Final = 32
_STATE_LENGTH: Final = 512


@frozen
class Trace:
    """The place of a request in a trace: the trace, and the span in it that asks.

    Attributes:
        trace_id: 32 hexadecimal digits.
        span_id: 16 hexadecimal digits.
        sampled: Whether who asks has recorded its part.
        state: What vendors want handed on, as the value of `tracestate`.
    """

    trace_id: str
    span_id: str
    sampled: bool = True
    state: str = ""

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of a request that this span sends."""
        parent = ("traceparent", f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}")
        return (parent, ("tracestate", self.state)) if self.state else (parent,)


def read_trace(parents: Sequence[bytes], states: Sequence[bytes]) -> Trace | None:
    """Return what the `traceparent` and `tracestate` headers of a request say, if anything.

    A `tracestate` that cannot be read is dropped alone (section 3.3.1.1).
    """
    matched = _PARENT.fullmatch(parents[0].strip(b" \t")) if len(parents) == 1 else None
    if matched is None:
        return None
    version, trace_id, span_id, flags, more = matched.groups()
    if version == b"00" and more is not None:
        return None
    sampled = bool(int(flags, 16) & _SAMPLED)
    return Trace(trace_id.decode(), span_id.decode(), sampled, _state(states))


def _state(values: Sequence[bytes]) -> str:
    members = [member.strip(b" \t") for value in values for member in value.split(b",")]
    members = [member for member in members if member]
    keys = {member.partition(b"=")[0] for member in members}
    if len(members) > _MEMBERS or len(keys) < len(members):
        return ""
    if not all(_MEMBER.fullmatch(member) for member in members):
        return ""
    state = b",".join(members)
    return state.decode() if len(state) <= _STATE_LENGTH else ""


# --- On what is stored --------------------------------------------------------------------------

# The first member, so that nobody need read the rest, which may be megabytes.
_NOTE: Final = '{"trace":'
_decode: Final = json.JSONDecoder().raw_decode


def with_note(text: str, trace: Trace) -> str:
    """Return the JSON object `text` with `trace` noted on it, in the place of another one."""
    members = _split(text)[1]
    note = json.dumps(dict(trace.headers()), separators=(",", ":"))
    return f"{_NOTE}{note}{'' if members == '}' else ','}{members}"


def read_note(text: str) -> Trace | None:
    """Return the trace that is noted on the JSON object `text`, if any."""
    note = _split(text)[0]
    fields = [str(note.get(name, "")).encode() for name in ("traceparent", "tracestate")]
    return read_trace(fields[:1], fields[1:])


def _split(text: str) -> tuple[Mapping[str, object], str]:
    """Return the note on `text`, and its other members with the brace behind them."""
    nothing: Mapping[str, object] = {}
    if not text.startswith(_NOTE):
        return nothing, text[1:]
    note, end = _decode(text, len(_NOTE))
    found = cast("Mapping[str, object]", note) if isinstance(note, dict) else nothing
    return found, text[end:].removeprefix(",")
