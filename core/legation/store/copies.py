"""The copies of the content of a session or a run: kept answers, and messages and replies.

Whatever deletes a session or a run deletes them in the same transaction.

* A kept answer of an idempotency key names the session or the run in its JSON.  It is the owner's,
  or it was given to another and names the owner: several owners have sessions of one id.
* A message is found by the run that answers it.  Its row stays for as long as that of an answered
  message, as a tombstone: its id, and nothing that was said or by whom.  So a delivery that the
  provider repeats brings nothing back.  One that is under work is left to who works on it, empty.
* A reply is found by the message that it answers, and so is every part of it.

A message that waits and has no run yet belongs to no session.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from ..values import frozen
from .leases import fill_clock
from .units import Dialect, Sql, Statements, Unit, text_array
from .usage import NOBODY

__all__ = [
    "ANY_NAMES",
    "ERASED",
    "NAMES",
    "TOMBSTONE",
    "ForgetAnswers",
    "erase_answers",
    "erase_answers_of",
    "erase_letters",
    "name_in_json",
]

ERASED: Final = "erased"
"""The error of a message whose content was deleted; nobody answers it."""

TOMBSTONE: Final = f"""state = 'done', done_us = $CLOCK, sender = '', payload = '',
        error = '{ERASED}', run_id = null, lease_by = null, lease_us = null"""

NAMES: Final = "instr(body, :named) > 0"
ANY_NAMES: Final = "position(cast(:named as bytea) in body) > 0"
FORGET_ANSWERS: Final = Sql(
    f"delete from idempotency where body is not null and {NAMES} returning key",
    f"delete from idempotency where body is not null and {ANY_NAMES} returning key",
)


_FORMS: Final = "abcd"


def _is_named(names: str, name: str) -> str:
    return " or ".join(names.replace(":named", f":{name}_{form}") for form in _FORMS)


_OWN: Final = (
    "delete from idempotency where owner = :owner and body is not null and ({}) returning key"
)
_GIVEN: Final = """delete from idempotency where owner <> :owner and body is not null
    and ({}) and ({}) returning key"""
FORGET_OWN_ANSWERS: Final = Sql(*(_OWN.format(_is_named(n, "named")) for n in (NAMES, ANY_NAMES)))
FORGET_GIVEN_ANSWERS: Final = Sql(
    *(_GIVEN.format(_is_named(n, "named"), _is_named(n, "user")) for n in (NAMES, ANY_NAMES))
)


def name_in_json(member: str, value: str) -> Iterator[bytes]:
    """Yield the forms in which JSON has a member ending in `member` that is `value`.

    An application may write the JSON of its own routes in another way than the platform.
    """
    for text in sorted({json.dumps(value), json.dumps(value, ensure_ascii=False)}):
        for space in ("", " "):
            yield f'{member}":{space}{text}'.encode()


def erase_answers(member: str, value: str) -> Statements[int]:
    """Yield the deletion of the kept answers in whose JSON a member ending in `member` is `value`.

    Return how many there were, of whatever owner.
    """
    count = 0
    for named in name_in_json(member, value):
        count += len((yield FORGET_ANSWERS(named=named)))
    return count


def erase_answers_of(owner: str, member: str, value: str) -> Statements[int]:
    """Yield the same deletion of answers that are those of `owner`, or name it as their user.

    Who asked as nobody has all answers of nobody's sessions in common.
    """
    named = _name_forms("named", member, value)
    count = 0
    for asked_by in (owner, "") if owner.startswith(NOBODY) else (owner,):
        count += len((yield FORGET_OWN_ANSWERS(owner=asked_by, **named)))
    users = _name_forms("user", "user_id", owner)
    return count + len((yield FORGET_GIVEN_ANSWERS(owner=owner, **named, **users)))


@frozen
class ForgetAnswers(Unit[int]):
    """Delete the kept answers that name what another database deletes; how many there were.

    Attributes:
        member: As `erase_answers` takes it.
        named: Owners, each with a value of the member.
    """

    member: str
    named: tuple[tuple[str, str], ...]

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield the deletions."""
        count = 0
        for owner, value in self.named:
            count += yield from erase_answers_of(owner, self.member, value)
        return count


