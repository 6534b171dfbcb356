"""The decisions of people in a channel: yes or no to a run that waits, once.

Whatever a button says may have been made up, or be of another chat: the run itself says where it
was asked for, and the configuration who may answer there.  Of many presses one decides; the others
read who did.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, TypeVar

from ..channels.deliveries import ContentKind, IncomingMessage, Press
from ..effects import Now, Program, ThisNode, Transact
from ..hosted.registry import HostedChannel
from ..http.refusals import Fault
from ..runs.approvals import approve_waiting, reject_waiting
from ..runs.channel_replies import ReplyTo, read_reply_to
from ..runs.continuation import go_on, turn_at_pause
from ..runs.executor import ExecutorContext
from ..runs.retry import persist
from ..runs.turn_state import TurnState
from ..store.audit import AppendAudit, Audited
from ..store.audit_entries import AuditEntry
from ..store.audit_pages import SigningKey
from ..store.listed_runs import FindListed
from ..store.run_reads import FetchRun, PausedRuns
from ..store.run_rows import RunRow
from ..store.run_states import RunState
from ..store.units import Unit
from ..values import frozen
from .conversations import owner_of

__all__ = ["APPROVED", "PRESSED", "REJECTED", "SEVERAL", "Decision", "is_settled", "read_words"]

R = TypeVar("R")

APPROVED: Final = "Approved."
REJECTED: Final = "Rejected."

PRESSED: Final = frozenset({ContentKind.BUTTON, ContentKind.LIST})
"""The kinds whose text is a label, which nobody wrote."""

_UNKNOWN: Final = "This question is not known here."
_OTHERS: Final = "Somebody else has to answer this question."
_OVER: Final = "This question is over: it was {}."
_OVER_BY: Final = "This question is over: it was {} by {}."
_ENDED: Final = "This question is over."
_ELSEWHERE: Final = "This question cannot be answered here."
_FULL: Final = "Too much waits already. Please answer again later."
SEVERAL: Final = "More than one question waits. Please answer with the button under one."

_OPEN: Final = frozenset({_UNKNOWN, _OTHERS, _ELSEWHERE, _FULL})

_ID: Final = re.compile(r"([\x21-\x7e]{1,200})\.(0|[1-9][0-9]{0,17})", re.ASCII)
_YES: Final = frozenset({"yes", "y", "ok", "okay", "approve", "approved", "confirm"})
_NO: Final = frozenset({"no", "n", "reject", "rejected", "deny"})
_LONGEST_WORD: Final = 16


def read_words(text: str) -> bool | None:
    """Return whether `text` alone says yes or no; None where it says anything else."""
    if len(text) > _LONGEST_WORD:
        return None
    word = text.strip(" \t\r\n.!").casefold()
    return True if word in _YES else False if word in _NO else None


def is_settled(said: str) -> bool:
    """Return whether a question to which this was said is decided: its buttons may go."""
    return said not in _OPEN


@frozen
class Decision:
    """The answer of a person in `channel` to a run that waits."""

    context: ExecutorContext
    channel: HostedChannel
    message: IncomingMessage

    @property
    def database(self) -> str:
        """The database that keeps the run."""
        return self.channel.component.database

    @property
    def by(self) -> str:
        """The name of who answers, as the trail has it."""
        return owner_of(self.channel.id, self.message.sender)

    def find(self, owner: str, session_id: str) -> Program[tuple[str, ...]]:
        """Return the approvals of a session that a word of this person may be for: two at most."""
        waiting = yield from self._transact(PausedRuns(owner, session_id))
        return tuple(
            f"{run_id}.{events}"
            for run_id, events, asked in waiting
            if self._may_answer(read_reply_to(json.loads(asked)))
        )

    def _may_answer(self, to: ReplyTo | None) -> bool:
        person = self.message.sender
        return to is not None and self.channel.options.may_approve(person, to.sender)

    def take(self, press: Press) -> Program[str]:
        """Answer the run that `press` names; return what the person reads of that."""
        named = _ID.fullmatch(press.approval)
        row = None
        if named is not None:
            row = yield from self._transact(FetchRun(named[1], None, any_owner=True))
        to = None if row is None else read_reply_to(json.loads(row.input))
        if named is None or row is None or to is None or not self._is_here(to):
            return _UNKNOWN
        if not self.channel.options.may_approve(self.message.sender, to.sender):
            yield from self._refuse(press)
            return _OTHERS
        events = int(named[2])
        if row.status != RunState.PAUSED or row.events != events:
            return (yield from self._explain(row, events))
        return (yield from self._go_on(press, row))

    def _is_here(self, to: ReplyTo) -> bool:
        """Return whether the run was asked for in the chat in which it is answered."""
        conversation = self.message.conversation or self.message.sender
        return to.channel == self.channel.id and conversation == (to.conversation or to.sender)

    def _go_on(self, press: Press, row: RunRow) -> Program[str]:
        before = turn_at_pause(row)
        if before is None:
            return _ELSEWHERE
        state = _settle(before, row.run_id, approves=press.approves)
        if not isinstance(state, TurnState):
            return _ELSEWHERE
        entry = yield from self._entry(press, "allow", 200)
        continued = yield from go_on(
            self.context,
            self.database,
            row,
            before,
            state,
            _Recorded(entry, self.context.cluster.trail_keys.signing).change,
            stream=False,
            by=self.by,
        )
        if continued.kept:
            return APPROVED if press.approves else REJECTED
        if continued.over or continued.busy:
            return _FULL
        return (yield from self._explain(row, row.events))

    def _explain(self, row: RunRow, events: int) -> Program[str]:
        """Return who decided, and how, as far as the run still says so."""
        runs = yield from self._transact(FindListed((row.run_id,)))
        for run in runs:
            if run.resolved_events != events or run.resolution is None:
                continue
            prefix = owner_of(self.channel.id, "")
            if run.resolved_by == self.by:  # before a crash, or with a button pressed twice
                return APPROVED if run.resolution == "approved" else REJECTED
            by = run.resolved_by or ""
            if not by.startswith(prefix):
                return _OVER.format(run.resolution)
            return _OVER_BY.format(run.resolution, by.removeprefix(prefix))
        return _ENDED

    def _refuse(self, press: Press) -> Program[None]:
        """Leave in the trail that somebody answered who may not."""
        entry = yield from self._entry(press, "deny", 403)
        node = yield from ThisNode()
        key = self.context.cluster.trail_keys.signing
        yield from self._transact(AppendAudit(node, (entry,), key))

    def _entry(self, press: Press, decision: str, status: int) -> Program[AuditEntry]:
        now_us = yield from Now()
        return AuditEntry(
            at_us=now_us,
            request_id=self.message.message_id,
            subject=self.by,
            key_id=None,
            operation="resolve_approval",
            resource=press.approval,
            decision=decision,
            scope="",
            status=status,
            client="",
        )

    def _transact(self, unit: Unit[R]) -> Program[R]:
        return (yield from persist(self.database, unit, self.context.is_over))


def _settle(before: TurnState, run_id: str, *, approves: bool) -> TurnState | tuple[Fault, ...]:
    return approve_waiting(before, run_id) if approves else reject_waiting(before, None)


@frozen
class _Recorded:
    """A change that stands in the trail, in its own transaction."""

    entry: AuditEntry
    key: SigningKey | None

    def change(self, database: str, unit: Unit[Any]) -> Program[Any]:
        """Return the result of `unit`, recorded with it."""
        node = yield from ThisNode()
        changed = yield from Transact(database, Audited(unit, node, self.entry, self.key))
        return changed.result
