"""The platform: configuration, what it hosts and the routes, checked once; then it answers.

`Platform.answer` is total.  Every request gets a response, every response a request id, and what
goes wrong in our own code becomes one sentence with an incident id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from attrs import evolve

from .access.caller import TRUSTED, Refused, open_gate
from .access.decide import Principal
from .config import (
    DEFAULT_EXCLUDED_ROUTES,
    AuthorizationConfig,
    ConfigurationError,
    PlatformConfig,
)
from .correspondence.jobs import channel_jobs
from .cors import Cors
from .dispatch import Arrival, Door, attempted
from .effects import Job, Now, Program, RandomBytes, ThisNode, Transact
from .messages import Answer, Request, Streamed, without_body
from .migrations.catalogue import CATALOGUE, Catalogue
from .openapi.document import document
from .refusals import Fault, Refusal, respond
from .registry import build
from .resources.manual import Manual
from .routes import ROUTES
from .runs.execute import Workshop
from .runs.keeping import KeepRuns
from .serving import Served, Serving, WatchSchemas
from .store.audit import AppendAudit, AuditEntry

__all__ = ["Platform", "with_environment"]

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._~-]{1,64}")


class Platform:
    """Hosts what its configuration names and answers requests about it.

    The arguments are those of `PlatformConfig`, by keyword; `jwks` is what the JWKS file holds,
    `environ` the variables that channels and models name for their secrets, and `catalogue` the
    schema that this code serves: another one stands for another release of it.

    Raises:
        ConfigurationError: With every fault of the configuration.
    """

    def __init__(
        self,
        *,
        jwks: bytes | None = None,
        environ: Mapping[str, str] | None = None,
        catalogue: Catalogue = CATALOGUE,
        **configuration: Any,
    ) -> None:
        """Check everything once."""
        self._open(PlatformConfig(**configuration), jwks, environ or {}, catalogue)

    @classmethod
    def from_config(
        cls,
        config: PlatformConfig,
        *,
        jwks: bytes | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Platform:
        """Make a platform of a whole configuration."""
        platform = cls.__new__(cls)
        platform._open(config, jwks, environ or {}, CATALOGUE)
        return platform

    def _open(
        self,
        config: PlatformConfig,
        jwks: bytes | None,
        environ: Mapping[str, str],
        catalogue: Catalogue,
    ) -> None:
        self.config = config
        self.registry = evolve(build(config, environ), catalogue=catalogue)
        authorization = config.authorization_config
        gate = open_gate(authorization, config.id, jwks) if config.authorization else None
        self.workshop = Workshop(self.registry)
        cors = Cors.allowing(config.cors_allowed_origins)
        self.serving = Serving(tuple(self.registry.databases), catalogue)
        self.manual = Manual(partial(document, self.registry))
        excluded = _excluded(authorization)
        self._door = Door(self.workshop, gate, excluded, cors, self.manual, started_us=0)

    # --- What a host asks for -------------------------------------------------------------------

    @property
    def databases(self) -> Mapping[str, str]:
        """The URL of each database, by its id."""
        return {name: database.url for name, database in self.registry.databases.items()}

    def startup(self) -> Program[None]:
        """Note when the process started, and bring databases to their schema where so configured.

        A database that cannot be migrated now is not served until it is; everything else is.
        """
        self._door = evolve(self._door, started_us=(yield from Now()))
        for name, database in self.registry.databases.items():
            automatic = database.auto_migrate
            if automatic is None:
                automatic = database.url.startswith("sqlite:")
            yield from self.serving.begin(name, migrate=automatic)

    def jobs(self) -> tuple[Job, ...]:
        """Return the programs that go on as long as the process does."""
        kept = [KeepRuns(self.workshop, name) for name in self.registry.databases]
        rounds = (*kept, *channel_jobs(self.workshop))
        return (WatchSchemas(self.serving), *(Served(self.serving, job) for job in rounds))

    def write_audit(self, entries: tuple[AuditEntry, ...]) -> Program[None]:
        """Store a batch of the audit trail."""
        node = yield from ThisNode()
        append = Transact(self.registry.default_database, AppendAudit(node, entries))
        yield from self.serving.guard(iter(append))

    @property
    def keys_generation(self) -> bytes:
        """What differs whenever the keys in force do; empty where authorization is off."""
        return self._door.gate.keys.generation if self._door.gate else b""

    def load_jwks(self, jwks: bytes) -> tuple[Fault, ...]:
        """Take the keys of a changed JWKS file; with faults, the old ones stay in force."""
        return self._door.gate.load_jwks(jwks) if self._door.gate else ()

    def explain(self, token: bytes, method: str, target: str, now_us: int) -> dict[str, Any]:
        """Return whether the bearer of `token` may make a request, and by which scope."""
        principal: Principal | Refused = TRUSTED
        if self._door.gate is not None:
            headers = ((b"authorization", b"Bearer " + token),)
            principal = self._door.gate.caller(Request(method, target, headers), now_us)
        return self._door.explain(principal, method, target)

    # --- Answering ------------------------------------------------------------------------------

    def answer(self, request: Request) -> Program[Answer]:
        """Answer `request`.  Total: every request gets a response."""
        now_us = yield from Now()
        arrival = Arrival(request, now_us, (yield from _request_id(request)))
        admitted = attempted(self._door.admit(arrival), arrival)
        outcome = yield from self.serving.guard(admitted)
        answer = respond(outcome) if isinstance(outcome, Refusal) else outcome
        if isinstance(answer, Streamed):
            answer = evolve(answer, body=self.serving.guard(answer.body))
        if request.method == "HEAD":
            answer = without_body(answer)
        named = ((b"x-request-id", arrival.request_id.encode()),)
        return self._door.cors.dressed(answer, request, named)


def _request_id(request: Request) -> Program[str]:
    """Return the caller's request id if it has a sober one, else a random one."""
    sent = request.header(b"x-request-id")
    if sent is not None and _REQUEST_ID.fullmatch(sent):
        return sent.decode("ascii")
    return (yield from RandomBytes(16)).hex()


def _excluded(config: AuthorizationConfig) -> frozenset[str]:
    """Return the templates of the excluded routes; one that is no route is a fault."""
    known = {route.template for route in ROUTES} | set(DEFAULT_EXCLUDED_ROUTES)
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
