"""An error of a unit's own statements reaches the program alike in every host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeAlias

import anyio
import pytest
from attrs import field, frozen

from legation.effects import Concurrently, Emit, Interruptible, Now, Program, Transact
from legation.store.failures import StatementFailed
from legation.store.units import Dialect, Sql, Statement, Statements, Unit
from legation_host import open_host
from legation_host.errors import Misuse
from legation_testing import Simulation

from .host_units import All, Count, Create, Get, Lines, Put, run

Perform: TypeAlias = Callable[[Program[Any]], Any]

NAME: Final = Sql("select amount from accounts where name = :name")
PUT: Final = Sql("insert into accounts (name, amount) values (:name, 1)")


class Broken(Unit[None]):
    """Asks for something, and then raises `error`."""

    __slots__ = ()
    first: ClassVar[Sql] = PUT

    error: Exception

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield self.first(name="eve")
        raise self.error


@frozen
class Writing(Broken):
    error: Exception = field(eq=False)


@frozen
class Reading(Broken):
    writes: ClassVar[bool] = False
    first: ClassVar[Sql] = NAME

    error: Exception = field(eq=False)


@frozen
class Exclusive(Broken):
    exclusive: ClassVar[bool] = True

    error: Exception = field(eq=False)


@frozen
class AtOnce(Unit[None]):
    """Raises `error` before there is a generator."""

    writes: ClassVar[bool] = False
    error: Exception = field(eq=False)

    def statements(self, dialect: Dialect) -> Statements[None]:
        raise self.error


@frozen
class NoStatement(Unit[None]):
    """Yields something that is no statement, after one that is."""

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield PUT(name="eve")
        yield 3  # type: ignore[misc]  # its bug


@frozen
class Unstorable(Unit[None]):
    """Gives the engine a text that it cannot encode."""

    def statements(self, dialect: Dialect) -> Statements[None]:
        yield Statement(PUT, {"name": "surrogate \udc80"})


def perform_in_host(
    backend: str, url: str, program: Program[Any], sink: Any = None, log: Any = None
) -> Any:
    async def main() -> Any:
        async with open_host({"main": url}, log=log or Lines().write) as host:
            await host.run(iter(Transact("main", Create())))
            return await host.run(program, sink=sink)

    return run(backend, main)


def perform_in_simulation(program: Program[Any]) -> Any:
    with Simulation() as simulation:
        simulation.run(iter(Transact("main", Create())))
        return simulation.run(program)


@pytest.fixture(
    params=["simulation", "trio file", "trio memory", "asyncio file", "trio postgresql"]
)
def perform(request: pytest.FixtureRequest, tmp_path: Path) -> Perform:
    """Return what runs a program in the host that is named."""
    if request.param == "simulation":
        return perform_in_simulation
    backend, where = request.param.split()
    urls: Mapping[str, Callable[[], str]] = {
        "file": lambda: f"sqlite:///{tmp_path}/a.db",
        "memory": lambda: "sqlite://",
        "postgresql": lambda: request.getfixturevalue("postgres"),
    }
    return partial(perform_in_host, backend, urls[where]())


ERRORS: Final = (ZeroDivisionError("x"), KeyError("main"), UnicodeError("x"), OverflowError("x"))


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("kind", [Writing, Reading, Exclusive, AtOnce])
def test_the_error_of_a_unit_is_thrown_in_as_it_is_and_nothing_is_kept(
    perform: Perform, kind: Callable[[Exception], Unit[None]], error: Exception
) -> None:
    def program() -> Program[tuple[object, ...]]:
        yield from Transact("main", Put("ada"))
        try:
            yield from Transact("main", kind(error))
        except Exception as caught:  # noqa: BLE001 (compared below)
            yield from Now()
            kept = yield from Transact("main", All())
            yield from Transact("main", Put("bob"))
            return caught, kept, (yield from Transact("main", Count()))
        return ("nothing was raised",)

    caught, kept, count = perform(program())

    assert caught is error
    assert kept == (("ada", 0),)
    assert count == 2


def test_a_unit_that_yields_no_statement_is_thrown_in_as_well(perform: Perform) -> None:
    def program() -> Program[object]:
        try:
            yield from Transact("main", NoStatement())
        except AttributeError:
            return (yield from Transact("main", Get("eve")))
        return "nothing was raised"

    assert perform(program()) is None


def test_a_text_that_no_engine_can_encode_is_a_failure_of_the_database(perform: Perform) -> None:
    def program() -> Program[str]:
        try:
            yield from Transact("main", Unstorable())
        except StatementFailed as failure:
            return str(failure)
        return "nothing was raised"

    assert perform(program()).startswith("incident ")


def test_one_that_no_program_catches_comes_out_as_it_is(perform: Perform) -> None:
    error = ZeroDivisionError("x")

    with pytest.raises(ZeroDivisionError) as caught:
        perform(iter(Transact("main", Writing(error))))

    assert caught.value is error


def interrupt(inner: Program[Any]) -> Interruptible[Any]:
    return Interruptible(inner, "stop", 20.0)


def accompany(inner: Program[Any]) -> Concurrently[Any]:
    return Concurrently((inner,))


def interrupt_company(inner: Program[Any]) -> Interruptible[Any]:
    return interrupt(iter(accompany(inner)))


@pytest.mark.parametrize(
    "around",
    [
        interrupt,
        accompany,
        interrupt_company,
    ],
    ids=["interruptible", "concurrently", "both"],
)
def test_what_an_inner_program_raises_is_thrown_into_the_one_that_waits(
    perform: Perform, around: Callable[[Program[Any]], Any]
) -> None:
    error = ZeroDivisionError("x")

    def inner() -> Program[None]:
        yield from Transact("main", Writing(error))

    def outer() -> Program[object]:
        try:
            yield from around(inner())
        except ZeroDivisionError as caught:
            yield from Now()
            return caught
        return "nothing was raised"

    assert perform(outer()) is error


def test_what_its_host_does_not_have_is_thrown_into_nobody(perform: Perform) -> None:
    left: list[str] = []

    def asking(effect: Any) -> Program[None]:
        try:
            yield from effect
        except Exception:  # noqa: BLE001 (must not come here)
            left.append("caught")
        finally:
            left.append("closed")

    inner = asking(Transact("other", Count()))
    with pytest.raises(Misuse, match="asks for database 'other'; there is main"):
        perform(asking(Interruptible(inner, "stop", 20.0)))

    assert left == ["closed", "closed"]


def test_an_error_of_the_sink_is_thrown_into_nobody() -> None:
    class Gone:
        async def send(self, data: bytes) -> None:
            raise anyio.BrokenResourceError

    def asking(effects: tuple[Any, ...]) -> Program[str]:
        try:
            for effect in effects:
                yield from effect
        except Exception:  # noqa: BLE001 (must not come here)
            return "caught"
        return "ended"

    inner = asking((Emit(b"a"), Transact("main", Count())))
    with pytest.raises(anyio.BrokenResourceError):
        perform_in_host("trio", "sqlite://", asking((Interruptible(inner, "s", 9.0),)), Gone())
