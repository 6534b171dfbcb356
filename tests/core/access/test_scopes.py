from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.access.scopes import AnyToken, Open, Public, Scoped, Signed, well_formed_id

LETTERS = string.ascii_letters + string.digits + "._~-"


@pytest.mark.parametrize("text", ["a", "A-b_c~d.e", "0", "x" * 128, "..."])
def test_an_id(text: str) -> None:
    assert well_formed_id(text)


@pytest.mark.parametrize(
    "text", ["", "x" * 129, "*", "a:b", "a/b", "a b", "a\n", "a%", "ä", "\uff41", "a\0", "a,b"]
)
def test_no_id(text: str) -> None:
    assert not well_formed_id(text)


@given(st.text(max_size=140))
def test_an_id_is_of_128_characters_that_mean_nothing_in_a_path_or_scope(text: str) -> None:
    assert well_formed_id(text) == (0 < len(text) <= 128 and set(text) <= set(LETTERS))


def test_the_scope_to_ask_for_is_that_of_the_first_action() -> None:
    assert Scoped("agents", ("read", "run"), parameter="agent_id").scope == "agents:read"


def test_needs_are_values() -> None:
    assert Public() == Public()
    needs = {Public(), Open(), Signed(), AnyToken(), Scoped("a", ("b",)), Scoped("a", ("b",))}
    assert len(needs) == 5
