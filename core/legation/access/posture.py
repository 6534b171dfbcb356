"""What is unsafe in a configuration that can be served."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from ..config import DEFAULT_EXCLUDED_ROUTES, PlatformConfig
from ..values import frozen

__all__ = ["Finding", "posture"]

# Beside the default ones, what a load balancer asks: it tells states, and nothing of anybody.
_HARMLESS = frozenset({*DEFAULT_EXCLUDED_ROUTES, "/ready"})
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]", "::1")


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
        if origin in {"*", "null"} or (parts := _split(origin)) is None:
            yield Finding(where, f"{origin!r} is not an origin and allows nothing")
        elif parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            yield Finding(where, f"{origin} is not HTTPS: its pages can be forged on the way")


def _split(origin: str) -> SplitResult | None:
    try:
        return urlsplit(origin)
    except ValueError:  # brackets that hold no IPv6 address
        return None
