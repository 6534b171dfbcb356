"""The replay of a recorded run as a test: no database, no network, and no waiting.

    replayed = Recording.read("booking.run.jsonl").replay(platform)
    assert replayed.same, replayed.first

The core decides; here the file is read, and functions of the author's are called if they are to be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from attrs import frozen

from legation import Platform
from legation.replay import recording as recordings
from legation.replay.comparing import Divergence, Replayed
from legation.replay.lookup import find_fault
from legation.replay.replaying import ReplayOptions, replay

from .matching import show
from .misuse import Misuse
from .performing import Fetcher, refuse_connections
from .simulation import Simulation

__all__ = ["Divergence", "NotARecording", "Recording", "Replayed"]


class NotARecording(ValueError):
    """The file is no recording, or none that a run can have left; the sentence says why."""


@frozen
class Recording:
    """The recording of a run, by which it can be taken once more.

    Attributes:
        content: The recording as a value.

    Raises:
        NotARecording: No run can have left it.
    """

    content: recordings.Recording

    def __attrs_post_init__(self) -> None:
        if (fault := find_fault(self.content)) is not None:
            raise NotARecording(fault)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the recording in a file.

        Raises:
            NotARecording: It cannot be read, was cut or edited, or is something else.
        """
        try:
            with Path(path).open("rb") as file:
                data = file.read(recordings.MAX_FILE + 1)
        except OSError as error:
            raise NotARecording(f"{path} cannot be read: {error.strerror}") from None
        try:
            return cls.decode(data)
        except NotARecording as error:
            raise NotARecording(f"{path}: {error}") from None

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the recording that these bytes of a file are.

        Raises:
            NotARecording: They are none.
        """
        content = recordings.read_recording(data)
        if isinstance(content, recordings.BadRecording):
            raise NotARecording(content.detail)
        return cls(content)

    def replay(
        self,
        platform: Platform,
        *,
        tools: Literal["recorded", "live"] = "recorded",
        model: Literal["recorded", "live"] = "recorded",
        strict: bool = False,
        fetch: Fetcher = refuse_connections,
    ) -> Replayed:
        """Take the run once more under the code of `platform`, and return how it differs.

        Models and tools answer as they did; nothing of the author's is called.

        Args:
            platform: What hosts the agent or the team.
            tools: `live` calls the functions of tools, agents and instructions.
            model: `live` asks the models of the platform behind the first divergence.
            strict: End at the first divergence.
            fetch: Answers what a live model fetches.

        Raises:
            Misuse: `platform` is none, or an option has another value.
        """
        registry = _check(platform).context.registry
        for name, value in (("tools", tools), ("model", model)):
            if value not in ("recorded", "live"):
                raise Misuse(f"{name} is 'recorded' or 'live', not {value!r}")
        options = ReplayOptions(tools == "live", model == "live", strict)
        simulation = Simulation({}, fetch=fetch)
        try:
            program = replay(registry, self.content, options)
            return simulation.run(program, "replay", body=None)
        finally:
            simulation.close()


def _check(platform: object) -> Platform:
    if not isinstance(platform, Platform):
        raise Misuse(f"replay() takes a Platform; {show(platform)} is none")
    return platform
