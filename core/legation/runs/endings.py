"""The end of a run, or its pause: which one it is, its last events, and how it is stored.

A run comes to its own end (`conclude`), or is broken off by its executor, or for an executor that
went away (`break_off`).  Each notes the last events and returns an `End`, which one unit of work
stores under the lease.  A run that waits has no executor: `cancellation` ends it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import evolve

from ..effects import Interrupted, Log, Nudge, Program, Publish, RandomBytes
from ..http.messages import compact_json
from ..incidents import hint_at, trace, where
from ..models.conversation import ModelFailed
from ..store.failures import StoreFailure
from ..store.once import WORTH, shorten_output
from ..store.outbox import Letter
from ..store.run_rows import RunLease
from ..store.run_states import RunState
from ..store.runs import Ended, FinishRun
from ..store.session_state import fill_state
from ..store.steps import NO_RECORDS
from ..store.usage import count_octets
from ..values import frozen
from .agent_turn import INTERRUPTED, Answered, Outcome, Stopped
from .event_writer import CancelAsked, EventWriter, Journal, list_texts
from .events import (
    RunCancelled,
    RunCompleted,
    RunContentCompleted,
    RunError,
    RunPaused,
    mark_final,
    members_of,
)
from .guarding import GuardRefused
from .notices import write_notice
from .output import (
    Failure,
    RunSummary,
    render_cancelled,
    render_completed,
    render_failed,
    render_paused,
)
from .payloads import find_waiting, tokens
from .retry import persist
from .terms import COUNTED, OF_TURN, PAID
from .turn_state import Standing, TurnState, dump

__all__ = [
    "CANCELLED",
    "CancelledUnasked",
    "End",
    "GaveUp",
    "break_off",
    "build_finish",
    "conclude",
    "correct_end",
    "fail",
    "fail_by_error",
    "store_end",
]

CANCELLED: Final = "Run {} was cancelled"

_INTERRUPTED: Final = "The run was interrupted: the node that executed it went away"
_BLOCKED: Final = (
    "The run was ended: a single step of it kept the server from all other work for too long;"
    " the operator's log says where"
)
_GAVE_UP: Final = (
    "The run was given up: the nodes that executed it went away at step {} ({}), one after the"
    " other"
)
_TIMEOUT: Final = "The run took longer than {:g} seconds"

_WHOLE: Final = RunContentCompleted()
_MEMBERS: Final = members_of(RunCompleted)

_FAILED: Final = "The run failed; the operator's log has the reason under incident {}"
_PAUSED: Final = "I have tools to execute, but {}."
_CONFIRM: Final = "I need confirmation"
_EXTERNAL: Final = "it needs external execution"
_BOTH: Final = "I need confirmation or external execution"
_DOUBT: Final = "it is not known whether {} was carried out, and {}"


class CancelledUnasked(Exception):
    """The run was interrupted as cancelled, and no wish to cancel it is stored: the log's reason.

    Interrupting is for who has stored the wish, or deleted the run; anything else is a bug of ours.
    """


class GaveUp(Exception):
    """The run is not gone on with: its executors went away at the same place `MOST_TRIES` times."""

    def __init__(self, place: str, asked: str) -> None:
        super().__init__(place, asked)
        self.place, self.asked = place, asked


@frozen
class End:
    """The end that is stored for a run; `input` is what it keeps to go on from where it pauses."""

    state: RunState
    output: dict[str, Any]
    reason: str | None = None
    usage: str | None = None
    input: str | None = None


def conclude(writer: EventWriter, summary: RunSummary, outcome: Outcome) -> Program[End]:
    """Note the end, or the pause, of a turn that came to its own; return what is to be stored."""
    match outcome:
        case Answered(content):
            return _complete(writer, summary, content)
        case Stopped(reason, sentence, content):
            return (yield from fail(writer, summary, sentence, reason, content=content))
        case _:
            return _pause(writer, summary)


def _complete(writer: EventWriter, summary: RunSummary, content: Any) -> End:
    output = render_completed(summary, content)
    if writer.journal.state.asked:
        writer.note_end()
    writer.note(_WHOLE)
    members = {name: output[name] for name in _MEMBERS if name in output}
    writer.note(RunCompleted(**members))
    return End(RunState.COMPLETED, output, usage=_usage(summary), input=_input(summary))


def _pause(writer: EventWriter, summary: RunSummary) -> End:
    state = summary.state or TurnState()
    output = render_paused(summary, _sentence(state))
    writer.note(_WHOLE)
    writer.note(RunPaused(output["content"], output["tools"], output["requirements"]))
    turn = dump(evolve(state, worked_us=summary.worked_us))
    kept = compact_json({**_without_turn(summary), "turn": turn})
    return End(RunState.PAUSED, output, usage=_usage(summary), input=kept)


def _sentence(state: TurnState) -> str:
    waiting = [call for call, _ in find_waiting(state)]
    needs = {call.standing for call in waiting}
    asked = _CONFIRM if Standing.CONFIRM in needs else _EXTERNAL
    if len(needs) > 1:
        asked = _BOTH
    if doubtful := sorted({call.call.name for call in waiting if call.in_doubt}):
        asked = _DOUBT.format(" or ".join(doubtful), asked)
    reasons = dict.fromkeys(call.reason for call in waiting if call.reason and not call.in_doubt)
    return " ".join((_PAUSED.format(asked), *(f"{reason.rstrip('.')}." for reason in reasons)))


def fail(
    writer: EventWriter,
    summary: RunSummary,
    sentence: str,
    reason: str,
    words: tuple[tuple[str, str | int], ...] = (),
    content: str = "",
    place: str = "",
) -> Program[End]:
    """Note the end of a run that failed; `sentence` is for the caller, `reason` for programs.

    `words` are for the log alone; `content` is what the run had to say by then; `place` is that of
    the error in the code, where there is one.
    """
    failure = yield from _draw(writer, summary, reason, place)
    yield from Log("warning", "run_failed", (*_describe(summary, failure), *words))
    return _fail(writer, summary, sentence, failure, content)


def _draw(
    writer: EventWriter, summary: RunSummary, reason: str, place: str = ""
) -> Program[Failure]:
    failure = Failure(reason, (yield from RandomBytes(8)).hex())
    writer.journal.note_incident(failure.incident, summary.run, reason, place, "run_failed")
    return failure


def _describe(summary: RunSummary, failure: Failure) -> tuple[tuple[str, str], ...]:
    """Return what the log has of every failed run."""
    return (
        ("incident", failure.incident),
        ("run_id", summary.run.run_id),
        ("error_type", failure.error_type),
    )


def _fail(
    writer: EventWriter, summary: RunSummary, sentence: str, failure: Failure, content: str = ""
) -> End:
    writer.note(RunError(sentence, failure.error_type, failure.incident))
    output = render_failed(summary, sentence, failure, content)
    return End(RunState.ERROR, output, failure.error_type, _usage(summary), _input(summary))


def fail_by_error(writer: EventWriter, summary: RunSummary, error: Exception) -> Program[End]:
    """Note the end of a run by an error: the model's sentence, or a number of the log's."""
    if isinstance(error, ModelFailed):
        reason, cause = f"model_{error.reason}", error.__cause__
        place, words = "" if cause is None else where(cause), error.describe()
        return (yield from fail(writer, summary, error.sentence, reason, words, place=place))
    if isinstance(error, GuardRefused):
        words = (("guard", error.guard),)
        return (yield from fail(writer, summary, error.sentence, "guard_refused", words))
    failure = yield from _draw(writer, summary, "run_failed", where(error))
    fields = (*_describe(summary, failure), ("error", where(error)), ("trace", trace(error)))
    yield from Log("error", "run_failed", (*fields, *hint_at(error)), error)
    return _fail(writer, summary, _FAILED.format(failure.incident), failure)


def break_off(
    writer: EventWriter,
    summary: RunSummary,
    outcome: Interrupted | Exception,
    *,
    ending: bool,
    seconds: float,
) -> Program[End]:
    """Note the end of a run that did not come to its own, for the reason `outcome`.

    `ending`: the process ends, or is gone, and so the interruption is its doing.  `seconds` is what
    a run may take.
    """
    match outcome:
        case Interrupted("nudge") if ending:
            return (yield from fail(writer, summary, _INTERRUPTED, INTERRUPTED))
        case Interrupted("nudge") | CancelAsked():
            return _cut_short(writer, summary)
        case GaveUp(place=place, asked=asked):
            sentence = _GAVE_UP.format(place, asked)
            return (yield from fail(writer, summary, sentence, "gave_up"))
        case Interrupted("blocked"):
            return (yield from fail(writer, summary, _BLOCKED, "blocked"))
        case Interrupted():
            return (yield from fail(writer, summary, _TIMEOUT.format(seconds), "timeout"))
        case _:
            return (yield from fail_by_error(writer, summary, outcome))


def correct_end(writer: EventWriter, summary: RunSummary, ended: Ended) -> Program[End]:
    """Note the end of a run whose first end was refused, because of who asked to cancel it."""
    if ended.cancel_asked:
        return _cut_short(writer, summary)
    return (yield from fail_by_error(writer, summary, CancelledUnasked()))


def _cut_short(writer: EventWriter, summary: RunSummary) -> End:
    """Note the end of a run that somebody cancelled."""
    sentence = CANCELLED.format(summary.run.run_id)
    writer.note(RunCancelled(sentence, sentence))
    output = render_cancelled(summary, "".join(writer.heard))
    return End(RunState.CANCELLED, output, "cancelled", _usage(summary), _input(summary))


def _usage(summary: RunSummary) -> str | None:
    """Return what the turn has cost so far; None where no model was asked."""
    state = summary.state
    if state is None or not (state.rounds or state.usage.input_tokens):
        return None
    counts = tokens(state.usage)
    cost = state.usage.cost_nano if summary.cost is None else summary.cost
    return compact_json(counts if cost is None else {**counts, "cost_nano": cost})


def _input(summary: RunSummary) -> str | None:
    """Return the input without what was kept for going on; None where there is nothing of it."""
    return None if summary.run.events == 0 else compact_json(_without_turn(summary))


def _without_turn(summary: RunSummary) -> dict[str, Any]:
    asked = json.loads(summary.run.input)
    return {name: asked[name] for name in asked if name not in OF_TURN}


# --- Storing it --------------------------------------------------------------------------------


def build_finish(journal: Journal, end: End, lease: RunLease) -> FinishRun:
    """Return the unit that stores `end` with what the journal has pending, under `lease`."""
    run, output, kept = journal.run, compact_json(end.output), end.input
    events, records = tuple(journal.pending), journal.records()
    logged, asked = journal.bytes, count_octets((kept or run.input,))
    if records is not NO_RECORDS:
        logged += count_octets(list_texts((), records))
    if kept is not None and end.state is RunState.PAUSED:
        counted = asked + count_octets((_encode_output(journal, output),))
        paid = "" if journal.cost is journal.paid is None else f',"{PAID}":{journal.whole_cost}'
        kept = f'{kept[:-1]},"{COUNTED}":{counted}{paid}}}'
    return FinishRun(
        owner=run.owner,
        session_id=run.session_id,
        run_id=run.run_id,
        lease=lease,
        node=journal.node,
        now_us=journal.now_us,
        status=str(end.state),
        output=output,
        reason=end.reason,
        usage=end.usage,
        events=events,
        hosted=journal.hosted,
        input=kept,
        members=run.kind == "team" and end.state in (RunState.ERROR, RunState.CANCELLED),
        records=records,
        view=journal.state.view,
        message=journal.message,
        bytes=logged + asked - journal.counted,
        tokens=journal.tokens,
        cost=journal.cost or 0,
        subject=run.subject,
        model=end.output.get("model"),
        incident=end.output.get("incident"),
        letters=_write_letters(journal, end) if journal.notify or journal.asker else (),
    )


def _write_letters(journal: Journal, end: End) -> tuple[Letter, ...]:
    """Return what is sent of the end, or the pause: a notice, and the reply to who asked."""
    run, seq, now_us = journal.run, journal.seq, journal.now_us
    letters: tuple[Letter, ...] = ()
    if journal.asker is not None:
        letters = journal.asker.letters(run.run_id, end.state, end.output, seq, now_us)
    if journal.notify is None:
        return letters
    notice = write_notice(
        journal.notify,
        run,
        database=journal.database,
        state=end.state,
        output=end.output,
        seq=seq,
        now_us=now_us,
    )
    return letters if notice is None else (notice, *letters)


def _encode_output(journal: Journal, output: str) -> str:
    """Return `output` as `FinishRun` stores it."""
    if journal.message is None or len(output) < WORTH:
        return output
    return shorten_output(output, journal.message)[0]


def store_end(journal: Journal, end: End) -> Program[tuple[Ended, str | None]]:
    """Store the end, however long the database is away that it is stored in.

    With the outcome comes the output as it is shown, in JSON; None where it was not stored.
    """
    run, finish = journal.run, build_finish(journal, end, journal.lease())
    if journal.state.overwritten:
        yield from journal.log_overwritten()
    ended: Ended | None = None
    try:
        ended = yield from persist(journal.database, finish, journal.is_over, (StoreFailure,))
    except StoreFailure:
        pass
    if ended is None:
        yield from Log("error", "run_record_failed", (("run_id", run.run_id),))
        return Ended(kept=False), None
    if ended.used is not None:
        day, used, spent = ended.used
        if journal.spending is not None:
            journal.spending.settle(day, used)
        if journal.expense is not None:
            journal.expense.settle(day, spent)
    output = finish.output if ended.kept else None
    if ended.kept:
        events = mark_final(finish.events)
        if ended.state is not None:
            last = events[-1]
            output = fill_state(output or "", ended.state)
            events = (*events[:-1], evolve(last, data=fill_state(last.data, ended.state)))
        if journal.member is not None and (followed := journal.member.watched.runs.get(run.run_id)):
            followed.last = events[-1].seq
        if journal.begun:
            events = journal.put_behind_begun(events)
        yield Publish(run.run_id, events, journal.database)
        if finish.letters:
            other = None if journal.member is None else journal.member.next_other()
            yield from Nudge(f"outbox:{journal.database}", journal.database, other)
    return ended, output
