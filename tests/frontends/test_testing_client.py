"""A platform in this process, called by requests."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import frozen

import legation
from legation import Agent, Platform, PlatformLimits, Team, tool
from legation.effects import (
    AwaitNudge,
    Emit,
    Fetch,
    FetchReply,
    Job,
    Log,
    Now,
    Program,
    RandomBytes,
    ReadBody,
    Record,
    Sleep,
    Spawn,
    ThisNode,
    Transact,
)
from legation.http.messages import (
    Answer,
    Request,
    Response,
    Streamed,
    empty_response,
    json_response,
    text_response,
)
from legation.http.sse import encode
from legation.models.conversation import Prompt
from legation.store.audit import AuditEntry
from legation.store.failures import Busy
from legation_testing import (
    BadResponse,
    Client,
    ClientResponse,
    Crashed,
    NotAnEventStream,
    Refused,
    ScriptedModel,
    ServerSentEvent,
    Trials,
    call,
    crash_everywhere,
)
from legation_testing.scripted_model import Step

from .parcels import Accept, Deliveries, accept, create_tables, deliver

SSE = ((b"content-type", b"text/event-stream"),)


@frozen
class Worker:
    """Deliver one parcel after the other."""

    def program(self) -> Program[None]:
        while True:
            yield from deliver()


class Depot:
    """A platform of the tests' own."""

    databases: ClassVar[Mapping[str, str]] = {"main": "sqlite:///depot.db"}

    def __init__(self) -> None:
        self.answered = 0

    def startup(self) -> Program[None]:
        yield from create_tables()

    def jobs(self) -> tuple[Job, ...]:
        return (Worker(),)

    def write_audit(self, entries: tuple[AuditEntry, ...]) -> Program[None]:
        yield from Log("info", "audit stored")

    def answer(self, request: Request) -> Program[Answer]:
        self.answered += 1
        path = urlsplit(request.target).path
        return (yield from ROUTES[path](request))


def take_parcel(request: Request) -> Program[Answer]:
    body = yield from ReadBody(100)
    if body is None:
        return text_response(413, "too large")
    parcel = json.loads(body)["id"]
    yield from accept(parcel)
    return json_response(201, {"id": parcel})


def list_parcels(request: Request) -> Program[Answer]:
    return json_response(200, (yield from Transact("main", Deliveries())))


def run_agent(request: Request) -> Program[Answer]:
    body = yield from ReadBody(1_000)
    form = parse_qs((body or b"").decode())
    run_id = (yield from RandomBytes(4)).hex()
    if form["message"] == ["refuse"]:
        return json_response(422, {"detail": "message: refused"})
    if form["stream"] == ["false"]:
        return json_response(200, {"run_id": run_id, **{k: v[0] for k, v in form.items()}})
    return Streamed(200, SSE, stream_words(form["message"][0].split()))


def stream_words(words: list[str]) -> Program[None]:
    for word in words:
        yield from Emit(encode("RunContent", json.dumps({"content": word})))
        yield from Sleep(1.0)


def show_request(request: Request) -> Program[Answer]:
    yield from Record(AuditEntry(1, "q", None, None, "show", "", "open", "", 200, request.client))
    fields = [[name.decode(), value.decode()] for name, value in request.headers]
    body = yield from ReadBody(1_000)
    shown = {"target": request.target, "headers": fields, "body": (body or b"").decode()}
    return json_response(200, {"method": request.method, **shown})


def name_node(request: Request) -> Program[Answer]:
    return text_response(200, (yield from ThisNode()))


def answer_nothing(request: Request) -> Program[Answer]:
    yield from Now()
    return empty_response(204)


def answer_badly(request: Request) -> Program[Answer]:
    yield from Now()
    kind = parse_qs(urlsplit(request.target).query)["kind"][0]
    return BAD[kind]


def fail(request: Request) -> Program[Answer]:
    yield from Now()
    raise KeyError("planted")


def sse_cut_short(request: Request) -> Program[Answer]:
    yield from Now()
    return Response(200, ((b"content-length", b"8"), *SSE), b"event: X")


