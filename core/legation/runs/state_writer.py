"""The state writer of a run: what the calls of the run write to the state of its session.

A call reads the state as it is stored, and writes top-level keys of it.  Calls side by side do not
see each other's keys.  Where two write the same one, the later place wins, whichever came first to
its end: that is decided in the moment in which the outcome of a call is noted, so that no
transaction lies between.  A call that has seen what the other wrote is no rival of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import field

from ..store.session_state import (
    MAX_STATE,
    NO_CHANGE,
    StateChange,
    StateChanges,
    apply,
    change_to,
    encode_value,
)
from ..values import define, frozen

__all__ = ["StateRead", "StateTooLarge", "StateWriter", "view_of"]

_SHOWN: Final = 100  # characters of a key in the log
_TOO_LARGE: Final = (
    "the state of the session would have {} bytes of JSON, and no more than {} are stored"
)
_NUMBER: Final = re.compile("[0-9]+")


class StateTooLarge(Exception):
    """The state would be longer than may be: the call fails, and nothing is written."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(_TOO_LARGE.format(size, most))


@frozen
class StateRead:
    """The state of a session as a call has read it, as JSON.

    Attributes:
        seen: The number of the newest change of this run that is in it for certain.
    """

    text: str
    seen: int = 0

    @property
    def document(self) -> dict[str, Any]:
        """The state, a copy of its own."""
        document: dict[str, Any] = json.loads(self.text)
        return document

    def has(self, write: _Write, key: str) -> bool:
        """Return whether what `write` wrote under `key` is in it."""
        if write.number <= self.seen:
            return True
        document = self.document
        return (encode_value(document[key]) if key in document else None) == write.text


@frozen
class _Write:
    """The write of a key that counts: of which call, its number, and the JSON; None deletes."""

    place: str
    number: int
    text: str | None

    def change(self, key: str) -> StateChange:
        """Return it as a change of `key`."""
        if self.text is None:
            return StateChange(deleted=(key,))
        return StateChange(((key, self.text),))


@define(eq=False)
class StateWriter:
    """Keeps what calls of one run write, until it is stored.

    Attributes:
        view: What the token of the caller says, which is laid over the state for this run.
        asked: What calls write whose outcomes are not noted, by their places.
        pending: What is not known to be stored, by the place of the step, or the id of the run,
            whose outcome it is stored with; each with its number.
        overwritten: Keys that two calls wrote, for the log: the key, and the places of the call
            whose write is lost and of the one whose write counts.
        most: How long the state may become, in bytes of JSON; one that is longer may shrink.
    """

    view: StateChange = NO_CHANGE
    most: int = MAX_STATE
    asked: dict[str, tuple[StateRead, StateChange]] = field(
        factory=dict[str, tuple[StateRead, StateChange]], init=False
    )
    pending: dict[str, tuple[int, StateChange]] = field(
        factory=dict[str, tuple[int, StateChange]], init=False
    )
    overwritten: list[tuple[str, str, str]] = field(factory=list[tuple[str, str, str]], init=False)
    _writes: dict[str, _Write] = field(factory=dict[str, _Write], init=False)
    _number: int = field(default=0, init=False)

    @property
    def seen(self) -> int:
        """The number of the newest change before which all are stored, and itself."""
        return min((number for number, _ in self.pending.values()), default=self._number + 1) - 1

    def read(self, state: str, seen: int) -> StateRead:
        """Return `state` as a call reads it; it was asked for when `seen` was what it is."""
        return StateRead(state if self.view == NO_CHANGE else apply(state, self.view), seen)

    def ask(self, place: str, read: StateRead, change: StateChange) -> None:
        """Keep what the call at `place` writes, until its outcome is noted.

        Raises:
            StateTooLarge: The state would be.
        """
        if change == NO_CHANGE:
            return
        others = [write.change(key) for key, write in self._writes.items()]
        others += [one for _, one in self.asked.values()]
        size = len(apply(read.text, *others, change).encode())
        if size > self.most and size >= len(read.text.encode()):
            raise StateTooLarge(size, self.most)
        self.asked[place] = (read, change)

    def note(self, place: str, stored_with: str) -> StateChange:
        """Return what the call at `place` writes, now that its outcome is noted.

        It is stored with the next batch.  Of a key that another call wrote, unseen by this one, the
        write at the later place counts.
        """
        read, change = self.asked.pop(place)
        lost: list[str] = []
        for key in change.keys:
            write = self._writes.get(key)
            if write is None or read.has(write, key):
                continue
            first, last = sorted((write.place, place), key=_numbers)
            self.overwritten.append((key[:_SHOWN], first, last))
            if last == write.place:
                lost.append(key)
        change = change.without(lost)
        self._number += 1
        self.pending[stored_with] = (self._number, change)
        texts = dict(change.values)
        for key in change.keys:
            self._writes[key] = _Write(place, self._number, texts.get(key))
        return change

    def changes(self, owner: str, session_id: str) -> StateChanges:
        """Return what is stored with the next batch."""
        changes = tuple((place, change) for place, (_, change) in self.pending.items())
        return StateChanges(owner, session_id, changes)

    def forget(self, stored_with: str) -> None:
        """Take back, or for stored, what is stored with the outcome of a step or a run."""
        self.pending.pop(stored_with, None)


def _numbers(place: str) -> tuple[int, ...]:
    """Return what places are compared by: `3.10` is behind `3.9/1.1`."""
    return tuple(map(int, _NUMBER.findall(place)))


def view_of(asked: Mapping[str, Any]) -> StateChange:
    """Return what the token of the caller says in the session's state, for the run with this input.

    The state of the session may have been changed since, by another request or another token.
    """
    claims = asked.get("state_claims")
    return NO_CHANGE if claims is None else change_to(claims["said"], claims["names"])
