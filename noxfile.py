"""The checks of this project, one command each: `nox` runs what CI runs.

`nox -s quick` answers for work in progress within two minutes; `nox -s style -- fix` repairs what
can be repaired; `nox -s tests -- tests/core -k scopes` runs a part of the tests (the coverage gate
then does not apply); `nox -s bench` times the core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from shutil import which
from zipfile import ZipFile

import nox

nox.needs_version = ">=2026.10"  # sessions in parallel
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.error_on_external_run = True
nox.options.error_on_missing_interpreters = True
nox.options.parallel = 2  # of those that may: the suites of tests use every core themselves
nox.options.report = ".nox/report.json"
nox.options.reuse_venv = "yes"
nox.options.sessions = [
    "style",
    "mypy",
    "pyright",
    "imports",
    "console",
    "core",
    "tests",
    "lowest",
    "agentos-client",
    "adapters",
    "channels",
    "deploy",
    "api-client",
    "api-fuzz",
    "build",
    "docs",
]

ROOT = Path(__file__).parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PACKAGES = sorted(
    Path(folder).name
    for folder in PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
)
OLDEST = 11  # the minor version in `requires-python`
WHICH = "import sys; v = sys.version_info; print(*v[:2], v.releaselevel)"


def candidates(minor: int) -> Iterator[Path]:
    """Yield where a Python 3.`minor` may be: on PATH, in pyenv, in uv's own folder."""
    name = f"python3.{minor}"
    if sys.version_info[:2] == (3, minor):
        yield Path(sys.executable)
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        yield Path(folder, name)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    yield from sorted(pyenv.glob(f"3.{minor}.*/bin/{name}"), reverse=True)
    managed = Path.home() / ".local/share/uv/python"
    yield from sorted(managed.glob(f"cpython-3.{minor}.*/bin/{name}"), reverse=True)


def runs(python: Path, minor: int) -> bool:
    """Tell whether `python` starts and is a final release of 3.`minor`.

    A shim of pyenv for a version that is not active exists and does not start.
    """
    if not python.is_file():
        return False
    answer = subprocess.run([python, "-c", WHICH], capture_output=True, text=True, check=False)
    return answer.stdout.split() == ["3", str(minor), "final"]


def find_pythons() -> dict[str, Path]:
    """Find the Pythons of this machine that the project supports, oldest first."""
    found: dict[str, Path] = {}
    for minor in range(OLDEST, OLDEST + 10):
        for python in candidates(minor):
            if runs(python, minor):
                found[f"3.{minor}"] = python
                break
    return found


FOUND = find_pythons()
PYTHONS = list(dict.fromkeys([*list(FOUND)[:1], *list(FOUND)[-1:]]))  # the oldest and the newest
LOCK = ROOT / "requirements/development.txt"
CHANNELS = LOCK.with_name("channels.txt")  # the lock of the session of that name ...
ADAPTERS = LOCK.with_name("adapters.txt")  # ... of this one ...
DEPLOY = LOCK.with_name("deploy.txt")  # ... and of this one
REPORTS = ROOT / ".nox/reports"  # what the sessions count; `.ci/count` adds it up
# nox looks interpreters up by name on PATH: what was tried and runs comes before what is a shim.
os.environ["PATH"] = os.pathsep.join(
    [*(str(FOUND[version].parent) for version in PYTHONS), os.environ.get("PATH", os.defpath)]
)


def groups(*names: str) -> tuple[str, ...]:
    """Return the requirements of these dependency groups."""
    return nox.project.dependency_groups(PYPROJECT, *names)


def install(
    session: nox.Session, *names: str, extras: str = "postgres,prices", held: Path = LOCK
) -> None:
    """Install the project in editable mode, with these extras and dependency groups."""
    session.install("-e", f".[{extras}]", *groups(*names), *lock_options(held))


def lock_options(held: Path = LOCK) -> tuple[str, ...]:
    """Return what holds an installation to the versions and digests of a lock."""
    return ("--constraint", str(held))


def pytest(
    session: nox.Session, *args: str, part: str = "", env: dict[str, str] | None = None
) -> None:
    """Run pytest in twice as many processes as there are cores: half of the tests wait for others.

    Its report is left where `.ci/count` looks for it.
    """
    spread = ("-n", str(2 * (os.cpu_count() or 1)), "--dist", "worksteal", "--durations=20")
    session.run("pytest", *spread, report(session, part), *args, *session.posargs, env=env)


