from __future__ import annotations

import os
from pathlib import Path

import pytest

from legation.store.units import Dialect
from legation_host import BadDatabaseUrl, UnusableDatabase, open_database
from legation_host.databases import check_files, sqlite_path
from legation_host.postgres import PostgresDatabase, _options

from .host_units import Create, Put, run


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite://", ":memory:"),
        ("sqlite:///:memory:", ":memory:"),
        ("sqlite:///a.db", "a.db"),
        ("sqlite:///folder/a.db", "folder/a.db"),
        ("sqlite:////var/lib/a.db", "/var/lib/a.db"),
        ("sqlite:////var/lib/with%20blank.db", "/var/lib/with blank.db"),
    ],
)
def test_a_sqlite_url_names_a_path(url: str, path: str) -> None:
    assert sqlite_path("main", url) == path


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.db",
        "/var/lib/a.db",
        "mysql://host/name",
        "sqlite:a.db",
        "sqlite:/a.db",
        "sqlite://a.db",
        "sqlite:///",
        "sqlite:///a.db?mode=ro",
        "sqlite:///a.db#x",
        "sqlite:///a%00.db",
        "postgresql://host/name?pgbouncer=maybe",
        "postgresql://host/name?max_connections=0",
        "postgresql://host/name?max_connections=many",
        "postgresql://user:hunter2@host/name?no_such_option=1",
        "postgresql://user:hunter2@[host/name",
        "sqlite://[a.db",
    ],
)
def test_another_url_is_refused_with_its_place_and_without_its_password(url: str) -> None:
    with pytest.raises(BadDatabaseUrl, match=r"^databases\.main\.url: ") as raised:
        open_database("main", url)

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_relative_url_is_below_the_working_directory(backend: str, tmp_path: Path) -> None:
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        database = open_database("main", "sqlite:///a.db")

        async def main() -> None:
            await database.run(Create())
            await database.run(Put("ada"))
            await database.aclose()

        run(backend, main)
    finally:
        os.chdir(before)

    assert (tmp_path / "a.db").exists()
    assert (database.name, database.dialect) == ("main", Dialect.SQLITE)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnusableDatabase, match="missing"):
        open_database("main", f"sqlite:///{tmp_path}/missing/a.db")


def test_a_postgresql_url_opens_nothing_yet() -> None:
    database = open_database("main", "postgresql://127.0.0.1:1/none")

    assert isinstance(database, PostgresDatabase)
    assert database.dialect is Dialect.POSTGRESQL


def test_options_of_ours_are_taken_out_and_those_of_libpq_stay() -> None:
    options = _options(
        "main",
        "postgresql://u@h/n?pgbouncer=true&max_connections=3&connect_timeout=1"
        "&options=-csearch_path%3Dx%20-cwork_mem%3D1MB",
    )

    assert (options.pgbouncer, options.connections) == (True, 3)
    assert "connect_timeout=1" in options.conninfo
    assert "search_path=x" in options.conninfo
    assert "work_mem=1MB" in options.conninfo
    assert "keepalives_idle=30" in options.conninfo
    assert "pgbouncer" not in options.conninfo


def test_two_databases_on_one_file_are_found_by_whatever_links(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.db").touch()
    (tmp_path / "link").symlink_to("folder", target_is_directory=True)
    (tmp_path / "soft.db").symlink_to("a.db")
    (tmp_path / "hard.db").hardlink_to(tmp_path / "a.db")
    for one, other in (
        ("a.db", "soft.db"),
        ("a.db", "hard.db"),
        ("folder/new.db", "link/new.db"),
        ("a.db", "folder/../a.db"),
    ):
        urls = {"one": f"sqlite:///{tmp_path}/{one}", "two": f"sqlite:///{tmp_path}/{other}"}
        with pytest.raises(
            BadDatabaseUrl, match=r"databases\.two\.url: .* is the file of databases\.one"
        ):
            check_files(urls)
    check_files(
        {
            "one": f"sqlite:///{tmp_path}/a.db",
            "two": f"sqlite:///{tmp_path}/folder/a.db",
            "three": "sqlite://",
            "four": "sqlite://",
            "five": "postgresql://u@h/a",
            "six": "postgresql://u@h/a",
        }
    )
