from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import jwt
import pytest

from legation import Platform
from legation.config import Agent, AuthorizationConfig, Model, Team
from legation.effects import Nudge
from legation.store.audit import Changed
from legation.store.failures import Busy, CommitLost, DatabaseFull, StatementFailed, Unavailable
from legation.store.run_keeping import CancelsAsked, FindNeglected
from legation.store.run_reads import FetchEvents
from legation.store.run_steering import CancelRun
from legation.store.runs import AppendEvents, Ended, FinishRun, StartRun
from legation_testing import NEW_YEAR_2026, Client

from ....callers import Issuer, demo

SLOW = "/agents/sloth/runs"
QUICK = "/agents/quick/runs"


def platform(**more: Any) -> Platform:
    return Platform(
        models=(Model("slow", "echo", delay_seconds=5.0),),
        agents=(Agent(id="quick", instructions="Be brief."), Agent(id="sloth", model="slow")),
        teams=(Team(id="desk", members=("quick",)),),
        **more,
    )


@pytest.fixture
def client() -> Generator[Client]:
    with Client(platform) as client:
        yield client


def begun(
    client: Client, session_id: str = "s", path: str = SLOW, **fields: Any
) -> tuple[Any, str]:
    """Begin a run and let it go as far as it can; return the exchange and the run's id."""
    form = {"message": "one two", "stream": False, "session_id": session_id, **fields}
    exchange = client.begin("POST", path, form=form)
    client.settle()
    return exchange, listed(client, session_id)[-1]["run_id"]


def listed(client: Client, session_id: str = "s", **query: Any) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = client.get(SLOW, query={"session_id": session_id, **query}).json()
    return runs


# --- Starting ----------------------------------------------------------------------------------


def test_a_run_returns_what_was_asked_and_what_was_said(client: Client) -> None:
    run = client.run(
        "quick", "hello there", metadata={"m": 1}, images=[{"url": "u", "content": "aGk="}]
    )

    assert (run["status"], run["content"], run["agent_id"]) == ("COMPLETED", "hello there", "quick")
    assert run["metadata"] == {"m": 1}
    assert run["input"] == {"input_content": "hello there", "images": [{"url": "u"}]}
    assert [message["role"] for message in run["messages"]] == ["user", "assistant"]


def test_a_run_of_a_team_has_its_events_under_the_names_of_teams(client: Client) -> None:
    events = client.post("/teams/desk/runs", form={"message": "hello"}).events()

    assert [event.name for event in events][0::5] == ["TeamRunStarted", "TeamRunCompleted"]


def test_a_run_in_the_background_is_accepted_and_goes_on(client: Client) -> None:
    answer = client.post(QUICK, form={"message": "hello", "background": True, "session_id": "s"})
    client.settle()

    assert answer.status == 202
    assert answer.json()["status"] == "PENDING"
    path = f"{QUICK}/{answer.json()['run_id']}"
    assert client.get(path, query={"session_id": "s"}).json()["status"] == "COMPLETED"
    assert client.get(path, query={"session_id": "t"}).status == 404


def test_the_state_of_a_session_is_merged_with_that_of_each_run(client: Client) -> None:
    first = client.run("quick", "a", session_id="s", session_state={"a": {"b": 1}, "c": 1})
    second = client.run("quick", "a", session_id="s", session_state={"a": {"d": 2}, "c": 2})

    assert first["session_state"] == {"a": {"b": 1}, "c": 1}
    assert second["session_state"] == {"a": {"b": 1, "d": 2}, "c": 2}
    assert client.get("/sessions/s").json()["session_state"] == second["session_state"]


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 422),
        ({"message": ""}, 422),
        ({"message": "x", "nonsense": 3}, 422),
        ({"message": "x", "run_id": "mine"}, 422),
        ({"message": "x", "stream": "maybe"}, 422),
        ({"message": "x", "session_id": "a\x01b"}, 422),
        ({"message": "x", "user_id": "a\x01b"}, 422),
        ({"message": "x", "session_id": "."}, 422),
        ({"message": "x", "session_id": "a\x85b"}, 422),
        ({"message": "x", "session_state": "[]"}, 422),
        ({"message": "x", "metadata": "{"}, 422),
        ({"message": "x", "images": "[1]"}, 422),
        ({"message": "x", "version": "abc", "monitor": "true", "stream": False}, 200),
    ],
)
def test_a_form_has_an_effect_or_is_refused(
    client: Client, form: dict[str, Any], status: int
) -> None:
    assert client.post(QUICK, form=form).status == status
    assert client.run("quick", "next")["status"] == "COMPLETED"


