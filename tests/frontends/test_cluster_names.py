"""Names of nodes: in two containers on one file, on two hosts, with sessions that are ended.

A name is held by the system and by SQL, so these are run on the newest Python alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from legation.store.nodes import SESSION_LOCKS

from .cluster_kit import (
    ask_json,
    await_true,
    begin_run,
    begin_talks,
    finish_talks,
    node,
    report_talks,
    status_of,
)
from .drain_kit import RUNS

pytestmark = pytest.mark.newest

COUNT: Final = 12
ROOTLESS: Final = () if os.geteuid() == 0 else ("--user", "--map-root-user")
CONTAINER: Final = ("unshare", *ROOTLESS, "--pid", "--fork", "--kill-child", "--mount-proc")
"""What runs a command as process 1 of a container, as far as process ids go."""


def await_taken_up(port: int, run_id: str) -> Any:
    """Wait for the end of a run whose node is dead: interrupted, or executed anew if untouched."""
    await_true(lambda: status_of(port, run_id) in ("COMPLETED", "ERROR"))
    return ask_json(port, "GET", f"{RUNS}/{run_id}")[1]


def has_containers() -> bool:
    try:
        done = subprocess.run([*CONTAINER, sys.executable, "-c", ""], check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@pytest.mark.skipif(not has_containers(), reason="no namespaces of process ids here")
def test_two_containers_on_one_file_tell_the_living_from_the_dead(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    url = f"sqlite:///{tmp_path}/main.db"
    with node(url, prefix=CONTAINER) as one, node(url, prefix=CONTAINER) as two:
        ports = [one.port(), two.port()]
        talks = begin_talks(ports, COUNT, 5.0)
        finish_talks(talks, 60.0)
        lost = [*one.named("node_lost"), *two.named("node_lost")]
        run_id = begin_run(ports[1], "4 words in 8.0 s", "s")
        await_true(lambda: status_of(ports[0], run_id) == "RUNNING")
        two.popen.kill()
        took = await_true(lambda: one.named("node_lost"))
        run = await_taken_up(ports[0], run_id)

    figures(f"two containers on one file: {report_talks(talks)}; one killed, known in {took:.1f} s")
    assert lost == []
    assert run["status"] in ("COMPLETED", "ERROR")


@contextmanager
def ending_sessions(url: str, counted: list[int]) -> Generator[None]:
    """End each session that holds the name of a node, again and again."""
    stop = threading.Event()

    def end() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not stop.wait(0.5):
                rows = connection.execute(
                    "select pg_terminate_backend(pid) from pg_locks"
                    " where locktype = 'advisory' and objsubid = 2 and classid = %s",
                    (SESSION_LOCKS,),
                ).fetchall()
                counted.append(len(rows))

    thread = threading.Thread(target=end)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def count_locked(url: str) -> int:
    """Return how many nodes say that a session holds their name."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select count(*) from nodes where session_lock = 1").fetchall()
    return int(rows[0][0])


def on_hosts(folder: Path) -> list[dict[str, str]]:
    """Return the environments of two hosts, as far as names go: each has a folder of its own."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    return [{"TMPDIR": str(folder / name)} for name in ("one", "two")]


def test_a_session_that_ends_is_no_death(
    postgres_database: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    here, there = on_hosts(tmp_path)
    counted: list[int] = []
    with (
        node(postgres_database, lease=5.0, env=here) as one,
        node(postgres_database, lease=5.0, env=there) as two,
    ):
        talks = begin_talks([one.port(), two.port()], COUNT, 10.0)
        with ending_sessions(postgres_database, counted):
            finish_talks(talks, 60.0)
        lost = [*one.named("node_lost"), *two.named("node_lost")]

    figures(f"{sum(counted)} sessions of living nodes ended: {report_talks(talks)}")
    assert sum(counted) >= 4
    assert lost == []


def test_a_killed_node_of_another_host_is_succeeded_before_its_lease_ends(
    postgres_database: str, tmp_path: Path, figures: Callable[[str], None]
) -> None:
    lease = 15.0
    here, there = on_hosts(tmp_path)
    with (
        node(postgres_database, lease=lease, env=here) as one,
        node(postgres_database, lease=lease, env=there) as two,
    ):
        ports = [one.port(), two.port()]
        run_id = begin_run(ports[1], "4 words in 8.0 s", "s")
        await_true(lambda: count_locked(postgres_database) == len(ports))  # at the second beat
        for pid in two.workers:
            os.kill(pid, 9)
        two.popen.kill()
        took = await_true(lambda: one.named("node_lost"))
        run = await_taken_up(ports[0], run_id)

    figures(f"killed on another host, lease of {lease:g} s: succeeded after {took:.1f} s")
    assert run["status"] in ("COMPLETED", "ERROR")
    assert took < lease
