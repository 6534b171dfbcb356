"""Places for calls of models: no subject has so many that another waits behind them."""

from __future__ import annotations

from typing import Final, TypeVar

from ..effects import NOW, AwaitNudge, Nudge, Program
from ..shares.fair_queue import FairQueue, Ticket
from .event_writer import Journal

__all__ = ["call_in_turn"]

R = TypeVar("R")

_LOOK_SECONDS: Final = 1.0
"""A place that was given without a nudge, as where a run was broken off, shows after this time."""


def call_in_turn(journal: Journal, call: Program[R]) -> Program[R]:
    """Return the result of `call`, which asks a model, when the subject of the run has a place."""
    if journal.member is None:
        return (yield from call)
    shares, run = journal.member.shares, journal.run
    queue, table, subject = shares.calls, shares.table, run.subject or run.owner
    limits = table.of_subject.get(subject) or table.limits_of(subject)
    most = journal.model_calls or limits.model_calls
    ticket = queue.ask(subject, most // shares.nodes or 1, limits.weight)
    if ticket is not None:
        yield from _wait(queue, ticket)
    try:
        if ticket is not None:
            journal.now_us = yield NOW  # the wait is no part of what the model takes
        result = yield from call
    except BaseException:
        queue.leave(subject)
        raise
    for admitted in queue.leave(subject):
        yield from Nudge(admitted.topic)
    return result


def _wait(queue: FairQueue, ticket: Ticket) -> Program[None]:
    try:
        while not ticket.admitted:
            yield from AwaitNudge(ticket.topic, _LOOK_SECONDS)
    except BaseException:
        queue.give_up(ticket)
        raise
