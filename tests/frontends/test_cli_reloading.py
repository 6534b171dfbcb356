"""The files that are watched, and what becomes of the process that serves."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from legation_cli.reloading import find_folders, is_source, wait_only, watch_files


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("shop.py", True),
        ("deep/er/shop.py", True),
        ("platform.toml", True),
        (".env", True),
        ("shop.db", False),
        ("shop.pyc", False),
        ("__pycache__/shop.py", False),
        (".venv/lib/x.py", False),
        ("venv/lib/python3.13/site-packages/x.py", False),
        ("node_modules/x.json", False),
        ("../elsewhere.py", False),
    ],
)
def test_code_and_configuration_are_watched(tmp_path: Path, path: str, *, expected: bool) -> None:
    assert is_source((tmp_path,), str((tmp_path / path).resolve())) is expected


def test_code_is_here_and_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, away = tmp_path / "here", tmp_path / "away"
    (here / "below").mkdir(parents=True)
    away.mkdir()
    monkeypatch.chdir(here)

    assert find_folders(None) == ()
    assert find_folders("shop:platform") == (here,)
    assert find_folders("below/platform.toml") == (here,)
    assert find_folders("../away/platform.toml") == (here, away)


def test_change_is_found_and_the_end_ends_the_watch(tmp_path: Path) -> None:
    ending = threading.Event()
    watch = watch_files((tmp_path,), ending)
    assert next(watch) == []  # it watches from now on
    (tmp_path / "shop.db").touch()
    (tmp_path / "shop.py").write_text("x = 1")

    assert next(names for names in watch if names) == ["shop.py"]
    ending.set()
    assert list(watch) == []


def test_without_code_it_waits_for_the_end() -> None:
    ending = threading.Event()
    watch = wait_only(ending)
    assert next(watch) == ()
    ending.set()

    assert list(watch) == []
