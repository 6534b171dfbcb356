"""The whole HTTP surface as one table.

A line says what is asked, what it takes, who answers and what it is called.  There is no route
without a need: the table could not be built.  Who answers is imported when it is asked for first
(`late_handlers`), aside from what every platform is asked for all the time.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import evolve

from ..access.needs import (
    DELETE_APPROVALS,
    DESTROY_DATABASE,
    ERASE_USERS,
    FOLLOW_RUNS,
    LIST_CHANNELS,
    READ_DATABASE,
    READ_RUN,
    RUN,
)
from ..access.scopes import AnyToken, Open, Public, Scoped, Signed
from .call import DELIVERY_BODY, FORM_OF_DELIVERY, SMALL_BODY
from .handlers import collections, components, runs, system
from .late_handlers import (
    access,
    all_runs,
    approvals,
    audit,
    audit_export,
    channels,
    config,
    console,
    databases,
    docs,
    forks,
    incidents,
    letters,
    metrics,
    nodes,
    outgoing,
    refusals,
    replays,
    run_changes,
    run_summary,
    session_export,
    sessions,
    users,
    webhooks,
)
from .route import Route

__all__ = ["ROUTES"]


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
    follow, read, run = FOLLOW_RUNS[kind], READ_RUN[kind], RUN[kind]
    find = partial(components.find_component, kind)
    get, post = (partial(Route, m, tag=f"{kind.capitalize()}s") for m in ("GET", "POST"))
    small = partial(post, body_limit=SMALL_BODY)
    return (
        post(all_runs, run, runs.start_run, f"create_{kind}_run", find=find),
        get(all_runs, follow, runs.list_runs, f"list_{kind}_runs", find=find),
        get(one_run, read, runs.get_run, f"get_{kind}_run"),
        get(f"{one_run}/events", read, runs.run_events, f"get_{kind}_run_events"),
        get(f"{one_run}/replay", read, replays.replay_run, f"replay_{kind}_run"),
        small(f"{one_run}/cancel", run, runs.cancel_run, f"cancel_{kind}_run"),
        post(f"{one_run}/continue", run, runs.continue_run, f"continue_{kind}_run"),
        small(f"{one_run}/resume", run, runs.resume_run, f"resume_{kind}_run"),
        post(f"{one_run}/fork", run, forks.fork_run, f"fork_{kind}_run"),
        get(
            f"{one_run}/checkpoints",
            read,
            forks.list_run_checkpoints,
            f"list_{kind}_run_checkpoints",
        ),
        get(
            f"{one_run}/checkpoints/{{message_index}}",
            read,
            forks.get_checkpoint,
            f"get_{kind}_run_checkpoint_snapshot",
        ),
    )


def _approvals() -> tuple[Route, ...]:
    """Return the routes of the runs that wait for a person.

    Any token: without a scope on them a caller sees and answers its own.
    """
    route = partial(Route, tag="Approvals")
    one = "/approvals/{approval_id}"
    return (
        route(
            "GET",
            "/approvals",
            AnyToken(),
            approvals.list_approvals,
            "list_approvals_approvals_get",
        ),
        route(
            "GET",
            "/approvals/count",
            AnyToken(),
            approvals.count_approvals,
            "get_approval_count_approvals_count_get",
        ),
        route(
            "GET",
            f"{one}/status",
            AnyToken(),
            approvals.get_approval_status,
            "get_approval_status_approvals__approval_id__status_get",
        ),
        route(
            "GET",
            one,
            AnyToken(),
            approvals.get_approval,
            "get_approval_approvals__approval_id__get",
        ),
        route(
            "POST",
            f"{one}/resolve",
            AnyToken(),
            approvals.resolve_approval,
            "resolve_approval_approvals__approval_id__resolve_post",
        ),
        route(
            "DELETE",
            one,
            DELETE_APPROVALS,
            approvals.delete_approval,
            "delete_approval_approvals__approval_id__delete",
            success=204,
        ),
    )


_STATE_BODY: Final = 2 << 20  # the state of a session, and what stands beside it
_IDS_BODY: Final = 1 << 20  # a thousand ids, however they are escaped

_probe: Final = partial(Route, "GET", tag="Health", probe=True)
_document: Final = partial(Route, "GET", tag="Documentation")
_console: Final = partial(Route, "GET", tag="Console")
_access: Final = partial(Route, tag="Access")
_session: Final = partial(Route, tag="Sessions", find=sessions.find_database)
_removal: Final = partial(_session, "DELETE", success=204)
_database: Final = partial(Route, tag="Database", find=databases.find_database)
# A migration may be asked for twice as it is, and where the table of keys is not there yet.
_migration: Final = partial(
    Route, "POST", tag="Database", described=False, repeatable=True, body_limit=SMALL_BODY
)
_channel: Final = partial(Route, tag="Channels", find=channels.find_channel)
_webhook: Final = partial(Route, tag="Channels", find=webhooks.find_channel)

_CONFIG: Final = Scoped("config", ("read",), also=("system:read",))
_INCIDENTS: Final = Scoped("incidents", ("read",))
_NODES: Final = Scoped("nodes", ("read",))
_METRICS: Final = Scoped("metrics", ("read",), also=("system:read", "config:read"))
_READ, _WRITE, _DELETE = (Scoped("sessions", (action,)) for action in ("read", "write", "delete"))
_ACCESS: Final = Scoped("access", ("read",))
_AUDIT: Final = Scoped("audit", ("read",))
_LIST_DATABASES: Final = Scoped("databases", ("read",), listing=True)
_MIGRATE_ALL: Final = Scoped(
    "databases",
    ("migrate",),
    also=("config:write",),
    flag="allow_data_loss",
    flagged=DESTROY_DATABASE,
)
_MIGRATE: Final = evolve(_MIGRATE_ALL, parameter="db_id")
_READ_CHANNEL: Final = Scoped("channels", ("read",), parameter="channel")
_WRITE_CHANNEL: Final = Scoped("channels", ("write",), parameter="channel")

ROUTES: Final = (
    Route("GET", "/", Public(), system.home, "get_api_info", "Home"),
    _probe("/health", Public(), system.health, "health_check"),
    _probe("/ready", Open(), system.ready, "readiness_check"),
    Route("GET", "/info", Public(), system.info, "get_info", "Home"),
    _document("/openapi.json", Public(), docs.openapi, "get_openapi"),
    _document("/docs", Public(), docs.swagger, "get_docs"),
    _document("/docs/oauth2-redirect", Public(), docs.oauth2_redirect, "get_oauth2_redirect"),
    _document("/docs/assets/{name}", Public(), docs.asset, "get_docs_asset"),
    _document("/redoc", Public(), docs.redoc, "get_redoc"),
    _console("/console", Public(), console.page, "get_console"),
    _console("/console/assets/{digest}/{name}", Public(), console.asset, "get_console_asset"),
    _console("/console/assets/{digest}/{name}/{part}", Public(), console.part, "get_console_part"),
    _access("GET", "/me", AnyToken(), system.me, "get_me"),
    _access(
        "POST",
        "/me/explain",
        AnyToken(),
        system.explain,
        "explain_request",
        body_limit=SMALL_BODY,
    ),
    _access("GET", "/access/keys", _ACCESS, access.list_keys, "get_access_keys"),
    _access(
        "POST",
        "/access/explain",
        _ACCESS,
        access.explain_access,
        "explain_access",
        repeatable=True,
        body_limit=SMALL_BODY,
    ),
    _access("GET", "/audit", _AUDIT, audit.list_audit, "get_audit", find=audit.find_databases),
    _access(
        "GET",
        "/audit/export",
        _AUDIT,
        audit_export.export_audit,
        "export_audit",
        find=audit_export.find_trail,
    ),
    _access(
        "GET",
        "/audit/verify",
        _AUDIT,
        audit_export.verify_audit,
        "verify_audit",
        find=audit_export.find_trails,
    ),
    _access(
        "GET",
        "/audit/refusals",
        _AUDIT,
        refusals.list_refusals,
        "get_audit_refusals",
        find=refusals.find_database,
    ),
    _probe("/metrics/prometheus", _METRICS, metrics.show, "get_prometheus_metrics"),
    Route("GET", "/config", _CONFIG, config.get_config, "get_config", "Core"),
    Route(
        "GET",
        "/config/effective",
        _CONFIG,
        config.get_effective_config,
        "get_effective_config",
        "Core",
    ),
    Route("GET", "/models", _CONFIG, config.get_models, "get_models", "Core"),
    Route("GET", "/posture", _CONFIG, nodes.get_posture, "get_posture", "Core"),
    Route(
        "GET",
        "/incidents",
        _INCIDENTS,
        incidents.list_incidents,
        "get_incidents",
        "Core",
        find=incidents.find_databases,
    ),
    Route("GET", "/nodes", _NODES, nodes.list_nodes, "get_nodes", "Core"),
    Route(
        "GET",
        "/runs",
        AnyToken(),
        all_runs.list_all_runs,
        "get_runs",
        "Runs",
        find=all_runs.find_runs,
    ),
    Route(
        "GET",
        "/runs/summary",
        AnyToken(),
        run_summary.summarize_runs,
        "get_runs_summary",
        "Runs",
        find=run_summary.find_summarized,
    ),
    Route(
        "GET",
        "/runs/events",
        AnyToken(),
        run_changes.watch_runs,
        "get_runs_events",
        "Runs",
        find=run_changes.find_watched,
    ),
    *_components("agent"),
    *_runs("agent"),
    *_components("team"),
    *_runs("team"),
    _session(
        "GET", "/sessions", _READ, sessions.list_sessions, "get_sessions", find=sessions.find_listed
    ),
    _session(
        "POST",
        "/sessions",
        _WRITE,
        sessions.create_session,
        "create_session",
        find=None,
        success=201,
        body_limit=_STATE_BODY,
    ),
    _removal(
        "/sessions",
        _DELETE,
        sessions.delete_sessions,
        "delete_sessions",
        body_limit=_IDS_BODY,
    ),
    _session("GET", "/sessions/{session_id}", _READ, sessions.get_session, "get_session_by_id"),
    _session(
        "PATCH",
        "/sessions/{session_id}",
        _WRITE,
        sessions.update_session,
        "update_session",
        body_limit=_STATE_BODY,
    ),
    _removal("/sessions/{session_id}", _DELETE, sessions.delete_session, "delete_session"),
    _session(
        "POST",
        "/sessions/{session_id}/rename",
        _WRITE,
        sessions.rename_session,
        "rename_session",
        body_limit=SMALL_BODY,
    ),
    _session(
        "POST",
        "/sessions/{session_id}/fork",
        _WRITE,
        forks.fork_session,
        "fork_session",
        success=201,
        body_limit=SMALL_BODY,
    ),
    _session(
        "GET",
        "/sessions/{session_id}/export",
        _READ,
        session_export.export_session,
        "export_session",
    ),
    _session(
        "GET", "/sessions/{session_id}/runs", _READ, sessions.get_session_runs, "get_session_runs"
    ),
    _session(
        "GET",
        "/sessions/{session_id}/runs/{run_id}",
        _READ,
        sessions.get_session_run,
        "get_session_run",
    ),
    _removal(
        "/sessions/{session_id}/runs/{run_id}",
        _DELETE,
        sessions.delete_session_run,
        "delete_session_run",
    ),
    Route(
        "DELETE",
        "/users/{user_id}",
        ERASE_USERS,
        users.erase_user,
        "erase_user",
        "Users",
        find=users.find_user,
        find_missing=users.find_missing_to_erase,
    ),
    Route(
        "GET",
        "/users/{user_id}/export",
        AnyToken(),
        users.export_user,
        "export_user",
        "Users",
        find=users.find_user,
        find_missing=users.find_missing_to_export,
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
    ),
    _database(
        "GET",
        "/databases/{db_id}/migrations/plan",
        READ_DATABASE,
        databases.get_plan,
        "get_migration_plan",
    ),
    _database("GET", "/databases/{db_id}/size", READ_DATABASE, databases.get_size, "get_size"),
    _migration(
        "/databases/all/migrate", _MIGRATE_ALL, databases.migrate_all, "migrate_all_databases"
    ),
    _migration(
        "/databases/{db_id}/migrate",
        _MIGRATE,
        databases.migrate_one,
        "migrate_database",
        find=databases.find_database,
    ),
    Route("GET", "/channels", LIST_CHANNELS, channels.list_channels, "get_channels", "Channels"),
    _channel(
        "GET",
        "/channels/{channel}/messages",
        _READ_CHANNEL,
        channels.list_messages,
        "get_channel_messages",
    ),
    _channel(
        "GET",
        "/channels/{channel}/messages/{message_id}",
        _READ_CHANNEL,
        channels.get_message,
        "get_channel_message",
    ),
    _channel(
        "POST",
        "/channels/{channel}/messages/{message_id}/retry",
        _WRITE_CHANNEL,
        channels.retry_message,
        "retry_channel_message",
        body_limit=SMALL_BODY,
    ),
    _channel(
        "GET",
        "/channels/{channel}/replies",
        _READ_CHANNEL,
        channels.list_replies,
        "get_channel_replies",
    ),
    _channel(
        "POST",
        "/channels/{channel}/retry",
        _WRITE_CHANNEL,
        letters.retry_letters,
        "retry_channel_letters",
        body_limit=_IDS_BODY,
    ),
    _channel(
        "POST",
        "/channels/{channel}/discard",
        _WRITE_CHANNEL,
        letters.discard_letters,
        "discard_channel_letters",
        body_limit=_IDS_BODY,
    ),
    _channel(
        "POST",
        "/channels/{channel}/replies/{reply_id}/retry",
        _WRITE_CHANNEL,
        letters.retry_reply,
        "retry_channel_reply",
        body_limit=SMALL_BODY,
    ),
    _channel(
        "POST",
        "/channels/{channel}/test",
        _WRITE_CHANNEL,
        letters.send_test,
        "send_channel_test",
        success=202,
        body_limit=SMALL_BODY,
    ),
    Route(
        "POST",
        "/channels/{channel}/send",
        _WRITE_CHANNEL,
        outgoing.send,
        "send_channel_message",
        "Channels",
        find=outgoing.find_channel,
        success=202,
        body_limit=_IDS_BODY,
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
    *_approvals(),
    _channel("GET", "/{channel}/status", AnyToken(), channels.status, "channel_status"),
    _webhook("GET", "/{channel}/webhook", Signed(), webhooks.verify, "verify_webhook"),
    _webhook(
        "POST",
        "/{channel}/webhook",
        Signed(),
        webhooks.receive,
        "receive_webhook",
        body_limit=DELIVERY_BODY,
    ),
    Route(
        "POST",
        "/{channel}/interactions",
        Signed(),
        webhooks.interact,
        "receive_interaction",
        "Channels",
        find=webhooks.find_interactive,
        body_limit=FORM_OF_DELIVERY,
    ),
)
