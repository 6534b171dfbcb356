"""A model of the turns of runs: the rules of `store.turns` in plain Python, and a node on them."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field, frozen

from legation.shares.slots import Slots
from legation.store.turns import COST

__all__ = ["Asked", "Model", "Node"]


@frozen
class Asked:
    """A run that is asked for, and the limits of its subject."""

    run_id: str
    subject: str
    session: str
    at_once: int = 2
    waiting: int = 9
    weight: float = 1.0


@define
class _Run:
    asked: Asked
    number: int
    turn: int | None = None
    executed: bool = False


@define
class Model:
    """The runs that wait or are executed, of all sessions, in the order in which they came."""

    runs: dict[str, _Run] = field(factory=dict[str, _Run])
    came: int = 0

    def _of(self, subject: str) -> list[_Run]:
        return [run for run in self.runs.values() if run.asked.subject == subject]

    def _is_blocked(self, run: _Run) -> bool:
        others = (o for o in self.runs.values() if o.asked.session == run.asked.session)
        return any(o.executed or o.number < run.number for o in others if o is not run)

    def executed(self, subject: str) -> int:
        """Return how many runs of `subject` are executed."""
        return sum(run.executed for run in self._of(subject))

    def waiting(self) -> Iterator[_Run]:
        """Return what waits and is not behind another run of its session, the next one first."""
        found = [run for run in self.runs.values() if not (run.executed or self._is_blocked(run))]
        return iter(sorted(found, key=lambda run: (run.turn or 0, run.number)))

    def _draw(self, asked: Asked) -> int:
        cost = max(1, round(COST / asked.weight))
        under_way = [run for run in self.runs.values() if run.executed]
        reached = [(run.turn or 0, run.asked.subject) for run in under_way]
        tags = [turn + (cost if subject == asked.subject else 0) for turn, subject in reached]
        own = [run.turn or 0 for run in self._of(asked.subject) if not run.executed]
        return max([*tags, *(turn + cost for turn in own)], default=0)

    def start(self, asked: Asked, room: bool = True) -> str:
        """Return what becomes of a new run: `claimed`, `waits`, `queued` or `over`."""
        subject = asked.subject
        busy = any(run.asked.session == asked.session for run in self.runs.values())
        behind = any(run.asked.subject == subject for run in self.waiting())
        waits = busy or behind or not room or self.executed(subject) >= asked.at_once
        own = sum(not run.executed for run in self._of(subject))
        if waits and own >= asked.waiting:
            return "over"
        turn = self._draw(asked) if waits else None
        self.came += 1
        self.runs[asked.run_id] = _Run(asked, self.came, turn, executed=not waits)
        return ("waits" if busy else "queued") if waits else "claimed"

    def claim(self, full: tuple[str, ...] = ()) -> str | None:
        """Return the run whose turn it is, which is executed from now on."""
        firsts: dict[str, _Run] = {}
        for run in self.waiting():
            firsts.setdefault(run.asked.subject, run)
        for subject, run in firsts.items():  # they are in the order of their turns
            if subject not in full and self.executed(subject) < run.asked.at_once:
                run.executed = True
                return run.asked.run_id
        return None

    def finish(self, run_id: str) -> tuple[str | None, bool]:
        """Return which run of the session takes the place of one that ends, and if others wait."""
        ended = self.runs.pop(run_id).asked
        own = [
            run
            for run in self.runs.values()
            if not run.executed and run.asked.session == ended.session
        ]
        waiting = [run for run in self.runs.values() if not run.executed]
        contended = len(own) < len(waiting)
        if not own:
            return None, contended
        following = min(own, key=lambda run: run.number)
        if contended or following.asked.subject != ended.subject:
            return None, True
        following.executed = True
        return following.asked.run_id, False


@define
class Node:
    """A node on the model: it has places, and claims what waits whenever one may be free."""

    capacity: int
    model: Model = field(factory=Model)
    weights: dict[str, float] = field(factory=dict[str, float])
    slots: Slots = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.slots = Slots(self.capacity)

    def _weigh(self, subject: str) -> float:
        return self.weights.get(subject, 1.0)

    def start(self, asked: Asked) -> tuple[str, ...]:
        """Ask for a run; return the runs that are executed because of that."""
        room = self.slots.try_to_take(asked.subject, self._weigh(asked.subject))
        outcome = self.model.start(asked, room)
        if outcome == "claimed":
            return (asked.run_id,)
        if room:
            self.slots.release(asked.subject)
        return self.claim() if outcome == "queued" else ()

    def finish(self, run_id: str) -> tuple[str, ...]:
        """End a run; return the runs that are executed because of that."""
        subject = self.model.runs[run_id].asked.subject
        following, contended = self.model.finish(run_id)
        self.slots.release(subject)
        if following is not None:
            self.slots.take(subject)
            return (following,)
        return self.claim() if contended else ()

    def claim(self) -> tuple[str, ...]:
        """Execute what waits as far as there is room."""
        claimed: list[str] = []
        while self.slots.total < self.capacity:
            run_id = self.model.claim(self.slots.find_full(self._weigh))
            if run_id is None:
                break
            self.slots.take(self.model.runs[run_id].asked.subject)
            claimed.append(run_id)
        return tuple(claimed)
