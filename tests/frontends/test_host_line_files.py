"""Lines that are appended to a file: whole ones, on the disk, and nothing that waits."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import pytest

from legation_host.line_files import append_line


def test_a_new_file_is_readable_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    before = os.umask(0)
    try:
        append_line(str(path), b"one\n")
    finally:
        os.umask(before)

    assert path.read_bytes() == b"one\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_are_appended_and_the_mode_stays(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    path.write_bytes(b"one\n")
    path.chmod(0o640)
    append_line(str(path), b"two\n")

    assert path.read_bytes() == b"one\ntwo\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_line_that_was_broken_off_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    path.write_bytes(b"one\ntw")
    append_line(str(path), b"three\n")

    assert path.read_bytes() == b"one\ntw\nthree\n"


def test_a_link_is_followed_as_those_who_rotate_files_make_some(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    append_line(str(tmp_path / "link"), b"one\n")

    assert (tmp_path / "file").read_bytes() == b"one\n"


def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a file"):
        append_line(str(tmp_path / "pipe"), b"one\n")
    with pytest.raises(OSError, match="not a file"):
        append_line("/dev/null", b"one\n")


def test_what_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        append_line(str(tmp_path / "no" / "heads"), b"one\n")
    with pytest.raises(IsADirectoryError):
        append_line(str(tmp_path), b"one\n")


CHILD: Final = """
import resource, signal, sys
from legation_host.line_files import append_line
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
for line in (b"one\\n", b"two and more\\n", b"three\\n"):
    try:
        append_line(sys.argv[1], line)
    except OSError as error:
        print(error.strerror)
"""


def test_a_full_disk_is_an_error_and_the_next_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout.splitlines() == ["No space left on device", "File too large"]
    assert path.read_bytes() == b"one\ntwo an"
    append_line(str(path), b"three\n")
    assert path.read_bytes() == b"one\ntwo an\nthree\n"


def test_lines_of_several_threads_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "heads"

    def write(name: int) -> None:
        for number in range(20):
            append_line(str(path), f"{name}:{number}:{'x' * 500}\n".encode())

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    lines = [line for line in path.read_text().splitlines() if line]
    assert sorted(lines) == sorted(f"{a}:{b}:{'x' * 500}" for a in range(4) for b in range(20))
