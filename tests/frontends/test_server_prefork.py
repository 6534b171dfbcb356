"""Several workers: what they share, how they are replaced, and what is refused."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

import legation_server
from legation_server import prefork

from .command_kit import Command, ask, read_reply, running, write_platform

RESTARTS: Final = int(os.environ.get("LEGATION_RESTARTS", "20"))
CLIENTS: Final = 6

QUICK: Final = ("--limit", "grace_seconds=0.3", "--limit", "drain_seconds=5")

SLOW: Final = ("--limit", "grace_seconds=3", "--limit", "drain_seconds=5")
BANNER: Final = re.compile(r" served at \S+:(\d+)$")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="slots are spread on Linux")


def connect(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def sockets(pid: int) -> int:
    """Return how many sockets a process has."""
    links = (str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir())
    return sum(link.startswith("socket:") for link in links)


def has_served(command: Command, number: int) -> bool:
    return len(command.named("worker_serves")) == number


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


class Load:
    """Clients that ask without pause, each on a connection it keeps for as long as it may."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered = 0
        self.connections = 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                self._converse()
            except OSError as error:
                self.failures.append(repr(error))

    def _converse(self) -> None:
        with closing(connect(self.port)) as client:
            self.connections += 1
            while not self._stop.is_set():
                client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
                status, head, _ = read_reply(client)
                self.answered += 1
                if status != 200:
                    self.failures.append(f"status {status}")
                if b"connection: close" in head:
                    return
                time.sleep(0.002)

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)


def test_the_package_imports_what_several_workers_need_and_has_no_other_names() -> None:
    assert legation_server.run_workers is prefork.run_workers
    with pytest.raises(AttributeError, match=r"^module 'legation_server' has no attribute 'Hook'$"):
        _ = getattr(legation_server, "Hook")  # noqa: B009 (a checker refuses it otherwise)


def test_no_request_fails_while_workers_are_replaced(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    # A client that does not come by for so long, as on a busy machine, is parted with.
    grace = ("--limit", "grace_seconds=1", "--limit", "drain_seconds=5")
    arguments = (write_platform(tmp_path), "--port", "0", "--workers", "2", *grace)
    with running(*arguments) as command:
        load = Load(command.port())
        try:
            for turn in range(RESTARTS):
                before = command.workers
                command.signal(signal.SIGHUP)
                command.until(partial(has_served, command, 4 + 2 * turn))
                assert not before & {line["pid"] for line in command.named("worker_serves")[-2:]}
            time.sleep(0.2)
        finally:
            load.end()

        assert load.failures == []
        assert load.answered > 10 * RESTARTS
        assert load.connections > CLIENTS + RESTARTS  # they were moved
        command.until(lambda: len(command.workers) == 2)
        command.signal(signal.SIGTERM)
        assert command.ended() == 0
        assert not command.named("worker_killed")
    figures(f"{RESTARTS} rolling restarts under {load.answered:,} requests, none failed")


def test_connections_are_spread_over_the_workers(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), "--port", "0", "--workers", "2") as command:
        port = command.port()
        before = {pid: sockets(pid) for pid in command.workers}
        clients = [connect(port) for _ in range(64)]
        for client in clients:
            ask(client)
        counts = [sockets(pid) - count for pid, count in before.items()]
        for client in clients:
            client.close()

    assert sum(counts) == 64
    assert min(counts) >= 12


def test_a_worker_that_died_is_replaced(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), "--port", "0", "--workers", "2") as command:
        port = command.port()
        first, second = sorted(command.workers)
        os.kill(first, signal.SIGKILL)
        command.until(lambda: len(command.named("worker_serves")) == 3)
        (ended,) = command.named("worker_ended")

        assert (ended["pid"], ended["code"]) == (first, -signal.SIGKILL)
        assert second in command.workers
        assert len(command.workers) == 2
        for _ in range(8):
            with closing(connect(port)) as client:
                assert ask(client)[0] == 200


def test_what_is_in_flight_is_answered_when_the_parent_is_told_to_end(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), "--port", "0", "--workers", "2", *QUICK) as command:
        with closing(connect(command.port())) as client:
            assert ask(client)[0] == 200
            command.signal(signal.SIGTERM)
            time.sleep(0.1)
            client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            status, head, _ = read_reply(client)

        assert status == 200
        assert b"connection: close" in head
        assert command.ended() == 0


def test_who_comes_while_workers_drain_is_refused_at_once(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), "--port", "0", "--workers", "2", *SLOW) as command:
        port = command.port()
        with closing(connect(port)) as client:
            assert ask(client)[0] == 200
            command.signal(signal.SIGTERM)
            time.sleep(0.3)
            for _ in range(8):
                with pytest.raises(ConnectionRefusedError):
                    connect(port)
            assert ask(client)[0] == 200  # that one is still served

        assert command.ended() == 0


