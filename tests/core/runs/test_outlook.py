"""The outlook of open runs: what a release that comes would do with what stands in a database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from attrs import define, evolve, field

from legation import Agent, Platform, Team, tool
from legation.effects import Program, Transact
from legation.migrations.catalogue import CATALOGUE, Catalogue
from legation.models.conversation import Message, ToolCall, Usage
from legation.runs.outlook import MOST_EXAMPLES, MOST_FINDINGS, Outcome, Outlook, read_outlook
from legation.runs.step_outcomes import encode_model, encode_outcome
from legation.runs.team_turn import DELEGATE
from legation.runs.turn_state import CallState, ModelTurn, Standing, TurnState, dump
from legation.store.failures import Unavailable
from legation.store.open_runs import ReadOpenRuns
from legation.store.run_keeping import ReleaseRun
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.run_steering import CancelRun
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import Definition, FetchDefinitions, Records, Step, StepKind
from legation.store.units import Unit
from legation_testing import Client

from ...two_databases import IN_MEMORY


@tool
def book(room: int) -> str:
    """Book a room."""
    raise AssertionError


@tool(name="book")
def book_by_name(room: str) -> str:
    """Book a room."""
    raise AssertionError


@tool(name="book", again="safe")
def book_again(room: int) -> str:
    """Book a room."""
    raise AssertionError


@tool(requires_confirmation=True)
def delete(room: int) -> str:
    """Delete a room."""
    raise AssertionError


@tool(name="delete", requires_confirmation=True)
def delete_by_name(room: str) -> str:
    """Delete a room."""
    raise AssertionError


@tool(external_execution=True)
def shell(command: str) -> str:
    """Run a command."""
    raise AssertionError


def answer(message: str) -> str:
    raise AssertionError


TOOLS: Final[tuple[Any, ...]] = (book, delete, shell)
DESK: Final = Agent(id="desk", tools=TOOLS, instructions="Be brief.")


def host(
    *agents: Agent, teams: tuple[Team, ...] = (), catalogue: Catalogue = CATALOGUE
) -> Platform:
    return Platform(databases=IN_MEMORY, agents=agents, teams=teams, catalogue=catalogue)


ASKED: Final = {"message": "go", "stream": False}


def owner_of(run_id: str) -> str:
    """Return whose run it is: nobody has more than may be executed at once."""
    return f"o{int(run_id[1:]) // 50}"


@define
class Office:
    """The databases of a platform that does nothing, in which runs are put as they stand."""

    client: Client
    runs: int = 0
    events: dict[str, int] = field(factory=dict[str, int])

    def run(self, unit: Unit[Any], database: str = "main") -> Any:
        def program() -> Program[Any]:
            return (yield from Transact(database, unit))

        return self.client.simulation.run(program())

    def look(self, *agents: Agent, database: str = "main", **more: Any) -> Outlook:
        registry = host(*agents, **more).registry
        return self.client.simulation.run(read_outlook(registry, database))

    def start(self, component: str = "agent:desk", version: str | None = None, **more: Any) -> str:
        self.runs += 1
        kind, _, component_id = component.partition(":")
        run_id, text = f"r{self.runs}", json.dumps({**ASKED, **more})
        start = StartRun(
            owner_of(run_id), run_id, run_id, kind, component_id, text, "", "n", 1, version=version
        )
        self.run(start)
        return run_id

    def append(self, run_id: str, *steps: Step, definitions: tuple[Definition, ...] = ()) -> None:
        event, records = self.next_event(run_id), Records(steps, definitions)
        lease, last = RunLease("n", 1), event.seq
        assert (
            self.run(AppendEvents(owner_of(run_id), run_id, lease, 2, (event,), last, records))
            is False
        )

    def next_event(self, run_id: str) -> StoredEvent:
        number = self.events[run_id] = self.events.get(run_id, 0) + 1
        return StoredEvent(number, "e", "{}")

    def release(self, run_id: str) -> None:
        assert self.run(ReleaseRun(owner_of(run_id), run_id, RunLease("n", 1)))

    def pause(self, run_id: str, state: TurnState | None, **more: Any) -> None:
        turn = {} if state is None else {"turn": dump(state)}
        kept = {**ASKED, **turn, **more}
        events, lease = (self.next_event(run_id),), RunLease("n", 1)
        who = (owner_of(run_id), run_id, run_id, lease, "n", 3)
        text = json.dumps(kept)
        end = FinishRun(*who, "PAUSED", "{}", None, None, events, (), input=text)
        assert self.run(end).kept


@pytest.fixture
def office() -> Iterator[Office]:
    with Client(host(DESK), jobs=False) as client:
        yield Office(client)


def call_of(name: str = "book", arguments: str = '{"room": 7}', **more: Any) -> CallState:
    call = ToolCall("c", name, arguments)
    return CallState(call=call, created_us=1, arguments=json.loads(arguments), **more)


def answered(*calls: CallState) -> Step:
    members = encode_model(Message("assistant", ""), Usage(), None, calls)
    return Step("1", StepKind.MODEL, "m", 1, 2, encode_outcome("1", "m", members))


def begun(place: str = "1.1", name: str = "book") -> Step:
    return Step(place, StepKind.CALL, name, 3)


def start_step(definition: Definition, place: str = "0", **more: Any) -> Step:
    outcome = json.dumps({"f": 1, "definition": definition.digest, **more})
    return Step(place, StepKind.START, definition.component_id, 1, 1, outcome)


def definition_of(agent: Agent) -> Definition:
    return host(agent).registry.agents[agent.id].definition


def waiting(*calls: CallState) -> TurnState:
    said = (ModelTurn(Message("user", "go"), 0),)
    return TurnState(said=said, calls=calls, rounds=1)


def remarks(outlook: Outlook) -> list[tuple[Outcome, str, str]]:
    """Return what is said, with the place of its first run."""
    return [(f.outcome, f.code, f.examples[0].place) for f in outlook.findings]


def details(outlook: Outlook) -> list[str]:
    return [finding.detail for finding in outlook.findings]


# --- whole databases -----------------------------------------------------------------------------


def test_of_a_database_without_runs_nothing_is_said(office: Office) -> None:
    found = office.look(DESK, database="second")

    assert (found.runs, found.all_go_on, found.findings) == (0, True, ())


def test_what_has_not_changed_goes_on_and_what_is_over_does_not_count(office: Office) -> None:
    office.start()
    waits = office.start()
    office.append(waits, answered(call_of("delete", standing=Standing.CONFIRM)))
    office.pause(waits, waiting(call_of("delete", standing=Standing.CONFIRM)))
    released = office.start()
    office.append(released, answered(call_of()))
    office.release(released)
    found = office.look(DESK)

    assert (found.runs, found.all_go_on, found.findings) == (3, True, ())
    assert office.look(DESK, database="second").runs == 0


@pytest.mark.parametrize(
    ("versions", "reason"),
    [(slice(-1), "code for"), (slice(None), "migrate it to")],
    ids=["ahead", "behind"],
)
def test_runs_of_a_database_with_another_schema_are_not_read(versions: slice, reason: str) -> None:
    whole = CATALOGUE.migrations
    older = Catalogue(whole[:-1])
    of_database, of_code = (CATALOGUE, older) if versions == slice(-1) else (older, CATALOGUE)
    last = whole[-1]
    if versions == slice(-1):  # whose word is that older code may not serve it
        of_database = Catalogue((*whole[:-1], evolve(last, serves=last.version)))
    with Client(host(DESK, catalogue=of_database), jobs=False) as client:
        found = Office(client).look(DESK, catalogue=of_code)

    assert reason in (found.unserved or "")
    assert (found.runs, found.all_go_on) == (0, False)


def test_an_empty_database_has_no_runs() -> None:
    with Client(host(DESK), jobs=False, databases=("main", "second", "third")) as client:
        found = Office(client).look(DESK, database="third")

    assert (found.unserved, found.runs, found.all_go_on) == (None, 0, True)


def test_a_database_that_is_away_is_no_outlook(office: Office) -> None:
    office.append(office.start(), start_step(definition_of(DESK)), answered(call_of()))
    for unit in (ReadOpenRuns, FetchDefinitions):
        office.client.fail_at(unit, Unavailable("away"))
        with pytest.raises(Unavailable):
            office.look(DESK)


def test_runs_are_read_page_by_page(office: Office) -> None:
    for number in range(450):
        run_id = office.start("agent:desk" if number % 3 else "agent:gone")
        if number % 2:
            office.pause(run_id, waiting(call_of("delete", standing=Standing.CONFIRM)))
    found = office.look(DESK)

    assert found.runs == 450
    assert found.outcomes[Outcome.WAITS] == 150
    (finding,) = found.findings
    assert (finding.runs, len(finding.examples)) == (150, MOST_EXAMPLES)


def test_findings_are_bounded_and_counted(office: Office) -> None:
    for number in range(MOST_FINDINGS + 5):
        office.start(f"agent:gone{number}")
    found = office.look(DESK)

    assert (len(found.findings), found.more, found.runs) == (MOST_FINDINGS, 5, MOST_FINDINGS + 5)


def test_the_worst_comes_first_and_counts_for_a_run(office: Office) -> None:
    office.start("agent:gone")
    for _ in range(2):
        run_id = office.start()
        office.append(run_id, answered(call_of(), call_of()), begun(), begun("1.2"))
        office.release(run_id)
    found = office.look(evolve(DESK, tools=[delete], in_doubt="end"))

    assert [(f.outcome, f.code, f.runs) for f in found.findings] == [
        (Outcome.ENDS, "in_doubt", 2),
        (Outcome.WAITS, "not_hosted", 1),
        (Outcome.LOSES_CALL, "tool_gone", 2),
    ]
    assert found.outcomes == {
        Outcome.GOES_ON: 0,
        Outcome.LOSES_CALL: 0,
        Outcome.WAITS: 1,
        Outcome.ENDS: 2,
    }
    (ends, _, _) = found.findings
    assert [(e.run_id, e.session_id, e.status, e.place) for e in ends.examples] == [
        ("r2", "r2", "PENDING", "1.1"),
        ("r3", "r3", "PENDING", "1.1"),
    ]


# --- components ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agents", "teams", "code", "detail"),
    [
        ((), (), "not_hosted", "agent:desk@1 is not hosted"),
        ((), (Team(id="desk", members=("a",)),), "other_kind", "and a team has that id"),
        ((evolve(DESK, version="2"),), (), "other_version", "only agent:desk@2"),
        ((DESK,), (), "other_version", "only agent:desk:"),
    ],
    ids=["gone", "a team now", "another version", "no version"],
)
def test_a_run_waits_for_what_is_not_hosted(
    office: Office, agents: tuple[Agent, ...], teams: tuple[Team, ...], code: str, detail: str
) -> None:
    office.start(version="1")
    found = office.look(*agents, Agent(id="a"), teams=teams)

    assert remarks(found) == [(Outcome.WAITS, code, "")]
    assert detail in details(found)[0]


def test_a_run_of_a_team_that_is_an_agent_now_waits(office: Office) -> None:
    office.start("team:desk")

    assert "and an agent has that id" in details(office.look(DESK))[0]


def test_a_kind_that_this_release_does_not_know_is_not_hosted(office: Office) -> None:
    office.start("workflow:publish")

    assert remarks(office.look(DESK)) == [(Outcome.WAITS, "not_hosted", "")]


def test_a_run_that_is_to_be_cancelled_is_cancelled(office: Office) -> None:
    run_id = office.start()
    office.append(run_id, answered(call_of()))
    assert (
        office.run(CancelRun(owner_of(run_id), run_id, run_id, 5, "{}", ("RunCancelled", "{}")))
        == "RUNNING"
    )

    assert remarks(office.look()) == [(Outcome.GOES_ON, "cancel_asked", "")]


# --- definitions ---------------------------------------------------------------------------------

CHANGED: Final = Agent(id="desk", tools=TOOLS, instructions="Be kind.", max_rounds=3)


def test_a_changed_definition_is_said_and_its_instructions_stay(office: Office) -> None:
    definition = definition_of(DESK)
    released, paused = office.start(), office.start()
    office.append(released, start_step(definition), answered(call_of()), definitions=(definition,))
    office.release(released)
    office.append(paused, start_step(definition))
    office.pause(paused, waiting(call_of("delete", standing=Standing.CONFIRM)))
    found = office.look(CHANGED)

    assert found.all_go_on
    assert [(f.code, f.runs, f.component) for f in found.findings] == [
        ("definition", 2, "agent:desk")
    ]
    (detail,) = details(found)
    assert detail == (
        "its definition has changed (instructions, max_rounds): it goes on with the instructions"
        " that it began with, and with the tools, the model and the limits of now"
    )


def test_a_definition_that_is_not_stored_has_changed_somehow(office: Office) -> None:
    definition = definition_of(DESK)
    office.append(office.start(), start_step(definition))

    assert "has changed (it is not known in what)" in details(office.look(CHANGED))[0]


def test_definitions_are_read_once_and_few_are_kept(office: Office) -> None:
    definition = definition_of(DESK)
    for number in range(250):
        each = evolve(definition, digest=f"d{number // 2:04}", document="{}")
        office.append(office.start(), start_step(each), definitions=(each,))
    office.append(office.start(), start_step(definition))
    begun_at = len(office.client.simulation.effects)

    assert office.look(DESK).outcomes[Outcome.GOES_ON] == 251
    effects = office.client.simulation.effects[begun_at:]
    units = [getattr(performed.effect, "unit", None) for performed in effects]
    assert sum(isinstance(unit, FetchDefinitions) for unit in units) == 126


# --- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tools", "expected", "words"),
    [
        ((delete, shell), "tool_gone", "book cannot be called any more, and the model is told so"),
        ((book_by_name,), "arguments", "room must be a string"),
    ],
)
def test_a_call_that_cannot_be_made_any_more_is_lost(
    office: Office, tools: tuple[Any, ...], expected: str, words: str
) -> None:
    run_id = office.start()
    office.append(run_id, answered(call_of("shell", '{"command": "ls"}'), call_of()))
    office.release(run_id)
    found = office.look(evolve(DESK, tools=tools))

    assert remarks(found)[0] == (Outcome.LOSES_CALL, expected, "1.2")
    assert words in details(found)[0]
    assert not found.all_go_on


@pytest.mark.parametrize(
    ("tools", "code"), [((book,), "tool_gone"), ((delete_by_name,), "arguments")]
)
def test_an_approval_of_what_cannot_be_called_any_more_is_named(
    office: Office, tools: tuple[Any, ...], code: str
) -> None:
    run_id = office.start()
    office.append(run_id, answered(call_of("delete", standing=Standing.CONFIRM)))
    office.pause(run_id, waiting(call_of("delete", standing=Standing.CONFIRM)))
    found = office.look(evolve(DESK, tools=tools))

    assert remarks(found) == [(Outcome.LOSES_CALL, code, "1.1")]
    assert details(found)[0].startswith("it waits for a person to confirm delete, and that cannot")


def test_what_the_client_executes_needs_no_tool(office: Office) -> None:
    office.pause(office.start(), waiting(call_of("shell", "{}", standing=Standing.EXTERNAL)))

    assert office.look(evolve(DESK, tools=())).findings == ()


def test_steps_that_are_there_before_a_run_begins_count_as_well(office: Office) -> None:
    run_id, step = office.start(), answered(call_of())
    connection = office.client.simulation._world.databases.connection("main")
    columns = "run_id, place, kind, asked, attempt, begun_us, ended_us, outcome"
    row = (run_id, step.place, step.kind, step.asked, 0, 1, 2, step.outcome)
    connection.execute(f"insert into steps ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?)", row)

    assert office.look(DESK).findings == ()
    assert remarks(office.look(evolve(DESK, tools=[]))) == [
        (Outcome.LOSES_CALL, "tool_gone", "1.1")
    ]


def test_what_is_done_needs_no_tool_either(office: Office) -> None:
    run_id = office.start()
    done = evolve(begun(), ended_us=4, outcome='{"f":1,"result":"booked"}')
    office.append(run_id, answered(call_of()), done)
    office.release(run_id)

    assert office.look(evolve(DESK, tools=())).findings == ()


@pytest.mark.parametrize(
    ("agent", "outcome", "words"),
    [
        (DESK, Outcome.GOES_ON, "a person is asked"),
        (evolve(DESK, in_doubt="tell"), Outcome.GOES_ON, "the model is told so"),
        (evolve(DESK, in_doubt="end"), Outcome.ENDS, "the run ends (interrupted)"),
        (evolve(DESK, tools=[book_again]), None, ""),
    ],
    ids=["ask", "tell", "end", "safe"],
)
@pytest.mark.parametrize("executed", [False, True], ids=["released", "executed"])
def test_a_call_in_doubt_is_named_with_what_becomes_of_it(
    office: Office, agent: Agent, outcome: Outcome | None, words: str, executed: bool
) -> None:
    run_id = office.start()
    office.append(run_id, answered(call_of()), begun())
    if not executed:
        office.release(run_id)
    found = office.look(agent)
    before = "book is being carried out: where" if executed else "whether book was carried out is"

    if outcome is None:
        assert found.findings == ()
        return
    expected = Outcome.GOES_ON if executed else outcome
    assert remarks(found) == [(expected, "in_doubt", "1.1")]
    assert details(found)[0].startswith(before)
    assert details(found)[0].endswith(words)


def test_the_channel_of_a_run_says_what_becomes_of_a_call_in_doubt(office: Office) -> None:
    run_id = office.start(in_doubt="tell")
    office.append(run_id, answered(call_of()), begun())
    office.release(run_id)

    assert details(office.look(DESK))[0].endswith("the model is told so")


def test_a_person_who_is_asked_about_a_doubt_is_waited_for(office: Office) -> None:
    office.pause(office.start(), waiting(call_of(standing=Standing.CONFIRM, in_doubt=True)))
    found = office.look(DESK)

    assert remarks(found) == [(Outcome.GOES_ON, "in_doubt", "1.1")]
    assert details(found)[0].endswith("it waits for a person to say so")


def test_a_run_that_a_person_has_continued_stands_as_it_was_answered(office: Office) -> None:
    state = waiting(call_of("delete", standing=Standing.DUE, confirmed=True))
    continued = office.start(turn=dump(state), answered={"events": 1, "attempt": 1, "tools": []})
    office.append(continued, start_step(definition_of(DESK)))

    assert office.look(DESK).findings == ()
    assert (
        remarks(office.look(evolve(DESK, tools=[book])))
        == [
            (Outcome.GOES_ON, "definition", ""),
            (Outcome.LOSES_CALL, "tool_gone", "1.1"),
        ][::-1]
    )


# --- functions, and agents that were one ---------------------------------------------------------

FUNCTION: Final = Agent(id="desk", run=answer)


@pytest.mark.parametrize(
    ("agent", "outcome", "words"),
    [
        (FUNCTION, Outcome.GOES_ON, "a person is asked"),
        (evolve(FUNCTION, in_doubt="tell"), Outcome.ENDS, "the run ends (interrupted)"),
        (evolve(FUNCTION, again="safe"), None, ""),
    ],
    ids=["ask", "tell", "safe"],
)
def test_a_function_that_was_called_is_in_doubt_as_a_whole(
    office: Office, agent: Agent, outcome: Outcome | None, words: str
) -> None:
    run_id = office.start()
    office.append(run_id)
    office.release(run_id)
    found = office.look(agent)

    if outcome is None:
        assert found.findings == ()
    else:
        assert remarks(found) == [(outcome, "in_doubt", "")]
        assert details(found)[0] == f"whether its function was carried out is not known: {words}"


def test_a_function_that_has_not_begun_is_in_no_doubt(office: Office) -> None:
    office.start()

    assert office.look(FUNCTION).findings == ()


@pytest.mark.parametrize("standing", [Standing.CONFIRM, Standing.DONE])
def test_a_function_that_a_person_was_asked_about_waits_or_goes_on(
    office: Office, standing: Standing
) -> None:
    state = evolve(waiting(call_of("answer", "{}", standing=standing)), rounds=0)
    office.pause(office.start(), state)

    waits = [(Outcome.GOES_ON, "in_doubt", "")]
    assert remarks(office.look(FUNCTION)) == (waits if standing is Standing.CONFIRM else [])


@pytest.mark.parametrize(
    ("standing", "agent", "found"),
    [
        (Standing.CONFIRM, FUNCTION, [(Outcome.GOES_ON, "in_doubt", "0.1")]),
        (Standing.DUE, FUNCTION, [(Outcome.GOES_ON, "in_doubt", "0.1")]),
        (Standing.DUE, evolve(FUNCTION, in_doubt="end"), [(Outcome.ENDS, "in_doubt", "0.1")]),
        (Standing.DONE, FUNCTION, []),
    ],
    ids=["asked about", "ask", "end", "done"],
)
def test_a_call_that_a_function_makes_may_be_in_doubt(
    office: Office, standing: Standing, agent: Agent, found: list[Any]
) -> None:
    doubt = standing is not Standing.DONE
    own = evolve(call_of("pay", standing=standing), place="0.1", in_doubt=doubt)
    office.pause(office.start(), evolve(waiting(own), rounds=0))

    assert remarks(office.look(agent)) == found


def test_an_agent_that_became_a_function_begins_again(office: Office) -> None:
    office.pause(office.start(), waiting(call_of("delete", standing=Standing.CONFIRM)))

    assert remarks(office.look(FUNCTION)) == [(Outcome.LOSES_CALL, "begins_again", "")]


# --- teams ---------------------------------------------------------------------------------------

TEAM: Final = Team(id="team", members=("desk",), tools=(delete,))
OTHER: Final = Team(id="team", members=("other",), tools=(delete,))
TASK: Final = json.dumps({"member_id": "desk", "task": "x"})


def delegated(office: Office, *steps: Step) -> None:
    """Store a run of a team whose member has begun, and has the steps below."""
    run_id, definition = office.start("team:team"), definition_of(DESK)
    member = start_step(definition, "1.1/0", kind="agent", name="Desk")
    given = Step("1.1", StepKind.MEMBER, "desk", 3)
    office.append(run_id, answered(call_of(DELEGATE, TASK)), given, member, *steps)
    office.release(run_id)


def test_the_calls_of_a_member_are_looked_at_as_well(office: Office) -> None:
    delegated(office, evolve(answered(call_of()), place="1.1/1"), begun("1.1/1.1"))

    assert office.look(evolve(DESK, tools=[book_again, delete, shell]), teams=(TEAM,)).all_go_on
    found = office.look(evolve(DESK, tools=[]), teams=(TEAM,))
    assert remarks(found) == [
        (Outcome.LOSES_CALL, "tool_gone", "1.1/1.1"),
        (Outcome.GOES_ON, "definition", "1.1/"),
        (Outcome.GOES_ON, "in_doubt", "1.1/1.1"),
    ]
    assert {finding.component for finding in found.findings} == {"agent:desk"}


@pytest.mark.parametrize("begins", [False, True], ids=["given", "at work"])
def test_a_member_that_the_team_no_longer_has_is_named(office: Office, begins: bool) -> None:
    if begins:
        delegated(office)
    else:
        run_id = office.start("team:team")
        office.append(run_id, answered(call_of(DELEGATE, TASK)))
        office.release(run_id)
    found = office.look(Agent(id="other"), teams=(OTHER,))

    assert remarks(found) == [(Outcome.LOSES_CALL, "member_gone", "1.1")]
    assert details(found) == ["the team no longer has the member desk, and its leader is told so"]


def test_the_own_tools_of_a_leader_are_looked_at(office: Office) -> None:
    run_id = office.start("team:team")
    office.append(run_id, answered(call_of("delete"), call_of()))
    office.release(run_id)

    assert remarks(office.look(DESK, teams=(TEAM,))) == [(Outcome.LOSES_CALL, "tool_gone", "1.2")]


def test_a_team_that_asked_all_members_at_once_goes_on_from_these_calls(office: Office) -> None:
    team = Team(id="team", members=("desk", "other"), mode="collaborate")
    definition = host(DESK, Agent(id="other"), teams=(team,)).registry.teams["team"].definition
    calls = [["c1", DELEGATE, TASK, "due"], ["c2", DELEGATE, TASK.replace("desk", "other"), "due"]]
    run_id = office.start("team:team")
    office.append(run_id, start_step(definition, calls=calls), definitions=(definition,))
    office.release(run_id)

    found = office.look(DESK, teams=(evolve(team, members=("desk",)),))
    assert remarks(found) == [
        (Outcome.LOSES_CALL, "member_gone", "0.2"),
        (Outcome.GOES_ON, "definition", ""),
    ]


# --- what cannot be read -------------------------------------------------------------------------


def test_a_run_of_a_release_that_kept_no_steps_ends_with_its_node(office: Office) -> None:
    run_id = office.start()
    office.append(run_id)
    connection = office.client.simulation._world.databases.connection("main")
    connection.execute("update runs set recorded = 0")

    assert remarks(office.look(DESK)) == [(Outcome.ENDS, "no_steps", "")]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ('{"f":3}', "format"),
        ("z:bm8=", "unreadable"),
        ("{", "unreadable"),
        ('{"f":1,"usage":[],"calls":[["c"]]}', "unreadable"),
    ],
)
def test_steps_that_cannot_be_read_end_the_run(office: Office, outcome: str, code: str) -> None:
    run_id = office.start()
    office.append(run_id, Step("1", StepKind.MODEL, "m", 1, 2, outcome))
    office.release(run_id)

    assert remarks(office.look(DESK)) == [(Outcome.ENDS, code, "")]


def test_a_paused_run_that_another_release_stored_waits(office: Office) -> None:
    office.pause(office.start(), waiting(), turn={"format": 9})
    office.pause(office.start(), None)
    found = office.look(DESK)

    assert {finding.outcome for finding in found.findings} == {Outcome.WAITS}
    assert details(found) == [
        f"another release stored how far it came, which this one cannot read (format {one})"
        for one in (9, None)
    ]


def test_a_name_that_a_model_made_long_is_cut(office: Office) -> None:
    office.pause(office.start(), waiting(call_of("x" * 9_999, standing=Standing.CONFIRM)))

    assert len(details(office.look(DESK))[0]) < 400
