"""The list of log events: every line of the operator's log has the name of one of them.

A name is a noun and what became of it, in `snake_case`.  One event has one name wherever it is
caught, so that an alarm needs one name.  The reference is drawn from this list.
"""

from __future__ import annotations

from typing import Final

import attrs

from ..store.audit_entries import AuditEntry
from ..store.periods import Kind
from ..values import frozen

__all__ = ["LOG_EVENTS", "LogEvent"]


@frozen
class LogEvent:
    """One kind of line in the operator's log.

    Attributes:
        name: The `event` of the line.
        levels: The `level` it may have.
        fields: The members it may have beside `event`, `level` and `time`.
        meaning: One sentence for the operator, in Markdown.
    """

    name: str
    levels: tuple[str, ...]
    fields: tuple[str, ...]
    meaning: str


_INFO: Final = ("info",)
_WARNING: Final = ("warning",)
_ERROR: Final = ("error",)
_FAILING: Final = ("warning", "error")
_RUN: Final = ("run_id", "agent_id", "team_id", "database", "node", "attempt")
_AUDIT: Final = tuple(field.name for field in attrs.fields(AuditEntry))
_BLOCKED: Final = (*_RUN, "seconds")

_LISTED: Final = (
    LogEvent(
        "accept_failed",
        _ERROR,
        ("error", "connections"),
        "The server cannot accept a connection, because the machine is short of something.",
    ),
    LogEvent(
        "attachment_failed",
        _WARNING,
        ("channel", "type", "reason"),
        "A file that came with a message could not be read.",
    ),
    LogEvent(
        "audit",
        _WARNING,
        _AUDIT,
        "An entry of the audit trail could not be stored, and stands here instead.",
    ),
    LogEvent(
        "audit_failed",
        _ERROR,
        ("incident", "error"),
        "A bug kept entries from the audit trail; each follows as `audit`.",
    ),
    LogEvent(
        "audit_heads",
        _INFO,
        ("database", "heads"),
        "The [heads](../howto/audit.md#heads) of the audit trail that are new, with a space between"
        " two.",
    ),
    LogEvent(
        "audit_heads_failed",
        _FAILING,
        ("database", "target", "reason", "error"),
        "Heads of the audit trail could not be sent to `target`, or not be read; this is tried"
        " again, and the line is written once while it goes on.",
    ),
    LogEvent(
        "audit_rows_failed",
        _FAILING,
        ("database", "error"),
        "Rows of the audit trail of versions up to 2.11.0 could not be moved into its pages; this"
        " is tried again.",
    ),
    LogEvent(
        "beat_failed",
        _FAILING,
        ("database", "error"),
        "This node could not tell a database that it lives, and tries again every second; the"
        " line is written once while it goes on.",
    ),
    LogEvent(
        "blocked_run_ended",
        _ERROR,
        _RUN,
        "The run of a `process_blocked` has ended, and no process takes it up again.",
    ),
    LogEvent(
        "blocked_run_left",
        _ERROR,
        _RUN,
        "The end of the run of a `process_blocked` could not be stored, or another node has the"
        " run by now.",
    ),
    LogEvent(
        "caller_refused",
        _INFO,
        ("request_id", "reason"),
        "An outer application vouches for a caller that could not be one; see the `reason`.",
    ),
    LogEvent(
        "certificate_reloaded", _INFO, ("path",), "The TLS certificate was read again at SIGHUP."
    ),
    LogEvent(
        "channel_function_failed",
        _ERROR,
        ("channel", "option", "error"),
        "The function that the `option` of a channel names (`subjects`, `router`) returned what is"
        " of no use, or took too long; the message is tried again, as `message_failed` says.",
    ),
    LogEvent(
        "channel_held",
        _ERROR,
        ("channel", "reason"),
        "The provider of a channel refuses its credentials.  The replies wait, and use up no"
        " attempts; one of them is sent each minute, until it is taken.",
    ),
    LogEvent(
        "channel_identified",
        _INFO,
        ("channel", "id", "name"),
        "The provider of a channel has said who we are there, for the first time or anew.",
    ),
    LogEvent(
        "channel_identity_not_stored",
        _WARNING,
        ("channel", "error"),
        "Who we are at a provider is known in this process, and could not be stored for the next.",
    ),
    LogEvent(
        "channel_leases_released",
        _WARNING,
        ("database", "leases"),
        "Messages or replies that this node had claimed, and that nobody worked on, wait again.",
    ),
    LogEvent(
        "channel_released",
        _INFO,
        ("channel",),
        "The provider takes the credentials of a held channel again; its replies are sent.",
    ),
    LogEvent(
        "channel_round_failed",
        _FAILING,
        ("database", "error"),
        "A round of the workers of channels failed; the line is written once while it goes on.",
    ),
    LogEvent(
        "channel_unidentified",
        _WARNING,
        ("channel", "reason"),
        "The provider of a channel does not say who we are, and is asked again.  The channel is"
        " served; in a group it answers what is meant for it beyond doubt.  The line is written"
        " once for a reason.",
    ),
    LogEvent(
        "chat_moved",
        _INFO,
        ("channel",),
        "A group of Telegram goes on under another id; its replies and its sessions follow it.",
    ),
    LogEvent(
        "clock_agrees",
        _INFO,
        ("database", "seconds"),
        "The clock of this machine is right again, after a `clock_differs`.",
    ),
    LogEvent(
        "clock_differs",
        _WARNING,
        ("database", "seconds"),
        "The clock of this machine is `seconds` ahead of that of a database, or behind where the"
        " number is negative; no lease goes by it, but the times that it stores are wrong.",
    ),
    LogEvent(
        "cluster_paused",
        _INFO,
        ("database",),
        "No node could beat for a while: the database was away, every node stood still, or the"
        " database's clock was set.  Nobody is taken for dead for it.",
    ),
    LogEvent(
        "connection_failed",
        _ERROR,
        ("incident", "client", "error"),
        "A bug ended a connection, outside of any request.",
    ),
    LogEvent(
        "context_refused",
        _ERROR,
        ("run_id", "component", "error"),
        "The dependencies of a request, or the state of its session, do not fit the class that a"
        " function takes them as; `error` names the place.",
    ),
    LogEvent(
        "database_available",
        _INFO,
        ("database",),
        "A database of a `database_unavailable` is back.",
    ),
    LogEvent(
        "database_migrated",
        _INFO,
        ("database", "version"),
        "The schema of a database was migrated at the start.",
    ),
    LogEvent(
        "database_restored",
        _ERROR,
        ("database",),
        "A database is an older one than it was, as where a backup was restored under running"
        " nodes: what was stored since then is gone.  This node is not ready until it has compared"
        " its leases with what it executes.",
    ),
    LogEvent(
        "database_unavailable",
        _ERROR,
        ("database", "condition", "reason"),
        "A database does not answer, is out of reach, is full or has lost its file; the line is"
        " written once for each change.",
    ),
    LogEvent(
        "database_url_kept",
        _ERROR,
        ("database", "reason"),
        "The URL of a database in its file has changed by more than the user, the password and TLS."
        "  The open database keeps its URL until the restart.",
    ),
    LogEvent(
        "database_url_renewed",
        _INFO,
        ("database",),
        "The URL of a database in its file has changed: new connections are made by it.",
    ),
    LogEvent(
        "delivery_ignored",
        _WARNING,
        ("channel", "reason"),
        "A part of a delivery is no message for this platform: `malformed` or `another number`.",
    ),
    LogEvent(
        "delivery_refused",
        _WARNING,
        ("channel", "reason"),
        "The signature of a delivery does not hold.",
    ),
    LogEvent(
        "drain_incomplete",
        _WARNING,
        ("connections",),
        "Connections, streams among them, were cut at the end of the drain.",
    ),
    LogEvent(
        "file_unread",
        _WARNING,
        ("type", "reason"),
        "A reader of `[readers]` gave no text of a file that came with a run.",
    ),
    LogEvent(
        "guard_failed",
        _ERROR,
        ("run_id", "component", "guard", "error"),
        "A function that is a guard gave no verdict, as `error` says, and its run ends.",
    ),
    LogEvent(
        "hints_lost",
        _WARNING,
        ("database", "error"),
        "Other nodes send no hints, and work is found by polling; the line is written once.",
    ),
    LogEvent("hints_restored", _INFO, ("database",), "Hints of other nodes arrive again."),
    LogEvent(
        "incidents_failed",
        _FAILING,
        ("database", "error"),
        "Incidents could not be written to a database; they are kept, and written later.",
    ),
    LogEvent(
        "incidents_omitted",
        _WARNING,
        ("incidents",),
        "There were more incidents than the list takes of one minute; the log has all of them.",
    ),
    LogEvent(
        "instructions_failed",
        _ERROR,
        ("run_id", "component", "error"),
        "A function that an author gave for the instructions returned none, as `error` says, and"
        " its run ends.",
    ),
    LogEvent(
        "job_failed",
        _ERROR,
        ("job", "incident", "error"),
        "A bug ended work that goes on beside requests.",
    ),
    LogEvent(
        "keys_recovered", _INFO, ("path",), "The JWKS file can be read again, and its keys count."
    ),
    LogEvent(
        "keys_reload_failed",
        _ERROR,
        ("path", "reason"),
        "The JWKS file cannot be read, or is no key set.  The old keys count for"
        " `keys_stale_seconds`; the line is written once while it goes on.",
    ),
    LogEvent("keys_reloaded", _INFO, ("path",), "The JWKS file has changed and was read again."),
    LogEvent(
        "keys_void",
        _ERROR,
        ("path", "stale_seconds"),
        "The JWKS file could not be read for `keys_stale_seconds`: its keys verify nothing any"
        " more, and the process is not ready.",
    ),
    LogEvent(
        "log_lines_lost",
        _WARNING,
        ("lines",),
        "The log could not be written for a while, and this number of lines is missing.",
    ),
    LogEvent(
        "message_abandoned",
        _ERROR,
        ("channel",),
        "A message became a dead letter, because no attempt to answer it came to an end.",
    ),
    LogEvent(
        "message_failed",
        _FAILING,
        ("channel", "attempt", "error", "dead", "trace"),
        "An attempt to answer a message failed; with `error` as level it is a dead letter.",
    ),
    LogEvent(
        "message_release_failed",
        _WARNING,
        ("channel", "attempt", "error", "dead"),
        "The database did not store what became of a message; it is claimed again when its lease"
        " has run out.",
    ),
    LogEvent(
        "metrics_not_sent",
        _WARNING,
        ("reason", "error"),
        "The collector of metrics takes none.",
    ),
    LogEvent(
        "migration_failed",
        _ERROR,
        ("database", "reason", "incident", "outcome"),
        "The schema of a database was not migrated, at the start (`reason`) or by"
        " `POST /databases/{db_id}/migrate` (`incident`, `outcome`).",
    ),
    LogEvent(
        "model_failed",
        _FAILING,
        (
            *("model", "reason", "status", "attempt", "code", "message"),
            *("error", "trace", "hint"),
        ),
        "A provider gave no answer, and is not asked again; `reason` is an `error_type` without"
        " `model_`.  `code` and `message` are the provider's own words, without keys.  The level"
        " is `error` where the function of a `CustomModel` raised; then `error` and `trace` say"
        " where.",
    ),
    LogEvent(
        "model_replaced",
        _WARNING,
        ("run_id", "model", "reason", "next"),
        "A model gave no answer, and the `next` of the agent's `fallback` is asked; `reason` is as"
        " of `model_failed`, or `unable` where the model cannot do what the request needs.",
    ),
    LogEvent(
        "model_retried",
        _WARNING,
        ("model", "reason", "status", "attempt", "code", "message"),
        "A provider gave no answer, and is asked again.",
    ),
    LogEvent(
        "name_not_held",
        _WARNING,
        ("database", "error"),
        "The file that shows other processes on this machine that this one lives cannot be locked:"
        " its end shows by its silence; the line is written once.",
    ),
    LogEvent(
        "node_lost",
        _WARNING,
        ("database", "node"),
        "A node was taken for dead: its process ended without saying so, or it was silent for a"
        " lease.  Other nodes take up its work.",
    ),
    LogEvent(
        "node_returned",
        _WARNING,
        ("database",),
        "This node had been taken for dead, and is back: it keeps what nobody has taken up, and is"
        " not ready until it has compared its leases with what it executes.",
    ),
    LogEvent(
        "past_failed",
        _WARNING,
        ("reason",),
        "The demonstration could not be given its past, and is served without; the next start tries"
        " again.",
    ),
    LogEvent(
        "pooler_found",
        _INFO,
        ("database", "effect"),
        "A pooler that the URL does not name is in between, and is served as if it were named.",
    ),
    LogEvent(
        "process_blocked",
        _ERROR,
        ("pid", *_BLOCKED, "stack"),
        "A step of a run did not come back within `step_seconds` of CPU or sleep, and its process"
        " is killed; the `stack` is innermost first.",
    ),
    LogEvent(
        "reaper_round_failed",
        _FAILING,
        ("database", "error"),
        "A round of looking after runs failed: cancellations, runs of dead nodes; the line is"
        " written once while it goes on.",
    ),
    LogEvent(
        "refusals_failed",
        _FAILING,
        ("database", "error"),
        "Counts of refusals could not be written; they are kept for the next try.  The line is"
        " written once while it goes on.",
    ),
    LogEvent(
        "refusals_unlogged",
        _WARNING,
        ("lines",),
        "So many lines about refused requests of unknown callers are not in the log: there were too"
        " many.  `legation audit refusals` shows their counts.",
    ),
    LogEvent(
        "refusals_unwritten",
        _WARNING,
        ("minute", "client", "route", "status", "count"),
        "A count of refusals that could not be written before the process ended.",
    ),
    LogEvent(
        "reload_failed",
        _ERROR,
        ("reason",),
        "The configuration or the certificate cannot be used at SIGHUP; the old one stays.",
    ),
    LogEvent(
        "reply_abandoned",
        _ERROR,
        ("channel",),
        "A reply became a dead letter, because no attempt to send it came to an end.",
    ),
    LogEvent(
        "reply_failed",
        _FAILING,
        ("channel", "attempt", "reason", "dead"),
        "An attempt to send a reply failed; with `error` as level it is a dead letter.",
    ),
    LogEvent(
        "reply_record_failed",
        _WARNING,
        ("channel",),
        "The database did not store what became of a reply; it is claimed again when its lease"
        " has run out.",
    ),
    LogEvent(
        "reply_undelivered",
        _WARNING,
        ("channel", "reply", "message", "reason"),
        "WhatsApp took a reply and could not deliver it; `reason` has Meta's error codes.  The"
        " reply is a dead letter.",
    ),
    LogEvent(
        "request",
        ("info", "warning"),
        (
            *("request_id", "method", "route", "operation", "status", "duration_ms"),
            *("cut", "trace_id"),
        ),
        "A request is over, also one that the server"
        " [refuses by itself](../howto/observing.md#the-log), under the route `*`; the level is"
        " `warning` for 5xx.",
    ),
    LogEvent(
        "request_failed",
        _ERROR,
        ("incident", "request_id", "method", "path", "error", "trace"),
        "A bug or a database ended a request; the caller has the `incident`, and `error` says"
        " where.",
    ),
    LogEvent(
        "restart_abandoned",
        _ERROR,
        ("pid", "slot", "code"),
        "The successor of a worker did not come up, and those that serve go on.",
    ),
    LogEvent(
        "retention_failed",
        _FAILING,
        ("database", "error"),
        "A sweep of the retention failed; it goes on where it stood.  The line is written once"
        " while it goes on.",
    ),
    LogEvent(
        "retention_swept",
        _INFO,
        ("database", "seconds", *(kind.value for kind in Kind)),
        "A sweep has deleted the old data of a database: how much went, by kind.",
    ),
    LogEvent(
        "revocations_recovered",
        _INFO,
        ("path",),
        "The file with revocations can be read again, and counts.",
    ),
    LogEvent(
        "revocations_reload_failed",
        _ERROR,
        ("path", "reason"),
        "The file with revocations cannot be read, or has a mistake.  The old revocations count for"
        " `keys_stale_seconds`; the line is written once while it goes on.",
    ),
    LogEvent(
        "revocations_reloaded",
        _INFO,
        ("path",),
        "The file with revocations has changed and was read again.",
    ),
    LogEvent(
        "revocations_void",
        _ERROR,
        ("path", "stale_seconds"),
        "The file with revocations could not be read for `keys_stale_seconds`: no token is accepted"
        " any more, and the process is not ready.",
    ),
    LogEvent(
        "run_blocked",
        _ERROR,
        (*_BLOCKED, "place"),
        "A step of a run took more than a second of CPU between two effects, in which nothing"
        " else was done; the run ends, and `place` says where it stood.",
    ),
    LogEvent(
        "run_failed",
        _FAILING,
        (
            *("incident", "run_id", "error_type", "error", "trace"),
            *("status", "code", "message"),
        ),
        "A run, perhaps of a team's member, ended as ERROR, and its output has the `incident` and"
        " the `error_type`.  The level is `error` for what the code raised; then `error` and"
        " `trace` say where, or `CancelledUnasked` for a cancellation that nobody asked for."
        "  `status`, `code` and `message` are as of `model_failed`.",
    ),
    LogEvent(
        "run_given_up",
        _ERROR,
        ("run_id", "database", "place", "asked"),
        "A run ended as ERROR, since three nodes in a row went away at the same step of it; it may"
        " be what they die of.",
    ),
    LogEvent(
        "run_record_failed",
        _ERROR,
        ("run_id",),
        "The database did not store the end of a run; the run ends when its lease has run out.",
    ),
    LogEvent(
        "run_released",
        _WARNING,
        ("run_id", "database", "error"),
        "The database was away for too long; the run waits, and goes on from its last step.",
    ),
    LogEvent(
        "run_resumed",
        _INFO,
        ("run_id", "database", "attempt", "steps"),
        "A run whose node went away, or ended, goes on here from its recorded steps.",
    ),
    LogEvent(
        "run_stalled",
        _WARNING,
        ("run_id", "database"),
        "No node executes a run or ends it; the client that waits for it gets an error.",
    ),
    LogEvent(
        "runs_hosted",
        _INFO,
        ("database",),
        "Nothing waits any more for what nobody hosts, after a `runs_unhosted`.",
    ),
    LogEvent(
        "runs_orphaned",
        _WARNING,
        ("database", "runs"),
        "This node had the leases of so many runs that it does not execute, and lets them go: they"
        " wait again, or end as interrupted.",
    ),
    LogEvent(
        "runs_unhosted",
        _ERROR,
        ("incident", "database", "components", "runs"),
        "Runs have waited for longer than `unhosted_minutes` for agents, teams or versions of them"
        " that no living node hosts: host them again, or cancel the runs.",
    ),
    LogEvent(
        "schema_accepted",
        _INFO,
        ("database",),
        "The schema of a database is one that this release serves, after a `schema_rejected`.",
    ),
    LogEvent(
        "schema_rejected",
        _WARNING,
        ("database", "reason"),
        "The schema of a database has become one that this release does not serve.",
    ),
    LogEvent(
        "secrets_reload_failed",
        _ERROR,
        ("reason",),
        "A file of a secret has changed and cannot be used; the old secrets stay.",
    ),
    LogEvent(
        "secrets_reloaded",
        _INFO,
        ("files",),
        "A file of a secret has changed, and so many were read again.",
    ),
    LogEvent(
        "server_started",
        _INFO,
        ("version", "address", "platform", "workers"),
        "Requests are answered at `address`.",
    ),
    LogEvent(
        "server_stopped",
        ("info", "error"),
        ("reason", "seconds"),
        "The server has ended, `seconds` after it began to answer.  The `reason` is a signal, or,"
        " with the level `error`, the name of an exception.  At a terminal it is a sentence.",
    ),
    LogEvent(
        "server_stopping",
        _INFO,
        ("reason",),
        "The end begins: `reason` is a signal, `worker_ended` where no worker could start, or a"
        " second signal, which breaks off what is under way.",
    ),
    LogEvent(
        "setting_unsafe",
        ("info", "warning"),
        ("path", "message", "severity", "code"),
        "A setting that can be served, but is unsafe, as `legation check` finds it; written at the"
        " start.  The level is `info` where the `severity` is `low`.",
    ),
    LogEvent(
        "shutdown_incomplete",
        _WARNING,
        ("runs", "messages", "replies"),
        "This many leases could not be released before the process ended, and have to run out.",
    ),
    LogEvent(
        "spans_not_sent", _WARNING, ("reason", "error"), "The collector of traces takes no spans."
    ),
    LogEvent(
        "sqlite_wal_reset_bug",
        _WARNING,
        ("database", "sqlite", "error", "advice"),
        "This SQLite may lose data where two processes write to one file, and the file by which"
        " processes of this server keep apart cannot be locked.",
    ),
    LogEvent(
        "state_overwritten",
        _WARNING,
        ("run_id", "key", "place", "by"),
        "Two calls side by side wrote one `key` of the session's state: what the call at `place`"
        " wrote gave way to what the one at `by` wrote, which is later in the run.",
    ),
    LogEvent(
        "state_refused",
        _ERROR,
        ("run_id", "component", "error"),
        "A function wrote to the state of the session what cannot be stored; `error` names the"
        " key.",
    ),
    LogEvent(
        "store_failed",
        ("debug", "error"),
        ("database", "failure", "incident", "error"),
        "A unit of work failed in the database; `error` has the driver's words, and the level is"
        " `debug` for a lock that was not had and a key that was taken.",
    ),
    LogEvent(
        "streamed_answer_failed",
        _WARNING,
        ("channel", "reason"),
        "The provider of a channel did not take the message in which an answer grows; the answer is"
        " sent all the same, and the next refusals are not written.",
    ),
    LogEvent(
        "summary_failed",
        _WARNING,
        ("run_id", "model", "error"),
        "A model gave no summary of a session.  The run goes on with the history that there is, and"
        " the next run of the session tries again.",
    ),
    LogEvent(
        "tls_failed",
        _INFO,
        ("reason", "times"),
        "A TLS handshake failed; each reason is written once a minute at most, with the number of"
        " `times` since.",
    ),
    LogEvent(
        "token_refused",
        _INFO,
        ("request_id", "reason"),
        "A token does not verify; its sender does not see the `reason`.",
    ),
    LogEvent(
        "tool_failed",
        _ERROR,
        ("incident", "run_id", "tool", "error", "trace"),
        "A tool raised an exception other than `ToolError`, or took too long.",
    ),
    LogEvent(
        "typing_failed",
        _WARNING,
        ("channel", "reason"),
        "The provider of a channel refused a typing indicator; answers are sent all the same, and"
        " the next refusals are not written.",
    ),
    LogEvent(
        "unhosted_round_failed",
        _FAILING,
        ("database", "error"),
        "A look for runs that nobody hosts failed; the line is written once while it goes on.",
    ),
    LogEvent(
        "watch_round_failed",
        _FAILING,
        ("database", "error"),
        "A look at the runs of other nodes that are followed here failed; the line is written once"
        " while it goes on.",
    ),
    LogEvent(
        "worker_ended",
        _ERROR,
        ("pid", "slot", "code"),
        "A worker ended that was not ordered to, with this exit `code`.",
    ),
    LogEvent(
        "worker_killed",
        _ERROR,
        ("pid", "slot"),
        "A worker that hung was killed: it did not come up or end in time, or was silent.",
    ),
    LogEvent("worker_serves", _INFO, ("pid", "slot"), "A worker has come up."),
    LogEvent("workers_restarting", _INFO, ("workers",), "SIGHUP: every worker gets a successor."),
    LogEvent("workers_starting", _INFO, ("workers",), "The server starts several `workers`."),
)

LOG_EVENTS: Final = {event.name: event for event in _LISTED}
"""Every event, by name."""
