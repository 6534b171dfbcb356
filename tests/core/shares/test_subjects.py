"""Subjects: an address counts as one, of IPv6 the network that one client has."""

from __future__ import annotations

import pytest

from legation.shares.subjects import address_subject, is_near, network_of


@pytest.mark.parametrize(
    ("client", "network"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_the_network_of_a_client(client: str, network: str) -> None:
    assert network_of(client) == network
    assert address_subject(client) == f"~address:{network}"


@pytest.mark.parametrize(
    ("client", "near"), [("", True), ("::1", True), ("127.0.0.9", True), ("203.0.113.9", False)]
)
def test_who_is_on_this_machine(client: str, near: bool) -> None:
    assert is_near(client) is near
