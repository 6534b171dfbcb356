"""The replies of a run that a person asked for in a channel: the answer, or a question about it.

The input of such a run says where it was asked for.  Its first reply is stored with its message,
which waits for the run.  Once the run was continued nobody may wait any more: from then on its own
end, or its next pause, stores the reply in its transaction, by whomever and wherever it goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from attrs import asdict, evolve, fields

from ..channels.answer_files import Shown, find_files
from ..channels.deliveries import APOLOGY, IncomingMessage
from ..channels.replies import (
    Part,
    Reply,
    ShownCall,
    file_replies,
    later_key,
    outbox_rows,
    replies_to,
    utf16_length,
)
from ..hosted.registry import HostedChannel
from ..store.outbox import Letter
from ..store.run_states import RunState
from ..values import frozen

__all__ = [
    "REPLY_TO",
    "ChannelReplies",
    "ReplyTo",
    "answer",
    "mark_continued",
    "read_reply_to",
    "tell_cancelled",
]

REPLY_TO: Final = "reply_to"
"""The member of the input of a run that says where it was asked for."""

_CANCELLED: Final = "The request was cancelled."
_UNSENT: Final = "The answer has a file that cannot be shown here: {}"
_ASK: Final = "I need your approval before I go on:"
_DOUBT: Final = "It is not known whether **{}** was carried out. Shall I call it again?"
_PRESS: Final = 'Press a button, or answer "yes" or "no".'
_SAY: Final = 'Answer "yes" or "no".'
_LONG: Final = "What waits for approval is too long to be shown here."
_MOST: Final = 12_000
"""How long a question may be, in characters: nobody approves what they were not shown."""

_SHORT: Final = 900
"""How long a text with buttons may be, in characters; before a longer one, the text comes apart."""


@frozen
class ReplyTo:
    """The place where a run was asked for: a message in a channel.

    Attributes:
        sender: Who asked, by the provider's id.
        continued: A person has answered a pause of the run since.
    """

    channel: str
    message_id: str
    sender: str
    conversation: str = ""
    thread: str = ""
    provider_id: str = ""
    continued: bool = False

    @classmethod
    def of(cls, channel: str, message: IncomingMessage) -> ReplyTo:
        """Return the place of `message`."""
        names = ("message_id", "sender", "conversation", "thread", "provider_id")
        return cls(channel, **{name: getattr(message, name) for name in names})

    @property
    def message(self) -> IncomingMessage:
        """The message, as far as it is known here."""
        return IncomingMessage(
            self.message_id,
            self.sender,
            conversation=self.conversation,
            thread=self.thread,
            provider_id=self.provider_id,
        )

    def dump(self) -> dict[str, Any]:
        """Return it as a member of an input; what is as ever is left out."""
        return asdict(self, filter=lambda a, value: value != a.default)


_NAMES: Final = frozenset(field.name for field in fields(ReplyTo))


def read_reply_to(asked: Mapping[str, Any]) -> ReplyTo | None:
    """Return where the run of the input `asked` was asked for, if that was in a channel."""
    stored = asked.get(REPLY_TO)
    if stored is None:
        return None
    return ReplyTo(**{name: value for name, value in stored.items() if name in _NAMES})


def mark_continued(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member that says where a run was asked for, if there is one, as continued."""
    to = read_reply_to(asked)
    return {} if to is None else {REPLY_TO: evolve(to, continued=True).dump()}


@frozen
class ChannelReplies:
    """The writer of the replies of one run that was continued.

    `channel` is None on a node that does not host the channel: its text is sent as it is.
    """

    to: ReplyTo
    channel: HostedChannel | None

    def letters(
        self, run_id: str, state: RunState, output: Mapping[str, Any], seq: int, now_us: int
    ) -> tuple[Letter, ...]:
        """Return the replies of a run that comes to `state` with its event `seq`."""
        replies = answer(self.channel, self.to.message, run_id, state, output, seq, now_us)
        return _address(self.to, replies, seq)


def _address(to: ReplyTo, replies: tuple[Reply, ...], seq: int) -> tuple[Letter, ...]:
    """Return `replies` as letters of the channel, with keys of the event `seq`."""
    keyed = (
        evolve(reply, key=later_key(to.message_id, seq, number))
        for number, reply in enumerate(replies, start=1)
    )
    return tuple(Letter(to.channel, row) for row in outbox_rows(tuple(keyed)))


