"""Functions that say whose subject a sender is, and who answers: once for each message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from legation import Agent, Channel, Sender, tool
from legation.channels.deliveries import IncomingMessage
from legation.messaging.conversations import begin_with
from legation.store.failures import StatementFailed
from legation.store.inbox import KeepMessage
from legation.store.runs import StartRun
from legation_testing import Client, ScriptedModel, call

from ...providers.deliveries import platform
from ...providers.strict import WhatsAppApi
from .test_people import GROUP, OpenRoom, enter

__all__ = ["enter"]

LEGAL = {"agents": {"/legal": "lawyer", "/travel": "guide"}}
OTHERS = {
    "agents": [
        Agent(id="concierge"),
        Agent(id="lawyer", name="Lawyer"),
        Agent(id="guide", name="Guide"),
    ]
}


def _unit(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda effect: isinstance(getattr(effect, "unit", None), kind)


# --- subjects ----------------------------------------------------------------------------------


def test_a_function_says_whose_subject_a_sender_is(enter: OpenRoom) -> None:
    asked: list[Sender] = []

    def find(sender: Sender) -> str | None:
        asked.append(sender)
        return {"ada": "ada@example.com"}.get(sender.id)

    room = enter(subjects=find)
    room.hear("ada", "one", name="Ada")
    room.hear("bob", "two")
    room.hear("ada", "three", **GROUP, thread="t1")

    assert room.runs() == {
        ("ada@example.com", "standard:ada"): ["one"],
        ("~channel:standard:bob", "standard:bob"): ["two"],
        ("~channel:standard:ada", "standard:lobby:t1"): ["three"],
    }
    assert asked == [
        Sender(channel="standard", id="ada", name="Ada", conversation="ada"),
        Sender(channel="standard", id="bob", conversation="bob"),
        Sender(channel="standard", id="ada", conversation="lobby", thread="t1", in_group=True),
    ]
    assert [text for _, text in room.said] == ["one", "two", "three"]


def test_a_coroutine_function_may_say_it(enter: OpenRoom) -> None:
    async def find(sender: Sender) -> str | None:
        return sender.id.upper()

    room = enter(subjects=find)
    room.hear("ada", "one")

    assert [*room.runs()] == [("ADA", "standard:ada")]


def test_the_subject_of_a_message_is_decided_once(enter: OpenRoom) -> None:
    answers = ["first", "second", "third"]
    room = enter(subjects=lambda sender: answers.pop(0))
    room.client.fail_at(_unit(StartRun), StatementFailed("x"), times=1)
    room.hear("ada", "one")
    room.client.advance(10)

    assert [*room.runs()] == [("first", "standard:ada")]
    assert answers == ["second", "third"]
    assert room.said == [("ada", "one")]


def test_where_the_subject_could_not_be_stored_nothing_depends_on_it(enter: OpenRoom) -> None:
    answers = ["first", "second", "third"]
    room = enter(subjects=lambda sender: answers.pop(0))
    room.client.fail_at(_unit(KeepMessage), StatementFailed("x"), times=1)
    room.hear("ada", "one")
    room.client.advance(10)

    assert [*room.runs()] == [("second", "standard:ada")]


def test_who_opted_out_as_a_subject_is_heard_again_after_start(enter: OpenRoom) -> None:
    room = enter(subjects=lambda sender: "ada@example.com")
    for words in ("/stop", "lost", "/start", "hello"):
        room.hear("ada", words)

    assert [*room.runs().values()] == [["hello"]]


def test_the_list_of_messages_does_not_guess_the_owner(enter: OpenRoom) -> None:
    room = enter(subjects=lambda sender: "ada@example.com")
    room.hear("ada", "one")
    listed = room.client.get("/channels/standard/messages", query={"state": "done"}).json()

    assert [row["session_owner"] for row in listed["data"]] == [None]


def _name_ada(sender: Sender) -> str:
    return "ada@example.com"


def test_a_first_message_does_not_ask_when_the_person_wrote_last() -> None:
    made = Channel(
        id="whatsapp",
        kind="whatsapp",
        agent="concierge",
        app_secret_env="APP_SECRET",
        verify_token_env="VERIFY",
        access_token_env="ACCESS",
        phone_number_id="111",
        api_base_url="http://127.0.0.1:9/v22.0",
        subjects=_name_ada,
    )
    provider = WhatsAppApi()
    with Client(lambda: platform(channels=[made]), fetch=provider) as c:
        body = {"recipient": "4911", "text": "Your order is ready."}
        assert c.post("/channels/whatsapp/send", json=body).status == 202
        c.advance(1)

    assert [message.text for message in provider.seen] == ["Your order is ready."]


async def several(sender: Sender) -> Any:
    """Return an iterator, as a function that returns a generator."""
    return _pieces()


async def _pieces() -> AsyncIterator[str]:
    yield "ada"


def explode(sender: Sender) -> str:
    """Raise."""
    raise StatementFailed("mine")


TROUBLES: dict[str, tuple[Any, str | None]] = {
    "number": (lambda sender: 7, "it returned a value of the type int, and no text"),
    "own name": (lambda sender: "~channel:x", "it returned what is no subject of tokens"),
    "iterator": (several, "it returned a value of the type AsyncIterator, and no text"),
    "error": (explode, None),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_function_that_fails_makes_the_message_wait_and_then_an_apology(
    enter: OpenRoom, trouble: str
) -> None:
    function, why = TROUBLES[trouble]
    room = enter(subjects=function)
    room.hear("ada", "one")
    for _ in range(40):
        room.client.advance(2)
        room.client.clock.set_forward(300)
    logs = room.client.logs
    failed = [log for log in logs if log.event == "channel_function_failed"]

    # By the clock of the receiver's library it is signed too late.
    replies = room.client.get("/channels/standard/replies", query={"state": "dead"}).json()
    assert [reply["id"] for reply in replies["data"]] == ["apology-d-0001"]
    assert room.runs() == {}
    assert [dict(log.fields)["error"] for log in failed] == ([] if why is None else [why] * 20)
    assert len([log for log in logs if log.event == "message_failed"]) == 20
    assert len(room.client.take_errors()) > 0


def test_a_function_that_takes_too_long_is_a_failure(enter: OpenRoom) -> None:
    from legation.effects import CallFunction, TimedOut

    room = enter(subjects=lambda sender: "ada")
    room.client.fail_at(lambda effect: isinstance(effect, CallFunction), TimedOut(), times=1)
    room.hear("ada", "one")
    room.client.advance(10)
    failed = [log for log in room.client.logs if log.event == "channel_function_failed"]

    assert [dict(log.fields)["error"] for log in failed] == ["it took longer than 10 seconds"]
    assert [*room.runs()] == [("ada", "standard:ada")]


# --- a router ----------------------------------------------------------------------------------


def test_a_router_says_with_whom_a_conversation_goes_on(enter: OpenRoom) -> None:
    asked: list[tuple[str, str, str]] = []

    def route(sender: Sender, text: str, agent: str) -> str | None:
        asked.append((sender.id, text, agent))
        for word, name in (("law", "lawyer"), ("home", "concierge"), ("tour", "guide")):
            if word in text:
                return name
        return None

    room = enter(router=route, **LEGAL, configuration=OTHERS)
    for words in (
        "hello",
        "a law?",
        "and this?",
        "/travel where?",
        "home",
        "/new law!",
        "a tour",
        "/new",
    ):
        room.hear("ada", words)

    assert {session: asked for (_, session), asked in room.runs().items()} == {
        "standard:ada": ["hello"],
        "standard:ada!legal#d-0002": ["a law?", "and this?"],
        "standard:ada!travel#d-0004": ["where?"],
        "standard:ada#d-0005": ["home"],
        "standard:ada!legal#d-0006": ["law!"],
        "standard:ada!travel#d-0007": ["a tour"],
        "standard:ada#d-0008": [],
    }
    assert asked == [
        ("ada", "hello", "concierge"),
        ("ada", "a law?", "concierge"),
        ("ada", "and this?", "lawyer"),
        ("ada", "home", "guide"),
        ("ada", "law!", "concierge"),
        ("ada", "a tour", "lawyer"),
    ]
    assert room.said[-1][1] == "A new conversation begins. What can I do for you?"


def test_a_route_is_decided_once(enter: OpenRoom) -> None:
    answers: list[str | None] = ["lawyer", None, "guide"]
    room = enter(router=lambda: answers.pop(0), **LEGAL, configuration=OTHERS)
    room.client.fail_at(_unit(StartRun), StatementFailed("x"), times=1)
    room.hear("ada", "one")
    room.client.advance(10)
    room.hear("ada", "two")

    assert {session: asked for (_, session), asked in room.runs().items()} == {
        "standard:ada!legal#d-0001": ["one", "two"]
    }
    assert answers == ["guide"]


def test_a_word_that_decides_is_not_routed(enter: OpenRoom) -> None:
    asked: list[str] = []

    @tool(requires_confirmation=True)
    def book() -> str:
        """Book a room."""
        return "booked"

    def route(text: str) -> None:
        asked.append(text)

    model = ScriptedModel([call("book"), "Booked."])
    agents = [Agent(id="concierge", model=model, tools=[book]), *OTHERS["agents"][1:]]
    room = enter(router=route, approve="sender", **LEGAL, configuration={"agents": agents})
    room.hear("ada", "book")
    room.hear("ada", "yes")

    assert asked == ["book"]
    assert room.said[-1] == ("ada", "Booked.")


def test_a_router_that_names_nobody_of_the_channel_fails(enter: OpenRoom) -> None:
    room = enter(router=lambda: "eve", **LEGAL, configuration=OTHERS)
    room.hear("ada", "one")
    failed = [log for log in room.client.logs if log.event == "channel_function_failed"]

    why = "it returned the id of no agent of the channel; there are: concierge, guide, lawyer"
    assert dict(failed[0].fields) == {"channel": "standard", "option": "router", "error": why}
    assert room.runs() == {}
    room.client.take_errors()


def test_where_whom_a_router_chose_is_gone_the_conversation_goes_on() -> None:
    channel = platform(agents=OTHERS["agents"]).registry.channels["standard"]
    message = IncomingMessage("1", "ada", agent="somebody")

    assert begin_with(channel, message, "standard:ada", "words") is None
