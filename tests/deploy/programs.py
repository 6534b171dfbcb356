"""Programs of the system that a test needs, and what they need; one that is missing is named."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pytest

__all__ = ["DEPLOY", "ROOT", "find_program"]

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"


def find_program(name: str, package: str) -> str:
    """Return the path of a program; skip the test where it is missing, and say how to get it."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
    found = shutil.which(name, path=path)
    if found is None:
        pytest.skip(f"no {name} here: apt-get install {package}, or put it on PATH")
    return found
