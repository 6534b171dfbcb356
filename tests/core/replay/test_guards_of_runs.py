"""Runs with guards are recorded and taken once more: what the guards decided is played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from legation import Agent, AskPerson, Guard, Guarded, Length, Platform, Redact, Refuse, Team
from legation.replay.recording import BadRecording, Recording, read_recording
from legation.replay.redaction import redact
from legation.replay.replaying import ReplayOptions
from legation_testing import Client, Says, ScriptedModel, call
from legation_testing.scripted_model import Step

from ...recordings import encode, record, take_again

asked: list[str] = []


def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


def erase(what: str) -> str:
    """Erase."""
    return f"erased {what}"


def please(guarded: Guarded) -> str:
    asked.append(guarded.at)
    return f"{guarded.text}, please"


def tame(guarded: Guarded) -> Mapping[str, Any] | Refuse | AskPerson | None:
    asked.append(guarded.at)
    if guarded.tool == "erase":
        return Refuse("Nothing is erased.")
    if guarded.arguments["what"] == "dear":
        return AskPerson("It is dear.")
    return {"what": "it"}


def approve(guarded: Guarded) -> AskPerson | None:
    asked.append(guarded.at)
    return AskPerson("Look at it.") if guarded.text == "done" else None


GUARDS = (
    Guard(before_run=please, before_model=please, before_tool=tame, after_tool=please),
    Guard(after_model=approve),
    Redact(words="secret", of=("output", "result")),
)


def host(*, team: bool = False) -> Platform:
    script: list[Step] = [
        Says("a secret", [call("look", what="a"), call("erase", what="b")]),
        Says("", [call("look", what="dear")]),
        "done",
    ]
    task = call("delegate_task_to_member", member_id="a", task="go")
    return Platform(
        agents=[
            Agent(
                id="a",
                model=ScriptedModel(script, by_prompt=True),
                tools=[look, erase],
                guards=GUARDS,
            ),
            Agent(id="b", model=ScriptedModel(["far too long"]), guards=[Length(3, of="output")]),
            Agent(id="c", model=ScriptedModel([]), guards=[Length(1)]),
        ],
        teams=[Team(id="t", members=["a"], model=ScriptedModel([task, "all done"]))]
        if team
        else [],
    )


def play(*, team: bool = False) -> Recording:
    with Client(host(team=team)) as client:
        run = client.run_team("t", "go") if team else client.run("a", "go")
        while run["status"] == "PAUSED":
            run = client.go_on(run, confirmed=True)
        assert run["content"] == ("all done" if team else "done")
        return record(client, run)


@pytest.mark.parametrize("team", [False, True])
def test_a_run_with_guards_is_the_same_and_asks_none(team: bool) -> None:
    recording = play(team=team)
    asked.clear()

    replayed = take_again(recording, host(team=team))

    assert replayed.same, str(replayed)
    assert asked == []


def test_live_tools_have_their_guards() -> None:
    recording = play()
    asked.clear()

    replayed = take_again(recording, host(), ReplayOptions(live_tools=True))

    assert replayed.same, str(replayed)
    assert asked == ["after_tool", "after_tool"]


def test_a_redacted_recording_is_the_same() -> None:
    recording = play()
    hidden = redact(recording, ("input.message", "outcome.*", "arguments.*"))
    assert isinstance(hidden, Recording)

    assert "Nothing is erased" not in encode(hidden).decode()
    assert take_again(hidden, host()).same


def test_the_answer_of_a_member_that_is_the_teams_is_the_same() -> None:
    def make() -> Platform:
        task = call("delegate_task_to_member", member_id="m", task="go")
        guards = [Redact(words="secret")]
        return Platform(
            agents=[Agent(id="m", model=ScriptedModel(["a secret"]), guards=guards)],
            teams=[
                Team(
                    id="t",
                    mode="route",
                    members=["m"],
                    model=ScriptedModel([task]),
                    guards=[Redact(words="no such word")],
                )
            ],
        )

    with Client(make()) as client:
        recording = record(client, client.run_team("t", "go"))

    assert take_again(recording, make()).same


@pytest.mark.parametrize("agent", ["b", "c"])
def test_a_run_that_was_refused_ends_there_again(agent: str) -> None:
    with Client(host()) as client:
        run = client.run(agent, "go")
        assert (run["status"], run["error_type"]) == ("ERROR", "guard_refused")
        recording = record(client, run)

    assert take_again(recording, host()).same


@pytest.mark.parametrize(
    ("place", "name", "value", "words"),
    [
        ("1", "guards", [["before_tool", "x"]], "guards has one that is no verdict"),
        ("1", "guards", ["x"], "guards has one that is no verdict"),
        ("1", "guards", [["before_tool", "x", "asked", 0, "why"]], "no verdict"),
        ("0", "guards", [[1, 2, 3]], "guards has one that is no verdict"),
        ("0", "usage", [1], "usage is not five numbers"),
        ("0", "message", 1, "message is not text"),
        ("1", "prompt", 1, "prompt is not text"),
    ],
)
def test_a_file_with_other_verdicts_is_none(place: str, name: str, value: Any, words: str) -> None:
    lines = [json.loads(line) for line in encode(play()).decode().splitlines()]
    for line in lines:
        if line.get("place") == place:
            line["outcome"][name] = value

    read = read_recording("\n".join(map(json.dumps, lines)).encode())

    assert isinstance(read, BadRecording)
    assert words in read.detail


def test_a_verdict_about_a_call_that_is_not_there_is_passed_over() -> None:
    lines = [json.loads(line) for line in encode(play()).decode().splitlines()]
    for line in lines:
        if line.get("place") == "1":
            line["outcome"]["guards"].append(["before_tool", "x", "asked", 9, "why"])
        if line.get("place") == "0":
            line["outcome"]["usage"] = [1, 1, 0, 0, 0]

    read = read_recording("\n".join(map(json.dumps, lines)).encode())

    assert isinstance(read, Recording)
    assert take_again(read, host()).same


@pytest.mark.parametrize(("at", "moments"), [(None, 11), ("2", 5), ("3", 2)])
def test_a_fork_asks_no_guard_of_what_it_has_of_the_run(at: str | None, moments: int) -> None:
    with Client(host()) as client:
        run = client.run("a", "go")
        while run["status"] == "PAUSED":
            run = client.go_on(run, confirmed=True)
        asked.clear()
        path = f"/agents/a/runs/{run['run_id']}/fork"
        made = client.post(path, json={"at": at, "stream": False}).json()
        while made["status"] == "PAUSED":
            made = client.go_on(made, confirmed=True)

    assert made["messages"][0]["content"] == "go, please, please"
    assert made["messages"][0] == {**run["messages"][0], **_own(made)}
    assert len(asked) == moments
    assert ("before_run" in asked) is (at is None)


def _own(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is a run's own of its first message."""
    return {name: run["messages"][0][name] for name in ("id", "created_at")}
