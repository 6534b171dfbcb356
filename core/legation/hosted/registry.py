"""The registry of a platform: its agents, teams, databases and channels, checked once.

`build` turns a configuration into a `Registry` or raises `ConfigurationError` with every fault.
Descriptions are rendered here once: a list of agents is a join of ready fragments.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from attrs import asdict, evolve, field

from ..access.claims import claim_faults
from ..access.decide import owner_of
from ..access.scopes import well_formed_id
from ..channels import Codec
from ..channels.commands import Command
from ..channels.deliveries import APOLOGY
from ..config import (
    Agent,
    AnyChannel,
    AnyModel,
    ConfigurationError,
    Console,
    Database,
    Mode,
    ModelLike,
    OnBusy,
    PlatformConfig,
    Reader,
    Team,
)
from ..http.bodies.media_types import MEDIA_TYPES, PDF, WORD, is_text_type
from ..http.messages import compact_json
from ..http.refusals import Fault
from ..migrations.catalogue import CATALOGUE, Catalogue
from ..models.conversation import ModelProtocol
from ..models.echo import Echo
from ..models.prices import PriceList
from ..shares.limits import LimitOverrides, find_faults
from ..shares.table import LimitTable, make_table
from ..store.periods import Periods
from ..store.steps import Definition
from ..tools import Tool
from ..values import frozen
from .abilities import NOT_IMPORTED, Abilities, abilities, is_duration
from .audit_settings import AuditSettings, read_audit
from .channel_kinds import find_kinds, read_settings
from .channel_options import ChannelOptions, read_options
from .fallback import find_order
from .guards import HostedGuard, host_guards
from .notify import NOTIFY, NotifyRule, make_notices, notify_faults, read_secrets
from .prices import find_unpriced, read_prices
from .providers import model_of
from .retention import make_periods
from .secret_sources import SecretFiles, SecretReader, SecretSources
from .sign_in import sign_in_faults

__all__ = ["MAX_DEPTH", "Component", "HostedChannel", "Registry", "build"]

DEFAULT_DATABASE: Final = Database("main", "sqlite:///legation.db")
_ON_BUSY: Final = get_args(OnBusy)
_MODES: Final = get_args(Mode)
MAX_DEPTH: Final = 4
"""How many teams may be in one another: each level multiplies what one run can cost."""
# Segments that no path has.
_DOTS: Final = (".", "..")
# How a command of a channel is written, and those that have a meaning already.
_WORD: Final = re.compile(r"/[a-z0-9_]{1,32}", re.ASCII)
_COMMANDS: Final = ("/new", *(f"/{command.value}" for command in Command))
_LISTED: Final = ", ".join(_COMMANDS)
# Ids whose path would be another route's.
_RESERVED: Final = {
    "databases": ("all",),
    "channels": (
        *("agents", "teams", "sessions", "databases", "channels", "console", "docs", "me", "users"),
    ),
}


@frozen(eq=False, kw_only=True)
class Component(Abilities):
    """An agent or a team, ready to run.

    `fragment` is its description as clients see it; `admin_fragment` adds what only an
    administrator may read (instructions).  `readers` read the text out of files, by their type.
    `guards` stand in the order of their moments; `reads_scopes`: one of them, or of a member's, is
    given the scopes of the caller.
    `summarizer` is the model that summarizes its sessions, if they are.  `history_is_chosen`: what
    a run is told depends on more than the number of runs before it, so that its start is stored.
    """

    kind: str
    id: str
    name: str
    description: str | None
    role: str | None = None
    instructions: str | None
    model: ModelProtocol
    fallback: tuple[ModelProtocol, ...] = ()
    database: str
    version: str | None = None
    mode: str | None = None
    members: tuple[Component, ...] = ()
    readers: Mapping[str, Reader] = field(factory=dict[str, Reader])
    guards: tuple[HostedGuard, ...] = ()
    reads_scopes: bool = field(init=False)
    summarizer: ModelProtocol | None = None
    fragment: bytes = field(init=False, repr=False)
    admin_fragment: bytes = field(init=False, repr=False)
    definition: Definition = field(init=False, repr=False)
    history_is_chosen: bool = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        for name, admin in (("fragment", False), ("admin_fragment", True)):
            object.__setattr__(self, name, compact_json(self.describe(admin=admin)).encode())
        object.__setattr__(self, "definition", self._define())
        readers = [one.reads_scopes for one in self.guards]
        readers += [member.reads_scopes for member in self.members]
        object.__setattr__(self, "reads_scopes", any(readers))
        chosen = self.history_tokens is not None or self.summaries is not None
        object.__setattr__(self, "history_is_chosen", chosen)

    def _define(self) -> Definition:
        """Return what a run begins with, as the model is told it, by the digest of that."""
        document = {
            "name": self.name,
            "instructions": self.instructions,
            "model": {"id": self.model.id, "provider": self.model.provider},
            "tools": [asdict(tool.spec) for tool in self.tools],
            "output_schema": self.output_schema,
            "history_runs": self.history_runs,
            "max_rounds": self.max_rounds,
            "max_tokens": self.max_tokens,
            "mode": self.mode,
            "members": [member.id for member in self.members],
        }
        if self.fallback:
            document["fallback"] = [
                {"id": model.id, "provider": model.provider} for model in self.fallback
            ]
        if self.history_tokens is not None:
            document["history_tokens"] = self.history_tokens
        if self.summaries is not None:
            document["summaries"] = asdict(self.summaries)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=dict)
        digest = hashlib.sha256(f"{self.kind}:{self.id}:{text}".encode()).hexdigest()
        return Definition(digest, self.kind, self.id, text)

    @property
    def model_names(self) -> tuple[str, str, str]:
        """The name, id and provider of the model, as clients are shown them.

        A function that answers instead is shown in its place.
        """
        if self.run is None:
            return self.model.name, self.model.id, self.model.provider
        function = self.run.function
        return "Function", getattr(function, "__name__", type(function).__name__), "Function"

    @property
    def hosted(self) -> tuple[str, ...]:
        """The targets of runs that this one answers, as `ASKED_OF` of the store."""
        whole = f"{self.kind}:{self.id}"
        return (whole,) if self.version is None else (whole, f"{whole}@{self.version}")

    @property
    def takes_files(self) -> bool:
        """Whether a function of it is given the files of a run, of any type."""
        return self.run is not None or any(tool.context is not None for tool in self.tools)

    @property
    def depth(self) -> int:
        """The number of teams that are in one another here: none in an agent."""
        below = max((member.depth for member in self.members), default=0)
        return below + 1 if self.kind == "team" else 0

    def guards_at(self, moment: str) -> tuple[HostedGuard, ...]:
        """Return the guards that act at `moment`, in their order."""
        return tuple(guard for guard in self.guards if guard.at == moment)

    def tool(self, name: str) -> Tool | None:
        """Return the tool of this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def member(self, member_id: str) -> Component | None:
        """Return the member of this id."""
        return next((member for member in self.members if member.id == member_id), None)

    def describe(self, *, admin: bool) -> dict[str, Any]:
        """Return the description clients parse; absent fields are left out."""
        name, model_id, provider = self.model_names
        model = {"name": name, "model": model_id, "provider": provider}
        description: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "db_id": self.database,
            "description": self.description,
            "role": self.role,
            "mode": self.mode,
            "model": model,
            "tools": {"tools": [_describe_tool(tool) for tool in self.tools]}
            if self.tools
            else None,
            "sessions": {"session_table": "sessions"},
        }
        if admin and self.instructions is not None:
            description["system_message"] = {"instructions": self.instructions}
        if self.kind == "team":
            description["members"] = [member.describe(admin=admin) for member in self.members]
        description["is_component"] = False
        return {key: value for key, value in description.items() if value is not None}


