"""The keys of the audit trail and the places of its heads: all faults at once, with their paths."""

from __future__ import annotations

import base64
from typing import Any, Final

import pytest

from legation import Agent, Audit, AuditKey, ConfigurationError, Platform
from legation.api.settings import Settings
from legation.config import PlatformConfig, structure
from legation.hosted.secret_sources import secret_paths, with_secret_paths
from legation.store.audit_pages import NO_KEYS, KeyRing, SigningKey

SECRET: Final = "s9Xw3vQ7kLzB1nH5rT8yC2mF6jD4gP0a"
OTHER: Final = "Kq8Zp2Lm5Vx9Rt3Wn7Bc1Hd6Js4Gf0Ya"
HOOK: Final = base64.b64encode(bytes(range(32))).decode()
ENVIRON: Final = {"KEY": SECRET, "OLD": OTHER, "HOOK": HOOK, "SHORT": SECRET[:31], "POOR": "a" * 32}
KEY: Final = AuditKey("2026", secret_env="KEY")


def ring(*keys: tuple[str, str]) -> KeyRing:
    return KeyRing(tuple(SigningKey(name, secret.encode()) for name, secret in keys))


def made(**options: Any) -> Platform:
    return Platform(agents=[Agent("clerk")], audit=Audit(**options), environ=ENVIRON)


def faults(**options: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as wrong:
        made(**options)
    return [f"{fault.path}: {fault.message}" for fault in wrong.value.faults]


def test_the_first_key_signs_and_all_have_their_secrets() -> None:
    keys = [KEY, AuditKey("2025", secret_env="OLD")]
    platform = made(keys=keys, heads_url="https://siem.test/in", heads_secret_env="HOOK")

    settings = platform.registry.audit
    assert settings.keys == ring(("2026", SECRET), ("2025", OTHER))
    assert settings.keys.signing == SigningKey("2026", SECRET.encode())
    assert settings.webhook_key == bytes(range(32))
    for shown in (repr(settings), repr(platform.registry), repr(platform.config)):
        assert SECRET not in shown
        assert HOOK not in shown


def test_without_a_table_there_is_no_key() -> None:
    settings = Platform(agents=[Agent("clerk")]).registry.audit

    assert settings.keys == NO_KEYS
    assert settings.webhook_key is None


SHORT: Final = "has less than 32 bytes; draw one, as by `openssl rand -hex 32`"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"keys": [AuditKey("a b", secret_env="KEY")]}, "audit.keys[0].id: 'a b' is not an id"),
        ({"keys": [AuditKey("", secret_env="KEY")]}, "audit.keys[0].id: '' is not an id"),
        (
            {"keys": [KEY, AuditKey("2026", secret_env="OLD")]},
            "audit.keys[1].id: '2026' is taken",
        ),
        ({"keys": [AuditKey("k")]}, "audit.keys[0].secret_env: missing"),
        ({"keys": [AuditKey("k", secret_env="NO")]}, "audit.keys[0].secret_env: the environment"),
        ({"keys": [AuditKey("k", secret_file="/f")]}, "audit.keys[0].secret_file: the file was"),
        ({"keys": [AuditKey("k", secret_env="SHORT")]}, f"audit.keys[0].secret_env: {SHORT}"),
        (
            {"keys": [AuditKey("k", secret_env="KEY", secret_file="/f")]},
            "audit.keys[0].secret_file: is not allowed together with secret_env",
        ),
        ({"heads_url": "ftp://siem.test"}, "audit.heads_url: must be an http or https URL"),
        ({"heads_url": "http://siem.test"}, "audit.heads_url: is not https"),
        ({"heads_secret_env": "HOOK"}, "audit.heads_url: missing: the secret signs what is sent"),
        (
            {"heads_url": "https://siem.test", "heads_secret_env": "SHORT"},
            "audit.heads_secret_env: ",
        ),
        ({"heads_file": ""}, "audit.heads_file: is no path of a file"),
        ({"heads_file": "a\0b"}, "audit.heads_file: is no path of a file"),
        ({"heads_seconds": 0.5}, "audit.heads_seconds: must be a number from 1 to 86400"),
        ({"heads_seconds": 86_401}, "audit.heads_seconds: must be a number from 1 to 86400"),
        ({"heads_seconds": float("nan")}, "audit.heads_seconds: must be a number from 1"),
        ({"heads_seconds": "60"}, "audit.heads_seconds: expected a number, not str"),
        ({"heads_log": "yes"}, "audit.heads_log: expected True or False, not str"),
        ({"keys": ["k"]}, "audit.keys[0]: expected AuditKey(…), not str"),
    ],
    ids=str,
)
def test_what_cannot_work_stops_the_start(options: dict[str, Any], fault: str) -> None:
    (found,) = faults(**options)

    assert found.startswith(fault)
    assert SECRET not in found


