"""compose.yaml: read by Docker's own program, and each path, port and command in it is real."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from legation_host.loading import from_file
from legation_server.settings import DEFAULT

from .commands import parse
from .container import read_containerfile
from .programs import DEPLOY, ROOT

SECONDS: Final = 120
SECRETS: Final = {
    "postgres_password",
    "database_url",
    "grafana_password",
    "scraper_token",
    "audit_key",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of deploy/, with the secrets that its script makes."""
    made = tmp_path_factory.mktemp("compose") / "deploy"
    shutil.copytree(DEPLOY, made, ignore=shutil.ignore_patterns("secrets", ".env"))
    make_secrets(made)
    return made


def make_secrets(folder: Path) -> None:
    env = {**os.environ, "LEGATION": f"{sys.executable} -m legation_cli"}
    subprocess.run(["./make-secrets.sh"], cwd=folder, env=env, check=True, timeout=SECONDS,
                   capture_output=True)  # fmt: skip


@pytest.fixture(scope="module")
def model(folder: Path) -> dict[str, Any]:
    """The file as Docker's program understands it."""
    pytest.importorskip("yaml", reason="nox -s deploy installs it")
    compose = Path(sys.executable).with_name("docker-compose")
    command = [str(compose), "--file", str(folder / "compose.yaml"), "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_without_secrets_the_file_says_how_to_make_them(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "compose.yaml", tmp_path)
    compose = Path(sys.executable).with_name("docker-compose")
    command = [str(compose), "--file", str(tmp_path / "compose.yaml"), "config"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)

    assert done.returncode != 0
    assert "run make-secrets.sh" in done.stderr


def test_secrets_are_made_once_and_are_long(folder: Path) -> None:
    before = {
        path.name: path.read_bytes() for path in (folder / "secrets").iterdir() if path.is_file()
    }
    make_secrets(folder)
    after = {
        path.name: path.read_bytes() for path in (folder / "secrets").iterdir() if path.is_file()
    }

    assert before == after
    assert before.keys() == SECRETS
    assert all(len(secret) >= 32 for secret in before.values())
    assert len(set(before.values())) == len(before)
    url = urlsplit(before["database_url"].decode())
    assert (url.username, url.hostname, url.path) == ("legation", "postgres", "/legation")
    assert url.password == before["postgres_password"].decode()
    assert stat.S_IMODE((folder / "secrets").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "secrets/keys/private.pem").stat().st_mode) == 0o600


def test_what_is_made_is_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()

    assert {"/deploy/.env", "/deploy/secrets/"} <= {*ignored}


def test_no_password_stands_in_the_file(model: dict[str, Any]) -> None:
    words = ("PASSWORD", "SECRET", "TOKEN")
    for service in model["services"].values():
        for name, value in service.get("environment", {}).items():
            if any(word in name for word in words):
                assert name.endswith("_FILE")
                assert value.startswith("/run/secrets/")


def test_each_service_is_confined(model: dict[str, Any]) -> None:
    for name, service in model["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged", False), name
        assert service["restart"] == ("no" if name == "migrate" else "unless-stopped"), name
        assert ("healthcheck" in service) != (name == "migrate"), name


def test_ports_are_of_this_machine_alone(model: dict[str, Any]) -> None:
    every = [port for service in model["services"].values() for port in service.get("ports", ())]

    assert {port["host_ip"] for port in every} == {"127.0.0.1"}
    assert {int(port["published"]) for port in every} == {3000, 7777}
    assert model["networks"]["database"]["internal"] is True
    assert model["services"]["postgres"]["networks"].keys() == {"database"}


def test_each_mount_is_a_file_of_this_folder(model: dict[str, Any], folder: Path) -> None:
    mounts = [
        mount
        for service in model["services"].values()
        for mount in service.get("volumes", ())
        if mount["type"] == "bind"
    ]

    assert len(mounts) > 4
    for mount in mounts:
        assert mount["read_only"] is True
        assert Path(mount["source"]).is_relative_to(folder)
        assert Path(mount["source"]).exists(), mount["source"]