def _describe_tool(tool: Tool) -> dict[str, Any]:
    description: dict[str, Any] = {
        "name": tool.spec.name,
        "description": tool.spec.description,
        "parameters": tool.spec.parameters,
    }
    if tool.requires_confirmation:
        description["requires_confirmation"] = True
    if tool.external_execution:
        description["external_execution"] = True
    return description


@frozen(eq=False)
class HostedChannel:
    """A channel and the component that answers; a person reads `apology` when that fails.

    `others` answer instead in a conversation that begins with a command, as `/legal`.
    """

    codec: Codec
    component: Component
    apology: str
    options: ChannelOptions = ChannelOptions()
    others: Mapping[str, Component] = field(factory=dict[str, Component])

    @property
    def id(self) -> str:
        """The name in its path."""
        return self.codec.name

    @property
    def webhook(self) -> str:
        """The path at which deliveries come in."""
        return f"/{self.id}/webhook"


@frozen(eq=False)
class Registry:
    """Everything that can be named in a request.

    Attributes:
        catalogue: The schema of its databases.
        limits: Those of callers.
        notices: Of which runs somebody hears, by database.
        periods: For how long data is kept, by database.
        audit: The keys of the audit trail, and what its heads are signed with.
        prices: The prices of models; None where none are asked for.
        missing: The secrets that are not there, where they were not needed: with any, the platform
            is not served.
        weak: The secrets that can be guessed.
        secret_files: The files of secrets, by their paths.
        hosted: What its components host, sorted: of that its nodes claim the runs that wait.
    """

    config: PlatformConfig
    agents: Mapping[str, Component]
    teams: Mapping[str, Component]
    databases: Mapping[str, Database]
    channels: Mapping[str, HostedChannel]
    catalogue: Catalogue = CATALOGUE
    limits: LimitTable = field(factory=LimitTable, repr=False)
    notices: Mapping[str, NotifyRule] = field(factory=dict[str, NotifyRule])
    periods: Mapping[str, Periods] = field(factory=dict[str, Periods])
    audit: AuditSettings = AuditSettings()
    prices: PriceList | None = None
    missing: tuple[Fault, ...] = ()
    weak: tuple[Fault, ...] = ()
    secret_files: tuple[str, ...] = ()
    hosted: tuple[str, ...] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        components = (*self.agents.values(), *self.teams.values())
        hosted = sorted({key for component in components for key in component.hosted})
        object.__setattr__(self, "hosted", tuple(hosted))

    @property
    def default_database(self) -> str:
        """The id of the database that is meant when none is named."""
        return next(iter(self.databases))

    def find_unpriced(self) -> tuple[Fault, ...]:
        """Return a sentence for each model without a price, where prices are asked for."""
        return find_unpriced(self.prices, _with_paths(self.agents, self.teams))

    def components(self, kind: str) -> Mapping[str, Component]:
        """Return the agents or the teams."""
        return self.agents if kind == "agent" else self.teams

    def with_models(self, choose: Callable[[Component], ModelProtocol]) -> Registry:
        """Return the same with the model that `choose` returns for each agent and team.

        It is asked for each model of a fallback, a guard or summaries as well, with that as the
        model of the component.
        """

        def change(component: Component) -> Component:
            def choose_for(one: ModelProtocol) -> ModelProtocol:
                return choose(evolve(component, model=one))

            return evolve(
                component,
                model=choose(component),
                fallback=tuple(map(choose_for, component.fallback)),
                guards=tuple(guard.with_model(choose_for) for guard in component.guards),
                summarizer=component.summarizer and choose_for(component.summarizer),
                members=tuple(map(change, component.members)),
            )

        return evolve(
            self,
            agents={name: change(agent) for name, agent in self.agents.items()},
            teams={name: change(team) for name, team in self.teams.items()},
            channels={
                name: evolve(
                    channel,
                    component=change(channel.component),
                    others={word: change(one) for word, one in channel.others.items()},
                )
                for name, channel in self.channels.items()
            },
        )


