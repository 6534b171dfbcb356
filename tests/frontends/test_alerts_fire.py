"""The dashboard and the alert rules, asked of a real Prometheus that scrapes real servers.

Three servers are watched: a healthy one with two workers, under load; one around which everything
is broken that can be; and one that is killed.  The healthy one is of another job, so that each
alert says whom it means.
"""

from __future__ import annotations

import math
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
from attrs import frozen

from legation.migrations.schema_version import Version
from legation_host.commit_lock import has_wal_reset_bug

from ..engines import Cluster
from ..pooler import NoPooler, pooled, through
from ..prometheus import (
    RULES,
    NoPrometheus,
    Prometheus,
    Target,
    expressions,
    names_in,
    watching,
)
from ..providers.deliveries import standard, whatsapp
from ..providers.model_server import serving
from .cluster_kit import NIGHTLY
from .migrating import driver_of, move
from .watched_kit import FRIEND, Caller, Node, Talker, messengers, node, token

pytestmark = pytest.mark.newest

HEALTHY: Final = "legation"
FAULTY: Final = "legation-faulty"
AHEAD: Final = 40 * 86_400.0
"""Seconds by which a clock is wrong; more than the days of the retention."""

BEHIND: Final = Version(2, 13, 0)
QUEUED: Final = 8
MANY: Final = 1_200
"""Requests, each with an entry in the trail."""

SMALL_DISK: Final = (
    'mount -t tmpfs -o size=24m tmpfs "$0" && cp "$1" "$0/second.db" && touch "$0/second.db-locks"'
    """ && head -c $(($(stat -f -c '%a * %S' "$0") - 900000)) /dev/zero > "$0/filler" """
    '&& shift && exec "$@"'
)
"""Copy a database to a small disk, leave 900 kB free, and let there be no folder for its locks."""

NAMESPACE: Final = ("unshare", "--map-root-user", "--mount")
"""What lets a command mount a disk that it alone sees."""


@frozen
class World:
    """The servers, who watches them, and the URL of the database that is behind a pooler."""

    prometheus: Prometheus
    healthy: Node
    faulty: Node
    lost: Node
    database: str


@contextmanager
def world(folder: Path, cluster: Cluster) -> Generator[World]:
    """Start everything; nothing is broken yet that can be broken later."""
    targets = [Target(HEALTHY), Target(FAULTY), Target(FAULTY)]
    with ExitStack() as stack:
        enter = stack.enter_context
        prometheus = enter(watching(folder, targets, token("metrics:read")))
        calm, other = enter(cluster.new_database()), enter(cluster.new_database())
        shared = through(other, enter(pooled(cluster, size=20)), query="")
        models, messages = enter(serving(Talker())), enter(messengers())
        healthy = enter(
            node(
                folder / "healthy", targets[0], "--workers", "2",
                main=calm, second=f"sqlite:///{folder / 'second.db'}",
                models=models, channels=messages,
            )
        )  # fmt: skip
        lost = enter(
            node(
                folder / "lost", targets[2],
                main=shared, second=f"sqlite:///{folder / 'lost.db'}",
                models=models, channels=messages,
                WATCHED_GUEST="visitor" if NIGHTLY else "",
            )
        )  # fmt: skip
        leave_work(Caller(lost))
        faulty = enter(faulty_node(folder, targets[1], shared))
        yield World(prometheus, healthy, faulty, lost, other)


def leave_work(caller: Caller) -> None:
    """Leave runs to the other node, for which they are forty days old.

    One is deleted, one waits for a person, and some wait behind one that is under way.
    """
    caller.run("hello")
    caller.run("pay Ada")
    for _ in range(QUEUED):
        caller.run("dawdle", session_id="long", background="true")
        if NIGHTLY:  # the other node looks once a minute for what nobody hosts
            caller.run("dawdle", "agents/visitor", session_id="odd", background="true")


@contextmanager
def faulty_node(folder: Path, target: Target, main: str) -> Generator[Node]:
    """Serve with a wrong clock, an old certificate, an old schema on a full disk, bad providers."""
    old, disk = folder / "old.db", folder / "disk"
    disk.mkdir()
    with closing(driver_of(f"sqlite:///{old}")) as driver:
        move(driver, BEHIND)
    model = Talker()
    model.down = True
    with (
        serving(model) as models,
        messengers(refuse=True) as messages,
        node(
            folder / "faulty", target,
            main=main, second=f"sqlite:///{disk / 'second.db'}",
            models=models, model="gpt-5-nano", channels=messages,
            clock=AHEAD, certificate_days=1.0, WATCHED_MIGRATED="no",
            prefix=(*NAMESPACE, "sh", "-c", SMALL_DISK, str(disk), str(old)),
        ) as served,
    ):  # fmt: skip
        yield served


def break_everything(world: World) -> None:
    """Cause the faults that can only be caused in a server that runs."""
    caller = Caller(world.faulty)
    (world.faulty.folder / "jwks.json").unlink()
    now_us = time.time_ns() // 1000 + round(AHEAD * 1e6)
    assert caller.deliver(whatsapp((FRIEND, "w", "hello"), now_us=now_us)) == 200
    assert caller.deliver(standard("Ada", "m", "hello", now_us)) == 200
    world.lost.command.popen.kill()
    with psycopg.connect(world.database) as connection:
        connection.execute("lock table trail in access exclusive mode")
        assert caller.ask_often("/sessions?db_id=second", MANY) == {503}
        labels = {"instance": world.faulty.target.instance, "database": "main"}
        expected = {"LegationTrailBehind": [labels]}
        world.prometheus.until(
            lambda: not find_silent(world.prometheus.alerts(FAULTY), expected), lambda: expected
        )


