"""Dead letters in many channels and databases: found, read, and changed page by page.

A page is read, and its letters are changed in one small transaction.  The next page begins behind
it, so that each letter is changed once: one that dies again meanwhile is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from attrs import evolve

from ..effects import Program
from ..runs.retry import FEW, PASSING, Change, with_retry
from ..store.dead_letters import ChooseLetters, Chosen, CountChosen, ListChosen
from ..store.failures import StoreFailure
from ..store.inbox import INBOX
from ..store.leased_queue import CountItems, LeasedQueue
from ..store.outbox import OUTBOX
from ..store.units import Unit
from ..values import frozen

__all__ = [
    "PAGE",
    "QUEUES",
    "DeadLetters",
    "LetterFilter",
    "LettersChanged",
    "change_dead_letters",
    "find_dead_letters",
    "read_dead_letters",
]

PAGE: Final = 200
"""How many letters are read, or changed, at once."""

QUEUES: Final[dict[str, LeasedQueue[Any, Any]]] = {"messages": INBOX, "replies": OUTBOX}
"""The two queues that have dead letters, by what is in them."""

MakeChange: TypeAlias = Callable[[ChooseLetters], Unit[Chosen]]


@frozen
class LetterFilter:
    """The dead letters that are meant: those that meet everything that is said here.

    Attributes:
        what: `messages`, `replies`, or both.
        channel: Those of this channel; None for any, hosted or not.
        ids: Those of these ids; None for any.
        error: Those whose error has this in it; None for any.
        since_us: Those that were stored at this time or later.
        until_us: Those that were stored before.
    """

    what: tuple[str, ...] = tuple(QUEUES)
    channel: str | None = None
    ids: tuple[str, ...] | None = None
    error: str | None = None
    since_us: int = 0
    until_us: int = 1 << 62

    def choose(self, channel: str, what: str) -> ChooseLetters:
        """Return the choice of letters in one channel."""
        return ChooseLetters(
            channel,
            QUEUES[what],
            PAGE,
            None if self.ids is None else tuple(dict.fromkeys(self.ids)),
            self.error,
            self.since_us,
            self.until_us,
        )


@frozen
class DeadLetters:
    """The letters that are meant of one channel in one database, and their number."""

    database: str
    what: str
    chosen: ChooseLetters
    count: int

    @property
    def channel(self) -> str:
        """The channel that they are of."""
        return self.chosen.channel


@frozen
class LettersChanged:
    """The number of letters that were changed, and the failure that ended it, if one did."""

    count: int
    failure: StoreFailure | None = None


def find_dead_letters(
    databases: Iterable[str], wanted: LetterFilter
) -> Program[tuple[DeadLetters, ...]]:
    """Return where the letters are that are meant, and how many; a channel without any is left out.

    Raises:
        StoreFailure: A database does not answer.
    """
    found: list[DeadLetters] = []
    for database in databases:
        for what in wanted.what:
            depths = yield from with_retry(database, CountItems(QUEUES[what]), FEW)
            for depth in depths:
                if depth.dead and wanted.channel in (None, depth.channel):
                    chosen = wanted.choose(depth.channel, what)
                    count = yield from with_retry(database, CountChosen(chosen), FEW)
                    if count:
                        found.append(DeadLetters(database, what, chosen, count))
    return tuple(found)


def read_dead_letters(letters: DeadLetters, most: int) -> Program[tuple[Any, ...]]:
    """Return the oldest `most` letters as rows of their queue."""
    rows: list[Any] = []
    place: tuple[Any, ...] | None = None
    while len(rows) < most:
        size = min(PAGE, most - len(rows))
        unit = ListChosen(evolve(letters.chosen, limit=size), place)
        page = yield from with_retry(letters.database, unit, FEW)
        rows += page
        if len(page) < size:
            break
        place = letters.chosen.queue.place(page[-1])
    return tuple(rows)


def change_dead_letters(
    letters: DeadLetters, make: MakeChange, change: Change
) -> Program[LettersChanged]:
    """Change all that are meant, a page at a time.

    Args:
        letters: Where they are.
        make: Makes the unit that changes a choice of them.
        change: Runs each such unit, with the record of who asked.
    """
    database, queue = letters.database, letters.chosen.queue
    done, place = 0, None
    try:
        while page := (yield from with_retry(database, ListChosen(letters.chosen, place), FEW)):
            place = queue.place(page[-1])
            ids = tuple(getattr(row, queue.name) for row in page)
            unit = make(evolve(letters.chosen, ids=ids))
            changed: Chosen = yield from with_retry(database, unit, FEW, PASSING, change)
            done += len(changed.ids)
    except StoreFailure as failure:
        return LettersChanged(done, failure)
    return LettersChanged(done)
