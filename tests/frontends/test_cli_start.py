"""What `legation serve` does until it serves is counted: modules imported, texts compiled.

Whoever imports more at the start raises a number here, and says why in the change.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from legation_cli.service import GARBAGE

SERVED: Final = """
import gc, json, os, signal, sys

compiled = []

def hear(event, args):
    if event == "compile" and args[0] is not None and str(args[1]).startswith("<"):
        compiled.append(str(args[1]))

sys.addaudithook(hear)
from legation_cli import main, serve
module = sys.modules["legation_cli.serve"]

def greet(target, platform, url):
    names, texts = sorted(sys.modules), list(compiled)
    print(json.dumps({"modules": names, "texts": texts, "garbage": gc.get_threshold()}))
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGTERM)

module._greet = greet
main(["serve", "platform.toml", "--port", "0", "--no-access-log"])
"""
"""Serves a platform, and ends when it does; prints what there is then."""

PLATFORM: Final = """
[databases.main]
url = "sqlite:///main.db"

[[agents]]
id = "concierge"
"""

OURS: Final = 368
"""So many modules of ours a platform without channels and keys imports, on SQLite.

Of the commands it is the one that was typed; of the handlers those that every platform is asked for
all the time; and nothing for several workers, PostgreSQL, or the models of a provider.  One of them
reads ordinary heads of requests, which h11 did before.
"""

COMPILED: Final = {"<legation.values>": 181, "<attrs generated methods legation": 21}
"""So many texts are compiled: forms of classes, and those of classes of ours that attrs makes.

A form is compiled in a fifth of the time that attrs takes for a class.
"""

UNUSED: Final = frozenset(
    """asyncio cryptography email.message html.entities http.client httpx2 jwt markdown_it
    opentelemetry psycopg pypdf rich urllib.request watchfiles legation.access.key_reading
    legation.api.handlers.audit legation.api.handlers.sessions legation.api.openapi
    legation.channels.kinds legation.channels.slack legation.channels.telegram
    legation.channels.whatsapp legation.erasure legation.models.anthropic
    legation.models.chat_completions legation.replay legation_cli.audit legation_cli.chat
    legation_host.postgres legation_host.socket_waits legation_server.prefork
    legation_server.scrapes legation_testing""".split()
)
"""What is for keys, channels, models, engines, requests and commands that there are not."""


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What there was when a process had begun to serve."""
    folder = tmp_path_factory.mktemp("start")
    Path(folder, "platform.toml").write_text(PLATFORM)
    done = subprocess.run(
        [sys.executable, "-c", SERVED], cwd=folder, check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_is_not_configured_is_not_imported(start: dict[str, Any]) -> None:
    assert UNUSED.isdisjoint(start["modules"])


def test_no_more_modules_of_ours_are_imported_than_were(start: dict[str, Any]) -> None:
    ours = [name for name in start["modules"] if name.partition("_")[0].startswith("legation")]

    assert len(ours) <= OURS


@pytest.mark.parametrize("text", COMPILED)
def test_no_more_texts_are_compiled_than_were(text: str, start: dict[str, Any]) -> None:
    found = [name for name in start["texts"] if name.startswith(text)]

    assert len(found) <= COMPILED[text], found


def test_a_process_that_serves_looks_for_garbage_rarely(start: dict[str, Any]) -> None:
    assert tuple(start["garbage"]) == GARBAGE
