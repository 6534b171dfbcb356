"""The invariants of a storm: promises that have to hold at every moment, and not only at the end.

Each is looked at behind the units of work that could break it.  A row that the select of an
invariant finds is a broken promise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from attrs import frozen

from legation.store.inbox import AttachRun
from legation.store.run_keeping import ClaimWaiting
from legation.store.run_rows import ClaimedRun
from legation.store.run_steering import ContinueRun
from legation.store.runs import FinishRun, StartRun
from legation.store.units import Unit

__all__ = ["BY_UNIT", "INVARIANTS", "Invariant"]

Parameters: TypeAlias = Callable[[Any, Any], Mapping[str, Any] | None]
"""Makes the parameters of the select, of a unit and its answer; None where it did nothing."""


@frozen
class Invariant:
    """A promise, the units that could break it, and the select of what is broken."""

    promise: str
    units: tuple[type[Unit[Any]], ...]
    select: str
    parameters: Parameters


def _always(unit: Any, answer: Any) -> Mapping[str, Any]:
    return {"owner": unit.owner, "session_id": unit.session_id}


def _of_claim(unit: Any, answer: Any) -> Mapping[str, Any] | None:
    claimed = answer.following if isinstance(unit, FinishRun) else answer
    if not isinstance(claimed, ClaimedRun):
        return None
    return {name: getattr(claimed, name) for name in ("owner", "session_id", "run_no")}


def _of_attachment(unit: AttachRun, answer: bool) -> Mapping[str, Any] | None:
    return {"message_id": unit.lease.key.item_id} if answer else None


INVARIANTS: Final = (
    Invariant(
        "a session executes one run at a time",
        (StartRun, FinishRun, ContinueRun),
        """select run_id from runs where owner = :owner and session_id = :session_id
        and status = 'RUNNING' and parent_run_id is null limit 8 offset 1""",
        _always,
    ),
    Invariant(
        "a session executes one run at a time",
        (ClaimWaiting,),
        """select run_id from runs where owner = :owner and session_id = :session_id
        and status = 'RUNNING' and parent_run_id is null and run_no <> :run_no""",
        _of_claim,
    ),
    Invariant(
        "a session executes its runs in order",
        (FinishRun, ClaimWaiting),
        """select run_id from runs where owner = :owner and session_id = :session_id
        and status = 'PENDING' and parent_run_id is null and run_no < :run_no""",
        _of_claim,
    ),
    # Older is what was stored before, and also came before by the clocks of those who took it.
    Invariant(
        "a sender's messages are taken up in order",
        (AttachRun,),
        """select old.message_id from inbox as new join inbox as old on old.sender = new.sender
        where new.message_id = :message_id and old.rowid < new.rowid and old.state = 'ready'
        and old.channel = new.channel
        and (old.received_us, old.position) < (new.received_us, new.position)""",
        _of_attachment,
    ),
)

BY_UNIT: Final[Mapping[type[Any], tuple[Invariant, ...]]] = {
    unit: tuple(one for one in INVARIANTS if unit in one.units)
    for unit in (StartRun, FinishRun, ContinueRun, ClaimWaiting, AttachRun)
}
