"""`legation doctor` names each fault that is planted, and none where there is none."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final, cast

import psycopg
import pytest
from attrs import define, field
from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from legation.diagnosis.files import judge_sqlite
from legation.effects import FetchReply
from legation.findings import Finding, find
from legation.store.nodes import Beat
from legation.store.runs import StartRun
from legation.version import VERSION
from legation_cli import main
from legation_cli.probes import Probe, examine, gather_sqlite
from legation_host.commit_lock import has_wal_reset_bug
from legation_host.databases import open_writer
from legation_testing import Client

from ..callers import Issuer
from ..engines import Cluster
from ..http_threads import Quiet, ThreadedServer, serve
from ..pooler import NoPooler, pooled, through
from ..providers.deliveries import ENVIRON as CHANNEL_SECRETS
from ..providers.deliveries import platform as with_channels
from ..providers.deliveries import whatsapp
from ..providers.soak import platform_file
from ..transcripts import ROOT
from .command_kit import running

PLATFORM: Final = """
[platform]
id = "office"
authorization = true
cors_default_origin = false

[authorization_config]
jwks_file = "keys.json"
require = ["exp"]
verify_audience = true

[retention]
sessions_days = 30
trail_days = 30

[[audit.keys]]
id = "one"
secret_env = "AUDIT_KEY"

[databases.main]
url = "{main}"
auto_migrate = true

[databases.second]
url = "{second}"
auto_migrate = true

[models.large]
provider = "openai"
id = "gpt"
base_url = "{provider}/v1"
api_key_env = "MODEL_KEY"

[[agents]]
id = "desk"
model = "large"
"""
SECRET: Final = "x5Vd0Yk3Jq8Tz1Lw6Rb9Nc2Mf7Hg4PsAeUoIyKtXvZQ"
ENVIRON: Final = {"AUDIT_KEY": SECRET, "MODEL_KEY": "sk-canary"}
OF_MACHINE: Final = frozenset({"fsync_slow", "open_files_low", "connections_scarce"})
"""What a machine of tests may have, whatever the platform; and below, what it may run on."""

OF_ENGINE: Final = frozenset({"sqlite_wal_reset_bug", "postgresql_not_durable"})
OF_FOLDER: Final = frozenset({"database_volatile", "disk_low", "inodes_low"})


@define(eq=False)
class ModelServer(ThreadedServer):
    """A provider of models that answers every request alike."""

    status: int = 200
    ahead: float = 0.0
    asked: list[tuple[str, str]] = field(factory=list[tuple[str, str]])

    def __attrs_pre_init__(self) -> None:
        super().__init__(_Models)


class _Models(Quiet, BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast("ModelServer", self.server)
        server.asked.append((self.path, self.headers.get("authorization", "")))
        self.send_response_only(server.status)
        self.send_header("date", formatdate(time.time() + server.ahead, usegmt=True))
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


@pytest.fixture
def provider() -> Generator[ModelServer]:
    server = ModelServer()
    with serve(server):
        yield server


def address_of(server: ModelServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def typed(*words: str, **environ: str) -> Result:
    command = ["doctor", *words, "--json"]
    return CliRunner(env={**ENVIRON, **environ}).invoke(main, command, catch_exceptions=False)


def told(result: Result, *, all_of_them: bool = False) -> list[tuple[str, str]]:
    """Return the code and the path of each finding, but for those of the machine itself."""
    passed_over = frozenset[str]() if all_of_them else OF_MACHINE | OF_ENGINE | OF_FOLDER
    found = json.loads(result.stdout)["findings"]
    return [(one["code"], one["path"]) for one in found if one["code"] not in passed_over]


def write(folder: Path, provider: str = "http://127.0.0.1:9", second: str = "") -> str:
    """Write a platform of two databases, with keys; return the path of its file."""
    (folder / "keys.json").write_text(json.dumps({"keys": [Issuer(kid="k").jwk]}))
    urls = {"main": f"sqlite:///{folder}/main.db", "second": f"sqlite:///{folder}/second.db"}
    urls["second"] = second or urls["second"]
    path = folder / "platform.toml"
    path.write_text(PLATFORM.format(**urls, provider=provider))
    return str(path)


def migrate(file: str, *names: str) -> None:
    for name in names or ("main", "second"):
        done = CliRunner(env=ENVIRON).invoke(main, ["migrate", file, name])
        assert done.exit_code == 0, done.output


@pytest.fixture
def file(tmp_path: Path, provider: ModelServer) -> str:
    """The path of a platform in which nothing is wrong."""
    path = write(tmp_path, address_of(provider))
    migrate(path)
    return path


def write_certificate(path: Path, days: float) -> str:
    """Write a certificate that expires in so many days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=90))
    signed = made.not_valid_after(now + timedelta(days=days)).sign(key, hashes.SHA256())
    path.write_bytes(signed.public_bytes(Encoding.PEM))
    return str(path)


