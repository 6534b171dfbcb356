"""The whole HTTP surface as one table.

A line says what is asked, what it takes, who answers and what it is called.  There is no route
without a need: the table could not be built.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ..access.needs import FOLLOW_RUNS, LIST_CHANNELS, READ_DATABASE
from ..access.scopes import AnyToken, Open, Public, Scoped, Signed
from .fields import NoQuery
from .handlers import (
    audit,
    channels,
    collections,
    components,
    config,
    databases,
    docs,
    metrics,
    run_arguments,
    runs,
    sessions,
    system,
    webhooks,
)
from .route import Route

__all__ = ["ROUTES"]


def _databases(action: str, *also: str) -> Scoped:
    return Scoped("databases", (action,), parameter="db_id", also=also)


def _channels(action: str) -> Scoped:
    return Scoped("channels", (action,), parameter="channel")


def _sessions(action: str) -> Scoped:
    return Scoped("sessions", (action,))


def _component(kind: str, action: str) -> Scoped:
    return Scoped(f"{kind}s", (action,), parameter=f"{kind}_id")


def _components(kind: str) -> tuple[Route, ...]:
    """Return the routes of agents or of teams."""
    group, find = f"{kind}s", partial(components.find_component, kind)
    every = Scoped(group, ("read", "run"), listing=True)
    route = partial(Route, "GET", tag=group.capitalize())
    return (
        route(f"/{group}", every, components.list_components(kind), f"get_{group}"),
        route(
            f"/{group}/{{{kind}_id}}",
            _component(kind, "read"),
            components.get_component,
            f"get_{kind}",
            find=find,
        ),
    )


def _runs(kind: str) -> tuple[Route, ...]:
    """Return the routes of the runs of agents or of teams."""
    all_runs = f"/{kind}s/{{{kind}_id}}/runs"
    one_run = f"{all_runs}/{{run_id}}"
    follow, run = FOLLOW_RUNS[kind], _component(kind, "run")
    find = partial(components.find_component, kind)
    get, post = (partial(Route, m, tag=f"{kind.capitalize()}s") for m in ("GET", "POST"))
    start, page = run_arguments.StartForm, runs.ListRunsQuery
    return (
        post(all_runs, run, runs.start_run, f"create_{kind}_run", find=find, form=start),
        get(all_runs, follow, runs.list_runs, f"list_{kind}_runs", find=find, query=page),
        get(one_run, follow, runs.get_run, f"get_{kind}_run", query=runs.GetRunQuery),
        get(
            f"{one_run}/events",
            follow,
            runs.run_events,
            f"get_{kind}_run_events",
            query=runs.RunEventsQuery,
        ),
        post(
            f"{one_run}/cancel",
            run,
            runs.cancel_run,
            f"cancel_{kind}_run",
            query=run_arguments.CancelQuery,
            form=run_arguments.CancelForm,
        ),
        post(
            f"{one_run}/continue",
            run,
            runs.continue_run,
            f"continue_{kind}_run",
            form=run_arguments.ContinueForm,
        ),
        post(
            f"{one_run}/resume",
            run,
            runs.resume_run,
            f"resume_{kind}_run",
            form=run_arguments.ResumeForm,
        ),
    )


_session: Final = partial(Route, tag="Sessions", find=sessions.find_database)
_database: Final = partial(Route, tag="Database", find=databases.find_database)
_channel: Final = partial(Route, tag="Channels", find=channels.find_channel)
_webhook: Final = partial(Route, tag="Channels", find=webhooks.find_channel)

_CONFIG: Final = Scoped("config", ("read",), also=("system:read",))
_METRICS: Final = Scoped("metrics", ("read",), also=("system:read", "config:read"))
_LIST_DATABASES: Final = Scoped("databases", ("read",), listing=True)
_MIGRATE_ALL: Final = Scoped("databases", ("migrate",), also=("config:write",))

# A migration may be asked for twice as it is, and where the table of keys is not there yet.
_MIGRATION: Final[dict[str, Any]] = {
    "query": databases.MigrateQuery,
    "body": databases.MigrateBody,
    "described": False,
    "repeatable": True,
}

ROUTES: Final = (
    Route("GET", "/", Public(), system.home, "get_api_info", "Home"),
    Route("GET", "/health", Public(), system.health, "health_check", "Health"),
    Route("GET", "/ready", Open(), system.ready, "readiness_check", "Health"),
    Route("GET", "/info", Public(), system.info, "get_info", "Home"),
    Route("GET", "/openapi.json", Public(), docs.openapi, "get_openapi", "Documentation"),
    Route("GET", "/docs", Public(), docs.swagger, "get_docs", "Documentation"),
    Route(
        "GET",
        "/docs/oauth2-redirect",
        Public(),
        docs.oauth2_redirect,
        "get_oauth2_redirect",
        "Documentation",
    ),
    Route("GET", "/docs/assets/{name}", Public(), docs.asset, "get_docs_asset", "Documentation"),
    Route("GET", "/redoc", Public(), docs.redoc, "get_redoc", "Documentation"),
    Route("GET", "/me", AnyToken(), system.me, "get_me", "Access"),
    Route(
        "POST",
        "/me/explain",
        AnyToken(),
        system.explain,
        "explain_request",
        "Access",
        body=system.ExplainRequest,
        body_limit=system.EXPLAIN_LIMIT,
    ),
    Route(
        "GET",
        "/audit",
        Scoped("audit", ("read",)),
        audit.list_audit,
        "get_audit",
        "Access",
        find=audit.find_databases,
        query=audit.AuditQuery,
    ),
    Route("GET", "/metrics/prometheus", _METRICS, metrics.show, "get_prometheus_metrics", "Health"),
    Route("GET", "/config", _CONFIG, config.get_config, "get_config", "Core"),
    Route("GET", "/models", _CONFIG, config.get_models, "get_models", "Core"),
    *_components("agent"),
    *_runs("agent"),
    *_components("team"),
    *_runs("team"),
    Route(
        "GET",
        "/sessions",
        _sessions("read"),
        sessions.list_sessions,
        "get_sessions",
        "Sessions",
        find=sessions.find_listed,
        query=sessions.ListSessionsQuery,
    ),
    Route(
        "POST",
        "/sessions",
        _sessions("write"),
        sessions.create_session,
        "create_session",
        "Sessions",
        query=sessions.CreateSessionQuery,
        body=sessions.CreateSessionRequest,
        success=201,
    ),
    _session(
        "DELETE",
        "/sessions",
        _sessions("delete"),
        sessions.delete_sessions,
        "delete_sessions",
        query=sessions.DeleteSessionQuery,
        body=sessions.DeleteSessionRequest,
        success=204,
    ),
    _session(
        "GET",
        "/sessions/{session_id}",
        _sessions("read"),
        sessions.get_session,
        "get_session_by_id",
        query=sessions.GetSessionQuery,
    ),
    _session(
        "PATCH",
        "/sessions/{session_id}",
        _sessions("write"),
        sessions.update_session,
        "update_session",
        query=sessions.UpdateSessionQuery,
        body=sessions.UpdateSessionRequest,
    ),
    _session(
        "DELETE",
        "/sessions/{session_id}",
        _sessions("delete"),
        sessions.delete_session,
        "delete_session",
        query=sessions.DeleteSessionQuery,
        success=204,
    ),
    _session(
        "POST",
        "/sessions/{session_id}/rename",
        _sessions("write"),
        sessions.rename_session,
        "rename_session",
        query=sessions.RenameSessionQuery,
        body=sessions.RenameSessionRequest,
    ),
    _session(
        "GET",
        "/sessions/{session_id}/runs",
        _sessions("read"),
        sessions.get_session_runs,
        "get_session_runs",
        query=sessions.SessionRunsQuery,
    ),
    _session(
        "GET",
        "/sessions/{session_id}/runs/{run_id}",
        _sessions("read"),
        sessions.get_session_run,
        "get_session_run",
        query=sessions.SessionRunQuery,
    ),
    Route(
        "GET", "/databases", _LIST_DATABASES, databases.list_databases, "get_databases", "Database"
    ),
    _database("GET", "/databases/{db_id}", READ_DATABASE, databases.get_database, "get_database"),
    _database(
        "GET",
        "/databases/{db_id}/migrations",
        READ_DATABASE,
        databases.get_migrations,
        "get_migrations",
        query=databases.MigrationsQuery,
    ),
    _database(
        "GET",
        "/databases/{db_id}/migrations/plan",
        READ_DATABASE,
        databases.get_plan,
        "get_migration_plan",
        query=databases.PlanQuery,
    ),
    Route(
        "POST",
        "/databases/all/migrate",
        _MIGRATE_ALL,
        databases.migrate_all,
        "migrate_all_databases",
        "Database",
        **_MIGRATION,
    ),
    _database(
        "POST",
        "/databases/{db_id}/migrate",
        _databases("migrate", "config:write"),
        databases.migrate_one,
        "migrate_database",
        **_MIGRATION,
    ),
    Route(
        "GET",
        "/channels",
        LIST_CHANNELS,
        channels.list_channels,
        "get_channels",
        "Channels",
        query=NoQuery,
    ),
    _channel(
        "GET",
        "/channels/{channel}/messages",
        _channels("read"),
        channels.list_messages,
        "get_channel_messages",
        query=channels.MessagesQuery,
    ),
    _channel(
        "GET",
        "/channels/{channel}/messages/{message_id}",
        _channels("read"),
        channels.get_message,
        "get_channel_message",
    ),
    _channel(
        "POST",
        "/channels/{channel}/messages/{message_id}/retry",
        _channels("write"),
        channels.retry_message,
        "retry_channel_message",
    ),
    _channel(
        "GET",
        "/channels/{channel}/replies",
        _channels("read"),
        channels.list_replies,
        "get_channel_replies",
        query=channels.RepliesQuery,
    ),
    *(
        Route(
            "GET",
            empty.path,
            Scoped(empty.resource, ("read",)),
            collections.list_nothing(empty),
            empty.operation,
            empty.tag,
            query=collections.query_of(empty),
        )
        for empty in collections.COLLECTIONS
    ),
    _channel("GET", "/{channel}/status", AnyToken(), channels.status, "channel_status"),
    _webhook("GET", "/{channel}/webhook", Signed(), webhooks.verify, "verify_webhook"),
    _webhook("POST", "/{channel}/webhook", Signed(), webhooks.receive, "receive_webhook"),
)
