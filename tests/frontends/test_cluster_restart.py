"""Killed and started again on one machine: nobody waits for the lease of a process that is gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ..providers.deliveries import whatsapp
from ..providers.server import listening
from ..providers.strict import WhatsAppApi
from .cluster_kit import Talk, ask_json, await_true, begin_run, node, send, status_of
from .command_kit import Command
from .drain_kit import RUNS

LEASE: Final = 30.0
SPEECH: Final = 2.0
"""Seconds: a message whose run was interrupted is answered by another run."""


@pytest.fixture(params=["sqlite", "sqlite, 2 workers", "postgresql"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, int]:
    """A kind, a URL and a number of workers."""
    kind: str = request.param
    if kind == "postgresql":
        return kind, request.getfixturevalue("postgres"), 1
    return kind, f"sqlite:///{tmp_path}/main.db", 2 if kind.endswith("workers") else 1


def kill_all(command: Command) -> None:
    """Kill the server, its processes first, so that none of them notices the end of another."""
    for pid in command.workers:
        os.kill(pid, signal.SIGKILL)
    command.popen.kill()
    command.popen.wait()


def test_what_was_under_way_ends_or_goes_on_at_once(
    case: tuple[str, str, int], figures: Callable[[str], None]
) -> None:
    kind, url, workers = case
    api = WhatsAppApi()
    with listening(api) as provider:
        started = (url, "--workers", str(workers))
        with node(*started, lease=LEASE, provider=provider) as server:
            port = server.port()
            talk = Talk(port, 8, 8.0, streamed=True, session="s")
            talk.begin()
            await_true(lambda: "RunContent" in talk.outcome.names)
            waiting = begin_run(port, "hello", "s")
            assert send(port, whatsapp(("4911", "m1", f"2 words in {SPEECH} s"))) == 200
            await_true(lambda: len(ask_json(port, "GET", "/sessions?db_id=main")[1]["data"]) == 2)
            before = status_of(port, waiting)
            kill_all(server)
        with node(*started, lease=LEASE, provider=provider) as server:
            port = server.port()
            served = time.monotonic()
            assert send(port, whatsapp(("4922", "m2", "hi"))) == 200
            resumed = await_true(lambda: server.named("run_resumed"))
            await_true(lambda: {"4911", "4922"} <= {message.recipient for message in api.seen})
            took = time.monotonic() - served - SPEECH
            last = await_true(lambda: status_of(port, waiting) == "COMPLETED") + took
            run = ask_json(port, "GET", f"{RUNS}/{talk.outcome.run_id}")[1]

    figures(
        f"killed and started again, {kind}: the run went on after {resumed:.2f} s, what waited for"
        f" nobody within {took:.2f} s, and what waited for the run {last:.2f} s"
    )
    assert before == "PENDING"
    assert run["status"] == "COMPLETED"
    assert [m.text for m in api.seen if m.recipient == "4922"] == ["hi"]
    assert took < LEASE / 3
