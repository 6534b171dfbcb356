"""Callers for tests: an issuer with a key of its own, and a platform that believes it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from attrs import define, field
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWS

from legation import Agent, AuthorizationConfig, Channel, Database, Platform, Team
from legation.access.key_material import public_jwk
from legation.config import Algorithm
from legation_testing import NEW_YEAR_2026

__all__ = ["CHAT", "ENVIRON", "NOW", "Issuer", "demo"]

NOW: Final = NEW_YEAR_2026 // 1_000_000
ENVIRON: Final = {
    "CHAT_APP_SECRET": "an app secret",
    "CHAT_VERIFY_TOKEN": "a-verify-token",
    "CHAT_ACCESS_TOKEN": "an-access-token",
}
CHAT: Final = Channel(
    id="chat",
    kind="whatsapp",
    agent="alpha",
    app_secret_env="CHAT_APP_SECRET",
    verify_token_env="CHAT_VERIFY_TOKEN",
    access_token_env="CHAT_ACCESS_TOKEN",
    phone_number_id="100",
)


def _rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, 2048)


@define(eq=False)
class Issuer:
    """Signs tokens: RS256, or EdDSA where there are many."""

    key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey = field(factory=_rsa_key)
    kid: str | None = None

    @property
    def algorithm(self) -> Algorithm:
        """The `alg` of its tokens."""
        return "RS256" if isinstance(self.key, rsa.RSAPrivateKey) else "EdDSA"

    @property
    def pem(self) -> str:
        """The public half, as an operator configures it."""
        encoded = self.key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        return encoded.decode()

    @property
    def jwk(self) -> dict[str, Any]:
        """The public half as a member of a JWKS."""
        return {**public_jwk(self.key.public_key()), "kid": self.kid, "use": "sig"}

    def token(self, *scopes: str, sub: str | None = "ada", **claims: Any) -> str:
        """Return a token with these scopes; a claim that is None is left out."""
        told = {"sub": sub, "scopes": scopes, "iat": NOW, "exp": NOW + 3600, **claims}
        payload = {name: value for name, value in told.items() if value is not None}
        header = {} if self.kid is None else {"kid": self.kid}
        return PyJWS().encode(json.dumps(payload).encode(), self.key, self.algorithm, header)

    def authorization(self, **options: Any) -> AuthorizationConfig:
        """Return a configuration in which this issuer alone is believed."""
        return AuthorizationConfig(
            verification_keys=(self.pem,), algorithm=self.algorithm, **options
        )


def demo(
    issuer: Issuer | None,
    *,
    agents: Iterable[Agent] = (
        Agent(id="alpha", instructions="the secret of alpha"),
        Agent(id="beta", instructions="the secret of beta"),
    ),
    databases: Iterable[Database] = (Database("main", "sqlite://"),),
    channels: Iterable[Channel] = (CHAT,),
    jwks: bytes | None = None,
    revocations: bytes | None = None,
    environ: dict[str, str] = ENVIRON,
    options: dict[str, Any] | None = None,
    **configuration: Any,
) -> Platform:
    """Return a platform of two agents, a team and a channel.

    Without an issuer authorization is off; `options` are those of the authorization.
    """
    if issuer is not None:
        configuration = {
            "authorization": True,
            "authorization_config": issuer.authorization(**(options or {})),
            **configuration,
        }
    return Platform(
        jwks=jwks,
        revocations=revocations,
        environ=environ,
        agents=agents,
        teams=(Team(id="crew", members=("alpha", "beta")),),
        databases=databases,
        channels=channels,
        **configuration,
    )
