"""The conversation of `legation chat`, from the first question to the exit code: a program.

It performs nothing: it yields actions (`chat_actions`), and `chat_terminal` performs them.

    waits for a line --message--> follows a run --completed, failed, cancelled--> waits for a line
                                   |        ^
                                   +-paused-+ with the answers of the person

A stream that breaks is opened again behind the last event that was seen, so that nothing is lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from legation.values import define, frozen

from .chat_actions import (
    Call,
    End,
    Ended,
    Event,
    Lost,
    Next,
    Open,
    Print,
    Read,
    Reply,
    Send,
    Stopped,
    Talk,
    Tell,
    TooLong,
    Wait,
)
from .chat_json import as_object, as_objects, as_text
from .chat_questions import Question
from .chat_screen import ENDS, Screen
from .failing import CannotGoOn

__all__ = ["ID", "LEFT", "Kind", "Options", "converse"]

LEFT: Final = 130
"""The exit code after Ctrl-C, by the custom of shells."""

_MOST_CHARACTERS: Final = 1 << 20  # of a message, as of a text in a form
_TRIES: Final = 8
_FIRST_WAIT: Final = 0.5  # seconds
_LONGEST_WAIT: Final = 8.0

_WAITS: Final = {
    True: "The run {run} waits for an answer; /resume asks again.",
    False: "The run {run} waits for an answer: give it in the console, or by /approvals.",
}
_HELP: Final = """\
  /new       begins another session
  /session   says which session this is
  /resume    goes on with a run that waits for an answer, or whose stream was lost
  /quit      ends the chat, as Ctrl-D does
  //text     sends a message that begins with a slash
