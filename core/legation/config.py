"""The configuration: one tree, in Python or as a mapping read from TOML.

`structure` turns a mapping into a `PlatformConfig` or raises `ConfigurationError` with every
fault at once, each with its path.  Unknown keys are faults: a misspelt option never passes as the
default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeGuard, TypeVar, cast, get_origin

import cattrs
from attrs import NOTHING, evolve, field, fields
from cattrs.errors import ForbiddenExtraKeysError

from .guards import GUARDS, GuardLike
from .http.refusals import Fault
from .kinds import (
    CHANNELS,
    MODELS,
    AnthropicModel,
    CustomChannel,
    EchoModel,
    FunctionLike,
    Identified,
    OpenAIModel,
    SessionOf,
    SlackChannel,
    StandardChannel,
    SubjectsLike,
    TelegramChannel,
    Texts,
    TextsOrNone,
    WhatsAppChannel,
    make_tuple,
    strings,
    texts_or_none,
    texts_or_text,
)
from .models.conversation import ModelProtocol
from .models.prices import ModelPrice, PriceSource
from .shares.limits import LimitOverrides, NodeLimits, PlatformLimits
from .tools import Run, Tool
from .values import frozen

__all__ = [
    "DEFAULT_EXCLUDED_ROUTES",
    "Again",
    "Agent",
    "Algorithm",
    "AnyChannel",
    "AnyModel",
    "Audit",
    "AuditKey",
    "AuthorizationConfig",
    "Channel",
    "ConfigurationError",
    "Console",
    "Database",
    "InDoubt",
    "Mode",
    "Model",
    "Notify",
    "OnBusy",
    "PlatformConfig",
    "Prices",
    "Provider",
    "Reader",
    "Retention",
    "Summaries",
    "Team",
    "structure",
]

C = TypeVar("C")

# Section 5.4 of the interface, and the console, which is a page as those of the documentation.
DEFAULT_EXCLUDED_ROUTES: Final = (
    "/",
    "/health",
    "/info",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/docs/oauth2-redirect",
    "/console",
)
# A browser asks for the parts of a page as it asks for the page: without a token.
_PAGES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "/docs/assets/{name}": ("/docs", "/redoc", "/docs/oauth2-redirect"),
    "/console/assets/{digest}/{name}": ("/console",),
    "/console/assets/{digest}/{name}/{part}": ("/console",),
}


class ConfigurationError(Exception):
    """The configuration cannot be served; `faults` lists everything that is wrong with it."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join(f"{fault.path}: {fault.message}" for fault in faults))
        self.faults = faults


Algorithm: TypeAlias = Literal[
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "HS256",
    "HS384",
    "HS512",
]
"""The algorithm of a token's signature."""

PrefixIssuers: TypeAlias = Literal["others", "all"]
"""The issuers whose users own data as `<issuer>#<user id>`: all but the first, or all."""

OnBusy: TypeAlias = Literal["queue", "reject"]
"""The fate of a run whose session has another one active: it waits, or is refused."""

Mode: TypeAlias = Literal["coordinate", "route", "collaborate"]
"""The way in which a team's leader works with its members."""

InDoubt: TypeAlias = Literal["ask", "tell", "end"]
"""The fate of a call that a crash interrupted: ask a person, tell the model, or end the run."""

Again: TypeAlias = Literal["never", "safe"]
"""Permission to call a function a second time after a crash."""

Provider: TypeAlias = Literal["echo", "openai", "anthropic"]
"""The protocol that a model is asked in."""

Instructed: TypeAlias = str | Awaitable[str | None] | None

Reader: TypeAlias = Callable[..., Any]
"""A function that returns the text of a file: it is given its bytes as `content`."""

# A string is `module:attribute`, imported by the host that reads a configuration file.
ModelLike: TypeAlias = str | ModelProtocol
ToolLike: TypeAlias = str | Tool | Callable[..., Any]
RunLike: TypeAlias = str | Callable[..., Any]
# A JSON schema; or a class, whose schema it is.
SchemaLike: TypeAlias = Mapping[str, Any] | type[Any]
# A text, or a function that is given the `Run`, or nothing, and returns one.
InstructionsLike: TypeAlias = str | Callable[[Run[Any, Any]], Instructed] | Callable[[], Instructed]


