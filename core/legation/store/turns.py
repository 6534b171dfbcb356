"""Turns: which of the runs that wait is the next, and whether a new one has to wait.

A subject may have so many runs under way, and a run that is one too many waits for its turn.  So
does one for which its node has no room.  Turns are start-time fair queueing (Goyal, Vin and Cheng,
1996): the turn of a run is the greatest turn of those under way, which is how far all have come,
but behind that of its own subject's run before it, by what a run costs the subject: `COST` divided
by its weight.  The least turn is next.  A run without a turn had one before, and goes first.

What counts are runs that a client asked for, in all nodes of the database.  Those of one session
come one after the other, and wait for that without a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from ..values import frozen
from .run_rows import ACTIVE_RUN, ASKED_OF, DAY_US, EXECUTED_RUN, OF_A_CLIENT, WAITING_RUN
from .session_state import MAX_STATE
from .units import Dialect, Rows, Sql, Statement, Statements, text_array
from .usage import NOBODY

__all__ = [
    "ANY_WAITING",
    "FOR_ANYBODY",
    "LOCK_SHARE",
    "LOOK_BEHIND",
    "NEXT_WAITING",
    "SHARE",
    "SIGHTS",
    "SIGHTS_OF_ANY",
    "STILL_NEXT",
    "TURN",
    "WAITS",
    "Found",
    "RunShare",
    "ask_look",
    "look_at",
    "look_closely",
    "search_waiting",
]

COST: Final = 1 << 20
"""How far a run takes a subject of weight 1 on."""

SHARE: Final = "coalesce(subject, owner)"
"""The subject that a run is counted against."""

WAITS: Final = f"{WAITING_RUN} and {OF_A_CLIENT}"
"""The condition that a run waits, for its session or for its turn."""

# An index has the runs that are executed by their leases, which are all that have one.
_UNDER_WAY: Final = f"{ACTIVE_RUN} and {EXECUTED_RUN} and lease_us >= 0 and {OF_A_CLIENT}"

# Behind an earlier run of its session, or one that is executed there.
_BLOCKED: Final = f"""exists (select 1 from runs a where a.owner = r.owner
        and a.session_id = r.session_id and a.{ACTIVE_RUN} and a.{OF_A_CLIENT}
        and (a.run_no < r.run_no or a.{EXECUTED_RUN}))"""
_NEXT_OF: Final = f"""from runs r where r.{WAITING_RUN} and r.{OF_A_CLIENT}
        and {SHARE} = {{share}} and {ASKED_OF} {{among}} and not {_BLOCKED}"""

TURN: Final = f"""(select coalesce(max(tag), 0) from (
        select max(coalesce(turn, 0)) + :cost as tag from runs where {WAITS} and {SHARE} = :share
        union all
        select coalesce(turn, 0) + case when {SHARE} = :share then :cost else 0 end
        from runs where {_UNDER_WAY}) as tags)"""
"""The turn of a run that begins to wait."""

_IN: Final = "in (select value from json_each(:hosted))"
_ANY: Final = "= any (:hosted)"

_BEHIND: Final = f"exists (select 1 {_NEXT_OF.format(share=':share', among='$AMONG')})"


def _sights(executed: str) -> str:
    """Return what a look at a session and a subject selects.

    `executed` counts the subject's runs under way, up to `:at_once`; what is `$AMONG` the hosted
    has a text by engine.
    """
    return f"""exists (select 1 from runs where owner = :owner and session_id = :session_id
        and {ACTIVE_RUN} and {OF_A_CLIENT}),
    (select count(*) from (select 1 from runs where {WAITS} and {SHARE} = :share
        limit :waiting) as w),
    {executed},
    {_BEHIND},
    coalesce((select tokens from usage where subject = :share and day >= :day), 0),
    coalesce((select cost_nano from usage where subject = :share and day >= :day), 0),
    coalesce((select bytes from usage where subject = :keeper), 0)"""


def _count(runs: str) -> str:
    return f"(select count(*) from (select 1 from runs where {runs} limit :at_once) as e)"


# What an owner has under way is found by its name.
_ACTIVE_OF_OWNER: Final = f"owner = :share and {ACTIVE_RUN}"
_EXECUTED_OF_OWNER: Final = _count(
    f"{_ACTIVE_OF_OWNER} and {EXECUTED_RUN} and {OF_A_CLIENT} and subject is null"
)
_OF_OWNER: Final = _sights(_EXECUTED_OF_OWNER)
_OF_ANY: Final = _sights(_count(f"{_UNDER_WAY} and subject = :share"))


def _look(sights: str) -> Sql:
    """Return the look; on PostgreSQL without what can only be seen where a run waits.

    There each part of a statement is set up each time, whether or not it is carried out.  What
    stands in its place takes the same parameter.
    """
    text = f"select {sights}"
    unseen = "cast(:hosted as text[]) is null"
    return Sql(text.replace("$AMONG", _IN), text.replace(_BEHIND, unseen))


LOOK_BEHIND: Final = Sql(
    f"select {_BEHIND}".replace("$AMONG", _IN), f"select {_BEHIND}".replace("$AMONG", _ANY)
)
LOOK: Final = _look(_OF_OWNER)
LOOK_OF_ANY: Final = _look(_OF_ANY)

# Where the index of active runs has few of an owner, their rows need not be read.
_MANY_OF_OWNER: Final = f"""case when {_count(_ACTIVE_OF_OWNER)} < :at_once then 0
        else {_EXECUTED_OF_OWNER} end"""
SIGHTS: Final = _sights(_MANY_OF_OWNER).replace("$AMONG", _IN)
"""The columns of a look, for a change on SQLite to return; few runs under way count as none.

