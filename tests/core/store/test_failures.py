"""What a program may conclude when a database fails."""

from __future__ import annotations

import pytest

from legation.store import failures
from legation.store.failures import StoreFailure

KINDS = [getattr(failures, name) for name in failures.__all__ if name != "StoreFailure"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_is_of_one_kind_and_of_the_family(kind: type[StoreFailure]) -> None:
    assert kind.__bases__ == (StoreFailure,)


def test_a_failure_of_the_store_is_caught_by_its_family_alone() -> None:
    assert StoreFailure.__bases__ == (Exception,)
    assert len(KINDS) == 9