def stream_halves(request: Request) -> Program[Answer]:
    yield from Now()

    def body() -> Program[None]:
        yield from Emit(b"event: X\ndata: 1\n\nevent: Y\n")
        yield from Sleep(1.0)
        yield from Emit(b"data: 2\n\n")

    return Streamed(200, SSE, body())


BAD = {
    "length": Response(200, ((b"content-length", b"5"),), b"abc"),
    "no-length": Response(200, (), b"abc"),
    "no-content": Response(204, (), b"abc"),
    "head": Response(200, ((b"content-length", b"3"),), b"abc"),
}

ROUTES: dict[str, Callable[[Request], Program[Answer]]] = {
    "/parcels": take_parcel,
    "/deliveries": list_parcels,
    "/agents/concierge/runs": run_agent,
    "/agents/a%2Fb/runs": run_agent,
    "/show": show_request,
    "/node": name_node,
    "/nothing": answer_nothing,
    "/bad": answer_badly,
    "/fail": fail,
    "/halves": stream_halves,
    "/cut": sse_cut_short,
}


def open_door(effect: Fetch) -> FetchReply:
    """Let every parcel in."""
    return FetchReply(204, {}, b"")


def test_a_person_can_write_this() -> None:
    platform = legation.Platform(agents=[legation.Agent(id="concierge", model="echo")])

    with Client(platform) as client:
        assert client.run("concierge", "hi")["content"] == "hi"


def test_the_same_seed_gives_the_same_bytes() -> None:
    def responses(seed: int) -> list[ClientResponse]:
        with Client(Depot(), seed=seed) as client:
            form = {"message": "hi", "stream": False}
            return [client.post("/agents/concierge/runs", form=form) for _ in range(2)]

    assert responses(1) == responses(1)
    assert responses(1) != responses(2)
    assert responses(1)[0] != responses(1)[1]


# Requests


def test_a_request_has_a_host_and_what_its_content_needs() -> None:
    with Client(Depot()) as client:
        shown = client.get("/show").json()
        posted = client.post("/show", json={"a": "ö"}).json()

    assert shown["method"] == "GET"
    assert shown["headers"] == [["host", "legation.test"]]
    assert posted["headers"] == [
        ["host", "legation.test"],
        ["content-type", "application/json"],
        ["content-length", "10"],
    ]
    assert posted["body"] == '{"a":"ö"}'


def test_headers_that_are_given_are_not_added_again() -> None:
    with Client(Depot(), token="t") as client:
        shown = client.get("/show", headers={"Host": "h", "Authorization": "Basic x"}).json()

    assert shown["headers"] == [["host", "h"], ["authorization", "Basic x"]]


@pytest.mark.parametrize(
    ("token", "expected"), [(None, "Bearer one"), ("two", "Bearer two"), ("", None)]
)
def test_a_token_is_sent_as_bearer_token(token: str | None, expected: str | None) -> None:
    with Client(Depot(), token="one") as client:
        shown = client.get("/show", token=token).json()

    assert dict(shown["headers"]).get("authorization") == expected


def test_headers_may_repeat() -> None:
    with Client(Depot()) as client:
        shown = client.get("/show", headers=[("x", "1"), ("x", "2")]).json()

    assert shown["headers"][:2] == [["x", "1"], ["x", "2"]]


def test_a_query_is_quoted_and_added() -> None:
    with Client(Depot()) as client:
        shown = client.get("/show", query={"q": "a b&c", "x": ["1", "2"]}).json()

    assert shown["target"] == "/show?q=a+b%26c&x=1&x=2"


def test_a_form_carries_text_as_it_is_and_all_else_as_json() -> None:
    form = {"message": "hi there", "stream": False, "state": {"a": 1}, "text": "true"}
    with Client(Depot()) as client:
        shown = client.post("/show", form=form).json()

    assert parse_qs(shown["body"]) == {
        "message": ["hi there"],
        "stream": ["false"],
        "state": ['{"a":1}'],
        "text": ["true"],
    }


@pytest.mark.parametrize("method", ["get", "post", "patch", "delete"])
def test_there_is_a_word_for_each_usual_method(method: str) -> None:
    with Client(Depot()) as client:
        assert getattr(client, method)("/show").json()["method"] == method.upper()