On PostgreSQL what a change returns is read as it stood before the change waited for its lock.
"""
SIGHTS_OF_ANY: Final = _OF_ANY.replace("$AMONG", _IN)
"""The same for a share that is not its owner's."""

LOCK_SHARE: Final = Sql(
    "select :share", "select pg_advisory_xact_lock(7311, hashtext(:share))", unread=True
)
"""The lock of a subject: on PostgreSQL those who count its runs come one after the other.

It is taken behind that of a session.
"""

_CLOSE: Final = 16

# The subjects are found by jumping from one to the next, and the runs of each in their order.
_SUBJECTS: Final = f"""with recursive subjects (share) as (
        select (select {SHARE} from runs where {WAITS} order by {SHARE} limit 1)
        union all
        select (select {SHARE} from runs where {WAITS} and {SHARE} > subjects.share
            order by {SHARE} limit 1)
        from subjects where subjects.share is not null
    ), busy as (
        select {SHARE} as share, count(*) as number from runs where {_UNDER_WAY} group by {SHARE}
    )"""
_ORDER: Final = "coalesce(r.turn, 0), r.created_us, r.run_id"
_HAS_PLACE: Final = """coalesce((select number from busy where busy.share = subjects.share), 0)
        < coalesce(r.at_once, :most)"""


def _search(most: int) -> Sql:
    """Return the search for what is next; on PostgreSQL for as many runs, each of a session."""
    return Sql(
        f"""{_SUBJECTS}
    select r.owner, r.session_id, r.run_no, subjects.share from subjects join runs as r
    on r.rowid = (select r.rowid {_NEXT_OF.format(share="subjects.share", among=_IN)}
        order by coalesce(turn, 0), created_us, run_id limit 1)
    where subjects.share not in (select value from json_each(:full)) and {_HAS_PLACE}
    order by {_ORDER} limit 1""",
        f"""{_SUBJECTS}
    select r.owner, r.session_id, r.run_no, subjects.share from subjects cross join lateral (
        select owner, session_id, run_no, run_id, turn, at_once, created_us
        {_NEXT_OF.format(share="subjects.share", among=_ANY)}
        order by coalesce(turn, 0), created_us, run_id limit {most}
    ) as r
    where subjects.share <> all (:full) and {_HAS_PLACE}
    order by {_ORDER} limit {most}""",
    )


ANY_WAITING: Final = _search(1)
"""The run that is the next to be executed by a node that hosts `hosted`.

There is none of a subject that is among the `full`, of which the node executes enough, and of one
with as many runs under way as it may have: `most`, where the run does not say.
"""

NEXT_WAITING: Final = _search(16)
"""The same, and on PostgreSQL those behind it: nodes that claim side by side take one each."""

STILL_NEXT: Final = Sql(
    f"""select 1 from runs r where r.owner = :owner and r.session_id = :session_id
        and r.run_no = :run_no and r.{WAITING_RUN} and not {_BLOCKED}
        and (select count(*) from runs where {_UNDER_WAY} and {SHARE} = :share)
            < coalesce(r.at_once, :most)"""
)
"""Whether a run that was found may still be executed, asked under the locks."""


_sqlite_array: Final = lru_cache(maxsize=64)(partial(text_array, Dialect.SQLITE))


def _array_of(dialect: Dialect, texts: tuple[str, ...]) -> object:
    """Return `texts` as a parameter, which for SQLite is made once; see `text_array`."""
    return _sqlite_array(texts) if dialect is Dialect.SQLITE else list(texts)


