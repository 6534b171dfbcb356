"""The runs that a caller may see in a list: those of every owner, or its own.

Who holds `runs:read` sees the runs of every owner, as an administrator does.  Anybody else sees
its own, of the agents and teams whose runs it may follow.  A token of one session is let into that
session alone.
"""

from __future__ import annotations

from typing import TypeVar

from attrs import evolve

from ..access.decide import Allow, Principal, decide, find_ids, owner_of
from ..access.needs import FOLLOW_RUNS, READ_RUNS
from ..store.listed_runs import NarrowedRuns
from .call import Call

__all__ = ["narrow_to_visible", "own_components", "sees_every_run"]

N = TypeVar("N", bound=NarrowedRuns)


def sees_every_run(principal: Principal) -> bool:
    """Return whether the runs of every owner are visible."""
    return isinstance(decide(READ_RUNS, principal), Allow)


def own_components(principal: Principal) -> tuple[str, ...] | None:
    """Return the agents and teams whose runs a caller may follow; None for all.

    Each is as `agent:ID`; `agent:*` stands for every agent.
    """
    names: list[str] = []
    for kind, need in FOLLOW_RUNS.items():
        if isinstance(decide(need, principal), Allow):
            names.append(f"{kind}:*")
        else:
            names += [f"{kind}:{one}" for one in sorted(find_ids(need, principal))]
    return None if names == [f"{kind}:*" for kind in FOLLOW_RUNS] else tuple(names)


def narrow_to_visible(call: Call, asked: N, user_id: str | None) -> N | None:
    """Return `asked` for the runs alone that the caller may see; None where there are none.

    `user_id` counts for those alone who see every owner.
    """
    principal = call.principal
    asked = evolve(asked, session_id=principal.session_id or asked.session_id)
    if sees_every_run(principal):
        if user_id is None:
            return asked
        return evolve(asked, owner=owner_of(user_id), alias=user_id)
    allowed = own_components(principal)
    if principal.owner is None or allowed == ():
        return None
    return evolve(asked, owner=principal.owner, alias=principal.owner, allowed=allowed)
