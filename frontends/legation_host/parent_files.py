"""The files of a platform in a process that serves nothing itself, and forks those that do.

A worker that is forked late has what its parent has.  So the parent looks at keys, revocations and
secrets as its workers do: else a worker whose files cannot be read would begin with those of the
first start, and let in again what was revoked since.
"""

from __future__ import annotations

from legation import Platform

from .logs import quiet
from .secret_files import SecretFiles
from .trust_files import TrustFiles

__all__ = ["ParentFiles"]


class ParentFiles:
    """The files of `platform`; the workers write to the log what becomes of them."""

    def __init__(self, platform: Platform) -> None:
        """Watch what the configuration names."""
        self.platform = platform
        self._looks = (TrustFiles(platform, quiet).look, SecretFiles(platform, quiet).look)

    def look(self) -> None:
        """Look at each file once, and take what has changed."""
        for look in self._looks:
            look()
