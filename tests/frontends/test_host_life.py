"""One life: every order of opening, asking and closing, here and in another event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from inspect import GEN_CLOSED, getgeneratorstate
from itertools import product
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
import trio
from attrs import define, field, frozen

from legation import Agent, Database, Platform, Request
from legation.effects import Job, Now, Program
from legation_asgi import asgi
from legation_host import Host, open_host
from legation_host.errors import LifeMisuse, UnusableDatabase
from legation_host.hosting import open_platform
from legation_host.life import MOVES, Act, Life, Opening, Stage, hold, one_life
from legation_host.logs import quiet

BACKENDS: Final = pytest.mark.parametrize("backend", ["asyncio", "trio"])
SECONDS: Final = 120.0
"""No wait is a part of any test: whatever lasts so long hangs."""


def run(backend: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        with anyio.fail_after(SECONDS):
            await main()

    anyio.run(bounded, backend=backend)


def now() -> Program[int]:
    return (yield from Now())


def is_closed(program: Generator[Any, Any, Any]) -> bool:
    return getgeneratorstate(program) == GEN_CLOSED


def made() -> Platform:
    return Platform(agents=[Agent(id="concierge")], databases=[Database("main", "sqlite://")])


@frozen
class Nothing(Job):
    """A job that is over at once."""

    def program(self) -> Program[None]:
        yield from Now()


# --- the table ---------------------------------------------------------------------------------


def test_every_stage_has_a_row_and_the_end_is_the_end() -> None:
    assert MOVES.keys() == set(Stage)
    assert not MOVES[Stage.OVER]
    assert {after for row in MOVES.values() for after in row.values()} == {*Stage} - {Stage.NEW}


@BACKENDS
def test_every_act_in_every_stage_is_a_move_or_a_sentence(backend: str) -> None:
    async def main() -> None:
        for stage, act in product(Stage, Act):
            life = Life("the host")
            life.stage = stage
            if act in MOVES[stage]:
                life.move(act)
                assert life.stage is MOVES[stage][act]
                assert life.lives is (life.stage in (Stage.OPEN, Stage.CLOSING))
            else:
                words = f"the host is {stage.value} and cannot be {act.value}: "
                with pytest.raises(LifeMisuse, match=words):
                    life.move(act)
                assert life.stage is stage

    run(backend, main)


def test_where_no_event_loop_runs_nothing_is_asked() -> None:
    life = Life("the host")
    life.move(Act.OPEN)

    with pytest.raises(LifeMisuse, match="in another event loop"):
        life.move(Act.ASK)
    life.move(Act.END)


# --- another event loop ------------------------------------------------------------------------


@contextmanager
def elsewhere() -> Generator[Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]]:
    """Give what runs a coroutine in an event loop of another thread, and returns what it did."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def there(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(main(), loop)
        return future.result(SECONDS)

    try:
        yield there
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()


# --- every order -------------------------------------------------------------------------------

Make = Callable[[], AbstractAsyncContextManager[Host]]
There = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]

ORDERS: Final = tuple(
    (act, which, place)
    for act in ("open", "ask", "spawn", "close")
    for which in (0, 1)
    for place in ("here", "there")
    if (act, place) != ("open", "there") and (act, place) != ("spawn", "here")
)
Order = tuple[str, int, str]


