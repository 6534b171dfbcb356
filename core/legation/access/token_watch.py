"""The token of a stream: a stream lasts no longer than what let its caller in."""

from __future__ import annotations

from typing import Final

from attrs import field

from ..http.messages import Request
from ..values import define
from .authenticator import Authenticator, TokenRefused
from .claims import LEEWAY_US, Claims
from .trust_files import NEVER

__all__ = ["TokenWatch", "watch_token"]

_LOOK_US: Final = 250_000


@define(eq=False)
class TokenWatch:
    """A token that was accepted, and is asked for again while a stream goes on.

    It is looked at when it expires, when tokens are judged by something else, as keys are replaced
    and tokens revoked, and four times a second while the stream says something.

    Attributes:
        until_us: When it expires, with the leeway.
        looked_us: When it was looked at last.
        trust: What tokens were judged by then.
    """

    authenticator: Authenticator
    request: Request
    until_us: int
    looked_us: int
    trust: bytes = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.trust = self.authenticator.fingerprint(self.looked_us)

    @property
    def left(self) -> float:
        """Seconds from the last look to the end of the token: a stream waits no longer."""
        return (self.until_us - self.looked_us) / 1_000_000

    def seconds_left(self, now_us: int) -> float:
        """Return the seconds from `now_us` to the end of the token, or since that, as negative."""
        return (self.until_us - now_us) / 1_000_000

    def find_refusal(self, now_us: int) -> TokenRefused | None:
        """Return why the token is not accepted any more; None where it is."""
        trust = self.authenticator.fingerprint(now_us)
        looked = 0 <= now_us - self.looked_us < _LOOK_US and trust == self.trust
        if now_us < self.until_us and looked:
            return None
        self.looked_us, self.trust = now_us, trust
        found = self.authenticator.caller(self.request, now_us)
        return found if isinstance(found, TokenRefused) else None


def watch_token(authenticator: Authenticator, request: Request, now_us: int) -> TokenWatch:
    """Watch the token of `request`, which was accepted at `now_us`."""
    header = tuple([line for line in request.headers if line[0] == b"authorization"])
    asked = Request("GET", "/", header)
    claims = authenticator.read_token(asked, now_us)
    expires_us = claims.expires_us if isinstance(claims, Claims) else None
    until_us = NEVER if expires_us is None else expires_us + LEEWAY_US
    return TokenWatch(authenticator, asked, until_us, now_us)
