"""The bytes stored and written for each byte of a message of 1 MiB, by one client and by four.

    python benchmarks/fair_shares/once.py

Each message is another one.  The model repeats it, or answers with two words.  The pieces of a
streamed answer are stored as they come, beside the whole of it.  In brackets is what is stored
while a node for the schema 2.8.0 lives, which is what that release did.  Stored are the pages of
the SQLite file that were taken for it; written is what the process has handed to the kernel, the
log of the file and its checkpoints included.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import trio
from attrs import define

from legation import Agent, Database, Platform, Request
from legation.http.messages import Streamed
from legation.models.conversation import Prompt
from legation_host.hosting import open_platform
from legation_testing import Says, ScriptedModel

MESSAGE: Final = 1 << 20
MESSAGES: Final = 4
CLIENTS: Final = (1, 4)
AIM: Final = 1.1
AIM_IN_PIECES: Final = 2.5
FORM: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"localhost"))


@define
class Body:
    """The body of a request, which is there."""

    rest: bytes

    async def read(self, limit: int) -> bytes:
        """Return it."""
        return self.rest


class Sink:
    """A client that drops what it reads."""

    async def send(self, data: bytes) -> None:
        """Drop it."""
        await trio.lowlevel.checkpoint()


def count_written() -> int:
    """Return how many bytes this process has handed to the kernel, as Linux counts them."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def take_pages(file: Path) -> int:
    """Return the bytes of the pages that are taken in a database, once the log is in it."""
    with closing(sqlite3.connect(file)) as database:
        database.execute("pragma wal_checkpoint(truncate)")
        names = ("page_count", "freelist_count", "page_size")
        count, free, size = (database.execute(f"pragma {name}").fetchone()[0] for name in names)
    return int((count - free) * size)


def enter_old_node(file: Path) -> None:
    """Have a node live for ever whose code does not know of marks."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "insert into nodes (node_id, started_us, beat_us, until_us, code_version,"
            f" schema_version) values ('old', 1, 1, {1 << 60}, '0', '2.8.0')"
        )


def answer(prompt: Prompt) -> Says:
    """Answer with two words."""
    return Says("All right.")


async def measure(agent: str, clients: int, *, stream: bool, old: bool) -> tuple[float, float]:
    """Return how many times over a message is stored, and written."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "main.db"
        agents = [
            Agent(id="repeated", history_runs=0),
            Agent(id="short", model=ScriptedModel([answer] * 99), history_runs=0),
        ]
        platform = Platform(agents=agents, databases=[Database("main", f"sqlite:///{file}")])
        async with open_platform(platform) as host:

            async def run(message: str, session_id: str) -> None:
                form: dict[str, Any] = {"message": message, "session_id": session_id}
                body = urlencode({**form, "stream": json.dumps(stream)}).encode()
                headers = (*FORM, (b"content-length", b"%d" % len(body)))
                request = Request("POST", f"/agents/{agent}/runs", headers)
                done = await host.run(platform.answer(request), body=Body(body))
                if done.status != 200:
                    raise SystemExit(f"not answered: {done}")
                if isinstance(done, Streamed):
                    await host.run(done.body, sink=Sink())

            async def talk(client: int) -> None:
                for number in range(MESSAGES):
                    await run(f"{client} {number} ".ljust(MESSAGE, "m"), f"s{client}")

            if old:
                await run("hello", "first")
                enter_old_node(file)
                await trio.sleep(platform.config.lease_seconds / 3)
            await run("hello", "second")
            before, taken = count_written(), take_pages(file)
            async with trio.open_nursery() as nursery:
                for client in range(clients):
                    nursery.start_soon(talk, client)
            total = clients * MESSAGES * MESSAGE
            return (take_pages(file) - taken) / total, (count_written() - before) / total


def main() -> None:
    """Measure each case, and compare."""
    for agent in ("repeated", "short"):
        for stream in (False, True):
            aim = AIM_IN_PIECES if stream and agent == "repeated" else AIM
            for clients in CLIENTS:
                case = partial(measure, agent, clients, stream=stream)
                stored, handed = trio.run(partial(case, old=False))
                whole, before = trio.run(partial(case, old=True))
                how = "streamed" if stream else "joined"
                said = "as aimed at" if stored <= aim else f"the aim is {aim}"
                print(
                    f"{agent} answer, {how}, {clients} clients: stored {stored:.2f} times ({said},"
                    f" before {whole:.2f}), written {handed:.2f} times (before {before:.2f})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
