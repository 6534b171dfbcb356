"""What `legation serve` refuses, in one sentence and with exit code 2, and what it lists."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from attrs import asdict
from click.testing import CliRunner

from legation_cli import main
from legation_cli.service import HeldLog, url_of
from legation_server import DEFAULT

from .command_kit import PATIENCE, ask, running, write_platform


def serve(*arguments: str | Path) -> tuple[int, str]:
    """Run the command in this process; return its exit code and what it says."""
    done = CliRunner().invoke(main, ["serve", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_help_fits_on_two_screens() -> None:
    code, output = serve("-h")

    assert code == 0
    assert output.count("\n") < 60
    assert max(map(len, output.splitlines())) <= 100


def test_the_limits_are_listed_with_their_defaults() -> None:
    code, output = serve("--limits")

    assert code == 0
    listed = dict(line.split(maxsplit=1) for line in output.splitlines())
    assert set(listed) == set(asdict(DEFAULT))
    assert (listed["connections"], listed["request_seconds"]) == ("1000", "no limit")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--limit", "speed=9"], "there is no limit 'speed': write one of "),
        (["--limit", "connections=0"], "a limit is out of range: "),
        (["--trusted-proxy", "proxy"], "'proxy' is not a network of proxies: write "),
        (["--keyfile", "key.pem"], "--keyfile is the key of a certificate: "),
        (["--certfile", "none.pem"], "none.pem: No such file or directory"),
        (["--host", "0.0.0.0"], "authorization is off, and 0.0.0.0 can be reached by others: "),
        (["--host", ""], "authorization is off, and every address can be reached by others: "),
        (["--host", "no.such.host.invalid", "--insecure"], "Cannot listen on no.such.host.invalid"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    code, output = serve(write_platform(tmp_path), "--port", "0", *arguments)

    *findings, sentence = output.splitlines()
    assert code == 2
    assert sentence.startswith(f"Error: {told}")
    assert {json.loads(line)["event"] for line in findings} <= {"setting_unsafe"}


def test_a_file_in_the_place_of_a_socket_stays(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    code, output = serve(write_platform(tmp_path), "--unix", taken)

    assert (code, output) == (
        2,
        f"Error: Cannot listen on {taken}: a file that is not a socket is there\n",
    )
    assert taken.read_text() == "mine"


@pytest.mark.parametrize(
    ("trusted", "expected"),
    [((), "127.0.0.1"), (("--trusted-proxy", "127.0.0.0/8"), "203.0.113.7")],
)
def test_only_a_trusted_proxy_names_the_client_that_the_audit_knows(
    tmp_path: Path, trusted: tuple[str, ...], expected: str
) -> None:
    with running(write_platform(tmp_path), "--port", "0", *trusted) as command:
        address = ("127.0.0.1", command.port())
        with closing(socket.create_connection(address, timeout=5)) as client:
            ask(client, "/agents", "X-Forwarded-For: 203.0.113.7\r\n")
        time.sleep(0.4)
    with closing(sqlite3.connect(tmp_path / "legation.db")) as store:
        rows = store.execute("select data from trail").fetchall()

    assert any(f'"{expected}"' in data for (data,) in rows)


@pytest.mark.parametrize("folder", ["data", "a b", "50%41", "#1", "what?"])
def test_the_demonstration_says_where_its_database_and_its_pages_are(
    tmp_path: Path, folder: str
) -> None:
    data = tmp_path / folder
    with running("--port", "0", env={"LEGATION_DATA": str(data)}) as command:
        url = command.until_served()
        command.until(lambda: "Ctrl-C ends it." in command.lines)

    assert f"  databases      main ({data}/hotel.db)" in command.lines
    assert f"  console        {url}/console" in command.lines
    assert f"  docs           {url}/docs" in command.lines
    assert (data / "hotel.db").exists()


def test_platform_toml_of_the_folder_is_served_where_none_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_platform(tmp_path)
    with running("--port", "0", env={"LEGATION_DATA": str(data)}, cwd=tmp_path) as command:
        command.until(lambda: "Ctrl-C ends it." in command.lines)

    assert "  databases      main" in command.lines
    assert not data.exists()


@pytest.mark.parametrize(("docs", "listed"), [("true", 1), ("false", 0)])
def test_pages_that_are_not_served_are_not_named(tmp_path: Path, docs: str, listed: int) -> None:
    path = write_platform(tmp_path)
    path.write_text(f"[platform]\ndocs = {docs}\n{path.read_text()}")
    with running(path, "--port", "0") as command:
        command.until(lambda: "Ctrl-C ends it." in command.lines)

    assert sum(line.startswith("  docs ") for line in command.lines) == listed
    assert "  databases      main" in command.lines


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_server_that_can_tell_nobody_where_it_is_serves(tmp_path: Path) -> None:
    path = tmp_path / "legation.sock"
    command = [sys.executable, "-m", "legation_cli", "serve", str(write_platform(tmp_path))]
    with Path("/dev/full").open("w") as full:
        server = subprocess.Popen([*command, "--unix", str(path)], stderr=full)
    try:
        due = time.monotonic() + PATIENCE
        with closing(socket.socket(socket.AF_UNIX)) as client:
            while client.connect_ex(str(path)):
                assert server.poll() is None
                assert time.monotonic() < due
                time.sleep(0.05)
            assert ask(client)[0] == 200
    finally:
        server.terminate()
        assert server.wait(PATIENCE) == 0


def test_lines_are_held_until_they_are_let_go() -> None:
    told: list[str] = []
    log = HeldLog(lambda level, event, fields: told.append(f"{level} {event} {dict(fields)}"))
    log.write("info", "early", {"n": 1})
    assert told == []

    log.let_go()
    log.write("info", "late", {})
    log.let_go()
    assert told == ["info early {'n': 1}", "info late {}"]


@pytest.mark.parametrize(
    ("address", "secure", "url"),
    [
        ("127.0.0.1:80", False, "http://127.0.0.1:80"),
        ("[::1]:443", True, "https://[::1]:443"),
        ("unix:/run/l", True, "unix:/run/l"),
    ],
)
def test_the_address_is_shown_as_a_url(address: str, secure: bool, url: str) -> None:
    assert url_of(address, secure=secure) == url
