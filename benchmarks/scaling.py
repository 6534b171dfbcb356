"""The cost of a request where there is more of everything, and the gain of more processes.

    python benchmarks/scaling.py [--rounds 3] [--seconds 2] [--json FILE] [PART ...]

Needs `wrk`.  Parts, each measured in turns, 64 connections:

* routes: the time to find one among 50 and among 5,000, in process
* agents: `GET /agents/agent-0` of 10 and of 1,000
* sessions: the first page of a caller's 100 sessions, among no others and among 100,000; and of
  a caller's 10,000, whose number the page has as its `total_count`
* messages: a signed delivery that comes again and again, to an empty inbox and to one that has
  seen 100,000 messages
* workers: `GET /agents` of one worker and of two
* nodes: the same, and a run, of one node and of two behind nginx, on one PostgreSQL; needs
  `nginx` and the test dependencies

Each answer is a ratio of medians: of CPU time per request, or of requests per second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from attrs import evolve, frozen
from http_load import (
    CASES,
    Case,
    Measure,
    Server,
    Setting,
    deliveries,
    fetch,
    free_port,
    load,
    make_setting,
    median,
    ours_command,
    run_server,
)

from legation.http.routing import Router, parse_target
from legation_host.sqlite_connection import connect

ROOT: Final = Path(__file__).parent.parent
CONNECTIONS: Final = 64
MANY: Final = 100_000
AMONG: Final = {"size": MANY, "each": 1_000}
LIST: Final = CASES[0]
RUN: Final = next(case for case in CASES if case.name == "POST run")
WEBHOOK: Final = next(case for case in CASES if case.form == "whatsapp")
AGENT: Final = Case("GET /agents/agent-0", "/agents/agent-0")
SESSIONS: Final = Case(
    "GET /sessions, first page", "/sessions?type=agent&limit=20", scopes=("sessions:read",)
)
FILL_SESSIONS: Final = """
    insert into sessions (owner, session_id, kind, component_id, name, created_us, updated_us)
    with recursive n(i) as (select 1 union all select i + 1 from n where i < :size)
    select case when i % :each = 0 then 'ada' else 'owner ' || i % 1000 end, 'session ' || i,
        'agent', 'agent-0', 'a name', i, (i * 7919) % :size from n"""
FILL_INBOX: Final = """
    insert into inbox (channel, message_id, sender, payload, state, received_us, ready_us, done_us)
    with recursive n(i) as (select 1 union all select i + 1 from n where i < :size)
    select 'whatsapp', 'seen ' || i, '49' || i % 500, '{}', 'done', i, i,
        cast(unixepoch() as integer) * 1000000 from n"""
NGINX: Final = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr error;
worker_processes 1;
{user}
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream legation {{ {servers} keepalive 64; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://legation;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_buffering off;
    }}
  }}
}}
"""

Contenders: TypeAlias = Mapping[str, tuple[Setting, Server]]


@frozen
class Rounds:
    """The length of a measurement."""

    count: int
    seconds: int


@contextmanager
def ours(
    setting: Setting, *options: str, agents: int = 10, database: str | None = None
) -> Generator[Server]:
    """Run Legation until the block ends."""
    port = free_port()
    command = ours_command(setting, port, *options, agents=agents, database=database)
    with run_server("Legation", command, {**os.environ, **setting.env}, port) as server:
        yield server


@contextmanager
def settings(count: int) -> Generator[list[Setting]]:
    """Yield settings with the same keys and one delivery, each with a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        shared = make_setting(Path(name))
        every = deliveries(shared)
        every.write_text(every.read_text().partition("\n")[0] + "\n")
        found: list[Setting] = []
        for number in range(count):
            folder = Path(name, str(number))
            folder.mkdir()
            (folder / "deliveries").symlink_to(shared.folder / "deliveries")
            found.append(evolve(shared, folder=folder))
        yield found


def in_turns(case: Case, contenders: Contenders, rounds: Rounds) -> dict[str, list[Measure]]:
    """Return the measures of each, taken in turns."""
    found: dict[str, list[Measure]] = {name: [] for name in contenders}
    at = 0
    for _ in range(rounds.count):
        done = 0
        for name, (setting, server) in contenders.items():
            measure = load(setting, case, server, CONNECTIONS, rounds.seconds, at)
            found[name].append(measure)
            done = max(done, measure.requests)
        at += done
    return found


def compare(case: Case, contenders: Contenders, rounds: Rounds) -> dict[str, float]:
    """Print what each does; return the ratios of the last to the first."""
    found = in_turns(case, contenders, rounds)
    for name, measures in found.items():
        cpu, rate = median([m.cpu for m in measures]), median([m.per_second for m in measures])
        failed = sum(m.failed for m in measures)
        print(f"  {case.name}, {name}: {cpu:.1f} µs CPU, {rate:.0f}/s, {failed} failed")
    first, *_, last = found.values()
    pairs = list(zip(first, last, strict=True))
    ratios = {
        "cpu": statistics.median(b.cpu / a.cpu for a, b in pairs),
        "rate": statistics.median(b.per_second / a.per_second for a, b in pairs),
    }
    print(f"    ratio: {ratios['cpu']:.2f} of the CPU, {ratios['rate']:.2f} of the rate")
    return ratios


def routes(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Find one route among few, and among many."""
    path = parse_target("/things7/an-id/parts")
    assert path is not None
    taken: dict[int, list[float]] = {50: [], 5_000: []}
    routers = {
        size: Router(("GET", f"/things{n}/{{id}}/parts", n) for n in range(size)) for size in taken
    }
    for _ in range(5 * rounds.count):
        for size, router in routers.items():
            began = time.process_time()
            for _ in range(20_000):
                assert router.match(path) is not None
            taken[size].append((time.process_time() - began) / 20_000 * 1e6)
    few, many = (statistics.median(times) for times in taken.values())
    print(f"  among 50: {few:.2f} µs, among 5,000: {many:.2f} µs: {many / few:.2f} times")
    return {"GET": {"cpu": many / few}}


