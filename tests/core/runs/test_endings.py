"""Every run that fails says why to programs, and under which number the log says more."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from legation import Agent, Platform, Team, ToolError
from legation.models.chat_completions import ChatCompletions
from legation.models.conversation import ModelFailed
from legation.models.trouble import Trouble
from legation_testing import Chunks, Client, ScriptedModel, call


def look(city: str) -> str:
    """Look at a city."""
    return city


def burst(message: str) -> str:
    raise KeyError(message)


def refuse(message: str) -> str:
    raise ToolError("No rooms are left")


def by_model(*script: Any) -> Agent:
    return Agent(id="clerk", model=ScriptedModel(list(script)), tools=[look], max_rounds=2)


FAILING = {
    "model_timeout": lambda: by_model(ModelFailed("timeout", "The model took too long")),
    "max_rounds": lambda: by_model(*[call("look", city="Oslo")] * 3),
    "run_failed": lambda: Agent(id="clerk", run=burst),
}


@pytest.mark.parametrize("reason", FAILING)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "waited for"])
def test_a_run_that_fails_names_its_error_type_and_an_incident(
    reason: str, *, stream: bool
) -> None:
    with Client(Platform(agents=[FAILING[reason]()]), raise_errors=False) as client:
        form = {"message": "x", "stream": stream, "session_id": "s"}
        answer = client.post("/agents/clerk/runs", form=form)
        (listed,) = client.get("/sessions/s/runs").json()
        run = client.get(f"/agents/clerk/runs/{listed['run_id']}?session_id=s").json()
        (item,) = client.get("/agents/clerk/runs?session_id=s").json()
        events = client.get(f"/agents/clerk/runs/{run['run_id']}/events").events()
        (logged,) = [dict(log.fields) for log in client.logs if log.event == "run_failed"]

    last = answer.events()[-1].json() if stream else answer.json()
    wanted = (reason, run["incident"])
    shown = (last, listed, run, item, json.loads(events[-1].data), logged)
    assert [(one["error_type"], one["incident"]) for one in shown] == [wanted] * len(shown)
    assert len(run["incident"]) == 16
    assert logged["run_id"] == run["run_id"]


def test_incident_of_a_bug_is_the_one_of_its_sentence() -> None:
    with Client(Platform(agents=[FAILING["run_failed"]()]), raise_errors=False) as client:
        run = client.run("clerk", "x")

        assert run["incident"] in run["content"]
        (log,) = [log for log in client.logs if log.event == "run_failed"]
        assert (log.level, dict(log.fields)["error"]) == (
            "error",
            f"KeyError in burst:{burst.__code__.co_firstlineno + 1}",
        )


def test_run_that_calls_asyncio_where_it_has_no_loop_has_a_hint_in_the_log() -> None:
    def wake(message: str) -> str:
        raise RuntimeError("no running event loop")

    with Client(Platform(agents=[Agent(id="clerk", run=wake)]), raise_errors=False) as client:
        client.run("clerk", "x")
        (log,) = [log for log in client.logs if log.event == "run_failed"]

    assert "use anyio in place of asyncio" in str(dict(log.fields)["hint"])


def test_sentence_of_the_author_is_the_content_and_no_bug() -> None:
    with Client(Platform(agents=[Agent(id="clerk", run=refuse)])) as client:
        run = client.run("clerk", "x")
        (log,) = [log for log in client.logs if log.event == "run_failed"]

    assert (run["content"], run["error_type"]) == ("No rooms are left", "run_failed")
    assert (log.level, dict(log.fields)["incident"]) == ("warning", run["incident"])


def test_runs_that_do_not_fail_have_neither() -> None:
    with Client(Platform(agents=[by_model("Yes.")])) as client:
        run = client.run("clerk", "x", session_id="s")
        (listed,) = client.get("/sessions/s/runs").json()

    assert not {"error_type", "incident"} & {*run, *listed}


@pytest.mark.parametrize(
    ("member", "reason"),
    [(FAILING["run_failed"], "run_failed"), (FAILING["max_rounds"], "max_rounds")],
)
def test_member_that_fails_has_an_incident_of_its_own(
    member: Callable[[], Agent], reason: str
) -> None:
    task = call("delegate_task_to_member", member_id="clerk", task="Look.")
    team = Team(id="desk", model=ScriptedModel([task, "Sorry."]), members=["clerk"])
    with Client(Platform(agents=[member()], teams=[team]), raise_errors=False) as client:
        run = client.run_team("desk", "x", session_id="s")
        (response,) = run["member_responses"]
        path = f"/agents/clerk/runs/{response['run_id']}?session_id=s"
        stored = client.get(path).json()
        (logged,) = [dict(log.fields) for log in client.logs if log.event == "run_failed"]

    assert run["status"] == "COMPLETED"
    assert "incident" not in run
    assert (response["error_type"], stored["error_type"]) == (reason, reason)
    assert response["incident"] == stored["incident"] == logged["incident"]
    assert logged["run_id"] == response["run_id"]


def test_words_of_the_provider_stand_under_the_incident_and_nowhere_else() -> None:
    refused = Trouble("rejected", status=400, error={"code": "bad_schema", "message": "tools[0]"})
    refused.quote(())
    with Client(Platform(agents=[by_model(refused)])) as client:
        run = client.run("clerk", "x", session_id="s")
        (logged,) = [dict(log.fields) for log in client.logs if log.event == "run_failed"]
        events = client.get(f"/agents/clerk/runs/{run['run_id']}/events").text

    assert (logged["incident"], logged["error_type"]) == (run["incident"], "model_rejected")
    words = (logged["status"], logged["code"], logged["message"])
    assert words == (400, "bad_schema", "tools[0]")
    assert "bad_schema" not in f"{run}{events}"


KEY = "sk-proj-abcdefghijklmnop"


@pytest.mark.parametrize("length", [10, 100_000], ids=["short", "longer than is read"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "waited for"])
def test_key_that_a_provider_repeats_is_nowhere(length: int, *, stream: bool) -> None:
    said = f"Incorrect API key provided: {KEY}. Headers: Bearer {KEY[:15]}\x1b[2J" + "x" * length
    body = json.dumps({"error": {"code": "invalid_api_key", "message": said}}).encode()
    refusal = Chunks(401, {"content-type": "application/json"}, (body,))
    model = ChatCompletions(id="gpt", api_key=KEY)
    platform = Platform(agents=[Agent(id="clerk", model=model)])
    with Client(platform, fetch=lambda _: refusal) as client:
        form = {"message": "x", "stream": stream, "session_id": "s"}
        answer = client.post("/agents/clerk/runs", form=form).text
        shown = client.get("/sessions/s/runs").text
        lines = [log for log in client.logs if log.event in ("model_failed", "run_failed")]

    assert [dict(line.fields)["status"] for line in lines] == [401, 401]
    messages = {str(dict(line.fields)["message"]) for line in lines}
    assert len(messages) == 1
    assert "Incorrect API key provided: [redacted]" in messages.pop()
    assert "abcdefgh" not in f"{lines}{answer}{shown}"
    assert "Incorrect" not in f"{answer}{shown}"
