"""The drawing of a storm: a seed gives the list of decisions.

A swarm: first it is drawn *which* faults there are, and how many of each, for a fault that is
always on hides others.  Times are multiples of a quarter of a second, as are those of the scene, so
that much happens at the same moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

from attrs import define, field

from .decisions import (
    Ask,
    Away,
    Cancel,
    Chance,
    Continue,
    Decision,
    Delete,
    Deliver,
    Drain,
    Fail,
    Follow,
    Hints,
    Kill,
    Misbehave,
    Notify,
    PowerCut,
    SetClock,
    SetDatabaseClock,
    Settle,
    Stall,
    Start,
)
from .scene import COMPONENTS, DATABASES

__all__ = ["FAULTS", "WORKLOADS", "draw"]

_YEAR: Final = 365 * 86_400.0
_ASK_SECONDS: Final = 10.0
_FAULT_SECONDS: Final = 16.0
_MODES: Final = ("joined", "streamed", "streamed", "background")
_AGENTS: Final = ("clerk", "clerk", "clerk", "porter", "porter", "guard", "form")
_TEAMS: Final = ("desk", "desk", "window", "panel", "house")
_MEMBERS: Final = ("helper", "helper", "aide")
_TOOLS: Final = ("use", "use", "look", "book")


@define(eq=False)
class _Drawer:
    """The source of what is drawn, and what was drawn so far."""

    chance: Random
    lease_seconds: float
    nodes: list[Start]
    asks: list[Ask] = field(factory=list[Ask])

    def at(self, until: float = _FAULT_SECONDS) -> float:
        """Return a moment."""
        return self.chance.randrange(int(until * 4)) / 4

    def seconds(self, least: float, most: float) -> float:
        """Return a length of time."""
        return self.chance.randint(round(least * 4), round(most * 4)) / 4

    def node(self) -> int:
        """Return the number of a node."""
        return self.chance.choice(self.nodes).node

    def some(self, most: int) -> range:
        """Return between one and `most` numbers."""
        return range(self.chance.randint(1, most))

    def leaves(self) -> tuple[float, ...]:
        """Return how long a client stays each time; mostly to the end."""
        if self.chance.random() < 0.6:
            return ()
        return tuple(self.seconds(0.25, 4) for _ in self.some(3))


Draws: TypeAlias = Callable[[_Drawer], Iterator[Decision]]


# --- Workloads ----------------------------------------------------------------------------------


def _runs(d: _Drawer) -> Iterator[Decision]:
    sessions = [f"s{number}" for number in range(1, d.chance.randint(2, 4))]
    for _ in range(d.chance.randint(2, 6)):
        yield _ask(d, d.chance.choice(sessions), d.chance.choice(_AGENTS))


def _functions(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        yield _ask(d, d.chance.choice(("s1", "f1")), d.chance.choice(("worker", "steady")))


def _teams(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        yield _ask(d, d.chance.choice(("t1", "t1", "t2")), d.chance.choice(_TEAMS))


def _ask(d: _Drawer, session: str, component: str) -> Ask:
    ask = Ask(
        d.at(_ASK_SECONDS), d.node(), f"r{len(d.asks) + 1}", session, component,
        _steps(d, component), d.chance.choice(_MODES), d.chance.random() < 0.4, d.leaves(),
    )  # fmt: skip
    d.asks.append(ask)
    return ask


def _steps(d: _Drawer, component: str) -> str:
    """Return a script for a component."""
    match component:
        case "worker" | "steady":
            return f"use:{d.seconds(0, 4)} {_say(d)}"
        case "form":
            botch = ["botch"] if d.chance.random() < 0.3 else []
            return " ".join([*_work(d), *botch, _say(d)])
        case "window":
            return f"{_member(d)} {_say(d)}"
        case "panel":
            return " ".join([f"each({','.join(_inner(d))})", *_work(d), _say(d)])
        case "desk":
            return " ".join([*_mix(d, [*_work(d), _members(d)]), _say(d)])
        case "house":
            return " ".join([*_mix(d, [*_work(d), _teams_within(d)]), _say(d)])
        case _:
            return " ".join([*_work(d), _say(d)])


def _mix(d: _Drawer, steps: list[str]) -> list[str]:
    d.chance.shuffle(steps)
    return steps


def _work(d: _Drawer) -> list[str]:
    """Return a few calls of tools, one of them perhaps with a person's consent."""
    steps = [_calls(d) for _ in range(d.chance.choice((0, 0, 1, 1, 2, 4)))]
    if d.chance.random() < 0.25:
        beside = f"+{_call(d)}" if d.chance.random() < 0.4 else ""
        steps.append(f"permit:{d.seconds(0, 1)}{beside}")
    return _mix(d, steps)


def _calls(d: _Drawer) -> str:
    """Return calls of tools, side by side if there are several."""
    return "+".join(_call(d) for _ in range(d.chance.choice((1, 1, 2, 3))))


