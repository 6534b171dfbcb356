"""What goes wrong with a model, as its caller learns it."""

from __future__ import annotations

import pytest

from legation.models.conversation import ModelFailed
from legation.models.trouble import SENTENCES, Trouble


@pytest.mark.parametrize("reason", SENTENCES)
def test_trouble_has_the_sentence_of_its_reason(reason: str) -> None:
    trouble = Trouble(reason)

    assert isinstance(trouble, ModelFailed)
    assert (trouble.reason, trouble.sentence, str(trouble)) == (reason, *[SENTENCES[reason]] * 2)
    assert (trouble.passing, trouble.status, trouble.wait_seconds) == (False, None, None)


def test_a_reason_without_a_sentence_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        Trouble("anything")
