"""Add the files of the documentation pages to what is built.

Swagger UI and ReDoc come from the distribution `drf-spectacular-sidecar`, a requirement of the
build alone.  Its files are found by their records: the package is not imported, and neither is
the framework that it is made for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["CustomBuildHook"]

SOURCE: Final = "drf-spectacular-sidecar"
TARGET: Final = "frontends/legation_host/pages"

_ROOT: Final = "drf_spectacular_sidecar/static/drf_spectacular_sidecar"
# What is copied: what it is called here, and the SHA-256 of what was approved.  These files
# are served as scripts of the platform's own origin, where people paste tokens.
FILES: Final[Mapping[str, tuple[str, str]]] = {
    f"{_ROOT}/swagger-ui-dist/swagger-ui-bundle.js": (
        "swagger-ui-bundle.js",
        "050bc415ee7048dcd881682678f720264e7da5e373f7461d7c58c755305255f7",
    ),
    f"{_ROOT}/swagger-ui-dist/swagger-ui.css": (
        "swagger-ui.css",
        "1ac324f7dcd27e4b9386b4bd6421271ec147e922a22c05ba24b11515e9aa6321",
    ),
    f"{_ROOT}/swagger-ui-dist/oauth2-redirect.js": (
        "oauth2-redirect.js",
        "a5c8a34e09e49737382cc5019446eec7c3db3461963fc5bfe448361d3c5549e9",
    ),
    f"{_ROOT}/swagger-ui-dist/LICENSE": (
        "swagger-ui.LICENSE.txt",
        "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    ),
    f"{_ROOT}/redoc/bundles/redoc.standalone.js": (
        "redoc.standalone.js",
        "dcaf76612bc4a3fbcc923a8966dee2f6146a5f32e5ce1b6f02dd60cbbf89500b",
    ),
    f"{_ROOT}/redoc/bundles/redoc.standalone.js.LICENSE.txt": (
        "redoc.standalone.js.LICENSE.txt",
        "eed602ec32e00b2b9df1984fbcc26a687b1b3193ec01961389c4b8439e6edf73",
    ),
    f"{_ROOT}/redoc/LICENSE": (
        "redoc.LICENSE.txt",
        "d3026d549cf68ab7355bcfa85877bf8f845b3334a7efbfdc63936432fb34ff0e",
    ),
}
# ReDoc shows its maker's logo from the maker's server; the pages ask no other server for anything,
# so that a picture of one transparent point takes its place.
REPLACED: Final[Mapping[str, tuple[bytes, bytes]]] = {
    "redoc.standalone.js": (
        b"https://cdn.redoc.ly/redoc/logo-mini.svg",
        b"data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==",
    ),
}


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the files into the source tree, ignored by git, from where a wheel takes them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Copy the files before a wheel, or an editable one, is made; what is there is left."""
        target = Path(self.root, TARGET)
        target.mkdir(exist_ok=True)
        for name, content in assets().items():
            write(target / name, content)
        build_data["artifacts"].append(f"/{TARGET}/*")


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path` at once, unless it is there; other installs may do so meanwhile."""
    if path.is_file() and path.read_bytes() == content:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.replace(path)


def assets() -> dict[str, bytes]:
    """Return the files by the names they have here.

    Raises:
        FileNotFoundError: The distribution no longer has one of them.
        ValueError: One of them is not the one that was approved.
    """
    recorded = {str(path): path for path in distribution(SOURCE).files or ()}
    if missing := sorted(FILES.keys() - recorded.keys()):
        raise FileNotFoundError(f"{SOURCE} does not have {', '.join(missing)}")
    return {
        name: replace(name, check_digest(name, Path(recorded[path].locate()).read_bytes(), digest))
        for path, (name, digest) in FILES.items()
    }


def check_digest(name: str, content: bytes, digest: str) -> bytes:
    """Return `content`, whose SHA-256 is `digest`.

    Raises:
        ValueError: It is another.
    """
    found = sha256(content).hexdigest()
    if found != digest:
        raise ValueError(
            f"{name} of {SOURCE} has the SHA-256 {found}, and hatch_build.py approves {digest}:"
            " read what is new in it, then write its digest there"
        )
    return content


def replace(name: str, content: bytes) -> bytes:
    """Return `content` as it is served: without what would ask another server.

    Raises:
        ValueError: There is nothing to replace.
    """
    if name not in REPLACED:
        return content
    old, new = REPLACED[name]
    if old not in content:
        raise ValueError(f"{name} of {SOURCE} does not have {old.decode()}, which was replaced")
    return content.replace(old, new)
