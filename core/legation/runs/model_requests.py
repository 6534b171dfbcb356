"""One request to a model: its answer, or why there is none, with its price, and counted."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from ..effects import NOW, Program
from ..models.conversation import (
    Listener,
    ModelFailed,
    ModelProtocol,
    Prompt,
    Reply,
    SilentListener,
    Usage,
)
from ..store.failures import StoreFailure
from .event_writer import CancelAsked, EventWriter, Journal, LeaseLost
from .meter import CANCELLED, OK, find_outcome

__all__ = ["ask_model"]

_GIVEN_UP: Final = (GeneratorExit, CancelAsked, LeaseLost, StoreFailure)
"""What ends a request from our side: nothing of it is the model's doing."""

_NOTHING: Final = Usage()


def ask_model(
    writer: EventWriter, model: ModelProtocol, prompt: Prompt, listener: Listener | None = None
) -> Program[Reply]:
    """Return the answer of `model`, its usage with the price, and count the request.

    The journal of `writer` has the time of the answer, or of the failure, then.

    Args:
        writer: Of the run that asks.
        model: It asks by itself again what may succeed then: that is one request.
        prompt: The question.
        listener: It lets `writer` hear the answer; without one nobody hears it.

    Raises:
        ModelFailed: There is no answer; what was used has its price as well.
        Exception: Whatever else a model raises.
    """
    journal, component = writer.journal, writer.origin.run.component_id
    meter, asked_us = journal.meter, journal.now_us
    try:
        reply = yield from model.respond(prompt, listener or SilentListener())
    except _GIVEN_UP:
        meter.count_request(component, model, CANCELLED, None, _NOTHING)
        raise
    except Exception as error:
        journal.now_us = yield NOW
        took_us = journal.now_us - asked_us
        usage = _price_failure(journal, model, error)
        meter.count_request(component, model, find_outcome(error), took_us, usage)
        raise
    now_us = journal.now_us = yield NOW
    if journal.prices is not None or reply.usage.cost_nano is not None:
        reply = evolve(reply, usage=journal.price(model, reply.usage))
    first_us: int | None = None
    if listener is not None:
        writer.look()
        first_us = None if writer.first_us is None else writer.first_us - asked_us
    meter.count_request(component, model, OK, now_us - asked_us, reply.usage, first_us)
    return reply


def _price_failure(journal: Journal, model: ModelProtocol, error: Exception) -> Usage:
    """Return what a request without an answer has used, and note its price on `error`."""
    if not isinstance(error, ModelFailed) or not error.usage.total_tokens:
        return _NOTHING
    error.usage = journal.price(model, error.usage)
    return error.usage