# Named one by one: a type checker takes the type of an argument from its converter.
def _models_in_order(items: Iterable[ModelLike]) -> tuple[ModelLike, ...]:
    return cast(tuple[ModelLike, ...], make_tuple(items))


def _tools(items: Iterable[Tool | Callable[..., Any]]) -> tuple[ToolLike, ...]:
    return cast(tuple[ToolLike, ...], make_tuple(items))


def _guards(items: Iterable[GuardLike]) -> tuple[GuardLike, ...]:
    return cast(tuple[GuardLike, ...], make_tuple(items))


@frozen
class AuthorizationConfig:
    """The verification of tokens (section 5.2 of the interface).

    `verification_keys` are PEM public keys, or shared secrets under an HS algorithm.
    `excluded_routes` are route templates that need no token; they replace the default list.

    A claim is named by its name as it stands, or by a JSON Pointer that begins with `/`.  Without
    `audience` that is the platform's id; without `issuer` it is not verified.  A run is given the
    claims of `dependencies_claims` and `session_state_claims`, whatever its caller sends.

    A token has to have the claims of `require`, and lives for `max_lifetime_seconds` at most; no
    token of `revocations_file` is accepted.  That file and `jwks_file` are read again as they
    change; one that cannot be read counts for `keys_stale_seconds` as it was.
    """

    verification_keys: tuple[str, ...] = field(default=(), converter=strings, repr=False)
    jwks_file: str | None = None
    revocations_file: str | None = None
    keys_stale_seconds: float = 86_400.0
    algorithm: Algorithm = "RS256"
    verify_audience: bool = False
    admin_scope: str = "platform:admin"
    excluded_routes: tuple[str, ...] = field(default=DEFAULT_EXCLUDED_ROUTES, converter=strings)
    audience: TextsOrNone = field(default=None, converter=texts_or_none)
    issuer: TextsOrNone = field(default=None, converter=texts_or_none)
    scopes_claim: Texts = field(default=("scopes",), converter=texts_or_text)
    user_id_claim: str = "sub"
    prefix_issuers: PrefixIssuers = "others"
    require: tuple[str, ...] = field(default=(), converter=strings)
    max_lifetime_seconds: float | None = None
    dependencies_claims: tuple[str, ...] = field(default=(), converter=strings)
    session_state_claims: tuple[str, ...] = field(default=(), converter=strings)

    def excludes(self, template: str) -> bool:
        """Return whether the route needs no token; what a page is made of goes with the page."""
        pages = _PAGES_OF.get(template, (template,))
        return any(page in self.excluded_routes for page in pages)


@frozen(kw_only=True)
class Prices:
    """The prices of models, by which runs show what they cost, and are counted against budgets.

    Attributes:
        source: What knows the prices of models that are not in `models`: "genai-prices" in a file,
            or `module:attribute`, a function as `PriceSource`.
        models: One's own prices, by the `id` of a model as its provider calls it, or by
            `provider:id`, which comes first.
    """

    source: PriceSource | str | None = None
    models: Mapping[str, ModelPrice] = field(factory=dict[str, ModelPrice])


@frozen(kw_only=True)
class Retention:
    """The days for which each kind of data is kept; None for no end of it, or the usual one.

    Only what is finished goes: no run that waits, is under way or paused, no message or reply that
    waits, and no session that has one.

    Attributes:
        sessions_days: Sessions with all that belongs to them, since their last activity.
        runs_days: Runs with their events, their steps and the runs of their members, since their
            end.
        events_days: The events of runs, since the end of these.
        steps_days: The steps of runs, which forks and recordings are made of, since their end.
        messages_days: Answered messages and sent replies of channels; 30 days if it is not said.
        dead_letters_days: Messages and replies that were given up, since they were stored.
        answers_days: Answers under an `Idempotency-Key`; a day if it is not said.
        incidents_days: Incidents; 30 days if it is not said.
        counters_days: Counts of refused requests, 30 days if it is not said, and those of callers
            who keep nothing.
        trail_days: The rows of the audit trail.
    """

    sessions_days: int | None = None
    runs_days: int | None = None
    events_days: int | None = None
    steps_days: int | None = None
    messages_days: int | None = None
    dead_letters_days: int | None = None
    answers_days: int | None = None
    incidents_days: int | None = None
    counters_days: int | None = None
    trail_days: int | None = None


