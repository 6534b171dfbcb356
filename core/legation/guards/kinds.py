"""The kinds of guards: a class for each, with the settings that it takes.

In a file the kind is a key of the table, `kind`, as in `[[agents.guards]]`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeAlias, cast

from attrs import field

from ..http.messages import compact_json
from ..models.conversation import ModelProtocol
from ..tools.structured import check_output, check_schema
from ..values import frozen
from .sensitive import MAX_WORD, MAX_WORDS, PATTERNS, redact, redact_value
from .verdicts import MAX_TEXT, MOMENTS, Guarded, Refuse, Verdict

__all__ = [
    "GUARDS",
    "MOMENT_OF",
    "Guard",
    "GuardLike",
    "Judge",
    "Length",
    "MatchesSchema",
    "PureGuard",
    "Redact",
    "ToolAccess",
]

MOMENT_OF: Final[Mapping[str, str]] = {
    "input": "before_run",
    "prompt": "before_model",
    "output": "after_model",
    "arguments": "before_tool",
    "result": "after_tool",
}
"""The moment at which a shipped guard acts, by what it is a guard `of`."""

_NOUNS: Final[Mapping[str, str]] = {
    "before_run": "message",
    "before_model": "message",
    "after_model": "answer",
    "before_tool": "text of arguments",
    "after_tool": "result",
}
_ANYBODY: Final = "*"
_TOO_LONG: Final = "The {} cannot be checked: it has {} characters, and {} are looked at"
_LONG: Final = "The {} is too long: it has {} characters, and no more than {} are allowed"
_SHORT: Final = "The {} is too short: it has {} characters, and at least {} are wanted"
_NO_ACCESS: Final = "The tool {} may not be called for this caller"
_ONE_OF: Final = "{!r} is none of: {}"
_MAX_LIST: Final = 1_000  # scopes, and names of tools beside one of them

Function: TypeAlias = Callable[..., Any]
Faults: TypeAlias = Iterator[tuple[str, str]]  # the key of a setting, and the sentence about it


def _texts(given: str | Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple, of which one may stand alone."""
    return (given,) if isinstance(given, str) else tuple(given)


def _lists(given: Mapping[str, Iterable[str]]) -> Mapping[str, tuple[str, ...]]:
    return {key: _texts(names) for key, names in given.items()}


def _lists_or_none(
    given: Mapping[str, Iterable[str]] | None,
) -> Mapping[str, tuple[str, ...]] | None:
    return None if given is None else _lists(given)


def _check_of(of: tuple[str, ...], allowed: Iterable[str] = tuple(MOMENT_OF)) -> Faults:
    known = tuple(allowed)
    if not of:
        yield "of", "names nothing; give one or more of: " + ", ".join(known)
    for name in of:
        if name not in known:
            yield "of", _ONE_OF.format(name, ", ".join(known))


def _measure(guarded: Guarded) -> str:
    """Return the text that a guard looks at: of arguments, their JSON."""
    return compact_json(guarded.arguments) if guarded.at == "before_tool" else guarded.text


@frozen(kw_only=True)
class Guard:
    """Functions of the author's, each at its moment.

    A function is given a `Guarded`, and the `Run` if it has a parameter of that type; it returns
    None, what takes the place of the text or of the arguments, `Refuse` or `AskPerson`.  In a file
    it is named as `module:attribute`.

    Attributes:
        before_run: It is asked about the message of the run.
        before_model: It is asked about the last message before each answer of the model.
        after_model: It is asked about each answer.
        before_tool: It is asked about each call of a tool.
        after_tool: It is asked about each result.
        name: The name in events and records; that of the function if it is not given.
    """

    kind: ClassVar[str] = "function"

    before_run: Function | str | None = None
    before_model: Function | str | None = None
    after_model: Function | str | None = None
    before_tool: Function | str | None = None
    after_tool: Function | str | None = None
    name: str | None = None

    @property
    def functions(self) -> Mapping[str, Function | str]:
        """The functions by their moments."""
        given = {
            "before_run": self.before_run,
            "before_model": self.before_model,
            "after_model": self.after_model,
            "before_tool": self.before_tool,
            "after_tool": self.after_tool,
        }
        return {moment: one for moment, one in given.items() if one is not None}

    def faults(self) -> Faults:
        """Yield what is wrong with the settings."""
        if not self.functions:
            yield "", "has no function: give one for " + ", ".join(MOMENTS)


