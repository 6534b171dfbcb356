"""A database is read by a program that asks little, and judged by what it said."""

from __future__ import annotations

from typing import Any, Final

import pytest
from attrs import evolve

from legation import Agent, Database, Platform
from legation.config import Retention
from legation.diagnosis.databases import (
    DatabaseFacts,
    judge_database,
    judge_failure,
    read_database,
)
from legation.effects import Now, Transact
from legation.hosted.registry import Registry
from legation.migrations.catalogue import CATALOGUE
from legation.migrations.ledger import Corrupt, LedgerReading, ReadLedger, State
from legation.migrations.schema_version import Version
from legation.store.channel_states import HeldChannel, ListHeld
from legation.store.failures import StoreFailure, Unavailable, WrongSchema
from legation.store.inbox import INBOX
from legation.store.leased_queue import CountItems, QueueDepth
from legation.store.nodes import ClusterClock, OtherNode
from legation.store.outbox import OUTBOX
from legation.store.retention import FetchSweep, Sweep
from legation.store.run_rows import DAY_US
from legation.store.surveys import NodeSurvey, ReadServer, ServerReading, SurveyNodes
from legation.store.units import Dialect
from legation.version import VERSION
from legation_testing import play

NOW_US: Final = 1_767_225_600_000_000
LATEST: Final = CATALOGUE.latest
SERVED: Final = LedgerReading(
    Dialect.SQLITE, (), State(LATEST, CATALOGUE.seal(LATEST, Dialect.SQLITE), LATEST, 1)
)
EMPTY: Final = LedgerReading(Dialect.SQLITE, (), State())
SERVER: Final = ServerReading("3.51.3", NOW_US)
BUSY: Final = NodeSurvey(
    ClusterClock(0, NOW_US), NOW_US, (OtherNode("a", "", (), 0, 0, VERSION, "1"),), 0
)
SOUND: Final = DatabaseFacts(SERVED, SERVER, NOW_US, 0, BUSY, swept_us=NOW_US)


def registry(**database: Any) -> Registry:
    return Platform(
        agents=[Agent("desk")],
        retention=Retention(runs_days=30),
        databases=[evolve(Database("main", "sqlite:///main.db"), **database)],
    ).registry


def judged(facts: DatabaseFacts, connections: int = 0, **database: Any) -> list[tuple[str, str]]:
    found = judge_database(registry(**database), "main", facts, connections)
    return [(one.code, one.severity) for one in found]


# --- the reading ----------------------------------------------------------------------------------


ASKED: Final[list[tuple[Any, Any]]] = [
    (Transact("main", ReadLedger()), SERVED),
    (Now(), NOW_US - 10),
    (Transact("main", ReadServer()), SERVER),
    (Now(), NOW_US + 10),
    (Transact("main", SurveyNodes()), BUSY),
    (Transact("main", CountItems(INBOX)), ()),
    (Transact("main", CountItems(OUTBOX)), ()),
    (Transact("main", ListHeld()), ()),
    (Transact("main", FetchSweep()), Sweep(swept_us=NOW_US)),
]


def test_a_served_database_is_asked_for_everything() -> None:
    assert play(read_database(registry(), "main"), ASKED) == evolve(SOUND, spread_us=10)


def test_a_database_that_is_not_served_is_asked_for_no_table() -> None:
    script = [(Transact("main", ReadLedger()), EMPTY), *ASKED[1:4]]
    facts = play(read_database(registry(), "main"), script)

    assert facts == DatabaseFacts(EMPTY, SERVER, NOW_US, 10)


@pytest.mark.parametrize("number", [n for n, (ask, _) in enumerate(ASKED) if ask != Now()])
def test_what_was_read_before_a_failure_stays(number: int) -> None:
    failure = Unavailable("away")
    script = [*ASKED[:number], (ASKED[number][0], failure)]
    facts = play(read_database(registry(), "main"), script)

    assert facts.failure is failure
    assert facts.ledger == (SERVED if number else None)
    assert facts.server == (SERVER if number > 2 else None)
    assert not judged(facts)


# --- the judgement --------------------------------------------------------------------------------


def test_a_sound_database_is_no_finding() -> None:
    assert judged(SOUND) == []
    assert judged(DatabaseFacts()) == []


