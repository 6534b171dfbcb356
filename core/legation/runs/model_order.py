"""The order of models: the next one is asked where one gives no answer.

That is so for what a provider refuses or limits, for silence, and for an answer that breaks off.
Once somebody who follows the run has heard a piece of an answer, no other model is asked: its own
retries are all there is.  An answer that is too long, or was cut off at its limit, is an answer,
and has been paid for: no other model is asked for it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import evolve

from ..effects import Log, Program
from ..models.conversation import ModelFailed, ModelProtocol, Prompt, Reply, Usage
from ..values import define, frozen
from .event_writer import EventWriter
from .events import ModelRequestStarted
from .model_requests import ask_model

__all__ = ["Answer", "ask_in_order"]

_ANSWERED: Final = frozenset({"too_large", "truncated", "exhausted"})
"""The reasons of a failure that no other model can mend, or that are a test's."""

_UNABLE: Final = "unable"


@frozen(eq=False)
class Answer:
    """The answer of a model, and which one gave it.

    Its usage is that of all that were asked, each with its price.
    """

    reply: Reply
    model: ModelProtocol


def ask_in_order(
    models: Sequence[ModelProtocol],
    request: ModelRequestStarted,
    make_prompt: Callable[[ModelProtocol], Prompt],
    writer: EventWriter,
    count: Callable[[Usage], None],
) -> Program[Answer]:
    """Return the answer of the first of `models` that gives one.

    Args:
        models: At least one; the first has been announced by `request`.
        request: The event of the request, which is noted anew for each further model.
        make_prompt: Returns what a model is asked, with the files that it takes.
        writer: The event writer of the run.
        count: Takes what all have used, with its price, where none gives an answer.

    Raises:
        ModelFailed: That of the last one that was asked.
    """
    spent, number, last = Usage(), 0, len(models) - 1
    while True:
        model = models[number]
        prompt, reason = make_prompt(model), _UNABLE
        if number == last or _is_able(model, prompt):
            listener = _Listener(writer)
            outcome = yield from _ask(writer, model, prompt, listener)
            spent = spent.plus(outcome.usage)
            if isinstance(outcome, Reply):
                return Answer(evolve(outcome, usage=spent), model)
            reason = outcome.reason
            if number == last or reason in _ANSWERED or (listener.heard and writer.shows):
                count(spent)
                raise outcome
        number += 1
        yield from _log(writer, model, reason, models[number])
        asked = {"model": models[number].id, "model_provider": models[number].provider}
        writer.note_request(evolve(request, **asked, again=True))


def _is_able(model: ModelProtocol, prompt: Prompt) -> bool:
    """Return whether `model` can do what `prompt` needs, as far as it says so."""
    tools = not prompt.tools or getattr(model, "takes_tools", True)
    return tools and (prompt.output_schema is None or getattr(model, "takes_schema", True))


def _ask(
    writer: EventWriter, model: ModelProtocol, prompt: Prompt, listener: _Listener
) -> Program[Reply | ModelFailed]:
    try:
        return (yield from ask_model(writer, model, prompt, listener))
    except ModelFailed as error:
        return error


def _log(
    writer: EventWriter, model: ModelProtocol, reason: str, other: ModelProtocol
) -> Program[None]:
    run_id = writer.origin.run.run_id
    fields = (("run_id", run_id), ("model", model.id), ("reason", reason), ("next", other.id))
    yield from Log("warning", "model_replaced", fields)


@define(eq=False)
class _Listener:
    """Passes on what a model says; `heard` is whether there was a piece of it."""

    writer: EventWriter
    heard: bool = False

    def listen(self) -> None:
        self.writer.listen()

    def hear(self, piece: str) -> None:
        self.heard = self.heard or bool(piece)
        self.writer.hear(piece)

    def think(self, piece: str) -> None:
        self.heard = self.heard or bool(piece)
        self.writer.think(piece)

    def settle(self) -> Program[None]:
        return self.writer.settle()
