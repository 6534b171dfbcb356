"""The catalogue: every version of the schema, how to reach it and how to leave it.

The history is one line, without branches.  Each version is *sealed* by a hash that covers the
steps of all versions up to it, so that an edited migration and one inserted below the top both
change every seal above: they are found as drift where other tools skip them in silence.  White
space does not count, for a formatter or a checkout with other line ends must not stop a server.

Only what is quick at any size of table belongs into a step, because all steps of a request run in
one transaction.  Long work becomes a row of `background`, and a later migration begins with a
check that the work is done.

How the tables look, on both engines: times are integers (microseconds since the epoch, UTC), ids
are text, booleans are 0 or 1, nothing counts by itself.  Documents are JSON in plain text: they
are never searched, `jsonb` would refuse U+0000 and reorder the keys, and text gives back the bytes
that came.  Every key of a user's data begins with `owner`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from attrs import field

from ..store.once import whole_data, whole_output
from ..store.units import Dialect, Sql, Statement
from ..values import frozen
from .schema_version import EMPTY, Version

__all__ = ["CATALOGUE", "Catalogue", "Migration", "Step"]

_TOKENS: Final = re.compile(r"""'[^']*'|"[^"]*"|\w+|[^\w\s]""")


@frozen
class Step:
    """One statement of a migration; an empty text means nothing to do on that engine.

    `postgresql` is given where the dialects differ.  A step with `refuse_if` is a check: when it
    returns a row, the migration is refused with that sentence.
    """

    text: str
    postgresql: str | None = None
    refuse_if: str | None = field(default=None, kw_only=True)
    _statement: Statement = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        sql = Sql(self.text, self.postgresql, registered=False)
        object.__setattr__(self, "_statement", Statement(sql))

    def statement(self, dialect: Dialect) -> Statement | None:
        """Return the statement for `dialect`, or None when there is nothing to do."""
        return self._statement if self._text(dialect) else None

    def canonical(self, dialect: Dialect) -> str:
        """Return the text as it is sealed: its tokens, one space between them."""
        return " ".join(_TOKENS.findall(self._text(dialect)))

    def _text(self, dialect: Dialect) -> str:
        if dialect is Dialect.POSTGRESQL and self.postgresql is not None:
            return self.postgresql
        return self.text


@frozen
class Migration:
    """One version of the schema.

    Attributes:
        up: From the version before to this one.
        down: The way back; None when there is none.
        loses: What `down` throws away, in words for people.
        serves: The oldest code that may serve this schema.  Code is named by the latest version
            that its own catalogue knows, and reads this from the ledger, so it need not know the
            migration.
    """

    version: Version
    title: str
    up: tuple[Step, ...]
    down: tuple[Step, ...] | None = None
    loses: tuple[str, ...] = ()
    serves: Version = EMPTY


