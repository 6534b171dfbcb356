"""The questions of a run that waits for a person, and the answers as they are typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from legation.values import frozen

from .chat_json import as_object
from .chat_screen import describe_call

__all__ = ["Question", "read_decision"]

Form: TypeAlias = Literal["agree", "execute", "doubt"]
"""An answer is agreement, the result of a call, or what became of a call after a crash."""

_PROMPTS: Final[Mapping[Form, str]] = {
    "agree": "Approve? [y, or n and a reason] ",
    "execute": "Its result: ",
    "doubt": "Call it again? [y, n, or = and its result] ",
}
_TEXTS: Final[Mapping[Form, str]] = {
    "agree": "  ? {call} wants your approval",
    "execute": "  ? {call} is executed by you",
    "doubt": "  ? {call} was interrupted by a crash, and nobody knows whether it was done",
}
_HINTS: Final[Mapping[Form, str]] = {
    "agree": "y approves the call; n rejects it, and the model reads what stands behind it.",
    "execute": "",
    "doubt": "y calls it again; n says that its outcome is unknown; = 42 says that it was 42.",
}
_YES: Final = ("y", "yes")
_NO: Final = ("n", "no")


@frozen
class Question:
    """The question to the person about one call.

    Attributes:
        asked: The call as it was shown, with the id of its requirement.
        form: What an answer is.
    """

    asked: Mapping[str, Any]
    form: Form

    @classmethod
    def of(cls, requirement: Mapping[str, Any]) -> Question:
        """Return the question of one of a run's requirements."""
        tool = as_object(requirement.get("tool_execution"))
        asked = {**tool, "requirement_id": requirement.get("id")}
        if tool.get("in_doubt"):
            return cls(asked, "doubt")
        return cls(asked, "execute" if tool.get("external_execution_required") else "agree")

    @property
    def text(self) -> str:
        """The call, whole, and what it waits for."""
        return _TEXTS[self.form].format(call=describe_call(self.asked, whole=True))

    @property
    def prompt(self) -> str:
        """The text before the answer."""
        return _PROMPTS[self.form]

    @property
    def hint(self) -> str:
        """The help after an answer that is none."""
        return _HINTS[self.form]

    @property
    def takes_text(self) -> bool:
        """Whether any text is an answer, in several lines if need be."""
        return self.form == "execute"

    def read(self, typed: str) -> Mapping[str, Any] | None:
        """Return the call with the answer that was typed; None where that is none."""
        if self.form == "execute":
            return {**self.asked, "result": typed}
        if self.form == "doubt" and typed.lstrip().startswith("="):
            return {**self.asked, "result": typed.lstrip()[1:].strip()}
        decision = read_decision(typed)
        return None if decision is None else {**self.asked, **decision}


def read_decision(typed: str) -> Mapping[str, Any] | None:
    """Return the members of an answer: y or n, and a note behind it; None where it is neither."""
    word, _, note = typed.strip().partition(" ")
    noted = {"confirmation_note": note.strip()} if note.strip() else {}
    if word.lower() in _YES:
        return {"confirmed": True, **noted}
    if word.lower() in _NO:
        return {"confirmed": False, **noted}
    return None
