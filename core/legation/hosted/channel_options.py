"""The options that channels of every kind have: each is a key of a channel, checked once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeGuard, get_args

from attrs import field

from .. import models as codecs
from ..config import AnyChannel
from ..http.refusals import Fault
from ..kinds import SessionOf, SubjectsLike
from ..models.conversation import ModelProtocol
from ..values import frozen
from .sender_functions import SenderFunction, host_sender_function

if TYPE_CHECKING:
    from ..models.transcription import Transcriber

__all__ = ["ChannelOptions", "is_subject", "read_options"]

_SENDER: Final = "sender"
_NOBODY: Final = "nobody"
_LONGEST_ID: Final = 256
_LONGEST_GATHERING: Final = 60
_SESSIONS: Final = get_args(SessionOf)


@frozen
class ChannelOptions:
    """The options of a channel that do not depend on its kind.

    Attributes:
        show_typing: Whether a person sees that a run works on their message.
        stream_answers: Whether a person reads the answer to their message as it grows.
        approve: Who may answer a paused run in the chat: the ids of people at the provider, and
            `sender` for whoever asked.  Nobody may where it is empty.
        session: Who has a session: each person in each thread, all who write in a thread, or each
            person wherever it writes.
        commands: Whether `/new`, `/help`, `/start` and `/stop` are answered without a run.
        transcribe: The model that makes text of voice messages.
        allow: The ids of the people who are answered; None for everybody.
        waiting: How many messages of one person may wait behind the one that is answered; 0 for any
            number.
        subjects: The subjects that people are, by their ids at the provider.
        find_subject: The function that says so instead.
        router: The function that says who answers.
        gather_seconds: For how long messages of one person join the first, to be one.
    """

    approve: frozenset[str] = frozenset()
    show_typing: bool = False
    stream_answers: bool = False
    session: SessionOf = "thread and person"
    commands: bool = True
    transcribe: Transcriber | None = None
    gather_seconds: float = 0.0
    allow: frozenset[str] | None = None
    waiting: int = 100
    subjects: Mapping[str, str] = field(factory=dict[str, str], repr=False)
    find_subject: SenderFunction | None = None
    router: SenderFunction | None = None

    def may_write(self, person: str) -> bool:
        """Return whether `person` is answered."""
        return self.allow is None or person in self.allow

    def may_approve(self, person: str, sender: str) -> bool:
        """Return whether `person` may answer a paused run that `sender` asked for."""
        return person in self.approve or (_SENDER in self.approve and person == sender)


def read_options(
    channel: AnyChannel, models: Mapping[str, ModelProtocol], faults: list[Fault]
) -> ChannelOptions:
    """Return the options of `channel`; what is wrong with them is added to `faults`."""
    path = f"channels.{channel.id}"
    faults += _find_approve_faults(channel.approve, f"{path}.approve")
    if channel.waiting < 0:
        faults.append(Fault(f"{path}.waiting", "must be a number from 1, or 0 for any number"))
    if channel.allow is not None:
        faults += _find_id_faults(channel.allow, f"{path}.allow")
    subjects: Mapping[str, str] = channel.subjects if _is_table(channel.subjects) else {}
    faults += _find_subject_faults(subjects, f"{path}.subjects")
    if channel.router is not None and not channel.agents:
        faults.append(Fault(f"{path}.router", "has nobody to choose: name others in `agents`"))
    if channel.session not in _SESSIONS:
        known = ", ".join(_SESSIONS)
        faults.append(Fault(f"{path}.session", f"{channel.session!r} is none of: {known}"))
    seconds = channel.gather_seconds
    if not 0 <= seconds <= _LONGEST_GATHERING:
        faults.append(Fault(f"{path}.gather_seconds", "must be a number from 0 to 60"))
    return ChannelOptions(
        show_typing=channel.show_typing,
        stream_answers=channel.stream_answers,
        approve=frozenset(channel.approve) - {_NOBODY},
        session=channel.session,
        commands=channel.commands,
        allow=None if channel.allow is None else frozenset(channel.allow),
        waiting=channel.waiting,
        subjects=dict(subjects),
        find_subject=None
        if _is_table(channel.subjects)
        else _host("subjects", channel.subjects, ("sender",), path, faults),
        router=_host("router", channel.router, ("sender", "text", "agent"), path, faults),
        transcribe=_find_transcriber(channel.transcribe, models, f"{path}.transcribe", faults),
        gather_seconds=seconds,
    )


def _is_table(subjects: SubjectsLike) -> TypeGuard[Mapping[str, str]]:
    return isinstance(subjects, Mapping)


def _host(
    option: str, given: object, offered: tuple[str, ...], path: str, faults: list[Fault]
) -> SenderFunction | None:
    if given is None:
        return None
    hosted = host_sender_function(option, given, offered)
    if isinstance(hosted, SenderFunction):
        return hosted
    faults.append(Fault(f"{path}.{option}", hosted))
    return None


def is_subject(subject: str) -> bool:
    """Return whether `subject` may be that of tokens, and is none of the platform's own."""
    return not subject.startswith("~") and subject.isprintable() and subject.strip() != ""


def _find_transcriber(
    name: str | None, models: Mapping[str, ModelProtocol], path: str, faults: list[Fault]
) -> Transcriber | None:
    if name is None:
        return None
    model, codec = models.get(name), codecs.chat_completions.ChatCompletions
    if isinstance(model, codec):
        return codecs.transcription.Transcriber(model)
    lack = f"no model {name!r}" if model is None else f"{name!r} transcribes nothing"
    known = [key for key, one in sorted(models.items()) if isinstance(one, codec)]
    listed = f"there are: {', '.join(known)}" if known else "there is none"
    faults.append(Fault(path, f"{lack}: name one of the provider openai; {listed}"))
    return None


def _find_subject_faults(subjects: Mapping[str, str], path: str) -> Iterator[Fault]:
    yield from _find_id_faults(tuple(subjects), path)
    for person, subject in subjects.items():
        if not is_subject(subject):
            said = "expected the subject of tokens: visible characters, the first of them no ~"
            yield Fault(f'{path}."{person}"', said)


def _find_approve_faults(approve: tuple[str, ...], path: str) -> Iterator[Fault]:
    if _NOBODY in approve and len(approve) > 1:
        yield Fault(path, '"nobody" stands alone, or not at all')
    yield from _find_id_faults(approve, path)


def _find_id_faults(names: tuple[str, ...], path: str) -> Iterator[Fault]:
    for name in names:
        if not name.isprintable() or not 0 < len(name.strip()) <= _LONGEST_ID:
            yield Fault(path, f"an id has 1 to {_LONGEST_ID} visible characters")
            return
