"""`play` and its kin: a program does what the script says, or the message says what it did."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from legation.effects import (
    Asks,
    Concurrently,
    Effect,
    Interruptible,
    Log,
    Now,
    Program,
    RandomBytes,
    Sleep,
    Transact,
)
from legation.store.failures import Busy
from legation.store.units import Dialect, Statements, Unit
from legation_testing import (
    Each,
    OffScript,
    YieldedWhileUnwinding,
    close_at_every_effect,
    effects_of,
    play,
)

from .parcels import Claim, Finish, log_while_unwinding

NOW = 7


@frozen
class Greet(Unit[str]):
    """A unit to compare."""

    owner: str
    names: tuple[str, ...] = ()

    def statements(self, dialect: Dialect) -> Statements[str]:
        """Return at once."""
        return self.owner
        yield  # a unit without statements


def greet(owner: str) -> Program[str]:
    """Ask the clock, then the store; say so when the store is busy."""
    yield from Now()
    try:
        return (yield from Transact("main", Greet(owner, ("a", "b"))))
    except Busy:
        yield from Log("info", "busy")
        return "later"


def of_main(effect: Any) -> bool:
    """Tell whether `effect` is for the database `main`."""
    return bool(effect.database == "main")


def test_answers_are_sent_in_the_order_of_the_script() -> None:
    script = [(Now(), NOW), (Transact("main", Greet("ada", ("a", "b"))), "hello")]

    assert play(greet("ada"), script) == "hello"


def test_an_answer_that_is_an_exception_is_thrown_in() -> None:
    script = [(Now(), NOW), (Transact, Busy()), (Log("info", "busy"), None)]

    assert play(greet("ada"), script) == "later"


def test_what_the_program_raises_is_passed_on() -> None:
    with pytest.raises(ZeroDivisionError):
        play(greet("ada"), [(Now(), ZeroDivisionError())])


@pytest.mark.parametrize(
    "expected",
    [Transact, Asks, Greet, Greet("ada", ("a", "b")), of_main],
    ids=["type", "base", "type of unit", "unit", "predicate"],
)
def test_an_effect_can_be_meant_in_other_ways_than_by_value(expected: Any) -> None:
    assert play(greet("ada"), [(Now, NOW), (expected, "hello")]) == "hello"


def test_a_wrong_effect_is_shown_beside_the_expected_one_with_what_is_left() -> None:
    script = [
        (Now(), NOW),
        (Transact("main", Greet("ada", ("a", "c"))), "hello"),
        (RandomBytes(16), bytes(16)),
    ]

    with pytest.raises(OffScript) as failure:
        play(greet("eve"), script)

    assert str(failure.value) == (
        "effect 2 of 3 is not the one expected\n"
        "  expected  Transact(database='main', unit=Greet(owner='ada', names=('a', 'c')))\n"
        "  asked     Transact(database='main', unit=Greet(owner='eve', names=('a', 'b')))\n"
        "  differs   unit.owner: 'ada' expected, 'eve' asked\n"
        "  differs   unit.names.1: 'c' expected, 'b' asked\n"
        "left of the script:\n"
        f"  3. RandomBytes(size=16) -> {bytes(16)!r}"
    )


def test_values_in_a_mapping_are_compared_one_by_one() -> None:
    @frozen
    class Put(Unit[None]):
        row: dict[str, int]

        def statements(self, dialect: Dialect) -> Statements[None]:
            """Return at once."""
            return None
            yield  # a unit without statements

    def program() -> Program[None]:
        yield from Transact("main", Put({"a": 1, "b": 2}))

    with pytest.raises(OffScript, match=r"differs   unit\.row\.b: 3 expected, 2 asked"):
        play(program(), [(Transact("main", Put({"a": 1, "b": 3})), None)])


def test_an_effect_of_another_type_is_shown_without_a_comparison_of_fields() -> None:
    with pytest.raises(OffScript) as failure:
        play(greet("ada"), [(RandomBytes, b"")])

    assert str(failure.value) == (
        "effect 1 of 1 is not the one expected\n"
        "  expected  any RandomBytes\n"
        "  asked     Now()\n"
        "nothing is left of the script"
    )


def test_an_effect_beyond_the_script_is_shown() -> None:
    with pytest.raises(OffScript, match=r"effect 2 is beyond the script of 1:\n  Transact"):
        play(greet("ada"), [(Now(), NOW)])


def test_a_program_that_returns_early_is_shown_with_its_result() -> None:
    script = [(Now(), NOW), (Transact, "hello"), (Sleep(1.0), None)]

    with pytest.raises(OffScript) as failure:
        play(greet("ada"), script)

    assert str(failure.value) == (
        "returned after 2 of 3 effects: 'hello'\n"
        "left of the script:\n"
        "  3. Sleep(seconds=1.0) -> None"
    )


def test_a_program_off_its_script_is_closed() -> None:
    closed: list[bool] = []

    def program() -> Program[None]:
        try:
            yield from Now()
        finally:
            closed.append(True)

    with pytest.raises(OffScript):
        play(program(), [(Sleep, None)])

    assert closed == [True]


def test_a_program_can_be_recorded() -> None:
    def answer(effect: Effect) -> object:
        return NOW if effect == Now() else "hello"

    effects, result = effects_of(greet("ada"), answer)

    assert effects == (Now(), Transact("main", Greet("ada", ("a", "b"))))
    assert result == "hello"


def test_recording_ends_at_a_limit() -> None:
    def program() -> Program[None]:
        while True:
            yield from Now()

    with pytest.raises(OffScript, match=r"more than 10 effects; the last is Now\(\)"):
        effects_of(program(), lambda _: NOW, limit=10)


def test_a_program_is_closed_at_each_of_its_effects() -> None:
    script = [(Now(), NOW), (Transact, Busy()), (Log, None)]

    assert close_at_every_effect(lambda: greet("ada"), script) == 3


def test_a_program_whose_script_ends_in_a_failure_is_closed_at_each_of_its_effects() -> None:
    assert close_at_every_effect(lambda: greet("ada"), [(Now(), ZeroDivisionError())]) == 1


def test_a_program_that_yields_while_it_unwinds_is_found() -> None:
    with pytest.raises(YieldedWhileUnwinding) as failure:
        close_at_every_effect(log_while_unwinding, [(Now, NOW), (Now, NOW), (Log, None)])

    assert str(failure.value) == (
        "closed at effect 1 of 3, Now(), the program asked for "
        "Log(level='info', event='left', fields=())"
    )


def test_a_part_of_a_program_that_yields_while_it_unwinds_is_found() -> None:
    def program() -> Program[None]:
        yield from log_while_unwinding()

    with pytest.raises(YieldedWhileUnwinding, match=r"closed at effect 1 of 3.*yielded again"):
        close_at_every_effect(program, [(Now, NOW), (Now, NOW), (Log, None)])


def test_a_program_that_raises_while_it_unwinds_is_found() -> None:
    def program() -> Program[None]:
        try:
            yield from Now()
        except GeneratorExit:
            raise KeyError("x") from None

    with pytest.raises(KeyError) as failure:
        close_at_every_effect(program, [(Now(), NOW)])

    assert failure.value.__notes__ == [
        "raised while unwinding: the program was closed at effect 1 of 1, Now()"
    ]


@pytest.mark.parametrize(
    "script", [[(Now(), NOW)], [(Now(), NOW), (Finish, None)]], ids=["short", "wrong"]
)
def test_effects_that_are_not_in_the_script_do_not_go_untried(
    script: list[tuple[Effect, object]],
) -> None:
    with pytest.raises(OffScript):
        close_at_every_effect(lambda: greet("ada"), script)


def test_a_script_that_is_too_long_is_found_before_anything_is_closed_late() -> None:
    with pytest.raises(OffScript, match="returned after 2 of 3"):
        close_at_every_effect(lambda: greet("ada"), [(Now(), 1), (Transact, "x"), (Claim, None)])


# --- programs within effects


def beside() -> Program[Any]:
    """Greet two side by side, one of them for a while at most."""

    def bounded() -> Program[Any]:
        return (yield from Interruptible(greet("eve"), "stop", 1.0))

    return (yield from Concurrently((greet("ada"), bounded())))


HELLO: list[tuple[Any, Any]] = [(Now, NOW), (Transact, "hello")]


def test_programs_within_an_effect_are_played_with_a_script_of_their_own() -> None:
    nested = Each(HELLO, [(Interruptible, Each([(Now, NOW), (Transact, Busy()), (Log, None)]))])

    assert play(beside(), [(Concurrently, nested)]) == ("hello", "later")


def test_programs_within_an_effect_are_closed_at_every_effect_of_theirs() -> None:
    nested = Each(HELLO, [(Interruptible, Each(HELLO))])

    assert close_at_every_effect(beside, [(Concurrently, nested)]) == 6


def test_a_program_within_an_effect_that_yields_while_it_unwinds_is_found() -> None:
    def outer() -> Program[Any]:
        return (yield from Concurrently((greet("ada"), log_while_unwinding())))

    nested = Each(HELLO, [(Now, NOW), (Now, NOW), (Log, None)])
    with pytest.raises(YieldedWhileUnwinding):
        close_at_every_effect(outer, [(Concurrently, nested)])


def test_what_one_of_several_programs_raises_is_thrown_into_the_one_that_asked() -> None:
    def failing() -> Program[None]:
        yield from Now()
        raise Busy("locked")

    def outer() -> Program[str]:
        try:
            yield from Concurrently((failing(), greet("ada")))
        except Busy as failure:
            return str(failure)
        return ""

    assert play(outer(), [(Concurrently, Each([(Now, NOW)], []))]) == "locked"


@pytest.mark.parametrize("script", [[(Concurrently, Each(HELLO))], [(Concurrently, Each([], []))]])
def test_a_script_for_other_programs_is_off(script: list[tuple[Any, Any]]) -> None:
    with pytest.raises(OffScript):
        play(beside(), script)


def test_an_effect_without_programs_takes_no_scripts() -> None:
    with pytest.raises(OffScript, match="no program is in Now"):
        play(greet("ada"), [(Now, Each([]))])
