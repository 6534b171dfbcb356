"""An OpenID provider on loopback, for a public client: the code flow with PKCE, to the letter.

Its rules are those of OpenID Connect Core 1.0 section 3.1, RFC 6749 section 4.1, RFC 7636, RFC 9207
and RFC 9700 section 2.1; OpenID Connect Discovery 1.0 says how it is found.  What a request
broke stands in `refused`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from attrs import define, field, frozen

from ..callers import Issuer
from ..http_threads import Quiet, ThreadedServer, serve

__all__ = ["CLIENT", "OpenIdProvider", "signing_in"]

CLIENT: Final = "the-console"
_CODE_SECONDS: Final = 60.0
_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER: Final = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Sign in</title>
<main><h1>Sign in</h1><form method="post" action="consent">
<input type="hidden" name="ticket" value="{ticket}"><button>Sign in as {sub}</button></form></main>
"""


class _Refused(Exception):
    """A rule was broken: `error` is its code of RFC 6749, `rule` says which."""

    def __init__(self, error: str, rule: str) -> None:
        super().__init__(rule)
        self.error = error
        self.rule = rule


def _need(holds: object, rule: str, error: str = "invalid_request") -> None:
    if not holds:
        raise _Refused(error, rule)


@frozen
class _Asked:
    """An authorization request that kept to the rules."""

    redirect_uri: str
    state: str
    challenge: str
    nonce: str | None
    at: float = field(factory=time.monotonic)


@define(eq=False)
class OpenIdProvider:
    """Signs one person in, for clients that come back to one of `redirect_uris`.

    Attributes:
        base: The issuer, without a slash at its end.
        scopes: The scopes of this API that the person has.
        seconds: The life of its access tokens.
        refused: The rules that requests broke.
    """

    signer: Issuer
    audience: str
    scopes: tuple[str, ...]
    sub: str = "ada"
    seconds: int = 600
    redirect_uris: set[str] = field(factory=set[str])
    base: str = ""
    refused: list[str] = field(factory=list[str])
    _tickets: dict[str, _Asked] = field(factory=dict[str, _Asked])
    _codes: dict[str, _Asked] = field(factory=dict[str, _Asked])

    def discovery(self) -> dict[str, Any]:
        """Return the document of OpenID Connect Discovery section 3."""
        return {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}/authorize",
            "token_endpoint": f"{self.base}/token",
            "jwks_uri": f"{self.base}/keys",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.signer.algorithm],
            "scopes_supported": ["openid", *self.scopes],
            "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }

    def authorize(self, query: str) -> tuple[str, str]:
        """Return the page that asks the person, or where the browser is sent with the error.

        A client or a place to come back to that is not known is never redirected to (RFC 6749
        section 4.1.2.1): that raises.
        """
        asked = _parameters(query)
        _need(asked.get("client_id") == CLIENT, "client_id", "unauthorized_client")
        back = asked.get("redirect_uri", "")
        _need(back in self.redirect_uris, f"redirect_uri: {back}")
        try:
            _need(asked.get("state"), "state")
            kind = asked.get("response_type")
            _need(kind == "code", "response_type", "unsupported_response_type")
            _need("openid" in asked.get("scope", "").split(" "), "scope", "invalid_scope")
            _need(asked.get("code_challenge_method") == "S256", "code_challenge_method")
            challenge = asked.get("code_challenge", "")
            _need(_CHALLENGE.fullmatch(challenge), "code_challenge")
        except _Refused as refused:
            self.refused.append(refused.rule)
            answer = {"error": refused.error, "state": asked.get("state", ""), "iss": self.base}
            return "", f"{back}?{urlencode(answer)}"
        ticket = secrets.token_urlsafe()
        self._tickets[ticket] = _Asked(back, asked["state"], challenge, asked.get("nonce"))
        return _PAGE.format(ticket=ticket, sub=escape(self.sub)), ""

    def consent(self, body: str) -> str:
        """Return where the browser goes with its code, as the person has agreed."""
        asked = self._tickets.pop(_parameters(body).get("ticket", ""), None)
        if asked is None:
            raise _Refused("invalid_request", "ticket")
        code = secrets.token_urlsafe()
        self._codes[code] = asked
        answer = {"code": code, "state": asked.state, "iss": self.base}
        return f"{asked.redirect_uri}?{urlencode(answer)}"

    def exchange(self, headers: Mapping[str, str], body: str) -> dict[str, Any]:
        """Return the tokens for a code, which is good for one time."""
        kind = headers.get("content-type", "").partition(";")[0]
        _need(kind == "application/x-www-form-urlencoded", "content-type")
        _need("authorization" not in headers, "a public client has no secret", "invalid_client")
        form = _parameters(body)
        grant = form.get("grant_type")
        _need(grant == "authorization_code", "grant_type", "unsupported_grant_type")
        _need(form.get("client_id") == CLIENT, "client_id", "invalid_client")
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or time.monotonic() - asked.at > _CODE_SECONDS:
            raise _Refused("invalid_grant", "code")
        _need(form.get("redirect_uri") == asked.redirect_uri, "redirect_uri", "invalid_grant")
        verifier = form.get("code_verifier", "")
        _need(_VERIFIER.fullmatch(verifier), "code_verifier")
        _need(_challenge(verifier) == asked.challenge, "code_verifier", "invalid_grant")
        return self._tokens(asked)

    def _tokens(self, asked: _Asked) -> dict[str, Any]:
        now = int(time.time())
        times = {"iss": self.base, "iat": now, "exp": now + self.seconds}
        access = self.signer.token(*self.scopes, sub=self.sub, aud=self.audience, **times)
        shown = self.signer.token(
            sub=self.sub, scopes=None, aud=CLIENT, nonce=asked.nonce, auth_time=now, **times
        )
        return {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.seconds,
            "scope": " ".join(("openid", *self.scopes)),
            "id_token": shown,
        }


