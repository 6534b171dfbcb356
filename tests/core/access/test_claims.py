"""Claims by the names that an operator gives, of tokens as identity providers make them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legation.access.authenticator import Authenticator, TokenRefused, make_authenticator
from legation.access.claims import (
    ClaimName,
    ClaimRules,
    Claims,
    claim_faults,
    claim_rules,
    claims_in_use,
    overlay,
    read_claims,
)
from legation.access.decide import Principal
from legation.access.jose import Malformed
from legation.access.tokens import MAX_TOKEN_BYTES, BadToken, verify
from legation.config import AuthorizationConfig, ConfigurationError, structure
from legation.http.bodies.json_text import BadJson, parse_json
from legation.http.messages import Request

from ...callers import NOW, Issuer

NOW_US: Final = NOW * 1_000_000
ISSUER: Final = Issuer()

REALM: Final = "https://keycloak.test/realms/staff"
KEYCLOAK: Final[Mapping[str, Any]] = {
    "exp": NOW + 300,
    "iat": NOW,
    "jti": "onrtac:5b4f1d3a-0d5c-4a1e-9a55-8c5f3d5f0f6e",
    "iss": REALM,
    "aud": ["front-office", "account"],
    "sub": "f1b4c7a2-6c1f-4d0e-9a57-0d2f4b7a1c33",
    "typ": "Bearer",
    "azp": "front-office-web",
    "sid": "a1c0a7a8-8a2b-4a54-9f4e-3a6a3d9f5b10",
    "acr": "1",
    "allowed-origins": ["https://app.test"],
    "realm_access": {"roles": ["offline_access", "agents:read"]},
    "resource_access": {
        "front-office": {"roles": ["agents:concierge:run", "sessions:read"]},
        "account": {"roles": ["manage-account"]},
    },
    "scope": "openid profile email teams:read",
    "preferred_username": "ada",
    "email": "ada@company.test",
}
AUTH0: Final[Mapping[str, Any]] = {
    "iss": "https://company.eu.auth0.test/",
    "sub": "auth0|65f0c0ffee65f0c0ffee65f0",
    "aud": ["https://front-office.test/api", "https://company.eu.auth0.test/userinfo"],
    "iat": NOW,
    "exp": NOW + 86_400,
    "azp": "my-client-id",
    "scope": "openid profile sessions:read",
    "permissions": ["agents:read", "agents:concierge:run"],
    "https://front-office.test/tenant": {"id": 7, "name": "Company"},
    "https://front-office.test/roles": ["agents:read"],
}
TENANT: Final = "8f4b2c2e-3c1d-4f7a-9d77-5d2c9b0e4a11"
ENTRA: Final[Mapping[str, Any]] = {
    "aud": "1b2c3d4e-0000-1111-2222-333344445555",
    "iss": f"https://login.microsoftonline.test/{TENANT}/v2.0",
    "iat": NOW,
    "nbf": NOW,
    "exp": NOW + 4_500,
    "aio": "AZQAa/8TAAAA",
    "azp": "9a8b7c6d-0000-1111-2222-333344445555",
    "azpacr": "0",
    "name": "Ada Lovelace",
    "oid": "00000000-aaaa-bbbb-cccc-000000000001",
    "preferred_username": "ada@company.test",
    "rh": "0.AXkA",
    "scp": "agents:read sessions:read",
    "roles": ["agents:concierge:run"],
    "sub": "pairwise-Q2hhbmdlcyBwZXIgYXBw",
    "tid": TENANT,
    "uti": "xyz",
    "ver": "2.0",
}


def rules(**options: Any) -> ClaimRules:
    config = AuthorizationConfig(**options)
    assert list(claim_faults(config)) == []
    return claim_rules(config, "demo")


def read(claims: Mapping[str, Any], **options: Any) -> Claims:
    return read_claims(dict(claims), "key", NOW_US, rules(**options))


def granted(claims: Mapping[str, Any], *names: str) -> list[str]:
    return sorted(read(claims, scopes_claim=names or ("scopes",)).scopes)


def refusal(claims: Mapping[str, Any], **options: Any) -> str:
    """Return why the claims are refused, or nothing."""
    try:
        read(claims, **options)
    except Malformed as reason:
        return str(reason)
    return ""


# --- The tokens of identity providers ------------------------------------------------------------


def test_a_token_of_keycloak_is_read() -> None:
    client = "/resource_access/front-office/roles"

    assert granted(KEYCLOAK) == []
    assert granted(KEYCLOAK, "/realm_access/roles") == ["agents:read", "offline_access"]
    assert granted(KEYCLOAK, client) == ["agents:concierge:run", "sessions:read"]
    assert "teams:read" in granted(KEYCLOAK, "scope")
    assert len(granted(KEYCLOAK, client, "scope", "/realm_access/roles")) == 8
    assert granted(KEYCLOAK, "/resource_access/other/roles", "/absent/roles") == []


def test_a_token_of_auth0_is_read() -> None:
    claims = read(
        AUTH0,
        scopes_claim="permissions",
        verify_audience=True,
        audience="https://front-office.test/api",
        issuer="https://company.eu.auth0.test/",
        dependencies_claims=["https://front-office.test/tenant", "absent"],
        session_state_claims=["/https:~1~1front-office.test~1tenant/name"],
    )

    assert claims.scopes == {"agents:read", "agents:concierge:run"}
    assert claims.subject == "auth0|65f0c0ffee65f0c0ffee65f0"
    tenant = {"id": 7, "name": "Company"}
    assert claims.dependencies == {"https://front-office.test/tenant": tenant}
    assert claims.session_state == {"/https:~1~1front-office.test~1tenant/name": "Company"}
    assert granted(AUTH0, "https://front-office.test/roles") == ["agents:read"]


def test_a_token_of_entra_is_read() -> None:
    claims = read(ENTRA, scopes_claim=["scp", "roles"], user_id_claim="oid")

    assert claims.scopes == {"agents:read", "sessions:read", "agents:concierge:run"}
    assert claims.subject == "00000000-aaaa-bbbb-cccc-000000000001"
    assert refusal(ENTRA, issuer=f"https://sts.windows.test/{TENANT}/") != ""


@pytest.mark.parametrize("provider", [KEYCLOAK, AUTH0, ENTRA], ids=["Keycloak", "Auth0", "Entra"])
def test_what_a_provider_says_beside_is_no_fault_by_default(provider: Mapping[str, Any]) -> None:
    found = ISSUER.token(**{"scopes": None, **provider})
    opened = make_authenticator(ISSUER.authorization(), "demo", None)

    assert isinstance(known(opened, found), Principal)


# --- Names ---------------------------------------------------------------------------------------


def test_a_name_with_dots_and_slashes_is_a_name() -> None:
    claims = {"a.b": ["x:y"], "a": {"b": ["no:no"]}, "https://a/b": ["u:v"], "~0": ["t:t"]}

    assert granted(claims, "a.b", "https://a/b", "~0") == ["t:t", "u:v", "x:y"]


def test_a_pointer_leads_into_objects_and_is_unescaped_once() -> None:
    claims = {"a": {"b/c": {"~1": ["x:y"]}}, "/a": ["p:q"]}

    assert granted(claims, "/a/b~1c/~01") == ["x:y"]
    assert granted(claims, "/~1a") == ["p:q"]
    assert ClaimName("/a/b~1c/~01").members == ("a", "b/c", "~1")


@given(st.lists(st.sampled_from([".", "a.b", "~1", "/x", "/a/b", "/a/~0~1"]), unique=True))
def test_what_is_placed_is_found(texts: list[str]) -> None:
    claims: dict[str, Any] = {}
    names = [ClaimName(text) for text in texts]
    for name in names:
        name.place(claims, name.text)

    assert [name.find(claims) for name in names] == [name.text for name in names]


@pytest.mark.parametrize("between", ["text", 7, None, [{"roles": []}], True])
def test_a_pointer_into_something_else_is_a_refusal(between: object) -> None:
    assert "leads into" in refusal({"a": between}, scopes_claim="/a/roles")
    assert "leads into" in refusal({"a": between}, user_id_claim="/a/0")


# --- Scopes, and who it is -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "scopes"),
    [
        ("", []),
        (" ", []),
        ("a:b", ["a:b"]),
        ("b:c  a:b ", ["a:b", "b:c"]),
        ("a:b,b:c", ["a:b,b:c"]),
        ("a:b\tb:c", ["a:b\tb:c"]),
        ("a:b\u00a0b:c", ["a:b\u00a0b:c"]),
        ([], []),
        (["a:b", "b:c d:e"], ["a:b", "b:c d:e"]),
    ],
)
def test_scopes_are_an_array_or_a_string_with_spaces(value: object, scopes: list[str]) -> None:
    for name in ("scope", "/in/scope"):
        assert granted({"scope": value, "in": {"scope": value}}, name) == scopes


@pytest.mark.parametrize(
    "value", [None, 7, True, {"agents:read": True}, ["a:b", 7], [None], [["a:b"]], "\ud800"]
)
def test_scopes_of_another_type_are_a_refusal(value: object) -> None:
    assert refusal({"scp": value}, scopes_claim="scp").startswith("scp ")
    assert refusal({"scp": value}, scopes_claim=["scope", "scp"]).startswith("scp ")


def test_the_claim_scopes_stays_an_array() -> None:
    assert refusal({"scopes": "a:b"}) == "scopes is not an array"
    assert refusal({"scopes": "a:b"}, scopes_claim="scopes") == "scopes is not an array"
    assert refusal({"scopes": "a:b"}, scopes_claim=["scope", "scopes"]) != ""
    assert granted({"scopes": ["a:b"], "scope": "b:c"}, "scopes", "scope") == ["a:b", "b:c"]


@pytest.mark.parametrize("value", ["", "a" * 257, 7, None, ["ada"], "a\0b", "\ud800"])
def test_a_user_id_of_another_type_is_a_refusal(value: object) -> None:
    assert refusal({"oid": value}, user_id_claim="oid").startswith("oid ")
    assert refusal({"x": {"y": value}}, user_id_claim="/x/y").startswith("/x/y ")


def test_without_the_configured_user_id_a_token_owns_nothing() -> None:
    assert read({"sub": "ada"}, user_id_claim="oid").subject is None


# --- Audience and issuer -------------------------------------------------------------------------

TWO: Final = ("https://a.test", "https://b.test")


@pytest.mark.parametrize(
    ("aud", "good"),
    [
        ("api", True),
        ("api-2", True),
        (["x", "api-2"], True),
        ("demo", False),
        ("ap", False),
        ("api api-2", False),
        ([], False),
        (None, False),
        (7, False),
        (["api", 7], False),
    ],
)
def test_one_audience_of_several_is_enough(aud: object, *, good: bool) -> None:
    options = {"verify_audience": True, "audience": ["api", "api-2"]}

    assert (refusal({"aud": aud}, **options) == "") == good


def test_the_audience_is_the_platform_unless_another_is_named() -> None:
    assert refusal({"aud": "demo"}, verify_audience=True) == ""
    assert refusal({"aud": "api"}, verify_audience=True) != ""
    assert refusal({"aud": "demo"}, verify_audience=True, audience="api") != ""
    assert refusal({}, verify_audience=True, audience="api") != ""


@pytest.mark.parametrize("iss", ["https://a.test/", "https://A.test", "https://c.test", 7, ""])
def test_an_issuer_is_equal_or_it_is_another(iss: object) -> None:
    assert refusal({"iss": iss}, issuer="https://a.test") != ""
    assert refusal({"iss": iss}, issuer=TWO) != ""


def test_a_token_without_an_issuer_is_refused_where_one_is_named() -> None:
    assert refusal({}, issuer="https://a.test") == "iss is not an issuer of the configuration"
    assert refusal({"iss": "https://a.test"}, issuer="https://a.test") == ""
    assert refusal({}) == ""


def known(opened: Authenticator, token: str) -> Principal | TokenRefused:
    headers = ((b"authorization", b"Bearer " + token.encode()),)
    return opened.caller(Request("GET", "/", headers), NOW_US)


def test_one_subject_of_two_issuers_is_two_owners() -> None:
    for prefix, owners in (
        ("others", ["ada", "https://b.test#ada"]),
        ("all", ["https://a.test#ada", "https://b.test#ada"]),
    ):
        config = ISSUER.authorization(issuer=TWO, prefix_issuers=prefix)
        opened = make_authenticator(config, "demo", None)
        found = [known(opened, ISSUER.token(iss=iss)) for iss in TWO]

        assert [one.owner for one in found if isinstance(one, Principal)] == owners
        assert isinstance(known(opened, ISSUER.token()), TokenRefused)


def test_a_second_issuer_changes_nobody_of_the_first() -> None:
    for sub in ("ada", "~x", "a#b", "https://a.test", "https://c.test#ada"):
        alone = read({"iss": TWO[0], "sub": sub}, issuer=TWO[:1])
        assert read({"iss": TWO[0], "sub": sub}, issuer=TWO).subject == alone.subject == sub


def test_a_name_that_looks_like_that_of_another_issuers_user_is_not_that_users() -> None:
    for iss in TWO:
        sub = f"{iss}#eve"
        assert read({"iss": TWO[0], "sub": sub}, issuer=TWO).subject == f"{TWO[0]}#{sub}"


def test_the_owner_of_one_issuer_is_the_subject() -> None:
    for options in ({}, {"issuer": "https://a.test"}, {"issuer": ["https://a.test"]}):
        opened = make_authenticator(ISSUER.authorization(**options), "demo", None)
        found = known(opened, ISSUER.token(iss="https://a.test"))
        assert isinstance(found, Principal)
        assert found.owner == "ada"


@given(st.lists(st.tuples(st.sampled_from(TWO), st.text(min_size=1, max_size=9)), max_size=9))
def test_owners_are_equal_only_where_issuer_and_subject_are(pairs: list[tuple[str, str]]) -> None:
    owners: dict[str | None, tuple[str, str]] = {}
    for iss, sub in pairs:
        try:
            claims = read({"iss": iss, "sub": sub}, issuer=TWO)
        except Malformed:
            continue
        assert owners.setdefault(claims.subject, (iss, sub)) == (iss, sub)


# --- Claims for runs -----------------------------------------------------------------------------


def test_runs_are_given_the_claims_that_are_named_and_there() -> None:
    claims = read(
        {"tenant": "t", "plan": {"seats": 3}, "other": 1, "none": None},
        dependencies_claims=["tenant", "/plan/seats", "none", "absent"],
        session_state_claims=["plan"],
    )

    assert claims.dependencies == {"tenant": "t", "/plan/seats": 3, "none": None}
    assert claims.session_state == {"plan": {"seats": 3}}


@pytest.mark.parametrize("value", ["\0", "\ud800", ["\ud800"], {"\0": 1}, {"a": {"b": "\udfff"}}])
def test_a_claim_that_cannot_be_stored_is_a_refusal(value: object) -> None:
    for key in ("dependencies_claims", "session_state_claims"):
        assert refusal({"tenant": value}, **{key: ["tenant"]}) != ""
    assert refusal({"tenant": value}) == ""


def test_what_the_token_says_counts_alone_also_in_silence() -> None:
    assert overlay({"a": 1, "b": 2}, ("a",), {"a": 3}) == {"a": 3, "b": 2}
    assert overlay({"a": 1, "b": 2}, ("a",), {}) == {"b": 2}
    assert overlay({"a": {"x": 1}}, ("a",), {"a": {"y": 2}}) == {"a": {"y": 2}}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES: Final = ("scope", "oid", "/a/b", "/a/b/c", "https://x/y", "a")


@given(
    st.dictionaries(st.sampled_from([*NAMES, "iss", "aud", "scopes", "sub"]), JSON),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
    st.sampled_from([None, TWO, TWO[:1]]),
)
def test_any_claims_are_read_or_refused(
    claims: dict[str, Any], scopes: list[str], user_id: str, handed: list[str], issuer: Any
) -> None:
    wanted = rules(
        scopes_claim=scopes, user_id_claim=user_id, dependencies_claims=handed, issuer=issuer
    )
    try:
        found = read_claims(claims, "key", NOW_US, wanted)
    except Malformed:
        return

    texts = [found.subject, *found.scopes, *found.audience, *handed]
    json.dumps([texts, found.dependencies], ensure_ascii=False).encode()
    assert set(found.dependencies) <= set(handed)
    assert not isinstance(parse_json(json.dumps(found.dependencies).encode()), BadJson)


# --- Size ----------------------------------------------------------------------------------------


def signed(claims: Mapping[str, Any]) -> bytes:
    return ISSUER.token(**{"scopes": None, **claims}).encode()


def test_a_million_members_are_refused_unread() -> None:
    keys = make_authenticator(ISSUER.authorization(), "demo", None).keys
    values: list[Any] = [["a"] * 1_000_000, "a " * 1_000_000, dict.fromkeys(map(str, range(10**6)))]
    for value in values:
        token = signed({"scope": value})
        found = verify(token, keys, NOW_US, rules(scopes_claim="scope"))
        assert found == BadToken("longer than the limit")


def test_as_many_members_as_a_token_can_hold_are_read() -> None:
    keys = make_authenticator(ISSUER.authorization(), "demo", None).keys
    wanted = rules(scopes_claim="s", dependencies_claims=["s"], session_state_claims=["s"])
    values: list[Any] = [[""] * 1300, "a " * 2600, [[[]]] * 600]
    for value in values:
        token = signed({"s": value})
        assert MAX_TOKEN_BYTES // 2 < len(token) <= MAX_TOKEN_BYTES
        assert isinstance(verify(token, keys, NOW_US, wanted), Claims | BadToken)


# --- Configuration -------------------------------------------------------------------------------

BAD: Final[Mapping[str, tuple[dict[str, Any], set[str]]]] = {
    "an empty audience": (
        {"audience": "", "verify_audience": True},
        {"audience: is not an audience: 1 to 256 characters"},
    ),
    "no audience of several": (
        {"audience": [], "verify_audience": True},
        {"audience: is empty: name one, or leave it out"},
    ),
    "an audience that is not looked at": (
        {"audience": "api"},
        {"audience: needs verify_audience = true: set that, or leave this out"},
    ),
    "one audience twice": (
        {"audience": ["api", "b", "api"], "verify_audience": True},
        {"audience[2]: 'api' is named twice"},
    ),
    "no issuer": ({"issuer": []}, {"issuer: is empty: name one, or leave it out"}),
    "issuers that are none": (
        {"issuer": ["", "https://a#b", "a b", "é", "x" * 257]},
        {
            f"issuer[{n}]: is not an issuer: 1 to 256 visible ASCII characters, without #"
            for n in range(5)
        },
    ),
    "no claim of scopes": (
        {"scopes_claim": []},
        {"scopes_claim: is empty: name one, or leave it out"},
    ),
    "no claim of the user": (
        {"user_id_claim": ""},
        {"user_id_claim: is not the name of a claim: 1 to 256 characters"},
    ),
    "pointers that are none": (
        {"scopes_claim": ["/", "/a//b", "/a~2", "/a~", "/a/"]},
        {
            f"scopes_claim[{n}]: {text!r} begins with / and is no JSON Pointer such as"
            " /realm_access/roles"
            for n, text in enumerate(["/", "/a//b", "/a~2", "/a~", "/a/"])
        },
    ),
    "several at once": (
        {"dependencies_claims": ["a", "a"], "session_state_claims": [""], "issuer": ""},
        {
            "dependencies_claims[1]: 'a' is named twice",
            "session_state_claims: is not the name of a claim: 1 to 256 characters",
            "issuer: is not an issuer: 1 to 256 visible ASCII characters, without #",
        },
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_configurations_are_told_whole_with_their_paths(name: str) -> None:
    table, told = BAD[name]
    config = structure({"authorization_config": table}).authorization_config

    found = {f"{fault.path}: {fault.message}" for fault in claim_faults(config)}
    assert found == {f"authorization_config.{sentence}" for sentence in told}


@pytest.mark.parametrize("value", [7, True, None, {}, ["a", 7], [["a"]]], ids=repr)
def test_a_value_of_the_wrong_type_is_a_fault_of_each_key(value: object) -> None:
    several = ("audience", "issuer", "scopes_claim")
    lists = ("dependencies_claims", "session_state_claims", "require")
    with pytest.raises(ConfigurationError) as caught:
        structure(
            {"authorization_config": dict.fromkeys((*several, *lists, "user_id_claim"), value)}
        )

    told = {fault.path: fault.message for fault in caught.value.faults}
    where = "authorization_config."
    assert told == {
        **{where + key: "expected a string or an array of strings" for key in several},
        **{where + key: "expected an array of strings" for key in lists},
        f"{where}user_id_claim": "expected a string",
    }


def test_one_text_and_an_array_of_one_are_the_same() -> None:
    for key in ("audience", "issuer", "scopes_claim"):
        alone, listed = (
            structure({"authorization_config": {key: value}}) for value in ("a", ["a"])
        )
        assert alone == listed
        options: dict[str, Any] = {key: "a"}
        assert AuthorizationConfig(**options) == alone.authorization_config


def test_what_is_read_is_said() -> None:
    assert claims_in_use(AuthorizationConfig(), "demo") == (
        ("scopes", "scopes"),
        ("user_id", "sub"),
        ("audience", "not verified"),
        ("issuer", "not verified"),
        ("dependencies", "none"),
        ("session_state", "none"),
        ("required", "none"),
    )
    config = AuthorizationConfig(
        verify_audience=True,
        audience=["api", "api-2"],
        issuer=TWO,
        scopes_claim=["scp", "roles"],
        user_id_claim="oid",
        dependencies_claims=["tid"],
        session_state_claims=["a", "b"],
        require=["exp", "jti"],
    )
    assert claims_in_use(config, "demo") == (
        ("scopes", "scp, roles"),
        ("user_id", "oid of https://a.test, else iss#oid"),
        ("audience", "aud: api or api-2"),
        ("issuer", "iss: https://a.test or https://b.test"),
        ("dependencies", "tid"),
        ("session_state", "a, b"),
        ("required", "exp, jti"),
    )
    config = AuthorizationConfig(issuer=TWO, prefix_issuers="all")
    assert dict(claims_in_use(config, "demo"))["user_id"] == "iss#sub"


# --- Required claims and lifetime ----------------------------------------------------------------


def test_a_required_claim_has_to_be_there() -> None:
    required = {"require": ["exp", "/realm_access/roles"]}
    whole: dict[str, Any] = {"exp": NOW + 5, "realm_access": {"roles": []}}

    assert refusal(whole, **required) == ""
    assert refusal({"exp": NOW + 5}, **required) == "has no /realm_access/roles, which is required"
    assert refusal({"realm_access": {"roles": []}}, **required) == "has no exp, which is required"
    assert refusal({"jti": "t", "x": None}, require=["x"]) == "has no x, which is required"
    assert refusal({}, require=[]) == ""


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"iat": NOW, "exp": NOW + 60}, ""),
        ({"iat": NOW - 30, "exp": NOW + 30}, ""),
        ({"iat": NOW - 1, "exp": NOW + 60}, "lives longer than max_lifetime_seconds"),
        ({"exp": NOW + 70}, ""),
        ({"exp": NOW + 71}, "lives longer than max_lifetime_seconds"),
        ({"iat": NOW}, "has no exp, and lives for ever"),
    ],
)
def test_a_token_lives_no_longer_than_it_may(claims: dict[str, Any], told: str) -> None:
    assert refusal(claims, max_lifetime_seconds=60.0) == told


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_lifetime_seconds", 0.0),
        ("max_lifetime_seconds", -1.0),
        ("max_lifetime_seconds", float("nan")),
        ("max_lifetime_seconds", float("inf")),
        ("keys_stale_seconds", -1.0),
        ("keys_stale_seconds", float("nan")),
        ("keys_stale_seconds", 1e12),
    ],
)
def test_a_time_that_is_none_is_a_fault(key: str, value: float) -> None:
    options: dict[str, Any] = {key: value}
    (fault,) = claim_faults(AuthorizationConfig(**options))

    assert fault.path == f"authorization_config.{key}"


def test_times_that_can_be_are_no_fault() -> None:
    for stale, longest in ((0.0, 1.0), (86_400.0, None)):
        config = AuthorizationConfig(keys_stale_seconds=stale, max_lifetime_seconds=longest)
        assert list(claim_faults(config)) == []
