"""The way of somebody new, in processes of its own: keys, a file, a check, a server, a token."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

SECONDS: Final = 30


def legation(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "legation_cli", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("JWT_")}


@contextmanager
def served(folder: Path, log: Path) -> Generator[str]:
    """Serve platform.toml on a free port; yield where, and stop it."""
    command = [sys.executable, "-m", "legation_cli", "serve", "platform.toml", "--port", "0"]
    options: dict[str, Any] = {"cwd": folder, "env": environment(), "text": True}
    with (
        log.open("w") as file,
        subprocess.Popen(command, stderr=subprocess.PIPE, **options) as server,
    ):
        assert server.stderr is not None
        try:
            url = ""
            for line in server.stderr:
                file.write(line)
                if found := re.search(r"served at (http://\S+)", line):
                    url = found[1]
                if line.startswith("Ctrl-C"):
                    break
            assert url
            yield url
        finally:
            server.send_signal(signal.SIGTERM)
            file.write(server.stderr.read())
    assert server.returncode == 0


def asked(url: str, token: str | None = None, form: bytes | None = None) -> tuple[int, Any]:
    request = urllib.request.Request(url, data=form)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def pasted(printed: str) -> str:
    """Return what `legation keys new` says to write into platform.toml."""
    between = re.search(r"^  \[platform\].*^''']$", printed, re.DOTALL | re.MULTILINE)
    assert between is not None
    return re.sub(r"^  ", "", between[0], flags=re.MULTILINE)


AGENT: Final = """
[databases.main]
url = "sqlite:///office.db"

[[agents]]
id = "concierge"
"""
CANARY: Final = "canary-91c4"


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_from_nothing_to_an_audited_run(tmp_path: Path) -> None:
    made = legation(tmp_path, "keys", "new")
    assert made.returncode == 0, made.stderr
    (tmp_path / "platform.toml").write_text(pasted(made.stdout) + AGENT)

    checked = legation(tmp_path, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr

    def token(*arguments: str) -> str:
        signed = legation(tmp_path, "token", "--key", "keys/private.pem", *arguments)
        assert signed.returncode == 0, signed.stderr
        return signed.stdout.strip()

    ada = token("--sub", "ada", "--scope", "agents:concierge:run")
    auditor = token("--scope", "audit:read")
    form = f"message={CANARY}&stream=false".encode()
    log = tmp_path / "log"
    with served(tmp_path, log) as url:
        assert asked(f"{url}/agents")[0] == 401
        assert asked(f"{url}/agents", ada + "x")[0] == 401
        status, agents = asked(f"{url}/agents", ada)
        assert (status, [agent["id"] for agent in agents]) == (200, ["concierge"])
        assert asked(f"{url}/sessions", ada)[0] == 403
        status, run = asked(f"{url}/agents/concierge/runs", ada, form)
        assert (status, run["content"]) == (200, CANARY)
        # The run's row is there with the run; those of what was read follow in a batch.
        (change,) = asked(f"{url}/audit?operation=create_agent_run", auditor)[1]["data"]
        assert (change["subject"], change["status"]) == ("ada", 200)
        beside = legation(tmp_path, "audit", "verify", "--json")
        assert beside.returncode == 0, beside.stderr

    (tmp_path / "heads.json").write_text(beside.stdout)
    verified = legation(tmp_path, "audit", "verify", "--json", "--heads", "heads.json")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert json.loads(verified.stdout)[0]["rows"] == 4
    # Refusals of which nobody knows who asked are counted: no row of the trail each.
    refused = legation(tmp_path, "audit", "refusals", "--json")
    (counted,) = json.loads(refused.stdout)
    assert (counted["route"], counted["status"], counted["count"]) == ("/agents", 401, 2)
    assert ada.rpartition(".")[2] not in log.read_text()
    assert CANARY not in log.read_text()
    assert "Traceback" not in log.read_text()
