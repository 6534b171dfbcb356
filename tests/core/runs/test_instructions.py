from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, cast

import pytest
from attrs import define, field

from legation import Agent, Platform, Run, Team, tool
from legation.effects import CallFunction, Log, Program, TimedOut
from legation.models.conversation import Listener, Prompt, Reply
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.instructions import MAX_INSTRUCTIONS, InstructionsFailed, instruct
from legation.store.failures import Unavailable, WrongSchema
from legation.store.run_rows import ClaimedRun
from legation.store.session_state import FetchState
from legation_testing import Client, ScriptedModel, call, play

from .turn_kit import Pupil, World, look, play_out


@define(eq=False)
class Brief:
    """Instructions that are others each time they are asked for."""

    asked: int = 0
    told: list[str] = field(factory=list[str])

    def __call__(self, run: Run) -> str:
        self.asked += 1
        self.told.append(run.agent)
        return f"Be brief to {run.user_id}, {run.dependencies.get('mood', 'calm')}. {self.asked}"


def system_of(model: ScriptedModel) -> list[str]:
    """Return the instructions that the model read, once for each prompt."""
    return [m.content for prompt in model.prompts for m in prompt.messages if m.role == "system"]


def test_instructions_are_asked_for_once_in_a_run() -> None:
    model, brief = ScriptedModel([call("look"), "done", "again"]), Brief()

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(id="a", model=model, tools=[look], instructions=brief)
    with Client(Platform(agents=[agent])) as client:
        client.run("a", "hello", user_id="ada", session_id="s", dependencies={"mood": "glad"})
        client.run("a", "hello", user_id="ada", session_id="s")

    assert system_of(model) == [
        "Be brief to ada, glad. 1",
        "Be brief to ada, glad. 1",
        "Be brief to ada, calm. 2",
    ]


async def later(run: Run[Any, Any]) -> str:
    return f"Later, {run.user_id}."


def of_nothing() -> str:
    return "Be brief."


KINDS: Final[list[Any]] = [
    (later, ["Later, ada."]),
    (of_nothing, ["Be brief."]),
    (lambda run: f"For {cast(Run, run).session_id}\0.", ["For s\ufffd."]),
    (lambda run: None, []),
]


@pytest.mark.parametrize(
    ("function", "text"),
    KINDS,
)
def test_function_may_be_of_any_kind(function: Any, text: list[str]) -> None:
    model = ScriptedModel(["done"])
    with Client(Platform(agents=[Agent(id="a", model=model, instructions=function)])) as client:
        assert client.run("a", "m", user_id="ada", session_id="s")["status"] == "COMPLETED"
        shown = client.get("/agents/a").json()

    assert system_of(model) == text
    assert "system_message" not in shown


async def in_pieces() -> Any:
    async def pieces() -> AsyncIterator[str]:
        yield "Be brief."

    return pieces()


def fails() -> str:
    raise KeyError("a secret")


def looks_like_ours() -> str:
    raise Unavailable("a secret")


def of_misfits(run: Run[dict[str, int], Any]) -> str:
    raise AssertionError(run)


BROKEN: Final[list[Any]] = [
    (lambda run: 3, "it returned no text but a value of the type int"),
    (lambda run: b"x", "it returned no text but a value of the type bytes"),
    (lambda run: "x" * (MAX_INSTRUCTIONS + 1), "it returned more than 131072 characters"),
    (in_pieces, "it returned no text but a value of the type AsyncIterator"),
    (fails, None),
    (looks_like_ours, None),
    (of_misfits, "dependencies.mood must be an integer"),
]


@pytest.mark.parametrize(
    ("function", "reason"),
    BROKEN,
)
def test_run_without_its_instructions_ends(function: Any, reason: str | None) -> None:
    agents = [
        Agent(id="a", model=ScriptedModel(["done"]), instructions=function),
        Agent(id="b", model=ScriptedModel(["done"])),
    ]
    leader = ScriptedModel([call("delegate_task_to_member", member_id="a", task="t"), "done"])
    made = Platform(agents=agents, teams=[Team(id="t", model=leader, members=["a"])])
    with Client(made, raise_errors=False) as client:
        run = client.run("a", "m", dependencies={"mood": "glad"})
        logged = [record for record in client.logs if record.level == "error"]
        team = client.run_team("t", "m", dependencies={"mood": "glad"})

    assert run["status"] == "ERROR"
    assert "incident" in run["content"]
    assert "a secret" not in str(dict(run))
    said = [dict(record.fields)["error"] for record in logged]
    assert logged[-1].event == "run_failed"
    assert said[0] == reason if reason else len(said) == 1
    assert team["status"] == "COMPLETED"
    assert team["tools"][0]["tool_call_error"]
    assert team["member_responses"][0]["status"] == "ERROR"


