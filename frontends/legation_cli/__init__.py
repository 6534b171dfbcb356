"""The `legation` command."""

from __future__ import annotations

from .imports import kept

with kept():
    from .main import main

__all__ = ["main"]
