"""Storms: what a seed draws, what is found, how a failure shrinks, and that the faults are real."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from legation_testing import Storm, swarm
from legation_testing.swarm import (
    ORACLES,
    SOMETIMES,
    Aftermath,
    Ask,
    Cancel,
    Chance,
    Continue,
    Decision,
    Delete,
    Deliver,
    Drain,
    Kill,
    Misbehave,
    PowerCut,
    PromiseBroken,
    Settle,
    Stall,
    Start,
    StormReport,
    Sweep,
    shrink,
    sweep,
)
from legation_testing.swarm.decisions import end_of, write_decision, write_decisions
from legation_testing.swarm.sweep import add_up, sweep_range

from .cluster_kit import NIGHTLY
from .storm_faults import FAULTS, PlantedFault

pytestmark = pytest.mark.enumeration

ROOT: Final = Path(__file__).parents[2]
PARTS: Final = 16
SEEDS_OF_A_PART: Final = 14 if NIGHTLY else 6
GUARD: Final = Ask(0.0, 0, "r1", "s1", "guard", "use:3.0 say:1")
LOOK: Final = Ask(0.0, 0, "r1", "s1", "clerk", "look:1.0 say:1", "background")
BESIDE: Final = Ask(0.0, 0, "r1", "s1", "clerk", "look:0.5+use:3.0 use:1.0 say:1", "background")
MEMBER: Final = Ask(0.0, 0, "r1", "t1", "desk", "helper(look:3.0,say:1) say:1", "background")
RUNS: Final = Ask(0.0, 0, "r1", "s1", "clerk", "use:1.0 say:3", "streamed", key=True)


@pytest.fixture(scope="module")
def storms() -> Iterator[Storm]:
    with Storm() as made:
        yield made


def show(report: StormReport) -> list[str]:
    """Return every effect as text, without the addresses of functions."""
    return [re.sub(r" at 0x\w+", "", repr(one)) for one in report.effects]


# --- Seeds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(PARTS))
def test_storms_break_no_promise(storms: Storm, part: int, figures: Callable[[str], None]) -> None:
    first = part * SEEDS_OF_A_PART
    done = sweep(storms, range(first, first + SEEDS_OF_A_PART), shrinks=60)

    figures(f"storms {first} to {first + SEEDS_OF_A_PART - 1}: {done}")
    assert "\n".join(done.failures.values()) == ""


def test_seeds_draw_every_kind_of_decision(storms: Storm) -> None:
    drawn = {type(one) for seed in range(200) for one in storms.decide(seed)}

    assert drawn == set(get_args(Decision))


def test_seed_gives_the_same_effects(storms: Storm) -> None:
    for seed in range(3):
        decisions = storms.decide(seed)
        assert decisions == storms.decide(seed)
        assert show(storms.observe(decisions)) == show(storms.observe(decisions))


CODE: Final = """
import re, sys, hashlib
from legation_testing import Storm
with Storm() as storm:
    report = storm.observe(storm.decide(2))
