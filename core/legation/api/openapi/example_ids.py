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
    "RESOLVED_APPROVAL",
    "RUN",
    "SECOND_MESSAGE",
    "SECOND_RUN",
    "SESSION",
    "SPARE_RUN",
    "SPARE_SESSION",
    "SPARE_USER",
    "TEAM",
    "TEAM_PAUSED_RUN",
    "TEAM_PAUSED_SESSION",
    "TEAM_RUN",
    "TEAM_SESSION",
    "TEAM_TOOL_CALL",
    "TOOL_CALL",
    "USER",
    "WAITING_APPROVAL",
    "WAITING_RUN",
    "WAITING_SESSION",
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
RESOLVED_APPROVAL: Final = f"{SECOND_RUN}.6"
SPARE_SESSION: Final = "spare"
"""May be deleted; it need not exist, as a session that is not there is gone already."""
SPARE_RUN: Final = "019b76da-0000-7000-8000-000000000008"
"""As `SPARE_SESSION`."""
SPARE_USER: Final = "grace"
"""May be erased, as nothing is stored of her."""

PAUSED_SESSION: Final = "booking"
PAUSED_RUN: Final = "019b76da-0000-7000-8000-000000000003"
"""Waits for a person to approve its booking."""
TOOL_CALL: Final = "call-1"
"""The call that `PAUSED_RUN` waits with."""
APPROVAL: Final = f"{PAUSED_RUN}.6"
"""Its pause."""

WAITING_SESSION: Final = "booking-2"
WAITING_RUN: Final = "019b76da-0000-7000-8000-000000000005"
"""Waits as well, for the answer to `WAITING_APPROVAL`."""
WAITING_APPROVAL: Final = f"{WAITING_RUN}.6"

TEAM_SESSION: Final = "evening"
TEAM_RUN: Final = "019b76da-0000-7000-8000-000000000006"
"""Completed, a run of the team."""
TEAM_PAUSED_SESSION: Final = "evening-2"
TEAM_PAUSED_RUN: Final = "019b76da-0000-7000-8000-000000000007"
"""Waits for a person to approve the booking of a member."""
TEAM_TOOL_CALL: Final = "call-1"
"""The call that `TEAM_PAUSED_RUN` waits with."""

FAILED_SESSION: Final = "fault"
FAILED_RUN: Final = "019b76da-0000-7000-8000-000000000004"

MESSAGE: Final = "question-1"
"""Answered; the reply to it is a dead letter."""
SECOND_MESSAGE: Final = "question-2"
REPLY: Final = f"reply-{SECOND_MESSAGE}"
"""A dead letter, the reply to `SECOND_MESSAGE`."""
