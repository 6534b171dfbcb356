"""Every error that the document names is made, and its example is what the server sends."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from legation import Database
from legation.api.openapi.operations import FORM_ONLY
from legation.api.routes import ROUTES
from legation.effects import Effect, ReadBody, Transact
from legation.http.refusals import UriTooLong, respond
from legation.migrations.migrate import Attempt
from legation.store.failures import StatementFailed, Unavailable
from legation.store.idempotency import ReleaseKey, SettleKey
from legation.store.runs import FinishRun
from legation_testing import Client, ClientResponse

from ....callers import ENVIRON, Issuer, demo
from ....contract import contract_of
from ....paused_runs import Office, begin, token

ENDLESS: Final = frozenset({"get_runs_events"})
INCIDENT: Final = re.compile(r"incident [0-9a-f]{16}")
LIMIT: Final = 10 << 20
JSON: Final = (("content-type", "application/json"),)
KEY: Final = (("idempotency-key", "k"),)
MESSAGE: Final = json.dumps(
    {
        "object": "whatsapp_business_account",
        "entry": [
            {
                "changes": [
                    {
                        "field": "messages",
                        "value": {
                            "metadata": {"phone_number_id": "100"},
                            "messages": [
                                {"id": "m1", "from": "49", "type": "text", "text": {"body": "hi"}}
                            ],
                        },
                    }
                ]
            }
        ],
    }
).encode()
BODIES: Final[Mapping[str, Any]] = {
    "create_agent_run": {"message": "hi", "stream": False},
    "create_team_run": {"message": "hi", "stream": False},
    "explain_request": {"method": "GET", "path": "/"},
    "retry_channel_letters": {},
    "discard_channel_letters": {"all": True},
    "send_channel_test": {"recipient": "49"},
    "send_channel_message": {"recipient": "49", "text": "Your room is ready."},
    "explain_access": {"method": "GET", "path": "/"},
    "resolve_approval_approvals__approval_id__resolve_post": {"status": "approved"},
    "create_session": {"session_id": "s2"},
    "delete_sessions": {"session_ids": ["s1"], "session_types": ["agent"]},
    "rename_session": {"session_name": "Another"},
    "receive_webhook": {},
}
QUERIES: Final[Mapping[str, str]] = {
    "list_agent_runs": "?session_id=s1",
    "list_team_runs": "?session_id=s1",
}

# The server sends these in the place of a platform.
BY_THE_SERVER: Final = {414: respond(UriTooLong()).body}
SERVER_BUSY: Final = "The server is busy"


def signature(body: bytes) -> tuple[tuple[str, str], ...]:
    digest = hmac.new(ENVIRON["CHAT_APP_SECRET"].encode(), body, hashlib.sha256).hexdigest()
    return (("x-hub-signature-256", f"sha256={digest}"), *JSON)


class World:
    """A platform on which something has happened, and the operations of its document."""

    def __init__(self, issuer: Issuer, **options: Any) -> None:
        self.issuer = issuer
        self.platform = demo(issuer, **options)
        self.client = Client(self.platform, token=issuer.token("platform:admin"))
        self.ids: dict[str, str] = {}

    def open(self) -> None:
        """Make a session with a run, and a message of the channel."""
        self.client.open()
        runs = {
            "agent": self.client.run("alpha", "hi", session_id="s1"),
            "team": self.client.run_team("crew", "hi", session_id="s3"),
        }
        received = self.client.post("/chat/webhook", body=MESSAGE, headers=signature(MESSAGE))
        assert received.json() == {"status": "processing"}
        listed = self.client.get("/channels/chat/messages?state=ready").json()["data"]
        tested = self.client.post("/channels/chat/test", json={"recipient": "49"})
        self.ids = {
            "reply_id": tested.json()["id"],
            "agent_id": "alpha",
            "team_id": "crew",
            "session_id": "s1",
            "db_id": "main",
            "channel": "chat",
            "message_id": listed[0]["id"],
            "name": "page.css",
            "digest": "0",
            "approval_id": "none.1",
            "part": "table.js",
            "message_index": "1",
            "user_id": "adam",
            "agent": runs["agent"]["run_id"],
            "team": runs["team"]["run_id"],
        }

    def share(self) -> None:
        """Give two users a session of the same id, which the administrator has not."""
        self.client.delete("/sessions/s1")
        for subject in ("bob", "eve"):
            token = self.issuer.token("sessions:write", sub=subject)
            made = self.client.post("/sessions", json={"session_id": "s1"}, token=token)
            assert made.status == 201

    def operation(self, name: str) -> Operation:
        """Return the operation of this name."""
        document = contract_of(self.platform).document
        for path, methods in document["paths"].items():
            for method, told in methods.items():
                if told["operationId"] == name:
                    return Operation(self, method.upper(), path, told)
        raise LookupError(name)


class Operation:
    """An operation, and the ways to have it refused."""

    def __init__(self, world: World, method: str, path: str, told: Mapping[str, Any]) -> None:
        self.world, self.method, self.path, self.told = world, method, path, told
        self.name: str = told["operationId"].removesuffix("_chat")

    def examples(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield each error of the document with its example."""
        shared = contract_of(self.world.platform).document["components"]["responses"]
        for status, told in self.told["responses"].items():
            response = shared[told["$ref"].rpartition("/")[2]] if "$ref" in told else told
            content = response.get("content", {}).get("application/json", {})
            if int(status) >= 400 and "example" in content:
                yield int(status), content["example"]

    def target(self, **ids: str) -> str:
        """Return a path that leads to something."""
        known = {**self.world.ids, "run_id": self.world.ids[self.kind], **ids}
        path = re.sub(r"\{(\w+)\}", lambda found: known[found[1]], self.path)
        return path + QUERIES.get(self.name, "")

    @property
    def kind(self) -> str:
        """Whether it is about the runs of a team."""
        return "team" if "/teams/" in self.path else "agent"

    @property
    def parameters(self) -> list[str]:
        """The names of what the path leaves open."""
        return re.findall(r"\{(\w+)\}", self.path)

    def send(self, target: str | None = None, **options: Any) -> ClientResponse:
        """Send a request that would succeed but for `options`."""
        if "body" not in options and "json" not in options and self.name in BODIES:
            options["json"] = BODIES[self.name]
        if self.name in ENDLESS:
            return self._hear(target or self.target(), **options)
        return self.world.client.request(self.method, target or self.target(), **options)

    def _hear(self, target: str, **options: Any) -> ClientResponse:
        """Return the beginning of a stream that goes on as long as its client."""
        stream = self.world.client.begin(self.method, target, **options)
        self.world.client.settle()
        if stream.done:
            return stream.response()
        stream.disconnect()
        headers = ((b"content-type", b"text/event-stream"),)
        return ClientResponse(200, headers, stream.received)

    def watched(self) -> tuple[ClientResponse, set[type[Effect]]]:
        """Return the answer to a request, and the types of what was asked for to answer it."""
        effects = self.world.client.effects
        seen, label = len(effects), f"{self.method} {self.target()}"
        answer = self.send()
        return answer, {type(e.effect) for e in effects[seen:] if e.program == label}

    def provoke(self, status: int, example: Mapping[str, Any]) -> ClientResponse | None:
        """Return the answer to a request that is refused with `status`; None without a way to."""
        recipe = RECIPES.get((self.name, status)) or BY_STATUS[status]
        if example["detail"].startswith("Several users"):
            recipe = of_several
        if example["detail"].startswith("The db_id query parameter"):
            recipe = on_two_databases
        return recipe(self, example)


