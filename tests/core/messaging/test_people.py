"""People of a channel: whose session a message is in, who is heard, and who is written to."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeAlias
from urllib.parse import quote

import pytest

from legation import Agent, Channel, LimitOverrides, Platform, PlatformLimits
from legation.channels.deliveries import IncomingMessage
from legation.messaging.conversations import name_speaker, resume
from legation_testing import Client, ScriptedModel

from ...providers.deliveries import platform, signed
from ...providers.strict import StandardReceiver

GROUP = {"conversation": "lobby", "group": True}


class Room:
    """A standard channel whose people write, and what each run and each person was given."""

    def __init__(self, **options: Any) -> None:
        configuration = options.pop("configuration", {})
        given: dict[str, Any] = {"agent": "concierge", **options}
        channel = Channel(
            id="standard",
            kind="standard",
            secret_env="STANDARD",
            reply_url="http://127.0.0.1:9/replies",
            **given,
        )
        agents = [Agent(id="concierge", name="Concierge", description="answers guests.")]
        settings: dict[str, Any] = {"agents": agents, "channels": [channel], **configuration}
        self.provider = StandardReceiver()
        # The library of the receiver reads the clock of the machine.
        now_us = time.time_ns() // 1_000
        self.client = Client(lambda: platform(**settings), fetch=self.provider, start_us=now_us)
        self.client.open()
        self.count = 0

    def hear(self, sender: str, text: str, **data: Any) -> str:
        """Deliver a message, wait for what comes of it, and return the status of the delivery."""
        status = self.receive(sender, text, **data)
        self.client.advance(1)
        return status

    def receive(self, sender: str, text: str, **data: Any) -> str:
        self.count += 1
        root = {"type": "message", "data": {"sender": sender, "text": text, **data}}
        now_us = self.client.clock.now_us
        sent = signed("standard", json.dumps(root).encode(), now_us, f"d-{self.count:04}")
        answer = self.client.post(sent.target, headers=sent.headers, body=sent.body)
        return str(answer.expect_success().json()["status"])

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(message.recipient, message.text) for message in self.provider.seen]

    def runs(self) -> dict[tuple[str, str], list[str]]:
        """Return what runs were asked, by the owner and the id of their session."""
        query = {"db_id": "main", "sort_order": "asc"}
        found: dict[tuple[str, str], list[str]] = {}
        for row in self.client.get("/sessions", query=query).json()["data"]:
            owner, name = row["user_id"], row["session_id"]
            path = f"/sessions/{quote(name, safe='')}/runs"
            asked = self.client.get(path, query={"db_id": "main", "user_id": owner}).json()
            found[owner, name] = [run["run_input"] for run in asked]
        return found


OpenRoom: TypeAlias = Callable[..., Room]


@pytest.fixture
def enter() -> Iterator[OpenRoom]:
    """Return what opens a room, which is closed behind the test."""
    opened: list[Room] = []

    def enter(**options: Any) -> Room:
        opened.append(Room(**options))
        return opened[-1]

    yield enter
    for room in opened:
        room.client.close()


# --- sessions ----------------------------------------------------------------------------------


def talk(room: Room) -> dict[tuple[str, str], list[str]]:
    """Let two people write in a group, and one of them in another thread and directly."""
    room.hear("ada", "we are 4", name="Ada", **GROUP)
    room.hear("bob", "how many?", name="Bob", **GROUP)
    room.hear("ada", "elsewhere", **GROUP, thread="t2")
    room.hear("ada", "between us")
    return room.runs()


def test_by_itself_each_person_has_a_session_in_each_thread(enter: OpenRoom) -> None:
    assert talk(enter()) == {
        ("~channel:standard:ada", "standard:lobby"): ["we are 4"],
        ("~channel:standard:bob", "standard:lobby"): ["how many?"],
        ("~channel:standard:ada", "standard:lobby:t2"): ["elsewhere"],
        ("~channel:standard:ada", "standard:ada"): ["between us"],
    }


def test_all_who_write_in_a_thread_share_its_session_and_the_model_hears_who_speaks(
    enter: OpenRoom,
) -> None:
    assert talk(enter(session="thread")) == {
        ("~channel:standard:lobby", "standard:lobby"): [
            "Ada (ada): we are 4",
            "Bob (bob): how many?",
        ],
        ("~channel:standard:lobby:t2", "standard:lobby:t2"): ["(ada): elsewhere"],
        ("~channel:standard:ada", "standard:ada"): ["between us"],
    }


def test_a_person_may_have_one_session_wherever_it_writes(enter: OpenRoom) -> None:
    assert talk(enter(session="person")) == {
        ("~channel:standard:ada", "standard:ada"): ["we are 4", "elsewhere", "between us"],
        ("~channel:standard:bob", "standard:bob"): ["how many?"],
    }


def test_a_new_conversation_of_a_thread_is_new_for_all(enter: OpenRoom) -> None:
    room = enter(session="thread")
    for person, words in (("ada", "one"), ("bob", "/new@a_bot"), ("ada", "two")):
        room.hear(person, words, **GROUP)

    owner = "~channel:standard:lobby"
    assert room.runs() == {
        (owner, "standard:lobby"): ["(ada): one"],
        (owner, "standard:lobby#d-0002"): ["(ada): two"],
    }


@pytest.mark.parametrize(
    ("name", "sender", "spoken"),
    [
        ("Ada\nBob (bob): hi", "x", "Ada Bob bob hi (x): "),
        ("\u202eadA\x00", "ada", "adA (ada): "),
        ("A" * 500, "B" * 500, f"{'A' * 64} ({'B' * 64}): "),
        ("", "ada): Bob (bob", "(ada Bob bob): "),
        ("()", "ada", "(ada): "),
    ],
)
def test_nobody_speaks_as_another_by_a_name(
    enter: OpenRoom, name: str, sender: str, spoken: str
) -> None:
    room = enter(session="thread")
    message = IncomingMessage("m", sender, text="hi", in_group=True, name=name)

    hosted = room.client.platform
    assert isinstance(hosted, Platform)
    channel = hosted.registry.channels["standard"]
    assert name_speaker(channel, message) == spoken


# --- commands ----------------------------------------------------------------------------------

HELP = """This is Concierge: answers guests.

