"""A provider of chat completions that takes its time, in a process of its own.

Asked first, it wants two tools called; told what came of them, it answers word by word, and where
it was asked to stay it does not come to an end.  It prints its port.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["main"]

HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
TOOLS: Final = ("in_a_thread", "on_the_loop")
WORDS: Final = ("It ", "took ", "its ", "time.")
PAUSE_SECONDS: Final = 0.1


def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
    told = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_767_225_600,
        "model": "slow",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def calls() -> bytes:
    wanted = [
        {"index": n, "id": f"call_{n}", "function": {"name": name, "arguments": "{}"}}
        for n, name in enumerate(TOOLS)
    ]
    return chunk({"role": "assistant", "tool_calls": wanted}) + chunk({}, "tool_calls")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        asked = json.loads(await reader.readexactly(length))
        writer.write(HEAD)
        await asyncio.sleep(PAUSE_SECONDS)
        if asked["messages"][-1]["role"] != "tool":
            writer.write(calls())
        else:
            for word in WORDS:
                writer.write(chunk({"content": word}))
                await asyncio.sleep(
                    PAUSE_SECONDS if asked["messages"][0]["content"] == "Go" else 60
                )
            writer.write(chunk({}, "stop"))
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # whoever asked has gone
    finally:
        writer.close()


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
