"""The models of a platform in a storm: asked as ever, watched, and wrong where that is planned."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import define, field, frozen

from legation.effects import Program, Sleep
from legation.models.conversation import (
    Listener,
    Message,
    ModelFailed,
    ModelProtocol,
    Prompt,
    Reply,
)

from .calls import Calls
from .plans import Plan

__all__ = ["Witness"]


@define(eq=False)
class Witness:
    """Notes what models are asked and what they want called, in every process there is.

    Attributes:
        asked: How often models were asked.
        again: How often they were asked the same again.
        calls: The calls of the author's functions.
        wanted: How often a tool was asked for in answers, by its name.
        applied: How many of the faults of the plan there was an answer for.
    """

    plan: Plan
    calls: Calls
    asked: int = 0
    again: int = 0
    _answers: int = 0  # in the run that is under way
    _answered_at: int = 0  # the number of effects at the last of them
    _runs: int = 0
    wanted: Counter[str] = field(factory=Counter[str])
    applied: int = 0
    _seen: set[tuple[Message, ...]] = field(factory=set[tuple[Message, ...]])

    def begin_run(self) -> None:
        """Note that the test begins another run."""
        self._runs += 1
        self._answers = 0
        self._answered_at = len(self.calls.effects)

    def find_place(self) -> str:
        """Return how far the test is: its run, the answer of the model in it, the call since."""
        calls = sum(1 for _ in self.calls.list_made(self._answered_at))
        parts = (self._runs, self._answers, calls)
        return ".".join(map(str, parts[: 1 + max(n for n, p in enumerate((1, *parts[1:])) if p)]))

    def watch(self, model: ModelProtocol) -> ModelProtocol:
        """Return `model`, watched by this."""
        return _Watched(self, model)

    def respond(self, model: ModelProtocol, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer as `model` does, or wrongly where that is planned.

        Raises:
            ModelFailed: The model failed, or does as the plan says.
        """
        self.asked += 1
        self.again += prompt.messages in self._seen
        self._seen.add(prompt.messages)
        fault = self.plan.find_fault(self.asked)
        if fault is None:
            reply = yield from model.respond(prompt, listener)
            return self._note(reply)
        reply = yield from model.respond(prompt, _Deaf(listener))
        changed = fault.change(prompt, reply)
        if changed is None:
            listener.hear(reply.content)
            return self._note(reply)
        self.applied += 1
        if fault.seconds:
            yield from listener.settle()
            yield from Sleep(fault.seconds)
        if isinstance(changed, ModelFailed):
            listener.hear(reply.content[: len(reply.content) // 2] if fault.hears_half else "")
            raise changed
        listener.hear(changed.content)
        return self._note(changed)

    def _note(self, reply: Reply) -> Reply:
        self._answers += 1
        self._answered_at = len(self.calls.effects)
        self.wanted.update(call.name for call in reply.calls)
        return reply


class _Watched:
    """A model that is what another one is, and answers through a witness."""

    def __init__(self, witness: Witness, model: ModelProtocol) -> None:
        self._witness, self._model = witness, model
        self.id, self.name, self.provider = model.id, model.name, model.provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer through the witness."""
        return self._witness.respond(self._model, prompt, listener)


@frozen(eq=False)
class _Deaf:
    """A listener that hears no piece of an answer which is changed as a whole."""

    listener: Listener

    def listen(self) -> None:
        """Begin anew."""
        self.listener.listen()

    def hear(self, piece: str) -> None:
        """Leave out a piece."""

    def think(self, piece: str) -> None:
        """Leave out a thought."""

    def settle(self) -> Program[None]:
        """Store and show what was heard before."""
        return self.listener.settle()