@frozen
class Database:
    """A database by its id: `sqlite:///file.db`, `sqlite://` (in memory) or `postgresql://…`.

    `auto_migrate` brings it to the newest schema at start; unset, that is so for SQLite alone.  In
    place of its `url`, `url_env` names the environment variable that holds it, or `url_file` the
    file.  What its `retention` says counts in place of what that of the platform says.
    """

    id: str
    url: str = field(default="", repr=False)  # it may hold a password
    auto_migrate: bool | None = None
    url_env: str | None = field(default=None, kw_only=True)
    url_file: str | None = field(default=None, kw_only=True)
    retention: Retention | None = field(default=None, kw_only=True)


@frozen
class Model:
    """A model of any provider; `OpenAIModel` and the others have only the settings that they take.

    It has a name in the configuration, and `provider` says which protocol it speaks.  `id` is the
    provider's name for it.  `delay_seconds` is for the provider `echo` alone, the rest for the
    others.  `api_key_env` names the environment variable that holds the key, or `api_key_file` the
    file: it is never written here.
    """

    name: str
    provider: Provider
    id: str | None = None
    delay_seconds: float = 0.0
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: str | None = field(default=None, kw_only=True)
    timeout_seconds: float | None = None
    idle_seconds: float | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    retries: int | None = None
    accepts: TextsOrNone = field(default=None, converter=texts_or_none)


@frozen(kw_only=True)
class Summaries:
    """Summaries of long sessions, in the place of the runs that are long ago.

    When more than `after_runs` runs, or about `after_tokens` tokens, are behind the last summary of
    a session, its next run has a model summarize them, but for the newest `history_runs`.  The
    model is that of the agent, or the one that `model` names.  `max_tokens` is how long a summary
    may be.
    """

    after_runs: int = 20
    after_tokens: int = 30_000
    max_tokens: int = 1_000
    model: str | None = None


@frozen(kw_only=True)
class _Component(Identified):
    """Base of agents and teams.

    A run that was begun under a `version` is executed by nodes that host this version, and a run
    that was begun under none by each that hosts the id.

    The model reads the last `history_runs` runs of the session, of these those whose messages fit
    into `history_tokens`; with `summaries`, a summary of what was before, and the runs behind it.

    `in_doubt` says what becomes of a call that a crash interrupted, and that must not be made
    twice: a person is asked (ask), the model reads that its outcome is not known (tell), or the
    run ends (end).  Unset, a person is asked where there is one, and the model reads it elsewhere.

    The models of `fallback` are asked in their order where `model` gives no answer.
    `guards` look at what comes to the model and its tools, and at what they give, in this order.

    With `limits`, its runs are counted in an account of its own for each subject: `limits` say how
    that differs from what the subject has elsewhere.
    """

    name: str | None = None
    description: str | None = None
    model: ModelLike = "echo"
    fallback: tuple[ModelLike, ...] = field(default=(), converter=_models_in_order)
    instructions: InstructionsLike | None = None
    tools: tuple[ToolLike, ...] = field(default=(), converter=_tools)
    guards: tuple[GuardLike, ...] = field(default=(), converter=_guards)
    output_schema: SchemaLike | None = None
    history_runs: int = 3
    history_tokens: int | None = None
    summaries: Summaries | None = None
    max_rounds: int = 10
    max_tokens: int | None = None
    tool_timeout_seconds: float = 60.0
    in_doubt: InDoubt | None = None
    database: str | None = None
    version: str | None = None
    limits: LimitOverrides | None = None


@frozen(kw_only=True)
class Agent(_Component):
    """An agent: its names, its model, its instructions and its tools.

    A model is named, or is an object.  A tool is a function or a `Tool`.  An agent with `run` is
    that function: it has no model and no tools that we know of.  In a file, tools and `run` are
    named as `module:attribute`, and so is a model of one's own.  `again` says whether the function
    may be called a second time for a run that a crash interrupted: never, or safe.
    """

    role: str | None = None
    run: RunLike | None = None
    again: Again = "never"


@frozen(kw_only=True)
class Team(_Component):
    """A team: a leader with a model of its own and the ids of its members."""

    mode: Mode = "coordinate"
    members: tuple[str, ...] = field(default=(), converter=strings)


