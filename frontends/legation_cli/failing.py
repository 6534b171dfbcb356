"""How a command says that it cannot go on: one clear sentence, exit code 2, no traceback."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import click

from legation import ConfigurationError
from legation_host.errors import HostError

__all__ = ["CannotGoOn", "sentences"]


class CannotGoOn(click.ClickException):
    """Nothing more can be done; the message is for the person at the terminal."""

    exit_code = 2


@contextmanager
def sentences() -> Generator[None, None, None]:
    """Turn the errors an operator can mend into a sentence and exit code 2."""
    try:
        yield
    except (HostError, ConfigurationError) as error:
        raise CannotGoOn(str(error)) from None
