"""Verified claims, remembered no longer than they hold."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jwt import PyJWS

from legation.access.claims import LEEWAY_US, ClaimRules, Claims
from legation.access.claims_cache import ENTRIES, LIFETIME_US, MAX_CACHED_BYTES, ClaimsCache
from legation.access.decide import principal_of
from legation.access.keys import KeySet, build_keys
from legation.access.tokens import BadToken, verify

NOW = 1_800_000_000
SECOND = 1_000_000
NOW_US = NOW * SECOND
SECRETS = tuple(f"shared secret {n}, long enough for its digest" for n in range(2))


def key_set(*secrets: str) -> KeySet:
    keys = build_keys("HS256", secrets, None)
    assert isinstance(keys, KeySet)
    return keys


KEYS = key_set(SECRETS[0])
BOTH = key_set(*SECRETS)


def token(secret: str = SECRETS[0], **claims: Any) -> bytes:
    return PyJWS().encode(json.dumps(claims).encode(), secret, "HS256").encode()


def ask(
    cache: ClaimsCache,
    token: bytes,
    now_us: int = NOW_US,
    keys: KeySet = KEYS,
) -> tuple[Claims | BadToken, bool]:
    """Return what the cache answers, and whether it had to verify."""
    verified = False

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal verified
        verified = verified or (event == "call" and frame.f_code is verify.__code__)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        claims = cache.verify(token, keys, now_us)
    finally:
        sys.setprofile(before)
    return claims, verified


def is_hit(cache: ClaimsCache, token: bytes, now_us: int = NOW_US) -> bool:
    claims, verified = ask(cache, token, now_us)
    assert isinstance(claims, Claims)
    return not verified


def test_a_token_is_verified_once() -> None:
    cache = ClaimsCache()
    ada = token(sub="ada")
    first, verified = ask(cache, ada)
    again, verified_again = ask(cache, ada)

    assert (verified, verified_again) == (True, False)
    assert again is first
    assert first == verify(ada, KEYS, NOW_US)


def test_the_caller_is_remembered_with_the_claims() -> None:
    cache = ClaimsCache(admin_scope="root")
    ada = token(sub="ada", scopes=["root"])
    assert cache.find(ada, KEYS, NOW_US) is None
    claims = cache.verify(ada, KEYS, NOW_US)
    assert isinstance(claims, Claims)
    known = cache.find(ada, KEYS, NOW_US)

    assert known is not None
    assert known.claims is claims
    assert known.caller == principal_of(claims, "root")
    assert known.caller.admin
    assert cache.find(ada, KEYS, NOW_US + LIFETIME_US) is None
    assert cache.find(ada, BOTH, NOW_US) is None


def test_two_tokens_of_one_subject_are_two_entries() -> None:
    cache = ClaimsCache()
    ask(cache, token(sub="ada", scopes=["agents:read"]))
    claims, verified = ask(cache, token(sub="ada", scopes=[]))

    assert verified
    assert isinstance(claims, Claims)
    assert claims.scopes == frozenset()


@pytest.mark.parametrize("exp", [NOW, NOW + 1, NOW + 200])
def test_exp_ends_a_hit_at_its_instant(exp: int) -> None:
    cache = ClaimsCache()
    ada = token(sub="ada", exp=exp)
    last = exp * SECOND + LEEWAY_US - 1
    ask(cache, ada)

    assert is_hit(cache, ada, last)
    claims, verified = ask(cache, ada, last + 1)
    assert verified
    assert isinstance(claims, BadToken)
    assert claims.expired


@pytest.mark.parametrize("claims", [{}, {"exp": NOW + 3600}])
def test_no_entry_lives_longer_than_300_seconds(claims: dict[str, Any]) -> None:
    cache = ClaimsCache()
    ada = token(sub="ada", **claims)
    ask(cache, ada)

    assert is_hit(cache, ada, NOW_US + LIFETIME_US - 1)
    assert not is_hit(cache, ada, NOW_US + LIFETIME_US)
    assert is_hit(cache, ada, NOW_US + LIFETIME_US + 1)


def test_a_hit_does_not_lengthen_the_life_of_an_entry() -> None:
    cache = ClaimsCache(entries=2)
    ada = token(sub="ada")
    ask(cache, ada)
    for step in range(1, 300):
        ask(cache, token(sub=f"other {step}"), NOW_US + step * SECOND)
        assert is_hit(cache, ada, NOW_US + step * SECOND)

    assert not is_hit(cache, ada, NOW_US + LIFETIME_US)


def test_a_clock_set_back_before_nbf_refuses_again() -> None:
    cache = ClaimsCache()
    ada = token(sub="ada", nbf=NOW)
    ask(cache, ada)
    claims, verified = ask(cache, ada, NOW_US - LEEWAY_US - 1)

    assert verified
    assert isinstance(claims, BadToken)


@pytest.mark.parametrize("bad", [b"", b"a.b.c", token(SECRETS[1], sub="eve"), token(exp=1)])
def test_failures_are_not_kept(bad: bytes) -> None:
    cache = ClaimsCache()
    for _ in range(2):
        claims, verified = ask(cache, bad)
        assert verified
        assert isinstance(claims, BadToken)

    assert len(cache) == 0


def test_failures_drive_nothing_out() -> None:
    cache = ClaimsCache(entries=2)
    ada = token(sub="ada")
    ask(cache, ada)
    for n in range(100):
        ask(cache, token(SECRETS[1], n=n))

    assert is_hit(cache, ada)


def test_a_token_over_4_kib_is_verified_every_time() -> None:
    cache = ClaimsCache()
    room = (MAX_CACHED_BYTES - len(token(x=""))) * 3 // 4 - 3
    small, large = token(x="x" * room), token(x="x" * (room + 9))
    for asked in (small, small, large, large):
        ask(cache, asked)

    assert len(small) <= MAX_CACHED_BYTES < len(large)
    assert is_hit(cache, small)
    assert not is_hit(cache, large)


def test_other_keys_void_every_entry() -> None:
    cache = ClaimsCache()
    by_both, by_second = token(sub="ada"), token(SECRETS[1], sub="eve")
    ask(cache, by_both, keys=BOTH)
    ask(cache, by_second, keys=BOTH)

    claims, verified = ask(cache, by_second, keys=KEYS)
    assert verified
    assert isinstance(claims, BadToken)
    assert len(cache) == 0
    assert ask(cache, by_both, keys=KEYS)[1]
    assert ask(cache, by_both, keys=BOTH)[1]


def test_the_same_keys_read_again_void_nothing() -> None:
    cache = ClaimsCache()
    ada = token(sub="ada")
    ask(cache, ada)

    assert not ask(cache, ada, keys=key_set(SECRETS[0]))[1]


DEMO = ClaimRules(audiences=("demo", "other"), issuers=("https://a.test", "https://b.test"))


def test_what_is_remembered_was_read_by_the_rules_of_the_cache() -> None:
    loose, strict = ClaimsCache(), ClaimsCache(DEMO)
    ada = token(sub="ada", aud="demo", iss="https://a.test")
    eve = token(sub="ada", aud="somebody", iss="https://a.test")
    bob = token(sub="ada", aud="demo", iss="https://b.test")

    for _ in range(2):
        assert isinstance(ask(loose, eve)[0], Claims)
        assert isinstance(ask(strict, eve)[0], BadToken)
        subjects = [ask(strict, asked)[0] for asked in (ada, bob)]
        assert [claims.subject for claims in subjects if isinstance(claims, Claims)] == [
            "ada",
            "https://b.test#ada",
        ]
    assert not ask(strict, ada)[1]


def test_the_entries_are_bounded_and_hold_no_token() -> None:
    cache = ClaimsCache(entries=8)
    tokens = [token(sub=f"user {n}") for n in range(100)]
    for asked in tokens:
        ask(cache, asked)
        assert len(cache) <= 8

    assert ENTRIES == 4096
    assert not any(asked in cache._young or asked in cache._old for asked in tokens)
    assert {len(key) for key in (*cache._young, *cache._old)} == {32}


def test_a_scan_does_not_drive_out_what_is_used() -> None:
    """One token asked for now and then survives any number that come once."""
    cache = ClaimsCache(entries=64)
    ada = token(sub="ada")
    ask(cache, ada)
    for n in range(1000):
        ask(cache, token(sub=f"once {n}"))
        if n % 31 == 0:
            assert is_hit(cache, ada)


def test_what_is_not_used_for_as_long_as_the_cache_is_large_goes() -> None:
    cache = ClaimsCache(entries=8)
    ada = token(sub="ada")
    ask(cache, ada)
    for n in range(8):
        ask(cache, token(sub=f"once {n}"))

    assert not is_hit(cache, ada)


TOKENS = [
    token(sub="ada"),
    token(sub="bob", exp=NOW + 30),
    token(sub="cyd", nbf=NOW + 60),
    token(SECRETS[1], sub="eve"),
    token(sub="dan", aud="demo"),
    token(sub="dan", aud=["x", "other"], iss="https://b.test"),
    b"rubbish",
]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TOKENS),
            st.integers(-20, 400),
            st.sampled_from([KEYS, BOTH]),
        ),
        max_size=30,
    ),
    st.integers(2, 8),
    st.sampled_from([ClaimRules(), DEMO, ClaimRules(audiences=("demo",))]),
)
def test_the_answer_is_always_that_of_verify(
    questions: list[tuple[bytes, int, KeySet]], entries: int, rules: ClaimRules
) -> None:
    cache = ClaimsCache(rules, entries)
    for asked, seconds, keys in questions:
        now_us = NOW_US + seconds * SECOND

        assert cache.verify(asked, keys, now_us) == verify(asked, keys, now_us, rules)
