"""The version of the release, and of the interface that it serves."""

from __future__ import annotations

from typing import Final

__all__ = ["INTERFACE_VERSION", "VERSION"]

VERSION: Final = "0.1.0"
INTERFACE_VERSION: Final = "2.5.6"
