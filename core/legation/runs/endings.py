"""How a run ends, or pauses: its last events, and what is stored of it."""

from __future__ import annotations

import json
from typing import Any, Final

from attrs import evolve

from ..effects import Log, Program, RandomBytes
from ..http.messages import compact_json
from ..incidents import where
from ..models.conversation import ModelFailed
from ..values import frozen
from .agent_turn import Answered, Outcome, Stopped
from .event_writer import Voice
from .output import Told, cancelled, completed, failed, paused
from .payloads import tokens, tokens_apart, waiting
from .states import RunState
from .turn_state import Standing, TurnState, dump

__all__ = ["End", "broken_off", "concluded", "cut_short", "failing"]

_FAILED: Final = "The run failed; the operator's log has the reason under incident {}"
_PAUSED: Final = "I have tools to execute, but {}."
_CONFIRM: Final = "I need confirmation"
_EXTERNAL: Final = "it needs external execution"
_BOTH: Final = "I need confirmation or external execution"


@frozen
class End:
    """How a run is to end; `input` is what it keeps to go on from where it pauses."""

    state: RunState
    output: dict[str, Any]
    reason: str | None = None
    usage: str | None = None
    input: str | None = None


def concluded(voice: Voice, told: Told, outcome: Outcome) -> End:
    """Note the end, or the pause, of a turn that came to its own; return what is to be stored."""
    match outcome:
        case Answered(content):
            return _answered(voice, told, content)
        case Stopped(reason, sentence):
            return broken_off(voice, told, sentence, reason)
        case _:
            return _paused(voice, told)


def _answered(voice: Voice, told: Told, content: Any) -> End:
    output = completed(told, content)
    voice.note("RunContentCompleted")
    names = (
        *("content", "content_type", "reasoning_content", "session_state", "metadata", "metrics"),
        "member_responses",
    )
    voice.note("RunCompleted", **{name: output[name] for name in names if name in output})
    return End(RunState.COMPLETED, output, usage=_usage(told), input=_asked(told))


def _paused(voice: Voice, told: Told) -> End:
    state = told.state or TurnState()
    output = paused(told, _sentence(state))
    voice.note("RunContentCompleted")
    names = ("content", "tools", "requirements")
    voice.note("RunPaused", **{name: output[name] for name in names})
    asked = {**json.loads(told.run.input), "turn": dump(evolve(state, worked_us=told.worked_us))}
    kept = compact_json(asked)
    return End(RunState.PAUSED, output, usage=_usage(told), input=kept)


def _sentence(state: TurnState) -> str:
    needs = {call.standing for call, _ in waiting(state)}
    if len(needs) > 1:
        return _PAUSED.format(_BOTH)
    return _PAUSED.format(_CONFIRM if Standing.CONFIRM in needs else _EXTERNAL)


def broken_off(voice: Voice, told: Told, sentence: str, reason: str) -> End:
    """Note the end of a run that failed; `sentence` is for the caller, `reason` for programs."""
    voice.note("RunError", content=sentence, error_type=reason)
    return End(RunState.ERROR, failed(told, sentence), reason, _usage(told), _asked(told))


def failing(voice: Voice, told: Told, error: Exception) -> Program[End]:
    """Note the end of a run by an error: the model's sentence, or a number of the log's."""
    if isinstance(error, ModelFailed):
        return broken_off(voice, told, error.sentence, f"model_{error.reason}")
    incident = (yield from RandomBytes(8)).hex()
    fields = (("incident", incident), ("run_id", told.run.run_id), ("error", where(error)))
    yield from Log("error", "run_failed", fields)
    return broken_off(voice, told, _FAILED.format(incident), "run_failed")


def cut_short(voice: Voice, told: Told, sentence: str) -> End:
    """Note the end of a run that somebody cancelled."""
    voice.note("RunCancelled", reason=sentence, content=sentence)
    output = cancelled(told, "".join(voice.heard))
    return End(RunState.CANCELLED, output, "cancelled", _usage(told), _asked(told))


def _usage(told: Told) -> str | None:
    """Return what the turn has cost so far; None where no model was asked."""
    if told.state is None or not told.state.rounds:
        return None
    usage = told.state.usage
    return compact_json({**tokens(usage), **tokens_apart(usage)})


def _asked(told: Told) -> str | None:
    """Return the input without what was kept for going on; None where there is nothing of it."""
    if told.run.events == 0:
        return None
    asked = json.loads(told.run.input)
    asked.pop("turn", None)
    return compact_json(asked)
