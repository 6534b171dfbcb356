"""Runs of agents at work, through the whole platform: what the caller is told of them."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest
from attrs import frozen

from legation import Platform
from legation.config import Agent, Team
from legation.effects import Effect, Interrupted, Interruptible, Nudge, Publish, ThisNode, Transact
from legation.models.conversation import Image, ModelFailed, Prompt, Reply, Usage
from legation.runs.executor import ExecuteRun
from legation.runs.retry import MOST_TRIES, OUTAGE_US
from legation.store.failures import DatabaseFull, StatementFailed, Unavailable
from legation.store.member_runs import CheckLease
from legation.store.nodes import Beat
from legation.store.run_keeping import ReleaseRun
from legation.store.run_reads import RecentRuns
from legation.store.run_rows import ClaimedRun, RunLease
from legation.store.runs import AppendEvents, FinishRun
from legation.store.steps import StepKind
from legation.tools import ToolError, tool
from legation.tools.answer_class import as_answer_class, read_answer
from legation_testing import Client, Says, ScriptedModel, call, effects_of

PATH = "/agents/clerk/runs"


def weather(city: str) -> str:
    """Return the weather."""
    if city == "Atlantis":
        raise ToolError("There is no such city")
    if city == "Pompeii":
        raise RuntimeError("a secret of the operator's")
    return f"Rain in {city}"


def clerk(*steps: Any, **more: Any) -> tuple[Platform, ScriptedModel]:
    model = ScriptedModel(steps)
    return Platform(agents=(Agent(id="clerk", model=model, tools=[weather], **more),)), model


def names(client: Client, run: Mapping[str, Any]) -> list[str]:
    return [event.name for event in client.get(f"{PATH}/{run['run_id']}/events").events()]


def test_the_events_of_a_call_stand_between_two_requests_to_the_model() -> None:
    platform, model = clerk(call("weather", city="Oslo"), Says(["It ", "rains."]))
    with Client(platform) as client:
        events = client.post(PATH, form={"message": "How is it?"}).events()

    assert [event.name for event in events] == [
        "RunStarted",
        "ModelRequestStarted",
        "ModelRequestCompleted",
        "ToolCallStarted",
        "ToolCallCompleted",
        "ModelRequestStarted",
        "RunContent",
        "RunContent",
        "ModelRequestCompleted",
        "RunContentCompleted",
        "RunCompleted",
    ]
    payload = json.loads(events[4].data)
    assert payload["content"] == "weather(city=Oslo) completed in 0.0000s. "
    assert payload["tool"]["result"] == "Rain in Oslo"
    assert [spec.name for spec in model.prompts[0].tools] == ["weather"]


@pytest.mark.parametrize(
    ("city", "result"),
    [("Atlantis", "There is no such city"), ("Pompeii", "The tool failed (RuntimeError)")],
)
def test_a_tool_that_fails_ends_neither_the_run_nor_the_session(city: str, result: str) -> None:
    platform, _ = clerk(call("weather", city=city), "Sorry.", "Next.")
    with Client(platform) as client:
        run = client.run("clerk", "How is it?", session_id="s")

        assert (run["status"], run["tools"][0]["result"]) == ("COMPLETED", result)
        assert "ToolCallError" in names(client, run)
        assert client.run("clerk", "next", session_id="s")["content"] == "Next."
        logged = [log for log in client.logs if log.event == "tool_failed"]
        assert len(client.take_errors()) == len(logged)
        assert len(logged) == (city == "Pompeii")
        assert "secret" not in str(client.logs)


def test_a_model_that_fails_is_told_in_its_words_and_by_its_reason() -> None:
    platform, _ = clerk(ModelFailed("timeout", "The model took too long"), "Next.")
    with Client(platform) as client:
        answer = client.post(PATH, form={"message": "x", "stream": False, "session_id": "s"})
        run = answer.json()
        events = client.get(f"{PATH}/{run['run_id']}/events").events()

        assert (answer.status, run["status"]) == (200, "ERROR")
        assert run["content"] == "The model took too long"
        assert json.loads(events[-1].data)["error_type"] == "model_timeout"
        assert client.run("clerk", "next", session_id="s")["status"] == "COMPLETED"


def test_what_a_failed_run_cost_and_called_is_told() -> None:
    platform, _ = clerk(call("weather", city="Oslo"), ModelFailed("broken", "Half an answer"))
    with Client(platform) as client:
        run = client.run("clerk", "x", session_id="s")

        assert run["status"] == "ERROR"
        assert run["tools"][0]["result"] == "Rain in Oslo"
        assert run["metrics"]["input_tokens"] == 1
        assert client.get("/sessions/s").json()["total_tokens"] == 1


@pytest.mark.parametrize(
    ("limit", "reason"), [({"max_rounds": 2}, "max_rounds"), ({"max_tokens": 1}, "max_tokens")]
)
def test_a_model_that_calls_for_ever_comes_to_a_limit(limit: dict[str, int], reason: str) -> None:
    platform, model = clerk(*[call("weather", city="Oslo")] * 5, **limit)
    with Client(platform) as client:
        run = client.run("clerk", "x")
        events = client.get(f"{PATH}/{run['run_id']}/events").events()

    assert run["status"] == "ERROR"
    assert json.loads(events[-1].data)["error_type"] == reason
    assert len(model.prompts) <= 2


def test_a_model_is_told_the_last_runs_of_its_session_and_no_more() -> None:
    platform, model = clerk(*[str(n) for n in range(5)], history_runs=2, instructions="Count.")
    with Client(platform) as client:
        for n in range(4):
            client.run("clerk", f"q{n}", session_id="s")
        client.run("clerk", "elsewhere", session_id="t")

    texts = [[message.content for message in prompt.messages] for prompt in model.prompts]
    assert texts[0] == ["Count.", "q0"]
    assert texts[3] == ["Count.", "q1", "1", "q2", "2", "q3"]
    assert texts[4] == ["Count.", "elsewhere"]


def test_an_answer_in_json_is_the_value() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    platform, model = clerk('{"n": "one"}', '{"n": 1}')
    with Client(platform) as client:
        run = client.run("clerk", "count", output_schema=schema)

    assert (run["content"], run["content_type"]) == ({"n": 1}, "dict")
    assert model.prompts[0].output_schema == schema
    assert [message["role"] for message in run["messages"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


@frozen
class Stay:
    guest: str
    night: date


STAY = {"guest": "Ada", "night": "2026-11-23"}


def test_answer_is_read_as_the_class_that_the_agent_names() -> None:
    platform, model = clerk(
        '{"guest": "Ada", "night": "soon"}', json.dumps(STAY), output_schema=Stay
    )
    with Client(platform) as client:
        run = client.run("clerk", "Book")

    assert (run["content"], run["content_type"]) == (STAY, "Stay")
    assert read_answer(Stay, run["content"]) == Stay("Ada", date(2026, 11, 23))
    assert model.prompts[0].output_schema == as_answer_class(Stay).schema
    assert model.prompts[1].messages[-1].content == (
        "The answer does not fit the schema: night must be a date as 2026-11-20."
        " Answer again, with the JSON alone."
    )


def test_schema_of_a_request_comes_before_the_class_of_the_agent() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    platform, _ = clerk('{"n": 1}', output_schema=Stay)
    with Client(platform) as client:
        run = client.run("clerk", "count", output_schema=schema)

    assert (run["content"], run["content_type"]) == ({"n": 1}, "dict")


def test_team_answers_with_its_class() -> None:
    team = Team(id="desk", model=ScriptedModel([json.dumps(STAY)]), output_schema=Stay)
    with Client(Platform(teams=[team])) as client:
        run = client.post("/teams/desk/runs", form={"message": "x", "stream": False}).json()

    assert (run["content"], run["content_type"]) == (STAY, "Stay")


@pytest.mark.parametrize("answer", [Stay("Ada", date(2026, 11, 23)), STAY, json.dumps(STAY)])
def test_function_answers_with_an_instance_of_its_class_or_with_its_json(answer: Any) -> None:
    def book(message: str) -> Any:
        return answer

    agent = Agent(id="clerk", run=book, output_schema=Stay)
    with Client(Platform(agents=[agent])) as client:
        run = client.run("clerk", "Book")

    assert (run["content"], run["content_type"]) == (STAY, "Stay")


def test_function_whose_answer_is_no_instance_ends_the_run() -> None:
    def book(message: str) -> dict[str, int]:
        return {"guest": 1}

    agent = Agent(id="clerk", run=book, output_schema=Stay)
    with Client(Platform(agents=[agent])) as client:
        run = client.run("clerk", "Book")

    assert run["status"] == "ERROR"
    assert run["content"] == (
        "The agent's answer does not have the shape asked for: The answer does not fit the schema:"
        " guest must be a string; night is missing."
    )


def test_what_was_thought_and_what_the_cache_knew_is_told_of_run_and_session() -> None:
    costs = (Usage(9, 5, 3, 0, 6), Usage(9, 5, 1, 6))
    platform, _ = clerk(*(Says("a", usage=usage) for usage in costs), "b")
    with Client(platform) as client:
        first, second, last = (client.run("clerk", "x", session_id="s") for _ in range(3))
        session = client.get("/sessions/s").json()

    assert (first["metrics"]["reasoning_tokens"], first["metrics"]["cache_write_tokens"]) == (3, 6)
    assert second["metrics"]["details"]["model"][0]["cache_read_tokens"] == 6
    for absent in (first["metrics"], last["metrics"]):
        assert "cache_read_tokens" not in absent
    assert session["metrics"]["reasoning_tokens"] == 4
    assert session["metrics"]["cache_read_tokens"] == session["metrics"]["cache_write_tokens"] == 6
    assert session["total_tokens"] == 28 + last["metrics"]["total_tokens"]


def test_what_the_model_lets_be_seen_of_its_thoughts_is_told() -> None:
    steps = [
        Reply("", calls=(call("weather", city="Oslo"),), reasoning="I must look."),
        "Wait.",
        "Hello.",
        Says("It rains.", reasoning="Rain, then."),
    ]
    platform, _ = clerk(*steps)
    with Client(platform) as client:
        form = {"message": "How is it?", "session_id": "s"}
        events = client.post(PATH, form=form).events()
        plain = client.post(PATH, form={**form, "stream": "false"}).json()
        again = client.post(PATH, form={**form, "stream": "false"}).json()
        rows = client.get("/sessions/s/runs?type=agent").json()

    pieces = [json.loads(event.data) for event in events if event.name == "RunContent"]
    seen = [(piece.get("content"), piece["reasoning_content"]) for piece in pieces]
    assert seen == [(None, "I must look."), ("Wait.", "")]
    assert json.loads(events[-1].data)["reasoning_content"] == "I must look."
    assert "reasoning_content" not in plain
    assert again["reasoning_content"] == "Rain, then."
    assert [one.get("reasoning_content") for one in again["messages"]] == [None, "Rain, then."]
    assert [row["reasoning_content"] for row in rows] == ["I must look.", "", "Rain, then."]


def test_metadata_are_told_at_the_end_of_a_stream() -> None:
    platform, _ = clerk("Hello.")
    with Client(platform) as client:
        form = {"message": "Hi", "metadata": '{"m": 3}'}
        events = client.post(PATH, form=form).events()

    assert json.loads(events[-1].data)["metadata"] == {"m": 3}


def test_images_and_files_reach_the_model_and_are_not_shown() -> None:
    platform, model = clerk("I see.")
    content = b64encode(b"the text of the file").decode()
    with Client(platform) as client:
        run = client.run(
            "clerk",
            "Look.",
            images=[{"mime_type": "image/png", "content": "aGk="}],
            files=[{"filename": "a.txt", "mime_type": "text/plain", "content": content}],
        )

    asked = model.prompts[0].messages[-1]
    assert asked.images == (Image("image/png", "aGk="),)
    assert "the text of the file" in asked.content
    assert run["messages"][0]["content"] == "Look."
    shown = json.dumps(dict(run))
    assert content not in shown
    assert "the text of the file" not in shown


def test_a_run_tells_how_long_it_took_until_the_first_word() -> None:
    platform, _ = clerk(Says(["It ", "rains."], after_seconds=2, between_seconds=3))
    with Client(platform) as client:
        run = client.run("clerk", "How is it?")

    assert run["metrics"]["time_to_first_token"] == 2.0
    assert run["metrics"]["duration"] == 5.0


def test_a_run_without_history_and_tools_costs_what_it_has_to() -> None:
    platform, _ = clerk("Hello.")
    with Client(platform) as client:
        before = len(client.effects)
        client.run("clerk", "x")
        units = [
            type(done.effect.unit).__name__
            for done in client.effects[before:]
            if isinstance(done.effect, Transact)
        ]

    assert [unit for unit in units if not unit.startswith(("Find", "Move"))] == [
        "Audited",  # StartRun
        "FinishRun",
    ]


def test_the_text_of_a_cancelled_run_is_that_of_its_last_answer() -> None:
    first = Says("Let me see.", calls=[call("weather", city="Oslo")])
    platform, _ = clerk(first, Says(["It ", "rains."], between_seconds=5))
    with Client(platform) as client:
        form = {"message": "x", "session_id": "s", "stream": False}
        exchange = client.begin("POST", PATH, form=form)
        client.advance(1)
        run_id = client.get(f"{PATH}?session_id=s").json()[0]["run_id"]
        client.post(f"{PATH}/{run_id}/cancel")

        run = exchange.response().json()
        assert (run["status"], run["content"]) == ("CANCELLED", "It ")
        assert run["tools"][0]["result"] == "Rain in Oslo"


def test_a_run_of_which_nothing_is_stored_when_the_process_ends_is_given_back() -> None:
    platform, _ = clerk("Hello.")
    context = platform.context
    asked = json.dumps({"message": "x", "stream": False})
    context.cluster.member("main").late_us = 2
    run = ClaimedRun("o", "s", "r", "agent", "clerk", asked, 0, 1)

    def answer(effect: Effect) -> Any:
        if isinstance(effect, Interruptible):
            context.ending = True
            effect.program.close()
            return Interrupted("nudge")
        if isinstance(effect, Transact):
            return isinstance(effect.unit, ReleaseRun)
        return "n" if isinstance(effect, ThisNode) else 1

    effects, _ = effects_of(ExecuteRun(context, "main", "n", run).program(), answer)

    release, *told = effects[-4:]
    assert isinstance(release, Transact)
    assert release.unit == ReleaseRun("o", "r", RunLease("n", 1), tried=False)
    gone = Publish("r", ())
    assert told == [Nudge("runs:main", "main"), Publish("r", (), "main"), gone]


def test_a_run_of_what_this_node_does_not_host_fails() -> None:
    """A node of the release before claims what it does not host, and so might an old claim."""
    platform, _ = clerk("Hello.")
    asked = json.dumps({"message": "x", "stream": False})
    run = ClaimedRun("o", "s", "r", "agent", "gone", asked, 0, 1)
    with Client(platform) as client:
        client.simulation.run(ExecuteRun(platform.context, "main", "n", run).program())
        (finish,) = (
            done.effect.unit
            for done in client.effects
            if isinstance(done.effect, Transact) and isinstance(done.effect.unit, FinishRun)
        )

    assert (finish.status, finish.reason) == ("ERROR", "not_hosted")


# --- versions, and a process without jobs ---


def versioned(version: str) -> Platform:
    @tool(requires_confirmation=True)
    def book(room: int) -> str:
        """Book a room."""
        return f"room {room} is booked"

    steps: list[Any] = [Says("Wait.", after_seconds=9.0), call("book", room=7), "Done."]
    clerk = Agent(id="clerk", version=version, model=ScriptedModel(steps * 3), tools=[book])
    return Platform(agents=[clerk])


def test_the_next_run_of_a_session_and_one_that_goes_on_are_left_to_who_hosts_their_version() -> (
    None
):
    asked = {"message": "x", "background": True, "session_id": "s"}
    path = "/agents/clerk/runs"
    with Client(versioned("1")) as one, one.peer(versioned("2")) as two:
        first, second = (c.post(path, form=asked).json() for c in (one, two))
        one.advance(20)
        ended = one.get("/sessions/s/runs").json()
        assert [run["status"] for run in ended] == ["COMPLETED", "COMPLETED"]

        third = one.run("clerk", "Room 7", session_id="s")
        assert third["status"] == "PAUSED"
        tools = [{**each["tool_execution"], "confirmed": True} for each in third["requirements"]]
        form = {"tools": json.dumps(tools), "stream": False}
        going = two.begin("POST", f"{path}/{third['run_id']}/continue", form=form)
        two.advance(20)
        nodes = [
            done.effect.unit.node
            for done in one.effects
            if isinstance(done.effect, Transact) and isinstance(done.effect.unit, FinishRun)
        ]

    assert going.response().json()["status"] == "COMPLETED"
    assert nodes[0] == nodes[-1] != nodes[1]
    assert first["run_id"] != second["run_id"]


def test_a_run_beats_for_its_node_where_no_job_does() -> None:
    look = Says("", calls=(call("look_around"),), after_seconds=25.0)

    @tool
    def look_around() -> str:
        """Look around."""
        return "all is well"

    clerk = Agent(id="clerk", model=ScriptedModel([look, "Done."]), tools=[look_around])
    platform = Platform(agents=[clerk])
    with Client(platform, jobs=False) as client:
        before = count_beats(client)
        assert client.run("clerk", "x")["status"] == "COMPLETED"
        after = count_beats(client)

    assert (before, after) == (1, 2)


def count_beats(client: Client) -> int:
    units = (d.effect.unit for d in client.effects if isinstance(d.effect, Transact))
    return sum(isinstance(unit, Beat) for unit in units)


# --- a database that is away ---------------------------------------------------------------------


def test_a_run_whose_history_cannot_be_read_for_two_seconds_is_completed() -> None:
    platform, model = clerk("One.", "Two.")
    with Client(platform) as client:
        client.run("clerk", "first", session_id="s")
        fault = client.fail_at(RecentRuns, Unavailable("away"), times=8)
        run = client.run("clerk", "second", session_id="s")

        assert (run["status"], fault.hits) == ("COMPLETED", 8)
        assert [message.content for message in model.prompts[1].messages] == [
            "first",
            "One.",
            "second",
        ]
        assert client.clock.elapsed >= 2.0


def test_a_run_in_which_nothing_has_begun_waits_again_when_its_database_is_away_too_long() -> None:
    platform, _ = clerk("One.", "Two.")
    with Client(platform) as client:
        client.run("clerk", "first", session_id="s")
        back_s = client.clock.elapsed + OUTAGE_US / 1_000_000 + 5

        def is_away(effect: Effect) -> bool:
            reads = isinstance(effect, Transact) and isinstance(effect.unit, RecentRuns)
            return reads and client.clock.elapsed < back_s

        client.fail_at(is_away, Unavailable("away"), times=None)
        run = client.run("clerk", "second", session_id="s")

        assert (run["status"], run["content"]) == ("COMPLETED", "Two.")
        (logged,) = [dict(log.fields) for log in client.logs if log.event == "run_released"]
        assert (logged["run_id"], logged["database"]) == (run["run_id"], "main")
        assert client.clock.elapsed < back_s + 30.0, "nobody waits for a lease to run out"


def test_a_run_that_can_never_begin_is_taken_up_three_times() -> None:
    platform, _ = clerk("One.", "Two.")
    with Client(platform) as client:
        client.run("clerk", "first", session_id="s")
        client.fail_at(RecentRuns, Unavailable("away"), times=None)
        run = client.run("clerk", "second", session_id="s")

        assert run["status"] == "ERROR"
        ends = ("run_released", "run_given_up", "run_failed")
        events = [log.event for log in client.logs if log.event in ends]
        assert events == [*["run_released"] * MOST_TRIES, "run_given_up", "run_failed"]
        assert client.clock.elapsed > MOST_TRIES * OUTAGE_US / 1_000_000


def test_a_run_whose_database_refuses_what_it_reads_fails() -> None:
    platform, _ = clerk("One.", "Two.")
    with Client(platform) as client:
        client.run("clerk", "first", session_id="s")
        client.fail_at(RecentRuns, StatementFailed("no"))

        assert client.run("clerk", "second", session_id="s")["status"] == "ERROR"


# --- drains --------------------------------------------------------------------------------------

LEASES_END = 45.0


class Till:
    """An agent that takes money, and then thinks for a while; two nodes host it."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.think_seconds = 5.0

    def make(self) -> Platform:
        def pay(cents: int) -> str:
            """Take money."""
            self.paid.append(cents)
            return f"took {cents}"

        def answer(prompt: Prompt) -> Any:
            if prompt.messages[-1].role == "tool":
                return Says("Paid.", after_seconds=self.think_seconds)
            return [call("pay", cents=7), call("pay", cents=8)]

        model = ScriptedModel([answer] * 20)
        return Platform(agents=[Agent(id="clerk", model=model, tools=[pay])])


