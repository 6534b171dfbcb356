"""Signing in to the console at an identity provider, in a real browser."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from legation import Console as SignIn

from ..browser import NoBrowser
from ..callers import Issuer
from ..providers.openid import CLIENT, OpenIdProvider, signing_in
from .console_kit import Console, console
from .console_site import site
from .hosted import hosted


@pytest.fixture(scope="module")
def shown() -> Generator[Console]:
    try:
        with console() as started:
            yield started
    except NoBrowser as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def provider() -> Generator[OpenIdProvider]:
    signer = Issuer(kid="k")
    provider = OpenIdProvider(signer, "acme", ("agents:read",), redirect_uris=set())
    with signing_in(provider):
        yield provider


@pytest.fixture(scope="module")
def origin(provider: OpenIdProvider) -> Generator[str]:
    sign_in = SignIn(issuer=provider.base, client_id=CLIENT)
    with hosted(site(provider.signer, console=sign_in)) as base:
        provider.redirect_uris.add(f"{base}/console")
        yield base


def host(provider: OpenIdProvider) -> str:
    return provider.base.removeprefix("http://")


def test_the_code_flow_comes_back_to_where_it_began(
    origin: str, provider: OpenIdProvider, shown: Console
) -> None:
    shown.open(origin)
    shown.show("/agents")
    shown.click(f"Sign in at {host(provider)}")
    shown.wait_text("Sign in as ada")
    shown.click("Sign in as ada")
    shown.wait_for("link", "Concierge")

    assert provider.refused == []
    assert shown.page.run("location.href") == f"{origin}/console#/agents"
    assert "ada" in shown.text("footer")
    assert shown.page.run("Object.keys(sessionStorage).length") == 1
    assert shown.page.run("document.cookie") == ""
    shown.assert_clean(provider.base)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("code=stolen&state=guessed", "was not asked for in this tab"),
        ("error=access_denied&state=guessed", "was not asked for in this tab"),
    ],
)
def test_an_answer_that_nobody_asked_for_is_not_taken(
    origin: str, provider: OpenIdProvider, shown: Console, query: str, said: str
) -> None:
    shown.open(origin)
    shown.page.run("sessionStorage.clear()")
    shown.page.go(f"{origin}/console?{query}")
    shown.wait_text(said)

    assert shown.page.run("location.search") == ""
    assert f"{provider.base}/token" not in shown.page.requests


def test_what_the_provider_refuses_is_said(provider: OpenIdProvider, shown: Console) -> None:
    sign_in = SignIn(issuer=provider.base, client_id=CLIENT, scope="profile")
    with hosted(site(provider.signer, console=sign_in)) as base:
        provider.redirect_uris.add(f"{base}/console")
        shown.open(base)
        shown.click(f"Sign in at {host(provider)}")
        shown.wait_text("The identity provider says: invalid_scope")

        assert shown.text("h1") == "Sign in"
        shown.assert_clean(provider.base)


def test_a_provider_that_does_not_answer_is_said(provider: OpenIdProvider, shown: Console) -> None:
    sign_in = SignIn(issuer=f"{provider.base}/other", client_id=CLIENT)
    with hosted(site(provider.signer, console=sign_in)) as base:
        shown.open(base)
        shown.click(f"Sign in at {host(provider)}")
        shown.wait_text("does not say how to sign in there")