def _name_forms(name: str, member: str, value: str) -> dict[str, bytes]:
    """Return the forms of `name_in_json`, two or four, by the names that a statement has."""
    found = list(name_in_json(member, value))
    return {f"{name}_{form}": found[n % len(found)] for n, form in enumerate(_FORMS)}


# --- Letters -----------------------------------------------------------------------------------
# The input of a run says which message it answers.  Of a message with others behind it that were
# answered together, these name the run, as do those that decide what a run waits for.

_RUNS: Final = """runs r where r.owner = :owner and r.session_id = :session_id
        and {among}"""
_AMONG: Final = "(:runs is null or r.run_id in (select value from json_each(:runs)))"
_AMONG_PG: Final = "(cast(:runs as text[]) is null or r.run_id = any (cast(:runs as text[])))"
_ANSWERED: Final = f"""select distinct {{message}} from {_RUNS}
        and instr(r.input, '"reply_to":{{{{"channel":') > 0"""
ANSWERED: Final = Sql(
    _ANSWERED.format(
        message="""json_extract(r.input, '$.reply_to.channel'),
        json_extract(r.input, '$.reply_to.message_id')""",
        among=_AMONG,
    ),
    _ANSWERED.format(
        message="""cast(r.input as json) -> 'reply_to' ->> 'channel',
        cast(r.input as json) -> 'reply_to' ->> 'message_id'""",
        among=_AMONG_PG,
    ),
)
_NAMING: Final = f"""select message_id from inbox
    where channel = :channel and state = '{{state}}' and exists (
        select 1 from {_RUNS}
        and (inbox.run_id = r.run_id
            or substr(inbox.run_id, 1, length(r.run_id) + 1) = r.run_id || '.'
            or instr(inbox.payload, '"approval":"' || r.run_id || '.') > 0))"""
WAITING: Final = Sql(*(_NAMING.format(state="ready", among=one) for one in (_AMONG, _AMONG_PG)))
DEAD: Final = Sql(*(_NAMING.format(state="dead", among=one) for one in (_AMONG, _AMONG_PG)))
# Whoever works on it still tells its sender that there is no answer, and then it is done.
HUSH: Final = Sql(
    """update inbox set payload = :payload where channel = :channel and message_id = :message_id
    and state = 'ready' and lease_by is not null returning message_id"""
)
BURY: Final = fill_clock(
    f"""update inbox set {TOMBSTONE} where channel = :channel and message_id = :message_id
    and sender <> '' returning message_id"""
)
DELETE_REPLIES: Final = Sql(
    """delete from outbox where channel = :channel and message_id = :message_id
    returning idempotency_key"""
)


def erase_letters(
    dialect: Dialect, owner: str, session_id: str, runs: Sequence[str] | None = None
) -> Statements[tuple[int, int]]:
    """Yield the deletion of the messages that runs of a session answer, and of their replies.

    It stands before that of the runs.  Return how many messages and replies there were.

    Args:
        runs: The ids of the runs; None for all of the session.
    """
    # A session of a channel begins with its name, and no other session has messages.
    channel, colon, _ = session_id.partition(":")
    if not colon:
        return 0, 0
    session = {"owner": owner, "session_id": session_id, "runs": text_array(dialect, runs)}
    answered = yield ANSWERED(**session)
    messages = {message for of, message in answered if of == channel}
    for statement in (WAITING, DEAD):
        messages |= {message for (message,) in (yield statement(**session, channel=channel))}
    replies = emptied = 0
    for message_id in sorted(messages):
        place = {"channel": channel, "message_id": message_id}
        replies += len((yield DELETE_REPLIES(**place)))
        hushed = yield HUSH(**place, payload=_hush(message_id))
        emptied += len(hushed or (yield BURY(**place)))
    return emptied, replies


def _hush(message_id: str) -> str:
    """Return the payload of a message that nobody answers, should another node take it up."""
    silent = {"kind": "system", "addressed": False}
    return json.dumps({"message_id": message_id, "sender": "", **silent})
