"""Revocations: tokens that are not accepted any more, though their signatures verify.

A file of one JSON object, of which each member may be absent:

    {"tokens": ["<jti>"], "subjects": {"<owner>": <NumericDate>}, "keys": ["<key id>"]}

A token is revoked by its `jti` (RFC 7519 section 4.1.7), with all tokens of its subject that were
issued before a time, or with all that one key has signed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, cast

from attrs import field

from ..values import frozen
from .jose import Malformed, decode_object

__all__ = ["MAX_FILE_BYTES", "MAX_REVOCATIONS", "NONE_REVOKED", "Revocations", "read_revocations"]

MAX_FILE_BYTES: Final = 1 << 20
"""The longest file that tokens are judged by, of keys or of revocations."""

MAX_REVOCATIONS: Final = 10_000

_MAX_NAME: Final = 2 * 256 + 1  # characters: `<issuer>#<user id>`
_MAX_SECONDS: Final = 1 << 53
_MEMBERS: Final = frozenset({"tokens", "subjects", "keys"})


@frozen
class Revocations:
    """The revocations in force; each question costs the same, however many there are.

    Attributes:
        tokens: The ids (`jti`) of tokens.
        subjects: By the owner, as `GET /me` shows it in `sub`: microseconds since the epoch.  What
            was issued before is void, and so is a token that does not say when it was.
        keys: The ids of keys, as the audit trail has them.
        generation: Differs whenever the rest does.
    """

    tokens: frozenset[str] = frozenset()
    subjects: Mapping[str, int] = field(factory=dict[str, int])
    keys: frozenset[str] = frozenset()
    generation: bytes = b""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.tokens) + len(self.subjects) + len(self.keys)

    def find_reason(
        self, key_id: str, token_id: str | None, subject: str | None, issued_us: int | None
    ) -> str | None:
        """Return why a token with these claims is void, for the log; None where it is not."""
        if token_id is not None and token_id in self.tokens:
            return "revoked by its jti"
        if key_id in self.keys:
            return "its key is revoked"
        before_us = self.subjects.get(subject or "")
        if before_us is None:
            return None
        if issued_us is None or issued_us < before_us:
            return "issued before the not-before of its subject"
        return None


NONE_REVOKED: Final = Revocations()


def read_revocations(content: bytes) -> Revocations | str:
    """Return the revocations in a file, or why it cannot be used.

    One mistake makes all of it unusable: then what it said before holds on, and nothing that was
    revoked is let in again by a slip.
    """
    if len(content) > MAX_FILE_BYTES:
        return f"is longer than {MAX_FILE_BYTES} bytes"
    try:
        said = decode_object(content)
        return _read_members(said)
    except Malformed as problem:
        return str(problem)


def _read_members(said: dict[str, Any]) -> Revocations:
    if unknown := sorted(said.keys() - _MEMBERS):
        raise Malformed(f"has the member {unknown[0]!r}; there are tokens, subjects and keys")
    tokens, keys = (_read_names(said.get(name, []), name) for name in ("tokens", "keys"))
    subjects = _read_subjects(said.get("subjects", {}))
    canonical = json.dumps([sorted(tokens), sorted(keys), sorted(subjects.items())])
    revocations = Revocations(tokens, subjects, keys, sha256(canonical.encode()).digest())
    if len(revocations) > MAX_REVOCATIONS:
        raise Malformed(f"has more than {MAX_REVOCATIONS} entries")
    return revocations


def _read_names(value: object, name: str) -> frozenset[str]:
    if type(value) is not list:
        raise Malformed(f"{name} is not an array of texts")
    names = cast(list[object], value)
    return frozenset(_read_name(one, f"{name}[{index}]") for index, one in enumerate(names))


def _read_name(value: object, where: str) -> str:
    if type(value) is not str or not 0 < len(value) <= _MAX_NAME:
        raise Malformed(f"{where} is not a text of 1 to {_MAX_NAME} characters")
    return value


def _read_subjects(value: object) -> dict[str, int]:
    if type(value) is not dict:
        raise Malformed("subjects is not an object")
    members = cast(dict[str, Any], value)
    return {
        _read_name(name, "a name in subjects"): _read_time(seconds, name)
        for name, seconds in members.items()
    }


def _read_time(seconds: object, name: str) -> int:
    if type(seconds) is not int and type(seconds) is not float:
        raise Malformed(f"subjects: {name!r} has no number of seconds since the epoch")
    if not -_MAX_SECONDS < seconds < _MAX_SECONDS:
        raise Malformed(f"subjects: the time of {name!r} is out of range")
    return round(seconds * 1_000_000)
