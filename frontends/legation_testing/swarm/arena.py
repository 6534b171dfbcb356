"""The arena of storms: databases that are migrated once and are as new for every storm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..clock import Clock
from ..databases import MEMORY, Databases
from ..simulation import Simulation
from .scene import DATABASES, Scene

__all__ = ["Arena"]


class Arena:
    """Databases in memory that every storm of this process finds empty.

    To open one, to bring it to its schema and to prepare its statements would cost as much as the
    storm itself.
    """

    def __init__(self) -> None:
        """Open and migrate them."""
        self.databases = Databases(dict.fromkeys(DATABASES, MEMORY), _say_nothing, Clock())
        with Simulation(databases=self.databases) as world:
            world.run(Scene(world.clock).platform(30.0).startup(), body=None)
        self.databases.keep()

    def close(self) -> None:
        """Let go of them."""
        self.databases.close()


def _say_nothing(level: str, event: str, fields: Mapping[str, Any]) -> None:
    """Leave out what the driver says: a storm breaks units on purpose."""
