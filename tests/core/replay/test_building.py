"""The recording of a stored run: built from its steps, its output and the events that frame it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, CallStep, ModelStep, Platform, Run, Team, tool
from legation.config import Mode
from legation.effects import Transact
from legation.models.conversation import ModelFailed, Prompt
from legation.replay.building import (
    MEDIA_ROOM,
    NotRecordable,
    StoredRun,
    build_recording,
    encode_lines,
    fetch_recording,
)
from legation.replay.recording import MAX_LINE, MAX_STEPS, Recording, decode_recording
from legation.store.recordings import FetchMarks
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation.store.steps import FetchSteps, Step
from legation.store.units import Dialect, Sql, Statements, Unit
from legation.values import frozen
from legation_testing import Client, Says, ScriptedModel, call

DELEGATE: Final = "delegate_task_to_member"


@tool(requires_confirmation=True)
def book(room: int) -> str:
    """Book a room."""
    return f"Booked {room}"


@tool(external_execution=True)
def pay(amount: int) -> str:
    """Pay elsewhere."""
    raise AssertionError(amount)


@tool
def count(run: Run[Any, Any], by: int) -> str:
    """Count in the state of the session."""
    run.state["count"] = run.state.get("count", 0) + by
    return str(run.state["count"])


NO_STEPS = "The run cannot be recorded: its steps are not kept any more, or its release kept none"


async def take_steps(message: str) -> AsyncIterator[Any]:
    """Ask a model, and book."""
    plan, reserve = ModelStep("m"), CallStep("reserve")
    yield plan
    yield plan.answered({"room": 7})
    yield reserve
    yield reserve.returned(7)
    yield "Booked."


def say_alone(message: str) -> dict[str, str]:
    """Answer without a model."""
    if message == "break":
        raise RuntimeError(message)
    return {"said": message}


def host(*script: Any, member: tuple[Any, ...] = ("Yes.",), mode: Mode = "coordinate") -> Platform:
    """Return a platform: four agents, the function `alone`, the teams `desk` and `house`."""
    tools, schema = (book, pay, count), {"type": "object", "required": ["n"]}
    says = ScriptedModel(script)
    return Platform(
        agents=[
            Agent(id="shop", model=says, tools=tools, instructions="Be brief.", max_rounds=3),
            Agent(id="plain", model=says, history_runs=2),
            Agent(id="shaped", model=says, output_schema=schema),
            Agent(id="clerk", model=ScriptedModel(member), tools=tools),
            Agent(id="alone", run=say_alone),
            Agent(id="steps", run=take_steps),
        ],
        teams=[
            Team(id="desk", members=["clerk", "alone"], mode=mode, model=says),
            Team(id="house", members=["desk"], model=ScriptedModel([ask("desk"), "Home."])),
        ],
    )


def ask(member: str) -> Any:
    return call(DELEGATE, member_id=member, task="Do it")


def fetch_row(client: Client, run_id: str) -> RunRow:
    found = run(client, iter(Transact("main", FetchRun(run_id, None, any_owner=True))))
    assert isinstance(found, RunRow)
    return found


def run(client: Client, program: Any) -> Any:
    return client.simulation.run(program, "record", body=None, node=client.node)


def record(client: Client, run_id: str, history_runs: int = 0) -> Recording:
    """Return the recording of a run, which a reader takes as it was written."""
    made = run(client, fetch_recording("main", fetch_row(client, run_id), history_runs))
    assert isinstance(made, Recording), made
    lines = encode_lines(made)
    assert isinstance(lines, tuple)
    assert decode_recording(line.decode() for line in lines) == made
    return made


def places(recording: Recording) -> list[str]:
    return [f"{step.place} {step.kind}" for step in recording.steps]


def outcomes(recording: Recording) -> dict[str, Any]:
    return {step.place: step.outcome for step in recording.steps}


def test_a_run_without_tools_has_the_line_of_its_answer() -> None:
    with Client(host("Good morning.")) as client:
        done = client.run("plain", "Hello", session_id="s1", user_id="ann")
        made = record(client, done["run_id"])

    assert made.run.input == {"message": "Hello"}
    assert (made.run.component, made.run.session_id, made.run.user) == ("plain", "s1", "ann")
    assert (made.run.definition, made.definitions, made.history) == ("", (), ())
    (step,) = made.steps
    assert (step.place, step.kind, step.asked) == ("1", "model", "scripted")
    assert step.outcome == {"content": "Good morning.", "usage": [1, 2, 0, 0, 0], "seconds": 0.0}
    assert step.seconds == 0.0
    assert (made.end, made.output["content"]) == ("COMPLETED", "Good morning.")


def test_the_last_answer_stands_behind_the_steps() -> None:
    script = ("Hi.", call("count", by=2), call("count", by=3), "Five.")
    with Client(host(*script)) as client:
        client.run("plain", "Hello", session_id="s1", session_state={"count": 1, "lang": "no"})
        done = client.run("shop", "Count", session_id="s1")
        made = record(client, done["run_id"])

    assert places(made) == ["0 start", "1 model", "1.1 call", "2 model", "2.1 call", "3 model"]
    assert outcomes(made)["1.1"] == {"result": "3", "state": {"set": {"count": 3}}}
    assert outcomes(made)["3"]["content"] == "Five."
    assert made.steps[2].arguments == {"by": 2}
    assert made.run.state == {"lang": "no", "count": 1}
    assert made.output["session_state"] == {"lang": "no", "count": 6}
    (shop,) = made.definitions
    assert made.run.definition == shop.digest
    assert shop.document["instructions"] == "Be brief."
    assert [step.seconds is None for step in made.steps] == [True, *[False] * 4, True]


def test_what_a_person_decided_is_in_the_file() -> None:
    calls = [call("book", room=1), call("book", room=2), call("pay", amount=3), call("book", x=1)]
    with Client(host(calls, "Done.")) as client:
        paused = client.run("shop", "Book", session_id="s1")
        waiting = record(client, paused["run_id"])
        tools = [needed["tool_execution"] for needed in paused["requirements"]]
        answers: list[dict[str, Any]] = [
            {"confirmed": True, "confirmation_note": "Fine"},
            {"confirmed": False, "confirmation_note": "Too dear"},
            {"result": "Paid"},
        ]
        sent = [{**one, **answer} for one, answer in zip(tools, answers, strict=True)]
        path = f"/agents/shop/runs/{paused['run_id']}/continue"
        client.post(path, form={"tools": sent, "stream": False}).expect_success()
        made = record(client, paused["run_id"])

    assert (waiting.end, places(waiting)) == ("PAUSED", ["0 start", "1 model"])
    assert made.end == "COMPLETED"
    assert outcomes(made)["1"]["calls"][3][3:] == ["done", outcomes(made)["1"]["calls"][3][4]]
    first, second, third = made.steps[2:5]
    assert (first.outcome, first.decision) == (
        {"result": "Booked 1"},
        {"confirmed": True, "note": "Fine"},
    )
    assert second.decision == {"confirmed": False, "note": "Too dear"}
    assert (second.arguments, second.asked) == ({"room": 2}, "book")
    assert second.outcome is not None
    assert second.outcome["failed"]
    assert second.outcome["result"].endswith("rejected by the user: Too dear")
    assert (third.outcome, third.decision) == ({"result": "Paid"}, None)


def test_a_function_is_one_step() -> None:
    with Client(host()) as client:
        done = client.run("alone", "Hello", session_id="s1")
        made = record(client, done["run_id"])
        broken = client.post("/agents/alone/runs", form={"message": "break", "stream": False})
        failed = record(client, broken.json()["run_id"])
        client.take_errors()

    (step,) = made.steps
    assert (step.place, step.kind, step.asked) == ("1", "function", "alone")
    assert step.outcome == {"content": {"said": "Hello"}}
    (step,) = failed.steps
    assert step.outcome is None
    assert step.error is not None
    assert step.error["type"] == "run_failed"
    assert (failed.end, failed.output["error_type"]) == ("ERROR", "run_failed")


def test_a_function_is_one_step_whatever_steps_it_took() -> None:
    with Client(host()) as client:
        run_id = client.run("steps", "Hello", session_id="s1")["run_id"]
        recording = record(client, run_id)

    assert places(recording) == ["0 start", "1 function"]
    assert recording.steps[1].outcome == {"content": "Booked."}


@pytest.mark.parametrize("mode", ["coordinate", "route", "collaborate"])
def test_members_stand_below_the_calls_that_they_were_given(mode: Mode) -> None:
    calls = () if mode == "collaborate" else ([ask("clerk"), ask("alone")],)
    member = (call("count", by=1), "Yes.")
    with Client(host(*calls, "All done.", member=member, mode=mode)) as client:
        done = client.run_team("desk", "Go", session_id="s1")
        made = record(client, done["run_id"])

    at = "0" if mode == "collaborate" else "1"
    clerk = [f"{at}.1 member", f"{at}.1/0 start", f"{at}.1/1 model"]
    clerk += [f"{at}.1/1.1 call", f"{at}.1/2 model"]
    assert [place for place in places(made) if place.startswith(f"{at}.1")] == clerk
    by_place = outcomes(made)
    assert by_place[f"{at}.1/2"]["content"] == "Yes."
    assert by_place[f"{at}.1"]["result"] == "Yes."
    if mode != "route":
        assert by_place[f"{at}.2/1"] == {"content": {"said": made_task(mode)}}
        assert places(made)[-1] == f"{int(at) + 1} model"
    defined = ["desk", "clerk"] if mode == "route" else ["desk", "clerk", "alone"]
    assert [one.component for one in made.definitions] == defined


def made_task(mode: Mode) -> str:
    return "Go" if mode == "collaborate" else "Do it"


def test_a_team_in_a_team_is_below_it() -> None:
    with Client(host(ask("clerk"), "Desk.")) as client:
        done = client.run_team("house", "Go", session_id="s1")
        made = record(client, done["run_id"])

    assert places(made) == [
        "0 start",
        "1 model",
        "1.1 member",
        "1.1/0 start",
        "1.1/1 model",
        "1.1/1.1 member",
        "1.1/1.1/0 start",
        "1.1/1.1/1 model",
        "1.1/2 model",
        "2 model",
    ]
    assert outcomes(made)["1.1/1.1/1"]["content"] == "Yes."


def test_an_answer_that_was_corrected_has_both_lines() -> None:
    with Client(host("no json", '{"n":1}', "no", "no")) as client:
        done = client.run("shaped", "Count", session_id="s1")
        made = record(client, done["run_id"])
        invalid = client.post("/agents/shaped/runs", form={"message": "Again", "stream": False})
        failed = record(client, invalid.json()["run_id"])

    assert places(made) == ["0 start", "1 model", "2 model"]
    assert outcomes(made)["1"]["correction"]
    assert outcomes(made)["2"]["content"] == '{"n":1}'
    assert made.output["content"] == {"n": 1}
    assert outcomes(failed)["2"] is None
    assert failed.steps[-1].error is not None
    assert failed.steps[-1].error["type"] == "output_invalid"


def test_an_answer_that_failed_says_how() -> None:
    failure = ModelFailed("overloaded", "The model is full")
    with Client(host(call("count", by=1), failure)) as client:
        done = client.post("/agents/shop/runs", form={"message": "Go", "stream": False})
        made = record(client, done.json()["run_id"])

    assert places(made) == ["0 start", "1 model", "1.1 call", "2 model"]
    last = made.steps[-1]
    assert (last.outcome, last.error) == (
        None,
        {"type": "model_overloaded", "sentence": "The model is full"},
    )


def test_a_run_that_ended_at_a_limit_has_no_further_answer() -> None:
    with Client(host(*[call("count", by=1)] * 3)) as client:
        done = client.post("/agents/shop/runs", form={"message": "Go", "stream": False})
        made = record(client, done.json()["run_id"])

    assert made.output["error_type"] == "max_rounds"
    assert places(made)[-2:] == ["2.1 call", "3 model"]


def test_the_history_is_that_of_the_start() -> None:
    with Client(host("One.", "Two.", call("count", by=1), "Three.")) as client:
        client.run("plain", "First", session_id="s1")
        second = client.run("plain", "Second", session_id="s1")
        third = client.run("shop", "Third", session_id="s1")
        made = [record(client, one["run_id"], 2) for one in (second, third)]
        alone = record(client, second["run_id"])

    told = [{"role": "user", "content": "First"}, {"role": "assistant", "content": "One."}]
    assert list(made[0].history) == told
    assert list(made[1].history)[:2] == told
    assert alone.history == ()


@frozen
class _Delete(Unit[None]):
    """Delete rows, as a sweep does."""

    where: str

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one deletion."""
        yield Sql(f"delete from {self.where}", registered=False)()


