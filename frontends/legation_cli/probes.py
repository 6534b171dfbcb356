"""The probes of `legation doctor`: each gathers facts, within a few seconds, and changes nothing.

They go on side by side, each on a thread of its own.  One that fails, or does not come back, is a
finding, and never the end of the others.
"""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import field

from legation.diagnosis.databases import (
    DatabaseFacts,
    judge_database,
    judge_failure,
    read_database,
)
from legation.diagnosis.engines import BugSeverity, judge_pooler
from legation.diagnosis.files import SqliteFacts, judge_sqlite
from legation.diagnosis.machine import judge_open_files
from legation.diagnosis.providers import Provider, ask_provider, find_providers
from legation.diagnosis.trust import (
    judge_certificate,
    judge_jwks,
    judge_missing,
    judge_revocations,
)
from legation.findings import Finding, find
from legation.store.units import Dialect
from legation.values import define, frozen
from legation_host.commit_lock import has_wal_reset_bug
from legation_host.databases import (
    check_files,
    check_url,
    dialect_of,
    find_missing,
    find_path,
)
from legation_host.errors import HostError
from legation_host.file_systems import find_type, measure_disk, try_write
from legation_host.loading import read_trusted
from legation_host.postgres import connection_limit
from legation_host.secret_files import open_regular
from legation_server.certificates import MAX_BYTES, read_chain
from legation_server.settings import DEFAULT

from .channel_setup import ask_outside
from .failing import why
from .reading import read_beside

if TYPE_CHECKING:
    from legation import Platform

__all__ = ["PROBE_SECONDS", "Examination", "Probe", "examine", "gather_sqlite", "list_probes"]

PROBE_SECONDS: Final = 15.0
"""For all probes together: a server of databases is given up after 5, and so is a provider."""

Note: TypeAlias = Callable[[str, str, str], None]
"""Takes a fact for the report: of what, its name, and its value."""


@frozen
class Probe:
    """One look: `run` gathers facts about `path`, and yields what is wrong."""

    path: str
    run: Callable[[Note], Iterable[Finding]]


@define(eq=False)
class Examination:
    """The findings of probes, and the facts that they have noted.

    Attributes:
        findings: In the order of the probes.
        facts: By the part of the platform, and then by their names.
        ended: The probe has come to its end.
    """

    findings: list[Finding] = field(factory=list[Finding])
    facts: dict[str, dict[str, str]] = field(factory=dict[str, dict[str, str]])
    ended: bool = False

    def note(self, part: str, name: str, value: str) -> None:
        """Take a fact."""
        self.facts.setdefault(part, {})[name] = value

    def add(self, other: Examination) -> None:
        """Take all of `other`, which has ended."""
        self.findings += other.findings
        for part, facts in other.facts.items():
            self.facts.setdefault(part, {}).update(facts)


def examine(probes: Sequence[Probe], seconds: float = PROBE_SECONDS) -> Examination:
    """Run every probe; what has not come back after `seconds` is given up."""
    parts = [Examination() for _ in probes]
    threads = [
        threading.Thread(target=_run, args=(probe, part), daemon=True)
        for probe, part in zip(probes, parts, strict=True)
    ]
    due = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    whole = Examination(ended=True)
    for probe, part, thread in zip(probes, parts, threads, strict=True):
        thread.join(max(0.0, due - time.monotonic()))
        if part.ended:
            whole.add(part)
        else:
            message = f"gave no answer within {seconds:g} seconds"
            whole.findings.append(find("not_examined", probe.path, message))
    return whole


def _run(probe: Probe, part: Examination) -> None:
    try:
        for finding in probe.run(part.note):
            part.findings.append(finding)
    except Exception as error:  # noqa: BLE001  it is a finding, and its text may hold a secret
        part.findings.append(_describe_failure(probe.path, error))
    part.ended = True


def _describe_failure(path: str, error: Exception) -> Finding:
    if isinstance(error, HostError):
        place, _, sentence = str(error).partition(".url: ")
        if sentence:
            return find("database_unusable", place, sentence)
        return find("database_unusable", path, place)
    reason = error.strerror if isinstance(error, OSError) else None
    return find("not_examined", path, f"cannot be looked at: {reason or type(error).__name__}")


def list_probes(platform: Platform, certfiles: Sequence[str], *, offline: bool) -> list[Probe]:
    """Return all that there is to look at."""
    probes = [
        Probe("machine.open_files", partial(_probe_machine, platform)),
        Probe("platform", partial(_probe_settings, platform)),
        Probe("authorization_config", partial(_probe_trust, platform)),
        *(Probe("server.certfile", partial(_probe_certificate, path)) for path in certfiles),
    ]
    for name, url in platform.databases.items():
        where = f"databases.{name}"
        probes.append(Probe(where, partial(_probe_file, name, url)))
        probes.append(Probe(where, partial(_probe_contents, platform, name, url)))
    if not offline:
        for provider in find_providers(platform.registry, platform.missing):
            probes.append(Probe(provider.path, partial(_probe_provider, provider)))
    return probes


