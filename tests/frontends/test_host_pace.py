"""A step of a run that took too long is named, and its program is closed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from legation.effects import Concurrently, Interrupted, Interruptible, Now, Program, Sleep
from legation_host import open_host
from legation_host.pace import Pace

from .host_units import BACKENDS, Lines, run

SLOW_SECONDS = 0.2
LABEL = json.dumps({"run_id": "r", "agent_id": "a"})


def work(seconds: float) -> None:
    due = time.thread_time() + seconds
    while time.thread_time() < due:
        pass


def slow(ends: list[str]) -> Program[str]:
    try:
        yield from Now()
        work(SLOW_SECONDS + 0.1)
        yield from Sleep(0)
    finally:
        ends.append("closed")
    return "its end"


def slow_at_last() -> Program[str]:
    yield from Now()
    work(SLOW_SECONDS + 0.1)
    return "its end"


def waits() -> Program[str]:
    yield from Sleep(0.01)
    time.sleep(SLOW_SECONDS + 0.1)  # a machine that has other things to do
    yield from Sleep(0)
    return "its end"


def wrapped(program: Program[str]) -> Program[str]:
    """Run `program` as what guards or carries a run does."""
    reply: object = None
    try:
        while True:
            reply = yield program.send(reply)
    except StopIteration as stop:
        return str(stop.value)
    finally:
        program.close()


def executed(program: Program[Any], label: str = LABEL) -> Program[Any]:
    return (yield from Interruptible(program, "stop", 60.0, label))


def outcome_of(backend: str, program: Callable[[], Program[Any]], lines: Lines) -> Any:
    found: list[Any] = []

    async def main() -> None:
        async with open_host(log=lines.write) as host:
            host.pace = Pace(lines.write, slow_seconds=SLOW_SECONDS)
            found.append(await host.run(program()))

    run(backend, main)
    return found[0]


@BACKENDS
def test_a_slow_step_is_named_with_its_place_and_its_program_closed(backend: str) -> None:
    lines, ends = Lines(), list[str]()

    outcome = outcome_of(backend, lambda: executed(wrapped(slow(ends))), lines)

    assert outcome == Interrupted("blocked")
    assert ends == ["closed"]
    ((level, event, fields),) = lines
    assert (level, event) == ("error", "run_blocked")
    assert (fields["run_id"], fields["agent_id"]) == ("r", "a")
    assert fields["seconds"] >= SLOW_SECONDS
    assert "> test_host_pace.py:" in fields["place"]
    assert " slow > " in fields["place"]


def test_what_runs_side_by_side_is_measured_too() -> None:
    lines = Lines()

    def both() -> Program[Any]:
        return (yield from Concurrently((waits(), slow([]))))

    assert outcome_of("trio", lambda: executed(both()), lines) == Interrupted("blocked")
    assert len(lines) == 1


def test_a_slow_last_step_counts() -> None:
    lines = Lines()

    assert outcome_of("trio", lambda: executed(slow_at_last()), lines) == Interrupted("blocked")
    assert lines[0][2]["place"] == "its end"


def test_who_only_waits_is_not_slow_and_who_has_no_label_is_not_measured() -> None:
    lines = Lines()

    assert outcome_of("trio", lambda: executed(waits()), lines) == "its end"
    assert outcome_of("trio", lambda: executed(slow([]), ""), lines) == "its end"
    assert not lines


def test_what_others_did_on_the_thread_before_a_step_is_not_its_own() -> None:
    pace = Pace(slow_seconds=SLOW_SECONDS)

    def waits_at_once() -> Program[None]:
        yield from Now()
        work(SLOW_SECONDS / 2)
        time.sleep(SLOW_SECONDS)
        yield from Now()

    for _ in range(2):
        step = pace.measure(LABEL, waits_at_once())
        assert step(None) == Now()
        work(SLOW_SECONDS)
        assert step(None) == Now()


def test_each_step_is_noted_while_it_lasts() -> None:
    seen: list[bytes | None] = []

    class Noting:
        def begin(self, label: bytes) -> None:
            seen.append(label)

        def end(self) -> None:
            seen.append(None)

    def program() -> Program[None]:
        yield from Now()

    step = Pace(noted=Noting()).measure(LABEL, program())
    assert step(None) == Now()
    assert seen == [LABEL.encode(), None]
