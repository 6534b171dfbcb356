from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.http.accept import prefers_html

CHROMIUM = b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    "accept",
    [
        CHROMIUM,
        b"text/html",
        b"TEXT/HTML",
        b"text/*",
        b"text/html;charset=utf-8",
        b"application/json;q=0.5, text/html ; q=0.6",
        b"application/json;q=0, */*",
        b"*/*;q=0.1, text/html;q=0.2",
        b"text/html;q=1.000, application/json;q=0.999",
    ],
)
def test_a_browser_prefers_html(accept: bytes) -> None:
    assert prefers_html((accept,))


@pytest.mark.parametrize(
    "accept",
    [
        b"",
        b"*/*",
        b"application/json",
        b"application/json, text/html",
        b"text/html;q=0",
        b"text/html;q=0.5, */*;q=0.6",
        b"text/html;q=0.5, application/*;q=0.6",
        b"text/html;q=2",
        b"text/html;q=",
        b"text/html;q=0.1234",
        b"text/html;q=nan, application/json;q=0.001",
        b"text/*;q=0, */*",
        b"text/html/x, html, /, ;, ,",
        b"text/plain, image/png",
    ],
)
def test_a_program_does_not(accept: bytes) -> None:
    assert not prefers_html((accept,))


def test_values_of_several_lines_are_one_list() -> None:
    assert prefers_html((b"application/json;q=0.5", b"text/html"))
    assert not prefers_html((b"text/html", b"application/json"))
    assert not prefers_html(())


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_any_bytes_have_an_answer(accept: list[bytes]) -> None:
    assert prefers_html(tuple(accept)) in (True, False)
