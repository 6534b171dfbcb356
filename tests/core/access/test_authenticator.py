from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import pytest

from legation.access.authenticator import (
    TRUSTED,
    Authenticator,
    KeysTrouble,
    TokenRefused,
    make_authenticator,
    open_authenticator,
)
from legation.access.decide import Principal
from legation.config import AuthorizationConfig, ConfigurationError
from legation.http.messages import Request
from legation.http.refusals import Fault, Unauthenticated

from ...callers import NOW, Issuer

ISSUER: Final = Issuer()
NAMED: Final = Issuer(kid="named")
NO_ALGORITHM: Any = "none"
NOW_US: Final = NOW * 1_000_000


def authenticator(**options: Any) -> Authenticator:
    return make_authenticator(ISSUER.authorization(**options), "demo", None)


def asking(*values: str) -> Request:
    return Request("GET", "/", tuple((b"authorization", value.encode()) for value in values))


def known(opened: Authenticator, token: str, now_us: int = NOW_US) -> Principal | TokenRefused:
    return opened.caller(asking(f"Bearer {token}"), now_us)


def test_a_caller_is_what_its_token_says() -> None:
    found = known(authenticator(), ISSUER.token("a:read", "b:run", sub="ada", session_id="s"))

    assert isinstance(found, Principal)
    assert found == Principal(
        "ada", frozenset({"a:read", "b:run"}), session_id="s", key_id=found.key_id
    )
    assert found.key_id
    assert not found.trusted


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "Bearer   {}"])
def test_a_token_names_one_caller_however_often_and_in_whatever_form_it_comes(form: str) -> None:
    opened, token = authenticator(), ISSUER.token("a:read", sub="ada")
    first, again = known(opened, token), known(opened, token)

    assert isinstance(first, Principal)
    assert first == again
    assert known(opened, token) is again
    assert opened.caller(asking(form.format(token)), NOW_US) == first


def test_a_caller_that_is_remembered_cannot_be_changed() -> None:
    found: Any = known(authenticator(), ISSUER.token("a:read", sub="ada"))

    with pytest.raises(AttributeError):
        found.scopes = frozenset({"platform:admin"})


def test_the_admin_scope_is_the_one_configured() -> None:
    for opened, scope in (
        (authenticator(), "platform:admin"),
        (authenticator(admin_scope="root"), "root"),
    ):
        for held in ("platform:admin", "root", "admin"):
            found = known(opened, ISSUER.token(held))
            assert isinstance(found, Principal)
            assert found.admin_scope == (scope if held == scope else "")


def test_an_empty_admin_scope_makes_nobody_an_administrator() -> None:
    found = known(authenticator(admin_scope=""), ISSUER.token(""))

    assert isinstance(found, Principal)
    assert not found.admin


@pytest.mark.parametrize(
    ("values", "detail", "sent"),
    [
        ((), "Authorization header missing", False),
        (("",), "Authorization header missing", False),
        (("Basic YTpi",), "Authorization header missing", False),
        (("Bearer",), "Invalid token", True),
        (("Bearer a.b.c",), "Invalid token", True),
        (("Bearer a.b.c", "Bearer a.b.c"), "Invalid token", True),
    ],
)
def test_nobody_is_recognized_without_one_token_that_verifies(
    values: tuple[str, ...], detail: str, *, sent: bool
) -> None:
    found = authenticator().caller(asking(*values), NOW_US)

    assert isinstance(found, TokenRefused)
    assert found.refusal == Unauthenticated(detail, sent=sent)
    assert found.reason


@pytest.mark.parametrize(
    ("claims", "detail"),
    [
        ({"exp": NOW - 11}, "Token has expired"),
        ({"nbf": NOW + 60}, "Invalid token"),
        ({"iat": "yesterday"}, "Invalid token"),
        ({"scopes": "a:read"}, "Invalid token"),
        ({"sub": 7}, "Invalid token"),
    ],
)
def test_one_sentence_stands_for_every_reason_but_expiry(
    claims: dict[str, Any], detail: str
) -> None:
    found = known(authenticator(), ISSUER.token(**claims))

    assert isinstance(found, TokenRefused)
    assert found.refusal == Unauthenticated(detail, sent=True)


def test_a_token_expires_while_it_is_remembered() -> None:
    opened, token = authenticator(), ISSUER.token("a:read", exp=NOW + 1)

    assert isinstance(known(opened, token), Principal)
    assert isinstance(known(opened, token, NOW_US + 10_999_999), Principal)
    late = known(opened, token, NOW_US + 11_000_000)
    assert isinstance(late, TokenRefused)
    assert late.refusal.detail == "Token has expired"


def test_the_audience_is_the_platform_where_it_is_verified() -> None:
    for audience, expected in (("demo", Principal), ("other", TokenRefused), (None, TokenRefused)):
        assert isinstance(
            known(authenticator(verify_audience=True), ISSUER.token(aud=audience)), expected
        )
    assert isinstance(known(authenticator(), ISSUER.token(aud="other")), Principal)


def jwks(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [issuer.jwk for issuer in issuers]}).encode()


