"""A provider that a test plays, effect by effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field, frozen

from legation.effects import (
    CloseStream,
    Effect,
    Log,
    NextChunk,
    Now,
    OpenStream,
    Program,
    RandomBytes,
    Sleep,
    Streaming,
    Unreachable,
)
from legation.models.conversation import ModelFailed, ModelProtocol, Prompt, Reply
from legation_testing import effects_of

__all__ = ["NOW", "SETTLED", "STREAM", "WHOLE", "Ear", "Outcome", "Played", "asked", "sse"]

NOW = 1_700_000_000_000_000  # Tue, 14 Nov 2023 22:13:20 GMT
SETTLED = Log("debug", "settled")
STREAM = {"content-type": "text/event-stream; charset=utf-8"}
WHOLE = {"content-type": "application/json"}


@define
class Ear:
    """A listener; to settle is an effect that a test can see."""

    pieces: list[str] = field(factory=list[str])
    thoughts: list[str] = field(factory=list[str])
    begun_anew: int = 0

    def listen(self) -> None:
        self.pieces.clear()
        self.begun_anew += 1

    def think(self, piece: str) -> None:
        self.thoughts.append(piece)

    def hear(self, piece: str) -> None:
        self.pieces.append(piece)

    def settle(self) -> Program[None]:
        yield from SETTLED


@frozen
class Played:
    """One response: its head, and its body chunk by chunk; an `Unreachable` ends it."""

    chunks: tuple[bytes | Unreachable, ...] = ()
    status: int = 200
    headers: Mapping[str, str] = field(factory=lambda: STREAM)


@frozen
class Outcome:
    """What came of it.

    Attributes:
        failure: In place of a reply.
        said: What was heard, piece by piece.
        thought: What was seen of the model's thoughts, piece by piece.
        effects: Everything that was asked for.
        begun_anew: How often the answer was.
    """

    reply: Reply | None
    failure: ModelFailed | None
    said: tuple[str, ...]
    effects: tuple[Effect, ...]
    thought: tuple[str, ...] = ()
    begun_anew: int = 0

    @property
    def reason(self) -> str | None:
        return self.failure.reason if self.failure else None

    def of(self, *kinds: type[Any]) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kinds)]


@define
class _Provider:
    responses: list[Played | Unreachable]
    streams: dict[int, list[bytes | Unreachable]] = field(factory=dict[int, "list[Any]"])
    effects: list[Effect] = field(factory=list[Effect])

    def answer(self, effect: Effect) -> Any:
        self.effects.append(effect)
        match effect:
            case OpenStream():
                return self._open()
            case NextChunk(stream=stream):
                chunks = self.streams[stream]
                return chunks.pop(0) if chunks else b""
            case Now():
                return NOW
            case RandomBytes(size=size):
                return b"\xff" * size
            case CloseStream() | Sleep() | Log():
                return None
            case _:
                raise AssertionError(effect)

    def _open(self) -> Streaming | Unreachable:
        response = self.responses.pop(0)
        if isinstance(response, Unreachable):
            return response
        number = len(self.streams) + 1
        self.streams[number] = list(response.chunks)
        return Streaming(number, response.status, response.headers)


def asked(
    model: ModelProtocol,
    prompt: Prompt,
    *responses: Played | Unreachable,
) -> Outcome:
    """Ask `model`, with a provider that sends `responses`; all of them, and no more."""
    ear, provider = Ear(), _Provider(list(responses))
    reply, failure = None, None
    try:
        _, reply = effects_of(model.respond(prompt, ear), provider.answer)
    except ModelFailed as error:
        failure = error
    assert provider.responses == []
    said, thought = tuple(ear.pieces), tuple(ear.thoughts)
    return Outcome(reply, failure, said, tuple(provider.effects), thought, ear.begun_anew)


def sse(events: Iterable[tuple[str, str]]) -> bytes:
    """Return events of a name, which may be empty, and data as they stand in a stream."""
    lines = ((f"event: {name}\n" if name else "") + f"data: {data}\n\n" for name, data in events)
    return "".join(lines).encode()
