"""The synchronous host among the examples, behind the WSGI server of the standard library."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args, get_origin

import pytest

from legation import Platform
from legation.effects import (
    AwaitNudge,
    CallFunction,
    Concurrently,
    Effect,
    Interrupted,
    Interruptible,
    Now,
    Nudge,
    Program,
    Raised,
    Returned,
    Sleep,
    Spawn,
    TimedOut,
    Transact,
)
from legation_host import Misuse
from legation_testing import HostSetup, check_host

from ..transcripts import ROOT
from .conformance import CASES, RUN_CASES, WIRE_CASES, Conformance, Frontend, Wire, two_databases
from .host_units import Count, Create, Lines, Put
from .test_failing_unit import (
    INCIDENT,
    Failing,
    expected,
    list_sessions,
    plant_a_failing_host,
    plant_a_failing_unit,
    shown,
)

Example: TypeAlias = Any

NOT_OF_WSGIREF: Final = {
    "a_body_in_chunks_comes_back": "it reads no body in chunks",
    "a_body_of_exactly_the_limit_is_read": "nor this one",
    "a_body_over_the_limit_in_chunks_is_refused": "nor this one",
    "headers_keep_their_order_and_their_duplicates": "WSGI joins the headers of one name",
}
OF_WSGI: Final = (
    "a_bug_is_500_and_tells_nothing",
    "a_stream_is_closed_when_its_client_leaves",
    "a_program_is_closed_when_its_body_breaks_off",
    "a_job_runs_beside_the_request_that_spawned_it",
)
"""Of the cases about connections; the others are about keeping one, its framing and its head."""


@pytest.fixture(scope="module")
def example() -> Iterator[Example]:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        yield import_module("wsgi")
    finally:
        sys.path.remove(str(ROOT / "examples"))


@contextmanager
def listening(example: Example, application: Any) -> Generator[Wire]:
    server = example.open_server(application, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield Wire(server.server_address)
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@contextmanager
def bare(example: Example, databases: Mapping[str, str], log: Any = None) -> Generator[Any]:
    """Open the host alone."""
    host = example.Host(databases, log=log or Lines().write, write_audit=None)
    try:
        yield host
    finally:
        host.close()


@contextmanager
def served(example: Example, platform: Platform) -> Generator[Wire]:
    with example.open_application(platform) as application, listening(example, application) as wire:
        yield wire


@pytest.fixture(scope="module")
def conforming(example: Example) -> Iterator[tuple[Wire, Conformance]]:
    platform = Conformance()
    with (
        bare(example, {}) as host,
        listening(example, example.Application(platform, host)) as wire,
    ):
        yield wire, platform


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.__name__ not in NOT_OF_WSGIREF],
    ids=lambda case: case.__name__,
)
def test_it_conforms(
    conforming: tuple[Wire, Conformance], case: Callable[[Frontend], None]
) -> None:
    case(conforming[0])


@pytest.mark.parametrize(
    "case",
    [case for case in WIRE_CASES if case.__name__ in OF_WSGI],
    ids=lambda case: case.__name__,
)
def test_it_conforms_behind_a_socket(
    conforming: tuple[Wire, Conformance], case: Callable[[Wire, Conformance], None]
) -> None:
    case(*conforming)


def test_the_cases_left_out_are_there() -> None:
    assert set(NOT_OF_WSGIREF) < {case.__name__ for case in CASES}
    assert set(OF_WSGI) < {case.__name__ for case in WIRE_CASES}


@pytest.mark.parametrize("case", RUN_CASES, ids=lambda case: case.__name__)
def test_two_databases(example: Example, tmp_path: Path, case: Callable[[Frontend], None]) -> None:
    urls = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second"))
    with served(example, two_databases(*urls)) as wire:
        case(wire)


@pytest.mark.parametrize("plant", [plant_a_failing_unit, plant_a_failing_host])
def test_failures_have_the_same_bytes_as_everywhere(example: Example, plant: Any) -> None:
    with served(example, Failing(plant).platform()) as wire:
        reply = list_sessions(wire)

    incident = INCIDENT
    if plant is plant_a_failing_host:
        incident = reply.body.partition(b"(incident ")[2][:16].decode()
    assert shown(reply) == expected(incident)


def test_every_effect_is_performed(example: Example) -> None:
    effects = {get_origin(member) or member for member in get_args(Effect)}

    assert effects == set(example.Host.__init__.__globals__["PERFORMERS"])


# --- the host alone ------------------------------------------------------------------------------


def slow(seconds: float, left: list[str]) -> Program[str]:
    try:
        yield from Sleep(seconds)
    finally:
        left.append("closed")
    return "rested"


class Stop:
    def program(self) -> Program[None]:
        yield from Sleep(0.02)
        yield from Nudge("stop")


@pytest.mark.parametrize(
    ("seconds", "patience", "answer"),
    [(0.0, 9.0, "rested"), (9.0, 0.01, Interrupted("timeout")), (9.0, 9.0, Interrupted("nudge"))],
    ids=["its end", "the time", "a nudge"],
)
def test_an_interruptible_program_ends(
    example: Example, seconds: float, patience: float, answer: object
) -> None:
    left: list[str] = []

    def program() -> Program[object]:
        yield from Spawn(Stop())
        return (yield from Interruptible(slow(seconds, left), "stop", patience))

    with bare(example, {}) as host:
        assert host.run(program()) == answer
    assert left == ["closed"]


def test_the_first_error_closes_the_others_and_is_thrown_into_who_waits(example: Example) -> None:
    left: list[str] = []
    error = ZeroDivisionError("x")

    def failing() -> Program[None]:
        yield from Sleep(0.01)
        raise error

    def program() -> Program[object]:
        try:
            return (yield from Concurrently((slow(9.0, left), failing(), slow(9.0, left))))
        except ZeroDivisionError as caught:
            return caught

    with bare(example, {}) as host:
        assert host.run(program()) is error
    assert left == ["closed", "closed"]


async def double(number: int) -> int:
    return 2 * number


def test_functions_are_called(example: Example) -> None:
    gate = threading.Event()

    def call(function: Callable[..., Any], seconds: float = 5.0, **arguments: Any) -> Program[Any]:
        return iter(CallFunction(function, arguments, seconds))

    with bare(example, {}) as host:
        assert host.run(call(double, number=2)) == Returned(4)
        assert host.run(call(partial(double, 3))) == Returned(6)
        assert isinstance(host.run(call(lambda: 1 / 0)), Raised)
        assert host.run(call(gate.wait, 0.02)) == TimedOut()
        gate.set()


def test_a_host_that_closes_closes_its_programs(example: Example) -> None:
    ended: list[str] = []

    class Waiting:
        def program(self) -> Program[None]:
            try:
                yield from AwaitNudge("never", 60.0)
            finally:
                ended.append("closed")

    with bare(example, {}) as host:
        host.spawn(Waiting())
        host.run(slow(0.01, []))
    assert ended == ["closed"]


def test_what_is_asked_of_the_wrong_host_is_named(example: Example) -> None:
    def program() -> Program[None]:
        yield from Transact("main", Create())
        yield from Transact("main", Put("ada"))
        assert (yield from Transact("main", Count())) == 1
        yield from Transact("other", Count())

    def odd() -> Program[None]:
        yield from Now()
        yield 3  # type: ignore[misc]  # its bug

    with bare(example, {"main": "sqlite://"}) as host:
        with pytest.raises(Misuse, match="'other'; there is main"):
            host.run(program())
        with pytest.raises(Misuse, match="yields int, which is not an effect"):
            host.run(odd())


# --- the contract kit -----------------------------------------------------------------------


def test_it_keeps_every_rule_of_a_host(example: Example) -> None:
    class Asked:
        def __init__(self, host: Any) -> None:
            self.host = host

        def run(
            self, program: Program[Any], *, body: bytes, emit: Callable[[bytes], object]
        ) -> Any:
            def read(limit: int) -> bytes | None:
                return body if len(body) <= limit else None

            return self.host.run(program, body=read, emit=emit)

    @contextmanager
    def make_host(setup: HostSetup) -> Generator[Asked]:
        host = example.Host(setup.databases, log=setup.log, write_audit=setup.write_audit)
        try:
            yield Asked(host)
        finally:
            host.close()

    report = check_host(make_host)

    assert len(report.passed) > 150
