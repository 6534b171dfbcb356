"""The duty of a node to delete what is kept for long enough: once a day, in small bites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Agent, Database, Platform, Retention
from legation.effects import Log, Now, Program, Sleep, ThisNode, Transact
from legation.lifecycle.retention import SWEPT, SweepDatabase
from legation.runs.membership import Cluster
from legation.store.audit import Audited, Changed
from legation.store.failures import CommitLost, Unavailable
from legation.store.periods import Kind, Periods
from legation.store.retention import AdvanceTrail, CountOld, EndSweep, FetchSweep, Sweep, TakeBite
from legation.store.run_rows import DAY_US
from legation.store.units import Dialect, Sql, Statements, Unit
from legation.values import frozen as frozen_value
from legation_testing import Client, play

from ...old_data import NODE, NOW_US, OLD_US, store_run
from ...one_database import Database as Tables
from ...trail_pages import ALL_DATA, entries_of_data
from ..runs.test_membership import TERMS
from .test_bounded_round import Providers, deliver, frozen, go_round, hosting

NOW: Final = NOW_US
DAY: Final = 86_400.0
PERIODS: Final = Periods(runs=30)
WITH_TRAIL: Final = Periods(runs=30, trail=60)


def prune(database: str, before_us: int, who: str) -> Program[int]:
    assert (database, before_us, who) == ("main", NOW - 60 * DAY_US, "local:retention")
    yield from Now()
    return 4


def count_trail(database: str, before_us: int) -> Program[int]:
    assert (database, before_us) == ("main", NOW - 60 * DAY_US)
    yield from Now()
    return 5


def swept(tables: Tables) -> list[str]:
    """Return what the trail says of sweeps."""
    entries = entries_of_data(tables.ask(ALL_DATA))
    return [entry.resource for entry in entries if entry.operation == SWEPT]


def duty(periods: Periods = PERIODS) -> SweepDatabase:
    return SweepDatabase(Cluster(TERMS), "main", periods, prune, count_trail)


def bite(found: Sweep | None, periods: Periods = PERIODS, *, forced: bool = False) -> list[Any]:
    """Return the effects of one bite, and its outcome."""
    taken = Transact("main", TakeBite(NODE, NOW, periods, forced))
    return [(ThisNode(), NODE), (Now(), NOW), (taken, found)]


GOING: Final = Sweep(NOW, Kind.RUNS, counts={"runs": 3}, active=True)
DONE: Final = Sweep(NOW, None, counts={"runs": 3}, active=True)
OVER: Final = Sweep(NOW, None, counts={"runs": 3}, totals={"runs": 3}, swept_us=NOW)


def test_where_nothing_is_due_a_round_is_one_look() -> None:
    assert play(duty().round(), bite(None)) is False


def test_a_round_is_one_bite_and_a_pause() -> None:
    assert play(duty().round(), [*bite(GOING), (Sleep(0.02), None)]) is True


def test_the_end_is_in_the_trail_and_in_the_log() -> None:
    seen: list[Any] = []
    program = duty().round()
    answers: dict[type[Any], Any] = {ThisNode: NODE, Now: NOW, Log: None}
    answer: Any = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration as stop:
            more = stop.value
            break
        seen.append(effect)
        unit = getattr(effect, "unit", None)
        answer = answers.get(type(effect))
        if isinstance(unit, TakeBite):
            answer = DONE
        elif isinstance(unit, Audited):
            answer = Changed(OVER, kept=True)

    audited, log = seen[-2].unit, seen[-1]
    assert more is False
    assert audited.unit == EndSweep(NOW, NOW)
    assert (audited.entry.operation, audited.entry.resource) == (SWEPT, "runs/3")
    assert (audited.entry.subject, audited.entry.client) == ("local:retention", "local")
    fields = (("database", "main"), ("seconds", 0.0), ("runs", 3))
    assert log == Log("info", "retention_swept", fields)


def test_a_sweep_that_deleted_nothing_is_no_entry_of_the_trail() -> None:
    nothing = Sweep(NOW, None, active=True)
    ended = Sweep(NOW, None, swept_us=NOW)
    fields = (("database", "main"), ("seconds", 0.0))
    script = [
        *bite(nothing),
        (Now(), NOW),
        (Transact("main", EndSweep(NOW, NOW)), ended),
        (Log("info", "retention_swept", fields), None),
    ]

    assert play(duty().round(), script) is False


def test_of_two_nodes_the_one_that_ends_it_says_so() -> None:
    nothing = Sweep(NOW, None, active=True)
    script = [*bite(nothing), (Now(), NOW), (Transact("main", EndSweep(NOW, NOW)), None)]

    assert play(duty().round(), script) is False


@pytest.mark.parametrize("quicker", [False, True])
def test_the_trail_is_pruned_by_its_own_program(quicker: bool) -> None:
    at_trail = Sweep(NOW, Kind.TRAIL, active=True)
    advance = Transact("main", AdvanceTrail(NODE, NOW, NOW, 4))
    script = [*bite(at_trail, WITH_TRAIL), (Now(), NOW), (Now(), NOW)]
    script.append((advance, None if quicker else GOING))
    script += [] if quicker else [(Sleep(0.02), None)]

    assert play(duty(WITH_TRAIL).round(), script) is not quicker


def test_a_whole_sweep_is_begun_now_and_done_to_its_end() -> None:
    nothing = Sweep(NOW, None, active=True)
    ended = Sweep(NOW, None, swept_us=NOW)
    fields = (("database", "main"), ("seconds", 0.0))
    script = [
        *bite(Sweep(NOW, Kind.RUNS, active=True), forced=True),
        (Sleep(0.02), None),
        *bite(nothing),
        (Now(), NOW),
        (Transact("main", EndSweep(NOW, NOW)), ended),
        (Log("info", "retention_swept", fields), None),
    ]

    assert play(duty().sweep(), script) == ended


def test_a_whole_sweep_that_another_node_ends_is_as_it_was_seen_last() -> None:
    script = [*bite(GOING, forced=True), (Sleep(0.02), None), *bite(None)]

    assert play(duty().sweep(), script) == GOING


def test_what_would_go_is_counted_by_kind() -> None:
    count = Transact("main", CountOld(Kind.RUNS, WITH_TRAIL, NOW))
    script = [(Now(), NOW), (count, 3), (Now(), NOW)]

    assert play(duty(WITH_TRAIL).count(), script) == {Kind.RUNS: 3, Kind.TRAIL: 5}
    assert play(duty(Periods()).count(), [(Now(), NOW)]) == {}


def test_the_pauses_of_the_duty() -> None:
    assert (duty().pause, duty().after_trouble) == (Sleep(900.0), Sleep(60.0))
    assert duty().log_trouble("error", ()) == Log("error", "retention_failed", ())


# --- in a platform


def made(**options: Any) -> Callable[[], Platform]:
    return hosting(retention=Retention(**{"runs_days": 30, **options}))


def begin(c: Client, session_id: str, agent: str = "concierge") -> None:
    form = {"message": "hi", "session_id": session_id}
    c.post(f"/agents/{agent}/runs", form=form).expect_success()


def sessions(c: Client, database: str = "main") -> list[str]:
    listed = c.get("/sessions", query={"db_id": database}).json()["data"]
    return sorted(one["session_id"] for one in listed)


def runs(c: Client, session_id: str, database: str = "main") -> int:
    return len(c.get(f"/sessions/{session_id}/runs", query={"db_id": database}).json())


def fetch(c: Client, unit: Any, database: str = "main") -> Any:
    def program() -> Any:
        return (yield from Transact(database, unit))

    return c.simulation.run(program())


def test_without_retention_there_is_no_duty_and_no_statement() -> None:
    with frozen(hosting()) as c:
        begin(c, "s")
        c.advance(400 * DAY)
        go_round(c)
        assert runs(c, "s") == 1
        units = [getattr(one.effect, "unit", None) for one in c.effects]
        assert not [unit for unit in units if isinstance(unit, TakeBite)]


def test_two_databases_have_retentions_of_their_own() -> None:
    databases = [
        Database("main", "sqlite://"),
        Database("second", "sqlite://", retention=Retention(runs_days=90, sessions_days=90)),
    ]
    with frozen(hosting(retention=Retention(sessions_days=10), databases=databases)) as c:
        begin(c, "a")
        begin(c, "b", "clerk")
        for days, left in ((9, "ab"), (2, "b"), (78, "b"), (2, "")):
            c.advance(days * DAY)
            go_round(c)
            assert [*sessions(c), *sessions(c, "second")] == [*left]


def test_jobs_sweep_without_a_round() -> None:
    retention = Retention(sessions_days=1)
    with Client(lambda: Platform(agents=[Agent(id="concierge")], retention=retention)) as c:
        begin(c, "s")
        c.advance(0.5 * 3600)
        swept = fetch(c, FetchSweep()).swept_us
        c.clock.set_forward(3 * DAY)
        c.advance(901)
        assert sessions(c) == []
        assert fetch(c, FetchSweep()).swept_us > swept


def test_a_session_that_waits_for_a_person_stays() -> None:
    with frozen(made(sessions_days=30)) as c:
        begin(c, "s")
        fetch(c, _Pause())
        c.advance(100 * DAY)
        go_round(c)
        assert runs(c, "s") == 1


@frozen_value
class _Pause(Unit[None]):
    """Let every run be one that waits for a person."""

    def statements(self, dialect: Dialect) -> Statements[None]:
        """Yield one update."""
        yield Sql("update runs set status = 'PAUSED'", registered=False)()


@pytest.mark.parametrize("failure", [Unavailable, CommitLost])
def test_a_round_that_failed_is_logged_and_done_again(failure: type[Exception]) -> None:
    with frozen(made()) as c:
        begin(c, "s")
        c.advance(40 * DAY)
        c.simulation.fail_at(lambda e: isinstance(getattr(e, "unit", None), TakeBite), failure())
        assert go_round(c).failed == ("main",)
        assert next(log.event for log in c.simulation.logs if "retention" in log.event) == (
            "retention_failed"
        )
        go_round(c)
        assert runs(c, "s") == 0


def test_what_a_sweep_deletes_is_in_the_trail() -> None:
    with frozen(made(sessions_days=35, trail_days=30)) as c:
        for number in range(3):
            begin(c, f"s{number}")
        c.advance(31 * DAY)
        go_round(c)

        entries = c.get("/audit", query={"operation": SWEPT}).json()["data"]
        assert [one["resource"] for one in entries] == [entries[0]["resource"]]
        assert entries[0]["resource"].startswith("runs/3/trail/")
        assert entries[0]["subject"] == "local:retention"


def test_a_sweep_that_is_asked_for_is_done_at_once() -> None:
    with frozen(made(trail_days=30)) as c:
        begin(c, "s")
        c.advance(40 * DAY)
        assert isinstance(c.platform, Platform)
        expected = c.simulation.run(c.platform.count_old("main"))
        swept = c.simulation.run(c.platform.sweep("main"))
        assert (expected["runs"], swept["runs"]) == (1, 1)
        assert expected["trail"] == swept["trail"] > 0
        assert c.simulation.run(c.platform.count_old("main"))["runs"] == 0


def test_a_round_without_time_leaves_the_sweep_to_the_next() -> None:
    with frozen(made()) as c:
        for number in range(201):
            begin(c, f"s{number}")
        c.advance(40 * DAY)
        go_round(c, seconds=0.01)
        assert fetch(c, FetchSweep()).active
        c.advance(1)
        go_round(c)
        assert fetch(c, FetchSweep()).totals == {"runs": 201}


def test_measurements_say_what_went_and_how_far_behind_sweeps_are() -> None:
    names = ("pruned_total", "last_sweep_timestamp_seconds", "behind_seconds")

    def read(c: Client) -> dict[str, str]:
        c.advance(10)
        text = c.get("/metrics/prometheus").text
        lines = [line for line in text.splitlines() if line.startswith("legation_retention")]
        return dict(line.rsplit(" ", 1) for line in lines)

    second = Database("second", "sqlite://")
    main = Database("main", "sqlite://", retention=Retention(runs_days=30))
    with frozen(hosting(databases=[main, second])) as c:
        begin(c, "s")
        first = read(c)
        assert {name.partition("{")[0] for name in first} == {f"legation_retention_{names[2]}"}
        assert {*first.values()} == {"0"} or {*first.values()} == {"0.0"}
        c.advance(40 * DAY)
        late = read(c)
        assert float(late[f'legation_retention_{names[2]}{{database="main"}}']) > 38 * DAY
        go_round(c)
        after = read(c)
        assert after[f'legation_retention_{names[0]}{{database="main",kind="runs"}}'] == "1"
        assert float(after[f'legation_retention_{names[1]}{{database="main"}}']) > 0
        assert float(after[f'legation_retention_{names[2]}{{database="main"}}']) == 0


# --- what reads a run whose parts are gone


def test_the_events_of_a_run_that_are_not_kept_are_an_empty_stream() -> None:
    with frozen(hosting(retention=Retention(events_days=30))) as c:
        begin(c, "s")
        (run,) = c.get("/sessions/s/runs", query={"db_id": "main"}).json()
        path = f"/agents/concierge/runs/{run['run_id']}"
        assert len(c.get(f"{path}/events").events()) > 1
        c.advance(40 * DAY)
        go_round(c)
        c.restart()  # for a while a process has the events in its memory

        assert [event.name for event in c.get(f"{path}/events").events()] == []
        (word,) = c.post(f"{path}/resume", form={"session_id": "s"}).events()
        assert (word.name, word.json()["total_events"]) == ("replay", 0)
        forked = c.post(f"{path}/fork", json={"at": f"{run['run_id']}:1"})
        assert (forked.status, forked.json()["errors"][0]["message"]) == (
            422,
            "the events of the run are not kept any more",
        )
        assert c.get(path, query={"session_id": "s"}).json()["content"] == "hi"


# --- kept for longer, or shorter, than usual


def test_an_answer_under_a_key_is_kept_for_as_long_as_is_said() -> None:
    with frozen(hosting(retention=Retention(answers_days=3))) as c:
        form = {"message": "hi", "session_id": "s", "stream": False}
        headers = {"Idempotency-Key": "k"}
        first = c.post("/agents/concierge/runs", form=form, headers=headers).json()
        c.advance(2.9 * DAY)
        go_round(c)
        assert c.post("/agents/concierge/runs", form=form, headers=headers).json() == first
        c.advance(0.2 * DAY)
        c.advance(DAY)
        go_round(c)
        assert fetch(c, FetchSweep()).totals == {"answers": 1}


@pytest.mark.parametrize(("days", "left"), [(None, 0), (7, 0), (60, 1)])
def test_answered_messages_are_kept_for_as_long_as_is_said(days: int | None, left: int) -> None:
    with frozen(hosting(retention=Retention(messages_days=days)), Providers()) as c:
        deliver(c, ("4911", "a", "hi"))
        go_round(c)
        c.advance(31 * DAY)
        go_round(c)
        assert fetch(c, _Count("inbox")) == left


@frozen_value
class _Count(Unit[int]):
    """The number of rows of a table."""

    table: str

    def statements(self, dialect: Dialect) -> Statements[int]:
        """Yield one read."""
        ((found,),) = yield Sql(f"select count(*) from {self.table}", registered=False)()
        return int(found)


@pytest.mark.parametrize(("days", "left"), [(None, 1), (5, 1), (60, 2)])
def test_counts_of_refusals_and_incidents_are_kept_for_as_long_as_is_said(
    days: int | None, left: int
) -> None:
    retention = Retention(counters_days=days, incidents_days=days)
    with frozen(hosting(retention=retention)) as c:
        assert isinstance(c.platform, Platform)
        for number in range(2):
            c.platform.context.cluster.incidents.note(
                "main", f"i{number}", c.clock.now_us, error_type="E", operation="o"
            )
            c.platform.telemetry.refusals.count(c.clock.now_us, "1.2.3.4", "/", 401)
            c.advance(61)
            go_round(c)
            c.advance(31 * DAY if number == 0 else 0)
        assert fetch(c, _Count("incidents")) == left
        assert fetch(c, _Count("refusals")) == left


# --- crashes


def test_a_crash_at_every_effect_leaves_a_sweep_that_goes_on(
    figures: Callable[[str], None],
) -> None:
    """Each row goes once, and is counted once."""
    periods = Periods(sessions=30, runs=30, events=30)
    points = 0
    for crash_at in range(1, 100):
        tables = Tables()
        tables.clock_us = NOW
        tables.enter(NODE)
        for number in range(43):
            store_run(tables.run, f"r{number}", OLD_US, session_id=f"s{number % 41:02}")
        if not _crash(tables, periods, crash_at):
            break
        points += 1
        now_us = NOW + 61_000_000
        _drive(tables, duty(periods).sweep(), now_us, "b")
        assert tables.ask("select count(*) from runs") == [(0,)]
        assert tables.run(FetchSweep()).totals == {"sessions": 41}
        assert swept(tables) == ["sessions/41"]
    figures(f"retention: {points} crash points, each row deleted and counted once")
    assert points > 10


def _drive(tables: Tables, program: Program[Any], now_us: int, node: str, stop: int = 0) -> Any:
    """Answer the effects of `program`; it is dropped before the effect number `stop`."""
    answer: Any = None
    number = 0
    while True:
        try:
            effect = program.send(answer)
        except StopIteration as done:
            return done.value
        number += 1
        if number == stop:
            program.close()
            raise _CrashedHere
        match effect:
            case Now():
                answer = now_us
            case ThisNode():
                answer = node
            case Transact():
                answer = tables.run(effect.unit)
            case _:
                answer = None


class _CrashedHere(Exception):
    """The node is gone."""


def _crash(tables: Tables, periods: Periods, number: int) -> bool:
    """Sweep until a crash; return whether there was one before the end."""
    try:
        _drive(tables, duty(periods).sweep(), NOW, NODE, number)
    except _CrashedHere:
        return True
    return False


def test_two_nodes_that_sweep_at_once_delete_each_row_once() -> None:
    tables = Tables()
    tables.clock_us = NOW
    tables.enter(NODE)
    for number in range(90):
        store_run(tables.run, f"r{number}", OLD_US, session_id=f"s{number:02}")
    programs = {node: duty(Periods(sessions=30)).sweep() for node in ("a", "b")}
    answers: dict[str, Any] = dict.fromkeys(programs)
    ended: dict[str, Sweep] = {}
    while programs:
        for node, program in tuple(programs.items()):
            try:
                effect = program.send(answers[node])
            except StopIteration as stop:
                ended[node] = stop.value
                del programs[node]
                continue
            answers[node] = None
            match effect:
                case Now():
                    answers[node] = NOW
                case ThisNode():
                    answers[node] = node
                case Transact():
                    answers[node] = tables.run(effect.unit)
                case _:
                    pass

    assert tables.ask("select count(*) from sessions") == [(0,)]
    assert max(one.pruned for one in ended.values()) == 90
    assert swept(tables) == ["sessions/90"]