@pytest.mark.parametrize(
    ("where", "what"), [("runs where run_no = 1", "earlier runs"), ("events", "events")]
)
def test_a_run_whose_history_or_events_are_not_kept_has_no_recording(where: str, what: str) -> None:
    with Client(host("Hi.", call("count", by=2), "Two.")) as client:
        client.run("plain", "Hello", session_id="s1")
        done = client.run("shop", "Count", session_id="s1")
        assert record(client, done["run_id"]).history
        run(client, iter(Transact("main", _Delete(where))))
        refused = run(client, fetch_recording("main", fetch_row(client, done["run_id"])))

    assert refused == NotRecordable(f"The run cannot be recorded: its {what} are not kept any more")


def test_calls_of_earlier_runs_are_in_the_history() -> None:
    with Client(host(call("count", by=1), "One.", call("count", by=1), "Two.")) as client:
        client.run("shop", "First", session_id="s1")
        second = client.run("shop", "Second", session_id="s1")
        made = record(client, second["run_id"])

    roles = [message["role"] for message in made.history]
    assert roles == ["user", "assistant", "tool", "assistant"]
    ((call_id, name, text),) = made.history[1]["calls"]
    assert (name, text) == ("count", '{"by":1}')
    assert made.history[2]["call_id"] == call_id