def _call(d: _Drawer) -> str:
    return f"{d.chance.choice(_TOOLS)}:{d.seconds(0, 3)}"


def _say(d: _Drawer) -> str:
    return f"say:{d.chance.choice((1, 2, 3, 8))}"


def _inner(d: _Drawer) -> list[str]:
    """Return the script of a member."""
    steps = [_calls(d) for _ in range(d.chance.choice((0, 1, 1, 2)))]
    if d.chance.random() < 0.2:
        steps.append(f"permit:{d.seconds(0, 1)}")
    return [*steps, f"say:{d.chance.randint(1, 3)}"]


def _member(d: _Drawer) -> str:
    return f"{d.chance.choice(_MEMBERS)}({','.join(_inner(d))})"


def _members(d: _Drawer) -> str:
    """Return the task of a member, perhaps beside another, or beside a call."""
    beside = d.chance.choice(("", "", "", "member", "call"))
    other = {"member": _member, "call": _call}.get(beside)
    return _member(d) if other is None else f"{_member(d)}+{other(d)}"


def _teams_within(d: _Drawer) -> str:
    """Return the task of a team that is itself a member."""
    team = d.chance.choice(("desk", "window", "panel"))
    steps = {
        "desk": lambda: [_calls(d), _member(d)],
        "window": lambda: [_member(d)],
        "panel": lambda: [f"each({','.join(_inner(d))})"],
    }[team]()
    return f"{team}({','.join([*steps, 'say:1'])})"


def _followers(d: _Drawer) -> Iterator[Decision]:
    for ask in d.asks:
        if d.chance.random() < 0.4:
            yield Follow(ask.at + d.seconds(0, 5), d.node(), ask.name, d.leaves())


def _continues(d: _Drawer) -> Iterator[Decision]:
    for ask in d.asks:
        if "permit" in ask.steps and d.chance.random() < 0.8:
            at = ask.at + d.seconds(0, 5)
            yield Continue(
                at, d.node(), ask.name, d.chance.random() < 0.8, d.chance.choice((1, 1, 2)),
                d.chance.random() < 0.5,
            )  # fmt: skip
            if d.chance.random() < 0.3:  # who continues meets who cancels
                yield Cancel(at + d.chance.choice((0.0, 0.0, 1.0, 2.0)), d.node(), ask.name)


def _doubts(d: _Drawer) -> Iterator[Decision]:
    for ask in d.asks:
        if d.chance.random() < 0.7:
            how = d.chance.choice(("confirm", "confirm", "reject", "result"))
            yield Settle(ask.at + d.seconds(0, 5), d.node(), ask.name, how)


def _cancels(d: _Drawer) -> Iterator[Decision]:
    for ask in d.asks:
        if d.chance.random() < 0.4:
            yield Cancel(ask.at + d.seconds(0, 8), d.node(), ask.name)


def _deletes(d: _Drawer) -> Iterator[Decision]:
    for ask in d.asks:
        if d.chance.random() < 0.25:
            database = COMPONENTS[ask.component][1]
            yield Delete(ask.at + d.seconds(0, 8), d.node(), ask.session, database)


def _messages(d: _Drawer) -> Iterator[Decision]:
    senders = ("ada", "bob")[: d.chance.randint(1, 2)]
    for number in range(d.chance.randint(1, 5)):
        times = d.chance.choice((1, 1, 2))
        channel = d.chance.choice(("letters", "letters", "letters", "slips"))
        calls = [_calls(d) for _ in range(d.chance.choice((0, 0, 1, 2)))]
        steps = " ".join([*calls, f"say:{d.chance.choice((1, 2, 6))}"])
        yield Deliver(
            d.at(_ASK_SECONDS), d.node(), f"m{number + 1}", d.chance.choice(senders), steps, times,
            channel,
        )  # fmt: skip


WORKLOADS: Final[Mapping[str, Draws]] = {
    "runs": _runs,
    "functions": _functions,
    "teams": _teams,
    "followers": _followers,
    "continues": _continues,
    "doubts": _doubts,
    "cancels": _cancels,
    "deletes": _deletes,
    "messages": _messages,
}
"""What clients do, by name; what comes later may mean runs of what comes before."""


# --- Faults -------------------------------------------------------------------------------------


