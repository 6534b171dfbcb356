"""The cost of authorization for a request.

`GET /agents` of ten agents, with a bearer token that is remembered (RS256), against the same
route where authorization is off, and where the route is excluded: in process, by driving
`Platform.answer`, and over a socket of loopback, by one client that keeps its connection.

Rounds of the platforms alternate; the figure is the ratio of the medians of the rounds, which
carries over to another machine.  Times are microseconds.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median
from time import perf_counter, time
from typing import Final

import trio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWS

from legation import Agent, AuthorizationConfig, Database, Platform, PlatformLimits, Request
from legation.effects import Now, RandomBytes
from legation.http.messages import Headers, Response
from legation_host.hosting import open_platform
from legation_server import open_listeners, serve

CALLS: Final = 200
ROUNDS: Final = 60
KEY: Final = rsa.generate_private_key(65_537, 2048)
PEM: Final = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
NOW_US: Final = int(time() * 1_000_000)
CLAIMS: Final = {
    "sub": "ada",
    "scopes": ["agents:read", "sessions:read", "agents:concierge:run"],
    "exp": NOW_US // 1_000_000 + 86_400,
}
TOKEN: Final = PyJWS().encode(json.dumps(CLAIMS).encode(), KEY, "RS256").encode()
BEARER: Final[Headers] = ((b"host", b"legation.test"), (b"authorization", b"Bearer " + TOKEN))

OFF: Final = "authorization off"
ON: Final = "a remembered token"
EXCLUDED: Final = "an excluded route"


def platform(*, authorization: bool, excluded: tuple[str, ...] = ()) -> Platform:
    """Return a platform of ten agents."""
    config = AuthorizationConfig((PEM.decode(),), excluded_routes=excluded)
    return Platform(
        authorization=authorization,
        authorization_config=config,
        agents=[Agent(id=f"agent-{number}", description="Answers") for number in range(10)],
        databases=[Database("main", "sqlite://")],
        limits=PlatformLimits(requests_per_second=0),
    )


def platforms() -> dict[str, Platform]:
    """Return those that are compared, by name."""
    return {
        OFF: platform(authorization=False),
        ON: platform(authorization=True),
        EXCLUDED: platform(authorization=True, excluded=("/agents",)),
    }


def drive(platform: Platform, request: Request) -> Response:
    """Drive one request to its end; every effect of this route is immediate."""
    program = platform.answer(request)
    reply: object = None
    while True:
        try:
            effect = program.send(reply)
        except StopIteration as stop:
            response: Response = stop.value
            return response
        if isinstance(effect, Now):
            reply = NOW_US
        else:
            reply = bytes(16) if isinstance(effect, RandomBytes) else None


def in_process(platform: Platform) -> Callable[[], None]:
    """Return what asks once."""
    request = Request("GET", "/agents", BEARER)
    assert drive(platform, request).status == 200

    def ask() -> None:
        drive(platform, request)

    return ask


@contextmanager
def over_socket(platform: Platform) -> Generator[Callable[[], None]]:
    """Serve `platform` from a thread, and yield what asks once."""
    listeners = open_listeners("127.0.0.1", 0)
    address = listeners[0].getsockname()
    stopped = threading.Event()

    async def serve_all() -> None:
        async with open_platform(platform) as host, trio.open_nursery() as nursery:
            await nursery.start(partial(serve, platform, host, listeners))
            while not stopped.is_set():  # noqa: ASYNC110 (set by another thread)
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve_all,))
    thread.start()
    head = (
        b"GET /agents HTTP/1.1\r\nHost: legation.test\r\nAuthorization: Bearer %s\r\n\r\n" % TOKEN
    )
    try:
        with socket.create_connection(address[:2]) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(head)
            length = len(_first(connection))

            def ask() -> None:
                connection.sendall(head)
                left = length
                while left:
                    left -= len(connection.recv(left))

            yield ask
    finally:
        stopped.set()
        thread.join()


def _first(connection: socket.socket) -> bytes:
    """Read one response; those that follow are as long."""
    read = b""
    while not read.endswith(b"}]"):
        read += connection.recv(65_536)
    assert read.startswith(b"HTTP/1.1 200"), read
    return read


def rounds(asks: dict[str, Callable[[], None]]) -> Iterator[tuple[str, float]]:
    """Yield the microseconds of a call, round by round, the platforms in turn."""
    for _ in range(ROUNDS):
        for name, ask in asks.items():
            started = perf_counter()
            for _ in range(CALLS):
                ask()
            yield name, (perf_counter() - started) / CALLS * 1e6


def report(where: str, asks: dict[str, Callable[[], None]]) -> None:
    """Print a line for each platform."""
    times: dict[str, list[float]] = {name: [] for name in asks}
    for name, micros in rounds(asks):
        times[name].append(micros)
    base = median(times[OFF])
    for name, taken in times.items():
        middle = median(taken)
        print(f"{where}, {name}: {middle:.1f} us, {middle / base:.3f} times {OFF}")


if __name__ == "__main__":
    report("in process", {name: in_process(made) for name, made in platforms().items()})
    with ExitStack() as stack:
        served = {n: stack.enter_context(over_socket(p)) for n, p in platforms().items()}
        report("over a socket", served)
