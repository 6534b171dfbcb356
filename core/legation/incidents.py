"""The place of an unexpected error: all that the log may know of it."""

from __future__ import annotations

__all__ = ["where"]


def where(error: BaseException | None) -> str:
    """Return the kind of `error` and the line it came from, never its text.

    The text of an exception may quote what a user sent or what a database said.
    """
    if error is None:
        return "none"
    place, trace = "", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place, trace = f" in {code.co_qualname}:{trace.tb_lineno}", trace.tb_next
    return type(error).__name__ + place
