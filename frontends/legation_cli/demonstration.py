"""The demonstration: the hotel, for whoever has no platform yet."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from legation import Platform

from .hotel import make_hotel

__all__ = ["demonstration"]


def demonstration(folder: Path) -> Platform:
    """Return the hotel, with its database in `folder`."""
    return make_hotel(f"sqlite:///{quote(str(folder / 'hotel.db'))}")