def test_panels_have_data_and_alerts_fire_in_their_faults_alone(
    tmp_path: Path, postgres_cluster: Cluster
) -> None:
    try:
        subprocess.run([*NAMESPACE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no small disk can be mounted here, not even in a namespace: {error}")
    try:
        with world(tmp_path, postgres_cluster) as found:
            break_everything(found)
            watch(found)
            check_names(found)
            check_facts(found)
    except (NoPooler, NoPrometheus) as reason:
        pytest.skip(str(reason))


def watch(world: World) -> None:
    """Go on with the load until each panel had data, and each fault has its alert, and no other."""
    healthy, faulty, expected = Caller(world.healthy), Caller(world.faulty), expect_alerts(world)
    empty = expressions()
    rounds = 0

    def find_missing() -> list[object]:
        alerts = world.prometheus.alerts(FAULTY)
        return [*empty, *find_silent(alerts, expected), *(alerts.keys() - expected.keys())]

    def load() -> bool:
        nonlocal rounds
        rounds += 1
        healthy.make_load(rounds)
        faulty.run("hello")
        for name, query in [*empty.items()]:
            if not all(math.isnan(value) for _, value in world.prometheus.query(query)):
                del empty[name]
        return not find_missing()

    world.prometheus.until(load, find_missing)
    assert world.prometheus.alerts(HEALTHY) == {}
    was_true = f'count_over_time(ALERTS{{job="{HEALTHY}",alertname!="LegationDown"}}[10m])'
    assert world.prometheus.query(was_true) == []  # nor before, but while it started


def find_silent(
    alerts: Mapping[str, Sequence[Mapping[str, str]]],
    expected: Mapping[str, Sequence[Mapping[str, str]]],
) -> list[tuple[str, Mapping[str, str]]]:
    """Return those that are expected and are not among the alerts."""
    return [
        (name, labels)
        for name, each in expected.items()
        for labels in each
        if not any(labels.items() <= found.items() for found in alerts.get(name, ()))
    ]


def check_names(world: World) -> None:
    """Compare what is asked for with what the servers measure."""
    measured: set[str] = set()
    if not NIGHTLY:
        measured.add("legation_unhosted_runs")  # it is there when there are some
    measured |= {
        name
        for each in (world.healthy, world.faulty)
        for name in re.findall(r"^# TYPE (\S+)", Caller(each).read_metrics(), re.MULTILINE)
    }
    asked = {name for query in expressions().values() for name in names_in(query)}
    ruled = names_in(RULES.read_text("utf-8"))

    assert asked - measured == set()
    assert ruled - measured == set()


def check_facts(world: World) -> None:
    """Two workers have one certificate and one disk: what they measure is not added up."""
    labels = f'{{instance="{world.healthy.target.instance}"}}'
    ((_, left),) = world.prometheus.query(
        f"legation_certificate_expires_timestamp_seconds{labels} - time()"
    )
    ((_, size),) = world.prometheus.query(f"legation_disk_size_bytes{labels}")

    assert 89 * 86_400 < left < 90 * 86_400
    assert size == shutil.disk_usage(world.healthy.folder).total


def expect_alerts(world: World) -> dict[str, list[dict[str, str]]]:
    """Return the labels of each alert, by its name."""
    server = world.faulty.target.instance
    findings = ["pooler_undeclared"]
    if has_wal_reset_bug(sqlite3.sqlite_version_info):
        findings.append("sqlite_wal_reset_bug")
    unhosted: dict[str, list[dict[str, str]]] = (
        {"LegationRunsUnhosted": [{"database": "main"}]} if NIGHTLY else {}
    )
    return {
        **unhosted,
        "LegationDown": [{"instance": world.lost.target.instance}],
        "LegationServerErrors": [{"instance": server}],
        "LegationClockWrong": [{"instance": server, "database": "main"}],
        "LegationKeysStale": [{"instance": server}],
        "LegationCertificateExpires": [
            {"instance": server, "severity": "page"},
            {"instance": server, "severity": "ticket"},
        ],
        "LegationUnsafeSetting": [{"instance": server, "finding": code} for code in findings],
        "LegationDatabaseNotServing": [{"instance": server, "database": "second"}],
        "LegationSchemaBehind": [{"database": "second", "state": "behind", "version": str(BEHIND)}],
        "LegationDiskSpaceLow": [
            {"instance": server, "database": "second", "severity": "page"},
            {"instance": server, "database": "second", "severity": "ticket"},
        ],
        "LegationNodeLost": [{"database": "main"}],
        "LegationRunsWait": [{"database": "main"}],
        "LegationApprovalsWait": [{"database": "main"}],
        "LegationModelFailing": [{"model": "gpt-5-nano"}],
        "LegationDeadLetters": [{"database": "main", "channel": "standard"}],
        "LegationChannelHeld": [{"database": "main", "channel": "whatsapp"}],
    }