def test_leader_and_members_each_have_their_own() -> None:
    brief = Brief()
    member = ScriptedModel(["member is done"])
    leader = ScriptedModel([call("delegate_task_to_member", member_id="a", task="t"), "done"])
    agents = [Agent(id="a", model=member, instructions=brief)]
    team = Team(id="t", model=leader, members=["a"], instructions=brief)
    with Client(Platform(agents=agents, teams=[team])) as client:
        client.run_team("t", "m", user_id="ada")

    assert brief.told == ["t", "a"]
    assert system_of(leader) == ["Be brief to ada, calm. 1"] * 2
    assert system_of(member) == ["Be brief to ada, calm. 2"]


def test_database_that_fails_under_the_instructions_of_a_member_ends_the_whole_run() -> None:
    brief = Brief()
    leader = ScriptedModel([call("delegate_task_to_member", member_id="a", task="t"), "done"])
    agents = [Agent(id="a", model=ScriptedModel([]), instructions=brief)]
    team = Team(id="t", model=leader, members=["a"])
    with Client(Platform(agents=agents, teams=[team])) as client:
        client.fail_at(_reads_state, WrongSchema("a secret"))
        run = client.run_team("t", "m", user_id="ada")

    assert (run.status, brief.told) == ("ERROR", [])


def _reads_state(effect: Any) -> bool:
    return isinstance(getattr(effect, "unit", None), FetchState)


@define(eq=False)
class Reader(Pupil):
    """A pupil that keeps the instructions that it reads."""

    read: set[str] = field(factory=set[str])

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer as a pupil does."""
        self.read |= {m.content for m in prompt.messages if m.role == "system"}
        return (yield from super().respond(prompt, listener))


def test_recorded_text_counts_behind_every_batch() -> None:
    brief = Brief()

    def play(world: World) -> dict[str, set[str]]:
        """Take the turn of the team, and return what each model read."""
        readers = [Reader("a", ((("look", "x"),),)), Reader("team", (((">a", "t"),),))]
        member, leader = readers
        agent = Agent(id="a", model=member, tools=[look], instructions=brief)
        team = Team(id="team", model=leader, members=["a"], instructions=brief)
        play_out(Platform(agents=[agent], teams=[team]), "team", "team", world)
        return {reader.id: reader.read for reader in readers}

    whole = World()
    first = play(whole)
    assert {name: len(texts) for name, texts in first.items()} == {"a": 1, "team": 1}
    assert len(whole.batches) >= 6
    stored: list[int] = []
    for batch in whole.batches:
        before = brief.asked
        again = play(whole.after(batch))
        begun = {"team": "0" in batch.steps, "a": "1.1/0" in batch.steps}
        for name, texts in again.items():
            if begun[name]:
                assert texts <= first[name], name
        assert brief.asked - before == list(begun.values()).count(False)
        stored.append(sum(begun.values()))
    assert sorted(set(stored)) == [1, 2]


def test_time_of_the_function_is_limited() -> None:
    platform = Platform(agents=[Agent(id="a", instructions=of_nothing, tool_timeout_seconds=3)])
    component = platform.context.registry.agents["a"]
    assert component.instruct is not None
    run = ClaimedRun("o", "s", "r", "agent", "a", "{}", 0, 1)
    writer = EventWriter(Journal("main", run, "n", 0), EventOrigin(run, "A"), streamed=False)
    line = (("run_id", "r"), ("component", "a"), ("error", "it took longer than 3 seconds"))

    with pytest.raises(InstructionsFailed):
        play(
            instruct(component.instruct, component, writer),
            [
                (CallFunction(of_nothing, {}, 3.0), TimedOut()),
                (Log("error", "instructions_failed", line), None),
            ],
        )
