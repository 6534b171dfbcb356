"""Lists of texts as parameters for PostgreSQL, in its binary format.

psycopg writes a list as a text, in which it escapes each quote of each text that is in there: of
JSON, of which events are made, that took more than all other parameters of a run.

This module is imported when there is a connection, since psycopg is an extra.
"""

from __future__ import annotations

from struct import Struct
from types import NoneType
from typing import Any, Final

from psycopg import postgres
from psycopg.abc import AdaptContext, Buffer, DumperKey
from psycopg.adapt import Dumper, PyFormat, Transformer
from psycopg.pq import Format
from psycopg.types import array

__all__ = ["ListDumper"]

_TEXT: Final = postgres.types["text"]
_OF_TEXTS: Final = frozenset((frozenset((str,)), frozenset((str, NoneType))))

# The number of dimensions, whether there are nulls, and the type; the size and the first index.
_HEAD: Final = Struct("!iiIii")
_NULL: Final = (-1).to_bytes(4, signed=True)


class _TextsDumper(Dumper):
    """Dumps a list of texts, some of which may be None, but not all."""

    format = Format.BINARY
    oid = _TEXT.array_oid

    def __init__(self, kind: type, context: AdaptContext | None = None) -> None:
        super().__init__(kind, context)
        # That for the text format, which refuses a NUL as it does outside of a list.
        self._dump = Transformer.from_context(context).get_dumper("", PyFormat.TEXT).dump

    def dump(self, obj: list[str | None]) -> Buffer:
        """Return `obj` as the server takes it."""
        parts: list[Buffer] = [_HEAD.pack(1, None in obj, _TEXT.oid, len(obj), 1)]
        for text in obj:
            data = None if text is None else self._dump(text)
            parts += (_NULL,) if data is None else (len(data).to_bytes(4), data)
        return b"".join(parts)


class ListDumper(Dumper):
    """Dumps a list as psycopg does, but for one of texts."""

    def __init__(self, kind: type, context: AdaptContext | None = None) -> None:
        super().__init__(kind, context)
        self._context = context
        self._others = array.ListDumper(kind, context)

    def get_key(self, obj: list[Any], format: PyFormat) -> DumperKey:  # noqa: A002 (psycopg's)
        """Return what tells the dumper for `obj` from others."""
        if frozenset(map(type, obj)) in _OF_TEXTS:
            return _TextsDumper
        return self._others.get_key(obj, format)

    def upgrade(self, obj: list[Any], format: PyFormat) -> Dumper:  # noqa: A002 (psycopg's)
        """Return the dumper for `obj`."""
        if frozenset(map(type, obj)) in _OF_TEXTS:
            return _TextsDumper(self.cls, self._context)
        return self._others.upgrade(obj, format)

    def dump(self, obj: list[Any]) -> Buffer | None:
        """Return `obj`, which is empty, as the server takes it."""
        return self._others.dump(obj)
