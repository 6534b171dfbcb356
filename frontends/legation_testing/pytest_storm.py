"""A plugin of pytest for storms: it repeats one, and prints the reports of all in the summary.

    pytest_plugins = ["legation_testing.pytest_storm"]

or `pytest -p legation_testing.pytest_storm`.  The decorator works without it, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from .tool_storm import CHOSEN, Chosen

__all__ = ["pytest_addoption", "pytest_runtest_call", "pytest_terminal_summary"]

_PROPERTY = "legation_storm"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that repeat a part of a storm."""
    group = parser.getgroup("storms", "storms of legation_testing")
    group.addoption(
        "--storm-seed",
        action="append",
        type=int,
        metavar="N",
        help="let each storm try this seed alone; may be given several times",
    )
    group.addoption(
        "--storm-repeat",
        metavar="PLAN",
        help='let each storm try this plan alone, as a failure names it: "84.1 12"',
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a storm know what was chosen; keep its report with that of the test."""
    function: object = getattr(item, "function", None)
    kept: dict[str, object] = getattr(function, "__dict__", {})
    kept.pop("storm_report", None)
    seeds: list[int] | None = item.config.getoption("storm_seed")
    chosen = Chosen(
        seeds=None if seeds is None else tuple(seeds),
        repeat=item.config.getoption("storm_repeat"),
        command=f"pytest {shlex.quote(item.nodeid)}",
    )
    token = CHOSEN.set(chosen)
    try:
        return (yield)
    finally:
        CHOSEN.reset(token)
        report = kept.get("storm_report")
        if report is not None:
            item.user_properties.append((_PROPERTY, f"{item.nodeid}\n{report}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the report of each storm."""
    texts = sorted(set(_find_reports(terminalreporter)))
    if texts:
        terminalreporter.section("storms")
        for text in texts:
            terminalreporter.write_line(text)


def _find_reports(terminal: pytest.TerminalReporter) -> Iterator[str]:
    for reports in terminal.stats.values():
        for report in reports:
            for name, text in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    yield str(text)
