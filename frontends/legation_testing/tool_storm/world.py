"""The world that an author's test is given: a platform that dies as planned, and lives again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeVar, Unpack
from urllib.parse import quote

from legation import Platform
from legation.hosted.registry import Component
from legation.models.conversation import ModelProtocol

from ..client import Answers, Client
from ..exchange import Refused
from ..faults import Crashed
from ..lives import Lives
from ..misuse import Misuse
from ..points import Point
from ..run_results import RunFields, RunResult
from ..substitutes import Substitution
from .calls import Calls, Within
from .ground import Ground
from .plans import CALM, Plan
from .witness import Witness

__all__ = ["StormWorld"]

R = TypeVar("R")

_STEP_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 900.0
_MOST_ANSWERS: Final = 5  # of a person to one run, who is not heard where the process died
_CONFLICT: Final = 409
_ENDED: Final = frozenset({"COMPLETED", "PAUSED", "CANCELLED", "ERROR"})


class _NodeLives(Lives[Client]):
    """The lives of a client, whose process may also stall while another one takes over."""

    def __init__(
        self, client: Client, points: Iterable[Point], note: Callable[[Crashed], None]
    ) -> None:
        """Plan the first point; `note` is called with each death, before anything goes on."""
        super().__init__("storm", client, points)
        self._note = note

    def revive(self, died: Crashed, then: int | Point | None) -> None:
        """Start the process again; or another, which takes over until the first one goes on."""
        self._note(died)
        if not died.point.stall_seconds:
            super().revive(died, then)
            return
        client = self.subject
        stalled = next(n for n in client.simulation.nodes if n.name == died.at.node)
        if then is not None:
            client.crash_at(then)
        try:
            if stalled is client.node:
                self.subject = client.peer()
                self.subject.open()
            self.subject.advance(died.point.stall_seconds)
        finally:
            client.simulation.go_on(stalled)


class StormWorld:
    """A platform that dies and lives again as planned, for one trial of a test.

    Attributes:
        crashed: A line for each crash and stall so far, in the author's terms.
        within: Where in functions of the author's those were.
        not_begun: The number of runs of which nothing was stored.
        place: The place of the last of them, as `1.2.1`: the run of the test, the answer of the
            model in it, and the call since.
    """

    def __init__(self, ground: Ground, plan: Plan) -> None:
        self._ground = ground
        self._overrides: list[Substitution] = []
        self._sessions = count(1)
        self._runs: dict[str, RunResult] = {}
        self.not_begun = 0
        self.crashed: list[str] = []
        self.within: list[Within] = []
        self.place = ""
        self._calls = Calls(())
        self._witness = Witness(plan, self._calls)
        client = ground.begin(self._make, plan.order)
        self._calls.effects = client.effects
        self._begun = len(client.effects)
        client.simulation.counts_awaits = plan == CALM
        self._lives = _NodeLives(client, plan.points, self._note)

    # What a test does

    @property
    def client(self) -> Client:
        """The client of the process that lives, for requests of other kinds.

        A crash comes out of it as `Crashed`; `survive` is around those that go on then.
        """
        return self._lives.subject

    def survive(self, act: Callable[[Client], R]) -> R | None:
        """Return what `act` returns; None where the process died, and lives again."""
        return self._lives.live(act)

    def run(self, agent_id: str, message: str, **fields: Unpack[RunFields]) -> RunResult | None:
        """Run an agent, and wait until the run has ended, across crashes and restarts.

        Args:
            agent_id: Which.
            message: To the agent.
            fields: See `RunFields`; a session of its own where none is named.

        Returns:
            The run: completed, failed, or paused for a person.  None where the process died before
            anything was stored, so that the caller got no answer and nothing is there.
        """
        return self._begin("agents", agent_id, fields, lambda c, f: c.run(agent_id, message, **f))

    def run_team(self, team_id: str, message: str, **fields: Unpack[RunFields]) -> RunResult | None:
        """Run a team; else as `run`."""
        return self._begin("teams", team_id, fields, lambda c, f: c.run_team(team_id, message, **f))

    def stream(self, agent_id: str, message: str, **fields: Unpack[RunFields]) -> RunResult | None:
        """Run an agent for a client that follows its events; else as `run`."""

        def follow(client: Client, fields: RunFields) -> None:
            client.stream(agent_id, message, **fields)

        return self._begin("agents", agent_id, fields, follow)

    def go_on(self, run: RunResult, **answer: Unpack[Answers]) -> RunResult:
        """Answer all that a paused run waits for, and wait until it ends, or pauses again.

        A person whose answer was lost with the process answers again.

        Args:
            run: As `run` returned it.
            answer: To each call, see `Answers`.
        """
        waits = _requirements(run)
        for _ in range(_MOST_ANSWERS):
            deaths = len(self._lives.crashes)
            result = self.survive(lambda client: _answer(client, run, answer))
            if result is None or len(self._lives.crashes) > deaths:
                result = self._await_end(f"{_path(run)}/{run.run_id}")
            self._runs[run.run_id] = result
            if result.status != "PAUSED" or _requirements(result) != waits:
                return result
        raise AssertionError(f"the run did not go on after {_MOST_ANSWERS} answers")

    @contextmanager
    def override(
        self, *, model: ModelProtocol, agent: str | None = None, team: str | None = None
    ) -> Generator[None]:
        """Let `model` answer in the place of the platform's own, in every process; see `Client`.

        A `ScriptedModel` needs `by_prompt=True`, else it goes a step further where it is asked the
        same again after a crash.
        """
        substitution = Substitution(model, agent, team)
        substitution.check(self.client.platform)
        self._overrides.append(substitution)
        self._choose(self.client.platform)
        try:
            yield
        finally:
            self._overrides.remove(substitution)
            self._choose(self.client.platform)

    # What a test asserts

    @property
    def runs(self) -> tuple[RunResult, ...]:
        """The runs of the test, as they ended or paused last."""
        return tuple(self._runs.values())

    @property
    def completed(self) -> bool:
        """Whether each run was begun, and ended with an answer."""
        return not self.not_begun and all(run.status == "COMPLETED" for run in self.runs)

    def carried_out(self, tool: str) -> int:
        """Return how often `tool` was called, in every process there was.

        A call in which a process died counts, wherever that was.

        Raises:
            Misuse: The platform has no such tool.
        """
        self._check(tool, "carried_out")
        return self._calls.count()[tool]

    def wanted(self, tool: str) -> int:
        """Return how often answers of models asked for `tool`; for the same again, once more.

        Raises:
            Misuse: The platform has no such tool.
        """
        self._check(tool, "wanted")
        return self._witness.wanted[tool]

    def in_doubt(self, tool: str) -> int:
        """Return how many calls of `tool` a person is asked about, as their outcome is not known.

        Raises:
            Misuse: The platform has no such tool.
        """
        self._check(tool, "in_doubt")
        function = tool in self._calls.functions
        return sum(
            tool == ((needed.member_agent_id or run.agent_id) if function else call.tool_name)
            for run in self.runs
            for needed in run.requirements
            if (call := needed.tool_execution).in_doubt
        )

    # What a storm asks

    @property
    def again(self) -> Mapping[str, str]:
        """The `again` of each function of the author's, by its name."""
        return dict(sorted(self._calls.again.items()))

    @property
    def witness(self) -> Witness:
        """Notes of what models were asked."""
        return self._witness

    @property
    def length(self) -> int:
        """The number of effects of the test so far."""
        return len(self.client.effects) - self._begun

    def find_points(self) -> tuple[Point, ...]:
        """Return the points of the test so far, in order."""
        return tuple(self._calls.find_points(self._begun, self.client.simulation.awaited))

    def check(self) -> None:
        """Raise what the platform's own code raised."""
        self.client.check()

    def close(self) -> None:
        """Stop every process."""
        self.client.simulation.close()

    def _check(self, tool: str, taker: str) -> None:
        if tool not in self._calls.again:
            known = ", ".join(self.again) or "none"
            raise Misuse(f"{taker}: there is no tool {tool!r}; there are: {known}")

    def _make(self) -> Platform:
        platform = self._ground.make()
        self._calls.learn(platform)
        self._choose(platform)
        return platform

    def _choose(self, platform: object) -> None:
        """Let models be watched, and replaced as the test says."""

        def choose(component: Component) -> ModelProtocol:
            latest = (one.model for one in reversed(self._overrides) if one.is_for(component))
            return self._witness.watch(next(latest, component.model))

        if isinstance(platform, Platform):
            platform.replace_models(choose)

    def _note(self, crash: Crashed) -> None:
        if not crash.point.within:
            self._calls.lost.add(crash.number - 1)
        within = self._calls.find_within(crash)
        self.within += [] if within is None else [within]
        how = "stalled" if crash.point.stall_seconds else "killed"
        self.crashed.append(f"{how} at effect {crash.number}, {self._calls.describe(crash)}")
        self.place = self._witness.find_place()

    def _begin(
        self,
        kind: str,
        hosted: str,
        fields: RunFields,
        act: Callable[[Client, RunFields], RunResult | None],
    ) -> RunResult | None:
        given: RunFields = {**fields}
        session = given.setdefault("session_id", f"storm-{next(self._sessions)}")
        path = f"/{kind}/{quote(hosted, safe='')}/runs"
        target = f"{path}?session_id={quote(session, safe='')}"
        self._witness.begin_run()
        deaths = len(self._lives.crashes)
        result = self.survive(lambda client: act(client, given))
        if result is None or len(self._lives.crashes) > deaths:
            begun = [run for run in self._stored(target) if run["run_id"] not in self._runs]
            result = self._await_end(f"{path}/{begun[-1]['run_id']}") if begun else None
        if result is None:
            self.not_begun += 1
        else:
            self._runs[result.run_id] = result
        return result

    def _stored(self, target: str) -> list[dict[str, Any]]:
        """Return the runs of a session; the process may die meanwhile, and is asked again."""
        while True:
            response = self.survive(lambda client: client.get(target))
            if response is not None:
                return [] if response.status == 404 else response.expect_success().json()

    def _await_end(self, target: str) -> RunResult:
        waited = 0.0
        while waited < _PATIENCE_SECONDS:
            self.survive(lambda client: client.get(f"{target}/events"))
            response = self.survive(lambda client: client.get(target))
            if response is not None:
                run = response.expect_success().json()
                if run["status"] in _ENDED:
                    return RunResult(run)
            self.survive(lambda client: client.advance(_STEP_SECONDS))
            waited += _STEP_SECONDS
        raise AssertionError(f"the run did not end within {_PATIENCE_SECONDS:.0f} s of the crash")


def _answer(client: Client, run: RunResult, answer: Answers) -> RunResult | None:
    """Return the run as it goes on; None where an answer that seemed lost was heard after all."""
    try:
        return client.go_on(run, **answer)
    except Refused as refused:
        if refused.response.status != _CONFLICT:
            raise
    return None


def _requirements(run: RunResult) -> list[tuple[str, bool]]:
    return [(needed.id, needed.tool_execution.in_doubt) for needed in run.requirements]


def _path(run: RunResult) -> str:
    kind, hosted = ("agents", run.agent_id) if run.team_id is None else ("teams", run.team_id)
    return f"/{kind}/{quote(hosted or '', safe='')}/runs"
