"""The rules of `Now`, `RandomBytes`, `ThisNode` and `Sleep`."""

from __future__ import annotations

from typing import Final

from legation.effects import (
    Concurrently,
    Interruptible,
    Now,
    Program,
    RandomBytes,
    Sleep,
    ThisNode,
)

from ..bench import (
    LONG,
    SHORT,
    Bench,
    Case,
    ask,
    ask_at_once,
    ask_in_vain,
    expect,
    require,
    time_program,
)

__all__ = ["CASES"]

_YEAR_2020_US: Final = 1_577_836_800_000_000
_YEAR_2200_US: Final = 7_258_118_400_000_000


def _microseconds(bench: Bench) -> Program[None]:
    now = yield from Now()
    expect("the type of the time", type(now), int)
    require(
        _YEAR_2020_US < now < _YEAR_2200_US,
        f"{now} is no time of this age in microseconds since 1970",
    )


def _forward(bench: Bench) -> Program[None]:
    before = yield from Now()
    for _ in range(1_000):
        now = yield from Now()
        require(now >= before, f"the clock went back from {before} to {now}")
        before = now


def _with_waits(bench: Bench) -> Program[None]:
    _, seconds = yield from time_program(ask(Sleep(SHORT)))
    require(
        SHORT * 0.8 < seconds < LONG,
        f"{SHORT} s of sleep were {seconds:.6f} s by the clock",
    )


def _sizes(bench: Bench) -> Program[None]:
    for size in (0, 1, 2, 16, 31, 32, 1_000, 100_000):
        data = yield from RandomBytes(size)
        expect("the type of random bytes", type(data), bytes)
        expect(f"the size of {size} random bytes", len(data), size)


def _unpredictable(bench: Bench) -> Program[None]:
    drawn: set[bytes] = set()
    for _ in range(1_000):
        drawn.add((yield from RandomBytes(16)))
    expect("different among 1,000 draws of 16 bytes", len(drawn), 1_000)
    ones = sum(byte.bit_count() for data in drawn for byte in data)
    require(
        abs(ones - 64_000) < 2_000,  # eleven deviations of a fair coin
        f"of 128,000 random bits {ones:,} are ones",
    )


def _same_name(bench: Bench) -> None:
    def everywhere() -> Program[list[str]]:
        own = yield from ThisNode()
        inner = yield from Interruptible(ask(ThisNode()), bench.name("topic"), LONG)
        both = yield from Concurrently((ask(ThisNode()), ask(ThisNode())))
        return [own, str(inner), *both]

    names = bench.run(everywhere()) + bench.run(everywhere())
    require(names[0], "the node has no name")
    expect("the names of one node", names, [names[0]] * 8)


def _sleep_lasts(bench: Bench) -> Program[None]:
    expect("a sleep was answered", (yield from ask_in_vain(Sleep(SHORT))), None)


def _sleep_of_nothing(bench: Bench) -> Program[None]:
    for seconds in (0, 0.0, -1.0):
        answer = yield from ask_at_once(Sleep(seconds))
        expect(f"a sleep of {seconds} s was answered", answer, None)


CASES: Final = (
    Case(
        "Now.microseconds",
        Now,
        "`Now` is the wall clock in whole microseconds since 1970",
        _microseconds,
    ),
    Case("Now.forward", Now, "`Now` does not go back from one asking to the next", _forward),
    Case("Now.with_waits", Now, "`Now` moves on while a program waits, as much", _with_waits),
    Case(
        "RandomBytes.size",
        RandomBytes,
        "`RandomBytes` are exactly as many as were asked for",
        _sizes,
    ),
    Case(
        "RandomBytes.unpredictable",
        RandomBytes,
        "`RandomBytes` never come twice, and their bits are fair",
        _unpredictable,
    ),
    Case(
        "ThisNode.constant",
        ThisNode,
        "`ThisNode` is the same name for all programs from start to end",
        _same_name,
    ),
    Case("Sleep.lasts", Sleep, "`Sleep` lasts as long as it says", _sleep_lasts),
    Case("Sleep.nothing", Sleep, "`Sleep` of no time, or of less, ends at once", _sleep_of_nothing),
)
