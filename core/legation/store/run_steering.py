"""Units of work for what people ask of a run that is there: to cancel it, to go on with it."""

from __future__ import annotations

import json
from typing import Final

from ..values import frozen
from .leases import FOREVER
from .member_runs import end_members
from .once import shorten_output, whole_output
from .run_rows import (
    ASKED_OF,
    CLAIMED,
    CLAIMED_MARK,
    EXECUTED,
    EXECUTED_RUN,
    LOCK_SESSION,
    ClaimedRun,
    StoredEvent,
    insert_events,
    literal,
    status_is,
)
from .run_states import RunMove, state_after, states_before
from .runs import ACTIVE
from .session_state import encode_value
from .units import Dialect, Sql, Statements, Undo, Unit

__all__ = ["CANCELLED_AT_ONCE", "CancelRun", "ContinueRun", "Continued"]

_CANCELLED: Final = state_after(RunMove.CANCEL)
CANCELLED_AT_ONCE: Final = tuple(s for s in states_before(RunMove.CANCEL) if s != EXECUTED)
"""The states of a run that nobody executes; who does cancels it, once somebody has asked."""

STANDING: Final = Sql(
    f"""select status, events, {whole_output()} from runs
    where owner = :owner and run_id = :run_id"""
)
ASK_TO_CANCEL: Final = Sql(
    f"""update runs set cancel_us = coalesce(cancel_us, :now_us)
    where owner = :owner and run_id = :run_id and {EXECUTED_RUN}"""
)
CANCEL: Final = Sql(
    f"""update runs set status = {literal(_CANCELLED)}, output = :output, reason = 'cancelled',
        ended_us = :now_us, events = :last
    where owner = :owner and run_id = :run_id and {status_is(*CANCELLED_AT_ONCE)}"""
)


@frozen
class CancelRun(Unit[str | None]):
    """Cancel a run that waits, or ask whoever executes it to; the status that was found, or None.

    `event` is the name and data of the event that tells, `output` the run's output where it had
    none; a run that is over stays as it is.  `members`: it may have members that wait with it.
    `message`: as a `FinishRun` has it.
    """

    owner: str
    session_id: str
    run_id: str
    now_us: int
    output: str
    event: tuple[str, str]
    members: bool = False
    message: str | None = None

    def statements(self, dialect: Dialect) -> Statements[str | None | Undo[str | None]]:
        """Yield the session's lock, a look, and what the status asks for."""
        yield LOCK_SESSION.of(self)
        found = yield STANDING.of(self)
        if not found:
            return Undo(None)
        status: str = found[0][0]
        if status == EXECUTED:
            yield ASK_TO_CANCEL.of(self)
        elif status in CANCELLED_AT_ONCE:
            last, stored = found[0][1] + 1, json.loads(found[0][2] or self.output)
            output, once = encode_value({**stored, "status": _CANCELLED.value}), False
            if self.message is not None:
                (output, _), once = shorten_output(output, self.message), True
            yield CANCEL.of(self, output=output, last=last)
            event = StoredEvent(last, *self.event)
            yield insert_events(dialect, self.run_id, self.now_us, (event,))
            if self.members:
                ending = (_CANCELLED.value, "cancelled", self.now_us)
                root = (self.owner, self.session_id, self.run_id)
                yield from end_members(*root, ending, {}, once=once)
        return status


# --- Going on ----------------------------------------------------------------------------------

_PAUSED: Final = state_after(RunMove.PAUSE)
_RESUMED: Final = state_after(RunMove.RESUME)
_QUEUED: Final = state_after(RunMove.QUEUE)
_WAITING_MARK: Final = "waiting"
HOW_IT_STANDS: Final = Sql(
    f"""select status, attempt, token, reason, lease_by, {ASKED_OF}, {CLAIMED} from runs
    where owner = :owner and run_id = :run_id"""
)
CONTINUE: Final = Sql(
    f"""update runs set status = :status, input = :input, output = null, reason = :mark,
        token = :token, ended_us = null, started_us = :started_us, lease_by = :node,
        lease_us = :lease_us, attempt = attempt + :claims, tries = :claims,
        recorded = attempt + :claims
    where owner = :owner and run_id = :run_id and {status_is(_PAUSED)} and attempt = :attempt
    returning {CLAIMED}"""
)


@frozen
class Continued:
    """The outcome of a request to continue a run.

    `found` is the status that it had, None when there is no such run.  `kept`: it goes on, now if
    there is a `claim`, else when the session's active run has ended.  `elsewhere`: another node
    has to claim it.  `busy`: it was not to wait.
    """

    found: str | None
    kept: bool = False
    claim: ClaimedRun | None = None
    elsewhere: bool = False
    busy: bool = False


@frozen
class ContinueRun(Unit[Continued]):
    """Go on with a paused run: claim it for `node`, or let it wait while the session is busy.

    It waits for another node as well where it was asked of nothing that is among `hosted`.
    `attempt` is that of the pause which was answered, so that of two who answer it one goes on.
    `input` is the run's input from now on, with the answers.  `token` is drawn for this very wish
    and stays on the row: run a second time, as after a commit without an answer, the unit finds
    what it did.
    """

    owner: str
    session_id: str
    run_id: str
    attempt: int
    input: str
    token: str
    node: str
    now_us: int
    hosted: tuple[str, ...]
    waits: bool = True

    def statements(self, dialect: Dialect) -> Statements[Continued | Undo[Continued]]:
        """Yield the session's lock, two looks, and the claim."""
        states = yield LOCK_SESSION.of(self)
        found = yield HOW_IT_STANDS.of(self)
        if not found:
            return Undo(Continued(None))
        status, attempt, token, reason, holder, asked_of, *columns = found[0]
        if token == self.token:
            given = (status, reason, holder) == (_RESUMED, CLAIMED_MARK, self.node)
            claim = ClaimedRun(*columns, *states[0]) if given else None
            return Undo(Continued(_PAUSED.value, kept=True, claim=claim))
        if status != _PAUSED or attempt != self.attempt:
            return Undo(Continued(status))
        busy = bool((yield ACTIVE.of(self)))
        if busy and not self.waits:
            return Undo(Continued(status, busy=True))
        elsewhere = asked_of not in self.hosted
        queued = busy or elsewhere
        claimed = yield CONTINUE.of(
            self,
            mark=_WAITING_MARK if queued else CLAIMED_MARK,
            status=(_QUEUED if queued else _RESUMED).value,
            started_us=None if queued else self.now_us,
            node=None if queued else self.node,
            lease_us=None if queued else FOREVER,
            claims=0 if queued else 1,
        )
        claim = None if queued else ClaimedRun(*claimed[0], *states[0])
        return Continued(status, kept=True, claim=claim, elsewhere=elsewhere)
