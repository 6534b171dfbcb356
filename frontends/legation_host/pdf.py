"""The reader of PDFs, for `[readers]` of a configuration; it is the extra `legation[pdf]`.

[readers]
"application/pdf" = "legation_host.pdf:read_pdf"
"""

from __future__ import annotations

from importlib.util import find_spec

from .documents import read_in_process

__all__ = ["read_pdf"]

if find_spec("pypdf") is None:
    raise ImportError("pypdf is missing: pip install 'legation[pdf]'")


def read_pdf(content: bytes) -> str:
    """Return the text of a PDF, which a scanned one has not.

    Raises:
        UnreadableFile: It is none, it is encrypted, it is too large, or it takes too long.
    """
    return read_in_process("pdf", content)
