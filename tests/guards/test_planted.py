"""Each guard of the core's purity turns red when what it guards against is planted.

Modules that act are written into a scratch core, beside modules that do not; the guards then run
over it with the project's own settings, as CI does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]

MODULE: Final = '''"""A module of the core, planted."""

from __future__ import annotations

{imports}

__all__ = ["answer"]


def answer() -> object:
    """Return what was asked for."""
    {body}
'''
# By the name of the module: what it imports and does, and what the watch calls that.
IMPURE: Final = {
    "time": ("import time", "return time.time()", "time"),
    "time_by_name": ("from time import time", "return time()", "time"),
    "now": ("from datetime import UTC, datetime", "return datetime.now(UTC)", "datetime.now"),
    "uuid4": ("import uuid", "return uuid.uuid4()", "urandom"),
    "uuid4_by_name": ("from uuid import uuid4", "return uuid4()", "urandom"),
    "open": ("", 'return open("/dev/null", "rb").close()', "open"),
    "print": ("", 'return print("")', "print"),
    "random": ("import random", "return random.random()", "Random.random"),
    "environ": ("import os", 'return os.environ.get("HOME")', "os._Environ"),
    "secrets": ("import secrets", "return secrets.token_hex()", "secrets.token_hex"),
    "sleep": ("import time", "return time.sleep(0)", "sleep"),
    "urandom": ("import os", "return os.urandom(1)", "urandom"),
    "socket": ("import socket", "return socket.socket().close()", "socket.__new__"),
    "process": ("import subprocess", 'return subprocess.run(["true"])', "subprocess.Popen"),
    "thread": (
        "import threading",
        "return threading.Thread(target=int).start()",
        "threading.Thread.start",
    ),
    "jwt_decode": (
        "import jwt\nKEY = bytes(32)",
        'return jwt.decode(jwt.encode({"exp": 1 << 40}, KEY), KEY, algorithms=["HS256"])',
        "datetime.now",
    ),
}
PURE: Final = {
    "uuid": ("import uuid", "return uuid.UUID(int=7, version=4)"),
    "moment": ("from datetime import UTC, datetime", "return datetime.fromtimestamp(0, UTC)"),
    # A codec is read from disk when it is first asked for.
    "codec": ("", 'return "legation".encode("idna")'),
    # Hypothesis times the collector, on the stack of whoever ran into it.
    "collector": ("import gc", "return gc.collect()"),
}
TESTS: Final = f"""
from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers

NAMES = {[*IMPURE, *PURE]}


@pytest.mark.parametrize("name", NAMES)
def test_plain(name: str) -> None:
    import_module("legation." + name).answer()


@pytest.mark.parametrize("name", NAMES)
def test_given(name: str) -> None:
    answer = import_module("legation." + name).answer

    @given(integers())
    @settings(max_examples=5)
    def property(number: int) -> None:
        answer()

    property()
"""
QUIET: Final = ("-p", "no:cacheprovider")


def core(root: Path) -> Path:
    """Lay out a project under `root` with the real settings and an empty core; return the core."""
    for name in ("pyproject.toml", "core/ruff.toml", "tests/core/conftest.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    package = root / "core/legation"
    package.mkdir()
    (package / "__init__.py").write_text('"""The core."""\n')
    return package


def plant(package: Path, name: str, imports: str, body: str) -> Path:
    """Write the module `name` into the core."""
    planted = package / f"{name}.py"
    planted.write_text(MODULE.format(imports=imports, body=body))
    return planted


def run(root: Path, *command: str) -> tuple[int, str]:
    """Run a module of Python's in the project under `root`; return its exit code and words."""
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root / "core"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plant every module, each in a file of its own."""
    package = core(tmp_path_factory.mktemp("planted"))
    for name, (imports, body, *_) in [*IMPURE.items(), *PURE.items()]:
        plant(package, name, imports, body)
    return package


@pytest.fixture(scope="module")
def watch(package: Path) -> str:
    """Call every planted module in a test of the core; return what pytest said."""
    root = package.parents[1]
    (root / "tests/core/test_planted.py").write_text(TESTS)
    code, told = run(root, "pytest", "-vv", *QUIET, "tests/core/test_planted.py")
    assert code == 1, told
    return told


@pytest.mark.parametrize("name", IMPURE)
def test_ruff_refuses_to_name_what_acts(package: Path, name: str) -> None:
    rules = "--select=TID251,PTH123,T201"
    code, told = run(package, "ruff", "check", "--no-cache", rules, f"{name}.py")

    assert code == 1, told
    assert "Found" in told


@pytest.mark.parametrize("name", PURE)
def test_ruff_passes_what_is_pure(package: Path, name: str) -> None:
    code, told = run(package, "ruff", "check", "--no-cache", "--select=TID251", f"{name}.py")

    assert code == 0, told


@pytest.mark.parametrize("test", ["test_plain", "test_given"])
@pytest.mark.parametrize("name", IMPURE)
def test_the_watch_fails_a_test_in_which_the_core_acts(watch: str, name: str, test: str) -> None:
    assert f"::{test}[{name}] PASSED" in watch  # the test itself holds ...
    assert f"::{test}[{name}] ERROR" in watch  # ... the watch alone fails it
    assert re.search(rf"\b{name}\.py:\d+ answer: {re.escape(IMPURE[name][-1])}", watch)


@pytest.mark.parametrize("test", ["test_plain", "test_given"])
@pytest.mark.parametrize("name", PURE)
def test_the_watch_raises_no_false_alarm(watch: str, name: str, test: str) -> None:
    assert f"::{test}[{name}] PASSED" in watch
    assert f"::{test}[{name}] ERROR" not in watch


@pytest.mark.parametrize(
    ("imports", "named"),
    [
        ("import time", "legation.planted imports time"),
        ("from legation_host import drive", "legation.planted imports legation_host"),
        ("START = open('/dev/null').close()", "planted.py:5 <module>: open"),
    ],
    ids=["an import that acts", "an import of a frontend", "acting on import"],
)
def test_the_import_of_the_core_is_watched(tmp_path: Path, imports: str, named: str) -> None:
    plant(core(tmp_path), "planted", imports, "return 0")
    (tmp_path / "core/legation_host.py").write_text("drive = None\n")
    shutil.copy(ROOT / "tests/core/test_purity.py", tmp_path / "tests/core")
    code, told = run(tmp_path, "pytest", *QUIET, "-k", "no_module", "tests/core/test_purity.py")

    assert code == 1, told
    assert named in told
