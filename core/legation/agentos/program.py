"""The program that stores a session of another database, in bites of small transactions.

It finds its own work: what is here is known by its ids.  So an import that a crash broke off, and
one of an AgentOS that went on meanwhile, is the same import again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..effects import Now, Program
from ..runs.retry import MANY, PASSING, Change, with_retry
from ..store.imports import FindImported, FoundSession, ImportedRun, ImportSession
from .report import Imported, LeftOut, Reason
from .sessions import SessionPlan

__all__ = ["BITE_BYTES", "BITE_RUNS", "import_session", "look_up_session"]

BITE_RUNS: Final = 100
"""How many runs one transaction stores."""

BITE_BYTES: Final = 4 << 20
"""How much one transaction stores, in bytes; a run that is longer comes alone."""


def import_session(database: str, plan: SessionPlan, change: Change) -> Program[Imported]:
    """Store what is missing of a session; return what that was.

    Args:
        database: Where it belongs.
        plan: The session, as it was read.
        change: Runs a unit, with the record of who asked.
    """
    found = yield from _find(database, plan)
    outcome, missing = _compare(database, plan, found)
    session = plan.session
    if not outcome.database:
        return outcome
    if not missing and not outcome.is_new and session.updated_us <= found.updated_us:
        return outcome
    bites = [*_split(missing)] or [()]
    for number, bite in enumerate(bites, 1):
        now_us = yield from Now()
        last = number == len(bites)
        summary = (plan.summary, plan.summary_run) if last else ("", "")
        unit = ImportSession(session, bite, now_us, *summary)
        stored = yield from with_retry(database, unit, MANY, PASSING, change)
        if stored is None:  # another one was made meanwhile
            return _refuse(plan)
    return outcome


def look_up_session(database: str, plan: SessionPlan) -> Program[Imported]:
    """Return what `import_session` would do now, and store nothing."""
    found = yield from _find(database, plan)
    outcome, _ = _compare(database, plan, found)
    return outcome


def _find(database: str, plan: SessionPlan) -> Program[FoundSession]:
    session, runs = plan.session, tuple(run.run_id for run in plan.runs)
    unit = FindImported(session.owner, session.session_id, runs)
    return (yield from with_retry(database, unit, MANY))


def _compare(
    database: str, plan: SessionPlan, found: FoundSession
) -> tuple[Imported, list[ImportedRun]]:
    """Return what is to be told of a session, and the runs of it that are not here."""
    session = plan.session
    if found.is_other(session):
        return _refuse(plan), []
    missing, lost = list[ImportedRun](), set[str]()
    left_out = [one for one in plan.left_out if one.run_id not in found.known]
    for run in plan.runs:
        taken = run.run_id in found.taken
        if taken or run.parent_run_id in lost:
            lost.add(run.run_id)
            reason = Reason.RUN_TAKEN if taken else Reason.MEMBER
            left_out.append(LeftOut(reason, session.session_id, run.run_id))
        elif run.run_id not in found.known:
            missing.append(run)
    counts = [plan.counts[run.run_id] for run in missing]
    outcome = Imported(
        component=plan.component,
        database=database,
        is_new=not found.kind,
        has_user=plan.has_user,
        runs=len(missing),
        members=sum(run.parent_run_id is not None for run in missing),
        known=len(found.known),
        messages=sum(messages for messages, _ in counts),
        files=sum(files for _, files in counts),
        left_out=tuple(left_out),
    )
    return outcome, missing


def _refuse(plan: SessionPlan) -> Imported:
    left_out = LeftOut(Reason.SESSION_TAKEN, plan.session.session_id)
    return Imported(left_out=(left_out,))


def _split(runs: list[ImportedRun]) -> Iterator[tuple[ImportedRun, ...]]:
    """Yield `runs` in bites."""
    bite, size = list[ImportedRun](), 0
    for run in runs:
        if bite and (len(bite) == BITE_RUNS or size + run.size > BITE_BYTES):
            yield tuple(bite)
            bite, size = [], 0
        bite.append(run)
        size += run.size
    if bite:
        yield tuple(bite)
