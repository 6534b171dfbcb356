"""The description of needs in words for people."""

from __future__ import annotations

from ..config import AuthorizationConfig
from .scopes import Need, Open, Scoped, Signed

__all__ = ["describe_need", "scopes_enough"]


def scopes_enough(need: Scoped) -> tuple[str, ...]:
    """Return every form of scope that is enough alone; `<id>` stands for the id in the path."""
    enough = [f"{need.resource}:{action}" for action in need.actions]
    if need.parameter or need.listing:
        enough += [f"{need.resource}:<id>:{action}" for action in need.actions]
    return (*enough, *need.also)


def describe_need(need: Need, template: str, config: AuthorizationConfig | None) -> str:
    """Return what a caller of the route `template` needs; None where authorization is off."""
    if isinstance(need, Signed):
        return "the channel's own signature"
    if config is None:
        return "nothing: authorization is off"
    if config.excludes(template):
        return "nothing: the route is excluded"
    if isinstance(need, Open):
        return "nothing; a valid token may open more of the answer"
    if not isinstance(need, Scoped):
        return "any valid token"
    needed = " or ".join((*scopes_enough(need), config.admin_scope))
    if need.flagged is None:
        return needed
    also = " or ".join((*scopes_enough(need.flagged), config.admin_scope))
    return f"{needed}; with {need.flag} also {also}"
