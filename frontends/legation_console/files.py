"""The files of the console, for a host that hands them to its platform."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["read_console"]

_SERVED: Final = {".css", ".js"}


def read_console() -> Mapping[str, memoryview]:
    """Return the files by name, as `main.js` and `parts/table.js`.

    They are mapped: until somebody opens the console they take no memory, and then all processes
    of the machine share it.
    """
    folder = Path(__file__).with_name("pages")
    return {
        path.relative_to(folder).as_posix(): _map_file(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in _SERVED
    }


def _map_file(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
