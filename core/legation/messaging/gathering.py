"""Messages that belong together: an album, or what a person writes within a few seconds.

They are one message to the person, and one run answers them.  The oldest waits until the others
are there.  Then it takes them over in one transaction: it has their words and files from there on,
and they are done, under the run that is to answer it.  So a crash finds them apart, or as one.

In a group the caption of one picture makes the whole album ours; of an album that is not ours, the
messages are done without a word.

Only messages of one sender in one conversation are gathered.  A command, a press of a button and a
word that decides stand alone, and end what was gathered before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from attrs import evolve

from ..channels.deliveries import (
    Ask,
    ContentKind,
    IncomingMessage,
    decode_message,
    encode_message,
    treat,
)
from ..channels.media import MOST_BYTES
from ..effects import Now, Program
from ..hosted.channel_options import ChannelOptions
from ..runs.ids import new_id
from ..runs.retry import persist
from ..store.inbox import ClaimedMessage, GatherMessages, ListWaiting, PostponeMessage
from .decisions import PRESSED, read_words
from .leases import LeaseLost, WorkerLeases
from .unread import MOST_FILES

__all__ = ["MOST_CHARACTERS", "MOST_MESSAGES", "choose", "gather", "merge", "wait_of"]

MOST_MESSAGES: Final = 50
MOST_CHARACTERS: Final = 50_000
"""Of one gathered message."""

_ALBUM_US: Final = 1_000_000
"""How long the first message of an album waits: its messages come one by one, at about once."""

_MOST_WAITS: Final = 5
"""A message is not put off more often, whatever the clocks say."""


def wait_of(options: ChannelOptions, message: IncomingMessage) -> int:
    """Return for how long others may join `message`, in microseconds; 0 where it stands alone."""
    if not _is_open(options, message):
        return 0
    seconds = options.gather_seconds if message.addressed else 0
    return max(round(seconds * 1_000_000), _ALBUM_US if message.album else 0)


def _is_open(options: ChannelOptions, message: IncomingMessage) -> bool:
    """Tell whether `message` is for the agent, and may be answered together with others.

    Of one that is not addressed to us, that is so if another of its album is.
    """
    treatment = treat(evolve(message, addressed=True))
    if not isinstance(treatment, Ask) or message.kind in PRESSED:
        return False
    decides = bool(options.approve) and read_words(treatment.text) is not None
    return not decides and not treatment.text.lstrip().startswith("/")


def choose(
    options: ChannelOptions, first: IncomingMessage, waiting: Sequence[tuple[IncomingMessage, int]]
) -> Iterator[IncomingMessage]:
    """Yield those of `waiting` that are answered together with `first`.

    Args:
        waiting: What came after `first` from its sender, in order, and how long after it, in
            microseconds.
    """
    addressed = (one.album for one in (first, *(one for one, _ in waiting)) if one.addressed)
    ours = frozenset(filter(None, addressed))
    joins = first.addressed or first.album in ours
    taken, most_us = first, round(options.gather_seconds * 1_000_000) if joins else 0
    for message, after_us in waiting:
        if (message.conversation, message.thread) != (first.conversation, first.thread):
            continue
        if not message.addressed and message.album not in (*ours, first.album):
            continue
        if not _is_open(options, message):
            if isinstance(treat(evolve(message, addressed=True)), Ask):
                return
            continue
        of_album = bool(first.album) and message.album == first.album
        if not of_album and not (most_us and after_us <= most_us):
            continue
        taken = merge(taken, message)
        if not _fits(taken):
            return
        yield message


def _fits(message: IncomingMessage) -> bool:
    size = sum(media.size or 0 for media in message.media)
    words = len(message.text or "")
    return len(message.media) <= MOST_FILES and size <= MOST_BYTES and words <= MOST_CHARACTERS


def merge(first: IncomingMessage, *others: IncomingMessage) -> IncomingMessage:
    """Return `first` with the words and the files of `others`; it is the one that is answered."""
    messages = (first, *others)
    kinds = [message.kind for message in messages if message.media]
    return evolve(
        first,
        kind=ContentKind.DOCUMENT if ContentKind.DOCUMENT in kinds else (*kinds, first.kind)[0],
        text="\n".join(filter(None, (message.text for message in messages))) or None,
        media=tuple(media for message in messages for media in message.media),
        addressed=any(message.addressed for message in messages),
    )


def gather(worker: WorkerLeases, claimed: ClaimedMessage) -> Program[ClaimedMessage | None]:
    """Return `claimed` with what belongs to it; None where it was put off, to wait for that.

    Raises:
        LeaseLost: Somebody else works on the message now.
    """
    if claimed.run_id is not None:  # it was gathered before, or a run was begun
        return claimed
    options = worker.channel(claimed.lease.key.channel).options
    message = decode_message(claimed.payload)
    wait_us = wait_of(options, message)
    if not wait_us:
        return claimed
    now_us = yield from Now()
    left_us = min(claimed.received_us + wait_us - now_us, wait_us)
    is_over = worker.context.is_over
    if left_us > 0 and claimed.lease.attempts <= _MOST_WAITS:
        postpone = PostponeMessage(claimed.lease, left_us)
        if not (yield from persist(worker.database, postpone, is_over)):
            raise LeaseLost
        return None
    return (yield from _take(worker, claimed, options, message))


def _take(
    worker: WorkerLeases, claimed: ClaimedMessage, options: ChannelOptions, first: IncomingMessage
) -> Program[ClaimedMessage]:
    """Take over what waits behind `first` and belongs to it."""
    is_over = worker.context.is_over
    listing = ListWaiting(claimed.lease, claimed.sender, MOST_MESSAGES - 1)
    rows = yield from persist(worker.database, listing, is_over)
    waiting = [(decode_message(row.payload), row.received_us - claimed.received_us) for row in rows]
    chosen = tuple(choose(options, first, waiting))
    if not chosen:
        return claimed
    run_id = yield from new_id(claimed.received_us)
    payload = encode_message(merge(first, *chosen))
    names = tuple(message.message_id for message in chosen)
    taken = GatherMessages(claimed.lease, run_id, payload, names)
    if not (yield from persist(worker.database, taken, is_over)):
        raise LeaseLost
    return evolve(claimed, run_id=run_id, payload=payload)
