"""Units of work that erase a person, bite by bite, and one run.

A person is erased by units that find their own work, so that whoever begins again after a crash
goes on where it ended: letters first, by which nothing else finds them, then the runs of each
session, a few at a time, the sessions, and in the end what is left under the name.

It is counted what each unit deletes.  An opt-out stays: it is the wish not to be written to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, Final

from attrs import astuple, evolve

from ..values import frozen
from .copies import (
    ANY_NAMES,
    NAMES,
    TOMBSTONE,
    erase_answers,
    erase_answers_of,
    erase_letters,
    name_in_json,
)
from .leases import fill_clock
from .run_rows import ACTIVE_RUN, EXECUTED_RUN
from .sessions import LOCK, UNFINISHED, delete_session
from .units import Dialect, ReadUnit, Sql, Statements, Undo, Unit, text_array
from .usage import add_usage

__all__ = [
    "COUNTERS",
    "FROM_SENDERS",
    "TO_RECIPIENTS",
    "CountLetters",
    "CountPerson",
    "DeleteRun",
    "DeletedRun",
    "EndErasure",
    "EraseLetters",
    "EraseNotices",
    "EraseRuns",
    "EraseSession",
    "FindPeople",
    "ForgetPerson",
    "LettersOf",
    "ListActive",
    "ListOwned",
    "PersonSeen",
    "Tally",
    "for_both_engines",
]


@frozen
class Tally:
    """Counts of rows, by their kind."""

    sessions: int = 0
    runs: int = 0
    events: int = 0
    steps: int = 0
    states: int = 0
    messages: int = 0
    replies: int = 0
    answers: int = 0
    counters: int = 0
    summaries: int = 0

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of both."""
        return Tally(*map(sum, zip(astuple(self), astuple(other), strict=True)))


# --- Runs --------------------------------------------------------------------------------------

_THESE: Final = """owner = :owner and session_id = :session_id
        and run_id in (select value from json_each(:runs))"""
_ANY_THESE: Final = """owner = :owner and session_id = :session_id
        and run_id = any (cast(:runs as text[]))"""


def _of_these(statement: str) -> Sql:
    return Sql(statement.format(_THESE), statement.format(_ANY_THESE))


DELETE_EVENTS: Final = _of_these(
    "delete from events where run_id in ( select run_id from runs where {})"
)
DELETE_STEPS: Final = _of_these(
    "delete from steps where run_id in ( select run_id from runs where {})"
)
DELETE_RUNS: Final = _of_these("delete from runs where {}")
DELETE_STATES: Final = Sql(
    """delete from session_states where owner = :owner and session_id = :session_id
    and digest not in (select state from runs
        where owner = :owner and session_id = :session_id and state is not null)
    returning digest"""
)
_DELETE_SUMMARIES: Final = """delete from session_summaries
    where owner = :owner and session_id = :session_id
    and run_no >= (select min(run_no) from runs where {}) returning {}"""
DELETE_SUMMARIES: Final = Sql(
    _DELETE_SUMMARIES.format(_THESE, "length(cast(summary as blob))"),
    _DELETE_SUMMARIES.format(_ANY_THESE, "octet_length(summary)"),
)
_MEASURED: Final = """select count(*),
        (select count(*) from events where run_id in (select run_id from runs where {these})),
        (select count(*) from steps where run_id in (select run_id from runs where {these})),
        coalesce(sum({length}(input{end}) + coalesce({length}(output{end}), 0)), 0),
        (select coalesce(sum({length}(data{end})), 0) from events
            where run_id in (select run_id from runs where {these})),
        (select coalesce(sum({length}(outcome{end})), 0) from steps
            where run_id in (select run_id from runs where {these}))
    from runs where {these}"""
MEASURE: Final = Sql(
    _MEASURED.format(these=_THESE, length="length(cast", end=" as blob)"),
    _MEASURED.format(these=_ANY_THESE, length="octet_length", end=""),
)


def _delete_runs(
    dialect: Dialect, owner: str, session_id: str, runs: Sequence[str]
) -> Statements[tuple[Tally, int]]:
    """Yield the deletion of `runs`, of their copies and of what summarizes them.

    Return the counts, and the bytes.
    """
    among = {"owner": owner, "session_id": session_id, "runs": text_array(dialect, runs)}
    ((count, events, steps, *sizes),) = yield MEASURE(**among)
    messages, replies = yield from erase_letters(dialect, owner, session_id, runs)
    summaries = [size for (size,) in (yield DELETE_SUMMARIES(**among))]
    for statement in (DELETE_EVENTS, DELETE_STEPS, DELETE_RUNS):
        yield statement(**among)
    states = len((yield DELETE_STATES(owner=owner, session_id=session_id)))
    tally = Tally(0, count, events, steps, states, messages, replies, summaries=len(summaries))
    return tally, int(sum(sizes) + sum(summaries))


