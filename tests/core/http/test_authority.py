"""The grammar of `Host` and the forms of a target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.authority import origin_form, well_formed_host


@pytest.mark.parametrize(
    "value",
    [
        b"localhost",
        b"example.org:8080",
        b"127.0.0.1:1",
        b"[::1]",
        b"[::ffff:1.2.3.4]:443",
        b"my_service:7777",
        b"a:",
        b"a%41b",
        b"a:65535",
        b"",
        b":80",
        b"[v1.x]",
    ],
)
def test_a_name_or_an_address_and_a_port(value: bytes) -> None:
    assert well_formed_host(value)


@pytest.mark.parametrize(
    "value",
    [
        b"a/b",
        b"x/health?",
        b"x?y",
        b"x#y",
        b"user@a",
        b"a b",
        b"a, b",
        b" a",
        b"a\n",
        b"[::1",
        b"::1",
        b"[::1]x",
        b"[::1%25eth0]",
        b"[:::]",
        b"[v1]",
        b"a:b",
        b"a:80:80",
        b"a:65536",
        b"a:000080",
        b"a%4",
        b"a\\b",
        b"\xff",
    ],
)
def test_what_is_no_host(value: bytes) -> None:
    assert not well_formed_host(value)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"/a?b", b"/a?b"),
        (b"//evil/a", b"//evil/a"),
        (b"http://a/b?c", b"/b?c"),
        (b"HTTPS://[::1]:1/b", b"/b"),
        (b"http://a", b"/"),
        (b"http://a?b", b"/?b"),
        (b"http:///b", None),
        (b"http://:80/b", None),
        (b"http://user@a/b", None),
        (b"ftp://a/b", None),
        (b"a:443", None),
        (b"*", None),
        (b"/a#b", None),
        (b"/a b", None),
        (b"/\xff", None),
        (b"/\r\n", None),
        (b"", None),
    ],
)
def test_origin_form_of_a_target(target: bytes, expected: bytes | None) -> None:
    assert origin_form(target) == expected


@given(st.binary())
def test_both_are_total(value: bytes) -> None:
    form = origin_form(value)

    assert isinstance(well_formed_host(value), bool)
    assert form is None or form.startswith(b"/")
