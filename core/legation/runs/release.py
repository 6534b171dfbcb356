"""The release of a run that was claimed here, for whoever hosts it to go on with."""

from __future__ import annotations

from collections.abc import Callable

from ..effects import Nudge, Program, Publish, ThisNode
from ..store.failures import StoreFailure
from ..store.run_keeping import ReleaseRun
from ..store.run_rows import ClaimedRun, RunLease
from .membership import Membership
from .retry import FEW, persist, with_retry
from .topics import runs_topic

__all__ = ["release_run"]


def release_run(
    member: Membership,
    run: ClaimedRun,
    is_over: Callable[[], bool] | None = None,
    *,
    tried: bool = False,
) -> Program[bool]:
    """Let `run` wait again, for any node of the database of `member` to execute; whether it does.

    It cannot where somebody asked to cancel it, where a node of a release that knows no steps could
    claim it, and where the database does not answer: in the last case its lease runs out.  With
    `is_over`, which says whether the process ends, it is tried for as long as an outage may last.
    `tried`: that it was executed counts among the tries in which nothing came of it.
    """
    database, node = member.database, (yield from ThisNode())
    lease = RunLease(node, run.attempt)
    release = ReleaseRun(run.owner, run.run_id, lease, tried=tried)
    try:
        if is_over is None:
            given = yield from with_retry(database, release, FEW)
        else:
            given = yield from persist(database, release, is_over)
    except StoreFailure:
        return False
    if given:
        yield from Nudge(runs_topic(database), database, member.next_other())
        yield from Publish(run.run_id, (), database)  # who follows it here may have to leave it
    return given
