"""Versions of the schema: three numbers, and nothing else.

The grammar is `v?N[.N[.N]]` in ASCII digits.  Pre-releases, epochs and local parts (PEP 440) are
not versions here: each of them compares in a way that surprises whoever typed it into a URL.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from ..values import frozen

__all__ = ["EMPTY", "MalformedVersion", "Version", "parse_version"]

_GRAMMAR: Final = re.compile(r"v?([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")
_SHOWN: Final = 40  # characters of a malformed text that are repeated to the caller


# A tuple, because every look at where a database stands compares several of them.
class Version(NamedTuple):
    """A version of the schema; versions compare number by number."""

    major: int
    minor: int = 0
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


EMPTY: Final = Version(0, 0, 0)
"""The version of a database that holds nothing of the platform."""


@frozen
class MalformedVersion:
    """`text` is not of the grammar."""

    text: str

    @property
    def detail(self) -> str:
        """One sentence for the caller."""
        return f"{self.text[:_SHOWN]!a} is not a version: expected up to three numbers, as 2.5.6"


@lru_cache(maxsize=64)  # the few of a ledger are read again and again
def parse_version(text: str) -> Version | MalformedVersion:
    """Return the version that `text` names; parts left out are 0, so `2.5` is `2.5.0`."""
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        return MalformedVersion(text)
    major, minor, patch = (int(part or 0) for part in match.groups())
    return Version(major, minor, patch)
