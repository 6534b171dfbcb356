"""What the core may ask of the world.

An effect is a frozen value.  A program yields effects and is sent their answers; only whoever
drives the program (`legation_host`, a test) acts.  The parameter of `Asks` is the type of the
answer, so after `now = yield from Now()` a type checker knows that `now` is an `int`.

Rules between the two halves:

* Failures of a database are thrown into the program at its `Transact` (`store.failures`);
  failures of the network are values (`Unreachable`), because every caller must decide.
* Cancellation and time-outs close the program.  **A program never yields while unwinding**: the
  host rolls back and cleans up what the program had open.
* A host may perform the effects marked *immediate* without leaving the program's turn.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from attrs import field, frozen

from .store.audit import AuditEntry
from .store.units import Unit

__all__ = [
    "Asks",
    "AwaitNudge",
    "Effect",
    "Emit",
    "Fetch",
    "FetchReply",
    "Interrupted",
    "Interruptible",
    "Job",
    "Log",
    "NextEvents",
    "Now",
    "Nudge",
    "Program",
    "Publish",
    "RandomBytes",
    "ReadBody",
    "Record",
    "RunEvent",
    "Sleep",
    "Spawn",
    "ThisNode",
    "Transact",
    "Unreachable",
]

A = TypeVar("A")  # the answer to an effect
R = TypeVar("R")  # the result of a program or of a unit of work


class Asks(Generic[A]):
    """Base of the effects.  `yield from effect` is an `A`."""

    __slots__ = ()

    def __iter__(self) -> Generator[Self, A, A]:
        return (yield self)


@frozen
class Now(Asks[int]):
    """The wall clock: microseconds since the Unix epoch, UTC.  Immediate."""


@frozen
class RandomBytes(Asks[bytes]):
    """Exactly `size` unpredictable bytes.  Immediate."""

    size: int


@frozen
class ThisNode(Asks[str]):
    """The name of this process among its peers: unique per start, never reused.  Immediate."""


@frozen
class ReadBody(Asks[bytes | None]):
    """The body of the request being answered, whole; None when it is longer than `limit` bytes.

    Asked for at most once, and only when somebody is going to look at it: a refused request
    costs no reading.  A host refuses by the declared length before it reads.
    """

    limit: int


@frozen
class Transact(Asks[R], Generic[R]):
    """The result of `unit`, run in one transaction of the database named `database`.

    Raises:
        StoreFailure: One of `store.failures`; nothing was kept, `CommitLost` aside.
    """

    database: str
    unit: Unit[R]


@frozen
class FetchReply:
    """An HTTP response, its body whole; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@frozen
class Unreachable:
    """No response: `reason` is one of connect, tls, timeout, protocol, too-large."""

    reason: str


@frozen
class Fetch(Asks[FetchReply | Unreachable]):
    """An HTTP request sent out.  Redirects are not followed; `timeout_seconds` bounds it all."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = b""
    timeout_seconds: float = 30.0
    max_bytes: int = 1 << 20


@frozen
class Sleep(Asks[None]):
    """Wait for `seconds`."""

    seconds: float


@runtime_checkable
class Job(Protocol):
    """A program as a value: equal to another that does the same."""

    def program(self) -> Program[None]:
        """Start anew."""
        ...


@frozen
class Spawn(Asks[None]):
    """Start `job` beside this program; it outlives the request that asked.  Immediate."""

    job: Job


@frozen
class RunEvent:
    """One stored event of a run: `seq` counts from 1 without gaps, `data` is compact JSON.

    After the event marked `final` the run is over, or waits for a person.
    """

    seq: int
    name: str
    data: str
    final: bool = False


@frozen
class Publish(Asks[None]):
    """Tell who follows `run_id` on this node of events just stored.  A hint.  Immediate."""

    run_id: str
    events: tuple[RunEvent, ...]


@frozen
class NextEvents(Asks[tuple[RunEvent, ...]]):
    """The events of `run_id` behind `after`, without gap, as soon as this node hears of any.

    Empty when `timeout_seconds` passed, or when this node no longer holds the next one: the
    program then asks the database.
    """

    run_id: str
    after: int
    timeout_seconds: float


@frozen
class Nudge(Asks[None]):
    """Wake who waits for work under `topic`.  A hint: it may be lost.  Immediate."""

    topic: str


@frozen
class AwaitNudge(Asks[None]):
    """Wait for a nudge under `topic`, or until `timeout_seconds` have passed.

    A nudge that came since this program last waited there ends the wait at once.
    """

    topic: str
    timeout_seconds: float


@frozen
class Interrupted:
    """A program was closed before its end: `by` is nudge or timeout."""

    by: str


@frozen
class Interruptible(Asks[R | Interrupted], Generic[R]):
    """The result of `program`, or `Interrupted` when that is not to be waited for any longer.

    The host drives `program` within this effect.  A nudge under `topic` since the asking program
    began, or the passing of `timeout_seconds`, closes it wherever it waits: what it asked for last
    may have been done or not, so nothing may depend on it.  A failure of a database that it does
    not catch is thrown into the asking program; it catches everything else itself.
    """

    program: Program[R] = field(eq=False, repr=False)
    topic: str
    timeout_seconds: float


@frozen
class Emit(Asks[None]):
    """Send `data` as part of the streamed body being answered.

    A host gathers what is emitted until the program waits for something else.
    """

    data: bytes


@frozen
class Record(Asks[None]):
    """Keep `entry` in the audit trail soon: batched, the last 100 ms may be lost.  Immediate."""

    entry: AuditEntry


@frozen
class Log(Asks[None]):
    """Write one line to the operator's log; never a secret, a token or a message.  Immediate."""

    level: str
    event: str
    fields: tuple[tuple[str, str | int | float | bool | None], ...] = ()


Effect: TypeAlias = (
    Now
    | RandomBytes
    | ThisNode
    | ReadBody
    | Transact[Any]
    | Fetch
    | Sleep
    | Spawn
    | Publish
    | NextEvents
    | Nudge
    | AwaitNudge
    | Interruptible[Any]
    | Emit
    | Record
    | Log
)
"""Every effect there is.  A host performs all of them; its tests check that."""

Program: TypeAlias = Generator[Effect, Any, R]
"""A computation that yields effects, receives their answers and returns an `R`."""
