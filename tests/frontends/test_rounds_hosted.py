"""Rounds of processes without jobs: on both engines and both event loops, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import pytest

from legation import Database, Platform, Request
from legation.http.messages import Response
from legation_host.hosting import open_platform

from ..providers.deliveries import platform, whatsapp
from ..providers.server import listening
from ..providers.strict import WhatsAppApi

SENDERS: Final = ("4911", "4922", "4933")
EACH: Final = 4


class Whole:
    """The body of a request, as it came."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def read(self, limit: int) -> bytes | None:
        return self.body if len(self.body) <= limit else None


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/main.db"
    found: str = request.getfixturevalue("postgres")
    return found


async def take_in(make: Callable[[], Platform]) -> None:
    """Acknowledge a delivery, and end: nothing is done about it."""
    texts = ((who, f"{who}-{i}", f"{who} {i}") for i in range(EACH) for who in SENDERS)
    sent = whatsapp(*texts, now_us=time.time_ns() // 1_000)
    one = make()
    async with open_platform(one, jobs=False) as host:
        headers = tuple((name.lower().encode(), value.encode()) for name, value in sent.headers)
        request = Request("POST", sent.target, headers)
        answer = await host.run(one.answer(request), body=Whole(sent.body))
    assert isinstance(answer, Response)
    assert answer.status == 200


async def go_round(make: Callable[[], Platform], taken: list[int]) -> None:
    one = make()
    async with open_platform(one, jobs=False) as host:
        report = await host.run(one.round(50, 40.0))
    assert (report.released, report.failed) == (0, ())
    taken.append(report.messages)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_two_rounds_at_once_answer_what_a_third_process_has_acknowledged(
    url: str, backend: str
) -> None:
    provider, taken = WhatsAppApi(), list[int]()
    with listening(provider) as base:

        def make() -> Platform:
            return platform(base, databases=[Database("main", url, auto_migrate=True)])

        async def main() -> None:
            await take_in(make)
            async with anyio.create_task_group() as both:
                for _ in range(2):
                    both.start_soon(go_round, make, taken)
            await go_round(make, taken)

        anyio.run(main, backend=backend)

    assert sum(taken) == EACH * len(SENDERS)
    assert taken[-1] == 0
    for who in SENDERS:
        heard = [message.text for message in provider.seen if message.recipient == who]
        assert heard == [f"{who} {i}" for i in range(EACH)]
