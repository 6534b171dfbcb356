"""The types of a configuration that was made in Python: one sentence for each wrong value.

A file is read by types, an editor checks them as one types; a script that nobody checked is told
here what it gave and what is expected, at the start and before anything is made of it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeGuard, Union, cast, get_args, get_origin, get_type_hints

from attrs import fields, has

from ..config import PlatformConfig
from ..http.refusals import Fault

__all__ = ["type_faults"]

_WORDS: Final[Mapping[Any, tuple[tuple[type[Any], ...], str]]] = {
    str: ((str,), "a string"),
    bool: ((bool,), "True or False"),
    int: ((int,), "an integer"),
    float: ((int, float), "a number"),
    types.NoneType: ((types.NoneType,), "None"),
}
"""By type: the classes whose values are taken, and what they are called."""
_CALLED: Final[Mapping[Any, str]] = {
    Callable: "a function",
    Literal: "a string",
    Mapping: "a mapping",
    tuple: "a list",
    type: "a class",
}
# The registry looks into these, and says more of them.
_LEFT: Final = {"model": Any, "fallback": tuple[Any, ...], "run": Any, "tools": tuple[Any, ...]}
# What stands beside the table `[platform]` of a file.
_TABLES: Final = {
    "audit",
    "authorization_config",
    "console",
    "databases",
    "models",
    "agents",
    "teams",
    "channels",
    "limits",
    "retention",
    "notify",
    "readers",
}
# The list of each kind of thing, and the field that names one of them in a path.
_NAMED: Final = {"databases": "id", "models": "name", "channels": "id"}


def type_faults(config: PlatformConfig) -> tuple[Fault, ...]:
    """Return a fault for each value of `config` that has the wrong type.

    What the value is does not show, as it may be a secret: its type does.
    """
    return tuple(_faults_of(config, "platform"))


def _faults_of(value: Any, path: str) -> Iterator[Fault]:
    """Yield the faults of the fields of `value`, which stands at `path`."""
    cls = cast(Any, type(value))
    hints = _hints(cls)
    top = isinstance(value, PlatformConfig)
    for attribute in fields(cls):
        name, hint = attribute.name, hints[attribute.name]
        place = name if top and name in _TABLES else f"{path}.{name}"
        yield from _faults_at(getattr(value, name), hint, place)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return {**get_type_hints(cls), **_LEFT}


def _faults_at(value: Any, hint: Any, path: str) -> Iterator[Fault]:
    listed = next((member for member in _members(hint) if get_origin(member) is tuple), None)
    if listed is not None and _is_tuple(value):
        for index, item in enumerate(value):
            yield from _faults_at(item, get_args(listed)[0], _place(item, path, index))
    elif (item := _item_of(hint)) is not None and _is_mapping(value):
        for key, one in value.items():
            if not isinstance(key, str):
                yield Fault(path, f"expected strings as keys, not {type(key).__name__}")
            yield from _faults_at(one, item, f'{path}."{key}"')
    elif not _fits(value, hint):
        yield Fault(path, f"expected {_describe(hint)}, not {type(value).__name__}")
    elif has(cls := cast(Any, type(value))) and cls in _members(hint):
        yield from _faults_of(value, path)


def _item_of(hint: Any) -> Any:
    """Return the class of the items of a mapping, where they are tables; else None."""
    item: Any = get_args(hint)[-1] if get_origin(hint) is Mapping else object
    return item if has(item) else None


def _is_tuple(value: Any) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def _is_mapping(value: Any) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _place(item: Any, path: str, index: int) -> str:
    """Return the path of an item: by its name where a file has a table of that name."""
    name = getattr(item, _NAMED.get(path, ""), None)
    return f"{path}.{name}" if isinstance(name, str) else f"{path}[{index}]"


def _fits(value: Any, hint: Any) -> bool:
    """Return whether `value` is of the type `hint`, as far as a look at it says."""
    members = _members(hint)
    return any(_is_a(value, member) for member in members)


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_a(value: Any, hint: Any) -> bool:
    origin = get_origin(hint) or hint
    if origin is Literal:
        return isinstance(value, str)  # the registry says which words there are
    if hint in _WORDS:
        return isinstance(value, _WORDS[hint][0]) and not (type(value) is bool and hint is not bool)
    return hint is Any or isinstance(value, origin)


def _describe(hint: Any) -> str:
    """Return what `hint` is called in a sentence."""
    members = [member for member in _members(hint) if member is not types.NoneType]
    *others, last = dict.fromkeys(map(_name, members))
    return f"{', '.join(others)} or {last}" if others else last


def _name(hint: Any) -> str:
    origin = get_origin(hint) or hint
    if hint in _WORDS:
        return _WORDS[hint][1]
    return _CALLED.get(origin) or f"{origin.__name__}(…)"
