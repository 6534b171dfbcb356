"""`legation chat` as it is typed: by a pipe, at a terminal, with a server of its own or another."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest
from attrs import define, field
from click.testing import CliRunner, Result

from legation_cli import chat_server, main
from legation_cli.chat_terminal import LONGEST_LINE

from ..callers import Issuer
from .command_kit import PATIENCE, running

CODE: Final = '''
import time

from legation import tool


@tool(requires_confirmation=True)
def pay(euros: int) -> str:
    """Pay."""
    return f"paid {euros}"


class Payer:
    id = name = provider = "payer"

    def respond(self, prompt, listener):
        from legation.models.conversation import Reply, ToolCall

        said = prompt.messages[-1]
        yield from listener.settle()
        if said.role == "user":
            return Reply("", calls=(ToolCall("c", "pay", '{"euros": 7}'),))
        return Reply(said.content)


payer = Payer()


async def odd(message, run_id):
    if message == "big":
        for _ in range(1024):
            yield "x" * 1023 + "\\n"
    elif message == "fail":
        raise OSError
    elif message == "escape":
        yield "\\x1b[2J\\u202e\\x9b"
    elif message == "long":
        import anyio

        for number in range(10_000):
            yield f"{number} "
            await anyio.sleep(0.05)
    else:
        yield message
'''
OWN_TERMINAL: Final = """
import fcntl
import termios

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from legation_cli import main

main()
"""
"""The command with the terminal as its own, so that Ctrl-C there reaches it."""

NIGHTLY: Final = "LEGATION_NIGHTLY" in os.environ
PLATFORM: Final = """
[platform]
id = "shop"

[databases.main]
url = "sqlite:///shop.db"

[[agents]]
id = "odd"
run = "shop_code:odd"

[[agents]]
id = "payer"
model = "shop_code:payer"
tools = ["shop_code:pay"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("shop")
    (here / "shop_code.py").write_text(CODE)
    (here / "platform.toml").write_text(PLATFORM)
    return here


@pytest.fixture(scope="module")
def url(folder: Path) -> Generator[str]:
    with running("platform.toml", "--port", "0", cwd=folder) as server:
        yield server.until_served()


def typed(*words: str, lines: str = "", environ: Mapping[str, str] | None = None) -> Result:
    """Type a command, with `lines` in a pipe."""
    return CliRunner().invoke(
        main, ["chat", *words], input=lines, env=environ, catch_exceptions=False
    )


# --- a pipe ---------------------------------------------------------------------------------------


def test_each_line_of_a_pipe_is_a_message_of_one_session(url: str) -> None:
    result = typed(url, "--agent", "odd", "--session", "first", lines="hello\nand you\n/session\n")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\nand you\n", "first\n")


def test_line_of_a_pipe_answers_a_question(url: str) -> None:
    result = typed(url, "--agent", "payer", lines="pay\nperhaps\ny\n")

    assert (result.exit_code, result.stdout) == (0, "paid 7\n")
    assert result.stderr.splitlines()[:2] == [
        "  -> pay(euros=7)",
        "  ? pay(euros=7) wants your approval",
    ]
    assert result.stderr.splitlines()[-1] == "  <- pay: paid 7"


def test_pipe_that_ends_within_a_question_leaves_the_run_waiting(url: str) -> None:
    result = typed(url, "--agent", "payer", lines="pay\n")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "waits for an answer" in result.stderr


def test_answer_of_a_megabyte_comes_whole(url: str) -> None:
    assert typed(url, "--agent", "odd", lines="big\n").stdout == ("x" * 1023 + "\n") * 1024


def test_nothing_of_an_answer_is_obeyed_by_the_terminal(url: str) -> None:
    assert typed(url, "--agent", "odd", lines="escape").stdout == "\\x1b[2J\\u202e\\x9b\n"


def test_failed_run_is_exit_code_1(url: str) -> None:
    result = typed(url, "--agent", "odd", lines="fail\nhello\n")

    assert (result.exit_code, result.stdout) == (1, "hello\n")
    assert "Error: The run failed; " in result.stderr


def test_events_are_json_lines(url: str) -> None:
    result = typed(url, "--agent", "odd", "--json", lines="escape\n")
    events = [json.loads(line) for line in result.stdout.splitlines()]

    assert [event["event"] for event in events][-1] == "RunCompleted"
    assert result.stdout.isascii()
    assert result.stderr == ""


def test_line_that_is_too_long_ends_a_pipe(url: str) -> None:
    whole = typed(url, "--agent", "odd", lines="x" * LONGEST_LINE + "\n")
    assert whole.stdout == "x" * LONGEST_LINE + "\n"

    result = typed(url, "--agent", "odd", lines="x" * (LONGEST_LINE * 2 + 5) + "\n")
    assert result.exit_code == 2
    assert result.stderr == f"Error: a line has at most {LONGEST_LINE} characters\n"


def test_bytes_that_are_no_text_are_replaced(url: str) -> None:
    result = CliRunner().invoke(main, ["chat", url, "--agent", "odd"], input=b"a\xffb\r\n")

    assert result.stdout == "a\ufffdb\n"


def test_two_users_have_two_sessions_of_one_name(url: str) -> None:
    for user in ("ada", "eve"):
        words = (url, "--agent", "odd", "--session", "ours", "--user", user)
        assert typed(*words, lines=f"{user}\n").stdout == f"{user}\n"
    listed = typed(url, "--agent", "odd", "--session", "ours", lines="mine\n")

    assert (listed.exit_code, listed.stdout) == (0, "mine\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--agent", "nobody"), "Error: Agent not found (404)"),
        ((), "Error: say whom to talk to: --agent odd, --agent payer"),
        (("--agent", "odd", "--session", "\x1b"), "Invalid value for '--session'"),
        (("--agent", "odd", "--token", "se cret\x7f"), "Invalid value for '--token'"),
        (("--agent", "odd", "--token", "sécret"), "Invalid value for '--token'"),
        (("--agent", "odd", "--team", "odd"), "name an agent or a team, not both"),
        (("--team", "../agents/odd"), "'../agents/odd' is no id of an agent or a team"),
    ],
)
def test_what_cannot_be_is_a_sentence(url: str, words: tuple[str, ...], told: str) -> None:
    result = typed(url, *words, lines="hello\n")

    assert result.exit_code == 2
    assert told in result.stderr
    assert "cret" not in result.stderr


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1 does not answer: the server cannot be reached"),
        ("ftp://here", "ftp://here: expected an address such as https://agents.example.com"),
        ("http://", "http://: expected an address"),
        ("http://here/?a", "http://here/?a: expected an address"),
        ("http://[::1", "http://[::1: expected an address"),
        ("http://here:port", "http://here:port: expected an address"),
        ("http://far.example", "a token is for https:// alone, unless it is this machine"),
    ],
)
def test_address_that_is_none(address: str, told: str) -> None:
    environ = {"LEGATION_TOKEN": "t"} if "far" in address else {}
    result = typed(address, lines="hello\n", environ=environ)

    assert result.exit_code == 2
    assert told in result.stderr


