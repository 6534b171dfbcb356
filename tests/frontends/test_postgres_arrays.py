"""Lists as parameters for PostgreSQL: it reads from ours what it reads from those of psycopg."""

from __future__ import annotations

from collections.abc import Generator

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation_host.postgres_arrays import ListDumper

from ..engines import Cluster

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LISTS = st.lists(
    st.none() | TEXTS | st.sampled_from(['"', "\\", "{}", "NULL", ",", "é", '{"a":1}'])
)


@pytest.fixture(scope="module")
def ours(postgres_cluster: Cluster) -> Generator[psycopg.Connection]:
    with psycopg.connect(postgres_cluster.url(), autocommit=True) as made:
        made.adapters.register_dumper(list, ListDumper)
        yield made


@given(texts=LISTS)
def test_texts_arrive_as_they_are(ours: psycopg.Connection, texts: list[str | None]) -> None:
    row = ours.execute("select cast(%s as text[])", (texts,)).fetchone()
    assert row == (texts,)


@given(numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_numbers_arrive_as_they_are(ours: psycopg.Connection, numbers: list[int | None]) -> None:
    row = ours.execute("select cast(%s as bigint[])", (numbers,)).fetchone()
    assert row == (numbers,)


@pytest.mark.parametrize("texts", [["ada"], []])
def test_a_text_is_looked_for_among_them(ours: psycopg.Connection, texts: list[str]) -> None:
    for text in ("select 'ada' = any (%s)", "select not 'ada' <> all (%s)"):
        assert ours.execute(text.encode(), (texts,)).fetchone() == (bool(texts),)


@pytest.mark.parametrize("texts", [["a\0b"], ["\udc80"]])
def test_what_is_no_text_for_the_server_is_refused(
    ours: psycopg.Connection, texts: list[str]
) -> None:
    with pytest.raises((psycopg.DataError, UnicodeError)):
        ours.execute("select cast(%s as text[])", (texts,))
