from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from legation.migrations.catalogue import CATALOGUE
from legation.store.run_rows import ACTIVE_RUN
from legation.store.run_states import (
    MEMBER_MOVES,
    MOVES,
    RunMove,
    RunState,
    state_after,
    states_before,
)
from legation.store.units import Dialect

from ...run_moves import find_faults, walk_through, walk_through_members

ROOT: Final = Path(__file__).parents[3]
STORE: Final = ROOT / "core/legation/store"


@pytest.mark.parametrize("move", RunMove)
def test_every_move_leads_to_one_state(move: RunMove) -> None:
    before = states_before(move)

    assert before
    assert {MOVES[state][move] for state in before} == {state_after(move)}


def test_nothing_leads_on_from_a_final_state() -> None:
    final = {RunState.COMPLETED, RunState.CANCELLED, RunState.ERROR}

    assert MOVES.keys() == set(RunState)
    assert {state for state in RunState if state.final} == final


def test_every_state_can_be_reached_and_left_for_a_final_one() -> None:
    reached, level = {RunState.PENDING}, [RunState.PENDING]
    while level:
        level = [to for state in level for to in MOVES[state].values() if to not in reached]
        reached |= set(level)

    assert reached == set(RunState)
    assert all(any(to.final for to in MOVES[s].values()) for s in RunState if not s.final)


def test_run_of_a_member_can_be_ended_wherever_it_stands() -> None:
    assert all(not state.final for state in MEMBER_MOVES)
    for moves in MEMBER_MOVES.values():
        assert {RunMove.CANCEL, RunMove.FAIL} <= moves.keys()


def test_condition_of_the_indexes_is_that_of_the_statements() -> None:
    texts = [
        statement.text(Dialect.SQLITE)
        for migration in CATALOGUE.migrations
        for step in migration.up
        if (statement := step.statement(Dialect.SQLITE)) is not None
    ]

    indexes = [text for text in texts if " index runs_active " in text or " runs_leased " in text]
    assert len(indexes) == 2
    assert all(text.endswith(f"where {ACTIVE_RUN}") for text in indexes)


def test_no_statement_of_the_store_writes_a_state_down_itself() -> None:
    words = re.compile(rf"""['"]({"|".join(RunState)})['"]""")
    found = {path.name for path in STORE.glob("*.py") if words.search(path.read_text("utf-8"))}

    assert found == {"run_states.py"}


# --- What happens --------------------------------------------------------------------------------


def test_what_happens_is_what_the_table_says() -> None:
    assert find_faults(walk_through(), MOVES) == []


def test_what_happens_to_members_is_what_their_table_says() -> None:
    assert find_faults(walk_through_members(), MEMBER_MOVES) == []


# --- A false table is found ----------------------------------------------------------------------

PLANTED: Final = {
    "a start that pauses": "MOVES[S.PENDING][M.START] = S.PAUSED",
    "no cancelling of what waits": "del MOVES[S.PENDING][M.CANCEL]",
    "no release": "del MOVES[S.RUNNING][M.RELEASE]",
    "a second way to fail": "MOVES[S.PENDING][M.FAIL] = S.ERROR",
    "a way back from an end": "MOVES[S.COMPLETED][M.RESUME] = S.RUNNING",
    "a pause that completes": "MOVES[S.RUNNING][M.PAUSE] = S.COMPLETED",
}


@pytest.mark.parametrize("change", PLANTED.values(), ids=PLANTED)
def test_table_that_differs_from_what_happens_is_found(change: str) -> None:
    table: dict[RunState, dict[RunMove, RunState]] = {
        state: dict(moves) for state, moves in MOVES.items()
    }
    exec(change, {"MOVES": table, "S": RunState, "M": RunMove})

    assert find_faults(walk_through(), table)


# In a process of its own, where the store is imported after the change: its statements are made of
# the false table.  `legation` itself is left out, as it imports everything.
JUDGE: Final = """
import sys
from types import ModuleType
package = sys.modules["legation"] = ModuleType("legation")
package.__path__ = ["core/legation"]
from legation.store.run_states import MOVES, RunMove as M, RunState as S
{change}
from tests.run_moves import find_faults, walk_through
faults = find_faults(walk_through(), MOVES)
assert not faults, faults
"""


def judge_apart(change: str) -> subprocess.CompletedProcess[str]:
    script = JUDGE.format(change=change)
    return subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_true_table_passes_the_judgement_of_a_false_one() -> None:
    assert judge_apart("pass").returncode == 0


@pytest.mark.parametrize("change", PLANTED.values(), ids=PLANTED)
def test_false_table_is_found_though_the_statements_are_made_of_it(change: str) -> None:
    judged = judge_apart(change)

    assert judged.returncode == 1
    assert "Error" in judged.stderr.splitlines()[-1]