def _parameters(encoded: str) -> dict[str, str]:
    """Return the parameters, none of which may be there twice (RFC 6749 section 3.1)."""
    pairs = parse_qsl(encoded, keep_blank_values=True, strict_parsing=bool(encoded))
    _need(len(dict(pairs)) == len(pairs), "a parameter is there twice")
    return dict(pairs)


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class _Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def provider(self) -> OpenIdProvider:
        return cast("_Server", self.server).provider

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/.well-known/openid-configuration":
            self._send_json(200, self.provider.discovery())
        elif path == "/keys":
            self._send_json(200, {"keys": [self.provider.signer.jwk]})
        elif path == "/authorize":
            self._try(lambda: self._send_page(*self.provider.authorize(query)))
        else:
            self._send(404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.path == "/consent":
            self._try(lambda: self._send_page("", self.provider.consent(body)))
        elif self.path == "/token":
            self._try(lambda: self._send_json(200, self.provider.exchange(headers, body)))
        else:
            self._send(404, b"")

    def do_OPTIONS(self) -> None:
        """Refuse what a simple request of CORS does not need."""
        self.provider.refused.append(f"a preflight of {self.path}")
        self._send(405, b"")

    def _try(self, answer: Any) -> None:
        try:
            answer()
        except _Refused as refused:
            self.provider.refused.append(refused.rule)
            self._send_json(400, {"error": refused.error, "error_description": refused.rule})

    def _send_page(self, page: str, location: str) -> None:
        if location:
            self._send(303, b"", {"location": location})
        else:
            self._send(200, page.encode(), {"content-type": "text/html; charset=utf-8"})

    def _send_json(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self._send(status, body, {"content-type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        origin = self.headers.get("origin")
        homes = {"{0.scheme}://{0.netloc}".format(urlsplit(u)) for u in self.provider.redirect_uris}
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        if origin in homes:
            self.send_header("access-control-allow-origin", origin)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadedServer):
    def __init__(self, provider: OpenIdProvider) -> None:
        super().__init__(_Handler)
        self.provider = provider


@contextmanager
def signing_in(provider: OpenIdProvider) -> Generator[str]:
    """Serve `provider`; yield the issuer, which it takes as its own."""
    server = _Server(provider)
    provider.base = f"http://127.0.0.1:{server.server_address[1]}"
    with serve(server):
        yield provider.base
