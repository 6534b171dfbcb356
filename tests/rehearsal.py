"""The services of deploy/compose.yaml as processes: a rehearsal of what an operator lives through.

    python -m tests.rehearsal [--before COMMIT] [--folder FOLDER]

It builds the wheels of this tree and of the release with the schema before, and installs each into
an environment of its own.  Then, on a PostgreSQL of its own and with the settings of
deploy/platform.toml: runs, an upgrade from the release before under traffic, `kill -9` of a node
under traffic, a backup under traffic and its restore into another database, and the queries of the
dashboard asked of a Prometheus that scrapes the server with deploy/prometheus.  Grafana itself is
not run.

Prometheus and pg_dump are looked for on PATH; wheels need `uv` and a package index.  It prints a
line for each step, with counts, and ends with exit code 1 at the first that fails.  It takes some
minutes: it is for the night, and no test of the suite.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

from attrs import define, field

from legation.migrations.catalogue import CATALOGUE

from .engines import Cluster, cluster
from .ports import free_port

__all__ = ["main"]

ROOT: Final = Path(__file__).parents[1]
DEPLOY: Final = ROOT / "deploy"
PATIENCE: Final = 180.0
CLIENTS: Final = 4
WORKERS: Final = "2"
SLOW: Final = """
[models.slow]
provider = "echo"
id = "slow"
delay_seconds = 4

[[agents]]
id = "sloth"
model = "slow"
"""
ELSEWHERE: Final = re.compile(
    r"SQLite|disk|Cost|[Tt]ool|Messages|Replies|Certificate|Findings|Refus|Cut|Failed|Deletions"
    r"|sweep|shares|Hints|Lost|Stale|First token"
)
"""Titles of panels whose cause is not part of this: tests/frontends/test_alerts_fire.py has it."""


class Failed(Exception):
    """A step of the rehearsal went wrong."""


def say(step: str, **counts: object) -> None:
    """Print the line of a step."""
    told = "  ".join(f"{name}={value}" for name, value in counts.items())
    line = f"{time.strftime('%H:%M:%S', time.gmtime())}  {step}  {told}"
    sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.flush()


def require(held: object, sentence: str) -> None:
    """End the rehearsal with `sentence` where something does not hold."""
    if not held:
        raise Failed(sentence)


def run(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command; return what it prints."""
    words = [str(word) for word in command]
    whole = None if env is None else {**os.environ, **env}
    done = subprocess.run(words, cwd=cwd, env=whole, capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}")
    return done.stdout


def until(told: Callable[[], object], sentence: str) -> None:
    """Wait until something is true."""
    due = time.monotonic() + PATIENCE
    while not told():
        require(time.monotonic() < due, sentence)
        time.sleep(0.2)


# --- Releases -----------------------------------------------------------------------------------


def find_before() -> str:
    """Return the last commit of the release whose schema was the one before."""
    newest = CATALOGUE.latest
    text = f"Version({newest.major}, {newest.minor}, {newest.patch})"
    path = "core/legation/migrations/catalogue.py"
    commits = run("git", "log", "--format=%H", f"-S{text}", "--", path).split()
    require(commits, f"no commit has added the schema {newest}")
    return f"{commits[-1]}^"


@define
class Release:
    """An installed wheel: its command, and what it says of itself."""

    folder: Path
    version: str = ""

    @property
    def command(self) -> Path:
        """The command line of it."""
        return self.folder / "venv/bin/legation"

    @classmethod
    def install(cls, folder: Path, tree: Path) -> Release:
        """Build the wheel of `tree`, and install it with the extras that compose.yaml needs."""
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        run(uv, "build", "--wheel", "--quiet", "--out-dir", folder / "dist", tree)
        (wheel,) = (folder / "dist").glob("*.whl")
        run(uv, "venv", "--quiet", "--python", sys.executable, folder / "venv")
        python = folder / "venv/bin/python"
        run(uv, "pip", "install", "--quiet", "--python", python, f"{wheel}[postgres]")
        made = cls(folder)
        made.version = run(made.command, "--version").split()[-1]
        return made


