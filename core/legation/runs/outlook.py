"""The outlook of open runs: which of them go on under a configuration, and which do not, and why.

Each run is taken as far as whoever goes on with it would take it before anything is done: its steps
are folded, and its open calls are held against the tools and members of now.  What becomes of them
is decided by the turn itself; here it is only said beforehand.  Nothing is written.

Of all runs the numbers are known, and of each finding some runs, so that the outlook of a million
runs is no longer than that of a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

from attrs import field

from ..effects import Program, Transact
from ..hosted.registry import Component, Registry
from ..migrations.ledger import Fit, ReadLedger, assess_state
from ..store.failures import StoreFailure
from ..store.open_runs import OpenPlace, OpenRun, ReadOpenRuns
from ..store.run_states import RunState
from ..store.steps import FetchDefinitions
from ..store.units import Unit
from ..values import define, frozen
from .agent_turn import resolve_doubt
from .fold import RunRecord, fold
from .prompt import question
from .run_record import Read, is_answered, read_record
from .step_outcomes import UnknownOutcome
from .team_turn import DELEGATE, find_member_id
from .turn import add_first_calls, begins_again, make_tool_set
from .turn_state import CallState, ModelTurn, Standing, TurnState, UnknownFormat, load

__all__ = [
    "MOST_EXAMPLES",
    "MOST_FINDINGS",
    "Example",
    "Finding",
    "Outcome",
    "Outlook",
    "Remark",
    "judge_run",
    "read_outlook",
]

MOST_FINDINGS: Final = 200
"""How many findings are told of one database; of others their number."""

MOST_EXAMPLES: Final = 10
"""How many runs are named with a finding."""

_MOST_DEFINITIONS: Final = 100
"""How many definitions are kept while runs are looked at."""


class Outcome(Enum):
    """The outcome for an open run, the better before the worse."""

    GOES_ON = "goes_on"
    LOSES_CALL = "loses_call"
    WAITS = "waits"
    ENDS = "ends"


@frozen
class Remark:
    """One thing that is said of a run: what becomes of it, why, and at which place of it.

    `code` names the reason for programs, `detail` is a sentence for people.  The place is that of a
    call, as among the steps; it is empty where the whole run is meant.
    """

    outcome: Outcome
    code: str
    detail: str
    component: str
    place: str = ""


@frozen
class Example:
    """A run for which a finding holds."""

    run_id: str
    session_id: str
    status: str
    place: str


@define
class Finding:
    """A remark that holds for `runs` runs; the first of them are named."""

    outcome: Outcome
    code: str
    detail: str
    component: str
    runs: int = 0
    examples: list[Example] = field(factory=list[Example])


@define
class Outlook:
    """The outlook of the open runs of one database.

    Attributes:
        unserved: Why the database would not be served, and its runs were not read.
        outcomes: How many runs have which outcome; of several for one run the worst counts.
        findings: Those of which something is to be said, the worst first.
        more: How often something else is said, of which nothing is kept.
    """

    database: str
    unserved: str | None = None
    outcomes: dict[Outcome, int] = field(factory=lambda: dict.fromkeys(Outcome, 0))
    more: int = 0
    _found: dict[tuple[Any, ...], Finding] = field(
        factory=dict[tuple[Any, ...], Finding], init=False
    )

    @property
    def runs(self) -> int:
        """The number of open runs."""
        return sum(self.outcomes.values())

    @property
    def all_go_on(self) -> bool:
        """Whether every run goes on, and loses nothing."""
        return self.unserved is None and self.runs == self.outcomes[Outcome.GOES_ON]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, the worst first, and of the same outcome those of the most runs."""
        order = {outcome: number for number, outcome in enumerate(Outcome)}

        def weigh(finding: Finding) -> tuple[Any, ...]:
            rest = (finding.component, finding.code, finding.detail)
            return (-order[finding.outcome], -finding.runs, *rest)

        return tuple(sorted(self._found.values(), key=weigh))

    def add(self, run: OpenRun, remarks: tuple[Remark, ...]) -> None:
        """Count a run, and what is said of it."""
        outcomes = [remark.outcome for remark in remarks]
        worst = next((one for one in reversed(Outcome) if one in outcomes), Outcome.GOES_ON)
        self.outcomes[worst] += 1
        seen = set[tuple[Any, ...]]()
        for remark in remarks:
            key = (remark.outcome, remark.code, remark.detail, remark.component)
            if key not in self._found and len(self._found) >= MOST_FINDINGS:
                self.more += 1
            elif key not in seen:
                self._count(self._found.setdefault(key, Finding(*key)), run, remark.place)
            seen.add(key)

    def _count(self, finding: Finding, run: OpenRun, place: str) -> None:
        finding.runs += 1
        if len(finding.examples) < MOST_EXAMPLES:
            row = run.row
            finding.examples.append(Example(row.run_id, row.session_id, row.status, place))


