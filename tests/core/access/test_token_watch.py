"""The token of a stream: asked for again when it expires, and when it may have been revoked."""

from __future__ import annotations

from typing import Final

from legation.access.authenticator import Authenticator, TokenRefused, make_authenticator
from legation.access.claims import LEEWAY_US
from legation.access.token_watch import TokenWatch, watch_token
from legation.access.trust_files import NEVER
from legation.http.messages import Request

from ...callers import NOW, Issuer

ISSUER: Final = Issuer()
NOW_US: Final = NOW * 1_000_000
SECOND: Final = 1_000_000


def gate() -> Authenticator:
    config = ISSUER.authorization(revocations_file="r.json")
    return make_authenticator(config, "demo", None, b"{}")


def watch(opened: Authenticator, token: str) -> TokenWatch:
    headers = ((b"host", b"a"), (b"authorization", f"Bearer {token}".encode()))
    return watch_token(opened, Request("GET", "/", headers), NOW_US)


def reason(found: TokenRefused | None) -> str | None:
    return None if found is None else found.reason


def test_it_is_accepted_up_to_the_instant_at_which_a_request_would_not_be() -> None:
    watched = watch(gate(), ISSUER.token(exp=NOW + 5))
    until_us = NOW_US + 5 * SECOND + LEEWAY_US

    assert (watched.until_us, watched.left) == (until_us, 15.0)
    assert watched.find_refusal(until_us - 1) is None
    assert watched.left == 1e-6
    assert reason(watched.find_refusal(until_us)) == "expired"


def test_one_without_an_end_is_looked_at_all_the_same() -> None:
    opened = gate()
    watched = watch(opened, ISSUER.token(exp=None, jti="t1"))
    assert watched.until_us == NEVER
    opened.load_revocations(b'{"tokens": ["t1"]}', NOW_US)

    assert reason(watched.find_refusal(NOW_US + 1)) == "revoked by its jti"


def test_it_is_looked_at_four_times_a_second() -> None:
    watched = watch(gate(), ISSUER.token(exp=None))
    looked: list[int] = []
    for passed_us in range(0, SECOND, 50_000):
        assert watched.find_refusal(NOW_US + passed_us) is None
        looked.append(watched.looked_us - NOW_US)

    assert sorted({*looked}) == [0, 250_000, 500_000, 750_000]


def test_what_is_left_counts_from_any_time() -> None:
    watched = watch(gate(), ISSUER.token(exp=NOW + 5))

    assert watched.seconds_left(NOW_US + 4 * SECOND) == 11.0
    assert watched.seconds_left(NOW_US + 16 * SECOND) == -1.0


def test_what_tokens_are_judged_by_differs_with_keys_and_revocations() -> None:
    opened = gate()
    first = opened.fingerprint(NOW_US)
    assert opened.fingerprint(NOW_US + SECOND) == first
    opened.load_revocations(b'{"tokens": ["t1"]}', NOW_US)
    second = opened.fingerprint(NOW_US)
    assert second != first
    opened.load_revocations(None, None)
    stale_us = round(opened.config.keys_stale_seconds * SECOND)
    assert opened.fingerprint(NOW_US) == second
    assert opened.fingerprint(NOW_US + stale_us + SECOND) not in (first, second)


def test_a_clock_that_was_set_back_is_no_reason_not_to_look() -> None:
    opened = gate()
    watched = watch(opened, ISSUER.token(exp=None, jti="t1"))
    opened.load_revocations(b'{"tokens": ["t1"]}', NOW_US)

    assert watched.find_refusal(NOW_US - SECOND) is not None


def test_what_is_void_already_is_found_at_the_first_look() -> None:
    opened = gate()
    watched = watch(opened, Issuer().token())

    assert reason(watched.find_refusal(NOW_US + SECOND)) == "no key verifies the signature"
    assert watch_token(opened, Request("GET", "/"), NOW_US).until_us == NEVER