class PureGuard:
    """Base of the guards that decide by their settings alone."""

    __slots__ = ()

    kind: ClassVar[str]

    @property
    @abstractmethod
    def moments(self) -> tuple[str, ...]:
        """The moments at which it acts."""

    @abstractmethod
    def faults(self) -> Faults:
        """Yield what is wrong with the settings."""

    @abstractmethod
    def judge(self, guarded: Guarded) -> Verdict:
        """Return what is to become of `guarded`."""


class _OfSome(PureGuard):
    """Base of the guards that say what they are guards `of`."""

    __slots__ = ()

    of: tuple[str, ...]

    @property
    def moments(self) -> tuple[str, ...]:
        """The moments at which it acts."""
        return tuple(dict.fromkeys(MOMENT_OF[name] for name in self.of if name in MOMENT_OF))


@frozen
class Length(_OfSome):
    """A text may have so many characters; of arguments, their JSON counts.

    Attributes:
        most: How many it may have.
        of: What is measured: input, prompt, output, arguments, result.
        least: How many it must have.
    """

    kind: ClassVar[str] = "length"

    most: int
    of: tuple[str, ...] = field(default=("input",), converter=_texts)
    least: int = 0

    def faults(self) -> Faults:
        """Yield what is wrong with the settings."""
        yield from _check_of(self.of)
        if type(self.most) is not int or self.most < 1:
            yield "most", "must be an integer of at least 1"
        elif type(self.least) is not int or not 0 <= self.least <= self.most:
            yield "least", "must be an integer from 0 to that of `most`"

    def judge(self, guarded: Guarded) -> Verdict:
        """Refuse what is too long or too short."""
        size, noun = len(_measure(guarded)), _NOUNS[guarded.at]
        if size > self.most:
            return Refuse(_LONG.format(noun, size, self.most))
        return Refuse(_SHORT.format(noun, size, self.least)) if size < self.least else None


@frozen
class MatchesSchema(_OfSome):
    """A text is a JSON object that satisfies a schema, and so are arguments.

    Attributes:
        schema: A JSON schema, as that of `output_schema`.
        of: What is checked: output, arguments, result.
    """

    kind: ClassVar[str] = "schema"

    schema: Mapping[str, Any]
    of: tuple[str, ...] = field(default=("output",), converter=_texts)

    def faults(self) -> Faults:
        """Yield what is wrong with the settings."""
        yield from _check_of(self.of, ("output", "arguments", "result"))
        if not isinstance(cast(Any, self.schema), Mapping):
            yield "schema", "must be a JSON schema, as a mapping"
        elif sentence := check_schema(self.schema):
            yield "schema", sentence

    def judge(self, guarded: Guarded) -> Verdict:
        """Refuse what does not fit."""
        found = check_output(self.schema, _measure(guarded))
        if not isinstance(found, str):
            return None
        return Refuse(found.replace("The answer", f"The {_NOUNS[guarded.at]}", 1).rstrip("."))


@frozen(kw_only=True)
class ToolAccess(PureGuard):
    """The tools that may be called for a caller, by the scopes that the caller holds.

    A name that ends with `*` stands for all that begin so; the scope `*` is everybody's.

    Attributes:
        allow: Names of tools by scopes: one that stands beside no scope of the caller is refused.
        deny: Names of tools by scopes: one that stands beside a scope of the caller is refused,
            whatever allows it.
    """

    kind: ClassVar[str] = "tool_access"

    allow: Mapping[str, tuple[str, ...]] | None = field(default=None, converter=_lists_or_none)
    deny: Mapping[str, tuple[str, ...]] = field(factory=dict[str, Any], converter=_lists)

    @property
    def moments(self) -> tuple[str, ...]:
        """The moments at which it acts."""
        return ("before_tool",)

    def faults(self) -> Faults:
        """Yield what is wrong with the settings."""
        if self.allow is None and not self.deny:
            yield "", "lists nothing: give allow, deny, or both"
        for key, lists in (("allow", self.allow or {}), ("deny", self.deny)):
            if len(lists) > _MAX_LIST or any(len(names) > _MAX_LIST for names in lists.values()):
                yield key, f"has more than {_MAX_LIST} scopes, or names of tools beside one"

    def judge(self, guarded: Guarded) -> Verdict:
        """Refuse a tool that the caller has no access to."""
        held = (*guarded.scopes, _ANYBODY)
        denied = _is_listed(self.deny, held, guarded.tool)
        allowed = self.allow is None or _is_listed(self.allow, held, guarded.tool)
        return None if allowed and not denied else Refuse(_NO_ACCESS.format(guarded.tool[:100]))


