"""The errors of a host: what stops it from starting, and what no host can perform."""

from __future__ import annotations

__all__ = [
    "BadDatabaseUrl",
    "BadExporter",
    "HostError",
    "LifeMisuse",
    "MissingDriver",
    "Misuse",
    "UnusableDatabase",
    "not_an_effect",
]


class HostError(Exception):
    """Base of what stops a host.  The message says what to change; it holds no password."""


class BadDatabaseUrl(HostError):
    """The URL of a database is none that this host knows."""


class BadExporter(HostError):
    """The exporter of spans or of metrics needs a package, or a setting of its own."""


class MissingDriver(HostError):
    """The database needs a package that is not installed."""


class UnusableDatabase(HostError):
    """The database opens but does not keep what it is asked to keep."""


class Misuse(Exception):
    """A program asked for what its host does not have: a database, a sink, an effect.

    It is not thrown into the program, which is closed: the error is of whoever runs it there.
    """


class LifeMisuse(Misuse):
    """A host or a platform was used outside its one life, or outside its event loop."""


def not_an_effect(asking: str, yielded: type[object]) -> str:
    """Return the sentence for what `asking` yields and no host performs, by its type."""
    name = yielded.__qualname__
    if yielded.__module__ != "builtins":
        name = f"{yielded.__module__}.{name}"
    return f"{asking} yields {name}, which is not an effect of legation.effects"