def report(session: nox.Session, part: str = "") -> str:
    """Return the option of pytest that leaves the report of `session`."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    return f"--junit-xml={REPORTS / session.name}{part}.xml"


@nox.session(allow_parallel=True)
def style(session: nox.Session) -> None:
    """Check lint, format, and that no code is dead; with `-- fix`, repair what can be repaired."""
    session.install(*groups("lint"), *lock_options())
    fix = session.posargs == ["fix"]
    session.run("ruff", "check", *(["--fix"] if fix else []), ".")
    session.run("ruff", "format", *([] if fix else ["--check"]), ".")
    session.run("python", "-m", "tests.dead_code")


@nox.session(allow_parallel=True)
def mypy(session: nox.Session) -> None:
    """Check the types with mypy, strictly."""
    install(session, "types")
    session.run("mypy", *session.posargs)


@nox.session(allow_parallel=True)
def pyright(session: nox.Session) -> None:
    """Check the types with pyright, strictly."""
    install(session, "types")
    session.run("pyright", *session.posargs)


@nox.session(allow_parallel=True)
def imports(session: nox.Session) -> None:
    """Check the direction of imports."""
    install(session, "lint")
    # Its cache outlives a package that was a module, and then sees imports that are not there.
    session.run("lint-imports", "--no-cache")


@nox.session(allow_parallel=True)
def console(session: nox.Session) -> None:
    """Check the types of the console's modules against the OpenAPI document, with a pinned tsc."""
    session.install("-e", ".", *groups("node"), *lock_options())
    session.run("python", "-m", "tests.console_node", "types", str(Path(session.create_tmp())))


@nox.session(default=False)
def vendor(session: nox.Session) -> None:
    """Bring what the console takes from npm, each package with the digest of `vendor.json`."""
    session.install("-e", ".", *groups("node"), *lock_options())
    session.run("python", "-m", "tests.console_node", "vendor")
    session.run("git", "diff", "--stat", "--", "frontends/legation_console", external=True)


# By their package of Debian.
PROGRAMS = {"chromium": "chromium", "pgbouncer": "pgbouncer", "prometheus": "prometheus"}
DEPLOY_PROGRAMS = {
    "caddy": "caddy",
    "nginx-light": "nginx",
    "strace": "strace",
    "systemd": "systemd-analyze",
}


