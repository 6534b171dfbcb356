"""The tokens per second that come through the server, against reading the model directly.

    python benchmarks/model_stream.py [--rounds 5] [--tokens 2000] [--json FILE]
    python benchmarks/model_stream.py --streams 1 --pace 5 --rounds 20 --against core:frontends

A model on loopback (`model_server.py`, a process of its own) streams chat completions; a client
reads them with httpx2, once from the model itself and once as events of a run from `legation
serve`, which reads the model and keeps every event in SQLite.  One stream, and 100 side by side;
each at full speed, and at the pace of a fast model (a token every 5 ms).  Tokens per second are of
the whole round, from the first request to the last event; ratios are of the same round, and printed
as the median with their range.  CPU is the server's own, in microseconds per token and per event
stored.

What is sent within the same moment is one event: at full speed there are fewer events than tokens,
and ten times the tokens are read, so that what a run costs besides does not count.

`--against` names the `PYTHONPATH` of another state of the code: its server is measured in turn with
this one, and what is printed of both is the CPU per token, and the median of their ratios of the
same round.  That holds on a machine with other work, where no two rounds are alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
from attrs import asdict, frozen
from http_load import Server, cpu_seconds, free_port, run_server

HERE: Final = Path(__file__).parent
PACE_MS: Final = 5.0
AIM: Final = 0.9
PLATFORM: Final = """
[databases.main]
url = "sqlite:///{folder}/ours.db"

[limits]
runs = 100
model_calls = 100

[models.fast]
provider = "openai"
id = "fast"
base_url = "http://127.0.0.1:{port}/v1"
max_output_tokens = {tokens}

[[agents]]
id = "agent-0"
model = "fast"
"""


@frozen
class Round:
    """One way, once: tokens and events that arrived, seconds, and the server's CPU seconds."""

    tokens: int
    events: int
    seconds: float
    cpu: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


