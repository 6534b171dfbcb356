"""Add the files of the documentation pages to what is built.

Swagger UI and ReDoc come from the distribution `drf-spectacular-sidecar`, a requirement of the
build alone.  Its files are found by their records: the package is not imported, and neither is
the framework that it is made for.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["CustomBuildHook"]

SOURCE: Final = "drf-spectacular-sidecar"
TARGET: Final = "frontends/legation_host/pages"

_ROOT: Final = "drf_spectacular_sidecar/static/drf_spectacular_sidecar"
# What is copied, and what it is called here.
FILES: Final[Mapping[str, str]] = {
    f"{_ROOT}/swagger-ui-dist/swagger-ui-bundle.js": "swagger-ui-bundle.js",
    f"{_ROOT}/swagger-ui-dist/swagger-ui.css": "swagger-ui.css",
    f"{_ROOT}/swagger-ui-dist/oauth2-redirect.js": "oauth2-redirect.js",
    f"{_ROOT}/swagger-ui-dist/LICENSE": "swagger-ui.LICENSE.txt",
    f"{_ROOT}/redoc/bundles/redoc.standalone.js": "redoc.standalone.js",
    f"{_ROOT}/redoc/bundles/redoc.standalone.js.LICENSE.txt": "redoc.standalone.js.LICENSE.txt",
    f"{_ROOT}/redoc/LICENSE": "redoc.LICENSE.txt",
}
# ReDoc shows its maker's logo from the maker's server; the pages ask no other server for anything,
# so that a picture of one transparent point takes its place.
_LOGO: Final = b"https://cdn.redoc.ly/redoc/logo-mini.svg"
_NO_LOGO: Final = b"data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the files into the source tree, ignored by git, from where a wheel takes them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Copy the files before a wheel, or an editable one, is made."""
        target = Path(self.root, TARGET)
        target.mkdir(exist_ok=True)
        for name, content in assets().items():
            (target / name).write_bytes(content)
        build_data["artifacts"].append(f"/{TARGET}/*")


def assets() -> dict[str, bytes]:
    """Return the files by the names they have here.

    Raises:
        FileNotFoundError: The distribution no longer has one of them.
    """
    recorded = {str(path): path for path in distribution(SOURCE).files or ()}
    if missing := sorted(FILES.keys() - recorded.keys()):
        raise FileNotFoundError(f"{SOURCE} does not have {', '.join(missing)}")
    return {
        name: Path(recorded[path].locate()).read_bytes().replace(_LOGO, _NO_LOGO)
        for path, name in FILES.items()
    }