@frozen(kw_only=True)
class Channel(Identified):
    """A messaging channel of any kind; `SlackChannel` and the others have only their settings.

    It is served at `/{id}/webhook`, and one of `agent` and `team` answers it.

    Secrets are named by the environment variable that holds them (`…_env`) or by their file
    (`…_file`), never written here.  Which of the settings a channel takes depends on its kind; one
    that it does not take is a fault, as is a secret that is missing: no channel is open for want of
    a secret.  `settings` are those of a kind that is not ours.
    """

    kind: str
    agent: str | None = None
    team: str | None = None
    apology: str | None = None
    show_typing: bool = False
    stream_answers: bool = False
    approve: Texts = field(default=("nobody",), converter=texts_or_text)
    session: SessionOf = "thread and person"
    commands: bool = True
    allow: TextsOrNone = field(default=None, converter=texts_or_none)
    waiting: int = 100
    subjects: SubjectsLike = field(factory=dict[str, str])
    router: FunctionLike | None = None
    agents: Mapping[str, str] = field(factory=dict[str, str])
    transcribe: str | None = None
    gather_seconds: float = 0.0
    app_secret_env: str | None = None
    app_secret_file: str | None = None
    previous_app_secret_env: str | None = None
    previous_app_secret_file: str | None = None
    verify_token_env: str | None = None
    verify_token_file: str | None = None
    access_token_env: str | None = None
    access_token_file: str | None = None
    secret_token_env: str | None = None
    secret_token_file: str | None = None
    previous_secret_token_env: str | None = None
    previous_secret_token_file: str | None = None
    bot_token_env: str | None = None
    bot_token_file: str | None = None
    signing_secret_env: str | None = None
    signing_secret_file: str | None = None
    previous_signing_secret_env: str | None = None
    previous_signing_secret_file: str | None = None
    secret_env: str | None = None
    secret_file: str | None = None
    previous_secret_env: str | None = None
    previous_secret_file: str | None = None
    phone_number_id: str | None = None
    reply_url: str | None = None
    api_base_url: str | None = None
    mentions_only: bool | None = None
    settings: Mapping[str, Any] | None = None


AnyModel: TypeAlias = EchoModel | OpenAIModel | AnthropicModel | Model
"""A model, by the class of its provider or by that of any."""

AnyChannel: TypeAlias = (
    WhatsAppChannel | TelegramChannel | SlackChannel | StandardChannel | CustomChannel | Channel
)
"""A channel, by the class of its kind or by that of any."""


def _databases(items: Iterable[Database]) -> tuple[Database, ...]:
    return cast(tuple[Database, ...], make_tuple(items))


def _models(items: Iterable[AnyModel]) -> tuple[AnyModel, ...]:
    return cast(tuple[AnyModel, ...], make_tuple(items))


def _agents(items: Iterable[Agent]) -> tuple[Agent, ...]:
    return cast(tuple[Agent, ...], make_tuple(items))


def _teams(items: Iterable[Team]) -> tuple[Team, ...]:
    return cast(tuple[Team, ...], make_tuple(items))


def _channels(items: Iterable[AnyChannel]) -> tuple[AnyChannel, ...]:
    return cast(tuple[AnyChannel, ...], make_tuple(items))


@frozen(kw_only=True)
class Console:
    """The console's sign-in at an identity provider, by the code flow with PKCE (RFC 7636).

    Attributes:
        issuer: The provider (OpenID Connect Discovery 1.0); without one, people paste a token.
        client_id: The console's name there: a public client, whose redirect is `…/console`.
        scope: What it asks for.
        audience: The API that the token is for, where the provider wants to know it.
    """

    issuer: str | None = None
    client_id: str | None = None
    scope: str = "openid"
    audience: str | None = None


@frozen(kw_only=True)
class Notify:
    """The webhook by which somebody hears of runs that wait for a person, or have failed.

    It is signed as Standard Webhooks 1.0 asks, and sent until it is taken, as a reply of a channel
    is.

    Attributes:
        url: Where it is sent.
        secret_env: The environment variable that holds the secret: base64 of 24 to 64 bytes.
        secret_file: Or the file that holds it.
        previous_secret_env: That of the one before, while it is replaced: it signs as well.
        previous_secret_file: Or its file.
        on: Of what: `paused`, `failed`.
        components: Of the runs of which agents and teams, as `agent:clerk`; of all, unless given.
    """

    url: str
    secret_env: str | None = None
    secret_file: str | None = None
    previous_secret_env: str | None = None
    previous_secret_file: str | None = None
    on: tuple[str, ...] = field(default=("paused", "failed"), converter=strings)
    components: tuple[str, ...] = field(default=(), converter=strings)


