"""The manifest of a backup: written, read back, and refused where it is anything else."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

import pytest
from attrs import evolve

from legation.http.messages import compact_json
from legation.lifecycle.backup_manifest import (
    BadManifest,
    Manifest,
    SavedDatabase,
    SavedFile,
    file_name,
    find_obstacle,
    find_old,
    folder_name,
    read_manifest,
    write_manifest,
)
from legation.store.units import Dialect

NOON: Final = 1_767_268_800_000_000
MAIN: Final = SavedDatabase(
    *("main", Dialect.SQLITE, "", NOON + 1, "2.14.0", "SQLite 3.40.1"),
    *(SavedFile("main.sqlite", 4096, "ab" * 32), True, 7),
)
OTHER: Final = SavedDatabase(
    *("other/x", Dialect.POSTGRESQL, "public", NOON + 2, "2.14.0", "PostgreSQL 18.1"),
    *(SavedFile("other%2Fx.dump", 17, "cd" * 32), None, 0),
)
SAVED: Final = Manifest(
    "front-office", "0.1.0", NOON, SavedFile("heads.json", 2, "ef" * 32), (MAIN, OTHER)
)


def written(**changed: Any) -> bytes:
    """Return a manifest with a seal that fits, whatever was changed."""
    content = {**write_manifest(SAVED), **changed}
    del content["seal"]
    seal = sha256(compact_json(content).encode()).hexdigest()
    return json.dumps({**content, "seal": seal}, indent=2).encode()


def reason(text: bytes) -> str:
    found = read_manifest(text)
    assert isinstance(found, BadManifest)
    return found.detail


def test_what_was_written_is_read() -> None:
    assert read_manifest(json.dumps(write_manifest(SAVED)).encode()) == SAVED
    assert read_manifest(written()) == SAVED
    assert [file.name for file in SAVED.files] == ["heads.json", "main.sqlite", "other%2Fx.dump"]


def test_every_change_shows() -> None:
    text = json.dumps(write_manifest(SAVED))
    assert reason(text.replace("4096", "4097").encode()) == "it is not as it was written"
    assert reason(text.replace(', "seal"', ', "more": 1, "seal"').encode()) == (
        "it is not as it was written"
    )
    assert reason(text.replace("legation-backup", "else").encode()) == (
        "it is no manifest of `legation backup`"
    )


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"{}", b'{"kind": 1}', b"[" * 9999])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    assert reason(text) == "it is no manifest of `legation backup`"


def test_another_form_is_named() -> None:
    assert reason(written(format=2)) == "it has the form 2, which this release does not know"


@pytest.mark.parametrize(
    "changed",
    [
        {"format": "1"},
        {"platform": None},
        {"at_us": "now"},
        {"heads": {}},
        {"heads": {**write_manifest(SAVED)["heads"], "file": "../heads.json"}},
        {"databases": {}},
        {"databases": ["main"]},
        {"databases": [{**write_manifest(SAVED)["databases"][0], "file": "/etc/passwd"}]},
        {"databases": [{**write_manifest(SAVED)["databases"][0], "database": "../main"}]},
        {"databases": [{**write_manifest(SAVED)["databases"][0], "engine": "mysql"}]},
        {"databases": [write_manifest(SAVED)["databases"][0]] * 2},
    ],
)
def test_a_member_that_is_wrong_is_no_crash(changed: dict[str, Any]) -> None:
    assert reason(written(**changed)) == "a member of it is missing or wrong"


def test_no_name_leads_out_of_the_folder() -> None:
    for name in ("..", "../x", "/etc/passwd", "a\\b", "%", "ü"):
        made = [file_name(name, Dialect.SQLITE), folder_name(name, NOON)]
        assert not any("/" in one or one in {".", ".."} for one in made)
        assert all(one.isascii() for one in made)
    assert folder_name("front-office", NOON + 999_999) == "front-office-20260101T120000Z"


def test_the_oldest_of_this_platform_are_found() -> None:
    names = [folder_name("a", NOON + day * 86_400_000_000) for day in (3, 1, 2)]
    others = ["a-b-20260101T120000Z", "a-20260101T120000", "a-notes", "a", ".partial-a", "lost"]

    assert find_old("a", names + others, 1) == (names[1], names[2])
    assert find_old("a", names + others, 2) == (names[1],)
    assert find_old("a", names + others, 3) == ()
    assert find_old("a", names + others, 9) == ()
    assert find_old("a-b", names + others, 1) == ()


def test_what_stands_in_the_way_of_a_restore_is_named() -> None:
    engines = {"main": Dialect.SQLITE, "other/x": Dialect.POSTGRESQL, "new": Dialect.SQLITE}

    def obstacle(platform: str, *names: str, manifest: Manifest = SAVED) -> str | None:
        return find_obstacle(manifest, platform, names, engines)

    assert obstacle("front-office", "main", "other/x") is None
    assert obstacle("shop", "main") == (
        "this is a backup of the platform 'front-office', and not of 'shop'"
    )
    assert obstacle("front-office", "new") == (
        "there is no database 'new' in it; there are: main, other/x"
    )
    assert obstacle("front-office", "new", manifest=evolve(SAVED, databases=())) == (
        "there is no database 'new' in it; there are: none"
    )
    moved = evolve(SAVED, databases=(evolve(MAIN, dialect=Dialect.POSTGRESQL),))
    assert obstacle("front-office", "main", manifest=moved) == (
        "'main' was on postgresql and is on sqlite now: a backup stays on its engine"
    )
