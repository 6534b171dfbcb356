"""A database that agno itself writes, and what its own client reads of it from two servers.

It works with agno 2.5.6 and 3; whoever imports it has looked for agno first.  The databases of the
tests that do without agno are made by

    python -m tests.clients.agentos_import_kit tests/agentos/VERSION.sql
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from legation.tools.accepted import is_array, is_object

from ..ports import free_port
from .processes import started, until_alive

__all__ = ["compare", "import_and_read", "open_database", "read_reference", "write_sessions"]

PLATFORM: Final = """
[databases.main]
url = "{url}"
auto_migrate = true

[[agents]]
id = "clerk"
name = "Clerk"

[[agents]]
id = "cook"
name = "Cook"

[[teams]]
id = "desk"
name = "Desk"
members = ["clerk", "cook"]
"""
PICTURE: Final = b"\x89PNG\r\n\x1a\n" + bytes(20)
KINDS: Final = ("agent", "team")
_DELEGATE: Final = "delegate_task_to_member"


# --- Written by agno ------------------------------------------------------------------------------


def open_database(url: str) -> Any:
    """Return agno's object for the database at `url`."""
    if url.startswith("sqlite"):
        return import_module("agno.db.sqlite").SqliteDb(id="main", db_url=url)
    scheme, _, rest = url.partition("://")
    place = f"{scheme}+psycopg://{rest}"
    return import_module("agno.db.postgres").PostgresDb(id="main", db_url=place)


def _answer(messages: list[Any]) -> Any:
    """Call the tool that a user names first, with the rest; else say what was said."""
    response = import_module("agno.models.response").ModelResponse
    last = messages[-1]
    text = last.content if isinstance(last.content, str) else str(last.content)
    if last.role == "user" and text.startswith("call "):
        _, name, arguments = text.split(" ", 2)
        call = {"name": name, "arguments": arguments}
        wanted = [{"id": f"{name}-{len(messages)}", "type": "function", "function": call}]
        return response(role="assistant", tool_calls=wanted)
    if text.startswith("fail"):
        raise RuntimeError("the model is away")
    usage: Any = {"response_usage": _usage(len(text))}
    return response(role="assistant", content=f"You said: {text[:60]}", **usage)


def _usage(size: int) -> Any:
    for name in ("agno.metrics", "agno.models.metrics"):
        with suppress(ImportError):
            found = import_module(name)
            metrics = getattr(found, "MessageMetrics", None) or found.Metrics
            return metrics(input_tokens=size, output_tokens=3, total_tokens=size + 3)
    return None


def _model() -> Any:
    base: Any = import_module("agno.models.base").Model

    async def respond_later(_: Any, messages: list[Any], *__: Any, **___: Any) -> Any:
        return _answer(messages)

    async def stream_later(_: Any, messages: list[Any], *__: Any, **___: Any) -> Any:
        yield _answer(messages)

    def stream(_: Any, messages: list[Any], *__: Any, **___: Any) -> Iterator[Any]:
        yield _answer(messages)

    def respond(_: Any, messages: list[Any], *__: Any, **___: Any) -> Any:
        return _answer(messages)

    def take(_: Any, response: Any, **__: Any) -> Any:
        return response

    members: dict[str, Any] = {
        "invoke": respond,
        "ainvoke": respond_later,
        "invoke_stream": stream,
        "ainvoke_stream": stream_later,
        "_parse_provider_response": take,
        "_parse_provider_response_delta": take,
    }
    return type("Scripted", (base,), members)(id="scripted")


def add(run_context: Any, item: str) -> str:
    """Add an item to the order."""
    run_context.session_state.setdefault("items", []).append(item)
    return f"added {item}"


add.__annotations__["run_context"] = "RunContext"  # agno gives it by its name


def make_components(database: Any) -> tuple[Any, Any]:
    """Return an agent and a team of agno that store in `database`."""
    agent_class: Any = import_module("agno.agent").Agent
    add.__annotations__["run_context"] = import_module("agno.run").RunContext

    def book(room: int) -> str:
        """Book a room."""
        return f"room {room} is booked"

    confirmed = import_module("agno.tools").tool(requires_confirmation=True)(book)
    given: dict[str, Any] = {"model": _model(), "telemetry": False}
    cook = agent_class(id="cook", name="Cook", **given)
    of_clerk: dict[str, Any] = {"id": "clerk", "name": "Clerk", "tools": [add, confirmed], **given}
    state: dict[str, Any] = {"session_state": {"items": []}, "add_history_to_context": True}
    clerk = agent_class(db=database, **state, **of_clerk)
    # An agent that was a member of a team once stores no sessions of its own any more.
    members = [agent_class(**of_clerk), cook]
    team = import_module("agno.team").Team(
        id="desk", name="Desk", members=members, db=database, **given
    )
    return clerk, team


