"""Advisories from a file: what they say of versions, and of files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from .advisories import LOCKS, find_affected, is_affected, main, read_lock

LOCK = """\
h11==0.15.0 \\
    --hash=sha256:00
PyJWT==2.15.1 ; python_version >= "3.11" \\
    --hash=sha256:00
"""


def advisory(name: str = "h11", **entry: Any) -> dict[str, Any]:
    affected = {"package": {"ecosystem": "PyPI", "name": name}, **entry}
    return {"id": "GHSA-vqfr-h8mv-ghfj", "summary": "a lenient parser", "affected": [affected]}


def between(*events: dict[str, str]) -> dict[str, Any]:
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.mark.parametrize(
    ("entry", "affected"),
    [
        ({"versions": ["0.15.0"]}, True),
        ({"versions": ["0.14.0"]}, False),
        (between({"introduced": "0"}, {"fixed": "0.16.0"}), True),
        (between({"introduced": "0"}, {"fixed": "0.15.0"}), False),
        (between({"introduced": "0.16"}), False),
        (between({"introduced": "0"}, {"last_affected": "0.15.0"}), True),
        (between({"introduced": "0"}, {"last_affected": "0.14.9"}), False),
        (between({"introduced": "0"}, {"fixed": "0.9"}, {"introduced": "0.15"}), True),
        (between({"fixed": "0.16"}, {"introduced": "0"}), True),
        (between({"introduced": "0"}, {"fixed": "no version"}), True),
        ({"ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}]}, False),
        ({}, False),
    ],
)
def test_version_is_affected_or_not(entry: dict[str, Any], affected: bool) -> None:
    assert is_affected("0.15.0", entry) is affected


def test_names_are_compared_as_the_index_compares_them() -> None:
    found = [*find_affected(read_lock(LOCK), iter([advisory("pyjwt", versions=["2.15.1"])]))]

    assert [(one.name, one.version) for one in found] == [("pyjwt", "2.15.1")]


@pytest.mark.parametrize("change", [{"withdrawn": "2026-01-01T00:00:00Z"}, {"affected": []}])
def test_what_is_withdrawn_counts_no_more(change: dict[str, Any]) -> None:
    said = {**advisory(versions=["0.15.0"]), **change}

    assert [*find_affected(read_lock(LOCK), iter([said]))] == []


def test_another_ecosystem_is_not_ours() -> None:
    said = advisory(versions=["0.15.0"])
    said["affected"][0]["package"]["ecosystem"] = "npm"

    assert [*find_affected(read_lock(LOCK), iter([said]))] == []


def test_an_archive_and_a_file_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock, plain, archive = (tmp_path / name for name in ("lock.txt", "one.json", "all.zip"))
    lock.write_text(LOCK)
    plain.write_text(json.dumps([advisory(versions=["0.15.0"]), advisory("other")]))
    with ZipFile(archive, "w") as writer:
        writer.writestr("GHSA.json", json.dumps(advisory(versions=["0.15.0"])))
        writer.writestr("README", "no advisory")

    codes = [main([str(path), str(lock)]) for path in (plain, archive)]

    assert codes == [1, 1]
    assert capsys.readouterr().out.splitlines() == 2 * [
        "h11 0.15.0: GHSA-vqfr-h8mv-ghfj a lenient parser",
        "2 distributions, 1 findings",
    ]


@pytest.mark.parametrize("content", ["", "{", "[3]", "{}"])
def test_what_is_no_advisory_is_said(tmp_path: Path, content: str) -> None:
    path = tmp_path / "all.json"
    path.write_text(content)

    assert (main([str(path)]), main([str(tmp_path / "none")]), main([])) == (2, 2, 2)


def test_every_lock_is_read_whole() -> None:
    for path in LOCKS:
        text = path.read_text()
        named = sum(line[:1].isalnum() for line in text.splitlines())
        assert sum(map(len, read_lock(text).values())) == named, path.name
