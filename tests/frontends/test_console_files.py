"""The files of the console: what is served, what is vendored, and what none of them does."""

from __future__ import annotations

import json
import mmap
import re
import tarfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pytest

from legation_console import read_console

from ..console_node import digests, unpack

FOLDER: Final = Path(__file__).parent.parent.parent / "frontends/legation_console"
FILES: Final = read_console()
OURS: Final = {name: bytes(body).decode() for name, body in FILES.items() if "vendor/" not in name}
MOST_BYTES: Final = 210_000
MOST_LINES: Final = 200

# What makes markup or code of text; a Content-Security-Policy forbids most of it as well.
FORBIDDEN: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|unsafeHTML|unsafeSVG|unsafeStatic|document\.write"
    r"|\beval\b|new Function|srcdoc|createContextualFragment|trustedTypes|setHTML|parseFromString"
    r"|set(?:Timeout|Interval)\(\s*[\"'`]|<script|\bstyle=|\bon[a-z]+=[\"'{]|javascript:"
)
ELSEWHERE: Final = re.compile(r"https?://(?!www\.w3\.org/)")


def test_all_files_together_are_small() -> None:
    assert sum(len(body) for body in FILES.values()) <= MOST_BYTES


def test_they_are_mapped_and_not_read() -> None:
    assert all(body.readonly and isinstance(body.obj, mmap.mmap) for body in FILES.values())


def test_each_is_where_a_route_finds_it() -> None:
    assert {"main.js", "console.css", "parts/table.js", "vendor/lit-html.js"} <= FILES.keys()
    assert all(re.fullmatch(r"(?:[a-z-]+/)?[A-Za-z0-9._-]{1,64}", name) for name in FILES)


@pytest.mark.parametrize("name", [name for name in OURS if name.endswith((".js", ".css"))])
def test_no_file_makes_markup_or_code_of_text(name: str) -> None:
    assert not FORBIDDEN.findall(OURS[name])
    assert not ELSEWHERE.findall(OURS[name])


@pytest.mark.parametrize("name", [name for name in OURS if name.endswith(".js")])
def test_a_module_is_short_and_its_types_are_checked(name: str) -> None:
    assert OURS[name].startswith("// @ts-check\n")
    assert OURS[name].count("\n") <= MOST_LINES


@pytest.mark.parametrize("name", [name for name in OURS if name.endswith(".js")])
def test_whatever_a_module_imports_is_here(name: str) -> None:
    imports = re.findall(
        r'^(?:import|export) .*?from "([^"]+)";', OURS[name], re.MULTILINE | re.DOTALL
    )
    folder = Path(name).parent

    for path in imports:
        found = Path(FOLDER / "pages", folder, path).resolve()
        assert found.relative_to(FOLDER / "pages").as_posix() in FILES


@pytest.mark.parametrize(("wanted", "said"), [("LICENCE", "LICENCE"), ("a", "approves")])
def test_another_package_than_the_approved_one_is_not_vendored(wanted: str, said: str) -> None:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/a")
        member.size = 1
        archive.addfile(member, BytesIO(b"1"))
    content = packed.getvalue()
    other: dict[str, Any] = {"integrity": digests(b""), "files": {"a": {}}}
    package: dict[str, Any] = {"integrity": digests(content), "files": {wanted: {}}}

    assert unpack(content, "x", {**package, "files": {"a": {}}}) == {"a": b"1"}
    with pytest.raises((KeyError, ValueError), match=said):
        unpack(content, "x", other if said == "approves" else package)


def test_what_is_vendored_is_what_was_approved() -> None:
    packages = json.loads((FOLDER / "vendor.json").read_text("utf-8"))
    approved = {
        f"vendor/{file['name']}": file["sha256"]
        for package in packages.values()
        for file in package["files"].values()
    }

    paths = [path for path in (FOLDER / "pages/vendor").iterdir() if path.suffix != ".ts"]
    vendored = {f"vendor/{path.name}": sha256(path.read_bytes()).hexdigest() for path in paths}
    assert vendored == approved
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
