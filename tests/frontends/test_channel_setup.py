"""Channels are verified and registered at providers behind sockets."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from legation_cli.main import main
from legation_cli.serve import banner

from ..providers.deliveries import ENVIRON, platform
from ..providers.server import listening
from ..providers.strict import TelegramApi

URL = "https://desk.example"
PLATFORM = """
[[agents]]
id = "desk"

[channels.bot]
kind = "telegram"
agent = "desk"
bot_token_env = "BOT"
secret_token_env = "TELEGRAM_SECRET"
api_base_url = "{base}"

[channels.help]
kind = "standard"
agent = "desk"
secret_env = "STANDARD"
reply_url = "http://127.0.0.1:9"
"""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[TelegramApi]:
    monkeypatch.chdir(tmp_path)
    provider = TelegramApi()
    with listening(provider) as base:
        Path("platform.toml").write_text(PLATFORM.format(base=base))
        yield provider


def run(*arguments: str) -> Result:
    return CliRunner(env=ENVIRON).invoke(main, ["channels", *arguments])


def test_a_channel_is_wrong_until_it_is_registered(api: TelegramApi) -> None:
    before = run("verify")
    registered = run("register", "bot", "--url", f"{URL}/")
    after = run("verify", "platform.toml", "bot", "--url", URL)

    assert (before.exit_code, registered.exit_code, after.exit_code) == (1, 0, 0)
    assert "wrong  webhook: no address is set" in before.output
    assert "legation channels register bot --url" in before.output
    assert "help (standard)  /help/webhook" in before.output
    assert f"bot (telegram)  {URL}/bot/webhook" in after.output
    assert "help" not in after.output
    assert set(api.commands) == {"new", "help", "stop", "start"}
    assert api.refused == []


def test_what_is_found_is_json_for_a_script(api: TelegramApi) -> None:
    result = run("verify", "bot", "--json")
    (told,) = json.loads(result.output)

    assert (told["id"], told["kind"], told["address"]) == ("bot", "telegram", "/bot/webhook")
    assert {check["subject"]: check["ok"] for check in told["checks"]} == {
        "credentials": True,
        "permissions": True,
        "webhook": False,
        "updates": True,
        "deliveries": True,
    }
    assert "bot-token" not in result.output


def test_a_provider_that_is_away_is_a_finding(api: TelegramApi) -> None:
    Path("platform.toml").write_text(PLATFORM.format(base="http://127.0.0.1:9"))
    result = run("verify", "bot")

    assert result.exit_code == 1
    assert "wrong  credentials: Telegram does not say whose the token is: connect" in result.output


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("verify", "nobody"), "there is no channel 'nobody'; there are: bot, help"),
        (("verify", "a.toml", "b", "c"), "name one platform and one channel at most"),
        (("verify", "--url", "desk.example"), "expected an address such as https://your-host"),
        (("register", "bot"), "Missing option '--url'"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(
    api: TelegramApi, arguments: tuple[str, ...], sentence: str
) -> None:
    result = run(*arguments)

    assert result.exit_code == 2
    assert sentence in result.output


def test_without_channels_there_is_nothing_to_verify(api: TelegramApi) -> None:
    Path("platform.toml").write_text('[[agents]]\nid = "desk"\n')

    assert run("verify").output == "No channel is configured.\n"


def test_check_names_the_address_of_each_channel(api: TelegramApi) -> None:
    runner = CliRunner(env=ENVIRON)
    shown = runner.invoke(main, ["check"]).output.splitlines()
    listed = json.loads(runner.invoke(main, ["check", "--json"]).output)["channels"]

    assert ["channel", "telegram", "bot", "/bot/webhook"] in [line.split() for line in shown]
    assert listed == [
        {"id": "bot", "kind": "telegram", "webhook": "/bot/webhook"},
        {"id": "help", "kind": "standard", "webhook": "/help/webhook"},
    ]


@pytest.mark.parametrize(
    ("url", "start"), [("http://127.0.0.1:7777", "http://127.0.0.1:7777"), ("unix:/run/l.sock", "")]
)
def test_the_start_of_a_server_names_the_address_of_each_channel(url: str, start: str) -> None:
    words = [line.split() for line in banner(platform(), url, demo=False).splitlines()]

    assert ["channels", f"{start}/whatsapp/webhook"] in words
    assert [[f"{start}/{name}/webhook"] in words for name in ("telegram", "slack")] == [True] * 2


def test_the_start_of_a_server_without_channels_names_none() -> None:
    shown = banner(platform(channels=()), "http://127.0.0.1:7777", demo=False)

    assert "channels" not in shown