def _with_paths(
    agents: Mapping[str, Component], teams: Mapping[str, Component]
) -> Iterator[tuple[str, Component]]:
    """Yield agents and teams with their paths in the configuration."""
    for kind, components in (("agents", agents), ("teams", teams)):
        for index, component in enumerate(components.values()):
            yield f"{kind}[{index}]", component


def build(
    config: PlatformConfig,
    environ: Mapping[str, str],
    kinds: Iterable[type[Codec]] = (),
    files: SecretFiles | None = None,
    *,
    needs_secrets: bool = True,
) -> Registry:
    """Check `config` as a whole and make it ready.

    Args:
        config: The configuration.
        environ: Holds the secrets that it names.
        kinds: The kinds of channels of the application, beside ours.
        files: The files that hold secrets, by their paths.
        needs_secrets: Whether a secret that is not there is a fault.

    Raises:
        ConfigurationError: With every fault.
    """
    sources = SecretSources(environ, files or {}, needs_secrets)
    builder = _Builder(config, sources, tuple(kinds))
    registry = builder.registry()
    if builder.faults:
        raise ConfigurationError(tuple(builder.faults))
    return registry


def _place(url: str) -> tuple[object, ...] | None:
    """Return what is equal for the URLs of one database; None for one in memory.

    Links between files are the host's matter.
    """
    try:
        parts = urlsplit(url)
        path = unquote(parts.path)
        if parts.scheme == "sqlite":
            kept = _normal(path.removeprefix("/"))
            return None if kept in ("", ":memory:") else ("sqlite", kept)
        server = (parts.username, parts.hostname, parts.port or 5432)
    except ValueError:
        return (url,)
    return (*server, path, *sorted(parse_qsl(parts.query)))


