"""The state of a session on the tables of the catalogue: changes, and that each is applied once."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from legation.store.member_runs import MemberMove, Root, StartMember
from legation.store.run_keeping import ClaimWaiting
from legation.store.run_pages import ReadRuns
from legation.store.run_reads import FetchEvents, FetchRun
from legation.store.run_rows import ClaimedRun, RunLease, RunRow, StoredEvent
from legation.store.run_steering import CancelRun, ContinueRun
from legation.store.runs import AppendEvents, Ended, FinishRun, StartRun
from legation.store.session_state import (
    EMPTY,
    MAX_STATE,
    NO_CHANGE,
    FetchState,
    StateChange,
    StateChanges,
    apply,
    change_to,
    encode_change,
    encode_value,
    fill_state,
)
from legation.store.sessions import (
    CreateSession,
    DeleteSessions,
    SessionChange,
    SessionRow,
    UpdateSession,
)
from legation.store.steps import NO_RECORDS, Records, Step, StepKind

from ...one_database import Database

ADD: Final = StateChange((("cart", '["x"]'),))
STEP: Final = Step("1.1", StepKind.CALL, "add", 5, 9, '{"f":1}')
MOVE: Final = MemberMove("ada", "s", "m", "COMPLETED", "{}", None, None, 9)


@pytest.fixture
def database() -> Database:
    made = Database()
    made.enter("n")
    for owner in ("ada", "eve"):
        made.run(StartRun(owner, "s", f"run-{owner}", "agent", "desk", "{}", "", "n", 1))
    return made


def changes(*of: tuple[str, StateChange], owner: str = "ada") -> StateChanges:
    return StateChanges(owner, "s", of)


def append(database: Database, records: Records, *, attempt: int = 1) -> bool | None:
    """Append one event with `records` to the run of ada, behind what is stored."""
    ((last,),) = database.ask("select events from runs where run_id = 'run-ada'")
    event = (StoredEvent(last + 1, "e", "{}"),)
    lease = RunLease("n", attempt)
    return database.run(AppendEvents("ada", "run-ada", lease, 7, event, last + 1, records))


def finish(records: Records = NO_RECORDS, **others: Any) -> FinishRun:
    unit = FinishRun(
        owner="ada",
        session_id="s",
        run_id="run-ada",
        lease=RunLease("n", 1),
        node="n",
        now_us=8,
        status="COMPLETED",
        output='{"content":"x","session_state":{}}',
        reason=None,
        usage=None,
        events=(StoredEvent(1, "e", '{"content":"x","session_state":{}}'),),
        hosted=("agent:desk",),
        records=records,
    )
    return evolve(unit, **others)


def row_of(database: Database, run_id: str = "run-ada") -> RunRow:
    row = database.run(FetchRun(run_id, None, any_owner=True))
    assert row is not None
    return row


def put(database: Database, owner: str = "ada", **document: Any) -> None:
    """Have a client replace the state."""
    database.run(UpdateSession(owner, "s", SessionChange(state=document), 8))


def kept(database: Database) -> list[Any]:
    return database.ask("select owner, session_id, document from session_states order by 1, 3")


def state(database: Database, owner: str = "ada") -> Any:
    return json.loads(database.run(FetchState(owner, "s")))


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
DOCUMENTS: Final = st.dictionaries(st.text(max_size=2), JSON, max_size=4)


@given(before=DOCUMENTS, said=DOCUMENTS, names=st.lists(st.text(max_size=2), max_size=3))
def test_a_change_writes_its_keys_and_no_others(
    before: dict[str, Any], said: dict[str, Any], names: list[str]
) -> None:
    change = change_to(said, names)

    after = json.loads(apply(encode_value(before), change))

    others = {key: value for key, value in before.items() if key not in (*said, *names)}
    assert after == {**others, **said}
    assert json.loads(apply(encode_value(after), change)) == after
    assert set(change.keys) == {*said, *names}


def test_changes_are_applied_one_after_the_other() -> None:
    again = StateChange((("cart", "[]"), ("total", "0")), ("name",))

    assert apply('{"name":"Ada","kept":1}', ADD, again) == '{"kept":1,"cart":[],"total":0}'


def test_a_change_is_encoded_without_what_it_has_not() -> None:
    both = StateChange((("cart", '["x"]'),), ("name",))

    assert encode_change(both) == {"set": {"cart": ["x"]}, "deleted": ["name"]}
    assert encode_change(StateChange(deleted=("name",))) == {"deleted": ["name"]}
    assert both.without({"cart"}) == StateChange(deleted=("name",))
    assert both.without({"cart", "name"}) == NO_CHANGE


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_what_is_no_number_of_json_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_value({"a": [value]})


def test_the_state_of_no_session_is_empty(database: Database) -> None:
    assert database.run(FetchState("ada", "none")) == EMPTY
    assert database.run(FetchState("bob", "s")) == EMPTY


def test_a_change_is_stored_with_the_outcome_of_its_call(database: Database) -> None:
    assert append(database, Records((STEP,), state=changes(("1.1", ADD)))) is False

    assert (state(database), state(database, "eve")) == ({"cart": ["x"]}, {})


def test_a_change_is_applied_once_also_where_others_wrote_in_between(database: Database) -> None:
    """The answer of a commit was lost, and before the next try a client replaced the state."""
    records = Records((STEP,), state=changes(("1.1", ADD)))
    append(database, records)
    database.run(UpdateSession("ada", "s", SessionChange(state={"cart": [], "by": "client"}), 8))

    append(database, records)

    assert state(database) == {"cart": [], "by": "client"}


def test_of_a_batch_only_what_is_stored_by_it_counts(database: Database) -> None:
    append(database, Records((STEP,), state=changes(("1.1", ADD))))
    second = Step("1.2", StepKind.CALL, "add", 5, 9, '{"f":1}')
    beside = StateChange((("total", "1"),))

    again = StateChange((("cart", '["again"]'),))
    append(database, Records((STEP, second), state=changes(("1.1", again), ("1.2", beside))))

    assert state(database) == {"cart": ["x"], "total": 1}


def test_a_call_that_was_begun_writes_when_it_ends(database: Database) -> None:
    append(database, Records((Step("1.1", StepKind.CALL, "add", 5),)))

    append(database, Records((STEP,), state=changes(("1.1", ADD))))

    assert state(database) == {"cart": ["x"]}


def test_who_has_lost_the_lease_writes_nothing(database: Database) -> None:
    assert append(database, Records((STEP,), state=changes(("1.1", ADD))), attempt=2) is None

    assert state(database) == {}


def test_nothing_is_written_into_a_session_that_was_deleted(database: Database) -> None:
    event = (StoredEvent(1, "e", "{}"),)
    records = Records((STEP,), state=changes(("1.1", ADD)))
    database.run(DeleteSessions((("ada", "s", None),), None, 7))

    lost = database.run(AppendEvents("ada", "run-ada", RunLease("n", 1), 7, event, 1, records))

    assert (lost, database.ask("select session_id from sessions where owner = 'ada'")) == (None, [])


def test_a_change_at_the_end_of_a_run_is_there_for_the_next_one(database: Database) -> None:
    database.run(StartRun("ada", "s", "next", "agent", "desk", "{}", "", "n", 2))
    unit = finish(Records(state=changes(("run-ada", ADD))))

    ended = database.run(unit)

    assert ended.following is not None
    assert (ended.following.run_id, ended.following.state) == ("next", '{"cart":["x"]}')
    assert state(database) == {"cart": ["x"]}


def test_an_end_that_is_stored_again_writes_nothing_again(database: Database) -> None:
    unit = finish(Records((STEP,), state=changes(("run-ada", ADD), ("1.1", ADD))))
    database.run(unit)
    database.run(UpdateSession("ada", "s", SessionChange(state={"by": "client"}), 9))

    assert database.run(unit) == Ended(kept=True, state='{"cart":["x"]}')
    assert state(database) == {"by": "client"}


def test_a_member_writes_when_it_ends_and_then_no_more(database: Database) -> None:
    root = Root("ada", "s", "run-ada", RunLease("n", 1))
    database.run(StartMember(root, "m", "run-ada", "agent", "desk", "{}", "{}", 2))
    records = Records(moves=(MOVE,), state=changes(("m", ADD)))
    append(database, records)
    database.run(UpdateSession("ada", "s", SessionChange(state={}), 9))

    append(database, records)

    assert state(database) == {}
    assert database.ask("select status from runs where run_id = 'm'") == [("COMPLETED",)]


# --- As runs left it ---------------------------------------------------------------------------


def test_a_run_shows_the_state_as_it_left_it_whatever_becomes_of_that(database: Database) -> None:
    put(database, n=1)
    ended = database.run(finish(Records((STEP,), state=changes(("1.1", ADD)))))
    put(database, n=2)

    left = '{"n":1,"cart":["x"]}'
    assert ended == Ended(kept=True, state=left)
    shown = f'{{"content":"x","session_state":{left}}}'
    assert row_of(database).shown == shown
    assert database.run(ReadRuns("ada", "s", attrgetter("shown"))).items == (shown,)
    assert database.run(FetchEvents("ada", "run-ada", 0)).events == (StoredEvent(1, "e", shown),)
    assert database.ask("select output, data from runs join events using (run_id)") == [
        ('{"content":"x","session_state":{}}',) * 2
    ]


def test_one_version_of_the_state_is_stored_once_for_each_session(database: Database) -> None:
    put(database, n=1)
    put(database, "eve", n=1)
    database.run(StartRun("ada", "s", "next", "agent", "desk", "{}", "", "n", 2))
    for owner, run_id in (("ada", "run-ada"), ("eve", "run-eve"), ("ada", "next")):
        database.run(finish(owner=owner, run_id=run_id))

    assert kept(database) == [("ada", "s", '{"n":1}'), ("eve", "s", '{"n":1}')]
    assert row_of(database, "next").state == '{"n":1}'


def test_an_empty_state_is_not_kept(database: Database) -> None:
    assert database.run(finish()) == Ended(kept=True)
    assert kept(database) == []
    assert row_of(database).shown == '{"content":"x","session_state":{}}'


def test_what_the_token_says_is_in_what_the_run_shows_and_not_in_the_session(
    database: Database,
) -> None:
    put(database, plan="small", n=1)
    view = change_to({"plan": "large"}, ("plan", "tenant"))

    ended = database.run(finish(view=view))

    assert ended.state == '{"plan":"large","n":1}'
    assert state(database) == {"plan": "small", "n": 1}


def test_a_view_that_leaves_nothing_keeps_nothing(database: Database) -> None:
    put(database, plan="small")

    assert database.run(finish(view=change_to({}, ("plan",)))) == Ended(kept=True)
    assert kept(database) == []


def test_of_a_run_that_pauses_and_goes_on_the_last_state_counts(database: Database) -> None:
    put(database, n=1)
    database.run(finish(status="PAUSED", input="{}"))
    assert row_of(database).state == '{"n":1}'
    put(database)
    goes_on = ContinueRun("ada", "s", "run-ada", 1, "{}", "k", "n", 9, ("agent:desk",))
    database.run(goes_on)
    assert row_of(database).shown is None

    last = (StoredEvent(2, "e", "{}"),)
    assert database.run(finish(lease=RunLease("n", 2), events=last)) == Ended(kept=True)
    assert row_of(database).state is None


def test_a_paused_run_that_is_cancelled_shows_what_it_paused_with(database: Database) -> None:
    put(database, n=1)
    output = '{"content":"x","status":"PAUSED","session_state":{}}'
    database.run(finish(status="PAUSED", input="{}", output=output))

    database.run(CancelRun("ada", "s", "run-ada", 9, "{}", ("RunCancelled", "{}")))

    shown = json.loads(row_of(database).shown or "")
    assert shown == {"content": "x", "status": "CANCELLED", "session_state": {"n": 1}}


def test_the_states_of_a_session_are_deleted_with_it_and_with_it_alone(database: Database) -> None:
    for owner in ("ada", "eve"):
        put(database, owner, n=1)
        database.run(finish(owner=owner, run_id=f"run-{owner}"))

    database.run(DeleteSessions((("ada", "s", None),), None, 9))

    assert kept(database) == [("eve", "s", '{"n":1}')]


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ('{"a":1,"session_state":{}}', '{"a":1,"session_state":{"n":1}}'),
        ('{"a": 1, "session_state": {}}', '{"a": 1, "session_state": {"n":1}}'),
        ('{"session_state":{"old":1},"metrics":{}}', None),
        ('{"content":{"session_state":{}}}', None),
        ('{"content":{"a":1,"session_state":{}},"session_state":{"old":1}}', None),
        ('{"content":",\\"session_state\\":{}}"}', None),
        ("{}", None),
    ],
)
def test_only_the_place_at_the_end_is_filled(text: str, filled: str | None) -> None:
    assert fill_state(text, '{"n":1}') == (filled or text)


# --- A long state ------------------------------------------------------------------------------

LONG: Final = {"x": "y" * MAX_STATE}


def open_long(database: Database, **others: Any) -> Any:
    """Have ada make the session `long`, whose state no update returns."""
    return database.run(CreateSession("ada", "long", "agent", "desk", 1, state=LONG, **others))


def start_long(database: Database, run_id: str) -> Any:
    return database.run(StartRun("ada", "long", run_id, "agent", "desk", "{}", "hi", "n", 2))


def finish_long(run_id: str, records: Records = NO_RECORDS, **others: Any) -> FinishRun:
    return finish(records, session_id="long", run_id=run_id, **others)


def long_state(text: str | None) -> Any:
    assert text is not None
    return json.loads(text)


def test_a_long_state_is_seen_by_whoever_makes_or_changes_the_session(database: Database) -> None:
    made = open_long(database)
    named = database.run(UpdateSession("ada", "long", SessionChange(name="a name"), 2))

    assert (made.state, made.name) == (LONG, None)
    assert isinstance(named, SessionRow)
    assert (named.state, named.name) == (LONG, "a name")


def test_a_run_that_starts_waits_and_ends_sees_a_long_state(database: Database) -> None:
    open_long(database)

    first, second = start_long(database, "r1").claim, start_long(database, "r2")
    ended = database.run(finish_long("r1", hosted=()))
    waited = database.run(ClaimWaiting("n", 9, ("agent:desk",)))

    assert (first.run_no, long_state(first.state), second.claim) == (1, LONG, None)
    assert (long_state(ended.state), ended.elsewhere) == (LONG, True)
    assert isinstance(waited, ClaimedRun)
    assert (waited.run_id, long_state(waited.state)) == ("r2", LONG)


def test_a_long_state_is_changed_by_calls_and_seen_by_a_run_that_goes_on(
    database: Database,
) -> None:
    open_long(database)
    start_long(database, "r1")
    records = Records((STEP,), state=StateChanges("ada", "long", (("1.1", ADD),)))
    event = (StoredEvent(1, "e", "{}"),)
    database.run(AppendEvents("ada", "r1", RunLease("n", 1), 7, event, 1, records))
    after = {**LONG, "cart": ["x"]}

    last = (StoredEvent(2, "e", "{}"),)
    paused = database.run(finish_long("r1", status="PAUSED", input="{}", events=last))
    goes_on = ContinueRun("ada", "long", "r1", 1, "{}", "k", "n", 9, ("agent:desk",))
    continued = [database.run(goes_on).claim for _ in range(2)]

    assert long_state(paused.state) == after
    assert [claim and long_state(claim.state) for claim in continued] == [after, after]


def test_a_run_of_a_session_with_a_state_does_not_change_the_length_of_its_row(
    database: Database,
) -> None:
    database.run(CreateSession("ada", "long", "agent", "desk", 1, "a name", {"x": "y" * 70_000}))
    columns = "name, state, bytes, version, runs, created_us, updated_us"

    lengths = list[int]()
    for number in range(130):
        start_long(database, f"r{number}")
        database.run(finish_long(f"r{number}", now_us=1_800_000_000_000_000))
        (row,) = database.ask(f"select {columns} from sessions where session_id = 'long'")
        lengths.append(sum(length_of(value) for value in row))

    assert database.ask("select runs from sessions where session_id = 'long'") == [(130,)]
    assert len(set(lengths)) == 1


def length_of(value: str | int) -> int:
    """Return how many bytes SQLite stores of a value (fileformat2.html, section 2.1)."""
    if isinstance(value, str):
        return len(value)
    widths = (1, 2, 3, 4, 6, 8)
    return 0 if value in (0, 1) else next(w for w in widths if value < 1 << (8 * w - 1))
