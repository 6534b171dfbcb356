"""Paused runs of a channel, broken off at every effect: no decision is lost or taken twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import define, evolve, field

from legation import Agent, Platform
from legation.channels.deliveries import ContentKind, IncomingMessage, Press, encode_message
from legation.effects import Transact
from legation.models.conversation import Prompt
from legation.store.failures import CommitLost
from legation.store.inbox import NewMessage, PutMessages
from legation.store.run_steering import ContinueRun
from legation.store.runs import FinishRun
from legation.tools import tool
from legation_testing import Client, Says, ScriptedModel, call, crash_everywhere, fail_everywhere

from ..providers.deliveries import Delivery, platform, whatsapp
from ..providers.strict import WhatsAppApi
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.enumeration

EVERY: Final = 1 if NIGHTLY else 15
"""How many crash points the scenarios go on by: at night, one."""

WAYS: Final = ("word", "presses", "operator")


def _ask(prompt: Prompt) -> Any:
    """Return the next step of the desk: a call first, then a sentence about its result."""
    results = [message for message in prompt.messages if message.role == "tool"]
    return Says("It is booked.") if results else call("book", room="double")


@define
class Desk:
    """A booking desk that asks before it books; it is decided on in one of the `WAYS`."""

    way: str
    booked: list[str] = field(factory=list[str])
    provider: WhatsAppApi = field(factory=lambda: WhatsAppApi(honours_keys=True))

    def make(self) -> Client:
        self.booked, self.provider = [], WhatsAppApi(honours_keys=True)
        return Client(self.platform, fetch=self.fetch)

    @property
    def fetch(self) -> Any:
        """The network: the provider of the scenario that runs."""
        return self.provider

    def platform(self) -> Platform:
        @tool(requires_confirmation=True)
        def book(room: str) -> str:
            """Book a room."""
            self.booked.append(room)
            return "number 7"

        agents = [Agent(id="concierge", model=ScriptedModel([_ask] * 1_000), tools=[book])]
        channels = platform(agents=agents).config.channels
        asking = [evolve(one, approve=("sender",)) for one in channels]
        return platform(agents=agents, channels=asking)

    def deliver(self, c: Client, sent: Delivery) -> None:
        """Deliver as a provider does: what was not taken, again."""
        while c.post(sent.target, headers=sent.headers, body=sent.body).status != 200:
            c.advance(1)

    def act(self, c: Client) -> None:
        self.deliver(c, whatsapp(("4911", "a", "a double room")))
        c.advance(1)
        self.decide(c)
        c.advance(1)

    def check(self, c: Client) -> None:
        """Deliver again, as a provider does that got no 200, and look at what people got."""
        self.deliver(c, whatsapp(("4911", "a", "a double room")))
        c.advance(60)
        self.decide(c)
        c.advance(60)
        self.judge()

    def judge(self) -> None:
        assert len(self.booked) <= 1, "the tool was begun by two decisions"
        said = [message.text for message in self.provider.seen]
        assert "double" in said[0]
        assert Counter(said)["It is booked."] == 1, said
        assert set(Counter(self.provider.seen).values()) == {1}

    def waiting(self, c: Client) -> list[str]:
        found = c.get("/approvals?status=pending")
        while found.status != 200:
            c.advance(1)
            found = c.get("/approvals?status=pending")
        return [one["id"] for one in found.json()["data"]]

    def decide(self, c: Client) -> None:
        match self.way:
            case "word":
                self.deliver(c, whatsapp(("4911", "b", "yes")))
            case "presses":
                self._press(c)
            case _:
                for approval in self.waiting(c):
                    c.post(f"/approvals/{approval}/resolve", json={"status": "approved"})

    def _press(self, c: Client) -> None:
        """Press thirty times, each of which is delivered again."""
        for approval in self.waiting(c):
            pressed = [
                IncomingMessage(
                    f"{approval}.{number}",
                    "4911",
                    ContentKind.BUTTON,
                    conversation="4911",
                    press=Press(approval, approves=True),
                )
                for number in range(30)
            ]
            rows = [NewMessage(one.message_id, one.lane, encode_message(one)) for one in pressed]
            put = PutMessages("whatsapp", tuple(rows), c.clock.now_us)
            c.simulation.run(_transact(put))


def _transact(unit: Any) -> Any:
    return (yield from Transact("main", unit))


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_anywhere_loses_no_decision_and_takes_none_twice(
    way: str, figures: Callable[[str], None]
) -> None:
    desk = Desk(way)
    tried = crash_everywhere(desk.make, desk.act, desk.check, every=EVERY)

    figures(f"decisions by {way}: {tried.points} crash points, none lost and none taken twice")
    assert tried.points > 60 // EVERY - 1


@pytest.mark.parametrize("after", [False, True], ids=["undone", "done"])
@pytest.mark.parametrize("unit", [ContinueRun, FinishRun])
def test_a_commit_without_an_answer_loses_no_decision(
    unit: type[Any], after: bool, figures: Callable[[str], None]
) -> None:
    desk = Desk("word")

    def concerns(effect: Any) -> bool:
        asked = getattr(effect, "unit", None)
        return isinstance(getattr(asked, "unit", asked), unit)

    tried = fail_everywhere(
        desk.make, desk.act, desk.check, which=concerns, outcome=CommitLost("x"), after=after
    )
    figures(f"decisions: {tried.points} lost commits of {unit.__name__}")
    assert tried.points > 0
