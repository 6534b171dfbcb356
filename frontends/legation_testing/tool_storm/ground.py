"""The ground of a storm: databases that are migrated once, and as new for each trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from attrs import frozen

from legation import Platform, Principal

from ..client import Client
from ..clock import Clock
from ..databases import MEMORY, Databases
from ..matching import show
from ..misuse import Misuse
from ..performing import Fetcher, WriteAudit
from ..simulation import Simulation

__all__ = ["Ground", "make_maker"]


@frozen(eq=False)
class Ground:
    """The databases of a platform, and what each trial of a storm begins with.

    Attributes:
        make: Makes a platform without memories.
        databases: As they are after the first start.
        fetch: Answers what the platform fetches.
        caller: Who sends the requests.
        write_audit: Makes the program that stores entries of the audit trail.
        name: The id of the platform.
    """

    make: Callable[[], Platform]
    databases: Databases
    fetch: Fetcher
    caller: Principal | None
    write_audit: WriteAudit
    name: str

    @classmethod
    def prepare(
        cls, make: Callable[[], Platform], fetch: Fetcher, caller: Principal | None
    ) -> Self:
        """Start a platform once, and keep what its databases hold then."""
        platform = make()
        databases = Databases(dict.fromkeys(platform.databases, MEMORY), _ignore, Clock())
        with Simulation(databases, fetch=fetch) as simulation:
            simulation.run(platform.startup(), body=None)
        databases.keep()
        return cls(
            make, databases, fetch, caller, platform.write_audit, platform.registry.config.id
        )

    def begin(self, make: Callable[[], Platform], order: int | None) -> Client:
        """Return a client of a fresh process on databases as new, which has started already."""
        self.databases.rewind()
        simulation = Simulation(
            self.databases, order=order, fetch=self.fetch, write_audit=self.write_audit
        )
        client = Client(make, simulation=simulation, caller=self.caller)
        client.open()
        client.settle()
        return client

    def close(self) -> None:
        """Let go of the databases."""
        self.databases.close()


def make_maker(platform: Platform | Callable[[], Platform]) -> Callable[[], Platform]:
    """Return what makes a platform without memories.

    Raises:
        Misuse: It is neither a platform nor a function.
    """
    if isinstance(platform, Platform):
        return lambda: Platform.from_config(platform.config)
    if not callable(platform):
        raise Misuse(f"storm takes a Platform, or a function that makes one; not {show(platform)}")
    return platform


def _ignore(level: str, event: str, fields: Mapping[str, Any]) -> None:
    """Leave out what the driver says."""
