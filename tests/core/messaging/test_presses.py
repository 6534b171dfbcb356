"""Presses of buttons as each provider sends them, from the question to the answer."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from legation import Agent, tool
from legation.effects import Fetch
from legation_testing import Client, Says, ScriptedModel, call

from ...providers.deliveries import Delivery, platform, slack, standard, telegram, whatsapp
from ...providers.presses import press
from ...providers.strict import (
    Provider,
    SlackApi,
    StandardReceiver,
    TelegramApi,
    WhatsAppApi,
    now_us,
)

SIGNED: dict[str, type[Provider]] = {
    "telegram": TelegramApi,
    "slack": SlackApi,
    "whatsapp": WhatsAppApi,
    "standard": StandardReceiver,
}
DECIDED = {
    "telegram": ["answerCallbackQuery", "editMessageText"],
    "slack": ["chat.update"],
    "whatsapp": list[str](),
    "standard": list[str](),
}
REFUSED = {"telegram": ["answerCallbackQuery"], "slack": ["chat.postEphemeral"]}


class Desk:
    """A booking desk that asks before it books, behind one kind of channel."""

    def __init__(self, kind: str, approve: str = "sender") -> None:
        self.kind, self.approve = kind, approve
        self.booked: list[str] = []
        self.provider = SIGNED[kind]()
        self.client = Client(self.platform, fetch=self.fetch, start_us=now_us())

    def fetch(self, asked: Fetch) -> Any:
        """Answer as the provider, which is asked who we are as well."""
        return self.provider(asked)

    def platform(self) -> Any:
        @tool(requires_confirmation=True)
        def book(room: str) -> str:
            """Book a room."""
            self.booked.append(room)
            return "number 7"

        script: list[Any] = [call("book", room="double <b> & `c`"), Says("Over.")]
        agent = Agent(id="concierge", model=ScriptedModel(script), tools=[book])
        channels = [
            evolve(one, approve=(self.approve,)) for one in platform(agents=[agent]).config.channels
        ]
        return platform(agents=[agent], channels=channels)

    def deliver(self, sent: Delivery) -> None:
        answer = self.client.post(sent.target, headers=sent.headers, body=sent.body)
        assert answer.status == 200
        self.client.advance(2)

    def ask(self) -> str:
        """Ask for a room; return the approval that the question is for."""
        now = self.client.clock.now_us
        words = "a room"
        match self.kind:
            case "telegram":
                self.deliver(telegram(4911, 7, words, now))
            case "slack":
                self.deliver(slack("U4911", "5.1", words, now))
            case "whatsapp":
                self.deliver(whatsapp(("4911", "a", words), now_us=now))
            case _:
                self.deliver(standard("4911", "a", words, now))
        return self.provider.seen[-1].buttons[0].removeprefix("approve:")

    def press(self, button: str, number: int, sender: str = "4911") -> None:
        self.deliver(press(self.kind, button, number, self.client.clock.now_us, sender))


@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize("kind", SIGNED)
def test_a_press_decides_once_and_the_person_gets_the_answer(kind: str, verb: str) -> None:
    desk = Desk(kind)
    with desk.client:
        approval = desk.ask()
        for number in (1, 1, 2, 3):
            desk.press(f"{verb}:{approval}", number)

        assert desk.booked == (["double <b> & `c`"] if verb == "approve" else [])
        assert [seen.text for seen in desk.provider.seen][1:] == ["Over."]
        acts = [act.method for act in desk.provider.acts]
        assert acts == DECIDED[kind] * 3  # of four, one was delivered again
        assert desk.provider.refused == []


@pytest.mark.parametrize("kind", SIGNED)
def test_a_press_of_another_person_decides_nothing_and_leaves_the_buttons(kind: str) -> None:
    desk = Desk(kind, approve="nobody-else")
    with desk.client:
        approval = desk.ask()
        desk.press(f"approve:{approval}", 1)

        assert desk.booked == []
        assert [act.method for act in desk.provider.acts] == REFUSED.get(kind, [])
        told = [str(act.content["text"]) for act in desk.provider.acts]
        told = told or [desk.provider.seen[-1].text]
        assert told == ["Somebody else has to answer this question."]
        assert desk.provider.refused == []


@pytest.mark.parametrize("kind", SIGNED)
def test_a_press_for_a_run_that_is_not_there_changes_nothing(kind: str) -> None:
    desk = Desk(kind)
    with desk.client:
        desk.ask()
        desk.press("approve:0198c5f2-7d3a-7b11-9a53-1c5d2f6a8e90.12", 1)

        assert desk.booked == []
        assert [act.method for act in desk.provider.acts] == REFUSED.get(kind, [])
        waiting = desk.client.get("/approvals?status=pending").json()["data"]
        assert len(waiting) == 1
