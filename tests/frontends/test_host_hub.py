from __future__ import annotations

import anyio

from legation.store.run_rows import StoredEvent
from legation_host.hub import Hub

from .host_units import BACKENDS, run


def events(*seqs: int, data: str = "{}") -> tuple[StoredEvent, ...]:
    return tuple(StoredEvent(seq, "event", data) for seq in seqs)


@BACKENDS
def test_who_waits_is_told_at_once_and_all_of_them(backend: str) -> None:
    hub = Hub()
    heard: list[tuple[StoredEvent, ...] | None] = []

    async def main() -> None:
        async def follow() -> None:
            heard.append(await hub.next_events("r", 0, 20.0))

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            hub.publish("other", events(1))
            await anyio.wait_all_tasks_blocked()
            assert not heard
            hub.publish("r", events(1, 2))

    run(backend, main)

    assert heard == [events(1, 2)] * 3
    assert not hub.state._waiting


@BACKENDS
def test_gaps_answer_with_nothing_and_time_with_none(backend: str) -> None:
    hub = Hub()

    async def main() -> None:
        assert await hub.next_events("r", 0, 0.01) is None
        hub.publish("r", events(7))
        assert await hub.next_events("r", 0, 60.0) == ()

    run(backend, main)


@BACKENDS
def test_who_is_woken_without_events_is_told_nothing(backend: str) -> None:
    hub = Hub()
    heard: list[tuple[StoredEvent, ...] | None] = []

    async def main() -> None:
        async def follow() -> None:
            heard.append(await hub.next_events("r", 0, 20.0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            hub.publish("r", ())

    run(backend, main)

    assert heard == [()]


@BACKENDS
def test_who_stops_waiting_leaves_nothing_behind(backend: str) -> None:
    hub = Hub()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.next_events, "r", 0, 60.0)
            tasks.start_soon(hub.next_events, "r", 0, 60.0)
            tasks.start_soon(hub.await_nudge, "t", 0, 60.0)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert not hub.state._waiting

    run(backend, main)


@BACKENDS
def test_a_nudge_is_seen_by_who_was_away_and_by_who_waits(backend: str) -> None:
    hub = Hub()

    async def main() -> None:
        before = hub.state.sequence
        hub.nudge("t")
        with anyio.fail_after(1):
            await hub.await_nudge("t", before, 60.0)
        after = hub.state.sequence
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hub.await_nudge, "t", after, 60.0)
            await anyio.wait_all_tasks_blocked()
            hub.nudge("other")
            hub.nudge("t")
        await hub.await_nudge("t", hub.state.sequence, 0.01)

    run(backend, main)