def test_keys_are_replaced_as_a_whole() -> None:
    config = AuthorizationConfig(jwks_file="keys.json")
    opened = make_authenticator(config, "demo", jwks(NAMED))
    other = Issuer(kid="other")

    assert isinstance(known(opened, NAMED.token()), Principal)
    assert opened.load_jwks(jwks(other)) == ()
    assert isinstance(known(opened, NAMED.token()), TokenRefused)
    assert isinstance(known(opened, other.token()), Principal)


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"{}", b'{"keys": {}}'])
def test_a_broken_file_leaves_the_keys_as_they_are(broken: bytes) -> None:
    opened = make_authenticator(AuthorizationConfig(jwks_file="keys.json"), "demo", jwks(NAMED))
    faults = opened.load_jwks(broken)

    assert faults
    assert all(fault.path.startswith("authorization_config.") for fault in faults)
    assert isinstance(known(opened, NAMED.token()), Principal)


@pytest.mark.parametrize("revoking", [b'{"keys": []}', b'{"keys": [{"kty": "x"}]}'])
def test_a_set_without_a_key_that_can_be_used_revokes_all(revoking: bytes) -> None:
    config = AuthorizationConfig([ISSUER.pem], jwks_file="keys.json")
    opened = make_authenticator(config, "demo", jwks(NAMED))

    assert opened.load_jwks(revoking) == ()
    assert isinstance(known(opened, NAMED.token()), TokenRefused)
    assert isinstance(known(opened, ISSUER.token()), Principal)


def test_it_is_known_since_when_keys_are_in_force_and_why_others_are_not() -> None:
    config = AuthorizationConfig([ISSUER.pem], jwks_file="keys.json")
    opened = make_authenticator(config, "demo", jwks(NAMED))
    first, *_ = opened.keys.listed
    assert [one.path for one in opened.keys.listed] == ["verification_keys[0]", "jwks"]
    assert [one.kid for one in opened.keys.listed] == [None, "named"]
    assert first.key_id == opened.keys.without_kid[-1].key_id

    unread = opened.load_jwks(None, 5)
    assert opened.trouble == KeysTrouble(unread, 5)
    assert unread[0].path == "authorization_config.jwks_file"
    broken = opened.load_jwks(b"{", 6)
    assert opened.trouble == KeysTrouble(broken, 6)

    assert opened.load_jwks(jwks(NAMED), 7) == ()
    assert opened.trouble is None
    assert opened.loaded_us is None, "the keys are the same"
    assert opened.load_jwks(jwks(Issuer(kid="other")), 8) == ()
    assert opened.loaded_us == 8


def test_claims_name_whom_a_token_with_them_would() -> None:
    opened = authenticator(user_id_claim="who")

    found = opened.identify({"who": "ann", "scopes": ["a:b"], "exp": NOW + 5}, NOW_US)
    assert found == Principal("ann", frozenset({"a:b"}))
    late = opened.identify({"exp": NOW - 60}, NOW_US)
    assert isinstance(late, TokenRefused)
    assert late.reason == "expired"
    assert isinstance(opened.identify({"scopes": "a:b"}, NOW_US), TokenRefused)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (AuthorizationConfig(), "verification_keys: there is no key"),
        (AuthorizationConfig(["x"]), r"verification_keys\[0\]: "),
        (AuthorizationConfig(algorithm=NO_ALGORITHM), "algorithm: 'none' is not one of"),
        (ISSUER.authorization(jwks_file="k.json"), "jwks_file: is named and was not read"),
    ],
)
def test_a_gate_that_would_not_close_is_not_opened(config: AuthorizationConfig, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        make_authenticator(config, "demo", None)


def test_who_is_trusted_is_nobody_in_particular() -> None:
    assert Principal(trusted=True) == TRUSTED


# --- a platform that is not served needs no file --------------------------------------------------


FILES: Final = AuthorizationConfig(jwks_file="keys.json", revocations_file="revoked.json")


def paths_of(faults: Iterable[Fault]) -> list[str]:
    return [fault.path.removeprefix("authorization_config.") for fault in faults]


@pytest.mark.parametrize(
    ("config", "jwks", "revocations", "missing"),
    [
        (FILES, None, None, ["jwks_file", "revocations_file"]),
        (FILES, b"{", b"{", ["jwks", "revocations_file"]),
        (AuthorizationConfig(jwks_file="keys.json"), None, None, ["jwks_file"]),
        (AuthorizationConfig(), None, None, ["verification_keys"]),
        (ISSUER.authorization(revocations_file="r"), None, None, ["revocations_file"]),
        (ISSUER.authorization(), None, None, []),
    ],
    ids=["none", "broken", "keys alone", "no key", "revocations alone", "whole"],
)
def test_what_cannot_be_read_is_missing_and_lets_nobody_in(
    config: AuthorizationConfig,
    jwks: bytes | None,
    revocations: bytes | None,
    missing: list[str],
) -> None:
    opened, faults = open_authenticator(config, "demo", jwks, revocations, needed=False)

    assert paths_of(faults) == missing
    assert isinstance(known(opened, ISSUER.token()), TokenRefused) == bool(missing)
    if missing:
        with pytest.raises(ConfigurationError):
            open_authenticator(config, "demo", jwks, revocations, needed=True)


def test_a_key_of_the_configuration_that_is_unsafe_is_a_fault_in_any_case() -> None:
    config = AuthorizationConfig(verification_keys=["no key"], jwks_file="keys.json")

    with pytest.raises(ConfigurationError) as refused:
        open_authenticator(config, "demo", None, needed=False)
    assert "verification_keys[0]" in paths_of(refused.value.faults)
