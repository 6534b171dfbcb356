"""The codec of a channel: the base of every kind, with what most of them say alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from ..effects import Fetch, FetchReply, Program, Unreachable
from ..http.bodies.forms import Form, parse_form
from ..http.bodies.json_text import JsonObject
from ..http.messages import Headers, compact_json
from .deliveries import (
    Attachment,
    Handshake,
    Ignored,
    IncomingMessage,
    NotUnderstood,
    Parsed,
    read_object,
)
from .identity import Identity, Unidentified
from .replies import Outcome, Part, Reply, RetryLater, Sent, split_text
from .setup import Check, ask_nobody
from .signatures import Secrets, SignatureRefused, Verified

__all__ = ["NONSENSE", "Codec", "post", "trouble_of"]

NONSENSE: Final = Unidentified("the answer says nothing that is understood")

_FORM: Final = b"application/x-www-form-urlencoded"


class Codec(ABC):
    """Base of the kinds, which are frozen values of their settings.

    A kind is a frozen class of attrs.  Its fields are the settings of a channel of the kind; one
    that is not shown (`repr=False`) is a secret, and a configuration names the variable that holds
    it, as `…_env`.  No input from outside makes a method raise.

    Attributes:
        kind: The name of the kind in a configuration.
        text_limit: The characters that one reply may have; a longer one is sent in parts.
        receives: Whether messages come in; else it only sends.
        asks_at_start: Whether what comes in is judged by who we are (`read_addressed`): then the
            provider is asked for it at the start, and not only by `inspect`.
        has_buttons: Whether a reply with the purpose `approval` is sent with buttons.
        interacts: Whether presses of buttons come as forms, to an address of their own.
        sender: The fields that make a channel the one which a delivery is for.  Two channels
            that agree in all of them are a fault of the configuration.
        sends_files: Whether a reply may be a file; else a sentence names each file.
        typing_seconds: The pause before a typing indicator is shown again.
        edits_messages: Whether a reply may replace the text of a message of ours (`edits`).
        name: The id of the channel.
    """

    __slots__ = ()

    kind: ClassVar[str]
    text_limit: ClassVar[int]
    receives: ClassVar[bool] = True
    asks_at_start: ClassVar[bool] = False
    has_buttons: ClassVar[bool] = False
    interacts: ClassVar[bool] = False
    sender: ClassVar[tuple[str, ...]] = ("name",)
    sends_files: ClassVar[bool] = False
    typing_seconds: ClassVar[float] = 30.0
    edits_messages: ClassVar[bool] = False

    name: str

    def __attrs_post_init__(self) -> None:
        """Refuse to be without a usable secret.

        Raises:
            ValueError: There is none.
        """
        _ = self.secrets

    @property
    @abstractmethod
    def secrets(self) -> Secrets:
        """The secrets that what comes in is verified with."""

    @abstractmethod
    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check who sent a delivery, over its bytes as they came, in constant time."""

    def compose(self, text: str) -> Iterator[Part]:
        """Yield the parts of an answer in Markdown: of at most `text_limit` units, as it is."""
        return map(Part, split_text(text, self.text_limit))

    def closings(
        self, message: IncomingMessage, text: str, now_us: int, *, settled: bool
    ) -> tuple[Reply, ...]:
        """Return what the press in `message` is owed beside words: for most kinds nothing.

        Args:
            message: Its `press` is there.
            text: What came of it, in plain words, for whoever pressed.
            now_us: When this is written.
            settled: Whether the question is decided: then its buttons go, and `text` stands there.

        Returns:
            Replies to `acknowledge` the press and to `close` the question.  Where there are any,
            `text` is in them, and need not be sent in a message of its own.
        """
        return ()

    def address_fault(self, recipient: str, thread: str) -> tuple[str, str] | None:
        """Return which of the two cannot be written to, and why; None where both may be."""
        return None

    def window_seconds(self, recipient: str) -> int | None:
        """Return how long `recipient` may be written to after they wrote; None for ever."""
        return None

    def prepare(self, reply: Reply, answers: tuple[FetchReply, ...]) -> Fetch | Reply | RetryLater:
        """Return the next request that comes before the one of `encode`, behind `answers`.

        Where there is none, that is `reply` as it is encoded then, or why it cannot be yet.
        """
        return reply

    @abstractmethod
    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that sends `reply`, under a key that stays the same."""

    @abstractmethod
    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the provider's answer to a reply: it is sent, to be tried again, or given up."""

    def encode_typing(self, message: IncomingMessage) -> Fetch | None:
        """Return None: most providers show no typing indicator to who wrote `message`."""
        return None

    def pause_edits(self, message: IncomingMessage) -> float:
        """Return the seconds between two edits of an answer to `message` that grows."""
        return 2.0

    def handshake(self, query: Sequence[tuple[str, str]]) -> Handshake:
        """Refuse: most providers ask nothing by GET."""
        return SignatureRefused("no handshake")

    def parse(self, verified: Verified, identity: Identity | None = None) -> Parsed:
        """Return what is in a delivery: a JSON object, as every provider sends it.

        The `identity` is given to a kind that asks for it (`identify`), as soon as it is known.
        """
        root = read_object(verified.body)
        if not isinstance(root, dict):
            return root
        return self.read_addressed(root, verified.delivery_id, identity)

    def read_addressed(
        self, root: JsonObject, delivery_id: str, identity: Identity | None
    ) -> Parsed:
        """Return what `root` says to who we are, which is None while that is not known.

        Most kinds need not know it.
        """
        return self.read_delivery(root, delivery_id)

    def parse_form(self, verified: Verified) -> Parsed:
        """Return what is in a form with a JSON object as its `payload`; see `interacts`."""
        form = parse_form(_FORM, verified.body)
        payloads = form.fields.get("payload", ()) if isinstance(form, Form) else ()
        if len(payloads) != 1 or not isinstance(payloads[0], str):
            return NotUnderstood("no form with one payload")
        root = read_object(payloads[0].encode())
        return self.read_interaction(root) if isinstance(root, dict) else root

    def read_interaction(self, root: JsonObject) -> Parsed:
        """Return what `root` says; most kinds have no forms."""
        return Ignored("no interactions")

    @abstractmethod
    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return what `root` says."""

    def identify(self) -> Fetch | None:
        """Ask nothing: who we are is of no use to most kinds."""
        return None

    def read_identity(
        self, reply: FetchReply | Unreachable, now_us: int
    ) -> Identity | Unidentified:
        """Return who we are by the provider's answer to `identify`, or why that is not known."""
        return Unidentified("the kind asks nobody")

    def inspect(self, address: str) -> Program[tuple[Check, ...]]:
        """Ask the provider whether the channel is set up right; most kinds have none to ask.

        Args:
            address: Where deliveries come in: a URL, or its path where the rest is not known.
        """
        return ask_nobody()

    def register(self, address: str, commands: Mapping[str, str]) -> Program[tuple[Check, ...]]:
        """Tell the provider where to send deliveries, or a person what to enter there.

        Args:
            address: The URL at which deliveries come in.
            commands: Those of the channel, with what each is for.
        """
        return ask_nobody(Check("webhook", None, f"send signed deliveries to {address}"))

    def locate(self, media: Attachment) -> Fetch | None:
        """Ask nothing: the address of a file stands in its message."""
        return None

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Ask for nothing: no message has a file."""
        return None


def trouble_of(outcome: Outcome) -> Unidentified | None:
    """Return the trouble of an answer that was judged as one to a reply is; None for a success."""
    if isinstance(outcome, Sent):
        return None
    return Unidentified(outcome.reason, getattr(outcome, "after_seconds", None))


def post(
    url: str,
    message: Mapping[str, object],
    key: str,
    credentials: tuple[tuple[str, str], ...] = (),
    *,
    content_type: str = "application/json",
) -> Fetch:
    """Return the request that sends `message` as JSON under the idempotency key `key`."""
    headers = (*credentials, ("content-type", content_type), ("idempotency-key", key))
    return Fetch("POST", url, headers, compact_json(message).encode())
