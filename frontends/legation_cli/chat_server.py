"""The server of a chat that names none: this folder's platform, as long as the chat lasts.

It is a process of its own, so that nothing of a platform runs in the terminal's, and Ctrl-C there
does not reach it.  Two pipes are between them: one is readable here when the chat is gone, whatever
ended it, and then the server ends; through the other one it says where it listens.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Final

from legation.values import frozen

from .chat_json import as_object, as_text
from .failing import CannotGoOn
from .imports import freeze_imports
from .reloading import end_server
from .target import find_past, find_target, load_target

if TYPE_CHECKING:
    from legation import Platform

__all__ = ["Served", "main", "serve_for_chat"]

_MOST_LINES: Final = 20
_ERROR: Final = "Error: "


@frozen
class Served:
    """A server of this chat's own.

    Attributes:
        url: Where it listens.
        console: Whether it has the console.
    """

    url: str
    console: bool
    _process: subprocess.Popen[bytes]
    _log: IO[bytes]

    def find_end(self) -> str | None:
        """Return how the server ended; None as long as it lives."""
        code = self._process.poll()
        return None if code is None else f"the server of this chat has ended ({code})"


@contextmanager
def serve_for_chat(target: str | None) -> Generator[Served]:
    """Serve the platform that `target` leads to, on a free port of this machine.

    Raises:
        CannotGoOn: It cannot be served, with the sentence of the server.
    """
    alive, kept = os.pipe()
    heard, told = os.pipe()
    named = () if (found := find_target(target)) is None else (found,)
    command = [sys.executable, "-m", __name__, str(alive), str(told), *named]
    with os.fdopen(kept, "wb"), os.fdopen(heard, "rb") as said, tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: S603  it is itself
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(alive, told),
            start_new_session=True,
        )
        os.close(alive)
        os.close(told)
        try:
            line = said.readline()
            if not line:
                raise CannotGoOn(_read_error(log, process.wait()))
            place = as_object(json.loads(line))
            yield Served(as_text(place["url"]), place["console"] is True, process, log)
        finally:
            end_server(process)


def _read_error(log: IO[bytes], code: int) -> str:
    """Return what a server said that did not start: its sentence, or else its last lines."""
    log.seek(0)
    lines = [one for one in log.read().decode("utf-8", "replace").splitlines() if one[:1] != "{"]
    for number, line in enumerate(lines):
        if line.startswith(_ERROR):
            return "\n".join([line.removeprefix(_ERROR), *lines[number + 1 :]])
    return "\n".join([f"the platform cannot be served ({code})", *lines[-_MOST_LINES:]])


def main(arguments: list[str]) -> int:
    """Be that server; return the exit code."""
    with freeze_imports():
        from .service import ServeOptions, Service

    alive, told, *named = arguments
    target = named[0] if named else None
    os.set_inheritable(int(alive), False)
    os.set_inheritable(int(told), False)
    options = ServeOptions(
        host="127.0.0.1", port=0, log_format="json", access_log=False, parent=int(alive)
    )
    load = partial(load_target, target, writes=True)
    service = Service(load, options, partial(_say_where, int(told)), prepare=find_past(target))
    try:
        return service.run()
    except CannotGoOn as error:
        error.show()
        return error.exit_code


def _say_where(told: int, platform: Platform, url: str) -> None:
    with os.fdopen(told, "w", encoding="utf-8") as pipe:
        json.dump({"url": url, "console": bool(platform.config.console)}, pipe)
        pipe.write("\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
