"""The clients of a storm: programs that send requests, and keep what they were told.

A client knows nothing of faults.  It takes a connection that breaks, and an answer that does not
come, as a client has to: where the same request may be sent again it does that, to the next node.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from attrs import define, field

from legation.effects import AwaitNudge, Program, Sleep
from legation.http.messages import Request, Streamed

from ..event_stream import ServerSentEvent, parse_events
from ..scheduling import Task
from .decisions import Ask, Cancel, Continue, Decision, Delete, Deliver, Follow, Settle
from .scene import BY_HAND, COMPONENTS, sign
from .tempest import Machine, Tempest

__all__ = ["Asked", "Clients", "Delivered", "Exchange", "Followed"]

_PAUSE_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 40.0
"""So long a client waits for an answer, or for its turn."""

_MOST_TRIES: Final = 30
_DOUBTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "confirm": {"confirmed": True},
    "reject": {"confirmed": False, "confirmation_note": "nobody knows"},
    "result": {"result": BY_HAND},
}
"""The answers to the doubt whether a tool was carried out."""

_FORM: Final = ((b"host", b"x"), (b"content-type", b"application/x-www-form-urlencoded"))


@define(eq=False)
class Exchange:
    """A request and what came back so far.

    Attributes:
        status: None before the head of the response, and where the connection broke before it.
        over: Nothing more comes; `whole` where the response came to its end.
    """

    topic: str
    machine: int
    status: int | None = None
    body: bytes = b""
    over: bool = False
    whole: bool = False
    task: Task[None] | None = None

    def json(self) -> Any:
        """Return the body, decoded."""
        return json.loads(self.body)

    def events(self) -> tuple[ServerSentEvent, ...]:
        """Return the events that came whole."""
        received = bytes(self.task.received) if self.task is not None else b""
        complete, end, _ = received.rpartition(b"\n\n")
        return parse_events(complete + end)


@define(eq=False)
class Asked:
    """A run that was asked for, as its client knows it.

    Attributes:
        run_ids: Its ids, as they came with a success; more than one is a broken promise.
        ended: The final state that a client was told.
        cancelled: When a cancellation was confirmed, in seconds.
        continued: How many answers to its pauses were taken.
        confirmed: The calls that somebody confirmed: the run that each is of, and its id.
    """

    ask: Ask
    run_ids: dict[str, None] = field(factory=dict[str, None])
    ended: str | None = None
    cancelled: float | None = None
    continued: list[int] = field(factory=list[int])
    confirmed: set[tuple[str, str]] = field(factory=set[tuple[str, str]])
    machine: int = 0

    @property
    def run_id(self) -> str | None:
        """Its id, None as long as it is not known."""
        return next(iter(self.run_ids), None)

    @property
    def path(self) -> str:
        """The path of the runs of its component."""
        kind, _ = COMPONENTS[self.ask.component]
        return f"/{kind}/{self.ask.component}/runs"

    @property
    def database(self) -> str:
        """The database that it is stored in."""
        return COMPONENTS[self.ask.component][1]


@define(eq=False)
class Followed:
    """The events of a run as one client saw them, over all of its connections."""

    asked: Asked
    seen: list[ServerSentEvent] = field(factory=list[ServerSentEvent])
    whole: bool = False

    @property
    def after(self) -> str | None:
        """The id of the last event."""
        return self.seen[-1].id if self.seen else None


@define(eq=False)
class Delivered:
    """A message, and when it was taken: its place among those of its sender."""

    deliver: Deliver
    taken: int | None = None
    dead: bool = False


class Clients:
    """All clients of one storm.

    Attributes:
        asked: The runs by their names, those of the storm and the last of each session.
        followed: What was seen of them.
        delivered: The messages by their names.
        deleted: The sessions of which somebody asked the deletion, with their database.
        statuses: How often each status was answered, and by whom a 500.
    """

    def __init__(self, tempest: Tempest) -> None:
        """Prepare them; nobody asks for anything yet."""
        self.tempest = tempest
        self.asked: dict[str, Asked] = {}
        self.followed: list[Followed] = []
        self.delivered: dict[str, Delivered] = {}
        self.deleted: set[tuple[str, str]] = set()
        self.faults: list[str] = []
        self._programs: list[Task[None]] = []
        self._exchanges = 0
        for decision in tempest.decisions:
            if isinstance(decision, Ask):
                self.asked[decision.name] = Asked(decision)
            elif isinstance(decision, Deliver):
                self.delivered[decision.name] = Delivered(decision)

    @property
    def busy(self) -> bool:
        """Whether one of them still has something to do."""
        return any(not task.done for task in self._programs)

    def begin(self) -> None:
        """Let all of them begin."""
        for decision in self.tempest.decisions:
            program = self._program(decision)
            if program is not None:
                self._start(type(decision).__name__, program)

    def ask_last(self, name: str, machine: int, component: str, session: str) -> None:
        """Ask for one more run of a session."""
        ask = Ask(0.0, machine, name, session, component, "say:1")
        self.asked[name] = Asked(ask)
        self._start("last", self._ask(self.asked[name]))

    def _start(self, label: str, program: Program[None]) -> None:
        self._programs.append(self.tempest.spawn(label, program))

    def _program(self, decision: Decision) -> Program[None] | None:
        """Return the program of a client; None of what is none, or means a run that is left out."""
        match decision:
            case Ask():
                return self._ask(self.asked[decision.name])
            case Deliver():
                return self._deliver(self.delivered[decision.name])
            case Delete():
                return self._delete(decision)
            case Follow() | Continue() | Settle() | Cancel() if decision.name in self.asked:
                asked = self.asked[decision.name]
                match decision:
                    case Follow():
                        return self._follow_later(decision, asked)
                    case Continue():
                        return self._answer_pause(decision, asked)
                    case Settle():
                        return self._settle(decision, asked)
                    case _:
                        return self._cancel(decision, asked)
            case _:
                return None

    # --- Requests -------------------------------------------------------------------------------

    def send(
        self,
        machine: int,
        method: str,
        target: str,
        form: Mapping[str, str] | None = None,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes = b"",
    ) -> Exchange:
        """Send a request to the node on `machine`; where none serves, the connection is refused."""
        self._exchanges += 1
        exchange = Exchange(f"exchange {self._exchanges}", machine)
        there = self.tempest.machines.get(machine)
        if there is None or there.node is None or there.platform is None or not there.serving:
            exchange.over = True
            return exchange
        fields = [(name.encode(), value.encode()) for name, value in headers]
        content = urlencode(form).encode() if form is not None else body
        length = (b"content-length", str(len(content)).encode())
        request = Request(
            method, target, (*(_FORM if form is not None else _FORM[:1]), length, *fields), "c"
        )
        program = self._exchange(exchange, there, request)
        exchange.task = Task(f"{method} {target}", there.node, program, content)
        self.tempest.scheduler.add(exchange.task)
        return exchange

    def _exchange(self, exchange: Exchange, machine: Machine, request: Request) -> Program[None]:
        platform = machine.platform
        try:
            if platform is None:
                return
            answer = yield from platform.answer(request)
            exchange.status = answer.status
            if isinstance(answer, Streamed):
                exchange.whole = (yield from answer.body) is None
            else:
                exchange.body, exchange.whole = answer.body, True
            if answer.status >= 500 and answer.status != 503:
                self.faults.append(f"{request.method} {request.target}: {answer.status}")
        finally:
            exchange.over = True
            self._wake(exchange)

    def _wake(self, exchange: Exchange) -> None:
        for waiting in self.tempest.outside.state.nudge(exchange.topic):
            waiting.catch_up(exchange.topic)
            self.tempest.scheduler.wake(waiting, None)

    def _wait(self, exchange: Exchange, seconds: float) -> Program[None]:
        """Wait for the end of the response; hang up where that takes longer."""
        until = self.tempest.clock.elapsed + seconds
        while not exchange.over and (left := until - self.tempest.clock.elapsed) > 0:
            yield from AwaitNudge(exchange.topic, min(left, 2.0))
            if exchange.task is not None and exchange.task.done:
                break  # killed before it began
        if exchange.task is not None and not exchange.task.done:
            self.tempest.scheduler.drop(exchange.task)

    def _next(self, machine: int) -> int:
        """Return the machine behind this one, round and round."""
        numbers = sorted(self.tempest.machines)
        return next(
            (number for number in numbers if number > machine), numbers[0] if numbers else 0
        )

    # --- Runs -----------------------------------------------------------------------------------

    def _ask(self, asked: Asked) -> Program[None]:
        """Ask for a run, and hear of it to its end."""
        ask = asked.ask
        yield from Sleep(ask.at)
        machine = ask.node
        headers = [("idempotency-key", ask.name)] if ask.key else []
        form = {
            "message": f"#{ask.name} {ask.steps}",
            "session_id": ask.session,
            "stream": "true" if ask.mode == "streamed" else "false",
            "background": "true" if ask.mode == "background" else "false",
        }
        tries = _MOST_TRIES if ask.key else 1
        for number in range(tries):
            sent = self.send(machine, "POST", asked.path, form, headers)
            seconds = ask.leaves[0] if ask.leaves and ask.mode == "streamed" else _LONGEST_SECONDS
            yield from self._wait(sent, seconds)
            if self._take(asked, sent, again=number > 0):
                yield from self._hear(asked, sent)
                return
            if sent.status is not None and sent.status < 500 and sent.status != 409:
                return
            machine = self._next(machine)
            yield from Sleep(_PAUSE_SECONDS)

    def _take(self, asked: Asked, sent: Exchange, *, again: bool) -> bool:
        """Keep the id of the run, where the answer has it."""
        if sent.status is None or sent.status >= 300:
            return False
        asked.machine = sent.machine
        if asked.ask.mode == "streamed":
            ids = [event.id for event in sent.events() if event.id]
            if not ids:
                return False
            run_id = ids[0].rpartition(":")[0]
        else:
            run: dict[str, Any] = sent.json()
            run_id = run["run_id"]
            self._keep_end(asked, run)
        if again:
            self.tempest.sightings.note("key found its run")
        asked.run_ids[run_id] = None
        return True

    def _keep_end(self, asked: Asked, run: Mapping[str, Any]) -> None:
        if run["status"] in ("COMPLETED", "CANCELLED", "ERROR"):
            asked.ended = run["status"]

    def _hear(self, asked: Asked, sent: Exchange) -> Program[None]:
        """Follow the run to its end, where the answer was not that."""
        mode = asked.ask.mode
        if mode == "joined":
            return
        followed = Followed(asked)
        self.followed.append(followed)
        if mode == "streamed":
            followed.seen += sent.events()
            followed.whole = sent.whole
        yield from self._follow(followed, sent.machine, asked.ask.leaves[1:])

    def _follow(self, followed: Followed, machine: int, leaves: Sequence[float]) -> Program[None]:
        """Follow a run behind what was seen, on one node after the other."""
        asked, stays = followed.asked, iter(leaves)
        for _ in range(_MOST_TRIES):
            if followed.whole:
                if followed.seen:
                    self._note_deletion(followed)
                return
            after = followed.after
            headers = [("last-event-id", after)] if after else []
            sent = self.send(machine, "GET", f"{asked.path}/{asked.run_id}/events", None, headers)
            yield from self._wait(sent, next(stays, _LONGEST_SECONDS))
            events = sent.events()
            if after and events:
                self._note_resumption(followed, machine)
            followed.seen += events
            followed.whole = sent.whole and sent.status == 200
            if sent.status not in (None, 200, 503):
                return
            if not followed.whole:
                machine = self._next(machine)
                yield from Sleep(_PAUSE_SECONDS)

    def _note_deletion(self, followed: Followed) -> None:
        gone = (followed.asked.database, followed.asked.ask.session) in self.deleted
        if gone and followed.whole and "was deleted" in followed.seen[-1].data:
            self.tempest.sightings.note("run deleted under its followers")

    def _note_resumption(self, followed: Followed, machine: int) -> None:
        self.tempest.sightings.note("stream resumed within a run")
        if machine != followed.asked.machine:
            self.tempest.sightings.note("stream resumed on another node")

    def _follow_later(self, decision: Follow, asked: Asked) -> Program[None]:
        yield from Sleep(decision.at)
        yield from self._know(asked)
        if asked.run_id is not None:
            followed = Followed(asked)
            self.followed.append(followed)
            yield from self._follow(followed, decision.node, decision.leaves)

    def _know(self, asked: Asked) -> Program[None]:
        """Wait a while for the id of a run."""
        for _ in range(_MOST_TRIES):
            if asked.run_id is not None:
                return
            yield from Sleep(_PAUSE_SECONDS)

    def _answer_pause(self, decision: Continue, asked: Asked) -> Program[None]:
        """Look until the run waits for a person, and answer it, from several sides at once."""
        yield from Sleep(decision.at)
        yield from self._know(asked)
        machine, run = yield from self._await_pause(asked, decision.node)
        if run is None:
            return
        doubt = "confirm" if decision.confirmed else "reject"
        form = self._answers(asked, run, doubt, confirmed=decision.confirmed)
        form["stream"] = "true" if decision.stream else "false"
        for _ in range(decision.times):
            self._start("answer", self._go_on(asked, machine, form))
            machine = self._next(machine)

    def _settle(self, decision: Settle, asked: Asked) -> Program[None]:
        """Answer one pause of the run after the other."""
        yield from Sleep(decision.at)
        yield from self._know(asked)
        machine = decision.node
        for _ in range(decision.times):
            machine, run = yield from self._await_pause(asked, machine)
            if run is None:
                return
            form = self._answers(asked, run, decision.doubt, confirmed=True)
            yield from self._go_on(asked, machine, {**form, "stream": "false"})

    def _await_pause(
        self, asked: Asked, machine: int
    ) -> Program[tuple[int, Mapping[str, Any] | None]]:
        """Look until the run waits for a person; return it, and where it was seen."""
        for _ in range(_MOST_TRIES):
            sent = self.send(machine, "GET", f"{asked.path}/{asked.run_id}")
            yield from self._wait(sent, _LONGEST_SECONDS)
            run: dict[str, Any] = sent.json() if sent.status == 200 else {"status": ""}
            if run["status"] == "PAUSED":
                return machine, run
            if run["status"] in ("COMPLETED", "CANCELLED", "ERROR") or sent.status == 404:
                break
            machine = self._next(machine)
            yield from Sleep(_PAUSE_SECONDS)
        return machine, None

    def _answers(
        self, asked: Asked, run: Mapping[str, Any], doubt: str, *, confirmed: bool
    ) -> dict[str, str]:
        """Return the form that answers each requirement: a doubt as `doubt` says."""
        answers: list[dict[str, Any]] = []
        for one in run["requirements"]:
            call, own = one["tool_execution"], confirmed
            answer: Mapping[str, Any] = {"confirmed": confirmed}
            if call.get("in_doubt"):
                self.tempest.sightings.note(f"doubt answered: {doubt}")
                answer, own = _DOUBTS[doubt], doubt == "confirm"
            if own:
                of = one.get("member_run_id") or run["run_id"]
                asked.confirmed.add((of, call["tool_call_id"]))
            answers.append({**call, **_member(one), **answer})
        return {"tools": json.dumps(answers)}

    def _go_on(self, asked: Asked, machine: int, form: Mapping[str, str]) -> Program[None]:
        """Answer a pause, and again as long as nobody says that it was answered."""
        for _ in range(_MOST_TRIES):
            sent = self.send(machine, "POST", f"{asked.path}/{asked.run_id}/continue", form)
            yield from self._wait(sent, _LONGEST_SECONDS)
            if sent.status == 200:
                asked.continued.append(sent.status)
                self._note_continuation(asked, machine)
                if form["stream"] == "true":
                    followed = Followed(asked, list(sent.events()), sent.whole)
                    self.followed.append(followed)
                    if followed.seen:
                        yield from self._follow(followed, machine, ())
                else:
                    self._keep_end(asked, sent.json())
                return
            if sent.status is not None and sent.status < 500:
                return
            machine = self._next(machine)
            yield from Sleep(_PAUSE_SECONDS)

    def _note_continuation(self, asked: Asked, machine: int) -> None:
        if machine != asked.machine:
            self.tempest.sightings.note("pause answered on another node")

    def _cancel(self, decision: Cancel, asked: Asked) -> Program[None]:
        yield from Sleep(decision.at)
        yield from self._know(asked)
        sent = yield from self._insist(decision.node, "POST", f"{asked.path}/{asked.run_id}/cancel")
        if sent is not None and sent.status == 200 and asked.cancelled is None:
            asked.cancelled = self.tempest.clock.elapsed

    def _delete(self, decision: Delete) -> Program[None]:
        yield from Sleep(decision.at)
        self.deleted.add((decision.database, decision.session))
        target = f"/sessions/{decision.session}?db_id={decision.database}"
        yield from self._insist(decision.node, "DELETE", target)

    def _insist(
        self, machine: int, method: str, target: str, **options: Any
    ) -> Program[Exchange | None]:
        """Send a request until it has an answer; return that."""
        for _ in range(_MOST_TRIES):
            sent = self.send(machine, method, target, **options)
            yield from self._wait(sent, _LONGEST_SECONDS)
            if sent.status is not None and sent.status < 500:
                return sent
            machine = self._next(machine)
            yield from Sleep(_PAUSE_SECONDS)
        return None

    # --- Messages -------------------------------------------------------------------------------

    def _deliver(self, delivered: Delivered) -> Program[None]:
        """Deliver a message as a provider does: until it is taken."""
        deliver, clock = delivered.deliver, self.tempest.clock
        yield from Sleep(deliver.at)
        data = {"sender": deliver.sender, "text": f"#{deliver.name} {deliver.steps}"}
        body = json.dumps({"type": "message", "data": data}).encode()
        machine, left = deliver.node, deliver.times
        for _ in range(_MOST_TRIES):
            signed = sign(deliver.name, clock.start_us + clock.elapsed_us, body)
            sent = self.send(machine, "POST", f"/{deliver.channel}/webhook", None, signed, body)
            yield from self._wait(sent, _LONGEST_SECONDS)
            if sent.status == 200:
                delivered.taken = True
                left -= 1
                if not left:
                    return
            machine = self._next(machine)
            yield from Sleep(_PAUSE_SECONDS)


def _member(requirement: Mapping[str, Any]) -> dict[str, str]:
    """Return what says of which member of a team the call is."""
    member = requirement.get("member_run_id")
    return {} if member is None else {"member_run_id": member}
