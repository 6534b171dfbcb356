"""Models in the place of others, in a platform that is what it is in all else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import frozen

from legation import Platform
from legation.effects import Program
from legation.hosted.registry import Component
from legation.models.conversation import Listener, ModelProtocol, Prompt, Reply

from .misuse import Misuse

__all__ = ["Substitution", "substitute"]


class _Substitute:
    """A model that answers in the place of another one, which it is in all else."""

    def __init__(self, original: ModelProtocol, model: ModelProtocol) -> None:
        self._original, self._model = original, model
        self.id, self.name, self.provider = original.id, original.name, original.provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        return self._model.respond(prompt, listener)


@frozen(eq=False)
class Substitution:
    """The model that answers for one agent or team; for all of them where neither is named."""

    model: ModelProtocol
    agent: str | None = None
    team: str | None = None

    def check(self, platform: object) -> Platform:
        """Return `platform`, where it hosts what is named.

        Raises:
            Misuse: It is none, or hosts no such agent or team, or that asks no model.
        """
        if not isinstance(platform, Platform):
            raise Misuse("override() replaces models of a Platform; this client has none")
        if self.agent is not None and self.team is not None:
            raise Misuse("override() takes an agent or a team, not both")
        for kind, name in (("agent", self.agent), ("team", self.team)):
            hosted = platform.registry.components(kind)
            if name is not None and name not in hosted:
                known = ", ".join(sorted(hosted)) or "none"
                raise Misuse(f"override: there is no {kind} {name!r}; there are: {known}")
            if name is not None and hosted[name].run is not None:
                raise Misuse(f"override: the {kind} {name!r} is a function, and asks no model")
        return platform

    def is_for(self, component: Component) -> bool:
        """Return whether the model answers for `component`."""
        named = (self.agent, self.team)
        wanted = self.agent if component.kind == "agent" else self.team
        return named == (None, None) or component.id == wanted


def substitute(platform: Platform, substitutions: Iterable[Substitution]) -> None:
    """Let models answer for others in `platform`, a later one before an earlier one."""
    latest = tuple(reversed(tuple(substitutions)))

    def choose(component: Component) -> ModelProtocol:
        own = component.model
        for one in latest:
            if one.is_for(component):
                return _Substitute(own, one.model)
        return own

    platform.replace_models(choose)
