"""The look of a file from outside, by which a change of it is seen without reading it."""

from __future__ import annotations

import os
from typing import Final, TypeAlias

__all__ = ["LOOK_SECONDS", "Stamp", "stamp_file"]

LOOK_SECONDS: Final = 1.0
"""The pause between two looks at a file."""

Stamp: TypeAlias = tuple[int, int, int, int]


def stamp_file(path: str) -> Stamp:
    """Return what changes when the file does: another one in its place, its content, its mode.

    Raises:
        OSError: It is not there, or not to be seen.
    """
    found = os.stat(path)  # noqa: PTH116  one call for all facts
    return found.st_ctime_ns, found.st_mtime_ns, found.st_size, found.st_ino
