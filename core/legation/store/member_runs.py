"""Units of work on the runs of members of teams.

A member's run is a row of its own, under the run that it is part of.  It has no lease: whoever
holds the one of the run that was asked for, at the top, writes it, and every statement here is
fenced by that.  So it ends with the run at the top at the latest, in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ..values import frozen
from .once import message_of, shorten_output, whole_output
from .run_rows import EXECUTED, EXECUTED_RUN, NEXT_VERSION, RunLease, literal, status_is
from .run_states import MEMBER_MOVES, RunState
from .units import Dialect, ReadUnit, Rows, Sql, Statement, Statements, Undo, Unit, Work

__all__ = ["CheckLease", "MemberMove", "Root", "StartMember", "end_members", "read_failure"]

# The session's row is the lock here as well: whoever takes the run from a dead node writes it too.
NUMBER: Final = Sql(
    f"""update sessions set runs = runs + 1, version = {NEXT_VERSION}
    where owner = :owner and session_id = :session_id returning runs"""
)
HELD: Final = Sql(
    f"""select cancel_us from runs where owner = :owner and run_id = :run_id
    and {EXECUTED_RUN} and lease_by = :node and attempt = :attempt"""
)
KNOWN: Final = Sql("select 1 from runs where owner = :owner and run_id = :run_id")
INSERT: Final = Sql(
    f"""insert into runs (owner, session_id, run_no, run_id, parent_run_id, kind, component_id,
        status, input, output, created_us, started_us)
    values (:owner, :session_id, :run_no, :run_id, :parent_run_id, :kind, :component_id,
        {literal(EXECUTED)}, :input, :output, :now_us, :now_us)"""
)
_OPEN_MEMBER: Final = status_is(*MEMBER_MOVES)
MOVE: Final = Sql(
    f"""update runs set status = :status, output = :output, reason = :reason, usage = :usage,
        ended_us = :ended_us
    where owner = :owner and run_id = :run_id and parent_run_id is not null
        and {_OPEN_MEMBER}
    returning run_id"""
)
# A member's run has a higher number than the one that it is part of.
OPEN: Final = Sql(
    f"""select run_id, parent_run_id, input, {whole_output()} from runs
    where owner = :owner and session_id = :session_id and parent_run_id is not null
        and {_OPEN_MEMBER}
        and run_no > (select run_no from runs where run_id = :run_id)
    order by run_no"""
)
END: Final = Sql(
    """update runs set status = :status, output = :output, reason = :reason, ended_us = :now_us
    where owner = :owner and run_id = :run_id"""
)


@frozen
class Root:
    """The run at the top, and the right to execute it."""

    owner: str
    session_id: str
    run_id: str
    lease: RunLease

    def ask_lease(self) -> Statement:
        """Return the look at the lease: no row when it is lost, else when a cancel was asked."""
        return HELD.of(self, node=self.lease.node, attempt=self.lease.attempt)


@frozen
class StartMember(Unit[bool | None]):
    """Store the run of a member; `output` is what is shown of it while it has no other.

    The result is None when the lease is lost, else whether somebody asked to cancel the run at the
    top.  Run a second time, as after a commit without an answer, it finds the row.
    """

    root: Root
    run_id: str
    parent_run_id: str
    kind: str
    component_id: str
    input: str
    output: str
    now_us: int

    def statements(self, dialect: Dialect) -> Work[bool | None | Undo[bool | None]]:
        """Yield the session's lock, which gives the number, two looks, and the row."""
        owner, session_id = self.root.owner, self.root.session_id
        numbers, held, known = yield (
            NUMBER.of(self.root),
            self.root.ask_lease(),
            KNOWN.of(self, owner=owner),
        )
        asked = _is_cancel_requested(held)
        if asked is None or known:
            return Undo(asked)
        yield INSERT.of(self, owner=owner, session_id=session_id, run_no=numbers[0][0])
        return asked


@frozen
class MemberMove:
    """The state in which the run of a member is from now on; one that is over stays as it is.

    It is stored with the events that say so, in one transaction under the lease of the top.
    """

    owner: str
    session_id: str
    run_id: str
    status: str
    output: str
    reason: str | None
    usage: str | None
    now_us: int

    @property
    def is_end(self) -> bool:
        """Whether the run is over with it."""
        return RunState(self.status).final

    def statements(self) -> Statements[bool]:
        """Yield the update; return whether it was made."""
        ended_us = None if self.status == EXECUTED else self.now_us
        return bool((yield MOVE.of(self, ended_us=ended_us)))


@frozen
class CheckLease(ReadUnit[bool | None]):
    """The wish to cancel the run at the top, True where there is one; None: its lease is lost."""

    root: Root

    def statements(self, dialect: Dialect) -> Statements[bool | None]:
        """Yield one read."""
        return _is_cancel_requested((yield self.root.ask_lease()))


def _is_cancel_requested(held: Rows) -> bool | None:
    """Return whether somebody asked to cancel the run; None when the lease is lost."""
    return held[0][0] is not None if held else None


def end_members(
    owner: str,
    session_id: str,
    run_id: str,
    ending: tuple[str, str | None, int],
    failure: Mapping[str, str],
    *,
    once: bool,
) -> Statements[int]:
    """End what members still do for the run, and their members for them.

    Part of a unit that ends the run, under the session's lock.  `ending` is how: the status, the
    reason, and when; `failure` is added to what is shown of them.  `once`: their outputs are
    shortened.  The result is how many bytes those have.
    """
    status, reason, now_us = ending
    content, family, size = _TOLD[RunState(status)], {run_id}, 0
    changes = {"status": status, "content": content, "content_type": "str", **failure}
    members = yield OPEN(owner=owner, session_id=session_id, run_id=run_id)
    for child, parent, asked, output in members:
        if parent not in family:
            continue
        family.add(child)
        shown = {**json.loads(output), **changes}
        shown.pop("requirements", None)
        text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        if once:
            text, _ = shorten_output(text, message_of(asked))
        ended = {"status": status, "output": text, "reason": reason, "now_us": now_us}
        yield END(owner=owner, run_id=child, **ended)
        size += len(text.encode())
    return size


def read_failure(output: str | None) -> dict[str, str]:
    """Return the reason for a failed run as its output has it: `error_type` and `incident`."""
    shown = json.loads(output or "{}")
    return {name: shown[name] for name in ("error_type", "incident") if name in shown}


_TOLD: Final = {
    RunState.ERROR: "The run that this one is part of ended in an error",
    RunState.CANCELLED: "The run that this one is part of was cancelled",
}