@pytest.mark.parametrize(("query", "path"), [("stream=1", "query.stream"), ("%zz", "query")])
@pytest.mark.parametrize("action", ["", "/x/cancel", "/x/continue", "/x/resume"])
def test_what_belongs_into_a_form_is_refused_in_the_query(
    client: Client, action: str, query: str, path: str
) -> None:
    response = client.post(f"{QUICK}{action}?{query}", form={"message": "x"})

    assert response.status == 422
    assert [error["path"] for error in response.json()["errors"]] == [path]


INLINE = "data:image/PNG;base64,iVBORw0KGgo="


@pytest.mark.parametrize("how", ["form", "json"])
def test_a_picture_given_inline_is_kept_as_an_upload_is(client: Client, how: str) -> None:
    media = {
        "images": [{"url": INLINE, "id": "i"}, {"url": "https://example.org/a.png"}],
        "files": [{"url": "data:text/csv;base64,MSwy", "name": "a.csv"}],
    }
    sent = {kind: json.dumps(media[kind]) if how == "form" else media[kind] for kind in media}
    options: Any = {how: {"message": "x", "stream": False, **sent}}
    run = client.post(QUICK, **options).json()

    assert run["input"]["images"] == [
        {"id": "i", "mime_type": "image/png", "size": 8},
        {"url": "https://example.org/a.png"},
    ]
    assert run["input"]["files"] == [{"name": "a.csv", "mime_type": "text/csv", "size": 3}]
    assert run["content"].startswith("x")


@pytest.mark.parametrize(
    ("kind", "item", "path", "message"),
    [
        ("images", {"url": "data:image/png,hi"}, "images[1].url", "must begin with"),
        (
            "images",
            {"url": "data:text/csv;base64,MSwy"},
            "images[1].url",
            "has an unsupported media",
        ),
        ("audio", {"url": INLINE}, "audio[1].url", "has an unsupported media type"),
        ("images", {"url": INLINE[:-1]}, "images[1].url", "must be base64"),
        (
            "images",
            {"url": INLINE, "content": ""},
            "images[1].content",
            "is not allowed together with",
        ),
    ],
)
def test_a_data_url_that_is_wrong_is_refused(
    client: Client, kind: str, item: dict[str, Any], path: str, message: str
) -> None:
    answer = client.post(QUICK, json={"message": "x", kind: [{"url": "https://e.org"}, item]})

    assert answer.status == 422
    (fault,) = answer.json()["errors"]
    assert fault["path"] == f"body.{path}"
    assert fault["message"].startswith(message)
    assert client.run("quick", "next")["status"] == "COMPLETED"


def multipart(*parts: tuple[str, bytes]) -> dict[str, Any]:
    content = b"".join(
        b"--b\r\ncontent-disposition: form-data; " + head.encode() + b"\r\n\r\n" + body + b"\r\n"
        for head, body in parts
    )
    return {
        "headers": {"content-type": "multipart/form-data; boundary=b"},
        "body": content + b"--b--\r\n",
    }


