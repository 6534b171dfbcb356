"""Sockets that are passed on, and what the service manager is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from legation_server import ListenError, Notifier, take_listeners

from .command_kit import ask, write_platform

PASS_ON = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, "-m", "legation_cli", *sys.argv[2:]])
"""


@pytest.fixture
def manager(tmp_path: Path) -> Generator[socket.socket]:
    """A service manager's end of NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def start(listener: socket.socket, notify: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PASS_ON, str(listener.fileno()), "serve", *arguments],
        pass_fds=[listener.fileno()],
        env={**os.environ, "NOTIFY_SOCKET": notify},
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_socket_of_systemd_is_served_and_each_step_is_told(
    tmp_path: Path, manager: socket.socket, workers: str
) -> None:
    path = str(write_platform(tmp_path))
    notify = str(tmp_path / "notify")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        process = start(listener, notify, path, "--workers", workers)
        try:
            assert manager.recv(100) == b"READY=1"
            with closing(socket.create_connection(listener.getsockname(), timeout=5)) as client:
                assert ask(client)[0] == 200
            process.send_signal(signal.SIGHUP)
            assert manager.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
            assert manager.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()


def test_a_unix_socket_of_systemd_stays_where_it_is(tmp_path: Path, manager: socket.socket) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        process = start(listener, str(tmp_path / "notify"), str(write_platform(tmp_path)))
        try:
            assert manager.recv(100) == b"READY=1"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
            process.wait()

    assert path.exists()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_FDS": "1", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "two", "LISTEN_PID": str(os.getpid())},
        {"LISTEN_FDS": "0", "LISTEN_PID": str(os.getpid())},
    ],
)
def test_what_was_meant_for_another_process_is_left(environ: dict[str, str]) -> None:
    assert take_listeners(environ) == ()
    assert environ == {}


def test_a_descriptor_that_is_no_socket_is_refused_in_a_sentence() -> None:
    told = subprocess.run(
        [sys.executable, "-c", PASS_ON, "0", "serve", "--port", "0"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )

    assert told.returncode == 2
    assert told.stderr == "Error: Descriptor 3 is not a socket: Socket operation on non-socket\n"


def test_a_socket_that_does_not_listen_is_refused() -> None:
    program = (
        "import os, socket; from legation_server import take_listeners\n"
        "mine = socket.socket(); os.dup2(mine.fileno(), 3)\n"
        "take_listeners({'LISTEN_PID': str(os.getpid()), 'LISTEN_FDS': '1'})"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=20
    )

    assert f"{ListenError.__name__}: Descriptor 3 is not a listening stream socket" in told.stderr


def test_nobody_is_told_where_nobody_asked() -> None:
    notifier = Notifier({})

    notifier.tell_ready()
    notifier.tell_reload()
    notifier.tell_stop()


def test_a_manager_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).tell_ready()


def test_an_abstract_address_is_understood() -> None:
    if sys.platform != "linux":
        pytest.skip("abstract addresses are Linux's")
    name = f"legation-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("\0" + name)
        environ = {"NOTIFY_SOCKET": "@" + name}
        Notifier(environ).tell_ready()

        assert listening.recv(100) == b"READY=1"
        assert environ == {}
