"""Storms: seeded swarms of faults over everything that a platform promises.

    with Storm() as storm:
        storm.run(1)

A seed draws which faults there are, how many nodes, and what clients do; the rest follows from that
to the byte.  When it is over, and all is calm again, the oracles look for broken promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

from attrs import field, frozen

from ..faults import Performed
from ..scheduling import Endless
from .arena import Arena
from .clients import Clients
from .decisions import Decision, end_of, write_decisions
from .draw import FAULTS, WORKLOADS, draw
from .oracles import ORACLES, Aftermath, Oracle, find_broken
from .promises import Broken
from .shrink import shrink
from .tempest import Tempest

__all__ = ["PromiseBroken", "Storm", "StormReport"]

_REST: Final = "everything comes to rest"
_LAST_ASK_SECONDS: Final = 16.0
_MARGIN_SECONDS: Final = 5.0
_STEP_SECONDS: Final = 5.0
_MOST_STEPS: Final = 80


@frozen
class StormReport:
    """The report of one storm.

    Attributes:
        decisions: From which it follows.
        effects: Every effect that the nodes asked for, in order.
        reached: How often it reached each of the states of `SOMETIMES` that it did.
        broken: The promises that were broken.
    """

    decisions: tuple[Decision, ...] = field(repr=False)
    effects: Sequence[Performed] = field(repr=False)
    reached: Mapping[str, int]
    broken: tuple[Broken, ...]


class PromiseBroken(AssertionError):
    """A promise was broken.  The text is a test that shows it, to be pasted.

    Attributes:
        decisions: The least that were found to show it.
        broken: The promise, and how it was broken.
    """

    def __init__(self, decisions: tuple[Decision, ...], broken: Broken, test: str) -> None:
        super().__init__(f"{broken.promise}: {broken.found}\n\n{test}")
        self.decisions = decisions
        self.broken = broken


class Storm:
    """Storms of one kind: what clients do, what may befall the nodes, and what is promised.

    Not to be shared by threads.  `close`, or `with`, lets go of the databases.
    """

    def __init__(
        self,
        *,
        workloads: Iterable[str] = tuple(WORKLOADS),
        faults: Iterable[str] = tuple(FAULTS),
        oracles: Mapping[str, Oracle] = ORACLES,
        lease_seconds: float = 6.0,
    ) -> None:
        """Prepare; nothing happens yet.

        Args:
            workloads: Names of `WORKLOADS`.
            faults: Names of `FAULTS`.
            oracles: By the promise that each looks after.
            lease_seconds: How long a node may be silent.
        """
        self.workloads = tuple(workloads)
        self.faults = tuple(faults)
        self.oracles = oracles
        self.lease_seconds = lease_seconds
        self._arena: Arena | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the databases; the next storm opens others."""
        if self._arena is not None:
            self._arena.close()
        self._arena = None

    def decide(self, seed: int) -> tuple[Decision, ...]:
        """Return the decisions that `seed` draws."""
        return draw(seed, self.lease_seconds, self.workloads, self.faults)

    def observe(self, decisions: Iterable[Decision]) -> StormReport:
        """Let a storm pass, and report on it, whatever it broke."""
        if self._arena is None:
            self._arena = Arena()
        tempest = Tempest(self._arena, decisions, self.lease_seconds)
        clients = Clients(tempest)
        restless: tuple[Broken, ...] = ()
        try:
            tempest.begin()
            clients.begin()
            self._pass(tempest, clients)
        except Endless as error:
            restless = (Broken(_REST, str(error).partition("\n")[0]),)
        except BaseException:
            self.close()  # nobody knows how they were left
            raise
        finally:
            tempest.end()
        if tempest.scene.repeats:
            tempest.sightings.note("reply came twice under its key")
        broken = restless or (
            *tempest.broken,
            *find_broken(Aftermath(tempest, clients), self.oracles),
        )
        reached = dict(tempest.sightings.reached)
        return StormReport(tempest.decisions, tempest.effects, reached, broken)

    def _pass(self, tempest: Tempest, clients: Clients) -> None:
        """Let it rage, end every fault, and let all come to rest; then ask each session again."""
        last = max((end_of(one) for one in tempest.decisions), default=0.0)
        tempest.pass_time(max(last, _LAST_ASK_SECONDS))
        tempest.calm()
        tempest.pass_time(2 * self.lease_seconds + _MARGIN_SECONDS)
        self._wait(tempest, clients)
        for number, (session, component) in enumerate(_sessions(clients)):
            if tempest.machines:
                machine = sorted(tempest.machines)[number % len(tempest.machines)]
                clients.ask_last(f"last{number}", machine, component, session)
        self._wait(tempest, clients)

    def _wait(self, tempest: Tempest, clients: Clients) -> None:
        """Wait for the clients to end, and for messages and replies that are tried again."""
        for _ in range(_MOST_STEPS):
            if not (clients.busy or tempest.is_behind()):
                return
            tempest.pass_time(_STEP_SECONDS)

    def replay(self, decisions: Iterable[Decision]) -> StormReport:
        """Let a storm of these decisions pass.

        Raises:
            PromiseBroken: The first promise that it broke.
        """
        report = self.observe(decisions)
        if report.broken:
            raise PromiseBroken(report.decisions, report.broken[0], self.write_test(report))
        return report

    def run(self, seed: int, *, shrinks: int = 300) -> StormReport:
        """Let the storm of `seed` pass.

        Raises:
            PromiseBroken: With the least that was found to break it in so many more storms.
        """
        report = self.observe(self.decide(seed))
        if report.broken:
            promise = report.broken[0].promise
            least = self.observe(self.shrink(report.decisions, promise, shrinks))
            broken = next(one for one in least.broken if one.promise == promise)
            test = self.write_test(least, f"seed_{seed}")
            raise PromiseBroken(least.decisions, broken, test)
        return report

    def shrink(
        self, decisions: Sequence[Decision], promise: str, limit: int = 300
    ) -> tuple[Decision, ...]:
        """Return the least of `decisions` that was found to break `promise`."""

        def fails(some: Sequence[Decision]) -> bool:
            return any(one.promise == promise for one in self.observe(some).broken)

        return shrink(decisions, fails, limit)

    def write_test(self, report: StormReport, name: str = "again") -> str:
        """Return a test that lets the storm of `report` pass again."""
        given = "" if self.lease_seconds == 6.0 else f"lease_seconds={self.lease_seconds}"
        names = sorted({type(one).__name__ for one in report.decisions})
        imports = "".join(f"    {one},\n" for one in names)
        return (
            "from legation_testing import Storm\n"
            f"from legation_testing.swarm import (\n{imports})\n\n\n"
            f"def test_storm_{name}() -> None:\n"
            f"    Storm({given}).replay({write_decisions(report.decisions)})\n"
        )


def _sessions(clients: Clients) -> list[tuple[str, str]]:
    """Return each session that was asked for, with a component that runs in it."""
    return sorted({(one.ask.session, one.ask.component) for one in clients.asked.values()})
