"""The order of models of an agent or a team: its own, and those that are asked where that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from ..config import Agent, ModelLike, Team
from ..models.conversation import ModelProtocol
from ..models.echo import Echo

__all__ = ["MAX_FALLBACK", "find_order"]

Find: TypeAlias = Callable[[ModelLike, str], ModelProtocol | None]
"""Returns the model that is named or given at a path; None where that is a fault."""

Say: TypeAlias = Callable[[str, str], None]  # takes the path and the text of a fault

MAX_FALLBACK: Final = 8
"""How many models `fallback` may have."""


def find_order(item: Agent | Team, path: str, find: Find, say: Say) -> tuple[ModelProtocol, ...]:
    """Return the model of `item` and those behind it; `say` gets every fault.

    A model with a fault is left out, and one that echoes stands in the place of the first.
    """
    first = find(item.model, f"{path}.model")
    order = [first or Echo()]
    known = [] if first is None else [(f"{path}.model", first)]
    for place, given in _list_fallback(item, path, say):
        model = find(given, place)
        if model is None:
            continue
        if any(model is one for _, one in known):
            name = repr(given) if isinstance(given, str) else model.id
            say(place, f"{name} is in the order already")
            continue
        known.append((place, model))
        order.append(model)
    for place, model in known:
        _check_abilities(item, model, place, say)
    return tuple(order)


def _list_fallback(item: Agent | Team, path: str, say: Say) -> Iterator[tuple[str, ModelLike]]:
    """Yield the models of the fallback, each with its path."""
    if len(item.fallback) > MAX_FALLBACK:
        sentence = f"has {len(item.fallback)} models, and may have {MAX_FALLBACK} at most"
        say(f"{path}.fallback", sentence)
    for index, one in enumerate(item.fallback[:MAX_FALLBACK]):
        yield f"{path}.fallback[{index}]", one


def _check_abilities(item: Agent | Team, model: ModelProtocol, path: str, say: Say) -> None:
    """Report a model that cannot do what every run of `item` needs."""
    calls = item.tools or (isinstance(item, Team) and item.members)
    if calls and not getattr(model, "takes_tools", True):
        say(path, f"{model.id} takes no tools, and {item.id} has some")
    if item.output_schema is not None and not getattr(model, "takes_schema", True):
        say(path, f"{model.id} takes no schema, and {item.id} has an output_schema")
