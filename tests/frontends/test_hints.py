"""Hints between nodes: what they save when they come, and that nothing needs them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import psycopg
import pytest

from legation import Platform
from legation.config import Agent, Database, Model
from legation.node_hints import NodeHints
from legation.node_state import digest
from legation.store.run_rows import StoredEvent
from legation_host import Host, open_host
from legation_host.databases import Database as DatabaseOfHost
from legation_host.errors import BadDatabaseUrl
from legation_host.hints import Hints, hint_gauges, hints_of
from legation_host.hosting import open_platform
from legation_host.hub import Hub
from legation_host.postgres import PostgresDatabase

from ..engines import Cluster
from ..pooler import NoPooler, pooled, through
from .host_units import BACKENDS, Lines, run
from .test_runs_nodes import RUNS, Node

FOR_EVER: Final = 2_000.0
"""So many times longer than usual does a `Patient` node wait before it asks the database."""

PATIENCE: Final = 20.0


class Patient(Hub):
    """Waits so long that only a hint comes in time."""

    async def await_nudge(self, topic: str, since: int, timeout_seconds: float) -> None:
        await super().await_nudge(topic, since, timeout_seconds * FOR_EVER)

    async def next_events(
        self, run_id: str, after: int, timeout_seconds: float
    ) -> tuple[StoredEvent, ...] | None:
        return await super().next_events(run_id, after, timeout_seconds * FOR_EVER)


class Doubled(Patient):
    """Hears everything twice, and something old in between."""

    def hear_nudge(self, key: str) -> None:
        for heard in (key, "no-topic", key):
            super().hear_nudge(heard)

    def hear_event(self, key: str, seq: int) -> None:
        for heard in (seq, 1, seq):
            super().hear_event(key, heard)


class Log(Lines):
    """A log that is asked for events."""

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self]


async def until(true: Callable[[], bool]) -> None:
    """Wait until `true` says so, or fail after a while."""
    with anyio.fail_after(PATIENCE):
        while not true():
            await anyio.sleep(0.01)


def lines_of(url: str, statement: str = "select count(*)") -> int:
    """Count the connections for hints to the database of `url`, or do something to each."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            f"{statement} from pg_stat_activity where datname = current_database()"
            " and application_name = 'legation hints'".encode()
        ).fetchall()
    return int(rows[0][0]) if rows else 0


def kill(url: str) -> None:
    lines_of(url, "select pg_terminate_backend(pid, 5000)::int")


# --- What the hub makes of them ----------------------------------------------------------------


@BACKENDS
def test_events_heard_of_end_one_wait_and_no_more(backend: str) -> None:
    hub = Hub()

    async def main() -> None:
        hub.hear_event(digest("r"), 3)
        assert await hub.next_events("r", 2, 60.0) == ()
        assert await hub.next_events("r", 2, 0.01) is None  # in truth there were none
        hub.hear_event(digest("r"), 3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.next_events, "r", 3, 60.0)
            await anyio.wait_all_tasks_blocked()
            assert hub.state.followers == 1
            hub.hear_event(digest("r"), 4)

    run(backend, main)


@BACKENDS
def test_a_nudge_from_elsewhere_wakes_and_interrupts_nothing(backend: str) -> None:
    hub = Hub()
    calls: list[int] = []

    async def main() -> None:
        before = hub.state.sequence
        hub.hear_nudge(digest("t"))
        await hub.await_nudge("t", before, 60.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.await_nudge, "t", hub.state.sequence, 60.0)
            await anyio.wait_all_tasks_blocked()
            assert not hub.state.await_interruption("t", before, lambda: calls.append(1))
            hub.hear_nudge(digest("t"))
        assert calls == []

    run(backend, main)


# --- Two that talk -----------------------------------------------------------------------------


class Talking:
    """Several that tell each other hints of one database."""

    def __init__(self, url: str, count: int) -> None:
        self.log = Log()
        self.hubs = [Hub() for _ in range(count)]
        database = PostgresDatabase("main", url, self.log.write)
        self.hints = [
            hints_of([database], f"node {number}", hub, self.log.write)["main"]
            for number, hub in enumerate(self.hubs)
        ]

    @asynccontextmanager
    async def connected(self) -> AsyncGenerator[list[Hints]]:
        async with anyio.create_task_group() as tasks:
            for hints in self.hints:
                tasks.start_soon(hints.serve)
            await until(lambda: all(hints.is_connected for hints in self.hints))
            yield self.hints
            tasks.cancel_scope.cancel()


