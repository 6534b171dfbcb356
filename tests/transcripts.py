"""Documents that are followed: their files are written, their commands typed, the output compared.

What a document says is what happens.  In a Markdown page

* a `code-block` or `literalinclude` with a caption is a file of that name, and so is a block behind
  a comment `<!-- file: NAME -->`, where captions are not shown;
* a `console` block is typed, line by line, into a shell that lives as long as the page:  `$ `
  begins a command, `> ` goes on with it, and so does a here-document `<<'EOF'` up to its `EOF`;
  the lines after it are what it prints;
* `…` stands for anything, line breaks included, as what differs from run to run;
* `legation serve` keeps its shell, so what comes after it is typed into another one, which knows
  nothing of the variables of the first; what stands before it in its block is typed into the first,
  also later on the page.  It runs until another one takes its port, or the page ends.

Ports are those of the text, so that a reader can type it; here each is another one, a free one.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from attrs import frozen

from .ports import free_port

__all__ = [
    "DOCS",
    "ROOT",
    "Block",
    "Exchange",
    "Terminal",
    "blocks",
    "exchanges",
    "follow",
    "matches",
]

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"

PORTS: Final = ("7777", "7778")
# Behind which a command hangs: the longest takes 40 s alone, and four times that on a busy machine.
COMMAND_SECONDS: Final = 300
START_SECONDS: Final = 30

_FENCE: Final = re.compile(
    r"^(?:<!-- file: (?P<name>\S+) -->\n\n?)?"
    r"(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_INFO: Final = re.compile(
    r"(?:\{code-block\} )?(?P<language>[\w-]+)|\{literalinclude\} (?P<included>\S+)"
)
_OPTION: Final = re.compile(r"^:(?P<name>[\w-]+): ?(?P<value>.*)\n", re.MULTILINE)
_SERVE: Final = re.compile(r"^legation serve\b")
_SENTINEL: Final = "--transcript--"


@frozen
class Block:
    """One block of code; `caption` is the name of the file it is, if it is one."""

    language: str
    text: str
    caption: str | None = None


@frozen
class Exchange:
    """One command and the output that is shown under it."""

    command: str
    shown: str


def blocks(page: Path) -> tuple[Block, ...]:
    """Return the blocks of code of a page, in order; no other directive is one.

    A `literalinclude` with a caption is the whole file that it names, whatever it shows of it.
    """
    found: list[Block] = []
    for fenced in _FENCE.finditer(page.read_text("utf-8")):
        if info := _INFO.fullmatch(fenced["info"]):
            found.append(_block(info, fenced["body"], page.parent, fenced["name"]))
    return tuple(found)


def _block(info: re.Match[str], body: str, folder: Path, caption: str | None) -> Block:
    while option := _OPTION.match(body):
        caption = option["value"] if option["name"] == "caption" else caption
        body = body[option.end() :]
    if included := info["included"]:
        return Block("included", (folder / included).read_text("utf-8"), caption)
    return Block(info["language"], body.removeprefix("\n"), caption)


def exchanges(console: str) -> tuple[Exchange, ...]:
    """Return what is typed in a `console` block, with what is shown under it."""
    found: list[Exchange] = []
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        first, *rest = part.splitlines(keepends=True)
        typed = [first]
        while rest and re.match(r"> |>$", rest[0]):
            typed.append(rest.pop(0)[2:] or "\n")
        if first.endswith("<<'EOF'\n"):
            end = rest.index("EOF\n") + 1
            typed, rest = [*typed, *rest[:end]], rest[end:]
        found.append(Exchange("".join(typed).rstrip("\n"), "".join(rest)))
    return tuple(found)


def matches(shown: str, got: str) -> bool:
    """Compare with what is shown, where `…` stands for anything, line breaks included."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, got.strip(), re.DOTALL) is not None


def follow(page: Path, terminal: Terminal) -> int:
    """Do what a page says, in its order; return how many commands were typed."""
    typed = 0
    for block in blocks(page):
        if block.caption is not None:
            terminal.write(block.caption, block.text)
        elif block.language == "console":
            found = exchanges(block.text)
            serves = [place for place, one in enumerate(found) if _SERVE.match(one.command)]
            for place, exchange in enumerate(found):
                terminal.expect(exchange, first=bool(serves) and place <= serves[-1])
            typed += len(found)
    return typed