Recipe = Callable[[Operation, Mapping[str, Any]], ClientResponse | None]


def malformed(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(body=b"{", headers=JSON)


def without_a_token(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(token="")


def with_a_bad_token(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(token="no-such")


def without_a_scope(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(token=operation.world.issuer.token("nothing:read"))


def absent(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    if not operation.parameters:
        return operation.send(f"{operation.target()}?db_id=no-such")
    return operation.send(operation.target(**{operation.parameters[-1]: "no-such"}))


def in_no_database(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(f"{operation.target()}?db_id=no-such")


def without_pages(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    with Client(demo(operation.world.issuer, docs=False, console=False)) as client:
        return client.request(operation.method, operation.path)


def under_way(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    """The first request goes, and its node cannot say so."""
    client = operation.world.client
    faults = [client.fail_at(unit, Unavailable(), times=None) for unit in (ReleaseKey, SettleKey)]
    operation.send(headers=KEY)
    for fault in faults:
        fault.disarm()
    return operation.send(headers=KEY)


def of_several(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    operation.world.share()
    return operation.send()


def on_two_databases(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    world = operation.world
    databases = [Database("main", "sqlite://"), Database("spare", "sqlite://")]
    with Client(demo(world.issuer, databases=databases), token=world.client.token) as client:
        body = BODIES.get(operation.name)
        return client.request(operation.method, operation.target(), json=body)


def before_its_end(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    """A run of which nothing can be stored does not end."""
    client, kind = operation.world.client, operation.kind
    fault = client.fail_at(FinishRun, Unavailable(), times=None)
    form = {"message": "hi", "background": True, "stream": False}
    started = client.post(f"/{kind}s/{operation.world.ids[f'{kind}_id']}/runs", form=form)
    answer = operation.send(operation.target(run_id=started.json()["run_id"]))
    fault.disarm()
    return answer


def too_large(operation: Operation, example: Mapping[str, Any]) -> ClientResponse:
    limit = int(re.findall(r"\d+", example["detail"])[0])
    once = KEY if operation.name in {"retry_channel_message", "retry_channel_reply"} else ()
    return operation.send(body=bytes(limit + 1), headers=(*JSON, *once))


def too_often(operation: Operation, _: Mapping[str, Any]) -> ClientResponse | None:
    """Use up the rates of the caller and of its address; None where a request counts for none."""
    if not next(route for route in ROUTES if route.operation == operation.name).rated:
        return None
    client, shares = operation.world.client, operation.world.platform.context.shares
    for owner in ("ada", None):
        account = shares.table.account(owner, client="127.0.0.1")
        while not shares.rates.take(account.subject, account.limits, 1, client.clock.now_us):
            pass
    return operation.send()


def by_the_server(_: Operation, example: Mapping[str, Any]) -> None:
    assert json.loads(BY_THE_SERVER[414]) == example


def without_a_type(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(body=b"message=hi")


def broken_rule(operation: Operation, example: Mapping[str, Any]) -> ClientResponse:
    """Break the rule that the example names, where it says."""
    (fault,) = example["errors"]
    where, _, name = fault["path"].partition(".")
    if where == "header":
        return operation.send(headers=((name, "a b"),))
    if where == "body":
        fields = BODIES.get(operation.name, {})
        return operation.send(json={k: v for k, v in fields.items() if k != name})
    least = re.fullmatch(r"must be at least (\d+)", fault["message"])
    value = str(int(least[1]) - 1) if least else "latest"
    mark = "&" if "?" in operation.target() else "?"
    return operation.send(f"{operation.target()}{mark}{name}={value}")


def failing(operation: Operation, _: Mapping[str, Any]) -> ClientResponse | None:
    """A bug strikes whatever is asked for; None where nothing is."""
    faults = [
        operation.world.client.fail_at(which, RuntimeError("a bug"), times=None)
        for which in (ReadBody, Transact)
    ]
    answer, asked = operation.watched()
    for fault in faults:
        fault.disarm()
    return answer if asked & {ReadBody, Transact} else None


def without_the_database(operation: Operation, example: Mapping[str, Any]) -> ClientResponse | None:
    fault = operation.world.client.fail_at(Transact, Unavailable(), times=None)
    answer, asked = operation.watched()
    fault.disarm()
    if example["detail"] != SERVER_BUSY:
        return answer
    assert Transact not in asked or answer.status != 503, "it says itself that it is not now"
    return None


BY_STATUS: Final[Mapping[int, Recipe]] = {
    400: malformed,
    401: without_a_token,
    403: without_a_scope,
    404: absent,
    409: under_way,
    413: too_large,
    414: by_the_server,
    415: without_a_type,
    422: broken_rule,
    429: too_often,
    500: failing,
    503: without_the_database,
}


def uploaded(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    part = b'--b\r\ncontent-disposition: form-data; name="files"; filename="a.gz"\r\n'
    part += b"content-type: application/gzip\r\n\r\n\x1f\x8b\r\n--b--\r\n"
    body = b'--b\r\ncontent-disposition: form-data; name="message"\r\n\r\nhi\r\n' + part
    headers = (("content-type", "multipart/form-data; boundary=b"),)
    return operation.send(body=body, headers=headers)


def unsigned(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send()


def answer_without_json(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(json={"tools": "{"})


def nowhere(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    """An id that no path can have."""
    return operation.send(operation.target(**{operation.parameters[0]: ""}), token="")


def workflow(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(f"{operation.target()}?type=workflow")


def there_already(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(json={"session_id": "s1"})


def beyond_its_messages(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(operation.target(message_index="99"))


def of_no_run(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(operation.target(run_id="no-such"))


def beyond_paths(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(operation.target(user_id="%2e"))


def of_a_channel(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(operation.target(user_id="~channel:help:4911"))


def unequal(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(json={"session_ids": ["s1", "s2"], "session_types": ["agent"]})


def unknown_version(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(f"{operation.target()}?target_version=99")


def failed_migration(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    client = operation.world.client
    client.fail_at(Attempt, StatementFailed("words of the engine"))
    lower = f"{operation.target()}?target_version=2.5.0&allow_data_loss=true"
    return operation.send(lower)


def signed_nonsense(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(body=b"{", headers=signature(b"{"))


def too_many_fields(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    return operation.send(f"{operation.target()}?{'&'.join(f'f{n}' for n in range(257))}")


def without_the_inbox(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    fault = operation.world.client.fail_at(Transact, Unavailable(), times=None)
    answer = operation.send(body=MESSAGE, headers=signature(MESSAGE))
    fault.disarm()
    return answer


def to_a_stranger(operation: Operation, _: Mapping[str, Any]) -> ClientResponse:
    headers = (("content-type", "application/json"),)
    return operation.send(body=b'{"recipient": "4999", "text": "hi"}', headers=headers)


def of_an_approval(operation: Operation, example: Mapping[str, Any]) -> ClientResponse:
    """Answer what may only be read, or what was answered; delete what waits."""
    root = token("root", "platform:admin")
    with Client(Office().platform) as client:
        begin(client, "ada")
        (waiting,) = client.get("/approvals", token=root).json()["data"]
        path = operation.path.replace("{approval_id}", waiting["id"])
        body = BODIES.get(operation.name)
        if "pending" in example["detail"]:
            return client.request(operation.method, path, token=root)
        if "already" in example["detail"]:
            client.request(operation.method, path, json=body, token=root).expect_success()
        who = root if "already" in example["detail"] else token("desk", "approvals:read")
        return client.request(operation.method, path, json=body, token=who)


RECIPES: Final[Mapping[tuple[str, int], Recipe]] = {
    **{(name, 404): without_pages for name in ("get_openapi", "get_docs", "get_redoc")},
    ("get_console", 404): without_pages,
    ("get_oauth2_redirect", 404): without_pages,
    **{(f"create_{kind}_run", 400): uploaded for kind in ("agent", "team")},
    **{(f"continue_{kind}_run", 400): answer_without_json for kind in ("agent", "team")},
    **{(f"continue_{kind}_run", 409): unsigned for kind in ("agent", "team")},
    **{(f"replay_{kind}_run", 409): before_its_end for kind in ("agent", "team")},
    **{
        (f"get_{kind}_run_checkpoint_snapshot", status): recipe
        for kind in ("agent", "team")
        for status, recipe in ((400, beyond_its_messages), (404, of_no_run))
    },
    ("readiness_check", 401): with_a_bad_token,
    ("get_docs_asset", 401): nowhere,
    ("get_console_asset", 401): nowhere,
    ("get_console_part", 401): nowhere,
    ("create_session", 400): workflow,
    ("create_session", 409): there_already,
    ("delete_sessions", 400): unequal,
    ("delete_session", 404): in_no_database,
    ("delete_session_run", 404): in_no_database,
    **{(name, 404): beyond_paths for name in ("erase_user", "export_user")},
    **{(name, 400): of_a_channel for name in ("erase_user", "export_user")},
    ("migrate_database", 400): unknown_version,
    ("migrate_database", 500): failed_migration,
    ("verify_webhook", 403): unsigned,
    ("verify_webhook", 422): too_many_fields,
    ("receive_webhook", 400): signed_nonsense,
    ("receive_webhook", 403): unsigned,
    ("receive_webhook", 503): without_the_inbox,
    ("retry_channel_message", 409): unsigned,
    ("retry_channel_reply", 409): unsigned,
    ("send_channel_message", 409): to_a_stranger,
    ("resolve_approval_approvals__approval_id__resolve_post", 403): of_an_approval,
    ("resolve_approval_approvals__approval_id__resolve_post", 409): of_an_approval,
    ("delete_approval_approvals__approval_id__delete", 409): of_an_approval,
}


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def named(operation: str) -> str:
    webhook = operation in {"verify_webhook", "receive_webhook", "channel_status"}
    return f"{operation}_chat" if webhook else operation


# The document has the other one where a channel has forms: tests/core/api/handlers.
@pytest.mark.parametrize("name", [r.operation for r in ROUTES if r.operation != FORM_ONLY])
def test_the_example_of_each_error_is_what_is_sent(issuer: Issuer, name: str) -> None:
    world = World(issuer)
    world.open()
    operation = world.operation(named(name))

    # The last is that of too many requests: after it there are no others.
    for status, example in sorted(operation.examples(), key=lambda one: one[0] == 429):
        answer = operation.provoke(status, example)
        if answer is None:
            continue
        sent = INCIDENT.sub("incident -", answer.body.decode())
        assert answer.status == status, (name, status, sent)
        assert json.loads(sent) == json.loads(INCIDENT.sub("incident -", json.dumps(example)))
    world.client.close()
