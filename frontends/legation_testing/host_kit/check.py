"""The check of a host: every case, one after the other, and a report of the broken rules."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

from attrs import define, field, frozen

from legation.effects import Program, Transact
from legation.store.audit_entries import AuditEntry

from ..matching import show
from .bench import FIRST, SECOND, Bench, Case, HostSetup, MakeHost
from .cases import CASES
from .cases.records import row_name
from .outside import open_outside
from .peer import Peer, open_peer
from .tables import StoreEntries

__all__ = ["BrokenHost", "BrokenRule", "Report", "check_host"]

_CLOSING: Final = Case("host.end", None, "A host ends without an error, and soon", lambda _: None)


@frozen
class BrokenRule:
    """A rule that a host breaks: the name of the case, the rule, and what was found instead.

    Attributes:
        name: The case.
        rule: A sentence on the duty of a host.
        found: The behaviour that was found instead.
        error: The exception, if the case ended in one.
    """

    name: str
    rule: str
    found: str
    error: BaseException | None = field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.rule}\n    {self.found}"


@frozen
class Report:
    """The outcome of a check.

    Attributes:
        passed: The names of the cases in which the host is right.
        broken: The rules that it breaks.
        left_out: The names of the cases that are not about this host: its engines, its time.
    """

    passed: tuple[str, ...]
    broken: tuple[BrokenRule, ...]
    left_out: tuple[str, ...]


class BrokenHost(AssertionError):
    """A host breaks its contract.  The text has every broken rule, `report` all that was found."""

    def __init__(self, report: Report) -> None:
        asked = len(report.passed) + len(report.broken)
        head = f"the host breaks {len(report.broken)} of {asked} rules:"
        super().__init__("\n".join([head, *map(str, report.broken)]))
        self.report = report


def check_host(
    make_host: MakeHost,
    *,
    databases: Mapping[str, str] | None = None,
    only: Iterable[str] | None = None,
    virtual_time: bool = False,
    case_seconds: float = 30.0,
) -> Report:
    """Hold a host to its contract; return what was found when it keeps every rule.

    The host is opened, and asked, in a thread of its own, so that one that hangs is found out.

    Args:
        make_host: Opens the host; called once more by some of the cases.
        databases: The URLs of two databases, by the names `first` and `second`: the kit makes
            tables in them, and removes these.  Two files of SQLite when None.
        only: The names of the cases to run; all when None.
        virtual_time: The host has a clock of its own, that stands still while a thread works:
            cases are left out in which one does.
        case_seconds: After so many seconds a case is taken for one that hangs.

    Raises:
        BrokenHost: With a sentence for each rule that is broken.
        ValueError: There is no case of a name in `only`.
    """
    chosen = _choose(only)
    with ExitStack() as stack:
        urls = databases or stack.enter_context(_two_files())
        peer = stack.enter_context(open_peer())
        examination = _Examination(make_host, urls, peer, chosen, virtual_time)
        report = examination.run(case_seconds)
    if report.broken:
        errors = [rule.error for rule in report.broken if isinstance(rule.error, Exception)]
        raise BrokenHost(report) from (ExceptionGroup("as found", errors) if errors else None)
    return report


def _choose(only: Iterable[str] | None) -> tuple[Case, ...]:
    if only is None:
        return CASES
    names = set(only)
    unknown = sorted(names - {case.name for case in CASES})
    if unknown:
        raise ValueError(f"there is no case {unknown[0]!r}; see legation_testing.host_cases()")
    return tuple(case for case in CASES if case.name in names)


@contextmanager
def _two_files() -> Generator[Mapping[str, str]]:
    with TemporaryDirectory(prefix="legation-", ignore_cleanup_errors=True) as folder:
        paths = {name: Path(folder, f"{name}.db") for name in (FIRST, SECOND)}
        yield {name: f"sqlite:///{path}" for name, path in paths.items()}


_Outcome: TypeAlias = tuple[Case, BaseException | None]


@define(eq=False)
class _Examination:
    """The cases, on their way through a host.

    What the thread tells goes through a queue: a case that it begins, with None, and its outcome.
    """

    _make_host: MakeHost
    _urls: Mapping[str, str]
    _peer: Peer
    _cases: tuple[Case, ...]
    _virtual_time: bool
    _news: SimpleQueue[Case | _Outcome | None] = field(factory=SimpleQueue[Any], init=False)
    _passed: list[str] = field(factory=list[str], init=False)
    _broken: list[BrokenRule] = field(factory=list[BrokenRule], init=False)
    _left_out: list[str] = field(factory=list[str], init=False)
    _failure: BaseException | None = field(default=None, init=False)

    def run(self, case_seconds: float) -> Report:
        """Run every case in a thread, and wait for it, but for each no longer than that."""
        thread = threading.Thread(target=self._examine, name="host under test", daemon=True)
        thread.start()
        case = _CLOSING
        try:
            while (news := self._news.get(timeout=case_seconds)) is not None:
                if isinstance(news, Case):
                    case = news
                else:
                    self._note(*news)
                    case = _CLOSING
        except Empty:
            hangs = f"it did not come to its end within {case_seconds} s; the others were left out"
            self._broken.append(BrokenRule(case.name, case.rule, hangs))
        else:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return Report(tuple(self._passed), tuple(self._broken), tuple(self._left_out))

    def _note(self, case: Case, error: BaseException | None) -> None:
        if error is None:
            self._passed.append(case.name)
            return
        found = str(error) if isinstance(error, AssertionError) else f"raised {show(error)}"
        self._broken.append(BrokenRule(case.name, case.rule, found, error))

    # From here on: the thread.

    def _examine(self) -> None:
        try:
            with ExitStack() as stack:
                self._examine_in(stack)
        except BaseException as error:  # noqa: BLE001  raised to who waits
            self._failure = error
        finally:
            self._news.put(None)

    def _examine_in(self, stack: ExitStack) -> None:
        outside = {
            name: stack.enter_context(open_outside(name, self._urls[name]))
            for name in (FIRST, SECOND)
        }
        lines: list[tuple[str, str, Mapping[str, Any]]] = []

        def log(level: str, event: str, fields: Mapping[str, Any]) -> None:
            lines.append((level, event, fields))

        setup = HostSetup(self._urls, log, _write_audit, self._peer.answer)
        opening = self._make_host(setup)
        host = opening.__enter__()
        try:
            bench = Bench(setup, self._make_host, host, self._peer, outside, lines)
            for case in self._cases:
                self._try(case, bench)
        finally:
            self._end(opening)

    def _try(self, case: Case, bench: Bench) -> None:
        engines = {bench.dialect(name) for name in (FIRST, SECOND)}
        is_of_others = case.dialect is not None and case.dialect not in engines
        if is_of_others or (case.real_time and self._virtual_time):
            self._left_out.append(case.name)
            return
        self._news.put(case)
        error: BaseException | None = None
        try:
            program = case.act(bench)
            if program is not None:
                bench.run(program)
        except BaseException as failed:  # noqa: BLE001  it is what is wrong
            error = failed
        self._news.put((case, error))

    def _end(self, opening: Any) -> None:
        self._news.put(_CLOSING)
        try:
            opening.__exit__(None, None, None)
        except BaseException as error:  # noqa: BLE001  it is what is wrong
            self._news.put((_CLOSING, error))
        else:
            self._news.put((_CLOSING, None))


def _write_audit(batch: tuple[AuditEntry, ...]) -> Program[None]:
    """Store entries as the platform does, but in the tables of the kit."""
    yield from Transact(FIRST, StoreEntries(tuple(map(row_name, batch))))
