"""What the five schemes accept and refuse: the published vectors, and any bytes at all."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sys
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.channels.signatures import (
    Secrets,
    SignatureRefused,
    Verified,
    active_secrets,
    hub256,
    is_among,
    sign_standard,
    slack_v0,
    standard_key,
    standard_v1,
    telegram_token,
)
from legation.http.messages import Headers

Judge: TypeAlias = Verified | SignatureRefused

BODY: Final = b'{"a": 1}'
NOW: Final = 1_700_000_000
SECRETS: Final = (b"new", b"old")


def _beside_the_repository() -> Path:
    return Path(__file__).resolve().parents[4] / "shared" / "vectors"


VECTORS: Final = Path(os.environ.get("LEGATION_VECTORS") or _beside_the_repository())
FILE: Final = VECTORS / "webhook_vectors.json"


def _judge(scheme: str, headers: Headers, body: bytes, secrets: Secrets, now_us: int) -> Judge:
    match scheme:
        case "hub256":
            return hub256(headers, body, secrets)
        case "telegram":
            return telegram_token(headers, body, secrets)
        case "slack":
            return slack_v0(headers, body, secrets, now_us)
        case _:
            return standard_v1(headers, body, secrets, now_us)


def test_every_vector_is_judged_as_published(capsys: pytest.CaptureFixture[str]) -> None:
    if not FILE.exists():
        reason = f"webhook vectors not run: no {FILE.name}; LEGATION_VECTORS names its folder"
        with capsys.disabled():
            sys.stdout.write(f"\n  {reason}\n")
        pytest.skip(reason)
    vectors: list[dict[str, Any]] = json.loads(FILE.read_text())
    spoken = [vector for vector in vectors if vector["scheme"] in SCHEMES]
    wrong = [vector["name"] for vector in spoken if not _agrees(vector)]

    assert not wrong
    assert len(vectors) == 60


def _agrees(vector: dict[str, Any]) -> bool:
    scheme = vector["scheme"]
    secret = standard_key if scheme == "standard" else str.encode
    headers = tuple((k.lower().encode(), v.encode()) for k, v in vector["headers"].items())
    verdict = _judge(
        scheme,
        headers,
        base64.b64decode(vector["body_b64"]),
        tuple(secret(text) for text in vector["secrets"]),
        vector["now"] * 1_000_000,
    )
    accept: bool = vector["accept"]
    return isinstance(verdict, Verified) is accept


# --- each scheme, right and wrong --------------------------------------------------------------


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).hexdigest().encode()


def _signed(scheme: str, key: bytes, now: int | str = NOW) -> Headers:
    stamp = str(now).encode()
    match scheme:
        case "hub256":
            return ((b"x-hub-signature-256", b"sha256=" + _hmac(key, BODY)),)
        case "telegram":
            return ((b"x-telegram-bot-api-secret-token", key),)
        case "slack":
            signature = b"v0=" + _hmac(key, b"v0:" + stamp + b":" + BODY)
            return ((b"x-slack-request-timestamp", stamp), (b"x-slack-signature", signature))
        case _:
            (signature,) = sign_standard((key,), b"msg_1", stamp, BODY)
            return (
                (b"webhook-id", b"msg_1"),
                (b"webhook-timestamp", stamp),
                (b"webhook-signature", signature),
            )


SCHEMES: Final = ("hub256", "telegram", "slack", "standard")
TIMED: Final = ("slack", "standard")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("key", SECRETS)
def test_both_secrets_are_accepted_during_rotation(scheme: str, key: bytes) -> None:
    verdict = _judge(scheme, _signed(scheme, key), BODY, SECRETS, NOW * 1_000_000)

    assert isinstance(verdict, Verified)
    assert verdict.body == BODY
    assert verdict.delivery_id == ("msg_1" if scheme == "standard" else "")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_secret_that_is_not_active_is_refused(scheme: str) -> None:
    verdict = _judge(scheme, _signed(scheme, b"other"), BODY, SECRETS, NOW * 1_000_000)

    assert verdict in (SignatureRefused("wrong signature"), SignatureRefused("wrong token"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_each_header_must_be_there_exactly_once(scheme: str) -> None:
    headers = _signed(scheme, b"new")
    for header in headers:
        without = tuple(other for other in headers if other != header)
        missing = _judge(scheme, without, BODY, SECRETS, NOW * 1_000_000)
        doubled = _judge(scheme, (*headers, header), BODY, SECRETS, NOW * 1_000_000)

        assert missing == SignatureRefused(f"no {header[0].decode()} headers")
        assert doubled == SignatureRefused(f"several {header[0].decode()} headers")


@pytest.mark.parametrize("scheme", TIMED)
@pytest.mark.parametrize(("age", "fresh"), [(0, 1), (300, 1), (301, 0), (-300, 1), (-301, 0)])
def test_a_timestamp_may_be_300_seconds_off(scheme: str, age: int, fresh: int) -> None:
    headers = _signed(scheme, b"new")

    verdict = _judge(scheme, headers, BODY, SECRETS, (NOW + age) * 1_000_000)

    assert isinstance(verdict, Verified) == bool(fresh)


@pytest.mark.parametrize("scheme", TIMED)
@pytest.mark.parametrize("stamp", ["", f"+{NOW}", f"{NOW}.0", f"{NOW:x}", f" {NOW}", "soon"])
def test_a_timestamp_is_digits_alone(scheme: str, stamp: str) -> None:
    headers = _signed(scheme, b"new", stamp)

    verdict = _judge(scheme, headers, BODY, SECRETS, NOW * 1_000_000)

    assert verdict == SignatureRefused("timestamp outside the tolerance")


@pytest.mark.parametrize("scheme", ["hub256", "slack"])
def test_upper_case_hex_is_another_form(scheme: str) -> None:
    *others, (name, value) = _signed(scheme, b"new")
    mark, hexadecimal = value[:-64], value[-64:].upper()

    verdict = _judge(scheme, (*others, (name, mark + hexadecimal)), BODY, SECRETS, NOW * 1_000_000)

    assert verdict == SignatureRefused("malformed signature")


def _svix(headers: Headers) -> Headers:
    return tuple((name.replace(b"webhook-", b"svix-"), value) for name, value in headers)


def test_headers_of_svix_carry_the_same_scheme() -> None:
    headers = _svix(_signed("standard", b"new"))

    assert standard_v1(headers, BODY, SECRETS, NOW * 1_000_000) == Verified(BODY, "msg_1")
    for header in headers:
        without = tuple(other for other in headers if other != header)
        missing = standard_v1(without, BODY, SECRETS, NOW * 1_000_000)
        doubled = standard_v1((*headers, header), BODY, SECRETS, NOW * 1_000_000)
        assert missing == SignatureRefused(f"no {header[0].decode()} headers")
        assert doubled == SignatureRefused(f"several {header[0].decode()} headers")


def test_headers_of_svix_do_not_count_beside_those_of_the_standard() -> None:
    good = _signed("standard", b"new")
    forged = tuple((name, b"forged") for name, _ in good)

    at = NOW * 1_000_000
    assert standard_v1((*_svix(forged), *good), BODY, SECRETS, at) == Verified(BODY, "msg_1")
    assert isinstance(standard_v1((*_svix(good), *forged), BODY, SECRETS, at), SignatureRefused)
    assert standard_v1((*_svix(good), forged[0]), BODY, SECRETS, at) == SignatureRefused(
        "no webhook-timestamp headers"
    )


def test_the_list_of_signatures_is_bounded() -> None:
    headers = dict(_signed("standard", b"new"))
    headers[b"webhook-signature"] = b"v1,x " * 10 + headers[b"webhook-signature"]

    at = NOW * 1_000_000
    assert standard_v1((*headers.items(),), BODY, SECRETS, at) == SignatureRefused(
        "too many signatures"
    )


def test_an_id_that_no_header_should_hold_is_refused() -> None:
    headers = dict(_signed("standard", b"new"))
    headers[b"webhook-id"] = b"msg 1"

    verdict = standard_v1((*headers.items(),), BODY, SECRETS, NOW * 1_000_000)

    assert verdict == SignatureRefused("malformed id")


@given(
    scheme=st.sampled_from(SCHEMES),
    values=st.lists(st.binary(max_size=80), max_size=4),
    body=st.binary(max_size=40),
    now=st.integers(0, 1 << 53),
)
def test_any_header_and_any_body_gives_a_verdict(
    scheme: str, values: list[bytes], body: bytes, now: int
) -> None:
    names = [name for name, _ in _signed(scheme, b"new")]
    headers = tuple(zip(names, values, strict=False))

    assert isinstance(_judge(scheme, headers, body, SECRETS, now), SignatureRefused)


@given(st.binary(max_size=80), st.lists(st.binary(max_size=80), max_size=4))
def test_timing_safe_equal_is_membership(value: bytes, expected: list[bytes]) -> None:
    assert is_among(value, expected) == (value in expected)


# --- secrets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("previous", [None, ""])
def test_without_a_previous_secret_there_is_one(previous: str | None) -> None:
    assert active_secrets("new", previous) == (b"new",)


@pytest.mark.parametrize("secrets", [("new\n", None), (" new", None), ("new", "old\r\n")])
def test_a_secret_with_white_space_around_it_stops_the_start(
    secrets: tuple[str, str | None],
) -> None:
    with pytest.raises(ValueError, match=r"^a secret begins or ends with white space$"):
        active_secrets(*secrets)


def test_without_a_secret_nothing_starts() -> None:
    with pytest.raises(ValueError, match="needs a secret"):
        active_secrets("", "old")


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "not base64!", "é", "A" * 120])
def test_a_key_of_standard_webhooks_has_24_to_64_bytes(secret: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        standard_key(secret)


def test_no_body_shows_in_a_log() -> None:
    assert "secret" not in repr(Verified(b"secret"))
