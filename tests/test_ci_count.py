"""The closing line of CI adds up the reports of the sessions, and nothing that did not run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

COUNT = Path(__file__).parent.parent / ".ci/count"


def counted(folder: Path, results: dict[str, str]) -> tuple[str, int]:
    sessions = [entry(name, result) for name, result in results.items()]
    (folder / "report.json").write_text(json.dumps({"sessions": sessions}))
    return line(folder)


def entry(name: str, result: str) -> dict[str, object]:
    """Return what nox writes of a session: its Python stands in the signatures alone."""
    short, _, python = name.partition("-")
    return {"name": short, "signatures": [name] if python else [], "result": result}


def line(folder: Path) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, COUNT, folder], capture_output=True, text=True, check=False
    )
    return done.stdout, done.returncode


def report(folder: Path, name: str, **counts: int) -> None:
    (folder / "reports").mkdir(exist_ok=True)
    numbers = "".join(f' {key}="{value}"' for key, value in counts.items())
    text = f"<testsuites><testsuite{numbers}/></testsuites>"
    (folder / "reports" / f"{name}.xml").write_text(text)


def test_tests_are_added_up_over_sessions_and_a_session_without_a_report_is_one(
    tmp_path: Path,
) -> None:
    report(tmp_path, "core", tests=10, errors=0, failures=0, skipped=1)
    report(tmp_path, "tests", tests=5, errors=1, failures=1, skipped=0)
    results = {"style": "success", "mypy": "failed", "core": "success", "tests": "failed"}

    assert counted(tmp_path, results) == ("13 passed, 3 failed, 1 skipped\n", 0)


def test_a_session_that_ran_its_tests_in_parts_is_the_sum_of_them(tmp_path: Path) -> None:
    report(tmp_path, "core-3.1", tests=1, errors=0, failures=0, skipped=0)
    report(tmp_path, "core-3.1.enumerations", tests=2, errors=0, failures=0, skipped=0)
    report(tmp_path, "core-3.13", tests=4, errors=0, failures=0, skipped=0)

    assert counted(tmp_path, {"core-3.1": "success"}) == ("3 passed, 0 failed\n", 0)


def test_a_session_that_failed_although_its_tests_passed_counts_as_a_failure(
    tmp_path: Path,
) -> None:
    report(tmp_path, "core", tests=10, errors=0, failures=0, skipped=0)

    assert counted(tmp_path, {"core": "failed"}) == ("10 passed, 1 failed\n", 0)


def test_a_report_of_a_session_that_did_not_run_counts_nothing(tmp_path: Path) -> None:
    report(tmp_path, "core", tests=10, errors=0, failures=0, skipped=0)

    assert counted(tmp_path, {"style": "success"}) == ("1 passed, 0 failed\n", 0)


def test_nothing_that_passed_is_an_error(tmp_path: Path) -> None:
    assert line(tmp_path) == ("0 passed, 1 failed\n", 1)
    assert counted(tmp_path, {"style": "failed"}) == ("0 passed, 1 failed\n", 1)
