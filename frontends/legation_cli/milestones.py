"""The milestones of a server: its start, the reason of its end, and its end."""

from __future__ import annotations

import time
from contextlib import suppress

import click
from attrs import field

from legation import __version__
from legation.values import define
from legation_host import Write

from .ages import describe_age

__all__ = ["Milestones"]


@define(eq=False)
class Milestones:
    """The lines of the log that say when a server began to serve, and why it stopped.

    Attributes:
        log: Takes the lines.
        for_eyes: A person reads the log: the last line is a sentence.
    """

    log: Write
    for_eyes: bool
    _began: float | None = field(default=None, init=False)
    _reason: str = field(default="", init=False)

    def note_start(self, address: str, platform: str, workers: int) -> None:
        """Write that requests are answered."""
        self._began = time.monotonic()
        fields = {"version": __version__, "address": address, "platform": platform}
        self.log("info", "server_started", {**fields, "workers": workers})

    def note_stop(self, reason: str) -> None:
        """Write why the end begins; the second time, that it comes at once."""
        self._reason = f"a second {reason}" if self._reason else reason
        if self._began is not None:
            self.log("info", "server_stopping", {"reason": self._reason})

    def note_end(self, error: BaseException | None = None) -> None:
        """Write that the server ended; nothing where it never served.

        Args:
            error: What broke it.
        """
        if self._began is None:
            return
        seconds = int(time.monotonic() - self._began)
        reason = self._reason if error is None else type(error).__name__
        if self.for_eyes:
            with suppress(OSError):  # nobody reads on
                click.echo(f"Stopped by {reason} after {describe_age(seconds)}.", err=True)
        elif error is None:
            self.log("info", "server_stopped", {"reason": reason, "seconds": seconds})
        else:
            self.log("error", "server_stopped", {"reason": reason, "seconds": seconds})
