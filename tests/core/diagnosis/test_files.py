"""The judgement of what a SQLite database stands on."""

from __future__ import annotations

from typing import Final

import pytest
from attrs import evolve

from legation.diagnosis.engines import BugSeverity
from legation.diagnosis.files import Disk, SqliteFacts, SyncTrial, judge_sqlite

GIB: Final = 1 << 30
MIB: Final = 1 << 20
SOUND: Final = SqliteFacts(
    path="main.db",
    folder="/data",
    exists=True,
    file_system="ext4",
    disk=Disk(100 * GIB, 50 * GIB, 1_000_000, 900_000),
    trial=SyncTrial(seconds=0.004),
)


def judged(facts: SqliteFacts) -> list[tuple[str, str]]:
    found = list(judge_sqlite("main", facts))
    assert {one.path for one in found} <= {"databases.main"}
    return [(one.code, one.severity) for one in found]


def test_a_sound_file_on_a_sound_disk_is_no_finding() -> None:
    assert judged(SOUND) == []
    assert judged(evolve(SOUND, disk=None, trial=None, file_system="")) == []


@pytest.mark.parametrize(
    ("disk", "found"),
    [
        (Disk(100 * GIB, 50 * GIB), []),
        (Disk(100 * GIB, MIB - 1), [("disk_full", "high")]),
        (Disk(100 * GIB, MIB), [("disk_low", "medium")]),
        (Disk(100 * GIB, GIB - 1), [("disk_low", "medium")]),
        (Disk(100 * GIB, GIB), []),
        (Disk(2 * GIB, GIB - 1), []),
        (Disk(0, 0), []),
        (Disk(100 * GIB, 50 * GIB, 1_000_000, 999), [("inodes_low", "medium")]),
        (Disk(100 * GIB, 50 * GIB, 1_000_000, 1_000), []),
        (Disk(100 * GIB, 50 * GIB, 2_000, 999), []),
        (Disk(GIB, 0, 1_000_000, 0), [("disk_full", "high"), ("inodes_low", "medium")]),
    ],
    ids=str,
)
def test_a_disk_is_judged_by_what_is_left(disk: Disk, found: list[tuple[str, str]]) -> None:
    assert judged(evolve(SOUND, disk=disk)) == found


@pytest.mark.parametrize(
    ("trial", "found"),
    [
        (SyncTrial(0.1), []),
        (SyncTrial(0.11), [("fsync_slow", "medium")]),
        (SyncTrial(full=True, unwritable="No space left on device"), [("disk_full", "high")]),
        (SyncTrial(unwritable="Permission denied"), [("folder_unwritable", "high")]),
        (SyncTrial(unconfirmed="Input/output error"), [("fsync_failed", "high")]),
    ],
    ids=str,
)
def test_a_trial_is_judged_by_how_it_ended(trial: SyncTrial, found: list[tuple[str, str]]) -> None:
    assert judged(evolve(SOUND, trial=trial)) == found


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("ext4", []),
        ("overlay", []),
        ("nfs4", [("network_file_system", "high")]),
        ("cifs", [("network_file_system", "high")]),
        ("fuse.sshfs", [("network_file_system", "high")]),
        ("tmpfs", [("database_volatile", "medium")]),
    ],
)
def test_a_file_system_is_judged_by_its_type(kind: str, found: list[tuple[str, str]]) -> None:
    assert judged(evolve(SOUND, file_system=kind)) == found


def test_a_database_in_memory_is_judged_by_nothing_else() -> None:
    assert judged(SqliteFacts(None, bug="low")) == [("database_volatile", "medium")]


def test_a_file_that_is_not_there_yet_is_another_thing_than_its_folder() -> None:
    assert judged(evolve(SOUND, exists=False)) == [("database_missing", "low")]
    assert judged(evolve(SOUND, exists=False, folder=None)) == [("database_unusable", "high")]


@pytest.mark.parametrize(
    ("severity", "told"), [("low", "another program"), ("medium", "no lock to keep apart")]
)
def test_the_bug_of_sqlite_is_graver_without_a_lock_of_our_own(
    severity: BugSeverity, told: str
) -> None:
    (found,) = judge_sqlite("main", evolve(SOUND, bug=severity))

    assert (found.code, found.severity) == ("sqlite_wal_reset_bug", severity)
    assert told in found.message


def test_sizes_are_told_in_a_unit_that_suits_them() -> None:
    low = Disk(100 * GIB, 512 * MIB)
    (found,) = judge_sqlite("main", evolve(SOUND, disk=low))

    assert found.message == "has 512.0 MiB of 100.0 GiB left on its disk"