FAMILY: Final = Sql(
    """with recursive family (run_id) as (
        select run_id from runs
        where owner = :owner and session_id = :session_id and run_id = :run_id
        union select r.run_id from runs r join family f on r.parent_run_id = f.run_id
        where r.owner = :owner and r.session_id = :session_id
    ) select run_id from family order by run_id"""
)
GIVE_BACK: Final = Sql(
    """update sessions set bytes = bytes - :bytes
    where owner = :owner and session_id = :session_id"""
)
BYTES: Final = Sql("select bytes from sessions where owner = :owner and session_id = :session_id")


@frozen
class DeletedRun:
    """The deletion of a run: the ids of it and its members, and those that were not over."""

    runs: tuple[str, ...]
    active: tuple[str, ...]


@frozen
class DeleteRun(Unit[DeletedRun]):
    """Delete one run, those of its members, and the copies of what was said in it.

    An executor has lost its lease.  What the run left in the state, the name or the summary of its
    session stays.  A run without one of these ids deletes nothing.
    """

    owner: str
    session_id: str
    run_id: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[DeletedRun | Undo[DeletedRun]]:
        """Yield the session's lock, the look for members, and the deletions."""
        yield LOCK.of(self, kind=None)
        family = tuple(run_id for (run_id,) in (yield FAMILY.of(self)))
        if not family:
            return Undo(DeletedRun((), ()))
        unfinished = yield UNFINISHED.of(self)
        active = tuple(run_id for (run_id,) in unfinished if run_id in family)
        _, size = yield from _delete_runs(dialect, self.owner, self.session_id, family)
        for run_id in family:
            yield from erase_answers_of(self.owner, "run_id", run_id)
        ((kept,),) = yield BYTES.of(self)
        size = min(size, kept)
        yield GIVE_BACK.of(self, bytes=size)
        yield from add_usage(self.owner, -size, self.owner, 0, self.now_us)
        return DeletedRun(family, active)


# --- The sessions of a person ------------------------------------------------------------------

OWNED: Final = Sql(
    "select session_id from sessions where owner = :owner order by session_id limit :limit"
)
ACTIVE: Final = Sql(
    f"""select session_id, run_id from runs where owner = :owner and {ACTIVE_RUN}
    and parent_run_id is null order by session_id, run_no limit :limit"""
)
EXECUTED: Final = Sql(
    f"select count(*) from runs where owner = :owner and {ACTIVE_RUN} and {EXECUTED_RUN}"
)


@frozen
class ListOwned(ReadUnit[tuple[str, ...]]):
    """The ids of the first sessions of an owner, at most `limit`."""

    owner: str
    limit: int

    def statements(self, dialect: Dialect) -> Statements[tuple[str, ...]]:
        """Yield one read along the primary key."""
        return tuple(session_id for (session_id,) in (yield OWNED.of(self)))


@frozen
class ListActive(ReadUnit[tuple[tuple[tuple[str, str], ...], int]]):
    """The runs of an owner that are not over, each by session and id, and how many are executed."""

    owner: str
    limit: int

    def statements(self, dialect: Dialect) -> Statements[tuple[tuple[tuple[str, str], ...], int]]:
        """Yield two reads."""
        rows = yield ACTIVE.of(self)
        ((executed,),) = yield EXECUTED.of(self)
        return tuple((session_id, run_id) for session_id, run_id in rows), executed


SOME_RUNS: Final = Sql(
    """select run_id from runs where owner = :owner and session_id = :session_id
    order by run_no desc limit :limit"""
)


@frozen
class EraseRuns(Unit[Tally]):
    """Delete some runs of a session, the newest first; it keeps its bytes until its end."""

    owner: str
    session_id: str
    limit: int

    def statements(self, dialect: Dialect) -> Statements[Tally | Undo[Tally]]:
        """Yield the session's lock, the look for runs, and the deletions."""
        yield LOCK.of(self, kind=None)
        runs = [run_id for (run_id,) in (yield SOME_RUNS.of(self))]
        if not runs:
            return Undo(Tally())
        tally, _ = yield from _delete_runs(dialect, self.owner, self.session_id, runs)
        return tally


IN_SESSION: Final = Sql(
    "select run_id from runs where owner = :owner and session_id = :session_id order by run_no"
)


@frozen
class EraseSession(Unit[Tally]):
    """Delete one session with what is left in it."""

    owner: str
    session_id: str
    now_us: int

    def statements(self, dialect: Dialect) -> Statements[Tally | Undo[Tally]]:
        """Yield its lock, the counts, and the deletions."""
        if not (yield LOCK.of(self, kind=None)):
            return Undo(Tally())
        runs = [run_id for (run_id,) in (yield IN_SESSION.of(self))]
        left, _ = yield from _delete_runs(dialect, self.owner, self.session_id, runs)
        keeper, size = yield from delete_session(dialect, self.owner, self.session_id)
        if size:
            yield from add_usage(keeper, -size, keeper, 0, self.now_us)
        return left + Tally(sessions=1)


