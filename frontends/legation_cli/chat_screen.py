"""The screen of a conversation: from the events of a run to pieces of text and lines.

An answer is shown as it comes.  A call of a tool has two lines, with its arguments and with its
outcome.  Of the members of a team the calls are shown, and the answers in a line each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from attrs import field

from legation.values import define

from .chat_actions import Event, Say, Tell
from .chat_json import as_object, as_text

__all__ = ["ENDS", "Screen", "describe_arguments", "describe_call", "make_harmless"]

ENDS: Final = frozenset({"RunCompleted", "RunPaused", "RunError", "RunCancelled"})
"""The events that end the stream of a run, without `Team`."""

Shown: TypeAlias = Iterator[Say | Tell]

_LINE: Final = 240  # characters of what is shown in a line
_JOINERS: Final = "\u200c\u200d"  # between letters of Persian or Hindi, and within emoji
_STEERS: Final = re.compile(r"[^\n\t\x20-\x7e]")


def make_harmless(text: str) -> str:
    """Return `text` with each character escaped that a terminal or a reader could obey.

    Those are control characters, and those that turn the direction of writing.  Line ends, tabs,
    every space and the joiners of letters stay as they are.
    """
    return _STEERS.sub(_escape, text.replace("\r\n", "\n"))


def _escape(matched: re.Match[str]) -> str:
    character = matched[0]
    if character.isprintable() or character in _JOINERS or _is_space(character):
        return character
    return character.encode("unicode_escape").decode()


def _is_space(character: str) -> bool:
    """Tell whether it is a space by Unicode, which is no end of a line."""
    return character.isspace() and len(f"a{character}a".splitlines()) == 1 and character > "\x9f"


def describe_arguments(arguments: object) -> str:
    """Return the arguments of a call, whole: what is agreed to has to be seen."""
    return ", ".join(f"{name}={_json(value)}" for name, value in as_object(arguments).items())


def describe_call(tool: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return a call as `book(room="blue")`, in a line of bounded length unless `whole`."""
    text = describe_arguments(tool.get("tool_args"))
    return f"{tool.get('tool_name')}({text if whole else _shorten(text)})"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shorten(value: object) -> str:
    """Return `value` in one line of bounded length."""
    text = value if isinstance(value, str) else _json(value)
    line = " ".join(text[: 4 * _LINE].split())
    if len(text) <= 4 * _LINE and len(line) <= _LINE:
        return line
    return f"{line[:_LINE]}… ({len(text)} characters)"


@define
class Screen:
    """The screen of one run.

    Attributes:
        run_id: The run that is shown; the first event without a parent names it.
    """

    run_id: str = ""
    _pieces: list[str] = field(factory=list[str], init=False)
    _within: bool = field(default=False, init=False)
    """Whether the line on the screen has no end yet."""

    def is_own(self, event: Event) -> bool:
        """Tell whether `event` is of the run that is shown, and not of a member's."""
        run_id = event.data.get("run_id")
        if not self.run_id and isinstance(run_id, str) and not event.data.get("parent_run_id"):
            self.run_id = run_id
        return run_id == self.run_id

    def show(self, event: Event) -> Shown:
        """Yield what `event` puts on the screen; one that is not known, nothing."""
        name, data = event.name.removeprefix("Team"), event.data
        if not self.is_own(event):
            yield from self._show_member(name, data)
            return
        match name:
            case "RunContent":
                yield from self._say(data.get("content"))
            case "ModelRequestStarted":
                yield from self._begin(again=data.get("again") is True)
            case "RunContinued" if data.get("resumed") is True:
                yield from self._tell("(the server has resumed the run)")
            case "RunCompleted":
                yield from self._complete(data.get("content"))
            case "RunPaused":
                yield from self._end_line()
            case "RunError":
                yield from self._tell(_describe_error(data))
            case "RunCancelled":
                yield from self._tell(f"Cancelled: {_shorten(data.get('reason'))}")
            case _:
                yield from self._show_tool(name, data, "")

    def end(self) -> Shown:
        """Yield what ends the line, where a stream broke within it."""
        yield from self._end_line()

    def _say(self, content: object) -> Shown:
        if isinstance(content, str) and content:
            self._pieces.append(content)
            self._within = not content.endswith("\n")
            yield Say(content)

    def _begin(self, *, again: bool) -> Shown:
        if again and self._pieces:
            yield from self._tell("(the answer broke off and begins again)")
        else:
            yield from self._end_line()
        self._pieces.clear()

    def _complete(self, content: object) -> Shown:
        """Show the answer where the pieces are not it: one of a tool, a member or a schema."""
        text = content if isinstance(content, str) else "" if content is None else _json(content)
        if text != "".join(self._pieces):
            yield from self._end_line()
            yield from self._say(text)
        yield from self._end_line()

    def _show_member(self, name: str, data: Mapping[str, Any]) -> Shown:
        who = f"[{data.get('agent_id') or data.get('team_id')}] "
        match name:
            case "RunCompleted":
                yield from self._tell(f"  {who}{_shorten(data.get('content'))}")
            case "RunError":
                yield from self._tell(f"  {who}{_describe_error(data)}")
            case _:
                yield from self._show_tool(name, data, who)

    def _show_tool(self, name: str, data: Mapping[str, Any], who: str) -> Shown:
        tool = as_object(data.get("tool"))
        match name:
            case "ToolCallStarted":
                yield from self._tell(f"  {who}-> {describe_call(tool)}")
            case "ToolCallCompleted" if not tool.get("tool_call_error"):
                result = _shorten(tool.get("result"))
                yield from self._tell(f"  {who}<- {tool.get('tool_name')}: {result}")
            case "ToolCallError":
                reason = _shorten(data.get("error"))
                yield from self._tell(f"  {who}<- {tool.get('tool_name')} failed: {reason}")
            case _:
                return

    def _tell(self, text: str) -> Shown:
        yield from self._end_line()
        yield Tell(text)

    def _end_line(self) -> Shown:
        if self._within:
            self._within = False
            yield Say("\n")


def _describe_error(data: Mapping[str, Any]) -> str:
    """Return the sentence of a run that failed, with what an operator looks for."""
    sentence = _shorten(data.get("content"))
    names = [as_text(data.get(name)) for name in ("error_type", "incident")]
    new = [name for name in names if name and name not in sentence]
    behind = f" ({', '.join(new)})" if new else ""
    return f"Error: {sentence}{behind}"