@frozen
class AuditKey:
    """A key of the audit trail: its hashes are made with it, and nobody without it can make them.

    Attributes:
        id: Its name, which stands in the trail: each is another.
        secret_env: The environment variable that holds the secret: at least 32 bytes.
        secret_file: Or the file that holds it.
    """

    id: str
    secret_env: str | None = field(default=None, kw_only=True)
    secret_file: str | None = field(default=None, kw_only=True)


def _audit_keys(items: Iterable[AuditKey]) -> tuple[AuditKey, ...]:
    return cast(tuple[AuditKey, ...], make_tuple(items))


@frozen(kw_only=True)
class Audit:
    """The keys of the audit trail, and the places to which its heads go by themselves.

    Attributes:
        keys: The first one signs, all of them verify.
        heads_log: Whether heads are written to the log.
        heads_file: The file that heads are appended to.
        heads_url: The webhook that heads are sent to.
        heads_secret_env: The environment variable that holds the secret of that webhook, which is
            signed as Standard Webhooks 1.0 asks: base64 of 24 to 64 bytes.
        heads_secret_file: Or the file that holds it.
        heads_seconds: The pause between two looks for heads.
    """

    keys: tuple[AuditKey, ...] = field(default=(), converter=_audit_keys)
    heads_log: bool = False
    heads_file: str | None = None
    heads_url: str | None = None
    heads_secret_env: str | None = None
    heads_secret_file: str | None = None
    heads_seconds: float = 60.0


@frozen(kw_only=True)
class PlatformConfig:
    """The whole tree.  `id` is the audience of tokens and the platform's name in `/info`.

    Without `docs` there are no documentation pages, and no OpenAPI document is served.  Without
    `console` there is none; a `Console` says where its users sign in.

    `on_busy` says what becomes of a run whose session has another one active: it waits for its turn
    (queue), or is refused (reject).  A run that takes longer than `run_timeout_seconds` is ended.
    After `lease_seconds` of silence a node is taken for dead.  A run that waits for longer than
    `unhosted_minutes` for what no node hosts is an incident.

    `allowed_hosts` are the names by which it is reached; where authorization is off, others that a
    stranger can own are refused.

    `limits` are what each caller may take at most, so that none takes what is another's.

    `retention` says for how long data is kept, in every database that does not say so itself.

    `notify` says who hears of runs that pause or fail.

    `audit` has the keys of the audit trail, and the places of its heads.

    `readers` are functions by a media type: each returns the text of such a file, for the models
    that do not take it.

    `prices` say what models cost; without them no cost is shown.
    """

    id: str = "legation"
    name: str = "Legation"
    description: str | None = None
    docs: bool = True
    console: bool | Console = True
    authorization: bool = False
    authorization_config: AuthorizationConfig = AuthorizationConfig()
    cors_allowed_origins: tuple[str, ...] = field(default=(), converter=strings)
    cors_default_origin: bool = True
    allowed_hosts: tuple[str, ...] = field(default=(), converter=strings)
    on_busy: OnBusy = "queue"
    run_timeout_seconds: float = 3600.0
    lease_seconds: float = 30.0
    unhosted_minutes: float = 10.0
    limits: PlatformLimits = PlatformLimits()
    retention: Retention = Retention()
    notify: Notify | None = None
    audit: Audit = Audit()
    databases: tuple[Database, ...] = field(default=(), converter=_databases)
    models: tuple[AnyModel, ...] = field(default=(), converter=_models)
    agents: tuple[Agent, ...] = field(default=(), converter=_agents)
    teams: tuple[Team, ...] = field(default=(), converter=_teams)
    channels: tuple[AnyChannel, ...] = field(default=(), converter=_channels)
    readers: Mapping[str, Reader | str] = field(factory=dict[str, "Reader | str"])
    prices: Prices | None = None


