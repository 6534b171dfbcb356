"""The bytes written for a large state of a session, and for ten messages of two bytes.

    python benchmarks/fair_shares/states.py

The session is made with its state, and then asked ten times, in a SQLite file: once at the limit
that a state has by default, and once with 9 MB, which has to be allowed.  By default 9 MB are
refused.  Written is what the process has handed to the kernel, the log of the file and its
checkpoints included: what is stored once is written twice.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
from attrs import define

from legation import Agent, Database, Platform, Request
from legation.shares.limits import PlatformLimits
from legation_host.hosting import open_platform

DEFAULT: Final = PlatformLimits()
RAISED: Final = PlatformLimits(state_bytes=16 << 20)
MESSAGES: Final = 10
AIM: Final = 12.0  # MB
AROUND: Final = len('{"x":""}')
JSON: Final = ((b"content-type", b"application/json"), (b"host", b"localhost"))


@define
class Body:
    """The body of a request, which is there."""

    rest: bytes

    async def read(self, limit: int) -> bytes:
        """Return it."""
        return self.rest


def count_written() -> int:
    """Return how many bytes this process has handed to the kernel, as Linux counts them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


async def measure(limits: PlatformLimits, size: int, name: str | None) -> list[float] | int:
    """Return the MB that are written for the session and for each message, or how it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        databases = [Database("main", f"sqlite:///{folder}/main.db")]
        platform = Platform(agents=[Agent(id="echo")], databases=databases, limits=limits)
        async with open_platform(platform) as host:

            async def ask(path: str, said: dict[str, Any]) -> tuple[int, float]:
                body, before = json.dumps(said).encode(), count_written()
                request = Request("POST", path, (*JSON, (b"content-length", b"%d" % len(body))))
                answer = await host.run(platform.answer(request), body=Body(body))
                await trio.sleep(0.1)  # the log may be brought home after the answer
                return answer.status, (count_written() - before) / 1e6

            state = {"x": "y" * (size - AROUND)}
            session = {"session_id": "s", "agent_id": "echo", "session_state": state}
            made, begun = await ask("/sessions?type=agent", {**session, "session_name": name})
            if made != 201:
                return made
            took = [begun]
            for _ in range(MESSAGES):
                message = {"message": "hi", "session_id": "s", "stream": False}
                status, bytes_ = await ask("/agents/echo/runs", message)
                if status != 200:
                    raise SystemExit(f"not answered: {status}")
                took.append(bytes_)
            return took


def main() -> None:
    """Measure each case, and compare."""
    cases = (
        (DEFAULT, 9_000_000, None),
        (DEFAULT, DEFAULT.state_bytes, None),
        (DEFAULT, DEFAULT.state_bytes, "a name"),
        (RAISED, 9_000_000, None),
        (RAISED, 9_000_000, "a name"),
    )
    for limits, size, name in cases:
        took = trio.run(partial(measure, limits, size, name))
        of = f"{size / 1e6:.2f} MB, {'with a name' if name else 'named by its first message'}"
        if isinstance(took, int):
            print(f"{of}: refused with {took}", flush=True)
            continue
        first, second, *others = took[1:]
        said = "as aimed at" if sum(took) <= AIM else f"the aim is {AIM:.0f}"
        print(
            f"{of}: {sum(took):.1f} MB in all ({said}): {took[0]:.1f} for the session, {first:.1f}"
            f" for the first message, {second:.2f} for the second, at most {max(others):.2f} for"
            " each other",
            flush=True,
        )


if __name__ == "__main__":
    main()
