"""Readers of documents, for `[readers]` of a configuration.

    [readers]
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document" = "legation_host.documents:read_docx"

Each document is read in a process of its own, by `document_text`.
"""  # noqa: E501, W505 (a name that is as long as that)

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from legation.runs.files import UnreadableFile

from .document_text import UNREADABLE

__all__ = ["SECONDS", "read_docx", "read_in_process"]

SECONDS: Final = 25.0
"""How long the process of one document may take."""

_PROGRAM: Final = Path(__file__).with_name("document_text.py")


def read_docx(content: bytes) -> str:
    """Return the text of a Word file.

    Raises:
        UnreadableFile: It is none, it is too large, or it takes too long.
    """
    return read_in_process("docx", content)


def read_in_process(kind: str, content: bytes, seconds: float = SECONDS) -> str:
    """Return the text of a document of `kind`, as a process of its own reads it.

    Raises:
        UnreadableFile: There is none, or not in time.
    """
    command = [sys.executable, "-P", str(_PROGRAM), kind]
    try:
        done = subprocess.run(  # noqa: S603 (the program is ours)
            command, input=content, capture_output=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnreadableFile("it took too long") from None
    if done.returncode == UNREADABLE:
        raise UnreadableFile(done.stderr.decode("utf-8", "replace"))
    if done.returncode != 0:
        raise UnreadableFile(f"its process ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace")