def agents(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Ask for one agent of few, and of many."""
    with settings(2) as (few, many), ours(few) as one, ours(many, agents=1_000) as other:
        return {AGENT.name: compare(AGENT, {"10": (few, one), "1,000": (many, other)}, rounds)}


def sessions(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Ask for the first page of few sessions, among others, and of many."""
    others = {"100": {"size": 100, "each": 1}, "100 of 100,000": AMONG}
    own = {"100 of 100,000": AMONG, "10,000": {"size": 10_000, "each": 1}}
    return {
        f"{SESSIONS.name}, among others": measure_filled(SESSIONS, FILL_SESSIONS, others, rounds),
        f"{SESSIONS.name}, own": measure_filled(SESSIONS, FILL_SESSIONS, own, rounds),
    }


def messages(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Deliver into an empty inbox, and into one that has seen a lot."""
    sizes = {"empty": {"size": 1}, "behind 100,000": {"size": MANY}}
    return {WEBHOOK.name: measure_filled(WEBHOOK, FILL_INBOX, sizes, rounds)}


def measure_filled(
    case: Case, fill: str, sizes: Mapping[str, Mapping[str, int]], rounds: Rounds
) -> dict[str, float]:
    """Measure `case` on databases that have been filled to `sizes`."""
    with settings(2) as both, ExitStack() as stack:
        contenders: dict[str, tuple[Setting, Server]] = {}
        for setting, (name, size) in zip(both, sizes.items(), strict=True):
            with ours(setting) as server:
                fetch(server.port, "/health", "")  # when it answers, the tables are there
            with closing(connect(str(setting.folder / "ours.db"))) as connection:
                connection.execute(fill, size)
                connection.execute("analyze")
            contenders[name] = (setting, stack.enter_context(ours(setting)))
        return compare(case, contenders, rounds)


def workers(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Serve with one worker, and with two."""
    with settings(2) as (few, many), ours(few) as one, ours(many, "--workers", "2") as two:
        return {LIST.name: compare(LIST, {"one worker": (few, one), "two": (many, two)}, rounds)}


def nodes(rounds: Rounds) -> dict[str, dict[str, float]]:
    """Serve with one node, and with two, behind nginx and on one PostgreSQL."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        print("  skipped: nginx is not here (on Debian: apt-get install nginx-light)")
        return {}
    sys.path.insert(0, str(ROOT))
    try:
        from tests.engines import NoPostgres, cluster  # noqa: PLC0415 (this part alone needs it)
    except ImportError as error:
        print(f"  skipped: the cluster of the tests needs {error.name}")
        return {}
    try:
        with cluster() as engine, settings(1) as (setting,), ExitStack() as stack:
            engine.run("alter system set fsync = on")
            engine.run("alter system set full_page_writes = on")
            engine.run("select pg_reload_conf()")
            url = engine.url()
            pair = [stack.enter_context(ours(setting, database=url)) for _ in range(2)]
            contenders = {
                "one node": (setting, stack.enter_context(behind(nginx, setting, pair[:1]))),
                "two nodes": (setting, stack.enter_context(behind(nginx, setting, pair))),
            }
            return {case.name: compare(case, contenders, rounds) for case in (LIST, RUN)}
    except NoPostgres as error:
        print(f"  skipped: {error}")
        return {}


@contextmanager
def behind(nginx: str, setting: Setting, servers: list[Server]) -> Generator[Server]:
    """Run nginx before `servers`; the CPU time is theirs alone."""
    port = free_port()
    folder = setting.folder / f"nginx-{port}"
    folder.mkdir()
    listed = " ".join(f"server 127.0.0.1:{server.port};" for server in servers)
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        NGINX.format(folder=folder, user=user, servers=listed, port=port)
    )
    command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with run_server("nginx", command, os.environ, port):
        yield Server(port, tuple(pid for server in servers for pid in server.pids))


PARTS: Final[Mapping[str, Callable[[Rounds], dict[str, dict[str, float]]]]] = {
    "routes": routes,
    "agents": agents,
    "sessions": sessions,
    "messages": messages,
    "workers": workers,
    "nodes": nodes,
}


def main() -> None:
    """Measure every part, or those named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    given = parser.parse_args()
    report: dict[str, dict[str, dict[str, float]]] = {}
    for name in given.parts or PARTS:
        print(name)
        sys.stdout.flush()
        report[name] = PARTS[name](Rounds(given.rounds, given.seconds))
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