def _kills(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(3):
        down = d.chance.choice((0.0, 0.25, 1.0, d.lease_seconds + 3.0))
        yield Kill(d.at(), d.node(), d.chance.randrange(40), d.chance.random() < 0.3, down)


def _power_cuts(d: _Drawer) -> Iterator[Decision]:
    yield PowerCut(d.at(), d.chance.randrange(40), d.chance.choice((0.0, 1.0, 8.0)))


def _drains(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        yield Drain(d.at(), d.node(), d.seconds(0, 6), d.seconds(0, 2))


def _stalls(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(3):
        yield Stall(d.at(), d.node(), d.seconds(0.25, 3 * d.lease_seconds))


def _node_clocks(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        at, node, seconds = (
            d.at(),
            d.node(),
            d.chance.choice((-90.0, -2.0, 2.0, 90.0, 3600.0, _YEAR)),
        )
        yield SetClock(at, node, seconds)
        if abs(seconds) > 90.0 or d.chance.random() < 0.5:
            yield SetClock(at + d.seconds(0.5, 6), node, -seconds)


def _database_clocks(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        at, seconds = d.at(), d.chance.choice((-_YEAR, -90.0, -2.0, 2.0, 90.0, 3600.0, _YEAR))
        database = d.chance.choice(DATABASES)
        yield SetDatabaseClock(at, database, seconds)
        if d.chance.random() < 0.5:
            yield SetDatabaseClock(at + d.seconds(0.5, 6), database, -seconds)


def _commit_losses(d: _Drawer) -> Iterator[Decision]:
    yield from _fails(d, ("lost", "lost", "undone"))


def _refusals(d: _Drawer) -> Iterator[Decision]:
    yield from _fails(d, ("busy", "unavailable"))


def _fails(d: _Drawer, kinds: Sequence[str]) -> Iterator[Decision]:
    for _ in range(d.chance.choice((2, 5, 15))):
        node = d.node() if d.chance.random() < 0.5 else None
        times = d.chance.choice((1, 1, 1, 3))
        yield Fail(d.at(), d.chance.choice(kinds), node, d.chance.randrange(12), times)


def _outages(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        seconds = d.seconds(0.25, 2.5 * d.lease_seconds)
        database = d.chance.choice(("main", *DATABASES))
        yield Away(d.at(), database, seconds, None, d.chance.choice((0.0, 0.0, 2.0)))


def _partitions(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        seconds = d.seconds(0.25, 2.5 * d.lease_seconds)
        database = d.chance.choice(("main", *DATABASES))
        yield Away(d.at(), database, seconds, d.node(), d.chance.choice((0.0, 0.0, 2.0)))


def _hints(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(3):
        kind = d.chance.choice(("lost", "lost", "doubled", "late"))
        yield Hints(d.at(), kind, d.seconds(0.25, 6))


def _providers(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(4):
        kind = d.chance.choice(("refuses", "overloaded", "silent", "cut", "cut", "nonsense"))
        yield Misbehave(d.at(), "model", kind, d.chance.choice((1, 1, 4)))


def _people(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(4):
        kind = d.chance.choice(("refuses", "overloaded", "silent", "cut", "cut"))
        yield Misbehave(d.at(), "people", kind, d.chance.choice((1, 1, 2)))


def _tools(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        yield Misbehave(d.at(), "tool", d.chance.choice(("fails", "hangs")))


def _poison(d: _Drawer) -> Iterator[Decision]:
    for _ in d.some(2):
        yield Misbehave(d.at(), "tool", "kills", d.chance.choice((1, 1, 4)))


FAULTS: Final[Mapping[str, Draws]] = {
    "kills": _kills,
    "power cuts": _power_cuts,
    "drains": _drains,
    "stalls": _stalls,
    "node clocks": _node_clocks,
    "database clocks": _database_clocks,
    "lost answers": _commit_losses,
    "refusals": _refusals,
    "outages": _outages,
    "partitions": _partitions,
    "hints": _hints,
    "providers": _providers,
    "people": _people,
    "tools": _tools,
    "poison": _poison,
}
"""What befalls them, by name."""


def draw(
    seed: int, lease_seconds: float, workloads: Sequence[str], faults: Sequence[str]
) -> tuple[Decision, ...]:
    """Return the decisions of a seed, in the order of time."""
    chance = Random(seed)
    nodes = _nodes(chance, skewed="node clocks" in faults)
    drawer = _Drawer(chance, lease_seconds, nodes)
    chosen = [name for name in workloads if chance.random() < 0.6] or list(workloads[:1])
    befalls = [name for name in faults if chance.random() < 0.3]
    drawn = [one for name in chosen for one in WORKLOADS[name](drawer)]
    drawn += [one for name in befalls for one in FAULTS[name](drawer)]
    world: list[Decision] = [Chance(seed), *nodes]
    if chance.random() < 0.5:
        world.append(Notify())
    return (*world, *sorted(drawn, key=lambda one: getattr(one, "at", 0.0)))


def _nodes(chance: Random, *, skewed: bool) -> list[Start]:
    """Return one to four nodes, each at one of two places or at none."""
    skews = (0.0, 0.0, 0.0, 2.0, -2.0, 90.0, -90.0) if skewed else (0.0,)
    if chance.random() < 0.5:
        skews = (0.0,)
    return [
        Start(number, chance.choice(("", "a", "a", "b")), chance.choice(skews))
        for number in range(chance.choice((1, 2, 2, 2, 3, 3, 4)))
    ]
