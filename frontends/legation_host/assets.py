"""The files of the documentation pages, which the build has put beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["read_assets"]


def read_assets() -> Mapping[str, bytes]:
    """Return the files by name; none where the package runs from sources that were not built."""
    folder = Path(__file__).with_name("pages")
    try:
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    except FileNotFoundError:
        return {}
