"""The state of a session: a JSON object, in which calls set and delete top-level keys.

A change names the keys that it writes and nothing else, so that what others write beside it stays.
It is applied in the transaction that stores the outcome of the call, under the lock of the
session's row, and only where that very transaction stores the outcome: once, however often the
transaction is tried.

As a run leaves it, the state is kept once per session and version, under its digest, which the row
of the run names.  The output of the run has an empty one in its place, as its last member, and so
has its last event; whoever reads them puts in what is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from ..values import frozen
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = [
    "EMPTY",
    "MAX_STATE",
    "NO_CHANGE",
    "RETURNED_STATE",
    "SET_STATE",
    "STATE",
    "FetchState",
    "StateChange",
    "StateChanges",
    "apply",
    "change_to",
    "encode_change",
    "encode_value",
    "fill_state",
    "is_too_long",
    "keep_state",
    "select_state",
]

MAX_STATE: Final = 1 << 20
"""How long the state of a session may become by a call, in bytes of JSON."""

EMPTY: Final = "{}"
"""The JSON of a state without keys."""

STATE: Final = Sql("select state from sessions where owner = :owner and session_id = :session_id")
RETURNED_STATE: Final = f"case when length(state) <= {MAX_STATE} then state end as state"
"""The state of a session as an update returns it: null where it is long, and read with `STATE`.

SQLite writes what an update returns to a file of its own, where it is long.
"""

SET_STATE: Final = Sql(
    """update sessions set state = :state where owner = :owner and session_id = :session_id"""
)


@frozen
class StateChange:
    """The top-level keys that a call writes: those that it sets, each with its JSON, or deletes."""

    values: tuple[tuple[str, str], ...] = ()
    deleted: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that are written."""
        return (*(key for key, _ in self.values), *self.deleted)

    def without(self, keys: Collection[str]) -> StateChange:
        """Return the change of the keys that are not among `keys`."""
        values = tuple(pair for pair in self.values if pair[0] not in keys)
        return StateChange(values, tuple(key for key in self.deleted if key not in keys))


NO_CHANGE: Final = StateChange()


def encode_value(value: Any) -> str:
    """Return `value` as JSON, in one form alone.

    Raises:
        ValueError: It has NaN or infinity in it, or itself.
        TypeError: JSON does not have it.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_change(change: StateChange) -> dict[str, Any]:
    """Return `change` as the outcome of a step has it."""
    values = {key: json.loads(text) for key, text in change.values}
    whole = {"set": values, "deleted": list(change.deleted)}
    return {name: part for name, part in whole.items() if part}


def apply(state: str, *changes: StateChange) -> str:
    """Return `state`, which is JSON, after `changes`, one after the other."""
    document: dict[str, Any] = json.loads(state)
    for change in changes:
        for key in change.deleted:
            document.pop(key, None)
        document.update((key, json.loads(text)) for key, text in change.values)
    return encode_value(document)


def is_too_long(text: str, most: int) -> bool:
    """Return whether a state has more than `most` bytes, as short as JSON can be.

    `text` is it as ASCII, which is never shorter.
    """
    if len(text) <= most:
        return False
    return len(encode_value(json.loads(text)).encode("utf-8", "surrogatepass")) > most


@frozen
class StateChanges:
    """The changes that calls of a run make to the state of its session, in the order that counts.

    Attributes:
        changes: Each with the place of the step whose outcome it is stored with, or with the id of
            the run whose end it is stored with.
    """

    owner: str
    session_id: str
    changes: tuple[tuple[str, StateChange], ...]

    def write(self, state: str, stored: Collection[str]) -> Statements[str]:
        """Yield the update of `state`; return the state after it.

        Part of a unit that has the lock of the session's row.  `stored` are the places and the runs
        whose outcomes this very unit stores: what was stored before was applied then.
        """
        changes = [change for place, change in self.changes if place in stored]
        if not changes:
            return state
        changed = apply(state, *changes)
        yield SET_STATE.of(self, state=changed)
        return changed


@frozen
class FetchState(ReadUnit[str]):
    """The state of a session as it is stored, as JSON; empty where there is no session."""

    owner: str
    session_id: str

    def statements(self, dialect: Dialect) -> Statements[str]:
        """Yield one point read."""
        rows = yield STATE.of(self)
        return rows[0][0] if rows else EMPTY


def change_to(said: Mapping[str, Any], names: Collection[str]) -> StateChange:
    """Return the change that gives the keys `names` the values that `said` has, and no others."""
    values = tuple((key, encode_value(value)) for key, value in said.items())
    return StateChange(values, tuple(name for name in names if name not in said))


# --- The state as runs left it -----------------------------------------------------------------

KEEP_STATE: Final = Sql(
    """insert into session_states (owner, session_id, digest, document, first_us)
    values (:owner, :session_id, :digest, :document, :now_us)
    on conflict (owner, session_id, digest) do nothing returning digest"""
)
NAME_STATE: Final = Sql("update runs set state = :digest where owner = :owner and run_id = :run_id")
# A release before this one that cancels a paused run writes its output anew, with spaces.
_PLACES: Final = (',"session_state":{}}', ', "session_state": {}}')


def select_state(runs: str = "runs") -> str:
    """Return the column with the state as the run of a row left it; `runs` is the table's name."""
    return f"""(select document from session_states as kept where kept.owner = {runs}.owner
        and kept.session_id = {runs}.session_id and kept.digest = {runs}.state)"""


def keep_state(
    owner: str, session_id: str, run_id: str, state: str, now_us: int
) -> Statements[tuple[str | None, int]]:
    """Yield what keeps `state`, as a run leaves it; return it, None where it is empty.

    With it come the bytes that are kept now and were not before.  One state has one digest: `state`
    is as `apply` returns it.
    """
    if state == EMPTY:
        return None, 0
    encoded = state.encode()
    digest = hashlib.sha256(encoded).hexdigest()
    new = yield KEEP_STATE(
        owner=owner, session_id=session_id, digest=digest, document=state, now_us=now_us
    )
    yield NAME_STATE(owner=owner, run_id=run_id, digest=digest)
    return state, len(encoded) if new else 0


def fill_state(text: str, document: str) -> str:
    """Return `text`, an output or the data of an event, with `document` in the state's place.

    One that a release before this one wrote has a state of its own, and is returned as it is.
    """
    for place in _PLACES:
        if text.endswith(place):
            return f"{text[:-3]}{document}}}"
    return text
