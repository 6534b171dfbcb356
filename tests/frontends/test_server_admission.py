from __future__ import annotations

import pytest

from legation.shares.subjects import is_near
from legation_server import Settings
from legation_server.admission import Admission

LIMITS = Settings(connections=5, connections_per_address=2)


def statuses(admission: Admission, *clients: str) -> list[int | None]:
    refusals = [admission.enter(client) for client in clients]
    return [None if refusal is None else refusal.status for refusal in refusals]


def test_one_address_has_a_share() -> None:
    admission = Admission(LIMITS)

    assert statuses(admission, *["192.0.2.1"] * 3, "192.0.2.2") == [None, None, 429, None]
    admission.leave("192.0.2.1")
    assert statuses(admission, "192.0.2.1", "192.0.2.1") == [None, 429]


def test_a_network_of_ipv6_is_one_address() -> None:
    admission = Admission(LIMITS)
    others = ("2001:db8:0:1::", "2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:2::")

    assert statuses(admission, "2001:db8:0:1::5", *others) == [None, None, 429, None]
    admission.leave("2001:db8:0:1::5")
    assert statuses(admission, "2001:db8:0:1::6", "2001:db8:0:1::7") == [None, 429]


def test_all_together_have_a_share() -> None:
    admission = Admission(LIMITS)

    assert statuses(admission, *"abcdef") == [None] * 5 + [503]
    admission.leave("a")
    assert statuses(admission, "f", "g") == [None, 503]


def test_who_is_refused_is_not_counted() -> None:
    admission = Admission(LIMITS)
    statuses(admission, *["192.0.2.1"] * 50)

    assert statuses(admission, *"abc") == [None] * 3


@pytest.mark.parametrize("client", ["", "127.0.0.1", "127.8.8.8", "::1"])
def test_this_machine_is_exempt_from_the_share_of_an_address(client: str) -> None:
    assert is_near(client)
    assert statuses(Admission(LIMITS), *[client] * 6) == [None] * 5 + [503]


@pytest.mark.parametrize("client", ["192.0.2.127", "::1:1", "2001:db8::1", "12.7.0.0"])
def test_other_machines_are_not_near(client: str) -> None:
    assert not is_near(client)


def test_a_few_at_once_are_to_make_room_and_no_more_before_they_have_gone() -> None:
    admission = Admission(Settings(connections=100, connections_per_address=100))
    statuses(admission, *["192.0.2.1"] * 50, *["192.0.2.2"] * 49)
    assert admission.lacks == 0

    admission.enter("192.0.2.3")
    assert admission.lacks == 5
    for _ in range(5):
        admission.expect_leave()
    assert admission.lacks == 0
    assert statuses(admission, *["192.0.2.4"] * 6) == [None] * 5 + [503]
    assert (admission.lacks, admission.evicted) == (0, 5)

    admission.leave("192.0.2.1", evicted=True)
    assert admission.lacks == 1
    admission.leave("192.0.2.1")
    assert admission.lacks == 0
    assert statuses(admission, *["192.0.2.5"] * 2) == [None, 503]
