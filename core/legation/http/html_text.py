"""Text within HTML.

The library's own function brings the table of all named characters with it, which nobody asks here:
half a MiB.
"""

from __future__ import annotations

from typing import Final

__all__ = ["escape"]

_ESCAPED: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}
)


def escape(text: str) -> str:
    """Return `text` as HTML shows it, between tags and within a quoted attribute."""
    return text.translate(_ESCAPED)
