"""The findings on security: settings that can be served, but are unsafe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..config import DEFAULT_EXCLUDED_ROUTES, PlatformConfig
from ..values import frozen

__all__ = ["Finding", "posture"]

# Beside the default ones, what a load balancer asks: it tells states, and nothing of anybody.
_HARMLESS = frozenset({*DEFAULT_EXCLUDED_ROUTES, "/ready"})
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# As browsers write it (RFC 6454 section 6.2): small letters, no path, no port that is the usual.
_ORIGIN: Final = re.compile(
    r"(?!http://[^/]*:80\Z|https://[^/]*:443\Z)"
    r"([a-z][a-z0-9+.-]*)://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"
)
_NO_ORIGIN: Final = "{!r} is not an origin and allows nothing; one is as https://app.example.com"


@frozen
class Finding:
    """One unsafe setting: where, and why it is."""

    path: str
    message: str


def posture(config: PlatformConfig) -> tuple[Finding, ...]:
    """Return every unsafe setting of `config`."""
    return tuple(_findings(config))


def _findings(config: PlatformConfig) -> Iterator[Finding]:
    if not config.authorization:
        yield Finding("platform.authorization", "is off: whoever reaches it may do anything")
    for index, template in enumerate(config.authorization_config.excluded_routes):
        if template not in _HARMLESS:
            where = f"authorization_config.excluded_routes[{index}]"
            yield Finding(where, f"{template} is open to everybody")
    for index, origin in enumerate(config.cors_allowed_origins):
        where = f"platform.cors_allowed_origins[{index}]"
        if (parts := _ORIGIN.fullmatch(origin)) is None:
            yield Finding(where, _NO_ORIGIN.format(origin))
        elif parts[1] != "https" and parts[2] not in _LOOPBACK:
            yield Finding(where, f"{origin} is not HTTPS: its pages can be forged on the way")
