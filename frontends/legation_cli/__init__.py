"""The `legation` command."""

from __future__ import annotations

from .imports import freeze_imports

with freeze_imports():
    from .main import main

__all__ = ["main"]
