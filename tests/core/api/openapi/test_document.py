from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin

import pytest
from attrs import evolve
from openapi_spec_validator import validate
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

from legation import Agent, AuthorizationConfig, Channel, Database, Platform, Principal
from legation.access.scopes import Scoped, Signed
from legation.api.openapi import OPERATIONS
from legation.api.openapi.operations import FORM_ONLY
from legation.api.openapi.schemas import SCHEMAS
from legation.api.routes import ROUTES
from legation.effects import Program
from legation.http.messages import Answer, Request, Response
from legation.http.refusals import Refusal
from legation.version import INTERFACE_VERSION
from legation_testing import Client, ClientResponse

from ....callers import Issuer, demo
from ....contract import BrokenContract, Contract, contract_of

ERRORS: Final = range(400, 600)
REFERENCE: Final = re.compile(r'"#/components/(\w+)/([\w.-]+)"')


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def document(issuer: Issuer) -> dict[str, Any]:
    return told(demo(issuer))


def told(platform: Platform) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(bytes(platform.documentation.document.body))
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def operation(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(o for _, _, o in operations(document) if o["operationId"] == name)


# --- Every route, and nothing else -------------------------------------------------------------


def test_every_route_has_a_description_and_every_description_a_route() -> None:
    routes = {route.operation for route in ROUTES}

    lacking = sorted(routes - OPERATIONS.keys())
    assert not lacking, (
        f"add to OPERATIONS in core/legation/api/openapi/operations.py: {', '.join(lacking)}"
        ' (as `"get_thing": _got("One thing", ref("Thing"))`, with the shape "Thing" in schemas.py)'
    )
    left = sorted(OPERATIONS.keys() - routes)
    assert not left, f"no route is called {', '.join(left)}: remove it from OPERATIONS, or rename"


def test_every_route_is_in_the_document(document: dict[str, Any]) -> None:
    described = {(method, path) for method, path, _ in operations(document)}

    expected = {(r.method, r.template.replace("{channel}/", "chat/", 1))
                if r.template.startswith("/{channel}") else (r.method, r.template)
                for r in ROUTES if r.operation != FORM_ONLY}  # fmt: skip
    assert described == expected


def test_it_is_valid(document: dict[str, Any]) -> None:
    validate(document)


def test_the_validator_can_refuse(document: dict[str, Any]) -> None:
    with pytest.raises(OpenAPIValidationError):
        validate({**document, "info": {}})


def test_without_channels_there_is_no_webhook() -> None:
    bare = told(Platform())

    validate(bare)
    assert not [path for path in bare["paths"] if path.endswith("/webhook")]


def test_every_channel_has_its_own_webhook() -> None:
    channels = [
        Channel(id=name, kind="standard", agent="a", secret_env="S", reply_url="https://e.test/")
        for name in ("chat", "desk")
    ]
    secret = {"S": "whsec_" + "c2VjcmV0" * 5}
    platform = Platform(agents=[Agent(id="a")], channels=channels, environ=secret)

    paths = told(platform)["paths"]

    assert paths["/chat/webhook"]["post"]["operationId"] == "receive_webhook_chat"
    assert paths["/desk/webhook"]["post"]["operationId"] == "receive_webhook_desk"
    assert paths["/desk/webhook"]["post"]["parameters"] == []


def test_no_operation_id_is_there_twice(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]

    assert len(names) == len(set(names))


# --- What the interface says of it -------------------------------------------------------------


def test_it_is_openapi_of_the_interface_version(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert document["info"]["version"] == INTERFACE_VERSION == "2.5.6"


def test_its_paths_are_below_wherever_the_document_is(document: dict[str, Any]) -> None:
    """What is relative is resolved against the document (OpenAPI 3.1 section 4.8.5)."""
    (server,) = document["servers"]

    assert urljoin("http://host/openapi.json", server["url"]) == "http://host/"
    assert urljoin("http://host/mission/openapi.json", server["url"]) == "http://host/mission/"


def test_its_title_and_description_are_configured() -> None:
    info = told(Platform(name="Front office", description="Who is who"))["info"]

    assert (info["title"], info["description"]) == ("Front office", "Who is who")


def test_without_a_description_it_has_one() -> None:
    assert told(Platform())["info"]["description"]


def test_the_migration_is_as_the_interface_has_it(document: dict[str, Any]) -> None:
    migrate = document["paths"]["/databases/{db_id}/migrate"]["post"]

    assert migrate["operationId"] == "migrate_database"
    assert migrate["tags"] == ["Database"]
    assert {"200", "400", "401", "404", "422", "500"} <= migrate["responses"].keys()
    assert [p["name"] for p in migrate["parameters"] if p["in"] == "path"] == ["db_id"]
    target = next(p for p in migrate["parameters"] if p["name"] == "target_version")
    assert (target["in"], target["required"]) == ("query", False)
    assert {"type": "null"} in target["schema"]["anyOf"]
    assert "requestBody" not in migrate
    success = migrate["responses"]["200"]
    assert success["description"] == "Database migrated successfully"
    (schema,) = [content["schema"] for content in success["content"].values()]
    assert SCHEMAS[schema["$ref"].rpartition("/")[2]]["properties"]["message"]["type"] == "string"


def test_the_webhook_is_as_the_interface_has_it(document: dict[str, Any]) -> None:
    webhook = document["paths"]["/chat/webhook"]["post"]

    assert webhook["summary"] == "Webhook"
    assert webhook["parameters"] == []
    assert "application/json" in webhook["responses"]["200"]["content"]


def test_runs_take_each_of_the_three_encodings(document: dict[str, Any]) -> None:
    body = operation(document, "create_agent_run")["requestBody"]

    assert set(body["content"]) == {
        "multipart/form-data",
        "application/x-www-form-urlencoded",
        "application/json",
    }


def test_what_changes_something_may_be_sent_twice_under_a_key(document: dict[str, Any]) -> None:
    def keyed(name: str) -> bool:
        parameters = operation(document, name)["parameters"]
        return any(parameter["name"] == "Idempotency-Key" for parameter in parameters)

    assert keyed("create_agent_run")
    assert not keyed("migrate_database")
    assert not keyed("receive_webhook_chat")
    assert not keyed("get_agents")


def test_runs_stream_or_answer(document: dict[str, Any]) -> None:
    content = operation(document, "create_team_run")["responses"]["200"]["content"]

    assert set(content) == {"application/json", "text/event-stream"}
    assert {"$ref": "#/components/schemas/ServerSentEvent"} in content["text/event-stream"][
        "schema"
    ]["anyOf"]
    event = document["components"]["schemas"]["ServerSentEvent"]["properties"]["data"]
    assert event["contentSchema"] == {"$ref": "#/components/schemas/RunEvent"}


# --- Who may -----------------------------------------------------------------------------------


def test_the_scheme_is_a_bearer_token(document: dict[str, Any]) -> None:
    scheme = document["components"]["securitySchemes"]["HTTPBearer"]

    assert (scheme["type"], scheme["scheme"], scheme["bearerFormat"]) == ("http", "bearer", "JWT")


def test_each_of_several_scopes_is_enough_alone(document: dict[str, Any]) -> None:
    assert operation(document, "create_agent_run")["security"] == [
        {"HTTPBearer": ["agents:run"]},
        {"HTTPBearer": ["agents:<id>:run"]},
        {"HTTPBearer": ["platform:admin"]},
    ]


def test_the_admin_scope_has_the_name_it_is_given(issuer: Issuer) -> None:
    platform = demo(issuer, options={"admin_scope": "root"})

    assert operation(told(platform), "get_sessions")["security"][-1] == {"HTTPBearer": ["root"]}


def test_any_token_is_no_scope(document: dict[str, Any]) -> None:
    assert operation(document, "get_me")["security"] == [{"HTTPBearer": []}]


@pytest.mark.parametrize("name", ["get_docs", "get_openapi", "health_check"])
def test_what_is_excluded_needs_nothing(document: dict[str, Any], name: str) -> None:
    excluded = operation(document, name)

    assert excluded["security"] == []
    assert "401" not in excluded["responses"]


def test_what_is_not_excluded_any_more_needs_a_token(issuer: Issuer) -> None:
    platform = demo(issuer, options={"excluded_routes": ("/health",)})

    docs = operation(told(platform), "get_docs_asset")
    assert docs["security"] == [{"HTTPBearer": []}]
    assert "401" in docs["responses"]


def test_a_signature_is_no_token(document: dict[str, Any]) -> None:
    signed = [r for r in ROUTES if isinstance(r.need, Signed) and r.operation != FORM_ONLY]

    for route in signed:
        webhook = operation(document, f"{route.operation}_chat")
        assert webhook["security"] == []
        assert "401" not in webhook["responses"]
        assert "403" in webhook["responses"]


def test_with_authorization_off_a_token_may_be_left_out() -> None:
    security = operation(told(Platform()), "get_agents")["security"]

    assert security[0] == {}
    assert {"HTTPBearer": ["agents:read"]} in security


def test_an_operation_says_what_fields_that_several_have_mean_here(
    document: dict[str, Any],
) -> None:
    def about(name: str) -> dict[str, str]:
        return {p["name"]: p["description"] for p in operation(document, name)["parameters"]}

    assert about("get_session_run")["table"].startswith("Table to query run from.")
    assert about("rename_session")["user_id"].startswith("User ID to scope rename to.")


def test_whatever_needs_a_scope_may_be_refused_for_want_of_one(document: dict[str, Any]) -> None:
    for route in ROUTES:
        if isinstance(route.need, Scoped):
            assert {"401", "403"} <= operation(document, route.operation)["responses"].keys()


def test_a_function_of_a_row_declares_each_refusal_and_not_that_there_are_some() -> None:
    for route in ROUTES:
        reads = route.form.read if route.form else None
        for function in filter(None, (route.find, reads, route.handler)):
            declared = getattr(function, "func", function).__annotations__["return"]
            assert not re.search(r"\bRefusal\b", declared), route.operation


def test_what_a_function_declares_is_described_with_its_own_example(
    document: dict[str, Any],
) -> None:
    conflict = resolved(document, operation(document, "create_session")["responses"]["409"])
    absent = resolved(document, operation(document, "delete_session")["responses"]["404"])

    assert conflict["content"]["application/json"]["example"] == {
        "detail": "Session with id 's1' already exists",
        "error_code": "CONFLICT",
    }
    assert absent["content"]["application/json"]["example"] == {
        "detail": "No database found with id 'no-such'",
        "error_code": "NOT_FOUND",
    }


# --- Shapes ------------------------------------------------------------------------------------


def resolved(document: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """Return the response, or that of all operations that it refers to."""
    name = response.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = document["components"]["responses"][name] if name else response
    return found


def errors(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield every error with its operation, but for those that are an answer as well."""
    for _, _, described in operations(document):
        for status, response in described["responses"].items():
            if int(status) in ERRORS:
                found = resolved(document, response)
                if "anyOf" not in found["content"]["application/json"]["schema"]:
                    yield described["operationId"], status, found


def test_every_error_has_the_envelope_and_an_example(document: dict[str, Any]) -> None:
    for name, status, response in errors(document):
        content = response["content"]["application/json"]
        shape = SCHEMAS[content["schema"]["$ref"].rpartition("/")[2]]
        assert shape["properties"].keys() <= {"detail", "error_code", "errors"}, (name, status)
        assert set(content["example"]) >= {"detail", "error_code"}, (name, status)


def test_no_error_is_described_by_a_docstring(document: dict[str, Any]) -> None:
    docstrings = {(kind.__doc__ or "").partition("\n")[0] for kind in Refusal.__subclasses__()}
    meanings = {response["description"] for _, _, response in errors(document)}

    assert len(docstrings) > 10
    assert not meanings & docstrings
    assert not [meaning for meaning in meanings if "`" in meaning]


def test_the_codes_of_errors_are_those_of_the_interface(document: dict[str, Any]) -> None:
    codes = {
        (status, response["content"]["application/json"]["example"]["error_code"])
        for _, status, response in errors(document)
    }

    assert codes == {
        ("400", "BAD_REQUEST"),
        ("401", "UNAUTHENTICATED"),
        ("403", "FORBIDDEN"),
        ("404", "NOT_FOUND"),
        ("409", "CONFLICT"),
        ("413", "PAYLOAD_TOO_LARGE"),
        ("414", "URI_TOO_LONG"),
        ("415", "UNSUPPORTED_MEDIA_TYPE"),
        ("422", "VALIDATION_ERROR"),
        ("429", "TOO_MANY_REQUESTS"),
        ("500", "INTERNAL_SERVER_ERROR"),
        ("503", "SERVICE_UNAVAILABLE"),
    }


def test_every_reference_leads_somewhere_and_every_shape_is_used(document: dict[str, Any]) -> None:
    used = set(REFERENCE.findall(json.dumps(document)))
    there = {
        (kind, name) for kind in ("schemas", "headers") for name in document["components"][kind]
    }

    assert all(name in document["components"][kind] for kind, name in used)
    assert there <= used


def test_every_parameter_and_every_content_has_a_schema(document: dict[str, Any]) -> None:
    for _, _, described in operations(document):
        assert all("schema" in parameter for parameter in described["parameters"])
        for response in described["responses"].values():
            assert all("schema" in one for one in response.get("content", {}).values())


def test_it_is_made_once(issuer: Issuer) -> None:
    platform = demo(issuer)

    assert platform.documentation.document is platform.documentation.document


def test_the_same_configuration_has_the_same_document(issuer: Issuer) -> None:
    assert demo(issuer).documentation.document.etag == demo(issuer).documentation.document.etag


def test_it_names_no_agent_and_no_database(issuer: Issuer) -> None:
    agents = [Agent(id="alpha", name="The secret one"), Agent(id="beta")]
    databases = [Database("the-vault", "sqlite://")]
    text = str(told(demo(issuer, agents=agents, databases=databases)))

    assert "alpha" not in text
    assert "The secret one" not in text
    assert "the-vault" not in text


# --- Responses are compared with it ------------------------------------------------------------


def response(status: int, body: bytes, *headers: tuple[bytes, bytes]) -> ClientResponse:
    return ClientResponse(status, ((b"x-request-id", b"r"), *headers), body)


JSON: Final = (b"content-type", b"application/json")
EVENTS: Final = (b"content-type", b"text/event-stream; charset=utf-8")
HEALTH: Final = b'{"status":"ok","instantiated_at":"2026-01-01T00:00:00Z"}'
EVENT: Final = b'{"event":"%s","created_at":1,"run_id":"r","session_id":"s"}'


@pytest.fixture(scope="module")
def written(issuer: Issuer) -> Contract:
    return contract_of(demo(issuer))


def request(target: str, method: str = "GET") -> Request:
    return Request(method, target)


@pytest.mark.parametrize(
    ("target", "answered", "sentence"),
    [
        ("/health", response(200, HEALTH.replace(b"ok", b"up"), JSON), "status: "),
        ("/health", response(200, b"{}", JSON), '"status" is a required property'),
        ("/health", response(200, HEALTH[:-1] + b',"more":1}', JSON), "'more' was unexpected"),
        ("/health", response(200, HEALTH.replace(b"2026", b"soon"), JSON), "date-time"),
        ("/health", response(200, b"ok", (b"content-type", b"text/plain")), "not text/plain"),
        ("/health", response(404, b"{}", JSON), "expected one of 200"),
        ("/health", ClientResponse(200, (JSON,), HEALTH), "header X-Request-Id"),
        ("/nowhere", response(404, b'{"error_code":"NOT_FOUND"}', JSON), "detail"),
        (
            "/agents/a/runs/r/events",
            response(200, b"event: RunStarted\ndata: {}\n\n", EVENTS),
            "required property",
        ),
        (
            "/agents/a/runs/r/events",
            response(200, b"event: RunStarted\ndata: " + EVENT % b"RunEnded" + b"\n\n", EVENTS),
            "says it is RunEnded",
        ),
    ],
)
def test_a_response_that_is_not_described_is_told_apart(
    written: Contract, target: str, answered: ClientResponse, sentence: str
) -> None:
    with pytest.raises(BrokenContract, match=re.escape(sentence)):
        written.check(request(target), answered)


def test_a_response_that_is_described_passes(written: Contract) -> None:
    written.check(request("/health"), response(200, HEALTH, JSON))
    written.check(request("/health", "HEAD"), response(200, b"", JSON))
    written.check(request("/health", "OPTIONS"), response(204, b""))


def test_responses_are_compared_with_the_document_of_their_platform(issuer: Issuer) -> None:
    keys = (issuer.pem,)
    chat = Channel(
        id="chat", kind="standard", agent="a", secret_env="S", reply_url="https://e.test/"
    )
    platforms = [
        Platform(),
        Platform(name="Desk", description="Answers letters"),
        Platform(agents=[Agent(id="a")], channels=[chat], environ={"S": "whsec_" + "c2VjcmV0" * 5}),
        Platform(authorization=True, authorization_config=AuthorizationConfig(keys)),
        Platform(
            authorization=True,
            authorization_config=AuthorizationConfig(
                keys, admin_scope="boss", excluded_routes=("/agents",)
            ),
        ),
    ]

    for platform in platforms:
        assert contract_of(platform).document == told(platform)
    assert len({id(contract_of(platform)) for platform in platforms}) == len(platforms)


def test_every_client_is_checked(written: Contract) -> None:
    class Wrong(Platform):
        def answer(self, request: Request, caller: Principal | None = None) -> Program[Answer]:
            answer = yield from super().answer(request, caller)
            assert isinstance(answer, Response)
            return evolve(answer, body=answer.body.replace(b"ok", b"up"))

    with Client(Wrong()) as client, pytest.raises(BrokenContract, match="health_check"):
        client.get("/health")


def test_verification_keys_are_not_in_it(issuer: Issuer) -> None:
    config = AuthorizationConfig(verification_keys=(issuer.pem,))
    body = Platform(authorization=True, authorization_config=config).documentation.document.body

    assert b"PUBLIC KEY" not in body


def test_each_operation_says_what_a_share_that_is_used_up_looks_like(
    document: dict[str, Any],
) -> None:
    for described in document["paths"].values():
        for operation in described.values():
            found = resolved(document, operation["responses"]["429"])
            assert {"Retry-After", "RateLimit-Policy", "RateLimit"} <= found["headers"].keys()
