"""Workers that are forked late: they have the keys and secrets that their parent has by then."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from legation import AuthorizationConfig, Notify, Platform
from legation.access.trust_files import FileState
from legation_host.parent_files import ParentFiles
from legation_host.secret_files import read_secret_files
from legation_server.prefork import TICK_SECONDS

from ..callers import Issuer
from .command_kit import ask, running
from .test_server_prefork import connect

OLD: Final = Issuer(kid="old")
NEW: Final = Issuer(kid="new")
PLATFORM: Final = """
[platform]
authorization = true

[authorization_config]
jwks_file = "keys.json"

[databases.main]
url = "sqlite:///{database}"

[[agents]]
id = "desk"
"""


def write_keys(path: Path, *issuers: Issuer) -> None:
    """Replace the file as a whole, so that nobody reads half of it."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"keys": [issuer.jwk for issuer in issuers]}))
    beside.replace(path)


def test_a_parent_takes_what_has_changed_and_keeps_what_cannot_be_read(tmp_path: Path) -> None:
    keys, secret = tmp_path / "keys.json", tmp_path / "secret"
    write_keys(keys, OLD)
    secret.write_text("first-secret-of-notices-0123456789")
    platform = Platform(
        authorization=True,
        authorization_config=AuthorizationConfig(jwks_file=str(keys)),
        jwks=keys.read_bytes(),
        notify=Notify(url="https://ops.example/in", secret_file=str(secret)),
        secret_files=read_secret_files([str(secret)]),
    )
    files = ParentFiles(platform)
    authenticator = platform._dispatcher.authenticator
    assert authenticator is not None

    files.look()
    write_keys(keys, NEW)
    secret.write_text("second-secret-of-notices-0123456789")
    files.look()
    assert platform.knows_secrets({str(secret): secret.read_bytes()})
    loaded = authenticator.loaded
    keys.unlink()
    secret.unlink()
    files.look()

    assert authenticator.loaded is loaded
    assert authenticator.key_file.state is FileState.STALE
    assert platform.knows_secrets({str(secret): b"second-secret-of-notices-0123456789"})


@pytest.mark.skipif(sys.platform != "linux", reason="slots are spread on Linux")
def test_workers_that_are_forked_while_the_keys_cannot_be_read_have_the_last_ones(
    tmp_path: Path,
) -> None:
    """The first set is what the parent was started with; a key of it is revoked since."""
    keys, config = tmp_path / "keys.json", tmp_path / "platform.toml"
    write_keys(keys, OLD)
    config.write_text(PLATFORM.format(database=tmp_path / "main.db"))
    with running(config, "--port", "0", "--workers", "2") as command:
        port = command.port()
        write_keys(keys, NEW)
        command.until(lambda: len(command.named("keys_reloaded")) == 2)
        time.sleep(4 * TICK_SECONDS)  # the parent looks in silence
        keys.unlink()
        command.until(lambda: len(command.named("keys_reload_failed")) == 2)
        first = command.workers
        for pid in first:
            os.kill(pid, signal.SIGKILL)
        command.until(lambda: len(command.named("worker_serves")) == 4)
        command.until(lambda: len(command.named("keys_reload_failed")) == 4)
        assert not first & command.workers

        for _ in range(8):
            assert [status(port, one) for one in (OLD, NEW)] == [401, 200]
            assert stale_seconds(port) > 0
        write_keys(keys, NEW, OLD)
        command.until(lambda: len(command.named("keys_recovered")) == 2)
        assert [status(port, one) for one in (OLD, NEW)] == [200, 200]


def status(port: int, issuer: Issuer) -> int:
    """Return how a request with a token of `issuer` is answered, on a connection of its own."""
    token = issuer.token("agents:read", exp=None)
    with closing(connect(port)) as client:
        return ask(client, "/agents", f"Authorization: Bearer {token}\r\n")[0]


def stale_seconds(port: int) -> float:
    """Return the gauge of one worker."""
    token = NEW.token("system:read", exp=None)
    with closing(connect(port)) as client:
        _, body = ask(client, "/metrics/prometheus", f"Authorization: Bearer {token}\r\n")
    found = re.search(rb"^legation_keys_stale_seconds(?:\{.*\})? (\S+)", body, re.MULTILINE)
    assert found is not None
    return float(found[1])
