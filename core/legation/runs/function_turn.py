"""The turn of an agent that is a function of the user's, whatever is behind it.

The function is called once, with as much as it names of what there is to know about the run.  What
it gives piece by piece is an answer in the making, as a model's is; that it is called is stored
before it is called.  After a crash it is in doubt, as the call of a tool would be: it is called
again where its agent allows that, else a person is asked, or the run ends.

What it yields beside its answer are steps (`function_steps`): calls with effects and answers of
models, each of which is done once, however often the function is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, field

from ..access.decide import name_of
from ..effects import (
    CallFunction,
    CloseStream,
    NextPiece,
    Now,
    Piece,
    Program,
    Raised,
    Returned,
    TimedOut,
    Yielding,
)
from ..http.bodies.json_text import BadJson, parse_json
from ..http.messages import compact_json
from ..models.conversation import Message, ToolCall, storable
from ..tools import (
    ContextParameter,
    FinalAnswer,
    Hosted,
    ToolError,
    render,
)
from ..tools.shapes import Shape
from ..tools.state_values import Unstorable, combine_changes
from ..tools.structured import check_output
from ..values import define
from .agent_turn import INTERRUPTED, Answered, Outcome, Stopped, Waits, resolve_doubt
from .contexts import Context, log_refused_state, open_context
from .event_writer import EventWriter
from .events import ToolCallCompleted, ToolCallError, ToolCallStarted
from .function_steps import FunctionSteps, Step, find_steps
from .instructions import detach
from .meter import CANCELLED, ERROR
from .payloads import call_sentence, tool_execution
from .state_writer import StateTooLarge
from .turn_state import CallState, Standing, TurnState, unlike

__all__ = ["MAX_ANSWER", "FunctionTurn"]

MAX_ANSWER: Final = 1 << 22
"""How long the answer of a function may be, in characters."""

_LATE: Final = "The agent took longer than {:g} seconds"
_LONG: Final = f"The agent's answer is longer than {MAX_ANSWER} characters"
_NO_JSON: Final = "The agent gave a value that JSON does not have ({})"
_IN_DOUBT: Final = (
    "The run was interrupted: the node that executed it went away, and whether the agent came to"
    " its end is not known"
)
_REFUSED: Final = "The agent failed: {}"
_SHAPE: Final = "The agent's answer does not have the shape asked for: {}"


class _Over(Exception):
    """Leaves the reading of an answer; never leaves this module."""

    def __init__(self, stopped: Stopped | Waits) -> None:
        super().__init__(type(stopped).__name__)
        self.stopped = stopped


@define(eq=False)
class FunctionTurn:
    """Takes a turn by calling a function; `state` is as that of a `Turn`.

    Attributes:
        hosted: The function, and the names of the arguments that it takes.
        seconds: How long it may be silent.
        schema: JSON schema of the answer; None if it is whatever it is.
        again: Whether it may be called a second time: `safe`, or `never`.
        in_doubt: What becomes of it otherwise: `ask`, or anything else to end the run.
        shape: The shape that the answer is read by, where the schema is that of a class.
    """

    writer: EventWriter
    hosted: Hosted
    state: TurnState
    seconds: float
    schema: Mapping[str, Any] | None = None
    again: str = "never"
    in_doubt: str = "ask"
    shape: Shape | None = None
    _contexts: list[Context] = field(factory=list[Context], init=False)
    _steps: FunctionSteps | None = field(default=None, init=False)
    _value: Any = field(default=None, init=False)
    _length: int = field(default=0, init=False)

    def take(self) -> Program[Outcome]:
        """Call the function, and go on to the end of its answer.

        Raises:
            CancelAsked: Somebody wants the run to end.
            LeaseLost: The run is no longer ours.
            Exception: What the function raised.
        """
        self.writer.listen()
        if (outcome := self._resolve_doubt()) is not None:
            return outcome
        yield from self.writer.settle()
        began_us = self.writer.journal.now_us
        before = len(self.writer.heard)
        result = self._find_result()
        try:
            if result is None:
                yield from self._call()
            else:
                self._take(result)
            answered = self._answer("".join(self.writer.heard[before:]))
            yield from self._keep_state()
        except _Over as over:
            return over.stopped
        now_us = self.writer.journal.now_us = yield from Now()
        self.writer.look()
        first_us = self.writer.first_us
        seconds = None if first_us is None else (first_us - began_us) / 1_000_000
        text = answered.content if isinstance(answered.content, str) else None
        said = Message("assistant", compact_json(answered.content) if text is None else text)
        if (whole := self.state.whole_call) is not None and result is None:
            done = whole.with_result(render(said.content) or "")
            self._tell(evolve(done, ended_us=now_us))
        self.state = evolve(self.state.with_message(said, now_us), first_seconds=seconds)
        return answered

    def _resolve_doubt(self) -> Outcome | None:
        """Decide what becomes of a call that a crash interrupted, or that a person answered."""
        call = self.state.whole_call
        if call is not None and call.standing is Standing.DONE:
            if not self.writer.resumed:  # else that is in the log already
                self._tell(call)
            return Stopped(INTERRUPTED, call.result or "") if call.failed else None
        way = resolve_doubt(self.again, self.in_doubt)
        if not self.writer.resumed or way == "again":
            return None
        if way != "ask":
            return Stopped(INTERRUPTED, _IN_DOUBT)
        if call is None:
            call = self._doubt()
            self.writer.note(ToolCallStarted(tool_execution(call)))
        self._put(evolve(call, standing=Standing.CONFIRM, in_doubt=True))
        return Waits()

    def _put(self, whole: CallState) -> None:
        """Put the call of the function itself before those that it makes."""
        own = (call for call in self.state.calls if call.place)
        self.state = evolve(self.state, calls=(whole, *own))

    def _doubt(self) -> CallState:
        """Return the call of the function, which a person is to be asked about."""
        now_us = self.writer.journal.now_us
        name = getattr(self.hosted.function, "__name__", type(self.hosted.function).__name__)
        return CallState(
            call=ToolCall(unlike("call_1", self._list_ids()), name, "{}"),
            created_us=now_us,
            needs=Standing.CONFIRM,
            started_us=now_us,
            announced=True,
        )

    def _list_ids(self) -> list[str]:
        return [call.call.id for call in self.state.calls]

    def _find_result(self) -> str | None:
        """Return the answer that a person gave in place of the function."""
        call = self.state.whole_call
        return None if call is None or call.standing is not Standing.DONE else call.result

    def _tell(self, call: CallState) -> None:
        execution = tool_execution(call)
        self._put(call)
        self.writer.note(ToolCallCompleted(call_sentence(call), execution))
        if call.failed:
            self.writer.note(ToolCallError(execution, call.result))

    def _call(self) -> Program[None]:
        arguments = yield from self._open_arguments()
        match (yield from CallFunction(self.hosted.function, arguments, self.seconds)):
            case Returned(value):
                self._take(value)
            case Yielding(stream):
                yield from self._follow(stream)
            case Raised(error):
                raise _translate_error(error)
            case _:
                raise _Over(Stopped("timeout", _LATE.format(self.seconds)))

    def _open_arguments(self) -> Program[dict[str, Any]]:
        """Return the arguments; with them the function may write to the state of the session."""
        run, given, hosted = self.writer.origin.run, self.writer.journal.given, self.hosted
        parameters = [ContextParameter("session_state")] if "session_state" in hosted.takes else []
        parameters += [] if hosted.context is None else [hosted.context]
        if parameters:
            read = yield from self.writer.journal.read_state()
            for parameter in parameters:
                context = yield from open_context(parameter, self.writer, read)
                self._contexts.append(context)
        fields = {
            "message": self.state.said[0].message.content,
            "session_id": run.session_id,
            "user_id": name_of(run.owner),
            "run_id": run.run_id,
            "session_state": self._contexts[0].run.state if self._contexts else None,
            "history": [
                {"role": message.role, "content": message.content}
                for message in self.state.before
                if message.role in ("user", "assistant") and not message.calls
            ],
            "dependencies": given.dependencies,
            "metadata": given.metadata,
        }
        arguments = {name: fields[name] for name in hosted.takes}
        if hosted.context is not None:
            arguments[hosted.context.name] = self._contexts[-1].run
        return arguments

    def _keep_state(self) -> Program[None]:
        """Let what the function wrote to the state be stored with the end of the run."""
        if not self._contexts:
            return
        try:
            change = combine_changes(*(context.find_change() for context in self._contexts))
            self.writer.change_state(self._contexts[0].read, change)
        except (Unstorable, StateTooLarge) as error:
            sentence = yield from log_refused_state(self.writer, error)
            raise _Over(Stopped("run_failed", _REFUSED.format(sentence))) from None

    def _follow(self, stream: int) -> Program[None]:
        """Take piece after piece; what the function was at, when it is closed, is counted."""
        if self.state.recorded or any(call.place for call in self.state.calls):
            self._steps = self._open_steps()
        try:
            yield from self._take_pieces(stream)
        except BaseException:
            if self._steps is not None:
                self._steps.break_off(CANCELLED)
            raise

    def _take_pieces(self, stream: int) -> Program[None]:
        """Take piece after piece; each is stored before the next is asked for."""
        while True:
            match (yield from NextPiece(stream, self.seconds)):
                case Piece(value):
                    if (steps := find_steps(value)) is None:
                        self._take(value)
                        yield from self.writer.settle()
                    else:
                        yield from self._take_steps(steps, stream)
                case Raised(error):
                    yield from self._break_off()
                    raise _translate_error(error)
                case TimedOut():
                    raise _Over(Stopped("timeout", _LATE.format(self.seconds)))
                case _:
                    return

    def _break_off(self) -> Program[None]:
        """Count the steps at which the function failed."""
        if self._steps is not None and self._steps.busy:
            now_us = yield from Now()
            self._steps.break_off(ERROR, now_us)

    def _open_steps(self) -> FunctionSteps:
        return FunctionSteps(self.writer, self.state, self.in_doubt)

    def _take_steps(self, steps: tuple[Step, ...], stream: int) -> Program[None]:
        """Take steps; what is new is stored before the function goes on."""
        if self._steps is None:
            self._steps = self._open_steps()
        self.writer.journal.now_us = yield from Now()
        stopped = self._steps.take(steps)
        self.state = self._steps.state
        if stopped is not None:
            yield from CloseStream(stream)
            raise _Over(stopped)
        if self._steps.fresh:
            yield from self.writer.settle()

    def _take(self, value: Any) -> None:
        """Take a piece of text, or the value that is the answer; None is neither."""
        if value is None:
            return
        if isinstance(value, FinalAnswer):
            self._take_final(value.content)
            return
        text = render(value, MAX_ANSWER)
        if text is None:
            raise _Over(Stopped("run_failed", _NO_JSON.format(type(value).__name__)))
        self._length += len(text)
        if self._length > MAX_ANSWER:
            raise _Over(Stopped("too_large", _LONG))
        if isinstance(value, str):
            self._hear(text)
            return
        self._value = parse_json(text.encode())
        if isinstance(self._value, BadJson):
            raise _Over(Stopped("run_failed", _NO_JSON.format(self._value.reason)))

    def _take_final(self, content: Any) -> None:
        """Take the whole answer; a text that nobody has heard is told those who listen."""
        if not isinstance(content, str):
            self._take(content)
        elif len(content) > MAX_ANSWER:
            raise _Over(Stopped("too_large", _LONG))
        else:
            self._value = storable(content)
            if not self.writer.heard and (self._steps is None or not self._steps.told):
                self._hear(content)

    def _hear(self, text: str) -> None:
        """Hear a piece of text, unless it was heard before the function was called anew."""
        if self._steps is not None and self._steps.repeats:
            self.writer.heard.append(storable(text))
        else:
            self.writer.hear(text)

    def _answer(self, text: str) -> Answered:
        """Return the answer: the last value that was no text, else all text."""
        content = text if self._value is None else self._value
        if self.schema is None:
            return Answered(content)
        said = content if isinstance(content, str) else compact_json(content)
        shaped = check_output(self.schema, said, self.shape)
        if isinstance(shaped, str):
            raise _Over(Stopped("output_invalid", _SHAPE.format(shaped)))
        return Answered(shaped)


def _translate_error(error: Exception) -> Exception:
    """Return what ends the run: what the author says of it, or the error itself."""
    if isinstance(error, ToolError):
        return _Over(Stopped("run_failed", render(str(error)) or ""))
    return detach(error)