@frozen
class Catalogue:
    """Migrations in strictly ascending order.

    Attributes:
        versions: Every version a database can be at, the empty one included.
    """

    migrations: tuple[Migration, ...]
    versions: tuple[Version, ...] = field(init=False, eq=False, repr=False)
    _seals: dict[Dialect, dict[Version, str]] = field(
        factory=dict[Dialect, dict[Version, str]], init=False, eq=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        versions = (EMPTY, *(migration.version for migration in self.migrations))
        object.__setattr__(self, "versions", versions)
        for lower, higher in pairwise(versions):
            if higher <= lower:
                raise ValueError(f"version {higher} does not come after {lower}")

    @property
    def latest(self) -> Version:
        """The version that the statements of this code are written for."""
        return self.versions[-1]

    def serves(self, version: Version) -> Version:
        """Return the oldest code that may serve `version`, one of `versions`."""
        return next((m.serves for m in self.migrations if m.version == version), EMPTY)

    def seal(self, version: Version, dialect: Dialect) -> str:
        """Return the hash of the whole history up to `version`, one of `versions`.

        It is empty for the empty database.  Texts are hashed when first asked for, and then not
        again: every request that looks where a database stands compares a seal.
        """
        if dialect not in self._seals:
            self._seals[dialect] = dict(self._compute_seals(dialect))
        return self._seals[dialect][version]

    def _compute_seals(self, dialect: Dialect) -> Iterator[tuple[Version, str]]:
        seal = ""
        yield EMPTY, seal
        for migration in self.migrations:
            steps = (step.canonical(dialect) for step in migration.up)
            history = "\0".join((seal, str(migration.version), *steps))
            seal = hashlib.sha256(history.encode()).hexdigest()
            yield migration.version, seal


# --- 2.0.0 -------------------------------------------------------------------------------------
# A session counts its runs and its own versions: appending a run is a compare-and-set on the row,
# which gives the dense `run_no`.  An event is never changed once written.

_SESSIONS: Final = """
    create table sessions (
        owner text not null,
        session_id text not null,
        kind text not null,
        component_id text not null,
        name text,
        state text not null default '{}',
        metadata text,
        summary text,
        version bigint not null default 0,
        runs bigint not null default 0,
        created_us bigint not null,
        updated_us bigint not null,
        primary key (owner, session_id)
    )
"""

_RUNS: Final = """
    create table runs (
        owner text not null,
        session_id text not null,
        run_no bigint not null,
        run_id text not null,
        parent_run_id text,
        kind text not null,
        component_id text not null,
        status text not null,
        input text not null,
        output text,
        error text,
        reason text,
        created_us bigint not null,
        started_us bigint,
        ended_us bigint,
        cancel_us bigint,
        lease_by text,
        lease_us bigint,
        attempt bigint not null default 0,
        events bigint not null default 0,
        primary key (owner, session_id, run_no),
        unique (run_id)
    )
"""

_EVENTS: Final = """
    create table events (
        run_id text not null,
        seq bigint not null,
        at_us bigint not null,
        name text not null,
        data text not null,
        primary key (run_id, seq)
    )
"""

_2_0_0: Final = Migration(
    Version(2, 0, 0),
    "sessions, runs and their events",
    up=(
        Step(_SESSIONS),
        # One for each order that a list is asked for in; the last for who sees every owner.
        Step(
            "create index sessions_created"
            " on sessions (owner, kind, created_us desc, session_id desc)"
        ),
        Step(
            "create index sessions_recent"
            " on sessions (owner, kind, updated_us desc, session_id desc)"
        ),
        Step(
            "create index sessions_component_created"
            " on sessions (owner, kind, component_id, created_us desc, session_id desc)"
        ),
        Step("create index sessions_all on sessions (kind, created_us desc, session_id desc)"),
        Step("create index sessions_id on sessions (session_id)"),
        Step(_RUNS),
        # A start and an end ask for it: they must not cost more the more runs a session has.
        Step(
            "create index runs_active on runs (owner, session_id, run_no)"
            " where status in ('PENDING', 'RUNNING')"
        ),
        Step("create index runs_leased on runs (lease_us) where status in ('PENDING', 'RUNNING')"),
        Step(_EVENTS),
        # Room on the page keeps the updates of a lease in place (heap-only tuples).
        Step("", postgresql="alter table sessions set (fillfactor = 80)"),
        Step("", postgresql="alter table runs set (fillfactor = 80)"),
    ),
    down=(Step("drop table events"), Step("drop table runs"), Step("drop table sessions")),
    loses=("every session", "every run and its events"),
    serves=Version(2, 0, 0),
)

# --- 2.3.0 -------------------------------------------------------------------------------------
# No state is called "leased": leased means that `lease_us` lies ahead.  A claim and a heartbeat
# thus change no column of an index, nor one in its predicate.

_INBOX: Final = """
    create table inbox (
        channel text not null,
        message_id text not null,
        sender text not null,
        payload text not null,
        state text not null default 'ready',
        received_us bigint not null,
        position bigint not null default 0,
        ready_us bigint not null,
        attempts bigint not null default 0,
        lease_by text,
        lease_us bigint,
        error text,
        run_id text,
        done_us bigint,
        primary key (channel, message_id)
    )
"""

_OUTBOX: Final = """
    create table outbox (
        channel text not null,
        idempotency_key text not null,
        recipient text not null,
        payload text not null,
        state text not null default 'ready',
        created_us bigint not null,
        ready_us bigint not null,
        attempts bigint not null default 0,
        lease_by text,
        lease_us bigint,
        error text,
        sent_us bigint,
        primary key (channel, idempotency_key)
    )
"""

_2_3_0: Final = Migration(
    Version(2, 3, 0),
    "messages received and replies to send",
    up=(
        Step(_INBOX),
        Step(
            "create index inbox_ready on inbox (channel, sender, received_us, position)"
            " where state = 'ready'"
        ),
        Step("create index inbox_dead on inbox (channel, received_us) where state = 'dead'"),
        Step(_OUTBOX),
        Step("create index outbox_ready on outbox (ready_us) where state = 'ready'"),
        Step("create index outbox_dead on outbox (channel, created_us) where state = 'dead'"),
        Step("", postgresql="alter table inbox set (fillfactor = 80)"),
        Step("", postgresql="alter table outbox set (fillfactor = 80)"),
    ),
    down=(Step("drop table outbox"), Step("drop table inbox")),
    loses=("every message received, answered or not", "every reply, sent or not"),
    serves=Version(2, 0, 0),
)

# --- 2.5.0 -------------------------------------------------------------------------------------
# Each writer of the trail numbers and chains its own rows: `hash` covers the row and `previous`.

_AUDIT: Final = """
    create table audit (
        writer text not null,
        seq bigint not null,
        at_us bigint not null,
        request_id text not null,
        subject text,
        key_id text,
        operation text not null,
        resource text not null,
        decision text not null,
        scope text not null,
        status bigint not null,
        client text not null,
        hash text not null,
        previous text not null,
        primary key (writer, seq)
    )
"""

_IDEMPOTENCY: Final = """
    create table idempotency (
        owner text not null,
        route text not null,
        key text not null,
        fingerprint text not null,
        status bigint,
        headers text,
        body blob,
        created_us bigint not null,
        expires_us bigint not null,
        primary key (owner, route, key)
    )
"""

_AUDIT_COLUMNS: Final = (
    "writer, seq, at_us, request_id, subject, key_id, operation, resource, decision, scope, status,"
    " client, hash, previous"
)
_KEEP_AUDIT: Final = f"""
    insert into trail_kept (kept, {_AUDIT_COLUMNS})
    select (select coalesce(max(kept), 0) + 1 from trail_kept), {_AUDIT_COLUMNS} from audit
"""

_2_5_0: Final = Migration(
    Version(2, 5, 0),
    "the audit trail and idempotency keys",
    up=(
        Step(_AUDIT),
        Step("create index audit_at on audit (at_us)"),
        Step("create index audit_subject_at on audit (subject, at_us)"),
        Step(_IDEMPOTENCY, postgresql=_IDEMPOTENCY.replace("body blob", "body bytea")),
        Step("create index idempotency_expiry on idempotency (expires_us)"),
    ),
    down=(
        Step("drop table idempotency"),
        # No migration removes a row of the trail: `trail_kept` is made beside the ledger.
        Step(_KEEP_AUDIT),
        Step("drop table audit"),
    ),
    loses=("every idempotency key, so that a request sent again is done again",),
    serves=Version(2, 0, 0),
)

# --- 2.5.6 -------------------------------------------------------------------------------------
# `nodes` was for people alone, until 2.6.0.

_NODES: Final = """
    create table nodes (
        node_id text not null,
        started_us bigint not null,
        beat_us bigint not null,
        code_version text not null,
        schema_version text not null,
        primary key (node_id)
    )
"""

_BACKGROUND: Final = """
    create table background (
        name text not null,
        cursor text,
        done bigint not null default 0,
        total bigint,
        state text not null default 'ready',
        lease_by text,
        lease_us bigint,
        attempt bigint not null default 0,
        error text,
        primary key (name)
    )
"""

_2_5_6: Final = Migration(
    Version(2, 5, 6),
    "what a run consumed, the nodes, and background work",
    up=(
        Step("alter table runs add column usage text"),
        Step(_NODES),
        Step(_BACKGROUND),
    ),
    down=(
        Step("drop table background"),
        Step("drop table nodes"),
        Step("alter table runs drop column usage"),  # SQLite: 3.35 and later
    ),
    loses=(
        "what each run consumed (runs.usage)",
        "the progress of background work",
        "the list of nodes",
    ),
    serves=Version(2, 0, 0),
)

# --- 2.6.0 -------------------------------------------------------------------------------------
# A lease lasts as long as its node is in `nodes`, and then has no end of its own.  Code for 2.5.6
# reads that as a lease that lies ahead and leaves it alone; on the way down such leases end.

_FOREVER: Final = "9223372036854775807"

_CLUSTER: Final = """
    create table cluster (
        one bigint not null,
        up_us bigint not null,
        seen_us bigint not null,
        gap_us bigint not null,
        beats bigint not null,
        primary key (one)
    )
"""

_2_6_0: Final = Migration(
    Version(2, 6, 0),
    "the clock of the cluster, the leases of nodes, and what a run asks of its node",
    up=(
        Step(_CLUSTER),
        Step("insert into cluster (one, up_us, seen_us, gap_us, beats) values (1, 0, 0, 0, 0)"),
        Step("alter table nodes add column until_us bigint not null default 0"),
        Step("alter table nodes add column place text not null default ''"),
        Step("alter table nodes add column session_lock bigint not null default 0"),
        Step("alter table nodes add column hosts text not null default '[]'"),
        Step("alter table runs add column token text"),
        Step("alter table runs add column version text"),
        Step("", postgresql="alter table cluster set (fillfactor = 50)"),
    ),
    down=(
        Step(
            f"update runs set lease_us = 0 where status in ('PENDING', 'RUNNING')"
            f" and lease_us = {_FOREVER}"
        ),
        Step(f"update inbox set lease_us = 0 where state = 'ready' and lease_us = {_FOREVER}"),
        Step(f"update outbox set lease_us = 0 where state = 'ready' and lease_us = {_FOREVER}"),
        Step("alter table runs drop column version"),
        Step("alter table runs drop column token"),
        Step("alter table nodes drop column hosts"),
        Step("alter table nodes drop column session_lock"),
        Step("alter table nodes drop column place"),
        Step("alter table nodes drop column until_us"),
        Step("drop table cluster"),
    ),
    loses=(
        "which nodes live, so that what they work on is taken for a dead node's",
        "which version of its agent a run waits for (runs.version)",
        "the token of the wish to continue a run (runs.token)",
    ),
    serves=Version(2, 5, 6),
)

# --- 2.7.0 -------------------------------------------------------------------------------------
# A step is found by its place.  On the way down a run that waits to go on from its steps is one
# whose executor went away, which code for 2.6.0 ends; it would begin one that waits, or that was
# claimed to go on and has not.

_STEPS: Final = """
    create table steps (
        run_id text not null,
        place text not null,
        kind text not null,
        asked text not null,
        attempt bigint not null,
        begun_us bigint not null,
        ended_us bigint,
        outcome text,
        primary key (run_id, place)
    )
"""

_DEFINITIONS: Final = """
    create table definitions (
        digest text not null,
        kind text not null,
        component_id text not null,
        document text not null,
        first_us bigint not null,
        primary key (digest)
    )
"""

_2_7_0: Final = Migration(
    Version(2, 7, 0),
    "the steps of runs, from which they go on after a crash",
    up=(
        Step(_STEPS),
        Step(_DEFINITIONS),
        Step("alter table runs add column tries bigint not null default 0"),
        Step("alter table runs add column recorded bigint not null default 0"),
        # Room on the page keeps the update with the outcome of a call in place.
        Step("", postgresql="alter table steps set (fillfactor = 80)"),
    ),
    down=(
        Step(
            "update runs set status = 'RUNNING', lease_by = coalesce(lease_by, ''),"
            " lease_us = coalesce(lease_us, 0), reason = null"
            " where status in ('PENDING', 'RUNNING') and reason = 'recorded'"
        ),
        Step("alter table runs drop column recorded"),
        Step("alter table runs drop column tries"),
        Step("drop table definitions"),
        Step("drop table steps"),
    ),
    loses=(
        "the steps of every run, so that one whose node dies ends as interrupted",
        "the definitions of agents and teams as runs began with them",
        "how often a run was taken up since its last step (runs.tries, runs.recorded)",
    ),
    serves=Version(2, 6, 0),
)

# --- 2.8.0 -------------------------------------------------------------------------------------
# A run names the state of its session by its digest.  The output of a run that was stored before,
# or by a node for 2.7.0, has the state in it.

_SESSION_STATES: Final = """
    create table session_states (
        owner text not null,
        session_id text not null,
        digest text not null,
        document text not null,
        first_us bigint not null,
        primary key (owner, session_id, digest)
    )
"""

_2_8_0: Final = Migration(
    Version(2, 8, 0),
    "the state of a session as its runs left it, once for each version",
    up=(
        Step(_SESSION_STATES),
        Step("alter table runs add column state text"),
    ),
    down=(
        Step("alter table runs drop column state"),
        Step("drop table session_states"),
    ),
    loses=("the state of its session as each run left it (runs.state, session_states)",),
    serves=Version(2, 7, 0),
)

# --- 2.9.0 -------------------------------------------------------------------------------------
# A run without a subject is counted against its owner; one without a turn, which a node for 2.8.0
# stored or which was claimed before, goes first.  On the way down what waits goes in the order in
# which it was stored.

_USAGE: Final = """
    create table usage (
        subject text not null,
        bytes bigint not null default 0,
        day bigint not null default 0,
        tokens bigint not null default 0,
        primary key (subject)
    )
"""

_REFUSALS: Final = """
    create table refusals (
        minute bigint not null,
        client text not null,
        route text not null,
        status bigint not null,
        count bigint not null,
        primary key (minute, client, route, status)
    )
"""

# Older code does not know of texts that are stored once.  The events come first.

_WHOLE_EVENTS: Final = f"""
    update events set data = (
        select {whole_data("events", "runs")} from runs where runs.run_id = events.run_id
    ) where substr(data, 1, 1) = ' '
"""

_WHOLE_OUTPUTS: Final = f"""
    update runs set output = {whole_output()} where substr(output, 1, 1) = ' '
"""

_2_9_0: Final = Migration(
    Version(2, 9, 0),
    "the shares of subjects: turns of runs, bytes, tokens of the day, and counts of refusals",
    up=(
        Step("alter table runs add column subject text"),
        Step("alter table runs add column turn bigint"),
        Step("alter table runs add column at_once bigint"),
        Step(
            "create index runs_turn on runs ((coalesce(subject, owner)), (coalesce(turn, 0)))"
            " where status = 'PENDING' and parent_run_id is null"
        ),
        Step("alter table sessions add column bytes bigint not null default 0"),
        Step(_USAGE),
        Step(f"{_REFUSALS} without rowid", postgresql=_REFUSALS),
    ),
    down=(
        Step(_WHOLE_EVENTS),
        Step(_WHOLE_OUTPUTS),
        Step("drop table refusals"),
        Step("drop table usage"),
        Step("alter table sessions drop column bytes"),
        Step("drop index runs_turn"),
        Step("alter table runs drop column at_once"),
        Step("alter table runs drop column turn"),
        Step("alter table runs drop column subject"),
    ),
    loses=(
        "whose share each run is counted against, and its turn (runs.subject, runs.turn)",
        "how much each subject keeps and has used today (usage, sessions.bytes)",
        "the counts of requests that were refused (refusals)",
    ),
    serves=Version(2, 8, 0),
)

# --- 2.10.0 ------------------------------------------------------------------------------------
# Lists of runs of every owner.  A run enters the index where it pauses or ends, and not before:
# what is active has indexes of its own.  An answer to a pause stands on the row until the next one.

_INCIDENTS: Final = """
    create table incidents (
        incident_id text not null,
        at_us bigint not null,
        node text not null,
        error_type text not null,
        place text not null,
        operation text,
        component text,
        request_id text,
        run_id text,
        primary key (incident_id)
    )
"""

_2_10_0: Final = Migration(
    Version(2, 10, 0),
    "lists of runs, answers to paused runs, and incidents",
    up=(
        Step("alter table runs add column model text"),
        Step("alter table runs add column incident text"),
        Step("alter table runs add column resolved_us bigint"),
        Step("alter table runs add column resolved_by text"),
        Step("alter table runs add column resolved_events bigint"),
        Step("alter table runs add column resolution text"),
        Step(
            "create index runs_listed on runs (status, created_us, run_id)"
            " where parent_run_id is null and status not in ('PENDING', 'RUNNING')"
        ),
        Step(f"{_INCIDENTS} without rowid", postgresql=_INCIDENTS),
        Step("create index incidents_at on incidents (at_us)"),
    ),
    down=(
        Step("drop table incidents"),
        Step("drop index runs_listed"),
        Step("alter table runs drop column resolution"),
        Step("alter table runs drop column resolved_events"),
        Step("alter table runs drop column resolved_by"),
        Step("alter table runs drop column resolved_us"),
        Step("alter table runs drop column incident"),
        Step("alter table runs drop column model"),
    ),
    loses=(
        "who answered paused runs, when and how (runs.resolution)",
        "the model of each run, and the incident of a failed one, outside of its output",
        "the list of incidents",
    ),
    serves=Version(2, 9, 0),
)

# --- 2.11.0 ------------------------------------------------------------------------------------
# A reply names the message that it answers: until now its key alone did, and those that a node for
# 2.10.0 stores do so still.  Those that wait, or are dead, are given it, as they may be tried again
# with their message; of what was sent nothing is read.

_NAME_MESSAGES: Final = """
    update outbox set message_id = substr(idempotency_key, instr(idempotency_key, '-') + 1)
    where state = '{}' and substr(idempotency_key, 1, 5) in ('reply', 'apolo')
"""
_NAME_READY: Final = _NAME_MESSAGES.format("ready")
_NAME_DEAD: Final = _NAME_MESSAGES.format("dead")

_CHANNEL_STATES: Final = """
    create table channel_states (
        channel text not null,
        identity text,
        asked_us bigint,
        held_us bigint,
        held text,
        probe_us bigint,
        released_us bigint,
        primary key (channel)
    )
"""

_CHANNEL_CHATS: Final = """
    create table channel_chats (
        channel text not null,
        conversation text not null,
        moved_to text not null,
        primary key (channel, conversation)
    )
"""

_CHANNEL_OPTOUTS: Final = """
    create table channel_optouts (
        channel text not null,
        person text not null,
        since_us bigint not null,
        primary key (channel, person)
    )
"""

_2_11_0: Final = Migration(
    Version(2, 11, 0),
    "channels that know themselves: replies by their message, moved chats, and opt-outs",
    up=(
        Step("alter table outbox add column message_id text"),
        Step("alter table outbox add column provider_id text"),
        Step("alter table outbox add column spared bigint not null default 0"),
        Step(_NAME_READY, postgresql=_NAME_READY.replace("instr", "strpos")),
        Step(_NAME_DEAD, postgresql=_NAME_DEAD.replace("instr", "strpos")),
        Step("create index outbox_message on outbox (channel, message_id)"),
        Step(f"{_CHANNEL_STATES} without rowid", postgresql=_CHANNEL_STATES),
        Step(f"{_CHANNEL_CHATS} without rowid", postgresql=_CHANNEL_CHATS),
        Step("create index channel_chats_moved on channel_chats (channel, moved_to)"),
        Step(f"{_CHANNEL_OPTOUTS} without rowid", postgresql=_CHANNEL_OPTOUTS),
    ),
    down=(
        Step("drop table channel_optouts"),
        Step("drop table channel_chats"),
        Step("drop table channel_states"),
        Step("drop index outbox_message"),
        Step("alter table outbox drop column spared"),
        Step("alter table outbox drop column provider_id"),
        Step("alter table outbox drop column message_id"),
    ),
    loses=(
        "which message each reply answers, and its id at the provider (outbox.message_id)",
        "who each channel is at its provider, and that it is held (channel_states)",
        "where chats moved to (channel_chats)",
        "who wants no messages of a channel (channel_optouts)",
    ),
    serves=Version(2, 10, 0),
)

# --- 2.12.0 ------------------------------------------------------------------------------------
# The audit trail is in pages, in tables that stand beside the ledger.  Code for 2.11.0 still writes
# rows to `audit`, from which they are moved; what is left there needs no index for each subject.

_2_12_0: Final = Migration(
    Version(2, 12, 0),
    "the audit trail in pages",
    up=(Step("drop index audit_subject_at"),),
    down=(Step("create index audit_subject_at on audit (subject, at_us)"),),
    loses=("sight of the audit trail in pages: they are kept, and older code does not show them",),
    serves=Version(2, 11, 0),
)

# --- 2.13.0 ------------------------------------------------------------------------------------
# A summary covers the runs of a session up to the one that its key names.  Several are kept, since
# a run names the one that its model was sent.

_SESSION_SUMMARIES: Final = """
    create table session_summaries (
        owner text not null,
        session_id text not null,
        run_no bigint not null,
        summary text not null,
        run_id text not null,
        model text not null,
        usage text,
        at_us bigint not null,
        primary key (owner, session_id, run_no)
    )
"""

_2_13_0: Final = Migration(
    Version(2, 13, 0),
    "summaries of long sessions, and what a subject has spent today",
    up=(
        Step(_SESSION_SUMMARIES),
        Step("alter table usage add column cost_nano bigint not null default 0"),
    ),
    down=(
        Step("alter table usage drop column cost_nano"),
        Step("drop table session_summaries"),
    ),
    loses=(
        "the summaries of sessions (session_summaries)",
        "what each subject has spent today (usage.cost_nano)",
    ),
    serves=Version(2, 12, 0),
)

# --- 2.14.0 ------------------------------------------------------------------------------------
# A session is in one index less: the agent or team stands at the end of the two by which an owner's
# sessions are listed, so that a list of one of them reads no row of the others.
#
# Triggers keep the counts of sessions right, since nodes for 2.13.0 know nothing of them.  Those of
# PostgreSQL wait for the end of the transaction: a row of the counts is the last that it locks.
# The lock of the table comes first, and by a statement of its own, so that the next one sees what
# was kept while it was waited for.  Those of several kinds lock their rows in one order.

_SESSIONS_BY: Final = (
    "create index sessions_{} on sessions (owner, kind, {}_us desc, session_id desc{})"
)

_SESSION_COUNTS: Final = """
    create table session_counts (
        owner text not null,
        kind text not null,
        until_us bigint not null,
        sessions bigint not null,
        primary key (owner, kind)
    )
"""

_OF_SESSION: Final = "where owner = {0}.owner and kind = {0}.kind and until_us >= {0}.created_us"
_COUNT_NEW: Final = f"""
    update session_counts set sessions = sessions + 1 {_OF_SESSION.format("new")};
"""
_COUNT_OLD: Final = f"""
    update session_counts set sessions = sessions - 1 {_OF_SESSION.format("old")};
    delete from session_counts where owner = old.owner and kind = old.kind and sessions = 0;
"""
_COUNT_SESSION: Final = f"""
    create function count_session() returns trigger language plpgsql as $$
    begin
        lock table session_counts in row exclusive mode;
        if tg_op <> 'INSERT' then
            perform 1 from session_counts where owner = old.owner order by kind for update;
            {_COUNT_OLD}
        end if;
        if tg_op <> 'DELETE' then {_COUNT_NEW} end if;
        return null;
    end $$
"""
_MOVED: Final = """
    when (old.owner <> new.owner or old.kind <> new.kind or old.created_us <> new.created_us)
"""


def _count_after(event: str, change: str, when: str = "") -> Step:
    """Return the trigger for an event of a session; on SQLite it makes `change`."""
    beginning = f"trigger session_counts_{event.partition(' ')[0]} after {event} on sessions"
    return Step(
        f"create {beginning} {when} begin {change} end",
        f"create constraint {beginning} deferrable initially deferred"
        f" for each row {when} execute function count_session()",
    )


def _drop_trigger(event: str) -> Step:
    drop = f"drop trigger session_counts_{event}"
    return Step(drop, f"{drop} on sessions")


_2_14_0: Final = Migration(
    Version(2, 14, 0),
    "an index less on the way of a run, and counts of sessions",
    up=(
        Step("drop index sessions_component_created"),
        Step("drop index sessions_created"),
        Step("drop index sessions_recent"),
        Step(_SESSIONS_BY.format("created", "created", ", component_id")),
        Step(_SESSIONS_BY.format("recent", "updated", ", component_id")),
        Step(f"{_SESSION_COUNTS} without rowid", postgresql=_SESSION_COUNTS),
        Step("", postgresql=_COUNT_SESSION),
        _count_after("insert", _COUNT_NEW),
        _count_after("delete", _COUNT_OLD),
        _count_after("update of owner, kind, created_us", f"{_COUNT_OLD} {_COUNT_NEW}", _MOVED),
    ),
    down=(
        *(_drop_trigger(event) for event in ("insert", "delete", "update")),
        Step("", postgresql="drop function count_session"),
        Step("drop table session_counts"),
        Step("drop index sessions_recent"),
        Step("drop index sessions_created"),
        Step(_SESSIONS_BY.format("recent", "updated", "")),
        Step(_SESSIONS_BY.format("created", "created", "")),
        Step(
            "create index sessions_component_created"
            " on sessions (owner, kind, component_id, created_us desc, session_id desc)"
        ),
    ),
    loses=(
        "the saving of an index for each session",
        "the kept counts of sessions, which are counted each time instead (session_counts)",
    ),
    serves=Version(2, 13, 0),
)

CATALOGUE: Final = Catalogue(
    (
        *(_2_0_0, _2_3_0, _2_5_0, _2_5_6, _2_6_0, _2_7_0, _2_8_0, _2_9_0, _2_10_0, _2_11_0),
        *(_2_12_0, _2_13_0, _2_14_0),
    )
)
"""The schema of this release is `CATALOGUE.latest`."""
