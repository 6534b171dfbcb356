"""All differences between an AgentOS and its import, as its own client reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DIFFERENCES", "OF_VERSION_3"]

DIFFERENCES: Final[Mapping[str, str]] = {
    "listed.session_name: value": "A session whose first run failed has its message as its name",
    "session.session_name: value": "A session whose first run failed has its message as its name",
    "session.user_id: only here": "A session of nobody has an empty user id",
    "session.total_tokens: only here": "A session without tokens has none: 0",
    "session.metrics.details: not here": "Tokens are counted for the session, not by model",
    "session.agent_data.model.id: value": "The agent is that of this platform",
    "session.agent_data.model.name: only here": "The agent is that of this platform",
    "session.agent_data.model.provider: only here": "The agent is that of this platform",
    "session.team_data.model.id: value": "The team is that of this platform",
    "session.team_data.model.name: only here": "The team is that of this platform",
    "session.team_data.model.provider: only here": "The team is that of this platform",
    "session.chat_history[].content: only here": "A message without text has an empty one",
    "session.chat_history[].metrics: not here": "The run has metrics, its messages have none",
    "session.chat_history[].images: not here": "The files of a run stand at its input",
    "session.chat_history[].files: not here": "The files of a run stand at its input",
    "order: number": "Runs that are not over are imported when they are",
    "run PAUSED": "Runs that are not over are imported when they are",
    "run of a member": "Runs of members are in `member_responses`, and in the lists of the members",
    "run.messages: number": "System messages are left out: they are the operator's",
    "run.messages: only here": "A run without messages has an empty list",
    "run.messages[].content: only here": "A message without text has an empty one",
    "run.messages[].metrics: not here": "The run has metrics, its messages have none",
    "run.messages[].images: not here": "The files of a run stand at its input",
    "run.messages[].files: not here": "The files of a run stand at its input",
    "run.tools: only here": "A run without calls has an empty list",
    "run.input_media.images[].content: not here": "A list has no contents of files",
    "run.input_media.images[].size: only here": "A list has the sizes of files",
    "run.input_media.files[].content: not here": "A list has no contents of files",
    "run.input_media.files[].size: only here": "A list has the sizes of files",
}
"""By what differs: why."""

OF_VERSION_3: Final[Mapping[str, str]] = {
    "listed.user_id: only here": "A list has the user, for callers who see all users",
    "run.metadata: not here": "The metadata of a run stand in the run, not in a list",
    "run.tools[].parent_tool_call_id: not here": "A call is not part of another one",
    "session.chat_history: number": "The history has the question of a run that failed",
}
"""Those that the database and the client of agno 3 add."""