def read_outlook(registry: Registry, database: str) -> Program[Outlook]:
    """Return the outlook of the open runs of `database` where `registry` hosts what it hosts.

    Raises:
        StoreFailure: The database does not answer, or is that of something else.
    """
    outlook = Outlook(database)
    reading = yield from Transact(database, ReadLedger())
    catalogue = registry.catalogue
    stands = assess_state(reading.state, catalogue, reading.dialect, catalogue.latest)
    if not stands.may_serve:
        outlook.unserved = None if stands.fit is Fit.EMPTY else stands.detail
        return outlook
    reader = _Reader(database)
    place: OpenPlace | None = OpenPlace()
    while place is not None:
        page = yield from Transact(database, ReadOpenRuns(place))
        for run in page.runs:
            outlook.add(run, (yield from judge_run(registry, run, reader)))
        place = page.following
    return outlook


@define
class _Reader:
    """Reads what a run needs beside its row and its steps; definitions are read once."""

    database: str
    _known: dict[str, str] = field(factory=dict[str, str], init=False)

    def __call__(self, unit: Unit[Any]) -> Program[Any]:
        if not isinstance(unit, FetchDefinitions):
            return (yield from Transact(self.database, unit))
        if any(digest not in self._known for digest in unit.digests):
            if len(self._known) >= _MOST_DEFINITIONS:
                self._known.clear()
            self._known.update((yield from Transact(self.database, unit)))
        return {one: self._known[one] for one in unit.digests if one in self._known}


def judge_run(registry: Registry, run: OpenRun, read: Read) -> Program[tuple[Remark, ...]]:
    """Return what is to be said of one run; nothing where it goes on as if nothing had changed.

    `read` runs a unit on the database of the run.

    Raises:
        StoreFailure: A unit failed.
    """
    row = run.row
    if row.cancel_us is not None:
        return (_remark(run, Outcome.GOES_ON, "cancel_asked", _CANCEL),)
    if run.asked_of not in registry.hosted:
        return (_find_unhosted(registry, run),)
    if row.status == RunState.RUNNING and not (row.untouched or row.is_recorded):
        return (_remark(run, Outcome.ENDS, "no_steps", _NO_STEPS),)
    try:
        judge = yield from _fold_run(run, read)
        component = registry.components(row.kind)[row.component_id]
        return tuple(judge.find_changes(component))
    except StoreFailure:
        raise
    except (UnknownFormat, UnknownOutcome) as error:
        return (_remark(run, _end_of(run), "format", _FORMAT.format(error)),)
    except Exception as error:  # noqa: BLE001 (what the executor cannot read ends the run alike)
        detail = _UNREADABLE.format(type(error).__name__)
        return (_remark(run, _end_of(run), "unreadable", detail),)


_CANCEL: Final = "somebody asked to cancel it, and it is cancelled"
_NO_STEPS: Final = "a release began it that keeps no steps: it ends with its node (interrupted)"
_FORMAT: Final = "another release stored how far it came, which this one cannot read ({})"
_UNREADABLE: Final = "how far it came cannot be read ({})"
_NOT_HOSTED: Final = "{} is not hosted: it waits until a node hosts that, or it is cancelled"
_OTHER_KIND: Final = "{} is not hosted, and {} has that id: it waits, or it is cancelled"
_OTHER_VERSION: Final = "{} is not hosted, only {}: it waits for a node of its version"


def _remark(run: OpenRun, outcome: Outcome, code: str, detail: str) -> Remark:
    return Remark(outcome, code, detail, run.asked_of)


