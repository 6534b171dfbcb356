"""Recordings of runs of a client, made as the platform makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legation import Platform
from legation.effects import Program, Transact
from legation.replay.building import NotRecordable, fetch_recording
from legation.replay.comparing import Replayed
from legation.replay.recording import Recording, encode_recording, read_recording
from legation.replay.replaying import RECORDED, ReplayOptions, replay
from legation.store.run_reads import FetchRun
from legation_testing import Client, Simulation

__all__ = ["encode", "record", "take_again"]


def record(client: Client, run: Mapping[str, Any], database: str = "main") -> Recording:
    """Return the recording of a run, read back from its file."""
    platform = client.platform
    assert isinstance(platform, Platform)

    def program() -> Program[Recording | NotRecordable]:
        row = yield from Transact(database, FetchRun(run["run_id"], None, any_owner=True))
        assert row is not None
        component = platform.registry.components(row.kind).get(row.component_id)
        runs = 0 if component is None else component.history_runs
        return (yield from fetch_recording(database, row, runs))

    made = client.simulation.run(program(), "record", body=None)
    assert isinstance(made, Recording), made
    assert read_recording(encode(made)) == made
    return made


def encode(recording: Recording) -> bytes:
    """Return the bytes of the file."""
    return "".join(f"{line}\n" for line in encode_recording(recording)).encode()


def take_again(
    recording: Recording, platform: Platform, options: ReplayOptions = RECORDED
) -> Replayed:
    """Return how a recorded run differs under the code of `platform`."""
    simulation = Simulation({})
    try:
        program = replay(platform.context.registry, recording, options)
        return simulation.run(program, "replay", body=None)
    finally:
        simulation.close()