@pytest.mark.parametrize(
    ("media_type", "content", "status", "kept"),
    [
        ("image/png", b"\x89PNG", 200, "images"),
        ("text/plain", b"hi", 200, "files"),
        ("application/x-tar", b"", 200, None),
        ("application/x-tar", b"\x1f\x8b\x08\0", 400, None),
    ],
)
def test_an_upload_is_taken_by_its_type(
    client: Client, media_type: str, content: bytes, status: int, kept: str | None
) -> None:
    file = f'name="files"; filename="f"\r\ncontent-type: {media_type}'
    answer = client.post(
        QUICK, **multipart(('name="message"', b"x"), ('name="stream"', b"false"), (file, content))
    )

    assert answer.status == status
    if kept is not None:
        described = {"filename": "f", "mime_type": media_type, "size": len(content)}
        assert answer.json()["input"][kept] == [described]


def test_a_body_that_is_no_form_is_refused(client: Client) -> None:
    for path in (QUICK, f"{QUICK}/r/cancel", f"{QUICK}/r/continue", f"{QUICK}/r/resume"):
        headers = {"content-type": "application/x-tar"}
        assert client.post(path, body=b"x", headers=headers).status == 415


def test_what_is_unknown_is_not_found(client: Client) -> None:
    for method, path in (
        ("POST", "/agents/nope/runs"),
        ("GET", "/agents/nope/runs?session_id=s"),
        ("GET", "/agents/nope/runs/r"),
        ("GET", f"{QUICK}/r"),
        ("GET", f"{QUICK}/r/events"),
        ("POST", f"{QUICK}/r/cancel"),
        ("POST", f"{QUICK}/r/continue"),
        ("POST", f"{QUICK}/r/resume"),
    ):
        assert client.request(method, path).status == 404, path


def test_a_query_that_is_not_understood_is_refused(client: Client) -> None:
    for path in ("?session_id=s&x=1", "?session_id=s&status=odd", "/r?x=1", "/r/events?x=1"):
        assert client.get(f"{QUICK}{path}").status == 422, path
    for path in ("?%ff", "/r?%ff", "/r/events?%ff"):
        assert client.get(f"{QUICK}{path}").status == 422, path
    for action in ("cancel", "continue", "resume"):
        assert client.post(f"{QUICK}/r/{action}", form={"x": 1}).status == 422
    assert client.post(f"{QUICK}/r/continue", form={"tools": "{"}).status == 400


# --- One after the other -----------------------------------------------------------------------


def test_runs_of_a_session_are_executed_in_the_order_they_were_asked_for(client: Client) -> None:
    exchanges = [begun(client, message=f"m{n}")[0] for n in range(6)]

    assert [run["status"] for run in listed(client)] == ["RUNNING"] + ["PENDING"] * 5
    assert [exchange.response().json()["content"] for exchange in exchanges] == [
        f"m{n}" for n in range(6)
    ]
    assert client.clock.elapsed == pytest.approx(30.0, abs=1)
    assert [run["status"] for run in listed(client, status="COMPLETED")] == ["COMPLETED"] * 6


def test_a_busy_session_rejects_a_run_where_that_is_configured() -> None:
    with Client(lambda: platform(on_busy="reject")) as client:
        first, _ = begun(client)
        refused = client.post(SLOW, form={"message": "x", "session_id": "s"})

        assert (refused.status, refused.json()["error_code"]) == (409, "CONFLICT")
        assert first.response().json()["status"] == "COMPLETED"
        assert len(listed(client)) == 1


def test_a_run_that_takes_too_long_ends_as_a_timeout() -> None:
    with Client(lambda: platform(run_timeout_seconds=2.0)) as client:
        run = begun(client)[0].response().json()

        assert (run["status"], run["content"]) == ("ERROR", "The run took longer than 2 seconds")
        assert client.clock.elapsed == pytest.approx(2.0, abs=0.2)


# --- Cancelling --------------------------------------------------------------------------------


def test_cancelling_breaks_off_the_call_of_the_model_at_once(client: Client) -> None:
    exchange, run_id = begun(client, stream=True)

    assert client.post(f"{SLOW}/{run_id}/cancel").json() == {}
    events = exchange.response().events()

    assert client.clock.elapsed == 0.0
    assert [event.name for event in events] == ["RunStarted", "ModelRequestStarted", "RunCancelled"]
    assert listed(client)[0]["status"] == "CANCELLED"