@pytest.fixture
def till() -> Till:
    return Till()


def ask(client: Client) -> str:
    form = {"message": "x", "session_id": "s", "stream": False, "background": True}
    run_id: str = client.post(PATH, form=form).json()["run_id"]
    return run_id


def drain(client: Client) -> None:
    """End the process at once."""
    made = client.platform
    assert isinstance(made, Platform)
    client.simulation.start(made.shutdown(0.0, 0.0), "closing", node=client.node)


def status(client: Client, run_id: str) -> str:
    found: str = client.get(f"{PATH}/{run_id}").json()["status"]
    return found


def appends(effect: Effect) -> bool:
    """Whether a batch with the outcome of a call is about to be stored."""
    unit = effect.unit if isinstance(effect, Transact) else None
    return isinstance(unit, AppendEvents) and any(
        step.kind == StepKind.CALL and step.outcome is not None for step in unit.records.steps
    )


def test_what_is_known_when_the_process_ends_is_stored_and_another_goes_on_at_once(
    till: Till,
) -> None:
    with Client(till.make) as client, client.peer() as peer:
        fault = client.fail_at(appends, Unavailable("away"), times=None)
        run_id = ask(client)
        client.advance(0.5)
        assert till.paid == [7, 8]
        drain(client)
        fault.disarm()
        client.advance(till.think_seconds + 1)

        assert status(peer, run_id) == "COMPLETED"
        assert sorted(till.paid) == [7, 8], "nothing is in doubt"


