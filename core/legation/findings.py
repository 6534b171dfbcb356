"""The findings: everything that is unsafe or wrong with a platform that can be served, as a table.

A finding has a code of the table, and says where it is and what it is.  How grave it mostly is, and
what to do about it, stands in the table.  `legation check` and `legation doctor`, the log, the
metrics and `GET /posture` take them from here; `docs/howto/doctor.md` shows the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, get_args

from attrs import field

from .values import frozen

__all__ = ["FINDINGS", "SEVERITIES", "Finding", "FindingKind", "Severity", "find", "sort_findings"]

Severity: TypeAlias = Literal["low", "medium", "high"]
"""How grave a finding is: `high` lets strangers in, or loses data; `low` is advice."""

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)


@frozen
class FindingKind:
    """A kind of finding.

    Attributes:
        severity: How grave it is, unless the finding itself says otherwise.
        meaning: What it is, in a sentence.
        remedy: What to do, in a sentence; NAME stands for what the finding is about.
    """

    severity: Severity
    meaning: str
    remedy: str


FINDINGS: Final[Mapping[str, FindingKind]] = {
    # --- settings, as `access.posture` finds them ------------------------------------------------
    "authorization_off": FindingKind(
        "high",
        "Everybody who reaches the platform may do anything.",
        "Run `legation keys new keys`, and follow its output.",
    ),
    "route_open": FindingKind(
        "high",
        "A route that does more than tell a state needs no token.",
        "Take it out of `excluded_routes`.",
    ),
    "secret_weak": FindingKind(
        "high",
        "A secret can be guessed.",
        "Replace it by the output of `openssl rand -base64 32`.",
    ),
    "tls_off": FindingKind(
        "medium",
        "Tokens and texts can be read on the way to the server.",
        "Serve with `--certfile`, or name the proxy that ends TLS with `--trusted-proxy`.",
    ),
    "hsts_off": FindingKind(
        "low",
        "A browser may be led to plain HTTP once.",
        "Serve without `--no-hsts`.",
    ),
    "audience_unchecked": FindingKind(
        "low",
        "A token that was issued for another service is accepted.",
        "Set `verify_audience = true`.",
    ),
    "expiry_not_required": FindingKind(
        "low",
        "A token without an expiry never ends.",
        'Set `require = ["exp"]` or `max_lifetime_seconds`.',
    ),
    "audit_unkeyed": FindingKind(
        "low",
        "A writer to the database can forge the audit trail.",
        "Add a table `[[audit.keys]]`.",
    ),
    "default_origin_allowed": FindingKind(
        "low",
        "Pages of a developer's machine may call the platform.",
        "Set `cors_default_origin = false`.",
    ),
    "origin_invalid": FindingKind(
        "medium",
        "An allowed origin is malformed, and allows nothing.",
        "Write it as `https://app.example.com`.",
    ),
    "origin_plain_http": FindingKind(
        "medium",
        "The pages of an allowed origin can be forged on the way.",
        "Serve that application over HTTPS.",
    ),
    "host_invalid": FindingKind(
        "medium",
        "An allowed host is malformed, and lets nobody in.",
        "Write it as `app.example.com`.",
    ),
    "plain_http": FindingKind(
        "medium",
        "Keys and texts are sent to another machine in the clear.",
        "Write an address that begins with `https://`.",
    ),
    "limit_off": FindingKind(
        "medium",
        "A caller who asks without end is answered.",
        "Set a limit above 0.",
    ),
    "limit_contradictory": FindingKind(
        "medium",
        "A limit contradicts another one, and does not do what it says.",
        "Change one of the two.",
    ),
    # --- secrets, keys and certificates ----------------------------------------------------------
    "secret_missing": FindingKind(
        "high",
        "A secret that a server needs is not here.",
        "Set the variable, or put the file in its place.",
    ),
    "keys_unreadable": FindingKind(
        "high",
        "The JWKS file cannot be used: a running server keeps the keys that it read last, for"
        " `keys_stale_seconds`, and no other one starts.",
        "Put a whole JWKS in its place; `legation keys rotate` writes one.",
    ),
    "revocations_unreadable": FindingKind(
        "high",
        "The file with revocations cannot be used: a running server keeps the former ones for"
        " `keys_stale_seconds`, and no other one starts.",
        "Put a whole file in its place.",
    ),
    "certificate_unreadable": FindingKind(
        "high",
        "The file of `--certfile` has no certificate that can be read.",
        "Put the chain in PEM in its place, and send SIGHUP.",
    ),
    "certificate_expired": FindingKind(
        "high",
        "A certificate of the server has expired: clients refuse it.",
        "Renew it, and send SIGHUP.",
    ),
    "certificate_expires_soon": FindingKind(
        "medium",
        "A certificate of the server expires within 14 days.",
        "Renew it, and send SIGHUP.",
    ),
    "certificate_not_yet_valid": FindingKind(
        "high",
        "A certificate of the server is not valid yet, by the clock of this machine.",
        "Set the clock right, or wait.",
    ),
    # --- databases -------------------------------------------------------------------------------
    "database_unusable": FindingKind(
        "high",
        "A database cannot be opened.",
        "Correct `databases.NAME.url`, or the file or server that it names.",
    ),
    "database_unreachable": FindingKind(
        "high",
        "A database does not answer, or refuses to.",
        "Start it, and look at its own log.",
    ),
    "database_missing": FindingKind(
        "low",
        "A database has no file yet.",
        "Run `legation migrate NAME`, or start the server, which does it.",
    ),
    "database_volatile": FindingKind(
        "medium",
        "A database is in memory: a restart deletes it.",
        "Put its file on a disk.",
    ),
    "network_file_system": FindingKind(
        "high",
        "A SQLite file is on a network file system, whose locks and memory maps do not hold.",
        "Move the file to a local disk, or use PostgreSQL.",
    ),
    "folder_unwritable": FindingKind(
        "high",
        "The folder of a SQLite file cannot be written to.",
        "Give the folder to the user of the server: SQLite writes its log beside the file.",
    ),
    "fsync_failed": FindingKind(
        "high",
        "The disk of a database does not confirm writes.",
        "Look at `dmesg`, and replace the disk.",
    ),
    "fsync_slow": FindingKind(
        "medium",
        "The disk takes long to confirm a write, and every commit waits for it.",
        "Move the file to a faster disk.",
    ),
    "disk_full": FindingKind(
        "high",
        "There is no room left for a database, and it refuses to write.",
        "Make room; the server goes on by itself.",
    ),
    "disk_low": FindingKind(
        "medium",
        "There is little room left for a database.",
        "Make room; `legation retention --dry-run` counts old data.",
    ),
    "inodes_low": FindingKind(
        "medium",
        "The file system of a database can hold few files more.",
        "Delete small files: `df -i` shows the file systems.",
    ),
    "sqlite_wal_reset_bug": FindingKind(
        "low",
        "This SQLite may lose data where another program writes to the same file.  It is medium"
        " where the processes of a server cannot keep apart, either.",
        "Install SQLite 3.51.3 or later, and let nothing but Legation write to the file.",
    ),
    "postgresql_not_durable": FindingKind(
        "high",
        "The server of a database acknowledges writes that a power cut can undo.",
        "Set `fsync` and `full_page_writes` to on in PostgreSQL.",
    ),
    "pooler_undeclared": FindingKind(
        "medium",
        "A pooler is in front of a database, and its URL does not say so.",
        "Add `pgbouncer=true` to `databases.NAME.url`.",
    ),
    "connections_scarce": FindingKind(
        "medium",
        "PostgreSQL has fewer connections left than one more node may open.",
        "Raise `max_connections` of PostgreSQL, or lower that of `databases.NAME.url`.",
    ),
    "schema_behind": FindingKind(
        "high",
        "The schema of a database is older than this release.  It is medium where the next start"
        " migrates it.",
        "Run `legation migrate NAME`.",
    ),
    "schema_unknown": FindingKind(
        "high",
        "This release may not serve the schema of a database.",
        "Run the release that made it, or migrate it with that one.",
    ),
    "clock_differs": FindingKind(
        "medium",
        "The clock of this machine differs from that of a database or a provider.",
        "Set it right by NTP: `timedatectl set-ntp true`.",
    ),
    "node_silent": FindingKind(
        "medium",
        "A node of a database has not been heard for longer than a lease: it is dead, or hangs.",
        "Start a node: it takes up the runs of the dead one within a lease.",
    ),
    "runs_orphaned": FindingKind(
        "medium",
        "The node of a run in progress is dead, and no other has taken the run up.",
        "Start a node that hosts the agents and teams of the database.",
    ),
    "releases_differ": FindingKind(
        "low",
        "A node of a database runs another release.",
        "Bring every node to one release.",
    ),
    "retention_behind": FindingKind(
        "medium",
        "The retention of a database has not deleted anything for two days.",
        "Run `legation retention NAME`, and look for `retention_failed` in the log.",
    ),
    "growth_unbounded": FindingKind(
        "low",
        "Something grows in a database without a bound.",
        "Set the days in `[retention]`.",
    ),
    # --- channels --------------------------------------------------------------------------------
    "dead_letters": FindingKind(
        "medium",
        "Messages or replies of a channel were given up.",
        "Run `legation dead-letters list`, and mend the cause; then retry or discard them.",
    ),
    "channel_held": FindingKind(
        "high",
        "The provider of a channel refuses its credentials, and replies wait.",
        "Run `legation channels verify NAME`.",
    ),
    # --- providers of models ---------------------------------------------------------------------
    "provider_unreachable": FindingKind(
        "high",
        "The provider of a model cannot be reached.",
        "Look at the network, the proxy and `models.NAME.base_url`; `--offline` asks no provider.",
    ),
    "provider_refuses_key": FindingKind(
        "high",
        "The provider of a model refuses the key.",
        "Put a valid key in the place that `models.NAME` names.",
    ),
    "provider_failing": FindingKind(
        "medium",
        "The provider of a model answers with an error.",
        "Look at the provider's page of states; `fallback` names models that stand in.",
    ),
    # --- the machine, and the doctor itself ------------------------------------------------------
    "open_files_low": FindingKind(
        "low",
        "The limit of open files is below the number that a server may open.",
        "Raise it: `LimitNOFILE=65536` in the unit, or `ulimit -n 65536`.",
    ),
    "not_examined": FindingKind(
        "medium",
        "Something could not be looked at, or did not answer in time.",
        "Mend the named part, and run `legation doctor` again.",
    ),
}
"""Every kind, by its code, in the order in which the documentation shows them."""


@frozen
class Finding:
    """One thing that is unsafe or wrong: where, what it is, and how grave that is.

    Attributes:
        path: A setting, or a part of the platform, such as `databases.main`.
        message: What it is, as a sentence behind the path.
        code: Its key in `FINDINGS`.
    """

    path: str
    message: str
    severity: Severity = "medium"
    code: str = field(kw_only=True)

    @property
    def remedy(self) -> str:
        """The way to mend it, in a sentence."""
        _, _, name = self.path.partition(".")
        return FINDINGS[self.code].remedy.replace("NAME", name.partition(".")[0] or "NAME")

    def as_json(self) -> dict[str, str]:
        """Return it for a script."""
        return {
            "code": self.code,
            "severity": self.severity,
            "path": self.path,
            "message": self.message,
            "remedy": self.remedy,
        }


def find(code: str, path: str, message: str, severity: Severity | None = None) -> Finding:
    """Return a finding, as grave as its kind unless `severity` is given."""
    return Finding(path, message, severity or FINDINGS[code].severity, code=code)


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the gravest first, and else in their order."""
    return tuple(sorted(findings, key=lambda one: -SEVERITIES.index(one.severity)))
