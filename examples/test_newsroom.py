"""The team of newsroom.py under test."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from newsroom import platform

from legation import Platform
from legation_testing import Client, crash_everywhere

LEASE_SECONDS = 30
"""How long a node may be silent before its work is taken over."""

REPORTERS = ("weather", "traffic", "sports")


@pytest.fixture
def client() -> Generator[Client]:
    """The platform as it is served."""
    with Client(platform) as client:
        yield client


def ask(client: Client, message: str, *, stream: bool = False) -> Any:
    """Ask the team in one session."""
    form = {"message": message, "session_id": "first", "stream": stream}
    response = client.post("/teams/front-page/runs", form=form).expect_success()
    return response.events() if stream else response.json()


def reports(client: Client) -> list[Any]:
    """Return what each reporter did: runs of their own, under that of the team."""
    query = {"session_id": "first"}
    runs = (client.get(f"/agents/{name}/runs", query=query).json() for name in REPORTERS)
    return [run for of_one in runs for run in of_one]


def test_editor_has_heard_everybody(client: Client) -> None:
    run = ask(client, "What is new in Oslo?")

    assert run["content"] == (
        "Oslo: rain by noon. Oslo: the bridge is closed. Oslo: Vålerenga won."
    )
    assert [report["content"] for report in run["member_responses"]] == [
        "Oslo: rain by noon.",
        "Oslo: the bridge is closed.",
        "Oslo: Vålerenga won.",
    ]


def test_reporter_who_fails_is_the_editors_concern(client: Client) -> None:
    run = ask(client, "What is new in Bergen?")

    assert run["status"] == "COMPLETED"
    assert run["content"].endswith("We have nobody there.")
    assert [report["status"] for report in reports(client)] == ["COMPLETED", "COMPLETED", "ERROR"]


def test_pieces_of_every_reporter_can_be_followed(client: Client) -> None:
    events = [json.loads(event.data) for event in ask(client, "What is new in Oslo?", stream=True)]

    pieces = [
        event["content"]
        for event in events
        if event["event"] == "RunContent" and event["agent_id"] == "traffic"
    ]
    assert pieces == ["Oslo: ", "the bridge ", "is closed."]
    assert events[-1]["event"] == "TeamRunCompleted"


def test_conversation_is_that_of_the_team_alone(client: Client) -> None:
    ask(client, "What is new in Oslo?")

    (run,) = client.get("/sessions/first/runs", query={"type": "team"}).json()
    assert run["run_input"] == "What is new in Oslo?"
    assert {report["parent_run_id"] for report in reports(client)} == {run["run_id"]}


def test_no_reporter_is_left_at_work_whenever_the_process_dies() -> None:
    def make_platform() -> Platform:
        return Platform.from_config(platform.config)

    def act(client: Client) -> None:
        ask(client, "What is new in Oslo?")

    def check(client: Client) -> None:
        client.advance(2 * LEASE_SECONDS)
        assert {report["status"] for report in reports(client)} <= {"COMPLETED", "ERROR"}
        assert ask(client, "And in Oslo?")["status"] == "COMPLETED"

    crash_everywhere(lambda: Client(make_platform), act, check)