def _normal(path: str) -> str:
    """Return `path` without `.`, `..` and doubled slashes, as far as its text goes."""
    kept: list[str] = []
    for part in path.split("/"):
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part not in ("", "."):
            kept.append(part)
    return "/" * path.startswith("/") + "/".join(kept)


class _Builder:
    """The builder of a registry; it collects faults, so that all are reported at once."""

    def __init__(
        self, config: PlatformConfig, sources: SecretSources, kinds: Iterable[type[Codec]]
    ) -> None:
        self.config = config
        self.faults: list[Fault] = []
        self.secrets = SecretReader(sources, self._fault)
        # Without a channel no kind is imported.
        self.kinds = find_kinds(kinds, self._fault) if kinds or config.channels else {}
        given = config.databases or (DEFAULT_DATABASE,)
        self.databases = {database.id: self._find_url(database) for database in given}
        self.readers = {
            name: reader
            for name, reader in config.readers.items()
            if self._is_reader(name, reader) and not isinstance(reader, str)
        }
        self.models: dict[str, ModelProtocol] = {"echo": Echo()}
        for model in config.models:
            self.models[model.name] = model_of(model, self.secrets)

    def registry(self) -> Registry:
        config = self.config
        if not well_formed_id(config.id):
            self._fault("platform.id", f"{config.id!r} is not an id: [A-Za-z0-9._~-]{{1,128}}")
        if config.on_busy not in _ON_BUSY:
            self._fault("platform.on_busy", f"{config.on_busy!r} is none of: {', '.join(_ON_BUSY)}")
        if not is_duration(config.run_timeout_seconds):
            self._fault("platform.run_timeout_seconds", "must be a finite number of more than 0")
        if not (is_duration(config.lease_seconds) and 5 <= config.lease_seconds <= 3600):
            self._fault("platform.lease_seconds", "must be a number from 5 to 3600")
        if not (is_duration(config.unhosted_minutes) and 1 <= config.unhosted_minutes <= 10_080):
            self._fault("platform.unhosted_minutes", "must be a number from 1 to 10080")
        self.faults += claim_faults(config.authorization_config)
        if isinstance(config.console, Console):
            self.faults += sign_in_faults(config.console)
        self._check_models()
        self._check_ids("databases", [database.id for database in config.databases])
        self._check_ids("agents", [agent.id for agent in config.agents])
        self._check_ids("teams", [team.id for team in config.teams])
        agents = {a.id: self._agent(a, f"agents[{i}]") for i, a in enumerate(config.agents)}
        teams = self._teams(agents)
        self._check_ids("channels", [channel.id for channel in config.channels])
        channels = [self._channel(channel, agents, teams) for channel in config.channels]
        by_id = {channel.id: channel for channel in channels if channel is not None}
        self._check_places()
        self._check_senders(by_id)
        limits = self._limits()
        rules = self._notices((*agents.values(), *teams.values()), by_id)
        periods = make_periods(config.retention, self.databases.values(), self._fault)
        audit = read_audit(config.audit, self.secrets, self._fault)
        prices = read_prices(config, _with_paths(agents, teams), self._fault)
        return Registry(
            config,
            agents,
            teams,
            self.databases,
            by_id,
            limits=limits,
            notices=rules,
            periods=periods,
            audit=audit,
            prices=prices,
            missing=tuple(self.secrets.missing),
            weak=tuple(self.secrets.weak),
            secret_files=tuple(dict.fromkeys(self.secrets.paths)),
        )

    def _find_url(self, database: Database) -> Database:
        """Return `database` with its URL; with an empty one where that is not there."""
        path, named = f"databases.{database.id}.url", (database.url_env, database.url_file)
        if database.url:
            for key, name in zip(("url_env", "url_file"), named, strict=True):
                if name is not None:
                    self._fault(
                        f"databases.{database.id}.{key}", "is not allowed together with url"
                    )
            return database
        if named == (None, None):
            self._fault(path, "missing: the URL, or url_env or url_file")
        missing = len(self.secrets.missing)
        url = self.secrets.read(path, *named, least=0)
        return evolve(database, url=url if url and len(self.secrets.missing) == missing else "")

    def _notices(
        self, components: tuple[Component, ...], channels: dict[str, HostedChannel]
    ) -> dict[str, NotifyRule]:
        """Add a channel of notices for each database with runs; return who hears of which runs."""
        notify, faults = self.config.notify, len(self.faults)
        if notify is None:
            return {}
        names = (f"{one.kind}:{one.id}" for one in components)
        self.faults += notify_faults(notify, names, channels)
        read = read_secrets(notify, self.secrets)
        rules: dict[str, NotifyRule] = {}
        if len(self.faults) > faults:
            return rules
        on, named = frozenset(notify.on), frozenset(notify.components)
        for number, database in enumerate(self.databases):
            first = next((one for one in components if one.database == database), None)
            channel = f"{NOTIFY}.{database}" if number else NOTIFY
            if (
                first is None
                or (codec := make_notices(notify, channel, read, self.secrets)) is None
            ):
                continue
            channels[channel] = HostedChannel(codec, first, APOLOGY)
            rules[database] = NotifyRule(channel, on, named)
        return rules

    def _limits(self) -> LimitTable:
        """Return the table of limits; report each that is out of range."""
        limits = self.config.limits
        tables: dict[str, object] = {"limits": limits, "limits.node": limits.node}
        tables["limits.anonymous"] = limits.anonymous
        for name, by_key in (("scopes", limits.scopes), ("subjects", limits.subjects)):
            tables |= {f'limits.{name}."{key}"': overrides for key, overrides in by_key.items()}
        own: dict[tuple[str, str], LimitOverrides | None] = {}
        for kind, components in (("agent", self.config.agents), ("team", self.config.teams)):
            for index, component in enumerate(components):
                own[kind, component.id] = component.limits
                tables[f"{kind}s[{index}].limits"] = component.limits
        for path, table in tables.items():
            for name, sentence in () if table is None else find_faults(table):
                self._fault(f"{path}.{name}", sentence)
        owners = {owner_of(name): mine for name, mine in limits.subjects.items()}
        return make_table(limits, owners, own)

    def _check_ids(self, path: str, ids: Iterable[str]) -> None:
        seen: set[str] = set()
        for index, name in enumerate(ids):
            if not well_formed_id(name):
                sentence = f"{name!r} is not an id: [A-Za-z0-9._~-]{{1,128}}"
                self._fault(f"{path}[{index}].id", sentence)
            if name in seen:
                self._fault(f"{path}[{index}].id", f"{name!r} is taken")
            seen.add(name)
            if name in _DOTS or name in _RESERVED.get(path, ()):
                self._fault(f"{path}[{index}].id", f"{name!r} has another meaning in the paths")

    def _is_reader(self, name: str, reader: object) -> bool:
        """Report a reader for files that need none, or that cannot be called."""
        path = f"readers.{name}"
        if MEDIA_TYPES.get(name) != "files" or is_text_type(name):
            self._fault(path, f"has no use: a reader is for {PDF} or {WORD}")
        elif isinstance(reader, str):
            self._fault(path, f"{reader!r} {NOT_IMPORTED}")
        elif not callable(reader):
            self._fault(path, f"expected a function, not {type(reader).__name__}")
        else:
            return True
        return False

    def _check_places(self) -> None:
        """Report two databases that are one."""
        seen: dict[object, str] = {}
        for name, database in self.databases.items():
            place = _place(database.url) if database.url else None
            if place is not None and (first := seen.setdefault(place, name)) != name:
                self._fault(f"databases.{name}.url", f"is the database of databases.{first}")

    def _check_senders(self, channels: Mapping[str, HostedChannel]) -> None:
        """Report two channels that would both answer one delivery."""
        seen: dict[object, str] = {}
        for name, hosted in channels.items():
            keys = hosted.codec.sender
            sender = (hosted.codec.kind, *(getattr(hosted.codec, key) for key in keys))
            if (first := seen.setdefault(sender, name)) != name:
                text = f"has the {' and the '.join(keys)} of channels.{first}: both would answer"
                self._fault(f"channels.{name}", text)

    def _check_models(self) -> None:
        seen: set[str] = set()
        for model in self.config.models:
            if model.name in seen:
                self._fault(f"models.{model.name}", "there are two of this name")
            seen.add(model.name)

    def _fault(self, path: str, message: str) -> None:
        self.faults.append(Fault(path, message))

    def _component(self, item: Agent | Team, path: str, **own: Any) -> Component:
        order = find_order(item, path, self._find_model, self._fault)
        summarizer = order[0] if item.summaries is not None else None
        if item.summaries is not None and item.summaries.model is not None:
            summarizer = self._find_model(item.summaries.model, f"{path}.summaries.model")
        return Component(
            id=item.id,
            name=item.name or item.id,
            description=item.description,
            instructions=item.instructions if isinstance(item.instructions, str) else None,
            model=order[0],
            fallback=order[1:],
            summarizer=summarizer,
            database=self._find_database(item.database, path),
            version=self._check_version(item.version, path),
            readers=self.readers,
            guards=self._guards(item, path),
            **asdict(abilities(item, path, self._fault), recurse=False),
            **own,
        )

    def _guards(self, item: Agent | Team, path: str) -> tuple[HostedGuard, ...]:
        if not item.guards:
            return ()
        return host_guards(item, path, self.config.agents, self._find_model, self._fault)

    def _check_version(self, version: str | None, path: str) -> str | None:
        if version is not None and not well_formed_id(version):
            sentence = f"{version!r} is not a version: [A-Za-z0-9._~-]{{1,128}}"
            self._fault(f"{path}.version", sentence)
        return version

    def _agent(self, agent: Agent, path: str) -> Component:
        return self._component(agent, path, kind="agent", role=agent.role)

    def _teams(self, agents: Mapping[str, Component]) -> dict[str, Component]:
        """Make the teams, members before those who lead them."""
        made: dict[str, Component] = {}
        waiting = list(enumerate(self.config.teams))
        known = {*agents, *(team.id for team in self.config.teams)}
        while waiting:
            ready = [
                (index, team)
                for index, team in waiting
                if all(m in made or m in agents or m not in known for m in team.members)
            ]
            if not ready:
                for index, _ in waiting:
                    self._fault(f"teams[{index}].members", "a team cannot be its own member")
                break
            for index, team in ready:
                made[team.id] = self._team(team, f"teams[{index}]", {**agents, **made})
            waiting = [pair for pair in waiting if pair not in ready]
        return {team.id: made[team.id] for team in self.config.teams if team.id in made}

    def _team(self, team: Team, path: str, known: Mapping[str, Component]) -> Component:
        for index, member in enumerate(team.members):
            if member not in known:
                self._fault(f"{path}.members[{index}]", f"no agent or team {member!r}")
            if member in team.members[:index]:
                self._fault(f"{path}.members[{index}]", f"{member!r} is a member already")
        if team.mode not in _MODES:
            self._fault(f"{path}.mode", f"{team.mode!r} is none of: {', '.join(_MODES)}")
        members = tuple(known[member] for member in team.members if member in known)
        if max((member.depth for member in members), default=0) >= MAX_DEPTH:
            self._fault(f"{path}.members", f"teams are nested deeper than {MAX_DEPTH} levels")
        return self._component(team, path, kind="team", mode=team.mode, members=members)

    def _channel(
        self,
        channel: AnyChannel,
        agents: Mapping[str, Component],
        teams: Mapping[str, Component],
    ) -> HostedChannel | None:
        path = f"channels.{channel.id}"
        component = self._find_component(channel, agents, teams, path)
        made = self.kinds.get(channel.kind)
        if made is None:
            self._fault(f"{path}.kind", f"{channel.kind!r} is none of: {', '.join(self.kinds)}")
            return None
        settings = read_settings(channel, made, self.secrets)
        options = read_options(channel, self.models, self.faults)
        if options.stream_answers and not made.edits_messages:
            said = f"a message of the kind {made.kind} cannot be edited: an answer comes as a whole"
            self._fault(f"{path}.stream_answers", said)
        others = self._find_others(channel, {**teams, **agents}, component, path)
        if component is None or settings is None:
            return None
        try:
            codec = made(**settings)
        except (TypeError, ValueError) as error:
            self._fault(path, str(error))
            return None
        return HostedChannel(codec, component, channel.apology or APOLOGY, options, others)

    def _find_others(
        self,
        channel: AnyChannel,
        known: Mapping[str, Component],
        first: Component | None,
        path: str,
    ) -> dict[str, Component]:
        """Return the agents and teams that a command calls; report those that none may call."""
        found: dict[str, Component] = {}
        for word, name in channel.agents.items():
            place, one = f'{path}.agents."{word}"', known.get(name)
            if not _WORD.fullmatch(word) or word in _COMMANDS:
                self._fault(place, f"expected /[a-z0-9_]{{1,32}}, and none of {_LISTED}")
            elif one is None:
                self._fault(place, f"no agent or team {name!r}")
            elif first is not None and one.database != first.database:
                self._fault(place, f"{name!r} is not in the database of {first.id!r}")
            else:
                found[word] = one
        return found

    def _find_component(
        self,
        channel: AnyChannel,
        agents: Mapping[str, Component],
        teams: Mapping[str, Component],
        path: str,
    ) -> Component | None:
        if (channel.agent is None) == (channel.team is None):
            self._fault(path, "name either an agent or a team that answers")
            return None
        kind, known = ("agent", agents) if channel.agent is not None else ("team", teams)
        name = channel.agent or channel.team or ""
        if name not in known:
            self._fault(f"{path}.{kind}", f"no {kind} {name!r}")
        return known.get(name)

    def _find_model(self, name: ModelLike, path: str) -> ModelProtocol | None:
        """Return the model that is named or given at `path`; None where that is a fault."""
        if not isinstance(name, str):
            return self._check_model(name, path)
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            self._fault(path, f"no model {name!r}; there are: {known}")
        return self.models.get(name)

    def _check_model(self, model: ModelProtocol, path: str) -> ModelProtocol | None:
        if isinstance(model, AnyModel):
            named = f"list it in Platform(models=[…]), write model={model.name!r}"
            self._fault(path, f"expected a name: {named}")
            return None
        wanted = ("id", "name", "provider", "respond")
        if missing := [name for name in wanted if not hasattr(model, name)]:
            sentence = f"{type(model).__name__} is no model: it has no {', '.join(missing)}"
            self._fault(path, sentence)
            return None
        return model

    def _find_database(self, name: str | None, path: str) -> str:
        if name is not None and name not in self.databases:
            known = ", ".join(sorted(self.databases))
            self._fault(f"{path}.database", f"no database {name!r}; there are: {known}")
        return name or next(iter(self.databases))
