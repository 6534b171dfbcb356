"""One of two databases goes away: runs of the other go on, and none of its own fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx2
import pytest

from legation import Agent, Database, Model, Platform

from ..engines import Cluster, NoPostgres, cluster, restarting
from .hosted import hosted

SESSIONS: Final = 12
AWAY_SECONDS: Final = 2.0
PATIENCE: Final = 60.0


def platform(first: str, second: str) -> Platform:
    """Two databases, each with an agent that remembers what was said; one of them is slow.

    The other asks its database for one thing after the other, so that some run is always about to
    begin, and has read nothing yet, when that goes away.
    """
    return Platform(
        databases=[Database("sqlite", first), Database("postgres", second, auto_migrate=True)],
        models=[Model("slow", "echo", delay_seconds=0.3)],
        agents=[
            Agent(id="sqlite", model="slow", database="sqlite"),
            Agent(id="postgres", database="postgres"),
        ],
    )


def ask(client: httpx2.Client, agent: str, session: int) -> httpx2.Response:
    form = {"message": "hello", "stream": "false", "session_id": f"s{session}"}
    return client.post(f"/agents/{agent}/runs", data=form)


def test_two_seconds_without_a_database_fail_no_run(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    try:
        with cluster() as found:
            counts = outage(f"sqlite:///{tmp_path}/first.db", found)
    except NoPostgres as reason:
        pytest.skip(str(reason))

    figures(f"database away for {AWAY_SECONDS:g} s: {counts}")


def outage(first: str, found: Cluster) -> dict[str, int]:
    """Ask two agents all the time, take the database of one away; return what became of it."""
    with (
        restarting(found) as restart,
        hosted(platform(first, found.url())) as base,
        httpx2.Client(base_url=base, timeout=PATIENCE) as client,
        ThreadPoolExecutor(2 * SESSIONS) as pool,
    ):
        stop = threading.Event()
        statuses: dict[str, list[int]] = {"sqlite": [], "postgres": []}

        def talk(agent: str, session: int) -> None:
            while not stop.is_set():
                statuses[agent].append(ask(client, agent, session).status_code)

        talks = [pool.submit(talk, name, n) for name in statuses for n in range(SESSIONS)]
        time.sleep(1.0)
        before = len(statuses["sqlite"])
        restart(AWAY_SECONDS)
        meanwhile = len(statuses["sqlite"]) - before
        stop.set()
        for each in talks:
            each.result(PATIENCE)

        runs = {
            name: [
                run
                for n in range(SESSIONS)
                for run in client.get(f"/agents/{name}/runs?session_id=s{n}").json()
            ]
            for name in statuses
        }

    assert {run["status"] for name in runs for run in runs[name]} == {"COMPLETED"}
    assert set(statuses["sqlite"]) == {200}
    assert set(statuses["postgres"]) <= {200, 503}
    assert meanwhile > SESSIONS
    return {
        "runs there": len(runs["postgres"]),
        "failed": sum(run["status"] == "ERROR" for run in runs["postgres"]),
        "runs of the other meanwhile": meanwhile,
    }
