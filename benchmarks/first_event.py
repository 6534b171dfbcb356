"""The time from the start of a run to its first event, one at a time, against AgentOS 2.5.6.

    python benchmarks/first_event.py [--runs 300] [--json FILE]

Both systems are served as `http_load` serves them, by one process each, and each has one kept
connection.  They are asked in turn for a streamed run in a new session, whose model answers at
once; nothing else is asked meanwhile.  The time begins as the first byte of the request is sent,
and ends as the bytes are read that complete the first `data:` line of the response.  Nothing is
parsed before that: each read of the socket is kept with its time.  Printed are the median, the 10th
and the 90th percentile in milliseconds, and the ratio of pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, TypeAlias

import h11
from http_load import AGENTOS, CASES, OURS, make_setting, run_all

CASE: Final = next(case for case in CASES if case.name == "POST run, streamed")
WARM_UP: Final = 30
END: Final = b"0\r\n\r\n"
"""The last chunk of a body (RFC 9112 section 7.1)."""

Part: TypeAlias = tuple[float, bytes]
"""A read of the socket: its time, and its bytes."""


class Caller:
    """A kept connection to a server, on which one streamed run follows the other."""

    def __init__(self, port: int, token: str) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = (
            f"{CASE.method} {CASE.path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            f"authorization: Bearer {token}\r\n"
            "content-type: application/x-www-form-urlencoded\r\n"
            f"content-length: {len(CASE.form)}\r\n\r\n{CASE.form}"
        ).encode()

    def run(self) -> float:
        """Have a run to its end; return the milliseconds until its first event."""
        begun = time.perf_counter()
        self.connection.sendall(self.request)
        parts: list[Part] = []
        response = b""
        while not response.endswith(END) and (content := self.connection.recv(65536)):
            parts.append((time.perf_counter(), content))
            response += content
        return (find_first_event(parts) - begun) * 1e3

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def find_first_event(parts: Sequence[Part]) -> float:
    """Return when the first `data:` line was complete in a response of a run that completed."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=CASE.method, target=CASE.path, headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    body, first, has_ended = b"", None, False
    for at, content in parts:
        client.receive_data(content)
        while (event := client.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                has_ended = True
                break
        if first is None and any(line.startswith(b"data:") for line in body.split(b"\n")[:-1]):
            first = at
    if first is None or not has_ended or b"RunCompleted" not in body:
        raise SystemExit(f"no streamed run: {b''.join(content for _, content in parts)[:500]!r}")
    return first


def show(times: dict[str, list[float]]) -> dict[str, object]:
    """Print the milliseconds of each system and the ratio; return them."""
    report: dict[str, object] = {}
    for name, taken in times.items():
        deciles = statistics.quantiles(taken, n=10)
        figures = {"p10": deciles[0], "median": statistics.median(taken), "p90": deciles[-1]}
        print(
            f"{name:16} {figures['median']:8.2f} ms to the first event"
            f" (p10 {figures['p10']:.2f}, p90 {figures['p90']:.2f})"
        )
        report[name] = figures
    ratios = [theirs / mine for mine, theirs in zip(times[OURS], times[AGENTOS], strict=True)]
    deciles = statistics.quantiles(ratios, n=10)
    median = statistics.median(ratios)
    print(f"ratio of pairs: median {median:.2f} (p10 {deciles[0]:.2f}, p90 {deciles[-1]:.2f})")
    report["ratio"] = {"p10": deciles[0], "median": median, "p90": deciles[-1]}
    return report


def main() -> None:
    """Have runs of both in turn, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        setting = make_setting(Path(folder))
        servers = run_all(setting, {AGENTOS}, stack)
        token = setting.token(CASE.scopes)
        callers = {
            name: stack.enter_context(closing(Caller(servers[name].port, token)))
            for name in (OURS, AGENTOS)
        }
        times: dict[str, list[float]] = {name: [] for name in callers}
        for number in range(WARM_UP + options.runs):
            for name, caller in callers.items():
                taken = caller.run()
                if number >= WARM_UP:
                    times[name].append(taken)
    report = show(times)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
