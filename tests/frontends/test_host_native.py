from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
import trio

from legation_host.native import Native, find_native

from .host_units import BACKENDS, run


@BACKENDS
def test_an_event_wakes_who_waits_and_a_scope_ends_it(backend: str) -> None:
    async def main() -> tuple[bool, bool, list[str]]:
        native, seen = find_native(), list[str]()
        event, never = native.make_event(), native.make_event()

        async def wait() -> None:
            await event.wait()
            seen.append("woken")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            event.set()
        with native.limit(0.0):
            await never.wait()
        with native.limit(600.0) as scope:
            scope.cancel()
            await never.wait()
        return event.is_set(), never.is_set(), seen

    assert run(backend, main) == (True, False, ["woken"])


@BACKENDS
def test_a_task_starts_in_the_group_that_was_entered_last(backend: str) -> None:
    async def main() -> list[str]:
        native, ended = find_native(), list[str]()

        async def wait(name: str) -> None:
            try:
                await native.make_event().wait()
            finally:
                ended.append(name)

        async def fail() -> None:
            raise ZeroDivisionError

        async with anyio.create_task_group() as tasks:
            start = native.find_start(tasks)
            start(wait, "of the outer group")
            with pytest.RaisesGroup(ZeroDivisionError):
                async with anyio.create_task_group() as inner:
                    native.find_start(inner)(wait, "of the inner group")
                    start(wait, "of the outer group", name="started later")
                    await anyio.wait_all_tasks_blocked()
                    native.find_start(inner)(fail)
            await anyio.wait_all_tasks_blocked()
            assert ended == ["of the inner group"]
            tasks.cancel_scope.cancel()
        return ended

    assert run(backend, main) == ["of the inner group", *["of the outer group"] * 2]


@BACKENDS
def test_they_are_those_of_the_event_loop_that_runs(backend: str) -> None:
    async def main() -> Native:
        return find_native()

    native = run(backend, main)
    assert (native.make_event is trio.Event) == (backend == "trio")


def test_there_are_none_without_an_event_loop() -> None:
    with pytest.raises(RuntimeError):
        find_native()
