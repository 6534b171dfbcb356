"""`legation console`: an address for a browser, with a short token behind its `#`."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import jwt
import pytest

from .operators import Operator


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(tmp_path)
    return Operator(tmp_path, {})


def token_of(address: str) -> str:
    (token,) = parse_qs(urlsplit(address.strip()).fragment)["token"]
    return token


def test_the_token_is_an_administrators_for_ten_minutes(operator: Operator) -> None:
    key = operator.keys()
    made = operator.run("console", "platform.toml", "--key", str(key), "--no-browser")

    assert made.exit_code == 0
    assert made.output.startswith("http://127.0.0.1:7777/console#token=")
    claims = jwt.decode(token_of(made.output), options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 600
    assert (claims["sub"], claims["scopes"]) == ("console", ["platform:admin"])


def test_the_platform_takes_the_token(operator: Operator) -> None:
    key = operator.keys("ES256")
    named = ("--sub", "ada", "--scope", "agents:read config:read")
    made = operator.run("console", "platform.toml", "--key", str(key), *named, "--no-browser")

    token = token_of(made.output)
    assert operator.run("explain", token, "GET", "/agents").exit_code == 0
    assert operator.run("explain", token, "GET", "/sessions").exit_code == 1


def test_without_a_key_one_signs_in_there(operator: Operator) -> None:
    url = "https://agents.example.com/prefix/"

    made = operator.run("console", "--url", url, "--no-browser")
    assert made.output == "https://agents.example.com/prefix/console\n"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("agents.example.com", "expected an address"),
        ("ftp://agents.example.com", "expected an address"),
        ("https://agents.example.com?x=1", "expected an address"),
        ("https://agents.example.com/#x", "expected an address"),
        ("http://agents.example.com", "a token is for https:// alone"),
    ],
)
def test_an_address_where_a_token_would_be_lost_is_refused(
    operator: Operator, url: str, said: str
) -> None:
    made = operator.run("console", "--url", url, "--no-browser")

    assert made.exit_code == 2
    assert said in made.stderr


def test_a_key_of_another_kind_is_a_sentence(operator: Operator) -> None:
    operator.keys()
    Path("other.pem").write_text("nothing")

    made = operator.run("console", "platform.toml", "--key", "other.pem", "--no-browser")
    assert made.exit_code == 2
    assert made.stderr == "Error: other.pem: not a private key for EdDSA, unencrypted\n"


@pytest.mark.parametrize(("status", "code"), [(0, 0), (1, 2)])
def test_the_browser_is_given_the_address(tmp_path: Path, status: int, code: int) -> None:
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > "{tmp_path}/opened"\nexit {status}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, "-m", "legation_cli", "console"]
    environ = {**os.environ, "BROWSER": f"{script} %s", "PATH": "/nowhere"}

    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == code, done.stderr
    assert done.stdout == "http://127.0.0.1:7777/console\n"
    assert (tmp_path / "opened").read_text() == "http://127.0.0.1:7777/console"