def test_a_body_over_the_limit_is_not_read() -> None:
    with Client(Depot()) as client:
        assert client.post("/parcels", body=bytes(101)).status == 413


def test_an_agent_is_run_and_its_run_returned() -> None:
    with Client(Depot(), seed=1) as client:
        run = client.run("concierge", "hi", session_id="s1", metadata={"a": 1})

        assert client.run("a/b", "hi")["message"] == "hi"
    assert {**run, "run_id": ""} == {
        "run_id": "",
        "message": "hi",
        "stream": "false",
        "session_id": "s1",
        "metadata": '{"a":1}',
    }


@pytest.mark.parametrize("ask", ["run", "stream"])
def test_a_run_that_is_refused_says_with_what(ask: str) -> None:
    with (
        Client(Depot()) as client,
        pytest.raises(Refused, match=r'422: {"detail":"message: refused"}') as refused,
    ):
        getattr(client, ask)("concierge", "refuse")

    assert refused.value.response.status == 422


def test_a_stream_is_a_tuple_of_events() -> None:
    with Client(Depot()) as client:
        events = client.post("/agents/concierge/runs", form=stream("a b")).events()

        assert [event.name for event in events] == ["RunContent"] * 2
        assert [event.json()["content"] for event in events] == ["a", "b"]
        assert client.clock.elapsed == 2.0


def test_event_without_the_members_of_a_run_is_refused() -> None:
    lacks = r"^the event RunContent has no run_id, session_id, created_at$"
    with Client(Depot()) as client, pytest.raises(BadResponse, match=lacks):
        client.stream("concierge", "a b")


def test_a_stream_that_breaks_the_format_is_refused() -> None:
    with Client(Depot()) as client, pytest.raises(NotAnEventStream):
        client.get("/cut").events()


# Responses


def test_headers_of_a_response_are_found_in_any_case() -> None:
    with Client(Depot()) as client:
        response = client.get("/node")

    assert response.header("Content-Type") == "text/plain; charset=utf-8"
    assert response.header("x-none") is None
    assert response.text == "node-1"


def test_a_response_without_content_is_complete() -> None:
    with Client(Depot()) as client:
        assert client.get("/nothing").status == 204


@pytest.mark.parametrize(
    ("method", "kind", "words"),
    [
        ("GET", "length", "content-length 5, and a body of 3 bytes"),
        ("GET", "no-length", "a whole body without content-length"),
        ("GET", "no-content", "GET 204 with a body of 3 bytes"),
        ("HEAD", "head", "HEAD 200 with a body of 3 bytes"),
    ],
)
def test_a_response_that_no_host_could_send_is_refused(method: str, kind: str, words: str) -> None:
    with Client(Depot()) as client, pytest.raises(BadResponse, match=words):
        client.request(method, f"/bad?kind={kind}")


def test_what_the_platform_raises_comes_out() -> None:
    with Client(Depot()) as client, pytest.raises(KeyError, match="planted"):
        client.get("/fail")


def test_an_error_of_the_test_is_not_hidden_by_one_of_a_job() -> None:
    with pytest.raises(ZeroDivisionError), Client(Depot()) as client:
        client.begin("GET", "/fail")
        client.settle()
        raise ZeroDivisionError


def test_an_error_that_nobody_asked_for_comes_out_at_the_end() -> None:
    with pytest.raises(KeyError, match="planted"), Client(Depot()) as client:
        client.begin("GET", "/fail")
        client.settle()


def test_a_start_that_fails_comes_out_and_leaves_nothing_open(tmp_path: Path) -> None:
    class Broken(Depot):
        def startup(self) -> Program[None]:
            yield from create_tables()
            raise KeyError("planted")

    with pytest.raises(KeyError, match="planted"), Client(Broken(), folder=tmp_path):
        pass

    assert [path.name for path in tmp_path.iterdir()] == ["main.db"]  # no WAL: it was closed


# Time, jobs, and what can be looked at