def unpack(commit: str, folder: Path) -> Path:
    """Write the tree of a commit into `folder`."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    run("git", "archive", f"--output={archive}", commit)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


# --- The platform and its servers ---------------------------------------------------------------


@define
class Site:
    """The folder of an operator: platform.toml, its secrets and keys."""

    folder: Path
    url: str
    path: str
    key: str = ""

    def write(self, release: Release) -> None:
        """Write the configuration of deploy/ with the paths of this folder, and its secrets."""
        secrets = self.folder / "secrets"
        secrets.mkdir(parents=True)
        (secrets / "database_url").write_text(self.url)
        (secrets / "audit_key").write_text("k" * 43)
        text = (DEPLOY / "platform.toml").read_text().replace("/run/secrets", str(secrets))
        (self.folder / "platform.toml").write_text(text + SLOW)
        run(release.command, "keys", "new", "keys", cwd=self.folder)
        self.key = (self.folder / "keys/public.pem").read_text()

    def type(self, release: Release, *words: str) -> str:
        """Run a command of a release here."""
        return run(release.command, *words, cwd=self.folder, env=self.env)

    @property
    def env(self) -> dict[str, str]:
        """The environment of servers and commands."""
        return {"JWT_VERIFICATION_KEY": self.key, "PATH": self.path}

    def token(self, release: Release, *scopes: str) -> str:
        """Return a token of the operator."""
        words = [word for scope in scopes for word in ("--scope", scope)]
        claims = ("--sub", "ada", "--aud", "front-office", "--expires", "2h")
        return self.type(release, "token", "--key", "keys/private.pem", *claims, *words).strip()


@define
class Server:
    """A node: `legation serve` with two workers."""

    port: int
    process: subprocess.Popen[bytes] = field(repr=False)
    log: Path

    def stop(self) -> None:
        """Let it drain."""
        self.process.send_signal(signal.SIGTERM)
        require(self.process.wait(PATIENCE) == 0, f"a server did not stop well: {self.log}")

    def kill(self) -> None:
        """Kill all of its processes at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serving(site: Site, release: Release, name: str) -> Generator[Server]:
    """Serve the platform until the block ends; it is up when this yields."""
    port, log = free_port(), site.folder / f"{name}.log"
    words = ("serve", "platform.toml", "--host", "127.0.0.1", "--port", str(port))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [release.command, *words, "--workers", WORKERS, "--log-format", "json"],
            cwd=site.folder,
            env={**os.environ, **site.env},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    server = Server(port, process, log)
    try:
        until(lambda: _is_ready(port, process), f"{name} did not start: {log}")
        yield server
    finally:
        server.kill()


def _is_ready(port: int, process: subprocess.Popen[bytes]) -> bool:
    require(process.poll() is None, "a server ended at its start")
    with suppress(OSError, HTTPException):
        return ask(port, "GET", "/ready")[0] == 200
    return False


