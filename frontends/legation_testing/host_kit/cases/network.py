"""The rules of `Fetch`: one request, one response, and nothing longer than it may be."""

from __future__ import annotations

import json
from typing import Any, Final

from legation.effects import (
    Concurrently,
    Fetch,
    FetchReply,
    Interrupted,
    Interruptible,
    Nudge,
    Program,
    Sleep,
    Unreachable,
)

from ..bench import LONG, SHORT, Bench, Broken, Case, ask, ask_at_once, ask_in_vain, expect, require
from ..peer import BIG

__all__ = ["CASES", "await_no_connection", "refusals"]


def _get(bench: Bench, path: str, **more: Any) -> Program[FetchReply]:
    """Fetch `path` of the server, which answers."""
    reply = yield from ask_at_once(Fetch("GET", bench.peer.url + path, **more))
    if not isinstance(reply, FetchReply):
        raise Broken(f"{path} was answered {reply!r}")
    return reply


def _request(bench: Bench) -> Program[None]:
    url = f"{bench.peer.url}/echo/a%20b?c=%C3%A9&d"
    for method, body in (
        ("GET", b""),
        ("POST", b"x=1"),
        ("PUT", bytes(range(256))),
        ("DELETE", b""),
    ):
        reply = yield from ask_at_once(Fetch(method, url, (("X-Kit", "seen"),), body))
        require(isinstance(reply, FetchReply), f"{method} was answered {reply!r}")
        seen: dict[str, Any] = json.loads(reply.body)
        expect("the method that the server saw", seen["method"], method)
        expect("the target that the server saw", seen["target"], "/echo/a%20b?c=%C3%A9&d")
        expect("the header that the server saw", seen["kit"], "seen")
        expect("the body that the server saw", seen["body"].encode("latin-1"), body)


def _reply(bench: Bench) -> Program[None]:
    for path, status, body in (
        ("/missing", 404, b"There is no such page."),
        ("/failing", 500, b"The server failed."),
        ("/empty", 200, b""),
        ("/pieces", 200, b"one two three"),
    ):
        reply = yield from _get(bench, path)
        expect(f"the status of {path}", reply.status, status)
        expect(f"the body of {path}", reply.body, body)
        expect("the header X-Kit, in lower case", reply.headers.get("x-kit"), "Yes")
        names = [name for name in reply.headers if name != name.lower()]
        expect("names of headers that are not in lower case", names, [])


def _redirect(bench: Bench) -> Program[None]:
    reply = yield from _get(bench, "/redirect")
    expect("the status", reply.status, 302)
    expect("the header Location", reply.headers.get("location"), "/echo/redirected")
    expect("the body", reply.body, b"Elsewhere.")


def _limit(bench: Bench) -> Program[None]:
    for path in ("/big", "/growing"):
        reply = yield from _get(bench, path, max_bytes=BIG)
        expect(f"the bytes of {path}", len(reply.body), BIG)
        for limit in (BIG - 1, 10, 0):
            over = yield from ask_at_once(Fetch("GET", bench.peer.url + path, max_bytes=limit))
            expect(f"{path} with the limit {limit}", over, Unreachable("too-large"))
    nothing = yield from _get(bench, "/empty", max_bytes=0)
    expect("a body of no bytes, of which none may come", nothing.body, b"")


def _in_time(bench: Bench) -> Program[None]:
    for path in ("/silent", "/stalled"):
        fetch = Fetch("GET", f"{bench.peer.url}{path}/fetched", timeout_seconds=SHORT)
        expect(f"{path} was answered", (yield from ask_in_vain(fetch)), Unreachable("timeout"))


def refusals(bench: Bench) -> tuple[tuple[str, str], ...]:
    """Return URLs that nobody answers at, and the reason for each."""
    return (
        (f"{bench.peer.closed_url}/", "connect"),
        (f"{bench.peer.tls_url}/", "tls"),
        (f"{bench.peer.url}/nonsense", "protocol"),
        ("gopher://127.0.0.1/", "protocol"),
        ("http:///nowhere", "protocol"),
        ("http://127.0.0.1:99999/", "protocol"),
        ("nothing", "protocol"),
    )


def _unreachable(bench: Bench) -> Program[None]:
    for url, reason in (*refusals(bench), (f"{bench.peer.url}/broken", "protocol")):
        answer = yield from ask_at_once(Fetch("GET", url, timeout_seconds=LONG))
        expect(f"{url} was answered", answer, Unreachable(reason))


def _side_by_side(bench: Bench) -> Program[None]:
    def one(number: int) -> Program[Any]:
        reply = yield from _get(bench, f"/echo/{number}")
        return json.loads(reply.body)["target"]

    def all_of_them() -> Program[Any]:
        found = yield from Concurrently(tuple(one(number) for number in range(30)))
        yield from Nudge(topic)
        return found

    topic = bench.name("topic")
    silent = Fetch("GET", f"{bench.peer.url}/silent/beside", timeout_seconds=LONG)
    slow = ask(Interruptible(ask(silent), topic, LONG))
    answer, found = yield from Concurrently((slow, all_of_them()))
    expect("the targets that the server saw", found, tuple(f"/echo/{n}" for n in range(30)))
    ended = Interrupted("nudge")
    expect("a request that was under way when all others had ended", answer, ended)


def await_no_connection(bench: Bench, path: str) -> Program[None]:
    """Wait until the server has no connection open on which it answers `path`."""
    for _ in range(100):
        if not bench.peer.under_way(path):
            return
        yield from Sleep(0.02)
    raise Broken(f"the connection on which {path} is answered is still open")


CASES: Final = (
    Case(
        "Fetch.request",
        Fetch,
        "`Fetch` sends method, target, headers and body as they are given",
        _request,
    ),
    Case(
        "Fetch.reply",
        Fetch,
        "Every response is a reply, whatever its status; names of headers are in lower case",
        _reply,
    ),
    Case("Fetch.redirect", Fetch, "`Fetch` does not follow a redirect", _redirect),
    Case(
        "Fetch.limit",
        Fetch,
        "A body longer than `max_bytes` is too large, whether or not its length is declared",
        _limit,
    ),
    Case("Fetch.in_time", Fetch, "`timeout_seconds` bounds the head and the body", _in_time),
    Case(
        "Fetch.unreachable",
        Fetch,
        "Where there is no response, the answer says why: connect, tls or protocol",
        _unreachable,
    ),
    Case("Fetch.side_by_side", Fetch, "Requests do not wait for each other", _side_by_side),
)
