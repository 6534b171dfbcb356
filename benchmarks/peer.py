"""The system to compare with, AgentOS 2.5.6, in an environment of its own.

    python benchmarks/peer.py FOLDER      makes the environment there, once

It is started with one agent on a model that answers at once, a SQLite file, one worker of uvicorn
with its fast parts, and its access log off: the best it can do without a change to its code.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["PEER_APP", "environment", "peer_command"]

REQUIREMENTS = (
    "agno==2.5.6",
    "fastapi",
    "uvicorn[standard]",
    "sqlalchemy<2.1",
    "greenlet",
    "requests",
    "python-multipart",
    "pyjwt[crypto]",
)

PEER_APP = '''
import os
import time

from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS
from agno.os.config import AuthorizationConfig
from agno.os.interfaces.whatsapp import Whatsapp


class Instant(Model):
    """Answers at once with the same text."""

    def invoke(self, *args, **kwargs):
        return ModelResponse(content="hello", role="assistant")

    async def ainvoke(self, *args, **kwargs):
        return ModelResponse(content="hello", role="assistant")

    def invoke_stream(self, *args, **kwargs):
        yield ModelResponse(content="hello", role="assistant")

    async def ainvoke_stream(self, *args, **kwargs):
        yield ModelResponse(content="hello", role="assistant")

    def _parse_provider_response(self, response, **kwargs):
        return response

    def _parse_provider_response_delta(self, response):
        return response


count = int(os.environ.get("PEER_AGENTS", "1"))
db = SqliteDb(id="main", db_file=os.environ["PEER_DB"])
agents = [
    Agent(id=f"agent-{n}", name=f"Agent {n}", model=Instant(id="instant"), db=db, telemetry=False)
    for n in range(count)
]
key = os.environ.get("PEER_KEY")
agent_os = AgentOS(
    id="bench",
    agents=agents,
    telemetry=False,
    interfaces=[Whatsapp(agent=agents[0])] if os.environ.get("PEER_WHATSAPP") else None,
    authorization=key is not None,
    authorization_config=AuthorizationConfig(verification_keys=[key]) if key else None,
)
app = agent_os.get_app()
'''


def environment(folder: Path) -> Path:
    """Make the environment in `folder` unless it is there; return its interpreter."""
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        (folder / "complete").touch()
    (folder / "peer_app.py").write_text(PEER_APP)
    return python


def peer_command(folder: Path, port: int, database: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves AgentOS on `port`, and its environment."""
    command = [str(environment(folder)), "-m", "uvicorn", "peer_app:app"]
    command += ["--app-dir", str(folder), "--port", str(port)]
    command += ["--log-level", "warning", "--no-access-log"]
    return command, {**os.environ, "PEER_DB": str(database), "AGNO_TELEMETRY": "false"}


if __name__ == "__main__":
    print(environment(Path(sys.argv[1])))
