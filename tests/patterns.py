"""Every pattern of a source tree, and how its cost grows on hostile repetitions of its alphabet.

A pattern is found in the source: each call of `re` is read, wherever it stands, and its arguments
are evaluated in the module that it stands in.  What hurts it is derived from the pattern itself:
what its repetitions repeat, each character that it tells apart, each pair of these, behind what
must come before, and before what it cannot take.

`python -m tests.patterns` prints the table.
"""

from __future__ import annotations

import ast
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeGuard

from attrs import define, frozen

__all__ = [
    "SOURCES",
    "Found",
    "Measured",
    "growth",
    "measure",
    "patterns_of",
    "rows",
    "table",
]

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = (ROOT / "core", ROOT / "frontends")

Pattern: TypeAlias = "re.Pattern[str] | re.Pattern[bytes]"
Node: TypeAlias = "tuple[Any, Any]"
"""A part of a pattern, as `re` parses it."""
Call: TypeAlias = Callable[[int], Callable[[], object]]
"""What is measured, prepared for an input of a length."""

_grammar: Final[Any] = import_module("re._parser")
_codes: Final[Any] = import_module("re._constants")

LENGTHS: Final = (3072, 6144)
"""Characters of the inputs that are compared."""

_RAMP: Final = (
    *(12, 16, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 128, 192, 256, 384, 1536),
    LENGTHS[1],
)
"""Short inputs come first: what is worse than a square takes its time with these already.

The steps are small enough that a power of any base is judged before it takes minutes.
"""

JUDGED: Final = 0.005
"""Seconds of CPU under which nothing is judged: the noise of the clock would be."""

GROWTH: Final = 2.8
"""For twice the length.  A line doubles, a square quadruples."""

SUSPECT: Final = 2.2
"""From here on it is looked at again: what slows the shorter one hides a square."""

_ROUNDS: Final = 5
_TRIES: Final = 3


@frozen
class Measured:
    """Seconds of CPU at two lengths; and for which input, where that is derived."""

    short: float
    long: float
    text: str = ""

    @property
    def grows(self) -> bool:
        """Whether it costs more than in proportion to the length."""
        return self.long > JUDGED and self.long > GROWTH * self.short

    @property
    def suspect(self) -> bool:
        """Whether it may cost more than that, and has to be measured better."""
        return self.long > JUDGED and self.long > SUSPECT * self.short


def _cost(call: Callable[[], object]) -> float:
    begun = time.thread_time()
    call()
    return time.thread_time() - begun


def growth(call: Call, lengths: tuple[int, int] = LENGTHS, text: str = "") -> Measured:
    """Return what `call` costs at two lengths, the least of five.

    At the first sight under what is judged, both are taken once.  The two lengths take turns, so
    that whatever else the machine does slows both; a suspect is looked at three times.
    """
    short, long = map(call, lengths)
    measured = Measured(_cost(short), _cost(long), text)
    costs: list[tuple[float, float]] = []
    while measured.suspect and len(costs) < _TRIES * _ROUNDS:
        costs += [(_cost(short), _cost(long)) for _ in range(_ROUNDS)]
        measured = Measured(min(one for one, _ in costs), min(two for _, two in costs), text)
    return measured


def table(rows: Iterable[tuple[str, str, Measured]]) -> str:
    """Return the rows of what was measured: a place, what stands there, and milliseconds."""
    lines = [
        f"{place:<48}{1000 * m.short:>10.3f}{1000 * m.long:>10.3f}  {'GROWS' * m.grows:<6}{what}"
        for place, what, m in rows
    ]
    return "\n".join([f"{'place':<48}{'ms, half':>10}{'ms, whole':>10}", *lines])


# --- Where patterns are ---------------------------------------------------------------------------

