"""The rounds of a node: the same work again and again, as long as the process lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ..effects import AwaitNudge, Log, Program, Sleep
from ..incidents import where
from ..store.failures import StoreFailure

__all__ = ["Pause", "repeat"]

Pause: TypeAlias = AwaitNudge | Sleep


def repeat(
    database: str,
    one_round: Callable[[], Program[None]],
    log: Callable[[str, tuple[tuple[str, Any], ...]], Log],
    pause: Pause,
    after_trouble: Pause,
) -> Program[None]:
    """Go round for ever, whatever goes wrong; the same trouble is logged once.

    Args:
        log: Makes the line for trouble, of its level and fields.
        pause: Between two rounds; `after_trouble` in its place where one failed.
    """
    logged = ""
    while True:
        trouble: Exception | None = None
        try:
            yield from one_round()
        except Exception as error:  # noqa: BLE001 (a bug in one round must not end all of them)
            trouble = error
        found = "" if trouble is None else where(trouble)
        if found not in ("", logged):
            severity = "warning" if isinstance(trouble, StoreFailure) else "error"
            yield from log(severity, (("database", database), ("error", found)))
        logged = found
        yield from after_trouble if found else pause