# --- The machine and the settings -----------------------------------------------------------------


def _probe_machine(platform: Platform, note: Note) -> Iterator[Finding]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = None if soft == resource.RLIM_INFINITY else soft
    note("machine", "open files", "no limit" if limit is None else str(limit))
    urls = platform.databases
    servers = [name for name in urls if dialect_of(urls[name]) is Dialect.POSTGRESQL]
    opened = sum(connection_limit(name, urls[name]) for name in servers)
    yield from judge_open_files(limit, DEFAULT.connections + opened)


def _probe_settings(platform: Platform, _: Note) -> Iterator[Finding]:
    yield from platform.find_unsafe()
    for fault in platform.find_growth():
        yield find("growth_unbounded", fault.path, fault.message)
    for name, url in platform.databases.items():
        check_url(name, url)
    check_files(platform.databases)


def _probe_trust(platform: Platform, _: Note) -> Iterator[Finding]:
    yield from judge_missing(platform.missing)
    config = platform.config.authorization_config
    if not platform.config.authorization:
        return
    if config.jwks_file is not None:
        yield from judge_jwks(config, *_read(config.jwks_file))
    if config.revocations_file is not None:
        yield from judge_revocations(*_read(config.revocations_file))


def _read(path: str) -> tuple[bytes | None, str]:
    """Return the content of a file that tokens are judged by, or None and why."""
    try:
        return read_trusted(path), ""
    except OSError as error:
        return None, f"{path}: {error.strerror}"


def _probe_certificate(path: str, _: Note) -> Iterator[Finding]:
    try:
        with open(path, "rb", opener=open_regular) as file:
            chain = read_chain(file.read(MAX_BYTES + 1))
    except OSError as error:
        chain = error.strerror or "it cannot be read"
    yield from judge_certificate(path, chain, _now_us())


def _now_us() -> int:
    return time.time_ns() // 1_000


# --- Databases ------------------------------------------------------------------------------------


def _probe_file(name: str, url: str, note: Note) -> Iterator[Finding]:
    """Look at what a SQLite file stands on; there is none on a server."""
    if dialect_of(url) is Dialect.SQLITE:
        facts = gather_sqlite(name, url)
        if facts.file_system:
            note(f"databases.{name}", "file system", facts.file_system)
        if facts.trial is not None:
            note(f"databases.{name}", "fsync", f"{facts.trial.seconds * 1000:.1f} ms")
        yield from judge_sqlite(name, facts)


def gather_sqlite(
    name: str, url: str, version: tuple[int, int, int] = sqlite3.sqlite_version_info
) -> SqliteFacts:
    """Return what is known of a SQLite database without opening it; `version` is the library's."""
    path = find_path(name, url)
    if path is None:
        return SqliteFacts(None)
    real = os.path.realpath(path)
    folder = os.path.dirname(real)  # noqa: PTH120  paths are text here
    if not os.path.isdir(folder):  # noqa: PTH112  as above
        return SqliteFacts(path)
    return SqliteFacts(
        path,
        folder,
        os.path.isfile(real),  # noqa: PTH113  as above
        find_type(folder),
        measure_disk(folder),
        try_write(folder),
        _find_bug(real, folder, version),
    )


def _find_bug(real: str, folder: str, version: tuple[int, int, int]) -> BugSeverity | None:
    if not has_wal_reset_bug(version):
        return None
    return "low" if _can_lock(real, folder) else "medium"


def _can_lock(real: str, folder: str) -> bool:
    """Tell whether the processes of a server have a lock beside the file, or can make one."""
    locks = f"{real}-locks"
    if os.path.lexists(locks):
        return os.path.isdir(locks) and os.access(locks, os.W_OK | os.X_OK)  # noqa: PTH112
    return os.access(folder, os.W_OK)


def _probe_contents(platform: Platform, name: str, url: str, note: Note) -> Iterator[Finding]:
    """Ask a database, beside whoever serves it."""
    on_server = dialect_of(url) is Dialect.POSTGRESQL
    if not on_server and (find_path(name, url) is None or find_missing(name, url) is not None):
        return
    events: list[str] = []

    def log(_: str, event: str, __: Mapping[str, Any]) -> None:
        events.append(event)

    registry = platform.registry
    facts: DatabaseFacts = read_beside({name: url}, read_database(registry, name), log)
    if facts.server is not None:
        note(f"databases.{name}", dialect_of(url).value, facts.server.version)
    connections = connection_limit(name, url) if on_server else 0
    yield from judge_database(registry, name, facts, connections)
    if facts.failure is not None:
        yield judge_failure(name, facts.failure, why(facts.failure))
    if "pooler_found" in events:
        yield judge_pooler(name)


# --- Providers ------------------------------------------------------------------------------------


def _probe_provider(provider: Provider, _: Note) -> Iterator[Finding]:
    yield from ask_outside(ask_provider(provider))
