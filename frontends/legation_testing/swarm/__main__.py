"""A night of storms: `python -m legation_testing.swarm`, as `nox -s storm` runs it.

The environment says which: `LEGATION_STORM_SEEDS` is a range, `0:20000`; of processes there are
`LEGATION_STORM_PROCESSES`; `LEGATION_STORM_RESULTS` names a file to which the figures are appended,
so that ranges add up over days.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .sweep import Sweep, add_up, sweep_range

__all__ = ["main"]


def main() -> int:
    """Sweep; 1 where a promise was broken, or a state was never reached."""
    first, _, last = os.environ.get("LEGATION_STORM_SEEDS", "0:2000").partition(":")
    seeds = range(int(first), int(last))
    processes = int(os.environ.get("LEGATION_STORM_PROCESSES", str(os.cpu_count() or 1)))
    done = Sweep()
    for part in sweep_range(seeds.start, seeds.stop, processes):
        done.add(part)
        for seed, failure in part.failures.items():
            sys.stdout.write(f"seed {seed}: {failure}\n")
        sys.stdout.flush()
    sys.stdout.write(f"storm: {done}\n")
    for name in done.never:
        sys.stdout.write(f"never: {name}\n")
    never, failed = bool(done.never), bool(done.failures)
    if results := os.environ.get("LEGATION_STORM_RESULTS"):
        total = add_up(Path(results), seeds, done)
        sys.stdout.write(f"all nights: {total}\n")
        never = bool(total["never"])
    return int(never or failed)


if __name__ == "__main__":
    sys.exit(main())
