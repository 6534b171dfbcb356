"""Counting refusals: bounded whatever comes in, and no count is lost."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.shares.refusal_counter import KINDS, RefusalCounter
from legation.store.refusals import NOWHERE, OTHERS, RefusalCount

MINUTE = 60_000_000


def address(number: int) -> str:
    """Return an address in the /64 of that number."""
    return f"2001:db8:{number >> 16:x}:{number & 0xFFFF:x}::1"


def test_what_is_the_same_is_one_count() -> None:
    counter = RefusalCounter()
    for client in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        counter.count(MINUTE + 5, client, "/me", 401)
    counter.count(2 * MINUTE - 1, "192.0.2.1", "/me", 401)
    counter.count(2 * MINUTE, "192.0.2.1", "/me", 404)

    assert counter.take() == (
        RefusalCount(1, "192.0.2.1", "/me", 401, 3),
        RefusalCount(1, "192.0.2.2", "/me", 401, 1),
        RefusalCount(2, "192.0.2.1", "/me", 404, 1),
    )
    assert counter.totals == {401: 4, 404: 1}


def test_the_addresses_of_a_64_are_one_client() -> None:
    counter = RefusalCounter()
    for last in range(1, 1000):
        counter.count(0, f"2001:db8::{last:x}", "/me", 401)

    assert counter.take() == (RefusalCount(0, "2001:db8::/64", "/me", 401, 999),)


@pytest.mark.parametrize("client", ["x" * 65, "evil\nclient", "\x1b[2J", "\u2028"])
def test_what_is_no_address_is_not_kept(client: str) -> None:
    """Behind a server of somebody else, an address may be what a header says."""
    counter = RefusalCounter()
    counter.count(0, client, "/me", 401)

    assert counter.take() == (RefusalCount(0, NOWHERE, "/me", 401, 1),)


@pytest.mark.parametrize("client", ["", "192.0.2.1", "testclient"])
def test_other_clients_are_as_they_are(client: str) -> None:
    counter = RefusalCounter()
    counter.count(0, client, "/me", 401)

    assert [one.client for one in counter.take()] == [client]


def test_beyond_the_most_there_is_one_row_of_others_for_a_minute() -> None:
    counter = RefusalCounter()
    for number in range(30_000):
        counter.count(number // 18_000 * MINUTE, address(number), "/me", 401)

    assert len(counter) == KINDS + 2
    counted = counter.take()
    others = [one for one in counted if one.client == OTHERS]
    assert others == [
        RefusalCount(0, OTHERS, NOWHERE, 0, 18_000 - KINDS),
        RefusalCount(1, OTHERS, NOWHERE, 0, 12_000),
    ]
    assert sum(one.count for one in counted) == 30_000


def test_it_is_bounded_also_where_nothing_is_written_for_a_month() -> None:
    counter = RefusalCounter()
    for number in range(KINDS):
        counter.count(0, address(number), "/me", 401)
    for minute in range(43_200):
        counter.count(minute * MINUTE, "192.0.2.1", "/me", 401)

    assert len(counter) == KINDS + 1_440
    assert sum(one.count for one in counter.take()) == KINDS + 43_200


def test_who_is_refused_again_and_again_is_among_the_kinds_of_a_flood() -> None:
    counter, random = RefusalCounter(), Random(1)
    for number in range(30_000):
        counter.count(0, address(random.randrange(100_000)), "/me", 401)
        if number % 500 == 0:
            counter.count(0, "192.0.2.1", "/sessions", 401)

    assert RefusalCount(0, "192.0.2.1", "/sessions", 401, 60) in counter.take()


def test_the_minute_that_goes_on_is_not_taken() -> None:
    counter = RefusalCounter()
    for minute in (1, 2, 3):
        counter.count(minute * MINUTE, "192.0.2.1", "/me", 401)

    assert [one.minute for one in counter.take(3 * MINUTE + 1)] == [1, 2]
    assert counter.take(3 * MINUTE + 1) == ()
    assert [one.minute for one in counter.take(4 * MINUTE)] == [3]
    assert not counter


def test_minutes_of_a_clock_that_was_set_back_are_taken() -> None:
    counter = RefusalCounter()
    counter.count(9 * MINUTE, "192.0.2.1", "/me", 401)

    assert [one.minute for one in counter.take(3 * MINUTE)] == [9]


def test_what_is_put_back_is_added_to_what_came_meanwhile() -> None:
    counter = RefusalCounter()
    counter.count(0, "192.0.2.1", "/me", 401)
    taken = counter.take()
    counter.count(0, "192.0.2.1", "/me", 401)
    counter.put_back(taken)

    assert counter.take() == (RefusalCount(0, "192.0.2.1", "/me", 401, 2),)
    assert counter.totals == {401: 2}


def test_what_is_put_back_into_a_full_counter_is_counted_with_the_others() -> None:
    counter = RefusalCounter()
    counter.count(0, "192.0.2.1", "/me", 401)
    taken = counter.take()
    for number in range(KINDS):
        counter.count(0, address(number), "/me", 401)
    counter.put_back(taken)

    assert RefusalCount(0, OTHERS, NOWHERE, 0, 1) in counter.take()


def test_the_log_has_a_hundred_lines_at_once_and_ten_a_second() -> None:
    counter = RefusalCounter()
    logged = [counter.may_log(1) for _ in range(5_000)]
    assert sum(logged) == 100
    assert all(logged[:100])
    assert sum(counter.may_log(1 + second * 1_000_000) for second in range(1, 4)) == 3

    assert sum(counter.may_log(1 + 4_000_000 + step * 200) for step in range(5_000)) in (46, 47)
    assert counter.take_unlogged() == counter.unlogged > 9_800
    assert counter.take_unlogged() == 0


def test_a_clock_that_is_set_back_gives_and_takes_no_lines() -> None:
    counter = RefusalCounter()
    logged = [counter.may_log(at_us) for at_us in (10**15, 0) for _ in range(80)]

    assert sum(logged) == 100


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.sampled_from([401, 404]))))
def test_no_count_is_lost(events: list[tuple[int, str, int]]) -> None:
    counter = RefusalCounter()
    taken: list[RefusalCount] = []
    for minute, client, status in events:
        counter.count(minute * MINUTE, client, "/me", status)
        if client == "c":
            taken += counter.take(minute * MINUTE)
    taken += counter.take()

    assert sum(one.count for one in taken) == len(events) == sum(counter.totals.values())
