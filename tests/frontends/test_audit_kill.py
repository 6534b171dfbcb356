"""A process that is killed: every change has its row, and the reads of the last 100 ms are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from legation.store.audit import ReadPages
from legation.store.audit_verify import Intact
from legation_host.databases import open_reader

from ..trail_pages import entries_in, verify_pages

OLD: Final = 40  # reads that were answered longer ago than a batch is gathered
YOUNG: Final = 7  # reads that were answered just before
CHANGES: Final = 3  # after the reads, the last thing that is answered

PROCESS: Final = f"""
import os, signal, sys
import anyio
from legation import Agent, Database, Platform
from legation.http.messages import Request, Response
from legation_host.hosting import open_platform

class Content:
    async def read(self, limit):
        return b"message=hi&background=true"

FORM = ((b"content-type", b"application/x-www-form-urlencoded"),)
platform = Platform(databases=[Database("main", sys.argv[1])], agents=[Agent(id="a")])

async def main():
    async with open_platform(platform) as host:
        async def ask(method, target, status):
            answer = await host.run(platform.answer(Request(method, target, FORM)), body=Content())
            assert answer.status == status, answer
        for _ in range({OLD}):
            await ask("GET", "/agents", 200)
        await anyio.sleep(0.5)
        for _ in range({YOUNG}):
            await ask("GET", "/agents/a", 200)
        for _ in range({CHANGES}):
            await ask("POST", "/agents/a/runs", 202)
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main, backend=sys.argv[2])
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_kill_loses_no_change_and_no_old_read(
    backend: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    url = f"sqlite:///{tmp_path / 'main.db'}"
    killed = subprocess.run(
        [sys.executable, "-c", PROCESS, url, backend],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    with open_reader("main", url) as read:
        pages = read(ReadPages("", 0, 1000))
    kept = Counter(entry.operation for entry in entries_in(pages))
    assert isinstance(verify_pages(pages), Intact)
    assert kept["create_agent_run"] == CHANGES
    assert kept["get_agents"] == OLD
    assert kept["get_agent"] <= YOUNG
    figures(
        f"audit: killed on {backend}: {CHANGES} of {CHANGES} changes kept, {OLD} of {OLD} reads"
        f" half a second old, {kept['get_agent']} of {YOUNG} younger ones"
    )
