"""`legation round`: a message that waits in a file is answered by a command, once."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from legation_cli.main import main
from legation_testing import Client

from ..providers.deliveries import ENVIRON, platform, whatsapp
from ..providers.server import listening
from ..providers.soak import platform_file
from ..providers.strict import WhatsAppApi


def run(*arguments: str) -> Result:
    return CliRunner(env=ENVIRON).invoke(main, ["round", *arguments])


def take_in(folder: Path, number: int) -> None:
    """Acknowledge messages and end, before anything is done about them."""
    with Client(platform, folder=folder, jobs=False) as c:
        sent = whatsapp(*((f"491{i}", f"m{i}", "hi") for i in range(number)))
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()


def test_each_message_that_waits_is_answered_by_one_round(tmp_path: Path) -> None:
    provider = WhatsAppApi()
    with listening(provider) as url:
        file = platform_file(tmp_path, f"sqlite:///{tmp_path / 'main.db'}", url)
        take_in(tmp_path, 3)

        first, second, third = (
            run(str(file), "--limit", "2"),
            run(str(file), "--json"),
            run(str(file)),
        )

    assert [result.exit_code for result in (first, second, third)] == [0, 0, 0]
    assert first.stdout.startswith("messages 2, replies 2, runs 0; next due now")
    assert json.loads(second.stdout) == {
        "messages": 1,
        "replies": 1,
        "runs": 0,
        "released": 0,
        "failed": [],
        "next_us": None,
    }
    assert third.stdout == "messages 0, replies 0, runs 0\n"
    assert len(provider.seen) == 3


def test_a_database_that_is_not_served_is_code_1(tmp_path: Path) -> None:
    file = platform_file(tmp_path, f"sqlite:///{tmp_path / 'main.db'}", "http://127.0.0.1:9")
    file.write_text(file.read_text("utf-8").replace("auto_migrate = true", "auto_migrate = false"))

    result = run(str(file))

    assert (result.exit_code, result.stdout) == (
        1,
        "messages 0, replies 0, runs 0; failed: main\n",
    )


def test_a_round_without_time_leaves_everything(tmp_path: Path) -> None:
    file = platform_file(tmp_path, f"sqlite:///{tmp_path / 'main.db'}", "http://127.0.0.1:9")
    take_in(tmp_path, 1)

    result = run(str(file), "--seconds", "0")

    assert result.stdout.startswith("messages 0, replies 0, runs 0; next due now")