def test_a_wish_to_cancel_that_meets_the_end_of_the_process_is_heeded(till: Till) -> None:
    with Client(till.make) as client, client.peer() as peer:
        run_id = ask(client)
        client.advance(0.5)
        cancelled: list[Any] = []

        def released(effect: Effect) -> bool:
            unit = effect.unit if isinstance(effect, Transact) else None
            if isinstance(unit, ReleaseRun) and not cancelled:
                cancelled.append(unit)
                peer.begin("POST", f"{PATH}/{run_id}/cancel")
                return True
            return False

        # The first release gets no answer; when it is tried again, somebody has asked.
        client.fail_at(released, Unavailable("away"))
        drain(client)
        client.advance(3)

        assert cancelled
        assert status(peer, run_id) == "CANCELLED"


@pytest.mark.parametrize("kept", [True, False], ids=["stored", "not stored"])
def test_a_lease_that_is_lost_when_the_process_ends_is_left_to_others(
    till: Till, kept: bool
) -> None:
    with Client(till.make) as client, client.peer() as peer:
        fault = client.fail_at(appends, Unavailable("away"), times=None)
        run_id = ask(client)
        client.advance(0.5)
        fault.disarm()
        client.fail_at(AppendEvents, None, after=kept)
        drain(client)
        client.advance(LEASES_END)

        assert status(peer, run_id) == ("COMPLETED" if kept else "PAUSED")
        assert sorted(till.paid) == [7, 8]


