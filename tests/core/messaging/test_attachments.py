"""Files that come with messages: fetched from the provider, and handed to the run."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import evolve, frozen

from legation import Agent, OpenAIModel, Platform, Run
from legation.channels.deliveries import Attachment, IncomingMessage
from legation.channels.media import MOST_BYTES
from legation.effects import Fetch, FetchReply, Log, Transact, Unreachable
from legation.http.bodies.media_types import MEDIA_TYPES
from legation.messaging.attachments import attachments
from legation.messaging.unread import MOST_FILES
from legation.store.inbox import AttachRun, KeepMessage
from legation.store.run_reads import FetchRun
from legation_testing import Client, ScriptedModel

from ...providers.deliveries import ENVIRON, MAIN, channels, platform, signed
from ...providers.documents import make_pdf
from ...providers.strict import (
    Provider,
    Reply,
    SlackApi,
    StandardReceiver,
    TelegramApi,
    WhatsAppApi,
    now_us,
)
from ...providers.transcriptions import Transcriptions

PNG = b"\x89PNG\r\n\x1a\n picture"
JPEG = b"\xff\xd8\xff\xe0 picture"
NOW = 1_767_225_600_000_000


def whatsapp(kind: str, name: str = "a", **content: Any) -> Any:
    message = {"from": "4911", "id": name, "timestamp": "1", "type": kind, kind: content}
    value = {"metadata": {"phone_number_id": "111"}, "messages": [message]}
    entry = {"id": "1", "changes": [{"field": "messages", "value": value}]}
    root = {"object": "whatsapp_business_account", "entry": [entry]}
    return signed("whatsapp", json.dumps(root).encode(), NOW)


def telegram(**content: Any) -> Any:
    message = {
        "message_id": 2,
        "from": {"id": 7, "is_bot": False},
        "chat": {"id": 7, "type": "private"},
        "date": 1,
        **content,
    }
    root = {"update_id": 1, "message": message}
    return signed("telegram", json.dumps(root).encode(), NOW)


def slack(words: str, *files: dict[str, Any]) -> Any:
    event = {
        "type": "message",
        "subtype": "file_share",
        "channel_type": "im",
        "channel": "D1",
        "user": "U1",
        "ts": "1.1",
        "text": words,
        "files": files,
    }
    root = {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}
    return signed("slack", json.dumps(root).encode(), NOW)


def answered(sent: Any, provider: Callable[[Fetch], Any]) -> tuple[dict[str, Any], Client]:
    """Deliver, let time pass, and return the input of the run that came of it."""
    with Client(platform, fetch=provider) as c:
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(30)
        listed = c.get("/sessions", query=MAIN).json()["data"]
        assert [row["session_id"] for row in listed], "no run was begun"
        session = listed[0]["session_id"]
        run_id = c.get(f"/sessions/{session}/runs", query=MAIN).json()[0]["run_id"]
        row = c.simulation.run(_row(run_id))
        taken: dict[str, Any] = json.loads(row.input)
        return taken, c


def _row(run_id: str) -> Any:
    return (yield from Transact("main", FetchRun(run_id, None, any_owner=True)))


def stored(taken: dict[str, Any], kind: str) -> list[tuple[str, str, bytes]]:
    return [(m["filename"], m["mime_type"], b64decode(m["content"])) for m in taken[kind]]


def without_names(urls: Iterable[str]) -> list[str]:
    """Return `urls` without those at which a channel asks who it is, once, at the start."""
    return [url for url in urls if not url.endswith(("/getMe", "/auth.test"))]


# --- what arrives ------------------------------------------------------------------------------


def test_a_picture_sent_by_whatsapp_reaches_the_run_with_its_caption() -> None:
    provider = WhatsAppApi()
    provider.files["55"] = ("image/jpeg", JPEG)
    taken, _ = answered(
        whatsapp("image", id="55", mime_type="image/jpeg", caption="What is this?"), provider
    )

    assert taken["message"] == "What is this?"
    assert stored(taken, "images") == [("image.jpg", "image/jpeg", JPEG)]
    assert provider.refused == []
    assert provider.fetched == ["55"]
    assert [message.text for message in provider.seen] == ["What is this?"]


@pytest.mark.parametrize(
    ("kind", "content", "where", "name", "mime_type"),
    [
        ("audio", {"mime_type": "audio/ogg; codecs=opus"}, "audio", "audio.ogg", "audio/ogg"),
        ("video", {"mime_type": "video/mp4"}, "videos", "video.mp4", "video/mp4"),
        (
            "document",
            {"mime_type": "application/pdf", "filename": "../../Bill.pdf"},
            "files",
            "Bill.pdf",
            "application/pdf",
        ),
        (
            "document",
            {"mime_type": "text/csv", "filename": ".."},
            "files",
            "text.csv",
            "text/csv",
        ),
    ],
)
def test_what_has_no_words_is_asked_with_what_is_attached(
    kind: str, content: dict[str, Any], where: str, name: str, mime_type: str
) -> None:
    provider = WhatsAppApi()
    data = make_pdf() if name.endswith(".pdf") else b"content"
    provider.files["55"] = (mime_type, data)
    taken, _ = answered(whatsapp(kind, id="55", **content), provider)

    assert taken["message"] == "(The message has no text, only what is attached.)"
    assert stored(taken, where) == [(name, mime_type, data)]


def test_the_largest_photo_that_is_not_excessive_is_fetched_from_telegram() -> None:
    provider = TelegramApi()
    provider.files.update({name: ("image/jpeg", name.encode()) for name in ("small", "big")})
    sizes = [
        {"file_id": "small", "file_size": 900},
        {"file_id": "big", "file_size": 90_000},
        {"file_id": "huge", "file_size": 9_000_000},
    ]
    taken, c = answered(telegram(photo=sizes, caption="Look"), provider)

    assert taken["message"] == "Look"
    assert stored(taken, "images") == [("photo.jpg", "image/jpeg", b"big")]
    assert (provider.refused, provider.fetched) == ([], ["big"])
    assert "bot-token" not in repr([p.effect for p in c.effects])


@pytest.mark.parametrize(
    ("content", "where", "found"),
    [
        ({"voice": {"file_id": "f"}}, "audio", ("audio.ogg", "audio/ogg")),
        ({"audio": {"file_id": "f", "file_name": "a.mp3"}}, "audio", ("a.mp3", "audio/mpeg")),
        ({"video_note": {"file_id": "f"}}, "videos", ("video.mp4", "video/mp4")),
        (
            {"document": {"file_id": "f", "file_name": "a.md", "mime_type": "text/markdown"}},
            "files",
            ("a.md", "text/markdown"),
        ),
    ],
)
def test_every_kind_of_file_of_telegram_is_fetched(
    content: dict[str, Any], where: str, found: tuple[str, str]
) -> None:
    provider = TelegramApi()
    provider.files["f"] = (found[1], b"content")
    taken, _ = answered(telegram(**content), provider)

    assert stored(taken, where) == [(*found, b"content")]


def test_every_file_of_a_slack_message_is_fetched_with_the_token() -> None:
    provider = SlackApi()
    provider.files.update(F1=("image/png", PNG), F2=("text/plain", b"note"))
    base = "http://127.0.0.1:9/files-pri"
    taken, _ = answered(
        slack(
            "See these",
            {
                "mimetype": "image/png",
                "name": "a.png",
                "url_private_download": f"{base}/T1-F1/download/a.png",
            },
            {
                "mimetype": "text/plain",
                "name": "b.txt",
                "url_private": f"{base}/T1-F2/download/b.txt",
            },
        ),
        provider,
    )

    assert stored(taken, "images") == [("a.png", "image/png", PNG)]
    assert stored(taken, "files") == [("b.txt", "text/plain", b"note")]
    assert provider.refused == []


def test_the_model_sees_the_picture_and_reads_the_text() -> None:
    model = ScriptedModel(["A cat.", "A note."])
    made = platform(agents=[Agent(id="concierge", model=model)])
    provider = WhatsAppApi()
    provider.files.update({"55": ("image/png", PNG), "56": ("text/plain", b"buy milk")})
    with Client(made, fetch=provider) as c:
        for sent in (
            whatsapp("image", id="55", mime_type="image/png", caption="What is this?"),
            whatsapp("document", "b", id="56", mime_type="text/plain", filename="note.txt"),
        ):
            c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
            c.advance(2)

    (picture,) = model.prompts[0].messages[-1].images
    assert (picture.media_type, b64decode(picture.data)) == ("image/png", PNG)
    assert "buy milk" in model.prompts[1].messages[-1].content
    assert [message.text for message in provider.seen] == ["A cat.", "A note."]


# --- what does not -----------------------------------------------------------------------------


def note(name: str, reason: str) -> str:
    return f"({name} was attached and could not be read: {reason}.)"


def failed(provider: Callable[[Fetch], Any], **content: Any) -> tuple[str, list[Log]]:
    sent = whatsapp("image", **{"id": "55", "mime_type": "image/jpeg", "caption": "Hi", **content})
    taken, c = answered(sent, provider)
    assert not set(taken) & {"images", "audio", "videos", "files"}
    text: str = taken["message"]
    assert text.startswith("Hi\n\n")
    return text.removeprefix("Hi\n\n"), [log for log in c.logs if "attach" in log.event]


def test_a_file_that_is_gone_is_told_to_the_agent_and_logged_without_its_name() -> None:
    text, logs = failed(WhatsAppApi())

    assert text == note("image.jpg", "the provider does not give it out")
    fields = (
        ("channel", "whatsapp"),
        ("type", "image/jpeg"),
        ("reason", "the provider does not give it out"),
    )
    assert logs == [Log("warning", "attachment_failed", fields)]


def test_a_type_that_no_run_takes_is_not_fetched() -> None:
    provider = WhatsAppApi()
    provider.files["55"] = ("application/x-msdownload", b"MZ")
    text, _ = failed(provider, mime_type="application/x-msdownload")

    reason = "files of type application/x-msdownload are not read"
    assert text == note("application.x-msdownload", reason)
    assert provider.fetched == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\3\4", "it calls itself application/pdf, and is not"),
        (make_pdf(), "files of type application/pdf are not read"),
    ],
    ids=["a lie", "not taken by the model"],
)
def test_a_file_that_the_agent_cannot_have_is_told_and_the_run_goes_on(
    data: bytes, reason: str
) -> None:
    model = ScriptedModel(["I cannot read it."], accepts=("image/*",))
    made = platform(agents=[Agent(id="concierge", model=model)])
    provider = WhatsAppApi()
    provider.files["55"] = ("application/pdf", data)
    file = {"id": "55", "mime_type": "application/pdf", "filename": "May.pdf", "caption": "Look"}
    sent = whatsapp("document", **file)
    with Client(made, fetch=provider) as c:
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(2)

    (prompt,) = model.prompts
    assert prompt.messages[-1].documents == ()
    assert prompt.messages[-1].content.endswith(note("May.pdf", reason))
    assert [message.text for message in provider.seen] == ["I cannot read it."]


@pytest.mark.parametrize("mime_type", [None, 7, "", "nonsense", "a/b/c", "image/" + "x" * 200])
def test_a_type_that_is_none_is_not_fetched(mime_type: Any) -> None:
    text, _ = failed(WhatsAppApi(), mime_type=mime_type)

    assert "application/octet-stream are not read" in text


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unreachable("too-large"), "it is too large"),
        (Unreachable("timeout"), "the provider did not answer"),
        (FetchReply(500, {}, b""), "the provider did not answer"),
        (FetchReply(429, {}, b""), "the provider did not answer"),
        (FetchReply(401, {}, b""), "the provider does not give it out"),
        (
            FetchReply(302, {"location": "http://127.0.0.1"}, b""),
            "the provider does not give it out",
        ),
        (FetchReply(200, {}, b"not JSON"), "the provider does not give it out"),
        (FetchReply(200, {}, b'{"url": 7}'), "the provider does not give it out"),
    ],
)
def test_trouble_with_the_address_costs_nobody_the_answer(answer: Any, reason: str) -> None:
    provider = WhatsAppApi()
    text, _ = failed(lambda fetch: answer if "/55" in fetch.url else provider(fetch))

    assert text == note("image.jpg", reason)
    assert [message.text for message in provider.seen] == [f"Hi\n\n{text}"]


def test_a_file_that_cannot_be_downloaded_is_told_as_well() -> None:
    provider = WhatsAppApi()
    provider.files["55"] = ("image/jpeg", JPEG)

    def network(fetch: Fetch) -> Any:
        return FetchReply(404, {}, b"") if "attachments" in fetch.url else provider(fetch)

    assert failed(network)[0] == note("image.jpg", "the provider does not give it out")


def test_trouble_that_passes_is_waited_for() -> None:
    provider = WhatsAppApi()
    provider.files["55"] = ("image/jpeg", JPEG)
    troubles = [FetchReply(503, {}, b""), Unreachable("connect")]

    def network(fetch: Fetch) -> Any:
        return troubles.pop() if troubles and "/messages" not in fetch.url else provider(fetch)

    taken, _ = answered(whatsapp("image", id="55", mime_type="image/jpeg"), network)
    assert stored(taken, "images")[0][2] == JPEG


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://evil.example/file",
        "https://fbsbx.com.evil.example/file",
        "https://evilfbsbx.com/file",
        "http://lookaside.fbsbx.com/file",
        "https://lookaside.fbsbx.com:8443/file",
        "https://user@lookaside.fbsbx.com/file",
        "https://lookaside.fbsbx.com\\@evil.example/file",
        "http://127.0.0.1:10/file",
        "https://[::1",
        "https://lookaside.fbsbx.com:bad/",
        "file:///etc/passwd",
        "https://löokaside.fbsbx.com/",
        "",
    ],
)
def test_the_token_goes_nowhere_but_to_the_provider(url: str) -> None:
    asked: list[str] = []

    def network(fetch: Fetch) -> FetchReply:
        asked.append(fetch.url)
        return FetchReply(200, {}, json.dumps({"url": url}).encode())

    text, _ = failed(network)
    assert text == note("image.jpg", "the provider does not give it out")
    assert all(place.startswith("http://127.0.0.1:9/v22.0/") for place in without_names(asked))


def test_an_address_of_the_providers_network_is_asked() -> None:
    place = "https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=55"

    def network(fetch: Fetch) -> FetchReply:
        if fetch.url == place:
            return FetchReply(200, {"content-type": "image/jpeg"}, PNG)
        return FetchReply(200, {}, json.dumps({"url": place}).encode())

    taken, _ = answered(whatsapp("image", id="55", mime_type="image/jpeg"), network)
    assert stored(taken, "images")[0][2] == PNG


def test_a_page_to_log_in_is_no_file() -> None:
    """Slack answers 200 with one when the app has not the scope for files."""
    provider = SlackApi(bot_token="another")
    file = {
        "mimetype": "image/png",
        "name": "a.png",
        "url_private": "http://127.0.0.1:9/files-pri/T1-F1/download/a.png",
    }
    taken, _ = answered(slack("Hi", file), provider)

    assert taken["message"] == "Hi\n\n" + note("a.png", "the provider does not give it out")


@pytest.mark.parametrize(
    "url", ["https://evil.example/a.png", "https://files.slack.com.evil/a", ""]
)
def test_the_token_of_slack_goes_nowhere_but_to_slack(url: str) -> None:
    provider = SlackApi()
    taken, c = answered(
        slack("Hi", {"mimetype": "image/png", "name": "a", "url_private": url}), provider
    )

    assert "images" not in taken
    fetched = [p.effect.url for p in c.effects if isinstance(p.effect, Fetch)]
    assert without_names(fetched) == ["http://127.0.0.1:9/api/chat.postMessage"]


@pytest.mark.parametrize(
    "path", ["../../secret", "/etc/passwd", "photos/../x", "", "a?b", "a#b", "http://x/y", 7]
)
def test_a_path_of_telegram_leads_nowhere_else(path: Any) -> None:
    def network(fetch: Fetch) -> FetchReply:
        assert "/file/" not in fetch.url
        return FetchReply(200, {}, json.dumps({"result": {"file_path": path}}).encode())

    taken, _ = answered(telegram(voice={"file_id": "f"}, caption="Listen"), network)
    assert "could not be read" in taken["message"]


@pytest.mark.parametrize("media_id", ["../messages", "a/b", "", None, "x" * 200, {}])
def test_an_id_that_would_lead_elsewhere_is_none(media_id: Any) -> None:
    """Then there is nothing attached, and nothing to say: a sentence is the answer."""
    provider = WhatsAppApi()
    with Client(platform, fetch=provider) as c:
        sent = whatsapp("image", id=media_id, mime_type="image/jpeg")
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(5)

    words = "I can only read text, not images. Please write to me instead."
    assert [message.text for message in provider.seen] == [words]
    assert provider.refused == []


def hosted(kind: str = "slack") -> Any:
    made = platform()
    assert isinstance(made, Platform)
    return made.registry.channels[kind]


def keep(message: IncomingMessage) -> Any:
    yield from ()


def drive(program: Any, answer: Callable[[Any], Any]) -> Any:
    effect = next(program)
    while True:
        try:
            effect = program.send(answer(effect) if isinstance(effect, Fetch) else None)
        except StopIteration as done:
            return done.value


def test_files_share_the_room_that_one_form_has() -> None:
    base = "http://127.0.0.1:9"
    media = tuple(
        Attachment(f"{base}/{n}", "text/plain", f"{n}.txt") for n in range(MOST_FILES + 1)
    )
    asked: list[int] = []

    def answer(fetch: Fetch) -> FetchReply:
        asked.append(fetch.max_bytes)
        return FetchReply(200, {}, b"x" * 100)

    message = IncomingMessage("m", "s", media=media)
    attached = drive(attachments(hosted(), message, "hi", keep), answer)

    assert asked == [MOST_BYTES - 100 * number for number in range(MOST_FILES)]
    assert attached.text == "hi\n\n" + note("10.txt", "there were too many")


def test_what_is_said_to_be_too_large_is_not_asked_for() -> None:
    media = Attachment("http://127.0.0.1:9/a", "text/plain", "a.txt", MOST_BYTES + 1)
    message = IncomingMessage("m", "s", media=(media,))
    attached = drive(attachments(hosted(), message, "", keep), lambda _: pytest.fail("asked"))

    assert attached.advice.startswith("The file is too large for me.")
    assert (attached.text, attached.files) == ("", {})


def test_a_channel_without_files_fetches_none() -> None:
    media = Attachment("a", "text/plain", "a.txt")
    message = IncomingMessage("m", "s", media=(media,))
    attached = drive(attachments(hosted("standard"), message, "Hi", keep), lambda _: None)

    assert attached.text.endswith(note("a.txt", "the provider does not give it out"))


# --- what the person is told -------------------------------------------------------------------


def told(sent: Any, provider: Provider, model: Any = None) -> list[str]:
    """Deliver to an agent whose model takes pictures alone; return what the person reads."""
    model = model or ScriptedModel([], accepts=("image/*",))
    with Client(platform(agents=[Agent(id="concierge", model=model)]), fetch=provider) as c:
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(30)
        assert c.get("/sessions", query=MAIN).json()["data"] == [], "a run was begun"
    assert provider.refused in ([], ["invalid file_id"])
    return [message.text for message in provider.seen]


@pytest.mark.parametrize(
    ("content", "mime_type", "words"),
    [
        (
            {"voice": {"file_id": "f"}},
            "audio/ogg",
            "I cannot listen to voice messages. Please write to me instead.",
        ),
        (
            {"video_note": {"file_id": "f"}},
            "video/mp4",
            "I cannot watch videos. Please write to me instead.",
        ),
        (
            {"document": {"file_id": "f", "file_name": "a.pdf", "mime_type": "application/pdf"}},
            "application/pdf",
            "I cannot read files of this type (application/pdf). Please write to me instead.",
        ),
        (
            {"document": {"file_id": "f", "file_name": "a.pdf", "mime_type": "application/pdf"}},
            "image/png",
            "I cannot open the file. Please send it in another format, or write to me instead.",
        ),
        (
            {"voice": {"file_id": "gone"}},
            "audio/ogg",
            "I could not get the file. Please send it again, or write to me instead.",
        ),
        (
            {"voice": {"file_id": "f", "file_size": 100_000_000}},
            "audio/ogg",
            (
                "The file is too large for me. "
                "Please send one of at most 10 MB, or write to me instead."
            ),
        ),
    ],
    ids=["voice", "video", "a type", "a lie", "gone", "100 MB"],
)
def test_a_person_reads_why_nothing_of_the_message_could_be_read(
    content: dict[str, Any], mime_type: str, words: str
) -> None:
    provider = TelegramApi()
    contents = {"image/png": PNG, "application/pdf": make_pdf()}
    provider.files["f"] = (mime_type, contents.get(mime_type, b"content"))

    assert told(telegram(**content), provider) == [words]


def test_a_function_is_given_a_voice_message_as_it_is() -> None:
    given: list[Any] = []

    def listen(run: Run) -> str:
        given.extend(run.files)
        return "I heard you."

    provider = TelegramApi()
    provider.files["f"] = ("audio/ogg", b"OggS\0 hello")
    made = platform(agents=[Agent(id="concierge", run=listen)])
    sent = telegram(voice={"file_id": "f"})
    with Client(made, fetch=provider) as c:
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(5)

    assert [(file.media_type, file.content) for file in given] == [("audio/ogg", b"OggS\0 hello")]
    assert [message.text for message in provider.seen] == ["I heard you."]


@pytest.mark.parametrize(
    ("name", "mime_type", "kept"),
    [
        ("a.csv", "text/comma-separated-values", "text/csv"),
        ("a.csv", "application/vnd.ms-excel", "text/csv"),
        ("a.json", "application/octet-stream", "application/json"),
        ("a.txt", None, "text/plain"),
        ("a.log", "text/x-log", "text/plain"),
    ],
)
def test_a_document_of_text_is_known_by_its_name_or_its_content(
    name: str, mime_type: str | None, kept: str
) -> None:
    provider = TelegramApi()
    provider.files["f"] = ("application/octet-stream", b"a,b")
    file = {"file_id": "f", "file_name": name, "mime_type": mime_type}
    taken, _ = answered(telegram(document=file), provider)

    assert stored(taken, "files") == [(name, kept, b"a,b")]


def test_a_picture_with_the_command_new_begins_the_conversation() -> None:
    provider = TelegramApi()
    provider.files["f"] = ("image/jpeg", JPEG)
    taken, _ = answered(telegram(photo=[{"file_id": "f"}], caption="/new"), provider)

    assert stored(taken, "images") == [("photo.jpg", "image/jpeg", JPEG)]
    assert taken["message"] == "(The message has no text, only what is attached.)"


def test_a_file_of_another_company_in_slack_is_asked_for_by_its_id() -> None:
    provider = SlackApi()
    provider.files["F1"] = ("image/png", PNG)
    taken, _ = answered(slack("See", {"id": "F1", "file_access": "check_file_info"}), provider)

    assert [item[1:] for item in stored(taken, "images")] == [("image/png", PNG)]
    assert provider.refused == []


@pytest.mark.parametrize(
    "file",
    [
        {"id": "F1", "file_access": "access_denied", "name": "a.png"},
        {"id": "../x", "file_access": "check_file_info", "name": "a.png"},
        {"id": "F1", "url_private": "https://slack.com/" + "x" * 2000, "name": "a.png"},
    ],
)
def test_the_agent_reads_that_a_file_of_slack_does_not_come(file: dict[str, Any]) -> None:
    provider = SlackApi()
    taken, _ = answered(slack("See", file), provider)

    assert taken["message"] == "See\n\n" + note("a.png", "it does not come through this channel")


@pytest.mark.parametrize("found", [b"[]", b'{"ok": false}', b'{"file": 7}'])
def test_nonsense_about_a_file_of_slack_leads_nowhere(found: bytes) -> None:
    provider = SlackApi()

    def network(fetch: Fetch) -> Any:
        asked = "/files.info" in fetch.url
        return FetchReply(200, {}, found) if asked else provider(fetch)

    taken, _ = answered(slack("See", {"id": "F1", "file_access": "check_file_info"}), network)
    assert "the provider does not give it out" in taken["message"]


def standard(**content: Any) -> Any:
    root = {"type": "message", "data": {"sender": "ada", **content}}
    return signed("standard", json.dumps(root).encode(), now_us())


def test_files_that_the_format_of_a_channel_lacks_are_not_dropped_unsaid() -> None:
    files = [{"name": "a.png", "mime_type": "image/png", "content": "AAAA"}, 7]
    agreed = "it does not come through this channel"
    with Client(platform, fetch=StandardReceiver(), start_us=now_us()) as c:
        sent = standard(text="Hi", attachments=files)
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(5)
        (session,) = c.get("/sessions", query=MAIN).json()["data"]
        (run,) = c.get(f"/sessions/{session['session_id']}/runs", query=MAIN).json()

    assert run["run_input"].startswith("Hi\n\n" + note("a.png", agreed))
    assert run["run_input"].endswith(note("application.octet-stream", agreed))


def test_every_type_that_a_run_takes_has_a_kind() -> None:
    assert set(MEDIA_TYPES.values()) == {"images", "audio", "videos", "files"}
    assert isinstance(WhatsAppApi(), Provider)


# --- what is spoken ----------------------------------------------------------------------------


@frozen
class Both:
    """The network: a provider of messages, and an endpoint of transcriptions."""

    provider: Provider
    endpoint: Transcriptions

    def __call__(self, fetch: Any) -> Any:
        taker = self.endpoint if "/audio/transcriptions" in fetch.url else self.provider
        return taker(fetch)


VOICE = b"OggS\0 a voice"
UNHEARD = (
    "I could not listen to your voice message. Please send it again later, or write to me instead."
)
SPOKEN = '"{}"\n(This was spoken in audio.ogg, and transcribed.)'


def hearing(**configuration: Any) -> Platform:
    """Return a platform whose channels hear."""
    ears = OpenAIModel(
        "ears", "whisper-1", base_url="http://127.0.0.1:9/v1", api_key_env="OPENAI_KEY"
    )
    made = platform(
        models=[ears],
        channels=[evolve(one, transcribe="ears") for one in channels("http://127.0.0.1:9")],
        environ={**ENVIRON, "OPENAI_KEY": "transcription-key"},
        **configuration,
    )
    assert isinstance(made, Platform)
    return made


def speak(
    endpoint: Transcriptions, *answers: str, **content: Any
) -> tuple[list[str], ScriptedModel, Client]:
    """Send a voice message by Telegram to a model that takes pictures; return what comes back."""
    provider = TelegramApi()
    provider.files.update(f=("audio/ogg", VOICE), p=("image/png", PNG))
    model = ScriptedModel(list(answers), accepts=("image/*",))
    made = hearing(agents=[Agent(id="concierge", model=model)])
    sent = telegram(**(content or {"voice": {"file_id": "f", "mime_type": "audio/ogg"}}))
    with Client(made, fetch=Both(provider, endpoint)) as c:
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(60)
    assert (provider.refused, endpoint.faults) == ([], [])
    return [message.text for message in provider.seen], model, c


def test_a_voice_message_reaches_the_model_as_words() -> None:
    endpoint = Transcriptions(answers=["What is the time?"])
    said, model, _ = speak(endpoint, "Noon.")

    assert said == ["Noon."]
    assert endpoint.heard == [("audio/ogg", VOICE)]
    (message,) = model.prompts[0].messages[-1:]
    assert message.content == SPOKEN.format("What is the time?")
    assert message.documents == ()


def test_words_beside_a_voice_message_stand_in_front() -> None:
    _, model, _ = speak(
        Transcriptions(), "Hi.", voice={"file_id": "f", "mime_type": "audio/ogg"}, caption="Listen"
    )

    assert model.prompts[0].messages[-1].content == "Listen\n\n" + SPOKEN.format("hello")


def test_a_transcription_that_fails_passingly_is_asked_for_again() -> None:
    endpoint = Transcriptions(answers=[Reply(429, b"{}"), Reply(503, b"{}"), "in the end"])
    said, _, _ = speak(endpoint, "I heard you.")

    assert (said, len(endpoint.heard)) == (["I heard you."], 3)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Reply(503, b"{}"), UNHEARD),
        (Reply(400, b"{}"), UNHEARD),
        (Reply(200, b'{"error": "x"}', {"content-type": "application/json"}), UNHEARD),
        (
            " ",
            "I heard no words in your voice message. Please say it again, or write to me instead.",
        ),
    ],
    ids=["away", "refused", "an error in 200", "silence"],
)
def test_a_person_reads_that_a_voice_message_could_not_be_heard(
    answer: str | Reply, words: str
) -> None:
    said, model, _ = speak(Transcriptions(answers=[answer] * 3))

    assert (said, model.prompts) == ([words], [])


def test_the_agent_reads_that_a_voice_message_beside_words_could_not_be_heard() -> None:
    endpoint = Transcriptions(answers=[Reply(400, b"{}")])
    content = {"voice": {"file_id": "f", "mime_type": "audio/ogg"}, "caption": "Listen"}
    said, model, _ = speak(endpoint, "I cannot.", **content)

    assert said == ["I cannot."]
    unheard = note("audio.ogg", "what is spoken in it could not be transcribed")
    assert model.prompts[0].messages[-1].content == f"Listen\n\n{unheard}"


def test_a_voice_file_of_100_mb_is_neither_fetched_nor_transcribed() -> None:
    endpoint = Transcriptions()
    content = {"voice": {"file_id": "f", "mime_type": "audio/ogg", "file_size": 100_000_000}}
    (said,), _, c = speak(endpoint, **content)

    assert said.startswith("The file is too large for me.")
    fetched = without_names(p.effect.url for p in c.effects if isinstance(p.effect, Fetch))
    assert fetched == ["http://127.0.0.1:9/bot42:bot-token/sendMessage"]


def test_a_recording_of_a_type_that_no_run_takes_is_heard_all_the_same() -> None:
    endpoint = Transcriptions()
    audio = {"file_id": "f", "mime_type": "audio/amr", "file_name": "note.amr"}
    said, _, _ = speak(endpoint, "Hi.", audio=audio)

    assert (said, endpoint.heard) == (["Hi."], [("audio/amr", VOICE)])


def test_what_only_calls_itself_a_recording_is_not_transcribed() -> None:
    endpoint = Transcriptions()
    _, model, _ = speak(endpoint, "A cat.", voice={"file_id": "p", "mime_type": "audio/ogg"})

    assert endpoint.heard == []
    assert len(model.prompts[0].messages[-1].images) == 1


def test_a_function_is_given_the_recording_beside_the_words() -> None:
    given: list[Any] = []

    def listen(message: str, run: Run) -> str:
        given.append((message, [file.content for file in run.files]))
        return "I heard you."

    provider, endpoint = TelegramApi(), Transcriptions()
    provider.files["f"] = ("audio/ogg", VOICE)
    sent = telegram(voice={"file_id": "f"})
    made = hearing(agents=[Agent(id="concierge", run=listen)])
    with Client(made, fetch=Both(provider, endpoint)) as c:
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(5)

    assert given == [(SPOKEN.format("hello"), [VOICE])]


def test_a_transcript_that_was_kept_is_not_paid_for_again() -> None:
    provider, endpoint = TelegramApi(), Transcriptions()
    provider.files["f"] = ("audio/ogg", VOICE)
    sent = telegram(voice={"file_id": "f"})
    with Client(hearing, fetch=Both(provider, endpoint)) as c:
        lost = c.simulation.fail_at(AttachRun, False)  # behind the transcript
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(60)

    assert (lost.hits, len(endpoint.heard)) == (1, 1)
    (said,) = [message.text for message in provider.seen]
    assert said.startswith(SPOKEN.format("hello"))


def test_a_transcript_that_cannot_be_kept_for_want_of_the_lease_begins_no_run() -> None:
    provider, endpoint = TelegramApi(), Transcriptions()
    provider.files["f"] = ("audio/ogg", VOICE)
    sent = telegram(voice={"file_id": "f"})
    with Client(hearing, fetch=Both(provider, endpoint)) as c:
        lost = c.simulation.fail_at(KeepMessage, False)
        c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
        c.advance(5)

        assert (lost.hits, provider.seen) == (1, [])
        assert c.get("/sessions", query=MAIN).json()["data"] == []
        c.advance(60)  # nobody keeps the lease any more
    assert len(provider.seen) == 1
