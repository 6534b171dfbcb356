"""The comparison of a run with its recording: each divergence as a sentence, with a diff.

A model is asked with a prompt and tools, so whatever it is told otherwise is a divergence of the
place at which it is asked first.  The order of tools is none, and neither is a limit that the run
does not come to.  Of a redacted recording a placeholder agrees with any text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, Final

from attrs import field

from ..hosted.registry import Component
from ..http.messages import compact_json
from ..runs.turn_state import CallState, Standing
from ..tools.accepted import is_object
from ..values import frozen

__all__ = [
    "Divergence",
    "Replayed",
    "agree",
    "compare_admission",
    "compare_definition",
    "compare_instructions",
    "compare_outcome",
    "compare_schema",
    "make_diff",
]

MAX_DIFF: Final = 20_000
"""How long a diff may be, in characters."""

_MOST_LINES: Final = 2_000  # of a text that are compared line by line
_SHOWN: Final = 300  # characters of a text in a sentence
_PLACEHOLDER: Final = re.compile(r"redacted-[0-9]+-*|(?<!x)x{2,}+[0-9]+")
_INCIDENT: Final = re.compile("incident [0-9a-f]{16}")  # drawn anew each time


@frozen
class Divergence:
    """A place at which a run is no longer what was recorded.

    Attributes:
        place: As in the file: `3.2` is the second call of the third answer; `end` is the end.
        sentence: The difference, in words.
        diff: A unified diff from what was recorded to what is there now; may be empty.
        behind: It stands behind the first divergence, and may follow from that.
    """

    place: str
    sentence: str
    diff: str = ""
    behind: bool = False

    def __str__(self) -> str:
        where = "The end" if self.place == "end" else f"Place {self.place}"
        behind = " (behind the divergence)" if self.behind else ""
        return "\n".join(filter(None, (f"{where}{behind}: {self.sentence}", self.diff)))


@frozen
class Replayed:
    """The result of a replay.

    Attributes:
        divergences: All of them, in the order in which the run came to them.
    """

    divergences: tuple[Divergence, ...] = field(default=())

    @property
    def same(self) -> bool:
        """Whether the run is what was recorded."""
        return not self.divergences

    @property
    def first(self) -> str:
        """The first divergence in words; empty where there is none."""
        return str(self.divergences[0]) if self.divergences else ""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.divergences)) or "The same as recorded"


# --- Texts -------------------------------------------------------------------------------------


def agree(recorded: str, now: str) -> bool:
    """Return whether `now` is `recorded`, in which each placeholder stands for any text."""
    first, *others = _PLACEHOLDER.split(recorded)
    if not others:
        return now == first
    if not now.startswith(first):
        return False
    at, last = len(first), others.pop()
    for part in others:
        found = now.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(now) - len(last) >= at and now.endswith(last)


def make_diff(recorded: Any, now: Any) -> str:
    """Return the unified diff of two values: texts by their lines, all else as JSON."""
    before, after = _list_lines(recorded), _list_lines(now)
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    start = max(0, head - 3)
    cut = start + _MOST_LINES
    lines = unified_diff(before[start:cut], after[start:cut], "recorded", "now", lineterm="")
    diff = "\n".join(lines)
    return diff if len(diff) <= MAX_DIFF else f"{diff[:MAX_DIFF]}\n[cut: the diff is longer]"


def _list_lines(value: Any) -> list[str]:
    if value is None:
        return []
    parsed = _parse(value) if isinstance(value, str) else value
    if isinstance(parsed, dict | list):
        return json.dumps(parsed, ensure_ascii=False, indent=2, sort_keys=True).split("\n")
    return str(value).split("\n")


def _parse(text: str) -> Any:
    """Return the object or list that a text holds as JSON; else the text."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# --- What a model is told ----------------------------------------------------------------------


def compare_instructions(
    place: str, recorded: str | None, now: str | None, *, redacted: bool
) -> Iterator[Divergence]:
    """Yield the divergence of instructions; None is no text at all."""
    if recorded == now or (redacted and recorded and now and agree(recorded, now)):
        return
    yield Divergence(place, "The instructions differ", make_diff(recorded, now))


