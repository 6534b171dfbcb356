"""Calls whose outcome a crash took away: through the whole platform, on two databases.

The tool is called; the batch that would store what came of it is lost with the lease of its node.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import pytest
from attrs import define, field

from legation import Agent, Platform, Team, tool
from legation.config import InDoubt
from legation.models.conversation import Prompt
from legation.runs.team_turn import DELEGATE
from legation.store.runs import AppendEvents, Ended, FinishRun
from legation_testing import Client, ScriptedModel, call

from ...providers import deliveries
from ...providers.strict import WhatsAppApi
from ...two_databases import IN_MEMORY

NOT_KNOWN: Final = "The call was interrupted, and whether it was carried out is not known"
LEASE_SECONDS: Final = 40


def repeat(prompt: Prompt) -> str:
    """Answer with what tools said."""
    return "Heard: " + " | ".join(m.content for m in prompt.messages if m.role == "tool")


@define
class Desk:
    """An agent `desk` in a database, whose model wants `wants`, and the calls of its tools."""

    database: str = "second"
    wants: str = "book"
    settings: Mapping[str, Any] = field(factory=dict[str, Any])
    called: list[str] = field(factory=list[str])

    def platform(self) -> Platform:
        called = self.called

        @tool
        def book(room: int) -> str:
            """Book a room."""
            called.append(f"book {room}")
            return f"room {room} is booked"

        @tool(requires_confirmation=True)
        def delete(room: int) -> str:
            """Delete a room."""
            called.append(f"delete {room}")
            return f"room {room} is gone"

        @tool(again="safe")
        def look(room: int) -> str:
            """Look a room up."""
            called.append(f"look {room}")
            return f"room {room} is free"

        @tool(again="key")
        def charge(room: int, idempotency_key: str) -> str:
            """Charge for a room."""
            called.append(idempotency_key)
            return f"room {room} is paid"

        tools = (book, delete, look, charge)
        wants: list[Any] = [call(self.wants, room=7), repeat] * 4
        common: dict[str, Any] = {"tools": tools, "database": self.database}
        desk = Agent(id="desk", model=ScriptedModel(wants), **common, **self.settings)
        asks: list[Any] = [call(DELEGATE, member_id="desk", task="x"), repeat]
        team = Team(id="team", model=ScriptedModel(asks), members=["desk"], database=self.database)
        return Platform(databases=IN_MEMORY, agents=[desk], teams=[team])


@pytest.fixture(params=["main", "second"])
def desk(request: pytest.FixtureRequest) -> Desk:
    return Desk(request.param)


def interrupted(client: Client, path: str = "/agents/desk/runs", **form: Any) -> dict[str, Any]:
    """Return a run whose first call was made, and whose outcome was lost, as it then stands."""
    before = 2 if path.startswith("/teams") else 1  # what stores that it is asked, or called
    client.fail_at(AppendEvents, None, skip=before)
    return go_until_it_waits(client, path, **form)


def go_until_it_waits(client: Client, path: str, **form: Any) -> dict[str, Any]:
    """Return a run whose node lost its lease on the way, as another leaves it."""
    asked = {"message": "go", "stream": False, "session_id": "s", **form}
    exchange = client.begin("POST", path, form=asked)
    client.settle()
    client.advance(LEASE_SECONDS)
    run: dict[str, Any] = exchange.response().json()
    return run


def send(client: Client, run: Mapping[str, Any], items: Any, name: str = "tools") -> Any:
    kind = "agents/desk" if "agent_id" in run else "teams/team"
    form = {name: json.dumps(items), "stream": False}
    return client.post(f"/{kind}/runs/{run['run_id']}/continue", form=form)


def shown(run: Mapping[str, Any], **answer: Any) -> list[dict[str, Any]]:
    return [{**one["tool_execution"], **answer} for one in run["requirements"]]


def test_person_is_asked_about_a_call_that_must_not_be_made_twice(desk: Desk) -> None:
    with Client(desk.platform) as client:
        run = interrupted(client)
        (requirement,) = run["requirements"]

    assert (run["status"], desk.called) == ("PAUSED", ["book 7"])
    assert run["content"] == (
        "I have tools to execute, but it is not known whether book was carried out,"
        " and I need confirmation."
    )
    asked = requirement["tool_execution"]
    assert (asked["in_doubt"], asked["requires_confirmation"]) == (True, True)
    assert (asked["confirmed"], asked["result"]) == (None, None)


ANSWERS: Final[Mapping[str, tuple[dict[str, Any], int, str]]] = {
    # the answer, how often the tool is called in all, and what the model reads
    "again": ({"confirmed": True}, 2, "room 7 is booked"),
    "left": ({"confirmed": False}, 1, NOT_KNOWN),
    "left with a note": (
        {"confirmed": False, "confirmation_note": "it was not"},
        1,
        f"{NOT_KNOWN}: it was not",
    ),
    "over": ({"result": "booked as 12"}, 1, "booked as 12"),
    "over, and agreed to": ({"result": {"number": 12}, "confirmed": True}, 1, '{"number":12}'),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_of_the_person_is_what_becomes_of_the_call(desk: Desk, answer: str) -> None:
    decision, times, heard = ANSWERS[answer]
    with Client(desk.platform) as client:
        run = interrupted(client)
        done = send(client, run, shown(run, **decision)).json()

    assert (done["status"], done["content"]) == ("COMPLETED", f"Heard: {heard}")
    assert desk.called == ["book 7"] * times
    assert done["tools"][0]["result"] == heard
    assert "in_doubt" not in done["tools"][0]


def test_requirement_with_a_result_answers_a_doubt(desk: Desk) -> None:
    with Client(desk.platform) as client:
        run = interrupted(client)
        items = [{**one, "external_execution_result": "booked"} for one in run["requirements"]]
        done = send(client, run, items, "requirements").json()

    assert (done["content"], desk.called) == ("Heard: booked", ["book 7"])


def test_no_answer_at_all_leaves_the_call(desk: Desk) -> None:
    with Client(desk.platform) as client:
        run = interrupted(client)
        done = send(client, run, []).json()

    assert (done["content"], desk.called) == (f"Heard: {NOT_KNOWN}", ["book 7"])


@pytest.mark.parametrize(
    "answer",
    [{}, {"confirmed": True, "tool_args": {"room": 8}}, {"confirmed": True, "in_doubt": "yes"}],
)
def test_wrong_answer_leaves_the_doubt_as_it_is(desk: Desk, answer: dict[str, Any]) -> None:
    with Client(desk.platform) as client:
        run = interrupted(client)
        refused = send(client, run, shown(run, **answer))
        after = client.get(f"/agents/desk/runs/{run['run_id']}").json()

    assert refused.status in (400, 422)
    assert (after, desk.called) == (run, ["book 7"])


def test_confirmation_that_is_sent_once_more_makes_no_second_call(desk: Desk) -> None:
    """The node goes away while it does what was confirmed; the client sends the same again."""
    desk.wants = "delete"
    with Client(desk.platform) as client:
        form = {"message": "go", "stream": False, "session_id": "s"}
        run = client.post("/agents/desk/runs", form=form).json()
        confirmation = shown(run, confirmed=True)
        client.fail_at(AppendEvents, None, skip=1)
        form = {"tools": json.dumps(confirmation), "stream": False}
        going = client.begin("POST", f"/agents/desk/runs/{run['run_id']}/continue", form=form)
        client.settle()
        client.advance(LEASE_SECONDS)
        doubtful = going.response().json()
        assert (doubtful["status"], desk.called) == ("PAUSED", ["delete 7"])
        assert doubtful["tools"][0]["confirmed"] is None
        again = send(client, run, confirmation)
        assert (again.status, desk.called) == (422, ["delete 7"])
        assert "may have been carried out" in again.text
        done = send(client, run, shown(doubtful, confirmed=True)).json()

    assert (done["status"], desk.called) == ("COMPLETED", ["delete 7"] * 2)


def test_call_that_is_in_doubt_twice_is_asked_about_twice(desk: Desk) -> None:
    with Client(desk.platform) as client:
        run = interrupted(client)
        client.fail_at(AppendEvents, None, skip=1)
        form = {"tools": json.dumps(shown(run, confirmed=True)), "stream": False}
        going = client.begin("POST", f"/agents/desk/runs/{run['run_id']}/continue", form=form)
        client.settle()
        client.advance(LEASE_SECONDS)
        second = going.response().json()
        assert (second["status"], desk.called) == ("PAUSED", ["book 7"] * 2)
        assert send(client, run, [{"tool_call_id": "call-1", "confirmed": True}]).status == 422
        done = send(client, run, shown(second, result="booked twice")).json()

    assert (done["content"], desk.called) == ("Heard: booked twice", ["book 7"] * 2)


def test_tool_that_may_be_called_again_is_called_again(desk: Desk) -> None:
    desk.wants = "look"
    with Client(desk.platform) as client:
        run = interrupted(client)

    assert (run["status"], desk.called) == ("COMPLETED", ["look 7"] * 2)


def test_key_is_the_same_before_and_after_a_crash(desk: Desk) -> None:
    desk.wants = "charge"
    with Client(desk.platform) as client:
        run = interrupted(client)

    assert (run["status"], run["content"]) == ("COMPLETED", "Heard: room 7 is paid")
    assert desk.called == [f"{run['run_id']}:1.1"] * 2


def test_agent_may_say_that_the_model_is_told(desk: Desk) -> None:
    desk.settings = {"in_doubt": "tell"}
    with Client(desk.platform) as client:
        run = interrupted(client)

    assert (run["status"], run["content"]) == ("COMPLETED", f"Heard: {NOT_KNOWN}")
    assert (desk.called, run["tools"][0]["tool_call_error"]) == (["book 7"], True)


def test_agent_may_say_that_the_run_ends(desk: Desk) -> None:
    desk.settings = {"in_doubt": "end"}
    with Client(desk.platform) as client:
        run = interrupted(client)

    assert (run["status"], desk.called) == ("ERROR", ["book 7"])
    assert "whether book was carried out is not known" in run["content"]


def test_doubt_of_a_member_is_answered_at_the_top(desk: Desk) -> None:
    with Client(desk.platform) as client:
        run = interrupted(client, "/teams/team/runs")
        (requirement,) = run["requirements"]
        assert requirement["tool_execution"]["in_doubt"] is True
        items = shown(run, confirmed=True, member_run_id=requirement["member_run_id"])
        done = send(client, run, items).json()

    assert done["content"] == "Heard: Heard: room 7 is booked"
    assert desk.called == ["book 7"] * 2


def test_key_of_a_member_is_the_same_before_and_after_a_crash(desk: Desk) -> None:
    desk.wants = "charge"
    with Client(desk.platform) as client:
        run = interrupted(client, "/teams/team/runs")

    assert run["status"] == "COMPLETED"
    assert desk.called == [f"{run['run_id']}:1.1/1.1"] * 2


# --- Who decides ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_doubt", "status"),
    [(None, "PAUSED"), ("ask", "PAUSED"), ("tell", "COMPLETED"), ("end", "ERROR")],
)
def test_team_decides_of_its_own_tools(in_doubt: InDoubt | None, status: str) -> None:
    called: list[int] = []

    def book(room: int) -> str:
        """Book a room."""
        called.append(room)
        return "booked"

    def platform() -> Platform:
        member = Agent(id="desk", in_doubt="end")
        wants: list[Any] = [call("book", room=7), repeat]
        model = ScriptedModel(wants)
        members, tools = ["desk"], [book]
        team = Team(id="team", model=model, members=members, tools=tools, in_doubt=in_doubt)
        return Platform(databases=IN_MEMORY, agents=[member], teams=[team])

    with Client(platform) as client:
        client.fail_at(AppendEvents, None, skip=1)
        run = go_until_it_waits(client, "/teams/team/runs")

    assert (run["status"], called) == (status, [7])


@pytest.mark.parametrize("in_doubt", [None, "ask"])
def test_nobody_is_asked_in_a_channel_unless_the_agent_says_so(in_doubt: InDoubt | None) -> None:
    provider, called = WhatsAppApi(), list[int]()

    def book(room: int) -> str:
        """Book a room."""
        called.append(room)
        return "booked"

    def platform() -> Platform:
        wants: list[Any] = [call("book", room=7), repeat]
        agent = Agent(id="concierge", model=ScriptedModel(wants), tools=[book], in_doubt=in_doubt)
        return deliveries.platform(agents=[agent])

    with Client(platform, fetch=provider) as client:
        client.fail_at(AppendEvents, None, skip=1)
        sent = deliveries.whatsapp(("4911", "m", "a room"))
        client.post(sent.target, headers=sent.headers, body=sent.body)
        client.advance(2 * LEASE_SECONDS)

    asked = "it is not known whether book was carried out, and I need confirmation."
    (said,) = (message.text for message in provider.seen)
    assert (said == f"Heard: {NOT_KNOWN}", said.endswith(asked)) == (not in_doubt, bool(in_doubt))
    assert called == [7]


# --- A function that answers ---------------------------------------------------------------------


@define
class Functions:
    """An agent `desk` that is a function, and how often it was called."""

    settings: Mapping[str, Any]
    called: list[str] = field(factory=list[str])

    def platform(self) -> Platform:
        async def answer(message: str, run_id: str) -> AsyncIterator[str]:
            self.called.append(run_id)
            yield message
            yield "!"

        desk = Agent(id="desk", run=answer, database="second", **self.settings)
        return Platform(databases=IN_MEMORY, agents=[desk])


def unfinished(client: Client) -> dict[str, Any]:
    """Return a run whose function was called, and whose end was not stored, as it then stands."""
    client.fail_at(FinishRun, Ended(kept=False))
    return go_until_it_waits(client, "/agents/desk/runs")


def test_function_that_may_be_called_again_is_called_again() -> None:
    desk = Functions({"again": "safe"})
    with Client(desk.platform) as client:
        run = unfinished(client)

    assert (run["status"], run["content"]) == ("COMPLETED", "go!")
    assert desk.called == [run["run_id"]] * 2


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        ({"confirmed": True}, ("COMPLETED", "go!", 2)),
        ({"confirmed": False}, ("ERROR", NOT_KNOWN, 1)),
        ({"result": "gone"}, ("COMPLETED", "gone", 1)),
    ],
)
def test_person_is_asked_about_a_function(
    decision: dict[str, Any], outcome: tuple[str, str, int]
) -> None:
    desk = Functions({})
    with Client(desk.platform) as client:
        run = unfinished(client)
        assert (run["status"], len(desk.called)) == ("PAUSED", 1)
        assert "whether answer was carried out" in run["content"]
        done = send(client, run, shown(run, **decision)).json()

    assert (done["status"], done["content"], len(desk.called)) == outcome


def test_person_is_asked_again_where_the_second_call_of_a_function_is_lost_too() -> None:
    desk = Functions({})
    with Client(desk.platform) as client:
        first = unfinished(client)
        client.fail_at(FinishRun, Ended(kept=False))
        second = send(client, first, shown(first, confirmed=True)).json()

    assert (second["status"], len(desk.called)) == ("PAUSED", 2)


@pytest.mark.parametrize("in_doubt", ["tell", "end"])
def test_function_ends_where_nobody_is_asked(in_doubt: str) -> None:
    desk = Functions({"in_doubt": in_doubt})
    with Client(desk.platform) as client:
        run = unfinished(client)

    assert (run["status"], len(desk.called)) == ("ERROR", 1)
