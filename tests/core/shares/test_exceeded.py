"""A share that is used up says in one sentence what is wrong and what to do."""

from __future__ import annotations

import pytest

from legation.shares.exceeded import SHARES, Exceeded


@pytest.mark.parametrize("share", SHARES)
def test_the_sentence_of_each_share_names_its_limit(share: str) -> None:
    sentence = Exceeded(share, 4711, retry_after=12, window=60).sentence

    assert "4711" in sentence
    assert "try again in 12 s" in sentence or "delete" in sentence
    assert "{" not in sentence
