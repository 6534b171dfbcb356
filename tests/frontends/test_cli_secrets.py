"""Commands without secrets: each needs those that it uses, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from legation_cli import main
from legation_cli.target import load_config

from ..callers import Issuer
from .commands import CALLS, every_command, write_agentos, write_key

PLATFORM: Final = """
[platform]
id = "office"
authorization = true

[authorization_config]
jwks_file = "keys.json"

[databases.main]
url = "sqlite:///main.db"

[models.large]
provider = "openai"
id = "gpt"

[models.wise]
provider = "anthropic"
id = "claude"
api_key_file = "/run/secrets/anthropic"

[[agents]]
id = "desk"
model = "large"

[notify]
url = "https://127.0.0.1:9/hook"
secret_env = "NOTIFY_SECRET"

[channels.help]
kind = "standard"
agent = "desk"
secret_env = "HELP_SECRET"
reply_url = "https://127.0.0.1:9/in"

[channels.bot]
kind = "telegram"
agent = "desk"
secret_token_env = "TELEGRAM_SECRET"
bot_token_env = "TELEGRAM_BOT"

[channels.wa]
kind = "whatsapp"
agent = "desk"
phone_number_id = "1"
app_secret_env = "WA_APP_SECRET"
verify_token_env = "WA_VERIFY"
access_token_file = "/run/secrets/access"
"""
KEYLESS: Final = PLATFORM.replace('[authorization_config]\njwks_file = "keys.json"\n', "")
NEEDING: Final = frozenset({"chat", "serve", "round", "channels register", "channels verify"})
"""The commands that use the secrets of channels or of models."""
FORTUNATE: Final = {
    "explain": 1,
    "check": 1,
    "doctor": 1,
    "replay": 1,
    "restore": 2,
    "dead-letters show": 1,
    **dict.fromkeys(("runs show", "runs cancel", "runs follow"), 1),
}
"""Exit codes of commands that say no, as `explain` of no token and `replay` of no run do."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a platform, its keys, and a database of the newest schema."""
    here = tmp_path_factory.mktemp("office")
    (here / "platform.toml").write_text(PLATFORM)
    (here / "keyless.toml").write_text(KEYLESS)
    write_key(here / "key.pem")
    write_agentos(here / "agno.db")
    (here / "keys.json").write_text(json.dumps({"keys": [Issuer(kid="k").jwk]}))
    done = typed(here, "migrate", "platform.toml", "main")
    assert done.exit_code == 0, done.stderr
    return here


def typed(folder: Path, *words: str, **environ: str) -> Result:
    """Type a command in an environment of nothing but `environ`."""
    bare = dict.fromkeys(os.environ, None)
    with chdir(folder):
        return CliRunner().invoke(main, words, env={**bare, **environ}, catch_exceptions=False)


def test_the_environment_is_empty(folder: Path) -> None:
    command = [sys.executable, "-m", "legation_cli", "check", "platform.toml", "--json"]
    bare = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
    done = subprocess.run(
        command, cwd=folder, env=bare, capture_output=True, text=True, check=False
    )

    here = typed(folder, "check", "platform.toml", "--json")
    assert done.returncode == here.exit_code
    found, expected = json.loads(done.stdout), json.loads(here.stdout)
    assert [one["path"] for one in found["missing"]] == [one["path"] for one in expected["missing"]]


@pytest.mark.parametrize("name", sorted(every_command()))
def test_a_command_runs_in_an_empty_environment_unless_it_uses_a_secret(
    folder: Path, name: str
) -> None:
    call = CALLS[name]
    words = call.words("platform.toml" if call.takes_platform else None)
    if name == "console":  # it goes on until it is stopped; it has read this before
        with chdir(folder):
            assert load_config("platform.toml").id == "office"
        return

    done = typed(folder, *name.split(), *words)

    if name in NEEDING:
        assert done.exit_code == 2
        assert "channels.help.secret_env" in done.stderr
    else:
        assert done.exit_code in {0, FORTUNATE.get(name, 0)}, done.stderr


@pytest.mark.parametrize("name", ["migrate", "audit verify", "openapi"])
def test_a_command_that_verifies_no_token_needs_no_key(folder: Path, name: str) -> None:
    done = typed(folder, *name.split(), *CALLS[name].words("keyless.toml"))

    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize("name", ["check", "explain"])
def test_a_command_about_tokens_needs_the_keys(folder: Path, name: str) -> None:
    done = typed(folder, *name.split(), *CALLS[name].words("keyless.toml"))

    assert done.exit_code == 2
    assert "authorization_config.verification_keys: there is no key" in done.stderr


def test_the_check_lists_what_a_server_would_miss(folder: Path) -> None:
    found: dict[str, Any] = json.loads(typed(folder, "check", "platform.toml", "--json").stdout)
    paths = [fault["path"] for fault in found["missing"]]

    assert "models.large.api_key_env" in paths
    assert "channels.wa.access_token_file" in paths
    assert len(paths) == 9
    assert "missing  notify.secret_env: " in typed(folder, "check", "platform.toml").stdout


def test_only_the_url_of_the_database_at_hand_is_needed(folder: Path) -> None:
    text = PLATFORM.replace(
        'url = "sqlite:///main.db"', 'url_env = "MAIN_URL"\n\n[databases.far]\nurl_env = "FAR_URL"'
    )
    (folder / "two.toml").write_text(text)
    main = {"MAIN_URL": "sqlite:///main.db"}

    assert typed(folder, "migrate", "two.toml", "main", "--plan", **main).exit_code == 0
    assert typed(folder, "audit", "verify", "two.toml", "main", **main).exit_code == 0
    whole = typed(folder, "audit", "verify", "two.toml", **main)
    assert (whole.exit_code, "databases.far.url_env" in whole.stderr) == (2, True)
    shown = typed(folder, "channels", "two.toml", **main)
    assert (shown.exit_code, "databases.far.url_env" in shown.stderr) == (2, True)
    assert typed(folder, "check", "two.toml").exit_code in {0, 1}
    for words in (("check", "two.toml", "--runs"), ("replay", "no-such-run", "two.toml")):
        done = typed(folder, *words, **main)
        assert (done.exit_code, "databases.far.url_env" in done.stderr) == (2, True), words
    found = typed(folder, "replay", "no-such-run", "two.toml", "--database", "main", **main)
    assert (found.exit_code, "there is no run" in found.stderr) == (1, True)


def test_a_secret_in_the_place_of_its_name_is_printed_by_no_command(folder: Path) -> None:
    canary = "xapp-1-canary-of-a-secret"
    text = PLATFORM.replace('"HELP_SECRET"', f'"{canary}"')
    text = text.replace('"/run/secrets/access"', f'"{canary}"')
    (folder / "typed.toml").write_text(text)

    for name, call in CALLS.items():
        if call.takes_platform and name != "console":
            done = typed(folder, *name.split(), *call.words("typed.toml"))
            assert canary not in done.stdout + done.stderr, name
