r"""The states of a run, and the moves that lead from one to another, as a table.

::

    PENDING --start--> RUNNING --complete--> COMPLETED
     ^ | <---release--   |
     | |                 |  ^ \--fail-----> ERROR
     | |              pause |
     | |                 v  | resume
     +-|---queue-------PAUSED
       +--cancel---------+------cancel----> CANCELLED

A run waits (PENDING) while another of its session is active, and again (release) when its executor
went away, or its process ends: whoever claims it next begins it, or goes on from its steps.  One
that a person lets go on waits in the same way (queue) where the session has become busy meanwhile:
a paused run keeps nobody waiting.  Whatever move the table does not hold is illegal; the three last
states have none.

The run of a team's member has no turn and no lease of its own: it begins as RUNNING, is never
given back, and ends with the run that it is part of, so that one that waits for a person may fail.

The SQL of the units that start, move and end runs takes its states from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final, TypeAlias

__all__ = [
    "MEMBER_MOVES",
    "MOVES",
    "Moves",
    "RunMove",
    "RunState",
    "state_after",
    "states_before",
]


class RunState(StrEnum):
    """The state of a run, in the words of the interface and of the column `status`."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    ERROR = "ERROR"

    @property
    def final(self) -> bool:
        """Whether nothing leads on from here."""
        return not MOVES[self]


class RunMove(Enum):
    """A move of a run from one state to another."""

    START = "start"
    RELEASE = "release"
    PAUSE = "pause"
    RESUME = "resume"
    QUEUE = "queue"
    COMPLETE = "complete"
    CANCEL = "cancel"
    FAIL = "fail"


Moves: TypeAlias = Mapping[RunState, Mapping[RunMove, RunState]]

MOVES: Final[dict[RunState, dict[RunMove, RunState]]] = {
    RunState.PENDING: {
        RunMove.START: RunState.RUNNING,
        RunMove.CANCEL: RunState.CANCELLED,
    },
    RunState.RUNNING: {
        RunMove.RELEASE: RunState.PENDING,
        RunMove.PAUSE: RunState.PAUSED,
        RunMove.COMPLETE: RunState.COMPLETED,
        RunMove.CANCEL: RunState.CANCELLED,
        RunMove.FAIL: RunState.ERROR,
    },
    RunState.PAUSED: {
        RunMove.RESUME: RunState.RUNNING,
        RunMove.QUEUE: RunState.PENDING,
        RunMove.CANCEL: RunState.CANCELLED,
    },
    RunState.COMPLETED: {},
    RunState.CANCELLED: {},
    RunState.ERROR: {},
}
"""By state: where each legal move leads.  A move that is not there is illegal."""

MEMBER_MOVES: Final[Moves] = {
    RunState.RUNNING: {
        move: state for move, state in MOVES[RunState.RUNNING].items() if move != RunMove.RELEASE
    },
    RunState.PAUSED: {
        RunMove.RESUME: RunState.RUNNING,
        RunMove.CANCEL: RunState.CANCELLED,
        RunMove.FAIL: RunState.ERROR,
    },
}
"""The moves of the run of a team's member, where it is not over."""


def states_before(move: RunMove) -> tuple[RunState, ...]:
    """Return the states from which `move` leads on."""
    return tuple(state for state, moves in MOVES.items() if move in moves)


def state_after(move: RunMove) -> RunState:
    """Return the state to which `move` leads, which is the same from wherever it begins."""
    (state,) = {moves[move] for moves in MOVES.values() if move in moves}
    return state
