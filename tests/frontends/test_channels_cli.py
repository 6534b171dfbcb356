from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from legation.effects import FetchReply
from legation_cli.channels import table
from legation_cli.main import main
from legation_testing import Client

from ..providers.deliveries import ENVIRON, platform, whatsapp
from ..providers.soak import platform_file


def run(*arguments: str) -> Result:
    return CliRunner(env=ENVIRON).invoke(main, ["channels", *arguments])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return platform_file(tmp_path, f"sqlite:///{tmp_path / 'main.db'}", "http://127.0.0.1:9")


def serve(folder: Path, status: int) -> None:
    """Take a message in and answer it, over a provider that says `status`."""
    client = Client(platform, folder=folder, fetch=lambda _: FetchReply(status, {}, b"{}"))
    with client as c:
        sent = whatsapp(("4911", "a", "canary"))
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.settle()


def test_the_table_shows_every_channel_and_nothing_dead_is_code_0(file: Path) -> None:
    serve(file.parent, 200)
    result = run(str(file))

    assert result.exit_code == 0
    assert [line.split() for line in result.output.splitlines()] == [
        ["CHANNEL", "KIND", "ANSWERED", "BY", "WHAT", "WAITING", "IN", "WORK", "OLDEST", "DEAD"],
        ["whatsapp", "whatsapp", "concierge", "messages", "0", "0", "-", "0"],
        ["replies", "0", "0", "-", "0"],
    ]


def test_a_dead_letter_is_code_1_and_json_is_what_the_route_says(file: Path) -> None:
    serve(file.parent, 400)
    result = run(str(file), "--json")

    assert result.exit_code == 1
    (told,) = json.loads(result.output)
    assert told["replies"] == {"ready": 0, "in_work": 0, "oldest_seconds": None, "dead": 1}
    assert "canary" not in result.output


def test_a_database_without_a_schema_is_code_2_and_a_sentence(file: Path) -> None:
    (file.parent / "main.db").touch()
    result = run(str(file))

    assert result.exit_code == 2
    assert "a database does not answer, or has no schema yet" in result.output
    assert result.output.splitlines()[1].split()[-4:] == ["?"] * 4


def test_without_a_file_the_one_in_the_folder_is_taken(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(file.parent, 200)
    monkeypatch.chdir(file.parent)

    assert run().output == run(str(file)).output


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "-"), (0, "0 s"), (59, "59 s"), (61, "1 min"), (7300, "2 h"), (200_000, "2 d")],
)
def test_an_age_is_in_the_largest_unit(seconds: int | None, shown: str) -> None:
    depth = {"ready": 1, "in_work": 0, "oldest_seconds": seconds, "dead": 0}
    told: dict[str, Any] = {"id": "c", "kind": "k", "team_id": "t", "messages": depth}

    assert f"  {shown}  " in table([{**told, "replies": None}]).replace("   ", "  ")


def test_no_channel_is_a_sentence() -> None:
    assert table([]) == "No channel is configured."
