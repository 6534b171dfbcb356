"""`legation keys rotate`: another key for signing tokens, without a refused request.

The order is that of trust.  Servers know a key before a token is signed with it, and lose the old
one after its last token has expired:

1. the new key is in the JWKS file, beside the old one;
2. every process has read it, which takes a second: then it signs;
3. `--finish` takes the old key out of the file.

Each step replaces files as a whole, and what was broken off is gone on with by the same command.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import click

from legation.access.jose import Malformed, decode_object
from legation.values import frozen

from .failing import CannotGoOn
from .json_output import json_option, print_json
from .token import Duration

__all__ = ["rotate"]

_ROTATED: Final = """\
{private} signs from now on, with the kid {kid}; {jwks} has both keys.

  TOKEN=$(legation token --key {quoted} --kid {kid} --sub ada --scope agents:read)

When the last token of the old key has expired, take that out of the file:

  legation keys rotate {folder} --jwks {quoted_jwks} --finish
"""
_FINISHED: Final = "{jwks} no longer has the key {previous}: servers refuse it within a second.\n"


@frozen
class _Key:
    """A private key, with its public half as a member of a JWKS."""

    pem: bytes
    private: Any
    kid: str
    jwk: dict[str, str]

    def is_in(self, member: object) -> bool:
        """Return whether `member` of a JWKS is this key, whatever its name there."""
        return isinstance(member, dict) and self.jwk.items() <= member.items()


@click.command(short_help="Replace the key that signs, step by step.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path("keys"))
@click.option(
    "--jwks",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The JWKS file of the servers; it is made where there is none.",
)
@click.option("--wait", default="5s", type=Duration(), help="Until every process has read it.")
@click.option("--finish", is_flag=True, help="Take the old key out of the JWKS file.")
@json_option
def rotate(folder: Path, jwks: Path, wait: int, finish: bool, as_json: bool) -> None:
    """Replace the key in FOLDER (keys, if not given) by a new one; no request is refused.

    The new public key is added to the JWKS file.  After the wait every server has read that, and
    private.pem becomes the new key; the old one is previous.pem.  Copy the file to servers on other
    machines meanwhile, and wait for longer.

    Tokens name their key by its kid, as `legation token --kid` does: without one, no token finds
    its key among several.

    --finish takes the old key out of the file, and away: its tokens are refused from then on.

    \b
    Examples:
      legation keys rotate keys --jwks jwks.json
      legation keys rotate keys --jwks jwks.json --finish
    """
    try:
        made = _finish(folder, jwks) if finish else _rotate(folder, jwks, wait)
    except OSError as error:
        raise CannotGoOn(f"{error.filename or folder}: {error.strerror}") from None
    if as_json:
        print_json(made)
        return
    quoted = {
        "folder": shlex.quote(str(folder)),
        "private": folder / "private.pem",
        "quoted": shlex.quote(str(folder / "private.pem")),
        "quoted_jwks": shlex.quote(str(jwks)),
    }
    click.echo((_FINISHED if finish else _ROTATED).format(**made, **quoted), nl=False)


def _rotate(folder: Path, jwks: Path, wait_seconds: int) -> dict[str, str]:
    private, following, previous = (
        folder / name for name in ("private.pem", "next.pem", "previous.pem")
    )
    old = _read_key(private)
    if previous.exists() and not following.exists():
        raise CannotGoOn(f"{previous} is there: a rotation is under way; end it with --finish")
    document = _read_jwks(jwks)
    _check_names(document["keys"], jwks)
    if not following.exists():
        _replace(following, _generate_like(old.private), 0o600)
    new = _read_key(following)
    _add(document["keys"], old, new)
    _replace(jwks, _to_json(document), 0o644)
    time.sleep(wait_seconds)
    _replace(previous, old.pem, 0o600)
    following.replace(private)
    _replace(folder / "public.pem", _public_pem(new), 0o644)
    return {"step": "rotated", "kid": new.kid, "previous": old.kid, "jwks": str(jwks)}


def _finish(folder: Path, jwks: Path) -> dict[str, str]:
    previous = folder / "previous.pem"
    if not previous.exists() or (folder / "next.pem").exists():
        raise CannotGoOn(f"no rotation in {folder} waits for its end: begin one without --finish")
    old, new = _read_key(previous), _read_key(folder / "private.pem")
    document = _read_jwks(jwks)
    if not any(new.is_in(member) for member in document["keys"]):
        raise CannotGoOn(f"{jwks} has not the key of {folder / 'private.pem'}: nothing is removed")
    names = [member.get("kid", old.kid) for member in document["keys"] if old.is_in(member)]
    document["keys"] = [member for member in document["keys"] if not old.is_in(member)]
    _replace(jwks, _to_json(document), 0o644)
    _replace(folder / "public.pem", _public_pem(new), 0o644)
    previous.unlink()
    return {
        "step": "finished",
        "kid": new.kid,
        "previous": next(iter(names), old.kid),
        "jwks": str(jwks),
    }


# --- The key set ---------------------------------------------------------------------------------


def _read_jwks(path: Path) -> dict[str, Any]:
    """Return the JWKS at `path` with all that is in it; an empty one where there is none."""
    if not path.exists():
        return {"keys": []}
    try:
        document = decode_object(path.read_bytes())
    except Malformed as problem:
        raise CannotGoOn(f"{path} is not a JWK Set: {problem}") from None
    if not isinstance(document.get("keys"), list):
        raise CannotGoOn(f"{path} is not a JWK Set: it has no array `keys`")
    return document


def _check_names(members: list[Any], path: Path) -> None:
    """Refuse to put a key beside one without a name: no token could ask for that any more."""
    if any(isinstance(member, dict) and "kid" not in member for member in members):
        raise CannotGoOn(f"{path} has a key without a kid: beside another it verifies nothing")


def _add(members: list[Any], old: _Key, new: _Key) -> None:
    """Add what is missing of the keys; the new one is like the old one in all but itself."""
    known = next((member for member in members if old.is_in(member)), None)
    if known is None:
        known = {**old.jwk, "kid": old.kid, "use": "sig"}
        members.append(known)
    if not any(new.is_in(member) for member in members):
        like = {name: known[name] for name in ("use", "alg", "key_ops") if name in known}
        members.append({**new.jwk, "kid": new.kid, **like})


def _to_json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"


# --- Keys ----------------------------------------------------------------------------------------


def _read_key(path: Path) -> _Key:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from jwt.exceptions import InvalidKeyError

    from legation.access.key_material import public_jwk, thumbprint

    if not path.exists():
        raise CannotGoOn(f"{path}: no such file; `legation keys new` makes a first key")
    pem = path.read_bytes()
    try:
        private: Any = load_pem_private_key(pem, None)
        public = private.public_key()
        return _Key(pem, private, thumbprint(public), public_jwk(public))
    except (ValueError, TypeError, InvalidKeyError, UnsupportedAlgorithm):
        raise CannotGoOn(f"{path}: not a private key that signs tokens, unencrypted") from None


def _generate_like(private: Any) -> bytes:
    """Return a new private key of the same type as `private`, in PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if isinstance(private, rsa.RSAPrivateKey):
        made: Any = rsa.generate_private_key(65_537, max(3072, private.key_size))
    elif isinstance(private, ec.EllipticCurvePrivateKey):
        made = ec.generate_private_key(private.curve)
    elif isinstance(private, ed448.Ed448PrivateKey):
        made = ed448.Ed448PrivateKey.generate()
    else:
        made = ed25519.Ed25519PrivateKey.generate()
    pem: bytes = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _public_pem(key: _Key) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem: bytes = key.private.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    return pem


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Put a file with `content` in the place of `path`, so that no reader sees half of it.

    One that is there keeps its mode; a link stays one.
    """
    path = path.resolve()
    if path.exists():
        mode = path.stat().st_mode & 0o777
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor has no path)
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
