"""Lists as answers: whole or streamed the same bytes, and cursors that open nothing."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.api.fields import read_query
from legation.api.listing import PIECE, Cursor, answer_list, cursor, encode_cursor, link_next
from legation.effects import Emit, Sleep, Transact
from legation.http.messages import Response, Streamed, Unfinished
from legation.store.failures import StatementFailed, Unavailable
from legation.store.units import Dialect, ReadUnit, Statements
from legation.values import frozen as value


@value
class Page:
    items: tuple[bytes, ...]
    following: ReadUnit[Any] | None = None


@value
class Next(ReadUnit[Page]):
    number: int

    def statements(self, dialect: Dialect) -> Statements[Page]:
        raise NotImplementedError
        yield


@value
class Query:
    cursor: Cursor | None = cursor(int, str)


def emitted(answer: Response | Streamed, pages: list[Page | Exception]) -> tuple[bytes, Any]:
    """Return what the body of `answer` emits while the database gives `pages`, and its end."""
    assert isinstance(answer, Streamed)
    parts: list[bytes] = []
    body: Generator[Any, Any, Any] = answer.body
    given, step = iter(pages), next(body)
    try:
        while True:
            match step:
                case Emit(data):
                    assert len(data) <= PIECE
                    parts.append(data)
                    step = body.send(None)
                case Transact("main", Next()):
                    found = next(given)
                    step = body.throw(found) if isinstance(found, Exception) else body.send(found)
                case _:
                    step = body.send(None if isinstance(step, Sleep) else b"\0" * 8)
    except StopIteration as stop:
        assert next(given, None) is None
        return b"".join(parts), stop.value


def test_a_list_of_one_page_is_answered_at_once() -> None:
    answer = answer_list("main", Page((b"1", b"2")), more=((b"link", b"x"),))

    assert isinstance(answer, Response)
    assert answer.body == b"[1,2]"
    assert dict(answer.headers) == {
        b"content-type": b"application/json",
        b"content-length": b"5",
        b"link": b"x",
    }


ITEMS: Final = (b"", b"1", b"[2,3]", b'"%b"' % (b"9" * 2 * PIECE))


@given(st.lists(st.lists(st.integers(0, 3), max_size=3)))
def test_streamed_or_not_the_bytes_are_the_same(drawn: list[list[int]]) -> None:
    pages = [[ITEMS[number] for number in page] for page in drawn]
    items = [item for page in pages for item in page]
    whole = answer_list("main", Page(tuple(items)), b'{"a":[', b"]}")
    first, *rest = [Page(tuple(page), Next(0)) for page in pages] or [Page((), Next(0))]
    streamed = answer_list("main", first, b'{"a":[', b"]}")
    found, end = emitted(streamed, [*rest, Page(())])

    assert isinstance(whole, Response)
    assert found == whole.body
    assert end is None
    assert json.loads(found)["a"] == json.loads(b"[%b]" % b",".join(filter(None, items)))


def test_a_streamed_list_has_no_length() -> None:
    answer = answer_list("main", Page((b"1",), Next(0)), more=((b"link", b"x"),))

    assert dict(answer.headers) == {b"content-type": b"application/json", b"link": b"x"}


def test_a_database_that_is_away_for_a_moment_does_not_end_a_list() -> None:
    answer = answer_list("main", Page((b"1",), Next(0)))

    assert emitted(answer, [Unavailable("away"), Page((b"2",))]) == (b"[1,2]", None)


@pytest.mark.parametrize("failures", [[Unavailable("away")] * 4, [StatementFailed("no")]])
def test_a_list_that_cannot_be_read_to_its_end_is_cut(failures: list[Exception]) -> None:
    answer = answer_list("main", Page((b"1",), Next(0)))

    assert emitted(answer, list(failures)) == (b"[1", Unfinished())


# --- cursors ------------------------------------------------------------------------------------


@given(
    st.integers(0, (1 << 62) - 1), st.text(st.characters(codec="utf-8", exclude_characters="\0"))
)
def test_a_cursor_leads_where_it_came_from(number: int, name: str) -> None:
    query, faults = read_query(Query, f"cursor={encode_cursor((number, name))}")

    assert (query.cursor, faults) == ((number, name), ())


def test_without_a_cursor_there_is_none() -> None:
    assert read_query(Query, "") == (Query(), ())
    assert read_query(Query, "cursor=") == (Query(), ())


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "abcde",
        "*",
        "AAAA",
        "A" * 8193,
        encode_cursor((1,)),
        encode_cursor(("1", "a")),
        encode_cursor((True, "a")),
        encode_cursor((1, "a", 1)),
        encode_cursor((1.0, "a")),
        encode_cursor((1 << 62, "a")),
        encode_cursor((-1, "a")),
        encode_cursor((1, "\0")),
    ],
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    _, (fault,) = read_query(Query, f"cursor={text}")

    assert (fault.path, fault.message) == ("query.cursor", "is none that a page has given")


@given(st.text())
def test_any_text_is_a_cursor_or_a_fault(text: str) -> None:
    kept = text.encode("utf-8", "replace").hex()
    query, faults = read_query(Query, f"cursor={kept}")

    assert query.cursor is None
    assert (faults == ()) == (kept == "")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "<?cursor=abc>"),
        ("limit=2&page=3", "<?limit=2&cursor=abc>"),
        ("cursor=old&limit=2", "<?limit=2&cursor=abc>"),
        ("c%75rsor=old&&x=a%20b", "<?x=a%20b&cursor=abc>"),
        ("x=a>b\u20ac", "<?x=a%3Eb?&cursor=abc>"),
    ],
)
def test_a_link_has_the_query_that_was_sent(query: str, expected: str) -> None:
    assert link_next(query, "cursor", "abc") == ((b"link", f'{expected}; rel="next"'.encode()),)
