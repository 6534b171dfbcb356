"""The address of the client, where a trusted proxy says for whom it speaks.

Each proxy appends the address it was spoken to from, so the list is read from its right end: as
long as the one who said it is trusted, what it said counts.  Whatever stands further left was
written by the client itself and is never believed.  Only the address for the audit and for limits
comes from here; host, scheme and path never do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import islice
from typing import Final, Literal, TypeAlias

from legation.http.messages import Headers
from legation.values import frozen

__all__ = ["NO_PROXIES", "UNIX", "BadNetwork", "Named", "Proxies", "parse_networks", "plain"]

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Named: TypeAlias = Literal["x-forwarded-for", "forwarded"]

UNIX: Final = "unix"
"""Stands for whoever connects to a Unix socket."""

_HOPS: Final = 32
"""Elements looked at, from the right.  A real chain has two or three."""

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = r'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'
_PAIR: Final = rf"{_WORD}=(?:{_WORD}|{_QUOTED})"
_ELEMENT: Final = re.compile(rf"[ \t]*(?:{_PAIR})(?:[ \t]*;[ \t]*(?:{_PAIR}))*[ \t]*")
_FOR: Final = re.compile(rf"(?:^|;)[ \t]*for=({_WORD}|{_QUOTED})", re.IGNORECASE)
# An element, in a text that is turned round: a quotation mark is a part of a quoted text where an
# odd number of backslashes follows.  A text without its other end is taken to the end of all.
_KEPT: Final = r'"(?=\\(?:\\\\)*+(?!\\))'
_BACKWARDS: Final = re.compile(rf'(?:[^",]++|"(?:[^"]++|{_KEPT})*+(?:"|\Z))++')
_WITH_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?")


class BadNetwork(Exception):
    """It is not the address of a network; the message is one sentence for the operator."""


@frozen
class Proxies:
    """The proxies that are trusted, and the header in which they name their client.

    Attributes:
        networks: Of the proxies.
        unix: Whether whoever connects to a Unix socket is one.
        header: The one header that all of them write.  A proxy passes the other one on as the
            client sent it, so it must be known which is theirs.
    """

    networks: tuple[Network, ...] = ()
    unix: bool = False
    header: Named = "x-forwarded-for"

    def trusts(self, peer: str) -> bool:
        """Tell whether `peer` is a proxy: an address, or empty for a Unix socket."""
        if not peer:
            return self.unix
        address = _address(peer)
        return address is not None and self._lists(address)

    def client(self, peer: str, headers: Headers) -> str:
        """Return the address of the client for whom `peer`, a trusted proxy, sends `headers`.

        Args:
            peer: Returned where nothing else can be believed.
            headers: Of one request, names in lower case.
        """
        wanted = self.header.encode("ascii")
        lines = [value for name, value in headers if name == wanted]
        nearest = peer
        for element in self._from_the_right(b",".join(lines).decode("latin-1")):
            address = _address(element)
            if address is None:
                return nearest
            nearest = str(address)
            if not self._lists(address):
                return nearest
        return nearest

    def _lists(self, address: Address) -> bool:
        return any(address in network for network in self.networks)

    def _from_the_right(self, value: str) -> list[str]:
        if self.header == "x-forwarded-for":
            return [element.strip() for element in value.rsplit(",", _HOPS)[::-1][:_HOPS]]
        elements = islice(_BACKWARDS.finditer(value[::-1]), _HOPS)
        return [_for(element[0][::-1]) for element in elements]


NO_PROXIES: Final = Proxies()


def parse_networks(texts: Iterable[str], header: Named = "x-forwarded-for") -> Proxies:
    """Return the proxies at `texts`: networks in CIDR notation, addresses, or `unix`.

    Raises:
        BadNetwork: One of them is none of these.
    """
    networks: list[Network] = []
    unix = False
    for text in texts:
        if text == UNIX:
            unix = True
            continue
        try:
            networks.append(ip_network(text))
        except ValueError:
            example = "10.0.0.0/8, ::1 or unix"
            raise BadNetwork(f"{text!r} is not a network of proxies: write {example}") from None
    return Proxies(tuple(networks), unix, header)


def plain(peer: str) -> str:
    """Return the address of a peer; that of IPv4 as such, also on a socket for both families."""
    mapped = peer.removeprefix("::ffff:")
    return mapped if "." in mapped else peer


def _for(element: str) -> str:
    """Return what stands after `for=` (RFC 7239 section 4); empty where nothing can be read."""
    if _ELEMENT.fullmatch(element) is None:
        return ""
    found = _FOR.findall(element)
    return found[0].strip('"') if len(found) == 1 else ""


def _address(text: str) -> Address | None:
    """Return the address in `text`, which may have a port; None for a name or a pseudonym."""
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((match[1] or match[2]) if match else text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
