"""What the turns of runs promise: by all states of three subjects, and by simulation over seeds."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import partial
from random import Random
from statistics import mean
from typing import Any, Final

import pytest

from legation.store.turns import COST

from ...turns_model import Asked, Node

pytestmark = pytest.mark.enumeration

# --- All states of three subjects --------------------------------------------------------------

SUBJECTS: Final = ("a", "b", "c")
MOST: Final = 2
"""Of so many runs of one subject that wait or are executed, no further one is asked for."""


def clone(node: Node) -> Node:
    """Return the same state once more."""
    other = Node(node.capacity)
    other.model.runs = {run_id: copy(run) for run_id, run in node.model.runs.items()}
    other.model.came = node.model.came
    for run in other.model.runs.values():
        if run.executed:
            other.slots.take(run.asked.subject)
    return other


def shape(node: Node) -> tuple[Any, ...]:
    """Return what there is of the future in a state."""
    runs = sorted(node.model.runs.values(), key=lambda run: run.number)
    return tuple((run.asked, run.executed, run.turn or 0) for run in runs)


def moves(node: Node) -> Iterator[tuple[str, Callable[[Node], tuple[str, ...]]]]:
    for run_id, run in node.model.runs.items():
        if run.executed:
            yield f"finish {run_id}", partial(Node.finish, run_id=run_id)
    number = node.model.came
    for subject in SUBJECTS:
        own = [run.asked for run in node.model.runs.values() if run.asked.subject == subject]
        if len(own) >= MOST:
            continue
        for session in {"new", *(asked.session for asked in own)}:
            asked = Asked(f"r{number}", subject, session, at_once=1, waiting=2)
            yield f"start {subject} {session}", partial(Node.start, asked=asked)


def fresh(node: Node) -> Node:
    """Return the state under names that say nothing of the past, so that there are finitely many.

    All turns are counted from that which has been reached, and what is far behind that is as good
    as a little.
    """
    runs = sorted(node.model.runs.values(), key=lambda run: run.number)
    reached = max((run.turn or 0 for run in runs if run.executed), default=0)
    names = {session: f"t{n}" for n, session in enumerate(run.asked.session for run in runs)}
    for place, run in enumerate(runs):
        session = names[run.asked.session]
        run.asked = Asked(f"r{place}", run.asked.subject, session, at_once=1, waiting=2)
        run.number = place
        run.turn = max((run.turn or 0) - reached, -2 * COST) + 2 * COST
    node.model.runs = {run.asked.run_id: run for run in runs}
    node.model.came = len(runs)
    return node


def check(before: Node, node: Node, executed: tuple[str, ...]) -> None:
    """Hold what is promised of every state and every move."""
    runs = node.model.runs
    held = Counter(run.asked.subject for run in runs.values() if run.executed)
    sessions = Counter(run.asked.session for run in runs.values() if run.executed)
    assert max(held.values(), default=0) <= 1, "more at once than the limit"
    assert max(sessions.values(), default=0) <= 1, "two runs of a session"
    assert held.total() == node.slots.total <= node.capacity, "a place is lost, or given twice"
    # Nobody waits for a place that is free: what is next may not be executed.
    assert clone(node).claim() == (), "work is left"
    for run_id in executed:
        taken = runs[run_id]
        for other in node.model.waiting():
            same = other.asked.subject == taken.asked.subject
            if same and other.asked.run_id in before.model.runs:
                assert other.number > taken.number, "a run overtakes one of its own subject"


def test_every_state_of_three_subjects_keeps_what_is_promised(
    figures: Callable[[str], None],
) -> None:
    seen, level, transitions = {shape(Node(2))}, [Node(2)], 0
    while level:
        following: list[Node] = []
        for state in level:
            for _, move in moves(state):
                after = clone(state)
                executed = move(after)
                transitions += 1
                check(state, after, executed)
                after = fresh(after)
                if (key := shape(after)) not in seen:
                    seen.add(key)
                    following.append(after)
        level = following
    figures(f"turns: {len(seen)} states and {transitions} transitions of three subjects")
    assert len(seen) > 100


# --- Simulation --------------------------------------------------------------------------------


def arrive(random: Random, subject: str, rate: float, until: float) -> Iterator[tuple[float, str]]:
    """Return when runs of a subject are asked for."""
    time = random.expovariate(rate)
    while time < until:
        yield time, subject
        time += random.expovariate(rate)


def simulate(
    asked: list[tuple[float, str, float]], capacity: int, weights: Mapping[str, float]
) -> dict[str, list[float]]:
    """Return how long each run took, from when it was asked for until it ended."""
    node = Node(capacity, weights=dict(weights))
    took: dict[str, list[float]] = defaultdict(list)
    events = [(time, 0, n) for n, (time, _, _) in enumerate(asked)]
    heapq.heapify(events)
    while events:
        now, kind, n = heapq.heappop(events)
        time, subject, _ = asked[n]
        if kind == 0:
            weight = weights.get(subject, 1.0)
            run = Asked(f"{n}", subject, f"s{n}", capacity, 1 << 30, weight)
            executed = node.start(run)
        else:
            took[subject].append(now - time)
            executed = node.finish(f"{n}")
        for run_id in executed:
            heapq.heappush(events, (now + asked[int(run_id)][2], 1, int(run_id)))
    return took


CAPACITY: Final = 12


@pytest.mark.parametrize("seed", range(12))
def test_who_asks_for_less_than_its_share_waits_as_if_it_were_alone(
    seed: int, figures: Callable[[str], None]
) -> None:
    """Of the others each may ask for any number of runs, at once or one by one."""
    random = Random(seed)
    others = random.randint(1, 4)
    weights = {f"o{n}": random.choice((0.5, 1.0, 2.0)) for n in range(others)}
    share = CAPACITY / (1 + sum(weights.values()))
    # Half of its share, on average; the others ask for up to four times theirs.
    light = [*arrive(random, "light", share * 0.5, 12.0)]
    load = [
        one
        for name, weight in weights.items()
        for one in arrive(random, name, share * weight * random.uniform(1, 4), 12.0)
    ]
    burst = [(random.uniform(0, 8), name) for name in weights for _ in range(random.randrange(40))]
    took = {time: random.uniform(0.5, 1.5) for time, _ in (*light, *load, *burst)}
    asked = sorted((time, name, took[time]) for time, name in (*light, *load, *burst))
    together = mean(simulate(asked, CAPACITY, weights)["light"])
    own = [one for one in asked if one[1] == "light"]
    alone = mean(simulate(own, max(1, int(share)), {"light": 1e9})["light"])

    figures(f"turns, seed {seed}: {together:.2f} s among {others} others, {alone:.2f} s alone")
    assert together <= 1.5 * alone


def test_among_those_who_ask_for_all_the_weights_count() -> None:
    weights = {"one": 1.0, "two": 2.0}
    asked = sorted((n / 1_000, name, 1.0) for n in range(150) for name in weights)
    node, started = Node(9, weights=weights), Counter[str]()
    for n, (_, name, _) in enumerate(asked):
        node.start(Asked(f"{n}", name, f"s{n}", 9, 1 << 30, weights[name]))
    for _ in range(90):
        executed = [run for run in node.model.runs.values() if run.executed]
        done = min(executed, key=lambda run: (run.turn or 0, run.number))
        for run_id in node.finish(done.asked.run_id):
            started[node.model.runs[run_id].asked.subject] += 1

    assert started.total() == 90
    assert 1.7 <= started["two"] / started["one"] <= 2.3