def write_sessions(database: Any, count: int) -> None:
    """Have agno write `count` sessions: with tools, files, members, failures and pauses."""
    media: Any = import_module("agno.media")
    clerk, desk = make_components(database)
    image = media.Image(content=PICTURE, mime_type="image/png")
    letter = media.File(content=b"Hello", filename="a.txt", mime_type="text/plain")
    for number in range(count):
        session = {"session_id": f"s-{number}", "user_id": f"user-{number % 7}"}
        match number % 8:
            case 0:
                clerk.run("Hello", **session)
                clerk.run("Again", metadata={"from": "test"}, **session)
            case 1:
                clerk.run('call add {"item": "tea"}', **session)
            case 2:
                task = {"member_id": "cook", "task": f"Cook {number} eggs"}
                desk.run(f"call {_DELEGATE} {json.dumps(task)}", **session)
                desk.run("Thanks", **session)
            case 3:
                clerk.run("Look", images=[image], files=[letter], **session)
            case 4:
                clerk.run("Nobody asks", session_id=session["session_id"])
            case 5:
                with suppress(Exception):
                    clerk.run("fail", **session)
                clerk.run("Better now", **session)
            case 6:
                clerk.run('call book {"room": 7}', **session)
            case _:
                task = {"member_id": "clerk", "task": 'call add {"item": "egg"}'}
                desk.run(f"call {_DELEGATE} {json.dumps(task)}", **session)


# --- Read by its client ---------------------------------------------------------------------------


def read_reference(database: Any) -> dict[str, Any]:
    """Return what the client reads from an AgentOS on `database`, which is in this process."""
    httpx: Any = import_module("httpx")
    clerk, desk = make_components(database)
    os_class: Any = import_module("agno.os").AgentOS
    app = os_class(agents=[clerk], teams=[desk], db=database, telemetry=False).get_app()
    return asyncio.run(_read("http://reference", httpx.ASGITransport(app)))


def import_and_read(folder: Path, source: str, url: str, *options: str) -> dict[str, Any]:
    """Import `source` into a new database at `url`; return what the client reads from there."""
    (folder / "platform.toml").write_text(PLATFORM.format(url=url))
    command = [sys.executable, "-m", "legation_cli"]
    steps = (("migrate", "main"), ("import", "agentos", source, *options))
    for step in steps:
        done = subprocess.run(
            [*command, *step], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    port = free_port()
    served = ("-m", "legation_cli", "serve", "platform.toml", "--port", port)
    with started(folder, "served", *served) as said:
        address = f"http://127.0.0.1:{port}"
        until_alive(address, said)
        return asyncio.run(_read(address))


async def _read(address: str, transport: Any = None) -> dict[str, Any]:
    """Return every session, and every run of it, as the client gives them."""
    httpx: Any = import_module("httpx")
    found: dict[str, Any] = {}
    async with httpx.AsyncClient(transport=transport, timeout=60) as connections:
        import_module("agno.utils.http").set_default_async_client(connections)
        client = import_module("agno.client").AgentOSClient(address, timeout=60)
        kinds: Any = import_module("agno.db.base").SessionType
        for kind in KINDS:
            page = await client.get_sessions(session_type=kinds(kind), limit=1000)
            for listed in page.data:
                name = listed.session_id
                one = await client.get_session(name, session_type=kinds(kind))
                runs = await client.get_session_runs(name, session_type=kinds(kind))
                found[name] = {
                    "listed": _dump(listed),
                    "session": _dump(one),
                    "runs": {run.run_id: _dump(run) for run in runs},
                    "order": [run.run_id for run in runs if not run.parent_run_id],
                }
    return found


def _dump(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", exclude_none=True)
    return dumped


# --- Compared -------------------------------------------------------------------------------------


def compare(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> set[str]:
    """Return where what was read differs, by the members on the way, without ids and numbers."""
    found = {f"session {name}" for name in theirs.keys() ^ ours.keys()}
    for name in theirs.keys() & ours.keys():
        one, other = theirs[name], ours[name]
        for part in ("listed", "session", "order"):
            found.update(_compare(one[part], other[part], part))
        lost = (run for run_id, run in one["runs"].items() if run_id not in other["runs"])
        found.update(_name_lost(run) for run in lost)
        for run_id, run in other["runs"].items():
            found.update(_compare(one["runs"].get(run_id, {}), run, "run"))
    return found


def _name_lost(run: Mapping[str, Any]) -> str:
    return "run of a member" if run.get("parent_run_id") else f"run {run['status']}"


def _compare(theirs: Any, ours: Any, path: str) -> Iterator[str]:
    if is_object(theirs) and is_object(ours):
        for name in sorted({*theirs, *ours}):
            if name not in ours:
                yield f"{path}.{name}: not here"
            elif name not in theirs:
                yield f"{path}.{name}: only here"
            else:
                yield from _compare(theirs[name], ours[name], f"{path}.{name}")
    elif is_array(theirs) and is_array(ours):
        if len(theirs) != len(ours):
            yield f"{path}: number"
        else:
            for one, other in zip(theirs, ours, strict=True):
                yield from _compare(one, other, f"{path}[]")
    elif theirs != ours:
        yield f"{path}: value"


def _dump_database(target: Path) -> None:
    """Write the statements that make a small database as agno writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/agno.db"
        write_sessions(open_database(f"sqlite:///{path}"), 8)
        with closing(sqlite3.connect(path)) as connection:
            target.write_text("\n".join([*connection.iterdump(), ""]), "utf-8")


if __name__ == "__main__":
    _dump_database(Path(sys.argv[1]))
