"""The cost of a request, against AgentOS 2.5.6, FastAPI with PyJWT, and the same front alone.

    python benchmarks/http_load.py [--rounds 3] [--seconds 2] [--json FILE] [CASE ...]

Needs `wrk`.  Every server is one process and one worker; they are loaded in turn within each
round, so that what the machine does besides hits all of them.  Printed are medians over the rounds
with their spread: requests per second, and the CPU time of the server's process tree per request,
which is the steadier figure where the machine is shared.  Ratios are between CPU times.

The canned loop is the same front with a platform that returns one ready answer: what is above it
is the cost of authorization, routing, the audit and the rendering of the list.  A server of ours
remembers heads; `wrk` sends the same bytes again and again, as a client that polls does, and finds
its head remembered every time.  So both are also measured with every head parsed
(`--limit remembered_heads=0`), as it is for a client that never sends the same one twice.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import Any, Final

import jwt
from attrs import asdict, evolve, field, frozen
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from peer import fastapi_command, peer_command
from peer import folder as peer_folder

AGENTS: Final = 10
CONNECTIONS: Final = (16, 64)
SECRET: Final = "a secret of the channel"
DELIVERIES: Final = 20_000
TICKS: Final = os.sysconf("SC_CLK_TCK")

OURS: Final = "Legation"
CANNED: Final = "canned loop, same front"
PARSED: Final = "Legation, heads parsed"
CANNED_PARSED: Final = "canned loop, heads parsed"
NO_MEMO: Final = "remembered_heads=0"
AGENTOS: Final = "AgentOS 2.5.6"
FASTAPI: Final = "FastAPI + PyJWT"

PLATFORM: Final = """
[platform]
id = "bench"
authorization = true

[authorization_config]
verification_keys = ['''{key}''']

[limits]
requests_per_second = 0

[databases.main]
url = "{database}"
auto_migrate = true

[channels.whatsapp]
kind = "whatsapp"
agent = "agent-0"
app_secret_env = "WHATSAPP_APP_SECRET"
verify_token_env = "WHATSAPP_VERIFY_TOKEN"
access_token_env = "WHATSAPP_ACCESS_TOKEN"
phone_number_id = "1"
api_base_url = "http://127.0.0.1:9"
"""

CANNED_SERVER: Final = """
import sys
from pathlib import Path
from legation.http.messages import Response
from legation_host import open_host
from legation_server import open_listeners, parse_limits, run

body = Path(sys.argv[2]).read_bytes()
headers = (
    (b"content-type", b"application/json"),
    (b"x-request-id", b"0123456789abcdef0123456789abcdef"),
)
answer = Response(200, headers, body)

class Canned:
    def answer(self, request):
        return answer
        yield

listeners = open_listeners("127.0.0.1", int(sys.argv[1]))
run(Canned, lambda _: open_host(), listeners, parse_limits(sys.argv[3:]))
"""

LUA: Final = """
local requests = {}
local at = tonumber(os.getenv("WRK_FROM"))