# --- Letters -----------------------------------------------------------------------------------

_FROM: Final = """select distinct session_id, {} from runs
    where owner = :owner and instr(input, '"reply_to":{{"channel":') > 0"""
_PLACE: Final = ", ".join(
    f"json_extract(input, '$.reply_to.{name}')" for name in ("channel", "sender", "conversation")
)
_ANY_PLACE: Final = ", ".join(
    f"cast(input as json) -> 'reply_to' ->> '{name}'"
    for name in ("channel", "sender", "conversation")
)
OF_RUNS: Final = Sql(_FROM.format(_PLACE), _FROM.format(_ANY_PLACE))
OF_MESSAGES: Final = Sql(
    """select distinct channel, sender from inbox
    where state in ('ready', 'dead') and instr(payload, :subject) > 0"""
)


@frozen
class PersonSeen:
    """A person as a channel has seen them: the lane of a message, and where it came from."""

    channel: str
    sender: str
    conversation: str = ""
    session_id: str = ""


@frozen
class FindPeople(ReadUnit[tuple[PersonSeen, ...]]):
    """The people of channels who are the user `name`, whose rows are kept under `owner`.

    As the runs say that were asked for in a channel, and the messages that wait or are dead.
    """

    long: ClassVar[bool] = True

    owner: str
    name: str

    def statements(self, dialect: Dialect) -> Statements[tuple[PersonSeen, ...]]:
        """Yield two reads."""
        seen = [
            PersonSeen(channel, sender, conversation or "", session_id)
            for session_id, channel, sender, conversation in (yield OF_RUNS.of(self))
            if channel and sender and session_id.startswith(f"{channel}:")
        ]
        for text in sorted({json.dumps(self.name), json.dumps(self.name, ensure_ascii=False)}):
            rows = yield OF_MESSAGES(subject=f'"subject":{text}')
            seen += [PersonSeen(channel, sender) for channel, sender in rows]
        return tuple(dict.fromkeys(seen))


@frozen
class LettersOf:
    """The letters of a person in one channel: those from `senders`, and those to `recipients`."""

    channel: str
    senders: tuple[str, ...]
    recipients: tuple[str, ...]

    def parameters(self, dialect: Dialect) -> dict[str, object]:
        """Return the parameters of the statements on them."""
        return {
            "channel": self.channel,
            "senders": text_array(dialect, self.senders),
            "recipients": text_array(dialect, self.recipients),
        }


def for_both_engines(text: str) -> tuple[str, str]:
    """Return `text` for SQLite and for PostgreSQL; `{senders}` and `{recipients}` are lists."""
    forms = ("in (select value from json_each(:{}))", "= any (cast(:{} as text[]))")
    of_sqlite, of_postgresql = (
        text.format(senders=form.format("senders"), recipients=form.format("recipients"))
        for form in forms
    )
    return of_sqlite, of_postgresql


TO_RECIPIENTS: Final = """o.channel = :channel and (o.recipient {recipients}
        or exists (select 1 from inbox i where i.channel = o.channel
            and i.message_id = o.message_id and i.sender {senders}))"""
FROM_SENDERS: Final = "channel = :channel and sender {senders}"
DELETE_REPLIES: Final = Sql(
    *for_both_engines(
        f"""delete from outbox where channel = :channel and idempotency_key in (
        select o.idempotency_key from outbox o where {TO_RECIPIENTS} limit :limit)
    returning idempotency_key"""
    )
)
BURY_MESSAGES: Final = fill_clock(
    *for_both_engines(
        f"""update inbox set {TOMBSTONE} where channel = :channel and message_id in (
        select message_id from inbox where {FROM_SENDERS} limit :limit) returning message_id"""
    )
)
COUNT_LETTERS: Final = Sql(
    *for_both_engines(f"""select (select count(*) from inbox where {FROM_SENDERS}),
        (select count(*) from outbox o where {TO_RECIPIENTS})""")
)


@frozen
class EraseLetters(Unit[Tally]):
    """Delete some letters of a person: replies first, by whose messages they are found."""

    letters: LettersOf
    limit: int

    def statements(self, dialect: Dialect) -> Statements[Tally | Undo[Tally]]:
        """Yield one deletion, and another one where that was the last."""
        among = {**self.letters.parameters(dialect), "limit": self.limit}
        replies, messages = len((yield DELETE_REPLIES(**among))), 0
        if replies < self.limit:
            messages = len((yield BURY_MESSAGES(**among)))
        tally = Tally(messages=messages, replies=replies)
        return tally if messages or replies else Undo(tally)