@define(eq=False)
class Twins:
    """Two hosts of one platform, and what is to be expected of them."""

    make: Make
    there: There
    managers: list[AbstractAsyncContextManager[Host]] = field(init=False)
    hosts: list[Host | None] = field(init=False)
    stages: list[Stage] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.managers = [self.make(), self.make()]
        self.hosts = [None, None]
        self.stages = [Stage.NEW, Stage.NEW]

    def expects(self, act: str, which: int, place: str) -> bool:
        """Whether it can be done."""
        stage = self.stages[which]
        if act == "open":
            return stage is Stage.NEW and Stage.OPEN not in self.stages
        return stage is Stage.OPEN and place == "here"

    async def do(self, act: str, which: int, place: str) -> None:
        """Do it; the model follows."""
        manager, host = self.managers[which], self.hosts[which]
        if act == "open":
            new = self.stages[which] is Stage.NEW
            self.stages[which] = Stage.OVER if new else self.stages[which]
            self.hosts[which] = await manager.__aenter__()
            self.stages[which] = Stage.OPEN
        elif act == "close":

            async def close() -> None:
                await manager.__aexit__(None, None, None)

            await (close() if place == "here" else anyio.to_thread.run_sync(self.there, close))
            self.stages[which] = Stage.OVER
        elif host is None:
            raise LifeMisuse("there is nothing to ask yet")
        elif act == "spawn":

            async def spawn() -> None:
                host.spawn(Nothing())

            await anyio.to_thread.run_sync(self.there, spawn)
        else:
            program = now()

            async def ask() -> None:
                assert await host.run(program) > 0

            try:
                await (ask() if place == "here" else anyio.to_thread.run_sync(self.there, ask))
            finally:
                assert is_closed(program)


async def follow(make: Make, there: There, orders: tuple[Order, ...]) -> None:
    """Follow `orders`: each is done, or refused at once with a sentence."""
    twins = Twins(make, there)
    try:
        for order in orders:
            possible = twins.expects(*order)
            words = ""
            try:
                await twins.do(*order)
            except LifeMisuse as misuse:
                words = str(misuse)
            assert possible is not bool(words), (orders, order, words)
    finally:
        for manager, stage in zip(twins.managers, twins.stages, strict=True):
            if stage is Stage.OPEN:
                await manager.__aexit__(None, None, None)


def sequences(length: int) -> Generator[tuple[Order, ...]]:
    """Yield each order of acts; the twins are alike, so that the first act is of the first."""
    for size in range(1, length + 1):
        for orders in product(ORDERS, repeat=size):
            if orders[0][1] == 0:
                yield orders


class Held:
    """What stands for a platform."""


@pytest.mark.enumeration
@BACKENDS
def test_every_order_of_four_acts_has_an_answer(backend: str) -> None:
    async def main() -> None:
        platform = Held()

        @one_life("the platform")
        async def opened() -> AsyncGenerator[Host, None]:
            with hold(platform):
                async with open_host() as host:
                    yield host

        for orders in sequences(4):
            await follow(opened, there, orders)

    with elsewhere() as there:
        anyio.run(main, backend=backend)


@BACKENDS
def test_every_order_of_three_acts_on_a_whole_platform_has_an_answer(backend: str) -> None:
    async def main() -> None:
        for orders in sequences(3):
            platform = made()
            await follow(lambda platform=platform: open_platform(platform), there, orders)  # type: ignore[misc]

    with elsewhere() as there:
        run(backend, main)


# --- whole platforms ---------------------------------------------------------------------------


@BACKENDS
def test_a_platform_has_one_host_at_a_time_and_another_when_that_is_over(backend: str) -> None:
    platform = made()

    async def main() -> None:
        for _ in range(2):
            async with open_platform(platform) as host:
                for other in (open_platform(platform), asgi(platform).open()):
                    with pytest.raises(LifeMisuse, match="the platform is open already"):
                        await other.__aenter__()
                answer = await host.run(platform.answer(Request("GET", "/agents")))
                assert answer.status == 200

    for loop in (backend, "asyncio", "trio"):
        run(loop, main)


@BACKENDS
def test_a_platform_that_could_not_be_opened_can_be_later(backend: str) -> None:
    platform = Platform(databases=[Database("main", "sqlite:////nowhere/at/all.db")])

    async def main() -> None:
        opening = open_platform(platform)
        for _ in range(2):
            with pytest.raises(UnusableDatabase):
                await open_platform(platform).__aenter__()
        with pytest.raises(UnusableDatabase):
            await opening.__aenter__()
        with pytest.raises(LifeMisuse, match="the platform is over and cannot be opened"):
            await opening.__aenter__()
        with pytest.raises(LifeMisuse, match="the platform is over and cannot be closed"):
            await opening.__aexit__(None, None, None)

    run(backend, main)


