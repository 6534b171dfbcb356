"""A node that is drained gives back what it holds: another one goes on at once."""

from __future__ import annotations

import json
import signal
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import pytest
import trio

from legation import Agent, Database, Model, Platform
from legation.http.messages import Request
from legation_asgi import asgi
from legation_host.hosting import open_platform

from ..providers.deliveries import ENVIRON, platform, whatsapp
from ..providers.server import listening
from ..providers.strict import WhatsAppApi
from .command_kit import Command, running
from .served import uvicorn_asyncio

CONFIGURATION: Final = """
[databases.main]
url = "{url}"
auto_migrate = true

[models.slow]
provider = "echo"
delay_seconds = {delay}

[[agents]]
id = "concierge"
model = "slow"

[channels.whatsapp]
kind = "whatsapp"
agent = "concierge"
app_secret_env = "APP_SECRET"
verify_token_env = "VERIFY"
access_token_env = "ACCESS"
phone_number_id = "111"
api_base_url = "{provider}/v22.0"
"""


@contextmanager
def node(folder: Path, url: str, provider: str, delay: float, *limits: str) -> Generator[Command]:
    """Serve, with an agent that takes `delay` seconds."""
    path = folder / f"{delay}.toml"
    path.write_text(CONFIGURATION.format(url=url, provider=provider, delay=delay))
    options = [word for limit in limits for word in ("--limit", limit)]
    with running(path, "--port", "0", *options, env=ENVIRON) as command:
        yield command


def send(port: int, method: str, target: str, body: str | bytes, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        read = answer.read()
        return answer.status, json.loads(read) if read else None


def deliver(port: int, message_id: str, words: str) -> None:
    sent = whatsapp(("4911", message_id, words))
    status, _ = send(port, "POST", sent.target, sent.body, **dict(sent.headers))
    assert status == 200


def begin(port: int, message: str) -> str:
    """Start a run in the background; return the path of it."""
    form = urlencode({"message": message, "session_id": "s", "background": "true"})
    kind = {"content-type": "application/x-www-form-urlencoded"}
    status, run = send(port, "POST", "/agents/concierge/runs", form, **kind)
    assert status == 202
    return f"/agents/concierge/runs/{run['run_id']}"


def until(told: Callable[[], Any], seconds: float = 20.0) -> float:
    """Wait until something is true; return the seconds it took."""
    began = time.monotonic()
    while not told():
        assert time.monotonic() - began < seconds
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture
def provider() -> Generator[tuple[WhatsAppApi, str]]:
    api = WhatsAppApi()
    with listening(api) as address:
        yield api, address


def texts(api: WhatsAppApi) -> list[str]:
    return [message.text for message in api.seen]


def test_another_node_answers_within_two_seconds_after_one_was_drained(
    postgres: str,
    tmp_path: Path,
    provider: tuple[WhatsAppApi, str],
    figures: Callable[[str], None],
) -> None:
    """The one that is drained was at work for the same sender, with 30 s of its lease ahead."""
    api, address = provider
    with node(tmp_path, postgres, address, 60.0, "drain_seconds=1") as one:
        deliver(one.port(), "a", "first")
        time.sleep(1.5)
        with node(tmp_path, postgres, address, 0.0) as two:
            port = two.port()
            one.signal(signal.SIGTERM)
            assert one.ended() == 0
            deliver(port, "b", "second")
            took = until(lambda: texts(api) == ["first", "second"])

    figures(f"drain: the next node answered {took:.1f} s after one was drained (leases: 30 s)")
    assert took < 2.0
    assert one.named("shutdown_incomplete") == []


def test_what_comes_to_its_end_within_the_limit_is_finished_by_the_node_itself(
    tmp_path: Path, provider: tuple[WhatsAppApi, str]
) -> None:
    _, address = provider
    url = f"sqlite:///{tmp_path}/main.db"
    with node(tmp_path, url, address, 1.5, "drain_seconds=10") as one:
        begin(one.port(), "hello")
        deliver(one.port(), "a", "first")
        time.sleep(0.5)
        one.signal(signal.SIGTERM)
        assert one.ended() == 0

    assert rows(tmp_path, "select status, reason from runs") == [("COMPLETED", None)] * 2
    assert rows(tmp_path, "select state from inbox") == [("done",)]
    assert rows(tmp_path, "select state, lease_by from outbox") == [("ready", None)]


def test_a_run_that_does_not_is_released_with_its_steps(
    tmp_path: Path, provider: tuple[WhatsAppApi, str]
) -> None:
    _, address = provider
    url = f"sqlite:///{tmp_path}/main.db"
    with node(tmp_path, url, address, 60.0, "drain_seconds=1") as one:
        for message in ("hello", "waits"):
            begin(one.port(), message)
        deliver(one.port(), "a", "first")
        time.sleep(0.5)
        one.signal(signal.SIGTERM)
        assert one.ended() == 0

    runs = "select status, reason, lease_by from runs where session_id = 's' order by run_no"
    assert rows(tmp_path, runs) == [("PENDING", "recorded", None), ("PENDING", None, None)]
    inbox = "select state, lease_by, lease_us from inbox"
    assert rows(tmp_path, inbox) == [("ready", None, None)]


def test_who_waits_for_a_run_is_told_before_the_connection_ends(
    tmp_path: Path, provider: tuple[WhatsAppApi, str]
) -> None:
    _, address = provider
    url = f"sqlite:///{tmp_path}/main.db"
    answers: list[tuple[int, Any]] = []
    with node(tmp_path, url, address, 60.0, "drain_seconds=8", "grace_seconds=1") as one:
        port = one.port()

        def ask() -> None:
            form = urlencode({"message": "hi", "stream": "false"})
            kind = {"content-type": "application/x-www-form-urlencoded"}
            answers.append(send(port, "POST", "/agents/concierge/runs", form, **kind))

        def begun() -> bool:
            return rows(tmp_path, "select status from runs") == [("RUNNING",)]

        async def main() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, ask)
                await trio.to_thread.run_sync(until, begun)
                one.signal(signal.SIGTERM)

        trio.run(main)
        assert one.ended() == 0

    (waiting,) = rows(tmp_path, "select run_id, status from runs")
    assert waiting[1] == "PENDING"
    ((status, answer),) = answers
    assert status == 503
    assert waiting[0] in answer["detail"]


