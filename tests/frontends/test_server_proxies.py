"""Whom a chain of proxies speaks for, and who is believed about it."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation_server import BadNetwork, Proxies, Settings, parse_networks
from legation_server.admission import Admission
from legation_server.proxies import plain

from .server_kit import Client, serving

XFF = b"x-forwarded-for"
PROXIES = parse_networks(["10.0.0.0/8", "fd00::/8"])
RFC7239 = parse_networks(["10.0.0.0/8", "fd00::/8"], "forwarded")


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("6.6.6.6, 203.0.113.7", "203.0.113.7"),  # the left one is what the client wrote
        ("203.0.113.7, 10.1.1.1", "203.0.113.7"),  # two proxies of ours
        ("10.2.2.2, 10.1.1.1", "10.2.2.2"),  # a client inside
        ("203.0.113.7:4711", "203.0.113.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("unknown", "10.0.0.1"),
        ("203.0.113.7, unknown", "10.0.0.1"),
        ("203.0.113.7, unknown, 10.1.1.1", "10.1.1.1"),
        ("203.0.113.7, ", "10.0.0.1"),
        ("", "10.0.0.1"),
        ("203.0.113.300", "10.0.0.1"),
        ("203.0.113.7\t", "203.0.113.7"),
        (", ".join(["10.1.1.1"] * 100), "10.1.1.1"),
    ],
)
def test_the_right_end_of_x_forwarded_for_is_believed(value: str, client: str) -> None:
    headers = ((b"host", b"a"), (XFF, value.encode()), (b"forwarded", b"for=9.9.9.9"))

    assert PROXIES.client("10.0.0.1", headers) == client


def test_several_lines_are_one_list() -> None:
    headers = ((XFF, b"6.6.6.6"), (XFF, b"203.0.113.7"), (XFF, b"10.1.1.1"))

    assert PROXIES.client("10.0.0.1", headers) == "203.0.113.7"


def test_without_the_header_the_peer_is_the_client() -> None:
    assert PROXIES.client("10.0.0.1", ((b"forwarded", b"for=203.0.113.7"),)) == "10.0.0.1"


@pytest.mark.parametrize(
    ("value", "client"),
    [
        ("for=203.0.113.7", "203.0.113.7"),
        ('For="[2001:db8:cafe::17]:4711"', "2001:db8:cafe::17"),
        ("for=192.0.2.43, for=198.51.100.17", "198.51.100.17"),
        ("for=203.0.113.7;proto=http;by=10.0.0.1", "203.0.113.7"),
        ('by="a;for=6.6.6.6";for=203.0.113.7', "10.0.0.1"),
        ('proto=http;by="a, for=6.6.6.6", for=10.1.1.1', "10.1.1.1"),
        ("for=203.0.113.7;for=6.6.6.6", "10.0.0.1"),
        ("for=_hidden, for=10.1.1.1", "10.1.1.1"),
        ("for=unknown", "10.0.0.1"),
        ("proto=https", "10.0.0.1"),
        # What a client wrote without an end spoils nothing of what a proxy has added.
        ('for="6.6.6.6, for="[2001:db8::1]"', "2001:db8::1"),
        ('for=6.6.6.6;x=", for=10.1.1.1', "10.1.1.1"),
        # What a proxy repeats of a client in a quoted text is no element.
        (r'for=203.0.113.7;host="a\", for=6.6.6.6, x=\"b"', "203.0.113.7"),
        (r'host="a\\\", for=6.6.6.6, x=\"\\"', "10.0.0.1"),
        (r'host="a\\", for=203.0.113.7', "203.0.113.7"),
        ('for="203.0.113.7', "10.0.0.1"),
        ("203.0.113.7", "10.0.0.1"),
        ("", "10.0.0.1"),
    ],
)
def test_the_right_end_of_forwarded_is_believed(value: str, client: str) -> None:
    headers = ((b"forwarded", value.encode()), (XFF, b"9.9.9.9"))

    assert RFC7239.client("10.0.0.1", headers) == client


@given(st.binary(max_size=200), st.sampled_from([PROXIES, RFC7239]))
def test_whatever_is_written_the_client_is_an_address(value: bytes, proxies: Proxies) -> None:
    name = proxies.header.encode()

    ip_address(proxies.client("10.0.0.1", ((name, value),)))


@given(st.text(alphabet='for=;," \\1.0:[]', max_size=4000))
def test_no_header_takes_long_to_read(value: str) -> None:
    ip_address(RFC7239.client("10.0.0.1", ((b"forwarded", value.encode()),)))


def test_a_long_hostile_header_is_read_in_time_that_grows_with_its_length() -> None:
    quoted = (b'"' * 16000, b'for="' * 3000, b'"\\' * 8000, b'\\"' * 8000)
    for value in (*quoted, b"a=" + b"b" * 16000, b";=," * 5000, b"\\" * 9000):
        assert RFC7239.client("10.0.0.1", ((b"forwarded", value),)) == "10.0.0.1"


@pytest.mark.parametrize(
    ("peer", "trusted"),
    [
        ("10.9.9.9", True),
        ("::ffff:10.9.9.9", True),
        ("fd00::1", True),
        ("11.0.0.1", False),
        ("", False),
        ("127.0.0.1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_only_listed_networks_are_trusted(peer: str, trusted: bool) -> None:
    assert PROXIES.trusts(peer) is trusted


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:0:1", "::ffff:0:1"),
        ("64:ff9b::192.0.2.1", "64:ff9b::192.0.2.1"),
    ],
)
def test_an_ipv4_peer_has_an_ipv4_address(peer: str, address: str) -> None:
    assert plain(peer) == address


def test_nobody_is_trusted_by_default() -> None:
    assert not any(Proxies().trusts(peer) for peer in ("", "127.0.0.1", "::1", "10.0.0.1"))


def test_whoever_connects_to_a_unix_socket_can_be_trusted() -> None:
    assert parse_networks(["unix"]).trusts("")
    assert parse_networks(["unix"]).client("", ((XFF, b"203.0.113.7"),)) == "203.0.113.7"
    assert parse_networks(["unix"]).client("", ()) == ""


@pytest.mark.parametrize("text", ["", "proxy.example", "10.0.0.1/8", "10.0.0.0/33", "*"])
def test_what_is_not_a_network_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(BadNetwork, match="is not a network of proxies: write 10"):
        parse_networks([text])


async def client_seen(client: Client, fields: bytes) -> None:
    await client.get(b"GET /alive HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n")


@pytest.mark.parametrize(
    ("networks", "seen"), [((), "127.0.0.1"), (("127.0.0.0/8",), "203.0.113.7")]
)
async def test_a_request_has_the_address_of_its_own_client(
    networks: tuple[str, ...], seen: str
) -> None:
    proxies = parse_networks(networks)
    async with serving(proxies=proxies) as served, served.client() as client:
        await client_seen(client, b"X-Forwarded-For: 203.0.113.7\r\n")
        await client_seen(client, b"")

        assert [request.client for request in served.platform.asked] == [seen, "127.0.0.1"]


def test_a_proxy_is_exempt_from_the_limit_per_address() -> None:
    admission = Admission(Settings(connections_per_address=1))

    assert [admission.enter("10.0.0.1", proxied=True) for _ in range(3)] == [None] * 3
    assert admission.enter("10.0.0.1") is not None
