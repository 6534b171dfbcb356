"""Every response of a platform against the platform's own OpenAPI document.

The document says which members a shape has; here a member that it does not name is an error as
well, so that nothing is answered that is not described.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, TypeGuard, cast

import jsonschema_rs
from attrs import define, evolve, field, frozen

from legation import AuthorizationConfig, Platform
from legation.api.openapi import OPERATIONS
from legation.api.openapi.document import document
from legation.api.routes import ROUTES
from legation.hosted.registry import HostedChannel, Registry
from legation.http.messages import Request, compact_json
from legation.http.routing import Match, Router, parse_target
from legation_testing import ClientResponse, parse_events

__all__ = ["BrokenContract", "Contract", "check", "contract_of", "counted"]

counted: Final[list[int]] = [0]
"""How many responses were checked."""

# While a route waits for its description, `test_openapi` alone says so.
_COMPLETE: Final = {route.operation for route in ROUTES} <= OPERATIONS.keys()


class BrokenContract(AssertionError):
    """A response is not what the document says."""


@frozen
class _Operation:
    """One operation, its answers by status with references resolved."""

    id: str
    responses: Mapping[str, Mapping[str, Any]]


@define(eq=False)
class Contract:
    """A document, ready to be compared with."""

    document: Mapping[str, Any]
    _validators: dict[str, jsonschema_rs.Validator] = field(
        factory=dict[str, jsonschema_rs.Validator], init=False
    )

    @cached_property
    def _router(self) -> Router[_Operation]:
        return Router(self._operations())

    def _operations(self) -> Iterator[tuple[str, str, _Operation]]:
        for path, methods in self.document["paths"].items():
            for method, told in methods.items():
                responses = {s: self._resolved(r) for s, r in told["responses"].items()}
                yield method.upper(), path, _Operation(told["operationId"], responses)

    def _resolved(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        if "$ref" not in value:
            return value
        found: Any = self.document
        for name in value["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return self._resolved(found)

    @cached_property
    def _components(self) -> Mapping[str, Any]:
        return {
            "schemas": {n: _closed(s) for n, s in self.document["components"]["schemas"].items()}
        }

    def check(self, request: Request, response: ClientResponse) -> None:
        """Raise `BrokenContract` unless `response` is one of those that the document names."""
        path = parse_target(request.target)
        match = None if path is None else self._router.match(path)
        method = "GET" if request.method == "HEAD" else request.method
        operation = match.methods.get(method) if isinstance(match, Match) else None
        if method == "OPTIONS":
            return
        if operation is None:
            self._check_error(f"{method} {request.target}", response)
            return
        told = operation.responses.get(str(response.status))
        where = f"{operation.id}: {method} {request.target}: {response.status}"
        if told is None:
            raise _broken(where, f"expected one of {', '.join(operation.responses)}", response)
        self._check_told(where, request, response, told)

    def _check_error(self, where: str, response: ClientResponse) -> None:
        """What no operation answers is an error in the envelope."""
        if response.status >= 400 and response.body:
            self._check_json(where, {"$ref": "#/components/schemas/Error"}, response.body, response)

    def _check_told(
        self, where: str, request: Request, response: ClientResponse, told: Mapping[str, Any]
    ) -> None:
        for name, header in told.get("headers", {}).items():
            if self._resolved(header).get("required") and response.header(name) is None:
                raise _broken(where, f"expected the header {name}", response)
        content: Mapping[str, Any] | None = told.get("content")
        if request.method == "HEAD" or (not content and not response.body):
            return
        media = (response.header("content-type") or "none").partition(";")[0]
        found = (content or {}).get(media) or (content or {}).get("*/*")
        if found is None:
            expected = ", ".join(content or ["no content"])
            raise _broken(where, f"expected {expected}, not {media}", response)
        if media == "text/event-stream":
            shape = self._resolved(found["schema"]["anyOf"][0])
            self._check_events(where, shape["properties"]["data"]["contentSchema"], response)
        elif media == "application/json":
            self._check_json(where, found["schema"], response.body, response)

    def _check_events(
        self, where: str, schema: Mapping[str, Any], response: ClientResponse
    ) -> None:
        for event in parse_events(response.body):
            if event.data:
                self._check_json(where, schema, event.data.encode(), response)
                named = json.loads(event.data).get("event", event.name)
                if named != event.name:
                    raise _broken(where, f"the event {event.name} says it is {named}", response)

    def _check_json(
        self, where: str, schema: Mapping[str, Any], body: bytes, response: ClientResponse
    ) -> None:
        for error in self._validator(schema).iter_errors(json.loads(body)):
            path = ".".join(str(step) for step in error.instance_path) or "the body"
            raise _broken(where, f"{path}: {error.message[:400]}", response)

    def _validator(self, schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
        key = json.dumps(schema)
        if key not in self._validators:
            whole = {**_closed(schema), "components": self._components}
            self._validators[key] = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
        return self._validators[key]


def _broken(where: str, what: str, response: ClientResponse) -> BrokenContract:
    shown = response.body[:600].decode("utf-8", "replace")
    return BrokenContract(f"{where}: {what}\nin {shown}\n(described in core/legation/api/openapi)")


def _is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _closed(schema: Any) -> Any:
    """Return `schema` so that objects have the members it names and no others."""
    if _is_array(schema):
        return [_closed(item) for item in schema]
    if not _is_object(schema):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if _is_object(schema.get("properties")) and schema.get("type") == "object":
        closed.setdefault("additionalProperties", False)
    return closed


# --- The document of a platform -----------------------------------------------------------------


@frozen
class _Config:
    name: str
    description: str | None
    authorization: bool
    authorization_config: AuthorizationConfig


@frozen
class _Codec:
    receives: bool
    interacts: bool


@frozen
class _Channel:
    id: str
    codec: _Codec


@frozen
class _Described:
    """A stand-in for the registry of a platform: what its document depends on, and no more.

    To describe ninety routes takes longer than most tests, and platforms are made by the thousand,
    so a document is made once for all that are described alike.  It is made of this value: a member
    that it came to read beyond these would not be found here.
    """

    config: _Config
    hosted: tuple[_Channel, ...]
    first: tuple[tuple[str, ...], ...]

    @property
    def agents(self) -> dict[str, None]:
        return dict.fromkeys(self.first[0])

    @property
    def teams(self) -> dict[str, None]:
        return dict.fromkeys(self.first[1])

    @property
    def databases(self) -> dict[str, None]:
        return dict.fromkeys(self.first[2])

    @property
    def channels(self) -> dict[str, _Channel]:
        return {channel.id: channel for channel in self.hosted}


def _describe_channel(channel: HostedChannel) -> _Channel:
    return _Channel(channel.id, _Codec(channel.codec.receives, channel.codec.interacts))


def _describe(registry: Registry) -> _Described:
    config = registry.config
    # Tests draw keys; the document has none.
    authorization = evolve(config.authorization_config, verification_keys=(), jwks_file=None)
    named = (registry.agents, registry.teams, registry.databases)
    return _Described(
        _Config(config.name, config.description, config.authorization, authorization),
        tuple(map(_describe_channel, registry.channels.values())),
        () if config.authorization else tuple(tuple(one)[:1] for one in named),
    )


@lru_cache(maxsize=64)
def _of(body: bytes) -> Contract:
    return Contract(json.loads(body))


@lru_cache(maxsize=256)
def _of_described(described: _Described) -> Contract:
    return _of(compact_json(document(cast(Registry, described))).encode())


def contract_of(platform: Platform) -> Contract:
    """Return the contract of `platform`; with routes of its own, it is described by itself."""
    if platform.routes != ROUTES:
        return _of(platform.documentation.document.body)
    return _of_described(_describe(platform.registry))


def check(answering: object, request: Request, response: ClientResponse) -> None:
    """Check `response`, if a whole platform gave it."""
    if _COMPLETE and isinstance(answering, Platform):
        counted[0] += 1
        contract_of(answering).check(request, response)
