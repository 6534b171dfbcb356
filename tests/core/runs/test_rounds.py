"""The rounds of a node; what logs them is tested with the reaper and the jobs of channels."""

from __future__ import annotations

from typing import Any

from legation.effects import Log, Now, Program, Sleep
from legation.runs.rounds import repeat
from legation.store.failures import Busy


def line(level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
    return Log(level, "round_failed", fields)


def test_the_same_trouble_is_logged_once_until_a_round_goes_well() -> None:
    outcomes: list[Exception | None] = [None, Busy(), Busy(), KeyError("x"), None, Busy()]

    def one_round() -> Program[None]:
        yield from Now()
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    program = repeat("main", one_round, line, Sleep(1.0), Sleep(5.0))
    effects: list[Any] = [next(program)]
    while outcomes:
        effects.append(program.send(None))
    effects += [program.send(None), program.send(None)]
    program.close()

    shown = [
        e.level if isinstance(e, Log) else e.seconds for e in effects if not isinstance(e, Now)
    ]
    assert shown == [1.0, "warning", 5.0, 5.0, "error", 5.0, 1.0, "warning", 5.0]
