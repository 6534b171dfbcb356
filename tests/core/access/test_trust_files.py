"""A file that tokens are judged by: current, stale for a bounded time, void; every order of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Final

import pytest

from legation.access.authenticator import (
    Authenticator,
    TokenRefused,
    describe_files,
    make_authenticator,
)
from legation.access.trust_files import NEVER, FileState, TrustFile, log_changes
from legation.config import AuthorizationConfig
from legation.effects import Log
from legation.http.messages import Request
from legation.http.refusals import Fault

from ...callers import NOW, Issuer
from .test_keys import RSA_1024, jwk

SECOND: Final = 1_000_000
NOW_US: Final = NOW * SECOND
LIMIT: Final = 3_600
FAULT: Final = (Fault("f", "cannot be read"),)
FRESH: Final = TrustFile(LIMIT * SECOND, b"a", loaded_us=1)


def test_a_file_that_cannot_be_read_is_stale_since_the_first_time_and_void_in_the_end() -> None:
    stale = FRESH.fail(FAULT, 100).fail(FAULT, 200)

    assert (stale.state, stale.since_us, stale.failed_us) == (FileState.STALE, 100, 200)
    assert stale.next_us == 100 + LIMIT * SECOND
    assert stale.at(stale.next_us - 1).state is FileState.STALE
    void = stale.at(stale.next_us)
    assert void.state is FileState.VOID
    assert void.next_us == NEVER
    assert void.fail(FAULT, 300).state is FileState.VOID
    assert void.stale_seconds(100 + 7 * SECOND) == 7
    assert void.stale_seconds(0) == 0, "a clock that was set back"


def test_a_file_that_can_be_read_is_current_whatever_was() -> None:
    for before in (FRESH, FRESH.fail(FAULT, 5), FRESH.fail(FAULT, 5).at(1 << 50)):
        same, other = before.take(b"a", 9), before.take(b"b", 9)
        assert (same.state, same.faults, same.stale_seconds(99)) == (FileState.CURRENT, (), 0)
        assert (same.loaded_us, other.loaded_us) == (1, 9)
    assert FRESH.at(1 << 50) is FRESH
    assert FRESH.next_us == NEVER


def test_where_nobody_said_when_it_is_stale_since_the_next_question() -> None:
    stale = FRESH.fail(FAULT, None)

    assert (stale.since_us, stale.next_us) == (None, 0)
    assert stale.at(70).since_us == 70
    assert stale.at(70).state is FileState.STALE


def test_without_patience_a_file_is_void_at_once() -> None:
    assert TrustFile(0).fail(FAULT, 5).at(5).state is FileState.VOID


@pytest.mark.parametrize(
    ("keys", "what"), [(True, "keys"), (False, "revocations")], ids=["keys", "revocations"]
)
def test_each_change_is_one_line(what: str, *, keys: bool) -> None:
    stale = FRESH.fail(FAULT, 5)
    void = stale.at(1 << 50)

    def lines(before: TrustFile, after: TrustFile) -> list[str]:
        found = list(log_changes("f.json", before, after, keys=keys))
        assert all(("path", "f.json") in line.fields for line in found)
        return [line.event.removeprefix(f"{what}_") for line in found]

    assert lines(FRESH, FRESH) == lines(stale, stale.fail(FAULT, 9)) == lines(void, void) == []
    assert lines(FRESH, stale) == ["reload_failed"]
    assert lines(FRESH, void) == ["reload_failed", "void"]
    assert lines(stale, void) == ["void"]
    assert lines(stale, FRESH) == lines(void, FRESH) == ["recovered"]
    assert lines(FRESH, FRESH.take(b"b", 7)) == ["reloaded"]
    assert lines(void, FRESH.take(b"b", 7)) == ["recovered", "reloaded"]
    told = next(log_changes("f.json", FRESH, stale, keys=keys))
    assert told.level == "error"
    assert told.fields[1] == ("reason", "f: cannot be read")


# --- Every order ---------------------------------------------------------------------------------

OLD: Final = Issuer(kid="old")
NEW: Final = Issuer(kid="new")


def jwks(*members: object) -> bytes:
    return json.dumps({"keys": members}).encode()


WEAK: Final = jwk(RSA_1024, kid="weak")
STEPS: Final[dict[str, tuple[bytes | None, frozenset[str] | None]]] = {
    "new set": (jwks(NEW.jwk), frozenset({"new"})),
    "weak key": (jwks(NEW.jwk, WEAK), frozenset({"new"})),
    "empty": (jwks(), frozenset()),
    "unreadable": (b'{"keys": [', None),
    "old file back": (jwks(OLD.jwk), frozenset({"old"})),
}
"""What the file holds, and the keys that verify then; None where it cannot be read."""

TOKENS: Final = {one.kid: one.token("a:b", exp=NOW + 10**6) for one in (OLD, NEW)}


def orders() -> Iterator[tuple[str, ...]]:
    for length in range(1, 5):
        yield from product(STEPS, repeat=length)


def accepted(opened: Authenticator, now_us: int) -> frozenset[str]:
    def passes(token: str) -> bool:
        header = ((b"authorization", f"Bearer {token}".encode()),)
        return not isinstance(opened.caller(Request("GET", "/", header), now_us), TokenRefused)

    return frozenset(str(kid) for kid, token in TOKENS.items() if passes(token))


def readiness(opened: Authenticator, now_us: int) -> str:
    """Return the state that `/ready` gives; with `void` it is 503."""
    return describe_files(opened, now_us)["keys"].value


def gauge(opened: Authenticator, now_us: int) -> float:
    """Return `legation_keys_stale_seconds`."""
    ((name, file),) = opened.files
    assert name == "keys"
    return file.stale_seconds(now_us)


CONFIG: Final = AuthorizationConfig(jwks_file="keys.json", keys_stale_seconds=LIMIT)


@pytest.mark.enumeration
def test_a_key_that_a_readable_set_no_longer_has_is_void_in_every_order() -> None:
    seen = 0
    for order in orders():
        opened = make_authenticator(CONFIG, "demo", jwks(OLD.jwk))
        good, now_us, stale_since = frozenset({"old"}), NOW_US, None
        for name in order:
            content, verifies = STEPS[name]
            now_us += SECOND
            was_stale = stale_since is not None
            opened.load_jwks(content, now_us)
            if verifies is None:
                stale_since = now_us if stale_since is None else stale_since
            else:
                good, stale_since = verifies, None
            events = [line.event for line in opened.report(now_us)]

            assert accepted(opened, now_us) == good, order
            assert readiness(opened, now_us) == ("current" if stale_since is None else "stale")
            assert gauge(opened, now_us) == (now_us - (stale_since or now_us)) / SECOND
            assert ("keys_reload_failed" in events) is (stale_since is not None and not was_stale)
            assert ("keys_recovered" in events) is (was_stale and stale_since is None)
            seen += 1
        if stale_since is not None:
            late_us = stale_since + LIMIT * SECOND
            assert accepted(opened, late_us - 1) == good
            assert accepted(opened, late_us) == frozenset(), order
            assert [line.event for line in opened.report(late_us)] == ["keys_void"]
            assert readiness(opened, late_us) == "void"
            assert gauge(opened, late_us) == LIMIT
            opened.load_jwks(jwks(OLD.jwk), late_us + SECOND)
            assert accepted(opened, late_us + SECOND) == {"old"}
            assert readiness(opened, late_us + SECOND) == "current"
            assert gauge(opened, late_us + SECOND) == 0
    assert seen == 5 + 2 * 25 + 3 * 125 + 4 * 625


def test_static_keys_verify_while_the_file_is_void() -> None:
    config = AuthorizationConfig([NEW.pem], jwks_file="keys.json", keys_stale_seconds=0)
    opened = make_authenticator(config, "demo", jwks(OLD.jwk))
    assert accepted(opened, NOW_US) == {"old", "new"}

    opened.load_jwks(None)
    assert accepted(opened, NOW_US) == {"new"}
    opened.load_jwks(jwks(OLD.jwk))
    assert accepted(opened, NOW_US) == {"old", "new"}


def test_a_file_that_is_said_to_be_unreadable_at_no_time_is_void_in_the_end() -> None:
    opened = make_authenticator(CONFIG, "demo", jwks(OLD.jwk))
    opened.load_jwks(None)

    assert accepted(opened, NOW_US) == {"old"}
    assert accepted(opened, NOW_US + LIMIT * SECOND) == frozenset()


def test_lines_are_written_once() -> None:
    opened = make_authenticator(CONFIG, "demo", jwks(OLD.jwk))
    opened.begin(NOW_US)
    assert opened.report(NOW_US) == ()
    opened.load_jwks(None, NOW_US, "no such file")

    fields = (("path", "keys.json"), ("reason", "authorization_config.jwks_file: no such file"))
    assert opened.report(NOW_US) == (Log("error", "keys_reload_failed", fields),)
    assert opened.report(NOW_US) == ()


def test_a_process_that_begins_with_a_stale_file_says_so_once() -> None:
    opened = make_authenticator(CONFIG, "demo", jwks(OLD.jwk))
    opened.load_jwks(None, NOW_US, "no such file")
    assert [line.event for line in opened.report(NOW_US)] == ["keys_reload_failed"]

    opened.begin(NOW_US + 60 * SECOND)

    assert [line.event for line in opened.report(NOW_US + 60 * SECOND)] == ["keys_reload_failed"]
    assert opened.report(NOW_US + 60 * SECOND) == ()
    assert gauge(opened, NOW_US + 60 * SECOND) == 60
    late_us = NOW_US + LIMIT * SECOND
    assert [line.event for line in opened.report(late_us)] == ["keys_void"]
    opened.begin(late_us)
    lines = [line.event for line in opened.report(late_us)]
    assert lines == ["keys_reload_failed", "keys_void"]
    assert accepted(opened, late_us) == frozenset()
