"""`legation console`: the console in a browser, signed in with a token of ten minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import click

from legation.access.claims import ClaimRules, claim_rules
from legation.config import AuthorizationConfig

from .failing import CannotGoOn, sentences
from .json_output import json_option, print_json
from .target import complete_platform, load_config
from .token import Duration, make_claims, sign

__all__ = ["console"]

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@click.command()
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option(
    "--key",
    "key_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The private key, PEM, that signs the token; without one, you sign in there.",
)
@click.option("--url", default="http://127.0.0.1:7777", help="Where the platform is served.")
@click.option("--sub", default="console", help="Who the token is for.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    help="A scope to grant; may be repeated.  [default: that of administrators]",
)
@click.option("--expires", default="10m", type=Duration(), help="How long it is good for.")
@click.option("--kid", help="The key's id in the JWKS.")
@click.option("--browser/--no-browser", default=True, help="Open it, or print its address alone.")
@json_option
def console(  # noqa: PLR0913  its options
    platform: str | None,
    key_path: Path | None,
    url: str,
    sub: str,
    scopes: tuple[str, ...],
    expires: int,
    kid: str | None,
    *,
    browser: bool,
    as_json: bool,
) -> None:
    """Open the console of a platform that is served, signed in for ten minutes.

    The token stands behind the `#` of the address, which a browser sends to nobody; the page takes
    it out of the address at once.  For who sees the processes of this machine it is there a moment:
    with --no-browser it is printed alone.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Only the signature of a token needs one.

    \b
    Examples:
      legation console                                        a platform without authorization
      legation console platform.toml --key keys/private.pem
      legation console platform.toml --key keys/private.pem --url https://agents.example.com \\
        --sub ada --scope runs:read --scope approvals:write
    """
    address = _find_page(url)
    if key_path is not None:
        rules, config = _rules(platform)
        granted = scopes or (config.admin_scope,)
        claims = make_claims(rules, expires, granted, sub)
        address += f"#token={quote(sign(claims, key_path, config.algorithm, kid))}"
    if as_json:
        print_json({"url": address})
    else:
        click.echo(address)
    if not browser:
        return
    import webbrowser

    if not webbrowser.open(address):
        raise CannotGoOn("no browser could be opened here: open the address above in one")


def _find_page(url: str) -> str:
    """Return the address of the page; what is not encrypted is for this machine alone.

    Raises:
        CannotGoOn: It is no address, or another machine is reached without TLS.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise CannotGoOn(f"--url {url}: expected an address such as https://agents.example.com")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise CannotGoOn(f"--url {url}: a token is for https:// alone, unless it is this machine")
    return f"{url.rstrip('/')}/console"


def _rules(platform: str | None) -> tuple[ClaimRules, AuthorizationConfig]:
    """Return what the platform wants to read in a token."""
    with sentences():
        config = load_config(platform)
    return claim_rules(config.authorization_config, config.id), config.authorization_config
