"""What is recorded of a run, and runs that go on from it after a crash, through the platform."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field

from legation import Agent, Database, Platform, Team
from legation.effects import Asks, Now, RandomBytes, Sleep, Transact
from legation.models.conversation import Prompt, ToolCall
from legation.runs.fold import RunRecord
from legation.runs.ids import member_run_id
from legation.runs.retry import MANY
from legation.runs.run_record import fetch_record
from legation.runs.step_outcomes import UnknownOutcome
from legation.runs.turn_state import CallState, MemberState, Standing, TurnState, dump
from legation.store.failures import Unavailable
from legation.store.run_reads import EventsPage, FetchEvents
from legation.store.run_rows import ClaimedRun, StoredEvent
from legation.store.runs import AppendEvents
from legation.store.steps import FetchDefinitions, FetchMembersOver, FetchSteps, Step, StepKind
from legation.tools import tool
from legation_testing import Client, Says, ScriptedModel, call, play

PATH = "/agents/clerk/runs"
RUN = ClaimedRun("o", "s", "r", "agent", "clerk", "{}", 0, 2, events=4)
STEPS = Transact("main", FetchSteps("o", "r"))
PAUSED = {"message": "x", "turn": dump(TurnState())}
SECONDS = 45
"""The time in which a run that no program stands for is taken up again."""

# --- what is read --------------------------------------------------------------------------------


def test_of_a_run_that_was_just_continued_nothing_is_read() -> None:
    asked: dict[str, Any] = {**PAUSED, "answered": {"events": 4, "attempt": 1, "tools": []}}

    assert play(fetch_record("main", RUN, asked), []) is None


def test_of_a_run_that_was_continued_and_went_further_all_steps_are_read() -> None:
    asked: dict[str, Any] = {**PAUSED, "answered": {"events": 3, "attempt": 1, "tools": []}}
    model = Step("1", StepKind.MODEL, "m", 1, 2, '{"f":1,"usage":[0,0,0,0,0]}')

    assert play(fetch_record("main", RUN, asked), [(STEPS, (model,))]) == RunRecord(
        "r", 0, {"1": model}, attempt=1
    )


def test_definitions_and_members_are_read_once_for_all_that_names_them() -> None:
    def start(place: str, digest: str) -> Step:
        return Step(place, StepKind.START, "a", 1, 1, f'{{"f":1,"definition":"{digest}"}}')

    waiting = CallState(
        call=ToolCall("c", "delegate_task_to_member", "{}"),
        created_us=0,
        standing=Standing.DUE,
        member=MemberState(
            run_id="kept", kind="agent", component_id="a", name="A", created_us=0,
            state=TurnState(),
        ),
    )  # fmt: skip
    deep = evolve(waiting, member=evolve(_member(waiting), state=TurnState(calls=(waiting,))))
    asked = {
        "message": "x",
        "turn": dump(TurnState(calls=(deep,))),
        "answered": {"events": 3, "attempt": 1},
    }
    given = Step("1.1", StepKind.MEMBER, "a", 1)
    steps = (start("0", "d2"), given, start("1.1/0", "d1"), start("1.2/0", "d1"))
    runs = tuple(sorted((member_run_id("r", "1.1", 0), "kept")))
    script = [
        (STEPS, steps),
        (Transact("main", FetchDefinitions(("d1", "d2"))), {"d1": "{}"}),
        (Transact("main", FetchMembersOver("o", runs)), {"kept": ("COMPLETED", "{}")}),
    ]
    record = play(fetch_record("main", RUN, asked), script)

    assert record is not None
    assert (record.definitions, record.members) == (
        {"d1": "{}"},
        {"kept": ("COMPLETED", "{}")},
    )


def _member(one: CallState) -> MemberState:
    assert one.member is not None
    return one.member


@pytest.mark.parametrize(
    ("name", "of", "begins"),
    [
        ("RunPaused", "r", True),
        ("TeamRunPaused", "r", True),
        ("RunPaused", "its member", False),
        ("RunContinued", "r", False),
    ],
)
def test_a_run_that_a_release_before_continued_goes_on_unless_its_log_ends_with_the_pause(
    name: str, of: str, begins: bool
) -> None:
    page = EventsPage((StoredEvent(4, name, json.dumps({"run_id": of})),), "RUNNING", 4)
    script: list[tuple[Any, Any]] = [(Transact("main", FetchEvents("o", "r", 3, 1)), page)]
    if not begins:
        script.append((STEPS, ()))
    record = play(fetch_record("main", RUN, PAUSED), script)

    assert record == (None if begins else RunRecord("r", 0, {}))


def test_a_database_that_is_away_is_waited_for_until_the_process_ends() -> None:
    away: list[tuple[Any, Any]] = [
        (STEPS, Unavailable()), (Now, 1), (RandomBytes(2), b"\0\0"), (Sleep, None)
    ]  # fmt: skip
    assert play(fetch_record("main", RUN, {"message": "x"}), [*away * 40, (STEPS, ())])
    ended = [*away * MANY, (STEPS, Unavailable())]
    with pytest.raises(Unavailable):
        play(fetch_record("main", RUN, {"message": "x"}, lambda: True), ended)


def test_an_outcome_of_another_format_is_nothing_to_go_on_from() -> None:
    newer = Step("0", StepKind.START, "a", 1, 1, '{"f":3}')
    with pytest.raises(UnknownOutcome):
        play(fetch_record("main", RUN, {"message": "x"}), [(STEPS, (newer,))])


# --- what goes on --------------------------------------------------------------------------------


@tool(again="safe")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


SLOW = Says("Done.", after_seconds=5.0)


@define(eq=False)
class Shop:
    """A platform that is made anew with each restart, and may be another release then."""

    folder: Path
    rounds: list[Any] = field(factory=lambda: [call("look", what="x"), SLOW])
    instructions: str = "Old."
    model_id: str = "scripted"
    timeout_seconds: float = 600.0
    members: tuple[str, ...] = ("clerk", "other")
    tools: list[Any] = field(factory=lambda: [look])
    run: Any = None
    prompts: list[Prompt] = field(factory=list[Prompt])

    def answer(self, prompt: Prompt) -> Any:
        self.prompts.append(prompt)
        roles = [message.role for message in prompt.messages]
        asked = len(roles) - roles[::-1].index("user") - 1
        number = roles[asked:].count("assistant")
        return self.rounds[min(number, len(self.rounds) - 1)]

    def lead(self, prompt: Prompt) -> Any:
        results = [message.content for message in prompt.messages if message.role == "tool"]
        task = call("delegate_task_to_member", member_id="clerk", task="look")
        return results[-1] if results else task

    def make(self) -> Platform:
        model = ScriptedModel([self.answer] * 40, id=self.model_id)
        clerk = Agent(id="clerk", model=model, tools=self.tools, instructions=self.instructions)
        if self.run is not None:
            clerk = Agent(id="clerk", run=self.run)
        return Platform(
            databases=[Database("main", "sqlite:///main.db"), Database("two", "sqlite:///two.db")],
            agents=[
                clerk,
                Agent(id="other", model=model, tools=self.tools, database="two"),
            ],
            teams=[
                Team(id="desk", members=self.members, model=ScriptedModel([self.lead] * 40)),
            ],
            run_timeout_seconds=self.timeout_seconds,
        )

    def change(self, statement: str, database: str = "main") -> None:
        """Change what is stored, while no node is there."""
        with closing(sqlite3.connect(self.folder / f"{database}.db")) as connection, connection:
            connection.execute(statement)

    def contents(self, number: int = -1) -> list[str]:
        return [message.content for message in self.prompts[number].messages]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def opened(shop: Shop) -> Client:
    return Client(shop.make, folder=shop.folder)


def begin(client: Client, path: str = PATH, **form: Any) -> str:
    fields = {"message": "go", "session_id": "s", "stream": False, "background": True, **form}
    run_id: str = client.post(path, form=fields).json()["run_id"]
    return run_id


def restart(client: Client) -> None:
    client.restart()
    client.advance(SECONDS)


def crash(client: Client, after_seconds: float = 1) -> None:
    client.advance(after_seconds)
    client.crash()


def fetch(client: Client, run_id: str, path: str = PATH) -> dict[str, Any]:
    run: dict[str, Any] = client.get(f"{path}/{run_id}").json()
    return run


def log_of(client: Client, run_id: str, path: str = PATH) -> list[dict[str, Any]]:
    events = client.get(f"{path}/{run_id}/events").events()
    return [json.loads(event.data) for event in events]


def test_a_run_goes_on_with_the_instructions_that_it_began_with(shop: Shop) -> None:
    with opened(shop) as client:
        run_id = begin(client)
        crash(client)
        shop.instructions, shop.model_id = "New.", "another"
        restart(client)

        assert fetch(client, run_id)["status"] == "COMPLETED"
        assert shop.contents() == ["Old.", "go", "", "saw x"]
        models = [event["model"] for event in log_of(client, run_id) if "message_id" in event]
        assert models == ["scripted", "scripted", "another"]


def test_a_run_whose_definition_is_not_there_goes_on_with_the_instructions_of_now(
    shop: Shop,
) -> None:
    with opened(shop) as client:
        run_id = begin(client)
        crash(client)
        shop.change("delete from definitions")
        shop.instructions = "New."
        restart(client)

        assert fetch(client, run_id)["status"] == "COMPLETED"
        assert shop.contents() == ["New.", "go", "", "saw x"]


def test_a_call_in_doubt_of_a_tool_that_was_taken_away_is_asked_about(shop: Shop) -> None:
    with opened(shop) as client:
        client.fail_at(AppendEvents, None, after=True)
        run_id = begin(client)
        crash(client)
        shop.tools = []
        restart(client)

        paused = fetch(client, run_id)
        assert paused["status"] == "PAUSED"
        assert client.go_on(paused, confirmed=True)["status"] == "COMPLETED"
        assert shop.contents()[-1] == "There are no tools"


def test_history_is_that_of_the_start_without_what_was_deleted(shop: Shop) -> None:
    shop.rounds = ["One."]
    with opened(shop) as client:
        for number in (1, 2):
            client.run("clerk", f"question {number}", session_id="s")
        shop.rounds = [call("look", what="x"), SLOW]
        run_id = begin(client)
        crash(client)
        shop.change("delete from runs where run_no = 1")
        restart(client)

        assert fetch(client, run_id)["status"] == "COMPLETED"
        assert shop.contents(-2)[1:5] == ["question 1", "One.", "question 2", "One."]
        assert shop.contents() == ["Old.", "question 2", "One.", "go", "", "saw x"]


def test_a_member_that_left_the_team_has_failed(shop: Shop) -> None:
    with opened(shop) as client:
        run_id = begin(client, "/teams/desk/runs")
        crash(client)
        shop.members = ("other",)
        restart(client)
        run = fetch(client, run_id, "/teams/desk/runs")

        assert (run["status"], run["content"]) == (
            "COMPLETED",
            "The run failed: the team no longer has this member",
        )
        assert [one["status"] for one in run["member_responses"]] == ["ERROR"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_team_goes_on_with_what_its_member_did(shop: Shop, times: int) -> None:
    shop.rounds = [call("look", what="x"), call("look", what="y"), SLOW]
    with opened(shop) as client:
        run_id = begin(client, "/teams/desk/runs")
        for _ in range(times):
            crash(client)
            client.restart()
            client.advance(SECONDS - 15)
        client.advance(SECONDS)
        run = fetch(client, run_id, "/teams/desk/runs")

        assert (run["status"], run["content"]) == ("COMPLETED", "Done.")
        (member,) = run["member_responses"]
        assert [one["result"] for one in member["tools"]] == ["saw x", "saw y"]
        assert shop.contents() == ["Old.", "look", "", "saw x", "", "saw y"]


def test_an_agent_that_became_a_function_asks_a_person_before_it_is_called(shop: Shop) -> None:
    def answer(message: str) -> str:
        return f"now: {message}"

    with opened(shop) as client:
        run_id = begin(client)
        crash(client)
        shop.run = answer
        restart(client)
        run = fetch(client, run_id)
        assert run["status"] == "PAUSED"
        done = client.go_on(run, confirmed=True)

        assert (done["status"], done["content"]) == ("COMPLETED", "now: go")


def test_a_function_that_became_an_agent_begins_its_turn_anew(shop: Shop) -> None:
    def answer(message: str) -> str:
        raise AssertionError(message)

    with opened(shop) as client:
        shop.run = answer
        client.restart()
        client.fail_at(AppendEvents, None, after=True)
        run_id = begin(client)
        client.advance(SECONDS)
        assert fetch(client, run_id)["status"] == "PAUSED"
        shop.run, shop.rounds = None, ["As an agent."]
        client.restart()
        done = client.go_on(fetch(client, run_id), confirmed=True)

        assert (done["status"], done["content"]) == ("COMPLETED", "As an agent.")
        assert shop.contents() == ["go"]


def test_an_unknown_format_ends_the_run_once_and_keeps_no_other(shop: Shop) -> None:
    with opened(shop) as client:
        run_id = begin(client)
        crash(client)
        shop.change("""update steps set outcome = '{"f":3}' where kind = 'start'""")
        restart(client)
        (fields,) = [dict(log.fields) for log in client.logs if log.event == "run_failed"]

        assert fetch(client, run_id)["status"] == "ERROR"
        assert log_of(client, run_id)[-1]["error_type"] == "run_failed"
        assert str(fields["error"]).startswith("UnknownOutcome")
        assert len(client.take_errors()) == 1
        shop.rounds = ["Next."]
        assert client.run("clerk", "next", session_id="s")["content"] == "Next."


def test_what_a_release_before_continued_is_not_done_twice(shop: Shop) -> None:
    booked: list[str] = []

    @tool(requires_confirmation=True)
    def book(what: str) -> str:
        """Book."""
        booked.append(what)
        return f"booked {what}"

    shop.tools, shop.rounds = [book], [call("book", what="x"), SLOW]
    with opened(shop) as client:
        run_id = begin(client)
        client.advance(1)
        run = fetch(client, run_id)
        tools = [{**one["tool_execution"], "confirmed": True} for one in run["requirements"]]
        form = {"tools": json.dumps(tools), "stream": False, "background": True}
        client.begin("POST", f"{PATH}/{run_id}/continue", form=form)
        crash(client)
        shop.change("update runs set input = json_remove(input, '$.answered')")
        restart(client)

        assert fetch(client, run_id)["status"] == "COMPLETED"
        assert booked == ["x"]


def test_a_run_that_comes_no_further_is_given_up_with_its_place(shop: Shop) -> None:
    with opened(shop) as client:
        client.fail_at(AppendEvents, None, after=True, times=3)
        run_id = begin(client)
        client.advance(4 * SECONDS)
        run = fetch(client, run_id)

        assert run["status"] == "ERROR"
        assert "went away at step 1.1 (look), one after the other" in run["content"]
        assert log_of(client, run_id)[-1]["error_type"] == "gave_up"


def test_a_run_that_comes_further_each_time_is_not_given_up(shop: Shop) -> None:
    def comes_further(effect: Asks[Any]) -> bool:
        unit = effect.unit if isinstance(effect, Transact) else None
        return isinstance(unit, AppendEvents) and unit.records.progress

    shop.rounds = [*(call("look", what=str(number)) for number in range(3)), "Done."]
    with opened(shop) as client:
        client.fail_at(comes_further, None, after=True, times=5)
        run_id = begin(client)
        client.advance(6 * SECONDS)

        assert fetch(client, run_id)["status"] == "COMPLETED"
        assert len([log for log in client.logs if log.event == "run_resumed"]) == 5
    assert shop.contents() == ["Old.", "go", "", "saw 0", "", "saw 1", "", "saw 2"]


def test_a_step_that_is_too_large_ends_the_run_once(shop: Shop) -> None:
    shop.rounds = [call("look", what="x" * (1 << 20)), "never"]
    with opened(shop) as client:
        run_id = begin(client)
        client.advance(SECONDS)
        run = fetch(client, run_id)

        assert run["status"] == "ERROR"
        assert run["content"].startswith("The run was ended: step 1 (scripted) has 10")
        assert log_of(client, run_id)[-1]["error_type"] == "too_large"
        assert len(shop.prompts) == 1


def test_a_member_whose_step_is_too_large_fails_alone(shop: Shop) -> None:
    shop.rounds = [call("look", what="x" * (1 << 20)), "never"]
    with opened(shop) as client:
        run_id = begin(client, "/teams/desk/runs")
        client.advance(1)
        run = fetch(client, run_id, "/teams/desk/runs")

        assert run["status"] == "COMPLETED"
        assert run["content"].startswith("The run was ended: step 1.1/1 (scripted) has 10")


def test_the_time_that_a_run_may_take_is_that_of_all_its_attempts(shop: Shop) -> None:
    think = Says(calls=[call("look", what="x")], after_seconds=3.0)
    shop.rounds, shop.timeout_seconds = [think, think, think, "Done."], 8.0
    with opened(shop) as client:
        run_id = begin(client)
        crash(client, 7)
        client.advance(3_600)
        restart(client)
        run = fetch(client, run_id)

        assert (run["status"], run["content"]) == ("ERROR", "The run took longer than 8 seconds")
        assert log_of(client, run_id)[-1]["error_type"] == "timeout"


def test_runs_of_two_callers_in_two_databases_go_on_each_with_its_own(shop: Shop) -> None:
    with opened(shop) as client:
        made = [
            (
                agent,
                user,
                begin(client, f"/agents/{agent}/runs", message=f"{agent} {user}", user_id=user),
            )
            for agent in ("clerk", "other")
            for user in ("ada", "eve")
        ]
        crash(client)
        restart(client)

        for agent, user, run_id in made:
            run = client.get(f"/agents/{agent}/runs/{run_id}?user_id={user}").json()
            assert (run["status"], run["user_id"]) == ("COMPLETED", user)
        asked = [
            [message.content for message in prompt.messages if message.role == "user"]
            for prompt in shop.prompts
        ]
        assert sorted(asked) == sorted([[f"{agent} {user}"] for agent, user, _ in made] * 3)
    for database in ("main", "two"):
        with closing(sqlite3.connect(shop.folder / f"{database}.db")) as connection:
            rows = connection.execute("select run_id, place from steps").fetchall()
        agent = "clerk" if database == "main" else "other"
        assert {run_id for run_id, _ in rows} == {one[2] for one in made if one[0] == agent}


def test_what_paused_before_a_crash_is_continued_after_it(shop: Shop) -> None:
    @tool(requires_confirmation=True)
    def book(what: str) -> str:
        """Book."""
        return f"booked {what}"

    shop.tools, shop.rounds = [book], [call("book", what="x"), "Done."]
    with opened(shop) as client:
        run_id = begin(client)
        crash(client)
        restart(client)
        done = client.go_on(fetch(client, run_id), confirmed=True)

        assert (done["status"], done["tools"][0]["result"]) == ("COMPLETED", "booked x")
