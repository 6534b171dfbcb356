"""A real Prometheus that scrapes servers of the tests every second, and `promtool`.

Both come from Debian's package `prometheus`: `nox -s tests` installs it where it may.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from attrs import field, frozen

from .ports import free_port

__all__ = [
    "DASHBOARD",
    "DEPLOY",
    "RULES",
    "NoPrometheus",
    "Prometheus",
    "Target",
    "expressions",
    "names_in",
    "promtool",
    "watching",
]

DEPLOY: Final = Path(__file__).parents[1] / "deploy"
RULES: Final = DEPLOY / "prometheus/alerts.yml"
DASHBOARD: Final = DEPLOY / "grafana/dashboards/legation.json"


_PATIENCE: Final = 120.0  # of a machine that has other things to do
_NAME: Final = re.compile(r"\b(?:legation|process)_[a-z0-9_]+")
_SUFFIX: Final = re.compile(r"_(?:bucket|sum|count)\Z")


class NoPrometheus(Exception):
    """There is no Prometheus on this machine; the tests that need it are skipped."""


@frozen
class Target:
    """A server to scrape, at `https://127.0.0.1:port`, for a job."""

    job: str
    port: int = field(factory=free_port)

    @property
    def instance(self) -> str:
        """The label of its series."""
        return f"127.0.0.1:{self.port}"


@frozen
class Prometheus:
    """A Prometheus that runs."""

    address: str
    process: subprocess.Popen[bytes] = field(repr=False)

    def get(self, path: str, **query: str) -> Any:
        """Return the data of an answer of the API."""
        with urlopen(f"{self.address}/api/v1/{path}?{urlencode(query)}", timeout=20) as reply:
            return json.load(reply)["data"]

    def query(self, expression: str) -> list[tuple[Mapping[str, str], float]]:
        """Return the series of an expression now, each with its labels and its value."""
        found = self.get("query", query=expression)
        assert found["resultType"] == "vector", expression
        return [(one["metric"], float(one["value"][1])) for one in found["result"]]

    def alerts(self, job: str) -> dict[str, list[Mapping[str, str]]]:
        """Return the labels of the alerts of `job` whose expression is true, by their name."""
        found: dict[str, list[Mapping[str, str]]] = {}
        for one in self.get("alerts")["alerts"]:
            if one["labels"].get("job") == job:
                found.setdefault(one["labels"]["alertname"], []).append(one["labels"])
        return found

    def until(self, told: Callable[[], Any], missing: Callable[[], object] = str) -> None:
        """Wait until something is true; a test that waits too long says what is missing."""
        due = time.monotonic() + _PATIENCE
        while not told():
            assert self.process.poll() is None, "Prometheus has ended"
            assert time.monotonic() < due, missing()
            time.sleep(0.2)


@contextmanager
def watching(
    folder: Path, targets: Sequence[Target], token: str, rules: Path = RULES
) -> Generator[Prometheus]:
    """Run Prometheus in `folder`, with these rules, until the block ends."""
    binary = _find("prometheus")
    (folder / "scraper.token").write_text(token)
    (folder / "prometheus.json").write_text(json.dumps(_configuration(targets, rules)))  # is YAML
    port = free_port()
    options = (
        f"--config.file={folder / 'prometheus.json'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([binary, *options], stdout=log, stderr=log, cwd=folder)
    try:
        _wait_until_ready(process, port, folder / "prometheus.log")
        yield Prometheus(f"http://127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()


def _configuration(targets: Sequence[Target], rules: Path) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {
                "job_name": job,
                "metrics_path": "/metrics/prometheus",
                "authorization": {"credentials_file": "scraper.token"},
                "scheme": "https",
                "tls_config": {"insecure_skip_verify": True},
                "static_configs": [{"targets": [t.instance for t in targets if t.job == job]}],
            }
            for job in dict.fromkeys(target.job for target in targets)
        ],
    }


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    due = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < due:
        try:
            urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"Prometheus did not start: {log.read_text()}")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `promtool`; return how it ended, and what it printed."""
    command = [_find("promtool"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _find(name: str) -> str:
    binary = shutil.which(name)
    if binary is None:
        raise NoPrometheus(f"no {name} here: apt-get install prometheus, or put it on PATH")
    return binary


def expressions(window: str = "1m") -> dict[str, str]:
    """Return the queries of the dashboard, by panel, as Grafana sends them with all selected."""
    board = json.loads(DASHBOARD.read_text("utf-8"))
    chosen = {"$__rate_interval": window, "$job": "legation.*"}
    chosen |= {"$instance": ".*", "$database": ".*"}
    found: dict[str, str] = {}
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in chosen.items():
                expression = expression.replace(name, value)
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def names_in(expression: str) -> set[str]:
    """Return the metrics of the server that an expression names, as families."""
    return {_SUFFIX.sub("", name) for name in _NAME.findall(expression)}
