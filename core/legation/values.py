"""The `frozen` of attrs, for classes that are ready sooner.

attrs writes the methods of each class as Python text and compiles it, which for four hundred
classes was a third of the time until a server answers.  How a value is shown, compared and hashed
is the same for each class once its fields are known: here these are functions over the fields.
The rest is of attrs, `__init__` and the slots above all, and `fields`, `evolve` and cattrs see what
they always see.  A field can be left out of the text and of the comparison; a format or a key of
its own is for `attrs.frozen`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import attrs

__all__ = ["frozen"]

_OTHERWISE: Final = frozenset({"eq", "order", "hash", "unsafe_hash", "cache_hash"})
"""Options of a class that is not compared as others are."""


def _frozen(cls: type[Any] | None = None, **options: Any) -> Any:
    """Return `cls` as `attrs.frozen` does, or with `options` alone what takes it."""
    if cls is None:
        return partial(_frozen, **options)
    own = vars(cls).keys()
    if "__repr__" not in own:
        cls.__repr__ = _shown  # type: ignore[assignment]
    if {"__eq__", "__hash__"} & own or _OTHERWISE & options.keys():
        return attrs.frozen(cls, **options)
    return _comparing(attrs.frozen(cls, eq=False, **options))


def _shown(self: Any) -> str:
    """Return `Name(field=value, ...)`, without the fields that are not to be shown."""
    cls: Any = self.__class__
    names = [field.name for field in attrs.fields(cls) if field.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
    return f"{cls.__qualname__.rpartition('>.')[2]}({values})"


def _comparing(cls: type[Any]) -> type[Any]:
    """Give `cls` equality with its own kind, and the hash that goes with it."""
    name, values = cls.__qualname__, _compared(cls)

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def hashed(self: object) -> int:
        return hash((name, values(self)))

    cls.__eq__, cls.__hash__ = equal, hashed  # type: ignore[assignment]
    return cls


def _compared(cls: type[Any]) -> Callable[[object], object]:
    """Return what tells the values by which two of `cls` are compared."""
    names = [field.name for field in attrs.fields(cls) if field.eq]
    return attrgetter(*names) if names else _nothing


def _nothing(_: object) -> None:
    """Return what all values without such fields have in common."""


if TYPE_CHECKING:
    from attrs import frozen  # for a checker it is that of attrs
else:
    frozen = _frozen