def _end_of(run: OpenRun) -> Outcome:
    """Return what becomes of a run that cannot be read: a paused one cannot be continued."""
    return Outcome.WAITS if run.row.status == RunState.PAUSED else Outcome.ENDS


def _find_unhosted(registry: Registry, run: OpenRun) -> Remark:
    """Return why a run is not claimed by any node of this configuration."""
    row, asked_of = run.row, run.asked_of
    others = ("agent", "an agent"), ("team", "a team")
    code, detail = "not_hosted", _NOT_HOSTED.format(asked_of)
    if f"{row.kind}:{row.component_id}" in registry.hosted:
        hosted = registry.components(row.kind)[row.component_id].hosted[-1]
        code, detail = "other_version", _OTHER_VERSION.format(asked_of, hosted)
    elif other := [a for kind, a in others if row.component_id in registry.components(kind)]:
        code, detail = "other_kind", _OTHER_KIND.format(asked_of, other[0])
    return _remark(run, Outcome.WAITS, code, detail)


def _fold_run(run: OpenRun, read: Read) -> Program[_Judge]:
    """Return how far a run had come, as whoever goes on with it would take it up."""
    row = run.row
    claim, asked = row.claim, json.loads(row.input)
    in_doubt = asked.get("in_doubt", "ask")
    paused = row.status == RunState.PAUSED
    rests = paused or (row.events > 0 and (yield from is_answered(read, claim, asked)))
    # Of one that goes on from its pause the steps say with which definitions it began, and no more.
    begun = {name: asked[name] for name in asked if not rests or name != "turn"}
    record = yield from read_record(read, claim, begun, run.steps)
    if paused or "turn" in asked:
        state = load(asked.get("turn", {}))
    else:
        said = ModelTurn(question(asked), row.created_us)
        state = add_first_calls(TurnState(said=(said,)), record.start() or {}, row.created_us)
    if rests:
        return _Judge(record, state, in_doubt)
    executed = row.status == RunState.RUNNING
    return _Judge(record, fold(record, "", state), in_doubt, row.events > 0, executed)


# --- The calls of a turn -------------------------------------------------------------------------

_DEFINITION: Final = (
    "its definition has changed ({}): it goes on with the instructions that it began with, and with"
    " the tools, the model and the limits of now"
)
_AGAIN: Final = "it was a function, or is one now: it begins again, and its calls are forgotten"
_APPROVAL: Final = "it waits for a person to confirm {}, and that cannot be called any more: {}"
_CALL: Final = "{} cannot be called any more, and the model is told so: {}"
_MEMBER: Final = "the team no longer has the member {}, and its leader is told so"
_IN_DOUBT: Final = "whether {} was carried out is not known: {}"
_IN_HAND: Final = "{} is being carried out: where its node goes away before it is done, {}"
_DOUBTS: Final = {
    "ask": "a person is asked",
    "tell": "the model is told so",
    "end": "the run ends (interrupted)",
    "wait": "it waits for a person to say so",
}
_FUNCTION: Final = "its function"
_SHOWN: Final = 100  # characters of a name that a model gave