def test_a_run_that_waits_is_cancelled_and_its_follower_told(client: Client) -> None:
    begun(client)
    waiting, run_id = begun(client, stream=True)
    client.post(f"{SLOW}/{run_id}/cancel", form={"session_id": "s"})

    assert [event.name for event in waiting.response().events()] == ["RunCancelled"]
    assert [run["status"] for run in listed(client)] == ["RUNNING", "CANCELLED"]


def test_cancelling_what_is_over_changes_nothing(client: Client) -> None:
    run = client.run("quick", "hello", session_id="s")

    assert client.post(f"{QUICK}/{run['run_id']}/cancel").status == 200
    assert client.get(f"{QUICK}/{run['run_id']}").json() == run


def test_a_run_that_is_gone_before_it_can_be_cancelled_is_not_found(client: Client) -> None:
    _, run_id = begun(client)
    client.fail_at(CancelRun, Changed(None, kept=False))

    assert client.post(f"{SLOW}/{run_id}/cancel", form={"session_id": "t"}).status == 404
    assert client.post(f"{SLOW}/{run_id}/cancel").status == 404


def test_a_peer_cancels_what_this_node_executes(client: Client) -> None:
    exchange, run_id = begun(client)
    peer = client.peer()
    peer.open()

    assert peer.post(f"{SLOW}/{run_id}/cancel").status == 200
    assert exchange.response().json()["status"] == "CANCELLED"
    assert client.clock.elapsed <= 2.0


def test_a_wish_to_cancel_is_found_with_the_next_events(client: Client) -> None:
    client.fail_at(AppendEvents, Busy("a moment"))
    exchange, run_id = begun(client)
    for hint in (CancelsAsked, Nudge):
        client.fail_at(hint, (), times=None)
    client.post(f"{SLOW}/{run_id}/cancel").expect_success()

    assert exchange.response().json()["status"] == "CANCELLED"
    assert client.clock.elapsed < 1.0


@pytest.mark.parametrize(
    ("state", "detail"),
    [
        ("RUNNING", "run is already running"),
        ("PENDING", "run is already pending"),
        ("CANCELLED", "run is already cancelled"),
        ("COMPLETED", "run is already continued"),
    ],
)
def test_only_a_run_that_waits_for_a_person_can_go_on(
    client: Client, state: str, detail: str
) -> None:
    _, run_id = begun(client)
    if state == "PENDING":
        _, run_id = begun(client)
    elif state == "CANCELLED":
        client.post(f"{SLOW}/{run_id}/cancel")
        client.settle()
    elif state == "COMPLETED":
        client.advance(6)
    answer = client.post(f"{SLOW}/{run_id}/continue", form={"tools": "[]", "stream": False})

    assert (answer.status, answer.json()["detail"]) == (409, detail)


# --- Following ---------------------------------------------------------------------------------


def test_a_client_that_goes_away_leaves_the_run_and_finds_what_it_missed(client: Client) -> None:
    exchange, run_id = begun(client, stream=True)
    seen = exchange.events()
    exchange.disconnect()
    client.advance(6)
    whole = client.get(f"{SLOW}/{run_id}/events").events()
    rest = client.get(f"{SLOW}/{run_id}/events", headers={"last-event-id": f"{run_id}:1"}).events()

    assert [event.id for event in whole] == [f"{run_id}:{n}" for n in range(1, len(whole) + 1)]
    assert whole[-1].name == "RunCompleted"
    assert rest == whole[1:]
    assert seen == whole[: len(seen)] != ()


