"""The documentation is true: its pages are followed, its tables are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from .transcripts import DOCS, Terminal, follow

pytestmark = pytest.mark.skipif(
    not Path("/bin/bash").exists(), reason="the pages are typed into bash"
)


def test_tutorial_says_what_happens(tmp_path: Path) -> None:
    with Terminal(tmp_path) as terminal:
        typed = follow((DOCS / "tutorial.md").read_text("utf-8"), terminal)

    assert typed > 20