def test_a_cancelled_run_has_the_line_of_an_answer_that_never_came() -> None:
    never = Says("Never.", after_seconds=3600)
    with Client(host(call("count", by=1), never)) as client:
        form = {"message": "Go", "stream": False, "background": True}
        run_id = client.post("/agents/shop/runs", form=form).json()["run_id"]
        client.advance(1)
        waiting = run(client, fetch_recording("main", fetch_row(client, run_id)))
        client.post(f"/agents/shop/runs/{run_id}/cancel").expect_success()
        client.advance(10)
        made = record(client, run_id)

    assert waiting == NotRecordable(
        "The run is under way: it can be recorded when it is over, or waits for a person"
    )
    assert made.end == "CANCELLED"
    assert places(made) == ["0 start", "1 model", "1.1 call", "2 model"]
    assert (made.steps[-1].outcome, made.steps[-1].error) == (None, None)


def test_a_member_is_recorded_with_the_run_that_it_is_part_of() -> None:
    with Client(host(ask("clerk"), "Done.")) as client:
        done = client.run_team("desk", "Go", session_id="s1")
        member = done["tools"][0]["child_run_id"]
        made = run(client, fetch_recording("main", fetch_row(client, member)))

    assert made == NotRecordable(
        f"The run is that of a member: record the run that it is part of, {done['run_id']}"
    )


