"""The values of guards: what a guard is given, and what it may return."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from attrs import field

from ..values import frozen

__all__ = ["ANSWERABLE", "MAX_TEXT", "MOMENTS", "AskPerson", "Guarded", "Refuse", "Verdict"]

MOMENTS: Final = ("before_run", "before_model", "after_model", "before_tool", "after_tool")
"""The moments at which a guard can act, in their order."""

ANSWERABLE: Final = ("after_model", "before_tool")
"""The moments at which a guard may ask a person."""

MAX_TEXT: Final = 1 << 20
"""How long a text may be that is looked at, or that a guard puts in its place, in characters."""


@frozen
class Guarded:
    """The subject of a guard at one moment.

    Attributes:
        at: The moment, one of `MOMENTS`.
        text: The message of the run, the last message of the prompt, the answer of the model, or
            the result of the tool; empty before a tool.
        tool: The name of the tool; empty where there is none.
        arguments: The arguments of the call, as JSON has them.
        scopes: The scopes that the caller of the run held; none where authorization is off, and
            in channels.
    """

    at: str
    text: str = field(default="", repr=False)
    tool: str = ""
    arguments: Mapping[str, Any] = field(factory=dict[str, Any], repr=False)
    scopes: tuple[str, ...] = ()


@frozen
class Refuse:
    """The run ends, or the tool is not called.

    Attributes:
        sentence: It says why, to who reads the outcome: the caller, or the model.
    """

    sentence: str


@frozen
class AskPerson:
    """A person is to approve the call of the tool, or the answer.

    Attributes:
        why: The reason, which is shown to them.
    """

    why: str


Verdict: TypeAlias = str | Mapping[str, Any] | Refuse | AskPerson | None
"""None goes on; a text takes the place of the text, a mapping that of the arguments."""
