"""`legation keys`: key pairs for signing and verifying tokens."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import click

from .failing import CannotGoOn
from .json_output import json_option, print_json
from .key_rotation import rotate

__all__ = ["keys", "new"]

_RSA_BITS = 3072
_NEXT = """\
Made {private} (keep it secret; whoever has it can sign tokens) and {public}.

Switch authorization on in platform.toml:

  [platform]
  authorization = true

  [authorization_config]
  algorithm = "{algorithm}"
  require = ["exp"]
  verification_keys = ['''
{pem}''']

Then make a token and use it:

  TOKEN=$(legation token --key {key} --algorithm {algorithm} --sub ada --scope agents:read)
  curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:7777/agents
"""


@click.group()
def keys() -> None:
    """Make the keys that tokens are signed with, and rotate them."""


keys.add_command(rotate)


@keys.command(short_help="Make a key pair.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("keys"))
@click.option(
    "--algorithm",
    default="RS256",
    type=click.Choice(["RS256", "PS256", "ES256", "EdDSA"]),
    help="What the key is for.",
)
@json_option
def new(folder: Path, algorithm: str, as_json: bool) -> None:
    """Make a key pair in FOLDER (keys, if not given): private.pem and public.pem.

    Whoever signs tokens keeps the private key; the server needs the public one alone.  Nothing
    that is there already is overwritten.

    \b
    Examples:
      legation keys new
      legation keys new production --algorithm EdDSA
    """
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    private, public = folder / "private.pem", folder / "public.pem"
    for path in (private, public):
        if path.exists():
            raise CannotGoOn(f"{path} is there already, and is not overwritten")
    key = _generate(algorithm)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        _write(private, secret, 0o600)
        _write(public, pem, 0o644)
    except OSError as error:
        raise CannotGoOn(f"{error.filename or folder}: {error.strerror}") from None
    if as_json:
        files = {"private": str(private), "public": str(public)}
        print_json({**files, "algorithm": algorithm, "public_key": pem.decode()})
        return
    paths = {"private": private, "public": public, "key": shlex.quote(str(private))}
    click.echo(_NEXT.format(**paths, algorithm=algorithm, pem=pem.decode()), nl=False)


def _generate(algorithm: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match algorithm:
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "EdDSA":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(65537, _RSA_BITS)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file that nobody but those of `mode` could ever read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor has no path)
        file.write(content)
