"""The report of an import: what came in, and what was left out, with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from attrs import field

from ..values import define, frozen

__all__ = ["SENTENCES", "Imported", "LeftOut", "Reason", "Report"]

_FIRST: Final = 3
"""How many ids of each reason the report names."""

_SHOWN: Final = 80
"""Characters of an id that are shown."""


class Reason(StrEnum):
    """A reason for which something was left out, as a word for programs."""

    WORKFLOW = "workflow"
    SESSION_ID = "session_id"
    USER_ID = "user_id"
    COMPONENT_ID = "component_id"
    SESSION_UNREADABLE = "session_unreadable"
    SESSION_TOO_LARGE = "session_too_large"
    SESSION_TAKEN = "session_taken"
    RUN_UNREADABLE = "run_unreadable"
    RUN_ID = "run_id"
    RUN_TAKEN = "run_taken"
    RUN_UNFINISHED = "run_unfinished"
    RUN_TOO_LARGE = "run_too_large"
    MEMBER = "member"
    TEAM_RUN_ABSENT = "team_run_absent"
    SESSION_VALUE = "session_value"
    STATE = "state"
    SYSTEM_MESSAGE = "system_message"
    HISTORY_MESSAGE = "history_message"
    MESSAGE = "message"
    CALL = "call"
    MEDIA = "media"
    OTHER = "other"


SENTENCES: Final[Mapping[Reason, str]] = {
    Reason.WORKFLOW: "sessions of workflows, which are not hosted here",
    Reason.SESSION_ID: "sessions whose id no path can name, or has more than 255 characters",
    Reason.USER_ID: "sessions whose user id is reserved here, or has more than 255 characters",
    Reason.COMPONENT_ID: "sessions whose agent or team has an id that no path can name",
    Reason.SESSION_UNREADABLE: "sessions whose stored JSON cannot be read",
    Reason.SESSION_TOO_LARGE: "sessions larger than --max-session-mib",
    Reason.SESSION_TAKEN: "sessions whose id belongs to another agent or team of the user here",
    Reason.RUN_UNREADABLE: "runs that cannot be read, or have a status that is not known",
    Reason.RUN_ID: "runs whose id, or that of their agent or team, no path can name",
    Reason.RUN_TAKEN: "runs whose id belongs to a run of another session here",
    Reason.RUN_UNFINISHED: "runs that are not over: import again when they are, or use --final",
    Reason.RUN_TOO_LARGE: "runs of more than 16 MiB",
    Reason.MEMBER: "runs of members whose team's run was left out",
    Reason.TEAM_RUN_ABSENT: "runs of members without a team's run, stored as runs of their own",
    Reason.SESSION_VALUE: "states, metadata and summaries of sessions that are no objects",
    Reason.STATE: "states of more than 1 MiB",
    Reason.SYSTEM_MESSAGE: "system messages of runs: they are the operator's",
    Reason.HISTORY_MESSAGE: "messages that a run repeats from the runs before it",
    Reason.MESSAGE: "messages that cannot be read",
    Reason.CALL: "calls of tools without a result, and results without a call",
    Reason.MEDIA: "contents of files that are stored elsewhere, too large or not public",
    Reason.OTHER: "members of runs that have no place here",
}
"""By reason: what was left out, in words."""


@frozen
class LeftOut:
    """Something that was not imported.

    `run_id` is empty where it is a session; `detail` names the part of a run, or says more.
    """

    reason: Reason
    session_id: str
    run_id: str = ""
    detail: str = ""

    def describe(self) -> dict[str, str]:
        """Return it as a line of the list."""
        named = {"session_id": self.session_id, "run_id": self.run_id, "detail": self.detail}
        return {
            "reason": self.reason.value,
            **{name: value[:_SHOWN] for name, value in named.items() if value},
        }


@frozen
class Imported:
    """The outcome of the import of one session.

    Attributes:
        component: The kind and the id of its agent or team: `agent:ID`.
        database: Where it is now; empty where nothing of it was imported.
        is_new: It was not here before.
        runs: How many runs are new here, with those of members.
        members: How many of these are of members.
        known: How many were here before.
        files: How many files the new runs have.
    """

    component: str = ""
    database: str = ""
    is_new: bool = False
    has_user: bool = True
    runs: int = 0
    members: int = 0
    known: int = 0
    messages: int = 0
    files: int = 0
    left_out: tuple[LeftOut, ...] = ()


@define
class _Count:
    number: int = 0
    first: list[str] = field(factory=list[str])

    def add(self, name: str) -> None:
        self.number += 1
        if len(self.first) < _FIRST and name[:_SHOWN] not in self.first:
            self.first.append(name[:_SHOWN])


@define
class Report:
    """The sums of an import.

    Attributes:
        unhosted: How many sessions each agent and team has that is not hosted here.
        tables: How many rows the tables have that are not imported.
    """

    sessions: int = 0
    new: int = 0
    without_user: int = 0
    runs: int = 0
    members: int = 0
    known: int = 0
    messages: int = 0
    files: int = 0
    databases: dict[str, int] = field(factory=dict[str, int])
    unhosted: dict[str, int] = field(factory=dict[str, int])
    tables: dict[str, int] = field(factory=dict[str, int])
    _left_out: dict[Reason, _Count] = field(factory=dict[Reason, _Count], init=False)

    def add(self, one: Imported, *, hosted: bool = True) -> None:
        """Add what became of a session; `hosted`: its agent or team is hosted here."""
        self.leave_out(one.left_out)
        if not one.database:
            return
        self.sessions += 1
        self.new += one.is_new
        self.without_user += not one.has_user
        self.runs += one.runs
        self.members += one.members
        self.known += one.known
        self.messages += one.messages
        self.files += one.files
        self.databases[one.database] = self.databases.get(one.database, 0) + 1
        if not hosted and one.component:
            self.unhosted[one.component] = self.unhosted.get(one.component, 0) + 1

    def leave_out(self, left_out: Iterable[LeftOut]) -> None:
        """Add what was left out."""
        for one in left_out:
            count = self._left_out.setdefault(one.reason, _Count())
            count.add(one.run_id or one.session_id)

    def describe(self) -> dict[str, Any]:
        """Return the report as JSON."""
        left_out = {
            reason.value: {
                "count": self._left_out[reason].number,
                "what": SENTENCES[reason],
                "first": self._left_out[reason].first,
            }
            for reason in Reason
            if reason in self._left_out
        }
        return {
            "sessions": self.sessions,
            "new_sessions": self.new,
            "sessions_without_user": self.without_user,
            "runs": self.runs,
            "runs_of_members": self.members,
            "runs_known": self.known,
            "messages": self.messages,
            "files": self.files,
            "databases": dict(sorted(self.databases.items())),
            "unhosted": dict(sorted(self.unhosted.items())),
            "left_out": left_out,
            "tables": dict(sorted(self.tables.items())),
        }
