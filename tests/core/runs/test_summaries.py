"""Summaries of long sessions, from what a run reads to what its model is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import frozen

from legation import PlatformLimits, Summaries, tool
from legation.effects import Program, Transact
from legation.models.conversation import Listener, ModelFailed, Prompt, Reply, Usage
from legation.replay.recording import Recording, read_recording
from legation.runs.event_writer import EventWriter, Journal
from legation.runs.events import EventOrigin
from legation.runs.summaries import MAX_TRANSCRIPT, find_older, summarize
from legation.store.run_reads import RecentRuns
from legation.store.run_rows import ClaimedRun
from legation.store.summaries import StoreSummary
from legation_testing import Client, call, crash_everywhere

from ...recordings import take_again
from .summary_kit import RULE, Scribe, ask, platform, questions, two_databases


def test_the_runs_that_are_long_ago_are_told_by_a_summary() -> None:
    model = Scribe()
    with Client(platform(model)) as client:
        ask(client, 1, 9)

    told = [questions(prompt) for prompt in model.told]
    assert told[4] == ["q1", "q2", "q3", "q4", "q5"]
    assert told[5] == ["S1", "q4", "q5", "q6"]
    assert told[7] == ["S1", "q4", "q5", "q6", "q7", "q8"]
    assert told[8] == ["S2", "q7", "q8", "q9"]
    first, second = (prompt.messages[-1].content for prompt in model.asked)
    assert first.startswith("user: q1\nassistant: a-q1\n\nuser: q2")
    assert second.split("\n\n")[0].endswith("\nS1")
    assert "user: q4" in second
    assert "q3" not in second
    assert model.asked[0].max_tokens == 1_000


def test_a_summary_is_counted_in_the_run_that_makes_it() -> None:
    with Client(platform(Scribe())) as client:
        answers = [ask(client, n, n) for n in range(1, 8)]

    tokens = [answer["metrics"]["total_tokens"] for answer in answers]
    assert tokens == [11, 11, 11, 11, 11, 20, 11]


def test_each_caller_and_each_database_has_its_own() -> None:
    model = Scribe()
    with Client(two_databases(model)) as client:
        ask(client, 1, 6, user_id="ada")
        ask(client, 1, 2, user_id="eve")
        ask(client, 1, 2, "b", user_id="ada")

        assert [questions(p) for p in model.told[-4:]] == [["q1"], ["q1", "q2"]] * 2
        for user, made in (("ada", True), ("eve", False)):
            shown = client.get(f"/sessions/s?user_id={user}&db_id=main").json()
            assert ("session_summary" in shown) is made
    assert len(model.asked) == 1


def test_a_named_model_writes_the_summaries() -> None:
    model = Scribe()
    rule = Summaries(after_runs=4, model="echo")
    with Client(platform(model, summaries=rule)) as client:
        ask(client, 1, 6)

    assert model.asked == []
    assert questions(model.told[-1])[1:] == ["q4", "q5", "q6"]


@pytest.mark.parametrize(
    ("made", "error"),
    [
        ("", "the model returned no text"),
        (ModelFailed("timeout", "It took too long."), "ModelFailed: It took too long."),
        (RuntimeError("no"), "RuntimeError: no"),
    ],
)
def test_a_summary_that_cannot_be_had_ends_no_run(made: Any, error: str) -> None:
    model = Scribe(made)

    def say(prompt: Prompt) -> Any:
        answer = Scribe._say(model, prompt)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    model.steps = (say,) * 50
    with Client(platform(model)) as client:
        answer = ask(client, 1, 7)
        lines = [dict(log.fields) for log in client.logs if log.event == "summary_failed"]

    assert answer["content"] == "a-q7"
    assert [line["error"] for line in lines] == [error] * 2
    assert questions(model.told[-1]) == [f"q{n}" for n in range(2, 8)]


def test_a_long_summary_is_cut() -> None:
    model = Scribe("é" * 1_000_000)
    with Client(platform(model)) as client:
        ask(client, 1, 6)
        shown = client.get("/sessions/s").json()["session_summary"]["summary"]

    assert len(shown) == 4_000
    assert shown.endswith("é…")


def test_long_runs_are_summarized_before_they_are_many() -> None:
    model = Scribe()
    rule = Summaries(after_runs=4, after_tokens=100)
    with Client(platform(model, summaries=rule)) as client:
        client.run("a", "x" * 300, session_id="s")
        client.run("a", "x" * 300, session_id="s")
        ask(client, 3, 3)

    assert len(model.asked) == 2
    assert questions(model.told[-1]) == ["S2", "q3"]
    assert model.told[-1].messages[0].role == "system"


def test_of_a_long_conversation_the_oldest_is_left_out_of_the_transcript() -> None:
    model = Scribe()
    rule = Summaries(after_runs=40, after_tokens=1_000_000)
    with Client(platform(model, summaries=rule, history_runs=1)) as client:
        for _ in range(40):
            client.run("a", "y" * 5_000, session_id="s")
        ask(client, 1, 2)

    (asked,) = model.asked
    assert len(asked.messages[-1].content) < MAX_TRANSCRIPT + 1_000
    assert questions(model.told[-1]) == ["S1", "q1", "q2"]


def test_a_run_pays_for_no_summary_that_takes_half_of_its_tokens() -> None:
    model = Scribe()
    with Client(platform(model, max_tokens=2_000)) as client:
        ask(client, 1, 6)
        (line,) = [dict(log.fields) for log in client.logs if log.event == "summary_failed"]

    assert model.asked == []
    assert "more than half" in str(line["error"])


def test_a_run_that_waits_is_not_summarized() -> None:
    waits = (2, json.dumps({"status": "PAUSED"}))
    runs = tuple((n, json.dumps({"status": "COMPLETED"})) for n in range(3, 9))

    assert find_older(RULE, ((1, "{}"), waits, *runs), 2) == ()
    assert find_older(RULE, runs, 2) == runs[:4]
    assert find_older(RULE, runs[:4], 2) == ()


def test_a_session_of_very_many_runs_costs_what_a_short_one_does() -> None:
    model = Scribe()
    with Client(platform(model)) as client:
        ask(client, 1, 200)
        counts: list[int] = []
        for number in range(201, 205):
            before = len(client.effects)
            ask(client, number, number)
            units = [
                one.effect.unit
                for one in client.effects[before:]
                if isinstance(one.effect, Transact)
            ]
            assert sum(isinstance(unit, RecentRuns) for unit in units) == 1
            assert sum(isinstance(unit, StoreSummary) for unit in units) <= 1
            counts.append(len(units))

    assert max(counts) <= 9
    assert max(len(prompt.messages) for prompt in model.told) == 2 * 4 + 2
    assert max(len(prompt.messages[-1].content) for prompt in model.asked) < 500
    assert len(model.asked) == 67


def test_a_deleted_run_takes_the_summaries_of_it_along() -> None:
    model = Scribe()
    with Client(platform(model)) as client:
        ask(client, 1, 9)
        runs = [run["run_id"] for run in client.get("/sessions/s/runs").json()]
        client.delete(f"/sessions/s/runs/{runs[4]}").expect_success()
        shown = client.get("/sessions/s").json()["session_summary"]["summary"]
        ask(client, 10, 10)

    assert shown == "S1"  # of the first three
    assert "q5" not in model.asked[-1].messages[-1].content
    assert questions(model.told[-1])[0] == "S3"


def test_a_client_may_correct_the_summary() -> None:
    model = Scribe()
    with Client(platform(model)) as client:
        ask(client, 1, 6)
        body = {"summary": {"summary": "They are right.", "topics": ["x"]}}
        patched = client.patch("/sessions/s", json=body).json()["session_summary"]
        ask(client, 7, 7)

    assert (patched["summary"], patched["topics"]) == ("They are right.", ["x"])
    assert questions(model.told[-1])[0] == "They are right."


def test_a_fork_is_told_the_same_summary() -> None:
    model = Scribe()
    with Client(platform(model)) as client:
        ask(client, 1, 7)
        runs = [run["run_id"] for run in client.get("/sessions/s/runs").json()]
        path = f"/agents/a/runs/{runs[-1]}/fork"
        forked = client.post(path, json={"stream": False}).expect_success().json()
        shown = client.get(f"/sessions/{forked['session_id']}").json()["session_summary"]

    assert questions(model.told[-1]) == questions(model.told[-2])
    assert shown["summary"] == "S1"
    assert len(model.asked) == 1


# --- crashes, copies and replays


@tool(again="safe")
def look() -> str:
    """Look."""
    return "seen"


class Looker(Scribe):
    """A scribe that looks something up for each question behind the fifth."""

    def _say(self, prompt: Prompt) -> Any:
        if prompt.tools and prompt.messages[-1].content in ("q6", "q7"):
            return Reply("", Usage(3, 1), (call("look"),))
        return super()._say(prompt)


@pytest.mark.enumeration
def test_a_crash_anywhere_makes_no_summary_twice_that_is_stored() -> None:
    scenes: list[Looker] = []

    def make() -> Client:
        model = Looker()
        scenes.append(model)
        client = Client(lambda: platform(model, tools=[look]))
        client.open()
        ask(client, 1, 5)
        return client

    def check(client: Client) -> None:
        client.advance(120)
        model = scenes[-1]
        runs = client.get("/sessions/s/runs").expect_success().json()
        if len(runs) == 5:
            return
        shown = client.get("/sessions/s").json()["session_summary"]["summary"]
        assert shown == f"S{len(model.asked)}"  # what is stored is what was made last
        assert len(model.asked) <= 2
        assert runs[-1]["status"] == "COMPLETED"
        assert questions(model.told[-1]) == [shown, "q4", "q5", "q6"]
        assert runs[-1]["metrics"]["total_tokens"] == 9 + 4 + 11

    tried = crash_everywhere(make, lambda client: ask(client, 6, 6), check, every=2)
    assert tried.points > 10


def test_calls_of_tools_are_summarized_too() -> None:
    model = Looker()
    with Client(platform(model, tools=[look], history_runs=0)) as client:
        ask(client, 3, 8)

    assert "\nassistant called look: {}\ntool: seen\n" in model.asked[0].messages[-1].content


@frozen
class Aloud:
    """A model that speaks and thinks on its way to a summary."""

    id = name = "aloud"
    provider = "Legation"

    def respond(self, prompt: Prompt, listener: Listener) -> Program[Reply]:
        """Answer in pieces."""
        listener.listen()
        listener.hear("so")
        listener.think("hm")
        yield from listener.settle()
        return Reply("so")


def test_nobody_hears_a_summary_as_it_is_made() -> None:
    run = ClaimedRun("o", "s", "r", "agent", "a", "{}", 5, 1, 4)
    writer = EventWriter(Journal("main", run, "n", 1), EventOrigin(run, "A"), streamed=True)
    rule, told = Summaries(), ((3, json.dumps({"messages": [{"role": "system", "content": ""}]})),)
    stored: list[Any] = []

    def perform(effect: Any) -> Any:
        stored.append(effect)
        unit: Any = getattr(effect, "unit", None)
        return unit.summary if isinstance(unit, StoreSummary) else 9

    program = summarize(writer, rule, Aloud(), None, told, None)
    effect = next(program)
    with pytest.raises(StopIteration) as stop:
        while True:
            effect = program.send(perform(effect))
    made, usage = stop.value.value
    assert (made.text, made.run_no, usage) == ("so", 3, Usage())
    assert writer.heard == []
    assert writer.journal.pending == []


def test_a_summary_counts_in_the_tokens_of_the_day() -> None:
    model = Scribe()
    with Client(platform(model, PlatformLimits(tokens_per_day=100_000))) as client:
        assert ask(client, 1, 6)["metrics"]["total_tokens"] == 20

    assert len(model.asked) == 1


def test_no_summary_is_made_beyond_the_tokens_of_the_day() -> None:
    model = Scribe()
    limits = PlatformLimits(tokens_per_day=1_000)
    with Client(platform(model, limits)) as client:
        ask(client, 1, 6)
        (line,) = [dict(log.fields) for log in client.logs if log.event == "summary_failed"]

    assert line["error"] == "the tokens of the day are used up"
    assert model.asked == []


def test_a_run_with_a_summary_is_recorded_and_replayed_with_it() -> None:
    model = Scribe()
    with Client(platform(model)) as client:
        run_id = ask(client, 1, 6)["run_id"]
        data = client.get(f"/agents/a/runs/{run_id}/replay?session_id=s").expect_success().body
        recording = read_recording(data)
        assert isinstance(recording, Recording)
        assert [m["role"] for m in recording.history] == ["system", *["user", "assistant"] * 2]
        again = take_again(recording, platform(model))
        assert again.divergences == ()
        changed = take_again(recording, platform(model, summaries=None, history_tokens=9))
        rule = '{"after_runs":4,"after_tokens":30000,"max_tokens":1000,"model":null}'
        assert [one.sentence for one in changed.divergences] == [
            "history_tokens was not set, and is 9",
            f"summaries was {rule}, and is not set",
        ]

        runs = client.get("/sessions/s/runs").json()
        client.delete(f"/sessions/s/runs/{runs[0]['run_id']}").expect_success()
        refused = client.get(f"/agents/a/runs/{run_id}/replay?session_id=s")
        assert refused.status == 409
        assert "earlier runs are not kept any more" in refused.json()["detail"]
    assert len(model.asked) == 1


def test_a_run_that_pauses_goes_on_with_the_summary_and_counts_it_once() -> None:
    model = Scribe()

    @tool(requires_confirmation=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def say(prompt: Prompt) -> Any:
        if prompt.messages[-1].content == "q6" and prompt.tools:
            return Reply("", Usage(10, 1), (call("pay"),))
        return Scribe._say(model, prompt)

    model.steps = (say,) * 50
    with Client(platform(model, tools=[pay])) as client:
        paused = ask(client, 1, 6)
        done = client.go_on(paused, confirmed=True)

    assert done["metrics"]["total_tokens"] == 9 + 11 + 11
    assert questions(model.told[-1])[0] == "S1"
