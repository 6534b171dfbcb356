"""What the README shows is what happens: its commands are run, its examples are executed."""

from __future__ import annotations

import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from legation.config import structure

from .transcripts import ROOT, Exchange, Terminal, blocks, follow

README: Final = ROOT / "README.md"


def texts(language: str) -> list[str]:
    return [block.text for block in blocks(README) if block.language == language]


def test_curl_session_gives_the_output_that_is_shown(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        terminal.expect(Exchange("legation serve", "Hotel Legation is served at …"))

        assert follow(README, terminal) > 5


def test_embedding_example_makes_an_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = next(text for text in texts("python") if "legation_asgi" in text)
    (tmp_path / "example.py").write_text(example)

    found = runpy.run_path(str(tmp_path / "example.py"))

    assert set(found["platform"].registry.agents) == {"concierge"}
    assert callable(found["app"])


def test_testing_example_passes(tmp_path: Path) -> None:
    example = next(text for text in texts("python") if "def test_" in text)
    (tmp_path / "test_example.py").write_text(example)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("text", texts("toml"))
def test_configuration_that_is_shown_has_no_unknown_key(text: str) -> None:
    assert structure(tomllib.loads(text)).authorization is True


def test_documents_that_are_named_exist() -> None:
    for name in (
        "docs/index.md",
        "examples/README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
    ):
        assert f"({name})" in README.read_text("utf-8")
        assert (ROOT / name).exists()
