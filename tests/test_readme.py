"""What the README shows is what happens: its commands are run, its examples are executed."""

from __future__ import annotations

import json
import re
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
FIGURES: Final = ROOT / "docs/explanation/performance.json"
PICTURE_BYTES: Final = 200_000


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


def row(subject: str) -> list[str]:
    """Return the cells of the row of figures about a subject."""
    line = next(line for line in README.read_text("utf-8").splitlines() if f"| {subject}" in line)
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("subject", "case", "others"),
    [
        ("CPU time of `GET /agents`", "GET /agents, 10 agents, 16", ("AgentOS 2.5.6", "FastAPI")),
        ("CPU time of a run", "POST run, 16", ("AgentOS 2.5.6",)),
    ],
)
def test_figures_are_those_of_the_page_on_performance(
    subject: str, case: str, others: tuple[str, ...]
) -> None:
    _, said, command = row(subject)
    servers = json.loads(FIGURES.read_text("utf-8"))["http_load"][case]
    ratios = [
        server["ratio_cpu"] for name in others for key, server in servers.items() if name in key
    ]

    assert re.findall(r"([\d.]+) times", said) == [
        f"{ratio:.0f}" if ratio > 10 else f"{ratio:.1f}" for ratio in ratios
    ]
    assert case.startswith(command.partition("'")[2].strip("'`"))


def test_measuring_commands_name_files_that_exist() -> None:
    commands = [row(subject)[-1] for subject in ("CPU time of `GET", "CPU time of a", "crashes")]

    files = [re.search(r"(\S+\.py)", command) for command in commands]
    assert all(found and (ROOT / found[1]).exists() for found in files)


def test_second_command_runs_the_default_sessions_of_nox() -> None:
    _, checked = texts("sh")

    assert checked.endswith('install --quiet "nox[uv]" && .venv/bin/nox\n')
    assert "nox.options.sessions" in (ROOT / "noxfile.py").read_text("utf-8")


def test_pictures_are_there_and_small() -> None:
    names = re.findall(r'(?:src|srcset)="([^"]+)"', README.read_text("utf-8"))

    assert len(names) == 2
    assert all((ROOT / name).stat().st_size <= PICTURE_BYTES for name in names)


def test_readme_stays_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 170
