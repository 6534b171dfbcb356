"""Faults to plant in the product, each of which breaks a promise that storms judge.

A fault replaces the text of a statement, or a function; what was there is back behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, count
from typing import Any, Final

from attrs import evolve, frozen

from legation import node_state
from legation.api.call import Call
from legation.effects import FindDead, Program
from legation.runs import agent_turn, executor, fold, team_turn, turn_state
from legation.runs.ids import member_run_id, new_id
from legation.store import inbox, leases, nodes, run_keeping, run_steering, runs
from legation.store.run_states import RunState
from legation.store.steps import NO_RECORDS, Step, write_records
from legation.store.units import Dialect, Sql, Statements, Undo, Work
from legation_testing.performing import PERFORMERS

__all__ = ["FAULTS", "PlantedFault"]


SEEDS: Final = 1_000
"""So many seeds are enough for each of the faults: a tenth of what is promised."""


@contextmanager
def rewrite(statements: tuple[Sql, ...], old: str, new: str) -> Generator[None]:
    """Replace a part of the text that SQLite is given."""
    before = [Sql(statement.sqlite_text, registered=False) for statement in statements]
    try:
        for statement in statements:
            text = statement.sqlite_text
            assert old in text, (old, text)
            _give_text(statement, Sql(text.replace(old, new), registered=False))
        yield
    finally:
        for statement, other in zip(statements, before, strict=True):
            _give_text(statement, other)


def _give_text(statement: Sql, other: Sql) -> None:
    """Let SQLite be given the text of `other` for `statement`."""
    for name in ("text", "numbered", "names", "_getters"):
        object.__setattr__(statement, name, getattr(other, name))


@contextmanager
def replace(owner: Any, name: str, value: Any) -> Generator[None]:
    """Replace an attribute."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def name_all_dead() -> Generator[None]:
    """Let `FindDead` name all that it is asked for."""
    performers: Any = PERFORMERS
    before = performers[FindDead]

    def name_all(_: object, __: object, effect: FindDead) -> tuple[str, ...]:
        return effect.names

    performers[FindDead] = name_all
    try:
        yield
    finally:
        performers[FindDead] = before


def draw_id(call: Call, what: str) -> Program[str]:
    """Draw an id, also where the request has a key."""
    return (yield from new_id(call.now_us))


def advance_always(
    clock: nodes.ClusterClock, database_us: int, lease_us: int
) -> nodes.ClusterClock:
    """Count every time that passed as up-time."""
    passed = max(0, database_us - clock.seen_us)
    return evolve(clock, up_us=clock.up_us + passed, seen_us=database_us)


def behind_without_looking(feed: Any, after: int) -> Any:
    """Return what is held behind `after`, whatever is missing."""
    return tuple(event for event in feed.events if event.seq > after) or None


_beat = nodes.Beat.statements


def beat_by_own_clock(unit: nodes.Beat, dialect: Dialect) -> Statements[nodes.Beaten]:
    """Beat by the clock of the node in place of the database's."""
    statements = _beat(unit, dialect)
    ((*row, _),) = yield next(statements)
    answer: Any = [(*row, unit.now_us)]
    while True:
        try:
            statement = statements.send(answer)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        answer = yield statement


def recall_nothing(*_: object) -> Program[None]:
    """Read no steps: the run begins again."""
    yield from ()


_append = runs.AppendEvents.statements
_finish = runs.FinishRun.statements


def append_without_fence(unit: runs.AppendEvents, dialect: Dialect) -> Work[Any]:
    """Store the steps, whoever has the lease."""
    stored = yield from _append(unit, dialect)
    if isinstance(stored, Undo):
        attempt = unit.lease.attempt
        yield from write_records(dialect, unit.run_id, attempt, unit.now_us, unit.records)
        return None
    return stored


def finish_without_steps(unit: runs.FinishRun, dialect: Dialect) -> Work[Any]:
    """Leave out the steps of the batch with which a run pauses."""
    paused = unit.status == RunState.PAUSED.value
    return _finish(evolve(unit, records=NO_RECORDS) if paused else unit, dialect)


def fold_as_done(
    folding: Any, call: turn_state.CallState, place: str, step: Step
) -> turn_state.CallState:
    """Take a call that began for one that came to its end."""
    if step.outcome is None and step.kind == "call":
        return call.with_result("done")
    return _fold_call(folding, call, place, step)


_fold_call = fold._Folding._fold_call
_numbers = count()


def draw_member_id(run_id: str, place: str, created_us: int) -> str:
    """Return an id that nobody finds again."""
    return member_run_id(run_id, f"{place}:{next(_numbers)}", created_us)


@contextmanager
def together(
    one: AbstractContextManager[None], other: AbstractContextManager[None]
) -> Generator[None]:
    with one, other:
        yield


@frozen
class PlantedFault:
    """A fault, the storms that look for it, and the seed that was known to find it."""

    plant: Callable[[], AbstractContextManager[None]]
    known: int
    workloads: tuple[str, ...]
    faults: tuple[str, ...]

    def seeds(self) -> Iterator[int]:
        """Return the seeds to look with: the known one first."""
        return chain((self.known,), range(SEEDS))


