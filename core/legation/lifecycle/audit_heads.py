"""Heads of the audit trail on their way out: to the log, to a file, to a webhook.

Whoever can write to the database can cut off the end of the trail, and only a head that he cannot
reach shows that.  So a process looks at every chain again and again, also at those of others, and
sends the heads that are new.  Each place is served on its own: while one fails, the others go on.

Nothing is lost where a place fails: it gets the newest head of each chain later, and that proves
what is before it.  A process that begins takes the heads of chains that have rested for an hour
for sent: another one has sent them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final, Protocol

from attrs import field

from ..channels.signatures import sign_standard
from ..effects import (
    CallFunction,
    Fetch,
    Log,
    Now,
    Program,
    Raised,
    Sleep,
    ThisNode,
    TimedOut,
    Transact,
    Unreachable,
)
from ..http.messages import compact_json
from ..runs.executor import ExecutorContext
from ..runs.output import iso_time
from ..runs.rounds import Pause, RoundJob
from ..store.audit_heads import ChainHead, ReadHeads
from ..store.audit_pages import Head
from ..store.failures import StoreFailure
from ..values import define, frozen

__all__ = [
    "AppendToFile",
    "FileWriter",
    "HeadsMessage",
    "HeadsPlace",
    "HeadsToFile",
    "HeadsToLog",
    "HeadsToWebhook",
    "SendHeads",
    "SentHeads",
    "heads_jobs",
]

AppendToFile = Callable[[str, bytes], None]
"""Appends a line to the file at a path; raises `OSError` where it cannot."""

_CHAINS: Final = 1000
"""The most chains of one look, and of one message to a place."""
_CHAINS_OF_LINE: Final = 50
"""The most heads in a line of the log, which some collectors cut off after 16 KiB."""
_RESTED_US: Final = 3_600_000_000
_AGAIN_SECONDS: Final = 30.0
_FETCH_SECONDS: Final = 10.0
_NO_FILES: Final = "this host writes no files"
_TOO_SLOW: Final = "it took too long"


@frozen
class HeadsMessage:
    """The heads of some chains of one database, as they leave the process."""

    platform: str
    database: str
    at_us: int
    heads: tuple[str, ...]

    @property
    def content(self) -> dict[str, Any]:
        """The members of the message."""
        return {
            "platform": self.platform,
            "database": self.database,
            "at": iso_time(self.at_us),
            "heads": list(self.heads),
        }


class HeadsPlace(Protocol):
    """A place that heads are sent to."""

    @property
    def name(self) -> str:
        """The key of the configuration that names it."""
        ...

    def send(self, message: HeadsMessage) -> Program[str]:
        """Send `message`; return why that failed, or an empty text."""
        ...


@frozen
class HeadsToLog:
    """The log of the operator: `audit_heads`, one line for some tens of chains."""

    name: str = "heads_log"

    def send(self, message: HeadsMessage) -> Program[str]:
        """Write the lines."""
        for some in _split(message.heads, _CHAINS_OF_LINE):
            fields = (("database", message.database), ("heads", " ".join(some)))
            yield from Log("info", "audit_heads", fields)
        return ""


@define(eq=False)
class FileWriter:
    """The function of the host that appends to files; None where it has none."""

    append: AppendToFile | None = None


@frozen
class HeadsToFile:
    """A file, to which a line of JSON is appended."""

    path: str
    writer: FileWriter = field(repr=False)
    name: str = "heads_file"

    def send(self, message: HeadsMessage) -> Program[str]:
        """Append the line."""
        if self.writer.append is None:
            return _NO_FILES
        line = compact_json(message.content).encode() + b"\n"
        arguments = {"path": self.path, "line": line}
        done = yield from CallFunction(self.writer.append, arguments, _FETCH_SECONDS)
        if isinstance(done, TimedOut):
            return _TOO_SLOW
        return _describe(done.error) if isinstance(done, Raised) else ""


def _describe(error: Exception) -> str:
    reason = getattr(error, "strerror", None)
    return reason if isinstance(reason, str) else type(error).__name__


@frozen
class HeadsToWebhook:
    """A webhook, signed as Standard Webhooks 1.0 asks where there is a secret for it.

    Attributes:
        url: Where it is.
        context: Knows the secret as it is now.
    """

    url: str = field(repr=False)
    context: ExecutorContext = field(eq=False, repr=False)
    name: str = "heads_url"

    def send(self, message: HeadsMessage) -> Program[str]:
        """Send the request; only a status of 200 to 299 says that it was taken."""
        now_us = yield from Now()
        reply = yield from self._request(message, now_us)
        if isinstance(reply, Unreachable):
            return f"not reached: {reply.reason}"
        return "" if 200 <= reply.status < 300 else f"answered {reply.status}"

    def _request(self, message: HeadsMessage, now_us: int) -> Fetch:
        content = {
            "type": "audit.heads",
            "timestamp": iso_time(message.at_us),
            "data": message.content,
        }
        body = compact_json(content).encode()
        name, seconds = f"heads_{sha256(body).hexdigest()[:32]}", str(now_us // 1_000_000)
        headers = [
            ("content-type", "application/json"),
            ("webhook-id", name),
            ("webhook-timestamp", seconds),
        ]
        if (key := self.context.registry.audit.webhook_key) is not None:
            (signature,) = sign_standard((key,), name.encode(), seconds.encode(), body)
            headers.append(("webhook-signature", signature.decode()))
        return Fetch("POST", self.url, tuple(headers), body, _FETCH_SECONDS)


@define(eq=False)
class SentHeads:
    """The newest heads that one place has.

    Attributes:
        last: By the writer of each chain, the head that was sent last.
        complete: Whether every chain was looked at once.
        trouble: Why sending failed last; empty where it did not.
        looked_us: When the last look began.
    """

    last: dict[str, Head] = field(factory=dict[str, Head])
    complete: bool = False
    trouble: str = ""
    looked_us: int = 0


@frozen
class SendHeads(RoundJob):
    """Send the new heads of the trail in `database` to one place, again and again.

    Attributes:
        seconds: The pause between two looks.
        context: Of the process.
        sent: What the place has.
    """

    database: str
    place: HeadsPlace
    seconds: float
    context: ExecutorContext = field(eq=False, repr=False)
    sent: SentHeads = field(factory=SentHeads, eq=False, repr=False)

    @property
    def pause(self) -> Pause:
        """Wait for the configured time, and after a failure not for long."""
        return Sleep(min(self.seconds, _AGAIN_SECONDS) if self.sent.trouble else self.seconds)

    def log_trouble(self, level: str, fields: tuple[tuple[str, Any], ...]) -> Log:
        """Return the line of the log for a round that failed."""
        return Log(level, "audit_heads_failed", (*fields, ("target", self.place.name)))

    def round(self) -> Program[bool]:
        """Look at every chain once, and send the heads that are new."""
        sent, after = self.sent, ""
        node, now_us = (yield from ThisNode()), (yield from Now())
        sent.looked_us = now_us
        seen: set[str] = set()
        while True:
            found = yield from Transact(self.database, ReadHeads(after, _CHAINS))
            seen.update(one.head.writer for one in found)
            if not (yield from self._send(found, node, now_us)):
                return False
            if len(found) < _CHAINS:
                break
            after = found[-1].head.writer
        sent.complete = True
        for writer in sent.last.keys() - seen:  # pruned
            del sent.last[writer]
        return False

    def end(self) -> Program[None]:
        """Send what is new, if that can be done now: the process ends."""
        try:
            yield from self.round()
        except StoreFailure:
            return

    def _send(self, found: tuple[ChainHead, ...], node: str, now_us: int) -> Program[bool]:
        """Send those of `found` that are new; return whether the place took them."""
        sent = self.sent
        new = tuple(one for one in found if self._is_new(one, node, now_us))
        if new:
            heads = tuple(str(one.head) for one in new)
            platform = self.context.registry.config.id
            message = HeadsMessage(platform, self.database, now_us, heads)
            trouble = yield from self.place.send(message)
            if trouble and trouble != sent.trouble:
                fields = (("reason", trouble), ("target", self.place.name))
                where = ("database", self.database)
                yield from Log("warning", "audit_heads_failed", (where, *fields))
            sent.trouble = trouble
            if trouble:
                return False
        sent.last.update((one.head.writer, one.head) for one in found)
        return True

    def _is_new(self, one: ChainHead, node: str, now_us: int) -> bool:
        """Return whether the place does not have this head."""
        known = self.sent.last.get(one.head.writer)
        if known is not None or self.sent.complete:
            return known != one.head
        return now_us - one.at_us < _RESTED_US or node in one.head.writer.split("/")


def _split(heads: tuple[str, ...], size: int) -> Iterator[tuple[str, ...]]:
    return (heads[begin : begin + size] for begin in range(0, len(heads), size))


def heads_jobs(context: ExecutorContext, writer: FileWriter) -> tuple[SendHeads, ...]:
    """Return a job for each place that the configuration names, and each database.

    A webhook comes last: at the end of a process, nothing waits for it.
    """
    audit, places = context.registry.config.audit, list[HeadsPlace]()
    if audit.heads_log:
        places.append(HeadsToLog())
    if audit.heads_file is not None:
        places.append(HeadsToFile(audit.heads_file, writer))
    if audit.heads_url is not None:
        places.append(HeadsToWebhook(audit.heads_url, context))
    return tuple(
        SendHeads(name, place, audit.heads_seconds, context)
        for place in places
        for name in context.registry.databases
    )