def test_the_stream_of_a_quiet_run_is_kept_open_by_comments() -> None:
    slow = Model("slow", "echo", delay_seconds=40.0)
    agent = Agent(id="sloth", model="slow")
    with Client(lambda: Platform(models=(slow,), agents=(agent,))) as client:
        answer = client.post(SLOW, form={"message": "x"})

        assert answer.body.count(b": heartbeat\n\n") == 2


def test_bad_places_to_go_on_from_are_refused(client: Client) -> None:
    run = client.run("quick", "hello")
    path = f"{QUICK}/{run['run_id']}/events"

    for value in ("nonsense", "other:1"):
        assert client.get(path, headers={"last-event-id": value}).status == 422


def test_resuming_tells_what_is_missed_and_what_is_live(client: Client) -> None:
    _, run_id = begun(client)
    live = client.post(f"{SLOW}/{run_id}/resume").events()
    rest = client.post(f"{SLOW}/{run_id}/resume", form={"last_event_index": 1}).events()
    over = client.post(f"{SLOW}/{run_id}/resume", form={"last_event_index": 4}).events()

    assert [event.name for event in live] == [
        "catch_up",
        "RunStarted",
        "ModelRequestStarted",
        "subscribed",
        "ModelRequestCompleted",
        "RunContentCompleted",
        "RunCompleted",
    ]
    assert [event.name for event in rest][:2] == ["replay", "ModelRequestCompleted"]
    assert '"event_index":2}' in rest[1].data
    assert [event.name for event in over] == ["replay"]


def test_a_follower_on_another_node_sees_the_same(client: Client) -> None:
    exchange, run_id = begun(client, stream=True)
    peer = client.peer()
    peer.open()

    assert peer.get(f"{SLOW}/{run_id}/events").events() == exchange.response().events()


# --- When something fails ----------------------------------------------------------------------


@pytest.mark.parametrize("unit", [StartRun, AppendEvents, FinishRun])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("failure", [Busy, CommitLost])
def test_a_database_that_fails_for_a_moment_costs_nothing(
    client: Client, unit: type[Any], after: bool, failure: type[Exception]
) -> None:
    if after and failure is Busy:
        return
    fault = client.fail_at(unit, failure("for a moment"), after=after)
    form = {"message": "one two", "session_id": "s", "stream": False}
    exchange = client.begin("POST", SLOW, form=form)
    client.begin("POST", SLOW, form=form)
    run = exchange.response().json()
    client.advance(7)

    assert fault.struck is not None
    assert run["content"] == "one two"
    assert [run["status"] for run in listed(client)] == ["COMPLETED"] * 2


def test_a_run_that_cannot_be_stored_is_not_acknowledged(client: Client) -> None:
    fault = client.fail_at(StartRun, Busy("locked"), times=None)
    assert client.post(QUICK, form={"message": "x", "session_id": "s"}).status == 503
    fault.disarm()
    assert listed(client) == []


def test_a_turn_whose_events_cannot_be_stored_ends_as_an_error(client: Client) -> None:
    client.fail_at(AppendEvents, DatabaseFull("no space"))
    run = begun(client)[0].response().json()

    assert run["status"] == "ERROR"
    assert "incident" in run["content"]
    assert [log.event for log in client.logs if log.level == "error"] == [
        "database_unavailable",
        "run_failed",
    ]


def test_an_end_that_cannot_be_stored_is_told_to_the_operator(client: Client) -> None:
    client.fail_at(FinishRun, StatementFailed("no"), times=40)
    exchange, _ = begun(client)
    client.advance(40)

    assert "run_record_failed" in [log.event for log in client.logs]
    assert exchange.response().json()["status"] == "COMPLETED"  # by who found its lease passed


def test_a_run_whose_lease_is_lost_writes_nothing_more(client: Client) -> None:
    client.fail_at(AppendEvents, None, after=True)
    exchange, run_id = begun(client)

    assert exchange.response().json()["content"] == "one two"
    events = client.get(f"{SLOW}/{run_id}/events").events()
    assert [event.name for event in events][:4] == [
        *("RunStarted", "ModelRequestStarted"),
        *("RunContinued", "ModelRequestStarted"),
    ]


