"""The description of needs in words for people."""

from __future__ import annotations

from ..config import PlatformConfig
from .scopes import Need, Open, Scoped, Signed

__all__ = ["describe_need", "scopes_enough"]


def scopes_enough(need: Scoped) -> tuple[str, ...]:
    """Return every form of scope that is enough alone; `<id>` stands for the id in the path."""
    enough = [f"{need.resource}:{action}" for action in need.actions]
    if need.parameter or need.listing:
        enough += [f"{need.resource}:<id>:{action}" for action in need.actions]
    return (*enough, *need.also)


def describe_need(need: Need, template: str, config: PlatformConfig) -> str:
    """Return what a caller of the route `template` needs under `config`."""
    if isinstance(need, Signed):
        return "the channel's own signature"
    if not config.authorization:
        return "nothing: authorization is off"
    if config.authorization_config.excludes(template):
        return "nothing: the route is excluded"
    if isinstance(need, Open):
        return "nothing; a valid token may open more of the answer"
    if not isinstance(need, Scoped):
        return "any valid token"
    return " or ".join((*scopes_enough(need), config.authorization_config.admin_scope))
