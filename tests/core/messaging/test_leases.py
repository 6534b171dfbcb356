from __future__ import annotations

from attrs import evolve

from legation import Agent, Channel, Database
from legation.messaging.leases import Desk
from legation.store.inbox import Lease, MessageKey
from legation.store.outbox import ReplyKey, ReplyLease

from ...providers.deliveries import KINDS, channels, platform

MESSAGE = Lease(MessageKey("whatsapp", "m"), "n", 1)
REPLY = ReplyLease(ReplyKey("whatsapp", "reply-m"), "n", 1)


def test_a_desk_knows_the_channels_of_its_database_alone() -> None:
    hosted = platform(
        databases=[Database("main", "sqlite://"), Database("other", "sqlite://")],
        agents=[Agent(id="concierge"), Agent(id="second", database="other")],
        channels=[
            *channels("http://127.0.0.1:9"),
            Channel(
                id="another",
                kind="standard",
                agent="second",
                secret_env="STANDARD",
                reply_url="http://127.0.0.1:9",
            ),
        ],
    )

    assert Desk(hosted.workshop, "main").channels == tuple(sorted(KINDS))
    assert Desk(hosted.workshop, "other").channels == ("another",)
    assert Desk(hosted.workshop, "main").channel("slack").codec.kind == "slack"


def test_what_is_taken_is_held_until_it_is_let_go() -> None:
    desk = Desk(platform().workshop, "main")
    desk.take(MESSAGE)
    desk.take(REPLY)
    assert (desk.leases, desk.sending) == ({MESSAGE.key: MESSAGE}, {REPLY.key: REPLY})

    for _ in range(2):
        desk.let_go(MESSAGE)
        desk.let_go(REPLY)
        assert (desk.leases, desk.sending) == ({}, {})


def test_work_under_an_old_lease_does_not_let_a_newer_one_go() -> None:
    desk = Desk(platform().workshop, "main")
    newer, later = evolve(MESSAGE, attempts=2), evolve(REPLY, attempts=2)
    desk.take(newer)
    desk.take(later)

    desk.let_go(MESSAGE)
    desk.let_go(REPLY)

    assert (desk.leases, desk.sending) == ({MESSAGE.key: newer}, {REPLY.key: later})


def test_topics_are_those_of_the_database() -> None:
    desk = Desk(platform().workshop, "main")

    assert (desk.inbox, desk.outbox) == ("inbox:main", "outbox:main")
