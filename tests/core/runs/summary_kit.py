"""A model that summarizes, and platforms whose sessions it summarizes."""

from __future__ import annotations

from typing import Any, Final, cast

from legation import Agent, Database, Platform, PlatformLimits, Summaries
from legation.models.conversation import Prompt, Reply, Usage
from legation_testing import Client, RunFields, ScriptedModel

__all__ = ["RULE", "Scribe", "ask", "platform", "questions", "two_databases"]

RULE: Final = Summaries(after_runs=4)


class Scribe(ScriptedModel):
    """A model that says `made` when it is to summarize, and else how it was asked.

    `asked` are the prompts of the summaries, `told` those of the runs.
    """

    def __init__(self, made: Any = "S", **more: Any) -> None:
        super().__init__([self._say] * 2_000, **more)
        self.made = made
        self.asked: list[Prompt] = []
        self.told: list[Prompt] = []

    def _say(self, prompt: Prompt) -> Any:
        if not prompt.messages[0].content.startswith("You summarize"):
            self.told.append(prompt)
            return Reply(f"a-{prompt.messages[-1].content}", Usage(10, 1))
        self.asked.append(prompt)
        made = self.made
        return Reply(f"{made}{len(self.asked)}", Usage(7, 2)) if made == "S" else made


def platform(model: ScriptedModel, limits: PlatformLimits | None = None, **more: Any) -> Platform:
    agent: dict[str, Any] = {"history_runs": 2, "summaries": RULE, **more}
    return Platform(
        databases=[Database("main", "sqlite://")],
        agents=[Agent(id="a", model=model, **agent)],
        limits=limits or PlatformLimits(),
    )


def two_databases(model: ScriptedModel) -> Platform:
    agents = [
        Agent(id=name, model=model, history_runs=2, summaries=RULE, database=database)
        for name, database in (("a", "main"), ("b", "other"))
    ]
    databases = [Database("main", "sqlite://"), Database("other", "sqlite://")]
    return Platform(databases=databases, agents=agents)


def ask(client: Client, first: int, last: int, agent: str = "a", **more: Any) -> Any:
    """Run the questions `q1`, `q2`, … of a session, and return the last answer."""
    answer = None
    for number in range(first, last + 1):
        fields: dict[str, Any] = {"session_id": "s", **more}
        answer = client.run(agent, f"q{number}", **cast(RunFields, fields))
    return answer


def questions(prompt: Prompt) -> list[str]:
    """Return the questions that a prompt has, behind the summary if it has one."""
    parts = [m for m in prompt.messages if m.role in ("system", "user")]
    return [m.content.rpartition("\n")[2] for m in parts]
