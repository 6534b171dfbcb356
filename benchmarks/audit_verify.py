"""The time that it takes to verify the export of an audit trail, on another machine.

An export of 1,000,000 rows is written to a file, and then read and verified with the key alone:
the aim is at most 30 s.  Rows are those of a busy platform: pages of a batch of reads, and pages
of one change.  Seconds are of the processor; run it as `python benchmarks/audit_verify.py [ROWS]`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Final

from attrs import evolve

from legation.store.audit_entries import AuditEntry
from legation.store.audit_export import ExportVerifier, ExportWriter
from legation.store.audit_pages import Head, KeyRing, Page, SigningKey, seal_page
from legation.store.audit_verify import Intact

ROWS: Final = 1_000_000
CHAINS: Final = 20
BATCHES: Final = (1, 256, 1, 40, 1, 1, 100)
"""The entries of the pages of a chain, again and again: 0.017 pages for each row."""
KEY: Final = SigningKey("2026", bytes(range(32)))
ENTRY: Final = AuditEntry(
    1_767_225_600_000_000,
    "4f1d2c3b4a5968778695a4b3c2d1e0f1",
    "auth0|5f7c8ec7c33c6c004bbafe82",
    "key-2026-01",
    "get_agent_run",
    "concierge/0f8fad5b-d9cb-469f-a165-70867728950e",
    "allow",
    "agents:concierge:run",
    200,
    "203.0.113.77",
)


def make_pages(writer: str, rows: int) -> Iterator[Page]:
    """Yield the pages of a chain of `rows` rows."""
    end, number, batch = Head(f"signed/{writer}", 0, ""), 0, 0
    while number < rows:
        size = min(BATCHES[batch % len(BATCHES)], rows - number)
        at_us = ENTRY.at_us + number * 1_000
        entries = [
            evolve(ENTRY, at_us=at_us + one, request_id=f"{number + one:032x}")
            for one in range(size)
        ]
        page = seal_page(end, tuple(entries), KEY)
        yield page
        end, number, batch = page.head, number + size, batch + 1


def write_export(path: Path, rows: int) -> float:
    """Write an export of `rows` rows; return the seconds that its lines have taken."""
    writer, seconds = ExportWriter(KEY), 0.0
    with path.open("wb") as file:
        file.write(writer.begin("bench", "main", ENTRY.at_us))
        for chain in range(CHAINS):
            for page in make_pages(f"node-{chain:02}", rows // CHAINS):
                began = process_time()
                line = writer.write_page(page)
                seconds += process_time() - began
                file.write(line)
        file.write(writer.end())
    return seconds


def verify_export(path: Path) -> tuple[float, Intact]:
    """Return the seconds that it takes to verify the export at `path`, and the verdict."""
    began = process_time()
    verifier = ExportVerifier(keys=KeyRing((KEY,)))
    with path.open("rb") as file:
        for line in file:
            if (wrong := verifier.take(line)) is not None:
                raise RuntimeError(wrong)
    verdict = verifier.end()
    if not isinstance(verdict, Intact):
        raise TypeError(verdict)
    return process_time() - began, verdict


def main(rows: int = ROWS) -> None:
    """Print how long writing and verifying take."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trail.ndjson"
        write_seconds = write_export(path, rows)
        size = path.stat().st_size
        verify_seconds, verdict = verify_export(path)
    print(f"{verdict.entries:,} rows in {verdict.pages:,} pages, {size / 1e6:.0f} MB")
    print(f"written in {write_seconds:.1f} s, verified in {verify_seconds:.1f} s of the processor")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
