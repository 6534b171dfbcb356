"""Dead letters of many channels: found, read and changed page by page, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from legation.effects import Program, RandomBytes, Sleep, Transact
from legation.messaging import dead_letters
from legation.messaging.dead_letters import (
    QUEUES,
    LetterFilter,
    change_dead_letters,
    find_dead_letters,
    read_dead_letters,
)
from legation.store.dead_letters import DiscardLetters, RetryLetters
from legation.store.failures import StoreFailure, Unavailable
from legation.store.inbox import NewMessage, PutMessages
from legation.store.leased_queue import ClaimItems, FailItem
from legation.store.outbox import NewReply, PutReply
from legation.store.units import Unit

from ...one_database import Database

R = TypeVar("R")


def kill(database: Database, error: str = "HTTP 500") -> None:
    for queue in QUEUES.values():
        while items := database.run(ClaimItems(queue, "n", 99, 20)).items:
            for item in items:
                database.run(FailItem(item.lease, error, None))


def make(names: str, channel: str = "c") -> Database:
    database = Database()
    database.clock_us = 9
    database.enter("n")
    for at_us, name in enumerate(names):
        database.run(PutMessages(channel, (NewMessage(name, name, "text"),), at_us))
        database.run(PutReply(channel, NewReply(name, name, "text"), at_us))
    kill(database)
    return database


class World:
    """Databases, and the units that were asked of each; some are away.

    Attributes:
        meanwhile: Called after each unit: what others do then.
    """

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self.databases = databases
        self.away = set[str]()
        self.meanwhile: Callable[[], None] = lambda: None
        self.asked: list[tuple[str, str]] = []

    def run(self, program: Program[R]) -> R:
        answer: Any = None
        failure: StoreFailure | None = None
        try:
            while True:
                asked: Any = program.send(answer) if failure is None else program.throw(failure)
                answer, failure = None, None
                if isinstance(asked, RandomBytes):
                    answer = bytes(asked.size)
                elif not isinstance(asked, Sleep):
                    answer, failure = self._transact(asked)
        except StopIteration as end:
            result: R = end.value
            return result

    def _transact(self, asked: Any) -> tuple[Any, StoreFailure | None]:
        self.asked.append((asked.database, type(asked.unit).__name__))
        if asked.database in self.away:
            return None, Unavailable("away")
        result = self.databases[asked.database].run(asked.unit)
        self.meanwhile()
        return result, None


def states(database: Database, table: str) -> dict[str, int]:
    return dict(database.ask(f"select state, count(*) from {table} group by state"))


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "PAGE", 2)


@pytest.fixture
def world() -> World:
    return World({"main": make("abcde"), "other": make("ab", "d")})


def run_plainly(database: str, unit: Unit[R]) -> Program[R]:
    result: R = yield Transact(database, unit)
    return result


def find(world: World, databases: str = "main other", **wanted: Any) -> list[tuple[str, str, int]]:
    found = world.run(find_dead_letters(databases.split(), LetterFilter(**wanted)))
    assert all(letters.channel == letters.chosen.channel for letters in found)
    return [(letters.database, letters.what, letters.count) for letters in found]


def test_they_are_found_in_every_channel_and_counted(world: World) -> None:
    assert find(world) == [
        ("main", "messages", 5),
        ("main", "replies", 5),
        ("other", "messages", 2),
        ("other", "replies", 2),
    ]
    assert find(world, what=("replies",), channel="d") == [("other", "replies", 2)]
    assert find(world, ids=("a", "a", "e"), since_us=1) == [
        ("main", "messages", 1),
        ("main", "replies", 1),
    ]
    assert find(world, error="HTTP 400") == []
    assert find(world, channel="no-such", until_us=9) == []


def test_they_are_read_as_far_as_that_is_wanted(world: World) -> None:
    messages, *_ = world.run(find_dead_letters(("main",), LetterFilter()))
    world.asked.clear()

    assert [row.message_id for row in world.run(read_dead_letters(messages, 3))] == ["a", "b", "c"]
    assert len(world.asked) == 2
    assert len(world.run(read_dead_letters(messages, 99))) == 5
    assert world.run(read_dead_letters(messages, 0)) == ()


def test_each_is_changed_once_however_often_it_dies(world: World) -> None:
    (replies,) = world.run(find_dead_letters(("main",), LetterFilter(("replies",))))
    revived = list[str]()

    def change(database: str, unit: Unit[R]) -> Program[R]:
        result: Any = yield Transact(database, unit)
        revived.extend(result.ids)
        returned: R = result
        return returned

    world.meanwhile = lambda: kill(world.databases["main"], "again")
    changed = world.run(change_dead_letters(replies, RetryLetters, change))
    assert (changed.count, changed.failure) == (5, None)
    assert revived == list("abcde")
    assert states(world.databases["main"], "outbox") == {"dead": 5}


def test_only_what_is_meant_is_changed(world: World) -> None:
    wanted = LetterFilter(("messages",), until_us=3)
    (messages,) = world.run(find_dead_letters(("main",), wanted))

    assert world.run(change_dead_letters(messages, DiscardLetters, run_plainly)).count == 3
    assert states(world.databases["main"], "inbox") == {"done": 3, "dead": 2}


def test_a_failure_half_way_is_said_with_what_was_done(world: World) -> None:
    (messages,) = world.run(find_dead_letters(("main",), LetterFilter(("messages",))))

    def fail_later() -> None:
        if states(world.databases["main"], "inbox")["dead"] < 3:
            world.away.add("main")

    world.meanwhile = fail_later
    changed = world.run(change_dead_letters(messages, RetryLetters, run_plainly))
    assert changed.count == 4
    assert isinstance(changed.failure, Unavailable)
    world.away.clear()
    world.meanwhile = lambda: None
    assert world.run(change_dead_letters(messages, RetryLetters, run_plainly)).count == 1


def test_a_database_that_is_away_is_tried_a_few_times(world: World) -> None:
    world.away.add("main")

    with pytest.raises(Unavailable):
        find(world)
    assert world.asked == [("main", "CountItems")] * 4
