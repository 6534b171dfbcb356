from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from itertools import product
from types import FrameType
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.api.routes import ROUTES
from legation.http.routing import Path, Router, is_segment, parse_target

PATHS: dict[str, Path | None] = {
    "/": Path((), ""),
    "/?": Path((), ""),
    "/?a=1": Path((), "a=1"),
    "/agents": Path(("agents",), ""),
    "/agents/": Path(("agents",), ""),
    "/agents/?a=1": Path(("agents",), "a=1"),
    "/agents?a=/../b": Path(("agents",), "a=/../b"),
    "/agents?a=1?b": Path(("agents",), "a=1?b"),
    "/a.b/c~d/e-f_g": Path(("a.b", "c~d", "e-f_g"), ""),
    "/.well-known/x": Path((".well-known", "x"), ""),
    "/...": Path(("...",), ""),
    "/a%20b": Path(("a b",), ""),
    "/%c3%a4": Path(("ä",), ""),
    "/a%2Fb": Path(("a/b",), ""),
    "/a%252e": Path(("a%2e",), ""),
    "/a%3Ab:c": Path(("a:b:c",), ""),
    "/a+b": Path(("a+b",), ""),
    "//": None,
    "///": None,
    "//a": None,
    "/a//": None,
    "/a//b": None,
    "/.": None,
    "/..": None,
    "/a/./b": None,
    "/a/../b": None,
    "/%2e": None,
    "/a/%2E%2e/b": None,
    "/.%2e": None,
    "/a;b": None,
    "/a%3bb": None,
    "/a\\b": None,
    "/a%5Cb": None,
    "/a%00": None,
    "/a%0d%0ab": None,
    "/a%7f": None,
    "/a%c2%80": None,
    "/a%": None,
    "/a%4": None,
    "/a%gg": None,
    "/a%ff": None,
    "/a%ed%a0%80": None,
    "/a%c0%af": None,
    "/a\ud800": None,
    "": None,
    "a": None,
    "?": None,
    "*": None,
    "http://a/b": None,
}


@pytest.mark.parametrize("target", PATHS, ids=ascii)
def test_a_target_is_a_path_or_none(target: str) -> None:
    assert parse_target(target) == PATHS[target]


PIECES = ["a", "/", "//", ".", "..", "%2e", "%2F", "%00", "%", "?", ";", "\\", "%c3%a4", "ä", " "]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join).map("/".__add__))
def test_whatever_is_sent_is_a_path_decoded_once_or_none(target: str) -> None:
    path = parse_target(target)
    if path is None:
        return
    assert target.startswith("/")
    for segment in path.segments:
        assert segment not in {"", ".", ".."}
        assert not any(unicodedata.category(character) == "Cc" for character in segment)
        assert ";" not in segment
        assert "\\" not in segment
    query = f"?{path.query}" if path.query else ""
    again = "/" + "/".join(quote(segment, safe="") for segment in path.segments) + query
    assert parse_target(again) == path


ODD = ["", ".", "..", "...", "a;b", "a\\b", "a/b", "a\x85", "\x7f", "a%2Fb", " ", "?", "#", "é"]


