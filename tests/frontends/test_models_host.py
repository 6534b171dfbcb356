"""The codecs of models on the real host, over real sockets, against strict stand-ins."""

from __future__ import annotations

import json
import socket
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import define, evolve, field, frozen

from legation.effects import Program, Sleep
from legation.models.anthropic import AnthropicMessages
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import (
    Document,
    Image,
    Message,
    ModelFailed,
    ModelProtocol,
    Prompt,
    Reply,
    ToolCall,
    ToolSpec,
    Usage,
)
from legation_host import open_host

from ..providers.anthropic_messages import AnthropicServer
from ..providers.chat_completions import ChatCompletionsServer
from ..providers.documents import make_pdf
from ..providers.model_server import (
    KEY,
    Cut,
    Hangs,
    Huge,
    Item,
    ModelServer,
    Nonsense,
    Refusal,
    Said,
    TellsTrouble,
    serving,
)
from .host_units import BACKENDS, Lines, run

HELLO: Final = Prompt((Message("user", "Hello"),))
PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
INVOICE: Final = b64encode(make_pdf()).decode()
WEATHER: Final = ToolSpec(
    "weather",
    "Tell the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
SCHEMA: Final = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "of": {"type": ["string", "null"]}},
    "required": ["n"],
}


@frozen
class Protocol:
    name: str
    server: type[ModelServer]
    model: Callable[..., ModelProtocol]


def chat(server: ModelServer, **settings: Any) -> ModelProtocol:
    return ChatCompletions(id="m", base_url=f"{server.address}/v1", api_key=KEY, **settings)


def claude(server: ModelServer, **settings: Any) -> ModelProtocol:
    return AnthropicMessages(id="m", base_url=server.address, api_key=KEY, **settings)


PROTOCOLS = pytest.mark.parametrize(
    "protocol",
    [Protocol("chat", ChatCompletionsServer, chat), Protocol("claude", AnthropicServer, claude)],
    ids=lambda protocol: protocol.name,
)


@define
class Ear:
    """Hears, and takes its time to write down."""

    pieces: list[str] = field(factory=list[str])
    seconds: float = 0.0
    streamed: bool = True

    def listen(self) -> None:
        self.pieces.clear()

    def hear(self, piece: str) -> None:
        self.pieces.append(piece)

    def think(self, piece: str) -> None:
        """Take no notice."""

    def settle(self) -> Program[None]:
        yield from Sleep(self.seconds)


@frozen
class Outcome:
    """What came of it, and what the log and the server have of it."""

    reply: Reply | None
    failure: ModelFailed | None
    pieces: list[str]
    log: Lines
    server: ModelServer
    seconds: float

    @property
    def reason(self) -> str | None:
        return self.failure.reason if self.failure else None


def ask(
    protocol: Protocol,
    backend: str,
    *plan: Item,
    prompt: Prompt = HELLO,
    ear: Ear | None = None,
    sound: bool = True,
    **settings: Any,
) -> Outcome:
    """Ask once, with a server that follows `plan`; nothing it saw broke a rule."""
    ear, log = ear or Ear(), Lines()
    server = protocol.server(list(plan))

    async def main() -> Outcome:
        model, reply, failure = protocol.model(server, **settings), None, None
        async with open_host(log=log.write) as host:
            began = time.monotonic()
            try:
                reply = await host.run(model.respond(prompt, ear))
            except ModelFailed as error:
                failure = error
            seconds = time.monotonic() - began
        return Outcome(reply, failure, ear.pieces, log, server, seconds)

    with serving(server):
        outcome = run(backend, main)
        due = time.monotonic() + 5
        while sound and server.open and time.monotonic() < due:
            time.sleep(0.01)
        assert not sound or server.open == 0, "a connection was left open"
    assert server.broken == []
    assert KEY not in repr((outcome.failure, outcome.log))
    return outcome


CALLS: Final = (("call_a", "weather", '{"city": "Oslo"}'), ("call_b", "weather", '{"city": "Ü"}'))


