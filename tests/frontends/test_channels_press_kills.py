"""A hundred questions that are answered by buttons, on two nodes that are killed all the while.

`LEGATION_NIGHTLY=1` kills twenty times instead of four.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import trio
from attrs import define, field

from ..providers.deliveries import Delivery, signed, whatsapp
from ..providers.server import Faults, listening
from ..providers.soak import Line, Node, request_of
from ..providers.strict import WhatsAppApi
from .cluster_kit import NIGHTLY

pytestmark = pytest.mark.newest

GUESTS: Final = 100
KILLS: Final = 20 if NIGHTLY else 4
PRESSES: Final = 3
_PATIENCE: Final = 180.0

PLATFORM: Final = '''
import os

from legation import Agent, Database, Platform, WhatsAppChannel, tool
from legation_testing import Says, ScriptedModel, call


@tool(requires_confirmation=True)
def book(guest: str) -> str:
    """Book a room."""
    written = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(written, f"{{guest}}\\n".encode())
    os.close(written)
    return "booked"


def ask(prompt):
    said = [message for message in prompt.messages if message.role != "system"]
    guest = next(message.content for message in reversed(said) if message.role == "user")
    return Says(f"answer for {{guest}}") if said[-1].role == "tool" else call("book", guest=guest)


platform = Platform(
    environ=os.environ,
    lease_seconds=8,
    databases=[Database("main", {url!r}, auto_migrate=True)],
    agents=[Agent(id="desk", model=ScriptedModel([ask] * 10_000), tools=[book])],
    channels=[
        WhatsAppChannel(
            id="whatsapp",
            agent="desk",
            app_secret_env="APP_SECRET",
            verify_token_env="VERIFY",
            access_token_env="ACCESS",
            phone_number_id="111",
            api_base_url={provider!r},
            approve="sender",
        )
    ],
)
'''


def press(sender: str, name: str, approval: str) -> Delivery:
    """Return a delivery of WhatsApp: `sender` pressed the button that approves."""
    button = {"id": f"approve:{approval}", "title": "Approve"}
    message = {
        "from": sender,
        "id": name,
        "timestamp": "1",
        "type": "interactive",
        "interactive": {"type": "button_reply", "button_reply": button},
        "context": {"from": "15550001", "id": "wamid.question"},
    }
    metadata = {"display_phone_number": "15550001", "phone_number_id": "111"}
    value = {"messaging_product": "whatsapp", "metadata": metadata, "messages": [message]}
    entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
    root = {"object": "whatsapp_business_account", "entry": [entry]}
    return signed("whatsapp", json.dumps(root).encode(), 0)


@define(eq=False)
class House:
    """Two nodes on one database, their provider, and the guests who ask."""

    folder: Path
    url: str
    provider: WhatsAppApi = field(factory=WhatsAppApi)
    nodes: list[Node] = field(factory=list[Node])
    random: Random = field(factory=lambda: Random(7))
    kills: int = 0

    @property
    def log(self) -> Path:
        """The guests for whom the tool was begun, a line each."""
        return self.folder / "booked.txt"

    def write_platform(self, provider: str) -> None:
        base = f"{provider}/v22.0"
        text = PLATFORM.format(log=str(self.log), url=self.url, provider=base)
        (self.folder / "guest_house.py").write_text(text)

    async def deliver(self, delivery: Delivery) -> None:
        """Deliver as a provider does: until it is taken."""
        request = request_of(delivery)
        while True:
            with Line(self.random.choice(self.nodes).port) as line:
                status = await line.exchange(request)
            if status == 200:
                return
            assert status in (0, 503), f"a delivery was refused: {status}"
            await trio.sleep(0.1)

    async def fetch(self, target: str) -> Any:
        while True:
            with Line(self.random.choice(self.nodes).port) as line:
                status = await line.exchange(f"GET {target} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
                if status == 200:
                    return json.loads(line.body)
            await trio.sleep(0.1)

    async def until_heard(self, wanted: int) -> None:
        """Wait until each guest has so many messages."""
        with trio.move_on_after(_PATIENCE):
            while len(self.provider.seen) < wanted * GUESTS:
                await trio.sleep(0.1)

    async def kill_now_and_then(self) -> None:
        for _ in range(KILLS):
            await trio.sleep(0.2 + self.random.random() * 0.4)
            node = self.random.choice(self.nodes)
            await trio.to_thread.run_sync(node.kill)
            self.kills += 1
            node.start()
            await node.ready()

    async def press_all(self, limit: trio.CapacityLimiter) -> None:
        """Press the button under every question, three times, while nodes are killed."""
        waiting = (await self.fetch("/approvals?status=pending&limit=500"))["data"]
        assert len(waiting) == GUESTS
        presses = [
            press(one["user_id"].rpartition(":")[2], f"press.{number}.{one['id']}", one["id"])
            for one in waiting
            for number in range(PRESSES)
        ]
        self.random.shuffle(presses)

        async def one(delivery: Delivery) -> None:
            async with limit:
                await self.deliver(delivery)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.kill_now_and_then)
            for delivery in presses:
                nursery.start_soon(one, delivery)

    async def live(self) -> None:
        limit = trio.CapacityLimiter(8)
        async with trio.open_nursery() as nursery:
            for number in range(GUESTS):
                sender = f"49152{number:05}"
                asked = whatsapp((sender, f"wamid.{sender}", f"guest {number}"))
                nursery.start_soon(self.deliver, asked)
        await self.until_heard(1)
        await self.press_all(limit)
        await self.until_heard(2)
        await trio.sleep(2)  # for what would come twice

    def check(self) -> None:
        begun = Counter(self.log.read_text().splitlines())
        assert set(begun.values()) == {1}, "a tool was begun by two"
        heard: dict[str, list[str]] = {}
        for message in self.provider.seen:
            heard.setdefault(message.recipient, []).append(message.text)
        assert len(heard) == GUESTS
        for sender, texts in heard.items():
            number = int(sender.removeprefix("49152"))
            assert len(texts) == 2, texts
            assert "I need your approval" in texts[0]
            assert texts[1] == f"answer for guest {number}"
        assert self.provider.refused == []


async def test_every_press_decides_once_and_every_guest_has_one_answer(
    tmp_path: Path,
    postgres_database: str,
    monkeypatch: pytest.MonkeyPatch,
    figures: Callable[[str], None],
) -> None:
    house = House(tmp_path, postgres_database)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    with listening(house.provider, Faults()) as address:
        house.write_platform(address)
        with (tmp_path / "servers.log").open("ab") as log:
            try:
                for _ in range(2):
                    house.nodes.append(Node(Path("guest_house:platform"), log))
                    house.nodes[-1].start()
                    await house.nodes[-1].ready()
                await house.live()
            finally:
                for node in house.nodes:
                    node.kill()
    house.check()
    pending = GUESTS * PRESSES
    figures(
        f"{GUESTS} questions pressed {pending} times on two nodes, {house.kills} kills:"
        f" each decided once, each tool begun at most once, one answer each"
    )