def test_a_log_that_nobody_reads_any_more_ends_no_worker(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    arguments = ("serve", write_platform(tmp_path), "--port", "0", "--workers", "2", *QUICK)
    told = [sys.executable, "-m", "legation_cli", *map(str, arguments)]
    with subprocess.Popen(told, stderr=writing) as process, os.fdopen(reading) as log:
        os.close(writing)
        try:
            port = next(int(found[1]) for line in log if (found := BANNER.search(line)))
            log.close()
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            before = children.read_text().split()
            with closing(connect(port)) as client:
                for _ in range(3):
                    assert ask(client)[0] == 200
                    time.sleep(0.3)  # the lines of the log are written meanwhile
            process.send_signal(signal.SIGHUP)
            due = time.monotonic() + 10
            while set(before) & set(children.read_text().split()):
                assert time.monotonic() < due, "the workers are not replaced"
                time.sleep(0.02)
            with closing(connect(port)) as client:
                assert ask(client)[0] == 200
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_ctrl_c_reaches_the_group_and_ends_it_in_order(tmp_path: Path) -> None:
    arguments = (write_platform(tmp_path), "--port", "0", "--workers", "2", *QUICK)
    with running(*arguments, start_new_session=True) as command:
        with closing(connect(command.port())) as client:
            assert ask(client)[0] == 200
            os.killpg(command.popen.pid, signal.SIGINT)
            time.sleep(0.1)
            assert ask(client)[0] == 200

        assert command.ended() == 0


def test_workers_end_when_their_parent_is_gone(tmp_path: Path) -> None:
    with running(write_platform(tmp_path), "--port", "0", "--workers", "2", *QUICK) as command:
        command.port()
        left = command.workers
        command.popen.kill()
        due = time.monotonic() + 10
        while any(map(alive, left)):
            assert time.monotonic() < due, "a worker outlives its parent"
            time.sleep(0.02)


def test_a_configuration_that_cannot_be_served_leaves_the_workers(tmp_path: Path) -> None:
    path = write_platform(tmp_path)
    with running(path, "--port", "0", "--workers", "2", *QUICK) as command:
        port, before = command.port(), command.workers
        good = path.read_text()
        path.write_text("[[agents]]\nid = 7\n")
        command.signal(signal.SIGHUP)
        command.until(lambda: command.named("reload_failed"))
        assert command.workers == before

        path.write_text(good + '\n[[agents]]\nid = "second"\n')
        command.signal(signal.SIGHUP)
        command.until(lambda: len(command.workers - before) == len(command.workers) == 2)
        with closing(connect(port)) as client:
            status, body = ask(client, "/agents")

    assert status == 200
    assert b'"second"' in body


HOPEFUL: Final = """
import os, signal, sys, time
from functools import partial
from legation_server import Hooks, run_workers

def work(config, listeners, ready, parent):
    print(config, flush=True)
    if config == "broken":
        return 2
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    ready()
    while True:
        time.sleep(1)

def reload():
    return partial(work, "broken")

def log(level, event, fields):
    print(event, fields["pid"] if "pid" in fields else "", flush=True)

hooks = Hooks(reload=reload)
run_workers([[]], partial(work, "good"), drain_seconds=1, log=log, hooks=hooks)
"""


def test_a_worker_that_dies_after_a_restart_was_abandoned_is_replaced_as_it_was() -> None:
    told = [sys.executable, "-c", HOPEFUL]
    with subprocess.Popen(told, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None

        def until(event: str) -> str:
            assert process.stdout is not None
            return next(line for line in process.stdout if line.startswith(event)).split()[-1]

        try:
            first = until("worker_serves")
            process.send_signal(signal.SIGHUP)
            until("restart_abandoned")
            os.kill(int(first), signal.SIGKILL)
            assert until("worker_ended") == first
            assert process.stdout.readline() == "good\n"
            assert until("worker_serves") != first
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()


def test_workers_on_one_unix_socket_leave_no_path_behind(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with running(write_platform(tmp_path), "--unix", path, "--workers", "2", *QUICK) as command:
        assert command.until_served() == f"unix:{path}"
        command.signal(signal.SIGHUP)
        command.until(lambda: len(command.named("worker_serves")) == 4)
        command.until(lambda: len(command.workers) == 2)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(str(path))
            assert ask(client)[0] == 200
        command.signal(signal.SIGTERM)
        assert command.ended() == 0

    assert not path.exists()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_is_not_shared(tmp_path: Path, url: str) -> None:
    path = write_platform(tmp_path, url)
    with running(path, "--port", "0", "--workers", "2") as command:
        assert command.ended() == 2

    (line,) = command.lines
    assert line == (
        "Error: databases.main is in memory, and every worker would have one of its own:"
        " give it a file, or serve it with one worker"
    )


def test_a_port_in_use_is_not_shared_with_another_server(tmp_path: Path) -> None:
    path = write_platform(tmp_path)
    with running(path, "--port", "0", "--workers", "2") as first:
        port = first.port()
        with running(path, "--port", str(port), "--workers", "2") as second:
            assert second.ended() == 2

    assert second.lines == [f"Error: Cannot listen on 127.0.0.1:{port}: it is already in use"]


def test_a_worker_that_cannot_start_ends_the_command_with_its_sentence(tmp_path: Path) -> None:
    path = write_platform(tmp_path, f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}")
    with running(path, "--port", "0", "--workers", "2") as command:
        assert command.ended() == 2

    assert sum("Error: " in line for line in command.lines) == 1
    assert not any("Traceback" in line for line in command.lines)