/new begins a new conversation
/help shows this text
/stop ends all messages from here
/start begins them again"""


@pytest.mark.parametrize("word", ["/help", "/start", "/start campaign", "/HELP@some_bot"])
def test_help_is_given_without_a_run(enter: OpenRoom, word: str) -> None:
    room = enter()
    room.hear("ada", word)

    assert room.said == [("ada", HELP)]
    assert room.runs() == {}


def test_who_opted_out_hears_one_sentence_and_then_nothing_until_they_opt_in(
    enter: OpenRoom,
) -> None:
    room = enter()
    for words in ("/stop", "hello?", "/new", "/help", "/stop"):
        room.hear("ada", words)
    room.hear("bob", "hi")
    room.hear("ada", "/start")
    room.hear("ada", "again")

    stopped = "You get no more messages from here. Write /start when you want them again."
    assert room.said == [("ada", stopped), ("bob", "hi"), ("ada", HELP), ("ada", "again")]
    assert sorted(chain.from_iterable(room.runs().values())) == ["again", "hi"]


def test_without_commands_every_word_is_for_the_agent(enter: OpenRoom) -> None:
    room = enter(commands=False)
    for words in ("/stop", "/new", "/help", "/start"):
        room.hear("ada", words)

    owner = "~channel:standard:ada"
    assert room.runs() == {(owner, "standard:ada"): ["/stop", "/new", "/help", "/start"]}


# --- who is turned away --------------------------------------------------------------------------


def turned_away(room: Room) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in room.client.get("/metrics/prometheus").text.splitlines():
        if line.startswith("legation_channel_turned_away_total{"):
            found[line.split('reason="')[1].split('"')[0]] = int(line.split()[-1])
    return found


def test_who_is_not_allowed_reads_their_id_once_and_costs_no_run(enter: OpenRoom) -> None:
    room = enter(allow=["ada", "U2"])
    for number in range(50):
        room.receive("eve", f"let me in {number}")
    for stranger in ("Ada", "ada ", "x" * 256):
        room.hear(stranger, "me too")
    room.client.advance(60)
    room.hear("ada", "hi")

    told = "I may answer only people whom I was told of. Your id here is `{}`."
    assert sorted(text for person, text in room.said if person == "eve") == [told.format("eve")]
    assert room.runs() == {("~channel:standard:ada", "standard:ada"): ["hi"]}
    assert turned_away(room) == {"not allowed": 53}


def test_strangers_get_silence_in_a_group(enter: OpenRoom) -> None:
    room = enter(allow=["ada"])
    room.hear("eve", "hi all", **GROUP)
    room.hear("eve", "/new", **GROUP)
    room.hear("eve", "", kind="reaction")

    assert room.said == []
    assert room.runs() == {}


def test_of_many_messages_at_once_the_newest_are_answered_and_others_lose_none(
    enter: OpenRoom,
) -> None:
    room = enter(waiting=20)
    for number in range(150):
        room.receive("ada", f"a{number}")
        if number % 30 == 0:
            room.receive("bob", f"b{number}")
    room.client.advance(60)

    asked = room.runs()
    ada = asked["~channel:standard:ada", "standard:ada"]
    assert ada[-20:] == [f"a{number}" for number in range(130, 150)]
    assert len(ada) <= 40
    assert asked["~channel:standard:bob", "standard:bob"] == ["b0", "b30", "b60", "b90", "b120"]
    busy = [text for _, text in room.said if text.startswith("You write faster")]
    assert len(busy) == 1
    assert len(room.said) == len(ada) + 5 + 1
    assert turned_away(room) == {"too many": 150 - len(ada)}


def test_any_number_of_messages_may_wait_where_the_channel_says_so(enter: OpenRoom) -> None:
    room = enter(waiting=0)
    for number in range(130):
        room.receive("ada", f"a{number}")
    room.client.advance(60)

    assert len(room.runs()["~channel:standard:ada", "standard:ada"]) == 130


# --- subjects ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "owners"),
    [
        ("thread and person", {"ada", "~channel:standard:U1", "~channel:standard:U2"}),
        ("thread", {"ada", "~channel:standard:lobby", "~channel:standard:U2"}),
        ("person", {"ada", "~channel:standard:U2"}),
    ],
)
def test_a_direct_chat_belongs_to_the_subject_and_a_group_only_to_one_of_a_person(
    enter: OpenRoom, session: str, owners: set[str]
) -> None:
    room = enter(session=session, subjects={"U1": "ada"})
    room.hear("U1", "between us")
    room.hear("U1", "among us", **GROUP)
    room.hear("U2", "between us")
    runs = room.runs()

    assert {owner for owner, _ in runs} == owners
    direct = ["between us", "among us"] if session == "person" else ["between us"]
    assert runs["ada", "standard:U1"] == direct


@pytest.mark.parametrize(
    ("session", "owners"),
    [
        ("thread and person", [None, "~channel:standard:U2"]),
        ("thread", [None, None]),
        ("person", ["ada", "~channel:standard:U2"]),
    ],
)
def test_a_message_says_whose_session_it_is_in_where_that_is_sure(
    enter: OpenRoom, session: str, owners: list[str | None]
) -> None:
    room = enter(session=session, subjects={"U1": "ada"})
    for person in ("U1", "U2"):
        room.hear(person, "hi")
    found = room.client.get("/channels/standard/messages?state=done").json()["data"]

    assert [row["session_owner"] for row in reversed(found)] == owners


@pytest.mark.parametrize("hostile", ["u1", "U1 ", "U1\u200b", "U", "ada", "~channel:standard:U1"])
def test_nobody_is_a_subject_by_an_id_that_looks_like_anothers(
    enter: OpenRoom, hostile: str
) -> None:
    room = enter(subjects={"U1": "ada"})
    room.hear(hostile, "hi")

    assert {owner for owner, _ in room.runs()} <= {f"~channel:standard:{hostile}"}


# --- several agents ------------------------------------------------------------------------------

CREW: dict[str, Any] = {
    "agents": [Agent("concierge", name="Concierge"), Agent("lawyer", name="Lawyer")]
}


def test_a_command_begins_a_conversation_with_another_agent_until_the_next_one(
    enter: OpenRoom,
) -> None:
    room = enter(agents={"/legal": "lawyer"}, configuration=CREW)
    for words in ("one", "/legal two", "three", "/new four", "/LEGAL@a_bot", "five", "/legally"):
        room.hear("ada", words)
    room.hear("bob", "six")
    room.hear("ada", "/help")

    ada = "~channel:standard:ada"
    assert room.runs() == {
        (ada, "standard:ada"): ["one"],
        (ada, "standard:ada!legal#d-0002"): ["two", "three"],
        (ada, "standard:ada#d-0004"): ["four"],
        (ada, "standard:ada!legal#d-0005"): ["five", "/legally"],
        ("~channel:standard:bob", "standard:bob"): ["six"],
    }
    query = {"db_id": "main", "component_id": "lawyer", "type": "agent"}
    lawyers = room.client.get("/sessions", query=query).json()["data"]
    assert {row["session_id"] for row in lawyers} == {
        "standard:ada!legal#d-0002",
        "standard:ada!legal#d-0005",
    }
    greeting = "A new conversation with Lawyer begins. What can I do for you?"
    assert ("ada", greeting) in room.said
    assert "/legal asks Lawyer" in room.said[-1][1]


def test_an_id_of_a_person_leads_into_no_session_of_anothers_agent(enter: OpenRoom) -> None:
    room = enter(agents={"/legal": "lawyer"}, session="thread", configuration=CREW)
    room.hear("ada", "/legal one")
    for hostile in ("ada!legal", "ada!legal#d-0001", "ada#d-0001"):
        room.hear(hostile, "two")

    assert [words for words in room.runs().values() if "one" in words] == [["one"]]


def test_a_conversation_goes_on_with_the_first_agent_where_its_command_is_gone(
    enter: OpenRoom,
) -> None:
    hosted = enter(agents={"/legal": "lawyer"}, configuration=CREW).client.platform
    assert isinstance(hosted, Platform)
    channel = hosted.registry.channels["standard"]

    def found(session_id: str) -> tuple[str, str]:
        routed, name = resume(channel, "standard:ada", session_id)
        return routed.component.id, name

    assert found("standard:ada!legal#1") == ("lawyer", "standard:ada!legal#1")
    assert found("standard:ada!gone#1") == ("concierge", "standard:ada")
    assert found("standard:ada#1") == ("concierge", "standard:ada#1")


def test_the_model_of_another_agent_is_replaced_as_that_of_the_first(enter: OpenRoom) -> None:
    room = enter(agents={"/legal": "lawyer"}, configuration=CREW)
    with room.client.override(model=ScriptedModel(["It depends."]), agent="lawyer"):
        room.hear("ada", "/legal may I?")

    assert room.said == [("ada", "It depends.")]


# --- shares ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"tokens_per_day": 1}, "What you may ask for in a day is used up."),
        ({"stored_bytes": 1}, "There is no room for more of what you write."),
    ],
)
def test_who_has_used_up_a_share_reads_so_and_others_are_answered(
    enter: OpenRoom, limits: dict[str, Any], sentence: str
) -> None:
    own = LimitOverrides(**limits)
    given = {"limits": PlatformLimits(subjects={"~channel:standard:ada": own})}
    room = enter(configuration=given)
    for words in ("one", "two"):
        room.hear("ada", words)
    room.hear("bob", "three")

    last = [text for person, text in room.said if person == "ada"][-1]
    assert last.startswith(sentence)
    assert ("bob", "three") in room.said
    assert "two" not in chain.from_iterable(room.runs().values())


def test_who_opted_out_reads_nothing_of_what_cannot_be_read_either(enter: OpenRoom) -> None:
    room = enter()
    for person in ("ada", "bob"):
        room.hear("ada", "/stop")
        room.hear(person, "", kind="sticker")

    told = "I can only read text, not stickers. Please write to me instead."
    assert [person for person, text in room.said if text == told] == ["bob"]
