"""The turns of runs: SQL and a model of the rules agree, whatever happens."""

from __future__ import annotations

from random import Random
from typing import Final, Protocol, TypeVar

import pytest

from legation.store.run_keeping import ClaimWaiting
from legation.store.run_rows import ClaimedRun, RunLease, StoredEvent
from legation.store.run_steering import Continued, ContinueRun
from legation.store.runs import FinishRun, StartRun
from legation.store.turns import RunShare
from legation.store.units import Unit

from ...one_database import Database
from ...turns_model import Asked, Model

R = TypeVar("R")
HOSTED: Final = ("agent:x",)
ROUNDS: Final = 60


class Tables(Protocol):
    """A database of either engine."""

    def run(self, unit: Unit[R], /) -> R:
        """Run a unit of work."""
        ...


def start_unit(asked: Asked, room: bool, now_us: int) -> StartRun:
    """Return the unit that asks for a run; every second subject is no owner."""
    named = asked.subject.startswith("~")
    owner = "o" if named else asked.subject
    share = RunShare(
        asked.subject if named else None, asked.at_once, asked.waiting, asked.weight, room
    )
    session, run_id = asked.session, asked.run_id
    columns = (owner, session, run_id, "agent", "x", "{}", "", "n", now_us)
    return StartRun(*columns, hosted=HOSTED, share=share)


def finish_unit(asked: Asked, attempt: int, now_us: int, status: str = "COMPLETED") -> FinishRun:
    return FinishRun(
        owner="o" if asked.subject.startswith("~") else asked.subject,
        session_id=asked.session,
        run_id=asked.run_id,
        lease=RunLease("n", attempt),
        node="n",
        now_us=now_us,
        status=status,
        output="{}",
        reason=None,
        usage=None,
        events=(StoredEvent(1, "e", "{}"),),
        hosted=HOSTED,
    )


def start(database: Tables, asked: Asked, room: bool = True, now_us: int = 1) -> str:
    started = database.run(start_unit(asked, room, now_us))
    if started.over:
        return "over"
    return "claimed" if started.claim else "queued" if started.queued else "waits"


def claim(database: Tables, full: tuple[str, ...] = ()) -> str | None:
    claimed = database.run(ClaimWaiting("n", 99, HOSTED, full))
    return claimed.run_id if isinstance(claimed, ClaimedRun) else None


SUBJECTS: Final = ("ada", "bob", "~address:192.0.2.1", "~agent:x:ada")


def draw(random: Random, number: int) -> Asked:
    subject = random.choice(SUBJECTS)
    return Asked(
        f"r{number:02}",
        subject,
        f"{subject}-{random.randrange(3)}",
        at_once=2,
        waiting=random.choice((2, 9)),
        weight=2.0 if subject == "bob" else 1.0,
    )


def step(random: Random, database: Tables, model: Model, number: int) -> None:
    """Do the same to both."""
    executed = [run.asked for run in model.runs.values() if run.executed]
    match random.randrange(4):
        case 0 if executed:
            asked = random.choice(executed)
            ended = database.run(finish_unit(asked, 1, number))
            following = None if ended.following is None else ended.following.run_id
            assert ended.kept
            assert (following, ended.contended) == model.finish(asked.run_id)
        case 1:
            full = tuple(random.sample(SUBJECTS, random.choice((0, 0, 1, 2))))
            assert claim(database, full) == model.claim(full)
        case _:
            asked, room = draw(random, number), random.random() < 0.8
            assert start(database, asked, room, number) == model.start(asked, room)


@pytest.mark.parametrize("seed", range(40))
def test_sql_and_the_model_agree(seed: int) -> None:
    random, database, model = Random(seed), Database(), Model()
    for number in range(ROUNDS):
        step(random, database, model, number)
        rows = database.ask(
            "select run_id, turn, status = 'RUNNING' from runs"
            " where status in ('PENDING', 'RUNNING') order by run_id"
        )
        runs = sorted((i, run.turn, int(run.executed)) for i, run in model.runs.items())
        assert rows == runs


def test_a_run_that_nobody_here_hosts_is_in_nobody_s_way() -> None:
    database = Database()
    other = start_unit(Asked("other", "ada", "s"), True, 1)
    assert database.run(other).claim is not None
    database.connection.execute(
        "update runs set status = 'PENDING', component_id = 'y', lease_us = null"
    )

    assert claim(database) is None
    assert start(database, Asked("own", "ada", "t")) == "claimed"


def test_a_run_that_had_its_turn_goes_before_all_that_wait() -> None:
    """As one that its node gave back, and one that a release without turns has stored."""
    database = Database()
    for number in range(4):
        start(database, Asked(f"r{number}", "ada", f"s{number}", at_once=1), now_us=number)
    start(database, Asked("b", "bob", "b"), now_us=9)
    database.connection.execute(
        "update runs set status = 'PENDING', lease_by = null, lease_us = null where run_id = 'b'"
    )
    start(database, Asked("c", "bob", "c", at_once=1), room=False)

    assert [claim(database), claim(database)] == ["b", None]


@pytest.mark.parametrize("subject", ["ada", "~address:192.0.2.1"])
def test_a_run_that_goes_on_takes_its_turn_as_well(subject: str) -> None:
    database = Database()
    paused = Asked("paused", subject, "s", at_once=1)
    start(database, paused)
    database.run(finish_unit(paused, 1, 2, "PAUSED"))
    other = Asked("other", subject, "t", at_once=1)
    assert start(database, other) == "claimed"
    owner = "o" if subject.startswith("~") else subject
    unit = ContinueRun(
        *(owner, "s", "paused", 1, "{}", "t", "n", 5, HOSTED),
        share=RunShare(None, at_once=1, waiting=1),
    )

    assert database.run(unit) == Continued("PAUSED", kept=True, queued=True)
    assert claim(database) is None
    ended = database.run(finish_unit(other, 1, 6))
    assert (ended.following, ended.contended) == (None, True)
    assert claim(database) == "paused"


def test_no_more_wait_to_go_on_than_may() -> None:
    database = Database()
    paused = Asked("paused", "ada", "s", at_once=1)
    start(database, paused)
    database.run(finish_unit(paused, 1, 2, "PAUSED"))
    start(database, Asked("other", "ada", "t", at_once=1))
    share = RunShare(at_once=1, waiting=0)
    unit = ContinueRun("ada", "s", "paused", 1, "{}", "t", "n", 5, HOSTED, share=share)

    assert database.run(unit) == Continued("PAUSED", over=True)
    assert database.ask("select status from runs where run_id = 'paused'") == [("PAUSED",)]
