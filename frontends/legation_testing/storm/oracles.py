"""The oracles of a storm: the promises, as they can be looked up when it is over.

They speak of what was promised, and not of how it is kept: of rows, of what the world outside
counted, and of what clients were stored.  Each yields a sentence for whatever it finds broken.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, TypeAlias

from attrs import define, field, fields, frozen

from legation.store.audit import AuditEntry, AuditRow, Intact, Verifier

from ..event_stream import ServerSentEvent
from .clients import Asked, Clients, Followed
from .decisions import SetClock, Start, end_of
from .promises import Broken
from .scene import DATABASES, Script
from .tempest import Tempest

__all__ = ["ORACLES", "Aftermath", "Oracle", "Run", "find_broken"]

_FINAL: Final = ("COMPLETED", "CANCELLED", "ERROR")
_ENDS: Final = ("RunCompleted", "RunCancelled", "RunError", "RunPaused")
_CANCEL_SECONDS: Final = 3.0
"""So soon after a cancellation, and after the last fault, nothing more is done for a run."""


@frozen
class Run:
    """A run as it is stored, with its events: their numbers, names and data."""

    database: str
    session: str
    run_no: int
    run_id: str
    parent: str | None
    status: str
    message: str
    output: str | None
    reason: str | None
    last: int
    lease_by: str | None
    cancel_us: int | None
    events: tuple[tuple[int, str, str], ...]


@define(eq=False)
class Aftermath:
    """All that is known when a storm is over."""

    tempest: Tempest
    clients: Clients
    runs: dict[str, Run] = field(factory=dict[str, Run])

    def __attrs_post_init__(self) -> None:
        for database in DATABASES:
            self._read(database)

    def rows(self, database: str, select: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        connection = self.tempest.world.databases.connection(database)
        return connection.execute(select).fetchall()

    def _read(self, database: str) -> None:
        events: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
        for run_id, *event in self.rows(
            database, "select run_id, seq, name, data from events order by run_id, seq"
        ):
            events[run_id].append((event[0], event[1], event[2]))
        for row in self.rows(
            database,
            """select session_id, run_no, run_id, parent_run_id, status, input, output, reason,
            events, lease_by, cancel_us from runs order by session_id, run_no""",
        ):
            message = json.loads(row[5])["message"]
            stored: tuple[Any, ...] = tuple(events.get(row[2], ()))
            columns: tuple[Any, ...] = (database, *row[:5], message, *row[6:], stored)
            run = Run(*columns)
            self.runs[run.run_id] = run

    @property
    def of_clients(self) -> Iterator[Run]:
        """The runs that are no member's."""
        return (run for run in self.runs.values() if run.parent is None)

    @property
    def clocks_agree(self) -> bool:
        """Whether the clock of every node was right all the time."""
        return not any(
            isinstance(one, SetClock) or (isinstance(one, Start) and one.skew)
            for one in self.tempest.decisions
        )

    def find_overdue(self, table: str, name: str) -> list[str]:
        """Return what waits in a queue and should not: the next attempt was due.

        One that waits for the clock of its database, which was set back, may.
        """
        databases = self.tempest.world.databases
        now_us = databases.clock.now_us + databases.skew_us["main"]
        rows = self.rows(
            "main", f"select {name}, attempts, ready_us from {table} where state = 'ready'"
        )
        return [one for one, attempts, ready_us in rows if attempts == 0 or ready_us <= now_us]

    @property
    def replies_wait(self) -> bool:
        """Whether a reply waits for the clock of its database."""
        return bool(self.rows("main", "select 1 from outbox where state = 'ready'"))

    def is_deleted(self, asked: Asked) -> bool:
        """Tell whether somebody deleted the session of a run, or tried to."""
        return (asked.database, asked.ask.session) in self.clients.deleted

    @property
    def last_fault(self) -> float:
        """The time at which the last fault was over."""
        return max((end_of(one) for one in self.tempest.decisions), default=0.0)


Oracle: TypeAlias = Callable[[Aftermath], Iterator[str]]


# --- (a) The world ------------------------------------------------------------------------------


def _calls_of_tools(after: Aftermath) -> Iterator[str]:
    # A request that comes again behind the deletion of its session begins anew.
    gone = {name for name, asked in after.clients.asked.items() if after.is_deleted(asked)}
    for (name, place), times in after.tempest.scene.carried_out.items():
        if times > 1 and name.partition("/")[0] not in gone:
            yield f"the call {place} of #{name} was carried out {times} times"


