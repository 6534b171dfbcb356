"""`legation token`: a signed token, for a first try and for tests."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import click

from legation.access.claims import ClaimRules, claim_rules
from legation.access.key_values import ALGORITHM_NAMES

from .failing import CannotGoOn, sentences
from .json_output import json_option, print_json
from .target import load_config

__all__ = ["Duration", "make_claims", "sign", "token"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[int]):
    """A length of time: a number and its unit, as 90s, 30m, 1h or 7d."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the seconds that `value` means."""
        matched = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", str(value))
        if matched is None:
            self.fail(f"{value!r} is not a length of time such as 30m or 1h", param, ctx)
        return int(matched[1]) * _UNITS[matched[2]]


@click.command()
@click.option(
    "--key",
    "key_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The private key, PEM (`legation keys new` makes one).",
)
@click.option("--sub", help="Who the token is for; without it the bearer owns no data.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    help="A scope to grant, such as agents:concierge:run; may be repeated.",
)
@click.option("--expires", default="1h", type=Duration(), help="How long it is good for.")
@click.option("--aud", help="The platform's id; needed where verify_audience is on.")
@click.option("--iss", help="Who issues it; needed where an issuer is named.")
@click.option(
    "--platform",
    metavar="PLATFORM",
    help="The platform it is for: claims are named as it names them; --aud and --iss are its own.",
)
@click.option("--session-id", help="Pins every run of the bearer to this session.")
@click.option("--kid", help="The key's id in the JWKS.")
@click.option(
    "--algorithm",
    default="RS256",
    type=click.Choice(ALGORITHM_NAMES),
    metavar="NAME",
    help="The one in [authorization_config].",
)
@json_option
def token(
    key_path: Path,
    sub: str | None,
    scopes: tuple[str, ...],
    expires: int,
    platform: str | None,
    kid: str | None,
    algorithm: str,
    as_json: bool,
    **named: str | None,
) -> None:
    """Print a signed token with these claims.

    It is for a first try and for tests: in production tokens come from your identity provider.
    `legation check` lists the scopes, `legation explain` says what a token allows.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.

    \b
    Example:
      legation token --key keys/private.pem --sub ada --scope agents:read --scope agents:*:run
    """
    with sentences():
        config = load_config(platform)
    rules = claim_rules(config.authorization_config, config.id)
    claims = make_claims(rules, expires, scopes, sub, **named)
    signed = sign(claims, key_path, algorithm, kid)
    if as_json:
        print_json({"token": signed, "claims": claims})
    else:
        click.echo(signed)


def make_claims(
    rules: ClaimRules, expires: int, scopes: tuple[str, ...], sub: str | None, **named: str | None
) -> dict[str, Any]:
    """Return the claims of a token that is good from now on for `expires` seconds."""
    now = int(time.time())
    claims = {
        "iss": next(iter(rules.issuers), None),
        "aud": next(iter(rules.audiences), None),
        **{name: value for name, value in named.items() if value is not None},
        "iat": now,
        "exp": now + expires,
    }
    payload: dict[str, Any] = {name: value for name, value in claims.items() if value is not None}
    rules.scopes[0].place(payload, [scope for group in scopes for scope in group.split()])
    if sub is not None:
        rules.user_id.place(payload, sub)
    return payload


def sign(payload: dict[str, Any], key_path: Path, algorithm: str, kid: str | None) -> str:
    """Return a token with these claims.

    Raises:
        CannotGoOn: The file holds no private key for the algorithm.
    """
    import jwt

    header = {"kid": kid} if kid else None
    try:
        return jwt.encode(payload, _key(key_path, algorithm), algorithm, headers=header)
    except (jwt.PyJWTError, ValueError, TypeError, AttributeError, NotImplementedError):
        raise CannotGoOn(f"{key_path}: not a private key for {algorithm}, unencrypted") from None


def _key(path: Path, algorithm: str) -> bytes:
    """Return what the file at `path` holds; a shared secret without the end of its line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CannotGoOn(f"{path}: {error.strerror}") from None
    return content.rstrip(b"\r\n") if algorithm.startswith("HS") else content
