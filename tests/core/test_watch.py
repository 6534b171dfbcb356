"""The watch sees what acts, and nothing of the core does: no route, no unit of work, no part."""

from __future__ import annotations

import importlib
import pkgutil
import types
import typing
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from enum import Enum
from inspect import isabstract
from typing import Any, Final, TypeGuard, cast

import attrs
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

import legation
from legation import Agent, Model, Platform, tool
from legation.api.openapi.operations import FORM_ONLY
from legation.api.routes import ROUTES
from legation.effects import Effect, Fetch, FetchReply, Program, Transact
from legation.migrations.catalogue import CATALOGUE
from legation.store.counts import CountRuns
from legation.store.failures import StoreFailure
from legation.store.imports import ImportedRun, ImportedSession
from legation.store.inbox import INBOX
from legation.store.leased_queue import ItemKey, Lease, LeasedQueue
from legation.store.outbox import OUTBOX, ClaimedReply
from legation.store.person_export import ReadLetters, ReadTable
from legation.store.units import Dialect, Unit
from legation_testing import Chunks, Client, ScriptedModel, call

from ..callers import Issuer
from ..contract import contract_of
from ..providers.deliveries import ENVIRON as SECRETS
from ..providers.deliveries import platform as with_channels
from ..providers.deliveries import slack, standard, telegram, whatsapp
from ..providers.presses import press
from .api.openapi.test_examples import Operation, World
from .conftest import CORE, watched
from .test_parts import run_examples

# --- what acts is seen ---------------------------------------------------------------------------

# By name: what a module of the core would do, and what the watch calls it.
PLANTED: Final = {
    "the clock": ("import time; time.time()", "time"),
    "the clock, by its name": ("from time import time; time()", "time"),
    "the clock, asked by C": ("import time; sorted([1, 2], key=lambda _: time.time())", "time"),
    "the clock, at a place of another call": (
        "import time; [f() for f in (dict, time.time)]",
        "time",
    ),
    "the clock, at such a place of a library": (
        (
            "import contextlib, time; s = contextlib.ExitStack();"
            " s.callback(time.time); s.callback(dict); s.close()"
        ),
        "time",
    ),
    "the calendar": ("import datetime; datetime.datetime.now(datetime.UTC)", "datetime.now"),
    "a wait": ("import time; time.sleep(0)", "time.sleep"),
    "a file": ("open('/dev/null').close()", "open"),
    "a file, asked by C": ("[file.close() for file in map(open, ['/dev/null'])]", "open"),
    "a folder": ("import os; os.listdir('/')", "os.listdir"),
    "a folder, asked by C": ("import os; list(map(os.listdir, ['/']))", "os.listdir"),
    "a socket": ("import socket; socket.socket().close()", "socket.__new__"),
    "a name of the network": ("import socket; socket.getaddrinfo('::1', 1)", "socket.getaddrinfo"),
    "random bytes": ("import os; os.urandom(1)", "urandom"),
    "a random number": ("import random; random.random()", "Random.random"),
    "a UUID": ("import uuid; uuid.uuid4()", "urandom"),
    "a process": ("import subprocess; subprocess.run(['true'])", "subprocess.Popen"),
    "a shell": ("import os; os.system('true')", "os.system"),
    "a thread": (
        "import threading; threading.Thread(target=int).start()",
        "threading.Thread.start",
    ),
    "a thread without a class": (
        "import _thread; _thread.start_new_thread(int, ())",
        "_thread.start_new_thread",
    ),
    "a database": ("import sqlite3; sqlite3.connect(':memory:').close()", "sqlite3.connect"),
    "the environment": ("import os; os.environ.get('HOME')", "os._Environ"),
    "an import": ("import sys; sys.modules.pop('colorsys', 0); import colorsys", "import"),
    "the screen": ("print(end='')", "print"),
}
HARMLESS: Final = {
    "a codec": "'legation'.encode('idna')",
    "an import that is there": "import json",
    "a class": "import attrs; attrs.make_class('A', ['x'], frozen=True)",
    "a moment that is given": "import datetime; datetime.datetime.fromtimestamp(0, datetime.UTC)",
}


def plant(text: str) -> list[str]:
    """Run `text` as a function of the core; return what the watch saw."""
    names: dict[str, Any] = {"__name__": "legation.planted"}
    source = f"def act():\n    {text}\n"
    exec(compile(source, f"{CORE}planted.py", "exec"), names)
    with watched() as touched:
        names["act"]()
    return touched


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_act_is_seen(name: str) -> None:
    text, seen = PLANTED[name]

    touched = plant(text)
    assert touched
    assert all(line.startswith("planted.py:2 act") for line in touched)
    assert any(line.partition(": ")[2].startswith(seen) for line in touched), touched


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_act_is_no_false_alarm(name: str) -> None:
    assert plant(HARMLESS[name]) == []