@frozen
class CountLetters(ReadUnit[Tally]):
    """The number of letters of a person."""

    long: ClassVar[bool] = True

    letters: LettersOf

    def statements(self, dialect: Dialect) -> Statements[Tally]:
        """Yield one read."""
        ((messages, replies),) = yield COUNT_LETTERS(**self.letters.parameters(dialect))
        return Tally(messages=messages, replies=replies)


_NOTICES: Final = "substr(idempotency_key, 1, 7) = 'notify-' and instr(payload, :user) > 0"
DELETE_NOTICES: Final = Sql(
    f"""delete from outbox where (channel, idempotency_key) in (
        select channel, idempotency_key from outbox where {_NOTICES} limit :limit)
    returning idempotency_key"""
)
COUNT_NOTICES: Final = Sql(f"select count(*) from outbox where {_NOTICES}")


def _in_notices(name: str) -> tuple[str, ...]:
    """Return how notices name a user: JSON in a text of JSON."""
    inner = {f'"user_id":{json.dumps(name, ensure_ascii=form)}' for form in (True, False)}
    return tuple(sorted(json.dumps(one, ensure_ascii=False)[1:-1] for one in inner))


@frozen
class EraseNotices(Unit[Tally]):
    """Delete some notices that name the user `name`: of runs that paused or failed."""

    name: str
    limit: int

    def statements(self, dialect: Dialect) -> Statements[Tally | Undo[Tally]]:
        """Yield one deletion, two where the name has a letter that JSON may escape."""
        count = 0
        for user in _in_notices(self.name):
            count += len((yield DELETE_NOTICES(user=user, limit=self.limit)))
        return Tally(replies=count) if count else Undo(Tally())


# --- What is left under the name ---------------------------------------------------------------

_ANSWERS: Final = "idempotency where owner = :owner"
_COUNTERS: Final = """usage where subject = :owner
    or (substr(subject, 1, 7) = '~agent:'
        and substr(subject, 8 + instr(substr(subject, 8), ':')) = :owner)
    or (substr(subject, 1, 6) = '~team:'
        and substr(subject, 7 + instr(substr(subject, 7), ':')) = :owner)"""
COUNTERS: Final = f"select subject, bytes, day, tokens, cost_nano from {_COUNTERS}"
DELETE_ANSWERS: Final = Sql(f"delete from {_ANSWERS} returning key")
DELETE_COUNTERS: Final = Sql(f"delete from {_COUNTERS} returning subject")


@frozen
class ForgetPerson(Unit[Tally]):
    """Delete what is left of a person: kept answers, whoever asked, and the counters if told so."""

    owner: str
    name: str
    counters: bool = True

    def statements(self, dialect: Dialect) -> Statements[Tally]:
        """Yield the deletions."""
        answers = len((yield DELETE_ANSWERS.of(self)))
        answers += yield from erase_answers("user_id", self.name)
        counters = len((yield DELETE_COUNTERS.of(self))) if self.counters else 0
        return Tally(answers=answers, counters=counters)


_OTHERS: Final = (
    "select count(*) from idempotency where owner <> :owner and body is not null and {}"
)
COUNT_ANSWERS: Final = Sql(_OTHERS.format(NAMES), _OTHERS.format(ANY_NAMES))
COUNT: Final = Sql(
    f"""select (select count(*) from sessions where owner = :owner),
        (select count(*) from runs where owner = :owner),
        (select count(*) from events where run_id in (
            select run_id from runs where owner = :owner)),
        (select count(*) from steps where run_id in (
            select run_id from runs where owner = :owner)),
        (select count(*) from session_states where owner = :owner),
        (select count(*) from {_ANSWERS}), (select count(*) from {_COUNTERS}),
        (select count(*) from session_summaries where owner = :owner)"""
)


@frozen
class CountPerson(ReadUnit[Tally]):
    """The counts of what is stored of a person, but for letters other than notices."""

    long: ClassVar[bool] = True

    owner: str
    name: str

    def statements(self, dialect: Dialect) -> Statements[Tally]:
        """Yield the counts."""
        ((*of_runs, answers, counters, summaries),) = yield COUNT.of(self)
        replies = 0
        for user in _in_notices(self.name):
            replies += (yield COUNT_NOTICES(user=user))[0][0]
        for named in name_in_json("user_id", self.name):
            answers += (yield COUNT_ANSWERS(owner=self.owner, named=named))[0][0]
        return evolve(
            Tally(*of_runs),
            replies=replies,
            answers=answers,
            counters=counters,
            summaries=summaries,
        )


# --- The disk ----------------------------------------------------------------------------------

NOTHING: Final = Sql("select 1")


@frozen
class EndErasure(Unit[None]):
    """The end of an erasure, with which nothing of it is left in the log of SQLite."""

    erases: ClassVar[bool] = True

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield nothing that changes anything."""
        yield NOTHING()
