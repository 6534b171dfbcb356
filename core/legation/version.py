"""Which release this is, and which version of the interface it serves."""

from __future__ import annotations

from typing import Final

__all__ = ["INTERFACE_VERSION", "VERSION"]

VERSION: Final = "0.1.0"
INTERFACE_VERSION: Final = "2.5.6"
