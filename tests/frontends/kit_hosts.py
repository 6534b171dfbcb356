"""The hosts that the contract kit is run against."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from typing import Any, Final, TypeVar

from attrs import define, field

from legation.effects import Program
from legation_host import Host, open_host
from legation_testing import HostSetup, MakeHost, Simulation, portal_host
from legation_testing.node import Node

__all__ = ["HOSTS", "Nodes", "SimulatedHost", "open_real_host"]

R = TypeVar("R")

SQLITE: Final = "sqlite:///"


def open_real_host(setup: HostSetup) -> AbstractAsyncContextManager[Host]:
    return open_host(setup.databases, log=setup.log, write_audit=setup.write_audit)


@define
class Nodes:
    """A simulation whose nodes are hosts, one after the other."""

    order: int | None = None
    simulation: Simulation | None = None

    @contextmanager
    def open(self, setup: HostSetup) -> Generator[SimulatedHost]:
        if self.simulation is None:
            self.simulation = Simulation(
                {name: url.removeprefix(SQLITE) for name, url in setup.databases.items()},
                fetch=setup.fetch,
                write_audit=setup.write_audit,
                order=self.order,
            )
            node = self.simulation.nodes[0]
        else:
            node = self.simulation.add_node()
        try:
            yield SimulatedHost(self.simulation, node, setup)
        finally:
            self.simulation.crash(node)
            self.simulation.take_failures()


@define
class SimulatedHost:
    """One node of a simulation; what it logs and emits is handed on."""

    simulation: Simulation
    node: Node
    setup: HostSetup

    def run(self, program: Program[R], *, body: bytes, emit: Callable[[bytes], object]) -> R:
        logged = len(self.simulation.logs)
        reader = _Reader(emit)
        task = self.simulation.start(reader.follow(program), body=body, node=self.node)
        reader.received = task.received
        try:
            return self.simulation.finish(task)
        finally:
            for line in self.simulation.logs[logged:]:
                self.setup.log(line.level, line.event, dict(line.fields))


@define
class _Reader:
    """The reader of a streamed response: it takes what is there whenever the program goes on."""

    emit: Callable[[bytes], object]
    received: bytearray = field(factory=bytearray)
    taken: int = 0

    def follow(self, program: Program[R]) -> Program[R]:
        answer: Any = None
        trouble: BaseException | None = None
        with closing(program):
            while True:
                try:
                    effect = program.send(answer) if trouble is None else program.throw(trouble)
                except StopIteration as stop:
                    self.take()
                    result: R = stop.value
                    return result
                answer, trouble = None, None
                try:
                    answer = yield effect
                except BaseException as error:  # noqa: BLE001 (thrown into whom it is for)
                    trouble = error
                else:
                    if not effect.immediate:
                        self.take()

    def take(self) -> None:
        data = bytes(self.received[self.taken :])
        self.taken += len(data)
        if data:
            self.emit(data)


HOSTS: Final[dict[str, Callable[[], MakeHost]]] = {
    "trio": lambda: portal_host(open_real_host, "trio"),
    "asyncio": lambda: portal_host(open_real_host, "asyncio"),
    "simulation": lambda: Nodes().open,
}