def programs(session: nox.Session, wanted: dict[str, str] = PROGRAMS) -> None:
    """Install a browser, PgBouncer and Prometheus where one may; tests without them say so."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    missing = [package for package, name in wanted.items() if not which(name, path=path)]
    if not missing or os.geteuid() != 0 or not which("apt-get"):
        return
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        session.run("apt-get", *command, external=True, silent=True, success_codes=range(256))


@nox.session(python=PYTHONS[-1:])
def core(session: nox.Session) -> None:
    """Run the tests of the core on the newest Python here; they must cover all its branches.

    An enumeration goes over the same branches very often: they are counted without it.
    """
    install(session, "test")
    data = {"COVERAGE_FILE": str(Path(session.create_tmp()).resolve() / "coverage")}
    if session.posargs:
        pytest(session)
        return
    counted = ("--cov=legation", "--cov-report=", "-m", "not enumeration")
    pytest(session, *counted, "tests/core", env=data)
    pytest(session, "-m", "enumeration", "tests/core", part=".enumerations")
    session.run("coverage", "report", "--include=core/legation/*", "--fail-under=100", env=data)


@nox.session(python=PYTHONS[-1:])
def tests(session: nox.Session) -> None:
    """Run all other tests on the newest Python here."""
    session.log("tests run on %s, of %s", session.python, ", ".join(FOUND))
    install(session, "test", "node")
    programs(session)
    session.run("python", "-m", "tests.axe")
    others = ["--ignore=tests/core", "--ignore=tests/deploy"]
    pytest(session, *([] if session.posargs else others))


@nox.session(python=PYTHONS[:1])
def lowest(session: nox.Session) -> None:
    """Run the tests of the frontends on the oldest Python, with the lowest versions allowed.

    What only computes is left out: an enumeration of states comes out the same on any Python; the
    console, which a browser runs; and what is marked `newest`: what else a browser runs, and what
    waits for leases or restarts many times, which is decided by the core and by SQL.  One restart
    of each kind is tried here as well.
    """
    if "3.11" not in FOUND:
        session.warn("Python 3.11 is not on this machine: the oldest here stands in for it")
    project = ("-e", ".[dev,otel,pdf,postgres,prices,rich]")
    session.install("--resolution=lowest-direct", *project)
    session.install(*project, *groups("test"))  # leaves what is there and allowed as it is
    programs(session)
    parts = ("tests/frontends", "--ignore-glob=tests/frontends/test_console_*")
    pytest(session, "-m", "not enumeration and not newest", *(() if session.posargs else parts))


def find_changed() -> list[str]:
    """Return the Python files that differ from the branch `main`, or from the last commit."""
    command = ("git", "diff", "--name-only", "--diff-filter=d")
    names: list[str] = []
    for base in ("main", "HEAD"):
        listed = subprocess.run([*command, base, "--", "*.py"],
                                capture_output=True, text=True, check=False)  # fmt: skip
        names += listed.stdout.split()
    return sorted(set(names))


@nox.session(default=False, python=PYTHONS[-1:])
def quick(session: nox.Session) -> None:
    """Answer for work in progress: style, the types of what changed, the tests of the core.

    A property is tried with a fifth of its examples, enumerations are left out, and nobody watches
    whether the core acts.
    """
    install(session, "dev")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "-m", "tests.dead_code")
    if files := find_changed():
        session.run("mypy", *files)
        session.run("pyright", *files)
    parts = ("--hypothesis-profile=quick", "-m", "not enumeration", "tests/core")
    pytest(session, *parts, env={"LEGATION_UNWATCHED": "1"})


@nox.session(default=False)
def rehearsal(session: nox.Session) -> None:
    """Run the services of deploy/ as processes: an upgrade, a kill, a restore, a dashboard."""
    install(session, "test")
    session.run("python", "-m", "tests.rehearsal", *session.posargs)


@nox.session(default=False)
def nightly(session: nox.Session) -> None:
    """Try what CI tries in part: signals, long rolling restarts, outages, kills, crashes."""
    install(session, "test")
    names = (
        "alerts_fire",
        "signals",
        "rolling_streams",
        "cluster_outage",
        "cluster_clocks",
        "runs_go_on",
        "runs_go_on_nodes",
        "runs_go_on_points",
        "budgets_crash",
        "channels_crash",
        "channels_custom",
        "channels_decisions",
        "channels_press_kills",
        "continue_crash",
        "continue_protocol",
        "forks_everywhere",
        "migrations_crash",
        "retention_year",
        "runs_crash",
        "state_crash",
        "docs_try_it",
        "testing_storm",
    )
    files = tuple(f"tests/frontends/test_{name}.py" for name in names)
    pytest(session, *(() if session.posargs else files), env={"LEGATION_NIGHTLY": "1"})


@nox.session(default=False)
def storm(session: nox.Session) -> None:
    """Let storms of a night pass: LEGATION_STORM_SEEDS=0:20000, with LEGATION_STORM_RESULTS=file.

    A broken promise is printed as a test, and ends the session with a failure; so does a state that
    was never reached, counted over all that stands in the file.
    """
    install(session, "test")
    session.run("python", "-m", "legation_testing.swarm", *session.posargs)


@nox.session(default=False)
def lock(session: nox.Session) -> None:
    """Write anew which versions CI and images install, each with its digests and no address."""
    session.install("uv")
    form = ("--universal", f"--python-version=3.{OLDEST}", "--generate-hashes", "--no-header",
            "--no-annotate", "--quiet", "pyproject.toml")  # fmt: skip
    every = (f"--group={name}" for name in ("dev", "fuzz", "generator"))
    own = (f"--extra={name}" for name in ("dev", "otel", "pdf", "postgres", "rich"))
    compile_ = ("uv", "pip", "compile", *session.posargs)
    session.run(*compile_, *form, *own, *every, f"--output-file={LOCK}")
    server = LOCK.with_name("server.txt")
    extras = ("--extra=otel", "--extra=pdf", "--extra=postgres", "--extra=prices")
    served = (*extras, f"--constraint={LOCK}")
    session.run(*compile_, *form, *served, f"--output-file={server}")
    for name, held in (("channels", CHANNELS), ("adapters", ADAPTERS), ("deploy", DEPLOY)):
        judged = ("--extra=postgres", "--group=test", f"--group={name}")
        session.run(*compile_, *form, *judged, f"--output-file={held}")


@nox.session(name="agentos-client", allow_parallel=True)
def agentos_client(session: nox.Session) -> None:
    """Run the clients of AgentOS, and a gateway made of them, against this server.

    With AGENTOS_EXAMPLES, the folder `cookbook/05_agent_os` of its sources, its examples run too.
    """
    install(session, "test")
    session.install(
        *("agno==2.5.6", "fastapi<1", "sqlalchemy<2.1", "greenlet<4", "httpx[http2]<1"),
        "python-multipart<1",
    )
    session.run("pytest", report(session), "tests/clients", *session.posargs)


@nox.session(allow_parallel=True)
def channels(session: nox.Session) -> None:
    """Exchange messages with the libraries of others for Telegram, Slack, WhatsApp, webhooks."""
    # Without the extra `prices`: its package and aiogram want other releases of pydantic.
    install(session, "test", "channels", extras="postgres", held=CHANNELS)
    session.run("pytest", report(session), "tests/channels", *session.posargs)


@nox.session(allow_parallel=True)
def deploy(session: nox.Session) -> None:
    """Judge the files of `deploy/` by their own tools, and run what of them runs as a process.

    The proxies stand before a real server, and the image's steps are taken without a container.
    """
    install(session, "test", "deploy", extras="postgres", held=DEPLOY)
    programs(session, DEPLOY_PROGRAMS)
    session.run("pytest", report(session), "tests/deploy", *session.posargs)


@nox.session(allow_parallel=True)
def adapters(session: nox.Session) -> None:
    """Host agents of other frameworks, each with the real package, and a model of their own."""
    install(session, "test", "adapters", held=ADAPTERS)
    session.run("pytest", report(session), "tests/adapters", *session.posargs)


@nox.session(name="api-client", allow_parallel=True)
def api_client(session: nox.Session) -> None:
    """Generate a client from the OpenAPI document, check its types, and use it."""
    install(session, "test", "generator")
    session.run("pytest", report(session), "tests/frontends/test_openapi_clients.py",
                *session.posargs)  # fmt: skip


@nox.session(name="api-fuzz", allow_parallel=True)
def api_fuzz(session: nox.Session) -> None:
    """Let schemathesis loose on a running server, bounded; `-- 600` gives it ten minutes."""
    install(session, "test", "fuzz")
    session.run("python", "-m", "tests.fuzz", *session.posargs)


@nox.session(allow_parallel=True)
def build(session: nox.Session) -> None:
    """Build the distributions; only our packages are in them, and the wheel works alone.

    It is built twice, from the source distribution and from this tree: both are the same bytes.
    """
    session.install(*groups("build"))
    out = Path(session.create_tmp()).resolve()
    for stale in out.glob("legation-*"):
        stale.unlink()
    session.run("python", "-m", "build", "--installer=uv", f"--outdir={out}")
    session.run("twine", "check", "--strict", *map(str, out.glob("legation-*")))
    (wheel,) = out.glob("*.whl")
    check_reproducible(session, wheel, out / "again")
    # W002: the licence of the documentation pages is Apache-2.0 to the letter, as ours is.
    contents = ["--ignore=W002", f"--toplevel={','.join(PACKAGES)}", str(wheel)]
    session.run("check-wheel-contents", *contents)
    check_contents(session, wheel)
    check_sources(session, *out.glob("*.tar.gz"))
    session.run("uv", "venv", "--quiet", "--clear", f"--python={session.virtualenv.bin}/python",
                str(out / "empty"))  # fmt: skip
    python = out / "empty/bin/python"
    session.run("uv", "pip", "install", "--quiet", f"--python={python}", str(wheel))
    with session.chdir(out):
        session.run("empty/bin/legation", "--help", external=True)


def check_reproducible(session: nox.Session, wheel: Path, again: Path) -> None:
    """End the session when a second build gives another digest; files have the date of none."""
    for stale in again.glob("*.whl"):
        stale.unlink()
    session.run("python", "-m", "build", "--installer=uv", "--wheel", f"--outdir={again}")
    digests = [sha256(path.read_bytes()).hexdigest() for path in (wheel, again / wheel.name)]
    session.log("%s has the SHA-256 %s", wheel.name, digests[0])
    if len(set(digests)) > 1:
        session.error(f"{wheel.name} is another one when it is built again: {digests[1]}")


@nox.session(default=False)
def sbom(session: nox.Session) -> None:
    """Write the bill of materials of a server (CycloneDX 1.6): `dist/legation.cdx.json`.

    It names what `requirements/server.txt` holds, each with its digests; it is the same each time.
    """
    session.install("cyclonedx-bom==7.5.0")
    out = ROOT / "dist/legation.cdx.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    form = ("--output-reproducible", "--output-format=JSON", "--spec-version=1.6", "--validate")
    root = (f"--pyproject={ROOT / 'pyproject.toml'}", "--mc-type=application")
    held = str(LOCK.with_name("server.txt"))
    session.run("cyclonedx-py", "requirements", *form, *root, f"--output-file={out}", held)


@nox.session(default=False)
def advisories(session: nox.Session) -> None:
    """Look for known vulnerabilities in what is locked: `-- all.zip`, an export of osv.dev."""
    session.install("packaging", *lock_options())
    session.run("python", "-m", "tests.advisories", *session.posargs)


def check_contents(session: nox.Session, wheel: Path) -> None:
    """End the session when the wheel holds a name that is not ours, or lacks a `py.typed`."""
    names = ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    untyped = [name for name in PACKAGES if f"{name}/py.typed" not in names]
    if tops != set(PACKAGES) or untyped:
        session.error(f"in the wheel: {sorted(tops)}; without py.typed: {untyped}")
    pages = {name for name in names if name.startswith("legation_host/pages/")}
    if not any(name.endswith("redoc.standalone.js") for name in pages):
        session.error("in the wheel: no files for the documentation pages")
    shown = {f"legation_console/pages/{name}" for name in ("main.js", "vendor/lit-html.js")}
    if missing := shown - {*names}:
        session.error(f"in the wheel: no {sorted(missing)}")


def check_sources(session: nox.Session, archive: Path) -> None:
    """End the session when the source distribution lacks what an operator takes from it."""
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    wanted = {".containerignore", "deploy/Containerfile", "deploy/compose.yaml"}
    wanted |= {"deploy/helm/legation/Chart.yaml", "requirements/server.txt"}
    if missing := wanted - names:
        session.error(f"in the source distribution: no {sorted(missing)}")


@nox.session(allow_parallel=True)
def docs(session: nox.Session) -> None:
    """Build the documentation, where a warning is an error, run its examples, and search it."""
    install(session, "docs", extras="otel,pdf,postgres")
    programs(session)
    out = Path(session.create_tmp()).resolve()
    options = ["-W", "--keep-going", "-q", "-d", str(out / "doctrees")]
    session.run("sphinx-build", *options, "-b", "html", "docs", str(out / "html"))
    session.run("python", "docs/_ext/built_search.py", str(out / "html"))
    session.run("sphinx-build", *options, "-b", "doctest", "docs", str(out / "doctest"))
    session.run("python", "-m", "tests.questions", str(out / "html"))


COMPARED = frozenset({"migrate", "runs", "startup", "webhooks"})  # benchmarks that take its folder
# Those that write their figures where they are told.
WRITING = frozenset(
    {"first_event", "http_load", "memory", "model_stream", "run_floor", "scaling", "startup"}
)
# What benchmarks use, and what needs more than the session has.
APART = frozenset(
    {"console", "fuzz_peer", "model_server", "peer", "plot", "run_cpu", "shapes", "steps"}
)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Run the benchmarks, each one question: all of them, or those named after `--`.

    `http_load`, `run_floor` and `scaling` need `wrk`, a part of `scaling` needs `nginx`.  What some
    compare with is installed once, in the session's folder, unless `LEGATION_PEER` names another.
    The figures are left in the session's folder, with a drawing of them; `benchmarks/plot.py`
    brings both to the documentation.
    """
    install(session, "bench")
    tmp = Path(session.create_tmp()).resolve()
    peer = os.environ.get("LEGATION_PEER", str(tmp / "peer"))
    results = tmp / "results"
    results.mkdir(exist_ok=True)
    session.run("python", "benchmarks/peer.py", peer)
    every = sorted({path.stem for path in Path("benchmarks").glob("[a-z]*")} - APART)
    for name in session.posargs or every:
        folder = [peer] if name in COMPARED else []
        written = ["--json", str(results / f"{name}.json")] if name in WRITING else []
        path = Path("benchmarks", name)
        command = ["python", str(path if path.is_dir() else path.with_suffix(".py"))]
        session.run(*command, *folder, *written, env={"LEGATION_PEER": peer})
    if (results / "http_load.json").exists():
        session.run("python", "benchmarks/plot.py", str(results), str(tmp))
