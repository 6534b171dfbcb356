"""Stand-ins for functions of modules that are imported when one of them is asked for first."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..values import frozen

__all__ = ["LateFunction", "LateModule"]


@frozen
class LateFunction:
    """The function `name` of the module `module` of `package`, which a call returns."""

    package: ModuleType
    module: str
    name: str

    def __call__(self) -> Any:
        """Return the function; `package` imports its module."""
        return getattr(getattr(self.package, self.module), self.name)


@frozen
class LateModule:
    """A module of `package`, of which each name is a `LateFunction`."""

    package: ModuleType
    module: str

    def __getattr__(self, name: str) -> LateFunction:
        """Return what stands for the function `name` of the module."""
        return LateFunction(self.package, self.module, name)
