"""Ids that the examples of the document name, and that the demonstration gives to its past.

So whoever tries an operation from `/docs` of a demonstration finds what its example names.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AGENT",
    "APPROVAL",
    "CHANNEL",
    "DATABASE",
    "FAILED_RUN",
    "FAILED_SESSION",
    "MESSAGE",
    "PAUSED_RUN",
    "PAUSED_SESSION",
    "REPLY",
    "RUN",
    "SECOND_MESSAGE",
    "SECOND_RUN",
    "SESSION",
    "TEAM",
    "TOOL_CALL",
    "USER",
]

AGENT: Final = "desk"
TEAM: Final = "evening"
CHANNEL: Final = "help"
DATABASE: Final = "main"
USER: Final = "ada"

SESSION: Final = "welcome"
RUN: Final = "019b76da-0000-7000-8000-000000000001"
"""Completed, the first of `SESSION`."""
SECOND_RUN: Final = "019b76da-0000-7000-8000-000000000002"
"""Completed, the second of `SESSION`: a person approved its booking."""

PAUSED_SESSION: Final = "booking"
PAUSED_RUN: Final = "019b76da-0000-7000-8000-000000000003"
"""Waits for a person to approve its booking."""
TOOL_CALL: Final = "call-1"
"""The call that `PAUSED_RUN` waits with."""
APPROVAL: Final = f"{PAUSED_RUN}.3"

FAILED_SESSION: Final = "fault"
FAILED_RUN: Final = "019b76da-0000-7000-8000-000000000004"

MESSAGE: Final = "question-1"
"""Answered; the reply to it is a dead letter."""
SECOND_MESSAGE: Final = "question-2"
REPLY: Final = f"reply-{SECOND_MESSAGE}"
"""A dead letter, the reply to `SECOND_MESSAGE`."""
