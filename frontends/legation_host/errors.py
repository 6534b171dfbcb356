"""The errors that stop a host from starting, in sentences for the operator."""

from __future__ import annotations

__all__ = ["BadDatabaseUrl", "BadExporter", "HostError", "MissingDriver", "UnusableDatabase"]


class HostError(Exception):
    """Base class.  The message says what to change; it holds no password."""


class BadDatabaseUrl(HostError):
    """The URL of a database is none that this host knows."""


class BadExporter(HostError):
    """The exporter of spans needs a package that is not installed, or a setting of its own."""


class MissingDriver(HostError):
    """The database needs a package that is not installed."""


class UnusableDatabase(HostError):
    """The database opens but does not keep what it is asked to keep."""
