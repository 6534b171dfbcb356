"""The contract kit: the hosts that keep every rule, what it covers, and what it says."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

import pytest
from attrs import frozen

from legation.effects import Asks, Effect, Program
from legation_testing import (
    BrokenHost,
    Case,
    HostSetup,
    HostUnderTest,
    MakeHost,
    Report,
    Simulation,
    check_host,
    host_cases,
    portal_host,
)

from ..engines import Cluster
from .kit_hosts import HOSTS, Nodes, open_real_host

R = TypeVar("R")

EFFECTS: Final = frozenset(get_origin(member) or member for member in get_args(Effect))
ALL: Final = tuple(case.name for case in host_cases())
OF_SQLITE: Final = {"Transact.numbered"}


@pytest.fixture
def schemas(postgres_cluster: Cluster) -> Generator[Mapping[str, str]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(postgres_cluster.new_schema()) for name in ("first", "second")
        }


def check(make_host: MakeHost, databases: Mapping[str, str] | None = None, **more: Any) -> Report:
    report = check_host(make_host, databases=databases, **more)
    assert report.broken == ()
    assert {*report.passed} - {"host.end"} | {*report.left_out} == {*ALL}
    return report


# --- Hosts that keep every rule


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_host_keeps_every_rule_on_sqlite(backend: str) -> None:
    assert check(portal_host(open_real_host, backend)).left_out == ()


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_host_keeps_every_rule_on_postgresql(backend: str, schemas: Mapping[str, str]) -> None:
    report = check(portal_host(open_real_host, backend), schemas)

    assert set(report.left_out) == OF_SQLITE


def test_host_keeps_every_rule_with_one_database_of_each_engine(
    postgres: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("kit") / "first.db"
    databases = {"first": f"sqlite:///{path}", "second": postgres}
    names = [case.name for case in host_cases() if case.name.startswith("Transact.")]

    report = check_host(portal_host(open_real_host, "trio"), databases=databases, only=names)

    assert set(report.passed) == {*names, "host.end"}


def test_simulation_keeps_every_rule_and_asks_for_every_effect() -> None:
    nodes = Nodes()

    report = check(nodes.open, virtual_time=True)

    assert set(report.left_out) == {case.name for case in host_cases() if case.real_time}
    simulation = nodes.simulation
    assert isinstance(simulation, Simulation)
    assert {type(performed.effect) for performed in simulation.effects} == EFFECTS


@pytest.mark.parametrize("order", range(3))
def test_simulation_keeps_every_rule_in_any_order(order: int) -> None:
    check(Nodes(order=order).open, virtual_time=True)


# --- What it covers


def without_case(effects: frozenset[type[Asks[Any]]], cases: tuple[Case, ...]) -> set[type]:
    return {*effects} - {case.effect for case in cases}


def test_every_effect_has_a_case() -> None:
    assert without_case(EFFECTS, host_cases()) == set()


def test_new_effect_without_a_case_is_found() -> None:
    @frozen
    class SendMail(Asks[None]):
        """An effect that the kit knows nothing of."""

    assert without_case(EFFECTS | {SendMail}, host_cases()) == {SendMail}


def test_cases_are_named_after_their_effects_and_each_has_its_sentence(
    figures: Callable[[str], None],
) -> None:
    figures(f"{len(ALL)} rules are held to every host")

    assert len(set(ALL)) == len(ALL)
    assert len({case.rule for case in host_cases()}) > len(ALL) - 5
    for case in host_cases():
        of = case.name.split(".")[0]
        assert of == (case.effect.__name__ if case.effect else of)
        assert case.rule[0] in "`ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        assert not case.rule.endswith(".")


SCRIPT: Final = """
import sys
sys.modules["pytest"] = sys.modules["_pytest"] = sys.modules["tests"] = None
from legation_host import open_host
from legation_testing import check_host, portal_host
opened = portal_host(lambda setup: open_host(setup.databases), "trio")
print(*check_host(opened, only=["Now.forward", "Transact.undo"]).passed)
"""


def test_kit_needs_neither_pytest_nor_the_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT]

    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout.split() == ["Now.forward", "Transact.undo", "host.end"]


# --- What it says


@frozen
class Answering:
    """A host that returns the same whatever it is asked to run."""

    result: Any

    def run(self, program: Program[R], *, body: bytes, emit: Callable[[bytes], object]) -> R:
        program.close()
        return self.result  # type: ignore[no-any-return]  # it is wrong on purpose


@contextmanager
def open_answering(_: HostSetup) -> Generator[HostUnderTest]:
    yield Answering("42")


def test_every_broken_rule_is_listed_with_its_sentence() -> None:
    with pytest.raises(BrokenHost) as caught:
        check_host(open_answering, only=["Now.forward", "Sleep.lasts"])

    assert str(caught.value) == (
        "the host breaks 2 of 3 rules:\n"
        "Now.forward: `Now` does not go back from one asking to the next\n"
        "    `run` returned '42' before the end of the program\n"
        "Sleep.lasts: `Sleep` lasts as long as it says\n"
        "    `run` returned '42' before the end of the program"
    )
    report = caught.value.report
    assert [rule.name for rule in report.broken] == ["Now.forward", "Sleep.lasts"]
    assert (report.passed, report.left_out) == (("host.end",), ())


def test_cause_has_what_was_raised() -> None:
    with pytest.raises(BrokenHost) as caught:
        check_host(open_answering, only=["Now.forward"])

    assert isinstance(caught.value.__cause__, ExceptionGroup)


def test_host_that_breaks_all_is_told_of_all() -> None:
    with pytest.raises(BrokenHost) as caught:
        check_host(open_answering)

    broken = {rule.name for rule in caught.value.report.broken}
    assert len(broken) > len(ALL) - 3


def test_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no case 'Now\.backward'"):
        check_host(open_answering, only=["Now.forward", "Now.backward"])


@frozen
class Hanging:
    """A host that never comes to an end."""

    over: threading.Event

    def run(self, program: Program[R], *, body: bytes, emit: Callable[[bytes], object]) -> R:
        self.over.wait()
        program.close()
        raise TimeoutError


def test_host_that_hangs_is_found_out() -> None:
    over = threading.Event()

    @contextmanager
    def open_hanging(_: HostSetup) -> Generator[HostUnderTest]:
        yield Hanging(over)

    with pytest.raises(BrokenHost) as caught:
        check_host(open_hanging, only=["Now.forward", "Sleep.lasts"], case_seconds=0.2)

    (rule,) = caught.value.report.broken
    assert rule.name == "Now.forward"
    assert rule.found == "it did not come to its end within 0.2 s; the others were left out"
    over.set()


def test_host_that_cannot_be_opened_is_an_error_as_it_is() -> None:
    @contextmanager
    def open_nothing(_: HostSetup) -> Generator[HostUnderTest]:
        raise ZeroDivisionError
        yield Answering("")

    with pytest.raises(ZeroDivisionError):
        check_host(open_nothing)


def test_host_that_fails_at_its_end_breaks_a_rule() -> None:
    @contextmanager
    def open_badly(setup: HostSetup) -> Generator[HostUnderTest]:
        with HOSTS["simulation"]()(setup) as host:
            yield host
        raise OSError("not closed")

    with pytest.raises(BrokenHost, match=r"host\.end: A host ends without an error") as caught:
        check_host(open_badly, only=["Now.forward"], virtual_time=True)

    assert caught.value.report.passed == ("Now.forward",)


async def test_kit_can_be_used_where_an_event_loop_runs() -> None:
    report = check_host(portal_host(open_real_host, "asyncio"), only=["Sleep.lasts"])

    assert report.passed == ("Sleep.lasts", "host.end")