async def direct(client: httpx2.AsyncClient, port: int, tokens: int) -> tuple[int, int]:
    """Read one answer from the model; return the tokens and events that came."""
    body = {
        "model": "fast",
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "max_tokens": tokens,
    }
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    words = events = 0
    async with client.stream("POST", url, json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                events += 1
                for choice in json.loads(line[6:])["choices"]:
                    words += len(choice["delta"].get("content", "").split())
    return words, events


async def read_served(client: httpx2.AsyncClient, port: int, _: int) -> tuple[int, int]:
    """Read one run from the server; return the tokens and events that came."""
    url = f"http://127.0.0.1:{port}/agents/agent-0/runs"
    words = events = 0
    last = ""
    async with client.stream("POST", url, data={"message": "Hello", "stream": "true"}) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events += 1
                event = json.loads(line[6:])
                last = event["event"]
                if last == "RunContent":
                    words += len(event["content"].split())
    if last != "RunCompleted":
        raise SystemExit(f"the run ended with {last}")
    return words, events


async def together(read: Any, port: int, streams: int, tokens: int) -> Round:
    """Read `streams` answers side by side."""
    found: list[tuple[int, int]] = []
    limits = httpx2.Limits(max_connections=streams)
    async with httpx2.AsyncClient(limits=limits, timeout=120) as client:

        async def one() -> None:
            found.append(await read(client, port, tokens))

        began = time.perf_counter()
        async with anyio.create_task_group() as group:
            for _ in range(streams):
                group.start_soon(one)
        seconds = time.perf_counter() - began
    words = sum(words for words, _ in found)
    if words != streams * tokens:
        raise SystemExit(f"{words} of {streams * tokens} tokens came")
    return Round(words, sum(events for _, events in found), seconds)


@contextmanager
def serve(tokens: int, model_port: int, path: str | None = None) -> Generator[Server]:
    """Run the server, of the code in `path` where that is given, until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "platform.toml"
        config.write_text(PLATFORM.format(folder=folder, port=model_port, tokens=tokens))
        port = free_port()
        command = [sys.executable, "-m", "legation_cli", "serve", str(config), "--port", str(port)]
        env = {**os.environ, "PYTHONPATH": path} if path else os.environ
        with run_server("Legation", command, env, port) as server:
            anyio.run(together, read_served, port, 1, tokens)
            yield server


def read_and_weigh(server: Server, streams: int, tokens: int) -> Round:
    """Read `streams` runs of the server; the CPU is all that it spent meanwhile."""
    before = sum(map(cpu_seconds, server.pids))
    found = anyio.run(together, read_served, server.port, streams, tokens)
    spent = sum(map(cpu_seconds, server.pids)) - before
    return Round(found.tokens, found.events, found.seconds, spent)


@contextmanager
def model(tokens: int, pause_ms: float) -> Generator[int]:
    """Run the model until the block ends; yield its port."""
    command = [sys.executable, str(HERE / "model_server.py")]
    more = ["--tokens", str(tokens), "--pause-ms", str(pause_ms)]
    with subprocess.Popen([*command, *more], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def measure(streams: int, tokens: int, pause_ms: float, rounds: int) -> dict[str, Any]:
    """Read both ways, in turn; return what was found."""
    plain: list[Round] = []
    ours: list[Round] = []
    with model(tokens, pause_ms) as model_port, serve(tokens, model_port) as server:
        for _ in range(rounds):
            plain.append(anyio.run(together, direct, model_port, streams, tokens))
            ours.append(read_and_weigh(server, streams, tokens))
    return show(streams, pause_ms, plain, ours)


def show(
    streams: int, pause_ms: float, plain: Sequence[Round], ours: Sequence[Round]
) -> dict[str, Any]:
    """Print the figures of one question; return them."""
    ratios = [mine.rate / theirs.rate for mine, theirs in zip(ours, plain, strict=True)]
    per_token = [found.cpu / found.tokens * 1e6 for found in ours]
    per_event = [found.cpu / found.events * 1e6 for found in ours]
    figures = {
        "direct": statistics.median(found.rate for found in plain),
        "served": statistics.median(found.rate for found in ours),
        "ratio": statistics.median(ratios),
        "cpu_us_per_token": statistics.median(per_token),
        "cpu_us_per_event": statistics.median(per_event),
        "tokens_per_event": statistics.median(found.tokens / found.events for found in ours),
    }
    pace = f"a token every {pause_ms:g} ms" if pause_ms else "full speed"
    print(
        f"{streams:3} streams, {pace}: {figures['served']:9.0f} tokens/s,"
        f" directly {figures['direct']:9.0f}, ratio {figures['ratio']:.2f}"
        f" ({min(ratios):.2f} to {max(ratios):.2f});"
        f" CPU {figures['cpu_us_per_token']:.1f} µs/token,"
        f" {figures['cpu_us_per_event']:.1f} µs/event"
    )
    return {**figures, "rounds": [asdict(found) for found in (*plain, *ours)]}


def compare(streams: int, tokens: int, pause_ms: float, rounds: int, path: str) -> None:
    """Print the CPU per token of this code and of that in `path`, measured in turn."""
    with (
        model(tokens, pause_ms) as model_port,
        serve(tokens, model_port, path) as old,
        serve(tokens, model_port) as new,
    ):
        pairs = [
            [read_and_weigh(server, streams, tokens) for server in (old, new)]
            for _ in range(rounds)
        ]
    pace = f"a token every {pause_ms:g} ms" if pause_ms else "full speed"
    print(f"{streams:3} streams, {pace}, {rounds} pairs")
    for name, found in zip(("before", "after"), zip(*pairs, strict=True), strict=True):
        spent = [one.cpu / one.tokens * 1e6 for one in found]
        events = statistics.median(one.tokens / one.events for one in found)
        rate = statistics.median(one.rate for one in found)
        print(
            f"  {name:6} {statistics.median(spent):8.1f} µs CPU per token, at least"
            f" {min(spent):.1f}; {events:.1f} tokens per event; {rate:.0f} tokens/s"
        )
    ratio = statistics.median(after.cpu / before.cpu for before, after in pairs)
    print(f"  ratio {ratio:.3f}")


def main() -> None:
    """Ask every question, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--streams", type=int, action="append")
    parser.add_argument("--pace", type=float, action="append", help="ms; 0 is full speed")
    parser.add_argument("--against", help="the PYTHONPATH of another state of the code")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    for streams in options.streams or (1, 100):
        for pause_ms in options.pace or (PACE_MS, 0.0):
            tokens = options.tokens * (1 if pause_ms else 10) // (1 if streams == 1 else 10)
            if options.against:
                compare(streams, tokens, pause_ms, options.rounds, options.against)
                continue
            found = measure(streams, tokens, pause_ms, options.rounds)
            report[f"{streams} streams, {pause_ms:g} ms"] = found
    print(f"aim: a ratio of at least {AIM} at one stream")
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
