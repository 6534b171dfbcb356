"""`python -m legation_cli` is the `legation` command."""

from __future__ import annotations

from .main import main

main()
