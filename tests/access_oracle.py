"""Who may do what, written down a second time: from the interface's own words, not from the code.

Nothing here is imported from the product, and nothing of the product's is looked at: one table
from operations to what is enough, and what a scope means.  The comparison is in
tests/core/access/test_oracle.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = [
    "OPERATIONS",
    "SEVERAL",
    "Asker",
    "Operation",
    "Question",
    "enough",
    "owner_of_a_run",
    "owner_of_a_session",
    "verdict",
    "visible_ids",
]

ADMIN: Final = "platform:admin"
# The ids of agents, teams, databases and channels; only those may stand inside of a scope.
ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")


@dataclass(frozen=True)
class Operation:
    """What one operation asks of its caller.

    Attributes:
        kind: `open` needs nothing, `welcome` neither, but takes no token that does not verify,
            `token` any valid token, `signature` the channel's own, and
            `scope` one of `actions` on `resource`.
        names: The path parameter with the id that a scope may name; none where only the scope on
            the whole resource counts.
        lists: The answer holds just those ids that the caller has an action on.
        also: Whole scopes that count as well.
        owned: The path parameters of what belongs to somebody: another's is as if absent.
        whole: A token that is for one session is not enough, whatever its scopes.
        self_named: The path parameter with a user, who needs no scope.
    """

    kind: str
    resource: str = ""
    actions: tuple[str, ...] = ()
    names: str | None = None
    lists: bool = False
    also: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    whole: bool = False
    self_named: str | None = None


def _scope(resource: str, *actions: str, **more: object) -> Operation:
    return Operation("scope", resource, actions, **more)  # type: ignore[arg-type]


OPEN: Final = Operation("open")
WELCOME: Final = Operation("welcome")
TOKEN: Final = Operation("token")
SIGNATURE: Final = Operation("signature")
RUN: Final = ("run_id",)
SESSION: Final = ("session_id",)
READS: Final = ("runs:read",)

# Every operation of the interface, whether or not it is served yet.
OPERATIONS: Final[Mapping[tuple[str, str], Operation]] = {
    # Section 5.4, to the letter, and the probe that is not in it.
    ("GET", "/"): OPEN,
    ("GET", "/health"): OPEN,
    ("GET", "/info"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/assets/{name}"): OPEN,  # the page is nothing without them
    ("GET", "/redoc"): OPEN,
    ("GET", "/console"): OPEN,
    ("GET", "/console/assets/{digest}/{name}"): OPEN,  # as those of the documentation
    ("GET", "/console/assets/{digest}/{name}/{part}"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/docs/oauth2-redirect"): OPEN,
    ("GET", "/ready"): WELCOME,
    # Who asks.
    ("GET", "/me"): TOKEN,
    ("POST", "/me/explain"): TOKEN,
    ("GET", "/config"): _scope("config", "read", also=("system:read",)),
    ("GET", "/config/effective"): _scope("config", "read", also=("system:read",)),
    ("GET", "/access/keys"): _scope("access", "read"),
    ("POST", "/access/explain"): _scope("access", "read"),
    ("GET", "/posture"): _scope("config", "read", also=("system:read",)),
    ("GET", "/incidents"): _scope("incidents", "read"),
    ("GET", "/nodes"): _scope("nodes", "read"),
    ("GET", "/metrics/prometheus"): _scope("metrics", "read", also=("system:read", "config:read")),
    ("GET", "/models"): _scope("config", "read", also=("system:read",)),
    ("GET", "/runs"): TOKEN,
    ("GET", "/runs/summary"): TOKEN,
    ("GET", "/runs/events"): TOKEN,
    # Agents.
    ("GET", "/agents"): _scope("agents", "read", "run", lists=True),
    ("GET", "/agents/{agent_id}"): _scope("agents", "read", names="agent_id"),
    ("POST", "/agents/{agent_id}/runs"): _scope("agents", "run", names="agent_id"),
    ("GET", "/agents/{agent_id}/runs"): _scope("agents", "read", "run", names="agent_id"),
    ("GET", "/agents/{agent_id}/runs/{run_id}"): _scope(
        "agents", "read", "run", names="agent_id", owned=RUN, also=READS
    ),
    ("GET", "/agents/{agent_id}/runs/{run_id}/events"): _scope(
        "agents", "read", "run", names="agent_id", owned=RUN, also=READS
    ),
    ("GET", "/agents/{agent_id}/runs/{run_id}/replay"): _scope(
        "agents", "read", "run", names="agent_id", owned=RUN
    ),
    ("POST", "/agents/{agent_id}/runs/{run_id}/cancel"): _scope(
        "agents", "run", names="agent_id", owned=RUN
    ),
    ("POST", "/agents/{agent_id}/runs/{run_id}/continue"): _scope(
        "agents", "run", names="agent_id", owned=RUN
    ),
    ("POST", "/agents/{agent_id}/runs/{run_id}/resume"): _scope(
        "agents", "run", names="agent_id", owned=RUN
    ),
    ("POST", "/agents/{agent_id}/runs/{run_id}/fork"): _scope(
        "agents", "run", names="agent_id", owned=RUN
    ),
    ("GET", "/agents/{agent_id}/runs/{run_id}/checkpoints"): _scope(
        "agents", "read", "run", names="agent_id", owned=RUN, also=READS
    ),
    ("GET", "/agents/{agent_id}/runs/{run_id}/checkpoints/{message_index}"): _scope(
        "agents", "read", "run", names="agent_id", owned=RUN, also=READS
    ),
    # Teams: the same.
    ("GET", "/teams"): _scope("teams", "read", "run", lists=True),
    ("GET", "/teams/{team_id}"): _scope("teams", "read", names="team_id"),
    ("POST", "/teams/{team_id}/runs"): _scope("teams", "run", names="team_id"),
    ("GET", "/teams/{team_id}/runs"): _scope("teams", "read", "run", names="team_id"),
    ("GET", "/teams/{team_id}/runs/{run_id}"): _scope(
        "teams", "read", "run", names="team_id", owned=RUN, also=READS
    ),
    ("GET", "/teams/{team_id}/runs/{run_id}/events"): _scope(
        "teams", "read", "run", names="team_id", owned=RUN, also=READS
    ),
    ("GET", "/teams/{team_id}/runs/{run_id}/replay"): _scope(
        "teams", "read", "run", names="team_id", owned=RUN
    ),
    ("POST", "/teams/{team_id}/runs/{run_id}/cancel"): _scope(
        "teams", "run", names="team_id", owned=RUN
    ),
    ("POST", "/teams/{team_id}/runs/{run_id}/continue"): _scope(
        "teams", "run", names="team_id", owned=RUN
    ),
    ("POST", "/teams/{team_id}/runs/{run_id}/resume"): _scope(
        "teams", "run", names="team_id", owned=RUN
    ),
    ("POST", "/teams/{team_id}/runs/{run_id}/fork"): _scope(
        "teams", "run", names="team_id", owned=RUN
    ),
    ("GET", "/teams/{team_id}/runs/{run_id}/checkpoints"): _scope(
        "teams", "read", "run", names="team_id", owned=RUN, also=READS
    ),
    ("GET", "/teams/{team_id}/runs/{run_id}/checkpoints/{message_index}"): _scope(
        "teams", "read", "run", names="team_id", owned=RUN, also=READS
    ),
    # Sessions: no scope names one.
    ("GET", "/sessions"): _scope("sessions", "read"),
    ("GET", "/sessions/{session_id}"): _scope("sessions", "read", owned=SESSION),
    ("GET", "/sessions/{session_id}/export"): _scope("sessions", "read", owned=SESSION),
    ("GET", "/sessions/{session_id}/runs"): _scope("sessions", "read", owned=SESSION),
    ("GET", "/sessions/{session_id}/runs/{run_id}"): _scope(
        "sessions", "read", owned=("session_id", "run_id")
    ),
    ("POST", "/sessions"): _scope("sessions", "write"),
    ("PATCH", "/sessions/{session_id}"): _scope("sessions", "write", owned=SESSION),
    ("POST", "/sessions/{session_id}/rename"): _scope("sessions", "write", owned=SESSION),
    ("POST", "/sessions/{session_id}/fork"): _scope("sessions", "write", owned=SESSION),
    ("DELETE", "/sessions"): _scope("sessions", "delete"),
    # Nothing of another's is deleted, and what is not there is gone: it is not told apart.
    ("DELETE", "/sessions/{session_id}"): _scope("sessions", "delete"),
    ("DELETE", "/sessions/{session_id}/runs/{run_id}"): _scope("sessions", "delete"),
    # Users: anybody exports itself.
    ("DELETE", "/users/{user_id}"): _scope("users", "erase", whole=True),
    ("GET", "/users/{user_id}/export"): _scope("users", "read", whole=True, self_named="user_id"),
    # Databases.
    ("GET", "/databases"): _scope("databases", "read", lists=True),
    ("GET", "/databases/{db_id}"): _scope("databases", "read", names="db_id"),
    ("GET", "/databases/{db_id}/size"): _scope("databases", "read", names="db_id"),
    ("GET", "/databases/{db_id}/migrations"): _scope("databases", "read", names="db_id"),
    ("GET", "/databases/{db_id}/migrations/plan"): _scope("databases", "read", names="db_id"),
    ("POST", "/databases/{db_id}/migrate"): _scope(
        "databases", "migrate", names="db_id", also=("config:write",)
    ),
    # All of them at once take the scope on all of them, in so many words.
    ("POST", "/databases/all/migrate"): _scope("databases", "migrate", also=("config:write",)),
    # Channels and the audit trail.
    ("GET", "/{channel}/webhook"): SIGNATURE,
    ("POST", "/{channel}/webhook"): SIGNATURE,
    ("POST", "/{channel}/interactions"): SIGNATURE,
    ("GET", "/channels"): _scope("channels", "read", lists=True),
    ("GET", "/channels/{channel}"): _scope("channels", "read", names="channel"),
    ("GET", "/channels/{channel}/messages"): _scope("channels", "read", names="channel"),
    ("GET", "/channels/{channel}/messages/{message_id}"): _scope(
        "channels", "read", names="channel"
    ),
    ("POST", "/channels/{channel}/messages/{message_id}/retry"): _scope(
        "channels", "write", names="channel"
    ),
    ("POST", "/channels/{channel}/retry"): _scope("channels", "write", names="channel"),
    ("POST", "/channels/{channel}/discard"): _scope("channels", "write", names="channel"),
    ("POST", "/channels/{channel}/replies/{reply_id}/retry"): _scope(
        "channels", "write", names="channel"
    ),
    ("POST", "/channels/{channel}/test"): _scope("channels", "write", names="channel"),
    ("POST", "/channels/{channel}/send"): _scope("channels", "write", names="channel"),
    ("GET", "/channels/{channel}/replies"): _scope("channels", "read", names="channel"),
    ("GET", "/{channel}/status"): TOKEN,
    # What AgentOS keeps and nothing is kept of here: under the scopes that AgentOS has for it.
    ("GET", "/workflows"): _scope("workflows", "read"),
    ("GET", "/memories"): _scope("memories", "read"),
    ("GET", "/memory_topics"): _scope("memories", "read"),
    ("GET", "/user_memory_stats"): _scope("memories", "read"),
    ("GET", "/knowledge/content"): _scope("knowledge", "read"),
    ("GET", "/knowledge/config"): _scope("knowledge", "read"),
    ("GET", "/eval-runs"): _scope("evals", "read"),
    ("GET", "/traces"): _scope("traces", "read"),
    ("GET", "/trace_session_stats"): _scope("traces", "read"),
    ("GET", "/metrics"): _scope("metrics", "read"),
    ("GET", "/schedules"): _scope("schedules", "read"),
    # Any token sees and answers its own; scopes on approvals open those of others.
    ("GET", "/approvals"): TOKEN,
    ("GET", "/approvals/count"): TOKEN,
    ("GET", "/approvals/{approval_id}"): TOKEN,
    ("GET", "/approvals/{approval_id}/status"): TOKEN,
    ("POST", "/approvals/{approval_id}/resolve"): TOKEN,
    ("DELETE", "/approvals/{approval_id}"): _scope("approvals", "delete"),
    ("GET", "/audit"): _scope("audit", "read"),
    ("GET", "/audit/export"): _scope("audit", "read"),
    ("GET", "/audit/verify"): _scope("audit", "read"),
    ("GET", "/audit/refusals"): _scope("audit", "read"),
}


@dataclass(frozen=True)
class Question:
    """One cell: an operation, the ids in its path, and who asks.

    Attributes:
        scopes: Of the token; None when there is no token, or none that is valid.
        subject: The `sub` of the token.
        ids: By path parameter.
        owners: Whose each owned thing in the path is, by path parameter; None: there is no such.
        hosted: Whether what the path names otherwise (agent, team, database, channel) exists.
        session: The `session_id` of the token: the one session that it is for.
        forged: A token is sent that does not verify; then there are no scopes.
        sessions: Which session each owned thing in the path is, or is in.
    """

    method: str
    template: str
    scopes: frozenset[str] | None
    subject: str | None
    ids: Mapping[str, str]
    owners: Mapping[str, str | None]
    hosted: bool = True
    session: str | None = None
    sessions: Mapping[str, str] = field(default_factory=dict[str, str])
    forged: bool = False


def enough(operation: Operation, scope: str, named: str | None) -> bool:
    """Tell whether `scope` alone is enough; `named` is the id in the path."""
    if scope == ADMIN or scope in operation.also:
        return True
    parts = scope.split(":")
    if parts[0] != operation.resource or parts[-1] not in operation.actions:
        return False
    if len(parts) == 2:
        return True
    if len(parts) != 3:
        return False
    if operation.lists:
        return parts[1] == "*"
    if operation.names is None or named is None:
        return False
    return parts[1] == "*" or (parts[1] == named and ID.fullmatch(named) is not None)


def visible_ids(operation: Operation, scopes: Iterable[str]) -> frozenset[str]:
    """Return the ids that the scopes name for a list, whether or not they are hosted."""
    split = [scope.split(":") for scope in scopes]
    return frozenset(
        parts[1]
        for parts in split
        if len(parts) == 3
        and parts[0] == operation.resource
        and parts[2] in operation.actions
        and ID.fullmatch(parts[1])
    )


PUBLIC: Final = frozenset(
    template
    for (_, template), operation in OPERATIONS.items()
    if operation in (OPEN, WELCOME, SIGNATURE)
)
"""The paths at which something is answered without a token: there it is told what is not."""


def verdict(question: Question) -> str:
    """Return `answered`, `listed`, `signature`, or why not: `401`, `403`, `404`, `405`.

    `listed` is an answer that holds only `visible_ids`.
    """
    method = "GET" if question.method == "HEAD" else question.method
    operation = OPERATIONS.get((method, question.template))
    if operation is None:
        hidden = question.scopes is None and question.template not in PUBLIC
        return "401" if hidden else "405"
    if operation.kind == "signature":
        return "signature" if question.hosted else "404"
    if operation.kind == "welcome" and question.forged:
        return "401"
    if operation.kind not in ("open", "welcome") and question.scopes is None:
        return "401"
    scopes: frozenset[str] = question.scopes or frozenset()
    if operation.whole and question.session is not None:
        return "403"
    is_self = operation.self_named and question.ids[operation.self_named] == question.subject
    if operation.kind == "scope" and not is_self:
        named = question.ids.get(operation.names) if operation.names else None
        if not any(enough(operation, scope, named) for scope in scopes):
            if operation.lists and visible_ids(operation, scopes):
                return "listed"
            return "403"
    if not question.hosted:
        return "404"
    for parameter in operation.owned:
        owner = question.owners.get(parameter)
        if owner is None or (ADMIN not in scopes and owner != question.subject):
            return "404"
        if question.session is not None and question.session != question.sessions.get(parameter):
            return "404"
    return "answered"


# --- whose ---------------------------------------------------------------------------------------

SEVERAL: Final = "several"


@dataclass(frozen=True)
class Asker:
    """Who asks, where several have a session of one id.

    Attributes:
        subject: The `sub` of the token.
        sees_all: Whether every owner's data are visible.
        unguarded: Whether that is so because authorization is off.
    """

    subject: str | None
    sees_all: bool = False
    unguarded: bool = False

    @property
    def own(self) -> str:
        """The owner of what one who sees all keeps for himself."""
        return self.subject or ""


def owner_of_a_session(asker: Asker, owners: Iterable[str], named: str | None) -> str | None:
    """Return whose session of an id that `owners` have is meant; None: none, as if absent."""
    having = set(owners)
    if not asker.sees_all:
        return asker.subject if asker.subject in having else None
    if named is not None:
        return named if named in having else None
    if asker.own in having:
        return asker.own
    if len(having) > 1:
        return SEVERAL
    return next(iter(having), None)


def owner_of_a_run(asker: Asker, owners: Iterable[str], named: str | None) -> str | None:
    """Return into whose session a new run goes; None: into one that nobody can name."""
    having = set(owners)
    if not asker.sees_all:
        return asker.subject
    if named is not None:
        return named
    if asker.unguarded and asker.own not in having and len(having) == 1:
        return next(iter(having))
    return asker.own