def _answers_to_messages(after: Aftermath) -> Iterator[str]:
    answers: dict[str, list[str]] = defaultdict(list)
    for reply in after.tempest.scene.seen.values():
        answers[reply.message].append(reply.key)
    states = dict(after.rows("main", "select message_id, state from inbox"))
    waiting = {*after.find_overdue("inbox", "message_id")}
    for name, delivered in after.clients.delivered.items():
        state, keys = states.get(name), answers.pop(name, [])
        if state is None and delivered.taken and not keys:
            yield f"the message {name} was taken, and is nowhere"
        elif name in waiting:
            yield f"the message {name} still waits"
        elif state in ("done", "dead") and len(keys) != 1 and not after.replies_wait:
            yield f"the message {name} ({state}) was answered under the keys {keys}"
    if answers:
        yield f"there are answers to messages that nobody sent: {sorted(answers)}"
    if overdue := after.find_overdue("outbox", "idempotency_key"):
        yield f"replies still wait: {overdue}"


def _order_of_messages(after: Aftermath) -> Iterator[str]:
    if not after.clocks_agree:
        return  # replies go by the clocks of those who wrote them
    place = {reply.message: n for n, reply in enumerate(after.tempest.scene.seen.values())}
    # Later is what was stored later, and also came later by the clocks of those who took it.
    pairs = after.rows(
        "main",
        """select old.sender, old.message_id, new.message_id from inbox as old
        join inbox as new on new.sender = old.sender and new.rowid > old.rowid
        and (new.received_us, new.position) > (old.received_us, old.position)
        where old.state = 'done' and new.state = 'done'""",
    )
    for sender, old, new in pairs:
        if place.get(old, 0) > place.get(new, len(place)):
            yield f"{sender} had the answer to {new} before that to {old}"


def _runs_of_messages(after: Aftermath) -> Iterator[str]:
    begun = Counter(
        Script.of(run.message).name for run in after.of_clients if run.reason != "interrupted"
    )
    for name in after.clients.delivered:
        if begun[name] > 1:
            yield f"{begun[name]} runs answered the message {name}"


# --- (b) Rows -----------------------------------------------------------------------------------


def _numbers(after: Aftermath) -> Iterator[str]:
    for run in after.runs.values():
        numbers = [seq for seq, _, _ in run.events]
        if run.parent is None and numbers != list(range(1, run.last + 1)):
            yield f"run {run.run_id} has the events {numbers} of {run.last}"
    sessions: dict[tuple[str, str], list[int]] = defaultdict(list)
    for run in after.runs.values():
        sessions[run.database, run.session].append(run.run_no)
    for (database, session), numbers in sessions.items():
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"session {session} of {database} has the runs {numbers}"


def _ends(after: Aftermath) -> Iterator[str]:
    for run in after.runs.values():
        if run.status not in (*_FINAL, "PAUSED"):
            yield f"run {run.run_id} ({run.message}) is {run.status}, held by {run.lease_by}"
        elif run.lease_by is not None:
            yield f"run {run.run_id} is {run.status}, and {run.lease_by} still holds it"
        elif run.parent is None:
            yield from _last_event(run)


def _last_event(run: Run) -> Iterator[str]:
    """Yield what is wrong with the end of a run, as its events tell it."""
    name = run.events[-1][1] if run.events else "none"
    expected = {"ERROR": "Error"}.get(run.status, run.status.capitalize())
    if not name.endswith(f"Run{expected}"):
        yield f"run {run.run_id} is {run.status}, and its last event is {name}"


def _contents(after: Aftermath) -> Iterator[str]:
    for run in after.runs.values():
        expected = "".join(Script.of(run.message).pieces)
        if run.status == "COMPLETED" and json.loads(run.output or "{}")["content"] != expected:
            yield f"run {run.run_id} ({run.message}) is complete with {run.output}"


_AUDIT: Final = ", ".join(one.name for one in fields(AuditEntry))


def _audit(after: Aftermath) -> Iterator[str]:
    for database in DATABASES:
        select = f"select writer, seq, previous, hash, {_AUDIT} from audit order by writer, seq"
        rows = after.rows(database, select)
        verifier = Verifier()
        verdict = verifier.take(
            AuditRow(writer, seq, previous, seal, AuditEntry(*entry))
            for writer, seq, previous, seal, *entry in rows
        )
        if not isinstance(verdict or verifier.end(), Intact):
            yield f"the audit trail of {database}: {verdict or verifier.end()}"


def _sessions(after: Aftermath) -> Iterator[str]:
    for name, asked in after.clients.asked.items():
        if name.startswith("last") and asked.ended != "COMPLETED":
            run = after.runs.get(asked.run_id or "")
            yield f"a new run of session {asked.ask.session} came to {asked.ended}: {run}"


