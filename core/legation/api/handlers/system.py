"""The state of the platform: alive, ready, its description, and the caller's own rights."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from ...access.authenticator import describe_files
from ...access.decide import Allow, decide
from ...access.needs import LIST_CHANNELS, READ_DATABASE
from ...access.trust_files import FileState
from ...effects import Program
from ...http.accept import prefers_html
from ...http.messages import Response, json_response
from ...values import frozen
from ...version import INTERFACE_VERSION, VERSION
from .. import handlers
from ..call import Call
from ..fields import text
from .levels import describe_levels, describe_stored

__all__ = ["ExplainRequest", "explain", "health", "home", "info", "me", "ready"]

_FOR_EVERYBODY: Final = ("id", "state", "serving")


def home(call: Call) -> Response:
    """Return the platform's name and where to go on; a browser is led to the console."""
    if prefers_html(call.request.values(b"accept")):
        return handlers.console.welcome(call)
    config = call.registry.config
    payload = {
        "name": config.name,
        "id": config.id,
        "version": INTERFACE_VERSION,
        "health": "/health",
        "info": "/info",
        "docs": "/docs",
    }
    return json_response(200, payload, ((b"vary", b"accept"),))


def health(call: Call) -> Response:
    """Return that the process lives, and since when.  It asks nothing of a database."""
    return _alive(call.started_us)


@lru_cache(maxsize=8)
def _alive(started_us: int) -> Response:
    """Return what is asked for every few seconds, and never differs."""
    since = datetime.fromtimestamp(started_us / 1_000_000, UTC)
    payload = {"status": "ok", "instantiated_at": since.isoformat().replace("+00:00", "Z")}
    return json_response(200, payload)


def ready(call: Call) -> Program[Response]:
    """Return 200 when every database works and is at a schema this code serves, else 503.

    It is 503, too, when the file with the keys, or with the revocations, could not be read for so
    long that it is void.
    A process that is about to end is not ready for more either.  What the scopes on databases and
    channels protect is shown to those who hold them.  No database is waited for: the answer is that
    of the last look, which requests go by as well.
    """
    states = {name: _state(call, name) for name in call.registry.databases}
    draining = call.context.draining
    files = describe_files(call.surface.authenticator, call.now_us)
    judging = FileState.VOID not in files.values()
    serving = all(state["serving"] for state in states.values()) and judging and not draining
    status = "draining" if draining else "ready" if serving else "not ready"
    payload: dict[str, Any] = {"status": status, "databases": states, **files}
    decision = decide(LIST_CHANNELS, call.principal)
    ailing = frozenset(call.surface.known.conditions)
    if channels := (yield from handlers.channels.survey(call.registry, decision, ailing)):
        payload["channels"] = channels
    return json_response(200 if serving else 503, payload)


def _state(call: Call, name: str) -> dict[str, Any]:
    """Return a database as the caller may see it, at least whether it is served.

    What is wrong with one that does not work is for those who may read it.
    """
    payload = handlers.databases.describe_last_look(call, name)
    if isinstance(decide(READ_DATABASE, call.principal, name), Allow):
        return payload
    if name in call.surface.known.conditions:
        payload["state"] = "unreachable"
    return {key: payload[key] for key in _FOR_EVERYBODY}


def info(call: Call) -> Response:
    """Return what this platform is, without the names of what it hosts."""
    registry = call.registry
    payload = {
        "id": registry.config.id,
        "os_id": registry.config.id,
        "name": registry.config.name,
        "version": VERSION,
        "interface_version": INTERFACE_VERSION,
        "agent_count": len(registry.agents),
        "team_count": len(registry.teams),
        "workflow_count": 0,
        "auth_mode": "jwt" if registry.config.authorization else "none",
    }
    return json_response(200, payload)


def me(call: Call) -> Program[Response]:
    """Return who the caller is, what it has left of its shares and may do on each route."""
    principal = call.principal
    stored = yield from describe_stored(call)
    payload = {
        "sub": principal.subject,
        "scopes": sorted(principal.scopes),
        "session_id": principal.session_id,
        "admin": principal.admin,
        "authorization": not principal.trusted,
        "limits": describe_levels(call) + stored,
        "routes": call.surface.rights(principal),
    }
    return json_response(200, payload)


@frozen
class ExplainRequest:
    """A request that might be made."""

    method: str = text(required=True, max_length=16, schema={"examples": ["GET"]})
    path: str = text(required=True, max_length=8192, schema={"examples": ["/agents"]})


def explain(call: Call, body: ExplainRequest) -> Response:
    """Return where a method and a path lead, whether the caller may go there, and by what."""
    explained = call.surface.explain(call.principal, body.method.upper(), body.path)
    return json_response(200, explained)
