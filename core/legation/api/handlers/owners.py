"""The owner of the session that a request names, decided once for every route.

One's own comes first.  A caller who sees every owner reaches that of another where `user_id` names
him, and, with nobody named, that of the only owner of the id.  Of several none is chosen: the
request is refused with a sentence that asks for `user_id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

from ...effects import Now, Program, Transact
from ...http.refusals import Conflict
from ...store.sessions import FetchSession, OwnersOf, SessionRow, SeveralOwners
from ..call import Call

__all__ = ["SeveralUsers", "find_owners", "find_session"]

_SEVERAL: Final = "Several users have a session with id '{}': name the one you mean in user_id"
SeveralUsers: TypeAlias = Annotated[Conflict, _SEVERAL.format("s1")]


def _several(found: SeveralOwners) -> Conflict:
    return Conflict(_SEVERAL.format(found.session_id))


def find_session(
    call: Call, database: str, session_id: str, user_id: str | None
) -> Program[SessionRow | SeveralUsers | None]:
    """Return the session that is meant; None where the caller can see none of this id."""
    whose = call.whose(user_id)
    if not whose.owners:
        return None
    fetch = FetchSession(session_id, whose.owners, whose.others)
    found = yield from Transact(database, fetch)
    if isinstance(found, SeveralOwners):
        return _several(found)
    if found is not None:
        call.audit.owner = found.owner
    return found


def find_owners(
    call: Call, database: str, session_ids: tuple[str, ...], user_id: str | None
) -> Program[Mapping[str, str] | SeveralUsers]:
    """Return whose sessions are to be deleted, by their ids; without those that nobody has."""
    whose = call.whose(user_id)
    if not whose.owners:
        return {}
    now_us = yield from Now()
    asked = OwnersOf(session_ids, whose.owners, whose.others, now_us)
    found = yield from Transact(database, asked)
    owners: dict[str, str] = {}
    for session_id, owner in found.items():
        if isinstance(owner, SeveralOwners):
            return _several(owner)
        owners[session_id] = owner
    return owners