def test_what_others_do_while_the_core_waits_is_not_the_cores() -> None:
    names: dict[str, Any] = {}
    exec(compile("def program():\n    yield\n", f"{CORE}planted.py", "exec"), names)
    with watched() as touched:
        for _ in names["program"]():
            open("/dev/null").close()  # noqa: PTH123

    assert touched == []


# --- the core does not act -----------------------------------------------------------------------

METHODS: Final = ("GET", "POST", "PATCH", "DELETE")
"""In this order, so that what is deleted was read before."""
STREAM: Final = {"content-type": "text/event-stream"}
SPOKEN: Final = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Yes"},'
    b'"finish_reason":"stop"}]}\n\n'
)
# By operation: the status of a request that is refused, where another one of this test goes well.
REFUSED: Final[Mapping[str, int]] = {
    "continue_agent_run": 409,  # that run waits for nobody
    "continue_team_run": 409,
    "delete_approval_approvals__approval_id__delete": 404,  # nothing has paused yet
    "get_approval_approvals__approval_id__get": 404,
    "get_approval_status_approvals__approval_id__status_get": 404,
    "get_console_asset": 404,  # nobody has brought the files yet
    "get_console_part": 404,
    "resolve_approval_approvals__approval_id__resolve_post": 404,
    "receive_webhook": 403,  # without a signature
    "retry_channel_message": 409,  # it is not dead
    "retry_channel_reply": 409,
    "verify_webhook": 403,
}


@tool(requires_confirmation=True)
def book(room: int) -> str:
    """Book a room."""
    return f"Room {room} is booked."


def drive_routes(world: World) -> dict[str, int]:
    """Send a request to every operation that should succeed; return the statuses."""
    document = contract_of(world.platform).document
    operations = [
        Operation(world, method.upper(), path, told)
        for path, methods in document["paths"].items()
        for method, told in methods.items()
    ]
    operations.sort(key=lambda operation: METHODS.index(operation.method))
    return {operation.name: operation.send().status for operation in operations}


def is_unit(value: Any) -> TypeGuard[type[Unit[Any]]]:
    return isinstance(value, type) and not isabstract(value) and issubclass(value, Unit)


def all_units() -> list[type[Unit[Any]]]:
    """Return every unit of work that a module of the core defines."""
    return [
        value
        for module in pkgutil.walk_packages(legation.__path__, "legation.")
        for value in vars(importlib.import_module(module.name)).values()
        if is_unit(value) and value.__module__ == module.name
    ]


# Units that take the name of a table, of those that there are.
NAMED: Final[dict[type[Any], Any]] = {
    ReadTable: typing.Literal["sessions"],
    ReadLetters: typing.Literal["inbox"],
}
# Values that a unit stores, and that another one reads or stores beside its own.
STORED: Final[dict[type[Any], Any]] = {
    ImportedSession: ImportedSession("a", "imported", "a", "a", None, "{}", None, None, 1, 1),
    ImportedRun: ImportedRun("imported", None, "a", "a", "COMPLETED", 1, 1),
}


def sample(kind: Any) -> Any:
    """Return some value of the type `kind`."""
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(inner[0])
    if origin is tuple:
        return tuple(sample(one) for one in inner if one is not ...)
    reply = ClaimedReply(Lease(OUTBOX, ItemKey("a", "a"), "a", 1), "a", "a", 1)
    if origin is typing.Literal:
        return inner[0]
    known = {
        ClaimedReply: reply,
        str: "a",
        int: 1,
        bool: True,
        bytes: b"a",
        LeasedQueue: INBOX,
        Unit: CountRuns(),
    }
    if origin is Callable:
        return repr  # as the view of a row
    if origin in known:
        return known[origin]
    if origin is type(CATALOGUE):
        return CATALOGUE
    if issubclass(origin, Enum):
        return next(iter(origin))
    return make(origin)


def make(cls: type[Any]) -> Any:
    """Make a value of a class of attrs, or a named tuple, with what it needs and no more."""
    hints = typing.get_type_hints(cls)
    if cls in NAMED:
        hints["table"] = NAMED[cls]
    if cls in STORED:
        return STORED[cls]
    if issubclass(cls, tuple):
        values: list[Any] = [sample(hint) for hint in hints.values()]
        return cast(Any, cls)(*values)
    fields = [field for field in attrs.fields(cls) if field.init]
    return cls(
        **{
            field.alias: sample(hints[field.name])
            for field in fields
            if field.default is attrs.NOTHING
        }
    )


def run_unit(client: Client, unit: Unit[Any]) -> bool:
    """Run `unit` on the database, and its half for PostgreSQL without one; say if it went well."""

    def program() -> Program[bool]:
        try:
            yield from Transact("main", unit)
        except StoreFailure:
            return False
        return True

    statements: Any = unit.statements(Dialect.POSTGRESQL)
    with suppress(StopIteration, ValueError, IndexError, TypeError):  # a row was to be there
        rows: Any = None
        while True:
            statements.send(rows)
            rows = []
    return client.simulation.run(program(), repr(unit))


