"""Broken promises, as values."""

from __future__ import annotations

from attrs import frozen

__all__ = ["Broken"]


@frozen
class Broken:
    """A broken promise: which one, and what was found."""

    promise: str
    found: str
