"""One connection, without a server around it."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from legation_host import open_host
from legation_server import Settings
from legation_server.connection import Connection
from legation_server.context import ServerContext
from legation_server.wire import Wire

from .server_kit import ALIVE, HIDDEN, Client, Tried


@asynccontextmanager
async def connected(log: list[str] | None = None) -> AsyncGenerator[tuple[Connection, Client]]:
    """Run a connection over a socket pair."""

    def write(level: str, event: str, fields: Any) -> None:
        if log is not None:
            log.append(event)

    mine, theirs = socket.socketpair()
    mine.setblocking(False)
    client = Client(trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
    async with open_host() as host, trio.open_nursery() as nursery, client.stream:
        context = ServerContext(Tried(), host, Settings(linger_seconds=0.1), write)
        context.tick()
        connection = Connection(Wire(mine, context), "", context)
        nursery.start_soon(connection.run)
        await trio.testing.wait_all_tasks_blocked()
        yield connection, client
        nursery.cancel_scope.cancel()


def send(client: Client, data: bytes) -> None:
    """Send without giving the connection a turn."""
    with socket.socket(fileno=os.dup(client.stream.socket.fileno())) as raw:
        raw.send(data)


async def test_a_request_on_its_way_is_answered_before_an_idle_connection_ends() -> None:
    async with connected() as (connection, client):
        await client.get(ALIVE)
        send(client, HIDDEN)
        connection.leave()
        reply = await client.reply()

        assert reply is not None and reply.json["path"] == "/hidden"
        assert await client.rest() == b""


async def test_an_idle_connection_ends_when_told() -> None:
    async with connected() as (connection, client):
        await client.get(ALIVE)
        connection.leave()

        assert await client.rest() == b""


async def test_a_connection_with_half_a_head_is_left_to_its_deadline() -> None:
    async with connected() as (connection, client):
        await client.send(ALIVE[:10])
        await trio.testing.wait_all_tasks_blocked()
        connection.leave()

        assert (await client.get(ALIVE[10:])).status == 200


async def test_an_exception_of_the_server_itself_ends_one_connection() -> None:
    log: list[str] = []
    async with connected(log) as (connection, client):
        # A bug of the server, planted: the date is not bytes.
        connection.wire.context.clock.date = None  # type: ignore[assignment]
        await client.send(ALIVE)

        assert await client.rest() == b""
        assert log == ["connection_failed"]
