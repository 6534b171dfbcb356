"""A model that answers by a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from attrs import define, evolve, field, frozen

from legation.effects import Program, Sleep
from legation.http.messages import compact_json
from legation.models.conversation import (
    Listener,
    ModelFailed,
    Prompt,
    Reply,
    Thought,
    ToolCall,
    Usage,
)

__all__ = ["Says", "ScriptedModel", "Step", "call"]


def _pieces(text: str | Iterable[str]) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else tuple(text)


def _calls(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(calls)


@frozen
class Says:
    """One answer.

    Attributes:
        text: Whole, or the pieces that it is heard in.
        calls: Tools to call; `call` makes one.
        after_seconds: How long the model thinks.
        between_seconds: How long it takes from one piece to the next.
        fails: What happens in place of an end, behind the pieces.
        usage: Counted in words where it is None.
        thoughts: Thoughts that it wants to read again with the results of its calls.
        reasoning: The visible part of its thoughts, before the text.
    """

    text: tuple[str, ...] = field(default=(), converter=_pieces)
    calls: tuple[ToolCall, ...] = field(default=(), converter=_calls)
    after_seconds: float = 0.0
    between_seconds: float = 0.0
    fails: ModelFailed | None = None
    usage: Usage | None = None
    thoughts: tuple[Thought, ...] = ()
    reasoning: str = ""


Answer: TypeAlias = "str | Says | Reply | ToolCall | ModelFailed | list[ToolCall]"

Step: TypeAlias = "Answer | Callable[[Prompt], Answer]"
"""What the model does when it is asked: an answer, or a function that finds one."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Return a call of the tool `name`; the model gives it an id."""
    return ToolCall("", name, compact_json(arguments))


def _as_says(answer: Answer) -> Says:
    match answer:
        case str():
            return Says(answer)
        case Says():
            return answer
        case Reply():
            return Says(
                answer.content,
                answer.calls,
                usage=answer.usage,
                thoughts=answer.thoughts,
                reasoning=answer.reasoning,
            )
        case ToolCall():
            return Says(calls=[answer])
        case ModelFailed():
            return Says(fails=answer)
        case _:
            return Says(calls=answer)


def _steps(steps: Iterable[Step]) -> tuple[Step, ...]:
    return (steps,) if isinstance(steps, str) else tuple(steps)


@define(eq=False)
class ScriptedModel:
    """Answers with one step of its script after the other, whoever asks.

        model = ScriptedModel([call("weather", city="Oslo"), "It rains."])
        platform = Platform(agents=[Agent(id="concierge", model=model)])

    It does the same thing every time: calls without an id get `call-1`, `call-2` and so on.  When
    it is asked once more than the script has steps, it fails, with the reason exhausted.

    Attributes:
        steps: The answers: a text, calls, or an exception to fail with.
        id: The id of the model.
        by_prompt: The step goes by how many answers the prompt has, and not by how often the model
            was asked; the last one is repeated.  So a model that is asked again after a crash says
            the same again.
        accepts: The media types of the files that it is sent; of others it reads their text.
        prompts: What it was asked, in order.
    """

    name = "Scripted"
    provider = "Legation"

    document_urls = True

    steps: tuple[Step, ...] = field(default=(), converter=_steps)
    id: str = "scripted"
    accepts: tuple[str, ...] = field(default=("application/pdf", "image/*"), kw_only=True)
    by_prompt: bool = field(default=False, kw_only=True)
    prompts: list[Prompt] = field(factory=list[Prompt], init=False)
    _named: int = field(default=0, init=False)

    @property
    def steps_left(self) -> int:
        """The number of steps of the script that are left."""
        return max(0, len(self.steps) - len(self.prompts))

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer with the next step.

        Raises:
            ModelFailed: The script says so, or has come to its end.
        """
        says = self._next(prompt)
        calls = tuple(self._with_ids(says.calls))
        if says.after_seconds:
            yield from listener.settle()
            yield from Sleep(says.after_seconds)
        listener.think(says.reasoning)
        for number, piece in enumerate(says.text):
            if number and says.between_seconds:
                yield from listener.settle()
                yield from Sleep(says.between_seconds)
            listener.hear(piece)
        if says.fails is not None:
            raise says.fails
        text = "".join(says.text)
        usage = says.usage or _count_words(prompt, text)
        return Reply(text, usage, calls, says.thoughts, says.reasoning)

    def _next(self, prompt: Prompt) -> Says:
        number = len(self.prompts)
        self.prompts.append(prompt)
        if self.by_prompt:
            answers = sum(message.role == "assistant" for message in prompt.messages)
            number = min(answers, len(self.steps) - 1) if self.steps else 0
        if number >= len(self.steps):
            sentence = f"The model's script has {len(self.steps)} steps: this is call {number + 1}"
            raise ModelFailed("exhausted", sentence)
        step = self.steps[number]
        return _as_says(step(prompt) if callable(step) else step)

    def _with_ids(self, calls: tuple[ToolCall, ...]) -> Iterator[ToolCall]:
        for made in calls:
            self._named += not made.id
            yield made if made.id else evolve(made, id=f"call-{self._named}")


def _count_words(prompt: Prompt, said: str) -> Usage:
    heard = sum(len(message.content.split()) for message in prompt.messages)
    return Usage(heard, len(said.split()))
