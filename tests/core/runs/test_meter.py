from __future__ import annotations

import pytest

from legation.models.conversation import ModelFailed, Usage
from legation.models.prices import ModelName
from legation.models.trouble import SENTENCES, Trouble
from legation.runs.meter import (
    DURATIONS_US,
    MOST_NAMES,
    OTHER,
    TOKENS,
    Meter,
    find_outcome,
)

SMALL = ModelName("small", "acme")


def test_a_number_falls_into_the_bucket_whose_bound_it_does_not_pass() -> None:
    meter = Meter()
    for waited_us in (0, 10_000, 10_001, 81_920_000, 81_920_001):
        meter.count_begun("main", waited_us)
    found = meter.queues["main"]

    assert (found.counts[0], found.counts[1], found.counts[-2], found.counts[-1]) == (2, 1, 1, 1)
    assert (sum(found.counts), found.total) == (5, 163_860_002)


def test_no_clock_and_no_usage_makes_a_counter_smaller() -> None:
    meter = Meter()
    meter.count_begun("main", -5)
    meter.count_call("a", "look", "ok", -5)
    meter.count_request("a", SMALL, "ok", -5, Usage(5, -5, -5, -5, -5), -5)
    tally = meter.models["a", "acme", "small"]
    durations = (
        meter.queues["main"],
        meter.tools["a", "look"].durations["ok"],
        tally.durations["ok"],
        tally.first,
        tally.output,
    )

    assert [(one.counts[0], one.total) for one in durations] == [(1, 0)] * 5
    assert (tally.cached, tally.cache_write, tally.reasoning) == (0, 0, 0)


def test_the_bounds_are_those_of_the_conventions() -> None:
    assert (DURATIONS_US[0], DURATIONS_US[-1], len(DURATIONS_US)) == (10_000, 81_920_000, 14)
    assert (TOKENS[0], TOKENS[-1], len(TOKENS)) == (1, 67_108_864, 14)


def test_a_request_adds_its_outcome_its_time_its_tokens_and_its_price() -> None:
    meter = Meter()
    usage = Usage(100, 20, 5, 60, 10, cost_nano=7)
    meter.count_request("a", SMALL, "ok", 15_000, usage, 5_000)
    meter.count_request("a", SMALL, "ok", 25_000, usage)
    meter.count_request("a", SMALL, "timeout", 9, Usage())
    meter.count_request("a", SMALL, "cancelled", None, Usage())
    [(key, tally)] = meter.models.items()

    assert key == ("a", "acme", "small")
    assert tally.counts == {"ok": 2, "timeout": 1, "cancelled": 1}
    assert {outcome: one.total for outcome, one in tally.durations.items()} == {
        "ok": 40_000,
        "timeout": 9,
    }
    assert (tally.first.total, sum(tally.first.counts)) == (5_000, 1)
    assert (tally.input.total, tally.output.total, sum(tally.input.counts)) == (200, 40, 2)
    assert (tally.cached, tally.cache_write, tally.reasoning, tally.cost) == (120, 20, 10, 14)


def test_what_used_nothing_and_has_no_price_adds_neither() -> None:
    meter = Meter()
    meter.count_request("a", SMALL, "ok", 1, Usage())
    meter.count_request("a", SMALL, "ok", 1, Usage(1))
    [tally] = meter.models.values()

    assert (sum(tally.input.counts), tally.cost) == (1, None)


def test_a_call_adds_its_outcome_and_its_time() -> None:
    meter = Meter()
    meter.count_call("a", "look", "ok", 5)
    meter.count_call("a", "look", "ok", 6)
    meter.count_call("b", "look", "rejected", None)

    assert meter.tools["a", "look"].counts == {"ok": 2}
    assert meter.tools["a", "look"].durations["ok"].total == 11
    assert (meter.tools["b", "look"].counts, meter.tools["b", "look"].durations) == (
        {"rejected": 1},
        {},
    )


def test_waits_and_lost_leases_are_counted_by_database() -> None:
    meter = Meter()
    for database in ("main", "main", "second"):
        meter.count_begun(database, 5)
        meter.count_lost(database)

    assert (meter.queues["main"].total, meter.queues["second"].total) == (10, 5)
    assert meter.lost == {"main": 2, "second": 1}


def test_nobody_makes_series_without_end() -> None:
    meter = Meter()
    for number in range(3 * MOST_NAMES):
        meter.count_request("a", ModelName(f"m{number}", "p"), "ok", 1, Usage())
        meter.count_call("a", f"t{number}", "ok", 1)
    meter.count_request("b", SMALL, "ok", 1, Usage())
    meter.count_call("b", "look", "ok", 1)
    meter.count_request("a", ModelName("m1", "p"), "ok", 1, Usage())

    assert len(meter.models) == len(meter.tools) == MOST_NAMES + 2
    assert meter.models["a", "", OTHER].counts == {"ok": 2 * MOST_NAMES}
    assert meter.tools["a", OTHER].counts == {"ok": 2 * MOST_NAMES}
    assert meter.models["b", "acme", "small"].counts == {"ok": 1}
    assert meter.models["a", "p", "m1"].counts == {"ok": 2}


def test_long_names_are_cut_and_are_one_from_then_on() -> None:
    meter = Meter()
    for _ in range(2):
        meter.count_request("a", ModelName("m" * 500, "p" * 500), "ok", 1, Usage())
        meter.count_call("a", "t" * 500, "ok", 1)

    assert [*meter.models] == [("a", "p" * 100, "m" * 100)]
    assert [*meter.tools] == [("a", "t" * 100)]
    assert meter.tools["a", "t" * 100].counts == {"ok": 2}


@pytest.mark.parametrize("reason", SENTENCES)
def test_a_failure_is_called_by_its_reason(reason: str) -> None:
    assert find_outcome(Trouble(reason)) == reason


@pytest.mark.parametrize("error", [ModelFailed("what they say", "No"), ValueError("x")])
def test_any_other_failure_is_an_error(error: Exception) -> None:
    assert find_outcome(error) == "error"
