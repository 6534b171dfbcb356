"""The manifest of a backup: what is in its folder, and what may be restored from it.

A manifest is written last, and seals itself by a hash: a part of it that was changed or lost by
accident shows, and so does a file that it names.  The hash is no signature.  Whoever can write to
the folder can make another backup; the heads of the audit trail, kept elsewhere, are the proof.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote

from ..http.bodies.json_text import parse_json
from ..http.messages import compact_json
from ..runs.output import iso_time
from ..store.units import Dialect
from ..values import frozen

__all__ = [
    "HEADS",
    "MANIFEST",
    "MAX_MANIFEST",
    "BadManifest",
    "Manifest",
    "SavedDatabase",
    "SavedFile",
    "file_name",
    "find_obstacle",
    "find_old",
    "folder_name",
    "read_manifest",
    "write_manifest",
]

MANIFEST: Final = "manifest.json"
"""The name of the manifest in the folder of a backup."""

HEADS: Final = "heads.json"
"""The name of the file with the heads, in the form of `legation audit verify --json`."""

MAX_MANIFEST: Final = 1 << 20
"""A manifest has so many bytes at most."""

_KIND: Final = "legation-backup"
_FORMAT: Final = 1
_ENGINES: Final = frozenset(dialect.value for dialect in Dialect)
_STAMP: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SUFFIXES: Final = {Dialect.SQLITE: ".sqlite", Dialect.POSTGRESQL: ".dump"}


@frozen
class SavedFile:
    """A file in the folder: its size in bytes, and the SHA-256 of its content in hexadecimal."""

    name: str
    size: int
    sha256: str


@frozen
class SavedDatabase:
    """A database as it was at one moment.

    Attributes:
        database: Its id in the configuration.
        namespace: The schema of PostgreSQL that its tables are in; empty on SQLite.
        at_us: What was acknowledged before is in it: microseconds since the epoch.
        version: The version of its schema.
        server: The engine and its version, for people.
        intact: Whether nothing contradicted its audit trail; None where its schema is of an older
            release, whose trail this one does not read.
        rows: How many rows the trail had.
    """

    database: str
    dialect: Dialect
    namespace: str
    at_us: int
    version: str
    server: str
    file: SavedFile
    intact: bool | None
    rows: int


@frozen
class Manifest:
    """All that is in the folder of a backup.

    Attributes:
        platform: The id of the platform.
        release: The release of Legation that made it.
        at_us: When it was begun, in microseconds since the epoch.
        heads: The file with the heads of the audit trails.
    """

    platform: str
    release: str
    at_us: int
    heads: SavedFile
    databases: tuple[SavedDatabase, ...]

    @property
    def files(self) -> tuple[SavedFile, ...]:
        """All files but the manifest itself."""
        return (self.heads, *(one.file for one in self.databases))


@frozen
class BadManifest:
    """A text that is no manifest, or not as it was written; `detail` is a sentence for people."""

    detail: str


def folder_name(platform: str, at_us: int) -> str:
    """Return the name of the folder for a backup of `platform` that begins at this time."""
    stamp = iso_time(at_us // 1_000_000 * 1_000_000).replace("-", "").replace(":", "")
    return f"{quote(platform, safe='')}-{stamp}"


def file_name(database: str, dialect: Dialect) -> str:
    """Return the name of the file for a database; whatever its id is, it is no path."""
    return f"{quote(database, safe='')}{_SUFFIXES[dialect]}"


def find_old(platform: str, names: Iterable[str], keep: int) -> tuple[str, ...]:
    """Return which of the folders `names` hold backups of `platform` beyond the `keep` newest.

    `keep` is at least 1.
    """
    prefix = folder_name(platform, 0).rpartition("-")[0]
    parts = [(name, *name.rpartition("-")[::2]) for name in names]
    mine = [name for name, of, stamp in parts if of == prefix and _STAMP.fullmatch(stamp)]
    return tuple(sorted(mine)[:-keep])


# --- Written and read ----------------------------------------------------------------------------


def write_manifest(manifest: Manifest) -> dict[str, Any]:
    """Return the members of the manifest, its seal the last."""
    content: dict[str, Any] = {
        "kind": _KIND,
        "format": _FORMAT,
        "platform": manifest.platform,
        "release": manifest.release,
        "at": iso_time(manifest.at_us),
        "at_us": manifest.at_us,
        "heads": _write_file(manifest.heads),
        "databases": [_write_database(one) for one in manifest.databases],
    }
    return {**content, "seal": _seal(content)}


def _seal(content: Mapping[str, Any]) -> str:
    return sha256(compact_json(dict(content)).encode()).hexdigest()


def _write_file(file: SavedFile) -> dict[str, Any]:
    return {"file": file.name, "bytes": file.size, "sha256": file.sha256}


def _write_database(one: SavedDatabase) -> dict[str, Any]:
    return {
        "database": one.database,
        "engine": one.dialect.value,
        "namespace": one.namespace,
        "at": iso_time(one.at_us),
        "at_us": one.at_us,
        "schema": one.version,
        "server": one.server,
        "trail": {"intact": one.intact, "rows": one.rows},
        **_write_file(one.file),
    }


def read_manifest(text: bytes) -> Manifest | BadManifest:
    """Return the manifest that `text` is; it comes from outside, and may be anything."""
    value = parse_json(text)
    if not isinstance(value, dict) or value.get("kind") != _KIND:
        return BadManifest("it is no manifest of `legation backup`")
    content = {name: member for name, member in value.items() if name != "seal"}
    if value.get("seal") != _seal(content):
        return BadManifest("it is not as it was written")
    if isinstance(number := value.get("format"), int) and number != _FORMAT:
        return BadManifest(f"it has the form {number}, which this release does not know")
    return _read_content(content) or BadManifest("a member of it is missing or wrong")


def _read_content(content: Mapping[str, Any]) -> Manifest | None:
    match content:
        case {
            "format": 1,
            "platform": str(platform),
            "release": str(release),
            "at_us": int(at_us),
            "heads": heads,
            "databases": [*listed],
        }:
            file = _read_file(heads, HEADS)
            found = [one for item in listed if (one := _read_database(item)) is not None]
            if file is None or len({one.database for one in found}) != len(listed):
                return None
            return Manifest(platform, release, at_us, file, tuple(found))
        case _:
            return None


def _read_database(item: object) -> SavedDatabase | None:
    match item:
        case {
            "database": str(database),
            "engine": str(engine),
            "namespace": str(namespace),
            "at_us": int(at_us),
            "schema": str(version),
            "server": str(server),
            "trail": {"intact": (bool() | None) as intact, "rows": int(rows)},
        } if engine in _ENGINES:
            dialect = Dialect(engine)
            file = _read_file(item, file_name(database, dialect))
            if file is None:
                return None
            return SavedDatabase(
                database, dialect, namespace, at_us, version, server, file, intact, rows
            )
        case _:
            return None


def _read_file(item: object, name: str) -> SavedFile | None:
    """Return the file of this name, and of no other: a manifest leads out of no folder."""
    match item:
        case {"file": str(named), "bytes": int(size), "sha256": str(digest)} if named == name:
            return SavedFile(name, size, digest)
        case _:
            return None


# --- Restored ------------------------------------------------------------------------------------


def find_obstacle(
    manifest: Manifest, platform: str, names: Iterable[str], engines: Mapping[str, Dialect]
) -> str | None:
    """Return why the databases `names` cannot be restored from this backup, or None.

    Args:
        manifest: That of the backup.
        platform: The id of the platform that is to be restored.
        names: The ids of the databases.
        engines: The engines of the databases, as they are configured now.
    """
    if manifest.platform != platform:
        return f"this is a backup of the platform {manifest.platform!r}, and not of {platform!r}"
    saved = {one.database: one for one in manifest.databases}
    for name in names:
        if name not in saved:
            return f"there is no database {name!r} in it; there are: {', '.join(saved) or 'none'}"
        if saved[name].dialect is not engines[name]:
            was, now = saved[name].dialect.value, engines[name].value
            return f"{name!r} was on {was} and is on {now} now: a backup stays on its engine"
    return None
