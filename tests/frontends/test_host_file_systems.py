"""The file system under a path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from legation_host.file_systems import find_type, measure_disk, time_syncs, try_write

MOUNTS: Final = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /data rw shared:2 - xfs /dev/vdb rw
31 30 0:27 / /data/far\\040away rw - nfs4 host:/share rw
32 30 0:28 / /data/over rw - ext4 /dev/vdc rw
33 32 0:29 / /data/over rw - fuse.sshfs host: rw
34 22 no separator
short - ext4 x
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/database", "ext4"),
        ("/data", "xfs"),
        ("/data/main", "xfs"),
        ("/data/far away", "nfs4"),
        ("/data/far away/main", "nfs4"),
        ("/data/over/main", "fuse.sshfs"),
    ],
)
def test_the_type_is_that_of_the_nearest_and_the_latest_mount(
    tmp_path: Path, path: str, kind: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)

    assert find_type(path, mounts) == kind


def test_where_the_system_tells_no_type_there_is_none(tmp_path: Path) -> None:
    assert find_type("/", tmp_path / "nothing") == ""


def test_a_disk_has_room_and_a_path_that_is_not_there_has_no_disk(tmp_path: Path) -> None:
    disk = measure_disk(str(tmp_path))

    assert disk is not None
    assert disk.size >= disk.free > 0
    assert measure_disk(str(tmp_path / "nothing")) is None


def test_a_trial_takes_time_and_leaves_nothing(tmp_path: Path) -> None:
    trial = try_write(str(tmp_path))

    assert (trial.unwritable, trial.unconfirmed, trial.full) == ("", "", False)
    assert trial.seconds > 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_cannot_be_written_to(tmp_path: Path) -> None:
    assert try_write(str(tmp_path / "nothing")).unwritable == "No such file or directory"


def test_a_device_that_is_full_is_told_from_one_that_confirms_nothing() -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        trial = time_syncs(full.fileno())
    reader, writer = os.pipe()
    try:
        unconfirmed = time_syncs(writer)
    finally:
        os.close(reader)
        os.close(writer)

    assert trial.full
    assert unconfirmed.unconfirmed == "Invalid argument"