def test_jobs_go_on_when_they_are_let() -> None:
    with Client(Depot(), fetch=open_door) as client:
        assert client.post("/parcels", json={"id": "p"}).status == 201
        client.settle()

        assert client.get("/deliveries").json() == {"p": 1}


def test_effects_audit_and_logs_can_be_looked_at() -> None:
    with Client(Depot()) as client:
        client.get("/show")
        client.settle()

        assert ("GET /show", "node-1") in {(e.program, e.node) for e in client.effects}
        assert [entry.operation for entry in client.audit] == ["show"]
        assert client.logs == [Log("info", "audit stored")]


def test_a_request_under_way_is_seen_in_part() -> None:
    with Client(Depot()) as client:
        exchange = client.begin("POST", "/agents/concierge/runs", form=stream("a b c"))
        assert exchange.received == b""
        client.advance(1.5)

        assert [event.json()["content"] for event in exchange.events()] == ["a", "b"]
        assert not exchange.done
        assert len(exchange.response().events()) == 3
        assert exchange.done


def stream(message: str) -> dict[str, Any]:
    """Return the form of a streamed run."""
    return {"message": message, "stream": True}


def test_a_client_that_hangs_up_closes_the_program() -> None:
    with Client(Depot()) as client:
        exchange = client.begin("POST", "/agents/concierge/runs", form=stream("a b c"))
        client.advance(0.5)
        exchange.disconnect()
        client.advance(10.0)

        assert exchange.done
        assert exchange.events() == (ServerSentEvent("RunContent", '{"content": "a"}'),)


def test_an_event_that_is_not_whole_yet_is_not_shown() -> None:
    with Client(Depot()) as client:
        exchange = client.begin("GET", "/halves")
        client.advance(0.5)

        assert exchange.received == b"event: X\ndata: 1\n\nevent: Y\n"
        assert exchange.events() == (ServerSentEvent("X", "1"),)


# Faults, crashes, nodes


def test_an_effect_can_be_made_to_fail() -> None:
    with Client(Depot()) as client:
        client.fail_at(Accept, Busy())
        with pytest.raises(Busy):
            client.post("/parcels", json={"id": "p"})
        assert client.post("/parcels", json={"id": "p"}).status == 201


def test_a_restart_makes_a_new_platform_on_the_old_databases() -> None:
    with Client(Depot, fetch=open_door) as client:
        client.post("/parcels", json={"id": "p"})
        old = client.platform
        client.restart()

        assert "p" in client.get("/deliveries").json()
        assert client.get("/node").text == "node-2"
        assert client.platform is not old


def test_a_client_begins_with_all_requests_that_its_limits_allow() -> None:
    limits = PlatformLimits(requests_per_second=0.5, request_burst=2)
    platform = Platform(agents=[Agent(id="concierge")], limits=limits)
    asked: list[list[int]] = []
    for _ in range(2):
        with Client(platform) as client:
            asked.append([client.get("/agents").status for _ in range(3)])

    assert asked == [[200, 200, 429], [200, 200, 429]]


def test_databases_can_be_files(tmp_path: Path) -> None:
    for status in (201, None):
        with Client(Depot(), folder=tmp_path) as client:
            if status:
                assert client.post("/parcels", json={"id": "p"}).status == status
            assert client.get("/deliveries").json() == {"p": 0}

    assert (tmp_path / "main.db").exists()


@pytest.mark.parametrize(
    "databases", [("main", "other"), {"main": ":memory:", "other": ":memory:"}]
)
def test_databases_can_be_named(databases: Any) -> None:
    with Client(Depot(), databases=databases) as client:
        assert client.get("/deliveries").json() == {}


def test_a_platform_needs_no_more_than_to_answer() -> None:
    class Bare:
        def answer(self, request: Request) -> Program[Answer]:
            return name_node(request)

    with Client(Bare()) as client:
        assert client.get("/").text == "node-1"