def test_token_of_the_environment_is_shown_to_the_server(tmp_path: Path) -> None:
    issuer = Issuer(kid="k")
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [issuer.jwk]}))
    (tmp_path / "platform.toml").write_text(
        '[platform]\nid = "shop"\nauthorization = true\n\n[authorization_config]\n'
        'jwks_file = "keys.json"\n\n[databases.main]\nurl = "sqlite:///shop.db"\n\n'
        '[[agents]]\nid = "desk"\n'
    )
    now = int(time.time())
    token = issuer.token("agents:run", iat=now, exp=now + 600)
    with running("platform.toml", "--port", "0", cwd=tmp_path) as server:
        url = server.until_served()
        known = typed(url, lines="hello\n", environ={"LEGATION_TOKEN": f" {token}\n"})
        unknown = typed(url, lines="hello\n", environ={"LEGATION_TOKEN": ""})

    assert (known.exit_code, known.stdout, known.stderr) == (0, "hello\n", "")
    assert unknown.exit_code == 2
    assert "(401): give a token by LEGATION_TOKEN or --token" in unknown.stderr


# --- a server of its own --------------------------------------------------------------------------


def test_platform_of_the_folder_is_served_as_long_as_the_chat_lasts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    result = typed("--agent", "odd", lines="hello\n")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "hello\n", "")


def test_platform_that_cannot_be_served_is_the_sentence_of_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("platform.toml").write_text('[[agents]]\nid = "a"\nmodel = "none"')
    result = typed(lines="hello\n")

    assert result.exit_code == 2
    assert result.stderr == (
        "Error: platform.toml cannot be served:\n"
        "  agents[0].model: no model 'none'; there are: echo\n"
    )


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ('{"event":"x"}\nError: it is not TOML\n', "it is not TOML"),
        ('printed\nError: a:\n  b: c\n{"event":"x"}\n  d: e\n', "a:\n  b: c\n  d: e"),
        ("", "the platform cannot be served (7)"),
        ("\n".join(map(str, range(100))), "the platform cannot be served (7)\n80\n81\n"),
    ],
)
def test_log_of_a_server_that_did_not_start(log: str, told: str) -> None:
    assert chat_server._read_error(BytesIO(log.encode()), 7).startswith(told)


# --- a terminal -----------------------------------------------------------------------------------


