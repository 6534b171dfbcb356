"""The operator's log has the events of one list, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from legation.observability.log_events import LOG_EVENTS

ROOT: Final = Path(__file__).parents[3]
MODULES: Final = sorted([*(ROOT / "core").rglob("*.py"), *(ROOT / "frontends").rglob("*.py")])
LEVELS: Final = frozenset({"debug", "info", "warning", "error", "critical"})
# Levels and events that are handed on: whoever wrote them first is found at its own call.
RELAYED: Final = frozenset({"event", "effect.event"})


@frozen
class Written:
    """One event that a module writes, with the level it has there if that is a literal."""

    event: str
    levels: frozenset[str]


def literals(node: ast.expr) -> frozenset[str]:
    """Return the texts that an expression may be; a condition has two."""
    if isinstance(node, ast.IfExp):
        return literals(node.body) | literals(node.orelse)
    text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return frozenset({node.value}) if text else frozenset()  # type: ignore[attr-defined]


def is_level(node: ast.expr) -> bool:
    """Whether an expression is a level: a literal, or something of that name."""
    return bool(literals(node) & LEVELS) or ast.unparse(node).partition("(")[0].endswith("level")


def entries(node: ast.Dict) -> list[tuple[ast.expr, ast.expr]]:
    """Return the keys of a display with their values, those that it unpacks aside."""
    return [(k, v) for k, v in zip(node.keys, node.values, strict=True) if k is not None]


def written(source: str) -> Iterator[Written]:
    """Yield the events of every call that takes a level and an event, and of every line made."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and len(node.args) > 1 and is_level(node.args[0]):
            level, event = node.args[:2]
            names = literals(event) or {ast.unparse(event)} - RELAYED
            yield from (Written(name, literals(level)) for name in names)
        elif isinstance(node, ast.Dict):
            members = {text: value for key, value in entries(node) for text in literals(key)}
            if members.keys() >= {"event", "level"}:
                levels = literals(members["level"])
                yield from (Written(name, levels) for name in literals(members["event"]))


FOUND: Final = [each for module in MODULES for each in written(module.read_text("utf-8"))]


def test_every_event_that_is_written_is_on_the_list_and_no_other_is() -> None:
    assert {each.event for each in FOUND} == LOG_EVENTS.keys()


def test_every_event_has_the_levels_of_the_list() -> None:
    for each in FOUND:
        assert each.levels <= {*LOG_EVENTS[each.event].levels}, each


@pytest.mark.parametrize(
    "planted",
    [
        'log("info", "it went wrong", {})',
        'yield_from(Log("error", "request failed", fields))',
        'self._worker.log(level, "unheard_of")',
        'host.write("warning" if late else "info", f"The run {run} is over", {})',
        'Report("error", "known" if known else "unknown", {})',
        'line = {"event": "unlisted", "level": "info"}',
    ],
)
def test_a_planted_event_is_found(planted: str) -> None:
    assert {each.event for each in written(planted)} - LOG_EVENTS.keys()


def test_an_event_that_is_handed_on_is_none_of_its_own() -> None:
    assert not list(written("host.write(effect.level, effect.event, fields); say('hello', name)"))


def test_the_list_is_sorted_and_its_names_are_of_one_convention() -> None:
    assert list(LOG_EVENTS) == sorted(LOG_EVENTS)
    for event in LOG_EVENTS.values():
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", event.name)
        assert {*event.levels} <= LEVELS
        assert len({*event.fields}) == len(event.fields)
        assert re.fullmatch(r"[A-Z].*\.", event.meaning)
