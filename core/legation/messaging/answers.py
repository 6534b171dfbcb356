"""The work on one message: its run in the sender's session, and the reply.

A message may be worked on more than once, after a crash or a failure of the database; the run that
answers it is begun once.  Its id is noted on the message before it begins, so whoever comes later
finds it, waits for it, and takes its answer: a run goes on when the node that executed it died.
One that was deleted while it was waited for ends the message: whoever deleted its session wants no
more of it.
"""

from __future__ import annotations

import json
from typing import TypeVar

from attrs import evolve

from ..channels.commands import OPTED_OUT, Command, help_text, read_command
from ..channels.deliveries import (
    Ask,
    Decide,
    IncomingMessage,
    Press,
    Say,
    decode_message,
    encode_message,
    treat,
)
from ..channels.replies import Reply, apology_key, outbox_rows, replace_draft, replies_to
from ..effects import Job, Log, Now, Nudge, Program, Spawn
from ..hosted.registry import HostedChannel
from ..incidents import trace, where
from ..runs.channel_replies import REPLY_TO, ReplyTo, answer, read_reply_to
from ..runs.ids import new_id
from ..runs.retry import PASSING, Patience, persist
from ..runs.start import NewRun, start
from ..store.conversations import FetchStanding, OpenSession, OptIn, OptOut
from ..store.failures import StoreFailure
from ..store.inbox import AttachRun, ClaimedMessage, CompleteMessage, FailMessage, KeepMessage
from ..store.outbox import NewReply
from ..store.run_reads import FetchRun
from ..store.run_rows import RunRow
from ..store.run_states import RunState
from ..store.runs import Started
from ..store.units import Unit
from ..values import frozen
from .attachments import attachments
from .conversations import (
    Beginning,
    begin_with,
    find_conversation,
    list_ids,
    name_speaker,
    read_beginning,
    resume,
)
from .decisions import APPROVED, PRESSED, REJECTED, SEVERAL, Decision, is_settled, read_words
from .gathering import gather
from .leases import LeaseLost, WorkerLeases
from .retry import draw_wait_us
from .sender_functions import choose_agent, find_subject
from .streamed_answers import StreamedAnswer
from .turned_away import tell_busy, tell_over, tell_stranger
from .typing_indicators import ShowContinuation, show_typing

__all__ = ["AnswerMessage"]

R = TypeVar("R")


