"""Remembered heads: the same as parsed ones, none of them with a token."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legation_server.guard import Guard
from legation_server.head import RequestHead
from legation_server.memo import Memo
from legation_server.settings import DEFAULT, Settings

from .guard_kit import heads, seen

HOST: Final = b"Host: a.example\r\n"
GET: Final = b"GET /agents HTTP/1.1\r\n" + HOST

PIECES: Final = (
    b"GET / HTTP/1.1\r\n",
    b"POST /a?b HTTP/1.1\r\n",
    b"GET / HTTP/1.0\r\n",
    b"GET http://b/c HTTP/1.1\r\n",
    HOST,
    b"Connection: close\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Authorization: Bearer abc\r\n",
    b"authorization: Bearer d.e-f==\r\n",
    b"AUTHORIZATION: Bearer g\r\n",
    b"Authorization: Bearer \r\n",
    b"Authorization: Bearer \0\r\n",
    b"Authorization:  Bearer two\r\n",
    b"Authorization: Bearer a b\r\n",
    b"Authorization: Bearer " + b"long" * 30 + b"\r\n",
    b"Authorization: Basic eDp5\r\n",
    b"Cookie: a=b\r\n",
    b"Authorization: Bearer a=b\r\n",
    b"User-Agent: x\r\n",
    b"User-Agent: Authorization: Bearer \r\n",
    b"User-Agent: Authorization: Bearer x\r\n",
    b"\r\n",
    b"abc",
)

NARROW: Final = Settings(header_line=100, header_block=200, header_fields=4)


def head_of(memo: Memo, raw: bytes, limits: Settings = DEFAULT) -> RequestHead:
    """Return what a new connection makes of `raw`."""
    guard = Guard(limits, memo)
    guard.receive(raw)
    head = guard.head()
    assert isinstance(head, RequestHead)
    assert guard.unread == 0
    return head


def bearing(token: bytes) -> bytes:
    return GET + b"Authorization: Bearer " + token + b"\r\nAccept: */*\r\n\r\n"


@given(
    messages=st.lists(st.lists(st.sampled_from(PIECES), max_size=7).map(b"".join), max_size=8),
    limits=st.sampled_from([DEFAULT, NARROW]),
    most=st.integers(1, 4),
)
@settings(max_examples=600)
def test_a_remembered_head_is_the_head_that_would_be_parsed(
    messages: list[bytes], limits: Settings, most: int
) -> None:
    memo = Memo(most)
    for data in messages * 3:
        assert heads(data, limits, memo=memo) == heads(data, limits)
        assert heads(data, limits, cut=5, memo=memo) == heads(data, limits)


TOKEN: Final = st.text("abcXYZ019._~+/-", min_size=1, max_size=40).map(str.encode)


@given(tokens=st.lists(TOKEN, min_size=3, max_size=6), odd=st.binary(max_size=6))
def test_a_head_is_the_same_whatever_the_token_in_it_was_before(
    tokens: list[bytes], odd: bytes
) -> None:
    memo = Memo(10)
    for token in [*tokens, *(token + odd for token in tokens)]:
        assert heads(bearing(token), memo=memo) == heads(bearing(token))


def test_all_tokens_share_one_head_and_none_of_them_is_kept() -> None:
    memo = Memo(10)
    for token in (b"first", b"second", b"third", b"fourth=="):
        head = head_of(memo, bearing(token))
        assert (b"authorization", b"Bearer " + token) in head.headers

    assert len(memo) == 1
    assert memo.find(bearing(b"fifth")) is not None
    held = repr(memo._heads)
    assert "Authorization: Bearer \\r\\n" in held
    assert not [token for token in ("first", "second", "third", "fourth") if token in held]


def test_a_head_without_a_token_is_not_taken_for_one_that_had_it_left_out() -> None:
    memo = Memo(10)
    for _ in range(3):
        head_of(memo, bearing(b"token"))

    assert memo.find(bearing(b"")) is None
    assert memo.find(bearing(b"other")) is not None


def test_a_token_in_another_field_is_not_taken_for_that_of_the_caller() -> None:
    memo = Memo(10)
    agent = b"User-Agent: Authorization: Bearer %b\r\n"
    for _ in range(3):
        head_of(memo, GET + agent % b"" + b"Authorization: Bearer mine\r\n\r\n")
        head_of(memo, GET + agent % b"" + b"\r\n")

    for token in (b"mine", b"theirs"):
        assert memo.find(GET + agent % token + b"Authorization: Bearer \r\n\r\n") is None
        assert memo.find(GET + agent % token + b"\r\n") is None
    assert len(memo) == 0


def test_a_head_is_known_whatever_comes_behind_it() -> None:
    memo = Memo(10)
    raw = bearing(b"token")
    for _ in range(2):
        head_of(memo, raw)

    for behind in (b"", raw, b"GET", b"\r\n\r\n"):
        guard = Guard(DEFAULT, memo)
        guard.receive(raw + behind)
        head = guard.head()
        assert head is not None
        assert seen(head) == seen(head_of(Memo(1), raw))
        assert guard.buffer == behind
        assert guard.has_begun is (behind != b"")


def test_a_head_is_kept_when_it_comes_the_second_time() -> None:
    memo = Memo(10)
    raw = GET + b"\r\n"

    assert memo.find(raw) is None
    head_of(memo, raw)
    assert memo.find(raw) is None
    second = head_of(memo, raw)
    assert memo.find(raw) is second
    assert head_of(memo, raw) is second


def test_a_head_with_a_body_is_kept_with_its_length() -> None:
    memo = Memo(10)
    raw = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\n"
    for known in (False, False, True):
        guard = Guard(DEFAULT, memo)
        assert (memo.find(raw) is not None) is known
        guard.receive(raw + b"abcGET")
        head = guard.head()
        assert isinstance(head, RequestHead)
        assert head.length == 3
        assert guard.take() == b"abcGET"


@pytest.mark.parametrize(
    "raw",
    [
        GET + b"Cookie: session=secret\r\n\r\n",
        GET + b"X-Telegram-Bot-Api-Secret-Token: secret\r\n\r\n",
        GET + b"Authorization: Basic eDp5\r\n\r\n",
        GET + b"Authorization: Bearer one\r\nAuthorization: Bearer two\r\n\r\n",
        GET + b"Accept: " + b"b" * 4096 + b"\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_what_may_be_secret_or_is_out_of_the_ordinary_is_not_kept(raw: bytes) -> None:
    memo = Memo(10)
    for _ in range(3):
        heads(raw, memo=memo)

    assert len(memo) == 0


def test_only_so_many_heads_are_kept_and_the_eldest_goes_first() -> None:
    memo = Memo(2)
    raws = [b"GET /%d HTTP/1.1\r\n" % n + HOST + b"\r\n" for n in range(4)]
    for raw in raws:
        heads(raw + raw, memo=memo)

    assert [memo.find(raw) is not None for raw in raws] == [False, False, True, True]


def test_heads_that_come_once_drive_out_nothing() -> None:
    memo = Memo(2)
    raw = GET + b"\r\n"
    heads(raw + raw, memo=memo)
    for n in range(100):
        heads(b"GET /%d HTTP/1.1\r\n" % n + HOST + b"\r\n", memo=memo)

    assert memo.find(raw) is not None
    assert len(memo) == 1
    assert len(memo._once) <= 16