def test_a_run_that_goes_on_while_it_is_read_has_no_recording() -> None:
    with Client(host(call("book", room=1), "Done.")) as client:
        paused = client.run("shop", "Book", session_id="s1")
        program = fetch_recording("main", fetch_row(client, paused["run_id"]))
        first = next(program)
        client.go_on(paused, confirmed=True)
        made = run(client, proceed(program, first))

    assert made == NotRecordable(
        "The run went on, or was deleted, while it was read: ask for it again"
    )


def proceed(program: Any, effect: Any) -> Any:
    """Drive a program from its first effect on."""
    try:
        while True:
            effect = program.send((yield from effect))
    except StopIteration as stop:
        return stop.value


def test_a_run_whose_steps_were_not_kept_has_no_recording() -> None:
    with Client(host(call("count", by=1), call("count", by=1), "Done.")) as client:
        row = fetch_row(client, client.run("shop", "Go", session_id="s1")["run_id"])
        steps = run(client, iter(Transact("main", FetchSteps(row.owner, row.run_id))))

    def build(kept: tuple[Step, ...]) -> Any:
        return build_recording(StoredRun(row, kept))

    unread = tuple(evolve(step, outcome='{"f":9}') for step in steps)
    no_steps = (
        "The run cannot be recorded: its steps are not kept any more, or its release kept none"
    )
    assert build(()) == NotRecordable(no_steps)
    for gone in ("1", "2"):
        kept = tuple(step for step in steps if step.place != gone)
        assert build(kept) == NotRecordable(no_steps)
    later = "The run cannot be recorded: a later release stored its steps"
    assert build(unread) == NotRecordable(later)


def test_files_are_whole_as_long_as_there_is_room() -> None:
    small, large = b64encode(b"few words").decode(), b64encode(b"x" * MEDIA_ROOM).decode()
    files = [
        {"filename": "a.txt", "mime_type": "text/plain", "content": small},
        {"filename": "b.txt", "mime_type": "text/plain", "content": large},
        {"filename": "c.txt", "mime_type": "text/plain", "content": small},
        {"filename": "d.pdf", "mime_type": "application/pdf", "url": "https://x.example/d.pdf"},
    ]
    with Client(host("Read.")) as client:
        run_id = client.run("plain", "Read", session_id="s1")["run_id"]
        row = fetch_row(client, run_id)
    asked = {**json.loads(row.input), "files": files, "reply_to": {"to": "+47"}}
    made = build_recording(StoredRun(evolve(row, input=json.dumps(asked))))

    assert isinstance(made, Recording)
    first, second, third, fourth = made.run.input["files"]
    assert (first, third, fourth) == (files[0], files[2], files[3])
    assert sorted(second) == ["characters", "filename", "mime_type", "sha256"]
    assert second["characters"] == len(large)
    assert sorted(made.run.input) == ["files", "message"]


