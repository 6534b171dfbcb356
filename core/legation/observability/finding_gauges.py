"""The findings that a process knows of by itself, as measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from ..findings import Finding
from .prometheus import Labels
from .request_log import Gauge

__all__ = ["FINDINGS_NAME", "count_findings"]

FINDINGS_NAME: Final = "legation_findings"
_HELP: Final = "Unsafe settings and circumstances, by their code; see `legation doctor`."


def count_findings(findings: Iterable[Finding]) -> dict[str, Gauge]:
    """Return how many findings there are of each kind; nothing where there are none."""
    counts = Counter((one.code, one.severity) for one in findings)
    values: dict[Labels, float] = {
        (("finding", code), ("severity", severity)): number
        for (code, severity), number in sorted(counts.items())
    }
    return {FINDINGS_NAME: Gauge("gauge", _HELP, values, "max")} if values else {}
