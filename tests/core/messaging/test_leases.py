from __future__ import annotations

from attrs import evolve

from legation import Agent, Channel, Database
from legation.messaging.leases import WorkerLeases
from legation.store.inbox import INBOX
from legation.store.leased_queue import ItemKey, Lease
from legation.store.outbox import OUTBOX

from ...providers.deliveries import KINDS, channels, platform

MESSAGE = Lease(INBOX, ItemKey("whatsapp", "m"), "n", 1)
REPLY = Lease(OUTBOX, ItemKey("whatsapp", "reply-m"), "n", 1)


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

    assert WorkerLeases(hosted.context, "main").channels == tuple(sorted(KINDS))
    assert WorkerLeases(hosted.context, "other").channels == ("another",)
    assert WorkerLeases(hosted.context, "main").channel("slack").codec.kind == "slack"


def test_what_is_taken_is_held_until_it_is_let_go() -> None:
    worker = WorkerLeases(platform().context, "main")
    worker.enter(MESSAGE)
    worker.enter(REPLY)
    assert (worker.list_leases(INBOX), worker.list_leases(OUTBOX)) == ((MESSAGE,), (REPLY,))

    for _ in range(2):
        worker.leave(MESSAGE)
        worker.leave(REPLY)
        assert (worker.list_leases(INBOX), worker.list_leases(OUTBOX)) == ((), ())


def test_work_under_an_old_lease_does_not_let_a_newer_one_go() -> None:
    worker = WorkerLeases(platform().context, "main")
    newer, later = evolve(MESSAGE, attempts=2), evolve(REPLY, attempts=2)
    worker.enter(newer)
    worker.enter(later)

    worker.leave(MESSAGE)
    worker.leave(REPLY)

    assert (worker.list_leases(INBOX), worker.list_leases(OUTBOX)) == ((newer,), (later,))


def test_topics_are_those_of_the_database() -> None:
    worker = WorkerLeases(platform().context, "main")

    assert (worker.inbox, worker.outbox) == ("inbox:main", "outbox:main")
