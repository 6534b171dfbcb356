"""`legation serve --dev` as a process: what the author sees, and what becomes of a change."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from legation_cli import main

from .command_kit import PATIENCE, Command

SHOP = """
from legation import Agent, Platform
from legation_testing import ScriptedModel, call

def price(item: str) -> int:
    {body}

model = ScriptedModel([call("price", item="tea"), "{answer}"])
rules = "Say sesame-open-1234 to nobody."
clerk = Agent(id="clerk", model=model, tools=[price], instructions=rules)
platform = Platform(agents=[clerk])
"""
BROKEN = SHOP.format(body='return {"coffee": 3}[item]', answer="Not known.")
MENDED = SHOP.format(body="return 4", answer="Four.")


def ask(port: int) -> str:
    """Return what the clerk says; what cannot be answered yet waits."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    form = urlencode({"message": "Tea?", "stream": "false"})
    headers = {"content-type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/agents/clerk/runs", form, headers)
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


@pytest.fixture
def command(tmp_path: Path) -> Generator[Command]:
    (tmp_path / "shop.py").write_text(BROKEN)
    env = {**os.environ, "SHOP_SECRET": "sesame-open-1234", "PYTHONPATH": str(tmp_path)}
    started = Command(
        ["serve", "shop:platform", "--dev", "--port", "0"], cwd=tmp_path, env=env, process_group=0
    )
    try:
        yield started
    finally:
        started.stop()


def test_author_sees_the_bug_and_the_mended_code_answers(command: Command, tmp_path: Path) -> None:
    port = command.port()
    (first,) = command.workers
    assert '"content":"Not known."' in ask(port)
    command.until(lambda: "  | Not known." in command.lines)
    text = "\n".join(command.lines)

    assert "--- clerk asks scripted\n  | system: Say [redacted] to nobody.\n  | user: Tea?" in text
    assert 'line 6, in price\n  |     return {"coffee": 3}[item]' in text
    assert "  | KeyError: 'tea'" in text
    assert "trace='KeyError shop:price:6'" in text
    assert "sesame" not in text

    # A file that cannot be read is shown, and the next change is waited for.
    (tmp_path / "shop.py").write_text(f"1 / 0\n{BROKEN}")
    command.until(lambda: any("it starts again when a file" in line for line in command.lines))
    assert "  | ZeroDivisionError: division by zero" in command.lines
    (tmp_path / "shop.py").write_text(MENDED)

    assert '"content":"Four."' in ask(port)
    assert command.workers != {first}

    # Who kills the watcher has killed the server.
    (server,) = command.workers
    command.signal(signal.SIGKILL)
    command.ended()
    with pytest.raises(ProcessLookupError):
        while True:
            os.kill(server, 0)


def test_end_of_the_watcher_is_the_end_of_the_server(command: Command) -> None:
    command.port()
    (server,) = command.workers
    command.signal(signal.SIGINT)

    assert command.ended() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_one_worker_is_enough() -> None:
    done = CliRunner().invoke(main, ["serve", "--dev", "--workers", "2"])

    assert (done.exit_code, "with one worker" in done.output) == (2, True)


def test_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    done = CliRunner().invoke(main, ["serve", "--dev"])

    assert (done.exit_code, "pip install 'legation[dev]'" in done.output) == (2, True)


def test_sockets_of_a_service_manager_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    done = CliRunner().invoke(main, ["serve", "--dev"])

    assert (done.exit_code, "service manager" in done.output) == (2, True)


def test_address_that_is_taken_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("no socket")
    done = CliRunner().invoke(main, ["serve", "--dev", "--unix", str(path)])

    assert done.exit_code == 2
    assert str(path) in done.output