@pytest.mark.parametrize(
    ("ledger", "database", "found"),
    [
        (EMPTY, {}, [("schema_behind", "medium")]),
        (EMPTY, {"auto_migrate": False}, [("schema_behind", "high")]),
        (EMPTY, {"url": "postgresql://h/n"}, [("schema_behind", "high")]),
        (EMPTY, {"url": "postgresql://h/n", "auto_migrate": True}, [("schema_behind", "medium")]),
        (
            LedgerReading(Dialect.SQLITE, (), State(Version(99, 0, 0), "", Version(99, 0, 0), 1)),
            {},
            [("schema_unknown", "high")],
        ),
        (LedgerReading(Dialect.SQLITE, (), Corrupt("no")), {}, [("schema_unknown", "high")]),
    ],
    ids=["empty", "by hand", "server", "server by itself", "ahead", "corrupt"],
)
def test_a_schema_is_judged_by_who_may_serve_it(
    ledger: LedgerReading, database: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    assert judged(DatabaseFacts(ledger), **database) == found


@pytest.mark.parametrize(
    ("server", "connections", "found"),
    [
        (ServerReading("17", NOW_US, connections=17), 17, []),
        (ServerReading("17", NOW_US, connections=16), 17, [("connections_scarce", "medium")]),
        (ServerReading("17", NOW_US, connections=-3), 17, [("connections_scarce", "medium")]),
        (ServerReading("17", NOW_US, durable=False), 17, [("postgresql_not_durable", "high")]),
        (ServerReading("17", NOW_US - 90_000_000), 0, [("clock_differs", "medium")]),
    ],
    ids=["enough", "one too few", "more than there may be", "not durable", "clock"],
)
def test_a_server_is_judged_by_its_clock_its_settings_and_its_room(
    server: ServerReading, connections: int, found: list[tuple[str, str]]
) -> None:
    assert judged(evolve(SOUND, server=server), connections) == found


def silent(count: int, version: str = VERSION) -> NodeSurvey:
    """Return nodes that have not beaten for 31 seconds."""
    nodes = tuple(OtherNode(f"n{n}", "", (), 0, 0, version, "1") for n in range(count))
    return NodeSurvey(ClusterClock(0, NOW_US), NOW_US + 31_000_000, nodes)


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        (evolve(BUSY, database_us=NOW_US + 30_000_000), []),
        (silent(1), ["node_silent"]),
        (silent(5), ["node_silent"] * 5),
        (silent(9), ["node_silent"] * 6),
        (silent(1, "0.0.1"), ["node_silent", "releases_differ"]),
        (evolve(BUSY, orphans=3), ["runs_orphaned"]),
    ],
    ids=["a lease", "more than a lease", "five", "nine", "another release", "orphans"],
)
def test_nodes_are_judged_by_when_they_were_heard(nodes: NodeSurvey, found: list[str]) -> None:
    assert [code for code, _ in judged(evolve(SOUND, nodes=nodes))] == found


@pytest.mark.parametrize(("orphans", "told"), [(3, ": 3"), (1_000, ": 1000 or more")])
def test_orphans_are_counted_up_to_a_bound(orphans: int, told: str) -> None:
    facts = evolve(SOUND, nodes=evolve(BUSY, orphans=orphans))
    (found,) = judge_database(registry(), "main", facts)

    assert found.message.endswith(told)


def test_dead_letters_and_held_channels_are_told_by_channel() -> None:
    depths = (QueueDepth("help", 9, 9, 0, 1), QueueDepth("bot", 0, 0, 2, None))
    held = (HeldChannel("bot", 1, "401"),)
    facts = evolve(SOUND, inbox=depths, outbox=depths, held=held)
    found = list(judge_database(registry(), "main", facts))

    assert [(one.code, one.path) for one in found] == [
        ("dead_letters", "channels.bot"),
        ("dead_letters", "channels.bot"),
        ("channel_held", "channels.bot"),
    ]
    assert ["messages" in found[0].message, "replies" in found[1].message] == [True, True]


@pytest.mark.parametrize(
    ("swept_us", "retention", "codes"),
    [
        (NOW_US - 2 * DAY_US + 1, Retention(runs_days=1), []),
        (NOW_US - 2 * DAY_US, Retention(runs_days=1), ["retention_behind"]),
        (None, Retention(runs_days=1), []),
        (1, Retention(), []),
    ],
    ids=["yesterday", "two days ago", "never", "none asked for"],
)
def test_a_retention_is_behind_after_two_days(
    swept_us: int | None, retention: Retention, codes: list[str]
) -> None:
    platform = Platform(retention=retention, databases=[Database("main", "sqlite:///main.db")])
    facts = evolve(SOUND, swept_us=swept_us)
    found = judge_database(platform.registry, "main", facts)

    assert [one.code for one in found] == codes


@pytest.mark.parametrize(
    ("failure", "code"),
    [(Unavailable(), "database_unreachable"), (WrongSchema(), "schema_unknown")],
    ids=str,
)
def test_a_failure_is_told_in_words(failure: StoreFailure, code: str) -> None:
    found = judge_failure("main", failure, "it is away")

    assert (found.code, found.message) == (code, "cannot be read: it is away")
