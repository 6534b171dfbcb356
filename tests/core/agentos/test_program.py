"""The program that stores a session in bites: complete after a crash at any effect, and once."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from legation.agentos.program import BITE_BYTES, import_session, look_up_session
from legation.agentos.report import Imported, LeftOut, Reason
from legation.agentos.sessions import ForeignSession, Options, SessionPlan, read_session
from legation.effects import Effect, Now, Program, RandomBytes, Transact
from legation.runs.retry import transact
from legation.store.failures import CommitLost
from legation.store.imports import FindImported, FoundSession, ImportSession
from legation_testing import play

from ...one_database import Database


def make(runs: int = 250, size: int = 1, **more: Any) -> SessionPlan:
    stored = [
        {"run_id": f"r{number}", "agent_id": "a", "content": "x" * size} for number in range(runs)
    ]
    given: dict[str, Any] = {"agent_id": "a", "user_id": "ada", "created_at": 5, **more}
    row = ForeignSession("s", "agent", runs=json.dumps(stored), **given)
    found = read_session(row, Options())
    assert isinstance(found, SessionPlan)
    return found


PLAN: Final = make()


def drive(database: Database, program: Program[Imported], crash_at: int = -1) -> Imported | None:
    """Run `program`; None where it is dropped before effect number `crash_at`."""
    sent: Any = None
    for number in range(100):
        try:
            effect = program.send(sent)
        except StopIteration as stop:
            result: Imported = stop.value
            return result
        if number == crash_at:
            program.close()
            return None
        sent = _perform(database, effect)
    raise AssertionError


def _perform(database: Database, effect: Effect) -> Any:
    asked: Any = effect
    match effect:
        case Transact():
            return database.run(asked.unit)
        case RandomBytes():
            return bytes(asked.size)
        case _:
            return 7 if isinstance(effect, Now) else None


def imported(database: Database) -> list[tuple[str, int]]:
    return database.ask("select run_id, run_no from runs order by run_no")


WHOLE: Final = [(f"r{number}", number + 1) for number in range(250)]


def test_a_long_session_comes_in_bites() -> None:
    database = Database()
    outcome = drive(database, import_session("main", PLAN, transact))

    assert outcome == Imported("agent:a", "main", is_new=True, runs=250)
    assert imported(database) == WHOLE
    ((before,),) = database.ask("select bytes from usage")
    again = drive(database, import_session("main", PLAN, transact))
    assert again == Imported("agent:a", "main", known=250)
    assert database.ask("select bytes from usage") == [(before,)]


@pytest.mark.parametrize("crash_at", range(7))
def test_an_import_that_crashed_is_completed_by_the_next(crash_at: int) -> None:
    database = Database()
    assert drive(database, import_session("main", PLAN, transact), crash_at) is None
    done = drive(database, import_session("main", PLAN, transact))

    assert done is not None
    assert imported(database) == WHOLE
    assert done.runs + done.known == 250
    sizes = sum(run.size for run in PLAN.runs) + PLAN.session.size
    assert database.ask("select bytes from usage") == [(sizes,)]


def test_a_commit_without_an_answer_is_made_once() -> None:
    database, lost = Database(), list[str]()

    def change(name: str, unit: Any) -> Program[Any]:
        result = yield Transact(name, unit)
        if not lost:
            lost.append(name)
            raise CommitLost("main")
        return result

    done = drive(database, import_session("main", make(3), change))

    assert done is not None
    assert done.runs == 3
    assert [name for name, _ in imported(database)] == ["r0", "r1", "r2"]


def test_bites_are_bounded_in_bytes() -> None:
    plan = make(3, BITE_BYTES // 2)
    first, *others = (ImportSession(plan.session, (run,), 7) for run in plan.runs)

    outcome = play(
        import_session("main", plan, transact),
        [
            (Transact("main", FindImported("ada", "s", ("r0", "r1", "r2"))), FoundSession()),
            (Now(), 7),
            (Transact("main", first), 1),
            (Now(), 7),
            (Transact("main", others[0]), 1),
            (Now(), 7),
            (Transact("main", others[1]), 1),
        ],
    )
    assert outcome.runs == 3


def test_a_session_without_runs_and_one_that_was_renamed_take_one_transaction() -> None:
    plan, database = make(0), Database()
    assert drive(database, import_session("main", plan, transact)) == Imported(
        "agent:a", "main", is_new=True
    )
    renamed = make(0, updated_at=9, session_data='{"session_name": "New"}')
    drive(database, import_session("main", renamed, transact))

    assert database.ask("select name, updated_us from sessions") == [("New", 9_000_000)]


def test_the_session_of_another_agent_is_left_out() -> None:
    refused = Imported(left_out=(LeftOut(Reason.SESSION_TAKEN, "s"),))
    find = Transact("main", FindImported("ada", "s", ()))
    other = FoundSession("team", "desk")
    assert play(look_up_session("main", make(0)), [(find, other)]) == refused
    assert play(import_session("main", make(0), transact), [(find, other)]) == refused
    unit = ImportSession(make(0).session, (), 7)
    script: Any = [(find, FoundSession()), (Now(), 7), (Transact("main", unit), None)]
    assert play(import_session("main", make(0), transact), script) == refused


def test_a_run_of_another_session_is_left_out_with_its_members() -> None:
    stored = [
        {"run_id": "t", "team_id": "desk"},
        {"run_id": "m", "agent_id": "a", "parent_run_id": "t"},
        {"run_id": "z", "agent_id": "a", "messages": [{"role": "user"}, {"role": "poet"}]},
    ]
    plan = make(0)
    found = read_session(
        ForeignSession("s", "team", team_id="desk", runs=json.dumps(stored)), Options()
    )
    assert isinstance(found, SessionPlan)
    find = Transact("main", FindImported("", "s", ("t", "m", "z")))
    taken = FoundSession(known=frozenset(), taken=frozenset({"t"}))
    outcome = play(look_up_session("main", found), [(find, taken)])

    assert plan.runs == ()
    assert (outcome.runs, outcome.messages, outcome.has_user) == (1, 1, False)
    assert [(one.reason, one.run_id) for one in outcome.left_out] == [
        (Reason.MESSAGE, "z"),
        (Reason.RUN_TAKEN, "t"),
        (Reason.MEMBER, "m"),
    ]
