"""One story in the console: a run is started, allowed, broken off by a crash, and goes on."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest

from ..browser import NoBrowser
from ..callers import Issuer
from ..ports import free_port
from ..providers.server import Faults, listening
from ..providers.strict import WhatsAppApi
from .command_kit import running
from .console_kit import Console, console
from .console_world import World, environment

ROOT: Final = Path(__file__).parents[2]
MODULE: Final = """
from tests.frontends.console_world import platform
office = platform()
"""
HURRY: Final = """
const after = window.setInterval;
window.setInterval = (act, ms) => after(act, ms / 20);
"""
"""A screen that looks again every 10 s does so every half a second."""

SCOPES: Final = (
    *("agents:read", "agents:run", "runs:read", "approvals:read", "approvals:write"),
    *("channels:read", "channels:write", "audit:read"),
)


@pytest.fixture
def shown() -> Generator[Console]:
    try:
        with console() as started:
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


def start_and_allow(shown: Console) -> None:
    """Ask for a payment, allow it, and see it under way."""
    shown.write("Message", "pay Adlon")
    shown.click("Send")
    shown.wait_for("button", "Approve")
    shown.show("/approvals")
    shown.click("Approve pay Adlon")
    shown.wait_for("textbox", "Note")
    shown.click("Approve")
    shown.wait_text("Approved: the run goes on.")
    shown.show("/runs?status=RUNNING")
    shown.click("Clerk agent", "link")
    shown.page.wait("document.querySelector('.facts')?.innerText.includes('RUNNING')")
    shown.wait_text("goes on")


def look_after_a_dead_letter(shown: Console, world: World) -> None:
    """Find a reply that was given up, and send it again."""
    world.deliver([("4911", "m1", "hello")])
    world.until_dead(1)
    world.provider.reachable = True
    shown.show("/channels")
    shown.click("front-desk replies", "link")
    shown.click("Retry reply-m1")
    shown.wait_text("No dead letters")
    world.until_sent("4911")


def read_the_trail(shown: Console) -> None:
    """Find both in the trail, with who did it."""
    resolve = "resolve_approval_approvals__approval_id__resolve_post"
    for operation in ("create_agent_run", resolve, "retry_channel_reply"):
        shown.show(f"/audit?subject=ada&operation={operation}")
        shown.page.wait(
            f"document.querySelector('tbody')?.innerText.includes({json.dumps(operation)})"
        )
        assert "allow" in shown.text("tbody")


def test_a_run_that_somebody_allows_goes_on_after_a_crash(shown: Console, tmp_path: Path) -> None:
    issuer, provider, gate = Issuer(), WhatsAppApi(reachable=False), tmp_path / "gate"
    (tmp_path / "story.py").write_text(MODULE)
    port = free_port()
    with listening(provider, Faults()) as base:
        env = {**environment(tmp_path, base, issuer, gate), "PYTHONPATH": f"{ROOT}:{tmp_path}"}
        serve = ("story:office", "--port", str(port))
        world = World(f"http://127.0.0.1:{port}", issuer, provider, Faults())
        with running(*serve, env=env) as first:
            first.until_served()
            shown.open(world.origin, world.token(*SCOPES), "/playground/agent/clerk")
            start_and_allow(shown)
            first.signal(signal.SIGKILL)
            first.ended()
        shown.wait_text("The server does not answer.")
        gate.touch()
        with running(*serve, env=env) as second:
            second.until_served()
            shown.wait_text("120 paid to Adlon")
            look_after_a_dead_letter(shown, world)
            read_the_trail(shown)
            second.signal(signal.SIGKILL)  # a browser keeps its connections: nobody waits for them


def test_a_server_that_goes_away_is_told_and_comes_back_by_itself(
    shown: Console, tmp_path: Path
) -> None:
    issuer, port = Issuer(), free_port()
    (tmp_path / "story.py").write_text(MODULE)
    with listening(WhatsAppApi(), Faults()) as base:
        given = environment(tmp_path, base, issuer, tmp_path / "gate")
        env = {**given, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
        serve = ("story:office", "--port", str(port))
        world = World(f"http://127.0.0.1:{port}", issuer, WhatsAppApi(), Faults())
        with running(*serve, env=env) as first:
            first.until_served()
            shown.open(world.origin, world.token("nodes:read"))
            shown.page.call("Page.addScriptToEvaluateOnNewDocument", source=HURRY)
            shown.page.call("Page.reload")
            shown.wait_text("answers you")
            first.signal(signal.SIGKILL)
            first.ended()
        shown.wait_text("The server does not answer.")
        assert "answers you" in shown.text("main")  # what it showed stays
        with running(*serve, env=env) as second:
            second.until_served()
            gone = "!document.querySelector('main').innerText.includes('does not answer')"
            shown.page.wait(gone)
            assert "answers you" in shown.text("main")
            second.signal(signal.SIGKILL)
        refused = "Failed to load resource: net::ERR_"
        assert [one for one in shown.page.complaints if not one.startswith(refused)] == []
