"""`legation doctor`: the faults of a platform, its machine, its databases and its providers."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from legation.findings import SEVERITIES, Finding, sort_findings

from .failing import sentences
from .json_output import json_option, print_json
from .target import complete_platform, load_target
from .terminal import show_progress

__all__ = ["doctor"]

_COLOURS: Final[Mapping[str, str]] = {"high": "red", "medium": "yellow", "low": "cyan"}
_LIBRARIES: Final = ("anyio", "trio", "h11", "httpx2", "cryptography", "pyjwt", "psycopg")
_SOUND: Final = "Nothing wrong was found."


@click.command(short_help="Say what is wrong with a platform and its machine, and what to do.")
@click.argument(
    "platform",
    required=False,
    metavar="[PLATFORM.TOML | MODULE:ATTRIBUTE]",
    shell_complete=complete_platform,
)
@click.option("--offline", is_flag=True, help="Ask no provider of models.")
@click.option(
    "--certfile",
    "certfiles",
    metavar="PATH",
    multiple=True,
    help="Look at this certificate chain (PEM), as `legation serve` takes it; repeatable.",
)
@click.option(
    "--strict", is_flag=True, help="Exit code 1 also where there is advice: of low severity."
)
@json_option
def doctor(
    platform: str | None, offline: bool, certfiles: tuple[str, ...], strict: bool, as_json: bool
) -> None:
    """Say what is wrong with a platform, its machine, its databases and its providers.

    It looks at versions, limits, clocks, disks, file systems, schemas, nodes, dead letters, keys,
    certificates, secrets, unsafe settings and providers of models.  Each finding has a severity, a
    sentence about it, and a sentence about what to do.

    Nothing is changed: beside each SQLite file a small file is written and deleted, which says
    whether the disk confirms a write.  It works beside whoever serves the databases, and where half
    of it is broken.  All of it takes 15 seconds at most.

    Each provider of models that is in use is asked for the list of its models: no token is spent.

    Without a platform, platform.toml of this folder is taken, or else the demonstration.
    Exit code 1 says that something is wrong, with --strict also that there is advice; 2 that the
    configuration cannot be read.

    \b
    Examples:
      legation doctor
      legation doctor platform.toml --offline
      legation doctor platform.toml --certfile tls.pem
      legation doctor platform.toml --json | jq '.findings[].code'
    """
    # It loads the host, and what reads keys.
    from .probes import examine, list_probes

    with sentences():
        made = load_target(platform, needs_secrets=False)
    probes = list_probes(made, certfiles, offline=offline)
    with show_progress("Looking", 15.0):
        examination = examine(probes)
    findings = sort_findings(dict.fromkeys(examination.findings))
    facts = {"versions": _list_versions(), **examination.facts}
    if as_json:
        print_json({"facts": facts, "findings": [found.as_json() for found in findings]})
    else:
        _print(facts, findings)
    least = SEVERITIES.index("low" if strict else "medium")
    if any(SEVERITIES.index(found.severity) >= least for found in findings):
        raise SystemExit(1)


def _list_versions() -> dict[str, str]:
    """Return the versions of what the platform runs on, by name."""
    import sqlite3
    import ssl
    from importlib.metadata import PackageNotFoundError, version

    from legation import __version__

    found = {
        "legation": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION.split(" (")[0].removeprefix("OpenSSL "),
    }
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if "psycopg" in found:
        found["libpq"] = _find_libpq()
    return found


def _find_libpq() -> str:
    try:
        from psycopg import pq
    except ImportError:
        return "none"
    number = pq.version()
    return f"{number // 10_000}.{number % 10_000}"


def _print(facts: Mapping[str, Mapping[str, str]], findings: Sequence[Finding]) -> None:
    """Print the facts, and then each finding, the gravest first, with what to do below it."""
    for part in sorted(facts, key=lambda part: (part != "versions", part)):
        named = ", ".join(f"{name} {value}" for name, value in facts[part].items())
        click.echo(f"{part}: {named}")
    click.echo()
    for found in findings:
        head = click.style(f"{found.severity:<7}", fg=_COLOURS[found.severity])
        click.echo(f"{head} {found.path} {found.message}")
        click.echo(f"        {found.code}: {found.remedy}")
    if all(found.severity == "low" for found in findings):
        click.echo(click.style(_SOUND, fg="green"))