_METHODS: Final = frozenset({"fullmatch", "match", "search", "finditer"})
_SCANNING: Final[Mapping[str, str]] = dict.fromkeys(
    ("findall", "finditer", "split", "sub", "subn"), "finditer"
)
_MAKERS: Final = frozenset({"compile", *_METHODS, *_SCANNING})
_FLAGS_AT: Final = {"compile": 1, "split": 3, "sub": 4, "subn": 4}
_HARMLESS: Final = frozenset(
    {"Match", "Pattern", "error", "escape", *(n for n in dir(re) if n.isupper())}
)


@frozen
class Found:
    """A pattern of the source, and the methods by which it is used."""

    place: str
    pattern: Pattern
    methods: tuple[str, ...]


@define
class _Module:
    """A module that uses `re`."""

    place: str
    nodes: list[ast.AST]
    names: dict[str, Any]

    def patterns(self, used: dict[str, set[str]]) -> Iterator[Found]:
        """Yield what the module compiles; `used` are methods by the names of public patterns.

        Raises:
            ValueError: A pattern is not known before the module runs, or a function of `re` is
                passed on instead of called.
        """
        calls = {id(each.func): each for each in self.nodes if isinstance(each, ast.Call)}
        targets = dict(self._targets())
        mine = _methods(self.nodes)
        for each in self.nodes:
            if isinstance(each, ast.ImportFrom) and each.module == "re":
                raise ValueError(f"{self.place}:{each.lineno}: import `re` itself")
            if not _is_of_re(each) or each.attr in _HARMLESS:
                continue
            place = f"{self.place}:{each.lineno}"
            if each.attr not in _MAKERS or id(each) not in calls:
                raise ValueError(f"{place}: call re.{each.attr} where it stands")
            call = calls[id(each)]
            name = targets.get(id(call), "")
            methods = (mine if name.startswith("_") else used).get(name, _METHODS)
            if each.attr != "compile":
                methods = {_SCANNING.get(each.attr, each.attr)}
            compiled = self._compiled(call, _FLAGS_AT.get(each.attr, 2), place)
            yield Found(place, compiled, tuple(sorted(methods)))

    def _targets(self) -> Iterator[tuple[int, str]]:
        """Yield the calls whose values have names."""
        for each in self.nodes:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield id(each.value), each.target.id
            elif isinstance(each, ast.Assign):
                yield from ((id(each.value), t.id) for t in each.targets if isinstance(t, ast.Name))

    def _compiled(self, call: ast.Call, flags_at: int, place: str) -> Pattern:
        flags = [word.value for word in call.keywords if word.arg == "flags"]
        try:
            values = map(self._value, (call.args[0], *call.args[flags_at:], *flags))
            return re.compile(*values)
        except Exception as error:
            raise ValueError(f"{place}: the pattern is not known before it runs") from error

    def _value(self, node: ast.expr) -> Any:
        return eval(compile(ast.Expression(node), self.place, "eval"), self.names)


