"""Streamed answers: one message that grows, and that the reply takes the place of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, Platform, Team, tool
from legation.channels import Telegram
from legation.channels.deliveries import IncomingMessage
from legation.channels.replies import Reply
from legation.effects import Fetch, FetchReply, Log, Program, Transact, Unreachable
from legation.messaging.leases import WorkerLeases
from legation.messaging.streamed_answers import StreamedAnswer
from legation.store.failures import StatementFailed
from legation.store.inbox import CompleteMessage, KeepMessage
from legation.store.letters import FetchMessageRecord, MessageRecord
from legation.store.runs import StartRun
from legation_testing import Client, Says, ScriptedModel, call

from ...providers.deliveries import Delivery, channels, platform, signed, slack, telegram
from ...providers.strict import Provider, SlackApi, TelegramApi
from ...providers.strict import now_us as wall_clock_us

WORDS = ("Room ", "seven ", "is ", "free, ", "and ", "costs ", "90 ", "euros.")
ANSWER = "".join(WORDS)


def streaming(
    *steps: Any, on: bool = True, tools: tuple[Any, ...] = (), **options: Any
) -> Platform:
    """Return a platform whose agent speaks by `steps`, and whose channels show it as it does."""
    model = ScriptedModel(steps or [Says(WORDS, between_seconds=1.0)])
    made = [
        evolve(c, stream_answers=on, **options)
        for c in channels("http://127.0.0.1:9")
        if c.kind in ("telegram", "slack")
    ]
    agents = [Agent(id="concierge", model=model, tools=tools)]
    result = platform(agents=agents, channels=made)
    assert isinstance(result, Platform)
    return result


def client(provider: Any, *steps: Any, **options: Any) -> Client:
    made = streaming(*steps, **options)
    return Client(lambda: made, fetch=provider, start_us=wall_clock_us())


def post(c: Client, sent: Delivery) -> None:
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def ask(kind: str) -> Delivery:
    if kind == "telegram":
        return telegram(7, 1, "Is room 7 free?")
    return slack("U1", "5.1", "Is room 7 free?", wall_clock_us())


def record(c: Client, message_id: str = "1", channel: str = "telegram") -> MessageRecord:
    found = c.simulation.run(_transact(FetchMessageRecord(channel, message_id)))
    assert isinstance(found, MessageRecord)
    return found


def _transact(unit: Any) -> Any:
    return (yield from Transact("main", unit))


def _unit(kind: type[Any]) -> Callable[[Any], bool]:
    return lambda effect: isinstance(getattr(effect, "unit", None), kind)


PROVIDERS: dict[str, Callable[[], Provider]] = {"telegram": TelegramApi, "slack": SlackApi}


# --- what a person sees ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PROVIDERS)
def test_one_message_grows_and_becomes_the_answer(kind: str) -> None:
    provider = PROVIDERS[kind]()
    seen: list[list[str]] = []
    with client(provider) as c:
        post(c, ask(kind))
        for _ in range(12):
            c.advance(1)
            seen.append([*provider.shown.values()])

    texts = [shown[0] for shown in seen if shown]
    assert all(len(shown) <= 1 for shown in seen)
    assert texts[0] == "Room"
    assert texts[-1] == ANSWER
    assert len(set(texts)) > 3
    assert all(ANSWER.startswith(text) for text in texts)
    assert len(provider.seen) == 1
    assert provider.refused == []


def test_the_edits_have_a_pause_that_is_longer_in_a_group() -> None:
    counts: list[int] = []
    for kind in ("private", "supergroup"):
        provider = TelegramApi()
        with client(provider, Says(["word "] * 60, between_seconds=0.5)) as c:
            message = {
                "message_id": 2,
                "from": {"id": 7, "is_bot": False},
                "chat": {"id": -100, "type": kind},
                "date": 1,
                "text": "Hello",
                "reply_to_message": {"message_id": 1, "from": {"id": 42, "is_bot": True}},
            }
            body = json.dumps({"update_id": 1, "message": message}).encode()
            post(c, signed("telegram", body, 0))
            c.advance(29)
        counts.append(len(provider.acts))

    assert counts == [18, 7]


def test_nothing_grows_without_the_option_or_for_a_fast_answer() -> None:
    for on, seconds in ((False, 1.0), (True, 0.1)):
        provider = TelegramApi()
        with client(provider, Says(WORDS, between_seconds=seconds), on=on) as c:
            post(c, ask("telegram"))
            c.advance(20)
            noted = [p for p in c.effects if _unit(KeepMessage)(p.effect)]
            (begun,) = [p.effect for p in c.effects if _unit(StartRun)(p.effect)]

        assert [message.text for message in provider.seen] == [ANSWER]
        assert (provider.acts, noted) == ([], [])
        assert isinstance(begun, Transact)
        assert isinstance(begun.unit, StartRun)
        assert json.loads(begun.unit.input)["stream"] is on


def test_of_a_long_answer_the_first_part_grows_and_the_rest_is_sent_behind_it() -> None:
    long = [f"{number:04} {'x' * 95}\n" for number in range(100)]
    provider = TelegramApi()
    with client(provider, Says(long, between_seconds=0.2)) as c:
        post(c, ask("telegram"))
        c.advance(60)

    parts = [*provider.shown.values()]
    assert "\n".join(parts).split() == "".join(long).split()
    assert len(parts) == len(provider.seen) == 3
    assert provider.refused == []


def test_what_the_model_says_before_it_calls_a_tool_gives_way_to_the_answer() -> None:
    @tool
    def look() -> str:
        """Look."""
        return "free"

    provider = TelegramApi()
    first = Says(["Let ", "me ", "look."], calls=[call("look")], between_seconds=1)
    with client(provider, first, Says(WORDS, between_seconds=1), tools=(look,)) as c:
        post(c, ask("telegram"))
        c.advance(30)

    edits = [act.content["text"] for act in provider.acts]
    assert "Let me look." not in edits[-3:]
    assert provider.seen[0].text == "Let"
    assert provider.shown == {"1": ANSWER}


def test_a_question_of_a_paused_run_takes_the_place_of_what_was_said() -> None:
    @tool(requires_confirmation=True)
    def book() -> str:
        """Book a room."""
        return "booked"

    for kind, made in PROVIDERS.items():
        provider = made()
        first = Says(["I ", "book ", "now."], calls=[call("book")], between_seconds=1)
        with client(provider, first, "Done.", tools=(book,), approve="sender") as c:
            post(c, ask(kind))
            c.advance(10)
            (shown,) = provider.shown.values()
            assert shown.startswith("I need your approval")
            buttons = json.dumps(provider.acts[-1].content)
            assert "approve:" in buttons
            yes = telegram(7, 9, "yes")
            if kind == "slack":
                yes = slack("U1", "5.9", "yes", wall_clock_us())
            post(c, yes)
            c.advance(10)
            assert [*provider.shown.values()][-1] == "Done."
            assert len(provider.shown) == 2
        assert provider.refused == []


def test_only_the_leader_of_a_team_is_shown() -> None:
    member = Agent(id="clerk", model=ScriptedModel([Says(["Room 7."] * 5, between_seconds=1)]))
    task = call("delegate_task_to_member", member_id="clerk", task="Which?")
    leader = ScriptedModel([task, Says(WORDS, between_seconds=1)])
    made = [
        evolve(c, agent=None, team="desk", stream_answers=True)
        for c in channels("http://127.0.0.1:9")
        if c.kind == "telegram"
    ]
    team = Team(id="desk", members=["clerk"], model=leader)
    provider = TelegramApi()
    configured = platform(agents=[member], teams=[team], channels=made)
    with Client(lambda: configured, fetch=provider, start_us=wall_clock_us()) as c:
        post(c, ask("telegram"))
        c.advance(40)

    texts = [provider.seen[0].text, *(act.content["text"] for act in provider.acts)]
    assert all(ANSWER.startswith(text) for text in texts)
    assert provider.shown == {"1": ANSWER}


# --- what goes wrong ---------------------------------------------------------------------------


def test_after_a_crash_the_same_message_grows_on_and_becomes_the_answer() -> None:
    made = streaming(Says(WORDS, between_seconds=1.0), Says(WORDS, between_seconds=1.0))
    provider = TelegramApi()
    with Client(lambda: made, fetch=provider, start_us=wall_clock_us()) as c:
        post(c, ask("telegram"))
        c.advance(4)
        assert len(provider.seen) == 1
        c.restart()
        c.advance(60)

    assert provider.shown == {"1": ANSWER}
    assert len(provider.seen) == 1


def test_a_message_whose_id_a_crash_took_away_stays_as_it_is_and_the_answer_is_another() -> None:
    made = streaming(Says(WORDS, between_seconds=1.0), Says(WORDS, between_seconds=1.0))
    provider = TelegramApi(honours_keys=False)
    with Client(lambda: made, fetch=provider, start_us=wall_clock_us()) as c:
        c.fail_at(_unit(KeepMessage), StatementFailed("x"), times=1)
        post(c, ask("telegram"))
        c.advance(60)

    assert provider.shown == {"1": "Room", "2": ANSWER}


def test_a_lost_lease_shows_nothing_more() -> None:
    provider = TelegramApi()
    with client(provider) as c:
        c.fail_at(_unit(KeepMessage), False, times=1)
        post(c, ask("telegram"))
        c.advance(60)

    assert [*provider.shown.values()].count(ANSWER) == 1


def test_an_edit_that_says_nothing_new_is_a_success() -> None:
    provider = TelegramApi()
    with client(provider, Says([ANSWER, " "], between_seconds=3.0)) as c:
        post(c, ask("telegram"))
        c.advance(20)
        replies = c.get("/channels/telegram/replies", query={"state": "sent"}).json()["data"]

    assert provider.shown == {"1": ANSWER}
    assert [act.method for act in provider.acts] == ["editMessageText"]
    assert [reply["error"] for reply in replies] == [None]


@pytest.mark.parametrize("kind", PROVIDERS)
def test_where_the_growing_message_was_deleted_the_answer_is_a_message_of_its_own(
    kind: str,
) -> None:
    provider = PROVIDERS[kind]()
    with client(provider) as c:
        post(c, ask(kind))
        c.advance(5)
        provider.gone |= provider.shown.keys()
        c.advance(30)
        logs = [log for log in c.logs if log.event == "streamed_answer_failed"]

    assert [message.text for message in provider.seen][-1] == ANSWER
    assert len(provider.seen) == 2
    assert [log.level for log in logs] == ["warning"]


class Moody:
    """A network of Telegram that answers the growing message by a script, then as it should."""

    def __init__(self, *answers: FetchReply | Unreachable | None) -> None:
        self.api, self.answers, self.tried = TelegramApi(), list(answers), list[str]()

    def __call__(self, fetch: Fetch) -> FetchReply | Unreachable:
        method = fetch.url.rpartition("/")[2]
        if method in ("sendMessage", "editMessageText"):
            self.tried.append(method)
            if self.answers and (answer := self.answers.pop(0)) is not None:
                return answer
        return self.api(fetch)


def refused(status: int, said: str, **parameters: int) -> FetchReply:
    told = {"ok": False, "error_code": status, "description": said, "parameters": parameters}
    return FetchReply(status, {}, json.dumps(told).encode())


THROTTLED = refused(429, "Too Many Requests", retry_after=3)
TIMELESS = refused(429, "Too Many Requests")
NAMELESS = FetchReply(200, {}, b'{"ok":true,"result":true}')
TROUBLES: dict[str, tuple[tuple[Any, ...], list[str]]] = {
    "429 at first": ((THROTTLED,), []),
    "429 without a time": ((TIMELESS, None, TIMELESS), []),
    "an edit that nobody answers": ((None, Unreachable("timeout")), []),
    "a first message that nobody answers": ((Unreachable("timeout"),), ["timeout"]),
    "a first message that fails": ((FetchReply(502, {}, b"<html>"),), ["HTTP 502"]),
    "a refusal": ((refused(403, "Forbidden"),), ["HTTP 403: code 403, Forbidden"]),
    "a wrong token": (
        (refused(401, "Unauthorized"),),
        ["HTTP 401: code 401, Unauthorized"],
    ),
    "no id": ((NAMELESS,), ["the provider names no message"]),
    "edits that fail again and again": (
        (None, *[FetchReply(500, {}, b"")] * 4),
        ["HTTP 500"],
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_with_the_growing_message_costs_no_answer(trouble: str) -> None:
    answers, reasons = TROUBLES[trouble]
    network = Moody(*answers)
    slowly = Says(WORDS, between_seconds=8.0)
    with client(network, slowly) as c:
        post(c, ask("telegram"))
        c.advance(120)
        logs = [log for log in c.logs if log.event == "streamed_answer_failed"]

    assert [*network.api.shown.values()] == [ANSWER]
    assert logs == [
        Log("warning", "streamed_answer_failed", (("channel", "telegram"), ("reason", reason)))
        for reason in reasons
    ]


def test_a_refusal_is_logged_once_for_a_channel() -> None:
    network = Moody(refused(403, "Forbidden"), None, refused(403, "Forbidden"))
    with client(network, *[Says(WORDS, between_seconds=1.0)] * 2) as c:
        for update in (1, 2):
            post(c, telegram(7, update, "Hello"))
            c.advance(15)
        logs = [log for log in c.logs if log.event == "streamed_answer_failed"]

    assert len(logs) == 1


def test_of_a_run_that_is_over_at_once_nothing_is_shown() -> None:
    made = streaming()
    answer = StreamedAnswer(
        WorkerLeases(made.context, "main"),
        made.registry.channels["telegram"],
        IncomingMessage("1", "7"),
        _forget,
    )
    answer._over = True

    assert [*answer._show()] == []


def _forget(message: IncomingMessage) -> Program[None]:
    yield from ()


def test_a_bug_of_a_codec_costs_no_answer() -> None:
    made = streaming()

    class Broken(Telegram):
        """A kind that cannot send the growing message."""

        def encode(self, reply: Reply, now_us: int) -> Fetch:
            """Fail, as a bug does."""
            raise ZeroDivisionError

    broken = Broken("telegram", "secret", "42:token")
    channel = evolve(made.registry.channels["telegram"], codec=broken)
    answer = StreamedAnswer(
        WorkerLeases(made.context, "main"), channel, IncomingMessage("1", "7"), _forget
    )
    answer._words.append("text")
    program = answer._send_text()
    next(program)
    with pytest.raises(StopIteration) as stopped:
        program.send(0)

    assert "ZeroDivisionError" in str(stopped.value.value)


def test_a_node_that_is_about_to_end_shows_nothing_more() -> None:
    made = streaming(Says(["word "] * 20, between_seconds=1.0))
    provider = TelegramApi()
    with Client(lambda: made, fetch=provider, start_us=wall_clock_us()) as c:
        post(c, ask("telegram"))
        c.advance(5)
        before = [*provider.shown.values()]
        made.context.draining = True
        c.advance(10)

        assert before == ["word word word word"]
        assert [*provider.shown.values()] == before


def test_a_completion_that_is_lost_sends_the_answer_once() -> None:
    provider = TelegramApi()
    with client(provider) as c:
        c.fail_at(_unit(CompleteMessage), StatementFailed("x"), times=1)
        post(c, ask("telegram"))
        c.advance(60)

        assert record(c).message.state == "done"
    assert provider.shown == {"1": ANSWER}
    assert len(provider.seen) == 1
