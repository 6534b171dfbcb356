"""Clients that come back to a stream: cut off, or with the server killed under the run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from attrs import frozen

from legation import Platform
from legation.config import Agent, Model

from ..two_databases import in_folder
from .command_kit import Command, running
from .hosted import hosted

ROUND_SECONDS: Final = 1.0
SLACK_SECONDS: Final = 30.0  # for a machine that has other things to do
PATIENCE: Final = 60.0

CONFIGURATION: Final = """
[platform]
lease_seconds = 8

[databases.main]
url = "sqlite:///{folder}/main.db"

[databases.second]
url = "{second}"
auto_migrate = true

[models.slow]
provider = "echo"
delay_seconds = 20

[[agents]]
id = "sloth"
model = "slow"

[[agents]]
id = "quick"
"""


@frozen
class Event:
    """One event as it came."""

    id: str
    name: str
    data: Mapping[str, Any]


@frozen
class Remote:
    """A server at a port of this machine."""

    port: int

    @contextmanager
    def request(
        self, method: str, target: str, *, after: str | None = None, **form: str
    ) -> Generator[HTTPResponse]:
        """Send a request on a connection of its own, which is closed when the block ends."""
        headers = {} if after is None else {"last-event-id": after}
        if form:
            headers["content-type"] = "application/x-www-form-urlencoded"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with closing(connection):
            connection.request(method, target, urlencode(form) or None, headers)
            yield connection.getresponse()

    def json(self, method: str, target: str, **form: str) -> Any:
        """Return the JSON of an answer that is a success."""
        with self.request(method, target, **form) as response:
            body = response.read()
            assert response.status == 200, body
            return json.loads(body)

    def events(self, run: str, *, after: str | None = None) -> list[Event]:
        """Return the events of a run behind `after`, up to the end of the stream."""
        with self.request("GET", f"{run}/events", after=after) as response:
            assert response.status == 200
            return list(read(response))


def lines_of(response: HTTPResponse) -> Generator[bytes]:
    """Yield the lines of a body; `http.client` itself takes one that was cut for a whole one."""
    rest = b""
    while data := response.read1(65536):
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def read(response: HTTPResponse) -> Generator[Event]:
    """Yield the events of a stream as they come; a comment is none.

    Raises:
        HTTPException: The body is cut.
    """
    fields: dict[str, str] = {}
    for line in lines_of(response):
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "data" in fields:
            yield Event(fields["id"], fields["event"], json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


def beginning(remote: Remote, agent: str, count: int, **form: str) -> list[Event]:
    """Start a streamed run, and leave when `count` of its events have come."""
    with remote.request("POST", f"/agents/{agent}/runs", stream="true", **form) as response:
        stream = read(response)
        return [next(stream) for _ in range(count)]


def numbered(events: list[Event]) -> None:
    """Check that the events of a run are all there, each once and in order."""
    run_id = events[0].data["run_id"]
    assert [event.id for event in events] == [f"{run_id}:{n + 1}" for n in range(len(events))]
    assert {event.data["run_id"] for event in events} == {run_id}


def test_who_leaves_after_any_event_gets_the_others_once_and_in_order(
    tmp_path: Path, second_database: str, figures: Callable[[str], None]
) -> None:
    platform = Platform(
        databases=in_folder(tmp_path, second_database),
        models=(Model("slow", "echo", delay_seconds=0.5),),
        agents=(Agent(id="sloth", model="slow"),),
    )
    with hosted(platform) as address:
        remote = Remote(urlsplit(address).port or 0)
        first = beginning(remote, "sloth", 1, message="one two three", session_id="s")
        run = f"/agents/sloth/runs/{first[0].data['run_id']}"
        before = remote.json("GET", run)["status"]
        rest = remote.events(run, after=first[-1].id)
        union = first + rest
        numbered(union)
        assert (before, remote.json("GET", run)["status"]) == ("RUNNING", "COMPLETED")
        assert [event.name for event in union].count("RunContent") == 3
        assert (union[0].name, union[-1].name) == ("RunStarted", "RunCompleted")
        assert remote.events(run) == union
        for place, event in enumerate(union, start=1):
            assert remote.events(run, after=event.id) == union[place:]
    figures(f"runs: cut off and followed again behind each of {len(union)} events, none lost")


def killed(server: Command) -> None:
    """Kill the server, which is one process, and the one that watches it."""
    assert len(server.workers) == 1
    server.popen.kill()
    server.popen.wait()


def test_a_run_whose_server_was_killed_goes_on_and_keeps_what_was_seen(
    tmp_path: Path, second_database: str, figures: Callable[[str], None]
) -> None:
    """The next server on the machine sees at once that the one before is dead."""
    file = tmp_path / "platform.toml"
    file.write_text(CONFIGURATION.format(folder=tmp_path, second=second_database))
    with running(file, "--port", "0") as server:
        form = {"message": "one two", "session_id": "s"}
        remote = Remote(server.port())
        with remote.request("POST", "/agents/sloth/runs", stream="true", **form) as response:
            stream = read(response)
            seen = [next(stream), next(stream)]
            killed(server)
    died = time.time()
    run = f"/agents/sloth/runs/{seen[0].data['run_id']}"
    with running(file, "--port", "0") as server:
        remote = Remote(server.port())
        rest = remote.events(run, after=seen[-1].id)
        took = rest[0].data["created_at"] - died
        union = seen + rest

        assert took < ROUND_SECONDS + SLACK_SECONDS
        numbered(union)
        assert (rest[0].name, rest[0].data["resumed"]) == ("RunContinued", True)
        assert [event.name for event in union].count("RunStarted") == 1
        assert rest[-1].name == "RunCompleted"
        assert remote.json("GET", run)["status"] == "COMPLETED"
        assert remote.events(run) == union
        assert remote.events(run, after=seen[0].id) == union[1:]
        after = remote.json("POST", "/agents/quick/runs", stream="false", **form)
        assert after["status"] == "COMPLETED"
        rows = remote.json("GET", "/sessions/s/runs?db_id=main")
        assert [row["status"] for row in rows] == ["COMPLETED", "COMPLETED"]
    figures(f"runs: server killed under a stream, gone on with after {took:.1f} s, no event lost")
