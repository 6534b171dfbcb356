"""Moves that change how many sessions somebody has, by units of the core and beside them."""

from __future__ import annotations

from itertools import count
from typing import Any, Final

from attrs import frozen
from hypothesis import strategies as st

from legation.store.conversations import OpenSession
from legation.store.erasure import EraseSession
from legation.store.forks import ForkSession, SessionCopy
from legation.store.imports import ImportedSession, ImportSession
from legation.store.periods import Periods
from legation.store.retention import TakeBite
from legation.store.run_rows import DAY_US
from legation.store.runs import StartRun
from legation.store.session_counts import KeepSessionCount
from legation.store.session_pages import ListSessions
from legation.store.sessions import CreateSession, DeleteSessions, SessionChange, UpdateSession
from legation.store.units import Unit

__all__ = ["BEGINNING", "KEPT", "KINDS", "MOVES", "OWN", "OWNERS", "SessionMove", "list_kind"]

OWNERS: Final = ("ada", "eve")
KINDS: Final = ("agent", "team")
_UNITS: Final = (
    "create",
    "begin",
    "run",
    "fork",
    "import",
    "rename",
    "delete",
    "erase",
    "sweep",
    "keep",
)
_NUMBERS: Final = count()
_TEXTS: Final = {
    "insert": "insert into sessions (owner, session_id, kind, component_id, created_us, updated_us)"
    " values ('{owner}', '{session_id}', '{kind}', 'c', {at_us}, {at_us})"
    " on conflict (owner, session_id) do nothing",
    "delete all": "delete from sessions where owner = '{owner}' and kind = '{kind}'",
    "move": "update sessions set owner = '{owner}', session_id = 'moved {number}'"
    " where session_id = '{session_id}' and owner <> '{owner}'",
    "redate": "update sessions set created_us = {at_us} where kind = '{kind}'",
    "change kind": "update sessions set kind = '{kind}' where session_id = '{session_id}'",
}
"""What no unit does, and what somebody may do who has the database."""


@frozen
class SessionMove:
    """A move on a session."""

    name: str
    owner: str
    session_id: str
    kind: str
    at_us: int

    @property
    def text(self) -> str:
        """The statement beside the units; empty for a unit."""
        text = _TEXTS.get(self.name, "")
        values = ("owner", "session_id", "kind", "at_us")
        return text.format(number=next(_NUMBERS), **{name: getattr(self, name) for name in values})

    @property
    def unit(self) -> Unit[Any]:
        """The unit of the move."""
        owner, session_id, kind, at_us = self.owner, self.session_id, self.kind, self.at_us
        match self.name:
            case "create":
                return CreateSession(owner, session_id, kind, "", at_us)
            case "begin":
                return OpenSession(owner, session_id, kind, "c", at_us)
            case "run":
                order = (owner, session_id, f"run {next(_NUMBERS)}", kind, "c", "{}")
                return StartRun(*order, "", "n", at_us)
            case "fork":
                ids = (session_id, f"{session_id}{at_us}")
                return ForkSession(SessionCopy(owner, *ids, ids, "{}", (), 0, 0, at_us))
            case "import":
                values = (owner, session_id, kind, "", None, "{}", None, None, at_us, at_us)
                return ImportSession(ImportedSession(*values), (), at_us)
            case "rename":
                return UpdateSession(owner, session_id, SessionChange(name="n"), at_us)
            case "delete":
                named = ((owner, session_id, kind), (OWNERS[0], "s1", None))
                return DeleteSessions(named, None, at_us)
            case "erase":
                return EraseSession(owner, session_id, at_us)
            case "sweep":
                return TakeBite("n", DAY_US + at_us, Periods(sessions=1), forced=True)
            case _:
                return KeepSessionCount(owner, kind)


MOVES: Final = st.lists(
    st.builds(
        SessionMove,
        st.sampled_from((*_UNITS, *_TEXTS, "keep", "insert", "import")),
        st.sampled_from(OWNERS),
        st.sampled_from(("s1", "s2", "s3", "s4")),
        st.sampled_from(KINDS),
        st.integers(1, 9),
    ),
    max_size=30,
)

BEGINNING: Final = tuple(
    SessionMove(name, owner, f"s{number}", kind, 5)
    for owner in OWNERS
    for number, kind in enumerate(KINDS, 1)
    for name in ("insert", "keep")
)
"""What is there before: of each owner and kind a session, and a number that is kept."""


def list_kind(owner: str, kind: str) -> ListSessions[str]:
    """Return the list of an owner, of which a page has the number of all."""
    return ListSessions(owner, kind, lambda row: row.session_id, size=1)


OWN: Final = "select count(*) from sessions where owner = '{}' and kind = '{}'"
"""That number, counted."""

KEPT: Final = """select k.sessions, (select count(*) from sessions s
    where s.owner = k.owner and s.kind = k.kind and s.created_us <= k.until_us)
    from session_counts k order by k.owner, k.kind"""
"""Each number that is kept, and the same counted."""
