"""The files of the documentation pages, which the build has put beside this module."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path

__all__ = ["read_assets"]


def read_assets() -> Mapping[str, memoryview]:
    """Return the files by name; none where the package runs from sources that were not built.

    They are mapped: three megabytes that few ever ask for take no memory until somebody does, and
    then all processes of the machine share it.
    """
    folder = Path(__file__).with_name("pages")
    try:
        return {path.name: _map_file(path) for path in sorted(folder.iterdir())}
    except FileNotFoundError:
        return {}


def _map_file(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
