"""Revocations: what a file of them may say, and whom it stops."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.access.authenticator import (
    Authenticator,
    TokenRefused,
    describe_files,
    make_authenticator,
)
from legation.access.revocations import (
    MAX_FILE_BYTES,
    MAX_REVOCATIONS,
    NONE_REVOKED,
    Revocations,
    read_revocations,
)
from legation.config import ConfigurationError
from legation.http.messages import Request

from ...callers import NOW, Issuer

SECOND: Final = 1_000_000
NOW_US: Final = NOW * SECOND
ISSUER: Final = Issuer(kid="k-2026")
DAY: Final = 86_400


def text(**members: Any) -> bytes:
    return json.dumps(members).encode()


def read(content: bytes) -> Revocations:
    found = read_revocations(content)
    assert isinstance(found, Revocations)
    return found


def opened(content: bytes, **options: Any) -> Authenticator:
    config = ISSUER.authorization(revocations_file="revoked.json", **options)
    return make_authenticator(config, "demo", None, content)


def why(authenticator: Authenticator, token: str, now_us: int = NOW_US) -> str | None:
    request = Request("GET", "/", ((b"authorization", f"Bearer {token}".encode()),))
    found = authenticator.caller(request, now_us)
    if not isinstance(found, TokenRefused):
        return None
    assert found.refusal.detail == "Invalid token"
    return found.reason


def test_a_file_may_say_nothing() -> None:
    for content in (b"{}", text(tokens=[], subjects={}, keys=[])):
        assert len(read(content)) == 0
    assert read(b"{}").generation != NONE_REVOKED.generation


def test_the_generation_is_that_of_what_is_said() -> None:
    assert read(text(tokens=["a", "b"])) == read(b' {"keys":[], "tokens": ["b", "a", "a"]}')
    assert read(text(tokens=["a"])).generation != read(text(keys=["a"])).generation
    assert read(text(subjects={"a": 1})).generation != read(text(subjects={"a": 2})).generation


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "not JSON in UTF-8"),
        (b"[]", "not a JSON object"),
        (b'{"tokens": ["a"], "tokens": []}', "a member name is repeated"),
        (text(subject={}), "has the member 'subject'; there are tokens, subjects and keys"),
        (text(tokens="a"), "tokens is not an array of texts"),
        (text(tokens=["a", 7]), "tokens[1] is not a text of 1 to 513 characters"),
        (text(keys=[""]), "keys[0] is not a text of 1 to 513 characters"),
        (text(keys=["x" * 514]), "keys[0] is not a text of 1 to 513 characters"),
        (text(subjects=["ada"]), "subjects is not an object"),
        (text(subjects={"": 5}), "a name in subjects is not a text of 1 to 513 characters"),
        (text(subjects={"ada": "5"}), "subjects: 'ada' has no number of seconds since the epoch"),
        (text(subjects={"ada": True}), "subjects: 'ada' has no number of seconds since the epoch"),
        (text(subjects={"ada": 1 << 53}), "subjects: the time of 'ada' is out of range"),
        (text(tokens=[str(n) for n in range(MAX_REVOCATIONS + 1)]), "has more than 10000 entries"),
        (b" " * (MAX_FILE_BYTES + 1), "is longer than 1048576 bytes"),
    ],
)
def test_one_mistake_makes_a_file_unusable(content: bytes, told: str) -> None:
    assert read_revocations(content) == told


def test_as_many_as_there_may_be_are_read() -> None:
    assert len(read(text(tokens=[str(n) for n in range(MAX_REVOCATIONS)]))) == MAX_REVOCATIONS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["tokens", "subjects", "keys", "x"]), JSON).map(json.dumps)
    | st.text()
)
def test_every_content_is_revocations_or_a_reason(content: str) -> None:
    assert isinstance(read_revocations(content.encode(errors="surrogatepass")), Revocations | str)


def test_a_token_is_revoked_by_its_id() -> None:
    gate = opened(text(tokens=["t1"]))

    assert why(gate, ISSUER.token(jti="t1")) == "revoked by its jti"
    assert why(gate, ISSUER.token(jti="t2")) is None
    assert why(gate, ISSUER.token()) is None


def test_a_key_is_revoked_by_its_name_in_the_trail() -> None:
    config = ISSUER.authorization(jwks_file="k.json", revocations_file="r.json")
    jwks = json.dumps({"keys": [{**ISSUER.jwk, "kid": "other"}]}).encode()
    gate = make_authenticator(config, "demo", jwks, text(keys=["other"]))

    assert why(gate, Issuer(ISSUER.key, kid="other").token()) == "its key is revoked"
    assert why(gate, ISSUER.token()) is None, "the same key, by its other name"


def test_what_a_subject_was_issued_before_is_void() -> None:
    gate = opened(text(subjects={"ada": NOW - 5}))
    reason = "issued before the not-before of its subject"

    assert why(gate, ISSUER.token(iat=NOW - 6)) == reason
    assert why(gate, ISSUER.token(iat=None)) == reason
    assert why(gate, ISSUER.token(iat=NOW - 5)) is None
    assert why(gate, ISSUER.token(sub="eve", iat=NOW - 6)) is None
    assert why(gate, ISSUER.token(sub=None, iat=NOW - 6)) is None


def test_a_remembered_token_does_not_outlive_its_revocation() -> None:
    gate, token = opened(b"{}"), ISSUER.token(jti="t1")
    assert why(gate, token) is None

    assert gate.load_revocations(text(tokens=["t1"]), NOW_US) == ()
    assert why(gate, token) == "revoked by its jti"
    assert gate.load_revocations(b"{}", NOW_US) == ()
    assert why(gate, token) is None


def test_the_same_revocations_read_again_void_no_memory() -> None:
    gate, token = opened(b"{}"), ISSUER.token()
    assert why(gate, token) is None
    remembered = gate._cache
    gate.load_revocations(b" {}", NOW_US)

    assert gate._cache is remembered


def test_a_file_that_cannot_be_used_keeps_the_old_one_and_then_stops_all() -> None:
    gate, revoked = opened(text(tokens=["t1"])), ISSUER.token(jti="t1", exp=NOW + 2 * DAY)
    good = ISSUER.token(exp=NOW + 2 * DAY)
    for content, message in ((None, "cannot be read"), (b"{", "not JSON in UTF-8")):
        (fault,) = gate.load_revocations(content, NOW_US)
        assert (fault.path, fault.message) == ("authorization_config.revocations_file", message)
        assert why(gate, revoked) == "revoked by its jti"
        assert why(gate, good) is None
    assert describe_files(gate, NOW_US) == {"revocations": "stale"}

    assert why(gate, good, NOW_US + DAY * SECOND - 1) is None
    assert why(gate, good, NOW_US + DAY * SECOND) == "no key for this kid"
    assert describe_files(gate, NOW_US + DAY * SECOND) == {"revocations": "void"}
    assert [line.event for line in gate.report(NOW_US + DAY * SECOND)] == [
        "revocations_reload_failed",
        "revocations_void",
    ]
    gate.load_revocations(text(tokens=["t1"]), NOW_US + DAY * SECOND)
    assert why(gate, good, NOW_US + DAY * SECOND) is None
    assert describe_files(gate, NOW_US + DAY * SECOND) == {"revocations": "current"}


def test_a_platform_does_not_start_with_revocations_that_it_cannot_read() -> None:
    config = ISSUER.authorization(revocations_file="r.json")
    for content, told in ((None, "is named and was not read"), (b"{", "not JSON")):
        with pytest.raises(ConfigurationError, match=f"revocations_file: {told}"):
            make_authenticator(config, "demo", None, content)


def test_without_authorization_there_are_no_files() -> None:
    assert describe_files(None, NOW_US) == {}
