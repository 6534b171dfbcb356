"""A provider of chat completions on loopback, as fast as it can, in a process of its own.

    python benchmarks/model_server.py [--port 0] [--tokens 2000] [--pause-ms 0]

Prints its port on the first line.  Every answer has so many tokens, one event and one HTTP chunk
each, as providers send them; `--pause-ms` waits between two tokens.  A request may ask for another
number in its `max_tokens`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Final

from attrs import define, field

HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
WORDS: Final = ("a ", "quick ", "brown ", "fox ", "jumps ", "over ", "the ", "lazy ", "dog ")
GATHERED: Final = 16  # tokens in one write at full speed: a fast model's share of a segment


def chunk(data: str) -> bytes:
    """Return one event in a chunk of its own."""
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def completion(choices: object, usage: object = None) -> bytes:
    """Return one chunk of a completion."""
    completion_fields = {
        "id": "chatcmpl-0123456789",
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "fast",
        "system_fingerprint": "fp_0123456789",
        "choices": choices,
        "usage": usage,
    }
    return chunk(json.dumps(completion_fields))


def delta_chunk(delta: object, finish: str | None = None) -> bytes:
    """Return a chunk with one choice."""
    return completion([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


TOKENS: Final = tuple(delta_chunk({"content": word}) for word in WORDS)
BEGIN: Final = delta_chunk({"role": "assistant", "content": ""})


def end(tokens: int) -> bytes:
    """Return what stands behind the tokens."""
    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    return delta_chunk({}, "stop") + completion([], usage) + chunk("[DONE]") + b"0\r\n\r\n"


@define
class Model(asyncio.Protocol):
    """One connection: answers one request after the other."""

    tokens: int
    pause: float
    transport: asyncio.Transport | None = None
    received: bytes = b""
    ready: asyncio.Event = field(factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(factory=set["asyncio.Task[None]"])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.ready.set()

    def pause_writing(self) -> None:
        """Wait: the client is slow."""
        self.ready.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self.ready.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up what is being answered."""
        for task in self.tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer when a request is whole."""
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return
        lower = head.lower()
        length = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self.received = body[length:]
        asked = json.loads(body[:length])
        task = asyncio.ensure_future(self.answer(asked.get("max_tokens") or self.tokens))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def answer(self, tokens: int) -> None:
        """Send one answer."""
        transport = self.transport
        assert transport is not None
        transport.write(HEAD + BEGIN)
        step = 1 if self.pause else GATHERED
        for at in range(0, tokens, step):
            part = range(at, min(at + step, tokens))
            transport.write(b"".join(TOKENS[n % len(TOKENS)] for n in part))
            if self.pause:
                await asyncio.sleep(self.pause)
            elif not at % (step * 16):
                await asyncio.sleep(0)
            await self.ready.wait()
        transport.write(end(tokens))


async def serve(port: int, tokens: int, pause: float) -> None:
    """Serve until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Model(tokens, pause), "127.0.0.1", port, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Read the command line, and serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--pause-ms", type=float, default=0.0)
    options = parser.parse_args()
    try:
        asyncio.run(serve(options.port, options.tokens, options.pause_ms / 1000))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
