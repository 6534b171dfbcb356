from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from legation.effects import Effect, Now, Program, Record
from legation.store.audit import AuditEntry
from legation.store.failures import Busy, Unavailable
from legation_host import open_host
from legation_host.audit import BATCH, WAITING, Trail
from legation_host.logs import quiet

from .host_units import BACKENDS, Lines, run


def entry(number: int) -> AuditEntry:
    return AuditEntry(
        number, f"request {number}", "ada", "k1", "agents.run", "agents/a", "allow", "", 200, ""
    )


class Store:
    """Keeps what it is given, after failing as often as it is told to."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.batches: list[tuple[AuditEntry, ...]] = []

    def write(self, entries: tuple[AuditEntry, ...]) -> Program[None]:
        yield from Now()
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(entries)


def record(*entries: AuditEntry) -> Generator[Effect, Any, None]:
    for one in entries:
        yield from Record(one)


@BACKENDS
def test_entries_are_stored_soon_as_a_batch(backend: str) -> None:
    store = Store()

    async def main() -> None:
        async with open_host(write_audit=store.write) as host:
            await host.run(record(entry(1), entry(2)))
            assert not store.batches
            await host.run(record(entry(3)))
            await anyio.sleep(0.25)
            assert store.batches == [(entry(1), entry(2), entry(3))]

    run(backend, main)


@BACKENDS
def test_a_full_batch_does_not_wait(backend: str) -> None:
    store = Store()
    entries = tuple(entry(number) for number in range(BATCH + 1))

    async def main() -> None:
        async with open_host(write_audit=store.write) as host:
            await anyio.wait_all_tasks_blocked()
            started = anyio.current_time()
            await host.run(record(*entries))
            while not store.batches:
                await anyio.lowlevel.checkpoint()
            assert anyio.current_time() - started < 0.09

    run(backend, main)

    assert store.batches == [entries[:BATCH], entries[BATCH:]]


@BACKENDS
def test_what_arrives_while_a_batch_is_stored_is_gathered_too(backend: str) -> None:
    sizes: list[int] = []

    async def main() -> None:
        stored = anyio.Event()

        async def slowly(entries: tuple[AuditEntry, ...]) -> None:
            sizes.append(len(entries))
            await stored.wait()

        trail = Trail(quiet, slowly)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trail.serve)
            for number in range(BATCH + 1):
                trail.record(entry(number))
            while not sizes:
                await anyio.lowlevel.checkpoint()
            stored.set()
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            trail.record(entry(BATCH + 1))
            await anyio.sleep(0.25)
            tasks.cancel_scope.cancel()

    run(backend, main)

    assert sizes == [BATCH, 2]


@BACKENDS
def test_no_batch_is_larger_than_the_program_that_stores_it_expects(backend: str) -> None:
    store = Store()

    async def main() -> None:
        async with open_host(write_audit=store.write) as host:
            await host.run(record(*(entry(number) for number in range(3 * BATCH - 5))))

    run(backend, main)

    assert max(map(len, store.batches)) <= BATCH
    assert [one.at_us for batch in store.batches for one in batch] == list(range(3 * BATCH - 5))


@BACKENDS
def test_what_is_left_is_stored_when_the_host_closes(backend: str) -> None:
    store = Store()

    async def main() -> None:
        async with open_host(write_audit=store.write) as host:
            await host.run(record(entry(1)))

    run(backend, main)

    assert store.batches == [(entry(1),)]


@BACKENDS
def test_a_store_that_recovers_gets_the_batch_again(backend: str) -> None:
    store = Store(Busy(), Unavailable())
    lines = Lines()

    async def main() -> None:
        async with open_host(write_audit=store.write, log=lines.write) as host:
            await host.run(record(entry(1)))

    run(backend, main)

    assert store.batches == [(entry(1),)]
    assert not lines


@BACKENDS
@pytest.mark.parametrize("given", [True, False], ids=["a faulty store", "no store"])
def test_what_is_not_stored_is_logged_whole(backend: str, given: bool) -> None:
    lines = Lines()

    async def main() -> None:
        store = Store(ZeroDivisionError(), ZeroDivisionError())
        async with open_host(write_audit=store.write if given else None, log=lines.write) as host:
            await host.run(record(entry(1)))

    run(backend, main)

    assert [line[2]["request_id"] for line in lines if line[1] == "audit"] == ["request 1"]
    assert [line[1] for line in lines if line[0] == "error"] == ["audit_failed"] * given


@BACKENDS
def test_when_too_many_wait_the_rest_is_logged(backend: str) -> None:
    lines = Lines()

    async def main() -> None:
        async def never(_: tuple[AuditEntry, ...]) -> None:
            raise AssertionError

        trail = Trail(lines.write, never)
        for number in range(WAITING + 3):
            trail.record(entry(number))
        assert len(trail._waiting) == WAITING

    run(backend, main)

    assert [line[2]["at_us"] for line in lines] == [WAITING, WAITING + 1, WAITING + 2]
