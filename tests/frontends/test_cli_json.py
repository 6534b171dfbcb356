"""With `--json` a command prints JSON on standard output, and nothing else there."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest
from click.testing import CliRunner, Result

from legation_cli import main

from .commands import CALLS, every_command, write_agentos, write_key

PLATFORM = '[databases.main]\nurl = "sqlite:///main.db"\n\n[[agents]]\nid = "desk"\n'
NAMES = {
    "audit export": set[str](),
    "audit prune": {"database", "pruned"},
    "audit refusals": set[str](),
    "audit verify": {
        *("database", "intact", "proven", "rows", "old_rows", "pages", "signed", "chained"),
        *("pruned", "heads", "prunes", "findings"),
    },
    "backup": {"folder", "removed", "platform", "release", "at", "heads", "databases", "seal"},
    "channels register": set[str](),
    "channels show": set[str](),
    "channels verify": set[str](),
    "chat": set[str](),
    "check": {"routes", "claims", "tools", "channels", "unsafe"},
    "console": {"url"},
    "doctor": {"facts", "findings"},
    "dead-letters discard": {"dry_run", "discarded", "skipped", "unknown"},
    "dead-letters list": {"total", "letters"},
    "dead-letters retry": {"dry_run", "retried", "skipped", "unknown"},
    "dead-letters show": set[str](),
    "explain": {"allowed"},
    "import agentos": {"dry_run", "sessions", "runs", "left_out", "tables"},
    "init": {"name", "folder", "files"},
    "keys new": {"private", "public", "algorithm", "public_key"},
    "keys rotate": {"step", "kid", "previous", "jwks"},
    "migrate": {"database", "engine", "from_version", "to_version", "moves", "loses", "done"},
    "openapi": {"openapi", "info", "paths", "components"},
    "replay": set[str](),
    "restore": {"folder", "platform", "release", "databases"},
    "retention": {"database", "dry_run", "days", "rows"},
    "round": {"messages", "replies", "runs", "released", "failed", "next_us"},
    "runs cancel": set[str](),
    "runs follow": set[str](),
    "runs list": {"runs", "more", "absent"},
    "runs show": set[str](),
    "serve": {"connections", "drain_seconds"},
    "token": {"token", "claims"},
    "users erase": {"user_id", "counts", "databases", "digest", "signature"},
    "users export": set[str](),
}
"""Members that the JSON has, or each of its elements; none where the list is empty here."""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEGATION_DATA", str(tmp_path / "data"))
    write_key(Path("key.pem"))
    write_agentos(Path("agno.db"))
    path = list(sys.path)
    yield
    sys.path[:] = path


def typed(name: str) -> Result:
    call = CALLS[name]
    words = call.words(None) if call.data is None else call.data
    return CliRunner().invoke(main, [*name.split(), *words, "--json"], catch_exceptions=False)


def members(data: Any) -> set[str]:
    rows = cast("list[dict[str, Any]]", data if isinstance(data, list) else [data])
    return {name for row in rows for name in row}


def test_every_command_is_tried() -> None:
    assert set(NAMES) == set(every_command())


# A recording is JSON line by line (tests/frontends/test_cli_replay.py), and here there is no run;
# so are exports of a trail (tests/frontends/test_cli_audit_export.py) and of a person, and the
# events of a chat (tests/frontends/test_cli_chat.py) and of a run.
LINES: Final = frozenset({"replay", "audit export", "users export", "chat", "runs follow"})
# What is named is not there: their JSON is tried in test_cli_dead_letters and test_cli_runs.
NAMED: Final = frozenset({"dead-letters show", "runs cancel", "runs show"})


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LINES | NAMED])
def test_standard_output_is_json(name: str) -> None:
    Path("platform.toml").write_text(PLATFORM)
    assert CliRunner().invoke(main, ["migrate", "main"]).exit_code == 0
    if name == "keys rotate":
        assert CliRunner().invoke(main, ["keys", "new"]).exit_code == 0
    if name == "restore":
        assert CliRunner().invoke(main, ["backup"]).exit_code == 0
        next(Path("backups").glob("*Z")).rename("backups/saved")
    result = typed(name)

    assert result.exit_code in {0, 1}, result.stderr
    assert NAMES[name] <= members(json.loads(result.stdout))
    assert result.stderr == ""


@pytest.mark.parametrize("name", [name for name in NAMES if CALLS[name].data is None])
def test_a_failure_is_a_sentence_on_standard_error_alone(name: str) -> None:
    Path("platform.toml").write_text("= nonsense")
    Path("keys").write_text("in the way")
    result = typed(name)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr


def test_a_depth_that_is_unknown_is_json_and_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELP_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    channel = 'kind = "standard"\nagent = "desk"\nreply_url = "https://127.0.0.1/"\n'
    Path("platform.toml").write_text(
        f'{PLATFORM}\n[channels.help]\n{channel}secret_env = "HELP_SECRET"\n'
    )
    Path("main.db").touch()
    result = typed("channels show")

    assert json.loads(result.stdout)[0]["messages"] is None
    assert "has no schema yet" in result.stderr
    assert result.exit_code == 2


def test_serve_prints_no_json_but_that_of_its_limits() -> None:
    result = CliRunner().invoke(main, ["serve", "--json"])

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--json goes with --limits" in result.stderr


def test_no_json_holds_the_private_key() -> None:
    result = typed("keys new")

    assert "PRIVATE" not in result.stdout
    assert "PRIVATE" in Path("keys/private.pem").read_text()
