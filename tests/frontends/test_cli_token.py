"""`legation keys new` and `legation token`."""

from __future__ import annotations

import shlex
import stat
import tomllib
from pathlib import Path
from typing import Any

import jwt
import pytest

from .operators import Operator


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(tmp_path)
    return Operator(tmp_path, {})


# --- keys new -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_new_keys_sign_what_a_platform_accepts(operator: Operator, algorithm: str) -> None:
    operator.keys(algorithm)
    token = operator.token("--scope", "agents:read", algorithm=algorithm)

    assert operator.run("explain", token, "GET", "/agents").exit_code == 0


def test_the_private_key_is_readable_for_its_owner_alone(operator: Operator) -> None:
    private = operator.keys()

    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(private.parent.stat().st_mode) == 0o700


def test_what_is_printed_can_be_pasted(operator: Operator) -> None:
    made = operator.run("keys", "new", "--algorithm", "EdDSA")
    _, start, rest = made.output.partition("  [platform]")
    pasted = (start + rest).partition("Then make")[0]

    told = tomllib.loads(pasted)
    assert told["platform"] == {"authorization": True}
    assert told["authorization_config"]["algorithm"] == "EdDSA"
    (pem,) = told["authorization_config"]["verification_keys"]
    assert pem == Path("keys/public.pem").read_text()
    assert "legation token --key keys/private.pem --algorithm EdDSA" in made.output
    assert Path("keys/private.pem").read_text().splitlines()[1] not in made.output


def test_what_is_printed_can_be_typed_whatever_the_folder_is_called(operator: Operator) -> None:
    made = operator.run("keys", "new", "Ada's keys")
    (line,) = (line for line in made.output.splitlines() if "legation token" in line)

    typed = shlex.split(line.strip().removeprefix("TOKEN=$(").removesuffix(")"))
    assert typed[typed.index("--key") + 1] == "Ada's keys/private.pem"


@pytest.mark.parametrize("there", ["private.pem", "public.pem"])
def test_nothing_is_overwritten_and_nothing_is_half_made(operator: Operator, there: str) -> None:
    Path("keys").mkdir()
    Path("keys", there).write_text("precious")
    made = operator.run("keys", "new")

    assert made.exit_code == 2
    assert made.stderr == f"Error: keys/{there} is there already, and is not overwritten\n"
    assert [path.read_text() for path in Path("keys").iterdir()] == ["precious"]


def test_a_folder_that_cannot_be_is_a_sentence(operator: Operator) -> None:
    Path("file").write_text("")
    for folder in ("file", "file/keys"):
        made = operator.run("keys", "new", folder)
        assert made.exit_code == 2
        assert "file" in made.stderr
        assert "Traceback" not in made.stderr


# --- token --------------------------------------------------------------------------------------


def test_a_token_has_the_claims_that_were_asked_for(operator: Operator) -> None:
    operator.keys()
    token = operator.token(
        *("--sub", "ada", "--scope", "agents:read sessions:read", "--scope", "audit:read"),
        *("--aud", "front-office", "--session-id", "s1", "--kid", "k1", "--expires", "90s"),
    )

    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims.pop("exp") - claims.pop("iat") == 90
    assert claims == {
        "sub": "ada",
        "scopes": ["agents:read", "sessions:read", "audit:read"],
        "aud": "front-office",
        "session_id": "s1",
    }
    assert jwt.get_unverified_header(token) == {"alg": "EdDSA", "kid": "k1", "typ": "JWT"}


def test_claims_that_were_not_asked_for_are_left_out(operator: Operator) -> None:
    operator.keys()

    claims = jwt.decode(operator.token(), options={"verify_signature": False})
    assert set(claims) == {"scopes", "iat", "exp"}
    assert claims["exp"] - claims["iat"] == 3600


def test_a_shared_secret_is_read_without_the_end_of_its_line(operator: Operator) -> None:
    secret = "correct-horse-battery-staple-0123456789"
    Path("secret").write_text(f"{secret}\n")
    operator.configure(pem=secret, algorithm="HS256")
    made = operator.run(
        "token", "--key", "secret", "--algorithm", "HS256", "--scope", "agents:read"
    )

    explained = operator.run("explain", made.output.strip(), "GET", "/agents")
    assert secret not in made.output
    assert explained.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Missing option '--key'"),
        (("--key", "nowhere.pem"), "does not exist"),
        (("--key", "keys"), "is a directory"),
        (("--key", "keys/public.pem"), "keys/public.pem: not a private key for EdDSA"),
        (("--key", "platform.toml"), "platform.toml: not a private key for EdDSA"),
        (("--key", "keys/private.pem", "--expires", "soon"), "'soon' is not a length of time"),
        (("--key", "keys/private.pem", "--expires", "0s"), "is not a length of time"),
        (("--key", "keys/private.pem", "--algorithm", "RS256"), "not a private key for RS256"),
        (("--key", "keys/private.pem", "--algorithm", "ES256"), "not a private key for ES256"),
        (("--key", "keys/private.pem", "--algorithm", "none"), "'none' is not one of"),
    ],
    ids=str,
)
def test_what_cannot_be_signed_is_said_with_exit_code_2(
    operator: Operator, arguments: tuple[str, ...], sentence: str
) -> None:
    operator.keys()
    defaults = () if "--algorithm" in arguments else ("--algorithm", "EdDSA")
    made = operator.run("token", *defaults, *arguments)

    assert made.exit_code == 2
    assert made.stdout == ""
    assert sentence in made.stderr


@pytest.mark.parametrize(
    "command",
    [
        *[(name,) for name in ("token", "keys", "check", "explain", "audit")],
        ("keys", "new"),
        ("audit", "verify"),
    ],
    ids=" ".join,
)
def test_help_tells_what_a_command_is_for(operator: Operator, command: tuple[str, ...]) -> None:
    told = operator.run(*command, "--help")

    assert told.exit_code == 0
    assert command in (("keys",), ("audit",)) or "Example" in told.output


# --- token --platform ---------------------------------------------------------------------------

NAMED = """verify_audience = true
audience = ["api", "api-2"]
issuer = ["https://a.test", "https://b.test"]
scopes_claim = ["/access/roles", "scope"]
user_id_claim = "/access/user"
"""


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


def test_a_token_for_a_platform_says_all_where_it_is_read(operator: Operator) -> None:
    operator.keys()
    text = Path("platform.toml").read_text().replace("algorithm =", NAMED + "algorithm =")
    Path("platform.toml").write_text(text)
    token = operator.token("--platform", "platform.toml", "--sub", "ada", "--scope", "agents:read")

    claims = claims_of(token)
    assert claims["access"] == {"roles": ["agents:read"], "user": "ada"}
    assert (claims["aud"], claims["iss"]) == ("api", "https://a.test")
    assert operator.run("explain", token, "GET", "/agents").exit_code == 0


def test_what_is_said_of_a_token_counts_before_the_platform(operator: Operator) -> None:
    operator.keys()
    options = ("--platform", "platform.toml", "--aud", "x", "--iss", "y", "--session-id", "s")

    claims = claims_of(operator.token(*options))
    assert (claims["aud"], claims["iss"], claims["session_id"]) == ("x", "y", "s")
    assert (claims["scopes"], "sub" in claims) == ([], False)


def test_a_platform_that_cannot_be_read_makes_no_token(operator: Operator) -> None:
    operator.keys()
    key = ("--key", "keys/private.pem", "--algorithm", "EdDSA")
    done = operator.run("token", *key, "--platform", "absent.toml")

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "Error: absent.toml: No such file or directory\n"
