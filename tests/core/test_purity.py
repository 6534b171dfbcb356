"""The core imports nothing that acts, acts nowhere on import, and says the same thing twice.

What it does when called is watched in every test (conftest.py); that the guards turn red is shown
in tests/guards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

# Every import statement that a module of the core executes, whatever the form, by its name.
IMPORTS = """
import builtins, importlib, pkgutil, sys

ACTING = {"anyio", "asyncio", "click", "concurrent", "ctypes", "h11", "httpx2", "importlib", "io",
          "logging", "os", "pathlib", "psycopg", "random", "secrets", "select", "socket", "sqlite3",
          "ssl", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "trio"}
seen = []
real = builtins.__import__

def watch(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if level == 0 and importer.partition(".")[0] == "legation":
        top = name.partition(".")[0]
        if top in ACTING or top.startswith("legation_"):
            seen.append(f"{importer} imports {name}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = watch
import legation
modules = ["legation", *(m.name for m in pkgutil.walk_packages(legation.__path__, "legation."))]
for module in modules:
    importlib.import_module(module)
print(len(modules))
sys.exit("; ".join(seen) or None)
"""

# What the modules of the core do while they are imported, under the watch of conftest.py.
ON_IMPORT = """
import importlib, runpy, sys
from pathlib import Path

conftest = runpy.run_path(sys.argv[1])
root = Path(conftest["CORE"])
modules = [".".join(("legation", *path.relative_to(root).with_suffix("").parts))
           for path in sorted(root.rglob("*.py"))]
with conftest["watched"]() as touched:
    for module in modules:
        importlib.import_module(module.removesuffix(".__init__"))
print(len(modules))
sys.exit("; ".join(touched) or None)
"""

# One conversation with the core, printed: every effect, then the answer.
REPLAY = """
from legation import effects, messages, refusals

def conversation():
    # THE PLACE TO EXTEND: drive `Platform.answer` here, one request of each kind.
    yield effects.Fetch("POST", "https://api.test/v1", (("accept", "application/json"),), b"{}")
    yield effects.Log("info", "request", (("route", "/agents"), ("status", 200)))
    faults = tuple(refusals.Fault(f"body.{name}", "unknown") for name in ("b", "a", "c"))
    yield refusals.respond(refusals.Invalid(faults))
    yield refusals.respond(refusals.Forbidden("agents:read"))
    yield messages.json_response(200, {"scopes": ["a", "b"], "id": "concierge"})

for value in conversation():
    print(value)
"""


def run(source: str, *arguments: str, seed: str = "random") -> str:
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_no_module_of_the_core_imports_one_that_acts() -> None:
    assert int(run(IMPORTS)) > 1


def test_no_module_of_the_core_acts_when_it_is_imported() -> None:
    assert int(run(ON_IMPORT, str(CONFTEST))) > 1


@pytest.mark.parametrize("seed", ["1", "4242"])
def test_the_same_requests_give_the_same_effects_and_bytes_whatever_the_hash_seed(
    seed: str,
) -> None:
    told = run(REPLAY, seed=seed)

    assert told == run(REPLAY, seed="7")
    assert "Fetch(" in told
