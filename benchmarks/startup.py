"""The time from the start of a process to its first answered `/health`, and its memory then.

    python benchmarks/startup.py [FOLDER [RUNS]] [--json FILE]
    python benchmarks/startup.py --imports

FOLDER keeps the environment of AgentOS 2.5.6.  Both are started in turn with one agent and a SQLite
file that has its tables; medians in milliseconds and MiB, and their ratios.  The CPU time up to
that answer is the steadier figure where the machine is shared.  With `--imports` it says instead
what the import of each part of the core costs: milliseconds, all modules, those of ours.
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
from pathlib import Path
from typing import TypeAlias

from peer import folder as peer_folder
from peer import peer_command

Figures: TypeAlias = tuple[float, float, float]

WHAT = ("start to first /health, ms", "CPU of it, ms", "memory at rest, MiB")

PLATFORM = """
[databases.main]
url = "sqlite:///{database}"

[[agents]]
id = "agent-0"
"""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def measure(command: list[str], env: dict[str, str], port: int) -> Figures:
    """Return milliseconds to the first answer, and of the CPU, and MiB resident a second later."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).read()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"ended before it answered: {command}") from None
                time.sleep(0.002)
        elapsed = (time.perf_counter() - begun) * 1e3
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        cpu = sum(map(int, ticks)) * 1e3 / os.sysconf("SC_CLK_TCK")
        time.sleep(1)
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert resident is not None
        return elapsed, cpu, int(resident[1]) / 1024
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def ours(folder: Path) -> Figures:
    """Measure Legation."""
    port = free_port()
    (folder / "platform.toml").write_text(PLATFORM.format(database=folder / "ours.db"))
    command = [sys.executable, "-m", "legation_cli", "serve", str(folder / "platform.toml")]
    return measure([*command, "--port", str(port)], dict(os.environ), port)


def theirs(folder: Path, peer: Path) -> Figures:
    """Measure AgentOS."""
    port = free_port()
    command, env = peer_command(peer, port, folder / "theirs.db")
    return measure(command, env, port)


PARTS = """
legation legation.effects legation.http.sse legation.store.units legation.store.run_states
legation.access.decide legation.migrations.plan legation.http.bodies.forms
legation.channels.standard legation.access.tokens legation.platform
""".split()
IMPORT = """
import time, sys, importlib
begun = time.perf_counter()
importlib.import_module(sys.argv[1])
elapsed = (time.perf_counter() - begun) * 1e3
print(elapsed, len(sys.modules), sum(name.partition(".")[0] == "legation" for name in sys.modules))
"""


def print_imports(runs: int) -> None:
    """Import each part in processes of its own, and print the medians."""
    for part in PARTS:
        command = [sys.executable, "-c", IMPORT, part]
        lines = [subprocess.check_output(command, text=True).split() for _ in range(runs)]
        elapsed = statistics.median(float(line[0]) for line in lines)
        print(f"{part:28} {elapsed:5.0f} ms {lines[0][1]:>4} modules {lines[0][2]:>4} of ours")


def main() -> None:
    """Start both in turn, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=peer_folder())
    parser.add_argument("runs", nargs="?", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--imports", action="store_true")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    if options.imports:
        print_imports(options.runs)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours(folder)  # the tables are made, the files are in the cache
        theirs(folder, options.folder)
        pairs = [(ours(folder), theirs(folder, options.folder)) for _ in range(options.runs)]
    report: dict[str, dict[str, float]] = {}
    for index, what in enumerate(WHAT):
        mine = statistics.median(pair[0][index] for pair in pairs)
        other = statistics.median(pair[1][index] for pair in pairs)
        ratios = sorted(pair[1][index] / pair[0][index] for pair in pairs)
        print(f"{what}: Legation {mine:.0f}, AgentOS 2.5.6 {other:.0f}")
        print(f"  ratio of pairs: median {statistics.median(ratios):.2f}", end=", ")
        print(f"{ratios[0]:.2f} to {ratios[-1]:.2f}")
        report[what] = {"Legation": mine, "AgentOS 2.5.6": other}
        report[what]["ratio"] = statistics.median(ratios)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