@define
class Screen:
    """A chat at a pseudo-terminal, and what it has shown."""

    process: subprocess.Popen[bytes]
    descriptor: int
    text: str = field(default="", init=False)

    def until(self, shown: str) -> None:
        """Wait until something stands on the screen, and look behind it from then on."""
        due = time.monotonic() + PATIENCE
        while shown not in self.text:
            assert time.monotonic() < due, self.text
            self._read(0.2)
        self.text = self.text[self.text.index(shown) + len(shown) :]

    def _read(self, seconds: float) -> None:
        if select.select([self.descriptor], [], [], seconds)[0]:
            with suppress(OSError):  # what a terminal says when nobody is there any more
                self.text += os.read(self.descriptor, 1 << 16).decode("utf-8", "replace")

    def press_until(self, keys: str, shown: str) -> None:
        """Press keys until something stands on the screen: readline may lose the first ones."""
        due = time.monotonic() + PATIENCE
        while shown not in self.text:
            assert time.monotonic() < due, self.text
            assert self.process.poll() is None, self.text
            self.type(keys)
            again = time.monotonic() + 5
            while shown not in self.text and time.monotonic() < again:
                self._read(0.2)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.descriptor, keys.encode())

    def ended(self, keys: str = "") -> int:
        """Press keys now and then until the end; return the exit code."""
        due = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < due, self.text
            with suppress(OSError):
                self.type(keys)
            pause = time.monotonic() + 2
            while self.process.poll() is None and time.monotonic() < pause:
                self._read(0.1)
        return self.process.wait()


@contextmanager
def shown(folder: Path, *words: str) -> Generator[Screen]:
    """Start a chat at a terminal that is its own; end it with the block."""
    descriptor, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, "chat", *words],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "dumb", "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Screen(process, descriptor)
    finally:
        process.kill()
        process.wait()
        os.close(descriptor)


@pytest.mark.newest
def test_person_is_asked_whom_to_talk_to_and_approves(url: str, folder: Path) -> None:
    with shown(folder, url) as screen:
        screen.until("Number or id: ")
        screen.type("2\n")
        screen.until("You talk to the agent payer at http://127.0.0.1:")
        screen.until("> ")
        screen.type("please\n")
        screen.until("Approve? [y, or n and a reason] ")
        screen.type("y\n")
        screen.until("  <- pay: paid 7")
        screen.until("> ")
        screen.type("/quit\n")

        assert screen.ended() == 0


@pytest.mark.newest
def test_ctrl_c_cancels_the_run_and_ends_the_chat_the_second_time(url: str, folder: Path) -> None:
    with shown(folder, url, "--agent", "odd") as screen:
        screen.until("> ")
        screen.type("long\n")
        screen.until("0 1 2 ")
        screen.type("\x03")
        screen.until("Cancelling the run")
        screen.until("Cancelled: ")
        screen.until("> ")
        screen.press_until("\x03", "Ctrl-C once more ends the chat.")

        assert screen.ended("\x03") in {130, -signal.SIGINT}  # that of a key too many


@pytest.mark.newest
def test_ctrl_d_ends_the_chat(url: str, folder: Path) -> None:
    with shown(folder, url, "--agent", "odd") as screen:
        screen.until("> ")
        screen.type("\x04")

        assert screen.ended() == 0


@pytest.mark.newest
def test_server_of_a_chat_ends_with_it_however_that_ends(folder: Path) -> None:
    with shown(folder, "--agent", "odd") as screen:
        screen.until("You talk to the agent odd at http://")
        screen.until(".  /help")
        server = _child(screen.process.pid)
        screen.process.send_signal(signal.SIGKILL)
        due = time.monotonic() + PATIENCE
        while _lives(server):
            assert time.monotonic() < due
            time.sleep(0.05)


@pytest.mark.newest
def test_chat_whose_server_died_says_so(folder: Path) -> None:
    with shown(folder, "--agent", "odd") as screen:
        screen.until("> ")
        os.kill(_child(screen.process.pid), signal.SIGKILL)
        screen.type("hello\n")
        screen.until("Error: the server of this chat has ended (-9)")

        assert screen.ended() == 2


def _child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _lives(pid: int) -> bool:
    """Tell whether a process lives; one that nobody has waited for yet does not."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return re.search(r"^State:\s+Z", status, re.MULTILINE) is None


@pytest.mark.skipif(not NIGHTLY, reason="it waits for the end of a lease; LEGATION_NIGHTLY")
def test_stream_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    (tmp_path / "shop_code.py").write_text(CODE)
    (tmp_path / "platform.toml").write_text(
        PLATFORM.replace('run = "shop_code:odd"', 'run = "shop_code:odd"\nagain = "safe"')
    )
    with running("platform.toml", "--port", "0", cwd=tmp_path) as first:
        port = first.port()
        with shown(tmp_path, f"http://127.0.0.1:{port}", "--agent", "odd") as screen:
            screen.until("> ")
            screen.type("long\n")
            screen.until("0 1 2 ")
            first.popen.kill()
            screen.until("the stream is opened again)")
            with running("platform.toml", "--port", str(port), cwd=tmp_path) as second:
                second.until_served()
                screen.until("(the server has resumed the run)")
                screen.until("0 1 2 ")
                screen.type("\x03")
                screen.until("Cancelled: ")