def ask(port: int, method: str, path: str, token: str = "", **form: str) -> tuple[int, Any]:
    """Send a request; return the status and the JSON of the answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    head = {"authorization": f"Bearer {token}"} if token else {}
    if form:
        head["content-type"] = "application/x-www-form-urlencoded"
    try:
        connection.request(method, path, urlencode(form) if form else None, head)
        reply = connection.getresponse()
        body = reply.read()
    finally:
        connection.close()
    kind = reply.headers.get("content-type", "")
    return reply.status, json.loads(body) if kind.startswith("application/json") else body.decode()


# --- Traffic ------------------------------------------------------------------------------------


@define
class Traffic:
    """Clients that ask for runs all the while, as a proxy sends them: to `ports` in turns.

    Attributes:
        runs: The ids of those that were acknowledged.
        told: How many answers there were of each status; 0 stands for a broken connection.
    """

    token: str
    ports: list[int]
    runs: list[str] = field(factory=list[str])
    told: Counter[int] = field(factory=Counter[int])
    _ends: threading.Event = field(factory=threading.Event, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    @contextmanager
    def flow(self) -> Generator[None]:
        """Send requests until the block ends."""
        self._ends.clear()
        threads = [threading.Thread(target=self._send, args=(n,)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in threads:
                thread.join(PATIENCE)

    def _send(self, client: int) -> None:
        number = client
        while not self._ends.is_set():
            number += 1
            form = {"message": f"message {number}", "session_id": f"s-{client}"}
            if number % 3 == 0:
                form["background"] = "true"
            form["stream"] = "true" if number % 3 == 1 else "false"
            agent = "sloth" if number % 12 == 0 else "concierge"
            self._send_one(self.ports[number % len(self.ports)], agent, form)

    def _send_one(self, port: int, agent: str, form: Mapping[str, str]) -> None:
        try:
            status, body = ask(port, "POST", f"/agents/{agent}/runs", self.token, **form)
        except (OSError, HTTPException):
            status, body = 0, None
        found = re.search(r'"run_id":"([^"]+)"', json.dumps(body, separators=(",", ":")))
        if found is None and isinstance(body, str):
            found = re.search(r'"run_id":"([^"]+)"', body)
        with self._lock:
            self.told[status] += 1
            if status in (200, 202) and found is not None:
                self.runs.append(found[1])

    def count(self) -> dict[str, int]:
        """Return the counts so far, for a line of the log."""
        with self._lock:
            told = {f"status_{status}": count for status, count in sorted(self.told.items())}
            return {"acknowledged": len(self.runs), **told}

    def wait_for(self, more: int) -> None:
        """Wait until so many more runs are acknowledged."""
        before = len(self.runs)
        until(lambda: len(self.runs) >= before + more, "the traffic has come to a standstill")


def check_runs(site: Site, release: Release, wanted: Sequence[str]) -> Counter[str]:
    """Return the states of runs; each that was acknowledged has to be there."""
    said = json.loads(site.type(release, "runs", "list", "--limit", "100000", "--json"))
    states = {run["run_id"]: run["status"] for run in said["runs"]}
    lost = [run_id for run_id in wanted if run_id not in states]
    require(not lost, f"{len(lost)} acknowledged runs are not there, such as {lost[:3]}")
    return Counter(states[run_id] for run_id in wanted)


def wait_for_ends(site: Site, release: Release, wanted: Sequence[str]) -> Counter[str]:
    """Wait until each of these runs has ended; return their states."""
    open_states = {"PENDING", "RUNNING"}
    until(
        lambda: not open_states & check_runs(site, release, wanted).keys(),
        "runs do not come to their end",
    )
    return check_runs(site, release, wanted)


# --- The steps ----------------------------------------------------------------------------------


def upgrade(site: Site, old: Release, new: Release) -> Traffic:
    """Upgrade as docs/howto/migrating.md says, under traffic; no request may fail."""
    with ExitStack() as servers:
        before = servers.enter_context(serving(site, old, "before"))
        traffic = Traffic(site.token(new, "agents:run"), [before.port])
        with traffic.flow():
            traffic.wait_for(50)
            say("runs on the release before", version=old.version, **traffic.count())
            said = site.type(new, "migrate", "platform.toml", "main")
            say("migrated", said=said.strip().splitlines()[-1])
            traffic.wait_for(50)
            after = servers.enter_context(serving(site, new, "after"))
            traffic.ports[:] = [before.port, after.port]
            traffic.wait_for(50)
            traffic.ports[:] = [after.port]  # as a proxy that takes a node out
            before.stop()
            traffic.wait_for(50)
        say("upgraded", version=new.version, **traffic.count())
        failed = {s: n for s, n in traffic.told.items() if s not in (200, 202)}
        require(not failed, f"requests failed during the upgrade: {failed}")
        states = wait_for_ends(site, new, traffic.runs)
        say("runs after the upgrade", **states)
        require(states.keys() == {"COMPLETED"}, "not every run was completed")
        after.stop()
    return traffic


def kill_a_node(site: Site, new: Release, traffic: Traffic) -> None:
    """Kill one of two nodes under traffic: its runs go on at the other."""
    traffic.told.clear()
    with serving(site, new, "stays") as stays, serving(site, new, "dies") as dies:
        traffic.ports[:] = [stays.port, dies.port]
        with traffic.flow():
            traffic.wait_for(50)
            dies.kill()
            traffic.ports[:] = [stays.port]
            traffic.wait_for(50)
        say("killed a node", **traffic.count())
        others = {s: n for s, n in traffic.told.items() if s not in (0, 200, 202)}
        require(not others, f"answers beside those of the killed node failed: {others}")
        require(traffic.told[0] <= 2 * CLIENTS, "more requests broke than were under way")
        states = wait_for_ends(site, new, traffic.runs)
        say("runs after the kill", **states)
        require(states.keys() == {"COMPLETED"}, "not every run was completed")
        stays.stop()


def back_up_and_restore(site: Site, other: Site, new: Release, traffic: Traffic) -> None:
    """Back up under traffic, and restore into another database: acknowledged is stored."""
    traffic.told.clear()
    with serving(site, new, "backed-up") as server:
        traffic.ports[:] = [server.port]
        with traffic.flow():
            traffic.wait_for(20)
            acknowledged = list(traffic.runs)
            words = ("backup", "platform.toml", "--output", "backups", "--json")
            made = json.loads(site.type(new, *words))
            traffic.wait_for(20)
        say("backed up", runs=len(acknowledged), folder=Path(made["folder"]).name)
        server.stop()
    folder = (site.folder / made["folder"]).resolve()
    other.type(new, "restore", str(folder), "platform.toml")
    heads = str(folder / "heads.json")
    other.type(new, "audit", "verify", "platform.toml", "--heads", heads)
    check_runs(other, new, acknowledged)
    with serving(other, new, "restored") as server:
        token = other.token(new, "agents:run")
        form = {"message": "again", "session_id": "s-0", "stream": "false"}
        status, _ = ask(server.port, "POST", "/agents/concierge/runs", token, **form)
        require(status == 200, f"a run on the restored database: {status}")
        states = wait_for_ends(other, new, acknowledged)
        server.stop()
    say("restored, verified and served", **states)


def look_at_the_dashboard(site: Site, new: Release, traffic: Traffic) -> None:
    """Ask each query of the dashboard of a Prometheus that scrapes with the files of deploy/."""
    traffic.told.clear()
    with serving(site, new, "watched") as server, watching(site, new, server.port) as address:
        traffic.ports[:] = [server.port]
        empty = read_queries()
        asked = len(empty)
        with traffic.flow():
            until(
                lambda: not _drop_filled(address, empty),
                f"panels without data: {', '.join(sorted(empty))}",
            )
        say("dashboard", queries=asked, with_data=asked, **traffic.count())
        rules = _get(address, "rules")["groups"]
        bad = [one for group in rules for one in group["rules"] if one["health"] == "err"]
        require(not bad, f"rules that cannot be evaluated: {bad}")
        firing = [one for one in _get(address, "alerts")["alerts"] if one["state"] == "firing"]
        say("rules", groups=len(rules), firing=len(firing))
        server.stop()


def read_queries() -> dict[str, str]:
    """Return the queries of the panels that have data here, as Grafana sends them."""
    board = json.loads((DEPLOY / "grafana/dashboards/legation.json").read_text())
    chosen = {"$__rate_interval": "1m", "$job": "legation.*", "$instance": ".*", "$database": ".*"}
    found: dict[str, str] = {}
    for panel in board["panels"]:
        for number, target in enumerate(panel.get("targets", ())):
            query = target["expr"]
            for name, value in chosen.items():
                query = query.replace(name, value)
            if not ELSEWHERE.search(panel["title"]):
                found[f"{panel['title']} {number}"] = query
    return found


def _drop_filled(address: str, queries: dict[str, str]) -> dict[str, str]:
    for name, query in tuple(queries.items()):
        if _get(address, "query", query=query)["result"]:
            del queries[name]
    return queries


def _get(address: str, path: str, **query: str) -> Any:
    with urlopen(f"{address}/api/v1/{path}?{urlencode(query)}", timeout=30) as reply:
        return json.load(reply)["data"]


@contextmanager
def watching(site: Site, release: Release, port: int) -> Generator[str]:
    """Run Prometheus with the files of deploy/, but for the address and a scrape each second."""
    binary = shutil.which("prometheus")
    require(binary, "there is no prometheus on PATH (Debian's package prometheus)")
    folder = site.folder / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder)
    text = (folder / "prometheus.yml").read_text()
    text = text.replace("legation:7777", f"127.0.0.1:{port}").replace(": 15s", ": 1s")
    (folder / "prometheus.yml").write_text(text)
    (folder / "scraper.token").write_text(site.token(release, "metrics:read"))
    address = f"127.0.0.1:{free_port()}"
    words = ("--config.file=prometheus.yml", f"--web.listen-address={address}", "--log.level=error")
    log: IO[bytes]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(binary), *words], cwd=folder, stdout=log, stderr=log)
    try:
        until(lambda: _answers(f"http://{address}/-/ready"), f"Prometheus: {folder / 'log'}")
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    with suppress(OSError), urlopen(url, timeout=5):
        return True
    return False


# --- All of it ----------------------------------------------------------------------------------


def rehearse(folder: Path, commit: str, server: Cluster) -> None:
    """Go through all steps; everything is written below `folder`."""
    old = Release.install(folder / "old", unpack(commit, folder / "before"))
    new = Release.install(folder / "new", ROOT)
    say("installed", before=run("git", "rev-parse", "--short", commit).strip(), now=new.version)
    path = f"{server.binaries}{os.pathsep}{os.environ['PATH']}"
    with server.new_database() as url, server.new_database() as second:
        site, other = Site(folder / "site", url, path), Site(folder / "other", second, path)
        site.write(new)
        other.write(new)
        other.key = site.key
        shutil.copytree(site.folder / "keys", other.folder / "keys", dirs_exist_ok=True)
        said = site.type(old, "migrate", "platform.toml", "main")
        say("the release before", said=said.strip().splitlines()[-1])
        traffic = upgrade(site, old, new)
        kill_a_node(site, new, traffic)
        back_up_and_restore(site, other, new, traffic)
        look_at_the_dashboard(site, new, traffic)


def main() -> None:
    """Rehearse; exit code 1 says that a step failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--before", help="the commit of the release before")
    parser.add_argument("--folder", type=Path, help="where everything is kept afterwards")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        server = stack.enter_context(cluster())
        try:
            rehearse(folder.resolve(), chosen.before or find_before(), server)
        except Failed as failure:
            say("FAILED", reason=failure)
            sys.exit(1)
    say("done; Grafana itself was not run")


if __name__ == "__main__":
    main()