def use_runs(client: Client) -> None:
    """Have a run streamed, one in the background, and one that a person lets go on."""
    client.stream("alpha", "hello", session_id="streamed")
    client.post("/agents/alpha/runs", form={"message": "later", "background": True})
    paused = client.run("clerk", "Book room 7", session_id="paused")
    assert client.go_on(paused, confirmed=True)["status"] == "COMPLETED"
    client.run("clerk", "Book room 7", session_id="approved")
    (waiting,) = client.get("/approvals?status=pending").json()["data"]
    approval = f"/approvals/{waiting['id']}"
    for path in (approval, f"{approval}/status"):
        client.get(path).expect_success()
    client.post(f"{approval}/resolve", json={"status": "approved"}).expect_success()
    client.settle()
    client.delete(approval).expect_success()
    client.advance(300)  # what was broken off is found, what was answered is sent


def use_console(world: World) -> None:
    """Have the page of the console sent, and its files."""
    world.platform.load_console({"main.js": b"//", "parts/table.js": b"//"})
    page = world.client.get("/console").expect_success().text
    digest = page.partition("console/assets/")[2].partition("/")[0]
    for name in ("main.js", "parts/table.js"):
        world.client.get(f"/console/assets/{digest}/{name}").expect_success()


async def count(message: str) -> AsyncIterator[str]:
    for number in range(int(message)):
        yield f"{number + 1} "


def answer_as_provider(sent: Any) -> Chunks | FetchReply:
    if sent.url.endswith("/chat/completions"):
        return Chunks(200, STREAM, (SPOKEN, b"data: [DONE]\n\n", b": more"))
    return FetchReply(200, {"content-type": "application/json"}, b'{"ok": true}')


def use_providers() -> Client:
    """Have a model of a provider asked over the network, and a message of each kind answered."""
    made = with_channels(
        models=[Model("fast", "openai", "gpt", base_url="https://m.test/v1", api_key_env="K")],
        agents=[Agent(id="concierge", model="fast"), Agent(id="counter", run=count)],
        environ={**SECRETS, "K": "k"},
    )
    with Client(made, fetch=answer_as_provider) as client:
        assert client.run("concierge", "Is it open?")["content"] == "Yes"
        assert client.run("counter", "3")["content"] == "1 2 3 "
        now_us = client.clock.now_us
        for delivery in (
            whatsapp(("4915", "wamid.1", "hi"), now_us=now_us),
            telegram(4915, 7, "hi", now_us),
            slack("U1", "1.000100", "hi", now_us),
            standard("ada", "m-1", "hi", now_us),
            press("slack", "approve:none.1", 1, now_us),
        ):
            headers = dict(delivery.headers)
            assert client.post(delivery.target, body=delivery.body, headers=headers).status == 200
        with client.peer(Platform(agents=[Agent(id="other")])):  # each looks for the other
            client.advance(10)
        asked = [one.effect for one in client.effects if isinstance(one.effect, Fetch)]
        assert sum("idempotency-key" in dict(fetch.headers) for fetch in asked) == 5
    return client


def test_neither_start_nor_any_route_nor_any_unit_nor_any_part_acts() -> None:
    issuer = Issuer(ed25519.Ed25519PrivateKey.generate())
    model = ScriptedModel([call("book", room=7), "Booked."] * 2)
    clerk = Agent(id="clerk", model=model, tools=[book])
    hub = {"hub.mode": "subscribe", "hub.verify_token": "a-verify-token", "hub.challenge": "1158"}
    units = [make(cls) for cls in all_units()]
    with watched() as touched:
        world = World(issuer, agents=(Agent(id="alpha"), Agent(id="beta"), clerk))
        world.open()
        challenged = world.client.get("/chat/webhook", query=hub)
        statuses = drive_routes(world)
        use_runs(world.client)
        use_console(world)
        failed = [unit for unit in units if not run_unit(world.client, unit)]
        world.client.simulation.run(world.platform.shutdown(1.0), "shutdown")
        _, wrong = run_examples()
        world.client.close()
        providers = use_providers()
    made = [asked.effect for client in (world.client, providers) for asked in client.effects]

    assert touched == []
    assert challenged.body == b"1158"
    assert statuses.keys() == {route.operation for route in ROUTES} - {FORM_ONLY}
    assert {name: status for name, status in statuses.items() if status >= 300} == REFUSED
    assert (failed, wrong) == ([], [])
    assert {type(unit) for unit in units} <= {
        type(effect.unit) for effect in made if isinstance(effect, Transact)
    }
    assert len(units) > 50
    effects = {typing.get_origin(kind) or kind for kind in typing.get_args(Effect)}
    assert effects == {type(effect) for effect in made}
