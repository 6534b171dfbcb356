"""The context of a run: what a function of the author's may know of the run that calls it.

A parameter that is annotated `Run` is given by the platform.  It stands in no schema, so a model
neither sees it nor may fill it: whose data a function reads is never the model's choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, get_args, get_origin

from attrs import field, setters
from typing_extensions import TypeVar

from ..values import define, frozen

__all__ = ["RESERVED", "FromModel", "Run", "RunFile", "name_fault", "without_mark"]

Deps = TypeVar("Deps", default=dict[str, Any])
State = TypeVar("State", default=dict[str, Any])

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def _empty() -> Any:
    """Return what nobody sent: an object without members."""
    return {}


@frozen
class RunFile:
    """A file that came with the message of a run.

    Attributes:
        name: As its sender named it; it is no path, and may be anything.
        media_type: As its sender said it, such as `application/pdf`; empty if nobody did.
        content: Its bytes.
    """

    name: str
    media_type: str
    content: bytes = field(repr=False)


@define(eq=False, kw_only=True, on_setattr=setters.frozen)
class Run(Generic[Deps, State]):
    """The run that calls a function: whose it is, where it belongs, and what came with it.

    `Run[Deps, State]` reads the dependencies and the state of the session as these classes; without
    them both are dictionaries.  Only `state` may be changed.

    Attributes:
        user_id: The subject of the caller's token; None where nobody has a name.
        session_id: The session of the run.
        run_id: The run; in a member of a team its own one.
        agent: The id of the agent or the team that the function belongs to.
        dependencies: As the request sent them, with the claims of `dependencies_claims`.
        metadata: As the request sent it.
        state: The state of the session, a copy of its own.
        files: The files that came with the message, then its pictures, sound and films.
        claims: The claims of the token that the platform hands on, by their names.
        now: The time, in UTC.
    """

    user_id: str | None = None
    session_id: str = ""
    run_id: str = ""
    agent: str = ""
    dependencies: Deps = field(factory=_empty, repr=False)
    metadata: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)
    state: State = field(factory=_empty, repr=False, on_setattr=setters.NO_OP)
    files: tuple[RunFile, ...] = ()
    claims: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)
    now: datetime = _EPOCH


class FromModel:
    """Marks a parameter of a reserved name as the model's: `Annotated[str, FromModel]`.

    It is for tools whose user may ask about others, such as those of support.
    """


RESERVED: Final[Mapping[str, str]] = {
    "user_id": "user_id",
    "session_id": "session_id",
    "run_id": "run_id",
    "run": "",
    "run_context": "",
    "session_state": "state",
    "dependencies": "dependencies",
    "metadata": "metadata",
}
"""Names that a parameter of a tool has only on purpose, with the member of `Run` that is meant."""

_IS_THE_CALLERS: Final = (
    "is the caller's, not the model's: add a parameter `run: Run` and read `run.{}`, or write"
    " Annotated[…, FromModel] where the model is to choose it"
)
_IS_THE_RUN: Final = (
    "is given by the platform: annotate it with `Run`, or write Annotated[…, FromModel] where the"
    " model is to choose it"
)
_AMONG_OTHERS: Final = "is a `Run` among others: annotate it with `Run` alone"


def _plain(name: str) -> str:
    """Return `name` as it is compared with reserved ones: `userId` and `_user_id` are `user_id`."""
    return name.replace("_", "").lower()


_PLAIN_RESERVED: Final = {_plain(name): member for name, member in RESERVED.items()}


def name_fault(name: str, hint: Any) -> str | None:
    """Return why a parameter of a tool cannot have this `name`; None if it can."""
    member = _PLAIN_RESERVED.get(_plain(name))
    if member is None or any(map(_is_mark, _notes(hint))):
        return None
    return _IS_THE_CALLERS.format(member) if member else _IS_THE_RUN


def without_mark(hint: Any) -> Any:
    """Return `hint` without `FromModel`."""
    notes = _notes(hint)
    if not any(map(_is_mark, notes)):
        return hint
    inner, kept = get_args(hint)[0], tuple(note for note in notes if not _is_mark(note))
    return Annotated[(inner, *kept)] if kept else inner


def _notes(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _is_mark(note: Any) -> bool:
    return note is FromModel or isinstance(note, FromModel)
