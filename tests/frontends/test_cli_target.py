"""One rule for every command that takes a platform."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from legation_cli import main
from legation_cli.target import data_folder, find_target, load_config, load_target

from .commands import CALLS, every_command, write_key

RULE = "Without a platform, platform.toml of this folder is taken, or else the demonstration."
BROKEN = "{name} is not TOML"
TAKERS = [name for name, call in CALLS.items() if call.takes_platform]
SECRET = """
[platform]
id = "office"

[authorization_config]
verify_audience = true

[channels.help]
kind = "standard"
agent = "desk"
secret_env = "NOT_SET_HERE"

[databases.main]
url = "sqlite:///main.db"

[[agents]]
id = "desk"
run = "no_such_module:run"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a key, and a data folder beside it that does not exist."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("LEGATION_DATA", str(tmp_path / "data"))
    write_key(Path("key.pem"))
    path = list(sys.path)
    yield here
    sys.path[:] = path


def typed(name: str, platform: str | None = None) -> Result:
    words = (*name.split(), *CALLS[name].words(platform))
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_every_command_has_a_call() -> None:
    assert set(every_command()) == set(CALLS)


@pytest.mark.parametrize("name", TAKERS)
def test_the_platform_that_is_named_is_taken(name: str) -> None:
    Path("platform.toml").write_text(SECRET)
    Path("other.toml").write_text("= nonsense")
    result = typed(name, "other.toml")

    assert BROKEN.format(name="other.toml") in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize("name", TAKERS)
def test_platform_toml_of_the_folder_is_taken_where_none_is_named(name: str) -> None:
    Path("platform.toml").write_text("= nonsense")
    result = typed(name)

    assert BROKEN.format(name="platform.toml") in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize("name", [name for name in TAKERS if not CALLS[name].serves])
def test_the_demonstration_is_taken_where_there_is_no_file(name: str) -> None:
    result = typed(name)

    assert "platform.toml" not in result.output
    assert "Usage:" not in result.output


def test_the_demonstration_is_what_serve_loads_where_there_is_no_file() -> None:
    assert find_target(None) is None
    assert Path(load_target(None).databases["main"].removeprefix("sqlite:///")).is_absolute()


@pytest.mark.parametrize("name", TAKERS)
def test_every_help_text_says_the_rule_in_the_same_words(name: str) -> None:
    result = CliRunner().invoke(main, [*name.split(), "--help"], terminal_width=200)

    assert RULE in " ".join(result.output.split())


def test_explain_takes_the_platform_by_option_as_well_and_not_twice() -> None:
    Path("other.toml").write_text("= nonsense")
    words = ["explain", "none", "GET", "/agents"]
    by_option = CliRunner().invoke(main, [*words, "--platform", "other.toml"])
    twice = CliRunner().invoke(main, [*words, "other.toml", "--platform", "other.toml"])

    assert BROKEN.format(name="other.toml") in by_option.stderr
    assert "name the platform once" in twice.stderr
    assert twice.exit_code == 2


@pytest.mark.parametrize("name", ["token", "console"])
def test_to_sign_a_token_needs_no_secret_and_imports_nothing(name: str) -> None:
    Path("platform.toml").write_text(SECRET)
    result = typed(name)

    assert result.exit_code == 0, result.stderr
    assert load_config(None).id == "office"
    assert not Path("main.db").exists()


@pytest.mark.parametrize("name", ["token", "console"])
def test_a_token_without_a_claim_for_scopes_is_not_signed(name: str) -> None:
    Path("platform.toml").write_text("[authorization_config]\nscopes_claim = []")
    result = typed(name)

    assert "authorization_config.scopes_claim: is empty" in result.stderr
    assert result.exit_code == 2


def test_only_a_command_that_writes_makes_the_data_folder() -> None:
    folder = data_folder(os.environ)
    load_target(None)
    assert not folder.exists()

    load_target(None, writes=True)
    assert folder.is_dir()
