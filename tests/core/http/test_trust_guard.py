"""Hosts and senders that are trusted: what a stranger can own is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.trust_guard import TEST_CLIENT, TrustGuard, is_host_name, is_loopback


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"LOCALHOST:7777",
        b"localhost.",
        b"127.0.0.1:8000",
        b"10.1.2.3",
        b"[::1]:80",
        b"[::ffff:127.0.0.1]",
        b"legation:7777",
        b"testserver",
        b"app.localhost:1",
        b"a.b.localhost",
        b"platform.test",
        b"app.example.com",
        b"APP.example.com.:443",
        b"",
    ],
)
def test_host_that_no_stranger_owns_is_expected(host: bytes) -> None:
    assert TrustGuard.of(["App.example.com"]).expects(host)


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"evil.example:7777",
        b"localhost.evil.example",
        b"127.0.0.1.evil.example",
        b"evil.127.0.0.1.nip.io",
        b"xapp.example.com",
        b"app.example.com.evil",
        b"evil%2eexample",
        b"0x7f.1",
        b"127.0.0.1\n",
        b".localhost",
        b"app.test.evil.example",
    ],
)
def test_host_that_a_stranger_can_own_is_not_expected(host: bytes) -> None:
    guard = TrustGuard.of(["app.example.com"])

    assert not guard.expects(host)
    assert guard.accepted == set()


def test_what_is_remembered_is_bounded() -> None:
    guard = TrustGuard.of([])

    assert all(guard.expects(b"localhost:%d" % port) for port in range(1000))
    assert len(guard.accepted) == 64


@given(st.binary(max_size=60))
def test_any_host_is_judged_and_twice_alike(host: bytes) -> None:
    guard = TrustGuard.of([])

    assert guard.expects(host) == guard.expects(host)


@pytest.mark.parametrize(
    ("client", "near"),
    [
        ("", True),
        (TEST_CLIENT, True),
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("::", False),
        ("unknown", False),
        ("evil.localhost", False),
    ],
)
def test_a_sender_is_of_this_machine_or_not(client: str, near: bool) -> None:
    assert is_loopback(client) is near


@given(st.text(max_size=50))
def test_any_sender_is_judged(client: str) -> None:
    assert is_loopback(client) in (True, False)


@pytest.mark.parametrize(
    ("name", "is_name"),
    [
        ("app.example.com", True),
        ("app", True),
        ("a_b.internal", True),
        ("", False),
        ("a..b", False),
        ("*.example.com", False),
        ("app.example.com:80", False),
        ("App", False),
        (".".join(["a" * 60] * 5), False),
    ],
)
def test_name_of_a_host(name: str, is_name: bool) -> None:
    assert is_host_name(name) is is_name
