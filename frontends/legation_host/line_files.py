"""The appender of lines to files: heads of the audit trail, for whoever collects them."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

__all__ = ["append_line"]

# A FIFO that nobody reads from would be waited for; a link is followed, as those who rotate files
# make some.
_FLAGS: Final = (
    os.O_RDWR
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOCTTY", 0)
)
_PRIVATE: Final = 0o600


def append_line(path: str, line: bytes) -> None:
    """Append `line`, with the line feed at its end, to the file at `path`; it is on the disk then.

    A file that is not there is made, for its owner alone.  A line that was broken off, as the disk
    was full, is ended first, so that this one stands alone.

    Raises:
        OSError: It cannot be opened or written to, or is no file.
    """
    descriptor = os.open(path, _FLAGS, _PRIVATE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        if status.st_size and not _ends_a_line(descriptor):
            line = b"\n" + line
        written = os.write(descriptor, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _ends_a_line(descriptor: int) -> bool:
    os.lseek(descriptor, -1, os.SEEK_END)
    return os.read(descriptor, 1) == b"\n"
