"""Options of channels: taken as they are meant, or refused with their path and a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from legation import Agent, Channel, ConfigurationError, Database, Team

from ...providers.deliveries import channels, platform


def options(**given: Any) -> Any:
    """Return the options of a channel that was given these."""
    return platform(channels=[_channel(**given)]).registry.channels["standard"].options


def _channel(**given: Any) -> Channel:
    (standard,) = (one for one in channels("http://127.0.0.1:9") if one.kind == "standard")
    return evolve(standard, **given)


def faults(**given: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigurationError) as caught:
        options(**given)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def test_sessions_are_of_threads_and_people_unless_a_channel_says_otherwise() -> None:
    assert options().session == "thread and person"
    assert [options(session=name).session for name in ("thread", "person")] == ["thread", "person"]
    assert faults(session="group") == [
        (
            "channels.standard.session",
            "'group' is none of: thread and person, thread, person",
        )
    ]


def test_nobody_approves_unless_a_channel_says_who() -> None:
    assert options().approve == frozenset()
    assert options(approve=("sender", "U1")).approve == {"sender", "U1"}
    assert options(approve="sender").approve == {"sender"}


@pytest.mark.parametrize(
    ("approve", "why"),
    [
        (("nobody", "U1"), '"nobody" stands alone, or not at all'),
        (("U1", " "), "an id has 1 to 256 visible characters"),
        (("a\nb", ""), "an id has 1 to 256 visible characters"),
        (("x" * 257,), "an id has 1 to 256 visible characters"),
    ],
)
def test_who_approves_is_named_by_ids_or_refused(approve: tuple[str, ...], why: str) -> None:
    assert faults(approve=approve) == [("channels.standard.approve", why)]


def test_only_those_who_are_named_may_write() -> None:
    assert options().may_write("eve")
    named = options(allow="ada")
    assert [named.may_write(person) for person in ("ada", "eve", "ad", "")] == [True] + [False] * 3
    assert not options(allow=()).may_write("ada")
    wrong = "an id has 1 to 256 visible characters"
    assert faults(allow=["a", "b\n"]) == [("channels.standard.allow", wrong)]


def test_a_person_may_have_any_number_of_messages_but_not_fewer_than_none() -> None:
    assert [options().waiting, options(waiting=0).waiting] == [100, 0]
    said = "must be a number from 1, or 0 for any number"
    assert faults(waiting=-1) == [("channels.standard.waiting", said)]


def test_a_person_may_be_a_subject_but_nobody_of_the_platforms_own() -> None:
    assert options(subjects={"U1": "ada"}).subjects == {"U1": "ada"}
    said = "expected the subject of tokens: visible characters, the first of them no ~"
    for subject in ("~channel:slack:U2", "~", "", " ", "a\n"):
        assert faults(subjects={"U1": subject}) == [('channels.standard.subjects."U1"', said)]
    wrong = "an id has 1 to 256 visible characters"
    assert faults(subjects={"": "ada"}) == [("channels.standard.subjects", wrong)]


@pytest.mark.parametrize("seconds", [0, 0.5, 60])
def test_messages_are_gathered_for_up_to_a_minute(seconds: float) -> None:
    assert options().gather_seconds == 0
    assert options(gather_seconds=seconds).gather_seconds == seconds


@pytest.mark.parametrize("seconds", [-1, 60.5, float("nan")])
def test_other_spans_of_time_are_refused(seconds: float) -> None:
    sentence = "must be a number from 0 to 60"
    assert faults(gather_seconds=seconds) == [("channels.standard.gather_seconds", sentence)]


def test_a_command_calls_another_agent_or_team_of_the_same_database() -> None:
    given: dict[str, Any] = {
        "agents": [Agent("concierge"), Agent("lawyer"), Agent("far", database="second")],
        "teams": [Team("desk", members=["lawyer"])],
        "databases": [Database("main", "sqlite://"), Database("second", "sqlite:///x.db")],
    }
    right = _channel(agents={"/legal": "lawyer", "/d_2": "desk"})
    hosted = platform(channels=[right], **given).registry.channels["standard"]
    assert {word: one.kind for word, one in hosted.others.items()} == {
        "/legal": "agent",
        "/d_2": "team",
    }

    wrong = {"/new": "lawyer", "legal": "lawyer", "/Legal": "lawyer", "/x": "nobody", "/y": "far"}
    with pytest.raises(ConfigurationError) as caught:
        platform(channels=[_channel(agents=wrong)], **given)
    shape = "expected /[a-z0-9_]{1,32}, and none of /new, /help, /start, /stop"
    assert [(fault.path, fault.message) for fault in caught.value.faults] == [
        *((f'channels.standard.agents."{word}"', shape) for word in ("/new", "legal", "/Legal")),
        ('channels.standard.agents."/x"', "no agent or team 'nobody'"),
        ('channels.standard.agents."/y"', "'far' is not in the database of 'concierge'"),
    ]


@pytest.mark.parametrize("kind", ["standard", "whatsapp"])
def test_an_answer_grows_only_where_a_message_can_be_edited(kind: str) -> None:
    made = {one.kind: evolve(one, stream_answers=True) for one in channels("http://127.0.0.1:9")}
    with pytest.raises(ConfigurationError) as caught:
        platform(channels=[made[kind]])
    hosted = platform(channels=[made["telegram"], made["slack"]]).registry.channels.values()

    said = f"a message of the kind {kind} cannot be edited: an answer comes as a whole"
    assert [(f.path, f.message) for f in caught.value.faults] == [
        (f"channels.{kind}.stream_answers", said)
    ]
    assert [channel.options.stream_answers for channel in hosted] == [True, True]
    assert not options().stream_answers
