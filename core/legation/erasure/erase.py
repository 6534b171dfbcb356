"""The program that erases a person, in one database after the other and in small transactions.

It finds its own work: begun again after a crash, or sent twice, it goes on with what is left.
What the person, or a message of theirs, begins meanwhile is new; to be sure, it is erased again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from ..effects import Now, Nudge, Program, Sleep
from ..runs.cancellation import cancel
from ..runs.executor import ExecutorContext
from ..runs.retry import FEW, PASSING, Change, with_retry
from ..runs.topics import cancel_topic, runs_topic
from ..store.erasure import (
    CountLetters,
    CountPerson,
    EndErasure,
    EraseLetters,
    EraseNotices,
    EraseRuns,
    EraseSession,
    FindPeople,
    ForgetPerson,
    LettersOf,
    ListActive,
    ListOwned,
    Tally,
)
from ..store.run_reads import FetchRun
from ..store.units import Unit
from .people import letters_of, owners_of

__all__ = ["count_person", "erase_person"]

R = TypeVar("R")

_RUNS: Final = 25
_SESSIONS: Final = 100
_LETTERS: Final = 200
_LOOKS: Final = 50
_LOOK_SECONDS: Final = 0.1
_PASSES: Final = 3
_NOTHING: Final = Tally()


def count_person(context: ExecutorContext, name: str) -> Program[Mapping[str, Tally]]:
    """Return how much is stored of the user `name`, by database."""
    counts: dict[str, Tally] = {}
    for database in context.registry.databases:
        total, letters = _NOTHING, dict[LettersOf, None]()
        for owner in owners_of(name):
            total += yield from _run(database, CountPerson(owner, name))
            seen = yield from _run(database, FindPeople(owner, name))
            letters |= dict.fromkeys(letters_of(context.registry, database, name, seen))
        for one in letters:
            total += yield from _run(database, CountLetters(one))
        counts[database] = total
    return counts


def erase_person(
    context: ExecutorContext, name: str, change: Change
) -> Program[Mapping[str, Tally]]:
    """Erase the user `name`; return how much was deleted, by database.

    Args:
        context: The databases, the channels, and the nodes that may execute runs.
        name: The user id; not a reserved one.
        change: Runs the first unit in each database, with the record of who asked.
    """
    counts: dict[str, Tally] = {}
    for database in context.registry.databases:
        total = _NOTHING
        for number, owner in enumerate(owners_of(name)):
            forget = ForgetPerson(owner, name, counters=False)
            if number:
                total += yield from _run(database, forget)
            else:
                total += yield from with_retry(database, forget, FEW, PASSING, change)
            total += yield from _erase_owner(context, database, owner, name)
        yield from _run(database, EndErasure())
        counts[database] = total
    return counts


def _erase_owner(context: ExecutorContext, database: str, owner: str, name: str) -> Program[Tally]:
    stopped = yield from _stop_runs(context, database, owner)
    total = _NOTHING
    for _ in range(_PASSES):
        tally = yield from _erase_rows(context, database, owner, name)
        if tally == _NOTHING:
            break
        total += tally
    for run_id in sorted(stopped):
        yield from Nudge(cancel_topic(database, run_id))
    if stopped:
        yield from Nudge(runs_topic(database), database)
    return total + (yield from _run(database, ForgetPerson(owner, name)))


def _stop_runs(context: ExecutorContext, database: str, owner: str) -> Program[set[str]]:
    """Cancel the runs of an owner, and wait a while for those that are executed to end."""
    member, asked = context.cluster.member(database), set[str]()
    for _ in range(_LOOKS):
        active, executed = yield from _run(database, ListActive(owner, _SESSIONS))
        new = [run_id for _, run_id in active if run_id not in asked]
        for run_id in new:
            row = yield from _run(database, FetchRun(run_id, owner))
            if row is not None:
                yield from cancel(member, row, row.component_id)
        asked.update(new)
        if not new:
            if not executed:
                break
            yield from Sleep(_LOOK_SECONDS)
    return asked


def _erase_rows(context: ExecutorContext, database: str, owner: str, name: str) -> Program[Tally]:
    """Erase letters and sessions once; return how much there was."""
    seen = yield from _run(database, FindPeople(owner, name))
    total = _NOTHING
    for letters in letters_of(context.registry, database, name, seen):
        total += yield from _repeat(database, EraseLetters(letters, _LETTERS))
    total += yield from _repeat(database, EraseNotices(name, _LETTERS))
    while sessions := (yield from _run(database, ListOwned(owner, _SESSIONS))):
        for session_id in sessions:
            total += yield from _repeat(database, EraseRuns(owner, session_id, _RUNS))
            now_us = yield from Now()
            total += yield from _run(database, EraseSession(owner, session_id, now_us))
    return total


def _repeat(database: str, unit: Unit[Tally]) -> Program[Tally]:
    """Run `unit` until it finds nothing more."""
    total = _NOTHING
    while (tally := (yield from _run(database, unit))) != _NOTHING:
        total += tally
    return total


def _run(database: str, unit: Unit[R]) -> Program[R]:
    return (yield from with_retry(database, unit, FEW))
