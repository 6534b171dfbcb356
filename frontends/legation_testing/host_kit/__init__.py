"""The kit that holds a host to its contract: `check_host`.

A host performs the effects of programs.  Any object with a method `run` can be checked, on two
databases that the kit makes, with an HTTP server of its own:

    check_host(make_host)
"""

from __future__ import annotations

from .bench import Case, HostSetup, HostUnderTest, MakeHost
from .cases import CASES
from .check import BrokenHost, BrokenRule, Report, check_host
from .portal import AsyncHost, portal_host

__all__ = [
    "AsyncHost",
    "BrokenHost",
    "BrokenRule",
    "Case",
    "HostSetup",
    "HostUnderTest",
    "MakeHost",
    "Report",
    "check_host",
    "host_cases",
    "portal_host",
]


def host_cases() -> tuple[Case, ...]:
    """Return every rule that a host is held to, in the order in which they are tried."""
    return CASES
