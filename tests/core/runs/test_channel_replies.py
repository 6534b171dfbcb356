"""The replies of a run that was asked for in a channel: answers, apologies and questions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from legation import Agent
from legation.channels.deliveries import IncomingMessage
from legation.channels.replies import decode_reply
from legation.hosted.channel_options import ChannelOptions
from legation.hosted.registry import HostedChannel
from legation.runs.channel_replies import (
    REPLY_TO,
    ChannelReplies,
    ReplyTo,
    answer,
    mark_continued,
    read_reply_to,
    tell_cancelled,
)
from legation.store.run_states import RunState

from ...providers.deliveries import platform

MESSAGE = IncomingMessage("m", "4911", text="book", conversation="4911", provider_id="wamid.m")
TO = ReplyTo.of("whatsapp", MESSAGE)
CHANNEL = platform(agents=[Agent(id="concierge")]).registry.channels["whatsapp"]
ASKING = evolve(CHANNEL, options=ChannelOptions(frozenset({"sender"})))


def call(name: str = "book_room", **more: Any) -> dict[str, Any]:
    """Return a requirement, as the output of a paused run has it."""
    arguments = more.pop("arguments", {"room": "double", "nights": 2})
    execution = {"tool_name": name, "tool_args": arguments, "external_execution_required": None}
    return {"tool_execution": {**execution, **more}}


def paused(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"content": "I have tools to execute", "requirements": list(calls)}


def texts(channel: HostedChannel | None, state: RunState, output: dict[str, Any]) -> list[str]:
    return [reply.text for reply in answer(channel, MESSAGE, "r", state, output, 7, 3)]


# --- what a person reads


@pytest.mark.parametrize(
    ("state", "content", "said"),
    [
        (RunState.COMPLETED, " hi ", "hi"),
        (RunState.COMPLETED, {"a": "é"}, '{"a": "é"}'),
        (RunState.COMPLETED, None, CHANNEL.apology),
        (RunState.COMPLETED, "  ", CHANNEL.apology),
        (RunState.ERROR, "half", CHANNEL.apology),
        (RunState.PAUSED, "I wait", "I wait"),
        (RunState.CANCELLED, "half", "The request was cancelled."),
    ],
)
@pytest.mark.parametrize("channel", [CHANNEL, None], ids=["hosted", "elsewhere"])
def test_what_a_run_says_is_its_answer_or_what_it_waits_for(
    channel: HostedChannel | None, state: RunState, content: object, said: str
) -> None:
    assert texts(channel, state, {"content": content}) == [said]


def test_a_question_has_the_tool_and_its_arguments_in_plain_words() -> None:
    (reply,) = answer(ASKING, MESSAGE, "r", RunState.PAUSED, paused(call()), 7, 3)

    assert "book_room" in reply.text
    assert "double" in reply.text
    assert (reply.purpose, reply.approval) == ("approval", "r.7")
    assert [(one.name, one.arguments) for one in reply.calls] == [
        ("book_room", {"room": "double", "nights": 2})
    ]


def test_a_value_cannot_pass_for_another_line_of_the_question() -> None:
    told = call(arguments={"note": "x`\n\n**refund**\n- amount: `5", "empty": ""})
    (text,) = texts(ASKING, RunState.PAUSED, paused(told))

    assert "x' **refund** - amount: '5" in text
    assert "\n**refund**" not in text


def test_a_call_in_doubt_is_asked_about_as_one() -> None:
    (text,) = texts(ASKING, RunState.PAUSED, paused(call(in_doubt=True)))

    assert "not known whether" in text
    assert "book_room" in text


def test_a_call_of_the_client_is_no_question_for_yes_and_no() -> None:
    told = paused(call(), call("scan", external_execution_required=True))

    assert texts(ASKING, RunState.PAUSED, told) == ["I have tools to execute"]


def test_a_question_that_is_long_has_its_buttons_under_a_short_text() -> None:
    told = paused(call(arguments={"text": "word " * 1500}))
    *before, last = answer(ASKING, MESSAGE, "r", RunState.PAUSED, told, 7, 3)

    assert len(before) > 1
    assert {reply.purpose for reply in before} == {"answer"}
    assert (last.purpose, len(last.text) < 100) == ("approval", True)


def test_nobody_approves_what_is_too_long_to_be_shown() -> None:
    told = paused(call(arguments={"text": "word " * 5000}))
    (reply,) = answer(ASKING, MESSAGE, "r", RunState.PAUSED, told, 7, 3)

    assert (reply.purpose, reply.text) == (
        "answer",
        "What waits for approval is too long to be shown here.",
    )


# --- where it goes


def test_the_place_of_a_message_is_stored_and_read() -> None:
    assert read_reply_to({REPLY_TO: {**TO.dump(), "later": 1}}) == TO
    assert read_reply_to({}) is None
    assert TO.message.conversation == "4911"


def test_a_run_of_a_channel_is_marked_as_continued_and_no_other() -> None:
    marked = mark_continued({REPLY_TO: TO.dump()})

    assert read_reply_to(marked) == evolve(TO, continued=True)
    assert mark_continued({"message": "hi"}) == {}


def test_letters_have_keys_of_their_own_for_each_end_of_a_run() -> None:
    replies = ChannelReplies(TO, CHANNEL)
    first = replies.letters("r", RunState.COMPLETED, {"content": "word " * 1000}, 7, 3)
    second = replies.letters("r", RunState.COMPLETED, {"content": "hi"}, 9, 3)

    assert [letter.reply.idempotency_key for letter in (*first, *second)] == [
        "later.7.1-m",
        "later.7.2-m",
        "later.9.1-m",
    ]
    assert {letter.reply.message_id for letter in first} == {"m"}
    assert decode_reply(second[0].reply.payload).quotes == "wamid.m"


def test_who_asked_is_told_of_a_run_that_was_cancelled_while_it_waited() -> None:
    (letter,) = tell_cancelled({REPLY_TO: TO.dump()}, 8, 3)

    assert json.loads(letter.reply.payload)["text"] == "The request was cancelled."
    assert tell_cancelled({"message": "hi"}, 8, 3) == ()
