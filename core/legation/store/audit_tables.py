"""The tables of the audit trail.

They stand beside the ledger of the schema and not in the catalogue: they are made with the ledger,
under the lock of migrations, and no migration changes or drops them.
"""

from __future__ import annotations

from typing import Final

from .units import Sql, Statements

__all__ = ["create_trail"]

_TRAIL: Final = """create table if not exists trail (
    writer text not null,
    last bigint not null,
    count bigint not null,
    from_us bigint not null,
    to_us bigint not null,
    subject text,
    key_id text not null,
    root text not null,
    previous text not null,
    hash text not null,
    data text not null,
    primary key (writer, last)
)"""

# A page with entries of several subjects has no `subject`, and a row here for each of them.
_SUBJECTS: Final = """create table if not exists trail_subjects (
    subject text not null,
    from_us bigint not null,
    writer text not null,
    last bigint not null,
    primary key (subject, from_us, writer, last)
)"""

# What a migration on its way down finds in the table `audit` of 2.5.0.  A number for each such
# way: a chain may have begun anew in between.
_KEPT: Final = """create table if not exists trail_kept (
    kept bigint not null,
    writer text not null,
    seq bigint not null,
    at_us bigint not null,
    request_id text not null,
    subject text,
    key_id text,
    operation text not null,
    resource text not null,
    decision text not null,
    scope text not null,
    status bigint not null,
    client text not null,
    hash text not null,
    previous text not null,
    primary key (kept, writer, seq)
)"""

_AT: Final = "create index if not exists trail_at on trail (from_us)"
_SUBJECT_AT: Final = """create index if not exists trail_subject_at on trail (subject, from_us)
where subject is not null"""

_CREATE: Final = (
    Sql(f"{_TRAIL} without rowid", _TRAIL, registered=False),
    Sql(_AT, registered=False),
    Sql(_SUBJECT_AT, registered=False),
    Sql(f"{_SUBJECTS} without rowid", _SUBJECTS, registered=False),
    Sql(f"{_KEPT} without rowid", _KEPT, registered=False),
)


def create_trail() -> Statements[None]:
    """Make the tables where they are missing.  Only under the migration lock."""
    for sql in _CREATE:
        yield sql()
