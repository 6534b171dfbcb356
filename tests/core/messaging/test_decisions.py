"""Paused runs that are settled in their channel: by words, by buttons, and once."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from typing import Any

import pytest
from attrs import evolve

from legation import Agent, tool
from legation.channels.deliveries import ContentKind, IncomingMessage, Press, encode_message
from legation.effects import Transact
from legation.hosted.channel_options import ChannelOptions
from legation.messaging.conversations import owner_of
from legation.messaging.decisions import read_words
from legation.store.audit import Changed
from legation.store.failures import StatementFailed
from legation.store.inbox import AttachRun, CompleteMessage, NewMessage, PutMessages
from legation.store.run_reads import FetchRun
from legation.store.run_steering import Continued, ContinueRun
from legation_testing import Client, Says, ScriptedModel, call

from ...providers.deliveries import Delivery, platform, standard, whatsapp
from ...providers.strict import Provider, WhatsAppApi


class Hotel:
    """A booking desk behind two channels: what it booked, and what people were sent."""

    def __init__(self, *approve: str, script: list[Any] | None = None, **more: Any) -> None:
        self.approve, self.more = approve, more
        self.script = script or [call("book", room="double"), Says("Booked.")]
        self.booked: list[str] = []
        self.models: list[ScriptedModel] = []
        self.provider = WhatsAppApi()
        self.client = Client(self.platform, fetch=Both(self.provider))

    def platform(self) -> Any:
        @tool(requires_confirmation=True)
        def book(room: str) -> str:
            """Book a room."""
            self.booked.append(room)
            return "number 7"

        @tool(external_execution=True)
        def scan(page: int) -> str:
            """Scan a page."""
            return ""

        self.models.append(ScriptedModel(self.script))
        agent = Agent(id="concierge", model=self.models[-1], tools=[book, scan])
        made = platform(agents=[agent], **self.more)
        channels = [
            evolve(one, approve=self.approve or ("nobody",)) for one in made.config.channels
        ]
        return platform(agents=[agent], channels=channels, **self.more)

    def write(self, text: str, message_id: str, sender: str = "4911") -> None:
        self.deliver(whatsapp((sender, message_id, text)))

    def deliver(self, sent: Delivery) -> None:
        answer = self.client.post(sent.target, headers=sent.headers, body=sent.body)
        answer.expect_success()
        self.client.advance(2)

    def press(
        self, approval: str, message_id: str, *, approves: bool = True, sender: str = "4911"
    ) -> None:
        """Press a button under a question, as a codec reads that."""
        pressed = IncomingMessage(
            message_id,
            sender,
            ContentKind.BUTTON,
            conversation="4911",
            press=Press(approval, approves),
        )
        row = NewMessage(message_id, pressed.lane, encode_message(pressed))
        put = PutMessages("whatsapp", (row,), self.client.clock.now_us)
        self.client.simulation.run(transact(put))
        self.client.advance(2)

    @property
    def approval(self) -> str:
        """The approval that waits."""
        (waiting,) = self.client.get("/approvals?status=pending").json()["data"]
        return str(waiting["id"])

    @property
    def heard(self) -> list[str]:
        """What people were sent, in order."""
        return [message.text for message in self.provider.seen]

    def trail(self) -> list[tuple[str | None, str, str]]:
        """Who decided what, in the audit trail."""
        rows = self.client.get("/audit?operation=resolve_approval").json()["data"]
        return [(row["subject"], row["resource"], row["decision"]) for row in rows]


class Both:
    """The network: the provider, and nothing else."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def __call__(self, fetch: Any) -> Any:
        return self.provider(fetch)


def transact(unit: Any) -> Any:
    return (yield from Transact("main", unit))


@pytest.fixture
def hotel() -> Generator[Callable[..., Hotel]]:
    opened: list[Hotel] = []

    def make(*approve: str, **more: Any) -> Hotel:
        made = Hotel(*approve, **more)
        made.client.open()
        opened.append(made)
        return made

    yield make
    for one in opened:
        one.client.close()


Make = Callable[..., Hotel]


# --- the end of a run, by whomever it was continued


def test_a_run_that_an_operator_continues_answers_the_person_once(hotel: Make) -> None:
    desk = hotel()
    desk.write("a double room", "a")
    assert desk.heard == ["I have tools to execute, but I need confirmation."]

    desk.client.post(
        f"/approvals/{desk.approval}/resolve", json={"status": "approved"}
    ).expect_success()
    desk.client.advance(5)

    assert (desk.booked, desk.heard[1:]) == (["double"], ["Booked."])
    record = desk.client.get("/channels/whatsapp/messages/a").json()
    assert [reply["state"] for reply in record["replies"]] == ["sent", "sent"]


