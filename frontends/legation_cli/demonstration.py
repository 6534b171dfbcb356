"""The demonstration: the hotel, for whoever has no platform yet."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from legation import Platform

from .hotel import make_hotel

__all__ = ["demonstration"]


def demonstration(folder: Path, *, pause_seconds: float = 0.03) -> Platform:
    """Return the hotel, with its database in `folder`.

    Its agents pause between two words, so that an answer can be seen to come.
    """
    url = f"sqlite:///{quote(str(folder / 'hotel.db'))}"
    return make_hotel(url, pause_seconds=pause_seconds)