init = function(args)
  for line in io.lines(os.getenv("WRK_REQUESTS")) do
    local signature, body = line:match("^(%S*) (.*)$")
    local headers = {["Authorization"] = os.getenv("WRK_BEARER"),
                     ["Content-Type"] = os.getenv("WRK_TYPE")}
    if signature ~= "-" then headers["X-Hub-Signature-256"] = signature end
    if body == "" then body = nil end
    requests[#requests + 1] =
      wrk.format(os.getenv("WRK_METHOD"), os.getenv("WRK_PATH"), headers, body)
  end
end

request = function()
  at = at % #requests + 1
  return requests[at]
end
"""


@frozen
class Case:
    """One question.

    Attributes:
        name: What is asked.
        path: Of the request.
        method: Of the request.
        scopes: Of its token.
        form: Its body.
        against: The servers that can answer it.
        times: As long as others it is measured: what takes a server seconds has to come to an end.
    """

    name: str
    path: str
    method: str = "GET"
    scopes: tuple[str, ...] = ("agents:read",)
    form: str = ""
    against: tuple[str, ...] = (OURS, AGENTOS)
    times: int = 1


EVERYBODY: Final = (OURS, CANNED, PARSED, CANNED_PARSED, FASTAPI, AGENTOS)
RUN: Final = ("agents:run", "agents:read")
CASES: Final = (
    Case("GET /agents, 10 agents", "/agents", against=EVERYBODY),
    Case("GET /health", "/health", against=EVERYBODY),
    Case(
        "POST migrate, newest already",
        "/databases/main/migrate",
        "POST",
        ("platform:admin", "agent_os:admin", "databases:write", "config:write"),
    ),
    Case("POST run", "/agents/agent-0/runs", "POST", RUN, "message=hello&stream=false", times=4),
    Case(
        "POST run, streamed",
        "/agents/agent-0/runs",
        "POST",
        RUN,
        "message=hello&stream=true",
        times=4,
    ),
    Case("POST webhook, signed", "/whatsapp/webhook", "POST", form="whatsapp"),
)


@frozen
class Measure:
    """One round of one server."""

    requests: int
    per_second: float
    cpu: float
    """Microseconds per request, user and system, of the whole process tree."""
    failed: int


@frozen
class Server:
    """A server that runs: what answers at `port` is the work of these processes."""

    port: int
    pids: tuple[int, ...]


@frozen
class Setting:
    """The setting that all servers share."""

    folder: Path
    private: str
    public: str
    env: Mapping[str, str] = field(factory=dict[str, str])

    def token(self, scopes: Sequence[str]) -> str:
        """Return a token for `scopes`."""
        claims = {"sub": "ada", "aud": "bench", "scopes": list(scopes)}
        return jwt.encode({**claims, "exp": int(time.time()) + 36_000}, self.private, "RS256")


def make_setting(folder: Path) -> Setting:
    """Return keys of this run, and the environment that every server gets."""
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    env = {
        "WHATSAPP_APP_SECRET": SECRET,
        "WHATSAPP_VERIFY_TOKEN": "verify",
        "WHATSAPP_ACCESS_TOKEN": "access",
        "WHATSAPP_PHONE_NUMBER_ID": "1",
        "APP_ENV": "production",
        # What the servers would send goes nowhere.
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "PEER_KEY": public,
        "PEER_AGENTS": str(AGENTS),
        "PEER_WHATSAPP": "1",
    }
    return Setting(folder, private, public, env)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def run_server(
    name: str, command: Sequence[str], env: Mapping[str, str], port: int
) -> Generator[Server]:
    """Run a server until the block ends; return when it listens."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the server)
    process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        due = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > due:
                    log.seek(0)
                    raise SystemExit(f"{name} did not start:\n{log.read().decode()}") from None
                time.sleep(0.02)
        yield Server(port, (process.pid,))
    finally:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def ours_command(
    setting: Setting,
    port: int,
    *options: str,
    agents: int = AGENTS,
    database: str | None = None,
    more: str = "",
) -> list[str]:
    """Return the command that serves Legation on `port`; `more` is added to its configuration."""
    database = database or f"sqlite:///{setting.folder}/ours.db"
    text = PLATFORM.format(key=setting.public, database=database) + more
    text += "".join(
        f'\n[[agents]]\nid = "agent-{n}"\nname = "Agent {n}"\ninstructions = "{"x" * 200}"\n'
        for n in range(agents)
    )
    path = setting.folder / f"platform-{port}.toml"
    path.write_text(text)
    return [
        sys.executable,
        "-m",
        "legation_cli",
        "serve",
        str(path),
        "--port",
        str(port),
        "--no-access-log",
        *options,
    ]


def run_all(setting: Setting, wanted: set[str], stack: ExitStack) -> dict[str, Server]:
    """Start the servers named in `wanted`, ours first: its list of agents is what others serve."""
    env = {**os.environ, **setting.env}
    servers: dict[str, Server] = {}

    def start(name: str, command: Sequence[str], more: Mapping[str, str], port: int) -> None:
        both = {**env, **{k: v for k, v in more.items() if k.startswith("PEER_")}, **setting.env}
        servers[name] = stack.enter_context(run_server(name, command, both, port))

    port = free_port()
    start(OURS, ours_command(setting, port), {}, port)
    body = fetch(port, "/agents", setting.token(["agents:read"]))
    agents = setting.folder / "agents.json"
    agents.write_bytes(body)
    canned = [sys.executable, "-c", CANNED_SERVER]
    apart = evolve(setting, folder=setting.folder / "parsed")
    apart.folder.mkdir()
    peers: dict[str, Callable[[int], tuple[list[str], dict[str, str]]]] = {
        CANNED: lambda port: ([*canned, str(port), str(agents)], {}),
        CANNED_PARSED: lambda port: ([*canned, str(port), str(agents), NO_MEMO], {}),
        PARSED: lambda port: (ours_command(apart, port, "--limit", NO_MEMO), {}),
        FASTAPI: lambda port: fastapi_command(peer_folder(), port, agents),
        AGENTOS: lambda port: peer_command(peer_folder(), port, setting.folder / "theirs.db"),
    }
    for name, make in peers.items():
        if name in wanted:
            port = free_port()
            start(name, *make(port), port)
    return servers


def fetch(port: int, path: str, token: str) -> bytes:
    """Return the body of one answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", headers={"authorization": f"Bearer {token}"}
    )
    body: bytes = urllib.request.urlopen(request, timeout=10).read()
    return body


def cpu_seconds(pid: int) -> float:
    """Return the user and system time of a process and its children, living and waited for."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(ticks) for ticks in stat[11:15]) / TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return own + sum(cpu_seconds(int(child)) for child in children)


def deliveries(setting: Setting) -> Path:
    """Write signed deliveries of one message each, none of them twice."""
    path = setting.folder / "deliveries"
    with path.open("w") as file:
        for number in range(DELIVERIES):
            message = {
                "from": f"4917{number % 500:07}",
                "id": f"wamid.{os.urandom(12).hex()}",
                "timestamp": "1763000000",
                "type": "text",
                "text": {"body": "hello"},
            }
            value = {
                "messaging_product": "whatsapp",
                "metadata": {"display_phone_number": "1", "phone_number_id": "1"},
                "messages": [message],
            }
            change = {"field": "messages", "value": value}
            entry = {"id": "1", "changes": [change]}
            body = json.dumps({"object": "whatsapp_business_account", "entry": [entry]})
            signature = digest(SECRET.encode(), body.encode(), sha256).hex()
            file.write(f"sha256={signature} {body}\n")
    return path


def load(
    setting: Setting, case: Case, server: Server, connections: int, seconds: int, at: int
) -> Measure:
    """Load `server` with `case`; return what it did and what it cost."""
    requests = setting.folder / "requests"
    kind = "application/json"
    if case.form == "whatsapp":
        requests = setting.folder / "deliveries"
    else:
        requests.write_text(f"- {case.form}\n")
        kind = "application/x-www-form-urlencoded" if case.form else kind
    script = setting.folder / "load.lua"
    script.write_text(LUA)
    env = {
        **os.environ,
        "WRK_METHOD": case.method,
        "WRK_PATH": case.path,
        "WRK_BEARER": f"Bearer {setting.token(case.scopes)}",
        "WRK_TYPE": kind,
        "WRK_REQUESTS": str(requests),
        "WRK_FROM": str(at),
    }
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds * case.times}s", "--timeout", "30s"]
    before = sum(map(cpu_seconds, server.pids))
    output = subprocess.run(
        [*command, "-s", str(script), f"http://127.0.0.1:{server.port}"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    spent = sum(map(cpu_seconds, server.pids)) - before
    done = int(number(r"(\d+) requests in", output))
    failed = int(number(r"Non-2xx or 3xx responses: (\d+)", output))
    errors = re.search(
        r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", output
    )
    failed += sum(map(int, errors.groups())) if errors else 0
    cost = spent * 1e6 / done if done else float("nan")
    return Measure(done, number(r"Requests/sec:\s+([\d.]+)", output), cost, failed)


def number(pattern: str, text: str) -> float:
    """Return the number that `pattern` finds in `text`; 0 where it finds none."""
    found = re.search(pattern, text)
    return float(found[1]) if found else 0.0


def median(values: Sequence[float]) -> float:
    """Return the median of the rounds in which anything was answered."""
    known = [value for value in values if value == value]  # noqa: PLR0124 (not a number)
    return statistics.median(known) if known else float("nan")


def show(case: Case, connections: int, measures: Mapping[str, list[Measure]]) -> dict[str, Any]:
    """Print the figures of one question; return them."""
    print(f"\n{case.name}, {connections} connections")
    ours = median([measure.cpu for measure in measures[OURS]])
    rows: dict[str, Any] = {}
    for name, rounds in measures.items():
        cpu = median([measure.cpu for measure in rounds])
        rate = statistics.median(measure.per_second for measure in rounds)
        low, high = min(m.cpu for m in rounds), max(m.cpu for m in rounds)
        failed = sum(measure.failed for measure in rounds)
        ratios = [
            theirs.cpu / mine.cpu for theirs, mine in zip(rounds, measures[OURS], strict=True)
        ]
        print(
            f"  {name:<26} {cpu:8.1f} µs CPU ({low:.1f} to {high:.1f})"
            f"  {rate:8.0f}/s  {cpu / ours:6.2f} x" + (f"  FAILED {failed}" if failed else "")
        )
        rows[name] = {
            "cpu_us": cpu,
            "per_second": rate,
            "ratio_cpu": cpu / ours,
            "ratio_of_rounds": [min(ratios), max(ratios)],
            "rounds": [asdict(measure) for measure in rounds],
        }
    return rows


def main() -> None:
    """Ask every question, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("cases", nargs="*", help="parts of names of cases")
    options = parser.parse_args()
    cases = [
        case for case in CASES if not options.cases or any(t in case.name for t in options.cases)
    ]
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        setting = make_setting(Path(folder))
        deliveries(setting)
        wanted = {name for case in cases for name in case.against}
        servers = run_all(setting, wanted, stack)
        at = 0
        for case in cases:
            for connections in CONNECTIONS:
                measures: dict[str, list[Measure]] = {name: [] for name in case.against}
                for _ in range(options.rounds):
                    for name in case.against:
                        measure = load(
                            setting, case, servers[name], connections, options.seconds, at
                        )
                        measures[name].append(measure)
                    at += measures[OURS][-1].requests
                report[f"{case.name}, {connections}"] = show(case, connections, measures)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
