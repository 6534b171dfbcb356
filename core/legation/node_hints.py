"""The hints that a node has for the others of a database: which words go to which of them.

A hint says that it is worth asking the database now, and nothing else.  It goes to whom it
concerns: a nudge to a node that is named, the events of a run to the nodes that follow it.  Those
say so to the node that executes the run, and say it again as long as they follow.  So a run that
nobody follows elsewhere costs the other nodes nothing, however many there are.

Everything is in memory and bounded: a hint that finds no room is lost, which is what may become of
any hint.  A word may be made up by whoever can connect to the database; it can cost a look into the
database, and a few words more.  Topics, runs and nodes leave as digests.

Words are `n` and a digest for a nudge; `e`, the digest of a run and the number of its newest event;
`f`, the digest of a run and that of the node that follows it.  There is no clock here: a method
takes the time in seconds, by any clock that never goes back.
"""

from __future__ import annotations

from collections import OrderedDict
from string import ascii_letters, digits
from typing import Final, Protocol, TypeAlias

from attrs import field

from .node_state import digest
from .values import define

__all__ = [
    "EVERYBODY",
    "FOLLOWED_RUNS",
    "FOLLOWING_NODES",
    "KEPT_SECONDS",
    "PAYLOAD_BYTES",
    "PENDING_WORDS",
    "RENEWED_SECONDS",
    "Hearer",
    "NodeHints",
]

EVERYBODY: Final = ""
"""The address that all nodes of the database hear."""

RENEWED_SECONDS: Final = 10.0
"""So often a node says again that it follows a run."""

KEPT_SECONDS: Final = 30.0
"""So long a node that has said so counts as a follower."""

FOLLOWED_RUNS: Final = 16_384
"""Of so many runs it is known which nodes follow them, and of so many that this node does."""

FOLLOWING_NODES: Final = 64
"""So many nodes are told of one run; others ask the database."""

PENDING_WORDS: Final = 4_096
PAYLOAD_BYTES: Final = 7_900  # PostgreSQL takes less than 8,000

_LOOK: Final = 10**9
"""The number of an event that no run has: whoever hears it looks once."""

_DIGEST: Final = frozenset(f"{ascii_letters}{digits}-_")
_LENGTH: Final = len(digest(""))


class Hearer(Protocol):
    """The receiver of news of other nodes: the state of this node, or what wakes the waiting."""

    def hear_nudge(self, key: str) -> object:
        """Note that another node did something for the topic with this digest."""
        ...

    def hear_event(self, key: str, seq: int) -> object:
        """Note that another node stored the events up to `seq` of the run with this digest."""
        ...


_Words: TypeAlias = dict[str, int]
"""The newest event by the word for a run, 0 by each other word."""


def _is_digest(text: str) -> bool:
    """Return whether `text` can be what `digest` returns."""
    return len(text) == _LENGTH and _DIGEST.issuperset(text)


def _take_words(words: _Words) -> str:
    """Take as many out of `words` as one payload holds, oldest first."""
    taken: list[str] = []
    size = 0
    for word, number in tuple(words.items()):
        text = f"{word}:{number}" if number else word
        size += len(text) + 1
        if size > PAYLOAD_BYTES:
            break
        taken.append(text)
        del words[word]
    return " ".join(taken)


