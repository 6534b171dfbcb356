"""Albums and bursts: what a person writes at about once is answered by one run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, Platform, tool
from legation.channels.deliveries import (
    Attachment,
    ContentKind,
    IncomingMessage,
    Press,
    decode_message,
    encode_message,
)
from legation.channels.media import MOST_BYTES
from legation.effects import Transact
from legation.hosted.channel_options import ChannelOptions
from legation.messaging.gathering import MOST_CHARACTERS, MOST_MESSAGES, choose, merge, wait_of
from legation.messaging.unread import MOST_FILES
from legation.store.failures import CommitLost
from legation.store.inbox import GatherMessages, PostponeMessage
from legation.store.letters import FetchMessageRecord, MessageRecord
from legation_testing import Client, ScriptedModel, call

from ...providers.deliveries import MAIN, Delivery, channels, platform, signed, telegram, whatsapp
from ...providers.presses import press
from ...providers.strict import Provider, TelegramApi, WhatsAppApi, now_us

GATHERS = ChannelOptions(gather_seconds=5)
JPEG = b"\xff\xd8\xff\xe0 picture"


def gathering(seconds: float = 5.0, **configuration: Any) -> Platform:
    """Return a platform whose channels gather."""
    options = {"gather_seconds": seconds, **configuration.pop("options", {})}
    gathers = [evolve(one, **options) for one in channels("http://127.0.0.1:9")]
    made = platform(channels=gathers, **configuration)
    assert isinstance(made, Platform)
    return made


def post(c: Client, sent: Delivery) -> str:
    answer = c.post(sent.target, headers=sent.headers, body=sent.body).expect_success()
    return str(answer.json()["status"])


def photo(update: int, *, album: str = "9", sender: int = 7, **content: Any) -> Delivery:
    """Return a picture of an album, whose file is named by the update."""
    message = {
        "message_id": update,
        "from": {"id": sender, "is_bot": False},
        "chat": {"id": sender, "type": "private"},
        "date": 1,
        "media_group_id": album,
        "photo": [{"file_id": f"p{update}"}],
        **content,
    }
    return signed("telegram", json.dumps({"update_id": update, "message": message}).encode(), 0)


def said(provider: Provider) -> list[str]:
    assert provider.refused == []
    return [message.text for message in provider.seen]


def record(c: Client, channel: str, message_id: str) -> MessageRecord:
    found = c.simulation.run(_transact(FetchMessageRecord(channel, message_id)))
    assert isinstance(found, MessageRecord)
    return found


def _transact(unit: Any) -> Any:
    return (yield from Transact("main", unit))


def runs(c: Client) -> list[str]:
    """Return what each run was asked, the sessions in the order of their ids."""
    listed = c.get("/sessions", query=MAIN).json()["data"]
    return [
        row["run_input"]
        for session in sorted(listed, key=lambda one: str(one["session_id"]))
        for row in c.get(f"/sessions/{session['session_id']}/runs", query=MAIN).json()
    ]


# --- albums ------------------------------------------------------------------------------------


def test_an_album_of_three_photos_is_one_run_though_the_channel_gathers_nothing() -> None:
    provider = TelegramApi()
    provider.files.update({f"p{n}": ("image/jpeg", JPEG + bytes([n])) for n in (1, 2, 3)})
    model = ScriptedModel(["Three cats."])
    made = platform(agents=[Agent(id="concierge", model=model)])
    with Client(made, fetch=provider) as c:
        post(c, photo(1, caption="What are these?"))
        post(c, photo(2))
        c.advance(0.5)
        post(c, photo(3))
        c.advance(5)
        done = [record(c, "telegram", str(n)).message for n in (1, 2, 3)]

    (prompt,) = model.prompts
    assert prompt.messages[-1].content == "What are these?"
    assert len(prompt.messages[-1].images) == 3
    assert said(provider) == ["Three cats."]
    assert {message.state for message in done} == {"done"}
    assert len({message.run_id for message in done}) == 1


def test_two_albums_are_two_runs() -> None:
    provider = TelegramApi()
    provider.files.update({f"p{n}": ("image/jpeg", JPEG) for n in (1, 2, 3, 4)})
    with Client(platform, fetch=provider) as c:
        for number, album in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
            post(c, photo(number, album=album, caption=f"{number}"))
        c.advance(10)

        assert said(provider) == ["1\n2", "3\n4"]


def test_words_behind_an_album_are_answered_alone_where_the_channel_gathers_nothing() -> None:
    provider = TelegramApi()
    provider.files.update({f"p{n}": ("image/jpeg", JPEG) for n in (1, 3)})
    with Client(platform, fetch=provider) as c:
        post(c, photo(1, caption="one"))
        post(c, telegram(7, 2, "two"))
        post(c, photo(3, caption="three"))
        c.advance(10)

        assert said(provider) == ["one\nthree", "two"]


def of_group(update: int, *, sender: int = 7, **content: Any) -> Delivery:
    """Return a picture of an album in a group."""
    return photo(update, sender=sender, chat={"id": -100, "type": "supergroup"}, **content)


def mention(words: str) -> dict[str, Any]:
    """Return a caption that begins with the name of the bot."""
    entity = {"type": "mention", "offset": 0, "length": 9}
    return {"caption": f"@desk_bot {words}", "caption_entities": [entity]}


@pytest.mark.parametrize("place", [1, 2, 3])
def test_one_caption_that_names_the_bot_makes_an_album_in_a_group_ours(place: int) -> None:
    provider = TelegramApi()
    provider.files.update({f"p{n}": ("image/jpeg", JPEG + bytes([n])) for n in (1, 2, 3)})
    model = ScriptedModel(["Three cats."])
    made = platform(agents=[Agent(id="concierge", model=model)])
    with Client(made, fetch=provider) as c:
        c.advance(1)
        for number in (1, 2, 3):
            post(c, of_group(number, **(mention("What are these?") if number == place else {})))
        c.advance(5)
        done = [record(c, "telegram", str(n)).message for n in (1, 2, 3)]

    (prompt,) = model.prompts
    assert prompt.messages[-1].content == "What are these?"
    assert len(prompt.messages[-1].images) == 3
    assert said(provider) == ["Three cats."]
    assert len({message.run_id for message in done}) == 1


def test_an_album_in_a_group_that_names_nobody_is_done_without_a_word() -> None:
    provider = TelegramApi()
    with Client(gathering, fetch=provider) as c:
        c.advance(1)
        post(c, of_group(1, caption="our holiday"))
        post(c, of_group(2))
        post(
            c,
            of_group(
                3,
                caption="@gif_bot cats",
                caption_entities=[{"type": "mention", "offset": 0, "length": 8}],
            ),
        )
        c.advance(20)
        done = [record(c, "telegram", str(n)).message for n in (1, 2, 3)]

        assert runs(c) == []
    assert said(provider) == []
    assert provider.fetched == []
    assert {message.state for message in done} == {"done"}


def test_an_album_of_another_person_and_a_picture_alone_stay_out_of_it() -> None:
    provider = TelegramApi()
    provider.files.update({f"p{n}": ("image/jpeg", JPEG) for n in (1, 2, 3, 4)})
    with Client(gathering, fetch=provider) as c:
        c.advance(1)
        post(c, of_group(1, **mention("one")))
        post(c, of_group(2, sender=8, caption="not ours"))
        post(c, of_group(3, album="other", caption="nor this"))
        assert post(c, of_group(4, album="", caption="alone")) == "ignored"
        c.advance(20)

        assert said(provider) == ["one"]
        assert provider.fetched == ["p1"]


def test_an_album_that_is_not_for_the_bot_turns_nobody_away() -> None:
    made = platform(channels=[evolve(one, allow=["1"]) for one in channels("http://127.0.0.1:9")])
    counted: list[str] = []
    with Client(lambda: made, fetch=TelegramApi()) as c:
        c.advance(1)
        captions: list[dict[str, Any]] = [{"caption": "our holiday"}, mention("Where is it?")]
        for number, caption in enumerate(captions, start=1):
            post(c, of_group(number, album=str(number), **caption))
            c.advance(5)
            counted.append(c.get("/metrics/prometheus").text)

    line = 'legation_channel_turned_away_total{channel="telegram",reason="not allowed"} 1'
    assert [line in metrics for metrics in counted] == [False, True]


# --- presses -----------------------------------------------------------------------------------


def test_a_press_does_not_wait_for_what_is_gathered_and_ends_nothing() -> None:
    booked: list[str] = []

    @tool(requires_confirmation=True)
    def book(room: str) -> str:
        """Book a room."""
        booked.append(room)
        return "number 7"

    model = ScriptedModel([call("book", room="double"), "Booked.", "With breakfast."])
    provider = TelegramApi()
    agents = [Agent(id="concierge", model=model, tools=[book])]
    made = gathering(10, agents=agents, options={"approve": "sender"})
    with Client(lambda: made, fetch=provider, start_us=now_us()) as c:
        post(c, telegram(7, 1, "a double room"))
        c.advance(11)
        (approve, _) = provider.seen[-1].buttons
        post(c, telegram(7, 2, "and breakfast"))
        c.advance(1)
        post(c, press("telegram", approve, 3, c.clock.now_us, "7"))
        c.advance(2)
        assert booked == ["double"]
        assert said(provider)[1:] == ["Booked."]
        assert record(c, "telegram", "2").message.state == "ready"
        post(c, telegram(7, 4, "for two"))
        c.advance(12)

        assert said(provider)[1:] == ["Booked.", "With breakfast."]
        assert runs(c)[1:] == ["and breakfast\nfor two"]


# --- bursts ------------------------------------------------------------------------------------


def test_a_burst_is_one_run_and_its_reply_quotes_the_first() -> None:
    provider = WhatsAppApi()
    with Client(gathering, fetch=provider) as c:
        post(c, whatsapp(("4911", "a", "one"), ("4911", "b", "two")))
        c.advance(2)
        post(c, whatsapp(("4911", "c", "three")))
        c.advance(2.5)
        assert said(provider) == []
        c.advance(3)

        assert said(provider) == ["one\ntwo\nthree"]
        assert runs(c) == ["one\ntwo\nthree"]
        messages = [record(c, "whatsapp", name).message for name in "abc"]
    assert {message.state for message in messages} == {"done"}
    assert len({message.run_id for message in messages}) == 1
    assert {message.error for message in messages} == {None}


def test_what_comes_later_than_the_seconds_is_another_run() -> None:
    provider = WhatsAppApi()
    with Client(gathering, fetch=provider) as c:
        post(c, whatsapp(("4911", "a", "one")))
        c.advance(7)
        post(c, whatsapp(("4911", "b", "two")))
        c.advance(7)

        assert said(provider) == ["one", "two"]


def test_a_message_that_waited_behind_a_long_run_waits_no_longer() -> None:
    made = gathering(agents=[Agent(id="concierge", model=ScriptedModel(["a", "b"]))])
    provider = WhatsAppApi()
    with Client(made, fetch=provider) as c:
        post(c, whatsapp(("4911", "a", "one")))
        c.advance(5.5)
        post(c, whatsapp(("4911", "b", "two")))
        c.advance(1)
        post(c, whatsapp(("4911", "c", "three")))
        c.advance(10)

        assert said(provider) == ["a", "b"]
        assert runs(c) == ["one", "two\nthree"]


def test_two_people_never_mix() -> None:
    provider = WhatsAppApi()
    with Client(gathering, fetch=provider) as c:
        post(c, whatsapp(("4911", "a", "one"), ("4922", "b", "two"), ("4911", "c", "three")))
        c.advance(8)

        assert sorted(said(provider)) == ["one\nthree", "two"]


def test_a_gathered_message_that_is_delivered_again_is_a_duplicate() -> None:
    provider = WhatsAppApi()
    sent = whatsapp(("4911", "b", "two"))
    with Client(gathering, fetch=provider) as c:
        post(c, whatsapp(("4911", "a", "one")))
        assert post(c, sent) == "processing"
        assert post(c, sent) == "duplicate"
        c.advance(8)
        assert post(c, sent) == "duplicate"
        c.advance(8)

        assert said(provider) == ["one\ntwo"]


def test_the_command_new_ends_what_was_gathered() -> None:
    provider = WhatsAppApi()
    with Client(gathering, fetch=provider) as c:
        texts = ("one", "two", "/new three", "four", "five")
        post(c, whatsapp(*(("4911", str(n), words) for n, words in enumerate(texts))))
        c.advance(20)

        assert said(provider) == ["one\ntwo", "three", "four\nfive"]


@pytest.mark.parametrize("after", [True, False], ids=["done", "undone"])
@pytest.mark.parametrize("unit", [PostponeMessage, GatherMessages])
def test_a_commit_whose_answer_is_lost_gathers_once(unit: type[Any], *, after: bool) -> None:
    provider = WhatsAppApi()
    with Client(gathering, fetch=provider) as c:
        lost = c.simulation.fail_at(unit, CommitLost("x"), after=after)
        post(c, whatsapp(("4911", "a", "one"), ("4911", "b", "two")))
        c.advance(60)

        assert said(provider) == ["one\ntwo"]
        assert lost.hits == 1


def test_a_gathering_whose_lease_was_lost_begins_no_run_and_is_made_again() -> None:
    provider = WhatsAppApi()
    with Client(gathering, fetch=provider) as c:
        lost = c.simulation.fail_at(GatherMessages, False)
        post(c, whatsapp(("4911", "a", "one"), ("4911", "b", "two")))
        c.advance(8)

        assert (lost.hits, said(provider), runs(c)) == (1, [], [])
        assert record(c, "whatsapp", "b").message.state == "ready"
        c.advance(60)  # nobody keeps the lease any more
        assert said(provider) == ["one\ntwo"]


# --- what belongs together ---------------------------------------------------------------------


def message(name: str, text: str | None = "x", **fields: Any) -> IncomingMessage:
    return IncomingMessage(name, "ada", text=text, conversation="c", **fields)


def chosen(
    first: IncomingMessage, *waiting: IncomingMessage, options: ChannelOptions = GATHERS
) -> list[str]:
    behind: Sequence[tuple[IncomingMessage, int]] = [(one, 1_000_000) for one in waiting]
    return [one.message_id for one in choose(options, first, behind)]


@pytest.mark.parametrize(
    ("options", "alone", "wait_us"),
    [
        (ChannelOptions(), message("a"), 0),
        (ChannelOptions(), message("a", album="9"), 1_000_000),
        (GATHERS, message("a"), 5_000_000),
        (ChannelOptions(gather_seconds=0.5), message("a", album="9"), 1_000_000),
        (GATHERS, message("a", " /help"), 0),
        (GATHERS, message("a", "Yes", kind=ContentKind.BUTTON), 0),
        (GATHERS, message("a", None, kind=ContentKind.STICKER), 0),
        (GATHERS, message("a", press=Press("r.1", approves=True)), 0),
        (GATHERS, message("a", "yes"), 5_000_000),
        (evolve(GATHERS, approve=frozenset({"sender"})), message("a", "yes"), 0),
        (evolve(GATHERS, approve=frozenset({"sender"})), message("a", "maybe"), 5_000_000),
    ],
)
def test_a_message_waits_for_others_where_some_may_belong_to_it(
    options: ChannelOptions, alone: IncomingMessage, wait_us: int
) -> None:
    assert wait_of(options, alone) == wait_us


def test_another_conversation_and_what_is_not_for_the_agent_are_left_where_they_are() -> None:
    waiting = (
        message("b"),
        evolve(message("c"), conversation="d"),
        evolve(message("d"), thread="t"),
        message("e", None, kind=ContentKind.REACTION),
        message("f"),
    )

    assert chosen(message("a"), *waiting) == ["b", "f"]


@pytest.mark.parametrize(
    "end",
    [message("end", "/new"), message("end", "Yes", kind=ContentKind.BUTTON)],
    ids=["a command", "a button"],
)
def test_what_stands_alone_ends_the_gathering(end: IncomingMessage) -> None:
    assert chosen(message("a"), message("b"), end, message("c")) == ["b"]


def test_what_is_gathered_has_no_more_files_than_one_message() -> None:
    file = Attachment("x", "image/png", "x.png")
    pictures = [message(str(n), media=(file,)) for n in range(MOST_FILES + 3)]

    assert len(chosen(message("a", media=(file,)), *pictures)) == MOST_FILES - 1


def test_what_is_gathered_has_no_more_bytes_than_one_message() -> None:
    half = Attachment("x", "image/png", "x.png", MOST_BYTES // 2)
    three = [message(name, media=(half,)) for name in "bcd"]

    assert chosen(message("a"), *three) == ["b", "c"]


def test_what_is_gathered_is_not_longer_than_a_run_should_read() -> None:
    long = message("b", "x" * (MOST_CHARACTERS // 2))

    assert chosen(long, evolve(long, message_id="c"), message("d")) == []


def test_a_burst_of_more_messages_is_several_runs() -> None:
    provider = WhatsAppApi()
    with Client(gathering, fetch=provider) as c:
        post(c, whatsapp(*(("4911", f"m{n:03}", str(n)) for n in range(MOST_MESSAGES + 5))))
        c.advance(30)

        assert [len(text.split("\n")) for text in said(provider)] == [MOST_MESSAGES, 5]


@pytest.mark.parametrize(
    ("first", "waiting", "joined"),
    [
        # The caption of a later picture makes the album ours, whoever is the first.
        (message("a", album="9", addressed=False), [message("b", album="9")], ["b"]),
        (message("a"), [message("b", album="9", addressed=False), message("c", album="9")], "bc"),
        (message("a", album="9"), [message("b", album="8", addressed=False), message("c")], "c"),
        # Nobody joins what is not ours, but the rest of its album.
        (message("a", album="9", addressed=False), [message("b")], []),
        (
            message("a", album="9", addressed=False),
            [message("b"), message("c", album="9", addressed=False)],
            ["c"],
        ),
        # A command ends it, a picture that is not ours does not.
        (
            message("a"),
            [message("b", "/new", album="7", addressed=False), message("c")],
            ["c"],
        ),
    ],
)
def test_of_an_album_in_a_group_one_caption_counts_for_all(
    first: IncomingMessage, waiting: list[IncomingMessage], joined: Sequence[str]
) -> None:
    assert chosen(first, *waiting) == [*joined]


def test_what_is_not_addressed_waits_for_its_album_alone() -> None:
    assert wait_of(GATHERS, message("a", album="9", addressed=False)) == 1_000_000
    assert wait_of(GATHERS, message("a", addressed=False)) == 0
    merged = merge(message("a", addressed=False), message("b"))
    assert merged.addressed
    assert not merge(message("a", addressed=False)).addressed


def test_the_merged_message_has_all_words_and_files_and_is_the_first() -> None:
    pdf = Attachment("1", "application/octet-stream", "a.pdf", 5)
    voice = Attachment("2", "audio/ogg", "a.ogg", 7, "spoken")
    merged = merge(
        message("a", provider_id="p1"),
        message("b", None, kind=ContentKind.AUDIO, media=(voice,)),
        message("c", "y", kind=ContentKind.DOCUMENT, media=(pdf,), provider_id="p3"),
    )

    assert merged == message(
        "a", "x\ny", kind=ContentKind.DOCUMENT, media=(voice, pdf), provider_id="p1"
    )
    assert decode_message(encode_message(merged)) == merged
    assert merge(message("a", None), message("b", None)).text is None
