"""The rules of `HoldName` and `FindDead`: how a process shows that it lives, and that it ended.

A host need not be able to hold names: then their place is empty, and it finds nobody dead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from legation.effects import FindDead, HoldName, NameHeld, Program
from legation.store.failures import StoreFailure

from ..bench import FIRST, SECOND, Bench, Broken, Case, ask, ask_at_once, expect, require

__all__ = ["CASES"]

_ODD: Final = ("..", "a/b", "/etc/passwd", "é\U0001f600", " ", "'%\\", "x" * 500)


def _hold(database: str, name: str) -> Program[NameHeld]:
    held: Any = yield from ask_at_once(HoldName(database, name))
    require(isinstance(held, NameHeld), f"`HoldName` was answered with {held!r}")
    require(isinstance(held.place, str), f"a place is {held.place!r}")
    require(isinstance(held.session, bool), f"a session is {held.session!r}")
    return held  # type: ignore[no-any-return]  # it was looked at


def _find(database: str, *names: str) -> Program[tuple[str, ...]]:
    dead: Any = yield from ask_at_once(FindDead(database, names))
    require(isinstance(dead, tuple), f"`FindDead` was answered with {dead!r}")
    require(set(dead) <= {*names}, f"asked for {names!r}, it found {dead!r}")
    return dead  # type: ignore[no-any-return]  # as above


def _same(bench: Bench) -> Program[None]:
    for database in (FIRST, SECOND):
        places: set[str] = set()
        for word in (*_ODD, *_ODD):
            held = yield from _hold(database, bench.name(word))
            places.add(held.place)
        name = bench.name("again")
        for _ in range(3):
            held = yield from _hold(database, name)
            places.add(held.place)
        require(len(places) == 1, f"names of one process are held at {sorted(places)}")


def _of_another(bench: Bench) -> None:
    name = bench.name("taken")
    bench.run(_hold(FIRST, name))
    with bench.make_host(bench.setup) as other:
        bench.run(_hold(FIRST, name), host=other)
        bench.run(_hold(FIRST, name))


def _spare_living(bench: Bench) -> None:
    own, others = bench.name("own"), bench.name("other")
    bench.run(_hold(FIRST, own))
    with bench.make_host(bench.setup) as other:
        bench.run(_hold(FIRST, others), host=other)
        for host in (None, other, None):
            found = bench.run(_find(FIRST, own, others), host=host)
            expect("the dead among those that live", found, ())


def _find_ended(bench: Bench) -> None:
    held = bench.run(_hold(FIRST, bench.name("own")))
    name = bench.name("ended")
    with bench.make_host(bench.setup) as other:
        there = bench.run(_hold(FIRST, name), host=other)
    if held.place and there.place == held.place:
        for _ in range(2):
            found = bench.run(_find(FIRST, bench.name("never"), name))
            expect("the dead, one of two after its end", found, (name,))


def _apart(bench: Bench) -> None:
    name = bench.name("apart")
    with bench.make_host(bench.setup) as other:
        bench.run(_hold(FIRST, name), host=other)
    expect("the dead of another database", bench.run(_find(SECOND, name)), ())


def _unknown(bench: Bench) -> Program[None]:
    for names in ((), _ODD, tuple(bench.name("never") for _ in range(300))):
        found = yield from _find(FIRST, *names)
        expect("the dead among names that nobody ever held", found, ())


def _nowhere(effect: Any) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        try:
            found = bench.run(ask(effect))
        except Broken:
            raise
        except Exception as error:  # noqa: BLE001  any will do that is no failure of a database
            require(not isinstance(error, StoreFailure), f"`run` raised {error!r}")
        else:
            raise Broken(f"`run` returned {found!r}")

    return act


CASES: Final = (
    Case("HoldName.same", HoldName, "`HoldName` is answered with one place, each time", _same),
    Case(
        "HoldName.of_another",
        HoldName,
        "`HoldName` is answered at once, also where another process holds the name",
        _of_another,
    ),
    Case(
        "HoldName.unknown_database",
        HoldName,
        "To hold a name for a database that the host has not is a fault: `run` raises it",
        _nowhere(HoldName("nowhere", "name")),
    ),
    Case(
        "FindDead.living", FindDead, "`FindDead` never names one that somebody holds", _spare_living
    ),
    Case(
        "FindDead.ended",
        FindDead,
        "`FindDead` names one of its place whose process has ended, as often as it is asked",
        _find_ended,
    ),
    Case("FindDead.apart", FindDead, "A name of one database says nothing in another", _apart),
    Case(
        "FindDead.unknown",
        FindDead,
        "A name that nobody ever held is not dead: `FindDead` cannot know of it",
        _unknown,
    ),
    Case(
        "FindDead.unknown_database",
        FindDead,
        "To find the dead of a database that the host has not is a fault: `run` raises it",
        _nowhere(FindDead("nowhere", ("name",))),
    ),
)
