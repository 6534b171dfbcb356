"""The console: the files of one page, a client of the public interface in plain ES modules.

`README.md` beside this module says how they fit together.
"""

from __future__ import annotations

from .files import read_console

__all__ = ["read_console"]