def test_a_run_that_goes_on_without_its_message_having_ended_answers_once(hotel: Make) -> None:
    """The message is worked on once more, after its run has long been continued."""
    desk = hotel("sender")
    desk.client.fail_at(
        lambda effect: isinstance(getattr(effect, "unit", None), CompleteMessage),
        StatementFailed("x"),
        times=5,
    )
    desk.write("a double room", "a")
    assert desk.heard == []
    desk.client.post(
        f"/approvals/{desk.approval}/resolve", json={"status": "approved"}
    ).expect_success()
    desk.client.advance(300)

    assert (desk.booked, desk.heard) == (["double"], ["Booked."])


def test_each_pause_of_a_run_is_another_question(hotel: Make) -> None:
    script = [call("book", room="double"), call("book", room="single"), Says("Both.")]
    desk = hotel("sender", script=script)
    desk.write("two rooms", "a")
    desk.write("yes", "b")
    desk.write("Yes!", "c")

    assert desk.booked == ["double", "single"]
    assert [("double" in text, "single" in text) for text in desk.heard] == [
        (True, False),
        (False, True),
        (False, False),
    ]


def test_who_asked_is_told_of_a_cancellation(hotel: Make) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    run_id = desk.approval.partition(".")[0]
    desk.client.post(f"/agents/concierge/runs/{run_id}/cancel").expect_success()
    desk.client.advance(2)
    desk.press(f"{run_id}.5", "p")

    assert desk.booked == []
    assert desk.heard[1] == "The request was cancelled."
    assert desk.heard[2] == "This question is over."


# --- words


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("yes", True),
        (" Yes! ", True),
        ("OK.", True),
        ("no", False),
        ("Reject", False),
        ("yes please, and a cot", None),
        ("y" * 1000, None),
        ("", None),
    ],
)
def test_a_word_alone_decides(text: str, says: bool | None) -> None:
    assert read_words(text) is says


def test_yes_lets_the_tool_run_and_the_trail_names_who_said_it(hotel: Make) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    approval = desk.approval
    assert "double" in desk.heard[0]
    assert 'Press a button, or answer "yes" or "no".' in desk.heard[0]
    desk.write("yes", "b")

    assert (desk.booked, desk.heard[1:]) == (["double"], ["Booked."])
    assert desk.trail() == [("~channel:whatsapp:4911", approval, "allow")]
    shown = desk.client.get("/channels/whatsapp/messages/b").json()
    assert (shown["run_id"], shown["replies"]) == (approval.partition(".")[0], [])


def test_no_is_told_to_the_agent_and_the_tool_does_not_run(hotel: Make) -> None:
    desk = hotel("sender", script=[call("book", room="double"), Says("As you wish.")])
    desk.write("a double room", "a")
    desk.write("no", "b")

    assert (desk.booked, desk.heard[1:]) == ([], ["As you wish."])


def test_a_word_is_asked_where_nothing_waits_or_nobody_may_answer(hotel: Make) -> None:
    desk = hotel("sender", script=[Says("Hello."), Says("Yes what?")])
    desk.write("hello", "a")
    desk.write("yes", "b")

    assert desk.heard == ["Hello.", "Yes what?"]


@pytest.mark.parametrize("approve", [(), ("4999",)], ids=["nobody", "somebody else"])
def test_a_word_of_who_may_not_answer_is_asked_with_the_question_before_it(
    hotel: Make, approve: tuple[str, ...]
) -> None:
    desk = hotel(*approve, script=[call("book", room="double"), Says("Please wait.")])
    desk.write("a double room", "a")
    desk.write("yes", "b")

    assert (desk.booked, desk.heard[1:]) == ([], ["Please wait."])
    asked = desk.models[-1].prompts[-1].messages
    assert [message.role for message in asked] == ["user", "assistant", "user"]
    assert 'book {"room":"double"}' in asked[1].content


def test_of_two_questions_a_word_answers_none(hotel: Make) -> None:
    script = [call("book", room="double"), call("book", room="single")]
    desk = hotel("sender", script=script)
    desk.write("a double room", "a")
    desk.write("a single room", "b")
    desk.write("yes", "c")

    assert desk.booked == []
    assert desk.heard[2].startswith("More than one question waits.")


def test_a_word_that_was_noted_decides_after_a_crash_and_asks_nobody(hotel: Make) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    desk.client.fail_at(
        lambda effect: isinstance(getattr(effect, "unit", None), CompleteMessage),
        StatementFailed("x"),
        times=1,
    )
    desk.write("yes", "b")
    desk.client.advance(120)

    assert (desk.booked, desk.heard[1:]) == (["double"], ["Booked."])
    assert len(desk.trail()) == 1


def test_a_word_whose_lease_is_lost_decides_nothing(hotel: Make) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    desk.client.fail_at(
        lambda effect: isinstance(getattr(effect, "unit", None), AttachRun), False, times=1
    )
    desk.write("yes", "b")
    assert desk.booked == []
    desk.client.advance(60)

    assert (desk.booked, desk.heard[1:]) == (["double"], ["Booked."])


# --- presses


