"""Look for known vulnerabilities in what is locked: `python -m tests.advisories FILE [LOCK…]`.

FILE is an export of https://osv.dev for PyPI, fetched by whoever runs this: the archive `all.zip`
of its bucket, or a JSON file with one advisory or an array of them (OSV schema 1.7).  Nothing is
asked over the network, so that the check gives the same answer twice.

The exit code is 1 where a locked version is affected, 2 where the file cannot be read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard
from zipfile import BadZipFile, ZipFile, is_zipfile

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

__all__ = ["Affected", "find_affected", "is_affected", "read_advisories", "read_lock"]

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = tuple(sorted(ROOT.glob("requirements/*.txt")))
_PINNED: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_ORDER: Final = ("introduced", "fixed", "last_affected", "limit")

Advisory = Mapping[str, Any]


class Affected(NamedTuple):
    """A locked version with a known vulnerability."""

    name: str
    version: str
    advisory: str
    summary: str


def read_lock(text: str) -> dict[str, set[str]]:
    """Return the versions of each distribution that a lock names; markers choose among them."""
    found: dict[str, set[str]] = {}
    for name, version in _PINNED.findall(text):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def read_advisories(path: Path) -> Iterator[Advisory]:
    """Yield the advisories in the file at `path`.

    Raises:
        ValueError: It is neither an archive nor JSON of the form.
    """
    if is_zipfile(path):
        with ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield _advisory(json.loads(archive.read(name)))
        return
    read = json.loads(path.read_bytes())
    for item in read if _is_array(read) else [read]:
        yield _advisory(item)


def _advisory(item: Any) -> Advisory:
    if not _is_object(item) or not isinstance(item.get("id"), str):
        raise ValueError("an advisory is an object with an id")
    return item


def _is_object(value: Any) -> TypeGuard[Advisory]:
    return isinstance(value, dict)


def _is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def find_affected(
    locked: Mapping[str, set[str]], advisories: Iterator[Advisory]
) -> Iterator[Affected]:
    """Yield each locked version that an advisory names; one that was withdrawn counts no more."""
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for entry in advisory.get("affected", ()):
            package = entry.get("package", {})
            name = canonicalize_name(str(package.get("name", "")))
            if package.get("ecosystem") != "PyPI":
                continue
            for version in sorted(locked.get(name, ())):
                if is_affected(version, entry):
                    yield Affected(name, version, advisory["id"], advisory.get("summary", ""))


def is_affected(version: str, entry: Mapping[str, Any]) -> bool:
    """Return whether `version` is listed, or lies in a range, as the schema defines it."""
    if version in entry.get("versions", ()):
        return True
    ranges = (one for one in entry.get("ranges", ()) if one.get("type") == "ECOSYSTEM")
    return any(_is_within(Version(version), one.get("events", ())) for one in ranges)


def _is_within(version: Version, events: Sequence[Mapping[str, str]]) -> bool:
    """Go through the events in order of their versions; the last that is reached decides."""
    reached = False
    for kind, bound in sorted(_bounds(events), key=lambda one: (one[1], _ORDER.index(one[0]))):
        if kind == "introduced" and version >= bound:
            reached = True
        elif (kind in ("fixed", "limit") and version >= bound) or (
            kind == "last_affected" and version > bound
        ):
            reached = False
    return reached


def _bounds(events: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, Version]]:
    for event in events:
        for kind, text in event.items():
            try:
                yield kind, Version(text)
            except InvalidVersion:
                # What cannot be read bounds nothing: rather one finding too many.
                continue


def main(arguments: Sequence[str]) -> int:
    """Print what is affected; return the exit code."""
    if not arguments:
        sys.stderr.write("name the file with the advisories\n")
        return 2
    file, *locks = map(Path, arguments)
    locked: dict[str, set[str]] = {}
    for lock in locks or LOCKS:
        for name, versions in read_lock(lock.read_text("utf-8")).items():
            locked.setdefault(name, set()).update(versions)
    try:
        found = sorted({*find_affected(locked, read_advisories(file))})
    except (OSError, ValueError, BadZipFile) as error:
        sys.stderr.write(f"{file} cannot be read: {error}\n")
        return 2
    for one in found:
        sys.stdout.write(f"{one.name} {one.version}: {one.advisory} {one.summary}".rstrip() + "\n")
    sys.stdout.write(f"{len(locked)} distributions, {len(found)} findings\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
