"""The terminal of a chat: it performs what the conversation asks for (`chat_talk`).

Answers go to standard output and everything else to standard error.  Nothing that a server sends
is obeyed by the terminal: all of it passes `make_harmless`.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Any, Final, TypeVar, assert_never

import click
from attrs import field

from legation.values import define

from .chat_actions import (
    Action,
    End,
    Ended,
    Event,
    Lost,
    Next,
    Open,
    Print,
    Read,
    Reply,
    Say,
    Send,
    Stopped,
    Talk,
    Tell,
    TooLong,
    Wait,
)
from .chat_link import Link
from .chat_screen import make_harmless

__all__ = ["LONGEST_LINE", "Terminal"]

LONGEST_LINE: Final = 100_000
"""Characters of one line that is typed, or that a pipe holds."""

R = TypeVar("R")


class _Interrupted(KeyboardInterrupt):
    """Ctrl-C, while something is waited for."""


@define(eq=False)
class Terminal:
    """Performs the actions of one conversation.

    Attributes:
        link: The connection to the server.
        find_end: Returns how the chat's own server has ended, or None.
        interactive: Whether a person types.
    """

    link: Link
    find_end: Callable[[], str | None]
    interactive: bool
    _waits: bool = field(default=False, init=False)
    _pending: bool = field(default=False, init=False)

    def hold(self, talk: Talk[int]) -> int:
        """Perform `talk` to its end; return the exit code."""
        reconfigure = getattr(sys.stdin, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # what is no text cannot be sent
        with self._hear_interrupts():
            try:
                action = next(talk)
                while True:
                    action = talk.send(self._perform(action))
            except StopIteration as stop:
                code: int = stop.value
                return code

    def _perform(self, action: Action) -> Any:
        match action:
            case Say(text):
                _write(sys.stdout, make_harmless(text))
            case Tell(text):
                _write(sys.stderr, f"{make_harmless(text)}\n", dim=True)
            case Print(data):
                _write(sys.stdout, f"{json.dumps(data)}\n")
            case Read(prompt):
                return self._wait(lambda: self._read(prompt))
            case Send(call):
                return self._wait(lambda: self._find_why(self.link.send(call)))
            case Open(call):
                return self._wait(lambda: self._find_why(self.link.open(call)))
            case Next():
                return self._next()
            case Wait(seconds):
                return self._wait(lambda: time.sleep(seconds))
            case _:
                assert_never(action)
        return None

    def _next(self) -> Event | Ended | Stopped:
        got = self._wait(self.link.next)
        if isinstance(got, Stopped):
            self.link.close()  # it broke in the middle of a read
        return got

    def _find_why(self, answer: R) -> R | Lost:
        """Return `answer`; in the place of a lost one, how the chat's own server ended."""
        if isinstance(answer, (Lost, Reply)) and (reason := self.find_end()) is not None:
            return Lost(reason, final=True)
        return answer

    def _read(self, prompt: str) -> str | End | TooLong:
        if not self.interactive:
            return _read_line()
        try:
            line = _ask(make_harmless(prompt))
        except EOFError:
            _write(sys.stderr, "\n")
            return End()
        return line if len(line) <= LONGEST_LINE else TooLong(LONGEST_LINE)

    # --- Ctrl-C ----------------------------------------------------------------------------------

    def _wait(self, act: Callable[[], R]) -> R | Stopped:
        """Return what `act` returns, or `Stopped` after Ctrl-C, which ends the waiting."""
        try:
            try:
                self._waits = True
                if self._pending:
                    raise _Interrupted
                return act()
            finally:
                self._waits = False
        except _Interrupted:
            self._pending = False
            _write(sys.stderr, "\n")
            return Stopped()

    @contextmanager
    def _hear_interrupts(self) -> Generator[None]:
        """Let Ctrl-C end a wait, and be remembered where there is none."""
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupt(self, _: int, __: FrameType | None) -> None:
        again, self._pending = self._pending, True
        if self._waits or again:
            self._waits = False
            raise _Interrupted


def _ask(prompt: str) -> str:
    """Return a line that is typed at the terminal, with the editing of readline where it is."""
    with suppress(ImportError):
        import_module("readline")  # `input` edits lines with it once it is there
    if sys.stdout.isatty():
        return input(prompt)
    _write(sys.stderr, prompt)
    return input()


def _read_line() -> str | End | TooLong:
    """Return the next line of a pipe; the rest of one that is too long is skipped."""
    line = sys.stdin.readline(LONGEST_LINE + 1)
    if not line:
        return End()
    if len(line) <= LONGEST_LINE or line.endswith("\n"):
        return line.removesuffix("\n").removesuffix("\r")
    while line and not line.endswith("\n"):
        line = sys.stdin.readline(LONGEST_LINE)
    return TooLong(LONGEST_LINE)


def _write(stream: Any, text: str, *, dim: bool = False) -> None:
    """Write `text` at once; a character that the stream cannot encode is escaped."""
    encoding = stream.encoding or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)
    styled = click.style(shown, dim=True) if dim and stream.isatty() else shown
    click.echo(styled, file=stream, nl=False)
    stream.flush()
