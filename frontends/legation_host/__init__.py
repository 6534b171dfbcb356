"""Performs the effects of Legation's programs, in a trio or asyncio event loop.

`open_host` opens what a process has; `Host.run` drives a program to its end.
"""

from __future__ import annotations

from .assets import read_assets
from .databases import Database, open_database
from .drive import BodySource, Sink
from .errors import BadDatabaseUrl, HostError, MissingDriver, Misuse, UnusableDatabase
from .host import Host, open_host
from .logs import Write, open_log

__all__ = [
    "BadDatabaseUrl",
    "BodySource",
    "Database",
    "Host",
    "HostError",
    "MissingDriver",
    "Misuse",
    "Sink",
    "UnusableDatabase",
    "Write",
    "open_database",
    "open_host",
    "open_log",
    "read_assets",
]
