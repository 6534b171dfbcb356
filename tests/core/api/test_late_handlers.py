"""Handlers are imported when a row of the table needs them, and each by its name."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Final

import pytest

from legation import api
from legation.api import handlers, late_handlers

LATE: Final = """
import sys
from legation import Database, Platform
from legation.api import handlers, late_handlers
from legation.api.routes import ROUTES
late = {f"legation.api.handlers.{name}" for name in handlers.LATE}
assert late.isdisjoint(sys.modules)
assert "legation.api.openapi" not in sys.modules
one = next(route for route in ROUTES if route.operation == "get_audit")
assert one.query.__module__ == one.handler.__module__ == one.find.__module__
assert one.handler is handlers.audit.list_audit
assert [name for name in late if name in sys.modules] == ["legation.api.handlers.audit"]
assert one == one and {one: 1}[one]
Platform(databases=[Database("main", "sqlite://")]).import_handlers()
assert late <= sys.modules.keys()
assert "legation.api.openapi" not in sys.modules
"""


def test_handlers_are_imported_when_a_row_needs_them() -> None:
    subprocess.run([sys.executable, "-c", LATE], check=True)


@pytest.mark.parametrize("package", [api, handlers, late_handlers])
def test_a_package_of_late_handlers_has_no_other_names(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=r"^module '.*' has no attribute 'audits'$"):
        _ = package.audits


def test_every_module_of_handlers_that_may_be_late_is_there() -> None:
    assert all(getattr(handlers, name) is not None for name in handlers.LATE)