@define(eq=False)
class NodeHints:
    """The hints to and from the other nodes of one database.

    Attributes:
        name: Of this node.
        told: How many words were to go to others.
    """

    name: str
    told: int = field(default=0, init=False)
    _pending: dict[str, _Words] = field(factory=dict[str, _Words], init=False)
    _size: int = field(default=0, init=False)
    # Who follows which run elsewhere: until when, by the digest of the node.
    _followers: OrderedDict[str, dict[str, float]] = field(
        factory=OrderedDict[str, dict[str, float]], init=False
    )
    # Which run was last said to be followed here, to which node, and when.
    _followed: OrderedDict[tuple[str, str], float] = field(
        factory=OrderedDict[tuple[str, str], float], init=False
    )

    @property
    def address(self) -> str:
        """The address of this node."""
        return digest(self.name)

    @property
    def is_pending(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._pending)

    # --- To others ------------------------------------------------------------------------------

    def nudge(self, topic: str, node: str | None = None) -> None:
        """Wake whoever waits under `topic` on `node`; without one, on every other node."""
        if node != self.name:
            self._tell(EVERYBODY if node is None else digest(node), f"n{digest(topic)}")

    def event(self, run_id: str, seq: int, now: float) -> None:
        """Announce to the nodes that follow `run_id` that its events up to `seq` are stored."""
        if not self._followers:
            return
        key = digest(run_id)
        nodes = self._followers.get(key, {})
        for node, until in tuple(nodes.items()):
            if until >= now:
                self._tell(node, f"e{key}", seq)
            else:
                del nodes[node]
        if not nodes:
            self._followers.pop(key, None)

    def follow(self, run_id: str, holder: str, now: float) -> None:
        """Tell `holder`, which executes the run, that this node follows it, now and then."""
        place = (holder, run_id)
        told = self._followed.get(place)
        if holder == self.name or (told is not None and now - told < RENEWED_SECONDS):
            return
        self._forget(now)
        if told is None and len(self._followed) >= FOLLOWED_RUNS:
            return
        self._followed[place] = now
        self._followed.move_to_end(place)
        self._tell(digest(holder), f"f{digest(run_id)}:{self.address}")

    def _forget(self, now: float) -> None:
        """Forget which runs were followed here, and by now are not."""
        while self._followed and now - next(iter(self._followed.values())) > KEPT_SECONDS:
            self._followed.popitem(last=False)

    def _tell(self, node: str, word: str, number: int = 0) -> None:
        words = self._pending.get(node, {})
        if word not in words:
            if self._size >= PENDING_WORDS:
                return
            self._size += 1
        self.told += 1
        words[word] = max(number, words.get(word, 0))
        self._pending[node] = words

    def take(self, most: int) -> tuple[tuple[str, str], ...]:
        """Take what is to be told: at most so many payloads, each with the address it goes to."""
        taken: list[tuple[str, str]] = []
        for node in tuple(self._pending)[:most]:
            words = self._pending[node]
            before = len(words)
            taken.append((node, _take_words(words)))
            self._size -= before - len(words)
            if not words:
                del self._pending[node]
        return tuple(taken)

    def clear(self) -> None:
        """Drop what is to be told: nobody can be."""
        self._pending.clear()
        self._size = 0

    # --- From others ----------------------------------------------------------------------------

    def hear(self, payload: str, hearer: Hearer, now: float) -> int:
        """Take the words of another node; return how many were understood."""
        heard = 0
        for word in payload.split(" "):
            kind, (key, colon, rest) = word[:1], word[1:].partition(":")
            if kind == "n" and key and not colon:
                hearer.hear_nudge(key)
            elif kind == "e" and key and rest.isascii() and rest.isdigit():
                hearer.hear_event(key, int(rest[:18]))
            elif kind == "f" and _is_digest(key) and _is_digest(rest):
                self._hear_follower(key, rest, now)
            else:
                continue
            heard += 1
        return heard

    def _hear_follower(self, key: str, node: str, now: float) -> None:
        """Note that a node follows a run; a new one is to look once, for what came before this."""
        nodes = self._followers.get(key)
        if nodes is None:
            while self._followers and max(next(iter(self._followers.values())).values()) < now:
                self._followers.popitem(last=False)
            if len(self._followers) >= FOLLOWED_RUNS:
                return
            nodes = self._followers[key] = {}
        elif node not in nodes and len(nodes) >= FOLLOWING_NODES:
            return
        if nodes.get(node, now - 1) < now:
            self._tell(node, f"e{key}", _LOOK)
        nodes[node] = now + KEPT_SECONDS
        self._followers.move_to_end(key)
