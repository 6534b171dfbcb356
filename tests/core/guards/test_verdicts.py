from __future__ import annotations

from legation.guards import ANSWERABLE, MOMENTS, AskPerson, Guarded, Refuse


def test_a_guarded_text_and_its_arguments_stay_out_of_logs() -> None:
    assert "secret" not in repr(Guarded("before_run", "secret", arguments={"a": "secret"}))


def test_verdicts_are_values() -> None:
    assert (Refuse("no"), AskPerson("why")) == (Refuse("no"), AskPerson("why"))
    assert set(ANSWERABLE) < set(MOMENTS)
