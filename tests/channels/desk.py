"""A desk that books with approval, behind one channel: a question, its buttons, and presses."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, evolve, field

from legation import Agent, tool
from legation_testing import Client, Says, ScriptedModel, call

from ..providers.deliveries import Delivery, channels, platform
from ..providers.strict import Provider, now_us
from .delivering import Recorder, post

__all__ = ["Desk", "booking"]


@define(eq=False)
class Desk:
    """The desk.

    Attributes:
        booked: The rooms that were booked.
        network: What was sent to the provider.
    """

    client: Client
    network: Recorder
    booked: Sequence[str] = field(factory=list[str])

    def deliver(self, sent: Delivery) -> str:
        """Deliver something, and let all come of it that does."""
        status = post(self.client, sent)
        self.client.advance(2)
        assert self.network.api.refused == []
        return status

    def press_twice(self, press: Callable[[Any], Delivery]) -> Any:
        """Press what `press` finds in the question, which is returned; then deliver it again."""
        question = self.network.posted()[-1][1]
        sent = press(question)
        assert self.deliver(sent) in ("processing", "")
        assert self.booked == ["double"]
        assert self.deliver(sent) in ("duplicate", "")
        assert self.booked == ["double"]
        return question


@contextmanager
def booking(api: Provider) -> Generator[Desk]:
    """Open a desk behind the channel of `api`, where whoever asks may approve."""
    booked: list[str] = []

    @tool(requires_confirmation=True)
    def book(room: str) -> str:
        """Book a room."""
        booked.append(room)
        return "number 7"

    model = ScriptedModel([call("book", room="double"), Says("Booked.")])
    only = [evolve(one, approve=("sender",)) for one in channels(api.base) if one.kind == api.kind]
    made = platform(agents=[Agent(id="concierge", model=model, tools=[book])], channels=only)
    network = Recorder(api)
    with Client(made, fetch=network, start_us=now_us()) as client:
        yield Desk(client, network, booked)
