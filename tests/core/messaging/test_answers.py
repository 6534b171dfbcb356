"""The work on messages, on a real SQLite: what a person gets, and what a crash changes about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from legation import Agent, Model
from legation.effects import Sleep, Transact
from legation.http.messages import compact_json
from legation.messaging.conversations import owner_of
from legation.store.failures import Busy, StatementFailed
from legation.store.inbox import AttachRun, CompleteMessage, FailMessage, PutMessages
from legation.store.leased_queue import ClaimItems, ListLeases
from legation.store.letters import FetchMessageRecord, MessageRecord
from legation.store.runs import FinishRun, StartRun
from legation_testing import Client, Says, ScriptedModel, call

from ...providers.deliveries import Delivery, Text, platform, signed, whatsapp
from ...providers.strict import Provider, WhatsAppApi

APOLOGY = "Sorry, something went wrong here and I could not answer. Please try again later."


def client(provider: Provider | None = None, **configuration: Any) -> Client:
    """Return a client whose platform is made anew at each restart."""
    return Client(lambda: platform(**configuration), fetch=provider or WhatsAppApi())


def deliver(c: Client, *texts: Text) -> str:
    return post(c, whatsapp(*texts))


def post(c: Client, sent: Delivery) -> str:
    answer = c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
    return str(answer.json()["status"])


def texts(provider: Provider) -> list[str]:
    return [message.text for message in provider.seen]


def letter(c: Client, message_id: str) -> MessageRecord:
    found = c.simulation.run(_transact(FetchMessageRecord("whatsapp", message_id)))
    assert isinstance(found, MessageRecord)
    return found


def every_attempt(c: Client) -> None:
    """Let twenty attempts pass; the wall clock jumps over the pauses between them."""
    for _ in range(40):
        c.advance(2)
        c.clock.set_forward(300)


def _transact(unit: Any) -> Any:
    return (yield from Transact("main", unit))


# --- what a person gets ------------------------------------------------------------------------


def test_every_message_of_a_batch_is_answered_in_its_order() -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        deliver(c, ("4911", "a", "one"), ("4911", "b", "two"), ("4922", "c", "three"))
        c.settle()

        ada = [message.text for message in provider.seen if message.recipient == "4911"]
        assert ada == ["one", "two"]
        assert sorted(texts(provider)) == ["one", "three", "two"]
        assert provider.refused == []


def test_senders_have_sessions_of_their_own_that_no_token_owns() -> None:
    with client() as c:
        deliver(c, ("4911", "a", "one"), ("4922", "b", "two"))
        c.settle()
        listed = c.get("/sessions", query={"sort_order": "asc", "db_id": "main"}).json()["data"]
        owners = {row["session_id"] for row in listed}

        assert owners == {"whatsapp:4911", "whatsapp:4922"}
        assert owner_of("whatsapp", "4911") == "~channel:whatsapp:4911"


def test_the_command_new_begins_another_session_and_may_be_followed_by_a_question() -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        for name, words in (("a", "one"), ("b", "/new"), ("c", "two"), ("d", "/new three")):
            deliver(c, ("4911", name, words))
            c.advance(1)
        deliver(c, ("4911", "e", "four"))
        c.advance(1)
        runs = {
            session: [
                row["run_input"] for row in c.get(f"/sessions/{quoted}/runs?db_id=main").json()
            ]
            for session, quoted in (
                ("first", "whatsapp:4911"),
                ("second", "whatsapp:4911%23b"),
                ("third", "whatsapp:4911%23d"),
            )
        }

    assert runs == {"first": ["one"], "second": ["two"], "third": ["three", "four"]}
    assert texts(provider)[1] == "A new conversation begins. What can I do for you?"


def test_what_cannot_be_read_gets_a_sentence_and_a_reaction_nothing() -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        for name, content in (
            ("a", {"type": "sticker", "sticker": {"id": "1"}}),
            ("b", {"type": "reaction", "reaction": {"message_id": "x", "emoji": "+"}}),
        ):
            post(c, _odd({"from": "4911", "id": name, "timestamp": "1", **content}))
        c.settle()

        assert texts(provider) == [
            "I can only read text, not stickers. Please write to me instead."
        ]
        assert letter(c, "b").message.state == "done"


def _odd(message: dict[str, Any]) -> Delivery:
    value = {"metadata": {"phone_number_id": "111"}, "messages": [message]}
    entry = {"changes": [{"field": "messages", "value": value}]}
    root = {"object": "whatsapp_business_account", "entry": [entry]}
    return signed("whatsapp", compact_json(root).encode(), 0)


def test_a_team_answers_as_an_agent_does() -> None:
    from legation import Channel, Team

    provider = WhatsAppApi()
    channel = Channel(
        id="whatsapp",
        kind="whatsapp",
        team="desk",
        app_secret_env="APP_SECRET",
        verify_token_env="VERIFY",
        access_token_env="ACCESS",
        phone_number_id="111",
    )
    with client(provider, teams=[Team(id="desk", members=["concierge"])], channels=[channel]) as c:
        deliver(c, ("4911", "a", "hello"))
        c.settle()

    assert texts(provider) == ["hello"]


def test_a_run_that_fails_is_apologized_for_once() -> None:
    provider = WhatsAppApi()
    slow = {"models": [Model("slow", "echo", delay_seconds=0.123)]}
    with client(provider, agents=[Agent(id="concierge", model="slow")], **slow) as c:
        c.fail_at(Sleep(0.123), RuntimeError("a bug in a model"))
        for _ in range(3):
            deliver(c, ("4911", "a", "hello"))
            c.advance(60)

    assert texts(provider) == [APOLOGY]


# --- what goes wrong ---------------------------------------------------------------------------


def _unit(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda effect: isinstance(getattr(effect, "unit", None), kind)


@pytest.mark.parametrize("times", [9, None])
def test_a_message_waits_for_a_database_that_cannot_begin_its_run(times: int | None) -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        fault = c.fail_at(_unit(StartRun), Busy("x"), times=times)
        deliver(c, ("4911", "a", "hello"))
        c.advance(30 if times else 1_000)
        assert [m.attempts for m in [letter(c, "a").message]] == [1 if times else 2]
        fault.disarm()
        c.advance(60)

        assert texts(provider) == ["hello"]


def test_a_message_that_fails_is_tried_again_and_in_the_end_apologized_for() -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        fault = c.fail_at(_unit(StartRun), StatementFailed("x"), times=None)
        deliver(c, ("4911", "a", "hello"), ("4922", "b", "/new"))
        every_attempt(c)

        assert texts(provider) == ["A new conversation begins. What can I do for you?", APOLOGY]
        assert [(m.state, m.attempts) for m in [letter(c, "a").message]] == [("dead", 20)]
        assert [log.level for log in c.logs if log.event == "message_failed"] == [
            *["warning"] * 19,
            "error",
        ]

        fault.disarm()
        c.post("/channels/whatsapp/messages/a/retry").expect_success()
        c.settle()
        assert texts(provider)[-1] == "hello"


@pytest.mark.parametrize("payload", ['{"kind":"hologram"}', "no JSON", "[]"])
def test_a_message_of_a_later_version_waits_and_nobody_is_told(payload: str) -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        from legation.store.inbox import NewMessage

        put = PutMessages("whatsapp", (NewMessage("a", "4911", payload),), c.clock.now_us)
        c.simulation.run(_transact(put))
        every_attempt(c)

        assert provider.seen == []
        assert letter(c, "a").message.state == "dead"
        assert len(c.take_errors()) > 0


def test_a_dead_message_that_wants_no_answer_gets_no_apology() -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        c.fail_at(_unit(CompleteMessage), StatementFailed("x"), times=None)
        post(c, _odd({"from": "4911", "id": "a", "type": "reaction", "reaction": {"emoji": "+"}}))
        every_attempt(c)

        assert provider.seen == []
        assert letter(c, "a").message.state == "dead"


def test_a_lease_lost_before_the_run_begins_begins_none() -> None:
    with client() as c:
        deliver(c, ("4911", "a", "hello"))
        c.fail_at(_unit(AttachRun), False, times=1)
        c.settle()

        assert letter(c, "a").message.run_id is None
        assert not [p for p in c.effects if _unit(StartRun)(p.effect)]
        c.advance(40)  # nobody keeps the lease any more
        assert letter(c, "a").message.state == "done"


def test_what_cannot_be_put_back_is_claimed_again_when_its_lease_was_released() -> None:
    provider = WhatsAppApi()
    with client(provider) as c:
        c.fail_at(_unit(StartRun), StatementFailed("x"), times=1)
        c.fail_at(_unit(FailMessage), StatementFailed("x"), times=1)
        deliver(c, ("4911", "a", "hello"))
        c.advance(5)
        assert provider.seen == []
        c.advance(40)

    assert texts(provider) == ["hello"]
    assert "channel_leases_released" in {log.event for log in c.logs}


def test_a_message_waits_for_its_run_which_goes_on_after_a_crash() -> None:
    provider = WhatsAppApi()
    slow = {"models": [Model("slow", "echo", delay_seconds=5.0)]}
    with client(provider, agents=[Agent(id="concierge", model="slow")], **slow) as c:
        deliver(c, ("4911", "a", "hello"))
        c.advance(2)
        c.crash()
        c.restart()
        c.advance(120)
        runs = c.get("/sessions/whatsapp:4911/runs?db_id=main").json()

    assert [(row["status"], row["run_input"]) for row in runs] == [("COMPLETED", "hello")]
    assert texts(provider) == ["hello"]


@pytest.mark.parametrize("deletions", [1, 3])
def test_a_run_that_is_deleted_with_its_session_is_not_begun_again(deletions: int) -> None:
    provider, paid = WhatsAppApi(), list[str]()

    def pay() -> str:
        """Pay."""
        paid.append("paid")
        return "paid"

    steps: list[Any] = [call("pay"), Says("Done.", after_seconds=5.0)] * 4
    agent = Agent(id="concierge", model=ScriptedModel(steps), tools=[pay])
    with client(provider, agents=[agent]) as c:
        deliver(c, ("4911", "a", "pay"))
        for _ in range(deletions):
            c.advance(2)
            c.delete("/sessions/whatsapp:4911?type=agent&db_id=main")
        c.advance(60)

        assert paid == ["paid"]
        assert texts(provider) == [APOLOGY]
        assert c.get("/sessions/whatsapp:4911?type=agent&db_id=main").status == 404
        assert letter(c, "a").message.state == "done"


def test_a_run_of_an_earlier_attempt_that_is_deleted_is_not_begun_again() -> None:
    provider = WhatsAppApi()
    slow = {"models": [Model("slow", "echo", delay_seconds=100.0)]}
    with client(provider, agents=[Agent(id="concierge", model="slow")], **slow) as c:
        deliver(c, ("4911", "a", "hello"))
        c.advance(1)
        c.fail_at(_unit(ListLeases), (), times=1)
        c.advance(50)
        assert letter(c, "a").message.attempts == 2
        c.delete("/sessions/whatsapp:4911?type=agent&db_id=main").expect_success()
        c.advance(60)

        assert texts(provider) == [APOLOGY]
        assert c.get("/sessions/whatsapp:4911?type=agent&db_id=main").status == 404


def test_a_run_that_is_interrupted_again_and_again_is_apologized_for() -> None:
    provider = WhatsAppApi()
    slow = {"models": [Model("slow", "echo", delay_seconds=5.0)]}
    with client(provider, agents=[Agent(id="concierge", model="slow")], **slow) as c:
        c.fail_at(
            lambda effect: _unit(FinishRun)(effect) and effect.unit.reason is None,
            StatementFailed("x"),
            times=None,
        )
        deliver(c, ("4911", "a", "hello"))
        c.advance(400)

    assert texts(provider) == [APOLOGY]


def test_the_run_of_an_earlier_attempt_is_waited_for_and_not_begun_again() -> None:
    provider = WhatsAppApi()
    slow = {"models": [Model("slow", "echo", delay_seconds=100.0)]}
    with client(provider, agents=[Agent(id="concierge", model="slow")], **slow) as c:
        deliver(c, ("4911", "a", "hello"))
        c.advance(1)
        # The lease of the message is taken for lost, and released; that of the run is not.
        c.fail_at(_unit(ListLeases), (), times=1)
        c.advance(100)
        assert letter(c, "a").message.attempts == 2
        c.advance(60)
        runs = c.get("/sessions/whatsapp:4911/runs?db_id=main").json()

    assert [row["status"] for row in runs] == ["COMPLETED"]
    assert texts(provider) == ["hello"]


# --- in the logs -------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [StartRun, CompleteMessage, FailMessage, ClaimItems])
def test_nothing_of_a_person_is_in_a_log_line_or_in_the_text_of_a_value(
    failing: type[Any],
) -> None:
    number, words = "4915551234567", "canary-of-the-text"
    provider = WhatsAppApi(access_token="another")
    with client(provider) as c:
        c.fail_at(_unit(failing), RuntimeError(words), times=3)
        deliver(c, (number, "a", words), (number, "b", "/new"))
        c.advance(60)
        said = repr(c.logs)
        claimed = repr([p.effect for p in c.effects if _unit(ClaimItems)(p.effect)])

    assert provider.refused != []
    assert "channel_held" in said
    assert number not in said + claimed
    assert words not in said + claimed