# --- (c) What clients were stored -----------------------------------------------------------------


def _acknowledged(after: Aftermath) -> Iterator[str]:
    names = Counter(Script.of(run.message).name for run in after.of_clients)
    for name, asked in after.clients.asked.items():
        if len(asked.run_ids) > 1:
            yield f"the request {name} became the runs {list(asked.run_ids)}"
        if names[name] > 1:
            yield f"the request {name} became {names[name]} runs"
        run = after.runs.get(asked.run_id or "")
        if asked.run_id is not None and run is None and not after.is_deleted(asked):
            yield f"run {asked.run_id} of the request {name} was acknowledged, and is nowhere"
        if run is not None and asked.ended is not None and asked.ended != run.status:
            yield f"run {run.run_id} was {asked.ended} to a client, and is {run.status}"
        if len(asked.continued) > 1:
            yield f"the pause of {name} was answered {len(asked.continued)} times"


def _followers(after: Aftermath) -> Iterator[str]:
    for followed in after.clients.followed:
        run = after.runs.get(followed.asked.run_id or "")
        yield from _seen(followed, run, gone=after.is_deleted(followed.asked))


def _seen(followed: Followed, run: Run | None, *, gone: bool) -> Iterator[str]:
    """Yield what is wrong with the events that a client saw."""
    name = followed.asked.ask.name
    numbers = [int((event.id or ":0").rpartition(":")[2]) for event in followed.seen]
    if any(second != first + 1 for first, second in pairwise(numbers)):
        yield f"a client saw the events {numbers} of {name}"
    ends = [event.name for event in followed.seen if _is_end(followed, event)]
    if len([end for end in ends if not end.endswith("RunPaused")]) > 1:
        yield f"a client saw the ends {ends} of {name}"
    if followed.whole and not gone and numbers and not ends:
        yield f"the stream of {name} came to its end behind {numbers[-1]}, which is none"
    if run is None or gone:
        return
    stored = {seq: (event, data) for seq, event, data in run.events}
    for number, event in zip(numbers, followed.seen, strict=True):
        if stored.get(number) != (event.name, event.data):
            yield f"a client saw {event} as number {number} of {name}: {stored.get(number)}"


def _is_end(followed: Followed, event: ServerSentEvent) -> bool:
    """Tell whether this is an end, or a pause, of the run itself and not of a member."""
    return event.name.endswith(_ENDS) and event.json()["run_id"] == followed.asked.run_id


def _cancellations(after: Aftermath) -> Iterator[str]:
    for name, asked in after.clients.asked.items():
        run = after.runs.get(asked.run_id or "")
        if asked.cancelled is None or run is None:
            continue
        due = max(asked.cancelled, after.last_fault) + _CANCEL_SECONDS
        last = after.tempest.scene.last.get(name, 0.0)
        if last > due:
            yield f"{name} was cancelled at {asked.cancelled} s, and worked on at {last} s"


def _interruptions(after: Aftermath) -> Iterator[str]:
    tempest = after.tempest
    for run in after.of_clients:
        executors = tempest.executors.get(run.run_id, set())
        if run.reason == "interrupted" and executors and not executors & tempest.doubted:
            yield f"run {run.run_id} of {sorted(executors)}, who lived, ended as interrupted"


def _statuses(after: Aftermath) -> Iterator[str]:
    yield from after.clients.faults


def _programs(after: Aftermath) -> Iterator[str]:
    for error in after.tempest.take_failures():
        yield f"a program raised {error!r}"


ORACLES: Final[Mapping[str, Oracle]] = {
    "no program raises anything": _programs,
    "no request ends in an error of ours": _statuses,
    "a call of a tool is carried out at most once": _calls_of_tools,
    "a message is answered once": _answers_to_messages,
    "a sender is answered in order": _order_of_messages,
    "a message has one run": _runs_of_messages,
    "numbers are dense": _numbers,
    "every run comes to an end": _ends,
    "a complete run has its whole answer": _contents,
    "the audit trail is whole": _audit,
    "a session takes a new run": _sessions,
    "what was acknowledged is there, once": _acknowledged,
    "a follower sees what is stored, without gap or repeat": _followers,
    "a cancelled run is not worked on": _cancellations,
    "a run is interrupted only with its node": _interruptions,
}
"""The promises, by the sentence that a failure shows."""


def find_broken(after: Aftermath, oracles: Mapping[str, Oracle]) -> Iterator[Broken]:
    """Yield every broken promise."""
    for promise, oracle in oracles.items():
        for found in oracle(after):
            yield Broken(promise, found)