def test_a_recording_that_no_reader_takes_is_not_written() -> None:
    with Client(host("Read.")) as client:
        made = record(client, client.run("plain", "Read", session_id="s1")["run_id"])
    long = evolve(made, output={"content": "x" * MAX_LINE})
    part = evolve(made.steps[0], outcome={"content": "x" * (MAX_LINE - 200), "usage": [0] * 5})

    assert encode_lines(long) == NotRecordable(
        "The run cannot be recorded: its file would have a line of more bytes, and no more than"
        " 16777216 are read of one"
    )
    assert isinstance(encode_lines(evolve(made, steps=(part,) * 5)), NotRecordable)


def test_an_answer_that_used_up_the_tokens_of_the_day_is_known() -> None:
    with Client(host("Read.")) as client:
        run_id = client.run("plain", "Read", session_id="s1")["run_id"]
        row = fetch_row(client, run_id)
        marks = run(client, iter(Transact("main", FetchMarks(row.owner, run_id))))
    output = {**json.loads(row.output or ""), "error_message": "Used up", "error_type": "budget"}
    ended = evolve(row, status="ERROR", output=json.dumps(output))
    made = build_recording(StoredRun(ended, marks=marks))

    assert isinstance(made, Recording)
    assert outcomes(made)["1"]["content"] == "Read."
    assert (made.end, made.output["error_message"]) == ("ERROR", "Used up")


def test_a_step_of_another_release_is_said_to_be_one() -> None:
    with Client(host(call("count", by=1), "Done.")) as client:
        run_id = client.run("shop", "Go", session_id="s1")["run_id"]
        row = fetch_row(client, run_id)
        steps = run(client, iter(Transact("main", FetchSteps(row.owner, run_id))))
        start = [evolve(step, outcome='{"f":9}') for step in steps if step.place == "0"]
        program = fetch_recording("main", row)
        next(program)
        with pytest.raises(StopIteration) as stopped:
            program.send(tuple(start))

    later = NotRecordable("The run cannot be recorded: a later release stored its steps")
    assert stopped.value.value == later


def test_a_run_has_no_more_steps_than_a_reader_takes() -> None:
    with Client(host(call("count", by=1), "Done.")) as client:
        row = fetch_row(client, client.run("shop", "Go", session_id="s1")["run_id"])
    usage = '{"f":1,"usage":[0,0,0,0,0]}'
    steps = tuple(
        Step(str(number), "model", "gpt", 1, 2, usage) for number in range(1, MAX_STEPS + 2)
    )

    assert build_recording(StoredRun(row, steps)) == NotRecordable(
        f"The run cannot be recorded: its file would have {MAX_STEPS + 1} steps, and no more than"
        f" {MAX_STEPS} are read of one"
    )


def test_a_run_whose_answers_are_fewer_than_its_requests_kept_no_steps() -> None:
    with Client(host(call("count", by=1), call("count", by=1), "Done.")) as client:
        run_id = client.run("shop", "Go", session_id="s1")["run_id"]
        row = fetch_row(client, run_id)
        marks = run(client, iter(Transact("main", FetchMarks(row.owner, run_id))))
        steps = run(client, iter(Transact("main", FetchSteps(row.owner, run_id))))
    output: dict[str, Any] = {**json.loads(row.output or ""), "tools": []}
    bare = evolve(row, output=json.dumps(output))
    start = tuple(step for step in steps if step.place == "0")
    second = (Step("2", "model", "gpt", 1, 2, '{"f":1,"usage":[0,0,0,0,0]}'),)

    for kept in ((), start, second):
        assert build_recording(StoredRun(bare, kept, definitions=DEFINED, marks=marks)) == (
            NotRecordable(NO_STEPS)
        )


