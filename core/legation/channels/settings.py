"""The checks of a channel's settings: a mistake stops the start, not a message."""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["base_url", "check_base_url", "check_segment", "check_token", "check_url"]

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,4096}")
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
_BASE_URL: Final = re.compile(r"https?://[\x21-\x7e]+")


def check_token(_: object, attribute: Any, value: str) -> None:
    """Refuse what cannot stand in a header; the value itself never shows in the message."""
    if not _TOKEN.fullmatch(value):
        raise ValueError(f"{attribute.name} must be visible ASCII characters")


def check_segment(_: object, attribute: Any, value: str) -> None:
    """Refuse what cannot stand as one segment of a path."""
    if not _SEGMENT.fullmatch(value):
        raise ValueError(f"{attribute.name} must be of letters, digits, '_' and '-'")


def base_url(value: str) -> str:
    """Return `value` without a slash at its end."""
    return value.rstrip("/")


def check_url(value: str) -> str | None:
    """Return what is wrong with `value` as an absolute http or https URL, or None."""
    return None if _BASE_URL.fullmatch(value) else "must be an http or https URL"


def check_base_url(_: object, attribute: Any, value: str) -> None:
    """Refuse what is not an absolute http or https URL."""
    if (wrong := check_url(value)) is not None:
        raise ValueError(f"{attribute.name} {wrong}")