# How the tables of a TOML file map to the tree: `[databases.main]` is a `Database` whose `id` is
# "main"; the rest of `[platform]` stands at the top.
_KEYED: Final[Mapping[str, tuple[str, type[Any]]]] = {
    "databases": ("id", Database),
    "models": ("name", Model),
    "channels": ("id", Channel),
}
_LISTED: Final[Mapping[str, type[Any]]] = {"agents": Agent, "teams": Team}
_BY_KIND: Final[Mapping[Any, tuple[str, Mapping[str, type[Any]]]]] = {
    Model: ("provider", MODELS),
    Channel: ("kind", CHANNELS),
}
"""By class: the key that says which kind a table is of, and the class of each."""
_NO_KINDS: Final[tuple[str, Mapping[str, type[Any]]]] = ("", {})
_TOP: Final = "platform"
_READERS: Final = "readers"
_PRICES: Final = "prices"
_AUTHORIZATION: Final = "authorization_config"
_CONSOLE: Final = "console"
_LIMITS: Final = "limits"
_NOTIFY: Final = "notify"
_RETENTION: Final = "retention"
_AUDIT: Final = "audit"
_LIMIT_TABLES: Final = ("scopes", "subjects")

Found: TypeAlias = dict[str, Any]


def structure(mapping: Mapping[str, Any]) -> PlatformConfig:
    """Return the configuration that `mapping`, as read from TOML, describes.

    Raises:
        ConfigurationError: Anything is unknown, missing or of the wrong type; all is listed.
    """
    faults: list[Fault] = []
    tables = {_TOP, _AUTHORIZATION, _CONSOLE, _LIMITS, _NOTIFY, _AUDIT, _READERS, _RETENTION}
    tables.add(_PRICES)
    known = {*tables, *_KEYED, *_LISTED}
    faults += [Fault(key, "unknown key") for key in sorted(set(mapping) - known)]
    found: Found = _platform_table(mapping.get(_TOP, {}), faults)
    if _READERS in mapping:
        found[_READERS] = _structure_readers(mapping[_READERS], faults)
    if _PRICES in mapping:
        found[_PRICES] = _structure_prices(mapping[_PRICES], faults)
    if _AUTHORIZATION in mapping:
        found[_AUTHORIZATION] = _one(
            AuthorizationConfig, mapping[_AUTHORIZATION], _AUTHORIZATION, faults
        )
    if _CONSOLE in mapping:
        sign_in = _one(Console, mapping[_CONSOLE], _CONSOLE, faults)
        found[_CONSOLE] = found[_CONSOLE] and sign_in
    if _NOTIFY in mapping:
        found[_NOTIFY] = _one(Notify, mapping[_NOTIFY], _NOTIFY, faults)
    if _RETENTION in mapping:
        found[_RETENTION] = _one(Retention, mapping[_RETENTION], _RETENTION, faults)
    if _AUDIT in mapping:
        found[_AUDIT] = _structure_audit(mapping[_AUDIT], faults)
    if _LIMITS in mapping:
        found[_LIMITS] = _structure_limits(mapping[_LIMITS], faults)
    for key, (name, cls) in _KEYED.items():
        found[key] = _structure_table(cls, name, mapping.get(key, {}), key, faults)
    for key, cls in _LISTED.items():
        found[key] = _structure_array(cls, mapping.get(key, []), key, faults)
    if faults:
        raise ConfigurationError(tuple(faults))
    return PlatformConfig(**found)


@frozen(kw_only=True)
class _PlatformTable:
    """The keys of the table `[platform]`."""

    id: str = "legation"
    name: str = "Legation"
    description: str | None = None
    docs: bool = True
    console: bool = True
    authorization: bool = False
    cors_allowed_origins: tuple[str, ...] = ()
    cors_default_origin: bool = True
    allowed_hosts: tuple[str, ...] = ()
    on_busy: OnBusy = "queue"
    run_timeout_seconds: float = 3600.0
    lease_seconds: float = 30.0
    unhosted_minutes: float = 10.0


def _platform_table(value: Any, faults: list[Fault]) -> Found:
    table = _one(_PlatformTable, value, _TOP, faults) or _PlatformTable()
    return {a.name: getattr(table, a.name) for a in fields(_PlatformTable)}


def _structure_table(
    cls: type[C], name: str, value: Any, path: str, faults: list[Fault]
) -> list[C | None]:
    if not _is_table(value):
        faults.append(Fault(path, "expected a table of tables"))
        return []
    made: list[C | None] = []
    for key, item in value.items():
        here = f"{path}.{key}"
        if _is_table(item) and name in item:
            faults.append(Fault(f"{here}.{name}", "unknown key"))
        else:
            made.append(_one(*_of_kind(cls, _with(item, name, key)), here, faults))
    return made


