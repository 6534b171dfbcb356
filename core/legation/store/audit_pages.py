"""Pages of the audit trail: a batch of entries of one writer, sealed and chained.

A page has the Merkle root of its lines (RFC 6962 section 2.1) and a hash over this root, its place
and the hash of the page before it.  With a signing key the hash is an HMAC: who can write to the
database, and does not have the key, can neither change a page nor make one.  Without a key it is a
plain SHA-256, and the trail is *only chained*: whoever rewrites all that follows a change is found
by a head alone, that was kept elsewhere.

A chain has one writer, because two that append at the same moment could not agree on what came
before.  It is signed as a whole or not at all: `signed/` begins the name of the writer of a signed
chain, and no other, so that a page without a signature never hides among signed ones.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import field

from ..values import frozen
from .audit_entries import Line, encode_json, encode_line

__all__ = [
    "CHAINED",
    "MAX_ENTRIES",
    "NO_KEYS",
    "SIGNED",
    "SPAN_US",
    "Head",
    "KeyRing",
    "Page",
    "SigningKey",
    "compute_root",
    "hash_page",
    "parse_head",
    "seal_page",
    "split_lines",
    "writer_name",
]

MAX_ENTRIES: Final = 256
"""The most entries of a page."""

SPAN_US: Final = 1_000_000
"""The longest time between two entries of a page, in microseconds."""

SIGNED: Final = "signed/"
CHAINED: Final = "chained/"


@frozen
class SigningKey:
    """A secret that signs pages of the trail, and its id, which pages name."""

    id: str
    secret: bytes = field(repr=False)


@frozen
class KeyRing:
    """The keys of a trail: the first one signs, all of them verify.

    Attributes:
        signing: The key that signs; None where the trail is only chained.
    """

    keys: tuple[SigningKey, ...] = ()
    signing: SigningKey | None = field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "signing", self.keys[0] if self.keys else None)

    def find(self, key_id: str) -> SigningKey | None:
        """Return the key with this id, or None."""
        return next((key for key in self.keys if key.id == key_id), None)


NO_KEYS: Final = KeyRing()


@frozen
class Head:
    """The end of a chain, or what was its end once.  As text: `writer:seq:hash`."""

    writer: str
    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.writer}:{self.seq}:{self.hash}"


def parse_head(text: str) -> Head | None:
    """Return the head that `text` is, or None."""
    place, _, hashed = text.rpartition(":")
    writer, _, seq = place.rpartition(":")
    if not (writer and seq.isascii() and seq.isdigit() and len(seq) < 20 and len(hashed) == 64):
        return None
    return Head(writer, int(seq), hashed)


@frozen
class Page:
    """A page as it is stored.

    Attributes:
        last: The number of its last entry; the first entry of a chain has number 1.
        count: The number of its entries.
        from_us: The earliest time of an entry, in microseconds since the epoch.
        to_us: The latest one, at most `SPAN_US` later.
        key_id: The id of the key that signed it; empty where none did.
        root: The Merkle root of its lines.
        previous: The hash of the page before it; empty for the first one.
        hash: Its own, with the key; see `hash_page`.
        data: The lines, joined by line feeds; empty in a stub.
    """

    writer: str
    last: int
    count: int
    from_us: int
    to_us: int
    key_id: str
    root: str
    previous: str
    hash: str
    data: str

    @property
    def first(self) -> int:
        """The number of its first entry."""
        return self.last - self.count + 1

    @property
    def is_stub(self) -> bool:
        """Whether its lines were pruned: of a chain of which all is old the last seal stays.

        By it the chain goes on where it ended, so that no number is given twice.
        """
        return not self.data

    @property
    def head(self) -> Head:
        """The page as the end of its chain."""
        return Head(self.writer, self.last, self.hash)


def writer_name(name: str, key: SigningKey | None) -> str:
    """Return the writer of the chain of `name`: one chain if it is signed, else another."""
    return f"{CHAINED if key is None else SIGNED}{name}"


def compute_root(lines: Iterable[str]) -> str:
    """Return the Merkle root of `lines`, one at least, as hexadecimal digits.

    RFC 6962 section 2.1: what has no neighbour on its level goes up as it is.
    """
    sha256 = hashlib.sha256
    level = [sha256(b"\0" + line.encode()).digest() for line in lines]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(b"\1" + left + right).digest() for left, right in pairs]
        level = above + level[-1:] if len(level) % 2 else above
    return level[0].hex()


def hash_page(page: Page, key: SigningKey | None) -> str:
    """Return the hash that `page` has: HMAC-SHA256 with `key`, or SHA-256 without one.

    It covers the place of the page and, by the root, its lines.
    """
    times = (page.from_us, page.to_us)
    return _hash(
        (page.previous, page.writer, page.last, page.count, *times, page.key_id, page.root), key
    )


def _hash(place: tuple[str | int, ...], key: SigningKey | None) -> str:
    content = encode_json(place).encode()
    if key is None:
        return hashlib.sha256(content).hexdigest()
    return hmac.digest(key.secret, content, "sha256").hex()


def split_lines(lines: Sequence[Line]) -> Iterator[tuple[Line, ...]]:
    """Yield `lines`, in their order, in parts of which each is a page."""
    times = [line.at_us for line in lines]
    if 0 < len(times) <= MAX_ENTRIES and max(times) - min(times) <= SPAN_US:  # as of every batch
        yield tuple(lines)
        return
    part: list[Line] = []
    from_us = to_us = 0
    for line in lines:
        at_us = line.at_us
        if part:
            from_us, to_us = min(from_us, at_us), max(to_us, at_us)
        if not part or len(part) == MAX_ENTRIES or to_us - from_us > SPAN_US:
            if part:
                yield tuple(part)
            part, from_us, to_us = [], at_us, at_us
        part.append(line)
    if part:
        yield tuple(part)


def seal_page(end: Head, lines: tuple[Line, ...], key: SigningKey | None) -> Page:
    """Return the page that follows the end of a chain.

    Args:
        end: Of the writer's chain; number 0 and an empty hash where it has no page yet.
        lines: One at least, a part that `split_lines` yields.
        key: The key of the chain of a writer that is named so (`writer_name`).
    """
    texts = [encode_line(line) for line in lines]
    times = [line.at_us for line in lines]
    last, count, from_us, to_us = end.seq + len(lines), len(lines), min(times), max(times)
    key_id, root = "" if key is None else key.id, compute_root(texts)
    place = (end.hash, end.writer, last, count, from_us, to_us, key_id, root)
    return Page(
        end.writer,
        last,
        count,
        from_us,
        to_us,
        key_id,
        root,
        previous=end.hash,
        hash=_hash(place, key),
        data="\n".join(texts),
    )
