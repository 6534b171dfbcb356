from __future__ import annotations

from legation.models.conversation import Usage
from legation.tools import CallStep, FinalAnswer, ModelStep


def test_a_call_ends_with_what_it_returned_or_with_a_sentence() -> None:
    pay = CallStep("pay", {"cents": 3}, "c", again="key", requires_confirmation=True)
    end, failure = pay.returned({"paid": 3}), pay.raised("No funds")

    assert (end.step, end.value, end.failed, end.usage) == (pay, {"paid": 3}, False, Usage())
    assert (failure.step, failure.value, failure.failed) == (pay, "No funds", True)
    assert (pay.done, pay.result, pay.failed, pay.confirmed, pay.note) == (
        *(False, None, False, None, None),
    )


def test_an_answer_of_a_model_costs_what_is_said() -> None:
    step = ModelStep("m", "p", "k")

    assert step.answered("x").usage == Usage()
    assert step.answered("x", Usage(1, 2)).usage == Usage(1, 2)
    assert (step.done, step.answer) == (False, None)


def test_a_final_answer_is_a_value() -> None:
    assert FinalAnswer("x") == FinalAnswer("x")
