from __future__ import annotations

import json
import math
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.effects import Emit
from legation.http.messages import (
    Request,
    Response,
    Streamed,
    compact_json,
    empty_response,
    json_bytes_response,
    json_response,
    text_response,
    without_body,
)

REQUEST = Request("GET", "/", ((b"a", b"1"), (b"b", b"2"), (b"a", b"3")))


def body() -> Generator[Emit, Any, None]:
    yield Emit(b"x")


def test_a_header_is_the_first_of_its_name() -> None:
    assert REQUEST.header(b"a") == b"1"
    assert REQUEST.header(b"c") is None
    assert REQUEST.values(b"a") == (b"1", b"3")
    assert REQUEST.values(b"c") == ()
    assert Request("GET", "/", ((b"a", b"1"), (b"b", b"2"))).values(b"b") == (b"2",)


@pytest.mark.parametrize(
    "header", [(b"X-A", b""), (b"x", b"a\r\nb: c"), (b"x", b"a\nb"), (b"x", b"\0")]
)
def test_what_is_no_header_is_a_bug(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(ValueError, match="not a header"):
        Response(200, (header,))
    with pytest.raises(ValueError, match="not a header"):
        Streamed(200, (header,), body())


def test_json_is_compact_and_utf_8() -> None:
    answer = json_response(201, {"a": [1, None], "ä": "<b>"}, ((b"x", b"y"),))

    content = '{"a":[1,null],"ä":"<b>"}'.encode()
    length = b"%d" % len(content)
    headers = ((b"content-type", b"application/json"), (b"content-length", length), (b"x", b"y"))
    assert answer == Response(201, headers, content)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [math.nan], {"a": math.inf}])
def test_what_json_cannot_say_is_an_error(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        compact_json(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@given(JSON)
def test_json_comes_back_on_one_line(value: Any) -> None:
    text = compact_json(value)

    assert json.loads(text) == value
    assert "\n" not in text
    answer = json_response(200, value)
    assert dict(answer.headers)[b"content-length"] == b"%d" % len(answer.body)


def test_encoded_json_is_sent_as_it_is() -> None:
    assert json_bytes_response(200, b"[]").body == b"[]"
    assert dict(json_bytes_response(200, b"[]").headers)[b"content-length"] == b"2"


def test_text_says_how_long_it_is_in_bytes() -> None:
    assert text_response(200, "ä", headers=((b"x", b"y"),)) == Response(
        200,
        (
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"2"),
            (b"x", b"y"),
        ),
        b"\xc3\xa4",
    )
    assert dict(text_response(200, "", b"text/html").headers)[b"content-type"] == b"text/html"


def test_an_empty_response_has_no_length() -> None:
    assert empty_response(204) == Response(204, (), b"")


def test_head_keeps_the_headers_and_drops_the_body() -> None:
    assert without_body(json_response(200, [])) == Response(200, json_response(200, []).headers)
    program = body()
    answer = without_body(Streamed(200, ((b"a", b"b"),), program))
    assert answer == Response(200, ((b"a", b"b"),))
    assert list(program) == []


def test_streams_are_equal_whatever_their_programs() -> None:
    assert Streamed(200, (), body()) == Streamed(200, (), body())
