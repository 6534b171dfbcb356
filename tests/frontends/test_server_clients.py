"""The watch on the clients of streams: one task, which hears of each that can be read from."""

from __future__ import annotations

import socket

import trio
from trio.testing import wait_all_tasks_blocked

from legation_server.clients import ClientWatch


async def test_who_sends_something_or_goes_away_is_heard() -> None:
    watch, heard = ClientWatch(), list[str]()
    here, there = socket.socketpair()
    mine, other = socket.socketpair()
    with here, there, mine, other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.run)
            await wait_all_tasks_blocked()

            def hear() -> None:
                heard.append(here.recv(10).decode())
                if not heard[-1]:
                    watch.leave(here.fileno())

            watch.enter(here.fileno(), hear)
            watch.enter(mine.fileno(), lambda: heard.append("of the other"))
            there.send(b"a word")
            await wait_all_tasks_blocked(0.01)
            assert heard == ["a word"]

            there.close()
            await wait_all_tasks_blocked(0.01)
            assert heard == ["a word", ""]

            watch.leave(mine.fileno())
            other.send(b"more")
            await wait_all_tasks_blocked(0.01)
            assert heard == ["a word", ""]
            nursery.cancel_scope.cancel()
    watch.close()