def test_a_second_signal_gives_back_too_and_waits_for_nothing(
    tmp_path: Path, provider: tuple[WhatsAppApi, str]
) -> None:
    _, address = provider
    url = f"sqlite:///{tmp_path}/main.db"
    with node(tmp_path, url, address, 60.0) as one:
        deliver(one.port(), "a", "first")
        time.sleep(0.5)
        for _ in range(2):
            one.signal(signal.SIGTERM)
            time.sleep(0.1)
        assert until(lambda: one.popen.poll() is not None) < 5.0

    assert rows(tmp_path, "select state, lease_by from inbox") == [("ready", None)]


def rows(folder: Path, select: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "main.db")) as database:
        return database.execute(select).fetchall()


# --- under ASGI --------------------------------------------------------------------------------


def hosting(folder: Path, delay: float) -> Platform:
    return platform(
        databases=[Database("main", f"sqlite:///{folder}/main.db")],
        models=[Model("slow", "echo", delay_seconds=delay)],
        agents=[Agent(id="concierge", model="slow")],
    )


@pytest.mark.parametrize(
    ("delay", "ended"), [(1.0, ("COMPLETED", None)), (60.0, ("PENDING", "recorded"))]
)
def test_the_shut_down_of_an_asgi_server_drains_as_well(
    tmp_path: Path, delay: float, ended: tuple[str, str | None]
) -> None:
    with uvicorn_asyncio(asgi(hosting(tmp_path, delay), drain_seconds=2.0)) as wire:
        fields = ((b"content-type", b"application/x-www-form-urlencoded"),)
        body = b"message=hi&session_id=s&background=true"
        assert wire.send("POST", "/agents/concierge/runs", fields, body).status == 202
        time.sleep(0.3)

    assert rows(tmp_path, "select status, reason from runs") == [ended]


def test_a_host_that_is_cancelled_gives_back_what_it_holds(tmp_path: Path) -> None:
    sent = whatsapp(("4911", "a", "first"))
    made = hosting(tmp_path, 60.0)

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with open_platform(made) as host:
                told = [(name.encode(), value.encode()) for name, value in sent.headers]
                headers = ((b"host", b"x"), *told)
                request = Request("POST", sent.target, headers)
                await host.run(made.answer(request), body=Body(sent.body))
                # Of a claim alone the node may not have heard yet; of one that has a run, it has.
                while not rows(tmp_path, "select 1 from runs"):
                    await anyio.sleep(0.02)
                scope.cancel()
                await anyio.sleep(1)

    anyio.run(main)
    assert rows(tmp_path, "select state, lease_by from inbox") == [("ready", None)]


class Body:
    def __init__(self, data: bytes) -> None:
        self.data = data

    async def read(self, limit: int) -> bytes | None:
        return self.data