@BACKENDS
def test_two_applications_of_one_platform_do_not_close_each_other(backend: str) -> None:
    platform = made()
    one, other = asgi(platform, log=quiet), asgi(platform, log=quiet)

    async def main() -> None:
        async with one.open():
            for app in (one, other):
                with pytest.raises(LifeMisuse, match="the platform is open already"):
                    await app.open().__aenter__()
            assert (await asked(one)).status == 200
            assert (await asked(other)).status == 503
        assert (await asked(one)).status == 503
        async with other.open():
            assert (await asked(other)).status == 200

    run(backend, main)


@BACKENDS
def test_a_lifespan_of_an_open_platform_fails_at_once_and_says_why(backend: str) -> None:
    app = asgi(made(), log=quiet)
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        told.append(message)

    async def main() -> None:
        async with app.open():
            with pytest.raises(LifeMisuse):
                await app({"type": "lifespan"}, receive, send)
            assert (await asked(app)).status == 200

    run(backend, main)

    assert told[0]["type"] == "lifespan.startup.failed"
    assert told[0]["message"].startswith("LifeMisuse: the platform is open already: ")


@BACKENDS
def test_an_application_asked_in_another_event_loop_says_so_to_its_server(backend: str) -> None:
    app = asgi(made(), log=quiet)

    async def ask() -> None:
        with pytest.raises(LifeMisuse, match="the host was opened in another event loop"):
            await asked(app)

    async def main() -> None:
        async with app.open():
            await anyio.to_thread.run_sync(there, ask)
            assert (await asked(app)).status == 200

    with elsewhere() as there:
        run(backend, main)


def test_two_event_loops_of_one_thread_are_two() -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    opening = open_platform(made())
    opened: asyncio.Future[Host] = first.create_future()
    ending = asyncio.Event()

    async def live() -> None:
        async with opening as host:
            opened.set_result(host)
            await ending.wait()

    async def close() -> None:
        await opening.__aexit__(None, None, None)

    living = first.create_task(live())
    host = first.run_until_complete(opened)

    with pytest.raises(LifeMisuse, match="another event loop"):
        second.run_until_complete(host.run(now()))
    with pytest.raises(LifeMisuse, match="another event loop"):
        second.run_until_complete(close())
    assert first.run_until_complete(host.run(now())) > 0

    ending.set()
    first.run_until_complete(living)
    first.close()
    second.close()


def test_a_host_that_nobody_left_is_over_with_its_loop_of_trio() -> None:
    opening, hosts = open_host(), list[Host]()

    async def enter() -> None:
        hosts.append(await opening.__aenter__())

    async def ask() -> None:
        await hosts[0].run(now())

    with pytest.raises(RuntimeError, match="Nursery stack corrupted"):
        trio.run(enter)
    with pytest.raises(LifeMisuse, match="the host is over"):
        trio.run(ask)


@BACKENDS
def test_what_goes_wrong_within_is_raised_and_the_life_is_over(backend: str) -> None:
    @asynccontextmanager
    async def fragile() -> AsyncGenerator[None]:
        try:
            yield
        except KeyError:
            pass
        finally:
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        async with Opening("it", fragile()):
            raise KeyError
        opening = Opening("it", fragile())
        with pytest.raises(ValueError, match="kept"):
            async with opening:
                raise ValueError("kept")
        with pytest.raises(LifeMisuse, match="it is over and cannot be closed: leave it once"):
            await opening.__aexit__(None, None, None)

    run(backend, main)


def test_a_platform_is_held_by_one_thread_of_many() -> None:
    platform, together = Held(), threading.Barrier(8)
    found: list[bool] = []

    def take() -> None:
        together.wait(SECONDS)
        try:
            with hold(platform):
                together.wait(SECONDS)
                found.append(True)
        except LifeMisuse:
            together.wait(SECONDS)
            found.append(False)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)

    assert sorted(found) == [False] * 7 + [True]


# --- asking an application ---------------------------------------------------------------------


@frozen
class Answered:
    """What an application answered."""

    status: int


async def asked(app: Any) -> Answered:
    """Ask for the agents."""
    told: list[Any] = []
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": "/agents",
        "raw_path": b"/agents",
        "query_string": b"",
        "headers": [(b"host", b"a")],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        told.append(message)

    await app(scope, receive, send)
    return Answered(told[0]["status"])