def test_of_thirty_presses_one_lets_the_tool_run(hotel: Make) -> None:
    desk = hotel("sender", "4922")
    desk.write("a double room", "a")
    approval = desk.approval
    for number in range(30):
        desk.press(approval, f"p{number}", sender=("4911", "4922")[number % 2])

    assert desk.booked == ["double"]
    assert desk.heard.count("Booked.") == 1
    assert set(desk.heard[2:]) == {"This question is over: it was approved by 4911."}
    assert len(desk.trail()) == 1


def test_a_press_does_not_wait_for_a_long_run_of_who_pressed(hotel: Make) -> None:
    script = [
        call("book", room="double"),
        Says("Slow.", after_seconds=50.0),
        Says("Booked."),
    ]
    desk = hotel("sender", script=script)
    desk.write("a double room", "a")
    approval = desk.approval
    desk.write("something else", "b")
    desk.press(approval, "p")

    assert desk.trail() == [("~channel:whatsapp:4911", approval, "allow")]


@pytest.mark.parametrize(
    "approval", ["", "r", "no-such.5", "x" * 10_000, ".5", "r.-1", "r.5.5", "\0.1", "…"]
)
def test_a_press_that_was_made_up_changes_nothing(hotel: Make, approval: str) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    desk.press(approval, "p")

    assert (desk.booked, desk.heard[1:]) == ([], ["This question is not known here."])


def test_a_press_by_a_stranger_is_refused_and_stands_in_the_trail(hotel: Make) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    approval = desk.approval
    desk.press(approval, "p", sender="4999")

    assert (desk.booked, desk.heard[1:]) == (
        [],
        ["Somebody else has to answer this question."],
    )
    assert desk.trail() == [("~channel:whatsapp:4999", approval, "deny")]


def test_a_press_for_a_run_of_another_channel_changes_nothing(hotel: Make) -> None:
    desk = hotel("4911", "sender")
    told = standard("4911", "d-1", "a double room", desk.client.clock.now_us)
    desk.deliver(told)
    desk.press(desk.approval, "p")

    assert desk.booked == []
    assert "This question is not known here." in desk.heard


def test_a_press_for_a_run_of_the_interface_changes_nothing(hotel: Make) -> None:
    desk = hotel("sender")
    desk.client.run("concierge", "a double room")
    desk.press(desk.approval, "p")

    assert (desk.booked, desk.heard) == ([], ["This question is not known here."])


def test_a_press_after_an_operator_names_nobody(hotel: Make) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    approval = desk.approval
    desk.client.post(f"/approvals/{approval}/resolve", json={"status": "rejected"}).expect_success()
    desk.client.advance(5)
    desk.press(approval, "p")

    assert desk.heard[2] == "This question is over: it was rejected."


@pytest.mark.parametrize(
    ("found", "read"),
    [
        (Continued("RUNNING"), "This question is over."),
        (Continued("PAUSED", over=True), "Too much waits already. Please answer again later."),
        (Continued("PAUSED", busy=True), "Too much waits already. Please answer again later."),
    ],
    ids=["somebody was quicker", "too much waits", "busy"],
)
def test_a_press_that_does_not_go_on_says_why(hotel: Make, found: Continued, read: str) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    desk.client.fail_at(
        lambda effect: isinstance(_inner(effect), ContinueRun), Changed(found, kept=False), times=1
    )
    desk.press(desk.approval, "p")

    assert (desk.booked, desk.heard[1:]) == ([], [read])


def test_a_press_cannot_bring_the_result_of_a_call_of_the_client(hotel: Make) -> None:
    desk = hotel("sender", script=[call("scan", page=1), Says("Scanned.")])
    desk.write("scan it", "a")
    assert desk.heard == ["I have tools to execute, but it needs external execution."]
    desk.press(desk.approval, "p")

    assert desk.heard[1:] == ["This question cannot be answered here."]


def test_a_run_that_a_later_release_paused_is_not_answered_here(hotel: Make) -> None:
    desk = hotel("sender")
    desk.write("a double room", "a")
    approval = desk.approval
    run_id = approval.partition(".")[0]
    row = desk.client.simulation.run(transact(FetchRun(run_id, None, any_owner=True)))
    later = evolve(row, input=json.dumps({**json.loads(row.input), "turn": {"format": 99}}))
    desk.client.fail_at(
        lambda effect: isinstance(_inner(effect), FetchRun) and _inner(effect).any_owner,
        later,
        times=1,
    )
    desk.press(approval, "p")

    assert (desk.booked, desk.heard[1:]) == ([], ["This question cannot be answered here."])


def _inner(effect: Any) -> Any:
    unit = getattr(effect, "unit", None)
    return getattr(unit, "unit", unit)


def test_an_option_says_who_may_approve() -> None:
    either = ChannelOptions(frozenset({"sender", "4922"}))

    assert either.may_approve("4911", "4911")
    assert either.may_approve("4922", "4911")
    assert not either.may_approve("4933", "4911")
    assert not ChannelOptions().may_approve("4911", "4911")


def test_the_sessions_of_a_sender_have_an_owner_that_no_token_has() -> None:
    assert owner_of("whatsapp", "4911") == "~channel:whatsapp:4911"