def test_a_run_in_which_nothing_had_happened_is_executed_by_another(client: Client) -> None:
    client.fail_at(AppendEvents, None)
    run = begun(client)[0].response().json()

    assert (run["status"], run["content"]) == ("COMPLETED", "one two")
    assert 30 < client.clock.elapsed < 40


# --- After a crash -----------------------------------------------------------------------------


def test_a_run_whose_node_died_goes_on_and_the_next_one_waits_for_it(client: Client) -> None:
    _, run_id = begun(client)
    begun(client, message="next")
    client.restart()
    client.advance(32)
    first, second = listed(client)

    assert (first["run_id"], first["status"]) == (run_id, "COMPLETED")
    assert first["content"] == "one two"
    client.advance(6)
    assert second["status"] in ("RUNNING", "COMPLETED")
    assert listed(client)[1]["status"] == "COMPLETED"


def test_a_run_that_was_to_be_cancelled_when_its_node_died_is_cancelled(client: Client) -> None:
    client.simulation.nodes[0].place = ""  # nobody sees it die
    client.advance(6)
    _, run_id = begun(client)
    client.crash()
    client.restart()
    assert client.post(f"{SLOW}/{run_id}/cancel").status == 200
    client.advance(42)

    assert listed(client)[0]["status"] == "CANCELLED"


def test_leases_are_kept_as_long_as_the_node_lives() -> None:
    slow = Model("slow", "echo", delay_seconds=100.0)
    agent = Agent(id="sloth", model="slow")
    with Client(lambda: Platform(models=(slow,), agents=(agent,))) as client:
        peer = client.peer()
        peer.open()
        assert begun(client)[0].response().json()["status"] == "COMPLETED"


def test_a_round_that_fails_is_told_and_tried_again(client: Client) -> None:
    client.fail_at(FindNeglected, Busy("locked"))
    client.advance(3)

    assert [log.event for log in client.logs if log.level == "warning"] == ["reaper_round_failed"]


def test_a_run_of_what_is_hosted_no_more_waits_until_it_is_cancelled() -> None:
    hosted = [Agent(id="sloth", model="slow"), Agent(id="quick")]
    slow = Model("slow", "echo", delay_seconds=5.0)
    with Client(lambda: Platform(models=(slow,), agents=tuple(hosted))) as client:
        begun(client)
        client.post(QUICK, form={"message": "x", "session_id": "s", "background": True})
        hosted.pop()
        client.restart()
        client.advance(40)

        runs = client.get("/sessions/s/runs").json()
        assert [run["status"] for run in runs] == ["COMPLETED", "PENDING"]
        client.post(f"{QUICK}/{runs[1]['run_id']}/cancel").expect_success()
        assert client.get("/sessions/s/runs").json()[1]["status"] == "CANCELLED"


def test_who_cancels_the_run_of_a_dead_node_leaves_the_next_to_who_hosts_it() -> None:
    hosted = [Agent(id="sloth", model="slow"), Agent(id="quick")]
    slow = Model("slow", "echo", delay_seconds=5.0)
    with Client(lambda: Platform(models=(slow,), agents=tuple(hosted))) as client:
        client.simulation.nodes[0].place = ""  # nobody sees it die
        client.advance(6)
        _, run_id = begun(client)
        client.post(QUICK, form={"message": "x", "session_id": "s", "background": True})
        client.crash()
        hosted.pop()
        client.restart()
        client.post(f"{SLOW}/{run_id}/cancel").expect_success()
        client.advance(42)

        runs = client.get("/sessions/s/runs").json()
        assert [run["status"] for run in runs] == ["CANCELLED", "PENDING"]


def test_whose_a_run_is_may_be_said_where_everybody_sees_all(client: Client) -> None:
    assert client.run("quick", "x", session_id="s", user_id="ada")["user_id"] == "ada"
    assert client.run("quick", "x", session_id="s")["user_id"] == "ada"