class Terminal:
    """Two shells in a folder, with the commands of this environment on their path.

    Servers are started in the first.  As long as there was none, all is typed there.

    Attributes:
        folder: Where they work.
    """

    def __init__(self, folder: Path, instead: Mapping[str, str] | None = None) -> None:
        """Prepare the shells; `instead` are texts of the page, each with what is meant here."""
        self.folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        self._instead = {**(instead or {}), **self._ports}
        self._shells: list[subprocess.Popen[str]] = []
        self._served = False
        self._servers: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._shells = [self._open(), self._open()]
        return self

    def _open(self) -> subprocess.Popen[str]:
        kept = {name: os.environ[name] for name in ("SYSTEMROOT", "TMPDIR") if name in os.environ}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = str(self.folder)
        environ = {**kept, "PATH": path, "HOME": home, "LEGATION_DATA": home, "LANG": "C.UTF-8"}
        return subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            for port in tuple(self._servers):
                self._stop(port)
        finally:
            for shell in self._shells:
                with shell:
                    shell.kill()

    def translate(self, text: str) -> str:
        """Return `text` with the ports and the other things of this run.

        What is put in is not looked at again: the address of a database may contain such a port.
        """
        said = "|".join(map(re.escape, self._instead))
        return re.sub(said, lambda found: self._instead[found[0]], text)

    def write(self, name: str, text: str) -> None:
        """Write a file of the page."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.translate(text), encoding="utf-8")

    def expect(self, exchange: Exchange, *, first: bool = False) -> None:
        """Type a command; what it prints is what is shown, and it succeeds unless it says so.

        Args:
            exchange: The command, with what is shown.
            first: Whether it is typed where servers are started, also when one runs there.
        """
        command, shown = self.translate(exchange.command), self.translate(exchange.shown)
        if _SERVE.match(command):
            self._serve(command, shown)
            return
        got, code = self.type(command, first=first)
        assert matches(shown, got), f"{command}\nshown: {shown}\ngot: {got}"
        assert code == 0 or "echo $?" in command, f"{command}\nexit code {code}\n{got}"

    def type(self, command: str, *, first: bool = False) -> tuple[str, int]:
        """Return what `command` prints, and its exit code."""
        shell = self._shells[self._served and not first]
        assert shell.stdin is not None
        assert shell.stdout is not None
        end = f"printf '\\n{_SENTINEL} %s\\n' \"$?\""
        shell.stdin.write(f"{{ {command}\n}} </dev/null\n{end}\n")
        shell.stdin.flush()
        got, deadline = b"", time.monotonic() + COMMAND_SECONDS
        while not (found := re.search(rf"\n{_SENTINEL} (\d+)\n".encode(), got)):
            left = deadline - time.monotonic()
            assert left > 0, f"{command}\ndoes not end; so far: {got.decode()}"
            if select.select([shell.stdout], [], [], left)[0]:
                piece = os.read(shell.stdout.fileno(), 1 << 16)
                assert piece, f"{command}\nended the shell: {got.decode()}"
                got += piece
        return got[: found.start()].decode(), int(found[1])

    # --- servers --------------------------------------------------------------------------------

    def _serve(self, command: str, shown: str) -> None:
        """Start a server in the first shell; it is up when it listens."""
        named = re.search(r"--port (\d+)", command)
        port = named[1] if named else self._ports["7777"]
        self._stop(port)
        log = self.folder / f"serve-{port}.log"
        whole = command if named else f"{command} --port {port}"
        start = f"{whole} > {log.name} 2>&1 & LEGATION_PID=$!; disown $LEGATION_PID"
        self.type(start, first=True)
        pid, _ = self.type("printf $LEGATION_PID", first=True)
        self._served = True
        self._servers[port] = int(pid)
        deadline = time.monotonic() + START_SECONDS
        while not (_listens(port) and matches(shown, _lines(log))):
            said = f"{command}\nshown: {shown}\ngot: {_lines(log)}"
            assert time.monotonic() < deadline and _lives(int(pid)), said
            time.sleep(0.05)

    def _stop(self, port: str) -> None:
        """End the server at `port`, in order."""
        pid = self._servers.pop(port, None)
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + START_SECONDS
        while _lives(pid):
            assert time.monotonic() < deadline, "the server does not end"
            time.sleep(0.02)


def _lines(log: Path) -> str:
    """Return what a server printed for people; the lines of its log are JSON here."""
    lines = log.read_text("utf-8").splitlines() if log.exists() else ()
    return "\n".join(line for line in lines if not line.startswith("{"))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _listens(port: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(port)), 1).close()
    except OSError:
        return False
    return True
