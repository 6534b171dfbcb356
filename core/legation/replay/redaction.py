"""The redaction of a recording: values that are nobody's business give way to placeholders.

A value is replaced everywhere it occurs, also within texts and within JSON in texts, by the same
placeholder of the same type, so that what agreed before agrees after.  A text keeps its class of
length, a power of two, and a number its digits.  The names of tools, the places and the kinds stay.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import evolve, field

from ..http.bodies.json_text import BadJson, parse_json
from ..store.steps import StepKind
from ..tools.accepted import is_array, is_number, is_object
from ..values import define, frozen
from .recording import RecordedDefinition, RecordedStep, Recording

__all__ = ["MAX_PATH", "MAX_PATHS", "MAX_WORK", "NO_AREA", "BadPath", "check_paths", "redact"]

MAX_PATHS: Final = 64
"""How many paths one redaction may have."""

MAX_PATH: Final = 200
"""How long a path may be, in characters."""

MAX_WORK: Final = 1 << 21
"""How many characters a server looks at for one redaction, which takes about a second."""

_PATH: Final = re.compile(r"(?:\$\.?)?([^.\s]+(?:\.[^.\s]+)*)")
_AREAS: Final = (
    *("user", "session_id", "input", "state", "history", "document"),
    *("arguments", "decision", "outcome", "error", "output"),
)
_OF_RUN: Final = ("user", "session_id", "input", "state")
_WITHIN: Final = 4
"""How long a text must be to be replaced within others, in characters; else alone."""

_AT_ONCE: Final = 512
"""How many characters are compared in the time of one that is looked at by itself."""

_NESTED: Final = 2
"""How often JSON in a text is looked into that is itself in the JSON of a text."""

_SHOWN: Final = 80
NO_AREA: Final = f"begins with none of: {', '.join(_AREAS)}"
"""The fault of a path, behind the path."""

_TOO_MANY: Final = f"No more than {MAX_PATHS} paths are taken"
_TOO_LONG: Final = f"is longer than {MAX_PATH} characters"
_TOO_MUCH: Final = (
    "The paths name too many values to look for in a recording of this length: name fewer, or"
    " redact with the command `legation replay`"
)

_Key: TypeAlias = tuple[str, str]


@frozen
class BadPath:
    """A path that names no part of a recording, or too much; `detail` is a sentence about it."""

    detail: str


class _TooMuch(Exception):
    """Leaves a replacement that takes too long; never leaves this module."""


def redact(
    recording: Recording, paths: Sequence[str], work: float = math.inf
) -> Recording | BadPath:
    """Return `recording` without the values at `paths`; itself where there are none.

    A path is that of a member in a line, as `arguments.card` or `input.message`, and `*` stands for
    every member or item.  It begins with one of the areas: `user`, `session_id`, `input`, `state`,
    `history`, `document`, `arguments`, `decision`, `outcome`, `error` and `output`.  A text is
    replaced wherever it occurs; a number only as the value of members of the same name.

    `work` bounds how many characters are looked at, and texts compared.
    """
    if not paths:
        return recording
    if (bad := check_paths(paths)) is not None:
        return bad
    finder = _Placeholders(work)
    for path in paths:
        area, *names = _split(path)
        for value in _list_areas(recording, area):
            finder.collect(value, names, area)
    try:
        return _replace(recording, finder)
    except _TooMuch:
        return BadPath(_TOO_MUCH)


def check_paths(paths: Sequence[str]) -> BadPath | None:
    """Return what is wrong with `paths`, whatever the recording; None where nothing is."""
    if len(paths) > MAX_PATHS:
        return BadPath(_TOO_MANY)
    for path in paths:
        if len(path) > MAX_PATH:
            return BadPath(f"The path {path[:_SHOWN]!r} {_TOO_LONG}")
        if _split(path)[0] not in _AREAS:
            return BadPath(f"The path {path[:_SHOWN]!r} {NO_AREA}")
    return None


def _split(path: str) -> list[str]:
    match = _PATH.fullmatch(path)
    return match[1].split(".") if match else [""]


def _list_areas(recording: Recording, area: str) -> Iterator[Any]:
    """Yield the values of the recording that are under this name in its lines."""
    match area:
        case "history":
            yield list(recording.history)
        case "output":
            yield recording.output
        case "document":
            yield from (one.document for one in recording.definitions)
        case _ if area in _OF_RUN:
            yield getattr(recording.run, area)
        case _:
            yield from (getattr(step, area) for step in recording.steps)


@define(eq=False)
class _Placeholders:
    """The placeholders by the texts, and by the names and numbers, that they stand for.

    Attributes:
        work: How much may yet be looked at.
    """

    work: float
    texts: dict[str, str] = field(factory=dict[str, str])
    numbers: dict[_Key, float] = field(factory=dict[_Key, float])
    _sizes: dict[str, list[int]] | None = None

    def collect(self, value: Any, names: Sequence[str], name: str) -> None:
        """Give all that is at `names` below `value` a placeholder; `name` is that of `value`."""
        if isinstance(value, str) and names:
            value = _parse(value)
        if is_object(value):
            chosen = [(one, value[one]) for one in value if not names or names[0] in ("*", one)]
            for one, below in chosen:
                self.collect(below, names[1:], one)
        elif is_array(value):
            for index, below in enumerate(value):
                if not names or names[0] in ("*", str(index)):
                    self.collect(below, names[1:], name)
        elif not names:
            self._add(value, name)

    def _add(self, value: Any, name: str) -> None:
        number = len(self.texts) + len(self.numbers) + 1
        if isinstance(value, str) and value:
            self.texts.setdefault(value, _make_text(value, number))
        elif is_number(value):
            self.numbers.setdefault((name, repr(value)), _make_number(value, number))

    def change(self, value: Any, name: str = "", nested: int = _NESTED) -> Any:
        """Return `value` with placeholders."""
        if isinstance(value, str):
            return self.change_text(value, nested)
        if is_object(value):
            changed: dict[str, Any] = {}
            for one in value:
                changed[self.change_text(one, 0)] = self.change(value[one], one, nested)
            return changed
        if is_array(value):
            return [self.change(one, name, nested) for one in value]
        if is_number(value):
            return self.numbers.get((name, repr(value)), value)
        return value

    def change_members(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object with placeholders, whose own names are no values."""
        return {name: self.change(value, name) for name, value in members.items()}

    def change_text(self, text: str, nested: int = _NESTED) -> str:
        """Return a text with placeholders; of JSON also the numbers in it."""
        if text in self.texts:
            return self.texts[text]
        if nested and isinstance(parsed := _parse(text), dict | list):
            changed = self.change(parsed, nested=nested - 1)
            return text if changed == parsed else json.dumps(changed, ensure_ascii=False)
        return self._change_within(text)

    def _change_within(self, text: str) -> str:
        """Return a text in which all that is in it is replaced, at each place the longest."""
        if self._sizes is None:
            self._sizes = self._list_sizes()
        self._spend(len(text))
        parts, done, at, last = list[str](), 0, 0, len(text) - _WITHIN
        while self._sizes and at <= last:
            known = self._sizes.get(text[at : at + _WITHIN])
            if known is None:
                at += 1
                continue
            sizes = [size for size in known if size <= len(text) - at]
            self._spend(sum(sizes) // _AT_ONCE + len(known))
            size = next((one for one in sizes if text[at : at + one] in self.texts), 0)
            if size:
                parts += (text[done:at], self.texts[text[at : at + size]])
                done = at + size
            at += size or 1
        return "".join((*parts, text[done:]))

    def _list_sizes(self) -> dict[str, list[int]]:
        """Return the lengths of the texts by how they begin, the longest first."""
        sizes: dict[str, list[int]] = {}
        for text in sorted(self.texts, key=len, reverse=True):
            if len(text) >= _WITHIN:
                known = sizes.setdefault(text[:_WITHIN], [])
                if len(text) not in known[-1:]:
                    known.append(len(text))
        return sizes

    def _spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            raise _TooMuch


def _parse(text: str) -> Any:
    """Return the object or list that a text holds as JSON; else the text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    parsed = parse_json(text.encode("utf-8", "surrogatepass"))
    return text if isinstance(parsed, BadJson) else parsed


def _make_text(value: str, number: int) -> str:
    """Return a text of the next power of two in length, where the number has room in it."""
    size = 1 << (len(value) - 1).bit_length()
    shown = f"redacted-{number}"
    return shown.ljust(size, "-") if len(shown) <= size else str(number).rjust(size, "x")


def _make_number(value: float, number: int) -> float:
    """Return a number of as many digits, or of more where there are many placeholders."""
    if isinstance(value, float):
        return number + 0.5
    return int("1".ljust(len(str(abs(value))), "0")) + number - 1


def _replace(recording: Recording, known: _Placeholders) -> Recording:
    run = recording.run
    return evolve(
        recording,
        run=evolve(
            run,
            user=known.change_text(run.user),
            session_id=known.change_text(run.session_id),
            input=known.change_members(run.input),
            state=known.change(run.state),
            redacted=True,
        ),
        steps=tuple(_replace_step(step, known) for step in recording.steps),
        output=known.change_members(recording.output),
        definitions=tuple(_replace_definition(one, known) for one in recording.definitions),
        history=tuple(_replace_message(one, known) for one in recording.history),
    )


def _replace_step(step: RecordedStep, known: _Placeholders) -> RecordedStep:
    outcome = step.outcome
    step = evolve(
        step,
        arguments=step.arguments and known.change_members(step.arguments),
        decision=step.decision and known.change_members(step.decision),
        error=step.error and {**known.change_members(step.error), "type": step.error["type"]},
    )
    if outcome is None:
        return step
    if step.kind == StepKind.START:
        kept = {"definition", "kind", "name", "calls", "guards", "usage", "cost"}
    else:
        kept = {"calls", "guards", "model", "usage", "cost", "seconds", "run", "failed", "last"}
    changed = {
        name: value if name in kept else known.change(value, name)
        for name, value in outcome.items()
    }
    if "state" in outcome:
        changed["state"] = known.change_members(outcome["state"])
    if "calls" in outcome:
        changed["calls"] = _replace_calls(outcome["calls"], known)
    if "guards" in outcome:
        changed["guards"] = [
            [*entry[:4], *map(known.change_text, entry[4:])] for entry in outcome["guards"]
        ]
    return evolve(step, outcome=changed)


def _replace_calls(calls: Iterable[Sequence[str]], known: _Placeholders) -> list[list[str]]:
    """Return calls whose arguments and results are replaced: ids, names and standings stay."""
    return [
        [call_id, name, _replace_arguments(text, known), *standing, *map(known.change_text, result)]
        for call_id, name, text, *rest in calls
        for standing, result in ((rest[:1], rest[1:]),)
    ]


def _replace_arguments(text: str, known: _Placeholders) -> str:
    """Return the arguments of a call as a model wrote them; the names of parameters stay."""
    parsed = _parse(text)
    if not is_object(parsed):
        return known.change_text(text)
    changed = known.change_members(parsed)
    return text if changed == parsed else json.dumps(changed, ensure_ascii=False)


def _replace_message(message: Mapping[str, Any], known: _Placeholders) -> Mapping[str, Any]:
    changed = {**message, "content": known.change_text(message["content"])}
    if "calls" in message:
        changed["calls"] = _replace_calls(message["calls"], known)
    return changed


def _replace_definition(one: RecordedDefinition, known: _Placeholders) -> RecordedDefinition:
    """Return a definition whose instructions are replaced: the model, tools and limits stay."""
    if "instructions" not in one.document:
        return one
    instructions = known.change(one.document["instructions"], "instructions")
    return evolve(one, document={**one.document, "instructions": instructions})
