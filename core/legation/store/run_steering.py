"""Units of work for what people ask of a run that is there: to cancel it, to go on with it."""

from __future__ import annotations

import json
from typing import Final

from attrs import evolve

from ..values import frozen
from .leases import FOREVER
from .member_runs import end_members
from .once import shorten_output, whole_output
from .outbox import Letter, put_letters
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
    make_claimed_run,
    status_is,
    to_claimed_run,
)
from .run_states import RunMove, state_after, states_before
from .session_state import STATE, encode_value
from .turns import FOR_ANYBODY, TURN, RunShare, ask_look, look_at, look_closely
from .units import Dialect, Rows, Sql, Statements, Undo, Unit, Work
from .usage import ADD_BYTES, add_usage, count_octets, keeper_of

__all__ = ["CANCELLED_AT_ONCE", "CancelRun", "ContinueRun", "Continued"]

_CANCELLED: Final = state_after(RunMove.CANCEL)
CANCELLED_AT_ONCE: Final = tuple(s for s in states_before(RunMove.CANCEL) if s != EXECUTED)
"""The states of a run that nobody executes; who does cancels it, once somebody has asked."""

STANDING: Final = Sql(
    f"""select status, events, {whole_output()}, input, subject from runs
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
    `message`: as a `FinishRun` has it.  `letters` are sent where it is cancelled at once.
    """

    owner: str
    session_id: str
    run_id: str
    now_us: int
    output: str
    event: tuple[str, str]
    members: bool = False
    message: str | None = None
    letters: tuple[Letter, ...] = ()

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
            size = count_octets((output, event.data))
            if self.members:
                ending = (_CANCELLED.value, "cancelled", self.now_us)
                root = (self.owner, self.session_id, self.run_id)
                size += yield from end_members(*root, ending, {}, once=once)
            yield from self._count(size, *found[0][3:])
            yield from put_letters(self.letters, self.now_us)
        return status

    def _count(self, size: int, asked: str, subject: str | None) -> Statements[None]:
        """Count a run that ended without an executor; one that paused is counted in part."""
        size += count_octets((asked,)) - json.loads(asked).get("counted", 0)
        yield ADD_BYTES.of(self, bytes=size)
        keeper = keeper_of(self.owner, subject)
        yield from add_usage(keeper, size, keeper, 0, self.now_us)


# --- Going on ----------------------------------------------------------------------------------

_PAUSED: Final = state_after(RunMove.PAUSE)
_RESUMED: Final = state_after(RunMove.RESUME)
_QUEUED: Final = state_after(RunMove.QUEUE)
_WAITING_MARK: Final = "waiting"
HOW_IT_STANDS: Final = Sql(
    f"""select status, attempt, token, reason, lease_by, {ASKED_OF}, {CLAIMED} from runs
    where owner = :owner and run_id = :run_id"""
)
_CONTINUED: Final = """input = :input, output = null, token = :token, ended_us = null,
        resolved_us = :now_us, resolved_by = :resolved_by, resolved_events = events,
        resolution = :resolution"""
_AT_THIS_PAUSE: Final = f"""owner = :owner and run_id = :run_id and {status_is(_PAUSED)}
        and attempt = :attempt"""
CONTINUE: Final = Sql(
    f"""update runs set status = {literal(_RESUMED)}, {_CONTINUED}, reason = '{CLAIMED_MARK}',
        started_us = :now_us, lease_by = :node, lease_us = {FOREVER}, attempt = attempt + 1,
        tries = 1, recorded = attempt + 1, turn = null
    where {_AT_THIS_PAUSE} returning {CLAIMED}"""
)
CONTINUE_LATER: Final = Sql(
    f"""update runs set status = {literal(_QUEUED)}, {_CONTINUED}, reason = '{_WAITING_MARK}',
        started_us = null, lease_by = null, lease_us = null, tries = 0, recorded = attempt,
        turn = {TURN}, at_once = :at_once
    where {_AT_THIS_PAUSE}"""
)


@frozen
class Continued:
    """The outcome of a request to continue a run.

    `found` is the status that it had, None when there is no such run.  `kept`: it goes on, now if
    there is a `claim`, else when the session's active run has ended, or when it is its turn.
    `elsewhere`: another node has to claim it.  `busy`: it was not to wait.  `over`: it is not to
    wait, since too many runs of its subject do.  `queued`: it waits for a place alone.
    """

    found: str | None
    kept: bool = False
    claim: ClaimedRun | None = None
    elsewhere: bool = False
    busy: bool = False
    over: bool = False
    queued: bool = False


@frozen
class ContinueRun(Unit[Continued]):
    """Go on with a paused run: claim it for `node`, or let it wait.

    It waits while the session is busy, and for its turn, as one that starts does; `share` is the
    run's, but for its subject, which the row has.  It waits for another node as well where it was
    asked of nothing that is among `hosted`.
    `attempt` is that of the pause which was answered, so that of two who answer it one goes on.
    `input` is the run's input from now on, with the answers.  `token` is drawn for this very wish
    and stays on the row: run a second time, as after a commit without an answer, the unit finds
    what it did.  `resolved_by` is the user who answered, None for nobody that is known;
    `resolution` is `approved` or `rejected`.
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
    share: RunShare = FOR_ANYBODY
    resolved_by: str | None = None
    resolution: str = "approved"

    def statements(self, dialect: Dialect) -> Work[Continued | Undo[Continued]]:
        """Yield the session's lock, two looks, and the claim."""
        states: Rows
        states, found = yield LOCK_SESSION.of(self), HOW_IT_STANDS.of(self)
        if not found:
            return Undo(Continued(None))
        if states[0][0] is None:
            states = yield STATE.of(self)
        status, attempt, token, reason, holder, asked_of, *columns = found[0]
        if token == self.token:
            given = (status, reason, holder) == (_RESUMED, CLAIMED_MARK, self.node)
            claim = make_claimed_run(tuple(columns), states[0][0]) if given else None
            return Undo(Continued(_PAUSED.value, kept=True, claim=claim))
        if status != _PAUSED or attempt != self.attempt:
            return Undo(Continued(status))
        claimed = make_claimed_run(tuple(columns), states[0][0])
        return (yield from self._go_on(dialect, claimed, asked_of))

    def _go_on(
        self, dialect: Dialect, run: ClaimedRun, asked_of: str
    ) -> Statements[Continued | Undo[Continued]]:
        """Yield the look at what is active and what waits, and the run's way on."""
        status, elsewhere = _PAUSED.value, asked_of not in self.hosted
        share = evolve(self.share, subject=run.subject)
        place = look_at(share, dialect, self.owner, self.session_id, self.hosted, self.now_us)
        asked = ask_look(share, place)
        found = yield from look_closely(share, dialect, asked, (yield asked))
        if found.busy and not self.waits:
            return Undo(Continued(status, busy=True))
        if found.waits and found.over:
            return Undo(Continued(status, over=True))
        if found.waits or elsewhere:
            yield CONTINUE_LATER.of(self, **share.wait(self.owner))
            queued = not (found.busy or elsewhere)
            return Continued(status, kept=True, elsewhere=elsewhere, queued=queued)
        claimed = yield CONTINUE.of(self)
        claim = to_claimed_run(claimed, ((run.state,),))
        return Continued(status, kept=True, claim=claim)
