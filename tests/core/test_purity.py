"""The core imports nothing that acts, acts nowhere on import, and says the same thing twice.

What it does when called is watched in every test (conftest.py); that the guards turn red is shown
in tests/guards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")

# Every import statement that a module of the core executes, whatever the form, by its name.
IMPORTS = """
import builtins, importlib, pkgutil, sys

ACTING = {"anyio", "asyncio", "click", "concurrent", "ctypes", "h11", "httpx2", "importlib", "io",
          "logging", "os", "pathlib", "psycopg", "random", "secrets", "select", "socket", "sqlite3",
          "ssl", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "trio"}
seen = []
real = builtins.__import__

def watch(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if level == 0 and importer.partition(".")[0] == "legation":
        top = name.partition(".")[0]
        if top in ACTING or top.startswith("legation_"):
            seen.append(f"{importer} imports {name}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = watch
import legation
modules = ["legation", *(m.name for m in pkgutil.walk_packages(legation.__path__, "legation."))]
for module in modules:
    importlib.import_module(module)
print(len(modules))
sys.exit("; ".join(seen) or None)
"""

# What the modules of the core do while they are imported, under the watch of conftest.py.
ON_IMPORT = """
import importlib, runpy, sys
from pathlib import Path

conftest = runpy.run_path(sys.argv[1])
root = Path(conftest["CORE"])
modules = [".".join(("legation", *path.relative_to(root).with_suffix("").parts))
           for path in sorted(root.rglob("*.py"))]
with conftest["watched"]() as touched:
    for module in modules:
        importlib.import_module(module.removesuffix(".__init__"))
print(len(modules))
sys.exit("; ".join(touched) or None)
"""

# Conversations with the core, printed: every effect, then the answer.  Hash seeds change the order
# of sets, so what goes through one (scopes, origins, methods) is among what is asked.
REPLAY = """
import json

from legation import AuthorizationConfig, Agent, Platform, Request, Streamed, Team, effects

KEY = "a shared secret that is long enough for every HMAC there is, so that it serves"
NOW = 1_800_000_000_000_000
SCOPES = ["agents:c:run", "agents:a:run", "agents:b:read", "teams:t:read", "x:y", "sessions:read"]

def bearer(*scopes):
    from jwt import PyJWS
    claims = json.dumps({"sub": "ada", "scopes": scopes}).encode()
    return b"authorization", b"Bearer " + PyJWS().encode(claims, KEY, "HS256").encode()

def platform(authorization):
    return Platform(
        authorization=authorization,
        authorization_config=AuthorizationConfig([KEY], algorithm="HS256"),
        cors_allowed_origins=["https://b.test", "https://a.test"],
        agents=[Agent(id=name, instructions=name) for name in "abc"],
        teams=[Team(id="t", members=("a", "b"))],
    )

def conversation(program, body):
    drawn, reply = 0, None
    while True:
        try:
            effect = program.send(reply)
        except StopIteration as stop:
            answer = stop.value
            yield answer
            if isinstance(answer, Streamed):
                answer.body.close()
            return
        yield effect
        reply = None
        if isinstance(effect, effects.Now):
            reply = NOW
        elif isinstance(effect, effects.RandomBytes):
            drawn += 1
            reply = bytes([drawn]) * effect.size
        elif isinstance(effect, effects.ThisNode):
            reply = "node"
        elif isinstance(effect, effects.ReadBody):
            reply = body
        elif isinstance(effect, effects.Transact):
            return  # what a database answers is its own affair

FORM = (b"content-type", b"application/x-www-form-urlencoded")
ORIGIN = (b"origin", b"https://a.test")
REQUESTS = [
    ("GET", "/", (), b""),
    ("GET", "/agents", (), b""),
    ("HEAD", "/teams", (), b""),
    ("GET", "/agents/a", (ORIGIN,), b""),
    ("GET", "/sessions", (), b""),
    ("GET", "/me", (), b""),
    ("DELETE", "/agents", (), b""),
    ("OPTIONS", "/agents/a/runs", (), b""),
    ("OPTIONS", "/agents/a/runs", (ORIGIN, (b"access-control-request-method", b"POST")), b""),
    ("GET", "/nowhere", (), b""),
    ("GET", "/databases", (), b""),
    ("POST", "/me/explain", (), b'{"method": "GET", "path": "/agents"}'),
    ("POST", "/me/explain", (), b'{"z": 1, "y": 2, "x": 3, "method": ""}'),
    ("POST", "/agents/a/runs", (FORM,), b"message=hi&session_id=s"),
    ("POST", "/agents/a/runs", (FORM,), b"z=1&y=2&x=3&stream=maybe"),
]
for door in (platform(False), platform(True)):
    for method, target, headers, body in REQUESTS:
        for scopes in (None, SCOPES, ["platform:admin"]):
            known = () if scopes is None else (bearer(*scopes),)
            request = Request(method, target, (*headers, *known))
            print("---", method, target, scopes)
            for value in conversation(door.answer(request), body):
                print(value)
"""


def run(source: str, *arguments: str, seed: str = "random") -> str:
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments],
        env=os.environ | {"PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_no_module_of_the_core_imports_one_that_acts() -> None:
    assert int(run(IMPORTS)) > 1


def test_no_module_of_the_core_acts_when_it_is_imported() -> None:
    assert int(run(ON_IMPORT, str(CONFTEST))) > 1


@pytest.mark.parametrize("seed", ["1", "4242"])
def test_the_same_requests_give_the_same_effects_and_bytes_whatever_the_hash_seed(
    seed: str,
) -> None:
    told = run(REPLAY, seed=seed)

    assert told == run(REPLAY, seed="7")
    assert told.count("---") == 2 * 15 * 3
    for kind in ("Now(", "RandomBytes(", "ReadBody(", "Transact(", "Record(", "Response("):
        assert kind in told
    for status in (200, 204, 401, 403, 404, 405, 422):
        assert f"status={status}" in told
