from __future__ import annotations

from typing import Any

import pytest

from legation.effects import Now, Program, Sleep
from legation.models.conversation import (
    Listener,
    Message,
    ModelFailed,
    Prompt,
    Reply,
    Usage,
)
from legation.models.prices import ModelPrice, make_price_list
from legation.runs.event_writer import CancelAsked, EventWriter, Journal, LeaseLost
from legation.runs.events import EventOrigin
from legation.runs.meter import ModelTally
from legation.runs.model_requests import ask_model
from legation.store.failures import Unavailable
from legation.values import define
from legation_testing import play

from .test_event_writer import RUN

PROMPT = Prompt((Message("user", "go"),))


@define
class Model:
    """Waits a second, says a word if it is listened to, and answers or fails."""

    outcome: Reply | Exception
    id: str = "small"
    provider: str = "acme"
    name: str = "Small"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        yield from Sleep(1)
        listener.hear("word")
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def writing(**more: Any) -> EventWriter:
    return EventWriter(Journal("main", RUN, "n", 10, **more), EventOrigin(RUN, "A"), False)


def tally_of(writer: EventWriter) -> ModelTally:
    [(key, tally)] = writer.journal.meter.models.items()
    assert key == (RUN.component_id, "acme", "small")
    return tally


def test_an_answer_is_counted_with_its_time_and_its_first_piece() -> None:
    writer = writing()
    program = ask_model(writer, Model(Reply("word", Usage(3, 4))), PROMPT, writer)
    reply = play(program, [(Sleep(1), None), (Now(), 25)])
    tally = tally_of(writer)

    assert (reply.content, writer.journal.now_us) == ("word", 25)
    assert (tally.counts, tally.durations["ok"].total, tally.first.total) == ({"ok": 1}, 15, 15)
    assert (tally.input.total, tally.output.total) == (3, 4)


def test_an_answer_that_nobody_hears_has_no_first_piece() -> None:
    writer = writing()
    writer.first_us = 5  # of the answer before
    play(ask_model(writer, Model(Reply("")), PROMPT), [(Sleep(1), None), (Now(), 25)])

    assert sum(tally_of(writer).first.counts) == 0


def test_an_answer_without_a_word_has_no_first_piece() -> None:
    class Mute(Model):
        def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
            yield from Sleep(1)
            return Reply("")

    writer = writing()
    play(ask_model(writer, Mute(Reply("")), PROMPT, writer), [(Sleep(1), None), (Now(), 25)])

    assert sum(tally_of(writer).first.counts) == 0


def test_an_answer_and_a_failure_have_their_price() -> None:
    prices = make_price_list({"small": ModelPrice(input="1", output="2")}, None)
    writer = writing(prices=prices)
    failed = ModelFailed("truncated", "Cut", Usage(5))
    script = [(Sleep(1), None), (Now(), 25)]
    reply = play(ask_model(writer, Model(Reply("", Usage(1, 1))), PROMPT), script)
    with pytest.raises(ModelFailed):
        play(ask_model(writer, Model(failed), PROMPT), script)

    assert (reply.usage.cost_nano, failed.usage.cost_nano) == (3_000, 5_000)
    assert tally_of(writer).cost == 8_000


def test_a_price_that_a_model_knows_itself_counts_without_any_list() -> None:
    writer = writing()
    usage = Usage(1, cost_nano=9)
    play(ask_model(writer, Model(Reply("", usage)), PROMPT), [(Sleep(1), None), (Now(), 25)])

    assert tally_of(writer).cost == 9


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ModelFailed("timeout", "Slow"), "timeout"),
        (ModelFailed("exhausted", "The end"), "error"),
        (ValueError("a bug"), "error"),
    ],
)
def test_a_failure_is_counted_with_its_time(error: Exception, outcome: str) -> None:
    writer = writing()
    with pytest.raises(type(error)):
        play(ask_model(writer, Model(error), PROMPT, writer), [(Sleep(1), None), (Now(), 25)])
    tally = tally_of(writer)

    assert (tally.counts, tally.durations[outcome].total) == ({outcome: 1}, 15)
    assert (writer.journal.now_us, sum(tally.first.counts)) == (25, 0)


@pytest.mark.parametrize("error", [CancelAsked("r"), LeaseLost("r"), Unavailable("gone")])
def test_what_we_give_up_is_no_failure_of_the_model(error: Exception) -> None:
    writer = writing()
    with pytest.raises(type(error)):
        play(ask_model(writer, Model(error), PROMPT, writer), [(Sleep(1), None)])

    assert (tally_of(writer).counts, tally_of(writer).durations) == ({"cancelled": 1}, {})


def test_a_request_that_is_closed_is_counted_and_asks_for_nothing() -> None:
    writer = writing()
    program = ask_model(writer, Model(Reply("")), PROMPT, writer)
    next(program)
    program.close()

    assert tally_of(writer).counts == {"cancelled": 1}
