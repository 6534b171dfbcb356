"""The signatures of webhooks: four schemes, each over the raw body.

All follow one discipline.  Exactly one header of each name; its form is checked on bytes, so no
text of a header can raise; every active secret is compared, in constant time and without an early
exit, so that two secrets are accepted while one replaces the other and nobody can measure which.
What was verified is what gets parsed: only this module makes a `Verified`, and it holds the body.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from attrs import field

from ..http.messages import Headers
from ..values import frozen

__all__ = [
    "TOLERANCE_SECONDS",
    "Secrets",
    "SignatureRefused",
    "Verified",
    "active_secrets",
    "hub256",
    "is_among",
    "sign_standard",
    "slack_v0",
    "standard_key",
    "standard_v1",
    "telegram_token",
]

TOLERANCE_SECONDS: Final = 300
"""How far a signed timestamp may lie from our clock, either way, as Slack advises."""

MAX_SIGNATURES: Final = 10
"""More entries than this in a list of signatures are an attempt to make us work."""

Secrets: TypeAlias = tuple[bytes, ...]
"""The secrets accepted now, current one first; never empty."""

_HUB: Final = re.compile(rb"sha256=[0-9a-f]{64}")
_SLACK: Final = re.compile(rb"v0=[0-9a-f]{64}")
_SECONDS: Final = re.compile(rb"[0-9]{1,11}")
_WEBHOOK_ID: Final = re.compile(rb"[\x21-\x7e]{1,255}")


@frozen
class Verified:
    """A body whose sender is known; `delivery_id` where the scheme signs one, else ""."""

    body: bytes = field(repr=False)
    delivery_id: str = ""


@frozen
class SignatureRefused:
    """Not verified; `reason` is for the log and the counters, never for the caller."""

    reason: str


def active_secrets(current: str, previous: str | None = None) -> Secrets:
    """Return the secrets to accept; an empty `previous` means that there is none.

    Raises:
        ValueError: `current` is empty: without a secret nothing could be refused.  Or one has
            white space around it, as from a file with a line feed at its end: nothing would fit.
    """
    if not current:
        raise ValueError("a channel needs a secret")
    secrets = tuple(secret for secret in (current, previous) if secret)
    if any(secret != secret.strip() for secret in secrets):
        raise ValueError("a secret begins or ends with white space")
    return tuple(secret.encode() for secret in secrets)


def is_among(given: bytes, expected: Iterable[bytes]) -> bool:
    """Tell whether `given` is among `expected`; every one is compared."""
    found = False
    for value in expected:
        found |= hmac.compare_digest(given, value)
    return found


def _only(headers: Headers, name: bytes) -> bytes | SignatureRefused:
    values = [value for key, value in headers if key == name]
    if len(values) == 1:
        return values[0]
    return SignatureRefused(f"{'several' if values else 'no'} {name.decode()} headers")


def _hex_digest(secret: bytes, message: bytes) -> bytes:
    return hmac.new(secret, message, hashlib.sha256).hexdigest().encode()


def _fresh(seconds: bytes, now_us: int) -> bool:
    """Tell whether `seconds`, ASCII digits and nothing else, lies within the tolerance."""
    if not _SECONDS.fullmatch(seconds):
        return False
    return abs(now_us - int(seconds) * 1_000_000) <= TOLERANCE_SECONDS * 1_000_000


def hub256(headers: Headers, body: bytes, secrets: Secrets) -> Verified | SignatureRefused:
    """Check `X-Hub-Signature-256` as Meta and GitHub write it: lower-case hex after `sha256=`.

    The scheme has no timestamp: against replays the message id alone protects.
    """
    given = _only(headers, b"x-hub-signature-256")
    if isinstance(given, SignatureRefused):
        return given
    if not _HUB.fullmatch(given):
        return SignatureRefused("malformed signature")
    if not is_among(given, [b"sha256=" + _hex_digest(key, body) for key in secrets]):
        return SignatureRefused("wrong signature")
    return Verified(body)


def slack_v0(
    headers: Headers, body: bytes, secrets: Secrets, now_us: int
) -> Verified | SignatureRefused:
    """Check `X-Slack-Signature` over `v0:timestamp:body`, the timestamp within five minutes."""
    given = _only(headers, b"x-slack-signature")
    stamp = _only(headers, b"x-slack-request-timestamp")
    if isinstance(given, SignatureRefused):
        return given
    if isinstance(stamp, SignatureRefused):
        return stamp
    if not _SLACK.fullmatch(given):
        return SignatureRefused("malformed signature")
    if not _fresh(stamp, now_us):
        return SignatureRefused("timestamp outside the tolerance")
    signed = b"v0:%s:%s" % (stamp, body)
    if not is_among(given, [b"v0=" + _hex_digest(key, signed) for key in secrets]):
        return SignatureRefused("wrong signature")
    return Verified(body)


def telegram_token(headers: Headers, body: bytes, secrets: Secrets) -> Verified | SignatureRefused:
    """Check `X-Telegram-Bot-Api-Secret-Token`: a shared token, nothing is signed."""
    given = _only(headers, b"x-telegram-bot-api-secret-token")
    if isinstance(given, SignatureRefused):
        return given
    if not is_among(given, secrets):
        return SignatureRefused("wrong token")
    return Verified(body)


def standard_key(secret: str) -> bytes:
    """Return the key that `secret`, base64 with or without `whsec_` in front, stands for.

    Raises:
        ValueError: It is not base64, or not 24 to 64 bytes (Standard Webhooks, "signature scheme").
    """
    key = b64decode(secret.removeprefix("whsec_"), validate=True)
    if not 24 <= len(key) <= 64:
        raise ValueError("a secret of Standard Webhooks has 24 to 64 bytes")
    return key


def sign_standard(
    secrets: Secrets, delivery_id: bytes, seconds: bytes, body: bytes
) -> Sequence[bytes]:
    """Return the `v1` signature of each secret (Standard Webhooks 1.0)."""
    signed = b"%s.%s.%s" % (delivery_id, seconds, body)
    return [b"v1," + b64encode(hmac.digest(key, signed, "sha256")) for key in secrets]


def standard_v1(
    headers: Headers, body: bytes, secrets: Secrets, now_us: int
) -> Verified | SignatureRefused:
    """Check the `webhook-*` headers of Standard Webhooks 1.0; any entry of the list may match.

    Entries of other versions are passed over: a `v1a` (ed25519) never counts as a `v1`.  Svix,
    where the scheme comes from, names the three headers `svix-*`; they count where no header of
    the standard is there, so that no request is read in two ways.
    """
    standard = any(name.startswith(b"webhook-") for name, _ in headers)
    svix = not standard and any(name.startswith(b"svix-") for name, _ in headers)
    prefix = b"svix-" if svix else b"webhook-"
    found = [_only(headers, prefix + part) for part in (b"id", b"timestamp", b"signature")]
    missing = next((value for value in found if isinstance(value, SignatureRefused)), None)
    if missing:
        return missing
    delivery_id, seconds, given = (value for value in found if isinstance(value, bytes))
    if not _WEBHOOK_ID.fullmatch(delivery_id):
        return SignatureRefused("malformed id")
    if not _fresh(seconds, now_us):
        return SignatureRefused("timestamp outside the tolerance")
    entries = given.split(b" ")
    if len(entries) > MAX_SIGNATURES:
        return SignatureRefused("too many signatures")
    expected = sign_standard(secrets, delivery_id, seconds, body)
    matches = [is_among(entry, expected) for entry in entries]  # all of them, then ask
    if not any(matches):
        return SignatureRefused("wrong signature")
    return Verified(body, delivery_id.decode())
