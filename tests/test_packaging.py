"""What is shipped, what it needs, and how it is checked agree with each other."""

from __future__ import annotations

import ast
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions, version
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from legation.version import VERSION

ROOT: Final = Path(__file__).parents[1]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: Final = PYPROJECT["project"]
FOLDERS: Final = tuple(
    ROOT / folder for folder in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
)
MODULES: Final = tuple(
    sorted(path for folder in FOLDERS for path in folder.rglob("*.py"))  # as they lie on disk
)


def dotted(path: Path) -> str:
    """Return the name under which the module at `path` is imported."""
    relative = path.relative_to(ROOT).with_suffix("")
    return ".".join(relative.parts[1:]).removesuffix(".__init__")


def imported(path: Path) -> set[str]:
    """Return the top-level names that the module at `path` imports, wherever it does."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def public(path: Path) -> list[str]:
    """Return the public names that the module at `path` defines at its top level."""
    body = ast.parse(path.read_bytes()).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [n.name for n in body if isinstance(n, kinds) and not n.name.startswith("_")]


def test_every_package_on_disk_is_shipped() -> None:
    on_disk = {
        path.parent for root in ("core", "frontends") for path in ROOT.glob(f"{root}/*/__init__.py")
    }

    assert set(FOLDERS) == on_disk


@pytest.mark.parametrize("name", ["core", "frontends"])
def test_the_source_roots_are_no_packages(name: str) -> None:
    assert not (ROOT / name / "__init__.py").exists()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_package_is_typed(folder: Path) -> None:
    assert (folder / "py.typed").read_bytes() == b""


LOADERS = frozenset({"pytest"})
"""What only a plugin imports that it loads itself, so that no installation needs it."""


def test_every_import_is_declared() -> None:
    optional = [needed for extra in PROJECT["optional-dependencies"].values() for needed in extra]
    declared = {
        canonicalize_name(Requirement(needed).name)
        for needed in (*PROJECT["dependencies"], *optional)
    }
    own = {folder.name for folder in FOLDERS}
    every = {name for path in MODULES for name in imported(path)}
    foreign = every - set(sys.stdlib_module_names) - own - LOADERS
    found = packages_distributions()

    # Several distributions may share a name to import from.
    given = {top: {canonicalize_name(name) for name in found.get(top, [top])} for top in foreign}
    assert [top for top in sorted(given) if declared.isdisjoint(given[top])] == []


def test_every_distribution_declared_is_imported() -> None:
    found = packages_distributions()
    used = {
        canonicalize_name(name)
        for path in MODULES
        for top in imported(path)
        for name in found.get(top, [])
    }

    assert {
        canonicalize_name(Requirement(needed).name) for needed in PROJECT["dependencies"]
    } <= used


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_every_module_says_what_is_public(path: Path) -> None:
    if not public(path) and path.name in {"__init__.py", "__main__.py"}:
        return
    try:
        module = import_module(dotted(path))
    except ImportError as missing:
        if "pip install 'legation[" not in str(missing):
            raise
        pytest.skip(str(missing))  # a framework, which `nox -s adapters` installs
    said: list[str] = module.__all__

    assert len(said) == len(set(said))
    assert [name for name in said if not hasattr(module, name)] == []
    assert sorted(set(public(path)) - set(said)) == []


def test_the_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="legation")

    assert callable(command.load())


def test_the_version_is_the_one_in_pyproject() -> None:
    assert version("legation") == PROJECT["version"] == VERSION


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = ROOT / ".ci/run"
    commands = script.read_text().splitlines()

    assert os.access(script, os.X_OK)
    for page in ("README.md", "CONTRIBUTING.md"):
        lines = [line.removeprefix("$ ").strip() for line in (ROOT / page).read_text().splitlines()]
        assert any(line.endswith("/nox") and line in commands for line in lines), page


def test_every_ignored_rule_has_a_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    ignored = re.findall(r'^  "[A-Z]+\d*",(.*)$', text, re.MULTILINE)

    assert len(ignored) > len(PYPROJECT["tool"]["ruff"]["lint"]["ignore"])
    assert [rest for rest in ignored if not re.fullmatch(r" +# .+", rest)] == []


def test_the_core_bans_all_that_the_project_bans() -> None:
    core = tomllib.loads((ROOT / "core/ruff.toml").read_text())
    bans = PYPROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]

    assert bans.items() <= core["lint"]["flake8-tidy-imports"]["banned-api"].items()


def test_the_linters_layers_are_on_disk() -> None:
    layers: list[str] = PYPROJECT["tool"]["importlinter"]["contracts"][-1]["layers"]
    named = {name.strip(" ()") for layer in layers for name in layer.split("|")}
    on_disk = {path.stem for path in ROOT.glob("core/legation/[a-z]*") if path.stem != "py"}

    assert named == on_disk


# --- the files of the documentation pages -------------------------------------------------------


@pytest.fixture(scope="module")
def build() -> Iterator[Any]:
    """The module of the build, with an empty class for that of the tool which calls it."""
    name = "hatchling.builders.hooks.plugin.interface"
    parts = name.split(".")
    absent = [
        ".".join(parts[:count])
        for count in range(1, len(parts) + 1)
        if ".".join(parts[:count]) not in sys.modules
    ]
    sys.modules.update({part: ModuleType(part) for part in absent})
    vars(sys.modules[name]).setdefault("BuildHookInterface", list)
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for part in absent:
        del sys.modules[part]


def test_a_file_of_the_pages_is_the_approved_one_or_the_build_fails(build: Any) -> None:
    digest = sha256(b"approved").hexdigest()

    assert build.check_digest("x.js", b"approved", digest) == b"approved"
    with pytest.raises(ValueError, match=f"x.js of .* hatch_build.py approves {digest}"):
        build.check_digest("x.js", b"approved, and more", digest)


def test_a_replacement_that_finds_nothing_fails_the_build(build: Any) -> None:
    (name,) = build.REPLACED
    old, new = build.REPLACED[name]

    assert build.replace(name, b"<" + old + b">") == b"<" + new + b">"
    assert build.replace("swagger-ui.css", b"as it is") == b"as it is"
    with pytest.raises(ValueError, match=r"logo-mini\.svg, which was replaced"):
        build.replace(name, b"another logo")


def test_a_file_of_the_pages_is_written_at_once_and_only_when_it_differs(
    build: Any, tmp_path: Path
) -> None:
    path = tmp_path / "x.js"
    build.write(path, b"old")
    first = path.stat()
    build.write(path, b"old")
    again = path.stat()
    with path.open("rb") as reader:
        build.write(path, b"new, and longer")
        assert reader.read() == b"old"

    assert (again.st_ino, again.st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert path.read_bytes() == b"new, and longer"
    assert [file.name for file in tmp_path.iterdir()] == ["x.js"]


def test_each_file_of_the_pages_has_its_digest_and_the_distribution_its_version(build: Any) -> None:
    digests = [digest for _, digest in build.FILES.values()]
    (needed,) = (
        Requirement(text) for text in PYPROJECT["build-system"]["requires"] if "sidecar" in text
    )

    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in digests)
    assert len(set(digests)) == len(build.FILES) == 7
    assert canonicalize_name(needed.name) == build.SOURCE
    assert str(needed.specifier).startswith("==")


def test_the_files_that_were_built_are_the_approved_ones(build: Any) -> None:
    """Where the package was built or installed from the sources, its files are here."""
    folder = ROOT / build.TARGET
    for name, digest in build.FILES.values():
        if not (folder / name).exists():
            continue
        content = (folder / name).read_bytes()
        old, new = build.REPLACED.get(name, (b"", b""))
        assert sha256(content.replace(new, old) if old else content).hexdigest() == digest
