"""Files of secrets as they are mounted: read within bounds, and again when they are replaced."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from legation import ConfigurationError, Request
from legation.hosted.secret_sources import MAX_SECRET_BYTES, NoSecret
from legation.http.messages import Response
from legation_host.hosting import open_platform
from legation_host.loading import LoadError, from_file
from legation_host.secret_files import read_secret_files

SECONDS: Final = 30.0  # files are looked at every second
FIRST: Final = b64encode(bytes(range(32))).decode()
SECOND: Final = b64encode(bytes(range(50, 82))).decode()
PLATFORM: Final = """
[databases.main]
url = "sqlite://"

[[agents]]
id = "desk"

[channels.crm]
kind = "standard"
agent = "desk"
secret_file = "secrets/crm"
reply_url = "https://127.0.0.1:9/in"

[channels.ask]
kind = "whatsapp"
agent = "desk"
phone_number_id = "1"
app_secret_file = "secrets/app"
verify_token_file = "secrets/verify"
access_token_file = "secrets/access"
"""


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"secret\n")
    large.write_bytes(b"x" * (10 * MAX_SECRET_BYTES))

    found = read_secret_files([str(small), str(large)])

    assert found[str(small)] == b"secret\n"
    assert len(found[str(large)]) == MAX_SECRET_BYTES + 1  # type: ignore[arg-type]


def _make_nothing(_: Path) -> None:
    """Leave it out."""


def _make_fifo(path: Path) -> None:
    os.mkfifo(path)


def _make_loop(path: Path) -> None:
    path.symlink_to(path)


def _link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such files")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_make_nothing, "No such file"),
        (Path.mkdir, "it is not a file"),
        (_make_fifo, "it is not a file"),
        (_make_loop, "symbolic links"),
        (_link_to_device, "it is not a file"),
    ],
    ids=["absent", "folder", "fifo", "loop", "device"],
)
def test_what_is_no_file_is_said(tmp_path: Path, make: Callable[[Path], object], why: str) -> None:
    path = tmp_path / "secret"
    make(path)

    (found,) = read_secret_files([str(path)]).values()

    assert isinstance(found, NoSecret)
    assert why in found.reason


def test_a_path_that_can_be_none_is_said() -> None:
    (found,) = read_secret_files(["a\0b"]).values()

    assert isinstance(found, NoSecret)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads all")
def test_a_file_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x")
    path.chmod(0)

    assert read_secret_files([str(path)]) == {
        str(path): NoSecret("the file cannot be read: Permission denied")
    }


def write(folder: Path, **secrets: str) -> None:
    """Replace each secret as Kubernetes does: a link is moved to another folder."""
    target = folder / f".data-{secrets['crm'][:6].replace('/', '_')}"
    target.mkdir()
    for name, value in secrets.items():
        (target / name).write_text(f"{value}\n")
    link = folder / ".next"
    link.symlink_to(target.name)
    link.replace(folder / ".current")
    for name in secrets:
        path = folder / name
        if not path.is_symlink():
            path.symlink_to(Path(".current", name))


def mounted(tmp_path: Path) -> Path:
    """Return a configuration beside a folder of mounted secrets."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    write(folder, crm=FIRST, app="0f" * 16, verify="a-word-of-ours-1", access="EAAB")
    path = tmp_path / "platform.toml"
    path.write_text(PLATFORM)
    return path


def test_paths_are_relative_to_the_configuration(tmp_path: Path) -> None:
    platform = from_file(mounted(tmp_path), {})

    assert getattr(platform.registry.channels["crm"].codec, "secret", None) == FIRST
    assert platform.secret_paths == tuple(
        str(tmp_path / "secrets" / name) for name in ("crm", "app", "verify", "access")
    )


def test_a_missing_file_is_a_fault_of_its_key(tmp_path: Path) -> None:
    path = mounted(tmp_path)
    (tmp_path / "secrets/app").unlink()

    with pytest.raises(LoadError) as caught:
        from_file(path, {})

    assert str(caught.value).splitlines()[1:] == [
        "  channels.ask.app_secret_file: the file cannot be read: No such file or directory"
    ]


def handshake(word: str) -> Request:
    query = f"hub.mode=subscribe&hub.verify_token={word}&hub.challenge=7"
    return Request("GET", f"/ask/webhook?{query}", ((b"host", b"localhost"),))


async def follow(path: Path, change: Callable[[], object], event: str) -> list[int]:
    """Serve the platform, change its secrets, and ask before and behind the log line `event`."""
    platform = from_file(path, {})
    heard = anyio.Event()

    def log(level: str, name: str, fields: Mapping[str, Any]) -> None:
        if name == event:
            heard.set()

    statuses: list[int] = []

    async def ask(word: str) -> None:
        answer = await host.run(platform.answer(handshake(word)))
        assert isinstance(answer, Response)
        statuses.append(answer.status)

    with anyio.fail_after(SECONDS):
        async with open_platform(platform, log=log) as host:
            await ask("a-word-of-ours-1")
            change()
            await heard.wait()
            await ask("a-word-of-ours-1")
            await ask("a-word-of-ours-2")
    return statuses


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_replaced_secret_is_in_force_without_a_restart(tmp_path: Path, backend: str) -> None:
    path = mounted(tmp_path)
    new = {"crm": SECOND, "app": "1e" * 16, "verify": "a-word-of-ours-2", "access": "EAAC"}

    def change() -> None:
        write(tmp_path / "secrets", **new)

    assert anyio.run(follow, path, change, "secrets_reloaded", backend=backend) == [200, 403, 200]


def test_a_broken_file_keeps_the_old_secret(tmp_path: Path) -> None:
    path = mounted(tmp_path)

    def change() -> None:
        (tmp_path / "secrets/.current/verify").write_bytes(b"\xff")

    statuses = anyio.run(follow, path, change, "secrets_reload_failed")

    assert statuses == [200, 200, 403]


def test_a_platform_without_its_secrets_is_not_opened(tmp_path: Path) -> None:
    path = mounted(tmp_path)
    (tmp_path / "secrets/crm").unlink()
    platform = from_file(path, {}, needs_secrets=False)

    async def serve() -> None:
        async with open_platform(platform):
            pass

    with pytest.raises((ConfigurationError, BaseExceptionGroup)):
        anyio.run(serve)
