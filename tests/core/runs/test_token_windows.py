"""Tokens of a model are shown in windows: the first at once, the others soon, as one event."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from attrs import define, field

from legation import Agent, Platform
from legation.effects import Now, Program, Publish, Transact
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import Message, Prompt, Reply
from legation.store.runs import AppendEvents
from legation_testing import Chunks, Client, Simulation

HEAD = {"content-type": "text/event-stream"}
MODEL = ChatCompletions(id="gpt")
PACE = 0.005
LATEST_MS = 50


def token(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"choices": [choice]}).encode()


def answer(delays: Sequence[float]) -> Chunks:
    """Return an answer with a word, its number, behind each of these pauses, in seconds."""
    words = [token(f"{number} ") for number in range(len(delays))]
    return Chunks(200, HEAD, (*words, token("", "stop") + b"data: [DONE]\n\n"), (*delays, PACE))


@define
class Clocked:
    """A listener that notes when a word is shown, in milliseconds."""

    begun_us: int
    heard: list[str] = field(factory=list[str])
    shown: dict[str, int] = field(factory=dict[str, int])

    def listen(self) -> None:
        raise AssertionError

    def think(self, piece: str) -> None:
        raise AssertionError(piece)

    def hear(self, piece: str) -> None:
        self.heard += piece.split()

    def settle(self) -> Program[None]:
        ms = ((yield from Now()) - self.begun_us) // 1000
        self.shown |= {word: ms for word in self.heard if word not in self.shown}


def ask(listener: Clocked) -> Program[Reply]:
    """Ask the model; what came with the end of its answer is shown with that."""
    reply = yield from MODEL.respond(Prompt((Message("user", "Hello"),)), listener)
    yield from listener.settle()
    return reply


def show(delays: Sequence[float]) -> list[int]:
    """Return when each word of such an answer is shown, in milliseconds."""
    with Simulation(fetch=lambda _: answer(delays)) as simulation:
        listener = Clocked(simulation.clock.now_us)
        reply = simulation.run(ask(listener))
    assert reply.content.split() == listener.heard
    return [listener.shown[word] for word in listener.heard]


def test_a_thousand_tokens_are_a_hundred_events() -> None:
    delays = [0.3, *[PACE] * 999]
    platform = Platform(agents=[Agent(id="clerk", model=MODEL)])
    with Client(platform, fetch=lambda _: answer(delays)) as client:
        client.post("/agents/clerk/runs", form={"message": "x", "stream": "true"}).expect_success()
    effects = [one.effect for one in client.effects]
    events = [event for one in effects if isinstance(one, Publish) for event in one.events]
    said = [json.loads(event.data)["content"] for event in events if event.name == "RunContent"]
    units = [effect.unit for effect in effects if isinstance(effect, Transact)]

    assert "".join(said) == "".join(f"{number} " for number in range(1000))
    assert len(said) == 103
    assert sum(isinstance(unit, AppendEvents) for unit in units) == 102


def test_the_first_word_is_shown_when_it_comes_and_windows_grow() -> None:
    assert show([0.3, *[PACE] * 9]) == [300, *[312] * 2, *[337] * 5, *[350] * 2]


@pytest.mark.parametrize("pause", [0.0, 0.004, 0.02, 0.049, 0.07, 3.0])
@pytest.mark.parametrize("words", [2, 12, 100])
def test_no_word_waits_longer_than_a_window_whatever_pause_follows(
    words: int, pause: float
) -> None:
    delays = [0.1, *[pause if number % 3 else 0.001 for number in range(words - 1)]]
    came = [round(sum(delays[: number + 1]) * 1000) for number in range(words)]

    late = [shown - at for shown, at in zip(show(delays), came, strict=True)]
    assert late[0] == 0
    assert max(late) <= LATEST_MS
