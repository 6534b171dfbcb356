"""The time in which `legation check --runs` reads 10,000 open runs of 20 steps each.

    python benchmarks/check_runs.py [POSTGRESQL_URL]     an empty database; else a SQLite file

The steps are those of a real run, ten answers of a model with a call each, of which the last has
begun and has no outcome.  Half of the runs wait to go on, half are paused.  The whole command is
timed in a process of its own, without and with `--runs`: the answer is the difference in seconds,
as a ratio to the aim, its CPU time, since others on the machine add to the first, and the memory
that it takes beside a check without runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from legation.models.conversation import Message, ToolCall, Usage
from legation.runs.step_outcomes import encode_model, encode_outcome
from legation.runs.turn_state import CallState, ModelTurn, Standing, TurnState, dump
from legation.store.run_keeping import ReleaseRun
from legation.store.run_rows import RunLease, StoredEvent
from legation.store.runs import AppendEvents, FinishRun, StartRun
from legation.store.steps import Records, Step, StepKind
from legation_host.databases import RunUnit, open_writer

RUNS: Final = 10_000
ROUNDS: Final = 10
AIM_SECONDS: Final = 10.0
TRIES: Final = 3
ARGUMENTS: Final = '{"guest": "Ada Lovelace", "room": 7, "nights": 2}'
RESULT: Final = json.dumps({"booked": "room 7", "guest": "Ada Lovelace", "for": "x" * 200})
LEASE: Final = RunLease("n", 1)
TOOLS: Final = """
from legation import tool

@tool
def book(guest: str, room: int, nights: int): ...

@tool(requires_confirmation=True)
def cancel(room: int): ...
"""
PLATFORM: Final = """
[databases.main]
url = "{url}"
[[agents]]
id = "desk"
max_rounds = 20
tools = ["check_runs_tools:book", "check_runs_tools:cancel"]
"""


def make_steps() -> tuple[Step, ...]:
    """Return the steps of a run: ten answers, each with a call, the last of which is not over."""
    steps: list[Step] = []
    for number in range(1, ROUNDS + 1):
        call = CallState(call=ToolCall(f"c{number}", "book", ARGUMENTS), created_us=number)
        outcome = encode_model(Message("assistant", "I book it."), Usage(900, 40), 0.4, (call,))
        place, begun_us = str(number), 10 * number
        text = encode_outcome(place, "m", outcome)
        steps.append(Step(place, StepKind.MODEL, "m", begun_us, begun_us + 5, text))
        done = encode_outcome(f"{place}.1", "book", {"result": RESULT})
        steps.append(Step(f"{place}.1", StepKind.CALL, "book", begun_us + 6, begun_us + 9, done))
    steps[-1] = evolve(steps[-1], ended_us=None, outcome=None)
    return tuple(steps)


def make_pause() -> str:
    """Return the input of a run that waits for a person after ten rounds."""
    call = ToolCall("c", "book", ARGUMENTS)
    done = CallState(call=call, created_us=1, standing=Standing.DONE, result=RESULT)
    calls = (*(done for _ in range(ROUNDS - 1)), evolve(done, standing=Standing.CONFIRM))
    said = tuple(ModelTurn(Message("user", RESULT), 1) for _ in range(2 * ROUNDS))
    turn = TurnState(said=said, calls=calls, answered=ROUNDS - 1, rounds=ROUNDS)
    return json.dumps({"message": "go", "stream": False, "turn": dump(turn)})


def fill(run: RunUnit) -> None:
    """Store the open runs."""
    steps, paused = Records(make_steps()), make_pause()
    first, second = StoredEvent(1, "RunStarted", "{}"), StoredEvent(2, "RunPaused", "{}")
    asked = '{"message":"Book a room for Ada","stream":false}'
    for number in range(RUNS):
        owner, run_id = f"user-{number // 20}", f"run-{number:05}"
        who = (owner, run_id, run_id)
        run(StartRun(*who, "agent", "desk", asked, "Booking", "n", number))
        run(AppendEvents(owner, run_id, LEASE, 2, (first,), 1, steps))
        if number % 2:
            run(
                FinishRun(
                    *who, LEASE, "n", 3, "PAUSED", "{}", None, None, (second,), (), input=paused
                )
            )
        else:
            run(ReleaseRun(owner, run_id, LEASE))


@frozen
class Measured:
    """A command in a process of its own: its seconds, those of its CPU, its memory, its output."""

    seconds: float
    cpu: float
    megabytes: int
    output: str


def check(folder: str, *options: str) -> Measured:
    """Measure a check."""
    command = [sys.executable, "-m", "legation_cli", "check", "platform.toml", *options]
    begun = time.perf_counter()
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((folder, *sys.path))}
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode <= 1, said
    took = time.perf_counter() - begun
    return Measured(took, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, said)


def main() -> None:
    """Fill a database, and print the answer."""
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/main.db"
        Path(folder, "check_runs_tools.py").write_text(TOOLS)
        Path(folder, "platform.toml").write_text(PLATFORM.format(url=url))
        migrate = [sys.executable, "-m", "legation_cli", "migrate", "platform.toml", "main"]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join((folder, *sys.path))}
        subprocess.run(migrate, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        with open_writer("main", url) as run:
            fill(run)
        plain = min((check(folder) for _ in range(TRIES)), key=lambda one: one.cpu)
        whole = min((check(folder, "--runs") for _ in range(TRIES)), key=lambda one: one.cpu)
    print(whole.output.splitlines()[-1])
    seconds, cpu = whole.seconds - plain.seconds, whole.cpu - plain.cpu
    print(
        f"{RUNS} open runs of {2 * ROUNDS} steps: {seconds:.2f} s more than a check without them"
        f" ({seconds / AIM_SECONDS:.2f} of the aim of {AIM_SECONDS:.0f} s), {cpu:.2f} s of CPU,"
        f" {whole.megabytes - plain.megabytes} MB more memory"
    )


if __name__ == "__main__":
    main()
