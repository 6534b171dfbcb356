"""The rounds of a node; the log of each kind is tested with the reaper and the jobs of channels."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from legation.effects import Effect, Log, Now, Program, Sleep
from legation.runs.rounds import Attempt, Pause, attempt, repeat
from legation.store.failures import Busy
from legation_testing import play


@define
class Scripted:
    """Rounds with these outcomes, in turn: trouble, or whether there is more at once."""

    outcomes: list[Exception | bool]
    database: str = "main"
    pause: Pause = field(factory=lambda: Sleep(1.0))
    after_trouble: Pause = field(factory=lambda: Sleep(5.0))

    def round(self) -> Program[bool]:
        yield from Now()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        return Log(level, "reaper_round_failed", fields)


def test_the_same_trouble_is_logged_once_until_a_round_goes_well() -> None:
    rounds = Scripted([False, Busy(), Busy(), KeyError("x"), False, Busy()])
    program = repeat(rounds)
    effects: list[Any] = [next(program)]
    while rounds.outcomes:
        effects.append(program.send(None))
    effects += [program.send(None), program.send(None)]
    program.close()

    shown = [
        e.level if isinstance(e, Log) else e.seconds for e in effects if not isinstance(e, Now)
    ]
    assert shown == [1.0, "warning", 5.0, 5.0, "error", 5.0, 1.0, "warning", 5.0]


def test_there_is_no_pause_while_there_is_more() -> None:
    program = repeat(Scripted([True, True, False]))
    effects = [next(program), *(program.send(None) for _ in range(3))]
    program.close()

    assert effects == [Now(), Now(), Now(), Sleep(1.0)]


def names_main(effect: Effect) -> bool:
    return isinstance(effect, Log) and effect.fields[0] == ("database", "main")


def test_one_attempt_says_what_failed_and_logs_it_unless_that_is_known() -> None:
    known = attempt(Scripted([Busy()]))
    found = play(known, [(Now(), 0), (names_main, None)])

    assert found.trouble.startswith("Busy")
    assert play(attempt(Scripted([Busy()]), found.trouble), [(Now(), 0)]) == found
    assert play(attempt(Scripted([True])), [(Now(), 0)]) == Attempt("", more=True)
