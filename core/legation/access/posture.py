"""The findings on security: settings that can be served, but are unsafe.

Limits that do not limit are among them: one caller takes then what is another's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from ..config import DEFAULT_EXCLUDED_ROUTES, PlatformConfig
from ..shares.limits import PlatformLimits
from ..values import frozen

__all__ = ["Finding", "posture"]

# Beside the default ones, what a load balancer asks: it tells states, and nothing of anybody.
_HARMLESS = frozenset({*DEFAULT_EXCLUDED_ROUTES, "/ready"})
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOSTS = ("localhost", "127.0.0.1", "::1")
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
    if config.notify is not None and _is_open(config.notify.url):
        yield Finding("notify.url", "is not HTTPS: what it is told of runs can be read on the way")
    yield from _limit_findings(config.limits)


def _is_open(url: str) -> bool:
    """Return whether `url` is plain HTTP to another machine."""
    try:
        return url.startswith("http://") and urlsplit(url).hostname not in _HOSTS
    except ValueError:  # a host that is none
        return True


_OF_NODE: Final = ("runs", "model_calls", "streams", "followers")


def _limit_findings(limits: PlatformLimits) -> Iterator[Finding]:
    rate, burst = limits.requests_per_second, limits.request_burst
    if not rate:
        yield Finding("limits.requests_per_second", "is 0: whoever asks without end is answered")
    elif burst < rate:
        message = f"is less than requests_per_second ({rate:g}): who asks evenly is refused, too"
        yield Finding("limits.request_burst", message)
    for name in _OF_NODE:
        own, of_node = getattr(limits, name), getattr(limits.node, name)
        if own > of_node:
            message = f"is more than limits.node.{name} ({of_node}): no node has so many"
            yield Finding(f"limits.{name}", message)
    for name in (*_OF_NODE, "waiting", "requests_per_second", "tokens_per_day", "stored_bytes"):
        nobody, everybody = getattr(limits.anonymous, name), getattr(limits, name)
        if nobody is not None and everybody is not None and nobody > everybody:
            message = f"is more than limits.{name} ({everybody:g}): who has no name gets more"
            yield Finding(f"limits.anonymous.{name}", message)
    if limits.stored_bytes is not None and limits.state_bytes > limits.stored_bytes:
        yield Finding("limits.state_bytes", "is more than limits.stored_bytes: none is so large")