@BACKENDS
def test_a_nudge_and_an_event_reach_whom_they_are_for_and_nobody_else(
    backend: str, postgres_database: str
) -> None:
    three = Talking(postgres_database, 3)
    hub = three.hubs[1]

    async def main() -> None:
        async with three.connected() as (one, two, _):
            one.event("r", 6)  # which nobody follows
            two.follow("r", "node 0")
            await until(lambda: two.heard == 1)
            assert await hub.next_events("r", 6, 600.0) == ()  # it is to look once
            one.nudge("cancel:main", "node 1")
            one.nudge("inbox:main")
            one.event("r", 7)
            await hub.await_nudge("inbox:main", 0, 600.0)
            await until(lambda: three.hubs[2].state.sequence == 1)
            await until(lambda: hub.state._ahead == {digest("r"): 7})
            assert await hub.next_events("r", 6, 600.0) == ()
            assert set(hub.state._nudged_elsewhere) == {digest("inbox:main"), digest("cancel:main")}
            assert set(three.hubs[2].state._nudged_elsewhere) == {digest("inbox:main")}
            assert not three.hubs[2].state._ahead
            assert not three.hubs[0].state._nudged_elsewhere
            assert not three.hubs[0].state._ahead
            assert [(hints.sent, hints.heard) for hints in three.hints] == [(3, 1), (1, 4), (0, 1)]
            assert lines_of(postgres_database) == 3
        await until(lambda: lines_of(postgres_database) == 0)
        assert three.log == []

    run(backend, main)


def test_a_node_of_the_release_before_is_heard_and_hears_what_all_are_told(
    postgres_database: str,
) -> None:
    """It tells and hears by one channel, in words that are the same."""
    one = Talking(postgres_database, 1)

    async def main() -> None:
        async with one.connected() as (hints,):
            with psycopg.connect(postgres_database, autocommit=True) as before:
                ((channel,),) = before.execute(
                    "select 'legation_' || to_hex(hashtext(current_schema()))"
                ).fetchall()
                words = f"n{digest('t')} e{digest('r')}:7 zwhatever"
                before.execute("select pg_notify(%s, %s)", (channel, words))
                await until(lambda: hints.heard == 2)
                before.execute(f"listen {channel}".encode())
                hints.nudge("u", "another")
                hints.nudge("u")
                found = await anyio.to_thread.run_sync(
                    lambda: next(before.notifies(timeout=PATIENCE)).payload
                )
        assert found == f"n{digest('u')}"

    run("trio", main)


def test_schemas_of_one_database_do_not_hear_each_other(
    postgres_cluster: Cluster, postgres_database: str
) -> None:
    name = postgres_database.rsplit("/", 1)[1]

    async def main() -> None:
        with postgres_cluster.new_schema(name) as there:
            here, other = Talking(postgres_database, 2), Talking(there, 1)
            async with here.connected() as (one, two), other.connected() as (third,):
                one.nudge("t")
                await until(lambda: two.heard == 1)
                await anyio.sleep(0.1)
                assert third.heard == 0

    run("trio", main)


def test_a_thousand_nudges_are_few_notifies(
    postgres_database: str, figures: Callable[[str], None]
) -> None:
    two = Talking(postgres_database, 2)

    async def main() -> None:
        async with two.connected() as (one, other):
            other.follow("one run", "node 0")
            await until(lambda: other.heard == 1)
            sent = one.sent
            for number in range(1_000):
                one.nudge(f"topic {number}", "node 1")
                one.nudge("one topic", "node 1")
                one.event("one run", number + 1)
            await until(lambda: other.heard == 1_003)
            assert two.hubs[1].state._ahead == {digest("one run"): 1_000}
            assert one.sent - sent <= 4
            figures(f"hints: 3,000 at once, of 1,002 kinds, are {one.sent - sent} NOTIFYs")

    run("trio", main)


def test_without_a_connection_nothing_is_kept_to_be_told() -> None:
    hints = Hints("main", NodeHints("node"), Hub(), Lines().write, lambda: None, lambda: "")
    hints.nudge("t")
    hints.follow("r", "another")
    hints.event("r", 1)

    assert not hints.book.told


@BACKENDS
def test_a_connection_that_is_killed_is_made_again(backend: str, postgres_database: str) -> None:
    two = Talking(postgres_database, 2)

    async def main() -> None:
        async with two.connected() as (one, other):
            await anyio.to_thread.run_sync(kill, postgres_database)
            await until(lambda: two.log.events.count("hints_restored") == 2)
            assert one.is_connected
            one.nudge("t")
            await until(lambda: other.heard == 1)
            assert list(two.hubs[1].state._nudged_elsewhere) == [digest("t")]
        assert sorted(two.log.events) == ["hints_lost"] * 2 + ["hints_restored"] * 2

    run(backend, main)


