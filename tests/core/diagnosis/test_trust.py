"""Secrets that are missing, files of keys, certificates."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from legation.config import AuthorizationConfig
from legation.diagnosis.trust import (
    KEYS,
    REVOCATIONS,
    Validity,
    judge_certificate,
    judge_jwks,
    judge_missing,
    judge_revocations,
)
from legation.http.refusals import Fault

NOW_US: Final = 1_767_225_600_000_000  # 2026-01-01
DAY: Final = 86_400.0
NOW: Final = NOW_US / 1_000_000
SECRET: Final[dict[str, Any]] = {
    "kty": "oct",
    "kid": "one",
    "k": "x5Vd0Yk3Jq8Tz1Lw6Rb9Nc2Mf7Hg4PsAeUoIyKtXvZQ",
}
CONFIG: Final = AuthorizationConfig(algorithm="HS256", jwks_file="keys.json")


def test_a_secret_that_is_missing_is_named_and_files_of_keys_are_not() -> None:
    faults = [
        Fault("models.m.api_key_env", "K is not set"),
        Fault(KEYS, "a"),
        Fault(REVOCATIONS, "b"),
    ]

    assert [(one.code, one.path, one.message) for one in judge_missing(faults)] == [
        ("secret_missing", "models.m.api_key_env", "K is not set")
    ]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (json.dumps({"keys": [SECRET]}).encode(), []),
        (None, ["keys_unreadable"]),
        (b"{", ["keys_unreadable"]),
        (json.dumps({"keys": [{**SECRET, "k": "YQ"}]}).encode(), ["keys_unreadable"]),
    ],
    ids=["whole", "none", "cut", "weak"],
)
def test_a_jwks_file_is_judged_as_a_server_reads_it(
    content: bytes | None, found: list[str]
) -> None:
    judged = list(judge_jwks(CONFIG, content, "no such file"))

    assert [one.code for one in judged] == found
    assert {one.path for one in judged} <= {KEYS}


@pytest.mark.parametrize(
    ("content", "found"),
    [(b"{}", []), (None, ["revocations_unreadable"]), (b"[]", ["revocations_unreadable"])],
)
def test_revocations_are_judged_as_a_server_reads_them(
    content: bytes | None, found: list[str]
) -> None:
    assert [one.code for one in judge_revocations(content, "no such file")] == found


@pytest.mark.parametrize(
    ("chain", "found"),
    [
        ((Validity(NOW - DAY, NOW + 14 * DAY),), []),
        ((Validity(NOW - DAY, NOW + 14 * DAY - 1),), ["certificate_expires_soon"]),
        ((Validity(NOW, NOW + 90 * DAY), Validity(NOW, NOW + DAY)), ["certificate_expires_soon"]),
        ((Validity(NOW - DAY, NOW),), ["certificate_expired"]),
        ((Validity(NOW + 1, NOW + 90 * DAY),), ["certificate_not_yet_valid"]),
        ("holds no certificate", ["certificate_unreadable"]),
    ],
    ids=str,
)
def test_a_chain_is_as_old_as_its_oldest_certificate(
    chain: tuple[Validity, ...] | str, found: list[str]
) -> None:
    judged = list(judge_certificate("tls.pem", chain, NOW_US))

    assert [one.code for one in judged] == found
    assert all(one.message.startswith("tls.pem ") for one in judged)


def test_the_day_of_the_end_is_told() -> None:
    (found,) = judge_certificate("tls.pem", (Validity(NOW, NOW + 3 * DAY),), NOW_US)

    assert found.message == "tls.pem expires 2026-01-04, in 3 days"
