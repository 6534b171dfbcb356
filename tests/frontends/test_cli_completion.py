"""The shell completes what is typed, by the lines of the documentation."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .commands import every_command

PAGE = Path(__file__).parents[2] / "docs/reference/cli.md"
SECONDS = 60
ENVIRON = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
LINES = re.findall(
    r"^\| (bash|zsh|fish).*`([^`]*_LEGATION_COMPLETE[^`]*)` \|$", PAGE.read_text(), re.MULTILINE
)


def completed(*words: str) -> list[str]:
    """Return what bash offers for the last of `words`, by the line of the documentation."""
    line = dict(LINES)["bash"]
    typed = " ".join(f"'{word}'" for word in words)
    script = (
        f"{line}\nCOMP_WORDS=(legation {typed}) COMP_CWORD={len(words)}\n"
        '_legation_completion legation\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=ENVIRON,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_page_has_a_line_for_each_shell() -> None:
    assert [shell for shell, _ in LINES] == ["bash", "zsh", "fish"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), {name.split()[0] for name in every_command()}),
        (("audit", ""), {"verify", "export", "prune", "refusals"}),
        (("migrate", "--pl"), {"--plan"}),
        (("serve", "--log-format", "j"), {"json"}),
    ],
)
def test_bash_completes_commands_options_and_choices(
    words: tuple[str, ...], offered: set[str]
) -> None:
    assert set(completed(*words)) == offered


@pytest.mark.parametrize("command", ["serve", "check", "openapi", "channels", "round", "migrate"])
def test_the_platform_is_completed_as_a_file(command: str) -> None:
    typed = {"COMP_WORDS": f"legation {command} pl", "COMP_CWORD": "2"}
    done = subprocess.run(
        ["legation"],
        env={**ENVIRON, **typed, "_LEGATION_COMPLETE": "bash_complete"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.stdout == "file,pl\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_a_script(shell: str) -> None:
    environ = {**ENVIRON, "_LEGATION_COMPLETE": f"{shell}_source"}
    done = subprocess.run(
        ["legation"], env=environ, capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert f"_LEGATION_COMPLETE={shell}_complete" in done.stdout
