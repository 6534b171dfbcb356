"""The state of a session as a function has left it: the top-level keys that it wrote, as JSON.

Each key is compared by its JSON from before and after the call, so a change deep within counts,
whoever made it.  Of a class of the author's each field is a key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ..http.bodies.json_text import BadJson, parse_json
from ..store.session_state import StateChange, encode_value
from .accepted import is_array, is_object
from .context_parameter import Misfit, read_given
from .results import to_json
from .shapes import Mapped, ObjectShape, Plain, Shape

__all__ = ["Unstorable", "combine_changes", "compare_state", "encode_state"]

_SHOWN: Final = 80  # characters of a key
_NO_OBJECT: Final = "state must be an object"
_NO_JSON: Final = "state.{} has a value that JSON does not have"
_NO_TEXT: Final = "state has a key that is no text"


class Unstorable(ValueError):
    """The state holds what cannot be stored; the text names the key, for the log."""


def encode_state(shape: Shape, state: Any) -> dict[str, str]:
    """Return the JSON of each top-level key of `state`, which was read as `shape`.

    Raises:
        Unstorable: JSON does not have it.
    """
    return _encode(_members(shape, state))


def compare_state(shape: Shape, before: Mapping[str, str], state: Any) -> StateChange:
    """Return what changed from `before`, as `encode_state` returned it, to `state` as it is now.

    Raises:
        Unstorable: It cannot be stored, or could not be read again as `shape`.
    """
    members = _members(shape, state)
    after = _encode(members)
    values = tuple((key, text) for key, text in after.items() if before.get(key) != text)
    for key, text in values:
        _check(key, members[key], text)
    change = StateChange(values, tuple(key for key in before if key not in after))
    if change.keys:
        again = read_given(shape, "state", {key: json.loads(text) for key, text in after.items()})
        if isinstance(again, Misfit):
            raise Unstorable(again.reason)
    return change


def _members(shape: Shape, state: Any) -> Mapping[Any, Any]:
    if shape == Plain("null"):
        return {}
    if isinstance(shape, Mapped) or shape == Plain("any"):
        document: Any = state
    else:
        try:
            document = json.loads(to_json(state))
        except Exception:  # noqa: BLE001 (of what a value is made, its author's code says)
            raise Unstorable(_NO_JSON.format("…")) from None
    if not is_object(document):
        raise Unstorable(_NO_OBJECT)
    if not isinstance(shape, ObjectShape):
        return document
    # An attribute that nothing is made with would not be read again.
    names = {member.name for member in shape.members}
    return {name: value for name, value in document.items() if name in names}


def _encode(members: Mapping[Any, Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key, value in members.items():
        if type(key) is not str:
            raise Unstorable(_NO_TEXT)
        try:
            texts[key] = encode_value(value)
        except (TypeError, ValueError, RecursionError):
            raise Unstorable(_NO_JSON.format(key[:_SHOWN])) from None
    return texts


def _check(key: str, value: Any, text: str) -> None:
    """Look whether what is stored would be read again, by the platform and by its clients."""
    try:
        again = parse_json(f"{{{encode_value(key)}:{text}}}".encode())
    except UnicodeEncodeError:
        again = BadJson("half of a surrogate pair")
    if isinstance(again, BadJson):
        raise Unstorable(f"state.{key[:_SHOWN]!a} has what is not stored: {again.reason}")
    if not _has_text_keys(value):
        raise Unstorable(_NO_JSON.format(key[:_SHOWN]))


def _has_text_keys(value: Any) -> bool:
    """Return whether all keys in `value` are texts: the encoder would make texts of numbers."""
    if is_object(value):
        return all(type(key) is str and _has_text_keys(part) for key, part in value.items())
    return not is_array(value) or all(map(_has_text_keys, value))


def combine_changes(*changes: StateChange) -> StateChange:
    """Return the changes as one; of a key the last counts."""
    last: dict[str, str | None] = {}
    for change in changes:
        last.update(change.values)
        last.update(dict.fromkeys(change.deleted))
    values = tuple((key, text) for key, text in last.items() if text is not None)
    return StateChange(values, tuple(key for key, text in last.items() if text is None))
