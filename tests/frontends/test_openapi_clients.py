"""A client made by a generator that knows nothing of us: it type-checks, and it works.

Runs in the nox session `api-client`, which has the generator.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest

from legation import Database
from legation.migrations.catalogue import CATALOGUE

from ..callers import Issuer, demo
from .hosted import hosted

pytest.importorskip("openapi_python_client", reason="the generator is in nox -s api-client")

ROUND_TRIP: Final = '''\
"""List agents, run one, look at its session, migrate a database."""

import sys

from legation_client import AuthenticatedClient
from legation_client.api.agents import create_agent_run, get_agents
from legation_client.api.database import migrate_database
from legation_client.api.sessions import get_session_by_id, get_sessions
from legation_client.models import (
    AgentRun,
    AgentSessionDetailSchema,
    BodyCreateAgentRun,
    Migrated,
    NotFoundResponse,
    PaginatedResponseSessionSchema,
    RunForm,
    RunRequest,
)

base, token, latest = sys.argv[1:]
client = AuthenticatedClient(base_url=base, token=token)

agents = get_agents.sync(client=client)
assert isinstance(agents, list)
assert [agent.id for agent in agents] == ["alpha", "beta"]

bodies: list[RunForm | RunRequest | BodyCreateAgentRun] = [
    RunRequest(message="hello", stream=False, session_id="s1"),
    RunForm(message="hello", stream=False, session_id="s1"),
    BodyCreateAgentRun(message="hello", stream=False, session_id="s1"),
]
for body in bodies:
    run = create_agent_run.sync("alpha", client=client, body=body)
    assert isinstance(run, AgentRun), run
    assert (run.content, run.status.value) == ("hello", "COMPLETED")

sessions = get_sessions.sync(client=client, db_id="main")
assert isinstance(sessions, PaginatedResponseSessionSchema)
assert [session.session_id for session in sessions.data] == ["s1"]
session = get_session_by_id.sync("s1", client=client, db_id="main")
assert isinstance(session, AgentSessionDetailSchema), session
assert len(session.chat_history) == 6

migrated = migrate_database.sync("main", client=client, target_version=latest)
assert isinstance(migrated, Migrated), migrated
assert migrated.message == f"Database migrated successfully to version {latest}"

refused = migrate_database.sync("nowhere", client=client)
assert isinstance(refused, NotFoundResponse)
assert refused.error_code == "NOT_FOUND"
'''


def ran(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_generated_client_type_checks_and_works(tmp_path: Path) -> None:
    issuer, now = Issuer(), int(time.time())
    platform = demo(issuer, databases=[Database("main", f"sqlite:///{tmp_path}/main.db")])
    token = issuer.token("platform:admin", iat=now, exp=now + 600)
    (tmp_path / "openapi.json").write_bytes(platform.documentation.document.body)
    (tmp_path / "round_trip.py").write_text(ROUND_TRIP, "utf-8")

    generate = ("openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none")
    ran(*generate, "--output-path", "legation_client", cwd=tmp_path)
    # The generator's own template, the same for every document, is not what is judged here.
    (tmp_path / "mypy.ini").write_text("[mypy-legation_client.client]\nignore_errors = True\n")
    ran("mypy", "legation_client", "round_trip.py", cwd=tmp_path)
    with hosted(platform) as base:
        ran("round_trip", base, token, str(CATALOGUE.latest), cwd=tmp_path)