def test_each_secret_is_a_file_that_the_script_makes(model: dict[str, Any]) -> None:
    files = {name: Path(secret["file"]) for name, secret in model["secrets"].items()}
    used = {
        secret["source"]
        for service in model["services"].values()
        for secret in service.get("secrets", ())
    }

    assert files.keys() == used == SECRETS
    assert all(path.is_file() for path in files.values())


@pytest.mark.parametrize("name", ["migrate", "legation"])
def test_commands_are_those_of_the_real_command_line(model: dict[str, Any], name: str) -> None:
    service = model["services"][name]
    (mount,) = (one for one in service["volumes"] if one["type"] == "bind")

    assert parse(service["command"])
    assert service["command"][1] == "platform.toml"
    assert mount["target"] == f"{read_containerfile()[-1].folder}/platform.toml"
    assert service["image"] == "legation"


def test_order_of_the_start_is_database_migration_server(model: dict[str, Any]) -> None:
    services = model["services"]
    waits = {name: set(services[name].get("depends_on", {})) for name in services}

    assert waits["migrate"] == {"postgres"}
    assert waits["legation"] == {"postgres", "migrate"}
    condition = services["legation"]["depends_on"]["migrate"]["condition"]
    assert condition == "service_completed_successfully"


def test_server_has_the_time_that_it_needs_to_drain(model: dict[str, Any]) -> None:
    stop = model["services"]["legation"]["stop_grace_period"]

    assert int(stop.removesuffix("s")) > DEFAULT.drain_seconds


def test_health_of_the_server_is_asked_as_the_image_asks(model: dict[str, Any]) -> None:
    test = model["services"]["legation"]["healthcheck"]["test"]

    assert test == ["CMD", *read_containerfile()[-1].health]


def test_platform_of_the_file_has_no_fault(folder: Path) -> None:
    text = (folder / "platform.toml").read_text().replace("/run/secrets/", f"{folder}/secrets/")
    (folder / "platform.toml").write_text(text)
    key = (folder / "secrets/keys/public.pem").read_text()
    platform = from_file(folder / "platform.toml", {"JWT_VERIFICATION_KEY": key})

    assert platform.databases["main"].startswith("postgresql://legation:")
    assert platform.config.authorization


def test_prometheus_finds_its_files_and_the_server(model: dict[str, Any], folder: Path) -> None:
    yaml: Any = pytest.importorskip("yaml", reason="nox -s deploy installs it")
    service = model["services"]["prometheus"]
    config = yaml.safe_load((folder / "prometheus/prometheus.yml").read_text())
    (scrape,) = config["scrape_configs"]
    targets = {mount["target"] for mount in service["volumes"]}
    (secret,) = service["secrets"]

    assert "--config.file=/etc/prometheus/prometheus.yml" in service["command"]
    assert "/etc/prometheus/prometheus.yml" in targets
    assert secret["target"] == f"/etc/prometheus/{scrape['authorization']['credentials_file']}"
    assert all(f"/etc/prometheus/{name}" in targets for name in config["rule_files"])
    (job,) = scrape["static_configs"]
    assert job["targets"] == ["legation:7777"]
    assert service["networks"].keys() & model["services"]["legation"]["networks"].keys()


def test_grafana_finds_its_dashboards_and_prometheus(model: dict[str, Any], folder: Path) -> None:
    yaml: Any = pytest.importorskip("yaml", reason="nox -s deploy installs it")
    service = model["services"]["grafana"]
    provisioning = folder / "grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    (provider,) = yaml.safe_load((provisioning / "dashboards/legation.yml").read_text())[
        "providers"
    ]
    targets = {mount["target"] for mount in service["volumes"]}

    assert source["url"] == "http://prometheus:9090"
    assert provider["options"]["path"] in targets
    assert "/etc/grafana/provisioning" in targets
