"""The price of a test by recordings: the time to replay a thousand files.

    python benchmarks/replay.py [FILES]     1,000 if it is not given

The runs are of three kinds, in equal parts: ten rounds with a call each, three calls side by side
with a person who confirms one, and a team with two members.  Each file is read and replayed, with
recorded models and tools, by one process.  The answer is in seconds of CPU, since others on the
machine only add to those of the clock, and as a ratio to `json.loads` of the lines of the same
files.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from legation import Agent, Platform, Team, tool
from legation.effects import Program, Transact
from legation.models.conversation import Prompt
from legation.replay.building import NotRecordable, fetch_recording
from legation.replay.recording import Recording as Recorded
from legation.replay.recording import encode_recording
from legation.store.run_reads import FetchRun
from legation_testing import Client, Recording, ScriptedModel, call

FILES: Final = 1_000
ROUNDS: Final = 10
AIM_SECONDS: Final = 10.0
DELEGATE: Final = "delegate_task_to_member"


def look(number: int) -> str:
    """Look at something."""
    return f"{number} looked at"


@tool(requires_confirmation=True)
def book(number: int) -> str:
    """Book something."""
    return f"{number} booked"


@tool(name="book")
def book_at_once(number: int) -> str:
    """Book something, and ask nobody."""
    return f"{number} booked"


def go_round(prompt: Prompt) -> Any:
    """Want so many calls, one after the other."""
    made = sum(message.role == "tool" for message in prompt.messages)
    return call("look", number=made) if made < ROUNDS else "Done."


def ask_both(prompt: Prompt) -> Any:
    """Give each member a task, then answer."""
    if prompt.messages[-1].role == "tool":
        return "Both are done."
    return [call(DELEGATE, member_id=one, task="Go") for one in ("clerk", "porter")]


def book_three(prompt: Prompt) -> Any:
    """Want three calls side by side, then answer."""
    if prompt.messages[-1].role == "tool":
        return "Booked."
    return [call("look", number=1), call("look", number=2), call("book", number=3)]


def make_platform() -> Platform:
    """Return what hosts the three kinds of runs."""
    tools: list[Any] = [look, book]
    many = 10_000
    return Platform(
        agents=[
            Agent(id="clerk", model=ScriptedModel([go_round] * many), tools=tools),
            Agent(
                id="porter", model=ScriptedModel([book_three] * many), tools=[look, book_at_once]
            ),
            Agent(id="booker", model=ScriptedModel([book_three] * many), tools=tools),
        ],
        teams=[
            Team(id="desk", model=ScriptedModel([ask_both] * many), members=["clerk", "porter"])
        ],
    )


def record(client: Client, platform: Platform, run_id: str) -> list[str]:
    """Return the lines of the recording of a run."""

    def program() -> Program[Recorded | NotRecordable]:
        row = yield from Transact("main", FetchRun(run_id, None, any_owner=True))
        assert row is not None
        return (yield from fetch_recording("main", row))

    made = client.simulation.run(program(), "record", body=None)
    assert isinstance(made, Recorded), made
    assert platform.registry.components(made.run.kind)
    return list(encode_recording(made))


def write_files(platform: Platform, folder: Path, files: int) -> None:
    """Make a run of each kind, and write its recording so often."""
    with Client(platform) as client:
        runs = [
            client.run("clerk", "Go"),
            client.go_on(client.run("booker", "Go"), confirmed=True),
            client.run_team("desk", "Go"),
        ]
        kinds = [record(client, platform, run["run_id"]) for run in runs]
    for number in range(files):
        text = "".join(f"{line}\n" for line in kinds[number % len(kinds)])
        (folder / f"{number:05}.run.jsonl").write_text(text, "utf-8")


def measure(files: int) -> bool:
    """Print the answer, and return whether it is below the aim."""
    platform = make_platform()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(platform, folder, files)
        paths = sorted(folder.glob("*.run.jsonl"))
        begun = time.process_time()
        for path in paths:
            for line in path.read_bytes().splitlines():
                json.loads(line)
        parsed = time.process_time() - begun
        begun = time.process_time()
        for path in paths:
            replayed = Recording.read(path).replay(platform)
            assert replayed.same, str(replayed)
        took = time.process_time() - begun
    print(f"{files} files: {took:.2f} s of CPU, {took / files * 1000:.2f} ms each")
    print(f"json.loads of their lines: {parsed:.2f} s; a replay is {took / parsed:.0f} times that")
    return took <= AIM_SECONDS * files / FILES


if __name__ == "__main__":
    sys.exit(not measure(int(sys.argv[1]) if len(sys.argv) > 1 else FILES))
