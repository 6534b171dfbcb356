"""The reloader of `legation serve --dev`: a server that starts anew when its code changes.

This process listens, and never serves: the one that does is started with the listening sockets, so
that a request which comes in between waits and is not refused.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Final

import click
from attrs import field

from legation.values import define

__all__ = [
    "CHILD",
    "Reloader",
    "end_server",
    "find_folders",
    "is_source",
    "take_given",
    "wait_only",
    "watch_files",
]

CHILD: Final = "LEGATION_DEV_SERVER"
"""Names what the process that serves is given: by their descriptors, a pipe and its sockets."""

_SUFFIXES: Final = frozenset({".py", ".toml", ".json", ".pem", ".env"})
_IGNORED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_GRACE_SECONDS: Final = 1.0
_KILL_SECONDS: Final = 3.0


def find_folders(target: str | None) -> tuple[Path, ...]:
    """Return where the code of `target` is: beside its file, and here; nowhere for none."""
    if target is None:
        return ()
    here = Path.cwd()
    beside = Path(target).resolve().parent if target.endswith(".toml") else here
    return (here,) if beside.is_relative_to(here) else (here, beside)


def is_source(folders: Iterable[Path], path: str) -> bool:
    """Return whether `path` is of code or of a configuration, and not of an environment."""
    changed = Path(path)
    if changed.suffix not in _SUFFIXES and changed.name != ".env":
        return False
    for folder in folders:
        if changed.is_relative_to(folder):
            parts = changed.relative_to(folder).parts[:-1]
            return not any(part in _IGNORED or part.startswith(".") for part in parts)
    return False


@define(eq=False)
class Reloader:
    """Starts the server, and again whenever something changes.

    Attributes:
        listeners: What it is to listen on.
        arguments: Of the command.
        changes: Yields at each change, and now and then without one, until the event is set.
    """

    listeners: Sequence[socket.socket]
    arguments: Sequence[str]
    changes: Callable[[threading.Event], Iterator[Sequence[str]]]
    _ending: threading.Event = field(factory=threading.Event, init=False)
    _code: int = field(default=0, init=False)
    _pipe: tuple[int, int] = field(factory=os.pipe, init=False)
    """It is readable when this process has ended, however that was; then the server ends."""

    def run(self) -> int:
        """Serve until a signal ends it, or the server ends well; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        server: subprocess.Popen[bytes] | None = self._start()
        try:
            for changed in self.changes(self._ending):
                if server is not None and (code := server.poll()) is not None:
                    server, self._code = None, code
                    if code == 0:
                        return 0
                    click.echo("The server ended; it starts again when a file changes.", err=True)
                if changed:
                    click.echo(f"{', '.join(changed[:3])} changed: starting again", err=True)
                    end_server(server)
                    server = self._start()
        finally:
            end_server(server)
        return self._code if server is None else 0

    def _end(self, _: int, __: object) -> None:
        self._ending.set()

    def _start(self) -> subprocess.Popen[bytes]:
        alive, _ = self._pipe
        passed = [alive, *(listener.fileno() for listener in self.listeners)]
        # A file that changes twice in a second would be run as it was compiled the first time.
        own = {CHILD: ",".join(map(str, passed)), "PYTHONDONTWRITEBYTECODE": "1"}
        environ = {**os.environ, **own}
        command = [sys.executable, "-m", "legation_cli", *self.arguments]
        return subprocess.Popen(command, env=environ, pass_fds=passed)  # noqa: S603  it is itself


def end_server(server: subprocess.Popen[bytes] | None) -> None:
    """End `server`: with patience for what is under work, then without, then by force."""
    if server is None:
        return
    for seconds in (_GRACE_SECONDS, _KILL_SECONDS):
        server.terminate()
        try:
            server.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
        return
    server.kill()
    server.wait()


def watch_files(folders: Sequence[Path], ending: threading.Event) -> Iterator[Sequence[str]]:
    """Yield the names of the files that changed; nothing twice a second."""
    # An extra: who does not develop need not have it.
    import watchfiles

    found = watchfiles.watch(
        *folders,
        watch_filter=lambda _, path: is_source(folders, path),
        debounce=200,
        step=50,
        rust_timeout=500,
        yield_on_timeout=True,
        stop_event=ending,
        raise_interrupt=False,
    )
    for changes in found:
        yield sorted({Path(path).name for _, path in changes})


def wait_only(ending: threading.Event) -> Iterator[Sequence[str]]:
    """Yield nothing twice a second: there is no code to look at."""
    while not ending.wait(0.5):
        yield ()


def take_given(environ: MutableMapping[str, str]) -> tuple[int, tuple[socket.socket, ...]]:
    """Return what the reloader gave to this process: its sign of life, and listening sockets."""
    alive, *passed = map(int, environ.pop(CHILD).split(","))
    os.set_inheritable(alive, False)
    sockets = tuple(socket.socket(fileno=number) for number in passed)
    for one in sockets:
        one.set_inheritable(False)
        one.setblocking(False)
    return alive, sockets
