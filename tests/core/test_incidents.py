from __future__ import annotations

import pytest

from legation.incidents import where


def test_nothing_is_none() -> None:
    assert where(None) == "none"


def test_an_error_that_was_never_raised_is_its_kind() -> None:
    assert where(ValueError("a secret")) == "ValueError"


def test_an_error_is_its_kind_and_the_innermost_place() -> None:
    def inner() -> None:
        raise ZeroDivisionError("a secret")

    with pytest.raises(ZeroDivisionError) as caught:
        inner()
    told = where(caught.value)

    assert told.startswith("ZeroDivisionError in ")
    assert ".<locals>.inner:" in told
    assert "secret" not in told
