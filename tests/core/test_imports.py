"""The public names are imported late, and a part of the core loads little but itself."""

from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

import legation
from legation.version import VERSION

# By part: how many modules of the core it may load, the packages above it and itself included.
# One that encodes JSON loads `json_encoding`, which loads nothing.
PARTS: Final = {
    "legation": 1,
    "legation.effects": 3,
    "legation.http.messages": 6,
    "legation.http.sse": 6,
    "legation.http.bodies.forms": 12,
    "legation.store.run_states": 3,
    "legation.store.units": 4,
    "legation.access.decide": 5,
    "legation.migrations.plan": 10,
    "legation.channels.slack": 38,
    "legation.channels.standard": 38,
    "legation.channels.telegram": 39,
    "legation.channels.whatsapp": 38,
    "legation.access.tokens": 15,
}
LOADED: Final = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(name: str) -> list[str]:
    """Return the modules that are there when `name` alone was imported."""
    command = [sys.executable, "-c", LOADED, name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    names: list[str] = json.loads(done.stdout)
    return names


@pytest.mark.parametrize("part", PARTS)
def test_a_part_loads_little_else(part: str) -> None:
    modules = loaded_by(part)
    ours = [name for name in modules if name.partition(".")[0] == "legation"]
    heavy = {"cattrs", "cryptography", "jwt"}

    assert part in ours
    assert len(ours) <= PARTS[part], ours
    assert heavy.isdisjoint(modules)


def test_agent_is_defined_without_what_only_some_types_or_a_server_need() -> None:
    heavy = {"multipart", "hashlib", "decimal", "uuid", "cryptography", "legation.store"}
    heavy.add("markdown_it")
    extras = {"pydantic", "msgspec", "annotated_types", "docstring_parser", "pypdf", "watchfiles"}

    assert (heavy | extras).isdisjoint(loaded_by("legation.config"))


def test_the_platform_does_load_what_a_part_does_not() -> None:
    modules = {*loaded_by("legation.platform")}

    assert {"cattrs", "legation.effects"} <= modules
    assert {"cryptography", "jwt", "markdown_it"}.isdisjoint(modules)


# --- names ---------------------------------------------------------------------------------------


def seen_by_checkers() -> dict[str, str]:
    """Return the module of each name that the package imports for type checkers."""
    tree = ast.parse(Path(legation.__file__ or "").read_text(encoding="utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    return {
        alias.asname or alias.name: str(node.module) for node in imports for alias in node.names
    }


def test_a_checker_and_the_interpreter_find_the_same_names_in_the_same_modules() -> None:
    table: dict[str, str] = vars(legation)["_HOMES"]

    assert seen_by_checkers() == table
    assert sorted(table) == sorted(legation.__all__)


@pytest.mark.parametrize("name", legation.__all__)
def test_a_name_is_what_its_module_has(name: str) -> None:
    value = getattr(legation, name)

    assert value is getattr(legation, name)
    assert vars(legation)[name] is value
    assert isinstance(value, str) or value.__module__.startswith("legation.")
    assert name in dir(legation)


def test_an_unknown_name_is_refused_in_the_usual_words() -> None:
    with pytest.raises(AttributeError, match=r"^module 'legation' has no attribute 'Platfrom'$"):
        _ = getattr(legation, "Platfrom")  # noqa: B009 (a checker refuses it otherwise)
    with pytest.raises(ImportError, match="cannot import name 'Platfrom' from 'legation'"):
        exec("from legation import Platfrom")


def test_an_error_in_a_module_behind_a_name_is_not_hidden(tmp_path: Path) -> None:
    broken = tmp_path / "cattrs.py"
    broken.write_text("raise RuntimeError('the disk is old')")
    command = [sys.executable, "-c", "import legation; legation.Agent"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "RuntimeError: the disk is old" in done.stderr
    assert "has no attribute" not in done.stderr


@pytest.mark.parametrize(
    "package",
    [f"legation.{name}" for name in ("access", "api", "api.handlers", "channels", "models")],
)
def test_a_package_that_imports_late_has_no_other_names(package: str) -> None:
    module = import_module(package)

    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute 'keyz'$"):
        _ = module.keyz


@pytest.mark.parametrize(
    ("package", "name"),
    [("api", "openapi"), ("api.handlers", "audit"), ("models", "anthropic")],
)
def test_what_is_imported_late_is_the_module_of_that_name(package: str, name: str) -> None:
    """Also where it is imported already, as everything is in a long run of tests."""
    find = vars(import_module(f"legation.{package}"))["__getattr__"]
    assert find(name) is import_module(f"legation.{package}.{name}")


LATE: Final = """
import sys
import legation.access, legation.channels, legation.models
late = {"legation.access.key_reading", "legation.channels.kinds", "legation.models.anthropic"}
assert late.isdisjoint(sys.modules)
assert legation.access.key_reading.read_jwks
assert sorted(legation.channels.CHANNEL_KINDS) == ["slack", "standard", "telegram", "whatsapp"]
assert legation.models.anthropic.AnthropicMessages
assert late <= sys.modules.keys()
"""


def test_what_is_for_keys_channels_and_providers_is_imported_when_it_is_asked_for() -> None:
    subprocess.run([sys.executable, "-c", LATE], check=True)


def test_a_star_brings_every_public_name() -> None:
    here: dict[str, Any] = {}
    exec("from legation import *", here)

    assert {*legation.__all__} == here.keys() - {"__builtins__"}


def test_the_version_is_at_hand() -> None:
    assert legation.__version__ == VERSION


def test_values_with_a_public_name_can_be_pickled() -> None:
    request = legation.Request("GET", "/agents", ((b"accept", b"*/*"),))

    for value in (request, legation.Platform, legation.ToolError("no")):
        again = pickle.loads(pickle.dumps(value))
        assert again == value or str(again) == str(value)