def settled(hints: Hints) -> bool:
    """Whether the server has answered the last NOTIFY."""
    return hints._line is not None and hints._line.idle.is_set()


def test_what_is_told_last_is_heard(postgres_database: str) -> None:
    """As of a node that gives its work back, and ends."""
    first, second = Talking(postgres_database, 1), Talking(postgres_database, 1)

    async def main() -> None:
        async with second.connected() as (other,):
            async with first.connected() as (one,):
                one.nudge("a")
                await until(lambda: other.heard == 1 and settled(one))
                one.nudge("b")
            await until(lambda: other.heard == 2)

    run("trio", main)


@BACKENDS
def test_a_server_that_does_not_answer_keeps_nobody(backend: str) -> None:
    async def main() -> None:
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as mute:
            mute.settimeout(PATIENCE)
            port = mute.getsockname()[1]
            url = f"postgresql://x@127.0.0.1:{port}/x?connect_timeout=600"
            hints = Talking(url, 1).hints[0]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hints.serve)
                await anyio.sleep(0.1)
                tasks.cancel_scope.cancel()
            accepted, _ = mute.accept()
            accepted.close()  # so ends the thread that waits for an answer

    run(backend, main)


def test_a_database_that_is_not_there_is_told_of_once() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    one = Talking(f"postgresql://x:secret@127.0.0.1:{port}/x", 1)
    (hints,) = one.hints

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hints.serve)
            await until(lambda: hints._failures > 2)
            tasks.cancel_scope.cancel()

    run("trio", main)
    assert [(level, event) for level, event, _ in one.log] == [("warning", "hints_lost")]
    assert "secret" not in str(one.log)
    assert "secret" not in repr(hints)
    assert hint_gauges({"main": hints})["legation_hints_connected"].values == {
        (("database", "main"),): 0
    }


# --- Where there are to be none ----------------------------------------------------------------


@pytest.mark.parametrize("parameter", ["pgbouncer=true", "hints=false"])
def test_a_parameter_of_the_url_switches_them_off(parameter: str) -> None:
    database = PostgresDatabase("main", f"postgresql://x@127.0.0.1/x?{parameter}")

    assert database.hints is None
    assert hints_of([database], "node", Hub(), Lines().write) == {}


def test_the_parameter_is_true_or_false() -> None:
    with pytest.raises(BadDatabaseUrl, match=r"databases\.main\.url: hints is true or false"):
        PostgresDatabase("main", "postgresql://x@127.0.0.1/x?hints=maybe")


@pytest.fixture
def pooler(postgres_cluster: Cluster) -> Generator[int]:
    """The port of the pooler, or a skip that says why there is none."""
    try:
        with pooled(postgres_cluster) as port:
            yield port
    except NoPooler as reason:
        pytest.skip(str(reason))


def test_a_pooler_that_nobody_told_of_is_noticed(postgres_database: str, pooler: int) -> None:
    plain = through(postgres_database, pooler).removesuffix("?pgbouncer=true")
    one = Talking(plain, 1)

    run("trio", one.hints[0].serve)

    assert [(level, event) for level, event, _ in one.log] == [("info", "pooler_found")]


# --- Whole nodes -------------------------------------------------------------------------------


def platform_of(url: str, delay: float) -> Platform:
    return Platform(
        databases=(Database("main", url, auto_migrate=True),),
        models=(Model("slow", "echo", delay_seconds=delay),),
        agents=(Agent(id="sloth", model="slow"),),
    )


@asynccontextmanager
async def patient_nodes(
    url: str,
    count: int,
    delay: float,
    hub: type[Hub] = Patient,
    wrap: Callable[[DatabaseOfHost], DatabaseOfHost] = lambda database: database,
) -> AsyncGenerator[list[Node]]:
    """Yield nodes that hear of each other by hints, or not for a long time."""
    async with AsyncExitStack() as stack:
        opened: list[Node] = []
        for _ in range(count):
            platform = platform_of(url, delay)
            host: Host = await stack.enter_async_context(open_host(platform.databases, hub=hub()))
            host.databases = {"main": wrap(host.databases["main"])}
            await host.run(platform.startup())
            for job in platform.jobs():
                host.spawn(job)
            opened.append(Node(platform, host))
        await until(lambda: all(node.host.hints["main"].is_connected for node in opened))
        yield opened


