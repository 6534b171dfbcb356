"""The client and remote examples of AgentOS 2.5.6, unchanged, against this server.

They are not among the packages that AgentOS publishes: `AGENTOS_EXAMPLES` names the folder
`cookbook/05_agent_os` of its sources at that version.  They ask at fixed ports of localhost.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from .processes import started, until_alive

FOLDER: Final = os.environ.get("AGENTOS_EXAMPLES", "")
PORTS: Final = (7777, 7778)

pytestmark = pytest.mark.skipif(not FOLDER, reason="AGENTOS_EXAMPLES names no folder")

PLATFORM: Final = """
from legation import Agent, Database, Platform, Team

platform = Platform(
    id="examples",
    databases=[Database("main", "sqlite:///{folder}/main.db")],
    agents=[
        Agent(id="assistant-agent", name="Assistant"),
        Agent(id="researcher-agent", name="Researcher"),
    ],
    teams=[
        Team(id="research-team", name="Research Team",
             members=["assistant-agent", "researcher-agent"]),
    ],
)
"""

RUN: Final = frozenset(
    {
        "client/01_basic_client.py",
        "client/02_run_agents.py",
        "client/04_session_management.py",
        "client/06_run_teams.py",
        "client/07_run_workflows.py",
        "remote/01_remote_agent.py",
        "remote/02_remote_team.py",
    }
)
"""Those that run from their first line to their last without an error."""

LACKING: Final = {
    "client/03_memory_operations.py": "memories are not kept here",
    "client/05_knowledge_search.py": "knowledge is not searched here",
    "client/08_run_evals.py": "evaluations are not run here",
    "client/09_upload_content.py": "knowledge is not kept here",
    "remote/03_remote_agno_a2a_agent.py": "it speaks A2A",
    "remote/04_remote_adk_agent.py": "it speaks A2A to another product",
    "remote/05_agent_os_gateway.py": "it asks agents that speak A2A as well",
}
"""The others, and why."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """A platform at each port; of one database, as theirs: they name none."""
    with ExitStack() as stack:
        for port in PORTS:
            folder = tmp_path_factory.mktemp(f"port-{port}")
            (folder / "examples.py").write_text(PLATFORM.format(folder=folder))
            command = ("-m", "legation_cli", "serve", "examples:platform", "--port", port)
            said = stack.enter_context(started(folder, "served", *command))
            until_alive(f"http://localhost:{port}", said)
        yield


@pytest.mark.usefixtures("served")
def test_examples_run_unchanged(figures: Callable[[str], None]) -> None:
    found = {
        f"{kind}/{path.name}"
        for kind in ("client", "remote")
        for path in (Path(FOLDER) / kind).glob("0*.py")
    }

    failed = {name: why for name in sorted(RUN) if (why := run(Path(FOLDER) / name))}

    figures(
        f"examples of AgentOS 2.5.6: {len(RUN) - len(failed)} of {len(found)} run unchanged"
        f" ({', '.join(sorted(RUN - set(failed)))}); not so"
        f" {', '.join(f'{name}: {why}' for name, why in LACKING.items())}"
    )
    assert failed == {}
    assert found == RUN | set(LACKING)


def run(example: Path) -> str:
    """Return what went wrong, in its last words; nothing if all went well."""
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    wrong = done.returncode != 0 or "Error" in said
    return (said.strip().splitlines() or ["failed"])[-1] if wrong else ""