@PROTOCOLS
@BACKENDS
@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "said",
    [
        Said(("Grüße, ", "🦉")),
        Said(calls=CALLS),
        Said(("Let me see.",), CALLS, apart=(1, 2, 4), thoughts=(("Hm, Grüße", "s"), (None, "x"))),
    ],
    ids=["text", "calls", "both"],
)
def test_an_answer_arrives(protocol: Protocol, backend: str, said: Said, whole: bool) -> None:
    told = evolve(said, whole=whole)

    outcome = ask(protocol, backend, told, prompt=Prompt(HELLO.messages, (WEATHER,)))

    text = "".join(said.pieces)
    assert outcome.reply is not None
    made = [(call.id, call.name, json.loads(call.arguments)) for call in outcome.reply.calls]
    assert made == [(i, name, json.loads(arguments)) for i, name, arguments in said.calls]
    assert (outcome.reply.content, outcome.reply.usage) == (text, Usage(7, 3, *said.apart))
    thoughts = len(said.thoughts) if protocol.name == "claude" else 0
    assert len(outcome.reply.thoughts) == thoughts
    assert "".join(outcome.pieces) == text
    assert outcome.log == []


CONVERSATIONS: Final = {
    "plain": HELLO,
    "instructions": Prompt((Message("system", "Be brief."), *HELLO.messages)),
    "empty": Prompt((Message("user", ""),)),
    "history": Prompt(
        (*HELLO.messages, Message("assistant", ""), Message("user", "a"), Message("user", "b"))
    ),
    "pictures": Prompt(
        (
            Message(
                "user",
                "What is this?",
                images=(Image("image/png", PIXEL), Image(url="https://example.org/a.png")),
            ),
        )
    ),
    "documents": Prompt(
        (
            Message(
                "user",
                "What do they cost?",
                images=(Image("image/png", PIXEL),),
                documents=(
                    Document("invoice.pdf", "application/pdf", INVOICE),
                    Document('of "May"', "application/pdf", INVOICE),
                ),
            ),
            Message("assistant", "42 EUR each."),
            Message("user", "And in all?"),
        )
    ),
    "tools": Prompt(HELLO.messages, (WEATHER,), max_tokens=100),
    "any tool": Prompt(HELLO.messages, (WEATHER,), tool_choice="*"),
    "one tool": Prompt(HELLO.messages, (WEATHER,), tool_choice="weather"),
    "results": Prompt(
        (
            *HELLO.messages,
            Message(
                "assistant",
                "Let me see.",
                calls=(
                    ToolCall("call_a", "weather", '{"city": "Oslo"}'),
                    ToolCall("functions.no such:1", "functions.no such", "nonsense"),
                ),
            ),
            Message("tool", "Rain", call_id="call_a"),
            Message("tool", "", call_id="functions.no such:1"),
            Message("assistant", "", calls=(ToolCall("call_c", "weather", "{}"),)),
            Message("tool", "Sun", call_id="call_c"),
            Message("assistant", "Rain, then sun."),
            Message("user", "Thanks"),
        ),
        (WEATHER,),
    ),
    "shape": Prompt(HELLO.messages, output_schema=SCHEMA),
    "shape and tools": Prompt(HELLO.messages, (WEATHER,), output_schema=SCHEMA),
}


@PROTOCOLS
@pytest.mark.parametrize("prompt", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_every_conversation_is_one_that_the_provider_takes(
    protocol: Protocol, prompt: Prompt
) -> None:
    outcome = ask(protocol, "trio", prompt=prompt, max_output_tokens=50)

    assert outcome.reply is not None
    assert outcome.reply.content == "OK"
    (seen,) = outcome.server.seen
    assert seen.body["stream"] is True


@PROTOCOLS
@BACKENDS
def test_pieces_are_heard_as_they_come(protocol: Protocol, backend: str) -> None:
    words = tuple(f"word {n} " for n in range(5))

    outcome = ask(protocol, backend, Said(words, pause_seconds=0.02))

    assert len(outcome.pieces) >= 3
    assert "".join(outcome.pieces) == "".join(words)


@PROTOCOLS
@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (Refusal(400), "rejected"),
        (Refusal(401), "rejected"),
        (Refusal(302, {"location": "http://127.0.0.1:9/"}), "rejected"),
        (Refusal(429), "rate_limited"),
        (Refusal(429, {"retry-after": "3600"}), "rate_limited"),
        (Refusal(500), "unreachable"),
        (Refusal(529), "unreachable"),
        (Nonsense(b""), "broken"),
        (Nonsense(b"data: nonsense\n\n"), "broken"),
        (Nonsense(b"\x00\xff" * 500), "broken"),
        (Nonsense(b"<html>Welcome</html>", "text/html"), "broken"),
        (Nonsense(b"{}", "application/json"), "broken"),
        (Said(("Half",), finish="length"), "truncated"),
        (Said(finish="refused"), "refused"),
        (Huge(50_000_000), "too_large"),
    ],
    ids=str,
)
def test_what_is_no_answer_has_its_reason(protocol: Protocol, item: Item, reason: str) -> None:
    fails(protocol, "trio", item, reason)


