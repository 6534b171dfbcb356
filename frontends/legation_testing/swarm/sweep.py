"""Sweeps: many seeds, counted, over several processes and over several nights."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any, Final

from attrs import define, field

from .sometimes import SOMETIMES
from .storm import PromiseBroken, Storm

__all__ = ["Sweep", "add_up", "sweep", "sweep_range"]

_PART: Final = 100
"""So many seeds a process takes at a time."""


@define
class Sweep:
    """The sum of many storms.

    Attributes:
        sizes: The number of effects of each storm.
        cpu_seconds: The time of the processor that they took, in all.
        reached: In how many storms each state was reached.
        failures: By seed: the broken promise, with the test that shows it.
    """

    sizes: list[int] = field(factory=list[int])
    cpu_seconds: float = 0.0
    reached: Counter[str] = field(factory=Counter[str])
    failures: dict[int, str] = field(factory=dict[int, str])

    @property
    def never(self) -> tuple[str, ...]:
        """The states that no storm reached."""
        return tuple(name for name in SOMETIMES if not self.reached[name])

    @property
    def effects_per_second(self) -> float:
        """The effects in a second of one processor."""
        return sum(self.sizes) / self.cpu_seconds if self.cpu_seconds else 0.0

    def add(self, other: Sweep) -> None:
        """Count the storms of another sweep as well."""
        self.sizes += other.sizes
        self.cpu_seconds += other.cpu_seconds
        self.reached.update(other.reached)
        self.failures.update(other.failures)

    def __str__(self) -> str:
        """The figures in one line."""
        middle = int(median(self.sizes)) if self.sizes else 0
        return (
            f"{len(self.sizes)} seeds, {sum(self.sizes)} effects, "
            f"{self.effects_per_second:.0f} effects/s, median {middle}, "
            f"{len(SOMETIMES) - len(self.never)} of {len(SOMETIMES)} states reached, "
            f"{len(self.failures)} failures"
        )


def sweep(storm: Storm, seeds: Iterable[int], *, shrinks: int = 300) -> Sweep:
    """Let the storm of each seed pass, and count; a failure is shrunk, and ends nothing."""
    done, began = Sweep(), time.process_time()
    for seed in seeds:
        try:
            report = storm.run(seed, shrinks=shrinks)
        except PromiseBroken as failure:
            done.failures[seed] = str(failure)
            done.sizes.append(0)
        else:
            done.sizes.append(len(report.effects))
            done.reached.update(report.reached.keys())
    done.cpu_seconds = time.process_time() - began
    return done


def sweep_range(first: int, last: int, processes: int) -> Iterator[Sweep]:
    """Yield the sweeps over the parts of a range, in the order in which they end."""
    parts = [range(at, min(at + _PART, last)) for at in range(first, last, _PART)]
    if processes == 1:
        yield from map(_sweep_part, parts)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_sweep_part, parts)


def _sweep_part(seeds: range) -> Sweep:
    with Storm() as storm:
        return sweep(storm, seeds)


def add_up(results: Path, seeds: range, done: Sweep) -> Mapping[str, Any]:
    """Append `done` to the file of results, and return the sum of all that stands in it.

    A line for each sweep: its range of seeds and its figures, as JSON.  A seed that was tried twice
    counts once.
    """
    line = {
        "first": seeds.start,
        "last": seeds.stop,
        "effects": sum(done.sizes),
        "cpu_seconds": round(done.cpu_seconds, 3),
        "failed": sorted(done.failures),
        "reached": dict(sorted(done.reached.items())),
    }
    with results.open("a") as file:
        file.write(json.dumps(line) + "\n")
    lines = [json.loads(one) for one in results.read_text().splitlines()]
    tried = {seed for one in lines for seed in range(one["first"], one["last"])}
    reached = {name for one in lines for name in one["reached"]}
    return {
        "seeds": len(tried),
        "effects": sum(one["effects"] for one in lines),
        "failed": sorted({seed for one in lines for seed in one["failed"]}),
        "never": [name for name in SOMETIMES if name not in reached],
    }
