"""Programs against a script: the effects they must ask for, and the answers they get.

A script is the whole world of the program under test: no host, no clock, no database.

    assert play(read(call), [(FetchSession("s1"), None)]) == NoSuch("session", "s1")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, cast

import attrs

from legation.effects import Concurrently, Effect, Interruptible, Program
from legation.programs import intercept

from .matching import Expected, describe, matches, show
from .misuse import Misuse, check_effect, check_program, check_program_maker
from .unwinding import unwind

__all__ = ["Each", "OffScript", "Script", "close_at_every_effect", "effects_of", "play"]

R = TypeVar("R")

Script: TypeAlias = Iterable[tuple[Any, Any]]
"""Pairs of an effect (`Expected`) and its answer.  An exception is thrown in as the answer.

Not `tuple[Expected, Any]`: of a list of such pairs type checkers infer `object` before they look.
"""

Steps: TypeAlias = tuple[tuple[Expected, Any], ...]


class Each:
    """The answer to an effect that holds programs: a script for each of them.

    They are played one after the other, and the effect is answered with what they return.  With
    this in its script, `close_at_every_effect` closes inside of them as well.
    """

    def __init__(self, *scripts: Script) -> None:
        self.scripts: tuple[Steps, ...] = tuple(tuple(script) for script in scripts)


class OffScript(AssertionError):
    """The program did not do what the script says."""


def play(program: Program[R], script: Script) -> R:
    """Run `program` against `script` and return its result; what it raises is passed on.

    Raises:
        OffScript: It asked for another effect, for one more, or returned too early.
        Misuse: It is no program, or yields what is no effect.
    """
    check_program(program, "play")
    steps = _lay_out(script)
    result: R = _play_until(_open(program), steps, len(steps))
    return result


def effects_of(
    program: Program[R], answer: Callable[[Effect], Any], *, limit: int = 10_000
) -> tuple[tuple[Effect, ...], R]:
    """Run `program`, answering each effect with `answer(effect)`: the effects, and the result.

    Raises:
        OffScript: It asked for more than `limit` effects.
        Misuse: It is no program, or yields what is no effect.
    """
    check_program(program, "effects_of")
    asked: list[Effect] = []
    sent: Any = None
    while len(asked) <= limit:
        try:
            effect = _resume(program, sent)
        except StopIteration as stop:
            return tuple(asked), stop.value
        check_effect(effect)
        asked.append(effect)
        sent = answer(effect)
    _close(program)
    raise OffScript(f"more than {limit} effects; the last is {show(asked[-1])}")


def close_at_every_effect(make_program: Callable[[], Program[Any]], script: Script) -> int:
    """Close a fresh program at each effect of `script`; return at how many it was closed.

    Raises:
        YieldedWhileUnwinding: A closed program asked for something.  What else it raises while
            it unwinds is passed on with a note of the place.
        OffScript: The script is not the program's, so that effects of it would go untried.
        Misuse: `make_program` makes no program.
    """
    check_program_maker(make_program, "close_at_every_effect")
    whole = tuple(script)
    steps = _lay_out(whole)
    for position in range(len(steps)):
        made = make_program()
        check_program(made, "close_at_every_effect")
        program = _open(made)
        effect = _play_until(program, steps, position)
        unwind(program, f"at effect {position + 1} of {len(steps)}, {show(effect)}")
    _check_whole(make_program(), whole)
    return len(steps)


def _lay_out(script: Script) -> Steps:
    """Return the steps in their order, with those inside of others where they come."""
    steps: list[tuple[Expected, Any]] = []
    for expected, answer in script:
        steps.append((expected, answer))
        if isinstance(answer, Each):
            for inner in answer.scripts:
                steps.extend(_lay_out(inner))
    return tuple(steps)


def _open(program: Program[R]) -> Program[R]:
    """Run `program`, and the programs of each effect that is answered with `Each`."""
    return intercept(program, {Interruptible: _enter, Concurrently: _enter})


def _enter(effect: Interruptible[Any] | Concurrently[Any]) -> Program[Any]:
    """Run the programs of `effect` and return its answer; when one fails the others are closed."""
    answer: Any = yield effect
    if not isinstance(answer, Each):
        return answer
    programs = _programs_of(effect)
    results: list[Any] = []
    try:
        for program in programs:
            results.append((yield from _open(program)))
    finally:
        for program in programs:
            program.close()
    return tuple(results) if isinstance(effect, Concurrently) else results[0]


def _programs_of(effect: Effect) -> tuple[Program[Any], ...]:
    if isinstance(effect, Interruptible):
        return (effect.program,)
    return effect.programs if isinstance(effect, Concurrently) else ()


def _resume(program: Program[Any], answer: Any) -> Effect:
    if isinstance(answer, BaseException):
        return program.throw(answer)
    return program.send(answer)


def _play_until(program: Program[Any], steps: Steps, position: int) -> Any:
    """Return the effect at `position`; the result of the program behind the last of them."""
    answer: Any = None
    at = 0
    while True:
        try:
            effect = _resume(program, answer)
        except StopIteration as stop:
            if at < len(steps):
                raise _too_early(steps, at, stop.value) from None
            return stop.value
        _check(program, steps, at, effect)
        if at == position:
            return effect
        answer = steps[at][1]
        at += 1


def _check_whole(program: Program[Any], script: Script) -> None:
    check_program(program, "close_at_every_effect")
    try:
        play(program, script)
    except (OffScript, Misuse):
        raise
    except Exception:  # noqa: BLE001  the script may end in a failure that is passed on
        return


def _check(program: Program[Any], steps: Steps, position: int, effect: Effect) -> None:
    check_effect(effect)
    if position < len(steps) and matches(steps[position][0], effect):
        _check_each(effect, steps[position][1])
        return
    _close(program)
    if position >= len(steps):
        head = f"effect {position + 1} is beyond the script of {len(steps)}:"
        raise OffScript(f"{head}\n  {show(effect)}")
    expected = steps[position][0]
    lines = [
        f"effect {position + 1} of {len(steps)} is not the one expected",
        f"  expected  {describe(expected)}",
        f"  asked     {show(effect)}",
        *(f"  differs   {line}" for line in _differences(expected, effect, "")),
        *_rest(steps, position + 1),
    ]
    raise OffScript("\n".join(lines))


def _check_each(effect: Effect, answer: Any) -> None:
    """Refuse scripts for other programs than those of `effect`."""
    programs = _programs_of(effect)
    if not isinstance(answer, Each) or len(programs) == len(answer.scripts) > 0:
        return
    if not isinstance(effect, Interruptible | Concurrently):
        raise OffScript(f"no program is in {show(effect)}")
    raise OffScript(f"{len(answer.scripts)} scripts for {len(programs)} of {show(effect)}")


def _too_early(steps: Steps, position: int, result: Any) -> OffScript:
    head = f"returned after {position} of {len(steps)} effects: {show(result)}"
    return OffScript("\n".join([head, *_rest(steps, position)]))


def _rest(steps: Steps, start: int) -> list[str]:
    """Return the rest of the script, one line for each step."""
    rest = [
        f"  {number}. {describe(expected)} -> {show(answer)}"
        for number, (expected, answer) in enumerate(steps[start:], start + 1)
    ]
    return ["left of the script:", *rest] if rest else ["nothing is left of the script"]


def _close(program: Program[Any]) -> None:
    """Close a program that has failed already: how it unwinds is another test's question."""
    with suppress(Exception):
        program.close()


def _differences(expected: Any, actual: Any, path: str) -> Iterator[str]:
    """Yield where two values of the same shape part, as `unit.owner: 'ada', not 'eve'`."""
    parts = _parts(expected)
    others = _parts(actual)
    if type(expected) is type(actual) and parts and others and parts.keys() == others.keys():
        for name, part in parts.items():
            if part != others[name]:
                yield from _differences(part, others[name], f"{path}{name}.")
    elif path:
        yield f"{path.removesuffix('.')}: {show(expected)} expected, {show(actual)} asked"


def _parts(value: Any) -> Mapping[str, Any]:
    """Return the named parts of a composite value; none of a plain one."""
    if attrs.has(value.__class__):
        fields: Iterable[attrs.Attribute[Any]] = attrs.fields(value.__class__)
        return {a.name: getattr(value, a.name) for a in fields if a.eq}
    if isinstance(value, tuple):
        parts: tuple[Any, ...] = cast("Any", value)
        return {str(index): part for index, part in enumerate(parts)}
    if isinstance(value, Mapping):
        items: Mapping[Any, Any] = cast("Any", value)
        return {str(key): part for key, part in items.items()}
    return {}
