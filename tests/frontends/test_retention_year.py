"""A year of traffic in simulated time: a database with retention does not grow any more.

In CI a year has 1,200 runs and 240 messages of a platform; at night 50,000 and 10,000, and the same
of the units alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Agent, Database, Platform, Retention
from legation.effects import Program, Transact
from legation.store.inbox import INBOX, CompleteMessage, NewMessage, PutMessages
from legation.store.outbox import NewReply
from legation.store.periods import Kind, Periods
from legation.store.run_rows import DAY_US
from legation.store.units import Dialect, ReadUnit, Sql, Statements
from legation.values import frozen
from legation_testing import Client

from ..core.lifecycle.test_bounded_round import TICK_US, Providers, deliver, go_round
from ..old_data import NODE, NOW_US, claim, store_run, sweep
from ..one_database import Database as Tables
from ..providers.deliveries import channels, platform
from ..providers.strict import now_us

DAY: Final = 86_400.0
DAYS: Final = 365
PERIOD: Final = 30
PERIODS: Final = Periods(
    **{kind.value: PERIOD for kind in Kind if kind not in (Kind.EVENTS, Kind.STEPS, Kind.ANSWERS)},
    events=PERIOD // 2,
    steps=PERIOD // 2,
    answers=1,
)
NIGHTLY: Final = bool(os.environ.get("LEGATION_NIGHTLY"))
RUNS: Final = 137 if NIGHTLY else 3.3
MESSAGES: Final = 28 if NIGHTLY else 0.67
"""A day."""


def made() -> Platform:
    every = Retention(**{f"{kind.value}_days": PERIODS.days(kind) for kind in Kind})
    return platform(
        agents=[Agent(id="concierge")],
        channels=channels("http://127.0.0.1:9", "concierge")[:1],
        databases=[Database("main", "sqlite://")],
        retention=every,
    )


@frozen
class _Size(ReadUnit[int]):
    """The size of the database, with the pages that are free in it, in bytes."""

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield one read."""
        text = "select page_count * page_size from pragma_page_count, pragma_page_size"
        ((size,),) = yield Sql(text, registered=False)()
        return int(size)


def size_of(c: Client) -> int:
    def program() -> Program[int]:
        return (yield from Transact("main", _Size()))

    return c.simulation.run(program())


def live(c: Client, day: int) -> None:
    """Send the runs and messages of a day: half of the runs in sessions that go on all year."""
    for number in range(int(day * RUNS), int((day + 1) * RUNS)):
        session = f"long-{number % 5}" if number % 2 else f"s{number}"
        form = {"message": "Book a room for two. " * 20, "session_id": session, "stream": False}
        headers = {"Idempotency-Key": f"k{number}"} if number % 7 == 0 else {}
        c.post("/agents/concierge/runs", form=form, headers=headers).expect_success()
    for number in range(int(day * MESSAGES), int((day + 1) * MESSAGES)):
        deliver(c, (f"49{number % 20}", f"m{number}", "Is the room free?"))


def test_after_the_first_period_a_database_stays_as_large_as_it_is(
    figures: Callable[[str], None],
) -> None:
    providers, sizes = Providers(), list[int]()
    options: dict[str, Any] = {"jobs": False, "start_us": now_us() // TICK_US * TICK_US}
    with Client(made, fetch=providers, **options) as c:
        for day in range(DAYS):
            live(c, day)
            assert go_round(c, limit=10_000, seconds=3_600.0).failed == ()
            c.advance(DAY)
            sizes.append(size_of(c))
        totals = c.get("/metrics/prometheus").text

    first, most = sizes[PERIOD + 2], max(sizes[PERIOD + 2 :])
    figures(
        f"retention: a year of {int(DAYS * RUNS):,} runs and {int(DAYS * MESSAGES):,} messages:"
        f" {first / 1e6:.2f} MB after {PERIOD} days, {most / 1e6:.2f} MB at most behind that"
    )
    assert most <= 1.1 * first
    assert providers.texts.count("Is the room free?") == int(DAYS * MESSAGES)
    assert 'legation_retention_pruned_total{database="main",kind="runs"}' in totals


def live_by_units(tables: Tables, day: int, now_us: int, runs: float, messages: float) -> None:
    """Store the runs and messages of a day, as `live` does."""
    tables.clock_us = now_us
    for number in range(int(day * runs), int((day + 1) * runs)):
        session = f"long-{number % 50}" if number % 2 else f"s{number}"
        state = f'{{"n":{number}}}' if number % 4 == 0 else "{}"
        store_run(
            tables.run, f"r{number}", now_us + number, owner=f"u{number % 100}",
            session_id=session, events=5, steps=number % 3, state=state,
        )  # fmt: skip
    for number in range(int(day * messages), int((day + 1) * messages)):
        tables.run(
            PutMessages("chat", (NewMessage(f"m{number}", f"p{number % 20}", "{}"),), now_us)
        )
        reply = NewReply(f"reply-m{number}", f"p{number % 20}", "{}", f"m{number}")
        tables.run(CompleteMessage(claim(tables.run, INBOX), now_us, (reply,)))
    tables.ask("update outbox set state = 'sent', sent_us = created_us where state = 'ready'")


@pytest.mark.parametrize(
    ("runs", "messages"),
    [pytest.param(137.0, 27.4, marks=pytest.mark.skipif(not NIGHTLY, reason="at night")), (5.0, 1)],
    ids=["whole", "small"],
)
def test_the_same_holds_of_the_units_alone(
    runs: float, messages: float, figures: Callable[[str], None]
) -> None:
    tables, sizes = Tables(), list[int]()
    tables.clock_us = NOW_US
    tables.enter(NODE)
    for day in range(DAYS):
        now_us = NOW_US + day * DAY_US
        live_by_units(tables, day, now_us, runs, messages)
        assert sweep(tables.run, PERIODS, now_us + DAY_US // 2) is not None
        sizes.append(tables.run(_Size()))

    first, most = sizes[PERIOD + 2], max(sizes[PERIOD + 2 :])
    figures(
        f"retention: units of {int(DAYS * runs):,} runs and {int(DAYS * messages):,} messages:"
        f" {first / 1e6:.2f} MB after {PERIOD} days, {most / 1e6:.2f} MB at most behind that"
    )
    assert most <= 1.1 * first
    sums = tables.ask("select (select sum(bytes) from usage), (select sum(bytes) from sessions)")
    assert sums[0][0] == sums[0][1]
