"""What the README shows is what happens: its commands are run, its examples are executed."""

from __future__ import annotations

import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:7777"
START_SECONDS = 20


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCK.findall(README) if found == language]


def exchanges() -> list[tuple[str, str]]:
    """Return each command of the curl session with the output shown under it."""
    (session,) = blocks("console")
    commands = re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (c.partition("\n") for c in commands)]


def matches(shown: str, got: str) -> bool:
    """Compare with what is shown, where `…` stands for anything, line breaks included."""
    pattern = ".*?".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, got.strip(), re.DOTALL) is not None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the demonstration as `legation serve` does; yield its address."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "legation_cli", "serve", "--port", str(port)],
        env={**os.environ, "LEGATION_DATA": str(tmp_path_factory.mktemp("data"))},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + START_SECONDS
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                assert time.monotonic() < deadline, "the server does not listen"
                time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_curl_session_gives_the_output_that_is_shown(demonstration: str) -> None:
    for command, shown in exchanges():
        done = subprocess.run(
            ["bash", "-c", command.replace(ADDRESS, demonstration)],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert matches(shown, done.stdout), f"{command}\nshown: {shown}\ngot: {done.stdout}"


def test_embedding_example_makes_an_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = next(text for text in blocks("python") if "legation_asgi" in text)
    (tmp_path / "example.py").write_text(example)

    found = runpy.run_path(str(tmp_path / "example.py"))

    assert set(found["platform"].registry.agents) == {"concierge"}
    assert callable(found["app"])


def test_testing_example_passes(tmp_path: Path) -> None:
    example = next(text for text in blocks("python") if "def test_" in text)
    (tmp_path / "test_example.py").write_text(example)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("text", blocks("toml"))
def test_configuration_that_is_shown_has_no_unknown_key(text: str) -> None:
    import tomllib

    from legation.config import structure

    assert structure(tomllib.loads(text)).authorization is True
