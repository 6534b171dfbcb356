"""`legation replay` prints the recording of a run, the same bytes as the server sends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from legation import Platform, Tool, tool
from legation.replay.recording import Recording, read_recording
from legation_cli import main
from legation_cli.hotel import make_hotel
from legation_testing import Client
from legation_testing import Recording as Replayable

SOURCE: Final = """
from legation import Agent, Database, Platform, tool
from legation_testing import ScriptedModel, call


@tool(requires_confirmation=True)
def book(room: int, card: str) -> str:
    return f"Booked {room} with {card}"


desk = ScriptedModel([call("book", room=7, card="4242-4242"), "Done."])
platform = Platform(
    agents=[
        Agent(id="desk", model=desk, tools=[book], instructions="Be brief."),
        Agent(id="echo", database="second", history_runs=2),
    ],
    databases=[Database("main", "sqlite:///main.db"), Database("second", "sqlite:///second.db")],
)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "replayed_app.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("replayed_app", None)


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    with Client(import_module("replayed_app").platform, folder=folder) as made:
        yield made


def typed(*words: str) -> Result:
    given = ("replay", words[0], "replayed_app:platform", *words[1:])
    return CliRunner().invoke(main, given, catch_exceptions=False)


def test_it_prints_what_the_server_sends(client: Client, folder: Path) -> None:
    paused = client.run("desk", "Room 7, please", session_id="s1", user_id="ada")
    done = client.go_on(paused, confirmed=True)
    target, run_id = f"/agents/desk/runs/{done['run_id']}/replay", done["run_id"]
    whole = client.get(target).expect_success().body
    redacted = client.get(f"{target}?redact=arguments.card&redact=user").expect_success().body
    before = {path: path.stat().st_size for path in folder.iterdir()}
    result = typed(run_id)

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout_bytes == whole
    assert typed(run_id, "--database", "main", "--json").stdout_bytes == whole
    assert typed(run_id, "--user", "ada").stdout_bytes == whole
    assert typed(run_id, "--redact", "arguments.card", "--redact", "user").stdout_bytes == redacted
    assert b"4242" not in redacted
    assert isinstance(read_recording(whole), Recording)
    assert {path: path.stat().st_size for path in folder.iterdir()} == before


def test_a_run_of_the_second_database_is_found_there(client: Client) -> None:
    client.run("echo", "One", session_id="s1")
    run_id = client.run("echo", "Two", session_id="s1")["run_id"]
    whole = client.get(f"/agents/echo/runs/{run_id}/replay").expect_success().body

    assert typed(run_id).stdout_bytes == whole
    assert b'"content":"One"' in whole
    absent = typed(run_id, "--database", "main")
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert absent.stderr == f"Error: there is no run {run_id!r} in main\n"


def test_a_run_that_has_no_recording_is_a_sentence(client: Client) -> None:
    form = {"message": "Hello", "stream": False, "background": True}
    run_id = client.post("/agents/desk/runs", form=form).json()["run_id"]
    other = typed(run_id, "--user", "eve")
    path = typed(run_id, "--redact", "card")

    assert (other.exit_code, other.stdout) == (1, "")
    assert other.stderr == f"Error: there is no run {run_id!r} of 'eve' in main, second\n"
    assert (path.exit_code, path.stdout) == (2, "")
    assert "--redact: The path 'card' begins with none of: user, session_id" in path.stderr
    assert typed(run_id, "--database", "third").exit_code == 2


def test_a_booking_of_the_demonstration_is_a_regression_test(tmp_path: Path) -> None:
    demonstration = make_hotel(f"sqlite:///{tmp_path / 'hotel.db'}")
    with Client(demonstration, folder=tmp_path) as client:
        run = client.run("desk", "Book a double room for two nights for Ada", session_id="first")
        assert client.go_on(run, confirmed=True)["status"] == "COMPLETED"
        exported = client.get(f"/agents/desk/runs/{run['run_id']}/replay").expect_success().body
    file = tmp_path / "booked.run.jsonl"
    file.write_bytes(exported)

    (desk,) = (agent for agent in demonstration.config.agents if agent.id == "desk")
    tools = [each for each in desk.tools if not isinstance(each, str)]
    unasked = [tool(each.function) if isinstance(each, Tool) else each for each in tools]
    changed = Platform(agents=[evolve(desk, tools=unasked)])

    assert Replayable.read(file).replay(demonstration).same
    assert "a person" in Replayable.read(file).replay(changed).first