@given(st.text() | st.sampled_from(ODD))
def test_what_is_a_segment_can_be_named_by_a_path_and_nothing_else_can(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        return
    path = parse_target("/x/" + quote(text, safe=""))

    assert is_segment(text) == (path == Path(("x", text), ""))


@given(st.lists(st.text(min_size=1), min_size=1))
def test_segments_survive_quoting_or_are_refused(segments: list[str]) -> None:
    target = "/" + "/".join(quote(segment, safe="") for segment in segments)

    assert parse_target(target) in (Path(tuple(segments), ""), None)


# --- the router ---------------------------------------------------------------------------------


def router(*templates: str) -> Router[str]:
    return Router(("GET", template, template) for template in templates)


def found(router: Router[str], *segments: str) -> tuple[str | None, dict[str, str]]:
    match = router.match(Path(segments, ""))
    return (None, {}) if match is None else (match.methods.get("GET"), dict(match.params))


def test_a_literal_wins_over_a_parameter_and_gives_way_when_it_leads_nowhere() -> None:
    tree = router("/", "/{x}", "/a", "/a/b", "/{x}/{y}", "/{x}/c/d")

    assert found(tree) == ("/", {})
    assert found(tree, "a") == ("/a", {})
    assert found(tree, "b") == ("/{x}", {"x": "b"})
    assert found(tree, "a", "b") == ("/a/b", {})
    assert found(tree, "a", "c") == ("/{x}/{y}", {"x": "a", "y": "c"})
    assert found(tree, "a", "c", "d") == ("/{x}/c/d", {"x": "a"})
    assert found(tree, "a", "c", "e") == (None, {})
    assert found(tree, "{x}") == ("/{x}", {"x": "{x}"})


def test_a_path_that_is_only_on_the_way_is_no_match() -> None:
    assert router("/a/b").match(Path(("a",), "")) is None
    assert router().match(Path((), "")) is None


def test_a_match_tells_every_method_of_the_path() -> None:
    tree = Router([("GET", "/a", 1), ("POST", "/a", 2)])
    match = tree.match(Path(("a",), ""))

    assert match is not None
    assert match.methods == {"GET": 1, "POST": 2}


def test_what_a_path_leads_to_is_remembered_and_cannot_be_changed() -> None:
    tree = router("/a/{b}")
    first, query = tree.lead("/a/x?q=1")
    again, _ = tree.lead("/a/x")

    assert query == "q=1"
    assert first is not None
    assert again is first
    params: Any = first.params
    with pytest.raises(TypeError):
        params["b"] = "y"


def test_a_long_path_is_followed_each_time() -> None:
    tree, path = router("/a/{b}"), f"/a/{'x' * 300}"
    first, _ = tree.lead(path)
    again, _ = tree.lead(path)

    assert first == again
    assert first is not None
    assert first is not again


@pytest.mark.parametrize(
    "templates", [("/a", "/a"), ("/{x}", "/{y}"), ("/a/{x}/b", "/a/{y}/c")], ids=str
)
def test_two_routes_that_could_not_be_told_apart_are_a_bug(templates: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"twice|elsewhere"):
        router(*templates)


def naive(templates: Iterable[str], segments: tuple[str, ...]) -> str | None:
    """Return the template that fits, literals preferred from the left."""
    split = [(tuple(filter(None, template.split("/"))), template) for template in templates]
    fitting = [
        ([part.startswith("{") for part in parts], template)
        for parts, template in split
        if len(parts) == len(segments)
        and all(part.startswith("{") or part == s for part, s in zip(parts, segments, strict=True))
    ]
    return min(fitting)[1] if fitting else None


WORDS = ("a", "b", "{0}")


def shaped(parts: tuple[str, ...]) -> str:
    """Return a template whose parameters are named by their place."""
    return "/" + "/".join(f"{{p{i}}}" if p == "{0}" else p for i, p in enumerate(parts))


ALL = [shaped(parts) for length in range(4) for parts in product(WORDS, repeat=length)]


@given(st.sets(st.sampled_from(ALL)), st.lists(st.sampled_from(["a", "b", "c"]), max_size=4))
def test_the_router_finds_what_a_search_of_all_templates_finds(
    templates: set[str], segments: list[str]
) -> None:
    tree = router(*sorted(templates))

    assert found(tree, *segments)[0] == naive(templates, tuple(segments))


@given(
    st.sets(st.sampled_from(ALL)),
    st.lists(st.sampled_from(["a", "b", "%61", "..", "{p0}", ""]), max_size=4),
    st.sampled_from(["", "/", "?", "/?", "?q=/a?b"]),
)
def test_a_raw_target_leads_where_its_parsed_path_does(
    templates: set[str], segments: list[str], end: str
) -> None:
    tree = router(*sorted(templates))
    target = "/" + "/".join(segments) + end
    path = parse_target(target)

    match, query = tree.lead(target)
    assert match == (None if path is None else tree.match(path))
    assert query == target.partition("?")[2]


def test_every_route_is_found_by_its_own_path() -> None:
    tree = Router((route.method, route.template, route) for route in ROUTES)
    for route in ROUTES:
        parts = [part for part in route.template.split("/") if part]
        filled = tuple("x-" if part.startswith("{") else part for part in parts)
        match = tree.match(Path(filled, ""))
        assert match is not None
        assert match.methods[route.method] is route
        assert tree.lead("/" + "/".join(filled)) == (match, "")


def steps(tree: Router[str], *segments: str) -> int:
    """Return how many functions in Python a match enters."""
    count = 0

    def watch(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        tree.match(Path(segments, ""))
    finally:
        sys.setprofile(before)
    return count


def test_a_match_costs_the_same_among_ten_routes_and_ten_thousand() -> None:
    few, many = (
        router(*(f"/r{number}/{{x}}/leaf" for number in range(size))) for size in (10, 10_000)
    )

    for path in (("r7", "x", "leaf"), ("r7", "x", "no"), ("no", "x", "leaf")):
        assert steps(few, *path) == steps(many, *path) <= 10


def test_a_long_path_costs_no_more_than_the_depth_of_the_tree() -> None:
    tree = router("/a/{x}/b")

    assert steps(tree, *["a"] * 10_000) == steps(tree, "a", "x", "c", "d")
