"""The platform: configuration, what it hosts and the routes, checked once; then it answers.

`Platform.answer` is total.  Every request gets a response, every response a request id, and what
goes wrong in our own code becomes one sentence with an incident id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, cast

from attrs import evolve, field

from . import api
from .access.authenticator import (
    CANNOT_BE_READ,
    TRUSTED,
    Authenticator,
    TokenRefused,
    open_authenticator,
)
from .access.decide import Principal
from .access.posture import Door, Finding, posture
from .api import handlers
from .api.call import Known, Process
from .api.console_files import ConsoleFiles
from .api.custom_faults import route_faults
from .api.custom_routes import CustomRoute
from .api.dispatcher import Arrival, Dispatcher, report_failure
from .api.documentation import ApiDocumentation
from .api.route import Route
from .api.route_table import TABLE, RouteTable, import_handlers, make_table
from .api.settings import Settings
from .channels import Codec
from .config import (
    DEFAULT_EXCLUDED_ROUTES,
    Agent,
    AnyChannel,
    AnyModel,
    Audit,
    AuthorizationConfig,
    ConfigurationError,
    Console,
    Database,
    Notify,
    OnBusy,
    PlatformConfig,
    Prices,
    Reader,
    Retention,
    Team,
)
from .effects import NOW, Job, Log, Now, Program, RandomBytes, ThisNode, Transact
from .hosted.argument_types import type_faults
from .hosted.registry import Component, Registry, build
from .hosted.retention import find_growth
from .hosted.secret_sources import SecretFiles
from .http.cors import Cors
from .http.messages import (
    Answer,
    Request,
    Response,
    Streamed,
    Unfinished,
    with_body,
    without_body,
)
from .http.refusals import Fault, Refusal, StorageFull, TooManyRequests, respond
from .http.trust_guard import TrustGuard
from .lifecycle.audit_heads import AppendToFile, FileWriter, heads_jobs
from .lifecycle.audit_rows import MoveAuditRows
from .lifecycle.bounded_round import BoundedRound, RoundReport
from .lifecycle.incidents import WriteIncidents
from .lifecycle.refusals import WriteRefusals
from .lifecycle.retention import SweepDatabase
from .lifecycle.shutdown import Shutdown
from .messaging.identities import Identities
from .messaging.jobs import channel_jobs
from .messaging.leases import leases_of
from .migrations.catalogue import CATALOGUE, Catalogue
from .migrations.schema_guard import GuardedJob, SchemaGuard, WatchSchemas
from .models.conversation import ModelProtocol
from .observability.merging import Snapshot
from .observability.request_log import Telemetry, read_request_id
from .observability.spans import Recorder
from .observability.trace_context import TraceContext, TracedJob, with_trace
from .observability.tracing import Trace, read_trace
from .runs.executor import ExecutorContext
from .runs.keep_alive import KeepAlive
from .runs.membership import leave
from .runs.reaper import KeepRuns
from .runs.rounds import attempt
from .runs.run_watch import WatchFollowed
from .runs.unhosted import WatchUnhosted
from .shares.held import Held
from .shares.limits import PlatformLimits
from .store.audit import AppendAudit
from .store.audit_entries import AuditEntry
from .store.refusals import NOWHERE
from .values import frozen

__all__ = ["MeasuredResponder", "Platform", "Responder", "with_environment"]

# Asked for by every request, and made once.  `yield` is quicker than the `yield from` that knows
# the type of the answer, and where every request passes that counts.
_ANY_ID: Final = RandomBytes(16)
_ANSWERS: Final = (Response, Streamed)


class Responder(Protocol):
    """Whatever answers requests: a `Platform`, or a test's."""

    def answer(self, request: Request) -> Program[Answer]:
        """Return the program that answers `request`."""
        ...


class MeasuredResponder(Responder, Protocol):
    """A responder that counts its answers, and those that a server gives in its place."""

    @property
    def telemetry(self) -> Telemetry:
        """The counters of answers."""
        ...


