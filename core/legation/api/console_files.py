"""The files of the console, as a host brings them."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from attrs import field

from ..values import define
from .documentation import Asset

__all__ = ["ConsoleFiles"]


@define(eq=False)
class ConsoleFiles:
    """The files by their names, as `main.js` and `parts/table.js`, and one digest of all.

    The digest stands in the path of each file.  A module names another by a relative path, so that
    all files of a page are of one release, and each may be kept for ever.
    """

    assets: Mapping[str, Asset] = field(factory=dict[str, Asset])
    _digest: str = ""

    def bring(self, files: Mapping[str, bytes | memoryview]) -> None:
        """Take the files."""
        self.assets = {name: Asset(name, files[name]) for name in sorted(files)}
        self._digest = ""

    @property
    def digest(self) -> str:
        """The digest of all files: made when a page first needs it."""
        if not self._digest:
            whole = sha256()
            for name, asset in self.assets.items():
                whole.update(b"%d %s\n" % (len(asset.body), name.encode()))
                whole.update(asset.body)
            self._digest = whole.hexdigest()[:16]
        return self._digest
