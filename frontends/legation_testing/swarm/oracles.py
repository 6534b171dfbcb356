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

from attrs import define, field, frozen

from legation.store.audit import PAGE_COLUMNS
from legation.store.audit_pages import Page
from legation.store.audit_verify import Intact, Verifier

from ..event_stream import ServerSentEvent
from .clients import Asked, Clients, Followed
from .decisions import SetClock, Start, end_of
from .promises import Broken
from .scene import DATABASES, ENDS_IN_DOUBT, FUNCTIONS, RESULTS, Script, contents_of
from .tempest import Tempest

__all__ = ["ORACLES", "Aftermath", "Oracle", "Run", "find_broken"]

_FINAL: Final = ("COMPLETED", "CANCELLED", "ERROR")
_MOST_TRIES: Final = 3
_OF_CHANNELS: Final = "~channel:"
"""The beginning of the owners of what channels ask for."""

_ONCE: Final = ("use", "permit", "worker")
"""What is not carried out again unless a person says so."""

_ENDS: Final = ("RunCompleted", "RunCancelled", "RunError", "RunPaused")
_CANCEL_SECONDS: Final = 3.0
"""So soon after a cancellation, and after the last fault, nothing more is done for a run."""


@frozen
class _Event:
    """An event as it is stored: its name is without what a team's have before it."""

    seq: int
    full_name: str
    text: str
    name: str
    data: Mapping[str, Any]

    @classmethod
    def of(cls, seq: int, name: str, text: str) -> _Event:
        """Return the event of a row."""
        return cls(seq, name, text, name.removeprefix("Team"), json.loads(text))

    @property
    def run_id(self) -> str:
        """The run that it is of, which may be that of a member."""
        run_id: str = self.data["run_id"]
        return run_id

    @property
    def call(self) -> tuple[str, str]:
        """The call that it is about: its run, and its id."""
        return self.run_id, self.data["tool"]["tool_call_id"]


@frozen
class _Step:
    """A step as it is stored."""

    run_id: str
    place: str
    kind: str
    asked: str
    ended: bool


@frozen
class Run:
    """A run as it is stored, with its events: those of its members are among them."""

    database: str
    owner: str
    session: str
    run_no: int
    run_id: str
    parent: str | None
    component: str
    status: str
    message: str
    output: str | None
    reason: str | None
    last: int
    lease_by: str | None
    cancel_us: int | None
    attempt: int
    events: tuple[_Event, ...]

    @property
    def name(self) -> str:
        """The name of its script."""
        return Script.of(self.message, self.component).name

    @property
    def answered(self) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
        """The calls that people answered, each with the run that it is of, and its id."""
        for event in self.events:
            if event.name == "RunContinued" and event.run_id == self.run_id:
                for call in event.data.get("tools", ()):
                    of = call.get("member_run_id") or self.run_id
                    yield (of, call["tool_call_id"]), call

    @property
    def settled(self) -> Counter[tuple[str, str]]:
        """The calls that were over when people had answered."""
        return Counter(one for one, call in self.answered if not call["confirmed"])

    @property
    def pauses(self) -> int:
        """The number of its pauses."""
        return sum(one.name == "RunPaused" and one.run_id == self.run_id for one in self.events)