def statements(folder: Path, name: str = "main") -> Any:
    return closing(sqlite3.connect(folder / f"{name}.db", isolation_level=None))


# --- nothing is wrong -----------------------------------------------------------------------------


def test_nothing_is_found_where_nothing_is_wrong_while_it_is_served(
    tmp_path: Path, file: str, provider: ModelServer
) -> None:
    certificate = write_certificate(tmp_path / "tls.pem", 90)
    with running(file, env=ENVIRON) as command:
        command.until_served()
        result = typed(file, "--certfile", certificate)
        again = typed(file, "--certfile", certificate)

    assert told(result) == []
    assert {
        code for code, _ in told(result, all_of_them=True)
    } <= OF_MACHINE | OF_ENGINE | OF_FOLDER
    assert told(again) == []
    assert provider.asked == [("/v1/models", "Bearer sk-canary")] * 2
    assert "sk-canary" not in result.output


def test_the_versions_of_all_that_matters_are_told(file: str) -> None:
    facts = json.loads(typed(file, "--offline").stdout)["facts"]

    assert {"legation", "python", "sqlite", "openssl", "cryptography"} <= facts["versions"].keys()
    assert facts["databases.main"]["sqlite"] == sqlite3.sqlite_version
    assert facts["databases.second"]["fsync"].endswith(" ms")


def test_nothing_is_changed(tmp_path: Path, file: str, provider: ModelServer) -> None:
    def read_all() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = read_all()
    typed(file, "--offline")

    assert read_all() == before
    assert provider.asked == []