@pytest.mark.parametrize("stream", [False, True])
def test_who_waits_for_a_run_does_not_lose_it_over_a_database_that_is_away_for_a_while(
    client: Client, stream: bool
) -> None:
    client.fail_at(FetchEvents, Unavailable("restarted"), times=10)
    answer = client.post(SLOW, form={"message": "one two", "stream": stream})

    assert answer.status == 200
    assert b"one two" in answer.body


def test_a_run_that_goes_while_its_client_waits_is_told_as_gone(client: Client) -> None:
    exchange, _ = begun(client)
    client.delete("/sessions/s")

    assert exchange.response().status == 409


def test_resuming_a_run_in_which_nothing_has_happened_tells_that_it_is_live(client: Client) -> None:
    begun(client)
    _, run_id = begun(client)
    events = client.post(f"{SLOW}/{run_id}/resume").events()

    assert [event.name for event in events][:2] == ["subscribed", "RunStarted"]


def test_who_recovers_too_late_leaves_the_run_to_who_was_first(client: Client) -> None:
    client.simulation.nodes[0].place = ""  # nobody sees it die
    client.advance(6)
    _, run_id = begun(client)
    client.crash()
    client.restart()
    client.post(f"{SLOW}/{run_id}/cancel").expect_success()
    client.fail_at(FinishRun, Ended(kept=False))
    client.advance(42)

    assert [run["status"] for run in listed(client)] == ["CANCELLED"]


# --- Whose it is -------------------------------------------------------------------------------

SECRET = "s" * 32


def bearer(subject: str | None) -> str:
    claims: dict[str, Any] = {"exp": NEW_YEAR_2026 // 1_000_000 + 3600}
    claims["scopes"] = ["agents:run", "agents:read", "sessions:read"]
    if subject is not None:
        claims["sub"] = subject
    return jwt.encode(claims, SECRET, algorithm="HS256")


def guarded() -> Platform:
    keys = AuthorizationConfig(verification_keys=(SECRET,), algorithm="HS256")
    return platform(authorization=True, authorization_config=keys)


def test_another_subject_finds_nothing_of_a_run() -> None:
    with Client(guarded, token=bearer("ada")) as client:
        _, run_id = begun(client)
        eve = bearer("eve")

        for action in ("cancel", "continue", "resume"):
            assert client.post(f"{SLOW}/{run_id}/{action}", token=eve).status == 404
        for path in (f"{SLOW}/{run_id}", f"{SLOW}/{run_id}/events", "/sessions/s"):
            assert client.get(path, token=eve).status == 404
        assert client.get(f"{SLOW}?session_id=s&user_id=ada", token=eve).json() == []
        form = {"message": "x", "session_id": "s", "user_id": "ada", "stream": False}
        assert client.post(QUICK, form=form, token=eve).json()["user_id"] == "eve"
        assert [run["status"] for run in listed(client)] == ["RUNNING"]


def test_a_token_without_a_subject_runs_and_owns_nothing() -> None:
    with Client(guarded, token=bearer(None)) as client:
        run = client.run("quick", "x", session_id="s")

        assert run["status"] == "COMPLETED"
        assert client.get(f"{QUICK}/{run['run_id']}").status == 404
        form = {"message": "x"}
        assert client.post(QUICK, form=form, headers={"idempotency-key": "k"}).status == 422


def test_an_administrators_token_for_a_session_continues_that_of_whom_it_names() -> None:
    issuer = Issuer()
    with Client(lambda: demo(issuer)) as client:
        client.token = issuer.token("agents:run")
        client.run("alpha", "x", session_id="s")
        client.token = issuer.token("platform:admin", sub="root", session_id="s")
        own, other = client.run("alpha", "y"), client.run("alpha", "z", user_id="ada")

        assert (own["session_id"], own["user_id"]) == ("s", "root")
        assert (other["session_id"], other["user_id"]) == ("s", "ada")