A \\ at the end of a line: the message goes on in the next one.
Ctrl-C cancels a run; a second time, it ends the chat."""

Kind: TypeAlias = Literal["agent", "team"]

ID: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._~-]{1,128}", re.ASCII)
"""The id of an agent or a team, which stands in paths: no step out of one."""


@frozen
class Options:
    """The options of `legation chat`.

    Attributes:
        url: Where the server is, for the greeting.
        component: The agent or team to talk to, if it was named.
        session_id: The session to go on with, if it was named.
        user_id: The user to talk as, where the server believes it.
        key: What the Idempotency-Keys of this chat begin with; nobody else's may.
        interactive: Whether a person types, and not a pipe.
        as_json: Whether events are printed for a script, in place of text.
        console: Whether to name the console.
    """

    url: str
    component: tuple[Kind, str] | None = None
    session_id: str = ""
    user_id: str = ""
    key: str = "chat"
    interactive: bool = True
    as_json: bool = False
    console: bool = False


def converse(options: Options) -> Talk[int]:
    """Hold a conversation, and return the exit code.

    It is 0 if every run came to its own end, and for whoever types; 1 of a pipe with a run that
    failed, was cancelled or waits; 130 after a second Ctrl-C.

    Raises:
        CannotGoOn: There is nobody to talk to; or, of a pipe, a message was refused.
    """
    try:
        kind, name = options.component or (yield from _choose(options))
        talk = _Conversation(options, f"/{kind}s/{name}/runs", options.session_id)
        yield from talk.hold(f"You talk to the {kind} {name} at {options.url}.")
    except _Left:
        return LEFT
    return 1 if talk.failed and not options.interactive else 0


class _Left(Exception):
    """The person leaves, by a second Ctrl-C."""


class _Quit(Exception):
    """The person ends the conversation."""


# --- whom to talk to ------------------------------------------------------------------------------


def _choose(options: Options) -> Talk[tuple[Kind, str]]:
    """Return the only agent or team; of several, the one that the person chooses."""
    hosted: list[tuple[Kind, str, str]] = []
    kinds: tuple[Kind, ...] = ("agent", "team")
    refused: list[Reply] = []
    for kind in kinds:
        match (yield from Send(Call("GET", f"/{kind}s"))):
            case Lost(reason):
                raise CannotGoOn(f"{options.url} does not answer: {reason}")
            case Stopped():
                raise _Left
            case Reply(200, items):
                hosted += _read_hosted(kind, items)
            case refusal:
                refused.append(refusal)
    if not hosted:
        if refused:
            raise CannotGoOn(f"{options.url}: {_describe_refusal(refused[0])}")
        raise CannotGoOn(f"{options.url} has no agent that you may run")
    if len(hosted) == 1:
        return hosted[0][:2]
    if not options.interactive:
        known = ", ".join(f"--{kind} {name}" for kind, name, _ in hosted)
        raise CannotGoOn(f"say whom to talk to: {known}")
    return (yield from _ask_whom(hosted))


def _read_hosted(kind: Kind, items: object) -> list[tuple[Kind, str, str]]:
    return [
        (kind, as_text(item["id"]), as_text(item.get("description")) or as_text(item.get("name")))
        for item in as_objects(items)
        if ID.fullmatch(as_text(item.get("id")))
    ]


def _ask_whom(hosted: Sequence[tuple[Kind, str, str]]) -> Talk[tuple[Kind, str]]:
    for number, (kind, name, description) in enumerate(hosted, 1):
        yield Tell(f"  {number}  {kind} {name}  {description}".rstrip())
    while True:
        line = yield from Read("Whom do you want to talk to? Number or id: ")
        if isinstance(line, (End, Stopped)):
            raise _Left
        for number, (kind, name, _) in enumerate(hosted, 1):
            if isinstance(line, str) and line.strip() in (str(number), name):
                return kind, name


# --- the conversation -----------------------------------------------------------------------------


@define
class _Run:
    """The last run: how far its events were seen, and what it waits for."""

    id: str = ""
    seen: str = ""
    waiting: Sequence[Mapping[str, Any]] = ()
    over: bool = False


@define
class _Conversation:
    """One conversation.

    Attributes:
        path: Of the runs of the agent or team.
        session_id: The session; empty until the first run names it.
        failed: Whether a run did not complete.
    """

    options: Options
    path: str
    session_id: str
    failed: bool = False
    _run: _Run = field(factory=_Run, init=False)
    _screen: Screen = field(factory=Screen, init=False)
    _sent: int = field(default=0, init=False)
    _cancelling: bool = field(default=False, init=False)
    _asked_to_cancel: bool = field(default=False, init=False)

    def hold(self, greeting: str) -> Talk[None]:
        """Greet, and answer each message until the end of what is typed."""
        if self.options.interactive:
            yield Tell(f"{greeting}  /help lists the commands.")
            if self.options.console:
                yield Tell(f"The console is at {self.options.url}/console")
        try:
            while (message := (yield from self._read_message())) is not None:
                yield from self._answer(message)
        except _Quit:
            return

    def _answer(self, message: str) -> Talk[None]:
        if message.startswith("/") and not message.startswith("//"):
            yield from self._obey(message.split(maxsplit=1)[0])
        elif message.strip():
            self._run = _Run()
            text = message.removeprefix("/")
            form = {"message": text, "stream": "true", **self._owner()}
            yield from self._exchange(Call("POST", self.path, form, self._make_key()))

    def _read_message(self) -> Talk[str | None]:
        """Return the next message, of one line or of several; None at the end."""
        lines: list[str] = []
        stopped = False
        while True:
            line = yield from Read("... " if lines else "> ")
            match line:
                case End():
                    return "\n".join(lines) or None
                case Stopped() if stopped and not lines:
                    raise _Left
                case Stopped():
                    yield Tell("Ctrl-C once more ends the chat.")
                    lines, stopped = [], True
                    continue
                case TooLong(limit):
                    yield from self._refuse(f"a line has at most {limit} characters")
                    lines = []
                    continue
                case _:
                    pass
            if len("\n".join([*lines, line])) > _MOST_CHARACTERS:
                yield from self._refuse(f"a message has at most {_MOST_CHARACTERS} characters")
                lines = []
            elif line.endswith("\\"):
                lines.append(line[:-1])
            else:
                return "\n".join([*lines, line])

    def _obey(self, command: str) -> Talk[None]:
        match command:
            case "/quit" | "/exit":
                raise _Quit
            case "/help":
                yield Tell(_HELP)
            case "/new":
                self.session_id, self._run = "", _Run()
                yield Tell("The next message begins another session.")
            case "/session":
                yield Tell(
                    self.session_id or "There is no session yet: the first message makes it."
                )
            case "/resume":
                yield from self._resume()
            case _:
                yield Tell(f"There is no {command}: /help lists the commands.")

    def _resume(self) -> Talk[None]:
        if not self._run.id or self._run.over:
            yield Tell("There is no run to go on with.")
        elif (yield from self._is_paused()):
            yield from self._exchange((yield from self._ask()))
        else:
            yield from self._exchange(self._events())

    # --- one run ----------------------------------------------------------------------------------

    def _exchange(self, call: Call | None) -> Talk[None]:
        """Follow a run to its end, through every pause that the person answers."""
        while call is not None:
            refusal = yield from self._follow(call)
            if refusal is not None and call.path.endswith("/continue") and refusal.status == 409:
                call = yield from self._look_again(refusal)
            elif refusal is not None:
                yield from self._refuse(_describe_refusal(refusal))
                return
            elif self._run.waiting:
                call = yield from self._ask()
            else:
                return

    def _look_again(self, refusal: Reply) -> Talk[Call | None]:
        """Go on with a run that somebody else has answered meanwhile."""
        if (yield from self._is_paused()):
            yield from self._refuse(_describe_refusal(refusal))
            return None
        yield Tell("Somebody else has answered; the run goes on.")
        return self._events()

    def _is_paused(self) -> Talk[bool]:
        reply = yield from Send(Call("GET", f"{self.path}/{self._run.id}", self._owner()))
        if isinstance(reply, Stopped):
            raise _Left
        return isinstance(reply, Reply) and as_object(reply.body).get("status") == "PAUSED"

    def _follow(self, call: Call) -> Talk[Reply | None]:
        """Show a run until it ends or pauses; return the refusal, if the request was refused."""
        self._screen, self._run.waiting = Screen(self._run.id), ()
        self._cancelling = self._asked_to_cancel = False
        tries = 0
        while True:
            before = self._run.seen
            outcome = yield from self._open_and_show(call)
            if outcome is None or isinstance(outcome, Reply):
                return outcome
            if self._run.seen != before:
                tries = 0
            if isinstance(outcome, Lost):
                tries += 1
                if outcome.final or tries > _TRIES:
                    yield from self._give_up(outcome)
                    return None
                if tries == 1:
                    yield Tell(f"({outcome.reason}: the stream is opened again)")
                stopped = yield from Wait(min(_FIRST_WAIT * 2 ** (tries - 1), _LONGEST_WAIT))
                outcome = outcome if stopped is None else stopped
            if isinstance(outcome, Stopped):
                yield from self._stop()
            call = self._events() if self._run.id else call

    def _open_and_show(self, call: Call) -> Talk[Reply | Lost | Stopped | None]:
        """Open a stream and show its events; None when the run is over or waits.

        A server that fails is one that is lost, unless it refuses what was asked.
        """
        match (yield from Open(call)):
            case None:
                outcome = yield from self._show_events()
                if outcome is not None:
                    yield from self._screen.end()
                return Lost("the connection broke") if isinstance(outcome, Ended) else outcome
            case Reply(status) as refusal if status >= 500 or (status == 429 and self._run.id):
                return Lost(_describe_refusal(refusal))
            case other:
                return other

    def _show_events(self) -> Talk[Ended | Stopped | None]:
        while True:
            event = yield from Next()
            if not isinstance(event, Event):
                return event
            if event.name == "token_expired":
                raise CannotGoOn(
                    f"{event.data.get('detail')}: the run goes on; with another token,"
                    f" --session {self.session_id or event.data.get('path')} goes on here"
                )
            yield from self._show(event)
            if self._note(event):
                return None
            if self._cancelling:
                yield from self._cancel()

    def _show(self, event: Event) -> Talk[None]:
        if self.options.as_json:
            yield Print(event.data)
            return
        yield from self._screen.show(event)

    def _note(self, event: Event) -> bool:
        """Keep what the rest of the run needs of `event`; return whether it is the last one."""
        run, data = self._run, event.data
        run.seen = event.id or run.seen
        if not self._screen.is_own(event):
            return False
        run.id = self._screen.run_id
        self.session_id = as_text(data.get("session_id")) or self.session_id
        name = event.name.removeprefix("Team")
        if name not in ENDS:
            return False
        run.over = name != "RunPaused"
        self.failed = self.failed or name in ("RunError", "RunCancelled")
        if name == "RunPaused":
            run.waiting = as_objects(data.get("requirements"))
        return True

    def _stop(self) -> Talk[None]:
        """Cancel the run, after Ctrl-C; a run without an id yet, as soon as it has one."""
        if self._cancelling:
            raise _Left
        self._cancelling = True
        yield Tell("Cancelling the run; Ctrl-C once more ends the chat.")
        yield from self._cancel()

    def _cancel(self) -> Talk[None]:
        """Ask the server once to cancel the run, if its id is known."""
        if self._asked_to_cancel or not self._run.id:
            return
        self._asked_to_cancel = True
        path = f"{self.path}/{self._run.id}/cancel"
        reply = yield from Send(Call("POST", path, self._owner(), self._make_key()))
        match reply:
            case Stopped():
                raise _Left
            case Lost(reason):
                yield Tell(f"Error: {reason}")
            case Reply(status) if status >= 400 and status != 409:
                yield Tell(f"Error: {_describe_refusal(reply)}")
            case _:
                return

    def _give_up(self, lost: Lost) -> Talk[None]:
        if lost.final or not self.options.interactive:
            raise CannotGoOn(lost.reason)
        self.failed = True
        rest = ": /resume looks for the run again" if self._run.id else ""
        yield Tell(f"Error: {lost.reason}{rest}")

    # --- what a run waits for ---------------------------------------------------------------------

    def _ask(self) -> Talk[Call | None]:
        """Ask the person for each answer; return the request with all of them, or None."""
        answers: list[Mapping[str, Any]] = []
        for requirement in self._run.waiting:
            answer = yield from self._ask_one(Question.of(requirement))
            if answer is None:
                self.failed = True
                yield Tell(_WAITS[self.options.interactive].format(run=self._run.id))
                return None
            answers.append(answer)
        form = {"tools": json.dumps(answers), "stream": "true", **self._owner()}
        return Call("POST", f"{self.path}/{self._run.id}/continue", form, self._make_key())

    def _ask_one(self, question: Question) -> Talk[Mapping[str, Any] | None]:
        yield Tell(question.text)
        lines: list[str] = []
        while True:
            line = yield from Read(question.prompt)
            if isinstance(line, (End, Stopped)):
                return None
            if isinstance(line, TooLong):
                yield Tell(f"Error: a line has at most {line.limit} characters")
                continue
            if question.takes_text and line.endswith("\\"):
                lines.append(line[:-1])
                continue
            answer = question.read("\n".join([*lines, line]))
            if answer is not None:
                return answer
            yield Tell(question.hint)

    # --- requests ---------------------------------------------------------------------------------

    def _events(self) -> Call:
        """Return the request for the events behind the last one that was seen."""
        path = f"{self.path}/{self._run.id}/events"
        return Call("GET", path, self._user(), after=self._run.seen)

    def _owner(self) -> dict[str, str]:
        session = {"session_id": self.session_id} if self.session_id else {}
        return {**session, **self._user()}

    def _user(self) -> dict[str, str]:
        return {"user_id": self.options.user_id} if self.options.user_id else {}

    def _make_key(self) -> str:
        self._sent += 1
        return f"{self.options.key}-{self._sent}"

    def _refuse(self, sentence: str) -> Talk[None]:
        """Say what went wrong; a pipe is not read any further.

        Raises:
            CannotGoOn: Nobody types who could do better.
        """
        if not self.options.interactive:
            raise CannotGoOn(sentence)
        self.failed = True
        yield Tell(f"Error: {sentence}")


def _describe_refusal(reply: Reply) -> str:
    """Return the sentence of a response that is no success, with what to do about it."""
    detail = as_text(as_object(reply.body).get("detail")) or "the server refused"
    sentence = f"{detail} ({reply.status})"
    if reply.status == 401:
        return f"{sentence}: give a token by LEGATION_TOKEN or --token"
    return sentence