def search_waiting(
    dialect: Dialect,
    hosted: tuple[str, ...],
    full: tuple[str, ...] = (),
    search: Sql = ANY_WAITING,
) -> Statement:
    """Return the search for the run whose turn it is, or for several: `NEXT_WAITING`."""
    return search(
        hosted=_array_of(dialect, hosted),
        full=_array_of(dialect, full),
        most=FOR_ANYBODY.at_once,
    )


@frozen
class RunShare:
    """The share of a run: whose it is, and how many such runs there may be at once.

    Attributes:
        subject: None where it is the owner.
        at_once: How many runs of the subject may be under way.
        waiting: How many may wait.
        weight: Of the subject among those that wait.
        room: Whether the node has room for one more run of the subject.
        tokens_per_day: How many tokens it may use a day; None for any number.
        stored_bytes: How many bytes its owner may keep; None for any number.
        state_bytes: How many the state of a session may have.
        cost_per_day: What it may spend a day, in nano-USD; None for any amount.
    """

    subject: str | None = None
    at_once: int = 64
    waiting: int = 1_000
    weight: float = 1.0
    room: bool = True
    tokens_per_day: int | None = None
    stored_bytes: int | None = None
    state_bytes: int = MAX_STATE
    cost_per_day: int | None = None

    def find_over(self, found: Found, size: int) -> str:
        """Return the limit that a run whose input has `size` characters would be over, if any."""
        if self.tokens_per_day is not None and found.used >= self.tokens_per_day:
            return "tokens"
        if self.cost_per_day is not None and found.used_nano >= self.cost_per_day:
            return "cost"
        if self.stored_bytes is not None and found.kept + size > self.stored_bytes:
            return "stored_bytes"
        return "waiting" if found.waits and found.over else ""

    def find(self, seen: Sequence[Any]) -> Found:
        """Return what a look finds, of which `seen` are the columns."""
        busy, waiting, executed, behind, used, spent, kept = seen
        waits = busy or behind or not self.room or executed >= self.at_once
        return Found(bool(busy), bool(waits), waiting >= self.waiting, used, kept, spent)

    def wait(self, owner: str) -> dict[str, object]:
        """Return what the row of a run that waits keeps of its share, and asks for with `TURN`."""
        return {
            "subject": self.subject,
            "share": owner if self.subject is None else self.subject,
            "at_once": self.at_once,
            "cost": max(1, round(COST / self.weight)),
        }


FOR_ANYBODY: Final = RunShare()
"""The share of a run that nobody has named another for: its owner's, with the common limits."""


@frozen
class Found:
    """The findings of a look for a run that is to be executed.

    Attributes:
        busy: Another run of its session is active.
        waits: It has to wait: for that run, or for a place.
        over: As many runs of its subject wait as may.
        used: The tokens that its subject has used of the day.
        kept: The bytes that its owner keeps.
        used_nano: What its subject has spent of the day, in nano-USD.
    """

    busy: bool
    waits: bool
    over: bool
    used: int = 0
    kept: int = 0
    used_nano: int = 0


def look_at(
    share: RunShare,
    dialect: Dialect,
    owner: str,
    session_id: str,
    hosted: tuple[str, ...],
    now_us: int,
) -> dict[str, object]:
    """Return the parameters of the look at a session, and at the subject of `share`."""
    subject = owner if share.subject is None else share.subject
    return {
        "owner": owner,
        "session_id": session_id,
        "share": subject,
        "waiting": share.waiting,
        "at_once": share.at_once,
        "hosted": _array_of(dialect, hosted),
        "day": now_us // DAY_US,
        "keeper": subject if owner.startswith(NOBODY) else owner,
    }


def ask_look(share: RunShare, place: Mapping[str, object]) -> Statement:
    """Return the look at what there is of a session and of a subject, which are `look_at`."""
    return Statement(LOOK if share.subject is None else LOOK_OF_ANY, place)


def look_closely(
    share: RunShare, dialect: Dialect, asked: Statement, rows: Rows
) -> Statements[Found]:
    """Yield what is missing behind the look `asked`, whose rows are in; return what is found.

    Close to its limit a subject is looked at once more under its lock, so that of two nodes one
    alone gives the last place.  Whether the run is behind another one is asked where any waits.
    """
    (seen,) = rows
    busy, _, executed, *_ = seen
    if dialect is Dialect.SQLITE or busy:
        return share.find(seen)
    if share.at_once - executed <= _CLOSE:
        yield LOCK_SHARE(share=asked.parameters["share"])
        (seen,) = yield asked
    busy, waiting, executed, _, *counts = seen
    behind: object = False
    if waiting or not share.waiting:  # of which it counts none
        ((behind,),) = yield Statement(LOOK_BEHIND, asked.parameters)
    return share.find((busy, waiting, executed, behind, *counts))
