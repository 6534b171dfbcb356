"""Closing a program, and noticing when it does not let itself be closed.

Cancellation, a client that left and a shutdown all close a program where it stands.  A program
that yields while it unwinds asks for something when nobody answers any more.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from legation.effects import Program

from .matching import show

__all__ = ["YieldedWhileUnwinding", "unwind"]

# What CPython says of a generator that yields although it is being closed, inside of another.
_IGNORED: Final = "generator ignored GeneratorExit"


class YieldedWhileUnwinding(AssertionError):
    """A program that was closed asked for another effect."""


def unwind(program: Program[Any], where: str) -> None:
    """Close `program` as a cancellation does; `where` says in a failure what it was doing.

    Raises:
        YieldedWhileUnwinding: It yielded.  Whatever else it raises is passed on, with a note.
    """
    try:
        effect = program.throw(GeneratorExit())
    except (GeneratorExit, StopIteration):
        return
    except Exception as error:
        if str(error) == _IGNORED:
            raise YieldedWhileUnwinding(f"closed {where}, the program yielded again") from None
        error.add_note(f"raised while unwinding: the program was closed {where}")
        raise
    _abandon(program)
    raise YieldedWhileUnwinding(f"closed {where}, the program asked for {show(effect)}")


def _abandon(program: Program[Any]) -> None:
    with suppress(RuntimeError):
        program.close()
