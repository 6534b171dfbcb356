"""Tests with clients that others wrote, which do not close all that they open."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Generator

import pytest


@pytest.fixture(autouse=True, scope="module")
def collected() -> Generator[None]:
    """Collect what the clients of a module left open, before the end of the session does."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
