"""Needs: what a route asks of its caller, declared where the route is.

A scope is `resource:action`, `resource:<id>:action`, `resource:*:action` or the admin scope; there
is no other wildcard (interface, section 5.5).  Scopes are compared as they stand: no case folding,
no normalization.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from attrs import Factory, field

from ..values import frozen

__all__ = ["AnyToken", "Need", "Open", "Public", "Scoped", "Signed", "well_formed_id"]

_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")


def well_formed_id(text: str) -> bool:
    """Return whether `text` can be the id of an agent, a team, a database or a channel."""
    return _ID.fullmatch(text) is not None


@frozen
class Public:
    """No caller is needed as long as the route is among the excluded ones; a valid token after."""


@frozen
class Open:
    """No token is needed; one that is sent has to verify, and may open more of the answer."""


@frozen
class Signed:
    """The sender proves itself by the channel's own signature; a token says nothing here."""


@frozen
class AnyToken:
    """Any token that verifies; no scope."""


def _whatever_the_id(need: Scoped) -> tuple[str, ...]:
    """Return the scopes that are enough for every id, and where there is none."""
    enough = [f"{need.resource}:{action}" for action in need.actions]
    if need.listing or need.parameter:
        enough += [f"{need.resource}:*:{action}" for action in need.actions]
    return (*enough, *need.also)


@frozen
class Scoped:
    """One of `actions` on `resource`.

    `parameter` names the path parameter that holds the id, so that a scope on that id is enough;
    `listing` marks a list that is filtered to the ids the caller holds a scope on.  `also` are
    whole scopes that older issuers grant for the same thing.  `flagged` is needed as well where the
    query has the parameter `flag`.
    """

    resource: str
    actions: tuple[str, ...]
    parameter: str | None = None
    listing: bool = False
    also: tuple[str, ...] = ()
    flag: str = ""
    flagged: Scoped | None = None
    general: tuple[str, ...] = field(
        default=Factory(_whatever_the_id, takes_self=True), init=False, eq=False, repr=False
    )

    @property
    def scope(self) -> str:
        """The scope to ask an issuer for."""
        return f"{self.resource}:{self.actions[0]}"


Need: TypeAlias = Public | Open | Signed | AnyToken | Scoped
"""What a route may need.  A route cannot be made without one."""
