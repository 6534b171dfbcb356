"""Executing a run: from the claim to its end, as one program.

Whoever asked is not here: the program goes on when a client leaves, and tells its events to whom
it may concern.  The state of the run is in the database alone; when this program dies with its
node, the lease passes and another node ends the run as interrupted.
"""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import define, field, frozen

from ..effects import Job, Log, Now, Program, Publish, RandomBytes, Sleep, Spawn, ThisNode, Transact
from ..incidents import where
from ..messages import compact_json
from ..models.conversation import Message, Reply
from ..registry import Component, Registry
from ..store.failures import StoreFailure
from ..store.runs import (
    ClaimedRun,
    ClaimWaiting,
    Ended,
    ExpiredRuns,
    ExtendLeases,
    FinishRun,
    ReleaseRun,
    RunRow,
)
from .journal import LEASE_US, Journal, LeaseLost, Speaker, shown
from .output import completed, failed
from .states import RunState

__all__ = ["ExecuteRun", "KeepRuns", "Workshop"]

_FAILED: Final = "The run failed; the operator's log has the reason under incident {}"
_INTERRUPTED: Final = "The run was interrupted: the node that executed it went away"
_UNHOSTED: Final = "The run failed: this platform no longer hosts what it was for"
_TOKENS: Final = ("input_tokens", "output_tokens", "total_tokens")
_TRIES: Final = 5


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
        """Take the turn; a failure in it ends the run as an error, never the program."""
        node = yield from ThisNode()
        started_us = yield from Now()
        speaker = Speaker(self.run, self.workshop.name_of(self.run))
        asked = json.loads(self.run.input)
        journal = Journal(self.database, speaker, node, asked["stream"], started_us)
        trouble: Exception | None = None
        end: _End | None = None
        try:
            end = yield from self._turn(asked["message"], journal, started_us)
        except LeaseLost:
            return None
        except Exception as error:  # noqa: BLE001 (a bug in a model or tool must not leave the run RUNNING)
            trouble = error
        if end is None:
            end = yield from self._failed(asked["message"], journal, trouble)
        ended = yield from _finish(journal, end)
        return ended.following

    def _turn(self, text: str, journal: Journal, started_us: int) -> Program[_End]:
        component = self.workshop.component(self.run)
        if component is None:
            journal.note("RunError", content=_UNHOSTED, error_type="not_hosted")
            output = failed(self.run, self.run.component_id, text, _UNHOSTED)
            return _End(RunState.ERROR, output, reason="not_hosted")
        reply = yield from _ask(component, text, journal)
        output = completed(component, self.run, text, reply, started_us, journal.now_us)
        tokens = {name: output["metrics"][name] for name in _TOKENS}
        journal.note("ModelRequestCompleted", **_model(component), **tokens)
        journal.note("RunContentCompleted")
        told = {name: output[name] for name in ("content_type", "session_state", "metrics")}
        journal.note("RunCompleted", content=reply.content, **told)
        return _End(RunState.COMPLETED, output, usage=compact_json(tokens))

    def _failed(self, text: str, journal: Journal, error: Exception | None) -> Program[_End]:
        incident = (yield from RandomBytes(8)).hex()
        fields = (("incident", incident), ("run_id", self.run.run_id), ("error", where(error)))
        yield from Log("error", "run failed", fields)
        journal.now_us = yield from Now()
        sentence = _FAILED.format(incident)
        journal.note("RunError", content=sentence, error_type="run_failed")
        output = failed(self.run, journal.speaker.name, text, sentence)
        return _End(RunState.ERROR, output, reason="failed")


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
    """Store the end.  A database that does not answer is asked again a few times.

    A commit whose answer was lost shows as a lost lease at the next try: then the run is over,
    and a run that was claimed with it is found by `KeepRuns` when its lease runs out.
    """
    run = journal.speaker.run
    events = tuple(journal.pending)
    finish = FinishRun(
        owner=run.owner,
        run_id=run.run_id,
        lease=journal.lease(),
        node=journal.node,
        now_us=journal.now_us,
        status=end.state.value,
        output=compact_json(end.output),
        reason=end.reason,
        usage=end.usage,
        events=events,
    )
    for attempt in range(_TRIES):
        ended: Ended | None = None
        try:
            ended = yield from Transact(journal.database, finish)
        except StoreFailure:
            pass
        if ended is not None:
            if ended.kept:
                yield from Publish(run.run_id, shown(events, final=True))
            return ended
        yield from Sleep(0.05 * 2**attempt)
    yield from Log("error", "run could not be stored", (("run_id", run.run_id),))
    return Ended(kept=False)


@frozen
class KeepRuns(Job):
    """Keep this node's leases alive and end the runs of nodes that went away, for ever."""

    workshop: Workshop
    database: str

    def program(self) -> Program[None]:
        """Go round three times within a lease."""
        node = yield from ThisNode()
        while True:
            trouble = ""
            try:
                yield from self._round(node)
            except StoreFailure as failure:
                trouble = type(failure).__name__
            if trouble:
                fields = (("database", self.database), ("error", trouble))
                yield from Log("warning", "leases not kept", fields)
            yield from Sleep(LEASE_US / 3 / 1_000_000)

    def _round(self, node: str) -> Program[None]:
        now_us = yield from Now()
        until_us = now_us + LEASE_US
        if held := tuple(sorted(self.workshop.executing)):
            yield from Transact(self.database, ExtendLeases(node, held, until_us))
        for row in (yield from Transact(self.database, ExpiredRuns(now_us))):
            yield from self._recover(row, node, now_us)
        while True:
            waiting = yield from Transact(self.database, ClaimWaiting(node, now_us, until_us))
            if waiting is None:
                return
            yield from Spawn(ExecuteRun(self.workshop, self.database, waiting))

    def _recover(self, row: RunRow, node: str, now_us: int) -> Program[None]:
        """End the run of a dead node, under the dead one's lease.

        A run in which nothing had happened yet was asked nothing of the world: it waits again.
        """
        if row.events == 0:
            yield from Transact(self.database, ReleaseRun(row.owner, row.run_id, row.lease))
            return
        run = row.claim
        name = self.workshop.name_of(run)
        journal = Journal(self.database, Speaker(run, name), node, True, now_us, seq=row.events)
        journal.note("RunError", content=_INTERRUPTED, error_type="interrupted")
        finish = FinishRun(
            owner=row.owner,
            run_id=row.run_id,
            lease=row.lease,
            node=node,
            now_us=now_us,
            status=RunState.ERROR.value,
            output=compact_json(failed(run, name, json.loads(row.input)["message"], _INTERRUPTED)),
            reason="interrupted",
            usage=None,
            events=tuple(journal.pending),
        )
        ended = yield from Transact(self.database, finish)
        if ended.kept:
            yield from Publish(run.run_id, shown(finish.events, final=True))
        if ended.following is not None:
            yield from Spawn(ExecuteRun(self.workshop, self.database, ended.following))
