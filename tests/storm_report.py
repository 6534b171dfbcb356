"""The report of the storm of the shop example, as the documentation shows it.

`python -m tests.storm_report` writes it there again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

from .transcripts import DOCS, ROOT

__all__ = ["PAGE", "find_report"]

PAGE: Final = DOCS / "howto/storm.md"
TEST: Final = ROOT / "examples/test_shop.py"
PLUGIN: Final = ("-p", "legation_testing.pytest_storm")
_REPORT: Final = re.compile(r"^shop: .*?^slowest point: [^\n]*$", re.MULTILINE | re.DOTALL)


def find_report(text: str) -> str:
    """Return the report that stands in `text`."""
    found = _REPORT.search(text)
    if found is None:
        raise ValueError(f"there is no report of the shop in it: {text}")
    return found[0]


def main() -> None:
    """Let the storm pass, and write its report to the page."""
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, str(TEST)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    page = PAGE.read_text("utf-8")
    PAGE.write_text(page.replace(find_report(page), find_report(done.stdout)), "utf-8")


if __name__ == "__main__":
    main()