_THERE: Final = leases.has_lapsed("runs").partition("and not ")[2].rstrip(")") + ")"
_LAPSED: Final = (run_keeping.ANY_EXPIRED, run_keeping.RELEASE, runs.FINISH_LAPSED)
_BUSY: Final = leases.is_held("busy").replace("$CLOCK", leases._SQLITE_CLOCK)


def _first_place(state: turn_state.TurnState, index: int) -> str:
    return f"1.{index - state.answered + 1}"


FAULTS: Final = {
    "events are stored without a fence": PlantedFault(
        lambda: rewrite(
            (runs.ADVANCE,), f"and lease_by = :node and attempt = :attempt and {runs._GOES_ON}", ""
        ),
        162, ("runs",), ("stalls", "partitions"),
    ),
    "the end of a run claims the last that waits": PlantedFault(
        lambda: rewrite((runs.NEXT,), "order by run_no", "order by run_no desc"),
        2, ("runs",), ("kills",),
    ),
    "a claim of messages ignores what is under work": PlantedFault(
        lambda: rewrite((inbox.CLAIM,), _BUSY, "0"),
        143, ("messages",), ("kills", "stalls"),
    ),
    "the run of a message is not noted": PlantedFault(
        lambda: rewrite((inbox.ATTACH,), "set run_id = :run_id", "set run_id = run_id"),
        1, ("messages",), ("kills", "stalls", "lost answers", "refusals"),
    ),
    "a key does not name its run": PlantedFault(
        lambda: replace(Call, "new_id", draw_id),
        3, ("runs",), ("kills", "lost answers"),
    ),
    "a follower skips what a lost hint left out": PlantedFault(
        lambda: replace(node_state._Feed, "behind", behind_without_looking),
        261, ("runs", "followers"), ("hints",),
    ),
    "a cancellation forgets its wish": PlantedFault(
        lambda: rewrite((run_steering.ASK_TO_CANCEL,), "coalesce(cancel_us, :now_us)", "cancel_us"),
        179, ("runs", "cancels"), ("hints",),
    ),
    "a run begins again in place of going on": PlantedFault(
        lambda: replace(executor, "fetch_record", recall_nothing),
        4, ("runs",), ("kills",),
    ),
    "the steps of a pause are dropped": PlantedFault(
        lambda: replace(runs.FinishRun, "statements", finish_without_steps),
        1, ("runs", "continues"), ("kills",),
    ),
    "steps are stored without a fence": PlantedFault(
        lambda: replace(runs.AppendEvents, "statements", append_without_fence),
        122, ("runs", "deletes"), ("kills",),
    ),
    "a claim counts for no try": PlantedFault(
        lambda: rewrite((runs.CLAIM,), "tries = tries + 1", "tries = tries"),
        3, ("runs",), ("poison", "kills"),
    ),
    "nobody is asked about a doubt": PlantedFault(
        lambda: replace(agent_turn.Turn, "_resume", lambda turn: None),
        28, ("runs",), ("kills",),
    ),
    "a call in doubt is taken for done": PlantedFault(
        lambda: replace(fold._Folding, "_fold_call", fold_as_done),
        1, ("runs",), ("kills",),
    ),
    "a fold leaves out the answers of the model": PlantedFault(
        lambda: replace(fold._Folding, "add_answer", lambda folding: False),
        1, ("runs",), ("kills",),
    ),
    "places count from the first answer": PlantedFault(
        lambda: replace(turn_state.TurnState, "place", _first_place),
        1, ("runs",), ("kills",),
    ),
    "the id of a member is drawn anew": PlantedFault(
        lambda: replace(team_turn, "member_run_id", draw_member_id),
        4, ("teams",), ("kills",),
    ),
    "a drain ends what it breaks off": PlantedFault(
        lambda: replace(executor.ExecuteRun, "_is_releasable", lambda run, outcome: False),
        1, ("runs",), ("drains",),
    ),
    "an outage counts as up-time": PlantedFault(
        lambda: replace(nodes, "advance", advance_always),
        71, ("runs",), ("outages",),
    ),
    "a beat renews no lease": PlantedFault(
        lambda: rewrite((nodes._ENTER,), "until_us = excluded.until_us", "until_us = until_us"),
        0, ("runs",), ("hints",),
    ),
    "a lease does not ask for its node": PlantedFault(
        lambda: rewrite(_LAPSED, "not " + _THERE, "1"),
        0, ("runs",), ("kills",),
    ),
    "a node that is ahead buries the others": PlantedFault(
        lambda: together(
            replace(nodes.Beat, "statements", beat_by_own_clock),
            replace(nodes, "advance", advance_always),
        ),
        0, ("runs",), ("node clocks",),
    ),
    "the living are named dead": PlantedFault(
        name_all_dead,
        0, ("runs",), ("kills",),
    ),
}  # fmt: skip
"""By their names; the first eight are of promises that have no need of leases."""
