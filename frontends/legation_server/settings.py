"""The limits of the server, each with its unit and its reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import evolve, field, fields
from attrs.validators import ge, gt, le, optional

from legation.values import frozen

__all__ = ["DEFAULT", "BadLimit", "Settings", "parse_limits"]


class BadLimit(Exception):
    """A setting that is no limit, or a value that does not fit; the message is one sentence."""


@frozen
class Settings:
    """The limits of one worker.  The defaults suit a server on the open network.

    Attributes:
        header_seconds: From the first byte of a head (or the accept of a connection) to its
            last.  One limit for the whole head: a client that sends a line at a time gains
            nothing.
        body_seconds: For a body to arrive, before its size earns it more; see `body_rate`.
        body_rate: Bytes per second that a body must keep up beyond `body_seconds`.
        keep_alive_seconds: Between an answer and the first byte of the next head.
        write_seconds: Without any progress while a client is slow to read.
        linger_seconds: For a client to read its answer and close, when the server closes first.
        request_seconds: From the head to the answer; None for no limit.  A streamed body is
            never under it: streams last as long as their runs.
        connections: Open at once per worker.  The next one takes the place of one that is idle, the
            oldest first, or else of one whose head has not come; with all being served, it is
            answered 503.
        connections_per_address: Open at once from one address, the next is answered 429.
            Loopback and Unix sockets are exempt: behind a proxy on the same machine every
            client has the proxy's address.  Of IPv6, a network of 64 bits is one address: a
            single client has all of it.
        requests_in_flight: Being answered at once per worker, streams aside; the next is
            answered 503.
        header_line: Bytes of one line of a head, its line ending aside.
        header_block: Bytes of a whole head.
        header_fields: Fields of one head.
        body: Bytes of any body, as many as the route with the largest one asks for.  A longer
            one that declares its length is answered 413 before the platform is asked, so also
            before authorization; no more is learned by that than this limit.
        unread_body: Bytes of a body nobody asked for that are read and dropped to keep the
            connection; a longer one ends it.
        drain_seconds: From the order to drain to the end of the last connection; a day at most.
        grace_seconds: What idle connections get of that, and streams of runs that others execute.
        step_seconds: For one step of a run, in which nothing else is done: CPU that it uses, and
            time that it sleeps.  A process that does not come back from one by then is killed, and
            the run ends.
        backlog: Connections that the kernel queues before they are accepted.
        remembered_heads: Heads that need not be parsed when the same bytes come again, whatever
            their bearer token, which is not kept; 0 parses every head.
    """

    header_seconds: float = field(default=10.0, validator=gt(0))
    body_seconds: float = field(default=15.0, validator=gt(0))
    body_rate: int = field(default=16 << 10, validator=gt(0))
    keep_alive_seconds: float = field(default=75.0, validator=gt(0))
    write_seconds: float = field(default=15.0, validator=gt(0))
    linger_seconds: float = field(default=5.0, validator=gt(0))
    request_seconds: float | None = field(default=None, validator=optional(gt(0)))
    connections: int = field(default=1000, validator=gt(0))
    connections_per_address: int = field(default=100, validator=gt(0))
    requests_in_flight: int = field(default=512, validator=gt(0))
    header_line: int = field(default=8 << 10, validator=gt(0))
    header_block: int = field(default=16 << 10, validator=gt(0))
    header_fields: int = field(default=100, validator=gt(0))
    body: int = field(default=10 << 20, validator=ge(0))
    unread_body: int = field(default=64 << 10, validator=ge(0))
    drain_seconds: float = field(default=30.0, validator=[ge(0), le(86_400)])
    grace_seconds: float = field(default=5.0, validator=ge(0))
    step_seconds: float = field(default=10.0, validator=ge(1))
    backlog: int = field(default=1024, validator=gt(0))
    remembered_heads: int = field(default=256, validator=ge(0))

    @property
    def sweep_seconds(self) -> float:
        """Return how often deadlines are looked at: a quarter of the shortest, 1 s at most."""
        limits = [
            self.header_seconds,
            self.body_seconds,
            self.keep_alive_seconds,
            self.write_seconds,
            self.linger_seconds,
        ]
        if self.request_seconds is not None:
            limits.append(self.request_seconds)
        return min(1.0, min(limits) / 4)


DEFAULT: Final = Settings()


def parse_limits(texts: Iterable[str]) -> Settings:
    """Return the defaults, changed by `texts`, each `NAME=VALUE`.

    Raises:
        BadLimit: A name is unknown, or a value is not a number in its range.
    """
    changes: dict[str, Any] = {}
    known = {attribute.name: attribute.default for attribute in fields(Settings)}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise BadLimit(f"there is no limit {name!r}: write one of {', '.join(known)}")
        try:
            changes[name] = int(value) if isinstance(known[name], int) else float(value)
        except ValueError:
            what = "a whole number" if isinstance(known[name], int) else "a number"
            raise BadLimit(f"the limit {name!r} takes {what}, not {value!r}") from None
    try:
        return evolve(DEFAULT, **changes)
    except ValueError as error:
        raise BadLimit(f"a limit is out of range: {error.args[0]}") from None