def _is_listed(lists: Mapping[str, tuple[str, ...]], scopes: Iterable[str], tool: str) -> bool:
    return any(_is_named(name, tool) for scope in scopes for name in lists.get(scope, ()))


def _is_named(name: str, tool: str) -> bool:
    return tool.startswith(name[:-1]) if name.endswith(_ANYBODY) else tool == name


@frozen(kw_only=True)
class Redact(_OfSome):
    """A label takes the place of what a pattern finds, and of words in capitals or not.

    Attributes:
        patterns: Names of the table: key, email, iban, card, phone.
        words: Texts as they stand; no character in them has a meaning.
        of: What is searched: input, prompt, output, arguments, result.
    """

    kind: ClassVar[str] = "redact"

    patterns: tuple[str, ...] = field(default=(), converter=_texts)
    words: tuple[str, ...] = field(default=(), converter=_texts)
    of: tuple[str, ...] = field(default=("output",), converter=_texts)

    def faults(self) -> Faults:
        """Yield what is wrong with the settings."""
        yield from _check_of(self.of)
        if not (self.patterns or self.words):
            yield "", "redacts nothing: give patterns, words, or both"
        for name in self.patterns:
            if name not in PATTERNS:
                yield "patterns", _ONE_OF.format(name[:100], ", ".join(PATTERNS))
        if len(self.words) > MAX_WORDS or not all(0 < len(w) <= MAX_WORD for w in self.words):
            yield "words", f"must be at most {MAX_WORDS} texts of 1 to {MAX_WORD} characters"

    def judge(self, guarded: Guarded) -> Verdict:
        """Return the text, or the arguments, with labels in them."""
        size = len(_measure(guarded))
        if size > MAX_TEXT:
            return Refuse(_TOO_LONG.format(_NOUNS[guarded.at], size, MAX_TEXT))
        if guarded.at == "before_tool":
            left = redact_value(guarded.arguments, self.patterns, self.words)
            return None if left == guarded.arguments else left
        text = redact(guarded.text, self.patterns, self.words)
        return None if text == guarded.text else text


@frozen(kw_only=True)
class Judge:
    """A second model says whether a message, or an answer, is allowed.

    It is asked once, apart from the conversation and without tools; what it costs is counted as the
    run's.

    Attributes:
        instructions: The rules, and what it is to look for.
        model: The model that is asked.
        agent: Or the id of an agent, whose model is asked, with its instructions before these.
        of: input, output, or both.
        sentence: The sentence of a refusal; the reason that the model gives if it is not given.
    """

    kind: ClassVar[str] = "judge"

    instructions: str = ""
    model: str | ModelProtocol | None = None
    agent: str | None = None
    of: tuple[str, ...] = field(default=("output",), converter=_texts)
    sentence: str | None = None

    @property
    def moments(self) -> tuple[str, ...]:
        """The moments at which it acts."""
        return tuple(dict.fromkeys(MOMENT_OF[name] for name in self.of if name in MOMENT_OF))

    def faults(self) -> Faults:
        """Yield what is wrong with the settings."""
        yield from _check_of(self.of, ("input", "output"))
        if (self.model is None) == (self.agent is None):
            yield "", "name either a model or an agent that judges"
        if not self.instructions and self.agent is None:
            yield "instructions", "missing: the rules by which the model judges"


GuardLike: TypeAlias = Guard | Length | MatchesSchema | ToolAccess | Redact | Judge
"""A guard of any kind."""

GUARDS: Final[Mapping[str, type[Any]]] = {
    one.kind: one for one in (Guard, Length, MatchesSchema, ToolAccess, Redact, Judge)
}
"""The kinds of guards by the names that a file has for them."""
