"""A platform in this process: requests in, responses out, no socket and no event loop.

    with Client(platform) as client:
        assert client.run("concierge", "hi")["content"] == "hi"

Nothing runs but while a method is called, and the clock stands still but for waits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, cast
from urllib.parse import quote, urlencode

from legation import Platform, Principal
from legation.effects import Job, Log, Program
from legation.hosted.registry import Registry
from legation.http.messages import Answer, Request, Streamed, Unfinished
from legation.models.conversation import ModelProtocol
from legation.platform import Responder
from legation.store.audit_entries import AuditEntry

from .clock import NEW_YEAR_2026, Clock
from .content import Fields, HeaderFields, encode_content, request_headers
from .databases import MEMORY
from .exchange import ClientResponse, Exchange
from .faults import Performed, PlannedFault
from .matching import Expected
from .misuse import Misuse, check_platform
from .node import Node
from .performing import Fetcher, refuse_connections
from .points import Point
from .run_events import RunEvent, read_event
from .run_results import RunFields, RunResult
from .simulation import FaultOptions, Simulation
from .substitutes import Substitution, substitute
from .surprises import note_on, open_group
from .watchers import tell

__all__ = ["Answers", "Client", "RequestOptions"]


class RequestOptions(TypedDict, total=False):
    """The options of a request, beside its method and target.

    Attributes:
        query: Added to the target.
        headers: Beside `host`, the content's own, and the token.
        body: The content, as it is.
        json: Or a value to send as JSON.
        form: Or fields, in `application/x-www-form-urlencoded`.
        token: A bearer token instead of the client's; empty to send none.
        caller: Whom an outer application has authenticated, instead of the client's.
    """

    query: Fields | Sequence[tuple[str, str]] | None
    headers: HeaderFields
    body: bytes
    json: Any
    form: Fields | None
    token: str | None
    caller: Principal | None


class Answers(TypedDict, total=False):
    """The answer to the calls that a run waits for.

    Attributes:
        confirmed: Whether they may be made.
        confirmation_note: And why.
        result: What came of them, where the client executes them.
    """

    confirmed: bool
    confirmation_note: str
    result: Any


class Client:
    """A platform on a `Simulation`, and the client that calls it.

    Deterministic: the same seed and the same calls give the same bytes.  The clock stands still
    but for waits: a request that has to wait lets time pass until it is answered.

    Attributes:
        simulation: The world it runs in: faults, crashes, effects.
        node: The process it runs as.
        token: Sent as bearer token unless a request has its own; None sends none.
        caller: Whom an outer application has authenticated; None leaves that to the token.
    """

    def __init__(  # noqa: PLR0913  every one but the platform is named at the call
        self,
        platform: Responder | Callable[[], Responder],
        *,
        databases: Mapping[str, str] | Iterable[str] | None = None,
        folder: Path | None = None,
        start_us: int = NEW_YEAR_2026,
        seed: int = 0,
        order: int | None = None,
        fetch: Fetcher = refuse_connections,
        token: str | None = None,
        caller: Principal | None = None,
        jobs: bool = True,
        simulation: Simulation | None = None,
        raise_errors: bool = True,
    ) -> None:
        """Prepare a process; `open`, or `with`, starts it.

        Args:
            platform: What answers; or what makes it, called again at each restart, so that the
                memory of a killed platform is gone.  Where it has them too, `startup()` runs at the
                start, `jobs()` are started after it, and `databases` names its databases.
            databases: Names, or names with paths of SQLite files; those of the platform if None.
            folder: Where databases without a path are files; in memory if None.
            start_us: Where the clock starts, in microseconds since the epoch.
            seed: Of the ids and secrets that the platform draws.
            order: Of the interleaving; first in, first out if None.
            fetch: Answers what the platform fetches: models, channels.
            token: The bearer token of requests.
            caller: Who sends them, as `Platform.answer` takes it.
            jobs: Start the jobs; a process that is frozen between requests has none.
            simulation: Run in this world, as one more node, and use none of the above.
            raise_errors: Raise at the end what tools, functions and handlers raised, unplanned.

        Raises:
            Misuse: `platform` cannot answer, nor what it makes.
        """
        self._platform = platform
        self._substitutions: list[Substitution] = []
        self._raise_errors = raise_errors
        self.platform = _make(platform)
        self.token = token
        self.caller = caller
        self._has_jobs = jobs
        self._opened: Node | None = None
        self._closed = False
        self._owns = simulation is None
        self.simulation = simulation or Simulation(
            _paths(self.platform, databases, folder),
            start_us=start_us,
            seed=seed,
            order=order,
            fetch=fetch,
            write_audit=getattr(self.platform, "write_audit", None),
        )
        self.node = self.simulation.nodes[0] if self._owns else self.simulation.add_node()
        self.clock: Clock = self.simulation.clock
        self.effects: Sequence[Performed] = self.simulation.effects
        self.audit: Sequence[AuditEntry] = self.simulation.audit
        self.logs: Sequence[Log] = self.simulation.logs

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()
        if error is None:
            self.check()
        elif self._raise_errors and isinstance(error, BaseException):
            note_on(error, self.take_errors())

    def open(self) -> None:
        """Run what the platform does at its start, and start its jobs; once for each process."""
        if self._closed:
            raise Misuse("The client was closed, with its databases: make another one")
        if self._opened is self.node:
            return
        self._opened = self.node
        self.simulation.open()
        startup = getattr(self.platform, "startup", None)
        if startup is not None:
            self.simulation.run(startup(), "startup", body=None, node=self.node)
        jobs: tuple[Job, ...] = getattr(self.platform, "jobs", tuple)()
        for job in jobs if self._has_jobs else ():
            self.simulation.start_job(job, self.node)

    @property
    def remakes(self) -> bool:
        """Whether a restart makes the platform anew, so that its memory is gone."""
        return callable(self._platform)

    def close(self) -> None:
        """Stop the process: its programs are closed, and databases in memory are gone."""
        self._closed = True
        if self._owns:
            self.simulation.close()
        else:
            self.simulation.crash(self.node)

    def check(self) -> None:
        """Raise what programs raised that reached no caller yet.

        Raises:
            ExceptionGroup: With what the platform's own code raised, each with its traceback.
        """
        errors = self.take_errors() if self._raise_errors else ()
        if not errors:
            self.simulation.check()
            return
        failures = [each for each in self.simulation.take_failures() if each not in errors]
        raise open_group((*errors, *failures))

    def take_errors(self) -> tuple[Exception, ...]:
        """Return what the platform's own code raised so far, and count it as expected."""
        return self.simulation.take_errors()

    @contextmanager
    def override(
        self, *, model: ModelProtocol, agent: str | None = None, team: str | None = None
    ) -> Generator[None]:
        """Let `model` answer in the place of the platform's own, until the block is left.

        All else is as it is configured, and so are the names under which the model is shown.  A run
        keeps the model that it began with.

        Args:
            model: For instance a `ScriptedModel`.
            agent: The id of the agent that asks it; without `agent` and `team`, all ask it.
            team: Or that of the team.

        Raises:
            Misuse: There is no such agent or team, or it asks no model.
        """
        substitution = Substitution(model, agent, team)
        substitution.check(self.platform)
        self._substitutions.append(substitution)
        self._substitute()
        try:
            yield
        finally:
            self._substitutions.remove(substitution)
            self._substitute()

    def _substitute(self) -> None:
        if isinstance(self.platform, Platform):
            substitute(self.platform, self._substitutions)

    def peer(self, platform: Responder | Callable[[], Responder] | None = None) -> Client:
        """Return another process, not yet open, with the same databases and the same clock."""
        made = platform or self._platform
        return Client(
            made,
            token=self.token,
            caller=self.caller,
            jobs=self._has_jobs,
            simulation=self.simulation,
            raise_errors=self._raise_errors,
        )

    # Time and faults

    def settle(self) -> None:
        """Let jobs go on as far as they can without time passing."""
        self.simulation.settle()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, with everything that falls due meanwhile."""
        self.simulation.advance(seconds)

    def crash_at(self, point: int | Point) -> None:
        """Plan a crash, see `Simulation.crash_at`."""
        self.simulation.crash_at(point)

    def forget_crash(self) -> None:
        """Plan no crash any more."""
        self.simulation.forget_crash()

    def crash(self) -> None:
        """Kill the process now."""
        self.simulation.crash(self.node)

    def fail_at(
        self, which: Expected | int, outcome: Any, **options: Unpack[FaultOptions]
    ) -> PlannedFault:
        """Plan a failure, see `Simulation.fail_at`."""
        return self.simulation.fail_at(which, outcome, **options)

    def restart(self, crash_at: int | Point | None = None) -> Node:
        """Start again after a crash, on what was stored; `crash_at` plans the next one."""
        if self.node.alive:
            self.crash()
        self.platform = _make(self._platform)
        if self._substitutions:
            self._substitute()
        self.node = self.simulation.restart(crash_at)
        self.open()
        return self.node

    # Requests

    def begin(self, method: str, target: str, **options: Unpack[RequestOptions]) -> Exchange:
        """Send a request and return at once; nothing runs before something is waited for.

        Args:
            method: As on the wire.
            target: Origin-form, quoted already.
            options: See `RequestOptions`.

        Raises:
            Misuse: The client is not open.
        """
        self._check_open()
        content_type, content = encode_content(
            options.get("body", b""), options.get("json"), options.get("form")
        )
        if query := options.get("query"):
            target = f"{target}?{urlencode(query, doseq=True)}"
        bearer = options.get("token")
        if bearer is None:
            bearer = self.token
        fields = request_headers(options.get("headers", ()), content_type, content, bearer)
        request = Request(method, target, fields, "127.0.0.1")
        program = _exchange(self.platform, request, options.get("caller", self.caller))
        task = self.simulation.start(program, f"{method} {target}", body=content, node=self.node)
        return Exchange(self.simulation, task, method, partial(tell, self.platform, request))

    def request(
        self, method: str, target: str, **options: Unpack[RequestOptions]
    ) -> ClientResponse:
        """Send a request and return the complete response; the options are those of `begin`."""
        return self.begin(method, target, **options).response()

    def get(self, target: str, **options: Unpack[RequestOptions]) -> ClientResponse:
        """Send a GET; the options are those of `begin`."""
        return self.request("GET", target, **options)

    def post(self, target: str, **options: Unpack[RequestOptions]) -> ClientResponse:
        """Send a POST; the options are those of `begin`."""
        return self.request("POST", target, **options)

    def patch(self, target: str, **options: Unpack[RequestOptions]) -> ClientResponse:
        """Send a PATCH; the options are those of `begin`."""
        return self.request("PATCH", target, **options)

    def delete(self, target: str, **options: Unpack[RequestOptions]) -> ClientResponse:
        """Send a DELETE; the options are those of `begin`."""
        return self.request("DELETE", target, **options)

    def run(self, agent_id: str, message: str, **fields: Unpack[RunFields]) -> RunResult:
        """Run an agent to its end and return the run.

        Args:
            agent_id: Which.
            message: To the agent.
            fields: See `RunFields`.

        Raises:
            Refused: The status is not 2xx.
        """
        return self._run("agents", agent_id, message, fields)

    def stream(
        self, agent_id: str, message: str, **fields: Unpack[RunFields]
    ) -> tuple[RunEvent, ...]:
        """Run an agent to its end and return the events it sent; else as `run`."""
        return self._stream("agents", agent_id, message, fields)

    def run_team(self, team_id: str, message: str, **fields: Unpack[RunFields]) -> RunResult:
        """Run a team to its end and return the run; as `run`."""
        return self._run("teams", team_id, message, fields)

    def stream_team(
        self, team_id: str, message: str, **fields: Unpack[RunFields]
    ) -> tuple[RunEvent, ...]:
        """Run a team to its end and return the events it sent, those of its members among them."""
        return self._stream("teams", team_id, message, fields)

    def go_on(self, run: Mapping[str, Any], **answer: Unpack[Answers]) -> RunResult:
        """Answer all that a paused run waits for, and return the run as it went on.

        Args:
            run: As `run` or `run_team` returned it.
            answer: To each call, see `Answers`.

        Raises:
            Refused: The status is not 2xx.
        """
        kind = "team" if "team_id" in run else "agent"
        path = self._runs_of(f"{kind}s", run[f"{kind}_id"])
        tools = [{**needed["tool_execution"], **answer} for needed in run["requirements"]]
        form = {"tools": tools, "stream": False}
        response = self.post(f"{path}/{run['run_id']}/continue", form=form)
        return self._result(f"{kind}s", run[f"{kind}_id"], response)

    def _check_open(self) -> None:
        if self._closed:
            raise Misuse("The client is closed: send requests inside of its `with` block")
        if not self.node.alive:
            raise Misuse("The process of the client was killed: restart() starts it again")
        if self._opened is None:
            raise Misuse("The client is not open: write `with Client(…) as client:`, or open()")

    def _run(self, kind: str, hosted: str, message: str, fields: RunFields) -> RunResult:
        form = {"message": message, "stream": False, **fields}
        return self._result(kind, hosted, self.post(self._runs_of(kind, hosted), form=form))

    def _stream(
        self, kind: str, hosted: str, message: str, fields: RunFields
    ) -> tuple[RunEvent, ...]:
        form = {"message": message, "stream": True, **fields}
        response = self.post(self._runs_of(kind, hosted), form=form).expect_success()
        return tuple(map(read_event, response.events()))

    def _runs_of(self, kind: str, hosted: str) -> str:
        return f"/{kind}/{quote(hosted, safe='')}/runs"

    def _result(self, kind: str, hosted: str, response: ClientResponse) -> RunResult:
        return RunResult(response.expect_success().json(), self._reader(kind, hosted))

    def _reader(self, kind: str, hosted: str) -> Callable[[Any], Any] | None:
        """Return the function that reads answers as the class that `output_schema` is, if it is."""
        registry: Registry | None = getattr(self.platform, "registry", None)
        component = None if registry is None else registry.components(kind[:-1]).get(hosted)
        return None if component is None or component.answer is None else component.answer.read


def _make(platform: Responder | Callable[[], Responder]) -> Responder:
    made = platform() if callable(platform) else platform
    check_platform(made, "Client")
    return made


def _exchange(
    platform: Responder, request: Request, caller: Principal | None
) -> Program[Answer | Unfinished]:
    """Answer `request` and emit the body where it is streamed, as one program."""
    if caller is None:
        answer = yield from platform.answer(request)
    else:  # of which a platform alone knows
        answer = yield from cast(Platform, platform).answer(request, caller)
    if isinstance(answer, Streamed):
        return (yield from answer.body) or answer
    return answer


def _paths(
    platform: Responder, databases: Mapping[str, str] | Iterable[str] | None, folder: Path | None
) -> Mapping[str, str]:
    """Return the path of each database by its name."""
    if isinstance(databases, Mapping):
        return cast("Mapping[str, str]", databases)
    names: Iterable[str] = (
        getattr(platform, "databases", ("main",)) if databases is None else databases
    )
    return {name: MEMORY if folder is None else str(folder / f"{name}.db") for name in names}
