"""What a server is sent by mistake or in malice: an answer, and a session that is as it was."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio

from legation import Platform
from legation.config import Agent, Database
from legation.effects import Program
from legation.http.messages import Request, Response
from legation.models.conversation import Listener, Prompt, Reply, Usage
from legation.values import frozen
from legation_host import Host
from legation_host.hosting import open_platform
from legation_server import Settings, open_listeners, serve

from .hosted import hosted

MEGABYTE: Final = 1_000_000
TARGET: Final = "/agents/quick/runs"
MESSAGE: Final = {"message": "hi", "session_id": "s", "stream": "false"}


WORDS: Final = 40_000  # some ten megabytes of events, more than the kernel takes for a client


@frozen
class Reciter:
    """Says so many words, a hundred at a time."""

    id: str = "reciter"
    name: str = "Reciter"
    provider: str = "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        for number in range(WORDS):
            listener.hear("x ")
            if number % 100 == 0:
                yield from listener.settle()
        return Reply("x " * WORDS, Usage(len(prompt.messages), WORDS))


def platform(folder: Path) -> Platform:
    return Platform(
        databases=(Database("main", f"sqlite:///{folder}/main.db", auto_migrate=True),),
        agents=(Agent(id="quick"), Agent(id="reciter", model=Reciter())),
    )


@pytest.fixture
def client(tmp_path: Path) -> Generator[httpx2.Client]:
    """A client of a server with one run in the session `s`."""
    with hosted(platform(tmp_path)) as address, httpx2.Client(base_url=address) as opened:
        assert opened.post(TARGET, data=MESSAGE).status_code == 200
        yield opened


def session(client: httpx2.Client) -> Any:
    """Return the session and its runs, as clients see them."""
    found = [client.get("/sessions/s"), client.get("/sessions/s/runs")]
    assert [response.status_code for response in found] == [200, 200]
    return [response.json() for response in found]


def goes_on(client: httpx2.Client) -> None:
    """Check that the next run of the session works."""
    before = len(session(client)[1])
    assert client.post(TARGET, data=MESSAGE).json()["status"] == "COMPLETED"
    assert [run["status"] for run in session(client)[1]] == ["COMPLETED"] * (before + 1)


def in_pieces(size: int) -> Iterator[bytes]:
    """Yield a form of so many bytes, whose length nobody is told."""
    yield b"message="
    for _ in range(size // MEGABYTE):
        yield b"x" * MEGABYTE


FORM: Final = {"content-type": "application/x-www-form-urlencoded"}
TOO_LARGE: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "a file": lambda: {"data": MESSAGE, "files": {"files": ("a.pdf", bytes(30 * MEGABYTE))}},
    "a field": lambda: {"data": {**MESSAGE, "message": "x" * 30 * MEGABYTE}},
    "in chunks": lambda: {"content": in_pieces(30 * MEGABYTE), "headers": FORM},
}


@pytest.mark.parametrize("form", TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_form_of_30_megabytes_is_413_and_the_session_is_as_it_was(
    client: httpx2.Client, form: Callable[[], dict[str, Any]]
) -> None:
    before = session(client)
    refused = client.post(TARGET, **form())

    assert refused.status_code == 413
    assert refused.json()["error_code"] == "PAYLOAD_TOO_LARGE"
    assert session(client) == before
    goes_on(client)


@pytest.mark.parametrize("kind", ["application/x-msdownload", "application/octet-stream", "pdf"])
def test_a_file_of_an_unsupported_type_is_400_and_the_session_is_as_it_was(
    client: httpx2.Client, kind: str
) -> None:
    before = session(client)
    refused = client.post(TARGET, data=MESSAGE, files={"files": ("a.exe", b"MZ\x90\0\3\0", kind)})

    assert refused.status_code == 400
    assert refused.json()["detail"].startswith("Unsupported file type: a.exe is ")
    assert session(client) == before
    goes_on(client)


WRITE_SECONDS: Final = 0.5
HEAD: Final = (
    "POST /agents/reciter/runs HTTP/1.1\r\nHost: a\r\n"
    "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n"
)


def unwilling() -> trio.socket.SocketType:
    """Return a socket that takes next to nothing at a time."""
    made = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return made


async def told(host: Host, platform: Platform, target: str) -> Any:
    """Return the JSON of an answer."""
    request = Request("GET", target, ((b"host", b"a"),))
    answer = await host.run(platform.answer(request))
    assert isinstance(answer, Response)
    return json.loads(answer.body)


async def test_a_client_that_reads_a_byte_at_a_time_is_dropped_and_its_run_is_stored(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    made = platform(tmp_path)
    settings = Settings(write_seconds=WRITE_SECONDS)
    listeners = open_listeners("127.0.0.1", 0)
    port = listeners[0].getsockname()[1]
    body = "stream=true&session_id=s&message=go"
    async with open_platform(made) as host, trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, made, host, listeners, settings))
        with unwilling() as client, trio.fail_after(30):
            await client.connect(("127.0.0.1", port))
            await client.send((HEAD.format(len(body)) + body).encode())
            read = 0
            while server.connections or not read:
                try:
                    read += len(await client.recv(1))
                except OSError:
                    break
                await trio.sleep(WRITE_SECONDS / 5)
            while server.connections:
                await trio.sleep(0.01)
        assert read < 1000
        with trio.fail_after(30):
            while (run := (await told(host, made, "/sessions/s/runs"))[0])["status"] == "RUNNING":
                await trio.sleep(0.1)
        assert (run["status"], run["content"].split()) == ("COMPLETED", ["x"] * WORDS)
        with closing(sqlite3.connect(tmp_path / "main.db")) as connection:
            ((events,),) = connection.execute(
                "select count(*) from events where name = 'RunContent'"
            )
        assert events == WORDS
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as other:
            assert (await other.post(TARGET, data=MESSAGE)).json()["status"] == "COMPLETED"
        server.drain()
    figures(f"runs: a client that read {read} bytes of a stream was dropped, its run was stored")