shown = "\\n".join(re.sub(r" at 0x\\w+", "", repr(one)) for one in report.effects)
print(len(report.effects), hashlib.sha256(shown.encode()).hexdigest())
"""


def test_seed_gives_the_same_effects_in_other_processes() -> None:
    shown = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1")
    }

    assert len(shown) == 1


# --- The faults are real ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS.values(), ids=[name.replace(" ", "-") for name in FAULTS])
def test_planted_fault_is_found(fault: PlantedFault) -> None:
    """By the seed that was known to find it, and where the code moved on since, by another."""
    with Storm(workloads=fault.workloads, faults=fault.faults) as narrow:
        with fault.plant():
            found = next(
                seed for seed in fault.seeds() if narrow.observe(narrow.decide(seed)).broken
            )

        assert narrow.observe(narrow.decide(found)).broken == ()


@pytest.mark.parametrize(
    ("decisions", "state"),
    [
        ([Start(0), RUNS, PowerCut(1.0)], "all nodes died at once"),
        ([Start(0), RUNS, Misbehave(0.0, "tool", "hangs")], "tool took too long"),
        ([Start(0), Start(1), GUARD, Kill(1.0, 0)], "run ended by a doubt"),
        (
            [Start(0), Start(1), RUNS, Cancel(2.5, 1, "r1"), Kill(1.0, 0)],
            "run ended for a dead node",
        ),
        (
            [Start(0), Start(1), RUNS, Stall(1.0, 0, 17.0)],
            "taken over while its node was stalled",
        ),
        ([Start(0), Start(1), LOOK, Kill(1.0, 0, down=30.0)], "run gone on with on another node"),
        ([Start(0), LOOK, Drain(1.0, 0, 0.0)], "run gone on with behind a drain"),
        ([Start(0), RUNS, Drain(1.5, 0, 0.0)], "person asked about a doubt"),
        ([Start(0), RUNS, Drain(2.5, 0, 0.0)], "model asked again"),
        ([Start(0), BESIDE, Kill(2.0, 0)], "call known beside one in doubt"),
        ([Start(0), MEMBER, Kill(2.0, 0)], "member gone on with"),
        ([Start(0), LOOK, Misbehave(0.0, "tool", "kills", 4)], "run given up"),
        ([Start(0), RUNS, Drain(1.5, 0, 0.0), Settle(5.0, 0, "r1")], "doubt answered: confirm"),
        (
            [Start(0), RUNS, Drain(1.5, 0, 0.0), Settle(5.0, 0, "r1", "result")],
            "doubt answered: result",
        ),
        ([Start(0), RUNS, Ask(1.0, 0, "r2", "s1", "clerk", "say:1")], "run waits for its session"),
        ([Start(0), RUNS, Delete(1.0, 0, "s1", "main")], "run deleted under its followers"),
        (
            [
                Start(0),
                Ask(0.0, 0, "r1", "s1", "desk", "helper(permit:1.0,say:1) say:2"),
                Continue(1.0, 0, "r1", times=2),
            ],
            "continue met continue",
        ),
        ([Start(0), Deliver(0.0, 0, "m1", "ada", "say:2"), Misbehave(0.0, "people", "cut")],
         "reply came twice under its key"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)  # fmt: skip
def test_decisions_lead_where_they_should(
    storms: Storm, decisions: list[Decision], state: str
) -> None:
    assert storms.replay(decisions).reached[state] >= 1


def test_decisions_about_what_is_not_there_change_nothing(storms: Storm) -> None:
    alone = storms.replay([Start(0), RUNS])
    more: list[Decision] = [Kill(1.0, 7), Stall(1.0, 7, 3.0), Cancel(1.0, 0, "r9")]

    assert len(storms.replay([Start(0), RUNS, *more]).effects) == len(alone.effects)
    assert storms.replay([]).effects == []


# --- Failures -----------------------------------------------------------------------------------


def _no_cancelled_run(after: Aftermath) -> Iterator[str]:
    for run in after.runs.values():
        if run.status == "CANCELLED":
            yield f"{run.message} is cancelled"


@pytest.fixture
def toy() -> Iterator[Storm]:
    """A storm with a promise that cancellations break."""
    with Storm(oracles={**ORACLES, "nothing is cancelled": _no_cancelled_run}) as made:
        yield made


def fail(toy: Storm) -> tuple[int, PromiseBroken]:
    """Return the first seed that breaks the promise, and how."""
    for seed in range(40):
        try:
            toy.run(seed, shrinks=150)
        except PromiseBroken as failure:
            return seed, failure
    raise AssertionError("no seed cancelled a run")


def test_failure_shrinks_to_what_it_needs(toy: Storm) -> None:
    seed, failure = fail(toy)

    kinds = sorted(type(one).__name__ for one in failure.decisions)
    assert failure.broken.promise == "nothing is cancelled"
    assert kinds == ["Ask", "Cancel", "Start"]
    assert len(toy.decide(seed)) > 5


def test_failure_is_printed_as_a_test_that_fails_the_same_way(toy: Storm) -> None:
    seed, failure = fail(toy)
    text = str(failure).partition("\n\n")[2]
    names: dict[str, Any] = {}
    exec(compile(text.replace("Storm()", "toy"), "pasted", "exec"), names)

    names["toy"] = toy
    with pytest.raises(PromiseBroken) as again:
        names[f"test_storm_seed_{seed}"]()

    assert again.value.broken == failure.broken
    assert again.value.decisions == failure.decisions


@pytest.mark.parametrize("needed", [(), (3,), (0, 99), (10, 11, 12), tuple(range(0, 100, 9))])
def test_shrinking_keeps_what_is_needed_alone(needed: tuple[int, ...]) -> None:
    tried = list[int]()

    def fails(some: Any) -> bool:
        tried.append(len(some))
        return set(needed) <= set(some)

    assert shrink(range(100), fails, 1_000) == needed
    assert len(tried) < 1_000


def test_shrinking_is_bounded() -> None:
    tried = list[object]()

    def fails(some: Any) -> bool:
        tried.append(some)
        return False

    assert shrink(range(50), fails, 7) == tuple(range(50))
    assert len(tried) == 7


def test_decision_is_written_as_python_reads_it(storms: Storm) -> None:
    for seed in range(60):
        decisions = storms.decide(seed)
        assert eval(write_decisions(decisions), dict(vars(swarm))) == list(decisions)

    assert write_decision(Start(node=1)) == "Start(node=1)"
    assert write_decision(Chance(3)) == "Chance(seed=3)"
    assert end_of(Stall(1.0, 0, 5.0)) == 6.0


# --- Sweeps -------------------------------------------------------------------------------------


def test_ranges_add_up_over_nights(tmp_path: Path) -> None:
    results = tmp_path / "storm.jsonl"
    night = Sweep([10, 20], 1.0, failures={1: "broken"})
    night.reached.update(SOMETIMES[:3])
    add_up(results, range(2), night)
    other = Sweep([30, 40], 1.0)
    other.reached.update(SOMETIMES[3:])
    total = add_up(results, range(1, 3), other)

    assert total == {"seeds": 3, "effects": 100, "failed": [1], "never": []}
    assert [json.loads(line)["first"] for line in results.read_text().splitlines()] == [0, 1]
    assert "2 seeds, 30 effects, 30 effects/s, median 15, 3 of" in str(night)
    assert night.never == SOMETIMES[3:]


def test_range_is_swept_by_several_processes() -> None:
    alone, together = Sweep(), Sweep()
    for part in sweep_range(0, 4, 1):
        alone.add(part)
    for part in sweep_range(0, 4, 2):
        together.add(part)

    assert alone.sizes == together.sizes
    assert alone.reached == together.reached
    assert min(alone.sizes) > 0


@pytest.mark.parametrize(("seeds", "results"), [("0:3", True), ("0:1", False)])
def test_night_ends_with_a_failure_where_a_state_was_never_reached(
    tmp_path: Path, seeds: str, results: bool
) -> None:
    path = tmp_path / "storm.jsonl"
    named = {"LEGATION_STORM_RESULTS": str(path)} if results else {}
    night = subprocess.run(
        [sys.executable, "-m", "legation_testing.swarm"],
        env={**os.environ, "LEGATION_STORM_SEEDS": seeds, "LEGATION_STORM_PROCESSES": "1", **named},
        capture_output=True,
        text=True,
        check=False,
    )

    assert night.returncode == 1
    assert f"storm: {seeds[-1]} seeds" in night.stdout
    assert "never: " in night.stdout
    assert path.exists() is results
