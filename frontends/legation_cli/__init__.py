"""The `legation` command."""

from __future__ import annotations

import gc

# What is imported stays: to look for garbage in it costs a tenth of the time to start.
gc.disable()

from .main import main  # noqa: E402

gc.enable()

__all__ = ["main"]
