"""The failures of a command: one clear sentence, exit code 2, no traceback."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

import click

from legation import ConfigurationError
from legation.store import failures
from legation.store.failures import StoreFailure
from legation_host.errors import HostError

__all__ = ["CannotGoOn", "sentences", "why"]

_WORDS: Final[Mapping[type[StoreFailure], str]] = {
    failures.Busy: "somebody else holds a lock",
    failures.CommitLost: "no answer came to the commit, and it may be done",
    failures.Conflict: "somebody else was faster",
    failures.DatabaseFull: "there is no space left, or nothing may be written there",
    failures.StatementFailed: "the database refused a statement",
    failures.Unavailable: "the database does not answer, or is damaged",
    failures.WrongSchema: "its schema is not that of this release; see `legation migrate --plan`",
}


class CannotGoOn(click.ClickException):
    """The failure of a command; the message is for the person at the terminal."""

    exit_code = 2


def why(failure: StoreFailure) -> str:
    """Return what a failure of a database means for the person at the terminal."""
    return _WORDS.get(type(failure)) or str(failure)


@contextmanager
def sentences() -> Generator[None, None, None]:
    """Turn the errors an operator can mend into a sentence and exit code 2."""
    try:
        yield
    except (HostError, ConfigurationError) as error:
        raise CannotGoOn(str(error)) from None
