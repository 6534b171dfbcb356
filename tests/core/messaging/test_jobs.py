"""The rounds: who claims what, how much at once, and what becomes of trouble."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from legation import Agent, Channel, Model
from legation.channels.replies import Reply, encode_reply
from legation.effects import (
    Fetch,
    FetchReply,
    Now,
    Program,
    Sleep,
    Spawn,
    ThisNode,
    Transact,
    Unreachable,
)
from legation.messaging.answers import AnswerMessage
from legation.messaging.jobs import (
    KEPT_US,
    ClaimWork,
    ForgetDone,
    KeepLeases,
    answer_inbox,
    channel_jobs,
)
from legation.messaging.leases import MOST, WorkerLeases, leases_of
from legation.messaging.replies import SendReply
from legation.store.failures import Busy, CommitLost, NotServed
from legation.store.inbox import INBOX, ClaimedMessage, NewMessage, PutMessages
from legation.store.leased_queue import (
    ClaimedItems,
    ClaimItems,
    ForgetItems,
    ItemKey,
    Lease,
    LeasedQueue,
    ListItems,
    ListLeases,
    ReleaseLeases,
)
from legation.store.nodes import Beat, Bury
from legation.store.outbox import OUTBOX, NewReply
from legation_testing import Client, Delayed, play

from ...providers.deliveries import ENVIRON, platform, telegram, whatsapp
from ...providers.strict import WhatsAppApi
from ...put_replies import PutReplies

NOW = 1_767_225_600_000_000
LEASE_US = 30_000_000
QUEUES: Final[tuple[LeasedQueue[Any, Any], ...]] = (INBOX, OUTBOX)


def made(**configuration: Any) -> Callable[[], Any]:
    return lambda: platform(**configuration)


def deliver(c: Client, *texts: tuple[str, str, str]) -> None:
    sent = whatsapp(*texts)
    c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def run(c: Client, unit: Any) -> Any:
    def program() -> Any:
        return (yield from Transact("main", unit))

    return c.simulation.run(program())


def units(c: Client, kind: type[Any]) -> list[Any]:
    found: list[Any] = [getattr(p.effect, "unit", None) for p in c.effects]
    return [unit for unit in found if isinstance(unit, kind)]


def claims(queue: LeasedQueue[Any, Any], kind: type[Any] = ClaimItems) -> Callable[[Any], bool]:
    def which(effect: Any) -> bool:
        unit: Any = getattr(effect, "unit", None)
        return isinstance(unit, kind) and unit.queue is queue

    return which


def test_a_platform_without_channels_has_no_rounds() -> None:
    assert channel_jobs(leases_of(platform(channels=()).context)) == ()


def test_every_database_of_a_channel_has_each_kind_of_round() -> None:
    (worker,) = leases_of(platform().context)

    assert channel_jobs([worker]) == (
        ClaimWork(worker, INBOX, AnswerMessage, worker.inbox),
        ClaimWork(worker, OUTBOX, SendReply, worker.outbox),
        KeepLeases(worker),
        ForgetDone(worker),
    )


def test_no_more_is_under_work_than_a_node_may() -> None:
    slow = {"models": [Model("slow", "echo", delay_seconds=10.0)]}
    with Client(made(agents=[Agent(id="concierge", model="slow")], **slow)) as c:
        deliver(c, *((f"49{i}", f"m{i}", "hi") for i in range(MOST + 9)))
        c.advance(5)
        assert c.get("/channels").json()[0]["messages"]["in_work"] == MOST
        c.advance(30)
        assert c.get("/channels").json()[0]["messages"]["ready"] == 0


def test_no_more_is_sent_at_once_than_a_node_may() -> None:
    def slowly(_: Fetch) -> Delayed:
        return Delayed(10.0, Unreachable("connect"))

    with Client(made(), fetch=slowly) as c:
        deliver(c, *((f"49{i}", f"m{i}", "hi") for i in range(MOST + 9)))
        c.advance(5)
        assert c.get("/channels").json()[0]["replies"]["in_work"] == MOST


def test_messages_and_replies_of_a_channel_that_this_node_does_not_know_wait_untouched() -> None:
    provider = WhatsAppApi()
    with Client(made(), fetch=provider) as c:
        reply = NewReply("reply-b", "4911", encode_reply(Reply("reply-b", "4911", "b")))
        run(c, PutMessages("later", (NewMessage("a", "4911", "{}"),), NOW))
        run(c, PutReplies("later", (reply,), NOW))
        deliver(c, ("4911", "c", "hi"))
        for _ in range(30):
            c.advance(1)
            c.clock.set_forward(3600)

        depths = {row[0]: row for row in _rows(c)}
        assert depths == {"later": ("later", 0, 0)}
        assert [message.text for message in provider.seen] == ["hi"]


def _rows(c: Client) -> Any:
    """Return the attempts at what waits, by channel: of the message and of the reply."""
    messages = run(c, ListItems(INBOX, "later", "ready", 9))
    replies = run(c, ListItems(OUTBOX, "later", "ready", 9))
    return [(m.channel, m.attempts, r.attempts) for m, r in zip(messages, replies, strict=True)]


def beat(node: str) -> Beat:
    return Beat(node, LEASE_US, NOW, (), "", session_lock=False, code_version="", schema_version="")


def test_what_no_attempt_comes_to_an_end_with_is_given_up_and_told() -> None:
    with Client(made()) as c:
        run(c, PutMessages("whatsapp", (NewMessage("a", "4911", "{}"),), NOW))
        run(c, PutReplies("whatsapp", (NewReply("r", "4911", "{}"),), NOW))
        for queue in QUEUES:
            for turn in range(20):
                dead = f"dead-{turn}"
                run(c, beat(dead))
                assert run(c, ClaimItems[Any](queue, dead, 9, 20)).items != ()
                run(c, Bury((dead,)))
        c.advance(2)

        logged = [(log.event, dict(log.fields)) for log in c.logs if "abandoned" in log.event]
        assert logged == [
            ("message_abandoned", {"channel": "whatsapp"}),
            ("reply_abandoned", {"channel": "whatsapp"}),
        ]


@pytest.mark.parametrize(
    ("failure", "level"),
    [(Busy("x"), "warning"), (NotServed("x"), "warning"), (RuntimeError("x"), "error")],
)
@pytest.mark.parametrize("queue", QUEUES, ids=repr)
def test_trouble_of_a_round_is_told_once_and_ends_when_it_does(
    failure: Exception, level: str, queue: LeasedQueue[Any, Any]
) -> None:
    provider = WhatsAppApi()
    with Client(made(), fetch=provider) as c:
        fault = c.fail_at(claims(queue), failure, times=None)
        deliver(c, ("4911", "a", "hi"))
        c.advance(30)
        assert provider.seen == []
        fault.disarm()
        c.advance(6)

        levels = [log.level for log in c.logs if log.event == "channel_round_failed"]
        assert levels == [level]
        assert [message.text for message in provider.seen] == ["hi"]


def test_trouble_that_comes_back_is_told_again() -> None:
    with Client(made()) as c:
        for _ in range(2):
            c.fail_at(claims(INBOX), Busy("x"), times=2)
            c.advance(30)

        assert len([log for log in c.logs if log.event == "channel_round_failed"]) == 2


def test_leases_of_what_is_under_work_are_kept_and_lost_ones_make_room() -> None:
    worker = WorkerLeases(platform().context, "main")
    message, other = (Lease(INBOX, ItemKey("whatsapp", name), "n", 1) for name in "ab")
    reply = Lease(OUTBOX, ItemKey("whatsapp", "r"), "n", 1)
    for lease in (message, other, reply):
        worker.enter(lease)
    program = KeepLeases(worker).program()

    play(
        _first(program, 4),
        [
            (ThisNode(), "n"),
            (Transact("main", ListLeases(QUEUES, "n")), (message, reply)),
            (Now(), NOW),
            (Sleep(10.0), None),
        ],
    )

    assert (worker.list_leases(INBOX), worker.list_leases(OUTBOX)) == ((message,), (reply,))


def look(worker: WorkerLeases, leased: tuple[Lease, ...], now_us: int) -> tuple[Lease, ...]:
    """Return what a look at the leases of the node releases."""
    program = KeepLeases(worker).round()
    released: tuple[Lease, ...] = ()
    answer: Any = None
    while True:
        try:
            effect = program.send(answer)
        except StopIteration:
            return released
        match effect:
            case ThisNode():
                answer = "n"
            case Now():
                answer = now_us
            case Transact(unit=ListLeases()):
                answer = leased
            case Transact(unit=ReleaseLeases(leases)):
                released, answer = leases, len(leases)
            case _:
                answer = None


LOST: Final = tuple(Lease(INBOX, ItemKey("whatsapp", name), "n", 1) for name in "ab")


def test_what_nobody_works_on_is_released_at_the_second_look_a_third_of_a_lease_later() -> None:
    worker = WorkerLeases(platform().context, "main")
    other = WorkerLeases(worker.context, "main")
    worker.enter(LOST[1])

    assert [look(worker, LOST, NOW + us) for us in (0, 1, LEASE_US // 3 - 1)] == [()] * 3
    assert look(other, LOST, NOW + LEASE_US // 3) == LOST[:1]
    worker.leave(LOST[1])
    assert look(worker, LOST[1:], NOW + LEASE_US // 3 * 2) == ()
    assert look(worker, LOST[1:], NOW + LEASE_US) == LOST[1:]
    assert look(worker, LOST, NOW + LEASE_US // 3 * 4) == ()


def test_there_is_no_second_look_while_a_claim_is_on_its_way_that_was_so_at_the_first() -> None:
    """Its commit may stand in the database and its answer on the wire, for however long."""
    worker = WorkerLeases(platform().context, "main")
    other = WorkerLeases(worker.context, "main")

    def claim() -> Program[None]:
        yield Now()

    for asked in (worker, other):
        claiming, later = asked.claim(claim()), asked.claim(claim())
        next(claiming)
        assert [look(worker, LOST, NOW + turn * LEASE_US) for turn in range(3)] == [()] * 3
        next(later)
        claiming.close()
        assert asked.busy
        assert look(worker, LOST, NOW + 3 * LEASE_US) == LOST
        later.close()
        assert not asked.busy


def test_what_is_idle_in_one_database_is_not_taken_for_the_same_in_another() -> None:
    context = platform().context
    main, second = (WorkerLeases(context, name) for name in ("main", "second"))
    main.enter(LOST[0])

    assert [look(main, LOST, NOW + turn * LEASE_US) for turn in range(2)] == [(), LOST[1:]]
    assert [look(second, LOST, NOW + turn * LEASE_US) for turn in range(2)] == [(), LOST]


def test_a_restored_database_gives_nothing_out_twice() -> None:
    """Its row stands as it did before the claim, so that the lease has the same number again."""
    worker = WorkerLeases(platform().context, "main")
    worker.enter(LOST[0])
    worker.context.cluster.member("main").late_us = NOW + LEASE_US
    again, other = (ClaimedMessage(lease, "4911", "{}", NOW, 0, None) for lease in LOST)
    claimed = ClaimedItems((again, other))

    play(
        answer_inbox(worker).round(),
        [
            (ThisNode(), "n"),
            (Now(), NOW),
            (Transact("main", ClaimItems(INBOX, "n", MOST - 1, 20, worker.channels)), claimed),
            (Spawn(AnswerMessage(worker, other)), None),
        ],
    )

    assert worker.list_leases(INBOX) == LOST


def released(c: Client) -> list[dict[str, Any]]:
    return [dict(log.fields) for log in c.logs if log.event == "channel_leases_released"]


@pytest.mark.parametrize("queue", QUEUES, ids=repr)
def test_a_claim_whose_commit_was_lost_is_released_after_two_looks(
    queue: LeasedQueue[Any, Any],
) -> None:
    provider = WhatsAppApi()
    with Client(made(), fetch=provider) as c, c.peer(made()) as other:
        c.advance(0.5)

        def lost(effect: Any) -> bool:
            return claims(queue)(effect) and effect.unit.node == c.node.name

        c.fail_at(lost, CommitLost("x"), after=True)
        for effect in (claims(queue), claims(INBOX)):
            c.fail_at(
                lambda e, effect=effect: effect(e) and e.unit.node == other.node.name,
                Busy("x"),
                times=1,
            )
        deliver(c, ("4911", "a", "hi"), ("4922", "b", "there"))
        c.advance(19)
        assert provider.seen == []
        assert released(c) == []
        c.advance(3)

        assert released(c) == [{"database": "main", "leases": 2}]
        assert sorted(message.text for message in provider.seen) == ["hi", "there"]


def test_what_a_dead_node_had_claimed_is_claimed_as_soon_as_its_row_is_gone() -> None:
    provider = WhatsAppApi()
    slow: dict[str, Any] = {
        "models": [Model("slow", "echo", delay_seconds=1000.0)],
        "agents": [Agent(id="concierge", model="slow")],
    }
    with Client(made(**slow), fetch=provider) as c, c.peer(made()) as other:
        c.node.place = other.node.place = ""  # only its silence tells
        c.advance(6)
        deliver(c, ("4911", "a", "/new"), ("4922", "b", "hi"))
        c.settle()
        texts = [message.text for message in provider.seen]
        deliver(c, ("4933", "c", "hi"))
        c.fail_at(lambda e: claims(INBOX)(e) and e.unit.node != c.node.name, Busy("x"), times=1)
        c.settle()
        c.crash()
        other.advance(20)
        assert [message.text for message in provider.seen] == texts
        run(other, Bury((c.node.name,)))
        other.advance(1)

        assert sorted(message.text for message in provider.seen) == sorted([*texts, "hi", "hi"])


@pytest.mark.parametrize(("place", "seconds"), [("here", 3), ("", 40)])
def test_what_a_dead_node_had_claimed_is_answered_once_it_is_known_to_be_dead(
    place: str, seconds: float
) -> None:
    provider = WhatsAppApi()
    slow: dict[str, Any] = {
        "models": [Model("slow", "echo", delay_seconds=1000.0)],
        "agents": [Agent(id="concierge", model="slow")],
    }
    with Client(made(**slow), fetch=provider) as c:
        c.node.place = place
        c.advance(6)
        deliver(c, ("4911", "a", "hi"))
        c.settle()
        with c.peer(made()) as other:
            other.advance(3)
            c.crash()
            other.advance(seconds)

    assert [message.text for message in provider.seen] == ["hi"]


@pytest.mark.parametrize("skews", [(90, -90), (-90, 90), (0, 90)])
def test_the_clocks_of_nodes_may_differ_by_minutes(skews: tuple[int, int]) -> None:
    """What one takes in is due at once for the other, and no lease depends on either clock."""
    provider = WhatsAppApi()
    slow: dict[str, Any] = {
        "models": [Model("slow", "echo", delay_seconds=100.0)],
        "agents": [Agent(id="concierge", model="slow")],
    }
    with Client(made(**slow), fetch=provider) as c, c.peer(made(**slow)) as other:
        for client, seconds in zip((c, other), skews, strict=True):
            client.node.skew_us = seconds * 1_000_000
        c.advance(6)
        for number, (taker, claimer) in enumerate(((c, other), (other, c)), 1):
            c.fail_at(
                lambda e, node=taker.node.name: claims(INBOX)(e) and e.unit.node == node,
                Busy("x"),
                times=1,
            )
            deliver(taker, (f"49{number}", f"m{number}", f"for {claimer.node.name}"))
            c.advance(1.5)
            assert c.get("/channels").json()[0]["messages"]["in_work"] == number
            c.advance(5)
        c.advance(120)

        assert sorted(message.text for message in provider.seen) == [
            f"for {client.node.name}" for client in (c, other)
        ]
        assert released(c) == []


def _first(program: Any, number: int) -> Program[None]:
    """Run `program` for so many effects."""
    answer: Any = None
    for _ in range(number):
        effect = program.send(answer)
        answer = yield effect
    program.close()


def test_without_work_leases_are_looked_at_three_times_within_a_lease_and_nothing_is_changed() -> (
    None
):
    with Client(made()) as c:
        c.advance(60)

        assert len(units(c, ListLeases)) == 7
        assert units(c, ReleaseLeases) == []


def test_work_that_takes_longer_than_a_lease_is_done_once_with_two_nodes() -> None:
    provider = WhatsAppApi(honours_keys=False)
    configuration: dict[str, Any] = {
        "models": [Model("slow", "echo", delay_seconds=100.0)],
        "agents": [Agent(id="concierge", model="slow")],
    }
    with Client(made(**configuration), fetch=provider) as c, c.peer(made(**configuration)) as other:
        deliver(c, ("4911", "a", "hi"))
        c.advance(130)
        claimed = {unit.node for unit in units(c, ClaimItems) if unit.queue is INBOX}
        assert claimed - {c.node.name} != set()
        assert other.node.alive

    assert [message.text for message in provider.seen] == ["hi"]


def test_what_was_done_a_month_ago_is_forgotten_and_the_rest_is_kept() -> None:
    with Client(made(), fetch=WhatsAppApi()) as c:
        deliver(c, ("4911", "old", "hi"))
        c.settle()
        c.clock.set_forward(KEPT_US / 1_000_000 - 600)
        deliver(c, ("4911", "new", "hi"))
        c.settle()
        c.clock.set_forward(601)
        c.restart()  # a round comes at the start, and then every hour
        c.settle()

        statuses = [c.get(f"/channels/whatsapp/messages/{name}").status for name in ("old", "new")]
        replies = c.get("/channels/whatsapp/replies?state=sent").json()["data"]
        assert statuses == [404, 200]
        assert [reply["id"] for reply in replies] == ["reply-new"]


def test_forgetting_goes_on_until_a_batch_is_not_full() -> None:
    play(
        _first(ForgetDone(WorkerLeases(platform().context, "main")).program(), 7),
        [
            (Now(), NOW),
            (Transact("main", ForgetItems(INBOX, KEPT_US, 500)), 500),
            (Transact("main", ForgetItems(OUTBOX, KEPT_US, 500)), 0),
            (Now(), NOW),
            (Transact("main", ForgetItems(INBOX, KEPT_US, 500)), 499),
            (Transact("main", ForgetItems(OUTBOX, KEPT_US, 500)), 0),
            (Sleep(3600.0), None),
        ],
    )


def test_what_another_node_took_in_is_found_within_a_second() -> None:
    provider = WhatsAppApi()
    with Client(made(), fetch=provider) as c, c.peer(made()) as other:
        c.advance(3)
        sent = whatsapp(("4911", "a", "hi"))
        other.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(1)

    assert [message.text for message in provider.seen] == ["hi"]


def test_two_channels_of_one_kind_are_answered_each_through_its_own_api() -> None:
    def two() -> Any:
        return platform(
            channels=[
                Channel(
                    id=name,
                    kind="telegram",
                    agent="concierge",
                    secret_token_env="TELEGRAM_SECRET",
                    bot_token_env=bot,
                    api_base_url=f"http://{name}.example",
                )
                for name, bot in (("first", "BOT"), ("second", "BOT_2"))
            ],
            environ={**ENVIRON, "BOT_2": "43:bot-token"},
        )

    asked: list[str] = []

    def provider(fetch: Fetch) -> FetchReply:
        if fetch.url.endswith("/sendMessage"):
            asked.append(fetch.url.partition("/bot")[0])
        return FetchReply(200, {}, b'{"ok":true}')

    with Client(two, fetch=provider) as c:
        for name in ("first", "second"):
            sent = telegram(7, 1, "hi")
            c.post(f"/{name}/webhook", headers=sent.headers, body=sent.body).expect_success()
        c.settle()

    assert sorted(asked) == ["http://first.example", "http://second.example"]


def test_a_round_spawns_the_work_it_claimed() -> None:
    with Client(made(), fetch=WhatsAppApi()) as c:
        deliver(c, ("4911", "a", "hi"))
        c.settle()
        jobs = [p.effect.job for p in c.effects if isinstance(p.effect, Spawn)]

    assert {"AnswerMessage", "SendReply"} <= {type(getattr(j, "job", j)).__name__ for j in jobs}
