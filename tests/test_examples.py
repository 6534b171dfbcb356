"""The examples work as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import pytest

from legation_host.loading import load_platform

from .asgi_driver import AsgiDriver
from .transcripts import ROOT, Exchange, Terminal

EXAMPLES: Final = ROOT / "examples"


def test_every_example_is_listed_and_run_here() -> None:
    here = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".toml")}
    listed = {name for name in here if f"`{name}`" in (EXAMPLES / "README.md").read_text("utf-8")}

    assert here == listed
    assert here == {
        "mounted.py",
        "plain.py",
        "plain.toml",
        "test_crashes.py",
        "test_whatsapp.py",
        "whatsapp.toml",
    }


def test_tests_among_the_examples_pass(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_platform_in_python_and_as_a_file_are_the_same() -> None:
    in_python = load("plain").platform

    assert in_python.config == load_platform(str(EXAMPLES / "plain.toml"), {}).config


@pytest.mark.parametrize("named", ["plain:platform", "plain.toml"])
def test_plain_platform_is_served(tmp_path: Path, named: str) -> None:
    for name in ("plain.py", "plain.toml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text("utf-8"), "utf-8")
    with Terminal(tmp_path) as terminal:
        terminal.expect(Exchange(f"legation serve {named}", "Front office is served at …"))
        asked = "curl -s http://127.0.0.1:7777/teams/desk/runs -F message=hello -F stream=false"
        terminal.expect(Exchange(asked, '{…"team_id":"desk",…"content":"hello",…}'))


# --- mounted -------------------------------------------------------------------------------------


@contextmanager
def working_in(folder: Path) -> Generator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def load(name: str) -> Any:
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_mounted_platform_answers_below_its_mount(tmp_path: Path) -> None:
    with working_in(tmp_path):
        server = AsgiDriver(load("mounted").app)

        assert (await server.get("/mission/health"))[0] == 503
        async with server.alive():
            assert (await server.get("/"))[1] == b"The agents are below /mission.\n"
            assert (await server.get("/mission/agents"))[1].startswith(b'[{"id":"concierge"')
            assert (await server.get("/v1/mission/health", "/v1"))[0] == 200
            assert (await server.get("/missionary"))[1].startswith(b"The agents")
