"""The steps of a function that is an agent: what it does once, however often it is called.

An async generator yields a step before it acts.  By the time that it goes on, the platform has
stored that the step begins, or has given it the outcome that is stored from an attempt before.
What came of it is yielded in turn, and is stored before the generator goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field

from ..models.conversation import Usage
from ..values import define, frozen
from .definition import Again

__all__ = ["CallStep", "FinalAnswer", "ModelStep", "StepEnd"]


@define(eq=False)
class CallStep:
    """A call with an effect, such as a payment, which is shown as the call of a tool.

    Attributes:
        name: What is called.
        arguments: What it is called with: JSON.
        id: Its id in the run, as a model gave it; by default its name.  One that repeats gets a
            number behind it, so of several of the same id the order must be the same each time.
        again: Whether a call that a crash interrupted may be made again: `never`, `safe`, or with
            the same `key`.
        requires_confirmation: The run pauses before the call, until a person agrees.
        external_execution: The run pauses until the client has supplied the result.
        done: It is over, and is not made again: read `result`.
        result: What came of it, as JSON has it.
        failed: Whether that is an error, in words; a person's refusal is one.
        confirmed: The answer of a person who was asked; None where nobody was.
        note: What that person said about it.
        key: The same for this call in every attempt, and for no other call.
    """

    name: str
    arguments: Mapping[str, Any] = field(factory=dict[str, Any])
    id: str = ""
    again: Again = field(default="never", kw_only=True)
    requires_confirmation: bool = field(default=False, kw_only=True)
    external_execution: bool = field(default=False, kw_only=True)
    done: bool = field(default=False, init=False)
    result: Any = field(default=None, init=False)
    failed: bool = field(default=False, init=False)
    confirmed: bool | None = field(default=None, init=False)
    note: str | None = field(default=None, init=False)
    key: str = field(default="", init=False)

    def returned(self, result: Any) -> StepEnd:
        """Return what is to be yielded as soon as the call has returned `result`."""
        return StepEnd(self, result)

    def raised(self, sentence: str) -> StepEnd:
        """Return what is to be yielded as soon as the call has failed."""
        return StepEnd(self, sentence, failed=True)


@define(eq=False)
class ModelStep:
    """A request to a model, whose answer is not paid for twice.

    Attributes:
        model: The id of the model.
        provider: Whose it is.
        key: What is asked, where a function asks several things side by side: the answers of one
            key are given in their order.
        done: The answer is known: read `answer`, and do not ask.
        answer: The answer, as JSON has it.
    """

    model: str
    provider: str = ""
    key: str = ""
    done: bool = field(default=False, init=False)
    answer: Any = field(default=None, init=False)

    def answered(self, answer: Any, usage: Usage | None = None) -> StepEnd:
        """Return what is to be yielded as soon as the answer is there, with what it cost."""
        return StepEnd(self, answer, usage=usage or Usage())


@frozen(eq=False)
class StepEnd:
    """The outcome of a step, as its function has it."""

    step: CallStep | ModelStep
    value: Any
    failed: bool = False
    usage: Usage = Usage()


@frozen
class FinalAnswer:
    """The answer of a run, of whatever kind: text that was yielded before is not part of it.

    Attributes:
        content: A text, or a value that has a form in JSON.
    """

    content: Any