@frozen(eq=False)
class _Extensions:
    """The additions of an application, and its secrets.

    Attributes:
        routes: Its own routes.
        channel_kinds: Its own kinds of channels.
        environ: The variables of its environment.
        secret_files: The files of secrets, as they were read.
        needs_secrets: Whether a secret that is not there is a fault.
    """

    routes: tuple[CustomRoute, ...] = ()
    channel_kinds: tuple[type[Codec], ...] = ()
    environ: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    secret_files: SecretFiles = field(factory=dict[str, Any], repr=False)
    needs_secrets: bool = True

    def build(self, config: PlatformConfig) -> Registry:
        """Return what is hosted, with the secrets."""
        return build(
            config,
            self.environ,
            self.channel_kinds,
            self.secret_files,
            needs_secrets=self.needs_secrets,
        )


@frozen(repr=False)
class _TrustContents:
    """The contents of the files that tokens are judged by."""

    jwks: bytes | None
    revocations: bytes | None


class Platform:
    """Hosts what its configuration names and answers requests about it.

    The arguments are the fields of `PlatformConfig`, by keyword, and these six:

    Args:
        environ: The variables that models and channels name for their secrets: `os.environ` where
            the platform is made in Python.  Nothing is read from the environment without it.
        secret_files: The files that they name, as `legation_host.secret_files.read_secret_files`
            reads them.
        jwks: The content of the JWKS file.
        revocations: The content of the file with revocations.
        routes: The application's own routes, beside ours.
        channel_kinds: The application's own kinds of channels, beside ours.
        catalogue: The schema that this code serves: another one stands for another release of it.

    Raises:
        ConfigurationError: With every fault of the configuration.
    """

    def __init__(  # noqa: PLR0913  each is named at the call
        self,
        *,
        id: str = "legation",  # noqa: A002  as in a configuration
        name: str = "Legation",
        description: str | None = None,
        docs: bool = True,
        console: bool | Console = True,
        authorization: bool = False,
        authorization_config: AuthorizationConfig = AuthorizationConfig(),  # noqa: B008  frozen
        cors_allowed_origins: Iterable[str] = (),
        cors_default_origin: bool = True,
        allowed_hosts: Iterable[str] = (),
        on_busy: OnBusy = "queue",
        run_timeout_seconds: float = 3600.0,
        lease_seconds: float = 30.0,
        unhosted_minutes: float = 10.0,
        limits: PlatformLimits = PlatformLimits(),  # noqa: B008  frozen
        retention: Retention = Retention(),  # noqa: B008  frozen
        notify: Notify | None = None,
        audit: Audit = Audit(),  # noqa: B008  frozen
        databases: Iterable[Database] = (),
        models: Iterable[AnyModel] = (),
        agents: Iterable[Agent] = (),
        teams: Iterable[Team] = (),
        channels: Iterable[AnyChannel] = (),
        readers: Mapping[str, Reader] | None = None,
        prices: Prices | None = None,
        environ: Mapping[str, str] | None = None,
        secret_files: SecretFiles | None = None,
        jwks: bytes | None = None,
        revocations: bytes | None = None,
        routes: Iterable[CustomRoute] = (),
        channel_kinds: Iterable[type[Codec]] = (),
        catalogue: Catalogue = CATALOGUE,
    ) -> None:
        """Check everything once."""
        config = PlatformConfig(
            id=id,
            name=name,
            description=description,
            docs=docs,
            console=console,
            authorization=authorization,
            authorization_config=authorization_config,
            cors_allowed_origins=cors_allowed_origins,
            cors_default_origin=cors_default_origin,
            allowed_hosts=allowed_hosts,
            on_busy=on_busy,
            run_timeout_seconds=run_timeout_seconds,
            lease_seconds=lease_seconds,
            unhosted_minutes=unhosted_minutes,
            limits=limits,
            retention=retention,
            notify=notify,
            audit=audit,
            databases=databases,
            models=models,
            agents=agents,
            teams=teams,
            channels=channels,
            readers=readers or {},
            prices=prices,
        )
        extensions = _Extensions(
            tuple(routes), tuple(channel_kinds), environ or {}, secret_files or {}
        )
        self._open(config, _TrustContents(jwks, revocations), catalogue, extensions)

    @classmethod
    def from_config(
        cls,
        config: PlatformConfig,
        *,
        jwks: bytes | None = None,
        revocations: bytes | None = None,
        environ: Mapping[str, str] | None = None,
        secret_files: SecretFiles | None = None,
        needs_secrets: bool = True,
        routes: Iterable[CustomRoute] = (),
        channel_kinds: Iterable[type[Codec]] = (),
    ) -> Platform:
        """Make a platform of a whole configuration.

        Where it does not need its secrets, it is made without those that are not there, and cannot
        be served: `missing` says which.
        """
        platform = cls.__new__(cls)
        extensions = _Extensions(
            tuple(routes), tuple(channel_kinds), environ or {}, secret_files or {}, needs_secrets
        )
        platform._open(config, _TrustContents(jwks, revocations), CATALOGUE, extensions)
        return platform

    def _open(
        self,
        config: PlatformConfig,
        files: _TrustContents,
        catalogue: Catalogue,
        extensions: _Extensions,
    ) -> None:
        self.config = config
        self._extensions = extensions
        registry, self._table = _check(config, extensions)
        self.registry = evolve(registry, catalogue=catalogue)
        authorization = config.authorization_config
        authenticator: Authenticator | None = None
        self.missing = registry.missing
        if config.authorization:
            authenticator, keyless = open_authenticator(
                authorization,
                config.id,
                files.jwks,
                files.revocations,
                needed=extensions.needs_secrets,
            )
            self.missing += keyless
        self._choose: Callable[[Component], ModelProtocol] | None = None
        self.context = ExecutorContext(self.registry)
        self.context.cluster.trail_keys = registry.audit.keys
        if authenticator is not None:
            self.context.cluster.trust = authenticator.fingerprint
        self._leases = leases_of(self.context)
        self._rounds: list[BoundedRound] = []
        cors = Cors.from_origins(config.cors_allowed_origins, default=config.cors_default_origin)
        guarded = not config.authorization or config.allowed_hosts
        self._guard = TrustGuard.of(config.allowed_hosts) if guarded else None
        self.schema_guard = SchemaGuard(tuple(self.registry.databases), catalogue)
        self.documentation = ApiDocumentation(self._describe)
        self._console = ConsoleFiles()
        excluded = _find_excluded(authorization, self._table)
        self.telemetry = Telemetry()
        self._recorder: Recorder | None = None
        self._open_jobs()
        self.identities = Identities.of(self.registry)
        guard = self.schema_guard
        known = Known(guard.readings, guard.conditions, self.identities.known)
        settings = Settings(config, self.registry.databases.values(), extensions.environ)
        self._settings = settings
        surface = (self.documentation, self._console, self.telemetry, known)
        self._dispatcher = Dispatcher(
            *surface,
            authenticator,
            settings,
            self.context,
            self._table,
            excluded,
            cors,
            self._guard,
            0,
        )

    def _open_jobs(self) -> None:
        """Make the jobs of refusals, incidents, retention and the audit trail."""
        first, periods = self.registry.default_database, self.registry.periods
        self._refusals = WriteRefusals(self.telemetry.refusals, first, periods[first].counters)
        book = self.context.cluster.incidents
        self._incidents = tuple(
            WriteIncidents(book, name, own.incidents) for name, own in periods.items()
        )
        swept = (name for name, own in periods.items() if own.kinds)
        self._sweeps = tuple(map(self._find_sweep, swept))
        cluster = self.context.cluster
        self._movers = tuple(MoveAuditRows(cluster, name) for name in self.registry.databases)
        self._files = FileWriter()
        self._heads = heads_jobs(self.context, self._files)

    def __repr__(self) -> str:
        """Return the id, and the ids of all that is hosted."""
        hosted = (
            f"{kind}={[*getattr(self.registry, kind)]}"
            for kind in ("agents", "teams", "channels", "databases")
        )
        return f"Platform(id={self.config.id!r}, {', '.join(hosted)})"

    # --- What a host asks for -------------------------------------------------------------------

    @property
    def databases(self) -> Mapping[str, str]:
        """The URL of each database, by its id; without those whose URL is a missing secret."""
        return {name: one.url for name, one in self.registry.databases.items() if one.url}

    @property
    def routes(self) -> tuple[Route, ...]:
        """Every route that is served, those of the application behind ours."""
        return self._table.routes

    @property
    def door(self) -> Door:
        """The way in which requests reach the platform; whoever serves it says so first."""
        return self._settings.door

    @door.setter
    def door(self, door: Door) -> None:
        self._settings.door = door
        if self._guard is not None:
            self._guard.local_only = door.local_only and not self.config.authorization

    def find_unsafe(self) -> tuple[Finding, ...]:
        """Return every unsafe setting, the gravest first; see `access.posture`."""
        return posture(self.config, self.door, self.registry.weak)

    def find_growth(self) -> tuple[Fault, ...]:
        """Return a sentence for each database in which something grows without a bound."""
        channels = self.registry.channels.values()
        return find_growth(
            self.registry.periods, (channel.component.database for channel in channels)
        )

    def find_unpriced(self) -> tuple[Fault, ...]:
        """Return a sentence for each model without a price, where prices are asked for."""
        return self.registry.find_unpriced()

    def startup(self) -> Program[None]:
        """Note when the process started, and bring databases to their schema where so configured.

        A database that cannot be migrated now is not served until it is; everything else is.

        Raises:
            ConfigurationError: The platform was made without its secrets, and some are missing.
        """
        if self.missing:
            raise ConfigurationError(self.missing)
        self._dispatcher = evolve(self._dispatcher, started_us=(yield from Now()))
        if (authenticator := self._dispatcher.authenticator) is not None:
            authenticator.begin(self._dispatcher.started_us)
        self.context.begin()
        for name, database in self.registry.databases.items():
            automatic = database.auto_migrate
            if automatic is None:
                automatic = database.url.startswith("sqlite:")
            yield from self.schema_guard.begin(name, migrate=automatic)
        for name in self.registry.databases:
            if name not in self.schema_guard.reasons:
                yield from attempt(KeepAlive(self.context, name))
                if name in self.identities.databases:
                    yield from self.identities.recall(name)

    def jobs(self) -> tuple[Job, ...]:
        """Return the programs that go on as long as the process does."""
        names = self.registry.databases
        alive = (KeepAlive(self.context, name) for name in names)
        kept = (KeepRuns(self.context, name) for name in names)
        followed = (WatchFollowed(self.context.cluster, name) for name in names)
        watched = (WatchUnhosted(self.context, name) for name in names)
        rounds: tuple[Job, ...] = (
            *alive,
            *kept,
            *followed,
            *channel_jobs(self._leases),
            *self.identities.jobs,
            *watched,
            self._refusals,
            *self._incidents,
            *self._sweeps,
            *self._movers,
            *self._heads,
        )
        nowhere = TraceContext(None, self._recorder)
        carried_on = (TracedJob(job, nowhere) for job in rounds)
        return (
            WatchSchemas(self.schema_guard),
            *(GuardedJob(self.schema_guard, job) for job in carried_on),
        )

    def round(self, limit: int = 100, seconds: float = 20.0) -> Program[RoundReport]:
        """Do all that waits and is due now, once, and return what was done: `jobs` in one piece.

        For a process that is frozen or ends between two requests, and has no jobs.  Schemas are
        looked at; replies are sent, runs that nobody executes are executed or ended, messages are
        answered and their replies sent; what is long done is deleted.  The runs that requests of
        this process began are waited for.  What the round begins it ends: when its time is over,
        it releases messages and replies, and runs in which nothing has happened yet, and breaks
        other runs off.  It may be run beside others, of this process and of other nodes.

        Args:
            limit: So many messages, runs, and replies that waited before, are taken up at most.
                The replies to these messages do not count.
            seconds: For all of it; nothing is taken up in the second half.  What is broken off
                then has two seconds more to be stored, and a unit of work its own patience.
        """
        return self._run_round(
            BoundedRound(
                self.schema_guard,
                self.context,
                self._leases,
                self._refusals,
                self._incidents,
                self._sweeps,
                self._movers,
                self.identities,
                self._recorder,
                limit,
                seconds,
                self._heads,
            )
        )

    def sweep(self, database: str) -> Program[Mapping[str, int]]:
        """Delete now what is kept for long enough in `database`; return how much went, by kind.

        What it does in many small steps, a job does once a day.  It may go on beside that: then
        what others deleted of the same sweep counts as well.

        Raises:
            StoreFailure: The database does not answer, or has a schema that is not served.
        """
        yield from self.schema_guard.begin(database, migrate=False)
        swept = yield from self.schema_guard.guard(self._find_sweep(database).sweep())
        return swept.counts

    def count_old(self, database: str) -> Program[Mapping[str, int]]:
        """Return how much `sweep` would delete now, by kind.

        Raises:
            StoreFailure: The database does not answer, or has a schema that is not served.
        """
        yield from self.schema_guard.begin(database, migrate=False)
        found = yield from self.schema_guard.guard(self._find_sweep(database).count())
        return {kind.value: count for kind, count in found.items()}

    def _find_sweep(self, database: str) -> SweepDatabase:
        periods = self.registry.periods[database]
        cluster = self.context.cluster
        return SweepDatabase(cluster, database, periods, self._prune_trail, self._count_old_entries)

    def _prune_trail(self, database: str, before_us: int, who: str) -> Program[int]:
        return handlers.audit.prune_trail(database, before_us, who, self.context.cluster.trail_keys)

    def _count_old_entries(self, database: str, before_us: int) -> Program[int]:
        return handlers.audit.count_old_entries(database, before_us)

    def import_handlers(self) -> None:
        """Import what requests would import: what is forked shares it then."""
        import_handlers(self._table)

    def _describe(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        return api.openapi.document.document(self.registry, self._table)

    def _run_round(self, one: BoundedRound) -> Program[RoundReport]:
        """Run a round; what is left of one that is closed before its end is for `shutdown`."""
        self._rounds.append(one)
        try:
            return (yield from one.program())
        finally:
            one.goes_on = False
            self._rounds = [each for each in self._rounds if each.goes_on or each.shutdown.busy]

    def end_blocked(self, label: str) -> Program[bool]:
        """End the run of `label`, for whose sake a process of this platform was killed.

        Returns:
            Whether it has ended now; not where another node has taken it up, or nobody has it.
        """
        said = json.loads(label)
        kept = KeepRuns(self.context, said["database"])
        return kept.end_blocked(said["run_id"], said["node"], said["attempt"])

    def shutdown(
        self,
        patience_seconds: float,
        grace_seconds: float = 0.0,
        is_open: Callable[[], bool] = lambda: False,
    ) -> Program[None]:
        """Claim nothing more, let go on what is under work for a while, then give back the rest.

        To be run before the process ends, while its jobs still run: then other nodes, or this
        one when it is back, go on at once and not when the leases have run out.  Done twice, it
        has nothing left to do.

        Args:
            patience_seconds: For what is under work to come to its end.
            grace_seconds: Until streams of runs that others execute are sent elsewhere.
            is_open: Whether a request may still come; then what it asks for is done, too.
        """
        rounds = self._rounds
        workers = (worker for one in rounds for worker in one.leases.values())
        contexts = tuple(one.context for one in rounds)
        shutdown = Shutdown(self.context, (*self._leases, *workers), contexts)
        end = shutdown.program(patience_seconds, grace_seconds, is_open)
        return self.schema_guard.guard(self._end(end))

    def _end(self, shutdown: Program[None]) -> Program[None]:
        yield from shutdown
        yield from self._refusals.end()
        for incidents in self._incidents:
            yield from incidents.end()
        yield from leave(self.context.cluster)
        for heads in self._heads:
            yield from heads.end()

    def measure(self, now_us: int) -> Snapshot:
        """Return what this process has counted by `now_us`, for one that is scraped for all.

        Where several processes serve, each says by `telemetry.gather` what all have counted.
        """
        dispatcher = self._dispatcher
        return handlers.metrics.measure(
            Process(self.context, dispatcher, dispatcher.started_us, now_us)
        )

    def record_spans(self) -> Recorder:
        """Record the spans of all that begins from now on; return what they are taken from.

        A host calls it before it asks for the jobs.
        """
        if self._recorder is None:
            self._recorder = Recorder()
            self.telemetry.after_all = self._recorder.record_late_answer
        return self._recorder

    def write_audit(self, entries: tuple[AuditEntry, ...]) -> Program[None]:
        """Store a batch of the audit trail."""
        node = yield from ThisNode()
        cluster, database = self.context.cluster, self.registry.default_database
        key, known = cluster.trail_keys.signing, cluster.chain_ends[database]
        append = Transact(database, AppendAudit(node, entries, key, known))
        yield from self.schema_guard.guard(iter(append))

    def load_jwks(
        self, jwks: bytes | None, now_us: int | None = None, reason: str = CANNOT_BE_READ
    ) -> tuple[Fault, ...]:
        """Take the keys of a changed JWKS file; with faults, the old ones stay for a while.

        What is no longer in the file is void at once.  While the file cannot be read, the old keys
        count for `keys_stale_seconds`.

        Args:
            jwks: The content of the file; None where it cannot be read, which is a fault.
            now_us: The time, in microseconds since the epoch; that of the next request, unless
                given.
            reason: Why it cannot be read.
        """
        authenticator = self._dispatcher.authenticator
        return authenticator.load_jwks(jwks, now_us, reason) if authenticator else ()

    def load_revocations(
        self, content: bytes | None, now_us: int | None = None, reason: str = CANNOT_BE_READ
    ) -> tuple[Fault, ...]:
        """Take the revocations of a changed file, as `load_jwks` takes keys."""
        authenticator = self._dispatcher.authenticator
        return authenticator.load_revocations(content, now_us, reason) if authenticator else ()

    def report_files(self, now_us: int) -> tuple[Log, ...]:
        """Return a line of the log for each thing that has become of keys and revocations.

        A host asks it every second, so that a file that cannot be read is void in time.
        """
        authenticator = self._dispatcher.authenticator
        return authenticator.report(now_us) if authenticator else ()

    def replace_models(self, choose: Callable[[Component], ModelProtocol]) -> None:
        """Let other models answer the runs that begin from now on.

        Args:
            choose: Returns the model of an agent or a team, given as it is configured; returning
                `component.model` restores that.
        """
        self._choose = choose
        self.context.registry = self.registry.with_models(choose)

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """The files of secrets that the configuration names."""
        return self.registry.secret_files

    def knows_secrets(self, files: SecretFiles) -> bool:
        """Return whether these are the files of secrets that are in force."""
        in_force = self._extensions.secret_files
        return all(files.get(path) == in_force.get(path) for path in self.secret_paths)

    def load_secrets(self, files: SecretFiles) -> tuple[Fault, ...]:
        """Take the secrets of changed files; with faults, the old ones stay in force.

        Channels, notifications and models have the new ones at once: for what begins from now on.
        An open database is the host's matter: it may make new connections by another URL.

        Args:
            files: What each of `secret_paths` holds.
        """
        extensions = evolve(self._extensions, secret_files=files)
        try:
            registry = evolve(extensions.build(self.config), catalogue=self.registry.catalogue)
        except ConfigurationError as error:
            return error.faults
        self._extensions, self.registry = extensions, registry
        choose = self._choose
        self.context.registry = registry if choose is None else registry.with_models(choose)
        self.context.cluster.trail_keys = registry.audit.keys
        self.identities.questions = Identities.of(registry).questions
        return ()

    def load_assets(self, assets: Mapping[str, bytes | memoryview]) -> None:
        """Take the files of the pages at `/docs` and `/redoc`, by name; until then they are 503."""
        self.documentation.bring(assets)

    def append_heads_by(self, append: AppendToFile) -> None:
        """Take the function by which heads of the audit trail are appended to a file.

        Args:
            append: Is called in a thread, with the `path` of the file and the `line`.
        """
        self._files.append = append

    def load_console(self, files: Mapping[str, bytes | memoryview]) -> None:
        """Take the files of the console, by name; until then the page says that they are not here.

        Args:
            files: As `main.js` and `parts/table.js`: one folder deep at most.
        """
        self._console.bring(files)

    def explain(self, token: bytes, method: str, target: str, now_us: int) -> dict[str, Any]:
        """Return whether the bearer of `token` may make a request, and by which scope."""
        principal: Principal | TokenRefused = TRUSTED
        if self._dispatcher.authenticator is not None:
            headers = ((b"authorization", b"Bearer " + token),)
            principal = self._dispatcher.authenticator.caller(
                Request(method, target, headers), now_us
            )
        return self._dispatcher.explain(principal, method, target)

    # --- Answering ------------------------------------------------------------------------------

    def answer(self, request: Request, caller: Principal | None = None) -> Program[Answer]:
        """Answer `request`.  Total: every request gets a response.

        Args:
            request: As a host has read it.
            caller: Who sent it, where an outer application has authenticated it.  Then scopes and
                owners count also where authorization is off, and the Authorization header is the
                outer application's: it is not looked at.  Without one, the token says who asks.
        """
        now_us: int = yield NOW
        request_id = read_request_id(request)
        if not request_id:
            drawn: bytes = yield _ANY_ID
            request_id = drawn.hex()
        # In their order: by name it would take half as long again, as a call in the dispatcher.
        arrival = Arrival(
            request, now_us, request_id, NOWHERE, "", None, None, False, caller, False, None, None
        )
        self.telemetry.active += 1
        try:
            try:
                admitted = self._dispatcher.admit(arrival)
                if self._recorder is not None or request.header(b"traceparent") is not None:
                    admitted = with_trace(admitted, (yield from self._trace_context(arrival)))
                guard = self.schema_guard  # which wraps nothing where the host asks it
                outcome = yield from (admitted if guard.at_host else guard.guard(admitted))
            except Exception as error:  # noqa: BLE001 (the boundary: a bug of ours gets an answer)
                outcome = yield from report_failure(error, arrival, self.context)
            answer = outcome if isinstance(outcome, _ANSWERS) else self._respond(outcome)
            if request.method == "HEAD":
                answer = without_body(answer)
            named = ((b"x-request-id", request_id.encode()),)
            answer = self._dispatcher.cors.add_headers(answer, request, named)
            if isinstance(answer, Streamed):
                body = self._stream_body(arrival, answer)
                next(body)
                return with_body(answer, body)
            end_us: int = yield NOW
            self.telemetry.count_answer(arrival, answer.status, end_us)
            if arrival.recorded:
                self._record(arrival, answer.status, end_us)
        except GeneratorExit:
            self._cut(arrival, None)
            raise
        finally:
            self.telemetry.active -= 1
            if arrival.reading is not None:
                arrival.reading.release()
            if arrival.place is not None:
                arrival.place.release()
        return answer

    def _respond(self, refusal: Refusal) -> Response:
        """Render a refusal; that of a share is counted."""
        if isinstance(refusal, (TooManyRequests, StorageFull)):
            self.context.shares.count_refusal(refusal.exceeded.share)
        return respond(refusal)

    def _stream_body(self, arrival: Arrival, answer: Streamed) -> Program[Unfinished | None]:
        """Run the body of `answer`; the request is over when that is.

        What it asks for first is nothing: once that was taken, its end is told where nobody goes on
        with it, too.
        """
        telemetry = self.telemetry
        telemetry.active += 1
        telemetry.streams += 1
        place, arrival.place = cast("Held", arrival.place), None  # no stream begins without one
        whole = False
        try:
            yield NOW
            end = yield from self.schema_guard.guard(answer.body)
            if end is None:
                end_us: int = yield NOW
                whole = True
                self.telemetry.count_answer(arrival, answer.status, end_us)
                if arrival.recorded:
                    self._record(arrival, answer.status, end_us)
        finally:
            telemetry.active -= 1
            telemetry.streams -= 1
            place.release()
            if not whole:
                self._cut(arrival, answer.status)
        return end

    def _cut(self, arrival: Arrival, status: int | None) -> None:
        self.telemetry.count_cut(arrival, status)
        self._record(arrival, status, None)

    def _record(self, arrival: Arrival, status: int | None, end_us: int | None) -> None:
        if arrival.recorded and arrival.trace is not None and self._recorder is not None:
            self._recorder.record_request(arrival, arrival.trace, status, end_us)

    def _trace_context(self, arrival: Arrival) -> Program[TraceContext]:
        """Return the context of a request, in the trace that its caller names.

        A new span is begun for it where spans are recorded, unless the caller has recorded none.
        """
        request, recorder = arrival.request, self._recorder
        parent = read_trace(request.values(b"traceparent"), request.values(b"tracestate"))
        arrival.trace = parent
        if recorder is None or (parent is not None and not parent.sampled):
            return TraceContext(parent, beyond=recorder)
        span_id = (yield from RandomBytes(8)).hex()
        if parent is None:
            arrival.trace = Trace((yield from RandomBytes(16)).hex(), span_id)
        else:
            arrival.parent_id = parent.span_id
            arrival.trace = evolve(parent, span_id=span_id)
        arrival.recorded = True
        return TraceContext(arrival.trace, recorder)


def _check(config: PlatformConfig, extensions: _Extensions) -> tuple[Registry, RouteTable]:
    """Return what is hosted and where it is served; the faults of both are raised at once."""
    if wrong := type_faults(config):
        raise ConfigurationError(wrong)
    routes = extensions.routes
    faults = route_faults(routes, config)
    if routes and not faults:
        faults = tuple(api.openapi.custom.description_faults(routes))
    try:
        registry = extensions.build(config)
    except ConfigurationError as error:
        raise ConfigurationError((*error.faults, *faults)) from None
    if faults:
        raise ConfigurationError(faults)
    return registry, make_table(routes) if routes else TABLE


def _find_excluded(config: AuthorizationConfig, table: RouteTable) -> frozenset[str]:
    """Return the templates of the excluded routes; one that is no route is a fault."""
    known = {route.template for route in table.routes} | set(DEFAULT_EXCLUDED_ROUTES)
    faults = tuple(
        Fault(f"authorization_config.excluded_routes[{index}]", f"{template!r} is no route")
        for index, template in enumerate(config.excluded_routes)
        if template not in known
    )
    if faults:
        raise ConfigurationError(faults)
    return frozenset(template for template in known if config.excludes(template))


def with_environment(config: PlatformConfig, environ: Mapping[str, str]) -> PlatformConfig:
    """Return `config` with the verification key and JWKS file that the environment names.

    `JWT_VERIFICATION_KEY` is added to the keys; `JWT_JWKS_FILE` counts where none is configured
    (section 5.2 of the interface).
    """
    authorization = config.authorization_config
    if key := environ.get("JWT_VERIFICATION_KEY"):
        keys = (*authorization.verification_keys, key)
        authorization = evolve(authorization, verification_keys=keys)
    if authorization.jwks_file is None and (path := environ.get("JWT_JWKS_FILE")):
        authorization = evolve(authorization, jwks_file=path)
    return evolve(config, authorization_config=authorization)
