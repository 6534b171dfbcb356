"""The router: it parses the target of a request once and finds the route.

The raw path is split on `/` and each segment is decoded once.  The decision and the handler see
the same decoded segments as the match.  The matcher is a tree over segments, so its cost does not
grow with the number of routes; a literal segment wins over a parameter.  What the paths that came
lately lead to is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from attrs import field

from ..values import define

__all__ = ["Match", "Path", "Router", "is_segment", "parse_target"]

R = TypeVar("R")

# Encoded or not: dot segments and separators that a proxy might read otherwise, and controls.
_REFUSED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f;\\]")
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
# The common case, in which decoding changes nothing: no escape, no segment that begins with a dot.
_PLAIN: Final = re.compile(r"(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*/)*[A-Za-z0-9_~-][A-Za-z0-9._~-]*")

_REMEMBERED: Final = 1024
_LONGEST_REMEMBERED: Final = 256
"""So many paths are remembered, none of which is longer, in characters."""


# Made for every request, and never changed: `frozen` would triple what making them costs.
@define
class Path:
    """The decoded segments of a path, none of them empty, and the raw query."""

    segments: tuple[str, ...]
    query: str


def parse_target(target: str) -> Path | None:
    """Split an origin-form target; None when no route can have such a path.

    One trailing slash is dropped.  Empty segments, `.` and `..`, control characters, `;`, a
    backslash and broken escapes match nothing, however they are written.
    """
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        return None
    if path == "/":
        return Path((), query)
    raw = path[1:].removesuffix("/")
    if _PLAIN.fullmatch(raw):
        return Path(tuple(raw.split("/")), query)
    segments = tuple(_decode(segment) for segment in raw.split("/"))
    if None in segments:
        return None
    return Path(tuple(segment for segment in segments if segment is not None), query)


def _decode(raw: str) -> str | None:
    """Decode one segment, strictly, once; None when it is refused."""
    if _ESCAPE.search(raw):
        return None
    try:
        segment = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeError:
        return None
    return segment if is_segment(segment) else None


def is_segment(text: str) -> bool:
    """Return whether a path can have `text` as a segment, encoded as it may be."""
    return text not in {"", ".", ".."} and not _REFUSED.search(text)


@define
class Match(Generic[R]):
    """The match of a path: the methods that it takes, and the parameters in it.

    Requests share it, so nobody can change the parameters.
    """

    methods: Mapping[str, R]
    params: Mapping[str, str]


@define
class _TreeNode(Generic[R]):
    literals: dict[str, _TreeNode[R]] = field(factory=dict[str, "_TreeNode[R]"])
    parameter: _TreeNode[R] | None = None
    name: str = ""
    methods: dict[str, R] = field(factory=dict[str, R])


class Router(Generic[R]):
    """The tree.  Templates look like `/agents/{agent_id}/runs`."""

    def __init__(self, routes: Iterable[tuple[str, str, R]]) -> None:
        """Take `(method, template, route)`.

        Raises:
            ValueError: Two routes have the same method and template, or two parameters at one
                place have different names.
        """
        self._root: _TreeNode[R] = _TreeNode()
        self._literal: dict[str, Match[R]] = {}
        for method, template, route in routes:
            node = self._place(template)
            if method in node.methods:
                raise ValueError(f"{method} {template} is there twice")
            node.methods[method] = route
            if "{" not in template:
                self._literal[template] = Match(node.methods, {})
        self._follow_again = lru_cache(_REMEMBERED)(self._follow)

    def _place(self, template: str) -> _TreeNode[R]:
        node = self._root
        for segment in filter(None, template.split("/")):
            if segment.startswith("{"):
                node.parameter = node.parameter or _TreeNode(name=segment[1:-1])
                node = node.parameter
                if node.name != segment[1:-1]:
                    raise ValueError(f"{template}: {segment} is called {node.name} elsewhere")
            else:
                node = node.literals.setdefault(segment, _TreeNode())
        return node

    def lead(self, target: str) -> tuple[Match[R] | None, str]:
        """Return what a raw target leads to, or None, and its query.

        A path that is a template letter by letter needs no parsing: a literal wins everywhere.
        """
        path, _, query = target.partition("?")
        match = self._literal.get(path)
        if match is None:
            short = len(path) <= _LONGEST_REMEMBERED
            match = self._follow_again(path) if short else self._follow(path)
        return match, query

    def _follow(self, path: str) -> Match[R] | None:
        parsed = parse_target(path)
        return None if parsed is None else self.match(parsed)

    def match(self, path: Path) -> Match[R] | None:
        """Return what `path` leads to, or None."""
        return _walk(self._root, path.segments, 0, {})


def _walk(
    node: _TreeNode[R], segments: tuple[str, ...], at: int, params: dict[str, str]
) -> Match[R] | None:
    """Go down, a literal first; come back when that way has no end."""
    if at == len(segments):
        return Match(node.methods, MappingProxyType(params)) if node.methods else None
    segment = segments[at]
    if (literal := node.literals.get(segment)) and (
        found := _walk(literal, segments, at + 1, params)
    ):
        return found
    if node.parameter is None:
        return None
    return _walk(node.parameter, segments, at + 1, {**params, node.parameter.name: segment})
