"""Exceptions of the author's own code, which no caller is told and which a test must not lose.

A tool, a function that is an agent, a model or a handler that raises is answered with a sentence
and an incident, as in production.  In a test the exception itself is wanted, with its traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from legation.effects import Raised
from legation.incidents import find_authors_frames
from legation.store.failures import StoreFailure

__all__ = ["find_surprises", "note_on", "open_group"]

_CAUSES: Final = 100
_NOTE_LINES: Final = 60
_LINE: Final = 500  # characters


def find_surprises(errors: Iterable[Exception], planned: Iterable[object]) -> tuple[Exception, ...]:
    """Return those of `errors` that were raised and that no test planned, each once.

    A database may always fail.
    """
    expected = {id(one.error if isinstance(one, Raised) else one) for one in planned}
    found: dict[int, Exception] = {}
    for error in errors:
        raised = error.__traceback__ is not None and not isinstance(error, StoreFailure)
        if raised and not _comes_from(error, expected):
            found[id(error)] = error
    return tuple(map(_trim, found.values()))


def open_group(errors: Collection[Exception]) -> ExceptionGroup[Exception]:
    """Return the group that a test ends with."""
    kinds = ", ".join(dict.fromkeys(type(error).__name__ for error in errors))
    sentence = (
        f"the platform's own code raised {kinds}, which callers are not told;"
        " where that is expected, look at client.take_errors(), or say raise_errors=False"
    )
    return ExceptionGroup(sentence, list(errors))


def note_on(failure: BaseException, errors: Iterable[Exception]) -> None:
    """Add to the failure of a test what the platform's own code raised before."""
    for error in errors:
        lines = "".join(traceback.format_exception(error)).splitlines()
        shown = [line[:_LINE] for line in lines[-_NOTE_LINES:]]
        failure.add_note("\n".join(("The platform's own code raised:", *shown)))


def _comes_from(error: BaseException, expected: Collection[int]) -> bool:
    return any(id(one) in expected for one in islice(_chain(error), _CAUSES))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _trim(error: Exception) -> Exception:
    """Return `error` with a traceback that begins in code that is not ours, where there is some."""
    trace = find_authors_frames(error)
    return error if trace is None else error.with_traceback(trace)
