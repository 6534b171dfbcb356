"""The rules of events and nudges: `Publish`, `NextEvents`, `Nudge` and `AwaitNudge`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from legation.effects import (
    AwaitNudge,
    Concurrently,
    NextEvents,
    Nudge,
    Program,
    Publish,
    Sleep,
    Spawn,
)
from legation.store.run_rows import StoredEvent

from ..bench import FIRST, LONG, SHORT, Bench, Case, ask, ask_at_once, ask_in_vain, expect, require
from .jobs import Doing

__all__ = ["CASES"]


def _events(numbers: Iterable[int]) -> tuple[StoredEvent, ...]:
    return tuple(StoredEvent(number, "KitEvent", f'{{"n": {number}}}') for number in numbers)


def _publish(run_id: str, *numbers: int) -> Program[None]:
    answer = yield from ask_at_once(Publish(run_id, _events(numbers)))
    expect("`Publish` was answered", answer, None)


# Events


def _before(bench: Bench) -> Program[None]:
    run_id = bench.name("run")
    yield from _publish(run_id, 1, 2)
    yield from _publish(run_id, 3)
    found = yield from ask_at_once(NextEvents(run_id, 0, LONG))
    expect("events published before they were asked for", found, _events((1, 2, 3)))


def _behind(bench: Bench) -> Program[None]:
    run_id = bench.name("run")
    yield from _publish(run_id, *range(1, 6))
    for after in range(5):
        found = yield from ask_at_once(NextEvents(run_id, after, LONG))
        expect(f"events behind {after}", found, _events(range(after + 1, 6)))
    found = yield from ask_in_vain(NextEvents(run_id, 5, SHORT))
    expect("events behind the last", found, None)


def _none(bench: Bench) -> Program[None]:
    run_id = bench.name("run")
    expect("events of a silent run", (yield from ask_in_vain(NextEvents(run_id, 0, SHORT))), None)
    yield from _publish(bench.name("run"), 1)
    yield from _publish(run_id)
    found = yield from ask_in_vain(NextEvents(run_id, 0, SHORT))
    expect("events of a run, when another had some", found, None)


def _gap(bench: Bench) -> Program[None]:
    run_id = bench.name("run")
    yield from _publish(run_id, 5, 6)
    found = yield from ask_at_once(NextEvents(run_id, 2, LONG))
    expect("events behind 2, of which the first is 5", found, ())
    found = yield from ask_at_once(NextEvents(run_id, 4, LONG))
    expect("events behind 4", found, _events((5, 6)))


def _wakes_followers(bench: Bench) -> Program[None]:
    run_id = bench.name("run")

    def follow() -> Program[tuple[StoredEvent, ...]]:
        found: tuple[StoredEvent, ...] = yield from ask_at_once(NextEvents(run_id, 0, LONG))
        return found

    def publish(database: str | None) -> Program[None]:
        yield from Sleep(SHORT)
        yield from Publish(run_id, _events((1, 2)), database)

    *followed, _ = yield from Concurrently((*(follow() for _ in range(5)), publish(FIRST)))
    expect("events that five followers waited for", followed, [_events((1, 2))] * 5)


def _in_order(bench: Bench) -> Program[None]:
    run_id, last = bench.name("run"), 500

    def follow() -> Program[tuple[int, ...]]:
        seen: list[int] = []
        while len(seen) < last:
            found = yield from ask_at_once(NextEvents(run_id, len(seen), LONG))
            require(found, f"after {len(seen)} events there came none")
            seen += [event.seq for event in found]
        return tuple(seen)

    def publish() -> Program[None]:
        for number in range(1, last, 2):
            yield from Publish(run_id, _events((number, number + 1)))
            if number % 7 == 0:
                yield from Sleep(0.0)

    one, other, _ = yield from Concurrently((follow(), follow(), publish()))
    for seen in (one, other):
        expect("events in order, without gap", seen, tuple(range(1, last + 1)))


# Nudges


def _nudge(topic: str, seconds: float = 0.0, database: str | None = None) -> Program[None]:
    if seconds:
        yield from Sleep(seconds)
    yield from Nudge(topic, database)


def _await(topic: str) -> Program[None]:
    """Wait for a nudge, which is to come."""
    expect("`AwaitNudge` was answered", (yield from ask_at_once(AwaitNudge(topic, LONG))), None)


def _await_in_vain(topic: str) -> Program[None]:
    """Wait for a nudge, which is not to come."""
    expect("`AwaitNudge` was answered", (yield from ask_in_vain(AwaitNudge(topic, SHORT))), None)


def _wakes(bench: Bench) -> Program[None]:
    for database in (None, FIRST):
        topic = bench.name("topic")
        waiting = tuple(_await(topic) for _ in range(20))
        yield from Concurrently((*waiting, _nudge(topic, SHORT, database)))


def _wakes_from_a_job(bench: Bench) -> Program[None]:
    topic = bench.name("topic")
    yield from Spawn(Doing(partial(_nudge, topic, SHORT)))
    yield from _await(topic)


def _other_topic(bench: Bench) -> Program[None]:
    topic, other = bench.name("topic"), bench.name("topic")
    yield from Nudge(other)
    yield from Concurrently((_await_in_vain(topic), _nudge(other, SHORT / 3)))
    yield from _await(other)


def _in_vain(bench: Bench) -> Program[None]:
    yield from _await_in_vain(bench.name("topic"))
    expect("no time", (yield from ask_at_once(AwaitNudge(bench.name("topic"), 0.0))), None)


def _between(bench: Bench) -> Program[None]:
    topic = bench.name("topic")
    yield from Nudge(topic)
    yield from _await(topic)
    yield from _await_in_vain(topic)
    yield from Nudge(topic)
    yield from Sleep(SHORT)
    yield from _await(topic)


def _once(bench: Bench) -> Program[None]:
    topic = bench.name("topic")
    for _ in range(3):
        yield from Nudge(topic)
    yield from _await(topic)
    yield from _await_in_vain(topic)
    yield from Concurrently((_await(topic), _nudge(topic, SHORT)))


def _none_lost(bench: Bench) -> Program[None]:
    ping, pong, times = bench.name("ping"), bench.name("pong"), 200

    def begin() -> Program[int]:
        yield from Sleep(SHORT)  # until the other has begun
        for _ in range(times):
            yield from Nudge(ping)
            yield from _await(pong)
        return times

    def follow() -> Program[int]:
        for _ in range(times):
            yield from _await(ping)
            yield from Nudge(pong)
        return times

    found = yield from Concurrently((begin(), follow()))
    expect("rounds of two programs that nudge each other", found, (times, times))


def _of_each_program(bench: Bench) -> Program[None]:
    topic = bench.name("topic")

    def two_waits() -> Program[Any]:
        yield from ask(Sleep(SHORT))
        yield from _await(topic)
        yield from _await_in_vain(topic)

    yield from Concurrently((two_waits(), two_waits(), _nudge(topic, SHORT / 3)))


CASES: Final = (
    Case(
        "Publish.before",
        Publish,
        "Events that were published before they are asked for come at once",
        _before,
    ),
    Case(
        "Publish.wakes_followers",
        Publish,
        "`Publish` wakes everybody who follows the run",
        _wakes_followers,
    ),
    Case("NextEvents.behind", NextEvents, "Events come from behind `after`, and all", _behind),
    Case(
        "NextEvents.none",
        NextEvents,
        "Without news of its own run the answer is None, after `timeout_seconds`",
        _none,
    ),
    Case(
        "NextEvents.gap", NextEvents, "Where the next event is not there, the answer is empty", _gap
    ),
    Case("NextEvents.in_order", NextEvents, "Followers see every event once, in order", _in_order),
    Case("Nudge.wakes", Nudge, "`Nudge` wakes everybody who waits under its topic", _wakes),
    Case("Nudge.of_a_job", Nudge, "The nudge of a job wakes other programs", _wakes_from_a_job),
    Case("Nudge.other_topic", Nudge, "`Nudge` wakes nobody under another topic", _other_topic),
    Case(
        "AwaitNudge.in_vain",
        AwaitNudge,
        "Without a nudge the wait ends after `timeout_seconds`",
        _in_vain,
    ),
    Case(
        "AwaitNudge.between",
        AwaitNudge,
        "A nudge that comes between two waits of a program ends the next at once",
        _between,
    ),
    Case("AwaitNudge.once", AwaitNudge, "Nudges that have ended a wait end no other", _once),
    Case("AwaitNudge.none_lost", AwaitNudge, "No nudge is lost between programs", _none_lost),
    Case(
        "AwaitNudge.of_each",
        AwaitNudge,
        "Each program has its own memory of the nudges that it has seen",
        _of_each_program,
    ),
)
