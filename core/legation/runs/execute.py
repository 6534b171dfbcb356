"""Executing a run: from the claim to its end, as one program.

Whoever asked is not here: the program goes on when a client leaves, and tells its events to whom
it may concern.  The state of the run is in the database alone; when this program dies with its
node, the lease passes and another node ends the run as interrupted.
"""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import define, field, frozen

from ..effects import (
    Interrupted,
    Interruptible,
    Job,
    Log,
    Now,
    Program,
    Publish,
    RandomBytes,
    Spawn,
    ThisNode,
)
from ..incidents import where
from ..messages import compact_json
from ..models.conversation import Message, Reply
from ..registry import Component, Registry
from ..store.failures import StoreFailure
from ..store.runs import ClaimedRun, Ended, FinishRun
from .cancelling import REASON, cancel_topic
from .journal import LEASE_US, CancelAsked, Journal, LeaseLost, Speaker, shown
from .output import cancelled, completed, failed
from .patience import MANY, patiently
from .states import RunState

__all__ = ["ExecuteRun", "Workshop"]

_FAILED: Final = "The run failed; the operator's log has the reason under incident {}"
_UNHOSTED: Final = "The run failed: this platform no longer hosts what it was for"
_TIMEOUT: Final = "The run took longer than {:g} seconds"
_TOKENS: Final = ("input_tokens", "output_tokens", "total_tokens")


@define(eq=False)
class Workshop:
    """Where runs are executed: what is hosted, and which runs are on the bench.

    The leases of the runs in `executing`, and of no others, are kept alive: a run whose program
    has gone is not kept by its node's life.
    """

    registry: Registry
    executing: set[str] = field(factory=set[str])

    def name_of(self, run: ClaimedRun) -> str:
        """Return the name of the agent or team of `run`, its id when it is hosted no more."""
        component = self.component(run)
        return component.name if component else run.component_id

    def component(self, run: ClaimedRun) -> Component | None:
        """Return the agent or team of `run`, or None when it is hosted no more."""
        return self.registry.components(run.kind).get(run.component_id)


@frozen
class _End:
    """How a run is to end."""

    state: RunState
    output: dict[str, Any]
    reason: str | None = None
    usage: str | None = None


@frozen
class ExecuteRun(Job):
    """Take the turn of a claimed run, store its end, and go on with the session's next run."""

    workshop: Workshop
    database: str
    run: ClaimedRun

    def program(self) -> Program[None]:
        """Execute the run under its lease."""
        executing, run_id = self.workshop.executing, self.run.run_id
        executing.add(run_id)
        try:
            following = yield from self._execute()
        finally:
            executing.discard(run_id)
        if following is not None:
            yield from Spawn(ExecuteRun(self.workshop, self.database, following))

    def _execute(self) -> Program[ClaimedRun | None]:
        """Take the turn, until it ends or is not to go on, and store what came of it."""
        node = yield from ThisNode()
        started_us = yield from Now()
        speaker = Speaker(self.run, self.workshop.name_of(self.run))
        asked = json.loads(self.run.input)
        journal = Journal(self.database, speaker, node, asked["stream"], started_us)
        outcome = yield from Interruptible(
            self._attempt(asked["message"], journal, started_us),
            cancel_topic(self.run.run_id),
            self.workshop.registry.config.run_timeout_seconds,
        )
        if isinstance(outcome, LeaseLost):
            return None
        if not isinstance(outcome, _End):
            journal.now_us = yield from Now()
            outcome = yield from self._broken_off(journal, outcome)
        ended = yield from _finish(journal, outcome)
        return ended.following

    def _attempt(self, text: str, journal: Journal, started_us: int) -> Program[_End | Exception]:
        """Take the turn; what goes wrong in it is its result."""
        try:
            return (yield from self._turn(text, journal, started_us))
        except Exception as error:  # noqa: BLE001 (a bug in a model or tool must not leave the run RUNNING)
            return error

    def _turn(self, text: str, journal: Journal, started_us: int) -> Program[_End]:
        component = self.workshop.component(self.run)
        if component is None:
            journal.note("RunError", content=_UNHOSTED, error_type="not_hosted")
            output = failed(self.run, self.run.component_id, None, _UNHOSTED)
            return _End(RunState.ERROR, output, reason="not_hosted")
        reply = yield from _ask(component, text, journal)
        output = completed(component, self.run, reply, started_us, journal.now_us)
        tokens = {name: output["metrics"][name] for name in _TOKENS}
        journal.note("ModelRequestCompleted", **_model(component), **tokens)
        journal.note("RunContentCompleted")
        told = {name: output[name] for name in ("content_type", "session_state", "metrics")}
        journal.note("RunCompleted", content=reply.content, **told)
        return _End(RunState.COMPLETED, output, usage=compact_json(tokens))

    def _broken_off(self, journal: Journal, outcome: Interrupted | Exception) -> Program[_End]:
        """Return the end of a run that did not come to its own."""
        name, component = journal.speaker.name, self.workshop.component(self.run)
        if isinstance(outcome, CancelAsked) or outcome == Interrupted("nudge"):
            reason = REASON.format(self.run.run_id)
            journal.note("RunCancelled", reason=reason, content=reason)
            output = cancelled(self.run, name, component, "".join(journal.heard))
            return _End(RunState.CANCELLED, output, reason="cancelled")
        if isinstance(outcome, Interrupted):
            seconds = self.workshop.registry.config.run_timeout_seconds
            sentence, reason = _TIMEOUT.format(seconds), "timeout"
        else:
            sentence, reason = (yield from self._told(outcome)), "run_failed"
        journal.note("RunError", content=sentence, error_type=reason)
        output = failed(self.run, name, component, sentence)
        return _End(RunState.ERROR, output, reason=reason)

    def _told(self, error: Exception) -> Program[str]:
        """Log what went wrong, and return the sentence that the caller may read."""
        incident = (yield from RandomBytes(8)).hex()
        fields = (("incident", incident), ("run_id", self.run.run_id), ("error", where(error)))
        yield from Log("error", "run failed", fields)
        return _FAILED.format(incident)


def _ask(component: Component, text: str, journal: Journal) -> Program[Reply]:
    """Ask the model once, noting what clients follow."""
    journal.note("RunStarted", **_model(component))
    journal.note("ModelRequestStarted", **_model(component))
    messages = [Message("user", text)]
    if component.instructions is not None:
        messages.insert(0, Message("system", component.instructions))
    reply = yield from component.model.respond(tuple(messages), journal)
    journal.now_us = yield from Now()
    return reply


def _model(component: Component) -> dict[str, str]:
    return {"model": component.model.id, "model_provider": component.model.provider}


def _finish(journal: Journal, end: _End) -> Program[Ended]:
    """Store the end.  A database that does not answer is asked again while the lease lasts."""
    run = journal.speaker.run
    events = tuple(journal.pending)
    finish = FinishRun(
        owner=run.owner,
        session_id=run.session_id,
        run_id=run.run_id,
        lease=journal.lease(),
        node=journal.node,
        now_us=journal.now_us,
        until_us=journal.now_us + LEASE_US,
        status=end.state.value,
        output=compact_json(end.output),
        reason=end.reason,
        usage=end.usage,
        events=events,
    )
    ended: Ended | None = None
    try:
        ended = yield from patiently(journal.database, finish, MANY, (StoreFailure,))
    except StoreFailure:
        pass
    if ended is None:
        yield from Log("error", "run could not be stored", (("run_id", run.run_id),))
        return Ended(kept=False)
    if ended.kept:
        yield from Publish(run.run_id, shown(events, final=True))
    return ended