def tell_cancelled(asked: Mapping[str, Any], seq: int, now_us: int) -> tuple[Letter, ...]:
    """Return what a person reads whose request waited for an answer, and was cancelled instead."""
    to = read_reply_to(asked)
    if to is None:
        return ()
    return _address(to, replies_to(to.message, _CANCELLED, _whole, now_us), seq)


def answer(
    channel: HostedChannel | None,
    message: IncomingMessage,
    run_id: str,
    state: RunState,
    output: Mapping[str, Any],
    seq: int,
    now_us: int,
) -> tuple[Reply, ...]:
    """Return what a person reads of a run that has come to `state` with its event `seq`.

    That is the answer, an apology, or, where the channel lets somebody answer, the question that
    the run waits with.
    """
    compose = _whole if channel is None else channel.codec.compose
    if state is RunState.PAUSED and channel is not None and channel.options.approve:
        question = _ask(channel, output)
        if question:
            replies = replies_to(message, question, compose, now_us)
            return tuple(_add_buttons(channel, replies, f"{run_id}.{seq}", output))
    found = find_files(output.get("content")) if state is RunState.COMPLETED else None
    if found is not None:
        return _with_files(channel, message, found, now_us)
    text = _CANCELLED if state is RunState.CANCELLED else _answer_text(state, output)
    apology = APOLOGY if channel is None else channel.apology
    return replies_to(message, text or apology, compose, now_us)


def _with_files(
    channel: HostedChannel | None, message: IncomingMessage, found: Shown, now_us: int
) -> tuple[Reply, ...]:
    """Return the text of an answer, then its files, or their names where none can be sent."""
    text, files = found
    if channel is None or not channel.codec.sends_files:
        named = "\n\n".join((text, *(_UNSENT.format(file.name) for file in files)))
        compose = _whole if channel is None else channel.codec.compose
        return replies_to(message, named.lstrip(), compose, now_us)
    replies = replies_to(message, text, channel.codec.compose, now_us)
    return (*replies, *file_replies(message, files, len(replies) + 1, now_us))


def _whole(text: str) -> Iterator[Part]:
    yield Part(text)


def _answer_text(state: RunState, output: Mapping[str, Any]) -> str:
    """Return what a run answered, else nothing; of one that waits for a person, that it does."""
    content = output.get("content")
    if state not in (RunState.COMPLETED, RunState.PAUSED) or content is None:
        return ""
    return content.strip() if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


# --- a question -----------------------------------------------------------------------------------


def _calls(output: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one["tool_execution"] for one in output["requirements"]]


def _ask(channel: HostedChannel, output: Mapping[str, Any]) -> str:
    """Return the question that a paused run has; nothing where yes and no are no answer to it."""
    calls = _calls(output)
    if any(call["external_execution_required"] for call in calls):
        return ""
    how = _PRESS if channel.codec.has_buttons else _SAY
    text = "\n\n".join((_ASK, *map(_describe, calls), how))
    return text if len(text) <= _MOST else _LONG


def _describe(call: Mapping[str, Any]) -> str:
    """Return a call in plain words, as Markdown; a value is code, so that nothing in it is read."""
    name = call["tool_name"]
    head = _DOUBT.format(name) if call.get("in_doubt") else f"**{name}**"
    values = (f"- {name}: {_quote(value)}" for name, value in call["tool_args"].items())
    return "\n".join((head, *values))


def _quote(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    plain = " ".join(text.replace("`", "'").split())
    return f"`{plain}`" if plain else '""'


def _add_buttons(
    channel: HostedChannel, replies: tuple[Reply, ...], approval: str, output: Mapping[str, Any]
) -> Iterator[Reply]:
    """Yield the parts of a question, the last of which is short enough to have the buttons."""
    *before, last = replies
    if utf16_length(last.text) > _SHORT:
        before = [*replies]
        (part,) = channel.codec.compose(_PRESS if channel.codec.has_buttons else _SAY)
        last = evolve(last, text=part.text, spans=part.spans, quotes="")
    yield from before
    if _ask(channel, output) != _LONG:
        calls = tuple(ShownCall(one["tool_name"], one["tool_args"]) for one in _calls(output))
        last = evolve(last, purpose="approval", approval=approval, calls=calls)
    yield last
