"""The counts of subjects in the database: the bytes they keep, the tokens and costs of their day.

The bytes of an owner are the sum of those of its sessions, as `sessions.bytes` has them: each unit
that changes the one changes the other, in one transaction.  What is counted for a session is given
back when it is deleted, whatever it was counted for.  A run is counted where it ends or pauses, by
the statement that ends it, so that it is counted once, however often that is tried.

The rows of `usage` are locked last, those of several in the order of their subjects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ..values import frozen
from .run_rows import ACTIVE_RUN, DAY_US, EXECUTED_RUN, OF_A_CLIENT, WAITING_RUN
from .units import Dialect, ReadUnit, Sql, Statements

__all__ = [
    "ADDITIONS",
    "ADD_BYTES",
    "NOBODY",
    "FetchUsage",
    "MeasureLog",
    "SubjectUsage",
    "add_usage",
    "count_octets",
    "keeper_of",
]

NOBODY: Final = "~nobody:"
"""The beginning of an owner that is nobody: of one session each."""

_MOST_COST: Final = 10**18
"""A day that has cost more, in nano-USD, has a cost that no longer grows: it fits the column."""

_ADD: Final = f"""on conflict (subject) do update set bytes = usage.bytes + excluded.bytes,
        tokens = case when usage.day < excluded.day then excluded.tokens
            else usage.tokens + excluded.tokens end,
        cost_nano = case when usage.day < excluded.day then excluded.cost_nano
            when usage.cost_nano > {_MOST_COST} then usage.cost_nano
            else usage.cost_nano + excluded.cost_nano end,
        day = case when usage.day < excluded.day then excluded.day else usage.day end
    returning subject, day, tokens, cost_nano"""
ADD: Final = Sql(
    f"""insert into usage (subject, bytes, day, tokens, cost_nano)
    values (:subject, :bytes, :day, :tokens, :cost) {_ADD}"""
)
ADD_TWO: Final = Sql(
    f"""insert into usage (subject, bytes, day, tokens, cost_nano)
    values (:subject, :bytes, :day, :tokens, :cost),
        (:other, :other_bytes, :day, :other_tokens, :other_cost) {_ADD}"""
)
ADDITIONS: Final = frozenset((ADD, ADD_TWO))
"""What `add_usage` yields."""

ADD_BYTES: Final = Sql(
    """update sessions set bytes = bytes + :bytes
    where owner = :owner and session_id = :session_id"""
)


def count_octets(texts: Iterable[str | None]) -> int:
    """Return how many bytes `texts` have in UTF-8, as both databases store them."""
    # Whether a text is ASCII is known; only one that is not has to be encoded for it.
    return sum([len(t) if t.isascii() else len(t.encode()) for t in texts if t])


def keeper_of(owner: str, subject: str | None) -> str:
    """Return whom the bytes of a session are counted for: its owner, if that is anybody."""
    return subject or owner if owner.startswith(NOBODY) else owner


def add_usage(
    keeper: str, bytes_: int, subject: str, tokens: int, now_us: int, cost: int = 0
) -> Statements[tuple[int, int, int]]:
    """Yield one statement that counts bytes for `keeper`, tokens and their cost for `subject`.

    It is the last of its unit.  Return the newest day of the subject, with the tokens and the cost
    of that, in nano-USD.
    """
    day = now_us // DAY_US
    if keeper == subject:
        rows = yield ADD(subject=subject, bytes=bytes_, day=day, tokens=tokens, cost=cost)
    else:
        both = ((keeper, (bytes_, 0, 0)), (subject, (0, tokens, cost)))
        (one, of_one), (two, of_two) = sorted(both)
        rows = yield ADD_TWO(
            subject=one, bytes=of_one[0], tokens=of_one[1], cost=of_one[2],
            other=two, other_bytes=of_two[0], other_tokens=of_two[1], other_cost=of_two[2], day=day,
        )  # fmt: skip
    (found,) = [(newest, used, spent) for name, newest, used, spent in rows if name == subject]
    return found


# --- Reading -----------------------------------------------------------------------------------

_OF_SUBJECT: Final = f"""from runs where coalesce(subject, owner) = :subject and {{state}}
    and {OF_A_CLIENT}"""
# An index has the runs under way by their leases, so that those that wait are not walked through.
_UNDER_WAY: Final = f"{ACTIVE_RUN} and {EXECUTED_RUN} and lease_us >= 0"
USED: Final = Sql(
    f"""select
        (select count(*) {_OF_SUBJECT.format(state=_UNDER_WAY)}),
        (select count(*) {_OF_SUBJECT.format(state=WAITING_RUN)}),
        coalesce((select bytes from usage where subject = :owner), 0),
        coalesce((select tokens from usage where subject = :subject and day >= :day), 0),
        coalesce((select cost_nano from usage where subject = :subject and day >= :day), 0)"""
)


@frozen
class SubjectUsage:
    """The part of what is stored that a subject takes.

    Attributes:
        runs: Its runs under way, in all nodes.
        waiting: Its runs that wait.
        bytes: What its owner keeps.
        tokens: The tokens of the day.
        cost_nano: What they cost, in nano-USD.
    """

    runs: int
    waiting: int
    bytes: int
    tokens: int
    cost_nano: int = 0


@frozen
class FetchUsage(ReadUnit[SubjectUsage]):
    """The usage of a subject; `owner` is the name under which it keeps what it keeps."""

    owner: str
    subject: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[SubjectUsage]:
        """Yield one read."""
        (columns,) = yield USED.of(self, day=self.now_us // DAY_US)
        return SubjectUsage(*columns)


_LOG: Final = """select
    (select coalesce(sum({size}(e.data{end})), 0) from events e join runs r on r.run_id = e.run_id
        where r.owner = :owner and e.run_id = :run_id and e.seq > :after),
    (select coalesce(sum({size}(s.outcome{end})), 0) from steps s join runs r on r.run_id = s.run_id
        where r.owner = :owner and s.run_id = :run_id and s.attempt > :attempt)"""
LOG: Final = Sql(
    _LOG.format(size="length(cast", end=" as blob)"), _LOG.format(size="octet_length", end="")
)


@frozen
class MeasureLog(ReadUnit[int]):
    """The bytes of a run's events behind `after`, and of the steps of attempts after `attempt`."""

    owner: str
    run_id: str
    after: int
    attempt: int

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield one read."""
        ((events, steps),) = yield LOG.of(self)
        return int(events) + int(steps)
