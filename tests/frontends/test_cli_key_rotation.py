"""`legation keys rotate`: each step, what breaks it off, and a server under load through it all."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import trio
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from legation.access.key_material import thumbprint
from legation_cli import main

from ..callers import Issuer
from .test_key_rotation import SECONDS, jwks, running

JWKS: Final = Path("jwks.json")
PRIVATE: Final = Path("keys/private.pem")
NEXT: Final = Path("keys/next.pem")
PREVIOUS: Final = Path("keys/previous.pem")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def typed(*words: str) -> Result:
    return CliRunner().invoke(main, ["keys", *words], catch_exceptions=False)


def rotated(*more: str) -> Result:
    return typed("rotate", "--jwks", str(JWKS), "--wait", "1s", *more)


def signer(path: Path = PRIVATE) -> Issuer:
    """Return who signs with the key at `path`, which it names by its kid."""
    key: Any = load_pem_private_key(path.read_bytes(), None)
    return Issuer(key, thumbprint(key.public_key()))


def members() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(JWKS.read_text())["keys"]
    return found


def kids() -> list[str]:
    return [member["kid"] for member in members()]


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_rotation_adds_a_key_and_its_end_takes_the_old_one_away(algorithm: str) -> None:
    assert typed("new", "--algorithm", algorithm).exit_code == 0
    old = signer()
    result = rotated()
    new = signer()

    assert result.exit_code == 0, result.stderr
    assert kids() == [old.kid, new.kid]
    assert new.kid != old.kid
    assert signer(PREVIOUS).kid == old.kid
    assert not NEXT.exists()
    assert stat.S_IMODE(PRIVATE.stat().st_mode) == 0o600
    public: Any = load_pem_public_key(Path("keys/public.pem").read_bytes())
    assert thumbprint(public) == new.kid
    assert f"--key keys/private.pem --kid {new.kid}" in result.stdout
    assert "legation keys rotate keys --jwks jwks.json --finish" in result.stdout

    assert rotated("--finish").exit_code == 0
    assert kids() == [new.kid]
    assert not PREVIOUS.exists()


def test_what_else_stands_in_the_file_stays() -> None:
    typed("new")
    old, other = signer(), Issuer(kid="other")
    first = {**old.jwk, "kid": "spring", "alg": "RS256", "x-note": ["ours"]}
    JWKS.write_text(json.dumps({"issuer": "x", "keys": [other.jwk, first]}))
    JWKS.chmod(0o640)
    rotated()
    made = members()[2]

    assert kids()[:2] == ["other", "spring"]
    assert (made["alg"], made["use"], "x-note" in made) == ("RS256", "sig", False)
    rotated("--finish")
    assert kids() == ["other", made["kid"]]
    assert json.loads(JWKS.read_text())["issuer"] == "x"
    assert stat.S_IMODE(JWKS.stat().st_mode) == 0o640


def test_a_link_stays_one() -> None:
    typed("new")
    Path("there").mkdir()
    JWKS.symlink_to("there/real.json")
    Path("there/real.json").write_text('{"keys": []}')
    rotated()

    assert JWKS.is_symlink()
    assert len(kids()) == 2


def test_what_was_broken_off_is_gone_on_with() -> None:
    typed("new")
    old = signer()
    rotated()
    new_pem, new = PRIVATE.read_bytes(), signer()
    # As it was when the files had been written, but for the last two.
    NEXT.write_bytes(new_pem)
    PRIVATE.write_bytes(PREVIOUS.read_bytes())
    assert rotated().exit_code == 0

    assert signer().kid == new.kid
    assert kids() == [old.kid, new.kid]
    assert rotated("--finish").exit_code == 0


def refused(*more: str) -> str:
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    result = rotated(*more)
    after = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    assert (result.exit_code, result.stdout, after) == (2, "", before)
    return result.stderr


def test_what_cannot_be_is_a_sentence_and_changes_nothing() -> None:
    assert "keys/private.pem: no such file; `legation keys new`" in refused()
    typed("new")
    assert "no rotation in keys waits for its end" in refused("--finish")
    for content, told in (
        ("{", "jwks.json is not a JWK Set: not JSON"),
        ("{}", "jwks.json is not a JWK Set: it has no array `keys`"),
        ('{"keys": [{"kty": "RSA"}]}', "jwks.json has a key without a kid"),
    ):
        JWKS.write_text(content)
        assert told in refused()
    JWKS.unlink()
    rotated()
    assert "a rotation is under way; end it with --finish" in refused()
    JWKS.write_text('{"keys": []}')
    assert "jwks.json has not the key of keys/private.pem" in refused("--finish")
    exchange = x25519.X25519PrivateKey.generate()
    for pem in (
        b"no key",
        exchange.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    ):
        PRIVATE.write_bytes(pem)
        assert "not a private key that signs tokens" in refused()


def test_a_folder_that_takes_no_file_is_a_sentence() -> None:
    typed("new")
    JWKS.mkdir()

    assert rotated().exit_code == 2


async def test_no_request_is_refused_while_keys_are_rotated(tmp_path: Path) -> None:
    typed("new")
    first = signer()
    token = first.token("agents:read", exp=None)
    refusals: list[str] = []
    asked = {"old": 0, "current": 0}
    async with (
        running(tmp_path / "jwks.json", jwks(first)) as server,
        httpx2.AsyncClient(base_url=server.url) as client,
        trio.open_nursery() as clients,
    ):

        async def status(token: str) -> int:
            headers = {"authorization": f"Bearer {token}"}
            return (await client.get("/agents", headers=headers)).status_code

        async def ask(name: str) -> None:
            while True:
                bearer = token if name == "old" else signer().token("agents:read", exp=None)
                if await status(bearer) != 200:
                    refusals.append(name)
                asked[name] += 1
                await trio.sleep(0.01)

        for name in asked:
            clients.start_soon(ask, name)
        words = ("rotate", "--jwks", str(server.path), "--wait", "4s")
        result = await trio.to_thread.run_sync(lambda: typed(*words))
        assert result.exit_code == 0, result.stderr
        second = signer()
        before = dict(asked)
        with trio.fail_after(SECONDS):
            while any(asked[name] < before[name] + 5 for name in asked):
                await trio.sleep(0.01)
        clients.cancel_scope.cancel()
        assert refusals == []
        assert second.kid != first.kid

        known = len(server.logged)
        assert typed("rotate", "--jwks", str(server.path), "--finish").exit_code == 0
        await server.heard("keys_reloaded", known)
        assert await status(token) == 401
        assert await status(second.token("agents:read", exp=None)) == 200