async def begun(node: Node, session_id: str = "s") -> str:
    target = RUNS.format("sloth")
    form = {"message": "a b", "session_id": session_id, "background": "true"}
    run_id: str = (await node.ask("POST", target, **form))["run_id"]
    return run_id


@BACKENDS
@pytest.mark.parametrize("hub", [Patient, Doubled])
def test_a_run_is_cancelled_and_its_end_told_by_hints_alone(
    backend: str, hub: type[Hub], postgres: str
) -> None:
    async def main() -> None:
        async with patient_nodes(postgres, 3, 60.0, hub) as (one, two, three):
            run_id = await begun(one)
            path = f"{RUNS.format('sloth')}/{run_id}"
            told: list[Any] = []
            with anyio.fail_after(PATIENCE):
                async with anyio.create_task_group() as tasks:

                    async def follow() -> None:
                        told.extend(await three.ask("GET", f"{path}/events"))

                    tasks.start_soon(follow)
                    await until(lambda: three.host.hub.state.followers == 1)
                    assert await two.ask("POST", f"{path}/cancel") == {}
            assert told[-1]["event"] == "RunCancelled"

    run(backend, main)


def test_a_queued_run_that_is_given_back_begins_elsewhere_by_a_hint_alone(
    postgres: str, figures: Callable[[str], None]
) -> None:
    async def main() -> None:
        async with patient_nodes(postgres, 2, 60.0) as (one, two):
            await begun(one)
            second = await begun(two)
            path = f"{RUNS.format('sloth')}/{second}"
            assert (await two.ask("GET", path))["status"] == "PENDING"
            with anyio.fail_after(PATIENCE):
                asked = anyio.current_time()
                await one.host.run(one.platform.shutdown(0.0))
                await until(lambda: bool(two.platform.context.executing))
                waited = anyio.current_time() - asked
            figures(
                "hints: from the end of a node to the start, on another, of what waited:"
                f" {waited * 1000:.0f} ms"
            )

    run("trio", main)


def test_whoever_follows_on_another_node_sees_each_event_by_hints_alone(postgres: str) -> None:
    async def main() -> None:
        async with patient_nodes(postgres, 2, 0.5) as (one, two):
            run_id = await begun(one)
            with anyio.fail_after(PATIENCE):
                events = await two.ask("GET", f"{RUNS.format('sloth')}/{run_id}/events")
            assert [events[0]["event"], events[-1]["event"]] == ["RunStarted", "RunCompleted"]
            assert two.host.hints["main"].heard > 0

    run("trio", main)


def test_without_its_connection_a_node_finds_everything_and_hints_come_back(
    postgres_database: str,
) -> None:
    log = Log()

    async def main() -> None:
        async with AsyncExitStack() as stack:
            opened: list[Node] = []
            for _ in range(2):
                platform = platform_of(postgres_database, 60.0)
                host = await stack.enter_async_context(open_platform(platform, log=log.write))
                opened.append(Node(platform, host))
            one, two = opened
            lines = [node.host.hints["main"] for node in opened]
            await until(lambda: all(hints.is_connected for hints in lines))
            run_id = await begun(one)
            await anyio.to_thread.run_sync(kill, postgres_database)
            path = f"{RUNS.format('sloth')}/{run_id}"
            with anyio.fail_after(PATIENCE):
                assert await two.ask("POST", f"{path}/cancel") == {}
                events = await two.ask("GET", f"{path}/events")
            assert events[-1]["event"] == "RunCancelled"
            await until(lambda: log.events.count("hints_restored") == 2)
            heard = lines[0].heard
            lines[1].nudge("t")
            await until(lambda: lines[0].heard > heard)
        await until(lambda: lines_of(postgres_database) == 0)

    run("trio", main)
    assert log.events.count("hints_lost") == log.events.count("hints_restored") == 2


def test_without_hints_a_run_is_cancelled_and_followed_from_another_node(postgres: str) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            opened: list[Node] = []
            for _ in range(2):
                platform = platform_of(f"{postgres}&hints=false", 60.0)
                host = await stack.enter_async_context(open_platform(platform))
                assert host.hints == {}
                opened.append(Node(platform, host))
            one, two = opened
            run_id = await begun(one)
            path = f"{RUNS.format('sloth')}/{run_id}"
            with anyio.fail_after(PATIENCE):
                assert await two.ask("POST", f"{path}/cancel") == {}
                events = await two.ask("GET", f"{path}/events")
            assert events[-1]["event"] == "RunCancelled"

    run("trio", main)