@frozen
class _Judge:
    """Holds a run against what is hosted.

    Attributes:
        resumed: It goes on from its steps, since its node went away, or may do so.
        executed: It is executed as far as is known, and its node may go on to the end of a call.
    """

    record: RunRecord
    state: TurnState
    in_doubt: str
    resumed: bool = False
    executed: bool = False

    def find_changes(self, component: Component) -> Iterator[Remark]:
        """Yield what is to be said of the run of `component`."""
        yield from self._look_at_turn(component, self.state, "")

    def _look_at_turn(
        self, component: Component, state: TurnState, prefix: str
    ) -> Iterator[Remark]:
        of = f"{component.kind}:{component.id}"
        if (changed := self._compare(component, prefix)) is not None:
            yield Remark(Outcome.GOES_ON, "definition", _DEFINITION.format(changed), of, prefix)
        if begins_again(component, state):
            yield Remark(Outcome.LOSES_CALL, "begins_again", _AGAIN, of, prefix)
        elif component.run is not None:
            yield from self._look_at_function(component, state, prefix)
        else:
            for index in range(state.answered, len(state.calls)):
                place = prefix + state.place(index)
                yield from self._look_at_call(component, state, state.calls[index], place)

    def _compare(self, component: Component, prefix: str) -> str | None:
        """Return what of a definition has changed since the run began; None where nothing has."""
        digest = (self.record.start(prefix) or {}).get("definition", component.definition.digest)
        if digest == component.definition.digest:
            return None
        now: Mapping[str, Any] = json.loads(component.definition.document)
        then: Mapping[str, Any] = json.loads(self.record.definitions.get(digest, "{}"))
        changed = [name for name, value in now.items() if name in then and then[name] != value]
        return ", ".join(changed) or "it is not known in what"

    def _look_at_function(
        self, component: Component, state: TurnState, prefix: str
    ) -> Iterator[Remark]:
        """Yield what becomes of an agent that is a function, which is one call."""
        of, call = f"{component.kind}:{component.id}", state.whole_call
        if call is not None and call.waits:
            detail = _IN_DOUBT.format(_FUNCTION, _DOUBTS["wait"])
            yield Remark(Outcome.GOES_ON, "in_doubt", detail, of, prefix)
        elif self.resumed and (call is None or call.standing is not Standing.DONE):
            way = resolve_doubt(component.again, component.in_doubt or self.in_doubt)
            yield from self._doubt("end" if way == "tell" else way, _FUNCTION, of, prefix)
        for own in state.calls:
            if own.place and own.in_doubt:
                yield from self._look_at_own(component, own, f"{prefix}{own.place}")

    def _look_at_own(self, component: Component, call: CallState, place: str) -> Iterator[Remark]:
        """Yield what becomes of a call in doubt that a function makes, and may make again."""
        of, name = f"{component.kind}:{component.id}", call.call.name[:_SHOWN]
        way = resolve_doubt("never", component.in_doubt or self.in_doubt)
        if call.waits:
            detail = _IN_DOUBT.format(name, _DOUBTS["wait"])
            yield Remark(Outcome.GOES_ON, "in_doubt", detail, of, place)
        else:
            yield from self._doubt(way, name, of, place)

    def _look_at_call(
        self, component: Component, state: TurnState, call: CallState, place: str
    ) -> Iterator[Remark]:
        """Yield what is to be said of a call; nothing where it is done, or can be made."""
        if call.standing is Standing.DONE:
            return
        of, name = f"{component.kind}:{component.id}", call.call.name[:_SHOWN]
        tools = make_tool_set(component, state)
        obstacle = None if call.standing is Standing.EXTERNAL else tools.find_obstacle(call)
        if obstacle is not None:
            yield _describe_obstacle(component, call, obstacle, place)
        elif call.member is not None and (member := component.member(call.member.component_id)):
            yield from self._look_at_turn(member, call.member.state, f"{place}/")
        if not call.in_doubt:
            return
        if call.waits:
            yield Remark(
                Outcome.GOES_ON, "in_doubt", _IN_DOUBT.format(name, _DOUBTS["wait"]), of, place
            )
        else:
            way = resolve_doubt(tools.again(call), component.in_doubt or self.in_doubt)
            yield from self._doubt(way, name, of, place)

    def _doubt(self, way: str, name: str, of: str, place: str) -> Iterator[Remark]:
        """Yield what becomes of a call in doubt; nothing where it is made again."""
        if way == "again":
            return
        ends = way == "end" and not self.executed
        outcome = Outcome.ENDS if ends else Outcome.GOES_ON
        sentence = _IN_HAND if self.executed else _IN_DOUBT
        yield Remark(outcome, "in_doubt", sentence.format(name, _DOUBTS[way]), of, place)


def _describe_obstacle(component: Component, call: CallState, obstacle: str, place: str) -> Remark:
    """Return what becomes of a call that cannot be carried out any more."""
    of, name = f"{component.kind}:{component.id}", call.call.name[:_SHOWN]
    if name == DELEGATE and component.kind == "team":
        detail = _MEMBER.format(find_member_id(call))
        return Remark(Outcome.LOSES_CALL, "member_gone", detail, of, place)
    code = "tool_gone" if component.tool(call.call.name) is None else "arguments"
    sentence = _APPROVAL if call.standing is Standing.CONFIRM else _CALL
    return Remark(Outcome.LOSES_CALL, code, sentence.format(name, obstacle), of, place)
