"""Who we are: asked at the start, remembered, and asked again."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from attrs import define, evolve, field, frozen

from legation import Platform
from legation.channels.identity import Identity, Unidentified
from legation.effects import Fetch, FetchReply, Unreachable
from legation.messaging.identities import ASKED_AGAIN_SECONDS, Identities
from legation.platform import Responder
from legation.store.channel_states import FetchIdentities, NoteIdentity
from legation.store.failures import Busy
from legation_testing import Client

from ...providers.deliveries import ENVIRON, Delivery, channels, platform, signed
from ...providers.loopback import Loopback
from ...providers.strict import SlackApi, TelegramApi

DESK = Identity("42", "desk_bot", reads_groups=False)


@define(eq=False)
class Away:
    """A provider that is not there at first, or answers something else."""

    api: TelegramApi = field(factory=TelegramApi)
    answer: FetchReply | Unreachable | None = field(factory=lambda: Unreachable("connect"))
    asked: int = 0

    def __call__(self, fetch: Fetch) -> FetchReply | Unreachable:
        self.asked += fetch.url.endswith("/getMe")
        return self.api(fetch) if self.answer is None else self.answer


def telegram_only(**configuration: Any) -> Callable[[], Platform]:
    return lambda: platform(channels=[channels("http://127.0.0.1:9")[1]], **configuration)


@contextmanager
def asking(fetch: Any, made: Platform | None = None, **options: Any) -> Generator[Client]:
    """Open a client whose only jobs are those that ask who we are: a day of them is short."""
    target = telegram_only() if made is None else made
    with Client(target, fetch=fetch, jobs=False, **options) as client:
        hosted: Responder = client.platform
        assert isinstance(hosted, Platform)
        for job in hosted.identities.jobs:
            client.simulation.start_job(job, client.node)
        client.settle()
        yield client


def known(client: Client) -> dict[str, Identity]:
    made: Responder = client.platform
    assert isinstance(made, Platform)
    return made.identities.known


def lines(client: Client, event: str) -> list[dict[str, Any]]:
    return [dict(log.fields) for log in client.logs if log.event == event]


def test_every_provider_is_asked_whose_channel_judges_by_the_answer() -> None:
    identities = Identities.of(platform().registry)

    assert list(identities.questions) == ["telegram", "slack"]
    assert identities.databases == ("main",)


def test_the_provider_is_asked_once_at_the_start_and_once_a_day() -> None:
    api = TelegramApi()
    with asking(api) as c:
        assert (known(c), api.identified) == ({"telegram": DESK}, 1)
        c.advance(ASKED_AGAIN_SECONDS - 1)
        assert api.identified == 1
        api.username = "front_bot"
        c.advance(2)
        assert (known(c)["telegram"].name, api.identified) == ("front_bot", 2)
        c.advance(ASKED_AGAIN_SECONDS)
        assert api.identified == 3
        assert [line["name"] for line in lines(c, "channel_identified")] == [
            "desk_bot",
            "front_bot",
        ]


@pytest.mark.parametrize(
    "answer",
    [
        Unreachable("connect"),
        FetchReply(200, {}, b"<html>"),
        FetchReply(200, {}, b'{"ok":false,"error_code":500}'),
        FetchReply(401, {}, b'{"ok":false,"error_code":401,"description":"Unauthorized"}'),
        FetchReply(429, {}, b'{"ok":false,"error_code":429}'),
    ],
    ids=["away", "nonsense", "an error inside", "a wrong token", "no time"],
)
def test_a_provider_without_an_answer_is_asked_again_with_pauses_and_logged_once(
    answer: FetchReply | Unreachable,
) -> None:
    provider = Away(answer=answer)
    with asking(provider) as c:
        c.advance(600)
        assert 5 < provider.asked < 15
        assert len(lines(c, "channel_unidentified")) == 1
        provider.answer = None
        c.advance(601)
        assert known(c) == {"telegram": DESK}


def test_the_time_that_the_provider_asks_for_is_waited() -> None:
    told = b'{"ok":false,"error_code":429,"parameters":{"retry_after":500}}'
    provider = Away(answer=FetchReply(429, {}, told))
    with asking(provider) as c:
        c.advance(499)
        assert provider.asked == 1


def test_what_was_said_before_holds_while_the_provider_is_away(tmp_path: Path) -> None:
    with asking(TelegramApi(), folder=tmp_path):
        pass
    with Client(telegram_only(), folder=tmp_path, fetch=Away()) as c:
        assert known(c) == {"telegram": DESK}


def test_a_channel_that_is_gone_is_not_remembered(tmp_path: Path) -> None:
    with asking(TelegramApi(), folder=tmp_path):
        pass
    slack = [channels("http://127.0.0.1:9")[2]]
    with Client(lambda: platform(channels=slack), folder=tmp_path, fetch=Away()) as c:
        assert known(c) == {}


def test_a_database_that_fails_keeps_nobody_from_knowing() -> None:
    def touches(effect: object) -> bool:
        unit: object = getattr(effect, "unit", None)
        return isinstance(unit, FetchIdentities | NoteIdentity)

    with Client(telegram_only(), fetch=TelegramApi()) as c:
        c.fail_at(touches, Busy(), times=2)
        c.settle()
        assert known(c) == {"telegram": DESK}
        assert [line["channel"] for line in lines(c, "channel_identity_not_stored")] == ["telegram"]


@frozen
class Forgetful(Loopback):
    """A kind of an application, with a bug."""

    asks_at_start: ClassVar[bool] = True

    def identify(self) -> Fetch | None:
        """Ask the provider."""
        return Fetch("GET", f"{self.endpoint}/me")

    def read_identity(
        self, reply: FetchReply | Unreachable, now_us: int
    ) -> Identity | Unidentified:
        """Fail."""
        raise LookupError(self.line)


def test_a_bug_in_a_codec_ends_nothing() -> None:
    one = [channels("http://127.0.0.1:9")[4]]
    made = platform(channels=one, channel_kinds=[Forgetful])
    with asking(Away(), made) as c:
        (line,) = lines(c, "channel_unidentified")

    assert line["reason"].startswith("LookupError in Forgetful.read_identity")


def test_a_round_asks_where_no_job_does(tmp_path: Path) -> None:
    api = TelegramApi()
    with Client(telegram_only(), folder=tmp_path, fetch=api, jobs=False) as c:
        assert run_round(c) == {"telegram": DESK}
        run_round(c)
        assert api.identified == 1
    with Client(telegram_only(), folder=tmp_path, fetch=api, jobs=False) as c:
        assert run_round(c) == {"telegram": DESK}
    assert api.identified == 1


def test_a_round_goes_on_where_the_provider_does_not_answer() -> None:
    with Client(telegram_only(), fetch=Away(), jobs=False) as c:
        assert run_round(c) == {}
        assert len(lines(c, "channel_unidentified")) == 1


def test_a_round_without_time_asks_nobody() -> None:
    api = TelegramApi()
    with Client(telegram_only(), fetch=api, jobs=False) as c:
        run_round(c, 5.0)

    assert api.identified == 0


def in_group(update: int, words: str, length: int) -> Delivery:
    message = {
        "message_id": update,
        "from": {"id": 7, "is_bot": False},
        "chat": {"id": -100, "type": "group"},
        "text": words,
        "entities": [{"type": "mention", "offset": 0, "length": length}],
    }
    return signed("telegram", json.dumps({"update_id": update, "message": message}).encode(), 0)


def post(client: Client, sent: Delivery) -> Any:
    return client.post(sent.target, headers=sent.headers, body=sent.body).expect_success().json()


def test_in_a_group_our_name_is_answered_as_soon_as_it_is_known() -> None:
    provider = Away()
    with Client(telegram_only(), fetch=provider) as c:
        assert post(c, in_group(1, "@desk_bot hello", 9)) == {"status": "ignored"}
        (line,) = lines(c, "delivery_ignored")
        assert line["reason"] == "own name not known"
        provider.answer = None
        c.advance(3)
        assert post(c, in_group(2, "@gif_bot cats", 8)) == {"status": "ignored"}
        assert post(c, in_group(3, "@desk_bot hello", 9)) == {"status": "processing"}
        c.settle()
        assert [message.text for message in provider.api.seen] == ["hello"]


def test_two_bots_of_one_platform_answer_each_its_own_name() -> None:
    bots = {"BOT": TelegramApi(), "BOT_2": TelegramApi(bot_token="43:b", username="front_bot")}
    both = [
        evolve(channels(f"http://{bot.lower()}.example")[1], id=bot, bot_token_env=bot)
        for bot in bots
    ]
    made = platform(channels=both, environ={**ENVIRON, "BOT_2": "43:b"})

    def network(fetch: Fetch) -> FetchReply:
        return bots["BOT_2" if "/bot_2." in fetch.url else "BOT"](fetch)

    with Client(made, fetch=network) as c:
        c.settle()
        for update, words in ((1, "@desk_bot hello"), (2, "@front_bot hi")):
            for name in bots:
                sent = in_group(update, words, words.index(" "))
                post(c, evolve(sent, target=f"/{name}/webhook"))
        c.settle()

    assert [[m.text for m in api.seen] for api in bots.values()] == [["hello"], ["hi"]]


def test_an_event_of_another_workspace_is_ignored_and_logged() -> None:
    message = {"type": "message", "channel_type": "im", "channel": "D1", "user": "U1", "ts": "1.1"}
    root = {"type": "event_callback", "team_id": "T2", "event": {**message, "text": "hi"}}
    api = SlackApi()
    one = [channels("http://127.0.0.1:9")[2]]
    with Client(platform(channels=one), fetch=api) as c:
        c.settle()
        sent = signed("slack", json.dumps(root).encode(), c.clock.now_us)
        assert post(c, sent) == {"status": "ignored", "reason": "another workspace"}
        assert [line["reason"] for line in lines(c, "delivery_ignored")] == ["another workspace"]


def run_round(client: Client, seconds: float = 60.0) -> dict[str, Identity]:
    made = client.platform
    assert isinstance(made, Platform)
    client.simulation.run(made.round(10, seconds))
    return known(client)
