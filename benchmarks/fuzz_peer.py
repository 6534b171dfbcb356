"""The checks of schemathesis that `tests/fuzz` passes and AgentOS 2.5.6 fails.

    python benchmarks/fuzz_peer.py [SECONDS]

Needs `schemathesis` (the group `fuzz`).  The options are those of `tests/fuzz`; its exceptions and
hooks, which are about our own interface, are left out.  The peer is asked three times, each for
SECONDS: as an administrator, without a token, and with its authorization off.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from http_load import free_port
from jwt import PyJWT
from peer import folder, peer_command

SECONDS: Final = 60
KEY: Final = rsa.generate_private_key(65_537, 2048)
PEM: Final = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
OPTIONS: Final = (
    *("--checks", "all", "--seed", "1", "--max-examples", "8", "--continue-on-failure"),
    *("--request-timeout", "10", "--no-color"),
)
FOUND: Final = re.compile(r"= (\d+ failures.*?) in [\d.]+s =")


@contextmanager
def run_server(*, authorization: bool) -> Generator[str]:
    """Serve AgentOS; yield its base address."""
    port = free_port()
    with tempfile.TemporaryDirectory() as place:
        command, env = peer_command(folder(), port, Path(place, "peer.db"))
        if authorization:
            env["PEER_KEY"] = PEM.decode()
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet) as server:
            try:
                base = f"http://127.0.0.1:{port}"
                wait(f"{base}/health")
                yield base
            finally:
                server.terminate()


def wait(url: str) -> None:
    """Return when `url` answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit(f"{url} does not answer")


def fuzz(base: str, seconds: int, token: str | None) -> str:
    """Return what schemathesis counts in the end."""
    bearer = () if token is None else ("-H", f"Authorization: Bearer {token}")
    limits = ("--max-time", str(seconds))
    command = ("schemathesis", "run", f"{base}/openapi.json", *OPTIONS, *limits, *bearer)
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            command, cwd=place, env=os.environ, capture_output=True, text=True, check=False
        )
    found = FOUND.search(done.stdout)
    return found[1] if found else done.stdout[-300:]


def main(seconds: int) -> None:
    """Print a line for each of the three."""
    now = int(time.time())
    claims = {"sub": "fuzz", "scopes": ["agent_os:admin"], "iat": now, "exp": now + 7200}
    token = PyJWT().encode({**claims, "aud": "bench"}, KEY, "RS256")
    with run_server(authorization=True) as base:
        print("as an administrator:", fuzz(base, seconds, token), flush=True)
    with run_server(authorization=True) as base:
        print("without a token:", fuzz(base, seconds, None), flush=True)
    with run_server(authorization=False) as base:
        print("authorization off:", fuzz(base, seconds, None), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS)
