from __future__ import annotations

from itertools import product

import pytest

from legation.runs.states import MOVES, IllegalMove, RunMove, RunState, advance


@pytest.mark.parametrize(("state", "move"), list(product(RunState, RunMove)))
def test_every_state_has_an_answer_to_every_move(state: RunState, move: RunMove) -> None:
    result = advance(state, move)

    if move in MOVES[state]:
        assert result is MOVES[state][move]
    else:
        assert result == IllegalMove(state, move)


def test_nothing_leads_on_from_a_final_state() -> None:
    final = {RunState.COMPLETED, RunState.CANCELLED, RunState.ERROR}

    assert {state for state in RunState if state.final} == final


def test_every_state_can_be_reached_and_left_for_a_final_one() -> None:
    reached, level = {RunState.PENDING}, [RunState.PENDING]
    while level:
        level = [to for state in level for to in MOVES[state].values() if to not in reached]
        reached |= set(level)

    assert reached == set(RunState)
    assert all(any(to.final for to in MOVES[s].values()) for s in RunState if not s.final)