def test_a_call_that_a_release_without_answers_carried_out_was_confirmed() -> None:
    with Client(host(call("book", room=1), call("book", room="x"), "Done.")) as client:
        paused = client.run("shop", "Book", session_id="s1")
        client.go_on(paused, confirmed=True)
        row = fetch_row(client, paused["run_id"])
        marks = run(client, iter(Transact("main", FetchMarks(row.owner, row.run_id))))
        steps = run(client, iter(Transact("main", FetchSteps(row.owner, row.run_id))))
    told = tuple(one for one in marks if one.name != "RunContinued")
    made = build_recording(StoredRun(row, steps, definitions=DEFINED, marks=told))

    assert isinstance(made, Recording)
    assert made.steps[2].decision == {"confirmed": True}


def test_a_call_that_was_confirmed_and_not_begun_has_the_decision() -> None:
    with Client(host(call("book", room=1), "Done.")) as client:
        paused = client.run("shop", "Book", session_id="s1")
        client.go_on(paused, confirmed=True)
        row = fetch_row(client, paused["run_id"])
        marks = run(client, iter(Transact("main", FetchMarks(row.owner, row.run_id))))
        steps = run(client, iter(Transact("main", FetchSteps(row.owner, row.run_id))))
    begun = tuple(step for step in steps if step.place in ("0", "1"))
    cancelled = evolve(row, status="CANCELLED")
    known = tuple(one for one in marks if not one.name.startswith("ModelRequest"))
    made = build_recording(StoredRun(cancelled, begun, definitions=DEFINED, marks=known))

    assert isinstance(made, Recording)
    assert places(made) == ["0 start", "1 model", "1.1 call"]
    assert (made.steps[2].outcome, made.steps[2].decision) == (None, {"confirmed": True})


def test_a_member_that_is_asked_twice_has_one_definition() -> None:
    member = ("Yes.", "No.")
    with Client(host([ask("clerk"), ask("clerk")], "Done.", member=member)) as client:
        done = client.run_team("desk", "Go", session_id="s1")
        made = record(client, done["run_id"])

    assert [one.component for one in made.definitions] == ["desk", "clerk"]


def test_a_run_in_which_a_node_died_is_recorded_as_it_ended() -> None:
    with Client(lambda: host("Hi.", call("count", by=1), "Done.")) as client:
        client.run("plain", "Hello", session_id="s1")
        form = {"message": "Go", "stream": False, "background": True}
        run_id = client.post("/agents/shop/runs", form=form).json()["run_id"]
        client.restart()
        client.advance(120)
        first = record(client, run_id)
        client.restart()

        assert record(client, run_id) == first


class _Defined(dict[str, str]):
    """Has a document for every digest."""

    def __missing__(self, digest: str) -> str:
        return "{}"


DEFINED: Final = _Defined()


# --- Forks ---------------------------------------------------------------------------------------


def post(client: Client, target: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = client.post(target, json=body)
    assert answer.status == status, answer.json()
    made: dict[str, Any] = answer.json()
    return made


@pytest.mark.parametrize("at", ["1", "1.1", "2", None])
def test_fork_is_recorded_with_the_answers_of_the_run_that_it_is_a_fork_of(at: str | None) -> None:
    def answer(prompt: Prompt) -> Any:
        read = sum(message.role == "tool" for message in prompt.messages)
        return (call("count", by=1), call("count", by=2), "Done.")[read]

    with Client(host(*[answer] * 9)) as client:
        first = client.run("shop", "Count")
        target = f"/agents/shop/runs/{first['run_id']}/fork"
        fork = post(client, target, at=at, stream=False)
        original, copy = (record(client, one["run_id"]) for one in (first, fork))

    assert places(copy) == places(original)
    assert copy.steps[-1].outcome == original.steps[-1].outcome
    assert copy.end == original.end
    if at in ("1.1", "2"):  # elsewhere the model was asked anew
        assert outcomes(copy)["1"] == outcomes(original)["1"]


def test_fork_behind_members_and_a_copied_run_name_the_run_to_record() -> None:
    script = (ask("clerk"), "Done.", "Again.", "Hello.")
    with Client(host(*script)) as client:
        first = client.run_team("desk", "Go", session_id="s1")
        fork = post(client, f"/teams/desk/runs/{first['run_id']}/fork", at="2", stream=False)
        client.run("plain", "Hi", session_id="s2")
        copy = post(client, "/sessions/s2/fork", status=201)
        runs = client.get(f"/sessions/{copy['session_id']}/runs").json()
        refused = [
            run(client, fetch_recording("main", fetch_row(client, run_id)))
            for run_id in (fork["run_id"], runs[0]["run_id"])
        ]

    assert all(isinstance(one, NotRecordable) for one in refused)
    assert refused[0].detail.endswith(f"record {first['run_id']}")
    assert "a copy in a fork of a session" in refused[1].detail
