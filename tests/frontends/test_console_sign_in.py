"""Signing in to the console at a provider: the code flow with PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from legation import Console as SignIn

from ..browser import NoBrowser
from ..callers import Issuer
from ..providers.openid import CLIENT, OpenIdProvider, signing_in
from .console_kit import Console, console
from .console_world import BRIEF, office
from .hosted import hosted

BACK: Final = "http://127.0.0.1:1/console"
VERIFIER: Final = "v" * 43
CHALLENGE: Final = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
)
ASKED: Final = {
    "response_type": "code",
    "client_id": CLIENT,
    "redirect_uri": BACK,
    "scope": "openid",
    "state": "s",
    "code_challenge": CHALLENGE,
    "code_challenge_method": "S256",
}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none."""


OPENER: Final = urllib.request.build_opener(NoRedirect)


@pytest.fixture(scope="module")
def signer() -> Issuer:
    return Issuer(kid="k")


@pytest.fixture
def provider(signer: Issuer) -> Generator[OpenIdProvider]:
    provider = OpenIdProvider(signer, "demo", ("agents:read",), redirect_uris={BACK})
    with signing_in(provider):
        yield provider


def send(url: str, form: dict[str, str] | None = None, **headers: str) -> tuple[int, Any, str]:
    """Return status, body and location."""
    data = None if form is None else urlencode(form).encode()
    request = urllib.request.Request(url, data, headers)
    try:
        with OPENER.open(request, timeout=20) as reply:
            return reply.status, reply.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers.get("location", "")


def sign_in(provider: OpenIdProvider) -> str:
    """Return a code."""
    _, page, _ = send(f"{provider.base}/authorize?{urlencode(ASKED)}")
    ticket = re.search('value="([^"]+)"', page)
    assert ticket is not None
    status, _, location = send(f"{provider.base}/consent", {"ticket": ticket[1]})
    assert status == 303
    answer = parse_qs(urlsplit(location).query)
    assert (answer["state"], answer["iss"]) == (["s"], [provider.base])
    return answer["code"][0]


def exchange(code: str, /, **changes: str) -> dict[str, str]:
    return {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": BACK,
        "client_id": CLIENT,
        "code_verifier": VERIFIER,
        **changes,
    }


def test_a_code_is_exchanged_once(provider: OpenIdProvider) -> None:
    form = exchange(sign_in(provider))
    status, body, _ = send(f"{provider.base}/token", form)
    again = send(f"{provider.base}/token", form)

    tokens = json.loads(body)
    assert (status, tokens["token_type"], tokens["expires_in"]) == (200, "Bearer", 600)
    assert again[0] == 400 and json.loads(again[1])["error"] == "invalid_grant"
    assert provider.refused == ["code"]


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"client_id": "another"}, "client_id"),
        ({"redirect_uri": f"{BACK}/"}, f"redirect_uri: {BACK}/"),
        ({"response_type": "token"}, "response_type"),
        ({"scope": "agents:read"}, "scope"),
        ({"state": ""}, "state"),
        ({"code_challenge_method": "plain"}, "code_challenge_method"),
        ({"code_challenge": VERIFIER + "="}, "code_challenge"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_that_breaks_a_rule_gets_no_page(
    provider: OpenIdProvider, changes: dict[str, str], rule: str
) -> None:
    _, body, location = send(f"{provider.base}/authorize?{urlencode(ASKED | changes)}")

    assert provider.refused == [rule]
    assert "button" not in body
    # Nobody is sent to a place that is not known.
    assert bool(location) == (rule not in ("client_id", f"redirect_uri: {BACK}/"))
    assert not location or "error=" in location


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"grant_type": "password"}, "grant_type"),
        ({"client_id": "another"}, "client_id"),
        ({"redirect_uri": "http://127.0.0.1:1/"}, "redirect_uri"),
        ({"code_verifier": "w" * 43}, "code_verifier"),
        ({"code": "guessed"}, "code"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_exchange_that_breaks_a_rule_gets_no_token(
    provider: OpenIdProvider, changes: dict[str, str], rule: str
) -> None:
    status, body, _ = send(f"{provider.base}/token", exchange(sign_in(provider), **changes))

    assert (status, provider.refused) == (400, [rule])
    assert "access_token" not in body


def test_a_public_client_sends_no_secret(provider: OpenIdProvider) -> None:
    form = exchange(sign_in(provider))
    status, *_ = send(f"{provider.base}/token", form, Authorization="Basic YTpi")

    assert status == 400
    assert provider.refused == ["a public client has no secret"]


def test_a_parameter_is_there_once(provider: OpenIdProvider) -> None:
    send(f"{provider.base}/authorize?{urlencode(ASKED)}&state=t")

    assert provider.refused == ["a parameter is there twice"]


# --- In a browser ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown() -> Generator[Console]:
    try:
        with console() as started:
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


def test_a_person_signs_in_at_the_provider(signer: Issuer, shown: Console, tmp_path: Path) -> None:
    provider = OpenIdProvider(signer, "office", ("audit:read",), sub="grace")
    with signing_in(provider) as issuer:
        authorization = signer.authorization(issuer=issuer, verify_audience=True)
        asked_at = SignIn(issuer=issuer, client_id=CLIENT)
        url = f"sqlite:///{tmp_path / 'office.db'}"
        platform = office(url, "http://127.0.0.1:9", authorization, console=asked_at)
        with hosted(platform, BRIEF) as origin:
            provider.redirect_uris.add(f"{origin}/console")
            shown.open(origin)
            shown.wait_for("heading", "Sign in")
            assert shown.violations() == []
            shown.picture("sign-in")
            shown.show("/audit")
            shown.click(f"Sign in at {urlsplit(issuer).netloc}")
            shown.click("Sign in as grace")
            shown.wait_for("heading", "Audit")
            shown.wait_text("grace")
            assert shown.page.run("location.pathname + location.search") == "/console"
            assert provider.refused == []
            shown.assert_clean(issuer)

            # An answer that nobody asked for signs nobody in.
            shown.open(origin)
            shown.page.go(f"{origin}/console?code=stolen&state=guessed")
            shown.wait_text("was not asked for in this tab")
            assert provider.refused == []
            shown.page.go("about:blank")
