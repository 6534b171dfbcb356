"""The Containerfile: linted, and its steps taken as processes, as there is no container here.

The wheel is built, an environment is made of the lock by the very lines of the file, and its
command runs as a user without rights on files that nobody may change.  What only an image builder
does (the users, the layers) is not tried.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from ..ports import free_port
from .commands import parse
from .container import CONTAINERFILE, read_containerfile, read_instructions
from .programs import DEPLOY, ROOT

SECONDS: Final = 240
PREFIX: Final = "/opt/legation"

PLATFORM: Final = """
[databases.main]
url = "sqlite:///{data}/main.db"

[[agents]]
id = "concierge"
"""


def test_linter_finds_nothing() -> None:
    pytest.importorskip("helm_python", reason="nox -s deploy installs it")
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, CONTAINERFILE], capture_output=True, text=True, check=False,
                          timeout=SECONDS)  # fmt: skip

    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


def test_image_of_a_new_project_is_as_careful(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    command = [sys.executable, "-m", "legation_cli", "init", str(project)]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, project / "Containerfile"], capture_output=True, text=True,
                          check=False, timeout=SECONDS)  # fmt: skip
    (image,) = read_containerfile(project / "Containerfile")
    (files,) = (rest for name, rest in image.steps if name == "COPY")

    assert (done.returncode, done.stdout) == (0, "")
    assert image.user == read_containerfile()[-1].user.partition(":")[0]
    assert image.health == read_containerfile()[-1].health
    assert parse(image.command)["target"] == "/srv/shop/platform.toml"
    assert files == "platform.toml *.py /srv/shop/"


def test_image_is_sparing() -> None:
    build, image = read_containerfile()

    assert "slim" in dict(read_base())["BASE"]
    assert build.base == "${BASE} AS build"
    assert image.base == "${BASE}"
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", image.user)
    assert image.entrypoint == ["legation"]
    assert parse(image.command)["target"] == "platform.toml"


def read_base() -> list[tuple[str, str]]:
    arguments = [
        rest for name, rest in read_instructions(CONTAINERFILE.read_text()) if name == "ARG"
    ]
    return [(name, value) for name, _, value in (rest.partition("=") for rest in arguments)]


def test_bill_of_materials_is_where_the_label_says() -> None:
    _, image = read_containerfile()
    copied = [shlex.split(rest) for name, rest in image.steps if name == "COPY"]
    targets = {f"{words[-1]}{Path(word).name}" for words in copied for word in words[:-1]}

    assert image.labels["legation.sbom"] in targets
    assert 'out = ROOT / "dist/legation.cdx.json"' in (ROOT / "noxfile.py").read_text()


def test_builders_are_sent_what_is_copied_and_nothing_else() -> None:
    lines = (ROOT / ".containerignore").read_text()
    sent = {line[1:] for line in lines.splitlines() if line.startswith("!")}
    copied = {
        word
        for stage in read_containerfile()
        for name, rest in stage.steps
        if name == "COPY" and not rest.startswith("--from")
        for word in shlex.split(rest)[:-1]
    }

    assert sent == copied
    # Docker looks for it beside the Containerfile, Podman in the folder that is sent.
    assert (DEPLOY / "Containerfile.dockerignore").read_text() == lines


@frozen
class Image:
    """The files of the image in a folder of this machine.

    Attributes:
        root: In place of `/`; nobody may write there.
        prefix: What a command is run with, so that it has no rights beyond those of its files.
    """

    root: Path
    prefix: tuple[str, ...]

    @property
    def env(self) -> dict[str, str]:
        """The variables of a container, but for the Python that its base image has."""
        _, image = read_containerfile()
        path = f"{self.root}{PREFIX}/bin{os.pathsep}{os.environ['PATH']}"
        temporary = {"HOME": "/nowhere", "TMPDIR": str(self.root.parent / "tmp")}
        return {**image.environment, "PATH": path, **temporary}

    def start(self, words: list[str], folder: Path) -> subprocess.Popen[str]:
        """Start a command of the image."""
        return subprocess.Popen([*self.prefix, *words], env=self.env, cwd=folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


@pytest.fixture(scope="module")
def image() -> Generator[Image]:
    pytest.importorskip("helm_python", reason="nox -s deploy installs what builds the image")
    folder = Path(tempfile.mkdtemp(prefix="legation-image-"))
    try:
        yield make_image(folder)
    finally:
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        shutil.rmtree(folder)


def make_image(folder: Path) -> Image:
    """Take the steps of the file in `folder`."""
    for name in ("context", "work", "root/srv/legation", "data", "tmp"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    for name in ("data", "tmp"):
        (folder / name).chmod(0o777)
    fill_context(folder / "context")
    build, _ = read_containerfile()
    for name, rest in build.steps:
        if name == "COPY":
            copy(folder / "context", shlex.split(rest)[:-1], folder / "work")
        else:
            run_step(rest.replace(PREFIX, f"{folder}/root{PREFIX}"), folder / "work")
    subprocess.run(["chmod", "-R", "a-w", folder / "root"], check=True)
    return Image(folder / "root", find_prefix(folder / "data"))


def fill_context(context: Path) -> None:
    """Build the wheel into what is sent to the builder."""
    build = (sys.executable, "-m", "build", "--installer=uv", "--wheel")
    command = [*build, f"--outdir={context}/dist", str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    (context / "requirements").mkdir()
    shutil.copy(ROOT / "requirements/server.txt", context / "requirements")


def copy(context: Path, patterns: list[str], target: Path) -> None:
    for pattern in patterns:
        found = list(context.glob(pattern))
        assert found, pattern
        for path in found:
            shutil.copy(path, target)


def run_step(line: str, folder: Path) -> None:
    """Run the line of a RUN instruction, with the Python of this environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    line = line.replace("--no-cache-dir ", "")  # it saves room in a layer, and here it costs time
    done = subprocess.run(["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True,
                          timeout=SECONDS, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr


def find_prefix(data: Path) -> tuple[str, ...]:
    """Return what takes the rights from a command: another user, or none of root's capabilities."""
    if os.geteuid() != 0:
        return ()
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs")
    bare = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
    python = os.path.realpath(sys.executable)
    tried = subprocess.run([*nobody, python, "-c", ""], check=False, capture_output=True, cwd=data)
    return nobody if tried.returncode == 0 else bare


def test_bytecode_of_all_modules_is_there(image: Image) -> None:
    modules = [path for path in image.root.rglob("*.py") if "legation" in path.parent.name]
    compiled = [path.name.partition(".")[0] for path in image.root.rglob("__pycache__/*.pyc")]

    assert len(modules) > 100
    assert {path.stem for path in modules} <= {*compiled}


def test_locked_versions_are_installed_and_no_installer(image: Image) -> None:
    lock = (ROOT / "requirements/server.txt").read_text()
    (packages,) = image.root.glob("opt/legation/lib/python3.*/site-packages")
    found = {path.name.removesuffix(".dist-info") for path in packages.glob("*.dist-info")}
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", lock, re.MULTILINE))
    others = {name for name in found if not name.startswith("legation-")}

    assert len(others) > 15
    assert all(locked[canonical(name)] == name.partition("-")[2] for name in others)
    assert not any(name.startswith("pip-") for name in found)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.partition("-")[0]).lower()


def test_command_serves_without_rights_and_its_health_is_seen(image: Image) -> None:
    data, folder = image.root.parent / "data", image.root.parent / "platform"
    folder.mkdir()
    (folder / "platform.toml").write_text(PLATFORM.format(data=data))
    folder.chmod(0o555)
    port = free_port()
    _, stage = read_containerfile()
    health = [word.replace("7777", str(port)) for word in stage.health]
    assert health != stage.health
    assert run(image, health, folder) != 0

    # On loopback: the platform of this test needs no token.
    command = [word.replace("0.0.0.0", "127.0.0.1") for word in stage.command]
    server = image.start([*stage.entrypoint, *command, "--port", str(port)], folder)
    try:
        wait_for(port, server)
        assert run(image, health, folder) == 0
        assert writes_nowhere(image, folder)
        os.kill(server.pid, signal.SIGSTOP)  # it hangs
        assert run(image, health, folder) != 0
        os.kill(server.pid, signal.SIGCONT)
        server.terminate()
        output, _ = server.communicate(timeout=SECONDS)
    finally:
        server.kill()
        server.wait()
    assert server.returncode == 0, output
    assert (data / "main.db").exists()


def run(image: Image, words: list[str], folder: Path) -> int:
    """Run a command of the image; return its exit code."""
    process = image.start(words, folder)
    process.communicate(timeout=SECONDS)
    return process.returncode


def writes_nowhere(image: Image, folder: Path) -> bool:
    """Tell whether the server's user can write to none of the image's folders."""
    program = "import os, sys; sys.exit(any(os.access(path, os.W_OK) for path in sys.argv[1:]))"
    folders = [str(path) for path in (image.root, *image.root.rglob("*")) if path.is_dir()]
    return run(image, ["python", "-c", program, str(folder), *folders], folder) == 0


def wait_for(port: int, server: Any) -> None:
    due = time.monotonic() + SECONDS
    while True:
        assert server.poll() is None, server.stdout.read()
        assert time.monotonic() < due
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