@frozen
class AnswerMessage(Job):
    """Answer one claimed message, or say when to try again."""

    worker: WorkerLeases
    claimed: ClaimedMessage

    def program(self) -> Program[None]:
        """Work under the lease; give it back whatever goes wrong."""
        trouble: Exception | None = None
        try:
            yield from self._answer()
        except LeaseLost:
            self.worker.context.meter.count_lost(self.worker.database)
        except Exception as error:  # noqa: BLE001 (a bug must not keep a message from being tried again)
            trouble = error
        if trouble is not None:
            yield from self._try_later(trouble)
        # Not while unwinding: what is broken off with its process is still held, and given back.
        self.worker.leave(self.claimed.lease)
        yield from Nudge(self.worker.inbox)

    def _answer(self) -> Program[None]:
        claimed = yield from gather(self.worker, self.claimed)
        if claimed is not None:
            yield from evolve(self, claimed=claimed)._answer_gathered()

    def _answer_gathered(self) -> Program[None]:
        channel = self.worker.channel(self.claimed.lease.key.channel)
        message = decode_message(self.claimed.payload)
        treatment = treat(message)
        now_us = yield from Now()
        if message.addressed and not channel.options.may_write(message.sender):
            self.worker.context.count_turned_away(channel.id, "not allowed")
            yield from self._complete(tell_stranger(channel, message, now_us))
            return
        if isinstance(treatment, Ask | Say):
            message = yield from self._identify(channel, message)
        match treatment:
            case Ask(text):
                replies = yield from self._ask_agent(channel, message, text)
            case Decide(press):
                replies = yield from self._decide(channel, message, press)
            case Say(text):
                replies = yield from self._say(channel, message, text)
            case _:
                replies = ()
        yield from self._complete(replies)

    def _identify(
        self, channel: HostedChannel, message: IncomingMessage
    ) -> Program[IncomingMessage]:
        """Return `message` with the subject that its sender is, where a function knows that."""
        function = channel.options.find_subject
        if function is None or message.subject is not None:
            return message
        subject = yield from find_subject(channel, function, message)
        known = evolve(message, subject=subject)
        yield from self._keep(known)
        return known

    def _route(
        self, channel: HostedChannel, message: IncomingMessage, text: str, agent: str
    ) -> Program[IncomingMessage]:
        """Return `message` with whom it begins a conversation, where a function chooses that."""
        function = channel.options.router
        if function is None or message.agent is not None:
            return message
        chosen = yield from choose_agent(channel, function, message, text, agent)
        routed = evolve(message, agent=chosen)
        yield from self._keep(routed)
        return routed

    def _say(
        self, channel: HostedChannel, message: IncomingMessage, text: str
    ) -> Program[tuple[Reply, ...]]:
        """Return what is said without a run; nothing to who wants no messages."""
        talk = find_conversation(channel, message)
        fetch = FetchStanding(talk.owner, talk.base, channel.id, message.sender)
        standing = yield from self._transact(fetch)
        now_us = yield from Now()
        if channel.options.commands and standing.opted_out:
            return ()
        return replies_to(message, text, channel.codec.compose, now_us)

    def _decide(
        self, channel: HostedChannel, message: IncomingMessage, press: Press
    ) -> Program[tuple[Reply, ...]]:
        """Answer the run that a button is for; return what the press is owed, or a refusal."""
        said = yield from self._settle(channel, message, press)
        now_us = yield from Now()
        decided = said in (APPROVED, REJECTED)
        told = f"{said[:-1]} by {message.name}." if decided and message.name else said
        closings = channel.codec.closings(message, told, now_us, settled=is_settled(said))
        if closings or decided:
            return closings
        return replies_to(message, said, channel.codec.compose, now_us)

    def _settle(
        self, channel: HostedChannel, message: IncomingMessage, press: Press
    ) -> Program[str]:
        """Decide, and show in the chat that the run goes on; return what the person reads."""
        said = yield from Decision(self.worker.context, channel, message).take(press)
        if channel.options.show_typing and said in (APPROVED, REJECTED):
            yield from Spawn(ShowContinuation(self.worker, channel.id, message, press.approval))
        return said

    def _ask_agent(
        self, channel: HostedChannel, message: IncomingMessage, text: str
    ) -> Program[tuple[Reply, ...]]:
        """Return what the agent says to `text`, or what comes of a word that decides.

        Nothing is said to who wants no messages.
        """
        talk = find_conversation(channel, message)
        room = channel.options.waiting
        most = room + 2 if room else 0  # with this one, and one too many
        person, chat = message.sender, message.conversation
        fetch = FetchStanding(talk.owner, talk.base, channel.id, person, most, chat)
        standing = yield from self._transact(fetch)
        commands = channel.options.commands
        command = read_command(text) if commands else None
        if commands and standing.opted_out and command is not Command.START:
            return ()
        if room and standing.waiting == most and not self.claimed.run_id:
            self.worker.context.count_turned_away(channel.id, "too many")
            now_us = yield from Now()
            return tell_busy(channel, message, now_us)
        said: str | None
        begun = read_beginning(channel, message, talk.base, text)
        first, (channel, session_id) = channel, resume(channel, talk.base, standing.session_id)
        said = None
        if command is not None:
            said = yield from self._obey(channel, message, command)
        elif begun is None:
            said = yield from self._decide_by_words(channel, message, text, talk.owner, session_id)
        if command is None and said is None:
            message, begun = yield from self._begin(first, channel, message, talk.base, text, begun)
        if begun is not None:
            channel, session_id, text = begun.channel, begun.session_id, begun.words
            yield from self._open(channel, talk.owner, session_id)
            said = None if text or message.media else begun.greeting
        if said is None:
            work = self._run(channel, message, talk.owner, session_id, text)
            return (yield from show_typing(self.worker, channel, message, work))
        now_us = yield from Now()
        return replies_to(message, said, channel.codec.compose, now_us)

    def _begin(
        self,
        first: HostedChannel,
        current: HostedChannel,
        message: IncomingMessage,
        base: str,
        text: str,
        begun: Beginning | None,
    ) -> Program[tuple[IncomingMessage, Beginning | None]]:
        """Return the conversation that begins with a message: as it says, or as a router says.

        A command that names somebody is not routed, nor is one without words.
        """
        if begun is not None and (begun.channel is not first or not begun.words):
            return message, begun
        words = text if begun is None else begun.words
        agent = (current if begun is None else first).component.id
        message = yield from self._route(first, message, words, agent)
        return message, begin_with(first, message, base, words) or begun

    def _decide_by_words(
        self,
        channel: HostedChannel,
        message: IncomingMessage,
        text: str,
        owner: str,
        session_id: str,
    ) -> Program[str | None]:
        """Answer the run that waits in the session, if `text` does; None where it means more.

        The label of a button that is not ours is no answer: it was the answer to something else.
        Which question it is for is noted on the message first: whoever comes later answers no
        other one, and asks nobody.
        """
        decides = channel.options.approve and message.kind not in PRESSED
        approves = read_words(text) if decides else None
        approval = self.claimed.run_id
        if approves is None or (approval is not None and "." not in approval):
            return None
        if approval is None:
            decision = Decision(self.worker.context, channel, message)
            waiting = yield from decision.find(owner, session_id)
            if len(waiting) != 1:
                return SEVERAL if waiting else None
            (approval,) = waiting
            yield from self._note(approval)
        said = yield from self._settle(channel, message, Press(approval, approves))
        return "" if said in (APPROVED, REJECTED) else said

    def _obey(
        self, channel: HostedChannel, message: IncomingMessage, command: Command
    ) -> Program[str]:
        """Do what a command says, and return what its sender is told."""
        for person in () if command is Command.HELP else list_ids(message):
            if command is Command.STOP:
                now_us = yield from Now()
                yield from self._transact(OptOut(channel.id, person, now_us))
            else:
                yield from self._transact(OptIn(channel.id, person))
        if command is Command.STOP:
            return OPTED_OUT
        component = channel.component
        more = ((word, f"asks {other.name}") for word, other in channel.others.items())
        return help_text(component.name, component.description, more)

    def _open(self, channel: HostedChannel, owner: str, session_id: str) -> Program[None]:
        now_us = yield from Now()
        component = channel.component
        opened = OpenSession(owner, session_id, component.kind, component.id, now_us)
        yield from self._transact(opened)

    def _run(
        self,
        channel: HostedChannel,
        message: IncomingMessage,
        owner: str,
        session_id: str,
        text: str,
    ) -> Program[tuple[Reply, ...]]:
        """Return the answer of a run: the one noted before, or one begun now.

        Where nothing in the message can be read, or a share is used up, no run begins, and the
        answer says so.  One that has begun is the owner's that it began with, whatever the
        configuration says by now.
        """
        run_id = self.claimed.run_id
        begun = None if run_id is None else (yield from self._row(run_id))
        streamed = StreamedAnswer(self.worker, channel, message, self._keep)
        if run_id is None or begun is None:
            attached = yield from attachments(channel, message, text, streamed.keep)
            if attached.advice:
                now_us = yield from Now()
                return replies_to(message, attached.advice, channel.codec.compose, now_us)
            run_id = run_id or (yield from self._note_run())
            to = ReplyTo.of(channel.id, message).dump()
            new = NewRun(
                owner=owner,
                session_id=session_id,
                run_id=run_id,
                message=name_speaker(channel, message) + attached.text,
                pieces=channel.options.stream_answers,
                details={**attached.files, "in_doubt": "tell", REPLY_TO: to},
            )
            if over := (yield from self._start(channel, new)).over:
                now_us = yield from Now()
                return tell_over(channel, message, over, now_us)
        else:
            owner = begun.owner
        yield from streamed.follow(owner, run_id)
        row = yield from self._row(run_id)
        now_us = yield from Now()
        replies = _answer(channel, message, row, now_us)
        return replace_draft(replies, streamed.message.draft)

    def _start(self, channel: HostedChannel, new: NewRun) -> Program[Started]:
        """Begin the run, once, however long the database is away."""
        patience = Patience(self.worker.context.is_over)
        while not patience.exhausted:
            try:
                return (yield from start(self.worker.context, channel.component, new))
            except PASSING:
                pass
            yield from patience.wait()
        return (yield from start(self.worker.context, channel.component, new))

    def _transact(self, unit: Unit[R]) -> Program[R]:
        """Run a unit under the lease, however long the database is away."""
        return (yield from persist(self.worker.database, unit, self.worker.context.is_over))

    def _note_run(self) -> Program[str]:
        """Return the id of a run to begin, noted on the message."""
        run_id = yield from new_id(self.claimed.received_us)
        yield from self._note(run_id)
        return run_id

    def _note(self, run_id: str) -> Program[None]:
        if not (yield from self._transact(AttachRun(self.claimed.lease, run_id))):
            raise LeaseLost

    def _keep(self, message: IncomingMessage) -> Program[None]:
        kept = KeepMessage(self.claimed.lease, encode_message(message))
        if not (yield from self._transact(kept)):
            raise LeaseLost

    def _row(self, run_id: str) -> Program[RunRow | None]:
        return (yield from self._transact(FetchRun(run_id, None, any_owner=True)))

    def _complete(self, replies: tuple[Reply, ...]) -> Program[None]:
        now_us = yield from Now()
        done = CompleteMessage(self.claimed.lease, now_us, outbox_rows(replies))
        if not (yield from self._transact(done)):
            self.worker.context.meter.count_lost(self.worker.database)
        elif replies:
            yield from Nudge(self.worker.outbox)

    def _try_later(self, trouble: Exception) -> Program[None]:
        """Put the message back with a growing pause; in the end among the dead letters."""
        key, lease = self.claimed.lease.key, self.claimed.lease
        now_us = yield from Now()
        wait_us = yield from draw_wait_us(lease.attempts, self.claimed.received_us, now_us)
        replies = self._apology(now_us) if wait_us is None else ()
        reason = where(trouble)
        fields = (
            ("channel", key.channel),
            ("attempt", lease.attempts),
            ("error", reason),
            ("dead", wait_us is None),
        )
        traced = (*fields, ("trace", trace(trouble)))
        yield from Log("warning" if wait_us else "error", "message_failed", traced, trouble)
        failed = FailMessage(lease, reason[:200], wait_us, now_us, replies)
        lost = False
        try:
            yield from self._transact(failed)
        except StoreFailure:
            lost = True  # the lease is released, and the message claimed again
        if lost:
            yield from Log("warning", "message_release_failed", fields)
        elif replies:
            yield from Nudge(self.worker.outbox)

    def _apology(self, now_us: int) -> tuple[NewReply, ...]:
        """Return the apology for a message given up, so that nobody waits for ever.

        Its key is not that of the answer, which an operator may still bring about.
        """
        try:
            message = decode_message(self.claimed.payload)
        except (KeyError, TypeError, ValueError):
            return ()  # stored by a later version, perhaps
        if not isinstance(treat(message), Ask):
            return ()
        channel = self.worker.channel(self.claimed.lease.key.channel)
        key = apology_key(message.message_id)
        parts = replies_to(message, channel.apology, channel.codec.compose, now_us)
        return outbox_rows(tuple(evolve(part, key=key) for part in parts[:1]))


def _answer(
    channel: HostedChannel, message: IncomingMessage, row: RunRow | None, now_us: int
) -> tuple[Reply, ...]:
    """Return the reply of the run of `row`; an apology where it was deleted.

    One that was continued replies itself.
    """
    if row is None:
        return replies_to(message, channel.apology, channel.codec.compose, now_us)
    to = read_reply_to(json.loads(row.input))
    if to is not None and to.continued:
        return ()
    output = json.loads(row.output or "{}")
    state = RunState(row.status)
    return answer(channel, message, row.run_id, state, output, row.events, now_us)
