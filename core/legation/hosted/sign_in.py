"""The faults of the console's sign-in: where its pages send people, and what they let in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ..config import Console
from ..http.refusals import Fault

__all__ = ["sign_in_faults"]

# An issuer as OpenID Connect Discovery 1.0 section 3 has it, without user, query and fragment; its
# origin stands in a policy of the page, so that nothing that means something there may be in it.
_ISSUER: Final = re.compile(
    r"(?:https://(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])"
    r"|http://(?:localhost|127\.0\.0\.1|\[::1\]))"
    r"(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~%!$&*+=:@/-]{0,500})?"
)
_CLIENT: Final = re.compile(r"[\x21-\x7e]{1,255}")
# RFC 6749 section 3.3
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*")
_AUDIENCE: Final = re.compile(r"[\x21-\x7e]{1,500}")
_LONGEST_SCOPE: Final = 2000
_HALF: Final = "is missing: sign-in at an identity provider needs both `issuer` and `client_id`"


def sign_in_faults(console: Console) -> Iterator[Fault]:
    """Yield what is wrong with where people sign in."""
    issuer, client_id = console.issuer, console.client_id
    if (issuer is None) != (client_id is None):
        yield Fault(f"console.{'issuer' if issuer is None else 'client_id'}", _HALF)
    if issuer is not None and not _ISSUER.fullmatch(issuer):
        sentence = "is not an issuer: https://, or http:// on this machine; no user, query or #"
        yield Fault("console.issuer", sentence)
    if client_id is not None and not _CLIENT.fullmatch(client_id):
        yield Fault("console.client_id", "is not 1 to 255 visible ASCII characters")
    if len(console.scope) > _LONGEST_SCOPE or not _SCOPE.fullmatch(console.scope):
        yield Fault("console.scope", "is not scopes with a space between two: openid profile")
    if console.audience is not None and not _AUDIENCE.fullmatch(console.audience):
        yield Fault("console.audience", "is not 1 to 500 visible ASCII characters")