def test_a_database_that_is_not_there_yet_is_not_made(tmp_path: Path) -> None:
    file = write(tmp_path)
    result = typed(file, "--offline", "--strict")

    assert told(result) == [
        ("database_missing", "databases.main"),
        ("database_missing", "databases.second"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.json", "platform.toml"]


def test_a_person_reads_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "platform.toml").write_text("")
    command = ["doctor", str(tmp_path / "platform.toml"), "--offline"]
    result = CliRunner().invoke(main, command, catch_exceptions=False)

    assert result.exit_code == 1
    assert "versions: legation " in result.output
    assert (
        "high    platform.authorization is off: whoever reaches it may do anything\n"
        "        authorization_off: Run `legation keys new keys`, and follow its output.\n"
    ) in result.output


def test_a_person_reads_that_nothing_is_wrong(file: str) -> None:
    command = ["doctor", file, "--offline"]
    result = CliRunner(env=ENVIRON).invoke(main, command, catch_exceptions=False)
    unsound = json.loads(typed(file, "--offline").stdout)["findings"]

    assert result.output.endswith("Nothing wrong was found.\n") == (result.exit_code == 0)
    assert result.exit_code == any(one["severity"] != "low" for one in unsound)


def test_a_configuration_that_cannot_be_read_is_code_2(tmp_path: Path) -> None:
    (tmp_path / "platform.toml").write_text("[")

    assert CliRunner().invoke(main, ["doctor", str(tmp_path / "platform.toml")]).exit_code == 2


# --- ten faults -----------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path) -> Generator[bool]:
    """Put a small file system at `folder`, where the system lets us; tell whether it did."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", str(folder)], check=True)


def test_1_a_full_disk(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    file = write(tmp_path, second=f"sqlite:///{folder}/second.db")
    migrate(file)
    with small_disk(folder) as mounted:
        if not mounted:  # then what `statvfs` would say is judged in tests/core/diagnosis
            return
        migrate(file, "second")
        with (folder / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError):
            while True:
                ballast.write(b"\0" * 65_536)
        result = typed(file, "--offline")

        assert not list(folder.glob(".*"))
    assert result.exit_code == 1
    assert ("disk_full", "databases.second") in told(result)
    assert "databases.main" not in {path for _, path in told(result)}


def test_2_a_wrong_clock_by_that_of_a_database(postgres: str) -> None:
    """In a process of its own, whose clock the platform of the tests sets."""
    for ahead, codes in ((0.0, set[str]()), (-90.0, {"clock_differs"})):
        environ = {**os.environ, "CLUSTER_URL": postgres, "CLUSTER_CLOCK": str(ahead)}
        environ["PYTHONPATH"] = os.pathsep.join((str(ROOT), environ.get("PYTHONPATH", "")))
        command = [sys.executable, "-m", "legation_cli", "doctor", "--json", "--offline"]
        target = "tests.providers.clustered:platform"
        done = subprocess.run(
            [*command, target], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
        )
        found = json.loads(done.stdout)["findings"]

        assert {one["code"] for one in found} & {"clock_differs"} == codes


def test_2_a_wrong_clock_by_that_of_a_provider(file: str, provider: ModelServer) -> None:
    provider.ahead = 90.0

    assert told(typed(file)) == [("clock_differs", "models.large")]


def test_3_an_undeclared_pooler(
    tmp_path: Path, provider: ModelServer, postgres_cluster: Cluster, postgres_database: str
) -> None:
    try:
        with pooled(postgres_cluster) as port:
            second = through(postgres_database, port, "")
            file = write(tmp_path, address_of(provider), second)
            migrate(file)
            result = typed(file)
            declared = write(tmp_path, address_of(provider), f"{second}?pgbouncer=true")
            mended = typed(declared)
    except NoPooler as reason:
        pytest.skip(str(reason))

    assert told(result) == [("pooler_undeclared", "databases.second")]
    assert told(mended) == []


def test_4_a_stale_key_set(tmp_path: Path, file: str) -> None:
    keys = tmp_path / "keys.json"
    whole = keys.read_bytes()
    for spoil in (keys.unlink, lambda: keys.write_bytes(whole[:-1]), lambda: keys.write_text("{}")):
        spoil()

        assert told(typed(file)) == [("keys_unreadable", "authorization_config.jwks_file")]


def test_5_a_provider_that_is_down(tmp_path: Path) -> None:
    file = write(tmp_path)  # nobody listens at its port
    migrate(file)

    assert told(typed(file)) == [("provider_unreachable", "models.large")]
    assert told(typed(file, "--offline")) == []


@pytest.mark.parametrize(
    ("status", "found"), [(401, "provider_refuses_key"), (503, "provider_failing")]
)
def test_5_a_provider_that_answers_and_does_not_serve(
    file: str, provider: ModelServer, status: int, found: str
) -> None:
    provider.status = status

    assert told(typed(file)) == [(found, "models.large")]


def test_6_dead_letters(tmp_path: Path) -> None:
    file = platform_file(tmp_path, f"sqlite:///{tmp_path / 'main.db'}", "http://127.0.0.1:9")
    client = Client(with_channels, folder=tmp_path, fetch=lambda _: FetchReply(400, {}, b"{}"))
    with client as c:
        sent = whatsapp(("4911", "a", "canary"))
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.settle()
    result = typed(str(file), "--offline", **CHANNEL_SECRETS)

    assert ("dead_letters", "channels.whatsapp") in told(result)
    assert "canary" not in result.output


def beat(url: str, node: str) -> None:
    """Let a node beat in the database at `url`."""
    versions = {"code_version": VERSION, "schema_version": "2.14.0"}
    with open_writer("main", url) as run:
        run(Beat(node, 30_000_000, 0, (), "", session_lock=False, **versions))


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_7_a_dead_node(
    tmp_path: Path, file: str, engine: str, request: pytest.FixtureRequest
) -> None:
    """Two nodes beat; then the up-time goes on without one of them, and without either."""
    url = f"sqlite:///{tmp_path}/second.db"
    if engine == "postgresql":
        url = request.getfixturevalue("postgres")
        text = Path(file).read_text().replace(f"sqlite:///{tmp_path}/second.db", url)
        Path(file).write_text(text)
        migrate(file, "second")
    beat(url, "alive")
    beat(url, "dead")
    with open_writer("second", url) as run:
        run(StartRun("ada", "s", "r", "agent", "desk", "{}", "", "buried", 1))
    change = "update nodes set beat_us = beat_us - 31000000 where node_id = 'dead'"
    if engine == "sqlite":
        with statements(tmp_path, "second") as connection:
            connection.execute(change)
    else:
        with psycopg.connect(url) as server:
            server.execute(change.encode())
    found = json.loads(typed(file).stdout)["findings"]

    silent = [one for one in found if one["code"] == "node_silent"]
    assert [one["path"] for one in silent] == ["databases.second"]
    assert "dead" in silent[0]["message"]
    assert "alive" not in silent[0]["message"]
    assert "runs_orphaned" in {one["code"] for one in found}


def test_8_a_sqlite_with_the_wal_reset_bug(tmp_path: Path, file: str) -> None:
    url = f"sqlite:///{tmp_path}/main.db"
    (low,) = judge_bug_of(url, (3, 50, 1))
    locks = tmp_path / "main.db-locks"
    if locks.exists():
        locks.rename(tmp_path / "elsewhere")
    locks.write_text("in the way")
    (medium,) = judge_bug_of(url, (3, 50, 1))

    assert judge_bug_of(url, (3, 51, 3)) == []
    assert (low.severity, medium.severity) == ("low", "medium")
    if has_wal_reset_bug(sqlite3.sqlite_version_info):
        found = json.loads(typed(file).stdout)["findings"]
        bug = {one["path"]: one["severity"] for one in found if "wal_reset" in one["code"]}
        assert bug == {"databases.main": "medium", "databases.second": "low"}


def judge_bug_of(url: str, version: tuple[int, int, int]) -> list[Finding]:
    facts = gather_sqlite("main", url, version)
    return [one for one in judge_sqlite("main", facts) if one.code == "sqlite_wal_reset_bug"]


def test_9_a_schema_that_is_behind(file: str) -> None:
    down = ["migrate", file, "second", "--to", "2.13.0", "--allow-data-loss"]
    assert CliRunner(env=ENVIRON).invoke(main, down).exit_code == 0
    result = typed(file)

    assert told(result) == [("schema_behind", "databases.second")]
    (found,) = (one for one in json.loads(result.stdout)["findings"] if "schema" in one["code"])
    assert found["remedy"] == "Run `legation migrate second`."


@pytest.mark.parametrize(
    ("days", "code"), [(3.0, "certificate_expires_soon"), (-3.0, "certificate_expired")]
)
def test_10_a_certificate_that_is_about_to_expire(
    tmp_path: Path, file: str, days: float, code: str
) -> None:
    certificate = write_certificate(tmp_path / "tls.pem", days)

    assert told(typed(file, "--certfile", certificate)) == [(code, "server.certfile")]


# --- half of it is broken, or hostile -------------------------------------------------------------


def test_every_fault_is_told_beside_all_others(tmp_path: Path) -> None:
    file = write(tmp_path, second="postgresql://nobody:hunter2@127.0.0.1:9/nothing")
    (tmp_path / "main.db").write_bytes(b"no database" * 1_000)
    (tmp_path / "keys.json").write_text("hello")
    result = typed(file, "--certfile", str(tmp_path / "keys.json"), AUDIT_KEY="")

    assert {code for code, _ in told(result)} >= {
        "certificate_unreadable",
        "database_unreachable",
        "keys_unreadable",
        "provider_unreachable",
        "secret_missing",
    }
    paths = {path for _, path in told(result)}
    assert {"databases.main", "databases.second", "audit.keys[0].secret_env"} <= paths
    assert "hunter2" not in result.output


def test_addresses_that_are_none_and_databases_in_memory_are_told(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("main.db")
    for second in (
        f"sqlite:///{tmp_path}/second.db?mode=ro",
        "mysql://host/name",
        f"sqlite:///{tmp_path}/nowhere/second.db",
        f"sqlite:///{tmp_path}/link.db",  # the file of another one
    ):
        result = typed(write(tmp_path, second=second), "--offline")

        assert ("database_unusable", "databases.second") in told(result)
        assert ("database_missing", "databases.main") in told(result)
    in_memory = typed(write(tmp_path, second="sqlite://"), "--offline")
    found = told(in_memory, all_of_them=True)
    assert ("database_volatile", "databases.second") in found


def test_a_broken_file_of_revocations_is_told(tmp_path: Path, file: str) -> None:
    (tmp_path / "revoked.json").write_text("[]")
    text = Path(file).read_text()
    Path(file).write_text(
        text.replace(
            "[authorization_config]", '[authorization_config]\nrevocations_file = "revoked.json"'
        )
    )

    assert told(typed(file)) == [
        ("revocations_unreadable", "authorization_config.revocations_file")
    ]


def test_a_fifo_and_a_huge_file_keep_nobody_waiting(tmp_path: Path, file: str) -> None:
    keys = tmp_path / "keys.json"
    keys.unlink()
    os.mkfifo(keys)
    huge = tmp_path / "huge.pem"
    with huge.open("wb") as sparse:
        sparse.truncate(1 << 33)
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    result = typed(file, "--offline", "--certfile", str(pipe), "--certfile", str(huge))

    assert sorted(told(result)) == [
        ("certificate_unreadable", "server.certfile"),
        ("certificate_unreadable", "server.certfile"),
        ("keys_unreadable", "authorization_config.jwks_file"),
    ]
    keys.unlink()
    with keys.open("wb") as sparse:
        sparse.truncate(1 << 33)
    assert told(typed(file, "--offline")) == [("keys_unreadable", "authorization_config.jwks_file")]


def test_a_provider_and_a_server_of_databases_that_hang_are_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        file = write(tmp_path, f"http://{address}", f"postgresql://ada@{address}/main")
        migrate(file, "main")

        assert told(typed(file)) == [
            ("database_unreachable", "databases.second"),
            ("provider_unreachable", "models.large"),
        ]


def test_a_probe_that_hangs_or_breaks_is_a_finding_and_not_the_end() -> None:
    release = threading.Event()

    def hang(_: object) -> Iterator[Finding]:
        yield find("tls_off", "a", "found before")
        release.wait()

    def break_down(_: object) -> Iterator[Finding]:
        raise KeyError("canary")
        yield

    def succeed(note: Any) -> Iterator[Finding]:
        note("part", "name", "value")
        yield find("hsts_off", "c", "")

    probes = [Probe("a", hang), Probe("b", break_down), Probe("c", succeed)]
    examination = examine(probes, 0.5)
    release.set()

    assert [(one.code, one.path) for one in examination.findings] == [
        ("not_examined", "a"),
        ("not_examined", "b"),
        ("hsts_off", "c"),
    ]
    assert examination.findings[1].message == "cannot be looked at: KeyError"
    assert examination.facts == {"part": {"name": "value"}}
