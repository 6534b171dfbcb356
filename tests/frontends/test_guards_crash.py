"""Guards of a platform: a crash at every effect, two callers, two databases, a large input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import define, field

from legation import (
    Agent,
    AskPerson,
    AuthorizationConfig,
    Database,
    Guard,
    Guarded,
    Judge,
    Length,
    Platform,
    Principal,
    Redact,
    Refuse,
    ToolAccess,
    tool,
)
from legation_testing import Client, Says, ScriptedModel, call, crash_everywhere
from legation_testing.scripted_model import Step

from ..callers import Issuer
from ..two_databases import IN_MEMORY
from .cluster_kit import NIGHTLY
from .hosted import hosted

pytestmark = pytest.mark.enumeration

LARGE = (1 << 20) - 100


@define(eq=False)
class Diary:
    """What happened in all processes of a trial, in order."""

    entries: list[str] = field(factory=list[str])


class Desk:
    """A platform whose agents have guards of every kind, in either database."""

    def __init__(self) -> None:
        self.diary = Diary()

    def make(self) -> Platform:
        note = self.diary.entries.append

        @tool
        def book(what: str) -> str:
            """Book."""
            note(f"book {what}")
            return f"{what} for ann@example.org"

        def greet(guarded: Guarded) -> str:
            note(f"greet {guarded.text}")
            return f"{guarded.text}, please"

        def check(guarded: Guarded) -> dict[str, Any] | Refuse:
            note(f"check {guarded.arguments['what']}")
            if guarded.arguments["what"] == "all":
                return Refuse("Not all of it.")
            return {"what": f"{guarded.arguments['what']}!"}

        def approve(guarded: Guarded) -> AskPerson | None:
            note(f"approve {guarded.text}")
            return AskPerson("It is final.") if guarded.text == "done" else None

        guards = (
            Length(100),
            Guard(before_run=greet, before_tool=check, after_model=approve),
            Judge(model="judge", instructions="Be fair.", of="input"),
            Redact(patterns="email", of="result"),
        )
        steps: list[Step] = [
            Says("", [call("book", what="all"), call("book", what="room")]),
            "done",
        ]
        models = [ScriptedModel(steps, by_prompt=True, id="desk")]
        return Platform(
            databases=IN_MEMORY,
            agents=[
                Agent(
                    id=name,
                    model=models[0],
                    tools=[book],
                    guards=[one if not isinstance(one, Judge) else self.judge() for one in guards],
                    database=database,
                    in_doubt="tell",
                )
                for name, database in (("a", "main"), ("b", "second"))
            ],
        )

    def judge(self) -> Judge:
        model = ScriptedModel(['{"allowed": true, "reason": ""}'], by_prompt=True, id="judge")
        return Judge(model=model, instructions="Be fair.", of="input")


@pytest.mark.parametrize("agent", ["a", "b"])
def test_a_crash_anywhere_repeats_no_guard_whose_step_is_stored(
    agent: str, figures: Callable[[str], None]
) -> None:
    desk = Desk()

    def make() -> Client:
        desk.diary.entries.clear()
        return Client(desk.make)

    def act(client: Client) -> None:
        run = client.run(agent, "hello", session_id="s")
        assert run["status"] == "PAUSED"
        client.go_on(run, confirmed=True)

    def check(client: Client) -> None:
        client.advance(45)
        for run in client.get(f"/agents/{agent}/runs?session_id=s").json():
            shown = client.get(f"/agents/{agent}/runs/{run['run_id']}?session_id=s").json()
            if shown["status"] == "PAUSED":
                client.go_on(shown, confirmed=True)
                client.advance(45)
                shown = client.get(f"/agents/{agent}/runs/{run['run_id']}?session_id=s").json()
            assert (shown["status"], shown["content"]) == ("COMPLETED", "done")
            told = [one["content"] for one in shown["messages"]]
            assert told[0] == "hello, please"
            assert told[2] == "Not all of it."
            assert "ann@" not in str(shown)
        entries = desk.diary.entries
        assert entries.count("book room!") <= 1
        assert "book all" not in entries
        if "book room!" in entries:
            begun = entries.index("book room!")
            assert "check room" not in entries[begun:]
            assert "greet hello" not in entries[begun:]

    trials = crash_everywhere(make, act, check, every=1 if NIGHTLY else 17)
    figures(f"guards, {agent}: a crash at each of {trials.points} effects")


def test_a_refusal_costs_no_model_call() -> None:
    model = ScriptedModel(["never"])
    platform = Platform(agents=[Agent(id="a", model=model, guards=[Length(5)])])

    with Client(platform) as client:
        run = client.run("a", "much too long")
        assert (run["status"], run["error_type"]) == ("ERROR", "guard_refused")
        assert run["content"] == (
            "The message is too long: it has 13 characters, and no more than 5 are allowed"
        )
        names = [event.name for event in client.stream("a", "much too long")]
        assert client.run("a", "brief")["content"] == "never"

    assert names == ["RunStarted", "PreHookStarted", "PreHookCompleted", "RunError"]


def test_two_callers_with_other_scopes_have_other_tools() -> None:
    @tool
    def refund() -> str:
        """Refund."""
        return "refunded"

    model = ScriptedModel([call("refund"), "done"], by_prompt=True)
    guard = ToolAccess(allow={"desk:refund": ["refund"]})
    platform = Platform(
        agents=[Agent(id="a", model=model, tools=[refund], guards=[guard], history_runs=0)],
        authorization=True,
        authorization_config=AuthorizationConfig(verification_keys=[Issuer().pem]),
    )
    results: list[str] = []
    for scopes in (["agents:run"], ["agents:run", "desk:refund"]):
        with Client(platform, caller=Principal("ann", scopes)) as client:
            results.append(client.run("a", "go")["tools"][0]["result"])

    assert results == ["The tool refund may not be called for this caller", "refunded"]


def test_a_large_message_is_redacted() -> None:
    guards = [Redact(patterns=("key", "email", "iban", "card", "phone"), of="input")]
    platform = Platform(agents=[Agent(id="a", model=ScriptedModel(["ok", "ok"]), guards=guards)])
    text = ("4111 1111 1111 1111 or " * (LARGE // 20))[:LARGE]

    with Client(platform) as client:
        run = client.run("a", text)
        assert run["status"] == "COMPLETED"
        assert "4111" not in run["messages"][0]["content"]


def test_guards_on_both_engines(second_database: str, tmp_path: Path) -> None:
    desk = Desk()
    made = desk.make()
    databases = (
        Database("main", f"sqlite:///{tmp_path}/main.db"),
        Database("second", second_database, auto_migrate=True),
    )
    platform = Platform(databases=databases, agents=made.config.agents)

    with hosted(platform) as base:
        for agent in ("a", "b"):
            form = {"message": "hello", "stream": "false", "session_id": "s"}
            run = httpx.post(f"{base}/agents/{agent}/runs", data=form).json()
            waiting = [one["tool_execution"] for one in run["requirements"]]
            assert waiting[0]["confirmation_reason"] == "It is final."
            tools = [{**one, "confirmed": True} for one in waiting]
            path = f"{base}/agents/{agent}/runs/{run['run_id']}/continue"
            going = {"tools": json.dumps(tools), "stream": "false", "session_id": "s"}
            assert httpx.post(path, data=going).json()["content"] == "done"
