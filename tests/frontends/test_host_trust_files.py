"""The watch over keys and revocations: what is read again, and what is written to the log."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from legation import AuthorizationConfig, Platform
from legation.access.revocations import MAX_FILE_BYTES
from legation_host.loading import LoadError, read_revocations, read_trusted
from legation_host.trust_files import TrustFiles, reload_files

from ..callers import Issuer

ISSUER = Issuer(kid="old")
OTHER = Issuer(kid="new")
LONG_AGO = time.time_ns() - 3_600 * 10**9


def jwks(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [issuer.jwk for issuer in issuers]}).encode()


class Watching:
    """A platform, its file of keys, and what was written to the log."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.json"
        self.path.write_bytes(jwks(ISSUER))
        config = AuthorizationConfig(jwks_file=str(self.path))
        self.platform = Platform(authorization=True, authorization_config=config, jwks=jwks(ISSUER))
        self.lines: list[tuple[str, Any]] = []
        self.files = TrustFiles(self.platform, self.write)

    def write(self, level: str, event: str, fields: Mapping[str, Any]) -> None:
        assert level == ("error" if event == "keys_reload_failed" else "info")
        assert fields["path"] == str(self.path)
        self.lines.append((event, fields.get("reason")))

    def look(self) -> list[tuple[str, Any]]:
        self.lines.clear()
        self.files.look()
        return list(self.lines)


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(tmp_path)


FAILED = "keys_reload_failed"
MISSING = "authorization_config.jwks_file: no such file or directory"


def test_a_change_is_read_and_said_once(watching: Watching) -> None:
    assert watching.look() == []
    watching.path.write_bytes(jwks(OTHER))
    assert watching.look() == [("keys_reloaded", None)]
    assert watching.look() == []


def test_what_is_missing_is_said_once_and_comes_back_as_it_was(watching: Watching) -> None:
    away = watching.path.with_suffix(".away")
    watching.path.rename(away)
    assert watching.look() == [(FAILED, MISSING)]
    assert watching.look() == []
    away.rename(watching.path)
    assert watching.look() == [("keys_recovered", None)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what nobody may read")
def test_a_file_that_may_be_read_again_is(watching: Watching) -> None:
    watching.path.chmod(0)
    ((event, _),) = watching.look()
    assert event == FAILED
    watching.path.chmod(0o600)
    assert watching.look() == [("keys_recovered", None)]


def test_a_change_that_leaves_size_and_time_as_they_were_is_seen(watching: Watching) -> None:
    text = watching.path.read_bytes()
    for content in (text, text.replace(b'"old"', b'"odd"')):
        watching.path.write_bytes(content)
        os.utime(watching.path, ns=(LONG_AGO, LONG_AGO))
        lines = watching.look()

    assert lines == [("keys_reloaded", None)]


def test_a_folder_and_a_file_without_end_are_none(watching: Watching) -> None:
    watching.path.write_bytes(b" " * (MAX_FILE_BYTES + 1))
    reason = f"authorization_config.jwks_file: is longer than {MAX_FILE_BYTES} bytes"
    assert watching.look() == [(FAILED, reason)]
    with pytest.raises(OSError, match="is longer than"):
        read_trusted(str(watching.path))
    watching.path.unlink()
    watching.path.mkdir()
    assert watching.look() == []


def test_a_signal_reads_what_looks_as_it_did(watching: Watching) -> None:
    watching.look()
    reload_files(watching.platform, watching.write)
    assert watching.lines == []
    watching.path.unlink()
    reload_files(watching.platform, watching.write)

    assert watching.lines == [(FAILED, MISSING)]


def test_where_authorization_is_off_nothing_is_read(tmp_path: Path) -> None:
    config = AuthorizationConfig(jwks_file=str(tmp_path / "none"), revocations_file="none")
    platform = Platform(authorization_config=config)
    lines: list[str] = []
    TrustFiles(platform, lambda _, event, __: lines.append(event)).look(again=True)

    assert lines == []
    assert read_revocations(platform.config) is None


def test_revocations_that_cannot_be_read_stop_the_start(tmp_path: Path) -> None:
    config = ISSUER.authorization(revocations_file=str(tmp_path / "none"))
    platform = Platform(authorization=True, authorization_config=config, revocations=b"{}")
    with pytest.raises(LoadError, match=r"authorization_config\.revocations_file: .*No such file"):
        read_revocations(platform.config)
