"""The agent of booking.py under test: what it does, whom it asks, and a crash at every point."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest
from booking import book_room, booked, free_rooms, platform

from legation import Agent, Platform
from legation.effects import CallFunction, Raised
from legation_testing import Client, ScriptedModel, call, crash_everywhere

LEASE_SECONDS = 30
"""How long a node may be silent before its work is taken over."""

BLUE = "Please book the blue room for 2 nights"


@pytest.fixture(autouse=True)
def _clear_bookings() -> None:
    booked.clear()


@pytest.fixture
def client() -> Generator[Client]:
    """The platform as it is served, with its stand-in for a model."""
    with Client(platform) as client:
        yield client


def answer(client: Client, run: Any, **answered: Any) -> Any:
    """Answer what `run` waits for, and return the run as it went on."""
    tools = [{**needed["tool_execution"], **answered} for needed in run["requirements"]]
    path = f"/agents/desk/runs/{run['run_id']}/continue"
    form = {"tools": json.dumps(tools), "stream": False}
    return client.post(path, form=form).expect_success().json()


def test_looking_for_a_room_asks_nobody(client: Client) -> None:
    run = client.run("desk", "A room for 130 at most?")

    assert run["status"] == "COMPLETED"
    assert run["tools"][0]["tool_name"] == "free_rooms"
    assert json.loads(run["content"]) == {"blue": 90, "green": 120}


def test_person_sees_what_would_be_booked(client: Client) -> None:
    run = client.run("desk", BLUE)

    assert run["status"] == "PAUSED"
    (needed,) = run["requirements"]
    assert needed["tool_execution"]["tool_args"] == {"room": "blue", "nights": 2}
    assert booked == []


def test_room_is_booked_when_a_person_agrees(client: Client) -> None:
    run = answer(client, client.run("desk", BLUE), confirmed=True)

    assert run["content"] == "The blue room is yours for 2 nights: 180 in all."
    assert booked == ["blue for 2"]


def test_model_hears_why_a_person_refused(client: Client) -> None:
    refused = {"confirmed": False, "confirmation_note": "the guest has left"}
    run = answer(client, client.run("desk", BLUE), **refused)

    assert run["content"] == "Function call was rejected by the user: the guest has left"
    assert booked == []


def test_model_hears_of_a_room_that_there_is_not(client: Client) -> None:
    run = answer(client, client.run("desk", "Book the red room for 2 nights"), confirmed=True)

    assert run["content"] == "There is no room 'red'"
    assert run["tools"][0]["tool_call_error"] is True


def test_tool_that_fails_ends_neither_the_run_nor_the_session(client: Client) -> None:
    client.fail_at(CallFunction, Raised(OSError("the printer is on fire")))

    run = client.run("desk", "A room for 130 at most?")

    assert (run["status"], run["content"]) == ("COMPLETED", "The tool failed (OSError)")


def test_real_model_would_be_told_of_the_tools() -> None:
    model = ScriptedModel([call("free_rooms", most=100), "Take the blue one."])
    desk = Agent(id="desk", model=model, tools=[free_rooms, book_room])
    with Client(Platform(agents=[desk])) as client:
        assert client.run("desk", "Something cheap?")["content"] == "Take the blue one."

    first, second = model.prompts
    assert [spec.name for spec in first.tools] == ["free_rooms", "book_room"]
    assert first.tools[1].parameters["required"] == ["room", "nights"]
    assert json.loads(second.messages[-1].content) == {"blue": 90}


def test_clear_bookings_twice_whenever_the_process_dies() -> None:
    def make() -> Client:
        booked.clear()
        return Client(lambda: Platform.from_config(platform.config))

    def act(client: Client) -> None:
        answer(client, client.run("desk", BLUE, session_id="first"), confirmed=True)

    def check(client: Client) -> None:
        client.advance(2 * LEASE_SECONDS)
        runs = client.get("/agents/desk/runs", query={"session_id": "first"}).json()
        assert [run["status"] for run in runs] in ([], ["PAUSED"], ["COMPLETED"], ["ERROR"])
        assert len(booked) <= 1
        again = client.run("desk", "A room for 100?", session_id="first")
        assert again["status"] == "COMPLETED"

    crash_everywhere(make, act, check)