@pytest.mark.parametrize(
    ("units", "times", "seconds"),
    [((ReleaseRun,), 10, 15.0), ((ReleaseRun, CheckLease), None, LEASES_END + 60)],
    ids=["for a moment", "until the process is gone"],
)
def test_a_database_that_is_away_when_the_process_ends_costs_no_run(
    till: Till, units: tuple[type[Any], ...], times: int | None, seconds: float
) -> None:
    def away(effect: Effect) -> bool:
        return isinstance(effect, Transact) and isinstance(effect.unit, units)

    with Client(till.make) as client, client.peer() as peer:
        run_id = ask(client)
        client.advance(0.5)
        fault = client.fail_at(away, Unavailable("away"), times=times)
        drain(client)
        client.advance(10)
        client.crash()
        fault.disarm()
        peer.advance(seconds)

        assert status(peer, run_id) == "COMPLETED"
        assert sorted(till.paid) == [7, 8]


def test_a_run_ends_interrupted_where_a_release_without_steps_could_claim_it(till: Till) -> None:
    with Client(till.make) as client, client.peer() as peer:
        run_id = ask(client)
        client.advance(0.5)
        client.fail_at(ReleaseRun, False)
        drain(client)
        client.advance(3)

        assert status(peer, run_id) == "ERROR"
        events = peer.get(f"{PATH}/{run_id}/events").events()
        assert json.loads(events[-1].data)["error_type"] == "interrupted"