@PROTOCOLS
@BACKENDS
@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (Cut(), "unreachable"),
        (Cut(Said(("Good ", "morning")), 3), "broken"),
        (TellsTrouble("overloaded_error", Said(("Good ",)), 3), "unreachable"),
    ],
    ids=str,
)
def test_what_goes_wrong_on_the_way_has_its_reason(
    protocol: Protocol, backend: str, item: Item, reason: str
) -> None:
    fails(protocol, backend, item, reason)


def fails(protocol: Protocol, backend: str, item: Item, reason: str) -> None:
    outcome = ask(protocol, backend, item, retries=0)

    assert outcome.reason == reason
    ((level, event, fields),) = outcome.log
    assert (level, event, fields["reason"]) == ("warning", "model_failed", reason)


@PROTOCOLS
@BACKENDS
@pytest.mark.parametrize("events", [None, 3], ids=["before the head", "in the middle"])
def test_a_model_that_falls_silent_is_given_up(
    protocol: Protocol, backend: str, events: int | None
) -> None:
    silent = Hangs(Said(("Good ", "morning")), events)

    outcome = ask(protocol, backend, silent, timeout_seconds=0.8, idle_seconds=0.8, sound=False)

    assert outcome.reason == "timeout"
    assert len(outcome.server.seen) == 1
    assert 0.7 < outcome.seconds < 5


@PROTOCOLS
def test_slow_is_not_silent(protocol: Protocol) -> None:
    said = Said(("a", "b", "c", "d"), pause_seconds=0.1)

    outcome = ask(protocol, "trio", said, timeout_seconds=0.6, idle_seconds=0.6)

    assert outcome.reply is not None
    assert outcome.seconds > 0.6


@PROTOCOLS
@pytest.mark.parametrize(
    "trouble",
    [Refusal(429, {"retry-after": "0"}), Refusal(503), Cut(), Cut(Said(("a",)), 1)],
    ids=str,
)
def test_what_passes_is_asked_again(protocol: Protocol, trouble: Item) -> None:
    outcome = ask(protocol, "trio", trouble, Said(("Hello",)))

    assert outcome.reply is not None
    assert outcome.reply.content == "Hello"
    assert outcome.reply.usage in (Usage(7, 3), Usage(14, 6))  # some say at once what it costs
    assert len(outcome.server.seen) == 2
    assert [line[1] for line in outcome.log] == ["model_retried"]
    assert 0.2 < outcome.seconds < 5


@PROTOCOLS
def test_it_waits_as_it_is_asked_to(protocol: Protocol) -> None:
    outcome = ask(protocol, "trio", Refusal(429, {"retry-after": "1"}), Said(("Hello",)))

    assert outcome.reply is not None
    assert outcome.seconds >= 1


@PROTOCOLS
@BACKENDS
def test_nobody_is_there(protocol: Protocol, backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = protocol.server()
    server.address = f"http://127.0.0.1:{port}"

    async def main() -> None:
        async with open_host() as host:
            with pytest.raises(ModelFailed) as caught:
                await host.run(protocol.model(server, retries=1).respond(HELLO, Ear()))
            assert caught.value.reason == "unreachable"

    run(backend, main)


@PROTOCOLS
@BACKENDS
def test_one_connection_does_for_one_answer_after_the_other(
    protocol: Protocol, backend: str
) -> None:
    server = protocol.server()

    async def main() -> None:
        async with open_host() as host:
            for _ in range(5):
                await host.run(protocol.model(server).respond(HELLO, Ear()))

    with serving(server):
        run(backend, main)
    assert len(server.seen) == 5
    assert server.opened == 1


@PROTOCOLS
@BACKENDS
def test_a_listener_that_is_slow_loses_nothing(protocol: Protocol, backend: str) -> None:
    words = tuple(f"word {n} " for n in range(300))

    outcome = ask(protocol, backend, Said(words), ear=Ear(seconds=0.01))

    assert outcome.reply is not None
    assert outcome.reply.content == "".join(words)
