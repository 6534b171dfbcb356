"""Old data and young data of every kind, stored by units as on any engine, and its sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from legation.store.audit import AppendAudit
from legation.store.audit_entries import AuditEntry
from legation.store.idempotency import ClaimKey, Key, SettleKey
from legation.store.inbox import INBOX, CompleteMessage, NewMessage, PutMessages
from legation.store.incidents import AddIncidents, Incident
from legation.store.leased_queue import ClaimItems, FailItem
from legation.store.member_runs import MemberMove, Root, StartMember
from legation.store.outbox import OUTBOX, NewReply
from legation.store.periods import Kind, Periods
from legation.store.refusals import AddRefusals, RefusalCount
from legation.store.retention import AdvanceTrail, EndSweep, Sweep, TakeBite
from legation.store.run_rows import DAY_US, RunLease, StoredEvent
from legation.store.runs import FinishRun, StartRun
from legation.store.steps import Records, Step, StepKind
from legation.store.units import Unit

__all__ = ["NODE", "NOW_US", "OLD_US", "YOUNG_US", "Run", "claim", "plant", "store_run", "sweep"]

NODE: Final = "n"
NOW_US: Final = 1_000 * DAY_US
OLD_US: Final = NOW_US - 40 * DAY_US
YOUNG_US: Final = NOW_US - 10 * DAY_US
INPUT: Final = '{"message":"hello","stream":false}'
OUTPUT: Final = '{"content":"é"}'
LEASE: Final = RunLease(NODE, 1)

Run = Callable[[Unit[Any]], Any]


def store_run(
    run: Run,
    run_id: str,
    at_us: int,
    *,
    owner: str = "ada",
    session_id: str = "s",
    kind: str = "agent",
    status: str | None = "COMPLETED",
    events: int = 2,
    steps: int = 0,
    members: int = 0,
    state: str = "{}",
) -> None:
    """Store a run that was asked for and ended at `at_us`; without a `status` it is under way."""
    run(StartRun(owner, session_id, run_id, kind, "desk", INPUT, "", NODE, at_us, state=state))
    root = Root(owner, session_id, run_id, LEASE)
    moves: list[MemberMove] = []
    for number in range(members):
        parent = run_id if number == 0 else f"{run_id}.{number - 1}"
        child = f"{run_id}.{number}"
        run(StartMember(root, child, parent, "agent", "m", INPUT, "{}", at_us))
        moves.append(MemberMove(owner, session_id, child, "COMPLETED", "{}", None, None, at_us))
    if status is None:
        return
    stored = tuple(StoredEvent(n, "RunContent", '{"n":"é"}') for n in range(1, events + 1))
    made = tuple(
        Step(f"1.{n}", StepKind.CALL, "book", at_us, at_us, '"done"') for n in range(1, steps + 1)
    )
    run(
        FinishRun(
            owner, session_id, run_id, LEASE, NODE, at_us, status, OUTPUT, None, None, stored, (),
            bytes=len(INPUT) + 6 * steps, records=Records(made, moves=tuple(moves)),
        )
    )  # fmt: skip


def claim(run: Run, queue: Any) -> Any:
    """Return the lease of the one item that may be claimed."""
    (item,) = run(ClaimItems(queue, NODE, 1, 9)).items
    return item.lease


def plant(run: Run, at_us: int, name: str) -> None:
    """Store one of each kind at `at_us`: named by `name`, which is another one each time."""
    store_run(run, f"{name}-r", at_us, session_id=f"{name}-s", steps=1, state=f'{{"k":"{name}"}}')
    run(PutMessages("chat", (NewMessage(f"{name}-m", name, "{}"),), at_us))
    reply = NewReply(f"reply-{name}-m", name, "{}", f"{name}-m")
    run(CompleteMessage(claim(run, INBOX), at_us, (reply,)))
    run(FailItem(claim(run, OUTBOX), "no", None))
    key = Key("ada", "op", f"{name}-k")
    run(ClaimKey(key, "f", at_us, at_us + 1))
    run(SettleKey(key, "f", 200, "[]", b"hello", at_us + DAY_US))
    run(AddIncidents((Incident(f"{name}-i", at_us, NODE, "E", ""),), at_us))
    run(AddRefusals((RefusalCount(at_us // 60_000_000, "1.2.3.4", "/", 401, 1),)))
    entry = AuditEntry(at_us, "", "ada", None, "op", "x", "allow", "", 200, client="local")
    run(AppendAudit(NODE, (entry,), None))


def sweep(
    run: Run, periods: Periods, now_us: int = NOW_US, node: str = NODE
) -> Mapping[str, int] | None:
    """Do a whole sweep, without the trail; how much went, or None where none was to be done."""
    counts: Mapping[str, int] | None = None
    for _ in range(10_000):
        found: Sweep | None = run(TakeBite(node, now_us, periods))
        if found is not None and found.stage is Kind.TRAIL:
            found = run(AdvanceTrail(node, now_us, found.begun_us, 0))
        if found is None:
            return counts
        counts = found.counts
        if found.stage is None:
            ended: Sweep | None = run(EndSweep(found.begun_us, now_us))
            return None if ended is None else counts
    raise AssertionError("a sweep has no end")
