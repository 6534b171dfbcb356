"""The effects: all that a program may ask of its host.

An effect is a frozen value.  A program yields effects and is sent their answers; only whoever
drives the program (`legation_host`, a test) acts.  The parameter of `Asks` is the type of the
answer, so after `now = yield from Now()` a type checker knows that `now` is an `int`.  On the way
of every run it is `now: int = yield NOW`, which runs no generator and makes no value.

Rules between the two halves:

* Failures of a database (`store.failures`) are thrown into the program at its `Transact`, and so
  is any other `Exception` that the statements of the unit raise, after the roll-back; failures of
  the network are values (`Unreachable`), because every caller must decide.
* What a program asks for and its host does not have (a database of that name, a sink, an effect
  by that type) is an error of whoever runs it: it closes the program, and is not thrown into it.
* Cancellation and time-outs close the program.  **A program never yields while unwinding**: the
  host rolls back and cleans up what the program had open.
* An effect that is `immediate` is performed within the program's turn; others have theirs before
  it, if need be, but not between it and its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

from attrs import field

from .values import define, frozen

if TYPE_CHECKING:  # a program that asks for none of them does not load the store
    from .store.audit_entries import AuditEntry
    from .store.health import Inspection  # noqa: F401 (in quotes: the answer to `Inspect`)
    from .store.run_rows import StoredEvent
    from .store.units import Unit

__all__ = [
    "NOW",
    "THIS_NODE",
    "Asks",
    "AwaitNudge",
    "AwaitOutcome",
    "CallFunction",
    "CloseStream",
    "Concurrently",
    "Effect",
    "Emit",
    "Fetch",
    "FetchReply",
    "FindDead",
    "HoldName",
    "Inspect",
    "Interrupted",
    "Interruptible",
    "Job",
    "Log",
    "NameHeld",
    "NextChunk",
    "NextEvents",
    "NextPiece",
    "Now",
    "Nudge",
    "OpenStream",
    "Outcome",
    "Piece",
    "Program",
    "Publish",
    "Raised",
    "RandomBytes",
    "ReadBody",
    "Record",
    "Returned",
    "Sleep",
    "Spawn",
    "Streaming",
    "ThisNode",
    "TimedOut",
    "Transact",
    "Unreachable",
    "Yielding",
]

A = TypeVar("A")  # the answer to an effect
R = TypeVar("R")  # the result of a program or of a unit of work


class Asks(Generic[A]):
    """Base of the effects.  `yield from effect` is an `A`.

    Attributes:
        immediate: The answer is there at once, and no other program has a turn before it.
    """

    __slots__ = ()

    immediate: ClassVar[bool] = False

    def __iter__(self) -> Generator[Self, A, A]:
        return (yield self)


class _Immediate(Asks[A]):
    """Base of the effects whose answer is there at once."""

    __slots__ = ()

    immediate = True


@frozen
class Now(_Immediate[int]):
    """The wall clock: microseconds since the Unix epoch, UTC."""


NOW: Final = Now()


@frozen
class RandomBytes(_Immediate[bytes]):
    """Exactly `size` unpredictable bytes."""

    size: int


@frozen
class ThisNode(_Immediate[str]):
    """The name of this process among its peers: unique per start, never reused."""


THIS_NODE: Final = ThisNode()


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
        Exception: What the statements of `unit` raised, as it is; nothing was kept.
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
class Streaming:
    """The head of an HTTP response; `stream` names its body to `NextChunk`."""

    stream: int
    status: int
    headers: Mapping[str, str]


@frozen
class OpenStream(Asks[Streaming | Unreachable]):
    """An HTTP request sent out, whose response is read as it comes.

    `timeout_seconds` bounds the wait for the head, and that for a free connection before it.
    Redirects are not followed.  A stream belongs to the program that asked, which counts its own
    from 1, and is closed at the latest when that ends.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    body: bytes = b""
    timeout_seconds: float = 30.0


@frozen
class NextChunk(Asks[bytes | Unreachable]):
    """The next bytes of `stream`, as they came; empty at its end.

    After the end, and after `Unreachable`, the stream is closed; a closed one is at its end.

    Whoever asks with `rest_seconds` has time: the host may wait for so long, within the time-out,
    and answer with all that came meanwhile.  It is woken once then, and not for each packet.
    """

    stream: int
    timeout_seconds: float
    rest_seconds: float = 0.0