def compare_schema(
    place: str, recorded: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> Iterator[Divergence]:
    """Yield the divergence of the schema of the answer; None is no schema."""
    if (recorded or None) != (now or None):
        yield Divergence(place, "The output schema differs", make_diff(recorded, now))


def compare_definition(
    place: str, recorded: Mapping[str, Any], component: Component, called: Sequence[str]
) -> Iterator[Divergence]:
    """Yield the divergences of what a run began with, but for instructions and output schema.

    `called` are the tools that the recording has calls of: one that is gone shows at its call.
    """
    now: Mapping[str, Any] = json.loads(component.definition.document)
    for name in ("model", "tools", "members"):
        if not isinstance(recorded.get(name), type(now[name])):
            return  # a document of another release
    yield from _compare_models(place, recorded["model"], now["model"])
    yield from _compare_fallback(place, recorded.get("fallback"), now.get("fallback"))
    yield from _compare_tools(place, recorded["tools"], now["tools"], called)
    if recorded.get("mode") != now["mode"]:
        was, mode = recorded.get("mode"), now["mode"]
        yield Divergence(place, f"The mode of the team was {was}, and is {mode}")
    yield from _compare_members(place, recorded["members"], now["members"])
    before, after = recorded.get("history_runs"), now["history_runs"]
    if before != after:
        yield Divergence(place, f"history_runs was {before}, and is {after}")
    for name in ("history_tokens", "summaries"):
        was, value = recorded.get(name), now.get(name)
        if was != value:
            yield Divergence(place, f"{name} was {_show(was)}, and is {_show(value)}")


def _show(value: Any) -> str:
    return "not set" if value is None else compact_json(value)


def _compare_models(
    place: str, recorded: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Divergence]:
    if recorded != now:
        was, by = recorded.get("id"), recorded.get("provider")
        sentence = f"The model was {was} ({by}), and is {now['id']} ({now['provider']})"
        yield Divergence(place, sentence)


def _compare_fallback(place: str, recorded: Any, now: Any) -> Iterator[Divergence]:
    if recorded != now:
        diff = make_diff(recorded, now)
        yield Divergence(place, "The models that are asked where the first fails differ", diff)


def _compare_tools(
    place: str, recorded: Sequence[Any], now: Sequence[Any], called: Sequence[str]
) -> Iterator[Divergence]:
    before, after = _by_name(recorded), _by_name(now)
    new = [name for name in after if name not in before]
    for name, tool in before.items():
        if (other := after.get(name)) is not None:
            yield from _compare_tool(place, tool, other)
            continue
        renamed = next((one for one in new if _is_like(after[one], tool)), None)
        if renamed is not None:
            new.remove(renamed)
            yield Divergence(place, f"The tool {name} is called {renamed}")
        elif name not in called:
            yield Divergence(place, f"The tool {name} is gone")
    for name in new:
        yield Divergence(place, f"The tool {name} is new")


def _by_name(tools: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
    return {str(tool.get("name")): tool for tool in tools if is_object(tool)}


def _is_like(tool: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(tool.get(name) == other.get(name) for name in ("description", "parameters"))


def _compare_tool(
    place: str, recorded: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[Divergence]:
    name = now["name"]
    words = {"description": "description", "parameters": "schema"}
    for member, what in words.items():
        before, after = recorded.get(member), now[member]
        if before != after:
            yield Divergence(
                place, f"The {what} of the tool {name} differs", make_diff(before, after)
            )


def _compare_members(
    place: str, recorded: Sequence[Any], now: Sequence[Any]
) -> Iterator[Divergence]:
    for name in recorded:
        if name not in now:
            yield Divergence(place, f"The team no longer has the member {name}")
    for name in now:
        if name not in recorded:
            yield Divergence(place, f"The team has the new member {name}")


# --- Calls -------------------------------------------------------------------------------------

_STOOD: Final = {
    Standing.DUE: "was carried out at once",
    Standing.MEMBER: "was carried out at once",
    Standing.CONFIRM: "was to be confirmed by a person",
    Standing.EXTERNAL: "was left to the client",
    Standing.DONE: "was refused",
}
_STANDS: Final = {
    Standing.DUE: "is carried out at once",
    Standing.MEMBER: "is carried out at once",
    Standing.CONFIRM: "waits for a person",
    Standing.EXTERNAL: "is left to the client",
    Standing.DONE: "is refused",
}


def compare_admission(
    place: str, recorded: CallState, now: CallState, asked: str
) -> Iterator[Divergence]:
    """Yield the divergence of a call as it stands at first; `asked` is its tool, or the member."""
    if now.standing is not recorded.standing:
        was, stands = _STOOD[recorded.standing], _STANDS[now.standing]
        reason = "" if now.result is None else f": {_shorten(now.result)}"
        yield Divergence(place, f"{asked} {was}, and now {stands}{reason}")
    elif now.result != recorded.result:
        diff = make_diff(recorded.result, now.result)
        yield Divergence(place, f"{asked} is refused in other words", diff)


def compare_outcome(
    place: str, asked: str, recorded: tuple[str, bool], now: tuple[str, bool], *, redacted: bool
) -> Iterator[Divergence]:
    """Yield the divergence of what came of a call: the result, and whether that is an error."""
    (before, failed), (after, fails) = recorded, now
    before, after = (_INCIDENT.sub("incident", text) for text in (before, after))
    same = _parse(before) == _parse(after) or (redacted and agree(before, after))
    if same and failed == fails:
        return
    if failed == fails:
        sentence = f"{asked} fails otherwise" if fails else f"{asked} returns something else"
    else:
        sentence = f"{asked} returned a result, and now fails"
        if failed:
            sentence = f"{asked} failed, and now returns a result"
    yield Divergence(place, sentence, make_diff(before, after))
