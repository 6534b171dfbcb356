r"""The life of a run.

::

    PENDING --start--> RUNNING --complete--> COMPLETED
     ^ | <---release--   |
     | |                 |  ^ \--fail-----> ERROR
     | |              pause |
     | |                 v  | resume
     +-|---queue-------PAUSED
       +--cancel---------+------cancel----> CANCELLED

A run waits (PENDING) while another of its session is active, and again (release) when whoever
claimed it gave it back before anything had happened.  One that a person lets go on waits in the
same way (queue) where the session has become busy meanwhile: a paused run keeps nobody waiting.
Whatever move the table does not hold is illegal; the three last states have none.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ..values import frozen

__all__ = ["MOVES", "IllegalMove", "RunMove", "RunState", "advance"]


class RunState(Enum):
    """Where a run stands, in the words of the interface."""

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
    """What can happen to a run."""

    START = "start"
    RELEASE = "release"
    PAUSE = "pause"
    RESUME = "resume"
    QUEUE = "queue"
    COMPLETE = "complete"
    CANCEL = "cancel"
    FAIL = "fail"


@frozen
class IllegalMove:
    """A move that its state does not know."""

    state: RunState
    move: RunMove


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


def advance(state: RunState, move: RunMove) -> RunState | IllegalMove:
    """Apply `move`.  Total: every pair of a state and a move has an answer."""
    return MOVES[state].get(move, IllegalMove(state, move))
