"""Guards: what is looked at before and after a model and its tools, and what may come of it.

A guard is a value of the configuration.  Those that are shipped decide here, and act on nothing;
functions of the author's, and models that judge, are asked by the runs (`runs/guarding`).
"""

from __future__ import annotations

from .kinds import (
    GUARDS,
    MOMENT_OF,
    Guard,
    GuardLike,
    Judge,
    Length,
    MatchesSchema,
    PureGuard,
    Redact,
    ToolAccess,
)
from .verdicts import (
    ANSWERABLE,
    MAX_TEXT,
    MOMENTS,
    AskPerson,
    Guarded,
    Refuse,
    Verdict,
)

__all__ = [
    "ANSWERABLE",
    "GUARDS",
    "MAX_TEXT",
    "MOMENTS",
    "MOMENT_OF",
    "AskPerson",
    "Guard",
    "GuardLike",
    "Guarded",
    "Judge",
    "Length",
    "MatchesSchema",
    "PureGuard",
    "Redact",
    "Refuse",
    "ToolAccess",
    "Verdict",
]
