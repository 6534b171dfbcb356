"""The id of a hosted agent, where only its name is known."""

from __future__ import annotations

import re

__all__ = ["make_id"]


def make_id(name: str) -> str:
    """Return `name` in lower case, with hyphens for everything that is no letter and no digit."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "agent"
