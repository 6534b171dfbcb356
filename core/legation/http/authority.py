"""The authority of a request: the `Host` field and the form of the target.

Neither decides anything here, no route and no right.  They are checked because a proxy in front
may have decided by them, and because no honest client sends one that does not parse.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final

__all__ = ["origin_form", "well_formed_host"]

# RFC 3986 section 3.2.2.
_REG_NAME: Final = rb"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_FUTURE: Final = rb"\[[Vv][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+\]"
_IPV6: Final = rb"\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]"
_HOST: Final = re.compile(rb"(?:%b|%b|%b)(?::(?P<port>[0-9]{0,5}))?" % (_IPV6, _FUTURE, _REG_NAME))
_NO_TARGET: Final = re.compile(rb"[^\x21-\x7e]|#")
_ABSOLUTE: Final = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://(?P<authority>[^/?#]*)")


def well_formed_host(value: bytes) -> bool:
    """Say whether `value` is `uri-host [":" port]` (RFC 9112 section 3.2); the host may be empty.

    User information, paths, spaces and zone identifiers have no place in it.
    """
    matched = _HOST.fullmatch(value)
    if matched is None or int(matched["port"] or b"0") > 65535:
        return False
    return matched["v6"] is None or _is_ipv6(matched["v6"].decode("ascii"))


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def origin_form(target: bytes) -> bytes | None:
    """Return `target` in origin-form (RFC 9112 section 3.2.1); None where it has none.

    Absolute-form is accepted, as section 3.2.2 demands of every server; its authority has to be
    well formed and is dropped.  Bytes that no URI has, and a fragment, are refused.
    """
    if _NO_TARGET.search(target):
        return None
    if target.startswith(b"/"):
        return target
    matched = _ABSOLUTE.match(target)
    if matched is None or not well_formed_host(matched["authority"]):
        return None
    if matched["authority"].partition(b":")[0] == b"":  # RFC 9110 section 4.2.1
        return None
    rest = target[matched.end() :]
    return rest if rest.startswith(b"/") else b"/" + rest