def _is_re(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"


def _is_of_re(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and _is_re(node.value)


def _methods(nodes: Iterable[ast.AST]) -> dict[str, set[str]]:
    """Return which methods of a pattern are used, by the names they are used on."""
    used: dict[str, set[str]] = {}
    for each in nodes:
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            method = _SCANNING.get(each.attr, each.attr)
            if method in _METHODS:
                used.setdefault(each.value.id, set()).add(method)
    return used


def _modules(root: Path) -> Iterator[_Module]:
    for path in sorted(root.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        inside = path.relative_to(root)
        if any(isinstance(each, ast.Name) and each.id == "re" for each in nodes):
            name = ".".join(inside.with_suffix("").parts).removesuffix(".__init__")
            names = vars(import_module(name))
        else:
            names = dict[str, Any]()
        yield _Module(f"{root.name}/{inside}", nodes, names)


def patterns_of(roots: Iterable[Path]) -> list[Found]:
    """Return every pattern of the packages in the folders `roots`, by place.

    Raises:
        ValueError: One cannot be judged.
    """
    modules = [module for root in roots for module in _modules(root)]
    used = _methods(node for module in modules for node in module.nodes)
    return [found for module in modules for found in module.patterns(used)]


# --- What hurts a pattern -------------------------------------------------------------------------

_MANY: Final = 32
"""What may be repeated more often than this is tried with as many as there is room for."""

_FEW: Final = 4
"""How many samples stand for all that a part may match."""

_STRANGE: Final = "\u0130\u2028\u3002\ud800\uff01\U0001f3fb"

_REPEATS: Final = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)
_ATOMS: Final = (_codes.LITERAL, _codes.NOT_LITERAL, _codes.ANY, _codes.IN)
_LOOKS: Final = (_codes.ASSERT, _codes.ASSERT_NOT)
_EMPTY: Final = (*_LOOKS, _codes.AT, _codes.GROUPREF)


def _children(op: Any, value: Any) -> list[list[Node]]:
    if op is _codes.BRANCH:
        return [list(branch) for branch in value[1]]
    inside = {**dict.fromkeys(_REPEATS, 2), _codes.SUBPATTERN: 3, **dict.fromkeys(_LOOKS, 1)}
    if op in inside:
        return [list(value[inside[op]])]
    return [list(value)] if op is _codes.ATOMIC_GROUP else []


def _atoms(nodes: list[Node]) -> Iterator[Node]:
    for op, value in nodes:
        if op in _ATOMS:
            yield op, value
        for child in _children(op, value):
            yield from _atoms(child)


@frozen
class _Alphabet:
    """The characters that are tried: all of one byte, those that are named, and some others."""

    flags: int
    pool: str

    @classmethod
    def of(cls, pattern: Pattern, nodes: list[Node]) -> _Alphabet:
        is_bytes = isinstance(pattern.pattern, bytes)
        named = "".join(chr(value) for op, value in _atoms(nodes) if op is _codes.LITERAL)
        pool = "a0 _" + named + "".join(map(chr, range(256))) + _STRANGE * (not is_bytes)
        flags = re.ASCII if is_bytes else pattern.flags & (re.ASCII | re.UNICODE)
        return cls(flags, "".join(dict.fromkeys(pool)))

    def members(self, op: Any, value: Any) -> str:
        """Return the characters that a part for one character takes."""
        if op is _codes.LITERAL:
            return chr(value)
        if op is _codes.ANY:
            return self.pool
        if op is _codes.NOT_LITERAL:
            return self.pool.replace(chr(value), "")
        negated = value[0][0] is _codes.NEGATE
        taken = {each for item in value[negated:] for each in self._item(*item)}
        return "".join(each for each in self.pool if (each in taken) is not negated)

    def _item(self, op: Any, value: Any) -> Iterable[str]:
        if op is _codes.LITERAL:
            return chr(value)
        if op is _codes.RANGE:
            return [each for each in self.pool if value[0] <= ord(each) <= value[1]]
        kind = value.name.rpartition("_")[2][0].lower()
        kind = kind.upper() if "_NOT_" in value.name else kind
        return re.findall(rf"\{kind}", self.pool, self.flags)

    def kinds(self, nodes: list[Node]) -> list[str]:
        """Return one character of each kind that is told apart; first one that nothing takes."""
        sets = [self.members(*atom) for atom in _atoms(nodes)]
        kinds: dict[tuple[bool, ...], str] = {}
        for character in self.pool:
            kinds.setdefault(tuple(character in members for members in sets), character)
        return [kinds[key] for key in sorted(kinds)]

    def samples(self, nodes: list[Node]) -> list[str]:
        """Return a few texts that `nodes` match, as far as they do not look around."""
        parts = [self.sample(*node) for node in nodes]
        joined = ("".join(each) for each in islice(product(*parts), _FEW * _FEW))
        return list(dict.fromkeys(joined))[:_FEW]

    def sample(self, op: Any, value: Any) -> list[str]:
        """Return a few texts that one part matches."""
        if op in _ATOMS:
            members = self.members(op, value)
            return list(dict.fromkeys((members[0], members[-1])))
        if op in _EMPTY:
            return [""]
        samples = [each for child in _children(op, value) for each in self.samples(child)]
        if op in _REPEATS:
            return [each * max(value[0], 1) for each in samples] + [""] * (value[0] == 0)
        return samples[:_FEW]


def _pumps(nodes: list[Node], before: str, alphabet: _Alphabet) -> Iterator[tuple[str, str, str]]:
    """Yield what stands before a repetition, what is repeated, and what is wanted behind it."""
    for index, (op, value) in enumerate(nodes):
        for child in _children(op, value):
            yield from _pumps(child, before, alphabet)
        if op in _REPEATS and value[1] > _MANY:
            behind = alphabet.samples(nodes[index + 1 :])[0]
            yield from ((before, body, behind) for body in alphabet.samples(list(value[2])) if body)
        before += alphabet.sample(op, value)[0]
        if before:
            yield "", before, ""  # each beginning of a match is a repetition, too


def hostile(pattern: Pattern) -> list[Callable[[int], str]]:
    """Return makers of texts, of about the length that they are given, that may hurt `pattern`."""
    nodes = list(_grammar.parse(pattern.pattern, pattern.flags))
    alphabet = _Alphabet.of(pattern, nodes)
    kinds = alphabet.kinds(nodes)
    stranger = kinds[0]
    pumps = dict.fromkeys(_pumps(nodes, "", alphabet))
    shapes = {
        (before, pump, end): None
        for before, pump, behind in pumps
        for end in ("", stranger, behind, behind[:-1], behind + stranger)
    }
    for before, kind, end in product({"", *(each[0] for each in pumps)}, kinds, ("", stranger)):
        shapes[before, kind, end] = None
    pairs = list(permutations(kinds, 2))
    shapes |= {("", "".join(pair), stranger): None for pair in pairs}
    halves = [partial(_halves, *pair, stranger) for pair in pairs]
    return [*(partial(_repeat, *shape) for shape in shapes), *halves]


def _repeat(before: str, pump: str, behind: str, length: int) -> str:
    return before + pump * max(1, (length - len(before) - len(behind)) // len(pump)) + behind


def _halves(first: str, second: str, behind: str, length: int) -> str:
    return first * (length // 2) + second * (length // 2) + behind


# --- What it costs --------------------------------------------------------------------------------


def _use(
    pattern: Pattern, method: str, make: Callable[[int], str], length: int
) -> Callable[[], object]:
    text: Any = make(length)
    if isinstance(pattern.pattern, bytes):
        text = text.encode("latin-1")
    function: Any = getattr(pattern, method)
    if method == "finditer":
        return lambda: sum(1 for _ in function(text))
    return lambda: function(text)


def measure(found: Found) -> Measured:
    """Return what the costliest text costs a pattern; the first for which that grows."""
    worst, most = 0.0, Measured(0.0, 0.0)
    for make, method in product(hostile(found.pattern), found.methods):
        use = partial(_use, found.pattern, method, make)
        cost = 0.0
        for length in _RAMP:
            cost = _cost(use(length))
            if cost > JUDGED:
                measured = growth(use, (length // 2, length), f"{make(24)!r}")
                if measured.grows:
                    return measured
        if cost > worst:
            worst, most = cost, growth(use, text=f"{make(24)!r}")
    return most


def rows(roots: Iterable[Path] = SOURCES) -> Iterator[tuple[str, str, Measured]]:
    """Yield the place, the text and the cost of every pattern of the packages in `roots`."""
    for found in patterns_of(roots):
        measured = measure(found)
        costly = f" on {measured.text}" if measured.grows else ""
        yield found.place, f"{found.pattern.pattern!r}{costly}", measured


if __name__ == "__main__":
    sys.stdout.write(table(rows()) + "\n")
