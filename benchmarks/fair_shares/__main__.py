"""Everything that one caller might take from others, measured in one run.

    python benchmarks/fair_shares

Each module asks one question, in a process of its own, and prints its figures.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run every module of this folder; return how many of them failed."""
    failed = 0
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        print(f"--- {path.stem}", flush=True)
        failed += subprocess.run([sys.executable, str(path)], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
