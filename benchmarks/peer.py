"""The systems to compare with, in an environment of their own.

    python benchmarks/peer.py [FOLDER]      makes the environment there, once

AgentOS 2.5.6 is started on a model that answers at once, with a SQLite file, one worker of uvicorn
with its fast parts, and its logs off: the best it can do without a change to its code.  FastAPI
with PyJWT answers two routes with the same bodies, verifying every token.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

__all__ = ["FASTAPI_APP", "PEER_APP", "environment", "fastapi_command", "folder", "peer_command"]

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
import logging
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


if os.environ.get("PEER_WHATSAPP"):
    # Its address of Meta is fixed, and out of reach here: sending costs it nothing instead.
    from agno.os.interfaces.whatsapp import router
    from agno.tools.whatsapp import WhatsAppTools

    async def sent(*args, **kwargs):
        return None

    router.typing_indicator_async = sent
    WhatsAppTools.send_text_message_async = sent

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
    db=db,
    interfaces=[Whatsapp(agent=agents[0])] if os.environ.get("PEER_WHATSAPP") else None,
    authorization=key is not None,
    authorization_config=AuthorizationConfig(verification_keys=[key]) if key else None,
)
app = agent_os.get_app()
logging.disable(logging.WARNING)
'''

FASTAPI_APP = """
import json
import os
from typing import Annotated, Any

import jwt
from fastapi import Depends, FastAPI, HTTPException, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

key = os.environ["PEER_KEY"]
agents = json.loads(open(os.environ["PEER_AGENTS_FILE"]).read())
app = FastAPI()


def claims(bearer: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> dict:
    try:
        found = jwt.decode(bearer.credentials, key, ["RS256"], options={"verify_aud": False})
    except jwt.PyJWTError:
        raise HTTPException(401) from None
    if "agents:read" not in found.get("scopes", ()):
        raise HTTPException(403)
    return found


@app.get("/agents")
async def list_agents(_: Annotated[dict, Depends(claims)]) -> list[dict[str, Any]]:
    return agents


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok", "instantiated_at": "2026-01-01T00:00:00Z"}
"""


def folder() -> Path:
    """Return where the environment is kept: `LEGATION_PEER`, or a temporary folder."""
    return Path(os.environ.get("LEGATION_PEER", Path(tempfile.gettempdir()) / "legation-peer"))


def environment(folder: Path) -> Path:
    """Make the environment in `folder` unless it is there; return its interpreter."""
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        (folder / "complete").touch()
    (folder / "peer_app.py").write_text(PEER_APP)
    (folder / "fastapi_app.py").write_text(FASTAPI_APP)
    return python


def peer_command(folder: Path, port: int, database: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves AgentOS on `port`, and its environment."""
    env = {**os.environ, "PEER_DB": str(database), "AGNO_TELEMETRY": "false"}
    return _uvicorn(folder, "peer_app:app", port), env


def fastapi_command(folder: Path, port: int, agents: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command that serves FastAPI with PyJWT on `port`, and its environment."""
    return _uvicorn(folder, "fastapi_app:app", port), {
        **os.environ,
        "PEER_AGENTS_FILE": str(agents),
    }


def _uvicorn(folder: Path, app: str, port: int) -> list[str]:
    command = [str(environment(folder)), "-m", "uvicorn", app, "--app-dir", str(folder)]
    return [*command, "--port", str(port), "--log-level", "warning", "--no-access-log"]


if __name__ == "__main__":
    print(environment(Path(sys.argv[1]) if len(sys.argv) > 1 else folder()))
