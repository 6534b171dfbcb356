from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

IMPORTED: Final = """
import gc, json, linecache
usual = gc.get_threshold()
import legation_cli
generated = [name for name in linecache.cache if name.startswith("<attrs")]
print(json.dumps([gc.isenabled(), gc.get_threshold() == usual, gc.get_freeze_count(), generated]))
"""
FAILED: Final = """
import gc
from legation_cli.imports import freeze_imports
usual = gc.get_threshold()
try:
    with freeze_imports():
        assert gc.get_threshold() != usual
        import legation_cli.nothing
except ModuleNotFoundError:
    print(gc.isenabled() and gc.get_threshold() == usual)
"""


def run(program: str) -> str:
    """Return what `program` prints, in a process of its own: what is kept is kept for good."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_what_a_command_imports_is_not_looked_at_for_garbage_again() -> None:
    enabled, usual, frozen, _ = json.loads(run(IMPORTED))

    assert enabled
    assert usual
    assert frozen > 10_000


def test_the_text_of_generated_methods_is_dropped() -> None:
    assert json.loads(run(IMPORTED))[3] == []


def test_an_import_that_fails_leaves_the_collector_as_it_was() -> None:
    assert run(FAILED) == "True\n"
