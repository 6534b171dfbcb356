"""The URL of a database is another one in its file: the password of a role was changed.

A real PostgreSQL, of which a role needs its password.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

import anyio
import psycopg
import pytest
from attrs import define, field

from legation.effects import Program, Transact
from legation.store.health import ProbeWrite
from legation_host.host import Host
from legation_host.hosting import open_platform
from legation_host.loading import from_file

from ..engines import PASSWORD_GROUP, Cluster
from .cluster_kit import ask_json, await_true
from .command_kit import running

SECONDS: Final = 60.0
PLATFORM: Final = """
[databases.main]
url_file = "url"
auto_migrate = true

[databases.other]
url = "sqlite://"

[[agents]]
id = "desk"
"""


@define(eq=False)
class Role:
    """A role of a cluster, with a password that it needs, and a database of its own."""

    cluster: Cluster
    url: str
    name: str = field(factory=lambda: f"r_{token_hex(6)}", init=False)

    def create(self) -> None:
        """Make the role; others may be making the group of those that need a password."""
        try:
            self.cluster.run(f"create role {PASSWORD_GROUP} nologin")
        except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            pass
        self.cluster.run(f"create role {self.name} login in role {PASSWORD_GROUP}")
        self.cluster.run(f"grant all on schema public to {self.name}", self.database)

    @property
    def database(self) -> str:
        """The name of the database."""
        return urlsplit(self.url).path[1:]

    def change(self, password: str) -> None:
        """Give it another password."""
        self.cluster.run(f"alter role {self.name} password '{password}'")

    def share_with(self, other: Role) -> str:
        """Let a role own what both have made and will make; return its name."""
        group = f"{self.name}_both"
        self.cluster.run(f"create role {group} nologin")
        self.cluster.run(f"grant all on schema public to {group}", self.database)
        self.cluster.run(f"reassign owned by {self.name} to {group}", self.database)
        for one in (self, other):
            self.cluster.run(f"grant {group} to {one.name}")
            self.cluster.run(f"alter role {one.name} set role {group}")
        return group

    def lock(self) -> None:
        """Let nobody open a connection with it any more."""
        self.cluster.run(f"alter role {self.name} nologin")

    @property
    def connections(self) -> int:
        """How many connections it has."""
        asked = "select count(*) from pg_stat_activity where usename = %s"
        with psycopg.connect(self.url) as connection:
            ((found,),) = connection.execute(asked, [self.name]).fetchall()
        return int(found)

    def drop(self) -> None:
        """Take it away, with what it has in the database."""
        self.end_sessions()
        self.cluster.run(f"drop owned by {self.name}", self.database)
        self.cluster.run(f"drop role {self.name}")

    def url_with(self, password: str) -> str:
        """Return the URL with a password."""
        parts = urlsplit(self.url)
        place = f"{self.name}:{password}@{parts.hostname}:{parts.port}"
        return urlunsplit(parts._replace(netloc=place))

    def end_sessions(self) -> None:
        """End every connection of the role, as a restart of the server does."""
        self.cluster.run(
            f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{self.name}'"
        )


@pytest.fixture
def role(postgres_cluster: Cluster) -> Generator[Role]:
    with postgres_cluster.new_database() as url:
        made = Role(postgres_cluster, url)
        made.create()
        made.change("first")
        try:
            yield made
        finally:
            made.drop()


@define(eq=False)
class Serving:
    """An open platform: its lines, and questions to its database."""

    host: Host
    lines: list[tuple[str, Mapping[str, Any]]]

    async def heard(self, event: str, times: int = 1) -> Mapping[str, Any]:
        """Wait until a line was written so often, and return its fields."""
        with anyio.fail_after(SECONDS):
            while True:
                found = [fields for name, fields in self.lines if name == event]
                if len(found) >= times:
                    return found[-1]
                await anyio.sleep(0.02)

    async def ask(self) -> None:
        """Write to the database, in a transaction."""
        await self.host.run(_ask())


def _ask() -> Program[None]:
    yield from Transact("main", ProbeWrite())


async def serve(role: Role, folder: Path) -> None:
    """Change the password under an open platform, and end its connections."""
    path = folder / "url"
    path.write_text(role.url_with("first"))
    (folder / "platform.toml").write_text(PLATFORM)
    lines: list[tuple[str, Mapping[str, Any]]] = []
    platform = from_file(folder / "platform.toml", {})
    opened = open_platform(platform, log=lambda _, event, fields: lines.append((event, fields)))
    async with opened as host:
        serving = Serving(host, lines)
        await serving.ask()

        await anyio.to_thread.run_sync(role.change, "second")
        path.write_text(role.url_with("second"))
        assert await serving.heard("database_url_renewed") == {"database": "main"}
        await anyio.to_thread.run_sync(role.end_sessions)
        await serving.ask()
        await serving.heard("hints_restored")

        path.write_text(role.url_with("second").replace(role.database, "postgres"))
        kept = await serving.heard("database_url_kept")
        assert kept["reason"] == (
            "databases.main.url: only the user, the password and TLS may change while it is open;"
            " all else takes a restart"
        )
        path.write_text("sqlite:///elsewhere.db")
        await serving.heard("database_url_kept", 2)
        await serving.ask()

    secrets = ("first", "second", role.url)
    assert not any(secret in repr(fields) for _, fields in lines for secret in secrets)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_changed_password_of_a_database_is_used_without_a_restart(
    role: Role, tmp_path: Path, backend: str
) -> None:
    anyio.run(serve, role, tmp_path, backend=backend)


def test_without_the_new_url_a_new_connection_is_refused(role: Role) -> None:
    """The server of the tests does ask for the password."""
    role.change("second")

    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(role.url_with("first"))
    psycopg.connect(role.url_with("second")).close()


@pytest.fixture
def other_role(role: Role) -> Generator[Role]:
    made = Role(role.cluster, role.url)
    made.create()
    made.change("other")
    try:
        yield made
    finally:
        made.drop()


@pytest.fixture
def share_tables(role: Role, other_role: Role) -> Generator[Callable[[], None]]:
    groups: list[str] = []
    yield lambda: groups.append(role.share_with(other_role))
    for group in groups:
        role.cluster.run(f"drop owned by {group}", role.database)
        role.cluster.run(f"drop role {group}")


def test_another_role_takes_over_without_a_gap(
    role: Role, other_role: Role, share_tables: Callable[[], None], tmp_path: Path
) -> None:
    path = tmp_path / "url"
    path.write_text(role.url_with("first"))
    other = f"sqlite:///{tmp_path}/other.db"
    (tmp_path / "platform.toml").write_text(PLATFORM.replace("sqlite://", other))

    with running(tmp_path / "platform.toml", "--port", "0", "--workers", "2") as command:
        port, target = command.port(), "/agents/desk/runs"

        def is_answered() -> bool:
            status, run = ask_json(port, "POST", target, message="hello", stream="false")
            return (status, run["status"]) == (200, "COMPLETED")

        assert is_answered()
        share_tables()
        (tmp_path / "new").write_text(other_role.url_with("other"))
        (tmp_path / "new").rename(path)
        command.until(lambda: len(command.named("database_url_renewed")) == 2)
        assert is_answered()
        assert role.connections > 0

        command.signal(signal.SIGHUP)
        await_true(lambda: role.connections == 0)
        role.lock()
        assert is_answered()
        assert other_role.connections > 0
        assert ask_json(port, "GET", "/sessions?db_id=main")[1]["meta"]["total_count"] == 3