def _of_kind(cls: type[Any], item: Any) -> tuple[type[Any], Any]:
    """Return the class of the kind that `item` says it is of, and the rest of its keys.

    It is `cls` for a table that does not fit the class: the registry says why, with all else.
    """
    tag, kinds = _BY_KIND.get(cls, _NO_KINDS)
    said = item.get(tag) if _is_table(item) else None
    kind = kinds.get(said) if isinstance(said, str) else None
    if kind is None:
        return cls, item
    rest = {key: value for key, value in item.items() if key != tag}
    taken = {a.name: a.default is NOTHING for a in fields(kind)}
    fits = rest.keys() <= taken.keys() and all(
        key in rest for key, required in taken.items() if required
    )
    return (kind, rest) if fits else (cls, item)


def _structure_limits(value: Any, faults: list[Fault]) -> PlatformLimits | None:
    """Structure the table of limits; its tables by scope and by name have the path of their key."""
    if not _is_table(value):
        faults.append(Fault(_LIMITS, "expected a table"))
        return None
    found: Found = {}
    for key in _LIMIT_TABLES:
        tables, path = value.get(key, {}), f"{_LIMITS}.{key}"
        if not _is_table(tables):
            faults.append(Fault(path, "expected a table of tables"))
            continue
        found[key] = {
            name: _one(LimitOverrides, table, f'{path}."{name}"', faults)
            for name, table in tables.items()
        }
    rest = {key: item for key, item in value.items() if key not in _LIMIT_TABLES}
    made = _one(PlatformLimits, rest, _LIMITS, faults)
    return None if made is None else evolve(made, **found)


def _structure_audit(value: Any, faults: list[Fault]) -> Audit | None:
    """Structure the table of the audit trail; the table of a key has the path of its number."""
    if not _is_table(value):
        faults.append(Fault(_AUDIT, "expected a table"))
        return None
    keys = _structure_array(AuditKey, value.get("keys", []), f"{_AUDIT}.keys", faults)
    rest = {key: item for key, item in value.items() if key != "keys"}
    made = _one(Audit, rest, _AUDIT, faults)
    return None if made is None else evolve(made, keys=[key for key in keys if key is not None])


def _structure_readers(value: Any, faults: list[Fault]) -> dict[str, str]:
    if not _is_table(value):
        faults.append(Fault(_READERS, "expected a table"))
        return {}
    names = {key: name for key, name in value.items() if isinstance(name, str)}
    faults += [Fault(f"{_READERS}.{key}", "expected a string") for key in value if key not in names]
    return names


def _structure_prices(value: Any, faults: list[Fault]) -> Prices | None:
    """Structure the table of prices; the price of a model has the path of its key."""
    if not _is_table(value):
        faults.append(Fault(_PRICES, "expected a table"))
        return None
    path = f"{_PRICES}.models"
    source, models = value.get("source"), value.get("models", {})
    faults += [
        Fault(f"{_PRICES}.{key}", "unknown key")
        for key in sorted(value.keys() - {"source", "models"})
    ]
    if source is not None and not isinstance(source, str):
        faults.append(Fault(f"{_PRICES}.source", "expected a string"))
    if not _is_table(models):
        faults.append(Fault(path, "expected a table of tables"))
        return None
    made = {
        key: _one(ModelPrice, table, f'{path}."{key}"', faults) for key, table in models.items()
    }
    known = {key: price for key, price in made.items() if price is not None}
    return Prices(source=source, models=known)


def _with(item: Any, name: str, key: str) -> Any:
    """Return the table `item` with its own name in it; what is no table stays as it is."""
    return {**item, name: key} if _is_table(item) else item


