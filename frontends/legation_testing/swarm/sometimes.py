"""The states that storms must reach, and how they are noticed.

A storm that finds nothing proves little where it never came near: so a sweep counts how often it
was there.  Most states show in the answer to a unit of work, and are rows of a table; the others
are noted where they come to pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from legation.effects import Transact
from legation.store.inbox import INBOX
from legation.store.leased_queue import ClaimItems
from legation.store.nodes import Beat, Bury
from legation.store.outbox import OUTBOX
from legation.store.run_keeping import ClaimWaiting, ExpireRuns, ReleaseRun
from legation.store.run_steering import CancelRun, ContinueRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import FetchSteps, Step
from legation.store.units import Unit

from ..matching import is_audited
from ..node import Node

__all__ = ["NOTED", "SEEN_IN_ANSWERS", "SOMETIMES", "Glance", "Sightings", "State", "unit_of"]


def unit_of(effect: Transact[Any]) -> Unit[Any]:
    """Return the unit of work of `effect`, without its record in the audit trail."""
    unit: Unit[Any] = effect.unit
    return unit.unit if is_audited(unit) else unit


@define(eq=False)
class Sightings:
    """The states that one storm reached, and what has to be remembered to notice them."""

    nodes: list[Node]
    reached: Counter[str] = field(factory=Counter[str])
    _buried: set[str] = field(factory=set[str])
    _released: dict[str, str] = field(factory=dict[str, str])
    _claimed: dict[tuple[str, str], str] = field(factory=dict[tuple[str, str], str])
    _executed: dict[str, str] = field(factory=dict[str, str])
    _drained: set[str] = field(factory=set[str])

    def note(self, name: str) -> None:
        """Count a state."""
        self.reached[name] += 1

    def look(self, node: Node, kind: type[Any], unit: Any, answer: Any) -> None:
        """Count the states that show in the `answer` to `unit`, which a program of `node` asked."""
        for state in _BY_UNIT.get(kind, ()):
            if state.shows(Glance(self, node, unit, answer)):
                self.note(state.name)

    def find(self, name: str) -> Node | None:
        """Return the node of this name."""
        return next((node for node in self.nodes if node.name == name), None)

    def is_taken_up_elsewhere(self, node: Node, run_id: str) -> bool:
        """Tell whether another node than this released the run before."""
        return self._released.get(run_id, node.name) != node.name

    def release(self, node: Node, run_id: str) -> bool:
        """Remember who released a run."""
        self._released[run_id] = node.name
        return True

    def execute(self, node: Node, run_id: str) -> bool:
        """Remember who executed a run; tell whether that was another node before."""
        before = self._executed.get(run_id, node.name)
        self._executed[run_id] = node.name
        return before != node.name

    def drain(self, run_id: str) -> bool:
        """Remember that a run was released in order."""
        self._drained.add(run_id)
        return True

    def was_drained(self, run_id: str) -> bool:
        """Tell, once, whether a run was released in order."""
        was_drained = run_id in self._drained
        self._drained.discard(run_id)
        return was_drained

    def bury(self, names: Iterable[str]) -> bool:
        """Remember who was taken for dead; tell whether anybody was."""
        self._buried.update(names)
        return bool(names)

    def comes_back(self, node: Node) -> bool:
        """Tell whether `node`, which beats, was taken for dead before."""
        came_back = node.name in self._buried
        self._buried.discard(node.name)
        return came_back

    def claim(self, node: Node, table: str, item_id: str) -> bool:
        """Remember who claimed an item; tell whether that was another node the last time."""
        before = self._claimed.get((table, item_id), node.name)
        self._claimed[table, item_id] = node.name
        return before != node.name


@frozen
class Glance:
    """The answer to a unit of work that a program of `node` asked for."""

    seen: Sightings
    node: Node
    unit: Any
    answer: Any

    @property
    def executor(self) -> Node | None:
        """The node whose run this one ended; None where that is itself, or nothing ended."""
        other = self.unit.lease.node != self.node.name
        return self.seen.find(self.unit.lease.node) if other and self.answer.kept else None


Shows: TypeAlias = Callable[[Glance], bool]


@frozen
class State:
    """A state that shows in the answer to a unit of work."""

    name: str
    unit: type[Unit[Any]]
    shows: Shows


def _for_dead(at: Glance) -> bool:
    return at.executor is not None and not at.executor.alive


def _from_stalled(at: Glance) -> bool:
    node = at.seen.find(at.unit.lease.node) if at.answer and at.unit.lapsed else None
    return node is not None and node.alive and node.stalled


def _loses_at_the_end(at: Glance) -> bool:
    return not (at.answer.kept or at.answer.cancel_asked or at.answer.cancel_unasked)


def _takes_up_elsewhere(at: Glance) -> bool:
    run = at.answer
    return run is not None and at.seen.is_taken_up_elsewhere(at.node, run.run_id)


def _buries_beside(at: Glance) -> bool:
    return at.seen.bury([name for name in at.answer if name != at.node.name])


def _stores(at: Glance, name: str, text: str) -> bool:
    """Tell whether an event of this name, with this in its data, was stored."""
    return at.answer is not None and any(
        event.name.endswith(name) and text in event.data for event in at.unit.events
    )


def _resumes(at: Glance) -> bool:
    return _stores(at, "RunContinued", _RESUMED)


def _resumes_elsewhere(at: Glance) -> bool:
    elsewhere = at.answer is not None and at.seen.execute(at.node, at.unit.run_id)
    return elsewhere and _resumes(at)


def _resumes_behind_a_drain(at: Glance) -> bool:
    return _resumes(at) and at.seen.was_drained(at.unit.run_id)


def _is_half_known(at: Glance) -> bool:
    calls = [step for step in at.answer if step.kind != "model"]
    ended = {_answer_before(step) for step in calls if step.outcome is not None}
    return any(_answer_before(step) in ended for step in calls if step.outcome is None)


def _answer_before(step: Step) -> str:
    """Return the place of the answer that a call is of."""
    return step.place.rpartition(".")[0] or step.place


def _asks_about_doubt(at: Glance) -> bool:
    return at.answer.kept and at.unit.status == "PAUSED" and _IN_DOUBT in at.unit.output


def _ends_with(reason: str) -> Shows:
    return lambda at: at.answer.kept and at.unit.reason == reason


def _claims_elsewhere(queue: object) -> Shows:
    def shows(at: Glance) -> bool:
        if at.unit.queue is not queue:
            return False
        keys = [(repr(queue), item.lease.key.item_id) for item in at.answer.items]
        found = [at.seen.claim(at.node, *key) for key in keys]
        return any(found)

    return shows


_RESUMED: Final = '"resumed":true'
_IN_DOUBT: Final = '"in_doubt":true'

SEEN_IN_ANSWERS: Final = (
    State("run gone on with", AppendEvents, _resumes),
    State("run gone on with on another node", AppendEvents, _resumes_elsewhere),
    State("run gone on with behind a drain", AppendEvents, _resumes_behind_a_drain),
    State(
        "run released in a drain",
        ReleaseRun,
        lambda at: at.answer and not at.unit.tried and at.seen.drain(at.unit.run_id),
    ),
    State(
        "model asked again",
        AppendEvents,
        lambda at: _stores(at, "ModelRequestStarted", '"again":true'),
    ),
    State("call known beside one in doubt", FetchSteps, _is_half_known),
    State(
        "member gone on with",
        FetchSteps,
        lambda at: any("/" in step.place for step in at.answer),
    ),
    State(
        "lease lost while storing steps",
        AppendEvents,
        lambda at: at.answer is None and bool(at.unit.records.steps),
    ),
    State("person asked about a doubt", FinishRun, _asks_about_doubt),
    State("run ended by a doubt", FinishRun, _ends_with("interrupted")),
    State("run given up", FinishRun, _ends_with("gave_up")),
    State("lease lost while storing", AppendEvents, lambda at: at.answer is None),
    State("cancel heard while storing", AppendEvents, lambda at: bool(at.answer)),
    State("cancel met a pause", FinishRun, lambda at: at.answer.cancel_asked),
    State("lease lost at the end", FinishRun, _loses_at_the_end),
    State("end claimed the next run", FinishRun, lambda at: at.answer.following is not None),
    State("run ended for a dead node", FinishRun, _for_dead),
    State("taken over while its node was stalled", ReleaseRun, _from_stalled),
    State("cancelled while it waited", CancelRun, lambda at: at.answer in ("PENDING", "PAUSED")),
    State("cancel met the end", CancelRun, lambda at: at.answer in ("COMPLETED", "ERROR")),
    State("run waits for its session", StartRun, lambda at: at.answer.claim is None),
    State(
        "run released",
        ReleaseRun,
        lambda at: at.answer and at.seen.release(at.node, at.unit.run_id),
    ),
    State("run released and taken up elsewhere", ClaimWaiting, _takes_up_elsewhere),
    State("waiting run claimed by a round", ClaimWaiting, lambda at: at.answer is not None),
    State("continue met cancel", ContinueRun, lambda at: at.answer.found == "CANCELLED"),
    State(
        "continue met continue",
        ContinueRun,
        lambda at: at.answer.found in ("RUNNING", "PENDING", "COMPLETED"),
    ),
    State(
        "continued behind another run",
        ContinueRun,
        lambda at: at.answer.kept and at.answer.claim is None,
    ),
    State(
        "node came back that was taken for dead",
        Beat,
        lambda at: at.seen.comes_back(at.node),
    ),
    State("node taken for dead by its silence", Beat, lambda at: at.seen.bury(at.answer.buried)),
    State("all were away between two beats", Beat, lambda at: at.answer.gap),
    State("node taken for dead beside another", Bury, _buries_beside),
    State("lease without a program lapsed", ExpireRuns, lambda at: bool(at.unit.runs)),
    State("message answered by a second node", ClaimItems, _claims_elsewhere(INBOX)),
    State("reply sent by a second node", ClaimItems, _claims_elsewhere(OUTBOX)),
)
"""The states that show in the answer to a unit of work."""

NOTED: Final[Mapping[str, str]] = {
    "commit lost at the end of a run": "Tempest: FinishRun was done, and its answer was lost",
    "database away while a run ended": "Tempest: FinishRun found no database",
    "drain met a stream": "Tempest: a node began to end while a client followed a run there",
    "drain met a run": "Tempest: a node began to end while it executed a run",
    "all nodes died at once": "Tempest: a power cut",
    "died with the answer unheard": "Tempest: a node was killed behind a unit of work",
    "tool took too long": "Tempest: the answer to a call came after its time",
    "tool killed its node": "Tempest: a call was carried out, and nobody heard of it",
    "doubt answered: confirm": "clients: a person had a call made once more",
    "doubt answered: reject": "clients: a person did not",
    "doubt answered: result": "clients: a person said what came of a call",
    "reply came twice under its key": "Scene: people got a reply that they had",
    "stream resumed on another node": "clients: Last-Event-ID was sent to another node",
    "stream resumed within a run": "clients: events came before and after the client came back",
    "key found its run": "clients: a request came again under its key, and got its run",
    "run deleted under its followers": "clients: a stream ended with an event that is not stored",
    "pause answered on another node": "clients: a run went on elsewhere than it was asked for",
}
"""The other states, with who notes them and when."""

SOMETIMES: Final = (*(state.name for state in SEEN_IN_ANSWERS), *NOTED)
"""The names of all states."""

_BY_UNIT: Final[dict[type[Any], tuple[State, ...]]] = {
    unit: tuple(state for state in SEEN_IN_ANSWERS if state.unit is unit)
    for unit in {state.unit for state in SEEN_IN_ANSWERS}
}
