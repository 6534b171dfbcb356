"""Let schemathesis loose on a running server: once as an administrator, once without a token.

`python -m tests.fuzz [SECONDS]`, each of the two for half of the time; 0 when all checks passed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from legation import Database, PlatformLimits

from ..callers import Issuer, demo
from ..frontends.hosted import hosted

__all__ = ["main"]

SECONDS: Final = 80
SEED: Final = "1"
_HERE: Final = Path(__file__).parent
_ROOT: Final = _HERE.parent.parent
_AUTH: Final = '\n[auth.openapi.HTTPBearer]\nbearer = "{}"\n'
_OPTIONS: Final = (
    *("--checks", "all", "--seed", SEED, "--max-examples", "8", "--continue-on-failure"),
    *("--request-timeout", "10", "--no-color"),
)


def main(seconds: int) -> int:
    """Return the worse of the two results."""
    issuer, now = Issuer(), int(time.time())
    token = issuer.token("platform:admin", iat=now, exp=now + 3600)
    with tempfile.TemporaryDirectory() as folder:
        databases = [Database("main", f"sqlite:///{folder}/main.db")]
        limits = PlatformLimits(requests_per_second=0)
        with hosted(demo(issuer, databases=databases, limits=limits)) as base:
            settings = Path(folder, "schemathesis.toml")
            admin = _fuzz(settings, base, seconds // 2, _AUTH.format(token))
            nobody = _fuzz(settings, base, seconds // 2)
    return max(admin, nobody)


def _fuzz(settings: Path, base: str, seconds: int, more: str = "") -> int:
    settings.write_text((_HERE / "schemathesis.toml").read_text("utf-8") + more, "utf-8")
    limits = (*_OPTIONS, "--max-time", str(seconds))
    config = ("--config-file", str(settings))
    command = ("schemathesis", *config, "run", f"{base}/openapi.json", *limits)
    environ = {**os.environ, "PYTHONPATH": str(_ROOT)}
    return subprocess.run(command, cwd=settings.parent, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
