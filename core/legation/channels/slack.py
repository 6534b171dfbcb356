"""Slack, by the Events API; the presses of its buttons come as interactions.

Sources: docs.slack.dev, "Verifying requests from Slack", "Events API", "chat.postMessage",
"Formatting text", "File object", "block_actions payload", "chat.update", "chat.postEphemeral".  A
retry (`X-Slack-Retry-Num`) is taken like a first delivery: it does not prove that the first one
arrived.  The inbox knows what is a duplicate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final
from urllib.parse import urlencode

from attrs import evolve, field

from ..effects import Fetch, FetchReply, Program, Unreachable
from ..http.bodies.json_text import JsonObject, JsonValue, parse_json
from ..http.messages import Headers, compact_json
from ..values import frozen
from .answer_files import AnswerFile
from .codec import NONSENSE, Codec, post, trouble_of
from .deliveries import (
    Attachment,
    ContentKind,
    Ignored,
    IncomingMessage,
    Parsed,
    Piece,
    challenge_of,
    gather,
)
from .identity import Identity, Unidentified, body_of
from .markup import compose_marks, mark_up
from .media import describe_media, is_provider
from .presses import Button, buttons, owe, read_press
from .provider_values import at, identifier, moment_us, objects, text_at
from .replies import (
    GiveUp,
    Outcome,
    Part,
    Reply,
    RetryLater,
    Sent,
    Unauthorized,
    general_outcome,
    retry_after,
    split_text,
)
from .settings import base_url, check_base_url, check_token
from .setup import Check, ask_identity, ask_nobody
from .signatures import Secrets, SignatureRefused, Verified, active_secrets, slack_v0
from .slack_setup import check_app, describe_requests

__all__ = ["Slack"]

# Subtypes that a person writes; the others tell of joins, edits, topics, bots.
_WRITTEN: Final = frozenset({"", "file_share", "thread_broadcast", "me_message"})
# What Slack makes of a mention, a channel or a link: `<@U1>`, `<#C1|general>`, `<https://…|label>`.
_MARKUP: Final = re.compile(r"<([@#!]?)([^<>|]*)(?:\|([^<>]*))?>( ?)")
_LONGEST_URL: Final = 2000
_FILE_ID: Final = re.compile(r"F[A-Z0-9]{1,30}", re.ASCII)
_NAME: Final = re.compile(r"[a-z_.]{1,64}")
_STATUS: Final = "is typing..."  # behind the name of the app
_TIMESTAMP: Final = re.compile(r"[0-9]{1,20}\.[0-9]{1,20}", re.ASCII)

# The methods of the Web API for what is no message of its own.
_METHODS: Final = {"acknowledge": "chat.postEphemeral", "close": "chat.update"}
_ACTION: Final = "legation_"
_LONGEST_SECTION: Final = 3000
_LONGEST_ESCAPE: Final = 5

# `error` in an answer 200 that passes by itself.
_PASSING: Final = frozenset(
    {
        "fatal_error",
        "internal_error",
        "rate_limited",
        "ratelimited",
        "request_timeout",
        "service_unavailable",
        "team_added_to_org",
    }
)
# `error` that concerns the token, and with it every message.
_NO_TOKEN: Final = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_allowed_token_type",
        "not_authed",
        "token_expired",
        "token_revoked",
    }
)


@frozen
class Slack(Codec):
    """One app in one workspace.

    With `mentions_only` the app answers in a channel where it is mentioned, and in direct
    messages always.
    """

    kind: ClassVar[str] = "slack"
    # Slack truncates at 40,000 characters and recommends 4,000.
    text_limit: ClassVar[int] = 4000
    asks_at_start: ClassVar[bool] = True
    has_buttons: ClassVar[bool] = True
    interacts: ClassVar[bool] = True
    sender: ClassVar[tuple[str, ...]] = ("bot_token", "signing_secret")
    sends_files: ClassVar[bool] = True
    # "assistant.threads.setStatus": removed with the answer, or after two minutes.
    typing_seconds: ClassVar[float] = 110.0
    edits_messages: ClassVar[bool] = True

    name: str
    signing_secret: str = field(repr=False)
    bot_token: str = field(repr=False, validator=check_token)
    api_base_url: str = field(
        default="https://slack.com/api", converter=base_url, validator=check_base_url
    )
    previous_signing_secret: str | None = field(default=None, repr=False)
    mentions_only: bool = True

    @property
    def secrets(self) -> Secrets:
        return active_secrets(self.signing_secret, self.previous_signing_secret)

    def verify(self, headers: Headers, body: bytes, now_us: int) -> Verified | SignatureRefused:
        """Check Slack's signature and the age of the request."""
        return slack_v0(headers, body, self.secrets, now_us)

    def read_delivery(self, root: JsonObject, delivery_id: str) -> Parsed:
        """Return the message of an event, for an app that does not know its workspace."""
        return self.read_addressed(root, delivery_id, None)

    def read_addressed(
        self, root: JsonObject, delivery_id: str, identity: Identity | None
    ) -> Parsed:
        """Return the message of an event, or the challenge of a URL verification."""
        if root.get("type") == "url_verification":
            return challenge_of(root.get("challenge")) or Ignored("malformed challenge")
        if root.get("type") != "event_callback":
            return Ignored("another type")
        if identity is not None and not _is_ours(root, identity.workspace):
            return Ignored("another workspace")
        own = _own(root) if identity is None else _own(root) | {identity.id}
        return gather(self._pieces(root, root.get("event"), own))

    def _pieces(self, root: JsonObject, event: JsonValue, own: frozenset[str]) -> Iterator[Piece]:
        name, subtype = text_at(event, "type"), text_at(event, "subtype")
        if name not in {"message", "app_mention"} or subtype not in _WRITTEN:
            label = subtype or name
            yield label if _NAME.fullmatch(label) else "malformed"
        elif name == "message" and self.mentions_only and not _is_direct(event):
            yield "not mentioned"
        else:
            yield _message(root, event, own)

    def read_interaction(self, root: JsonObject) -> Parsed:
        """Return the presses of our buttons; of all that people do, nothing else is for us."""
        if root.get("type") != "block_actions":
            return Ignored("another type")
        return gather(_press(root, action) for action in objects(root.get("actions")))

    def locate(self, media: Attachment) -> Fetch | None:
        """Ask for the address of a file of which only the id is known (`files.info`)."""
        if not _FILE_ID.fullmatch(media.id):
            return None
        return Fetch("GET", f"{self.api_base_url}/files.info?file={media.id}", self._credentials)

    def identify(self) -> Fetch:
        """Ask which bot of which workspace the token is for ("auth.test")."""
        return Fetch("POST", f"{self.api_base_url}/auth.test", self._credentials)

    def read_identity(
        self, reply: FetchReply | Unreachable, now_us: int
    ) -> Identity | Unidentified:
        """Return who the token is for; one for a whole organization is for no single workspace."""
        if (trouble := trouble_of(self.read_reply(reply, now_us))) is not None:
            return trouble
        answer = body_of(reply)
        user, team = identifier(at(answer, "user_id")), identifier(at(answer, "team_id"))
        if not user or not team:
            return NONSENSE
        return Identity(
            user,
            identifier(at(answer, "user")),
            workspace="" if at(answer, "is_enterprise_install") is True else team,
            bot_id=identifier(at(answer, "bot_id")),
            url=identifier(at(answer, "url")),
        )

    def inspect(self, address: str) -> Program[tuple[Check, ...]]:
        """Ask whose the token is and what it may do."""
        asked = yield from ask_identity(self, self.identify())
        checks = check_app(asked, mentions_only=self.mentions_only)
        return (*checks, *describe_requests(address))

    def register(self, address: str, commands: Mapping[str, str]) -> Program[tuple[Check, ...]]:
        """Ask nothing: Slack takes addresses from people alone."""
        return ask_nobody(*describe_requests(address))

    def download(self, media: Attachment, found: FetchReply | None) -> Fetch | None:
        """Return the request for the file; the app needs the scope `files:read`."""
        url = media.id if found is None else _find_address(found)
        if not is_provider(url, self.api_base_url, ("slack.com",)):
            return None
        return Fetch("GET", url, self._credentials)

    @property
    def _credentials(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.bot_token}"),)

    def compose(self, text: str) -> Iterator[Part]:
        """Yield the parts of an answer with the marks of the provider."""
        return compose_marks(text, self.text_limit)

    def _text(self, reply: Reply) -> str:
        return mark_up(reply.text, self.text_limit) if reply.spans is None else reply.text

    def prepare(self, reply: Reply, answers: tuple[FetchReply, ...]) -> Fetch | Reply | RetryLater:
        """Return the request for an address, then the upload there; behind them the reply.

        Source: "files.getUploadURLExternal".  The app needs the scope `files:write`.
        """
        if reply.file is None:
            return reply
        data = reply.file.data
        if not answers:
            asked = urlencode({"filename": reply.file.name, "length": len(data)}).encode()
            headers = (("content-type", "application/x-www-form-urlencoded"),)
            url = f"{self.api_base_url}/files.getUploadURLExternal"
            return Fetch("POST", url, (*self._credentials, *headers), asked)
        parsed = parse_json(answers[0].body)
        given = parsed if isinstance(parsed, dict) else None
        url, file_id = text_at(given, "upload_url"), text_at(given, "file_id")
        if not (is_provider(url, self.api_base_url, ("slack.com",)) and identifier(file_id)):
            return RetryLater(None, "no address for the upload")
        if len(answers) == 1:
            return Fetch("POST", url, (("content-type", "application/octet-stream"),), data)
        return evolve(reply, uploaded=file_id)

    def closings(
        self, message: IncomingMessage, text: str, now_us: int, *, settled: bool
    ) -> tuple[Reply, ...]:
        """Return the question with the decision in place of its buttons, or a word to one person.

        Slack itself waits for no answer to a press but the status of its delivery.
        """
        press = message.press
        if press is None or not message.conversation:
            return ()
        if not settled:
            return (owe(message, "acknowledge", text, now_us),)
        if not press.prompt:
            return ()
        told = f"{press.shown}\n\n{text}" if press.shown else text
        return (owe(message, "close", told[-self.text_limit :], now_us),)

    def encode(self, reply: Reply, now_us: int) -> Fetch:
        """Return the request that posts `reply`; its key stands in the message's metadata.

        The text is escaped, so that no answer of a model can ping a channel or forge a link.
        """
        if reply.file is not None:
            return self._complete_upload(reply, reply.file)
        text = _escape(self._text(reply))
        message: dict[str, object] = {"channel": reply.recipient, "text": text}
        method = "chat.update" if reply.edits else _METHODS.get(reply.purpose, "chat.postMessage")
        match reply.purpose:
            case "acknowledge":
                message["user"] = reply.token
            case "close":
                message |= {"ts": reply.prompt, "blocks": []}
            case "approval":
                message |= {**_post_options(reply), "blocks": self._blocks(reply)}
            case _:
                message |= _post_options(reply)
        if reply.thread and method != "chat.update":
            message["thread_ts"] = reply.thread
        return post(
            f"{self.api_base_url}/{method}",
            message,
            reply.key,
            self._credentials,
            content_type="application/json; charset=utf-8",
        )

    def _blocks(self, reply: Reply) -> list[dict[str, object]]:
        """Return a question with its buttons; an escaped text may take several sections."""
        pieces = [self._text(reply)]
        if len(_escape(pieces[0])) > _LONGEST_SECTION:
            pieces = list(split_text(pieces[0], _LONGEST_SECTION // _LONGEST_ESCAPE))
        keys = [_key(button) for button in buttons(reply.approval)]
        return [*map(_section, pieces), {"type": "actions", "elements": keys}]

    def _complete_upload(self, reply: Reply, file: AnswerFile) -> Fetch:
        """Return the request that shows a file that was uploaded."""
        shown: dict[str, object] = {
            "files": [{"id": reply.uploaded, "title": file.name}],
            "channel_id": reply.recipient,
        }
        if reply.thread:
            shown["thread_ts"] = reply.thread
        return post(
            f"{self.api_base_url}/files.completeUploadExternal",
            shown,
            reply.key,
            self._credentials,
            content_type="application/json; charset=utf-8",
        )

    def encode_typing(self, message: IncomingMessage) -> Fetch | None:
        """Return the request that sets the status of a thread: only threads have one."""
        if not message.thread:
            return None
        status = {
            "channel_id": message.conversation,
            "thread_ts": message.thread,
            "status": _STATUS,
        }
        url = f"{self.api_base_url}/assistant.threads.setStatus"
        headers = (*self._credentials, ("content-type", "application/json; charset=utf-8"))
        return Fetch("POST", url, headers, compact_json(status).encode())

    def address_fault(self, recipient: str, thread: str) -> tuple[str, str] | None:
        """Refuse a thread that is not named as Slack does."""
        known = not thread or _TIMESTAMP.fullmatch(thread)
        return None if known else ("thread", "expected the `ts` of its first message")

    def read_reply(self, reply: FetchReply | Unreachable, now_us: int) -> Outcome:
        """Judge the answer: Slack says no with 200 and `"ok": false`."""
        outcome = general_outcome(reply, now_us)
        if outcome or isinstance(reply, Unreachable):
            return outcome or RetryLater(None, "unreachable")
        answer = parse_json(reply.body)
        if not isinstance(answer, dict) or answer.get("ok") is not False:
            return Sent(text_at(answer, "ts") if isinstance(answer, dict) else "")
        error = text_at(answer, "error")
        reason = error if _NAME.fullmatch(error) else "unknown error"
        if error in _PASSING:
            return RetryLater(retry_after(reply, now_us), reason)
        return Unauthorized(reason) if error in _NO_TOKEN else GiveUp(reason)


def _post_options(reply: Reply) -> dict[str, object]:
    """Return the members of a message beside its words: its key, and that no link unfurls.

    An edit has no say about links; it takes the buttons away, where it has none.
    """
    key = {"event_type": "legation_reply", "event_payload": {"idempotency_key": reply.key}}
    if reply.edits:
        return {"ts": reply.edits, "metadata": key, "blocks": []}
    return {"unfurl_links": False, "unfurl_media": False, "metadata": key}


def _section(text: str) -> dict[str, object]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": _escape(text)}}


def _key(button: Button) -> dict[str, object]:
    return {
        "type": "button",
        "action_id": f"{_ACTION}{button.label.lower()}",
        "text": {"type": "plain_text", "text": button.label},
        "value": button.data,
        "style": "primary" if button.approves else "danger",
    }


def _press(root: JsonObject, action: JsonObject) -> Piece:
    """Return the press that `action` is, or "another action".

    Its id has the time of the action in it: the message is the same for every press.
    """
    channel = identifier(at(root, "channel", "id")) or identifier(
        at(root, "container", "channel_id")
    )
    stamp = _stamp(at(root, "message", "ts")) or _stamp(at(root, "container", "message_ts"))
    sender = identifier(at(root, "user", "id"))
    decision = read_press(
        text_at(action, "value"),
        token=sender,
        prompt=stamp,
        shown=_plain(text_at(root, "message", "text"), frozenset()),
    )
    if decision is None or action.get("type") != "button":
        return "another action"
    team = identifier(at(root, "team", "id")) or identifier(at(root, "user", "team_id"))
    acted = _stamp(action.get("action_ts"))
    return IncomingMessage(
        message_id=f"{team}.{channel}.{stamp}.{sender}.{acted}" if channel and acted else "",
        sender=sender,
        kind=ContentKind.BUTTON,
        text=text_at(action, "text", "text") or None,
        conversation=channel,
        thread=_stamp(at(root, "message", "thread_ts")),
        provider_id=stamp,
        reply_to=stamp,
        sent_us=moment_us(acted),
        name=identifier(at(root, "user", "name")),
        press=decision,
    )


def _is_direct(event: JsonValue) -> bool:
    return at(event, "channel_type") == "im"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _plain(text: str, own: frozenset[str]) -> str:
    """Return `text` as its writer saw it, without the mentions of `own`."""

    def show(found: re.Match[str]) -> str:
        sigil, target, label, space = found[1], found[2], found[3] or "", found[4]
        if sigil == "@" and target in own:
            return ""
        return _render_reference(sigil, target, label) + space

    plain = _MARKUP.sub(show, text)
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()


def _render_reference(sigil: str, target: str, label: str) -> str:
    if sigil == "!":  # `<!here>`, `<!subteam^S1|@team>`, `<!date^…|tomorrow>`
        return label or f"@{target}"
    if sigil:
        return sigil + (label or target)
    typed = target.removeprefix("mailto:").removeprefix("tel:")
    bare = typed.removeprefix("http://").removeprefix("https://").rstrip("/")
    if label.rstrip("/") in ("", typed, bare):  # as it was typed: Slack adds what is missing
        return typed
    return f"{label} ({target})"


def _stamp(value: JsonValue) -> str:
    """Return the `ts` of a message, which is also its id within a channel."""
    return value if isinstance(value, str) and _TIMESTAMP.fullmatch(value) else ""


def _message(root: JsonObject, event: JsonValue, own: frozenset[str]) -> IncomingMessage:
    """Return the message of `event`.

    Its id is made of workspace, channel and `ts`, not of the event: one message that mentions us
    comes as two events (`message`, `app_mention`), and is still to be answered once.
    """
    stamp, channel = _stamp(at(event, "ts")), identifier(at(event, "channel"))
    thread = _stamp(at(event, "thread_ts"))
    text = _plain(text_at(event, "text"), own) or None
    named = stamp and channel
    return IncomingMessage(
        message_id=f"{identifier(root.get('team_id'))}.{channel}.{stamp}" if named else "",
        sender=identifier(at(event, "user")),
        kind=_kind(event, text),
        text=text,
        conversation=channel,
        # In a channel every question opens a thread; a direct message has one only if asked there.
        thread=thread or ("" if _is_direct(event) else stamp),
        provider_id=stamp,
        reply_to="" if thread == stamp else thread,
        # A bot wrote: ourselves, or another that would answer our answers.
        from_self=bool(at(event, "bot_id")) or identifier(at(event, "user")) in own,
        sent_us=moment_us(stamp),
        media=tuple(_media(event)),
        in_group=not _is_direct(event),
        name=_name(event),
    )


def _name(event: JsonValue) -> str:
    profile = at(event, "user_profile")
    return text_at(profile, "display_name") or text_at(profile, "real_name")


def _kind(event: JsonValue, text: str | None) -> ContentKind:
    if at(event, "files"):
        return ContentKind.DOCUMENT
    return ContentKind.TEXT if text else ContentKind.UNSUPPORTED


def _is_ours(root: JsonObject, workspace: str) -> bool:
    """Return whether an event is for our app in `workspace`; "" is any.

    In a channel that workspaces share, `team_id` may be another's: `authorizations` say whose
    installation the event is for.
    """
    given = {identifier(one.get("team_id")) for one in objects(root.get("authorizations"))}
    teams = given - {""} or {identifier(root.get("team_id"))} - {""}
    return not workspace or not teams or workspace in teams


def _own(root: JsonObject) -> frozenset[str]:
    """Return the ids under which we are in the workspace."""
    return frozenset(
        identifier(given.get("user_id"))
        for given in objects(root.get("authorizations"))
        if given.get("is_bot") is True
    )


def _media(event: JsonValue) -> Iterator[Attachment]:
    for file in objects(at(event, "files")):
        url = _address(file)
        # In a conversation with another company (Slack Connect) the event has only the id.
        known = (url if len(url) <= _LONGEST_URL else "") or _file_id(file)
        yield describe_media(known, file.get("mimetype"), file.get("name"), file.get("size"))


def _find_address(found: FetchReply) -> str:
    answer = parse_json(found.body)
    return _address(at(answer, "file")) if isinstance(answer, dict) else ""


def _address(file: JsonValue) -> str:
    return text_at(file, "url_private_download") or text_at(file, "url_private")


def _file_id(file: JsonObject) -> str:
    file_id = text_at(file, "id")
    asked = text_at(file, "file_access") == "check_file_info" and _FILE_ID.fullmatch(file_id)
    return file_id if asked else ""