def test_a_file_that_is_too_short_is_named_by_its_own_key() -> None:
    with pytest.raises(ConfigurationError) as wrong:
        Platform(
            audit=Audit(
                keys=[AuditKey("k", secret_file="/k")],
                heads_url="https://siem.test",
                heads_secret_file="/h",
            ),
            secret_files={"/k": b"short\n", "/h": b"no base64\n"},
        )

    paths = [fault.path for fault in wrong.value.faults]
    assert paths == ["audit.keys[0].secret_file", "audit.heads_secret_file"]


def test_all_faults_are_said_at_once() -> None:
    keys = [AuditKey(""), AuditKey("k", secret_env="SHORT")]
    assert len(faults(keys=keys, heads_url="x", heads_file="", heads_seconds=0)) == 6


@pytest.mark.parametrize("url", ["http://localhost:9000/in", "http://127.0.0.1/", "http://[::1]/"])
def test_a_webhook_on_this_machine_may_be_plain(url: str) -> None:
    assert made(heads_url=url).config.audit.heads_url == url


def test_a_key_that_can_be_guessed_is_a_finding() -> None:
    platform = made(keys=[AuditKey("k", secret_env="POOR")])

    assert [one.path for one in platform.registry.weak] == ["audit.keys[0].secret_env"]


def test_a_command_without_secrets_has_no_key() -> None:
    audit = Audit(
        keys=[KEY, AuditKey("2025", secret_env="ABSENT")],
        heads_url="https://siem.test",
        heads_secret_env="ABSENT",
    )
    config = PlatformConfig(audit=audit)
    platform = Platform.from_config(config, environ=ENVIRON, needs_secrets=False)

    assert platform.registry.audit.keys == NO_KEYS
    assert platform.registry.audit.webhook_key is None
    paths = [fault.path for fault in platform.missing]
    assert paths == ["audit.keys[1].secret_env", "audit.heads_secret_env"]


def test_a_changed_file_is_taken_without_a_restart() -> None:
    audit = Audit(keys=[AuditKey("k", secret_file="/k")])
    platform = Platform(audit=audit, secret_files={"/k": SECRET.encode()})
    assert platform.secret_paths == ("/k",)

    assert platform.load_secrets({"/k": OTHER.encode()}) == ()
    assert platform.context.registry.audit.keys == ring(("k", OTHER))

    (fault,) = platform.load_secrets({"/k": b"short"})
    assert fault.path == "audit.keys[0].secret_file"
    assert platform.context.registry.audit.keys == ring(("k", OTHER))


def test_a_file_says_it_in_a_table() -> None:
    table = {
        "keys": [{"id": "k", "secret_file": "key"}, {"id": "old", "secret_env": "OLD"}],
        "heads_log": True,
        "heads_file": "heads.ndjson",
        "heads_url": "https://siem.test",
        "heads_secret_file": "hook",
        "heads_seconds": 30,
    }
    config = structure({"audit": table})
    keys = [AuditKey("k", secret_file="key"), AuditKey("old", secret_env="OLD")]
    assert config.audit == Audit(
        keys=keys,
        heads_log=True,
        heads_file="heads.ndjson",
        heads_url="https://siem.test",
        heads_secret_file="hook",
        heads_seconds=30.0,
    )
    assert secret_paths(config) == ("hook", "key")
    moved = with_secret_paths(config, lambda path: f"/etc/{path}")
    assert secret_paths(moved) == ("/etc/hook", "/etc/key")
    assert moved.audit.heads_file == "heads.ndjson"


@pytest.mark.parametrize(
    ("table", "paths"),
    [
        ("x", ["audit"]),
        ({"key": []}, ["audit"]),
        ({"keys": {"id": "k"}}, ["audit.keys"]),
        ({"keys": ["k"]}, ["audit.keys[0]"]),
        ({"keys": [{"id": "k", "secret": "x"}, {}]}, ["audit.keys[0]", "audit.keys[1].id"]),
        ({"keys": [{"id": 1}], "heads_log": 1}, ["audit.keys[0].id", "audit.heads_log"]),
        ({"heads_seconds": True}, ["audit.heads_seconds"]),
    ],
    ids=str,
)
def test_a_wrong_table_is_refused_with_its_paths(table: Any, paths: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        structure({"audit": table})
    assert [fault.path for fault in refused.value.faults] == paths


def test_the_settings_are_listed_without_secrets() -> None:
    audit = Audit(
        keys=[KEY, AuditKey("old", secret_file="/k")], heads_url="https://x:y@siem.test/in"
    )
    listed = {one["path"]: one["value"] for one in Settings(PlatformConfig(audit=audit)).listed}

    assert listed["audit.keys[0].id"] == "2026"
    assert listed["audit.keys[1].secret_file"] == "/k"
    assert listed["audit.heads_url"] == "https://[redacted]@siem.test/[redacted]"
    assert "audit.keys" not in listed
    none = {one["path"]: one["value"] for one in Settings(PlatformConfig()).listed}
    assert none["audit.keys"] == []
