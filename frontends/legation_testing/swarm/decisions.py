"""The decisions of a storm: a seed draws a list of them, and the list alone says what happens.

Each is a value that stands for itself.  None refers to the place of another in the list, so that
any of them may be left out: that is how a failure shrinks.  `at` is in seconds from the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from attrs import NOTHING, fields, frozen

__all__ = [
    "Ask",
    "Away",
    "Cancel",
    "Chance",
    "Continue",
    "Decision",
    "Delete",
    "Deliver",
    "Drain",
    "Fail",
    "Follow",
    "Hints",
    "Kill",
    "Misbehave",
    "Notify",
    "PowerCut",
    "SetClock",
    "SetDatabaseClock",
    "Settle",
    "Stall",
    "Start",
    "end_of",
    "write_decision",
    "write_decisions",
]


# --- The nodes ----------------------------------------------------------------------------------


@frozen
class Chance:
    """The seed of what is drawn on the way: ids, pauses with jitter, and whose turn it is.

    Without it turns are first in, first out.
    """

    seed: int


@frozen
class Start:
    """A node that is there from the start.

    Attributes:
        place: Where its name is held; nodes of one place know at once when one of them dies.
        skew: How far its clock is ahead of the database's, in seconds.
    """

    node: int
    place: str = ""
    skew: float = 0.0


@frozen
class Notify:
    """The nodes of a database hear of each other at once, as they do on PostgreSQL."""


# --- What clients do ----------------------------------------------------------------------------


@frozen
class Ask:
    """A client starts a run, and follows it to its end.

    Attributes:
        name: Of the run, for the decisions that mean it; no two have the same.
        component: An agent or a team of the scene.
        steps: What the model is to do, see `scene.Script`.
        mode: joined, streamed or background.
        key: Send an `Idempotency-Key`, and the request again where it gets no answer.
        leaves: After so many seconds each time the client hangs up, and comes back.
    """

    at: float
    node: int
    name: str
    session: str
    component: str
    steps: str
    mode: str = "joined"
    key: bool = False
    leaves: tuple[float, ...] = ()


@frozen
class Follow:
    """Another client follows the run `name` from its first event on."""

    at: float
    node: int
    name: str
    leaves: tuple[float, ...] = ()


@frozen
class Continue:
    """Clients answer a run that waits for a person: as many as `times`, at once."""

    at: float
    node: int
    name: str
    confirmed: bool = True
    times: int = 1
    stream: bool = False


@frozen
class Settle:
    """A client answers every pause of a run, up to so many `times`.

    Attributes:
        doubt: Where it is in doubt whether a tool was carried out: confirm (call it again), reject
            (the model is told) or result (that was its outcome).
    """

    at: float
    node: int
    name: str
    doubt: str = "confirm"
    times: int = 3


@frozen
class Cancel:
    """A client cancels a run, and repeats it until it has an answer."""

    at: float
    node: int
    name: str


@frozen
class Delete:
    """A client deletes a session of a database."""

    at: float
    node: int
    session: str
    database: str


@frozen
class Deliver:
    """A provider delivers a message, and repeats it until it is taken; then `times` - 1 more."""

    at: float
    node: int
    name: str
    sender: str
    steps: str
    times: int = 1
    channel: str = "letters"


# --- Faults -------------------------------------------------------------------------------------


@frozen
class Kill:
    """The process of a node dies at the effect behind `skip` others; another starts later.

    Attributes:
        after: The effect is performed, and its answer is heard by nobody.
        down: For so many seconds there is none.
    """

    at: float
    node: int
    skip: int = 0
    after: bool = False
    down: float = 1.0


@frozen
class PowerCut:
    """All nodes die at once, and start again `down` seconds later.

    The databases keep every unit that was committed; a disk that loses some is not tried here.
    """

    at: float
    skip: int = 0
    down: float = 1.0


@frozen
class Drain:
    """A node ends in order: it has `patience` seconds for what it does; another starts later."""

    at: float
    node: int
    patience: float = 2.0
    down: float = 1.0


@frozen
class Stall:
    """The programs of a node get no turn for so many seconds, and then go on."""

    at: float
    node: int
    seconds: float


@frozen
class SetClock:
    """The clock of a node is set forward, or back, by so many seconds."""

    at: float
    node: int
    seconds: float


@frozen
class SetDatabaseClock:
    """The clock of a database is set forward, or back, by so many seconds."""

    at: float
    database: str
    seconds: float


@frozen
class Away:
    """A database cannot be reached, by `node` or by any; who tries learns it after `hangs`."""

    at: float
    database: str
    seconds: float
    node: int | None = None
    hangs: float = 0.0


@frozen
class Fail:
    """So many units of work fail, behind `skip` others.

    Attributes:
        kind: busy, unavailable, lost (done, and the answer to the commit did not come) or undone
            (not done, and nobody knows).
    """

    at: float
    kind: str
    node: int | None = None
    skip: int = 0
    times: int = 1


@frozen
class Hints:
    """For so many seconds hints are lost, doubled or late."""

    at: float
    kind: str
    seconds: float


@frozen
class Misbehave:
    """So many times something outside does not do as it should.

    Attributes:
        who: model, people (who take replies) or tool.
        kind: For a model refuses, overloaded, silent, cut or nonsense; for people refuses,
            overloaded, silent or cut (taken, and the answer lost); for a tool fails, hangs or kills
            its node, which starts again a second later.
    """

    at: float
    who: str
    kind: str
    times: int = 1


Fault: TypeAlias = (
    Kill | PowerCut | Drain | Stall | SetClock | SetDatabaseClock | Away | Fail | Hints | Misbehave
)
Decision: TypeAlias = (
    Chance
    | Start
    | Notify
    | Ask
    | Follow
    | Continue
    | Settle
    | Cancel
    | Delete
    | Deliver
    | Fault
)  # fmt: skip

_ARMED_SECONDS: Final = 2.0
"""A fault that strikes one of the next effects has done so after this time, or is disarmed."""


def end_of(decision: Decision) -> float:
    """Return when the fault is over, in seconds from the start; 0 for what is none."""
    match decision:
        case Stall() | Away() | Hints():
            return decision.at + decision.seconds
        case Kill() | PowerCut():
            return decision.at + _ARMED_SECONDS + decision.down
        case Drain():
            return decision.at + decision.patience + decision.down
        case SetClock() | SetDatabaseClock() | Fail() | Misbehave():
            return decision.at + _ARMED_SECONDS
        case _:
            return 0.0


def write_decision(decision: Decision) -> str:
    """Return `decision` as Python reads it; what has its default is left out."""
    kind: Any = type(decision)
    given: list[str] = []
    for one in fields(kind):
        value = getattr(decision, one.name)
        if one.default is NOTHING or value != one.default:
            given.append(f"{one.name}={value!r}")
    return f"{kind.__name__}({', '.join(given)})"


def write_decisions(decisions: Iterable[Decision], indent: str = "    ") -> str:
    """Return a list of `decisions`, one a line."""
    lines = (f"{indent}    {write_decision(decision)},\n" for decision in decisions)
    return f"[\n{''.join(lines)}{indent}]"