def _is_table(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _is_array(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _structure_array(cls: type[C], value: Any, path: str, faults: list[Fault]) -> list[C | None]:
    if not _is_array(value):
        faults.append(Fault(path, "expected an array of tables"))
        return []
    return [_one(cls, item, f"{path}[{index}]", faults) for index, item in enumerate(value)]


def _one(cls: type[C], value: Any, path: str, faults: list[Fault]) -> C | None:
    """Structure one table, adding its faults; None when it has any."""
    if not isinstance(value, Mapping):
        faults.append(Fault(path, "expected a table"))
        return None
    try:
        return _CONVERTER.structure(value, cls)
    except cattrs.ClassValidationError as error:
        for line in cattrs.transform_error(error, path, _say):
            message, _, where = line.rpartition(" @ ")
            faults.append(Fault(where, message))
        return None


def _say(error: BaseException, _: type[Any] | None) -> str:
    if isinstance(error, KeyError):
        return f"missing: {error.args[0]}"
    if isinstance(error, ForbiddenExtraKeysError):
        return "unknown: " + ", ".join(sorted(error.extra_fields))
    return str(error)


def _exactly(kind: type[Any], word: str) -> Any:
    """Return a hook that takes values of `kind` as they are and converts nothing."""

    def hook(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {word}")
        return value

    return hook


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("expected a number")
    return float(value)


def _texts(value: Any, _: Any) -> tuple[str, ...]:
    if not _is_array(value) or any(type(item) is not str for item in value):
        raise TypeError("expected an array of strings")
    return tuple(value)


def _one_or_several(value: Any, kind: Any) -> tuple[str, ...]:
    if type(value) is str:
        return (value,)
    try:
        return _texts(value, kind)
    except TypeError:
        raise TypeError("expected a string or an array of strings") from None


def _table(value: Any, _: Any) -> Mapping[str, Any]:
    if not _is_table(value):
        raise TypeError("expected a table")
    return value


def _subjects(value: Any, _: Any) -> SubjectsLike:
    """Return a table of strings, or the name of a function."""
    if type(value) is str:
        return value
    if not _is_table(value) or any(type(item) is not str for item in value.values()):
        raise TypeError("expected a table of strings, or the name of a function")
    return value


def _structure_guard(converter: cattrs.Converter, value: Any) -> GuardLike:
    """Return the guard that a table says, by its `kind`."""
    table = _table(value, None)
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in GUARDS:
        raise TypeError(f"kind {kind!r} is none of: {', '.join(GUARDS)}")
    rest = {key: item for key, item in table.items() if key != "kind"}
    made: GuardLike = converter.structure(rest, GUARDS[kind])
    return made


def _is_literal(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _converter() -> cattrs.Converter:
    """Return what reads tables; a file names the functions and the models that it means."""
    text = _exactly(str, "a string")
    converter = cattrs.Converter(forbid_extra_keys=True)
    converter.register_structure_hook(str, text)
    converter.register_structure_hook(int, _exactly(int, "an integer"))
    converter.register_structure_hook(bool, _exactly(bool, "true or false"))
    converter.register_structure_hook(float, _number)
    texts = (tuple[str, ...], tuple[ToolLike, ...], tuple[ModelLike, ...])
    converter.register_structure_hook_func(lambda kind: kind in texts, _texts)
    named = (
        ModelLike,
        ModelLike | None,
        RunLike | None,
        InstructionsLike | None,
        FunctionLike | None,
    )
    several = (Texts, TextsOrNone)
    converter.register_structure_hook_func(lambda kind: kind in several, _one_or_several)
    # The registry says which words there are, beside all else that is wrong with a value.
    converter.register_structure_hook_func(_is_literal, text)
    tables = (Mapping[str, Any] | None, SchemaLike | None)
    converter.register_structure_hook_func(lambda kind: kind in tables, _table)
    converter.register_structure_hook_func(lambda kind: kind in named, text)
    converter.register_structure_hook_func(lambda kind: kind == SubjectsLike, _subjects)
    converter.register_structure_hook_func(
        lambda kind: kind == GuardLike, lambda value, _: _structure_guard(converter, value)
    )
    lists = Mapping[str, tuple[str, ...]]
    read_lists = _only_tables(converter.get_structure_hook(lists))
    converter.register_structure_hook_func(lambda kind: kind == lists, read_lists)
    for cls in (Retention, LimitOverrides, NodeLimits, Summaries):
        converter.register_structure_hook(cls, _only_tables(converter.get_structure_hook(cls)))
    return converter


def _only_tables(structure_table: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a hook for a table within another, which says so of what is none."""

    def hook(value: Any, kind: Any) -> Any:
        return structure_table(_table(value, kind), kind)

    return hook


_CONVERTER: Final = _converter()
