"""Channels as operators see them, through the platform's door."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from attrs import evolve

from legation import Agent, Database
from legation.api.handlers.channels import SURVEY_SECONDS, survey
from legation.config import AuthorizationConfig
from legation.effects import (
    Concurrently,
    Effect,
    Fetch,
    FetchReply,
    Interrupted,
    Interruptible,
    Now,
    Unreachable,
)
from legation.store.failures import Busy, StatementFailed, Unavailable
from legation.store.leased_queue import CountItems
from legation.store.runs import StartRun
from legation_testing import Client, effects_of, play

from ....providers.deliveries import channels, platform, whatsapp
from ....providers.strict import WhatsAppApi

SECRET = "s" * 32


def deliver(c: Client, *texts: tuple[str, str, str]) -> None:
    sent = whatsapp(*texts)
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def refusing(_: Fetch) -> FetchReply:
    return FetchReply(400, {}, b'{"error": {"code": 100}}')


def test_a_channel_shows_what_waits_how_old_it_is_and_what_is_dead() -> None:
    with Client(platform, fetch=lambda _: Unreachable("connect")) as c:
        deliver(c, ("4911", "a", "hi"))
        c.advance(90)
        first = c.get("/channels").json()[0]

    assert first == {
        "id": "whatsapp",
        "kind": "whatsapp",
        "agent_id": "concierge",
        "db_id": "main",
        "messages": {"ready": 0, "in_work": 0, "oldest_seconds": None, "dead": 0},
        "replies": {"ready": 1, "in_work": 0, "oldest_seconds": 90, "dead": 0},
    }


def test_dead_letters_are_counted_and_ready_tells_of_them() -> None:
    with Client(platform, fetch=refusing) as c:
        deliver(c, ("4911", "a", "hi"))
        c.settle()
        told = c.get("/ready")

        assert told.status == 200
        assert told.json()["channels"][0]["replies"]["dead"] == 1
        assert told.json()["channels"] == c.get("/channels").json()


def test_a_platform_without_channels_says_nothing_of_them() -> None:
    with Client(lambda: platform(channels=())) as c:
        assert "channels" not in c.get("/ready").json()
        assert c.get("/channels").json() == []


def test_a_database_that_does_not_answer_leaves_its_channels_uncounted() -> None:
    with Client(platform) as c:
        c.fail_at(
            lambda effect: isinstance(getattr(effect, "unit", None), CountItems),
            Unavailable("x"),
        )
        first = c.get("/channels").json()[0]

    assert (first["messages"], first["replies"]) == (None, None)


def test_a_database_that_is_silent_is_not_waited_for() -> None:
    asked = Interruptible(iter(Now()), "survey:main", SURVEY_SECONDS)

    def answer(effect: Effect) -> Any:
        if not isinstance(effect, Concurrently):
            return 0
        return tuple(play(one, [(asked, Interrupted("timeout"))]) for one in effect.programs)

    _, told = effects_of(survey(platform().registry), answer)

    assert told
    assert {channel["messages"] for channel in told} == {None}


def test_a_database_that_does_not_answer_hides_no_other() -> None:
    def two() -> Any:
        made = channels("http://127.0.0.1:9")
        return platform(
            databases=[Database("main", "sqlite://"), Database("other", "sqlite://")],
            agents=[Agent(id="concierge"), Agent(id="second", database="other")],
            channels=[made[0], evolve(made[3], agent="second")],
        )

    with Client(two) as c:
        c.fail_at(_unit(CountItems), Unavailable("x"))
        first, second = c.get("/channels").json()

    assert (first["messages"], second["messages"]["ready"]) == (None, 0)


def test_each_channel_is_counted_in_its_own_database() -> None:
    def two() -> Any:
        return platform(
            databases=[Database("main", "sqlite://"), Database("other", "sqlite://")],
            agents=[Agent(id="concierge", database="other")],
        )

    with Client(two, fetch=refusing) as c:
        deliver(c, ("4911", "a", "hi"))
        c.settle()

        assert c.get("/channels").json()[0]["db_id"] == "other"
        assert c.get("/channels").json()[0]["replies"]["dead"] == 1


# --- messages ----------------------------------------------------------------------------------


def test_messages_come_in_pages_newest_first_without_their_text() -> None:
    with Client(platform, fetch=WhatsAppApi()) as c:
        for number in range(7):
            deliver(c, (f"49{number}", f"m{number}", "canary"), ("4911", f"n{number}", "canary"))
        c.settle()
        names: list[str] = []
        after: str | None = ""
        while after is not None:
            query = {"state": "done", "limit": "4"} | ({"after": after} if after else {})
            answer = c.get("/channels/whatsapp/messages", query=query)
            assert "canary" not in answer.text
            page = answer.json()
            names += [row["id"] for row in page["data"]]
            after = page["meta"]["next"]
            target = f'<?state=done&limit=4&after={after}>; rel="next"'
            assert answer.header("link") == (None if after is None else target)

    assert len(names) == 14
    assert set(names) == {f"{letter}{number}" for letter in "mn" for number in range(7)}


def test_replies_come_in_pages_too() -> None:
    with Client(platform, fetch=refusing) as c:
        for number in range(5):
            deliver(c, (f"49{number}", f"m{number}", "canary"))
        c.settle()
        answer = c.get("/channels/whatsapp/replies?limit=3")
        first = answer.json()
        target = f"?limit=3&after={first['meta']['next']}"
        assert answer.header("link") == f'<{target}>; rel="next"'
        rest = c.get(
            "/channels/whatsapp/replies", query={"limit": "3", "after": first["meta"]["next"]}
        ).json()

    assert first["meta"]["state"] == "dead"
    assert rest["meta"]["next"] is None
    assert [len(first["data"]), len(rest["data"])] == [3, 2]
    assert {row["error"] for row in first["data"]} == {"HTTP 400: code 100"}


def test_one_message_comes_with_its_replies() -> None:
    with Client(platform, fetch=WhatsAppApi()) as c:
        deliver(c, ("4911", "a", "x" * 5000))
        c.settle()
        told = c.get("/channels/whatsapp/messages/a").json()

    run_id = told.pop("run_id")
    assert len(run_id) == 36
    replies = told.pop("replies")
    assert told == {
        "id": "a",
        "sender": "4911",
        "state": "done",
        "received_at": "2026-01-01T00:00:00Z",
        "next_attempt_at": None,
        "attempts": 1,
        "error": None,
        "session_owner": "~channel:whatsapp:4911",
        "done_at": "2026-01-01T00:00:00Z",
    }
    assert [(reply["id"], reply["state"]) for reply in replies] == [
        ("reply-a", "sent"),
        ("reply.2-a", "sent"),
    ]
    assert replies[0]["sent_at"] == "2026-01-01T00:00:00Z"


def test_what_waits_shows_when_it_is_tried_again() -> None:
    with Client(platform, fetch=lambda _: FetchReply(429, {"retry-after": "60"}, b"")) as c:
        c.fail_at(_unit(StartRun), Busy("x"), times=9)
        deliver(c, ("4911", "a", "hi"), ("4922", "b", "/new"))
        c.settle()
        (message,) = c.get("/channels/whatsapp/messages?state=ready").json()["data"]
        (reply,) = c.get("/channels/whatsapp/replies?state=ready").json()["data"]

    assert message["next_attempt_at"] == "2026-01-01T00:00:00Z"
    assert reply["next_attempt_at"] == "2026-01-01T00:01:00Z"


def _unit(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda effect: isinstance(getattr(effect, "unit", None), kind)


@pytest.mark.parametrize(
    "query",
    [
        "state=lost",
        "limit=0",
        "limit=201",
        "after=x",
        "after=%25",
        f"after={urlsafe_b64encode(b'1.2').decode()}",
        f"after={urlsafe_b64encode(b'-1.2.x').decode()}",
        f"after={urlsafe_b64encode(b'1.99999999999999999999.x').decode()}",
        f"after={urlsafe_b64encode(bytes([255])).decode()}",
        "page=2",
        "after=%ff",
    ],
)
@pytest.mark.parametrize("what", ["messages", "replies"])
def test_a_page_that_makes_no_sense_is_invalid(what: str, query: str) -> None:
    with Client(platform) as c:
        answer = c.get(f"/channels/whatsapp/{what}?{query}")

        assert answer.status == 422
        assert answer.json()["errors"]


def test_a_list_of_channels_takes_no_fields() -> None:
    with Client(platform) as c:
        assert c.get("/channels?page=1").status == 422
        assert c.get("/channels?page=%ff").status == 422


@pytest.mark.parametrize(
    ("method", "path", "detail"),
    [
        ("GET", "/channels/nobody/messages", "Channel not found"),
        ("GET", "/channels/nobody/replies", "Channel not found"),
        ("GET", "/channels/nobody/messages/a", "Channel not found"),
        ("POST", "/channels/nobody/messages/a/retry", "Channel not found"),
        ("GET", "/channels/whatsapp/messages/a", "Message with ID a not found"),
        ("POST", "/channels/whatsapp/messages/a/retry", "Message with ID a not found"),
    ],
)
def test_what_is_not_there_is_not_found(method: str, path: str, detail: str) -> None:
    with Client(platform) as c:
        answer = c.request(method, path)

        assert (answer.status, answer.json()["detail"]) == (404, detail)


# --- trying again ------------------------------------------------------------------------------


def test_a_dead_reply_is_sent_when_an_operator_asks() -> None:
    provider = WhatsAppApi()
    broken = [True]

    def network(fetch: Fetch) -> FetchReply:
        return refusing(fetch) if broken else provider(fetch)

    with Client(platform, fetch=network) as c:
        deliver(c, ("4911", "a", "hi"))
        c.settle()
        broken.clear()
        retried = c.post("/channels/whatsapp/messages/a/retry")
        c.settle()

        assert retried.json() == {"id": "a", "message_retried": False, "replies_retried": 1}
        assert c.post("/channels/whatsapp/messages/a/retry").status == 409
    assert [message.text for message in provider.seen] == ["hi"]


def test_a_dead_message_is_answered_when_an_operator_asks() -> None:
    provider = WhatsAppApi()
    with Client(platform, fetch=provider) as c:
        fault = c.fail_at(_unit(StartRun), StatementFailed("x"), times=None)
        deliver(c, ("4911", "a", "hi"))
        for _ in range(40):
            c.advance(2)
            c.clock.set_forward(300)
        fault.disarm()
        retried = c.post("/channels/whatsapp/messages/a/retry")
        c.settle()

        assert retried.json() == {"id": "a", "message_retried": True, "replies_retried": 0}
        replies = c.get("/channels/whatsapp/messages/a").json()["replies"]
        assert [reply["id"] for reply in replies] == ["apology-a", "reply-a"]
    assert [message.text for message in provider.seen][1:] == ["hi"]


# --- who may -----------------------------------------------------------------------------------

READ = ("/channels/whatsapp/messages", "/channels/whatsapp/replies")


def token(*scopes: str) -> str:
    claims = {"sub": "ada", "scopes": list(scopes), "exp": 1_767_225_600 + 3600}
    return jwt.encode(claims, SECRET, "HS256")


@pytest.mark.parametrize(
    ("scopes", "listed", "read", "write"),
    [
        ((), None, 403, 403),
        (("channels:read",), 5, 200, 403),
        (("channels:write",), None, 403, 404),
        (("channels:whatsapp:read",), 1, 200, 403),
        (("channels:slack:read",), 1, 403, 403),
        (("channels:*:read",), 5, 200, 403),
        (("channels:whatsapp:write", "channels:whatsapp:read"), 1, 200, 404),
        (("agents:read", "sessions:read"), None, 403, 403),
        (("platform:admin",), 5, 200, 404),
    ],
)
def test_scopes_decide_what_of_channels_a_caller_may(
    scopes: tuple[str, ...], listed: int | None, read: int, write: int
) -> None:
    configuration = AuthorizationConfig(verification_keys=(SECRET,), algorithm="HS256")

    def guarded() -> Any:
        return platform(authorization=True, authorization_config=configuration)

    with Client(guarded, token=token(*scopes)) as c:
        channels_seen = c.get("/channels")
        assert channels_seen.status == (403 if listed is None else 200)
        if listed is not None:
            assert len(channels_seen.json()) == listed
        assert {c.get(path).status for path in READ} == {read}
        assert c.post("/channels/whatsapp/messages/a/retry").status == write
        assert c.get("/whatsapp/status").status == 200