def test_every_crash_is_stood_from_the_start_on() -> None:
    def act(client: Client) -> None:
        client.post("/parcels", json={"id": "p"})
        client.settle()

    def check(client: Client) -> None:
        client.advance(60.0)
        if "p" not in client.get("/deliveries").json():
            client.post("/parcels", json={"id": "p"})
        client.simulation.start(deliver(patience=5.0), node=client.node)
        client.advance(60.0)
        assert client.get("/deliveries").json() == {"p": 1}

    tried = crash_everywhere(lambda: Client(Depot, fetch=open_door), act, check)

    assert tried.by_effect["Transact"] == 6
    assert tried.points == 14


def test_the_start_of_a_client_that_is_open_already_is_not_tried() -> None:
    def make() -> Client:
        client = Client(Depot)
        client.open()
        client.settle()
        return client

    def check(client: Client) -> None:
        assert client.get("/node").text.startswith("node-")

    tried = crash_everywhere(make, lambda client: client.get("/deliveries"), check)

    assert tried == Trials(1, {"Transact": 1})


def test_a_killed_client_answers_again_after_a_restart() -> None:
    with Client(Depot) as client:
        client.crash_at(1)
        with pytest.raises(Crashed):
            client.get("/node")
        client.restart()

        assert client.get("/node").text == "node-2"


def test_two_processes_share_databases_and_the_clock() -> None:
    with Client(Depot, fetch=open_door) as one, one.peer() as two:
        one.post("/parcels", json={"id": "p"})
        assert two.get("/node").text == "node-2"
        one.crash()
        two.advance(3.0)

        assert "p" in two.get("/deliveries").json()
        assert one.clock is two.clock


def test_closing_a_peer_leaves_the_others() -> None:
    with Client(Depot) as one:
        with one.peer() as two:
            two.simulation.start(AwaitNudge("x", math.inf).__iter__(), node=two.node)
        assert one.get("/node").text == "node-1"


def test_background_work_of_a_request_goes_on_after_the_response() -> None:
    @frozen
    class Later:
        def program(self) -> Program[None]:
            yield from Sleep(5.0)
            yield from Log("info", "later")

    class Spawning:
        def answer(self, request: Request) -> Program[Answer]:
            yield from Spawn(Later())
            return empty_response(204)

    with Client(Spawning()) as client:
        client.get("/")
        client.settle()
        assert client.logs == []
        client.advance(5.0)
        assert client.logs == [Log("info", "later")]


# --- Teams, and people in the loop ---------------------------------------------------------------


@tool(requires_confirmation=True)
def book(room: int) -> str:
    return f"room {room} is booked"


@tool(external_execution=True)
def pay(amount: int) -> str:
    raise AssertionError(amount)


def last(prompt: Prompt) -> str:
    return prompt.messages[-1].content


def crew(*says: Step) -> Client:
    wanted = call("delegate_task_to_member", member_id="ann", task="x")
    leader = ScriptedModel([wanted, last])
    ann = Agent(id="ann", model=ScriptedModel([*says, last]), tools=[book, pay])
    return Client(Platform(agents=[ann], teams=[Team(id="desk", model=leader, members=["ann"])]))


def test_team_is_run_and_streamed() -> None:
    with crew("hi") as client:
        assert client.run_team("desk", "x", session_id="s")["content"] == "hi"
    with crew("hi") as client:
        names = [event.name for event in client.stream_team("desk", "x")]
        assert (names[0], names[4], names[-1]) == (
            "TeamRunStarted",
            "RunStarted",
            "TeamRunCompleted",
        )


@pytest.mark.parametrize(
    ("wanted", "answer", "told"),
    [
        (call("book", room=7), {"confirmed": True}, "room 7 is booked"),
        (call("pay", amount=3), {"result": "paid"}, "paid"),
    ],
)
def test_what_a_run_waits_for_is_answered(wanted: Any, answer: Any, told: str) -> None:
    with crew(wanted) as client:
        assert client.go_on(client.run("ann", "x"), **answer)["content"] == told
    with crew(wanted) as client:
        assert client.go_on(client.run_team("desk", "x"), **answer)["content"] == told


def test_run_that_waits_for_nothing_is_refused() -> None:
    with crew("hi") as client, pytest.raises(Refused) as caught:
        client.go_on({**client.run("ann", "x"), "requirements": []})

    assert caught.value.response.status == 409
