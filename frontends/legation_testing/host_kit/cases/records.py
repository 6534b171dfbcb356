"""The rules of `Record` and `Log`: what is kept for the operator."""

from __future__ import annotations

from typing import Any, Final

from legation.effects import Log, Program, Record, Sleep, Transact
from legation.store.audit_entries import AuditEntry

from ..bench import FIRST, LONG, Bench, Case, ask, expect, require
from ..tables import Count

__all__ = ["CASES", "row_name"]

_MANY: Final = 300


def row_name(entry: AuditEntry) -> str:
    """Return the name of the account in which the kit counts `entry`."""
    return f"audit/{entry.resource}"


def _entry(resource: str) -> AuditEntry:
    request = ("r-1", "ada", None, "kit.check")
    return AuditEntry(1, *request, resource, "allow", "agents:read", 200, "127.0.0.1")


def _await_entries(prefix: str, number: int) -> Program[None]:
    found = 0
    for _ in range(200):
        found = yield from Transact(FIRST, Count(f"audit/{prefix}"))
        if found == number:
            return
        yield from Sleep(LONG / 200)
    require(False, f"{number} entries were recorded, and {found} are stored after {LONG} s")


def _record(bench: Bench) -> None:
    def record(prefix: str, number: int) -> Program[None]:
        for at in range(number):
            answer = yield from ask(Record(_entry(f"{prefix}/{at}")))
            expect("`Record` was answered", answer, None)

    for number in (1, _MANY):
        prefix = bench.name("recorded")
        bench.run(record(prefix, number))
        bench.run(_await_entries(f"{prefix}/", number))


def _log(bench: Bench) -> None:
    fields = (("number", 1), ("text", "é"), ("yes", True), ("none", None), ("part", 0.5))

    def write(event: str) -> Program[None]:
        for level in ("debug", "info", "warning", "error"):
            answer = yield from ask(Log(level, event, fields))
            expect("`Log` was answered", answer, None)
        yield from Log("info", event)

    event = bench.name("kit_checked").replace("-", "_")
    bench.run(write(event))
    said: list[Any] = [(level, dict(given)) for level, of, given in bench.lines if of == event]
    expected: list[Any] = [(level, dict(fields)) for level in ("debug", "info", "warning", "error")]
    without: tuple[str, Any] = ("info", {})
    expect("the lines that the log has taken", said, [*expected, without])


CASES: Final = (
    Case("Record.stored", Record, "What is recorded is stored soon, and none is lost", _record),
    Case("Log.written", Log, "`Log` writes one line, with its level and its fields", _log),
)
