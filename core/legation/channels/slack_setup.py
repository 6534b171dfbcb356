"""The setup of an app of Slack: its token and the scopes of it; the rest Slack shows people alone.

Source: docs.slack.dev, "auth.test", "Scopes" (the header `x-oauth-scopes`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..effects import Unreachable
from .identity import Unidentified
from .setup import Asked, Check, sentence_of

__all__ = ["check_app", "describe_requests"]

_NEEDED: Final = ("chat:write", "app_mentions:read", "im:history")
_EVERYTHING: Final = "channels:history"
_FILES: Final = "files:read"
_PAGE: Final = "at https://api.slack.com/apps, in the app"


def check_app(asked: Asked, *, mentions_only: bool) -> Iterator[Check]:
    """Yield what is to be said of the app behind a token."""
    found, reply = asked.found, asked.reply
    if isinstance(found, Unidentified) or isinstance(reply, Unreachable):
        reason = found.reason if isinstance(found, Unidentified) else "unreachable"
        yield Check(
            "credentials",
            False,
            f"Slack does not say whose the token is: {reason}",
            f"compare the bot's token with that of OAuth & Permissions {_PAGE}",
        )
        return
    who = f"{sentence_of(found.name) or found.id} at {sentence_of(found.url) or found.workspace}"
    if not found.bot_id:
        yield Check(
            "credentials",
            False,
            f"the token is that of a person, {who}",
            f"take the Bot User OAuth Token, xoxb-…, of OAuth & Permissions {_PAGE}",
        )
        return
    yield Check("credentials", True, f"the token is that of the bot {who}")
    yield _check_scopes(reply.headers.get("x-oauth-scopes", ""), mentions_only=mentions_only)


def _check_scopes(said: str, *, mentions_only: bool) -> Check:
    scopes = {scope.strip() for scope in said.split(",")}
    needed = _NEEDED if mentions_only else (*_NEEDED, _EVERYTHING)
    if missing := [scope for scope in needed if scope not in scopes]:
        return Check(
            "permissions",
            False,
            f"the token has not the scopes {', '.join(missing)}",
            f"add them at OAuth & Permissions {_PAGE}, and install it again",
        )
    if _FILES not in scopes:
        return Check("permissions", True, f"all scopes but {_FILES}: no attachment is read")
    return Check("permissions", True, "the token has every scope that is needed")


def describe_requests(address: str) -> tuple[Check, ...]:
    """Return where the addresses of the app are entered: Slack tells them to no token."""
    pressed = f"{address.removesuffix('webhook')}interactions"
    return (
        Check(
            "webhook",
            None,
            "Slack lets no token read or set the address",
            f"{_PAGE}: Event Subscriptions has {address} as the Request URL,"
            f" and Interactivity & Shortcuts {pressed}",
        ),
    )
