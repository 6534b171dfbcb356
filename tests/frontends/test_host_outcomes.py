"""The outcomes of jobs on both loops: whoever waits leaves, and the job ends, in every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import pytest
from attrs import define, field, frozen

from legation import Agent, Database, Platform, Request
from legation.effects import AwaitNudge, AwaitOutcome, Nudge, Outcome, Program, Spawn, Transact
from legation.http.messages import Response
from legation.store.run_reads import FetchRun
from legation.store.run_rows import RunRow
from legation_host import Host, open_host
from legation_host.hosting import open_platform

BACKENDS = pytest.mark.parametrize("backend", ["trio", "asyncio"])
ENDS: Final = ("returns", "fails", "is closed")
FORM: Final = ((b"content-type", b"application/x-www-form-urlencoded"), (b"host", b"localhost"))


def fail() -> None:
    raise ZeroDivisionError


@define(eq=False)
class Ending:
    """A job that ends as it is told to; `ended` has each end that it came to."""

    end: str
    ended: list[str] = field(factory=list[str])

    def program(self) -> Program[str]:
        try:
            yield from AwaitNudge("end", 60.0)
            if self.end == "fails":
                fail()
        except GeneratorExit:
            self.ended.append("is closed")
            raise
        except ZeroDivisionError:
            self.ended.append("fails")
            raise
        self.ended.append("returns")
        return "done"


def ask(effect: Any) -> Program[Any]:
    return (yield effect)


@frozen
class Order:
    """An order of what happens, and whether everything comes to rest between two of them."""

    acts: tuple[str, str, str]
    rests: tuple[bool, bool]
    end: str

    @property
    def hears(self) -> bool | None:
        """Whether whoever waits hears of the end; None where both happen at once."""
        leaves, ends = self.acts.index("leave"), self.acts.index("end")
        return ends < leaves if all(self.rests[min(leaves, ends) : max(leaves, ends)]) else None


def orders() -> Iterator[Order]:
    for acts in (("wait", "leave", "end"), ("wait", "end", "leave"), ("end", "wait", "leave")):
        for first, second, end in product((True, False), (True, False), ENDS):
            yield Order(acts, (first, second), end)


async def try_order(order: Order) -> None:
    outcome, job = Outcome[str](), Ending(order.end)
    leaving, heard = anyio.CancelScope(), list[Any]()
    told = "done" if order.end == "returns" else None

    async def wait(host: Host) -> None:
        with leaving:
            heard.append(await host.run(ask(AwaitOutcome(outcome))))

    async def end(host: Host) -> None:
        if order.end == "is closed":  # as when the host closes
            host.tasks.cancel_scope.cancel()
        else:
            await host.run(ask(Nudge("end")))

    async with anyio.create_task_group() as tasks, open_host() as host:
        await host.run(ask(Spawn(job, outcome)))
        await anyio.wait_all_tasks_blocked()
        acts: dict[str, Callable[[], object]] = {
            "wait": lambda: tasks.start_soon(wait, host),
            "leave": leaving.cancel,
            "end": lambda: tasks.start_soon(end, host),
        }
        with anyio.CancelScope(shield=True):
            for act, rests in zip(order.acts, (*order.rests, True), strict=True):
                acts[act]()
                if rests:
                    await anyio.wait_all_tasks_blocked()
            if order.end != "is closed":
                assert await host.run(ask(AwaitOutcome(outcome))) == told
    assert job.ended == [order.end]
    assert outcome.over
    assert outcome.result == told
    assert heard in ([], [told])
    if order.hears is not None:
        assert bool(heard) is order.hears


@BACKENDS
@pytest.mark.parametrize("order", tuple(orders()), ids=str)
def test_a_job_ends_once_and_whoever_waits_may_leave(backend: str, order: Order) -> None:
    anyio.run(try_order, order, backend=backend)


# --- Runs --------------------------------------------------------------------------------------


@define(eq=False)
class Tool:
    """A function that is called by an agent, and returns when it may."""

    calls: int = 0
    called: anyio.Event = field(factory=anyio.Event)
    go: anyio.Event = field(factory=anyio.Event)

    async def answer(self, message: str) -> str:
        """Answer when it is time."""
        self.calls += 1
        self.called.set()
        await self.go.wait()
        return f"answered {message}"


@frozen
class Body:
    content: bytes

    async def read(self, limit: int) -> bytes:
        return self.content


def fetch(run_id: str) -> Program[RunRow | None]:
    return (yield from Transact("main", FetchRun(run_id, None, any_owner=True)))


async def post(host: Host, platform: Platform) -> str:
    """Ask for a run, wait for its end, and return what it answered."""
    body = urlencode({"message": "hello", "stream": "false"}).encode()
    fields = (*FORM, (b"content-length", str(len(body)).encode()))
    request = Request("POST", "/agents/a/runs", fields)
    answer = await host.run(platform.answer(request), body=Body(body))
    assert isinstance(answer, Response)
    return answer.body.decode()


async def leave_and_look(folder: Path) -> None:
    tool = Tool()
    url = f"sqlite:///{folder}/main.db"
    platform = Platform(agents=[Agent(id="a", run=tool.answer)], databases=[Database("main", url)])
    leaving = anyio.CancelScope()
    async with open_platform(platform) as host, anyio.create_task_group() as tasks:

        async def ask_and_leave() -> None:
            with leaving:
                await post(host, platform)

        tasks.start_soon(ask_and_leave)
        await tool.called.wait()
        ((_, run_id),) = platform.context.executing
        leaving.cancel()
        await anyio.wait_all_tasks_blocked()
        assert ("main", run_id) in platform.context.executing
        tool.go.set()
        while ("main", run_id) in platform.context.executing:
            await anyio.sleep(0.001)
        row = await host.run(fetch(run_id))
        assert row is not None
        assert row.status == "COMPLETED"
        assert tool.calls == 1
        assert "answered hello" in await post(host, platform)
        assert platform.context.shares.runs.total == 0


@BACKENDS
def test_a_run_goes_on_once_when_whoever_joined_it_leaves(backend: str, tmp_path: Path) -> None:
    anyio.run(leave_and_look, tmp_path, backend=backend)


async def close_and_hear(folder: Path) -> None:
    tool, answered = Tool(), list[str]()
    url = f"sqlite:///{folder}/main.db"
    platform = Platform(agents=[Agent(id="a", run=tool.answer)], databases=[Database("main", url)])
    # The requests are not those of the host, as with ASGI, and go on when it closes.
    async with anyio.create_task_group() as tasks, open_platform(platform) as host:

        async def ask_and_wait() -> None:
            answered.append(await post(host, platform))

        tasks.start_soon(ask_and_wait)
        await tool.called.wait()
    (answer,) = answered
    assert "the run goes on elsewhere" in answer


@BACKENDS
def test_whoever_joined_a_run_hears_that_its_host_closes(backend: str, tmp_path: Path) -> None:
    anyio.run(close_and_hear, tmp_path, backend=backend)
