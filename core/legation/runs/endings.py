"""The end of a run, or its pause: its last events, and what is stored of it."""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import evolve

from ..effects import Log, Program, RandomBytes
from ..http.messages import compact_json
from ..incidents import where
from ..models.conversation import ModelFailed
from ..store.run_states import RunState
from ..values import frozen
from .agent_turn import Answered, Outcome, Stopped
from .event_writer import EventWriter
from .events import (
    RunCancelled,
    RunCompleted,
    RunContentCompleted,
    RunError,
    RunPaused,
    members_of,
)
from .output import RunSummary, render_cancelled, render_completed, render_failed, render_paused
from .payloads import find_waiting, tokens, tokens_apart
from .turn_state import Standing, TurnState, dump

__all__ = ["End", "conclude", "cut_short", "fail", "fail_by_error"]

_FAILED: Final = "The run failed; the operator's log has the reason under incident {}"
_PAUSED: Final = "I have tools to execute, but {}."
_CONFIRM: Final = "I need confirmation"
_EXTERNAL: Final = "it needs external execution"
_BOTH: Final = "I need confirmation or external execution"


@frozen
class End:
    """The end that is stored for a run; `input` is what it keeps to go on from where it pauses."""

    state: RunState
    output: dict[str, Any]
    reason: str | None = None
    usage: str | None = None
    input: str | None = None


def conclude(writer: EventWriter, summary: RunSummary, outcome: Outcome) -> End:
    """Note the end, or the pause, of a turn that came to its own; return what is to be stored."""
    match outcome:
        case Answered(content):
            return _complete(writer, summary, content)
        case Stopped(reason, sentence):
            return fail(writer, summary, sentence, reason)
        case _:
            return _pause(writer, summary)


def _complete(writer: EventWriter, summary: RunSummary, content: Any) -> End:
    output = render_completed(summary, content)
    writer.note(RunContentCompleted())
    members = {name: output[name] for name in members_of(RunCompleted) if name in output}
    writer.note(RunCompleted(**members))
    return End(RunState.COMPLETED, output, usage=_usage(summary), input=_input(summary))


def _pause(writer: EventWriter, summary: RunSummary) -> End:
    state = summary.state or TurnState()
    output = render_paused(summary, _sentence(state))
    writer.note(RunContentCompleted())
    writer.note(RunPaused(output["content"], output["tools"], output["requirements"]))
    asked = {
        **json.loads(summary.run.input),
        "turn": dump(evolve(state, worked_us=summary.worked_us)),
    }
    kept = compact_json(asked)
    return End(RunState.PAUSED, output, usage=_usage(summary), input=kept)


def _sentence(state: TurnState) -> str:
    needs = {call.standing for call, _ in find_waiting(state)}
    if len(needs) > 1:
        return _PAUSED.format(_BOTH)
    return _PAUSED.format(_CONFIRM if Standing.CONFIRM in needs else _EXTERNAL)


def fail(writer: EventWriter, summary: RunSummary, sentence: str, reason: str) -> End:
    """Note the end of a run that failed; `sentence` is for the caller, `reason` for programs."""
    writer.note(RunError(sentence, reason))
    return End(
        RunState.ERROR, render_failed(summary, sentence), reason, _usage(summary), _input(summary)
    )


def fail_by_error(writer: EventWriter, summary: RunSummary, error: Exception) -> Program[End]:
    """Note the end of a run by an error: the model's sentence, or a number of the log's."""
    if isinstance(error, ModelFailed):
        return fail(writer, summary, error.sentence, f"model_{error.reason}")
    incident = (yield from RandomBytes(8)).hex()
    fields = (("incident", incident), ("run_id", summary.run.run_id), ("error", where(error)))
    yield from Log("error", "run_failed", fields)
    return fail(writer, summary, _FAILED.format(incident), "run_failed")


def cut_short(writer: EventWriter, summary: RunSummary, sentence: str) -> End:
    """Note the end of a run that somebody cancelled."""
    writer.note(RunCancelled(sentence, sentence))
    output = render_cancelled(summary, "".join(writer.heard))
    return End(RunState.CANCELLED, output, "cancelled", _usage(summary), _input(summary))


def _usage(summary: RunSummary) -> str | None:
    """Return what the turn has cost so far; None where no model was asked."""
    if summary.state is None or not summary.state.rounds:
        return None
    usage = summary.state.usage
    return compact_json({**tokens(usage), **tokens_apart(usage)})


def _input(summary: RunSummary) -> str | None:
    """Return the input without what was kept for going on; None where there is nothing of it."""
    if summary.run.events == 0:
        return None
    asked = json.loads(summary.run.input)
    asked.pop("turn", None)
    return compact_json(asked)
