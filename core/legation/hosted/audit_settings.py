"""The settings of the audit trail, checked: its keys, and the places to which its heads go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import field

from ..access.posture import is_plain_http
from ..access.scopes import well_formed_id
from ..access.secret_strength import KEY_BITS
from ..channels.settings import check_url
from ..channels.signatures import standard_key
from ..config import Audit
from ..store.audit_pages import NO_KEYS, KeyRing, SigningKey
from ..values import frozen
from .abilities import is_duration
from .secret_sources import SecretReader

__all__ = ["AUDIT_KEYS", "KEY_BYTES", "AuditSettings", "read_audit"]

AUDIT_KEYS: Final = "audit.keys"
"""The path of the keys."""

KEY_BYTES: Final = 32
"""The least of a key: as many as the hash has (RFC 2104 section 3)."""

_LONGEST_PAUSE: Final = 86_400
_SHORT: Final = f"has less than {KEY_BYTES} bytes; draw one, as by `openssl rand -hex 32`"
_NO_ID: Final = "{!r} is not an id: [A-Za-z0-9._~-]{{1,128}}"
_NO_PATH: Final = "is no path of a file"


@frozen
class AuditSettings:
    """The keys of the trail, and what its heads are signed with on their way out.

    Attributes:
        keys: The first one signs, all of them verify; none where a secret is not there.
        webhook_key: The key that heads are signed with; None without a secret.
    """

    keys: KeyRing = NO_KEYS
    webhook_key: bytes | None = field(default=None, repr=False)


def read_audit(
    audit: Audit, secrets: SecretReader, say: Callable[[str, str], None]
) -> AuditSettings:
    """Return the settings of `audit`; say every fault, with its path.

    Without secrets that are not needed there is no key: nothing is signed with what stands in for
    them.
    """
    _check_heads(audit, say)
    return AuditSettings(_read_keys(audit, secrets, say), _read_webhook_key(audit, secrets, say))


def _read_keys(audit: Audit, secrets: SecretReader, say: Callable[[str, str], None]) -> KeyRing:
    found: dict[str, bytes] = {}
    missing = len(secrets.missing)
    for index, key in enumerate(audit.keys):
        path = f"{AUDIT_KEYS}[{index}]"
        if not well_formed_id(key.id):
            say(f"{path}.id", _NO_ID.format(key.id))
        elif key.id in found:
            say(f"{path}.id", f"{key.id!r} is taken")
        named = (key.secret_env, key.secret_file)
        if named == (None, None):
            say(f"{path}.secret_env", "missing")
        secret = secrets.read(f"{path}.secret", *named, least=KEY_BITS) or ""
        found[key.id] = secret.encode()
        if secret and len(found[key.id]) < KEY_BYTES:
            say(f"{path}.secret_{'env' if key.secret_file is None else 'file'}", _SHORT)
    if len(secrets.missing) > missing:
        return NO_KEYS
    return KeyRing(tuple(SigningKey(name, secret) for name, secret in found.items()))


def _check_heads(audit: Audit, say: Callable[[str, str], None]) -> None:
    if audit.heads_url is not None:
        if (wrong := check_url(audit.heads_url)) is not None:
            say("audit.heads_url", wrong)
        elif is_plain_http(audit.heads_url):
            say("audit.heads_url", "is not https: plain http is for this machine alone")
    elif audit.heads_secret_env is not None or audit.heads_secret_file is not None:
        say("audit.heads_url", "missing: the secret signs what is sent there")
    if audit.heads_file is not None and (not audit.heads_file or "\0" in audit.heads_file):
        say("audit.heads_file", _NO_PATH)
    seconds = audit.heads_seconds
    if not (is_duration(seconds) and 1 <= seconds <= _LONGEST_PAUSE):
        say("audit.heads_seconds", f"must be a number from 1 to {_LONGEST_PAUSE}")


def _read_webhook_key(
    audit: Audit, secrets: SecretReader, say: Callable[[str, str], None]
) -> bytes | None:
    missing = len(secrets.missing)
    named = (audit.heads_secret_env, audit.heads_secret_file)
    secret = secrets.read("audit.heads_secret", *named)
    if secret is None or len(secrets.missing) > missing:
        return None
    try:
        return standard_key(secret)
    except ValueError as error:
        say(
            f"audit.heads_secret_{'env' if audit.heads_secret_file is None else 'file'}", str(error)
        )
        return None