def test_a_run_whose_lease_cannot_be_looked_at_as_the_process_ends_is_left_to_others(
    till: Till,
) -> None:
    with Client(till.make) as client, client.peer() as peer:
        run_id = ask(client)
        client.advance(0.5)
        client.fail_at(ReleaseRun, False)
        looked = client.fail_at(CheckLease, DatabaseFull("full"))
        drain(client)
        client.advance(10)
        client.crash()
        peer.advance(LEASES_END + 60)

        assert looked.hits == 1
        assert status(peer, run_id) == "COMPLETED"
        assert sorted(till.paid) == [7, 8]


def test_a_run_whose_database_was_away_goes_on_under_another_lease(till: Till) -> None:
    with Client(till.make) as client:
        back_s = client.clock.elapsed + OUTAGE_US / 1_000_000 + 5

        def is_away(effect: Effect) -> bool:
            return client.clock.elapsed < back_s and appends(effect)

        client.fail_at(is_away, Unavailable("away"), times=None)
        run_id = ask(client)
        client.advance(back_s + 2 * LEASES_END)

        assert status(client, run_id) == "COMPLETED"
        assert sorted(till.paid) == [7, 8], "what was not stored in time is stored with the release"


def test_who_asked_to_cancel_while_the_database_was_away_is_heeded_when_it_is_back(
    till: Till,
) -> None:
    with Client(till.make) as client:
        run_id = ask(client)
        client.advance(0.5)
        client.fail_at(ReleaseRun, False)
        client.fail_at(CheckLease, True)
        client.post(f"{PATH}/{run_id}/cancel")
        drain(client)
        client.advance(3)
        client.restart()

        assert status(client, run_id) == "CANCELLED"