@define(eq=False)
class Aftermath:
    """All that is known when a storm is over."""

    tempest: Tempest
    clients: Clients
    runs: dict[str, Run] = field(factory=dict[str, Run])
    steps: dict[str, list[_Step]] = field(factory=lambda: defaultdict[str, list[_Step]](list))

    def __attrs_post_init__(self) -> None:
        for database in DATABASES:
            self._read(database)

    def rows(self, database: str, select: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        connection = self.tempest.world.databases.connection(database)
        return connection.execute(select).fetchall()

    def _read(self, database: str) -> None:
        events: dict[str, list[_Event]] = defaultdict(list)
        for run_id, *event in self.rows(
            database, "select run_id, seq, name, data from events order by run_id, seq"
        ):
            events[run_id].append(_Event.of(*event))
        for row in self.rows(
            database,
            """select owner, session_id, run_no, run_id, parent_run_id, component_id, status, input,
            output, reason, events, lease_by, cancel_us, attempt
            from runs order by session_id, run_no""",
        ):
            message = json.loads(row[7])["message"]
            stored: tuple[Any, ...] = tuple(events.get(row[3], ()))
            columns: tuple[Any, ...] = (database, *row[:7], message, *row[8:], stored)
            run = Run(*columns)
            self.runs[run.run_id] = run
        select = "select run_id, place, kind, asked, outcome is not null from steps"
        for run_id, *step in self.rows(database, select):
            self.steps[run_id].append(_Step(run_id, *step))

    @property
    def of_clients(self) -> Iterator[Run]:
        """The runs that are no member's."""
        return (run for run in self.runs.values() if run.parent is None)

    @property
    def by_name(self) -> Mapping[str, Run]:
        """The runs that are no member's, by the names of their scripts."""
        return {run.name: run for run in self.of_clients}

    @property
    def gone(self) -> set[str]:
        """The names of the runs whose session was deleted, or was to be.

        A request that comes again behind the deletion of its session begins anew.
        """
        return {name for name, asked in self.clients.asked.items() if self.is_deleted(asked)}

    @property
    def confirmed(self) -> Counter[tuple[str, str]]:
        """The number of times that each confirmed call went on: by its script and place."""
        return Counter(
            _place_of(call, run)
            for run in self.of_clients
            for _, call in run.answered
            if call["confirmed"]
        )

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
        """Whether a reply waits for the clock of its database, or is too old by a node's."""
        dead = self.rows("main", "select 1 from outbox where state = 'dead'")
        waiting = self.rows("main", "select 1 from outbox where state = 'ready'")
        return bool(waiting) or (bool(dead) and not self.clocks_agree)

    def is_deleted(self, asked: Asked) -> bool:
        """Tell whether somebody deleted the session of a run, or tried to."""
        return (asked.database, asked.ask.session) in self.clients.deleted

    @property
    def last_fault(self) -> float:
        """The time at which the last fault was over."""
        return max((end_of(one) for one in self.tempest.decisions), default=0.0)


def _place_of(call: Mapping[str, Any], run: Run) -> tuple[str, str]:
    """Return the script and the place of a call; that of a function has none."""
    arguments = call["tool_args"]
    return arguments.get("name", run.name), arguments.get("place", "")


Oracle: TypeAlias = Callable[[Aftermath], Iterator[str]]


# --- (a) The world ------------------------------------------------------------------------------


def _calls_of_tools(after: Aftermath) -> Iterator[str]:
    gone, confirmed, runs = after.gone, after.confirmed, after.by_name
    for (kind, name, place), times in after.tempest.scene.carried_out.items():
        top = name.partition("/")[0]
        if times == 1 or top in gone:
            continue
        if kind in _ONCE:
            most = max(1, (kind != "permit") + confirmed[name, place])
        else:
            most = runs[top].attempt if top in runs else times
        if times > most:
            yield f"{kind} {place} of #{name} was carried out {times} times"


def _results(after: Aftermath) -> Iterator[str]:
    """Compare the result that a tool is said to have returned with those that were carried out."""
    for run in after.of_clients:
        for event in run.events:
            if event.name != "ToolCallCompleted" or event.call in run.settled:
                continue
            call = event.data["tool"]
            kind, place = call["tool_name"], _place_of(call, run)
            done = after.tempest.scene.carried_out[kind, *place]
            if kind in RESULTS and not call["tool_call_error"] and not done:
                yield f"{kind} {place} returned {call['result']}, and was not carried out"


def _confirmations(after: Aftermath) -> Iterator[str]:
    for name, asked in after.clients.asked.items():
        run = after.runs.get(asked.run_id or "")
        for one, call in () if run is None else run.answered:
            if call["confirmed"] and one not in asked.confirmed:
                yield f"{call} of {name} is confirmed, and nobody did that"


def _keys(after: Aftermath) -> Iterator[str]:
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for call, keys in after.tempest.scene.keys.items():
        if len(keys) > 1 and call[0].partition("/")[0] not in after.gone:
            yield f"book {call[1]} of #{call[0]} has the keys {sorted(keys)}"
        for key in keys:
            places[key].add(call)
    for key, calls in places.items():
        if len(calls) > 1:
            yield f"the key {key} is that of {sorted(calls)}"


def _questions(after: Aftermath) -> Iterator[str]:
    """Each time that a run is taken up, an answer is asked for at most once."""
    gone, runs = after.gone, after.by_name
    for (name, number), times in after.tempest.scene.asked.items():
        run = runs.get(name.partition("/")[0])
        if run is None or run.name in gone:
            continue
        if times > (most := max(1, run.attempt - run.pauses + 1)):
            yield f"answer {number} of #{name} was asked for {times} times, and not {most}"


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
        and new.channel = old.channel
        and (new.received_us, new.position) > (old.received_us, old.position)
        where old.state = 'done' and new.state = 'done'""",
    )
    for sender, old, new in pairs:
        if place.get(old, 0) > place.get(new, len(place)):
            yield f"{sender} had the answer to {new} before that to {old}"


def _runs_of_messages(after: Aftermath) -> Iterator[str]:
    begun = Counter(run.name for run in after.of_clients)
    for name in after.clients.delivered:
        if begun[name] > 1:
            yield f"{begun[name]} runs answered the message {name}"


# --- (b) Rows -----------------------------------------------------------------------------------


def _numbers(after: Aftermath) -> Iterator[str]:
    for run in after.runs.values():
        numbers = [event.seq for event in run.events]
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
    name = run.events[-1].full_name if run.events else "none"
    expected = {"ERROR": "Error"}.get(run.status, run.status.capitalize())
    if not name.endswith(f"Run{expected}"):
        yield f"run {run.run_id} is {run.status}, and its last event is {name}"


def _contents(after: Aftermath) -> Iterator[str]:
    for run in after.runs.values():
        if run.status != "COMPLETED":
            continue
        expected = contents_of(run.component, run.message)
        if json.loads(run.output or "{}")["content"] not in expected:
            yield f"run {run.run_id} ({run.message}) is complete with {run.output}"


def _token_usage(after: Aftermath) -> Iterator[str]:
    for run in after.runs.values():
        if run.status not in ("COMPLETED", "PAUSED") or run.component in FUNCTIONS:
            continue
        top = run
        while top.parent is not None:
            top = after.runs[top.parent]
        answers = [
            one.data
            for one in top.events
            if one.name == "ModelRequestCompleted" and one.run_id == run.run_id
        ]
        spent = json.loads(run.output or "{}")["metrics"]
        for tokens in ("input_tokens", "output_tokens"):
            if spent[tokens] != (total := sum(one[tokens] for one in answers)):
                yield f"run {run.run_id} says {tokens} {spent[tokens]}; its answers: {total}"


# --- What happened, as it is told ---------------------------------------------------------------


def _lives(after: Aftermath) -> Iterator[str]:
    """The log of a run says of each thing once that it began, and once that it ended."""
    for run in after.of_clients:
        counts, settled = Counter(_life(event) for event in run.events), run.settled
        for (name, *what), times in counts.items():
            if name and times > 1:
                yield f"run {run.run_id} has {times} times {name} of {what}"
            if name == "ToolCallCompleted" and not counts["ToolCallStarted", *what]:
                yield f"run {run.run_id} has the end of the call {what}, and no begin"
            if name == "ToolCallStarted" and run.status == "COMPLETED":
                over = counts["ToolCallCompleted", *what] + counts["ToolCallError", *what]
                if not over and not settled[what[0], what[1]]:
                    yield f"run {run.run_id} is complete, and the call {what} has no end"


def _life(event: _Event) -> tuple[str, ...]:
    match event.name:
        case "RunStarted" | "RunCompleted" | "RunCancelled" | "RunError":
            return event.name, event.run_id
        case "ToolCallStarted" | "ToolCallCompleted" | "ToolCallError":
            return event.name, *event.call
        case _:
            return ("",)


def _answers_of_models(after: Aftermath) -> Iterator[str]:
    """No answer that is stored is asked for again: of a complete run each is there once."""
    for run in after.of_clients:
        answered = Counter(
            event.run_id for event in run.events if event.name == "ModelRequestCompleted"
        )
        for run_id, times in answered.items():
            one = after.runs.get(run_id)
            if one is None or one.status != "COMPLETED":
                continue
            script = Script.of(one.message, one.component)
            asked = sum(name == script.name for name, _ in after.tempest.scene.asked)
            if times > asked:
                yield f"run {run_id} has {times} answers to {asked} questions"


def _steps(after: Aftermath) -> Iterator[str]:
    for run_id, steps in after.steps.items():
        run = after.runs.get(run_id)
        if run is None or run.parent is not None:
            yield f"there are {len(steps)} steps of {run_id}, which is no run at the top"
            continue
        begun = [step for step in steps if not step.ended]
        if run.status == "COMPLETED" and len(begun) > run.settled.total():
            yield f"run {run_id} is complete, and {begun} have no outcome"


def _audit(after: Aftermath) -> Iterator[str]:
    for database in DATABASES:
        rows = after.rows(database, f"select {PAGE_COLUMNS} from trail order by writer, last")
        verifier = Verifier()
        verdict = verifier.take(Page(*columns) for columns in rows)
        if not isinstance(verdict or verifier.end(), Intact):
            yield f"the audit trail of {database}: {verdict or verifier.end()}"


def _sessions(after: Aftermath) -> Iterator[str]:
    for name, asked in after.clients.asked.items():
        if name.startswith("last") and asked.ended != "COMPLETED":
            run = after.runs.get(asked.run_id or "")
            yield f"a new run of session {asked.ask.session} came to {asked.ended}: {run}"


# --- (c) What clients were stored -----------------------------------------------------------------


def _requests(after: Aftermath) -> Iterator[str]:
    names = Counter(run.name for run in after.of_clients)
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
        if run is not None and len(asked.continued) > run.pauses:
            yield f"{run.pauses} pauses of {name} were answered {len(asked.continued)} times"


def _followers(after: Aftermath) -> Iterator[str]:
    for followed in after.clients.followed:
        run = after.runs.get(followed.asked.run_id or "")
        yield from _check_events(followed, run, gone=after.is_deleted(followed.asked))


def _check_events(followed: Followed, run: Run | None, *, gone: bool) -> Iterator[str]:
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
    stored = {one.seq: (one.full_name, one.text) for one in run.events}
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
        if run.reason != "interrupted":
            continue
        executors = tempest.executors.get(run.run_id, set())
        if executors and not executors & tempest.doubted:
            yield f"run {run.run_id} of {sorted(executors)}, who lived, ended as interrupted"
        if run.component == "worker" and (run.owner.startswith(_OF_CHANNELS) or run.settled):
            continue
        if run.component not in ENDS_IN_DOUBT:
            yield f"run {run.run_id} of {run.component} ended as interrupted"
        elif all(step.ended for step in after.steps[run.run_id] if step.kind == "call"):
            yield f"run {run.run_id} ended as interrupted, and no call of it is in doubt"


def _give_ups(after: Aftermath) -> Iterator[str]:
    for run in after.of_clients:
        if run.reason == "gave_up" and (tries := after.tempest.tried[run.run_id]) < _MOST_TRIES:
            yield f"run {run.run_id} was given up after {tries} tries"
    for run_id, tries in after.tempest.tries.items():
        if tries > _MOST_TRIES:
            yield f"run {run_id} was tried {tries} times, and came no further"


def _statuses(after: Aftermath) -> Iterator[str]:
    yield from after.clients.faults


def _programs(after: Aftermath) -> Iterator[str]:
    for error in after.tempest.take_failures():
        yield f"a program raised {error!r}"


ORACLES: Final[Mapping[str, Oracle]] = {
    "no program raises anything": _programs,
    "no request ends in an error of ours": _statuses,
    "a call of a tool is carried out as often as it may be": _calls_of_tools,
    "what is said to be done was done": _results,
    "a person confirmed what is said to be confirmed": _confirmations,
    "a call has one key, and no other call has it": _keys,
    "an answer is asked for once each time a run is taken up": _questions,
    "a message is answered once": _answers_to_messages,
    "a sender is answered in order": _order_of_messages,
    "a message has one run": _runs_of_messages,
    "numbers are dense": _numbers,
    "every run comes to an end": _ends,
    "a complete run has its whole answer": _contents,
    "a run says what its answers cost": _token_usage,
    "each thing begins once and ends once": _lives,
    "an answer that is stored is not asked for again": _answers_of_models,
    "steps are of runs, and those of a complete run are over": _steps,
    "the audit trail is whole": _audit,
    "a session takes a new run": _sessions,
    "what was acknowledged is there, once": _requests,
    "a follower sees what is stored, without gap or repeat": _followers,
    "a cancelled run is not worked on": _cancellations,
    "a run is interrupted where it says so, with its node": _interruptions,
    "a run is given up after three tries, and not before": _give_ups,
}
"""The promises, by the sentence that a failure shows."""


def find_broken(after: Aftermath, oracles: Mapping[str, Oracle]) -> Iterator[Broken]:
    """Yield every broken promise."""
    for promise, oracle in oracles.items():
        for found in oracle(after):
            yield Broken(promise, found)
