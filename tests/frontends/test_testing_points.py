"""Points within effects: the awaits of a coroutine, an answer that is lost, and a stall."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest
import trio

from legation.effects import CallFunction, Now, Program, Raised, Returned, Transact
from legation_testing import Crashed, Misuse, Point, Simulation

from .parcels import Deliveries, accept, create_tables

done: list[str] = []


@pytest.fixture(autouse=True)
def _clear() -> None:
    done.clear()


def call(function: Callable[..., Any]) -> Program[Any]:
    """Call a function of the author's."""
    return (yield from CallFunction(function, {}, 60.0))


def counts() -> Program[dict[str, int]]:
    """Return how often each parcel was delivered."""
    return (yield from Transact("main", Deliveries()))


async def note(what: str) -> None:
    """Do something that never suspends."""
    done.append(what)


class Receipt:
    """Something to wait for that is no coroutine."""

    def __await__(self) -> Generator[Any, Any, str]:
        """Wait for a second."""
        yield from trio.sleep(1.0).__await__()  # noqa: ASYNC105  as an object that is awaited does
        return "receipt"


class Door:
    """Something to go through."""

    async def __aenter__(self) -> None:
        done.append("open")

    async def __aexit__(self, *_: object) -> None:
        done.append("closed")


async def fail() -> None:
    """Fail."""
    raise ValueError("no")


async def tool() -> str:
    """Do one thing after another."""
    await note("charged")
    sorted([3, 1], key=lambda number: number)
    await trio.sleep(2.0)
    await Receipt()
    async with Door():
        done.append("within")
    try:
        await fail()
    except ValueError:
        done.append("failed")
    return "done"


NAMES = (
    "note",
    "sleep",
    "Receipt.__await__",
    "Door.__aenter__",
    "Door.__aexit__",
    "fail",
)


def test_each_await_of_the_author_s_own_code_is_counted_whether_it_suspends_or_not() -> None:
    with Simulation() as simulation:
        simulation.counts_awaits = True
        assert simulation.run(call(tool)) == Returned("done")

    assert simulation.awaited == {1: NAMES}


@pytest.mark.parametrize(
    ("awaits", "so_far"),
    [(1, ["charged"]), (2, ["charged"]), (99, ["charged", "open", "within", "closed", "failed"])],
)
def test_process_dies_behind_an_await_and_nothing_goes_on(awaits: int, so_far: list[str]) -> None:
    simulation = Simulation()
    threads = find_threads()
    simulation.crash_at(Point(1, awaits=awaits))

    with pytest.raises(Crashed, match=r"killed within effect 1: CallFunction\("):
        simulation.run(call(tool))

    assert done == so_far
    assert not simulation.nodes[0].alive
    simulation.close()
    assert find_threads() == threads


def find_threads() -> set[int | None]:
    """Return the threads in which coroutines of the author's run."""
    return {thread.ident for thread in threading.enumerate() if thread.name == "functions"}


async def clean_up() -> None:
    """Clean up at last, and go on whatever happens."""
    try:
        await note("charged")
    except BaseException:  # noqa: BLE001  as careless code does
        done.append("caught")
    finally:
        await note("cleaned")


def test_killed_coroutine_that_catches_all_does_not_keep_its_world_open() -> None:
    simulation = Simulation()
    simulation.crash_at(Point(1, awaits=1))
    with pytest.raises(Crashed):
        simulation.run(call(clean_up))
    assert done == ["charged"]

    simulation.close()


def test_plain_function_has_done_its_work_when_its_answer_is_lost() -> None:
    def work() -> None:
        done.append("work")

    with Simulation() as simulation:
        simulation.crash_at(Point.read("1.end"))
        with pytest.raises(Crashed, match="killed behind effect 1"):
            simulation.run(call(work))

    assert done == ["work"]


@pytest.mark.parametrize(("point", "stored"), [("1", {}), ("1.end", {"p": 0}), ("1.3", {"p": 0})])
def test_transaction_is_stored_where_its_answer_is_lost(point: str, stored: dict[str, int]) -> None:
    with Simulation() as simulation:
        simulation.run(create_tables())
        simulation.crash_at(Point.read(point))
        with pytest.raises(Crashed):
            simulation.run(accept("p"))
        simulation.restart()

        assert simulation.run(counts()) == stored


@pytest.mark.parametrize(
    "effect", [Now(), CallFunction(lambda: 7, {}, 1.0)], ids=["at once", "not"]
)
def test_process_that_stalls_goes_on_with_the_effect(effect: Any) -> None:
    def ask() -> Program[Any]:
        return (yield effect)

    with Simulation() as simulation:
        task = simulation.start(ask())
        simulation.crash_at(Point(1, stall_seconds=40))
        with pytest.raises(Crashed, match="stalled at effect 1"):
            simulation.finish(task)
        (node,) = simulation.nodes
        assert node.alive
        simulation.advance(40)
        assert not task.done
        simulation.go_on(node)

        assert simulation.finish(task) in (Returned(7), simulation.clock.now_us)
        assert len(simulation.effects) == 2


def test_restart_plans_the_next_crash_and_forgets_the_one_before() -> None:
    with Simulation() as simulation:
        simulation.run(create_tables())
        simulation.crash_at(3)
        simulation.crash()
        simulation.restart(1)
        with pytest.raises(Crashed):
            simulation.run(counts())
        simulation.restart()

        assert simulation.run(counts()) == {}


def test_function_that_fails_is_counted_too() -> None:
    with Simulation() as simulation:
        simulation.counts_awaits = True
        assert isinstance(simulation.run(call(fail)), Raised)

    assert simulation.awaited[1] == ()


@pytest.mark.parametrize("text", ["84", "84.1", "84.end", "84~75"])
def test_point_is_read_as_it_is_written(text: str) -> None:
    assert str(Point.read(text)) == text
    assert Point.of(text) == Point.of(Point.of(text))
    assert Point.of(84).effect == Point.read(text).effect


@pytest.mark.parametrize("text", ["", "0", "84.", "84.0", "84.x", "84~", "-1", "1 2"])
def test_text_that_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(Misuse, match="is no point"):
        Point.read(text)