@frozen
class CloseStream(Asks[None]):
    """Give up `stream`, of either kind, before its end; nothing happens to one that is closed."""

    stream: int


@frozen
class Returned:
    """A function of the user's came to its end, with this result."""

    value: Any


@frozen
class Yielding:
    """A function of the user's gave an async iterator; `stream` names it to `NextPiece`.

    It is closed at the latest when the program that asked ends.
    """

    stream: int


@frozen
class Raised:
    """A function of the user's failed."""

    error: Exception

    @classmethod
    def by(cls, error: BaseException) -> Raised:
        """Return the failure that `error` stands for, if need be as the cause of a `RuntimeError`.

        So no function ends more than itself: one may say `sys.exit()`, and one in a thread may
        have had an event loop of its own, whose cancellation is nobody else's.
        """
        if isinstance(error, Exception):
            return cls(error)
        substitute = RuntimeError(type(error).__name__).with_traceback(error.__traceback__)
        substitute.__cause__ = error
        return cls(substitute)


@frozen
class TimedOut:
    """A function of the user's took too long."""


@frozen
class CallFunction(Asks[Returned | Yielding | Raised | TimedOut]):
    """The outcome of calling `function` with `arguments` as keywords.

    A coroutine function runs on the event loop of the host; any other in one of a bounded number
    of threads, and the wait for one counts.  What the function gives to await is awaited.  A
    thread cannot be stopped: after `timeout_seconds` its function goes on alone, and keeps its
    place.  `SystemExit` is a failure as any other, and so is whatever is raised in a thread; on
    the event loop any other error that is no `Exception` ends the program that asked.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(repr=False)
    timeout_seconds: float


@frozen
class Piece:
    """The next item of an async iterator."""

    value: Any


@frozen
class NextPiece(Asks[Piece | Raised | TimedOut | None]):
    """The next item of the iterator that `stream` names; None at its end.

    After anything but a piece the iterator is closed; a closed one is at its end.
    """

    stream: int
    timeout_seconds: float


@frozen
class Inspect(Asks["Inspection"]):
    """The inspection of `database` from outside, within a few seconds and without a statement."""

    database: str


@frozen
class NameHeld:
    """The holding of a name, as others can see it.

    Attributes:
        place: Where it is held: whoever holds a name at the same place can tell the living from the
            dead.  Empty where nobody can.
        session: Whether a session of the database holds it as well, for other hosts to see.
    """

    place: str = ""
    session: bool = False


@frozen
class HoldName(Asks[NameHeld]):
    """Hold `name` for others that use `database` to see, until this process ends, however it does.

    Asked again, it says how the name is held by now.  A host that cannot hold names says so: then
    the end of its process shows only by its silence.
    """

    database: str
    name: str


@frozen
class FindDead(Asks[tuple[str, ...]]):
    """Those of `names`, all held at the place of this process, that nobody holds any more."""

    database: str
    names: tuple[str, ...]


@frozen
class Sleep(Asks[None]):
    """Wait for `seconds`."""

    seconds: float


@runtime_checkable
class Job(Protocol):
    """A program as a value: equal to another that does the same."""

    def program(self) -> Program[object]:
        """Start anew; what it returns is for whoever waits for its `Outcome`."""
        ...


@define(eq=False)
class Outcome(Generic[R]):
    """The outcome of one job, for the one program that waits for it.

    A host keeps it in the memory of the process, and tells it once, however the job ends.

    Attributes:
        over: Whether the job has ended.
        result: What its program returned; None as well where it did not come to its end.
        waiter: Who is to be woken by the end; whatever the host knows one by.
    """

    over: bool = False
    result: R | None = None
    waiter: Any = None

    def tell(self, result: R | None) -> Any:
        """Note the end of the job; return who waits for it, None where nobody does."""
        self.over, self.result = True, result
        waiter, self.waiter = self.waiter, None
        return waiter


@frozen
class Spawn(_Immediate[None]):
    """Start `job` beside this program; it outlives the request that asked.

    Its end is told to `outcome`, which is this job's alone: also where it is cancelled or fails.
    """

    job: Job
    outcome: Outcome[Any] | None = field(default=None, eq=False, repr=False)


@frozen
class AwaitOutcome(Asks[R | None], Generic[R]):
    """The result of the job that was spawned with `outcome`, as soon as it has ended.

    None where it did not come to its end: it failed, or was cancelled.  Whoever waits may leave:
    the job goes on, and one program at a time may wait for it.
    """

    outcome: Outcome[R] = field(repr=False)


@frozen
class Publish(_Immediate[None]):
    """Show events just stored to the followers of `run_id` on this node.  A hint.

    Followers on other nodes of `database`, as far as this node knows of them, learn that there are
    events, but not which.  Without events followers on this node alone are woken.
    """

    run_id: str
    events: tuple[StoredEvent, ...]
    database: str | None = None


@frozen
class NextEvents(Asks["tuple[StoredEvent, ...] | None"]):
    """The events of `run_id` behind `after`, without gap, as soon as this node hears of any.

    Empty when there may be some, and this node does not hold the next one: the program then asks
    the database.  None when `timeout_seconds` passed, and nothing was heard.

    Attributes:
        database: Of the run, where its holder is known.
        holder: The node that executes the run, as far as that is known.  A host may tell it who
            follows, so that the events of runs that nobody follows elsewhere are told to nobody.
    """

    run_id: str
    after: int
    timeout_seconds: float
    database: str | None = None
    holder: str | None = None


@frozen
class Nudge(_Immediate[None]):
    """Wake who waits for work under `topic`.  A hint: it may be lost.

    With a `database`, whoever awaits a nudge under `topic` on another node of it is woken as well,
    where that is possible; no program is interrupted there.  With a `node` that is the one alone.
    """

    topic: str
    database: str | None = None
    node: str | None = None


@frozen
class AwaitNudge(Asks[None]):
    """Wait for a nudge under `topic`, or until `timeout_seconds` have passed.

    A nudge that came since this program last waited there ends the wait at once.
    """

    topic: str
    timeout_seconds: float


@frozen
class Interrupted:
    """A program was closed before its end: `by` is nudge, timeout or blocked."""

    by: str


@frozen
class Interruptible(Asks[R | Interrupted], Generic[R]):
    """The result of `program`, or `Interrupted` when that is not to be waited for any longer.

    The host drives `program` within this effect.  A nudge under `topic` since the asking program
    began, or the passing of `timeout_seconds`, closes it wherever it waits: what it asked for last
    may have been done or not, so nothing may depend on it.

    `label` is a JSON object that says what is executed.  A host that measures the steps of such a
    program writes the label to its log when one step took more than a second of CPU, and closes
    the program as blocked: nothing else was done meanwhile.

    Raises:
        Exception: What `program` raised.
    """

    program: Program[R] = field(eq=False, repr=False)
    topic: str
    timeout_seconds: float
    label: str = field(default="", eq=False)


@frozen
class Concurrently(Asks[tuple[R, ...]], Generic[R]):
    """The results of `programs`, in their order; they are driven side by side.

    None of them reads the body of a request, or emits.

    Raises:
        Exception: What the first of them to fail raised; the others are closed.
    """

    programs: tuple[Program[R], ...] = field(eq=False, repr=False)


@frozen
class Emit(_Immediate[None]):
    """Send `data` as part of the streamed body being answered.

    A host gathers what is emitted until the program waits for something else.
    """

    data: bytes


@frozen
class Record(_Immediate[None]):
    """Keep `entry` in the audit trail soon: batched, the last 100 ms may be lost."""

    entry: AuditEntry


@frozen
class Log(_Immediate[None]):
    """Write one line to the operator's log; never a secret, a token or a message.

    `error` is what was raised, where something was.  No line has its text: it is for a host that
    shows it to its author, at the terminal or in a test.
    """

    level: str
    event: str
    fields: tuple[tuple[str, str | int | float | bool | None], ...] = ()
    error: Exception | None = field(default=None, eq=False, repr=False)


Effect: TypeAlias = (
    Now
    | RandomBytes
    | ThisNode
    | ReadBody
    | Transact[Any]
    | Inspect
    | HoldName
    | FindDead
    | Fetch
    | OpenStream
    | NextChunk
    | CallFunction
    | NextPiece
    | CloseStream
    | Sleep
    | Spawn
    | Publish
    | NextEvents
    | Nudge
    | AwaitNudge
    | AwaitOutcome[Any]
    | Interruptible[Any]
    | Concurrently[Any]
    | Emit
    | Record
    | Log
)
"""Every effect there is.  A host performs all of them; its tests check that."""

Program: TypeAlias = Generator[Effect, Any, R]
"""A computation that yields effects, receives their answers and returns an `R`."""
