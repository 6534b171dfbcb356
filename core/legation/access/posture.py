"""The findings on security: settings that can be served, but are unsafe.

Every host asks here at its start, by the way in which requests reach it: the server, an ASGI
application, a program that embeds the platform.  So does `legation check`, which knows of no way.
Limits that do not limit are among the findings: one caller takes then what is another's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from ..config import DEFAULT_EXCLUDED_ROUTES, AuthorizationConfig, PlatformConfig
from ..findings import SEVERITIES, Finding, Severity, find, sort_findings
from ..http.cors import DEFAULT_ORIGIN
from ..http.refusals import Fault
from ..http.trust_guard import is_host_name
from ..shares.limits import PlatformLimits
from ..values import frozen
from .secret_strength import KEY_BITS, find_weakness

__all__ = [
    "SEVERITIES",
    "Door",
    "Finding",
    "Reach",
    "Severity",
    "is_plain_http",
    "posture",
]

Reach: TypeAlias = Literal["unknown", "machine", "network"]
"""Who reaches a platform: nobody knows, this machine alone, or others."""

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
_ENDLESS: Final = 'is without "exp": a token that has none is accepted for ever'
_NO_HOST: Final = "{!r} is not the name of a host and lets nobody in; one is as app.example.com"
_OFF: Final = "is off: whoever reaches it may do anything"
_PLAIN: Final = (
    "is off on an address that others reach: tokens and texts can be read on the way;"
    " --certfile serves TLS, and --trusted-proxy names a proxy that does"
)
_KEYLESS: Final = "are none: whoever writes to the database can forge a trail that is only chained"
_NO_HSTS: Final = "is off: a browser may be led to plain HTTP once"
_ANY_AUDIENCE: Final = "is off: a token that was issued for another service is taken"
_DEFAULT_PAGE: Final = f"pages of {DEFAULT_ORIGIN} may call the platform; false forbids it"
_READABLE: Final = "is not HTTPS: what is sent to {} can be read on the way"


@frozen
class Door:
    """The way in which requests reach a platform, as far as its host knows.

    Attributes:
        reach: From where requests come.
        local_only: Whether requests of other machines are refused where authorization is off.
        encrypted: Whether TLS ends here.
        proxied: Whether they come through a proxy that is trusted.
        hsts: Whether browsers are told to come by TLS alone (RFC 6797).
    """

    reach: Reach = "unknown"
    local_only: bool = False
    encrypted: bool = False
    proxied: bool = False
    hsts: bool = True


_UNKNOWN: Final = Door()


def posture(
    config: PlatformConfig, door: Door = _UNKNOWN, weak: Iterable[Fault] = ()
) -> tuple[Finding, ...]:
    """Return every unsafe setting of `config`, the gravest first.

    Args:
        config: The configuration.
        door: The way in which requests reach it.
        weak: The secrets of channels that can be guessed.
    """
    guessable = (find("secret_weak", one.path, one.message) for one in weak)
    return sort_findings((*_findings(config, door), *guessable))


def _findings(config: PlatformConfig, door: Door) -> Iterator[Finding]:
    if config.authorization:
        yield from _token_findings(config.authorization_config)
        if not config.audit.keys:
            yield find("audit_unkeyed", "audit.keys", _KEYLESS)
        if config.cors_default_origin and DEFAULT_ORIGIN not in config.cors_allowed_origins:
            yield find("default_origin_allowed", "platform.cors_default_origin", _DEFAULT_PAGE)
    else:
        alone = door.reach == "machine" or door.local_only
        yield find("authorization_off", "platform.authorization", _OFF, "low" if alone else None)
    yield from _door_findings(door)
    for index, template in enumerate(config.authorization_config.excluded_routes):
        if template not in _HARMLESS:
            where = f"authorization_config.excluded_routes[{index}]"
            yield find("route_open", where, f"{template} is open to everybody")
    yield from _origin_findings(config)
    yield from _address_findings(config)
    yield from _limit_findings(config.limits)


def _token_findings(authorization: AuthorizationConfig) -> Iterator[Finding]:
    """Yield what is unsafe about the tokens that are taken."""
    if not authorization.verify_audience:
        yield find("audience_unchecked", "authorization_config.verify_audience", _ANY_AUDIENCE)
    if "exp" not in authorization.require and authorization.max_lifetime_seconds is None:
        yield find("expiry_not_required", "authorization_config.require", _ENDLESS)
    if authorization.algorithm.startswith("HS"):
        for index, secret in enumerate(authorization.verification_keys):
            if (weakness := find_weakness(secret, KEY_BITS)) is not None:
                where = f"authorization_config.verification_keys[{index}]"
                yield find("secret_weak", where, weakness)


def _door_findings(door: Door) -> Iterator[Finding]:
    if door.reach == "network" and not door.encrypted and not door.proxied:
        yield find("tls_off", "server.tls", _PLAIN)
    if door.reach == "network" and door.encrypted and not door.hsts:
        yield find("hsts_off", "server.hsts", _NO_HSTS)


def _origin_findings(config: PlatformConfig) -> Iterator[Finding]:
    for index, origin in enumerate(config.cors_allowed_origins):
        where = f"platform.cors_allowed_origins[{index}]"
        if (parts := _ORIGIN.fullmatch(origin)) is None:
            yield find("origin_invalid", where, _NO_ORIGIN.format(origin))
        elif parts[1] != "https" and parts[2] not in _LOOPBACK:
            message = f"{origin} is not HTTPS: its pages can be forged on the way"
            yield find("origin_plain_http", where, message)
    for index, name in enumerate(config.allowed_hosts):
        if not is_host_name(name):
            yield find("host_invalid", f"platform.allowed_hosts[{index}]", _NO_HOST.format(name))


def _address_findings(config: PlatformConfig) -> Iterator[Finding]:
    """Yield the addresses of others to which keys, tokens and texts are sent in the clear."""
    if config.notify is not None and is_plain_http(config.notify.url):
        message = "is not HTTPS: what it is told of runs can be read on the way"
        yield find("plain_http", "notify.url", message)
    for model in config.models:
        if is_plain_http(getattr(model, "base_url", None)):
            where = f"models.{model.name}.base_url"
            yield find("plain_http", where, _READABLE.format("the model"))
    for channel in config.channels:
        for key in ("api_base_url", "reply_url"):
            if is_plain_http(getattr(channel, key, None)):
                where = f"channels.{channel.id}.{key}"
                yield find("plain_http", where, _READABLE.format("the channel"))


def is_plain_http(url: Any) -> bool:
    """Return whether `url` is plain HTTP to another machine."""
    try:
        parts = urlsplit(url or "")
        return parts.scheme == "http" and parts.hostname not in _HOSTS
    except ValueError:  # a host that is none
        return True


_OF_NODE: Final = ("runs", "model_calls", "streams", "followers")


def _limit_findings(limits: PlatformLimits) -> Iterator[Finding]:
    rate, burst = limits.requests_per_second, limits.request_burst
    if not rate:
        message = "is 0: whoever asks without end is answered"
        yield find("limit_off", "limits.requests_per_second", message)
    elif burst < rate:
        message = f"is less than requests_per_second ({rate:g}): who asks evenly is refused, too"
        yield find("limit_contradictory", "limits.request_burst", message)
    for name in _OF_NODE:
        own, of_node = getattr(limits, name), getattr(limits.node, name)
        if own > of_node:
            message = f"is more than limits.node.{name} ({of_node}): no node has so many"
            yield find("limit_contradictory", f"limits.{name}", message)
    for name in (*_OF_NODE, "waiting", "requests_per_second", "tokens_per_day", "stored_bytes"):
        nobody, everybody = getattr(limits.anonymous, name), getattr(limits, name)
        if nobody is not None and everybody is not None and nobody > everybody:
            message = f"is more than limits.{name} ({everybody:g}): who has no name gets more"
            yield find("limit_contradictory", f"limits.anonymous.{name}", message)
    if limits.stored_bytes is not None and limits.state_bytes > limits.stored_bytes:
        message = "is more than limits.stored_bytes: none is so large"
        yield find("limit_contradictory", "limits.state_bytes", message)
