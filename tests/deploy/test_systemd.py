"""The units of systemd: judged by systemd itself, and what they ask of the server holds."""

from __future__ import annotations

import configparser
import ctypes
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from legation_server.settings import DEFAULT

from ..frontends.command_kit import PATIENCE, ask, running, write_platform
from ..frontends.test_runs_kill import Remote
from .commands import parse
from .programs import DEPLOY, find_program

UNITS: Final = DEPLOY / "systemd"
SERVICE: Final = UNITS / "legation.service"

WITHOUT_WRITABLE_CODE: Final = """
import ctypes, os, sys
PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
assert ctypes.CDLL(None).prctl(PR_SET_MDWE, REFUSE_EXEC_GAIN, 0, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


class Unit(configparser.RawConfigParser):
    """A unit; of an option that stands several times the last one counts here."""

    def __init__(self, path: Path) -> None:
        super().__init__(strict=False)
        self.optionxform = str  # type: ignore[assignment,method-assign]
        self.read(path)


@pytest.fixture
def service() -> configparser.SectionProxy:
    return Unit(SERVICE)["Service"]


def test_service_is_hardened() -> None:
    analyze = find_program("systemd-analyze", "systemd")
    command = [analyze, "security", "--offline=true", "--no-pager", str(SERVICE)]
    judged = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    found = re.search(r"Overall exposure level for legation.service: (\d+\.\d+)", judged.stdout)

    assert found is not None
    assert float(found[1]) <= 2.0


def test_systemd_has_nothing_to_say_of_the_units(tmp_path: Path) -> None:
    """But for the program, which is not installed where the unit says."""
    analyze = find_program("systemd-analyze", "systemd")
    for path in UNITS.iterdir():
        text = path.read_text("utf-8").replace("/opt/legation/bin/legation", "/bin/true")
        (tmp_path / path.name).write_text(text)
    units = sorted(map(str, tmp_path.iterdir()))
    command = [analyze, "verify", "--man=no", *units]
    judged = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)

    assert [line for line in judged.stderr.splitlines() if "legation" in line] == []
    assert judged.returncode == 0, judged.stderr


def test_command_is_one_of_the_real_command_line(service: configparser.SectionProxy) -> None:
    program, *arguments = shlex.split(service["ExecStart"])

    assert program == "/opt/legation/bin/legation"
    assert parse(arguments)["target"] == "/etc/legation/platform.toml"


def test_times_of_the_unit_are_longer_than_those_of_the_server(
    service: configparser.SectionProxy,
) -> None:
    assert int(service["TimeoutStopSec"]) > DEFAULT.drain_seconds
    # The process that watches a worker ends it, and its run, before systemd ends everything.
    assert int(service["WatchdogSec"]) >= 5 * DEFAULT.step_seconds


def test_socket_is_where_the_server_listens_without_it() -> None:
    unit = Unit(UNITS / "legation.socket")["Socket"]
    plain = parse(["serve", "platform.toml"])

    assert unit["ListenStream"] == f"{plain['host']}:{plain['port']}"
    assert int(unit["Backlog"]) == DEFAULT.backlog


def test_server_needs_no_memory_that_is_written_and_run(tmp_path: Path) -> None:
    """As with `MemoryDenyWriteExecute=yes`, here by the kernel's own switch."""
    if sys.platform != "linux" or not has_switch():
        pytest.skip("the kernel has no PR_SET_MDWE (Linux 6.3)")
    prefix = [sys.executable, "-c", WITHOUT_WRITABLE_CODE]
    path = write_platform(tmp_path)
    with running(path, "--port", "0", "--workers", "2", prefix=prefix) as server:
        address = ("127.0.0.1", server.port())
        with socket.create_connection(address, timeout=PATIENCE) as client:
            assert ask(client, "/ready")[0] == 200
        server.signal(signal.SIGTERM)
        assert server.ended() == 0


def test_server_makes_no_call_that_the_unit_refuses(
    tmp_path: Path, service: configparser.SectionProxy
) -> None:
    """Its start, a run, a reload with new workers, and its end."""
    strace = find_program("strace", "strace")
    trace, path = tmp_path / "trace", write_platform(tmp_path)
    prefix = [strace, "-D", "-f", "-qq", "-o", str(trace)]
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode:
        pytest.skip("strace may trace nothing here")
    with running(path, "--port", "0", "--workers", "2", prefix=prefix) as server:
        remote = Remote(server.port())
        remote.json("POST", "/agents/concierge/runs", message="hello", stream="false")
        server.signal(signal.SIGHUP)
        server.until(lambda: len(server.named("worker_serves")) == 4)
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
    text = trace.read_text()
    calls = {*re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE)}
    owners = {"chown", "fchown", "lchown"} if os.geteuid() == 0 else set[str]()  # only root does

    assert len(calls) > 40
    assert calls - allowed_calls(SERVICE) - owners == set()
    families = {*re.findall(r"socket\((AF_\w+)", text)}
    assert families <= {*service["RestrictAddressFamilies"].split()}


def allowed_calls(unit: Path) -> set[str]:
    """Return the names of all system calls that the filters of a unit let through."""
    allowed = calls_of("@default")
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit.read_text(), re.MULTILINE):
        named = {call for name in line.lstrip("~").split() for call in calls_of(name)}
        allowed = allowed - named if line.startswith("~") else allowed | named
    return allowed | calls_of("@default")


def calls_of(name: str) -> set[str]:
    """Return the calls of a set, and of the sets in it."""
    if not name.startswith("@"):
        return {name}
    analyze = find_program("systemd-analyze", "systemd")
    command = [analyze, "syscall-filter", "--no-pager", name]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    lines = [line.strip() for line in listed.stdout.splitlines()[1:]]
    named = [line for line in lines if line and not line.startswith("#")]
    return {call for line in named for call in calls_of(line)}


def has_switch() -> bool:
    get_switch = 66
    return int(ctypes.CDLL(None).prctl(get_switch, 0, 0, 0, 0)) >= 0


def test_folders_of_the_unit_are_those_of_its_settings(
    service: configparser.SectionProxy,
) -> None:
    assert service["WorkingDirectory"] == f"/var/lib/{service['StateDirectory']}"
    assert f"TMPDIR=/run/{service['RuntimeDirectory']}" in service["Environment"].split()
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
